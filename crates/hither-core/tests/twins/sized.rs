//! Policies in caches of objects of every size. With objects of one size a cache of bytes has the
//! hits of a cache of blocks; with any sizes, deletions, rewrites and expiry, invariants hold after
//! each access, and the simple policies agree with a naive twin in bytes on each hit.

mod naive;

use crate::spec;
use crate::traces::{self, Random};
use hither_core::registry::{self, ReplacementSettings};
use hither_core::{Access, Block, Life, NEVER, Op, Residency, SizedResidency, Spec};
use naive::{NaiveArc, NaiveObjects, NaiveQueue, NaiveS3Fifo, NaiveSieve, NaiveSlru, NaiveTwoQ};
use naive::{NaiveValues, Ranking};

const TRACES: u64 = 400;

/// A policy in the fewest words, for [`NaiveObjects`].
pub(crate) trait Ranks {
    fn admits(&self, _incoming: &Access) -> bool {
        true
    }
    fn hit(&mut self, access: &Access);
    /// Names the object to evict, and forgets it.
    fn evict(&mut self, incoming: &Access) -> Block;
    fn insert(&mut self, access: &Access);
    fn remove(&mut self, block: Block);
}

/// The policies that a trace is run through in a cache of so many bytes, each with its twin if it
/// has one.
fn contestants(capacity: u64) -> Vec<(Spec, Option<Box<dyn Ranks>>)> {
    let queue = |moves, newest| Some(Box::new(NaiveQueue::new(moves, newest)) as Box<dyn Ranks>);
    let clock = |bits| Some(Box::new(NaiveQueue::clock(bits)) as Box<dyn Ranks>);
    let values = |ranking| Some(Box::new(NaiveValues::new(ranking)) as Box<dyn Ranks>);
    let slru =
        |segments, lowest| Some(Box::new(NaiveSlru::new(capacity, segments, lowest)) as Box<_>);
    let mut list: Vec<(Spec, Option<Box<dyn Ranks>>)> = vec![
        (spec("lru"), queue(true, false)),
        (spec("fifo"), queue(false, false)),
        (spec("mru"), queue(true, true)),
        (spec("clock"), clock(1)),
        (spec("clock{bits=3}"), clock(3)),
        (spec("sieve"), Some(Box::new(NaiveSieve::default()))),
        (spec("lfu"), values(Ranking::Uses)),
        (spec("lfu-da"), values(Ranking::AgedUses)),
        (spec("gdsf"), values(Ranking::AgedUsesPerByte)),
        (spec("camp"), values(Ranking::AgedCostPerByte)),
        (spec("slru"), slru(4, false)),
        (spec("slru{segments=2,newcomers=lowest}"), slru(2, true)),
        (spec("s3-fifo"), Some(Box::new(NaiveS3Fifo::new(capacity)))),
        (spec("2q"), Some(Box::new(NaiveTwoQ::new(capacity)))),
        (spec("arc"), Some(Box::new(NaiveArc::new(capacity as f64)))),
    ];
    for text in [
        "s3-fifo{as=qd-lp}",
        "s3-fifo{as=clock2q+}",
        "s3-fifo{as=s3-fifo-d}",
    ] {
        list.push((spec(text), None));
    }
    let takes_sizes = registry::replacement_policies().iter();
    for entry in takes_sizes.filter(|entry| entry.takes_sizes) {
        if list.iter().all(|(spec, _)| spec.entry().name != entry.name) {
            list.push((spec(entry.name), None));
        }
    }
    list
}

#[test]
fn objects_of_one_size_are_blocks() {
    for seed in 1..=TRACES {
        let mut random = Random::new(seed);
        let trace = traces::mixture(&mut random);
        let blocks = 20 * (1 + random.below(3));
        // A power of two, so that real numbers scale without being rounded.
        let bytes = 1 << random.below(13);
        for (spec, _) in contestants(blocks * bytes) {
            println!("seed {seed}: {spec}, {blocks} objects of {bytes} bytes");
            let mut of_blocks = spec.build(&ReplacementSettings::new(blocks as u32));
            let mut of_bytes = spec.build(&ReplacementSettings::of_bytes(blocks * bytes));
            let mut cache = Residency::new(blocks as u32, 0);
            let mut sized = SizedResidency::new(blocks * bytes, 0);
            for access in &trace {
                let before = cache.hits();
                cache.access(of_blocks.as_mut(), access);
                let access = Access { bytes, ..*access };
                let hit = sized.access(of_bytes.as_mut(), &access, Life::default());
                assert_eq!(cache.hits() > before, hit, "tick {}", access.tick);
                of_bytes.check(sized.len());
            }
            assert_eq!(cache.hits(), sized.counts().hits);
            assert_eq!(sized.used_bytes(), cache.len() as u64 * bytes);
        }
    }
}

/// Accesses to objects whose sizes change now and then, with what else can befall them.
fn objects(random: &mut Random, capacity: u64) -> Vec<(Access, Life)> {
    let ttls = random.below(2) * 40;
    let largest = 1 + random.below(capacity);
    let size = |random: &mut Random| match random.below(20) {
        0 => 0,
        1 => capacity + random.below(3),
        2..6 => random.below(4),
        _ => random.below(largest),
    };
    let mut sizes: Vec<u64> = (0..40).map(|_| size(random)).collect();
    let mut now_ns = 0;
    let mut trace = Vec::new();
    for tick in 0..100 + random.below(300) {
        let block = random.below(40) * random.below(40) / 40;
        let op = match random.below(20) {
            0 => Op::Delete,
            1..4 => Op::Write,
            _ => Op::Read,
        };
        if op == Op::Write && random.below(2) == 0 {
            sizes[block as usize] = size(random);
        }
        now_ns += random.below(5);
        let access = Access {
            op,
            bytes: sizes[block as usize],
            cost: [1.0, 2.0, 0.5][random.below(3) as usize],
            ..Access::bare(tick, Block(block as u32))
        };
        let ttl_ns = if ttls > 0 { random.below(ttls) } else { 0 };
        trace.push((access, Life { now_ns, ttl_ns }));
    }
    let mut upcoming = [NEVER; 40];
    for (access, _) in trace.iter_mut().rev() {
        access.next = std::mem::replace(&mut upcoming[access.block.index()], access.tick);
    }
    trace
}

#[test]
fn any_sizes_deletions_rewrites_and_expiry() {
    for seed in 1..=TRACES {
        let mut random = Random::new(seed);
        let largest = [20, 200, 3000][random.below(3) as usize];
        let capacity = 1 + random.below(largest);
        let trace = objects(&mut random, capacity);
        for (spec, twin) in contestants(capacity) {
            println!("seed {seed}: {spec}, {capacity} bytes");
            let mut policy = spec.build(&ReplacementSettings::of_bytes(capacity));
            let mut cache = SizedResidency::new(capacity, 0);
            let mut twin = twin.map(|ranks| NaiveObjects::new(capacity, ranks));
            for (access, life) in &trace {
                let hit = cache.access(policy.as_mut(), access, *life);
                policy.check(cache.len());
                cache.check();
                if let Some(twin) = &mut twin {
                    assert_eq!(hit, twin.access(access, *life), "tick {}", access.tick);
                }
            }
        }
    }
}

#[test]
fn every_policy_that_takes_sizes_is_run() {
    let run = contestants(1);
    for entry in registry::replacement_policies() {
        let runs = run.iter().any(|(spec, _)| spec.entry().name == entry.name);
        assert_eq!(runs, entry.takes_sizes, "{}", entry.name);
    }
}
