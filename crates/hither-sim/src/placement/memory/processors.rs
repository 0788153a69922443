//! Threads that share the processors of their node.
//!
//! While more threads of a node have work than it has processors, each has an equal share of their
//! time (*processor sharing*, the limit of short time slices): with `c` processors and `r` threads
//! each advances at `c / r` of its speed. A thread that has done its work, or waits at a barrier,
//! leaves its share to the others. Switches cost nothing.

use hither_core::Node;

/// A thread's work. All times are in ns.
pub(super) struct Work {
    pub(super) thread: usize,
    node: Node,
    /// When it begins, and when it was done or cut off.
    start: f64,
    end: f64,
    /// What is left to do, in time on a processor of its own.
    left: f64,
}

/// Less than this of a nanosecond is a rounding error.
const NOTHING_NS: f64 = 1e-3;

impl Work {
    /// Work of `ns` that begins at `start_ns`.
    pub(super) fn new(thread: usize, node: Node, start_ns: u64, ns: u64) -> Work {
        Work {
            thread,
            node,
            start: start_ns as f64,
            end: start_ns as f64,
            left: ns as f64,
        }
    }

    /// When it was done or cut off.
    pub(super) fn end_ns(&self) -> u64 {
        self.end.round() as u64
    }

    /// What was cut off.
    pub(super) fn left_ns(&self) -> u64 {
        self.left.round() as u64
    }
}

/// What threads made of an interval.
#[derive(Debug, PartialEq)]
pub(super) struct Interval {
    /// The longest time that one took for its work.
    pub(super) took_ns: u64,
    /// How many ran at a time.
    pub(super) running: usize,
}

/// The processors of each node.
pub(super) struct Processors {
    of_node: usize,
    works: Vec<Work>,
}

impl Processors {
    /// `of_node` processors on each node. 0: each thread has one of its own.
    pub(super) fn new(of_node: u32) -> Processors {
        Processors {
            of_node: of_node as usize,
            works: Vec::new(),
        }
    }

    /// Whether threads may have to share.
    pub(super) fn limited(&self) -> bool {
        self.of_node > 0
    }

    /// Has threads work until `until_ns`. [`works`](Processors::works) says how far they came.
    pub(super) fn share(&mut self, works: impl Iterator<Item = Work>, until_ns: u64) -> Interval {
        self.works.clear();
        self.works.extend(works.filter(|work| work.left > 0.0));
        self.works
            .sort_unstable_by_key(|work| (work.node, work.thread));
        let (mut took, mut running) = (0.0_f64, 0);
        for works in self.works.chunk_by_mut(|one, other| one.node == other.node) {
            share(works, self.of_node, until_ns as f64);
            let each = works.iter().map(|work| work.end - work.start);
            took = took.max(each.fold(0.0, f64::max));
            running += works.len().min(self.of_node);
        }
        Interval {
            took_ns: took.round() as u64,
            running,
        }
    }

    /// The works of the last [`share`](Processors::share), those of no time left out.
    pub(super) fn works(&self) -> &[Work] {
        &self.works
    }
}

/// Has the threads of one node work, from one beginning or end of a work to the next.
fn share(works: &mut [Work], processors: usize, until: f64) {
    let mut now = 0.0;
    while now < until {
        let arrivals = works.iter().map(|work| work.start);
        let arrival = arrivals.filter(|&at| at > now).fold(until, f64::min);
        let ready = |work: &Work| work.start <= now && work.left > 0.0;
        let threads = works.iter().filter(|work| ready(work)).count();
        if threads == 0 {
            if works.iter().all(|work| work.left == 0.0) {
                return;
            }
            now = arrival;
            continue;
        }
        let slowdown = (threads as f64 / processors as f64).max(1.0);
        let least = works.iter().filter(|work| ready(work));
        let least = least.map(|work| work.left).fold(f64::INFINITY, f64::min);
        let step = (least * slowdown).min(arrival - now);
        for work in works.iter_mut().filter(|work| ready(work)) {
            work.left -= step / slowdown;
            if work.left < NOTHING_NS {
                work.left = 0.0;
            }
            work.end = now + step;
        }
        now += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When works that begin at `start` are done on one node.
    fn ends(processors: u32, works: &[(u64, u64)], until_ns: u64) -> Vec<(u64, u64)> {
        let mut of = Processors::new(processors);
        let works = works.iter().enumerate();
        of.share(
            works.map(|(thread, &(start, ns))| Work::new(thread, Node(0), start, ns)),
            until_ns,
        );
        let of = of.works().iter();
        of.map(|work| (work.end_ns(), work.left_ns())).collect()
    }

    fn done(processors: u32, works: &[u64]) -> Vec<u64> {
        let works: Vec<_> = works.iter().map(|&ns| (0, ns)).collect();
        let ends = ends(processors, &works, u64::MAX);
        ends.iter().map(|&(end, _)| end).collect()
    }

    #[test]
    fn times_add_up() {
        assert_eq!(done(3, &[5, 7, 9]), [5, 7, 9]);
        assert_eq!(done(1, &[10, 10]), [20, 20]);
        assert_eq!(done(2, &[10, 10, 10, 10]), [20, 20, 20, 20]);
        // Both are at 4 after 8; the rest of the second is its own.
        assert_eq!(done(1, &[4, 10]), [8, 14]);
        // Two processors: 4 of each thread take 6, then there is one for each.
        assert_eq!(done(2, &[4, 10, 10]), [6, 12, 12]);
        // The second begins when the first has 6 left, which take 12 then.
        assert_eq!(ends(1, &[(0, 10), (4, 8)], u64::MAX), [(16, 0), (18, 0)]);
        // Cut off at 10, when each has done 3 more.
        assert_eq!(ends(1, &[(0, 10), (4, 8)], 10), [(10, 3), (10, 5)]);
        assert_eq!(ends(1, &[(0, 2), (20, 8)], 10), [(2, 0), (20, 8)]);
    }

    #[test]
    fn nodes_are_apart() {
        let works = [(0, 10), (0, 10), (1, 15)];
        let works = works.iter().enumerate();
        let works = works.map(|(thread, &(node, ns))| Work::new(thread, Node(node), 0, ns));
        let expected = Interval {
            took_ns: 20,
            running: 2,
        };
        assert_eq!(Processors::new(1).share(works, u64::MAX), expected);
    }

    /// Threads take turns, for a hundredth of a nanosecond each.
    #[test]
    fn as_in_time_slices() {
        const SLICE: f64 = 0.01;
        let mut random = hither_core::Random::new(7);
        for _ in 0..200 {
            let processors = 1 + random.below(4) as usize;
            let mut works = Vec::new();
            for _ in 0..1 + random.below(7) {
                works.push((random.below(30), 1 + random.below(40)));
            }
            let mut left: Vec<f64> = works.iter().map(|&(_, ns)| ns as f64).collect();
            let mut sliced = vec![0.0; works.len()];
            let (mut now, mut turn) = (0.0, 0);
            while left.iter().any(|&left| left > 0.0) {
                let mut idle = processors;
                now += SLICE;
                let first = turn;
                for at in (0..works.len()).map(|at| (first + at) % works.len()) {
                    if idle > 0 && left[at] > 0.0 && (works[at].0 as f64) < now {
                        (idle, turn) = (idle - 1, at + 1);
                        (left[at], sliced[at]) = (left[at] - SLICE, now);
                    }
                }
            }
            let shared = ends(processors as u32, &works, u64::MAX);
            for (sliced, (shared, _)) in sliced.iter().zip(shared) {
                let difference = (sliced - shared as f64).abs();
                assert!(
                    difference < 1.0,
                    "{works:?} on {processors}: {sliced} {shared}"
                );
            }
        }
    }
}
