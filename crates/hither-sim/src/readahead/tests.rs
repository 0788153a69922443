//! Windows as the kernel makes them, and counts that must agree with one another.

use super::*;
use crate::references::InMemory;
use hither_core::registry::{Needs, ReplacementSettings};
use hither_core::{NEVER, Object, Process, Spec};
use proptest::prelude::*;

const WINDOW: u32 = 32;

/// Single blocks of files that are read, by process, file and position; the sizes of the files.
fn references(reads: &[(u32, u32, u32)], blocks_of_files: &[u64]) -> InMemory {
    let mut numbers = FxHashMap::default();
    let access = |(tick, &(process, object, index)): (usize, &(u32, u32, u32))| {
        let next = numbers.len() as u32;
        let block = Block(*numbers.entry((object, index)).or_insert(next));
        Access {
            object: Object(object),
            index,
            process: Process(process),
            next: NEVER,
            ..Access::bare(tick as u64, block)
        }
    };
    let accesses = reads.iter().enumerate().map(access).collect();
    let bytes = blocks_of_files.iter().map(|blocks| blocks * 4096);
    InMemory::new(accesses, Needs::ALL).with_object_bytes(bytes.collect())
}

/// Reads in an LRU cache: what was read, and for each reference whether the cache missed it.
fn simulated(references: &InMemory, cache_blocks: u32) -> (Reads, Vec<bool>) {
    let files = Files::of(references);
    let mut readahead = Readahead::new(&files, WINDOW, cache_blocks);
    let spec: Spec = "lru".parse().expect("a policy");
    let mut policy = spec.build(&ReplacementSettings::new(cache_blocks));
    let mut residency = Residency::new(cache_blocks, 0);
    let mut missed = Vec::new();
    for access in references.accesses() {
        let before = residency.misses();
        policy.drive(&mut residency, std::slice::from_ref(access));
        let hit = residency.misses() == before;
        readahead.served(access, hit, &residency);
        missed.push(!hit);
        assert!(readahead.ahead.len() <= readahead.ahead_max);
        assert!(readahead.order.len() <= 2 * readahead.ahead_max + 1);
    }
    (readahead.reads(), missed)
}

fn reads_of(reads: &[(u32, u32, u32)], blocks_of_files: &[u64]) -> Reads {
    simulated(&references(reads, blocks_of_files), 10_000).0
}

#[test]
fn a_file_from_start_to_end_is_read_in_growing_windows() {
    let all: Vec<_> = (0..200).map(|index| (0, 0, index)).collect();
    // 4, 8, 16, and then 32 five times and the rest.
    let reads = Reads {
        requests: 3 + 6,
        blocks: 200,
        found_ahead: 199,
        unused: 0,
    };
    assert_eq!(reads_of(&all, &[200]), reads);
}

#[test]
fn a_long_request_starts_with_a_large_window() {
    let all: Vec<_> = (0..200).map(|index| (0, 0, index)).collect();
    // Requests of 16 blocks, for each of which the first window is the largest.
    let left = (0..200).map(|index| 15 - index % 16).collect();
    let references = references(&all, &[200]).with_blocks_left(left);
    let (reads, _) = simulated(&references, 10_000);
    assert_eq!((reads.requests, reads.blocks), (200u64.div_ceil(32), 200));
    // Somewhere in the middle, nothing more than the request is read.
    let middle: Vec<_> = (100..108).map(|index| (0, 0, index)).collect();
    let left = (0..8).rev().collect();
    let references = self::references(&middle, &[200]).with_blocks_left(left);
    let reads = Reads {
        requests: 1,
        blocks: 8,
        found_ahead: 7,
        unused: 0,
    };
    assert_eq!(simulated(&references, 10_000).0, reads);
}

#[test]
fn single_blocks_here_and_there_are_read_alone() {
    let few: Vec<_> = (1..50).map(|number| (0, 0, number * 100)).collect();
    let reads = Reads {
        requests: 49,
        blocks: 49,
        ..Reads::default()
    };
    assert_eq!(reads_of(&few, &[10_000]), reads);
}

#[test]
fn what_is_cached_within_a_request_makes_no_stream() {
    // A block that is cached, then eight at the same place, of which only the first is.
    let all: Vec<_> = (1..20)
        .flat_map(|number| {
            let at = number * 100;
            let single = [(0, 0, at), (0, 0, 50_000 + at)];
            let eight = (at..at + 8).map(|index| (0, 0, index));
            single.into_iter().chain(eight)
        })
        .collect();
    let left = (1..20).flat_map(|_| [0, 0].into_iter().chain((0..8).rev()));
    let references = references(&all, &[100_000]).with_blocks_left(left.collect());
    let (reads, _) = simulated(&references, 10_000);
    assert_eq!((reads.blocks, reads.unused), (19 * 9, 0), "{reads:?}");
}

#[test]
fn one_block_left_out_is_still_a_stream() {
    let odd: Vec<_> = (0..50).map(|number| (0, 0, 101 + 2 * number)).collect();
    let reads = reads_of(&odd, &[1000]);
    // Marks are on blocks that are left out, so half of the windows begin with a miss.
    assert!(reads.found_ahead > 20 && reads.requests < 30, "{reads:?}");
}

#[test]
fn writes_read_nothing() {
    let all: Vec<_> = (0..40).map(|index| (0, 0, index)).collect();
    let written = references(&all, &[40]);
    let accesses = written.accesses().iter().map(|access| Access {
        op: Op::Write,
        ..*access
    });
    let written = InMemory::new(accesses.collect(), Needs::ALL).with_object_bytes(vec![40 * 4096]);
    assert_eq!(simulated(&written, 10_000).0, Reads::default());
}

#[test]
fn the_start_of_a_file_brings_more_than_was_asked_for() {
    let starts: Vec<_> = (0..10).map(|file| (0, file, 0)).collect();
    let reads = Reads {
        requests: 10,
        blocks: 40,
        found_ahead: 0,
        unused: 30,
    };
    assert_eq!(reads_of(&starts, &[100; 10]), reads);
    let short = Reads {
        requests: 10,
        blocks: 10,
        ..Reads::default()
    };
    assert_eq!(reads_of(&starts, &[1; 10]), short);
}

#[test]
fn blocks_that_are_cached_are_not_read_again() {
    // Each second block of the first 16 is cached when the file is read from its start.
    let first = (1..8).map(|number| (number, 0, number * 2));
    let then = (0..16).map(|index| (9, 0, index));
    let all: Vec<_> = first.chain(then).collect();
    let reads = reads_of(&all, &[16]);
    assert_eq!((reads.blocks, reads.unused), (16, 0));
    assert!(reads.requests > 10, "{reads:?}");
}

#[test]
fn a_trail_of_cached_blocks_is_followed() {
    // One process has read ten blocks in the middle; another goes on after them.
    let first = (100..110).map(|index| (1, 0, index));
    let then = (110..120).map(|index| (2, 0, index));
    let (reads, _) = simulated(
        &references(&first.chain(then).collect::<Vec<_>>(), &[1000]),
        10_000,
    );
    assert!(reads.found_ahead >= 8, "{reads:?}");
}

proptest! {
    #[test]
    fn counts_agree(
        reads in prop::collection::vec((0u32..3, 0u32..3, 0u32..300), 1..2000),
        runs in prop::collection::vec((0u32..3, 0u32..3, 0u32..280, 1u32..20), 1..100),
        cache_blocks in 1u32..400,
    ) {
        let in_runs = runs.iter().flat_map(|&(process, file, start, length)| {
            (start..start + length).map(move |index| (process, file, index))
        });
        let all: Vec<_> = in_runs.chain(reads).collect();
        let references = references(&all, &[300, 200, 0]);
        let (reads, missed) = simulated(&references, cache_blocks);
        let misses = missed.iter().filter(|&&missed| missed).count() as u64;
        // Each miss finds its block ahead or has it read; the rest of what was read is unused.
        prop_assert_eq!(reads.blocks, misses + reads.unused);
        prop_assert!(reads.requests <= reads.blocks);
        prop_assert!(reads.found_ahead <= misses);
        prop_assert!(reads.requests >= (misses - reads.found_ahead).min(1));
    }
}
