//! The controller beside a plain loop over the same policy, and beside the optimum.

mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hither_core::registry::{Mechanism, replacement_policies};
use hither_core::{Block, NEVER};
use hither_ids::{FileKey, Tid};
use proptest::prelude::*;

use super::super::event::Judged;
use super::residency::ExtentOffset;
use super::*;

const EXTENT_BLOCKS: u64 = EXTENT_BYTES / BLOCK_BYTES;

pub(crate) fn config(policy: &str, blocks: u64) -> PageCacheConfig {
    PageCacheConfig {
        policy: policy.parse().expect("a policy"),
        budget_bytes: blocks * BLOCK_BYTES,
        alone_bytes: blocks * BLOCK_BYTES,
        block_bytes: BLOCK_BYTES,
        dry_run: false,
        given: true,
        limit: None,
        always: false,
        spare_preexisting: true,
        sites: Vec::new(),
    }
}

fn read(file: u64, first: u64, blocks: u64) -> Input {
    Input::Access {
        file: FileKey(file),
        offset: first * BLOCK_BYTES,
        length: blocks * BLOCK_BYTES,
        signature: 7,
        process: 0,
        thread: 0,
        write: false,
    }
}

fn stored(bytes: u64) -> Input {
    Input::Stored {
        bytes,
        transferred_bytes: bytes,
    }
}

/// A controller, and a page cache that holds what was read and drops what the controller decides.
struct Lab {
    controller: PageCacheController,
    time_ns: u64,
    cached: BTreeSet<(u64, u64)>,
    /// Its size in blocks: beyond that the least recently used block goes.
    room: usize,
    uses: VecDeque<(u64, u64)>,
    /// How often a block is in `uses`.
    times_used: BTreeMap<(u64, u64), u32>,
    missed: u64,
    judged: Vec<Judged>,
}

impl Lab {
    /// A controller that always steers, in unlimited memory.
    fn new(policy: &str, blocks: u64) -> Lab {
        let always = PageCacheConfig {
            always: true,
            ..config(policy, blocks)
        };
        Lab::judged(&always, usize::MAX)
    }

    /// A controller that steers when that pays, in a memory of `room` blocks.
    fn judged(config: &PageCacheConfig, room: usize) -> Lab {
        Lab {
            controller: PageCacheController::new(config).expect("a sound configuration"),
            time_ns: 0,
            cached: BTreeSet::new(),
            room,
            uses: VecDeque::new(),
            times_used: BTreeMap::new(),
            missed: 0,
            judged: Vec::new(),
        }
    }

    fn cache(&mut self, block: (u64, u64)) {
        self.missed += u64::from(self.cached.insert(block));
        if self.room == usize::MAX {
            return;
        }
        self.uses.push_back(block);
        *self.times_used.entry(block).or_default() += 1;
        while self.cached.len() > self.room {
            let oldest = self.uses.pop_front().expect("what is cached was used");
            let left = self.times_used.get_mut(&oldest).expect("it was counted");
            *left -= 1;
            if *left == 0 {
                self.cached.remove(&oldest);
            }
        }
    }

    fn after(&mut self, later_ns: u64, input: Input) -> Vec<Decision> {
        self.time_ns += later_ns;
        if let Input::Access {
            file,
            offset,
            length,
            ..
        } = input
        {
            for index in offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES) {
                self.cache((file.0, index));
            }
        }
        let mut out = Vec::new();
        let time_ns = self.time_ns;
        self.controller
            .step(&TimedInput { time_ns, input }, &mut out);
        for decision in &out {
            match *decision {
                Decision::Order(Order::Drop {
                    file,
                    offset,
                    length,
                }) => {
                    let dropped = offset / BLOCK_BYTES..(offset + length) / BLOCK_BYTES;
                    self.cached
                        .retain(|&(of, index)| of != file.0 || !dropped.contains(&index));
                }
                Decision::Note(Note::Judged(judged)) => self.judged.push(judged),
                Decision::Order(_) | Decision::Note(Note::Loses { .. }) => {}
            }
        }
        out
    }

    /// Gives it an input, and returns what is to be dropped.
    fn input(&mut self, input: Input) -> Vec<Decision> {
        let mut out = self.after(1000, input);
        out.extend(self.after(0, Input::Tick));
        out
    }

    /// What the model holds, by file and block of it.
    fn kept(&self) -> BTreeSet<(u64, u64)> {
        let held = self.controller.model.residency.resident();
        held.map(|block| {
            let access = self.controller.latest[block.index()];
            let key = self.controller.files[access.object.index()].key;
            (key.0, u64::from(access.index))
        })
        .collect()
    }
}

/// Six passes over so many blocks where the kernel has `room`, and its reads are counted when the
/// controller asks. Returns whether it steered, and the bytes that were read.
fn passes_counted(blocks: u64, room: usize) -> (bool, u64) {
    let budget = PageCacheConfig {
        given: false,
        ..config("mru", 2048)
    };
    let mut lab = Lab::judged(&budget, room);
    let read_before = budget.budget_bytes;
    lab.input(stored(read_before));
    let mut counted = 0;
    for _ in 0..6 {
        for first in (0..blocks).step_by(4) {
            if lab
                .input(read(1, first, 4))
                .contains(&Decision::Order(Order::Count))
            {
                let bytes = (lab.missed - counted) * BLOCK_BYTES;
                counted = lab.missed;
                lab.input(stored(bytes));
            }
        }
    }
    (lab.controller.summary().drops > 0, lab.missed)
}

#[test]
fn a_loop_that_the_kernel_keeps_is_left_to_it() {
    let fits = 2200;
    assert_eq!(passes_counted(fits, 2304), (false, fits), "LRU misses all");
    let (steered, missed) = passes_counted(4096, 2304);
    assert!(steered && missed < 4 * 4096, "{missed}");
}

/// Misses of a policy that a plain loop drives over bare references, with the next use known.
fn plain(policy: &str, capacity: u32, blocks: &[u32]) -> u64 {
    let spec: Spec = policy.parse().expect("a policy");
    let mut next = BTreeMap::new();
    let mut nexts = vec![NEVER; blocks.len()];
    for (tick, block) in blocks.iter().enumerate().rev() {
        nexts[tick] = next.insert(*block, tick as u64).unwrap_or(NEVER);
    }
    let mut cache = SimulatedCache::new(&spec, capacity, &[]);
    for (tick, (&block, &next)) in blocks.iter().zip(&nexts).enumerate() {
        cache.access(&Access {
            next,
            site: Site(1),
            ..Access::bare(tick as u64, Block(block))
        });
    }
    cache.residency.misses()
}

#[test]
fn six_passes_over_twice_the_budget_cost_what_the_optimum_does() {
    let (budget, file) = (2048, 4096);
    let room = budget + 2 * EXTENT_BLOCKS;
    let mut lab = Lab::judged(&config("mru", budget), room as usize);
    for _ in 0..6 {
        for first in (0..file).step_by(4) {
            lab.input(read(1, first, 4));
        }
    }
    let blocks: Vec<u32> = (0..6).flat_map(|_| 0..file as u32).collect();
    let optimum = plain("opt", budget as u32, &blocks);
    let misses = lab.controller.summary().missed_bytes / BLOCK_BYTES;
    // Blocks that are stale until their whole extent is dropped are hit again: less than an extent
    // a pass.
    assert!(
        lab.missed <= misses && misses - lab.missed <= 6 * EXTENT_BLOCKS,
        "{misses} and {}",
        lab.missed
    );
    // An extent a pass: the optimum does not cache what is read now; here it goes when the next
    // block comes. And until steering begins, a sixteenth of the budget into the second pass,
    // nothing is saved.
    let per_pass = EXTENT_BLOCKS;
    assert!(
        misses.abs_diff(optimum) <= 6 * per_pass + budget / 16,
        "{misses} against {optimum}"
    );
    assert_eq!(
        lab.controller.summary().lru_missed_bytes,
        6 * file * BLOCK_BYTES
    );
    assert!(lab.judged.iter().all(|judged| judged.steering));
    lab.controller.check();
}

/// Units are kept or given up as a whole, so that the budget holds in the page cache and not only
/// in the model. Without them, a policy that keeps blocks here and there had three times its budget
/// cached.
#[test]
fn whatever_the_policy_no_more_is_cached_than_the_budget_and_what_is_read() {
    // Neither is a whole number of extents.
    let (budget, file) = (1000, 2500);
    for entry in replacement_policies()
        .iter()
        .filter(|entry| entry.runs(Mechanism::PageCache))
    {
        let mut lab = Lab::new(entry.name, budget);
        let mut most = 0;
        for _ in 0..5 {
            for first in (0..file).step_by(4) {
                lab.input(read(1, first, 4));
                most = most.max(lab.cached.len() as u64);
            }
        }
        // The extent that is read, the one before it, and the file's last one, which is partial.
        let limit = budget + 3 * EXTENT_BLOCKS;
        assert!(most <= limit, "{}: {most} blocks", entry.name);
        lab.controller.check();
    }
}

#[test]
fn pcc_learns_the_loop_and_knows_it_the_next_time() {
    let (budget, file) = (2048, 4096);
    let run = |sites: Vec<SiteProfile>| {
        let config = PageCacheConfig {
            sites,
            ..config("pcc", budget)
        };
        let room = budget + 2 * EXTENT_BLOCKS;
        let mut lab = Lab::judged(&config, room as usize);
        for _ in 0..6 {
            for first in (0..file).step_by(4) {
                lab.input(read(1, first, 4));
            }
        }
        let summary = lab.controller.summary();
        assert!(summary.steering);
        (summary.missed_bytes / BLOCK_BYTES, lab.controller.sites())
    };
    let (first, learnt) = run(Vec::new());
    let optimum = file + 5 * (file - budget);
    assert!(first <= optimum * 105 / 100, "{first} against {optimum}");
    assert_eq!(learnt.len(), 1);
    let SiteProfile {
        signature,
        counters,
    } = learnt[0];
    assert!(signature == 7 && counters.looping > counters.sequential);
    assert!(counters.period.abs_diff(file) < 8, "{learnt:?}");
    let (second, _) = run(learnt);
    assert!(second <= first, "{second} after {first}");
}

#[test]
fn a_policy_without_gain_drops_nothing() {
    let (budget, file) = (256, 512);
    let mut lab = Lab::judged(&config("fifo", budget), usize::MAX);
    let mut decisions = Vec::new();
    for _ in 0..12 {
        for first in 0..file {
            decisions.extend(lab.input(read(1, first, 1)));
        }
    }
    assert_eq!(lab.judged.len(), 6);
    assert_eq!(drops_of(&decisions, 1), []);
    let summary = lab.controller.summary();
    assert_eq!((summary.stopped, summary.steering), (0, false));
    assert_eq!(summary.missed_bytes, 12 * file * BLOCK_BYTES);
}

#[test]
fn a_policy_that_comes_to_lose_steps_aside() {
    let budget = 256;
    let mut lab = Lab::judged(&config("mru", budget), budget as usize);
    for block in (0..4).flat_map(|_| 0..2 * budget) {
        lab.input(read(1, block, 1));
    }
    assert!(lab.controller.summary().steering);
    // What comes last is read next.
    let mut decisions = Vec::new();
    for block in (0..40).flat_map(|_| 0..budget / 2) {
        decisions.extend(lab.input(read(2, block, 1)));
    }
    let summary = lab.controller.summary();
    assert_eq!((summary.stopped, summary.steering), (1, false));
    let stopped = |decision: &Decision| match decision {
        Decision::Note(Note::Judged(judged)) => !judged.steering,
        _ => false,
    };
    let stopped = decisions.iter().position(stopped).expect("it stopped");
    assert_eq!(
        drops_of(&decisions[stopped..], 2),
        [],
        "it goes on dropping"
    );
    lab.controller.check();
}

#[test]
fn nothing_is_dropped_before_there_is_a_gain_and_what_the_kernel_has_is_taken_over() {
    let (budget, file) = (1024, 2048);
    let alone = budget + EXTENT_BLOCKS;
    let config = PageCacheConfig {
        alone_bytes: alone * BLOCK_BYTES,
        ..config("mru", budget)
    };
    let mut lab = Lab::judged(&config, alone as usize);
    for first in 0..file {
        // Once, when the kernel has to reclaim something.
        let expected: &[Decision] = if first == alone {
            &[Decision::Order(Order::DisableReadahead)]
        } else {
            &[]
        };
        assert_eq!(lab.input(read(1, first, 1)), expected);
    }
    assert_eq!(
        lab.controller.extents_to_check(9),
        [],
        "the model is not what is cached"
    );
    let mut first = 0;
    while !lab.controller.summary().steering {
        lab.input(read(1, first, 1));
        first += 1;
    }
    assert_eq!(first, budget / 16);
    lab.controller.check();
    let kept = lab.kept();
    assert!(kept.len() as u64 >= budget - 2 * EXTENT_BLOCKS);
    assert!(kept.is_subset(&lab.cached), "it keeps what is gone");
    let summary = lab.controller.summary();
    assert_eq!(summary.missed_bytes, summary.lru_missed_bytes);
}

#[test]
fn nothing_is_dropped_where_all_fits() {
    let mut lab = Lab::judged(&config("pcc", 4096), usize::MAX);
    for _ in 0..20 {
        for first in 0..2048 {
            assert_eq!(lab.input(read(1, first, 1)), []);
        }
    }
}

/// Reads twice as many blocks of another file as there is room for.
fn flood(lab: &mut Lab, file: u64) -> Vec<Decision> {
    let blocks = 2 * u64::from(lab.controller.model.residency.capacity());
    (0..blocks)
        .flat_map(|first| lab.input(read(file, first, 1)))
        .collect()
}

fn drops_of(decisions: &[Decision], wanted: u64) -> Vec<(u64, u64)> {
    let ranges = decisions.iter().filter_map(|decision| match *decision {
        Decision::Order(Order::Drop {
            file,
            offset,
            length,
        }) if file == FileKey(wanted) => Some((offset, length)),
        _ => None,
    });
    ranges.collect()
}

#[test]
fn what_is_mapped_gone_written_or_anothers_is_left_alone() {
    for leave in [
        Input::Mapped { file: FileKey(1) },
        Input::Gone { file: FileKey(1) },
        Input::Cut {
            file: FileKey(1),
            bytes: 0,
        },
    ] {
        let mut lab = Lab::new("lru", 256);
        lab.input(read(1, 0, 128));
        lab.input(leave);
        let decisions = flood(&mut lab, 2);
        assert_eq!(drops_of(&decisions, 1), []);
        assert!(!drops_of(&decisions, 2).is_empty());
        lab.controller.check();
    }
    let mut lab = Lab::new("lru", 256);
    let (offset, length) = (0, 64 * BLOCK_BYTES);
    lab.input(Input::Preexisting {
        file: FileKey(1),
        offset,
        length,
        cached_bytes: length,
    });
    lab.input(read(1, 0, 200));
    let mut decisions = flood(&mut lab, 2);
    decisions.extend(lab.after(2_000_000_000, Input::Tick));
    let dropped = drops_of(&decisions, 1);
    assert!(
        !dropped.is_empty()
            && dropped
                .iter()
                .all(|&(offset, _)| offset >= 64 * BLOCK_BYTES),
        "{dropped:?}"
    );
    assert_eq!(lab.controller.summary().preexisting_bytes, length);
    lab.controller.check();
}

/// A page cache and a mapping of it: of an extent that is mapped no touch is seen.
struct MappedLab {
    lab: Lab,
    mapped: BTreeSet<u64>,
    read: u64,
}

impl MappedLab {
    /// Budgets of 24 extents, and a file of 40.
    fn new(policy: &str) -> MappedLab {
        let mut lab = Lab::judged(&config(policy, 24 * EXTENT_BLOCKS), usize::MAX);
        let bytes = 40 * EXTENT_BYTES;
        lab.input(Input::Watched {
            file: FileKey(1),
            bytes,
        });
        MappedLab {
            lab,
            mapped: BTreeSet::new(),
            read: 0,
        }
    }

    /// Returns whether the file is left alone from now on.
    fn touch(&mut self, extent: u64, room: usize) -> bool {
        if !self.mapped.insert(extent) {
            return false;
        }
        self.read += 1;
        let touched = Input::Touched {
            file: FileKey(1),
            offset: extent * EXTENT_BYTES + 4096,
            thread: Tid(12_345),
        };
        let decisions = self.lab.input(touched);
        for (offset, length) in drops_of(&decisions, 1) {
            let dropped = offset / EXTENT_BYTES..(offset + length).div_ceil(EXTENT_BYTES);
            self.mapped.retain(|extent| !dropped.contains(extent));
        }
        // The kernel alone evicts what it read first of the rest.
        while self.mapped.len() > room {
            let oldest = (1..=40).map(|after| (extent + after) % 40);
            let oldest = oldest.into_iter().find(|of| self.mapped.contains(of));
            self.mapped.remove(&oldest.expect("some are mapped"));
        }
        self.lab.controller.check();
        decisions.contains(&Decision::Order(Order::Unwatch { file: FileKey(1) }))
    }
}

#[test]
fn a_loop_over_a_mapped_file_is_steered_by_its_page_faults() {
    for policy in ["mru", "pcc"] {
        let mut mapped = MappedLab::new(policy);
        for pass in 0..8 {
            mapped.read = 0;
            for extent in 0..40 {
                assert!(!mapped.touch(extent, 30), "{policy}: {extent}");
            }
            match pass {
                0 => assert_eq!(mapped.read, 40),
                1 => {}
                _ => assert!(mapped.read <= 20, "{policy}, {pass}: {}", mapped.read),
            }
        }
        let summary = mapped.lab.controller.summary();
        assert_eq!((summary.watched, summary.mapped), (1, 0));
        assert_eq!(summary.references, 8 * 40 * EXTENT_BLOCKS, "all are seen");
        assert!(summary.steering);
    }
}

#[test]
fn a_mapped_file_with_a_hot_set_is_left_alone() {
    let mut mapped = MappedLab::new("mru");
    let mut left_alone = false;
    for _ in 0..3 {
        for extent in 0..40 {
            mapped.touch(extent, 30);
        }
    }
    assert!(mapped.lab.controller.summary().steering);
    for at in 0..1000 {
        let hot = 25 + at * 7 % 13;
        for extent in [at % 40, hot] {
            left_alone |= mapped.touch(extent, 30);
        }
    }
    assert!(left_alone);
    let summary = mapped.lab.controller.summary();
    assert_eq!((summary.watched, summary.mapped), (0, 1));
    assert_eq!(mapped.lab.kept(), BTreeSet::new());
}

#[test]
fn what_was_written_waits_until_it_must_be_clean() {
    let mut lab = Lab::new("lru", 256);
    let Input::Access {
        file,
        offset,
        length,
        signature,
        process,
        thread,
        ..
    } = read(1, 0, 128)
    else {
        panic!("a read is an access");
    };
    lab.input(Input::Access {
        file,
        offset,
        length,
        signature,
        process,
        thread,
        write: true,
    });
    // Reading does not make it clean.
    lab.input(read(1, 0, 128));
    let decisions = flood(&mut lab, 2);
    assert_eq!(drops_of(&decisions, 1), []);
    let later = lab.after(50_000_000_000, Input::Tick);
    assert_eq!(drops_of(&later, 1), [(0, EXTENT_BYTES)]);
    lab.controller.check();
}

#[test]
fn what_readahead_brought_of_an_extent_that_is_being_read_is_not_dropped() {
    let mut lab = Lab::new("mru", 256);
    lab.input(read(1, 0, 256));
    let mut drops = Vec::new();
    // Each time a miss elsewhere evicts the block that was just read.
    for block in 0..64 {
        drops.extend(lab.input(read(2, block, 1)));
        drops.extend(lab.input(read(3, 3 * block, 1)));
    }
    assert_eq!(drops_of(&drops, 2), []);
    let next = lab.input(read(2, EXTENT_BLOCKS, 1));
    assert_eq!(
        drops_of(&next, 2),
        [(0, EXTENT_BYTES)],
        "the reader has gone on"
    );
    // It is dropped also where the reader has stopped.
    lab.input(read(3, 500, 1));
    let later = lab.after(2_000_000_000, Input::Tick);
    assert_eq!(drops_of(&later, 2), [(EXTENT_BYTES, EXTENT_BYTES)]);
    lab.controller.check();
}

#[test]
fn a_smaller_budget_makes_room_and_what_was_used_last_stays() {
    let mut lab = Lab::new("lru", 1024);
    for first in 0..1024 {
        assert_eq!(lab.input(read(1, first, 1)), []);
    }
    // A slightly smaller budget is ignored.
    assert_eq!(
        lab.input(Input::Budget {
            bytes: 980 * BLOCK_BYTES,
            alone_bytes: 980 * BLOCK_BYTES
        }),
        []
    );
    let decisions = lab.input(Input::Budget {
        bytes: 512 * BLOCK_BYTES,
        alone_bytes: 512 * BLOCK_BYTES,
    });
    assert_eq!(
        drops_of(&decisions, 1),
        [(0, 512 * BLOCK_BYTES)],
        "{decisions:?}"
    );
    assert_eq!(lab.kept(), (512..1024).map(|index| (1, index)).collect());
    lab.controller.check();
}

#[test]
fn reading_a_block_in_small_steps_is_one_reference() {
    let mut lab = Lab::new("lru", 64);
    let step = |offset: u64, thread| Input::Access {
        file: FileKey(1),
        offset,
        length: 1000,
        signature: 1,
        process: 0,
        thread,
        write: false,
    };
    for offset in (0..10 * BLOCK_BYTES).step_by(1000) {
        lab.input(step(offset, 0));
    }
    // Its end reaches into the eleventh block.
    assert_eq!(lab.controller.summary().references, 11);
    lab.input(step(10 * BLOCK_BYTES, 1));
    assert_eq!(lab.controller.summary().references, 12, "another thread's");
}

#[test]
fn what_the_kernel_took_is_not_kept_and_each_extent_is_asked_about_in_turn() {
    let mut lab = Lab::new("lru", 1024);
    lab.input(Input::Preexisting {
        file: FileKey(2),
        offset: EXTENT_BYTES,
        length: EXTENT_BYTES,
        cached_bytes: EXTENT_BYTES,
    });
    lab.input(read(1, 0, 3 * EXTENT_BLOCKS));
    let all = [
        (2, EXTENT_BYTES),
        (1, 0),
        (1, EXTENT_BYTES),
        (1, 2 * EXTENT_BYTES),
    ]
    .map(|(file, offset)| ExtentOffset {
        file: FileKey(file),
        offset,
    });
    assert_eq!(lab.controller.extents_to_check(3), all[..3]);
    assert_eq!(lab.controller.extents_to_check(3), all[3..]);
    assert_eq!(lab.controller.extents_to_check(9), all);
    for extent in &all[..2] {
        lab.input(Input::Absent {
            file: extent.file,
            offset: extent.offset,
            length: EXTENT_BYTES,
        });
    }
    assert_eq!(lab.controller.summary().absent_bytes, EXTENT_BYTES);
    assert_eq!(lab.controller.extents_to_check(9), all[2..]);
    lab.input(read(2, EXTENT_BLOCKS, 1));
    assert_eq!(
        lab.controller.extents_to_check(9),
        [all[0], all[2], all[3]],
        "it is the program's now"
    );
    lab.controller.check();
}

/// Few files and blocks, so that accesses collide. The last third of an extent is never read, so
/// that none is read through.
fn reads() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
    let first = (0..5_u64, 0..60_u64).prop_map(|(extent, block)| extent * EXTENT_BLOCKS + block);
    prop::collection::vec((1..4_u64, first, 1..30_u64, 0..4_u64), 1..200)
}

fn live_policies() -> Vec<&'static str> {
    let live = replacement_policies()
        .iter()
        .filter(|entry| entry.runs(Mechanism::PageCache));
    live.map(|entry| entry.name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Where no extent is read through, the controller's cache is the policy's own, block for
    /// block. What the policy keeps is never dropped, and an extent of which it keeps nothing is
    /// dropped whole.
    #[test]
    fn it_holds_what_a_plain_loop_holds(
        reads in reads(),
        policy in prop::sample::select(live_policies()),
    ) {
        let capacity = 300;
        let mut lab = Lab::new(policy, capacity);
        let spec = policy.parse().expect("a policy");
        let mut cache = SimulatedCache::new(&spec, capacity as u32, &[]);
        let (mut numbers, mut keys, mut tick) = (BTreeMap::new(), Vec::new(), 0);
        let mut objects = BTreeMap::new();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for (file, first, blocks, site) in reads {
            let mut input = read(file, first, blocks);
            if let Input::Access { signature, .. } = &mut input {
                *signature = 100 + site;
            }
            lab.input(input);
            let objects_known = objects.len() as u32;
            let object = *objects.entry(file).or_insert(objects_known);
            last.insert(file, first + blocks - 1);
            for index in first..first + blocks {
                let known = keys.len() as u32;
                let block = *numbers.entry((file, index)).or_insert(known);
                if block == known {
                    keys.push((file, index));
                }
                cache.access(&Access {
                    object: Object(object),
                    index: index as u32,
                    // The controller numbers sites in order of appearance; policies only tell them
                    // apart.
                    site: Site(lab.controller.sites.number(100 + site)),
                    ..Access::bare(tick, Block(block))
                });
                tick += 1;
            }
            let kept: BTreeSet<(u64, u64)> = cache.residency.resident().map(|block|
                keys[block.index()]).collect();
            prop_assert_eq!(lab.kept(), kept.clone());
            prop_assert!(kept.is_subset(&lab.cached), "kept and dropped");
            let extents: BTreeSet<(u64, u64)> = kept.iter().map(|&(file, index)| (file,
                index / EXTENT_BLOCKS)).collect();
            for &(file, index) in &lab.cached {
                let extent = index / EXTENT_BLOCKS;
                let read = last.get(&file).is_some_and(|last| last / EXTENT_BLOCKS == extent);
                prop_assert!(read || extents.contains(&(file, extent)), "left in an extent \
                    without kept blocks");
            }
            lab.controller.check();
        }
    }
}
