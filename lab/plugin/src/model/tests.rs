//! Cases with counts computed by hand.

use super::*;

/// Nodes of the CPUs; 1 MiB of memory per node; L1 of 1 KiB, L2 of 4 KiB, and an optional LLC of 16
/// KiB.
pub(super) fn machine(cpus: &[usize], l2: bool, llc: bool) -> Machine {
    let nodes = cpus.iter().max().unwrap() + 1;
    let memory = (0..nodes).map(|node| MemoryRange {
        start: (node as u64) << 21,
        end: ((node as u64) << 21) + (1 << 20),
        node,
    });
    Machine {
        cpus: cpus.to_vec(),
        memory: memory.collect(),
        line_bytes: 64,
        l1: Geometry {
            bytes: 1 << 10,
            ways: 4,
        },
        l2: l2.then_some(Geometry {
            bytes: 4 << 10,
            ways: 4,
        }),
        llc: llc.then_some(Geometry {
            bytes: 16 << 10,
            ways: 8,
        }),
    }
}

pub(super) fn run(model: &Model, access: &Access) {
    if !model.hit(access) {
        model.miss(access);
    }
}

fn at(model: &Model, cpu: usize, address: u64, store: bool) {
    run(
        model,
        &Access {
            cpu,
            physical: address,
            linear: address,
            store,
            mode: Mode::User,
        },
    );
}

fn user(pairs: &[[u64; 2]]) -> Vec<u64> {
    pairs.iter().map(|pair| pair[0]).collect()
}

#[test]
fn a_stream_reads_each_line_once() {
    let model = Model::new(&machine(&[0, 1], true, true));
    for address in (1 << 21..(1 << 21) + (1 << 20)).step_by(8) {
        at(&model, 0, address, false);
    }
    let (cpus, _) = model.totals();
    let lines = (1 << 20) / 64;
    assert_eq!(user(&cpus[0].reads), [0, lines]);
    assert_eq!(cpus[0].l1_hits, [7 * lines, 0]);
    assert_eq!(cpus[0].accesses(), [8 * lines, 0]);
    assert_eq!(cpus[0].write_backs, [0, 0]);
}

#[test]
fn a_stream_of_stores_writes_back_all_that_no_longer_fits() {
    for (llc, kept) in [(true, 16 << 10), (false, 4 << 10)] {
        let model = Model::new(&machine(&[0], true, llc));
        for address in (0..1 << 20).step_by(64) {
            at(&model, 0, address, true);
        }
        let (cpus, _) = model.totals();
        assert_eq!(user(&cpus[0].writes), [(1 << 20) / 64]);
        assert_eq!(cpus[0].write_backs, [((1 << 20) - kept) / 64]);
    }
}

#[test]
fn a_cycle_beyond_the_last_level_misses_always_and_one_within_never_again() {
    for (bytes, expected) in [(17 << 10, 10), (16 << 10, 1)] {
        let model = Model::new(&machine(&[0], true, true));
        // The rows of a set are used in order, so with one row too many LRU always evicts the next
        // one.
        let lines: Vec<_> = (0..bytes / 64).collect();
        for _ in 0..10 {
            lines
                .iter()
                .for_each(|line| at(&model, 0, line * 64, false));
        }
        let reads = model.totals().0[0].reads[0][0];
        let sets_too_full = (bytes - (16 << 10)) / 64;
        let cycling = sets_too_full * 9;
        assert_eq!(
            reads,
            if expected == 1 {
                256
            } else {
                cycling * 10 + (256 - sets_too_full * 8)
            }
        );
    }
}

#[test]
fn false_sharing_goes_from_cache_to_cache() {
    let model = Model::new(&machine(&[0, 1], true, true));
    for round in 0..100 {
        at(&model, round % 2, 128 + 8 * (round as u64 % 2), true);
    }
    let (cpus, _) = model.totals();
    assert_eq!(user(&cpus[0].writes), [1, 0]);
    assert_eq!(user(&cpus[0].cache_to_cache), [0, 49]);
    assert_eq!(user(&cpus[1].cache_to_cache), [50, 0]);
    assert_eq!(cpus[0].write_backs, [0, 0]);
}

#[test]
fn neighbours_are_served_within_the_node() {
    for llc in [true, false] {
        let model = Model::new(&machine(&[0, 0, 1], true, llc));
        at(&model, 0, 0, true);
        at(&model, 1, 0, false);
        at(&model, 1, 0, true);
        let (cpus, _) = model.totals();
        assert_eq!(user(&cpus[0].writes), [1, 0]);
        // The neighbour serves the load; the store waits for the invalidation of the neighbour's
        // copy.
        assert_eq!(cpus[1].llc_hits, [2, 0]);
        // Without an LLC, the line that the load made clean can only be written to memory.
        assert_eq!(cpus[1].write_backs, [u64::from(!llc), 0]);
    }
}

#[test]
fn clean_copies_elsewhere_leave_the_answer_to_memory_and_cost_a_store_a_round_trip() {
    let model = Model::new(&machine(&[0, 1], true, true));
    at(&model, 0, 64, false);
    at(&model, 1, 64, false);
    at(&model, 1, 64, true);
    at(&model, 0, 64, false);
    let (cpus, _) = model.totals();
    assert_eq!(user(&cpus[0].reads), [1, 0]);
    assert_eq!(user(&cpus[1].reads), [1, 0]);
    assert_eq!(user(&cpus[1].cache_to_cache), [1, 0]);
    assert_eq!(user(&cpus[0].cache_to_cache), [0, 1]);
    assert_eq!(cpus[0].write_backs, [1, 0]);
}

#[test]
fn ranges_take_the_users_lines_alone() {
    let model = Model::new(&machine(&[0, 1], true, true));
    model.add_range(0x1000, 0x1fff);
    for (linear, mode) in [
        (0x1000, Mode::User),
        (0x1fff, Mode::User),
        (0x2000, Mode::User),
        (0x1800, Mode::Kernel),
    ] {
        run(
            &model,
            &Access {
                cpu: 1,
                physical: linear,
                linear,
                store: false,
                mode,
            },
        );
    }
    assert_eq!(model.totals().1[0].lines, [[0, 0], [2, 0]]);
}

#[test]
fn addresses_without_memory_are_counted_apart() {
    let model = Model::new(&machine(&[0, 1], true, true));
    at(&model, 0, 1 << 20, false);
    at(&model, 0, 1 << 40, true);
    let (cpus, _) = model.totals();
    assert_eq!((cpus[0].unmapped, cpus[0].accesses()), (2, [0, 0]));
}
