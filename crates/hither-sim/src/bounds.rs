//! What the best possible cache of objects would hit: a bound that no cache exceeds, and hits that
//! one with knowledge of the future reaches.
//!
//! Source: Berger, Beckmann and Harchol-Balter, "Practical bounds on optimal caching with variable
//! object sizes", POMACS 2(2), 2018. Between two references to an object a cache keeps it or does
//! not. To keep it takes its bytes for as many references as lie between, and yields one hit, or
//! its bytes. A cache of `b` bytes has `b` times the references of the trace to give.
//!
//! - *At most* (PFOO-L, section 5.1): the intervals that yield most for what they take, as many as
//!   the cache can give in sum, be it at different times. The last one may count in part.
//! - *At least*: the same order, but an interval is taken only if the cache has room for it all the
//!   time. The paper's PFOO-U (section 5.2) solves a flow problem for each part of the trace, which
//!   comes closer and takes much longer.
//!
//! Both caches may let objects pass by. An object is as large as it was smallest so far for the
//! first bound, and largest for the second. Times to live make the first bound too high, which
//! keeps it a bound; the second is not known then.

use hither_core::registry::Needs;
use hither_core::{NEVER, Op};
use hither_trace::Trace;
use serde::Serialize;

use crate::caches::{BATCH_REFERENCES, Error};

/// The bounds for a cache of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectBounds {
    /// Its capacity.
    pub cache_bytes: u64,
    /// References to objects; deletes are not among them.
    pub accesses: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// No cache hits more often.
    pub hits_at_most: u64,
    /// No cache hits more bytes.
    pub hit_bytes_at_most: u64,
    /// A cache that knows the future hits as often. `None` where objects expire.
    pub hits_at_least: Option<u64>,
    /// A cache that knows the future hits as many bytes, though not with the same decisions.
    pub hit_bytes_at_least: Option<u64>,
}

/// Two references to an object with none between them.
#[derive(Clone, Copy, Debug)]
struct Interval {
    start: u64,
    end: u64,
    smallest: u64,
    largest: u64,
    /// The bytes of the second reference.
    hit_bytes: u64,
}

impl Interval {
    fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// What a hit counts.
#[derive(Clone, Copy, Debug)]
enum Yield {
    Hits,
    Bytes,
}

impl Yield {
    fn of(self, interval: &Interval) -> u64 {
        match self {
            Yield::Hits => 1,
            Yield::Bytes => interval.hit_bytes,
        }
    }
}

/// The bounds for caches of these sizes.
///
/// # Errors
///
/// If the trace has no sizes, or is a sample.
pub fn object_bounds(trace: &Trace, sizes: &[u64]) -> Result<Vec<ObjectBounds>, Error> {
    let lacks = |what| Error::Lacks {
        policy: "pfoo",
        what,
        advice: "",
    };
    if !trace.has_sizes() {
        return Err(lacks("sizes of objects"));
    }
    if trace.sampled().is_some() {
        return Err(lacks("all objects, not a sample"));
    }
    let mut intervals = intervals(trace)?;
    let references = trace.references() as u64;
    let mut bounds: Vec<ObjectBounds> = sizes
        .iter()
        .map(|&cache_bytes| ObjectBounds {
            cache_bytes,
            accesses: references - trace.deletes_of_all(),
            bytes: trace.bytes_of_all(),
            hits_at_most: 0,
            hit_bytes_at_most: 0,
            hits_at_least: None,
            hit_bytes_at_least: None,
        })
        .collect();
    for yields in [Yield::Hits, Yield::Bytes] {
        best_first(&mut intervals, yields);
        for bound in &mut bounds {
            let most = at_most(&intervals, yields, bound.cache_bytes, references);
            let fits = !trace.has_lives();
            let least = fits.then(|| at_least(&intervals, yields, bound.cache_bytes, references));
            match yields {
                Yield::Hits => (bound.hits_at_most, bound.hits_at_least) = (most, least),
                Yield::Bytes => (bound.hit_bytes_at_most, bound.hit_bytes_at_least) = (most, least),
            }
        }
    }
    Ok(bounds)
}

/// All intervals of a trace.
fn intervals(trace: &Trace) -> Result<Vec<Interval>, Error> {
    /// An object that is referenced again.
    #[derive(Clone, Copy)]
    struct Open {
        start: u64,
        smallest: u64,
        largest: u64,
    }
    let mut open: Vec<Option<Open>> = vec![None; trace.blocks()];
    let mut intervals = Vec::new();
    let needs = Needs {
        future: true,
        sizes: true,
        ..Needs::NOTHING
    };
    trace.for_each_batch(BATCH_REFERENCES, needs, |batch| {
        for access in batch.iter().filter(|access| access.op != Op::Delete) {
            let (object, bytes) = (&mut open[access.block.index()], access.bytes);
            let (mut smallest, mut largest) = (bytes, bytes);
            if let Some(before) = object.take() {
                (smallest, largest) = (bytes.min(before.smallest), bytes.max(before.largest));
                intervals.push(Interval {
                    start: before.start,
                    end: access.tick,
                    smallest: before.smallest,
                    largest: before.largest,
                    hit_bytes: bytes,
                });
            }
            // What is deleted before its next reference is not kept until then.
            *object = (access.next != NEVER).then_some(Open {
                start: access.tick,
                smallest,
                largest,
            });
        }
    })?;
    Ok(intervals)
}

/// Orders intervals by what they yield for what they take, the best first.
fn best_first(intervals: &mut [Interval], yields: Yield) {
    let worth = |interval: &Interval| {
        let takes = interval.smallest as f64 * interval.length() as f64;
        takes / yields.of(interval) as f64
    };
    intervals.sort_by(|a, b| worth(a).total_cmp(&worth(b)).then(a.start.cmp(&b.start)));
}

/// What the best intervals yield that the cache can give in sum.
fn at_most(intervals: &[Interval], yields: Yield, cache_bytes: u64, references: u64) -> u64 {
    let mut left = u128::from(cache_bytes) * u128::from(references);
    let mut sum = 0;
    for interval in intervals {
        // One that is never in a cache of this size yields nothing in any.
        if interval.smallest > cache_bytes {
            continue;
        }
        let takes = u128::from(interval.smallest) * u128::from(interval.length());
        let yields = yields.of(interval);
        if takes > left {
            return sum + (u128::from(yields) * left / takes) as u64;
        }
        left -= takes;
        sum += yields;
    }
    sum
}

/// What those yield for which there is room.
fn at_least(intervals: &[Interval], yields: Yield, cache_bytes: u64, references: u64) -> u64 {
    let mut room = Room::new(references);
    let fit = intervals.iter().filter(|interval| {
        let most = room.most(interval.start, interval.end);
        let fits = interval.largest <= cache_bytes && most <= cache_bytes - interval.largest;
        if fits {
            room.add(interval.start, interval.end, interval.largest);
        }
        fits
    });
    fit.map(|interval| yields.of(interval)).sum()
}

/// The bytes in use over time: a tree in which a node has what is added to all of its range, and
/// the most that its halves have.
struct Room {
    leaves: usize,
    added: Vec<u64>,
    most: Vec<u64>,
}

impl Room {
    fn new(references: u64) -> Room {
        let leaves = (references.max(1) as usize).next_power_of_two();
        Room {
            leaves,
            added: vec![0; 2 * leaves],
            most: vec![0; 2 * leaves],
        }
    }

    /// The most bytes in use at any time of this range.
    fn most(&self, start: u64, end: u64) -> u64 {
        self.most_in(1, 0, self.leaves as u64, start, end)
    }

    fn most_in(&self, node: usize, from: u64, to: u64, start: u64, end: u64) -> u64 {
        if end <= from || to <= start {
            return 0;
        }
        if start <= from && to <= end {
            return self.most[node];
        }
        let middle = (from + to) / 2;
        let left = self.most_in(2 * node, from, middle, start, end);
        let right = self.most_in(2 * node + 1, middle, to, start, end);
        self.added[node] + left.max(right)
    }

    /// Adds bytes to all times of a range.
    fn add(&mut self, start: u64, end: u64, bytes: u64) {
        let times = start..end;
        self.add_in(1, 0..self.leaves as u64, &times, bytes);
    }

    fn add_in(
        &mut self,
        node: usize,
        of: std::ops::Range<u64>,
        times: &std::ops::Range<u64>,
        bytes: u64,
    ) {
        if times.end <= of.start || of.end <= times.start {
            return;
        }
        if times.start <= of.start && of.end <= times.end {
            self.added[node] += bytes;
            self.most[node] += bytes;
            return;
        }
        let middle = (of.start + of.end) / 2;
        self.add_in(2 * node, of.start..middle, times, bytes);
        self.add_in(2 * node + 1, middle..of.end, times, bytes);
        let of_halves = self.most[2 * node].max(self.most[2 * node + 1]);
        self.most[node] = self.added[node] + of_halves;
    }
}
