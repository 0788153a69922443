//! Bucket sort of integers, after `buk` of the cache-aware thesis (table 5.2), which is IS of the
//! NAS benchmarks. In each iteration the threads count their keys by bucket, compute where each
//! bucket begins, and move the keys there. Each thread writes to all buckets: the transpose of a
//! placement by blocks. Then each thread sorts its buckets by counting equal keys.
//!
//! Keys are read in order and written in random order. The memory of `buckets`, `sorted` and
//! `density` is zero at the start. Its first touch is its first use, out of order, unless thread 0
//! initialises everything. With one bucket (`bucket_bits=0`) equal keys are counted all over
//! `density`. That is `buk`'s table `keyden`, which misses most (thesis, table 4.1).
//!
//! Simpler than IS: all iterations sort the same keys, which are sums of four random numbers as in
//! IS; buckets are dealt to the threads in turn, where IS may schedule them dynamically.

use hither_core::registry::Param;
use std::ops::Range;

use hither_core::spec::Values;

use super::array::Array;
use super::kernel::{
    Kernel, L1_WAYS, SERIAL_INIT, SLICE_NS, THREADS, THREADS_MAX, iterations, l2_kib, run,
};
use super::team::Team;
use crate::program::definition::Program;

/// The line in the registry.
pub(crate) const ENTRY: Program = Program {
    name: "bucket-sort",
    summary: "sorts whole numbers by buckets; every thread writes to every bucket, after NAS IS \
              and buk",
    source: "NAS IS, which is buk of the cache-aware thesis (table 5.2)",
    params: &[
        Param::count("keys", "how many numbers are sorted", 1 << 20, 1..=1 << 28),
        Param::count("key_bits", "bits per number", 19, 1..=28),
        Param::count(
            "bucket_bits",
            "there are 2^bucket_bits buckets, at most one per number",
            9,
            0..=16,
        ),
        iterations(10),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(64),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<BucketSort>,
};

/// Keys per unit of work.
const CHUNK_KEYS: usize = 256;

/// The program.
pub(super) struct BucketSort {
    key_bits: u32,
    bucket_bits: u32,
    keys: Array<u32>,
    /// By thread and bucket: the number of the thread's keys in the bucket.
    counts: Array<u32>,
    /// By thread and bucket: the position of the next such key in `buckets`.
    places: Array<u32>,
    buckets: Array<u32>,
    /// By key: its number of occurrences. All zeros between iterations.
    density: Array<u32>,
    sorted: Array<u32>,
}

impl BucketSort {
    /// The number of low bits of a key that do not choose its bucket.
    fn shift(&self) -> u32 {
        self.key_bits - self.bucket_bits
    }

    /// The range of a thread's counters.
    fn row(&self, thread: usize) -> Range<usize> {
        thread << self.bucket_bits..(thread + 1) << self.bucket_bits
    }

    fn count(&mut self, team: &mut Team) {
        let threads = team.size();
        team.parallel(
            "clear",
            |thread| thread..thread + 1,
            |team, thread| {
                self.row(thread)
                    .for_each(|at| self.counts.store(team, at, 0))
            },
        );
        let shift = self.shift();
        team.chunks("count", self.keys.len(), CHUNK_KEYS, |team, part| {
            let row = self.row(team.thread()).start;
            for at in part {
                let bucket = self.keys.load(team, at) >> shift;
                self.counts.add(team, row + bucket as usize, 1);
            }
        });
        // Each thread reads all counters, as in IS.
        team.parallel(
            "places",
            |thread| thread..thread + 1,
            |team, thread| {
                let mut begin = 0;
                for bucket in 0..1 << self.bucket_bits {
                    let mut place = begin;
                    for other in 0..threads {
                        let count = self.counts.load(team, self.row(other).start + bucket);
                        place += if other < thread { count } else { 0 };
                        begin += count;
                    }
                    self.places
                        .store(team, self.row(thread).start + bucket, place);
                }
            },
        );
    }

    fn scatter(&mut self, team: &mut Team) {
        let shift = self.shift();
        team.chunks("scatter", self.keys.len(), CHUNK_KEYS, |team, part| {
            let row = self.row(team.thread()).start;
            for at in part {
                let key = self.keys.load(team, at);
                let counter = row + (key >> shift) as usize;
                let place = self.places.load(team, counter);
                self.places.store(team, counter, place + 1);
                self.buckets.store(team, place as usize, key);
            }
        });
    }

    fn rank(&mut self, team: &mut Team) {
        let (shift, buckets, threads) = (self.shift(), 1 << self.bucket_bits, team.size());
        // After `scatter`, the last thread's positions are the ends of the buckets.
        let ends = self.row(threads - 1).start;
        team.parallel(
            "rank",
            |thread| 0..(buckets + threads - 1 - thread) / threads,
            |team, unit| {
                let bucket = unit * threads + team.thread();
                let mut end = |bucket: usize| self.places.load(team, ends + bucket) as usize;
                let begin = if bucket == 0 { 0 } else { end(bucket - 1) };
                let end = end(bucket);
                for at in begin..end {
                    let key = self.buckets.load(team, at) as usize;
                    self.density.add(team, key, 1);
                }
                let mut at = begin;
                for key in bucket << shift..(bucket + 1) << shift {
                    let count = self.density.load(team, key);
                    if count > 0 {
                        self.density.store(team, key, 0);
                    }
                    for _ in 0..count {
                        self.sorted.store(team, at, key as u32);
                        at += 1;
                    }
                }
            },
        );
    }
}

impl Kernel for BucketSort {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let [keys, key_bits, bucket_bits] = [0, 1, 2].map(|index| values.count(index));
        let bucket_bits = bucket_bits.min(key_bits) as u32;
        let counters = team.size() << bucket_bits;
        BucketSort {
            key_bits: key_bits as u32,
            bucket_bits,
            keys: team.array("keys", keys as usize),
            counts: team.array("counts", counters),
            places: team.array("places", counters),
            buckets: team.array("buckets", keys as usize),
            density: team.array("density", 1 << key_bits),
            sorted: team.array("sorted", keys as usize),
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        let limit = 1u64 << self.key_bits;
        let random = team.random();
        let mut key = || ((0..4).map(|_| random.below(limit)).sum::<u64>() / 4) as u32;
        let keys: Vec<u32> = (0..self.keys.len()).map(|_| key()).collect();
        team.initialise_chunks("keys", keys.len(), CHUNK_KEYS, |team, part| {
            part.for_each(|at| self.keys.store(team, at, keys[at]));
        });
        if team.initialises_serially() {
            for array in [
                &mut self.counts,
                &mut self.places,
                &mut self.buckets,
                &mut self.density,
                &mut self.sorted,
            ] {
                team.initialise_chunks("clear_all", array.len(), CHUNK_KEYS, |team, part| {
                    part.for_each(|at| array.store(team, at, 0));
                });
            }
        }
    }

    fn iterate(&mut self, team: &mut Team, _iteration: u64) {
        self.count(team);
        self.scatter(team);
        self.rank(team);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{team, values};
    use super::*;

    #[test]
    fn the_keys_are_sorted_every_time() {
        for (threads, spec) in [
            (1, "bucket-sort{keys=3000,key_bits=12,bucket_bits=0}"),
            (4, "bucket-sort{keys=5001,key_bits=11,bucket_bits=5}"),
            (7, "bucket-sort{keys=500,key_bits=3,bucket_bits=9}"),
        ] {
            let mut team = team(threads);
            let mut sort = BucketSort::new(&mut team, &values(spec));
            sort.initialise(&mut team);
            let mut expected = sort.keys.values().to_vec();
            assert!(!expected.is_sorted());
            expected.sort_unstable();
            for iteration in 0..3 {
                sort.iterate(&mut team, iteration);
                assert_eq!(sort.sorted.values(), expected, "{spec}");
            }
        }
    }
}
