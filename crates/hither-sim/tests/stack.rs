//! Stack algorithms against the caches that they replace, at every size.

use hither_core::registry::{Needs, ReplacementSettings};
use hither_core::{Access, Block, Residency, Spec};
use hither_sim::references::InMemory;
use hither_sim::{CacheConfiguration, CacheOptions, CacheOutcome, References, Size, Stack, run};
use hither_testing::skip::skip;
use hither_trace::{LoadOptions, Trace};
use proptest::prelude::*;
use std::path::PathBuf;

/// Hits of the policy itself, since `run` would use its stack.
fn simulated(trace: &impl References, policy: &str, cache_blocks: u32) -> u64 {
    let spec: Spec = policy.parse().expect("a policy");
    let mut cache = Residency::new(cache_blocks, trace.blocks() as usize);
    let mut policy = spec.build(&ReplacementSettings::new(cache_blocks));
    let (mut start, mut batch) = (0, Vec::new());
    loop {
        let needs = Needs {
            future: true,
            ..Needs::NOTHING
        };
        let read = trace.fill(start, 8192, needs, &mut batch);
        read.expect("it can be read");
        if batch.is_empty() {
            return cache.hits();
        }
        start += batch.len() as u64;
        policy.drive(&mut cache, &batch);
    }
}

fn stacks(trace: &impl References, sizes: &[u32]) -> [(&'static str, Stack); 2] {
    let blocks = trace.blocks();
    let (mut lru, mut opt) = (Stack::lru(sizes, blocks), Stack::opt(sizes, blocks));
    let (mut start, mut batch) = (0, Vec::new());
    loop {
        let read = trace.fill(start, 1000, Needs::NOTHING, &mut batch);
        read.expect("it can be read");
        if batch.is_empty() {
            return [("lru", lru), ("opt", opt)];
        }
        start += batch.len() as u64;
        lru.drive(&batch);
        opt.drive(&batch);
    }
}

fn trace_of(stream: impl IntoIterator<Item = u32>) -> InMemory {
    let accesses = (0..)
        .zip(stream)
        .map(|(tick, block)| Access::bare(tick, Block(block)))
        .collect();
    InMemory::new(accesses, Needs::NOTHING)
}

fn check_every_size(trace: &InMemory) {
    let every: Vec<u32> = (1..=trace.blocks() + 1).collect();
    let some: Vec<u32> = every.iter().copied().filter(|size| size % 7 == 3).collect();
    for sizes in [&every, &some] {
        for (policy, stack) in stacks(trace, sizes) {
            let curve = stack.curve();
            assert_eq!(curve.references(), trace.references());
            assert_eq!(curve.hits(0), None);
            for &size in sizes {
                let hits = simulated(trace, policy, size);
                assert_eq!(curve.hits(size), Some(hits), "{policy} of {size} blocks");
                if policy == "opt" {
                    let mut one = Stack::opt(&[size], 0);
                    one.drive(trace.accesses());
                    let curve = one.curve();
                    assert_eq!(curve.hits(size), Some(hits), "one size, {size} blocks");
                    assert_eq!(curve.references(), trace.references());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_size_of_random_traces(
        blocks in 1u32..60,
        stream in prop::collection::vec(any::<u32>(), 0..1500),
    ) {
        check_every_size(&trace_of(stream.iter().map(|number| number % blocks)));
        // Squares: some blocks are much more popular than others.
        let skewed = stream.iter().map(|number| (number % blocks).pow(2) / blocks);
        check_every_size(&trace_of(skewed));
    }
}

#[test]
fn every_size_of_loops_scans_and_back_and_forth() {
    check_every_size(&trace_of([]));
    check_every_size(&trace_of([0]));
    check_every_size(&trace_of([0, 0, 0]));
    check_every_size(&trace_of(0..300));
    check_every_size(&trace_of((0..8000).map(|tick| tick % 70)));
    let forth = (0..70).chain((0..70).rev());
    check_every_size(&trace_of((0..40).flat_map(|_| forth.clone())));
    // A scan without repeats beside a loop: dead blocks take no room.
    check_every_size(&trace_of((0..3000).map(|tick| {
        if tick % 2 == 0 {
            100 + tick / 2
        } else {
            tick / 2 % 45
        }
    })));
}

#[test]
fn a_run_gives_the_same_outcomes_by_stacks_as_by_caches() {
    let mut state = 7u32;
    let trace = trace_of((0..20_000).map(|_| {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 16) % 500 * ((state >> 8) % 500) / 500
    }));
    let specs = <Spec>::parse_list("opt,lru,fifo").expect("policies");
    let at = |sizes: &[u32]| -> Vec<CacheOutcome> {
        let configurations: Vec<CacheConfiguration> = sizes
            .iter()
            .flat_map(|&cache_blocks| {
                specs
                    .iter()
                    .map(move |&spec| CacheConfiguration { spec, cache_blocks })
            })
            .collect();
        run(&trace, &configurations, &CacheOptions::default()).expect("blocks are enough")
    };
    // More sizes than the simulator would simulate as single caches.
    let sizes: Vec<u32> = [400, 3, 3, 77, 1, 499, 1000]
        .into_iter()
        .chain(100..220)
        .collect();
    let together = at(&sizes);
    let one_by_one: Vec<CacheOutcome> = sizes.iter().flat_map(|&size| at(&[size])).collect();
    assert_eq!(together, one_by_one);
    for outcome in together {
        let capacity = outcome.cache_blocks.min(trace.blocks());
        assert_eq!(
            outcome.hits,
            simulated(&trace, outcome.spec.entry().name, capacity)
        );
    }
}

#[test]
fn the_traces_of_the_lirs_authors_at_five_sizes() {
    let Some(folder) = std::env::var_os("HITHER_TRACES").map(PathBuf::from) else {
        skip("HITHER_TRACES does not name the folder with the traces");
        return;
    };
    for name in ["2_pools", "cpp", "cs", "loop", "multi1", "ps", "scan"] {
        let path = folder.join(format!("lirs/{name}.trace.gz"));
        let trace = Trace::load(&path, Some("lirs"), &LoadOptions::default()).expect("the trace");
        let sizes = ["1%", "5%", "10%", "25%", "50%"].map(|percent| {
            let size: Size = percent.parse().expect("a size");
            size.blocks(4096, trace.blocks() as u64).expect("a size")
        });
        for (policy, stack) in stacks(&trace, &sizes) {
            let curve = stack.curve();
            for size in sizes {
                assert_eq!(
                    curve.hits(size),
                    Some(simulated(&trace, policy, size)),
                    "{name}: {policy} of {size}"
                );
            }
        }
    }
}
