//! What page faults say of the touches of a mapped file.
//!
//! A touch of a mapped page makes no fault, so faults show a part of the touches: the first of each
//! extent, and those of what has been dropped since. For a reader that goes from the start of a
//! file to its end, that is enough. If it faults in one extent and next in a later one, and all
//! between them is kept, then it has read that as well. So passes are seen whole, and a policy
//! decides over them as over reads.
//!
//! Of anything else too little is seen. Pages that are used all the time never fault, so they seem
//! unused, and a policy would drop them (a hot set beside a scan: 12 times the reads under `mru`,
//! 1.4 times under `lru`, 2026-11). They fault once they have been dropped, or once the kernel has
//! reclaimed them: in extents that do not follow on what the thread touched before. A file with
//! many such *jumps* is left alone from then on, for good. So is one that several threads read at
//! once, each the same parts at another time: the policy may drop what the others are about to read
//! (two threads that share the rows of a loop: 1.07 of the reads, 2026-11).

use hither_ids::Tid;

/// The most threads of a file that are followed.
const STREAMS_MAX: usize = 16;

/// A touch this near, in extents, continues a stream: readahead goes as far, and threads may share
/// the work.
const NEAR_EXTENTS: u32 = 4;

/// So far ahead, in extents, the kernel may have read for a thread: twice the usual readahead of
/// fast disks.
const AHEAD_EXTENTS: u32 = 8;

/// So many jumps are borne, and one more for each [`EXTENTS_PER_JUMP`] that were read in order.
/// Loops over 512 MiB in 256 jump once a pass at most: where steering begins, and where the kernel
/// has reclaimed something (2026-11). A look at another place and back is two jumps.
const JUMPS_MAX: u64 = 8;

/// See [`JUMPS_MAX`].
const EXTENTS_PER_JUMP: u64 = 128;

/// What a touch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// Nothing new: the thread was there.
    Again,
    /// A thread has read these extents, from the first to the last.
    Through {
        /// Its number among the file's readers.
        reader: u32,
        /// The end of the pass before, which was kept.
        tail: Option<(u32, u32)>,
        first: u32,
        last: u32,
    },
    /// The file is not read in order.
    Jumps,
}

/// A thread, and where it reads.
#[derive(Clone, Copy, Debug)]
struct Stream {
    thread: Tid,
    /// Its number among the file's readers.
    reader: u32,
    /// Where its passes begin, and where they end.
    start: u32,
    end: u32,
    /// The extent that it touched last.
    front: u32,
}

/// The touches of a mapped file.
#[derive(Clone, Debug, Default)]
pub(super) struct Touches {
    /// The most recently active last.
    streams: Vec<Stream>,
    jumps: u64,
    in_order: u64,
}

impl Touches {
    /// A thread has faulted in an extent. `kept` says which extents need not fault.
    pub(super) fn touch(
        &mut self,
        thread: Tid,
        extent: u32,
        kept: impl Fn(u32) -> bool,
    ) -> Touched {
        let known = self.streams.iter().position(|of| of.thread == thread);
        if known.is_none() && self.streams.len() == STREAMS_MAX {
            self.streams.remove(0);
            self.jumps += 1;
        }
        let before = known.map(|at| self.streams.remove(at));
        // Those that were active since.
        let others = &self.streams[known.unwrap_or(self.streams.len())..];
        let shared = others.iter().any(|other| {
            let passed = (other.start..=other.end).contains(&extent);
            passed && other.front.abs_diff(extent) > NEAR_EXTENTS
        });
        self.jumps += u64::from(shared);
        let mut stream = before.unwrap_or_else(|| Stream {
            thread,
            reader: self.free_number(),
            start: extent,
            end: extent,
            front: extent,
        });
        let front = stream.front;
        let near = extent.abs_diff(front) <= NEAR_EXTENTS;
        let all_kept = |from: u32, to: u32| (from..to).all(&kept);
        let after_end = stream.end + 1;
        let (mut first, mut tail) = (extent, None);
        if before.is_none() {
        } else if near && extent <= front {
            self.streams.push(stream);
            return Touched::Again;
        } else if extent > front && (near || all_kept(front + 1, extent)) {
            first = front + 1;
        } else if extent < front
            && (front + NEAR_EXTENTS >= stream.end || all_kept(front + 1, after_end))
            && (extent <= stream.start || all_kept(stream.start, extent))
        {
            // The next pass.
            first = stream.start.min(extent);
            tail = (front < stream.end).then_some((front + 1, stream.end));
        } else {
            self.jumps += 1;
        }
        stream.end = stream.end.max(extent);
        stream.start = stream.start.min(extent);
        stream.front = extent;
        self.streams.push(stream);
        let in_tail = tail.map_or(0, |(first, last)| last - first + 1);
        self.in_order += u64::from(extent - first + 1 + in_tail);
        if self.jumps > JUMPS_MAX + self.in_order / EXTENTS_PER_JUMP {
            Touched::Jumps
        } else {
            Touched::Through {
                reader: stream.reader,
                tail,
                first,
                last: extent,
            }
        }
    }

    /// Whether an extent may have been read ahead for a thread.
    pub(super) fn is_ahead(&self, extent: u32) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|of| (of.front..=of.front + AHEAD_EXTENTS).contains(&extent))
    }

    fn free_number(&self) -> u32 {
        let is_free = |number: &u32| self.streams.iter().all(|of| of.reader != *number);
        (0..).find(is_free).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(first: u32, last: u32) -> Touched {
        Touched::Through {
            reader: 0,
            tail: None,
            first,
            last,
        }
    }

    #[test]
    fn a_pass_is_seen_whole_where_what_is_kept_does_not_fault() {
        let mut touches = Touches::default();
        let mut touch = |extent| touches.touch(Tid(7), extent, |of| (1..60).contains(&of));
        assert_eq!(touch(2), through(2, 2));
        assert_eq!(touch(2), Touched::Again);
        assert_eq!(touch(5), through(3, 5), "near");
        assert_eq!(touch(3), Touched::Again);
        for extent in 6..20 {
            assert_eq!(touch(extent), through(extent, extent));
        }
        assert_eq!(touch(60), through(20, 60));
        assert_eq!(touch(99), through(99, 99), "a jump");
        assert_eq!(touch(0), through(0, 0), "the next pass");
        assert_eq!((touches.jumps, touches.streams.len()), (1, 1));
        // The end and the begin are kept.
        let mut touch = |extent| touches.touch(Tid(7), extent, |of| !(50..90).contains(&of));
        assert_eq!(touch(50), through(1, 50));
        for extent in 51..90 {
            assert_eq!(touch(extent), through(extent, extent));
        }
        let next = Touched::Through {
            reader: 0,
            tail: Some((90, 99)),
            first: 0,
            last: 50,
        };
        assert_eq!(touch(50), next);
        assert_eq!(touches.jumps, 1);
    }

    #[test]
    fn jumps_are_borne_in_proportion() {
        let mut touches = Touches::default();
        let mut jumps = 0;
        // A scan that looks something up at every hundredth extent.
        for extent in 0..10_000 {
            let looked_up = extent % 100 == 99;
            let mut touched = touches.touch(Tid(1), extent, |_| false);
            if looked_up && touched != Touched::Jumps {
                touched = touches.touch(Tid(1), 20_000, |_| false);
            }
            if touched == Touched::Jumps {
                jumps = touches.jumps;
                break;
            }
        }
        assert!((9..40).contains(&jumps), "{jumps}");
        let mut touches = Touches::default();
        let scan = (0..10).flat_map(|_| 0..1000_u32);
        for (at, extent) in scan.enumerate() {
            let touched = touches.touch(Tid(1), extent, |_| false);
            assert_ne!(touched, Touched::Jumps, "{at}");
        }
        let random = (0..1000_u32).map(|at| at.wrapping_mul(2_654_435_761) >> 16);
        let mut random = random.map(|extent| touches.touch(Tid(1), extent, |_| false));
        assert!(random.any(|touched| touched == Touched::Jumps));
    }

    #[test]
    fn threads_share_a_pass_only_side_by_side() {
        for (behind, leaves) in [(2, false), (50, true)] {
            let mut touches = Touches::default();
            let passes = (0..3).flat_map(|_| 0..200_u32);
            let touched: Vec<Touched> = passes
                .flat_map(|extent| [(1, extent), (2, (extent + 200 - behind) % 200)])
                .map(|(thread, extent)| touches.touch(Tid(thread), extent, |_| false))
                .collect();
            assert_eq!(touched.contains(&Touched::Jumps), leaves, "{behind}");
        }
        // Threads that are new in each pass.
        let mut touches = Touches::default();
        for thread in 0..10 {
            for extent in 0..200 {
                assert_ne!(
                    touches.touch(Tid(thread), extent, |_| false),
                    Touched::Jumps
                );
            }
        }
    }

    #[test]
    fn each_thread_is_a_reader_and_many_are_no_order() {
        let mut touches = Touches::default();
        for extent in 0..100 {
            for thread in 0..4 {
                let touched = touches.touch(Tid(10 + thread), 1000 * thread + extent, |_| false);
                let at = 1000 * thread + extent;
                let expected = Touched::Through {
                    reader: thread,
                    tail: None,
                    first: at,
                    last: at,
                };
                assert_eq!(touched, expected);
            }
        }
        let mut touched = (0..1000).map(|thread| touches.touch(Tid(100 + thread), 5, |_| false));
        assert!(touched.any(|touched| touched == Touched::Jumps));
    }
}
