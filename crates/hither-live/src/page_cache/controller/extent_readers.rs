//! Where in a file its readers are, and how much of the extents around there they have read.
//!
//! By thread, since several may read one file in different places, and by extent, since a scan may
//! look something up elsewhere and come back (sqlite reads an inner page of a table's tree for
//! every 1.6 MiB of leaves). The few that were touched last are known.

use super::extents::PER_EXTENT;

/// The most readers of a file that are followed at a time.
const READERS_MAX: usize = 8;

/// A reader that has touched so many blocks elsewhere begins anew: random reads, too, touch all
/// of an extent in time.
const ELSEWHERE_BLOCKS_MAX: u64 = PER_EXTENT as u64;

/// An extent of which a reader touched so many blocks before it left was read through: the kernel
/// has it in large folios, which go whole or not at all. Scans leave some out (sqlite the inner
/// pages of a table's tree, cscope what a query skips).
const READ_THROUGH: u32 = PER_EXTENT / 4 * 3;

/// A file of which nothing was read for so long is not being read.
const READ_NS: u64 = 50_000_000;

/// A reader's stay in an extent.
#[derive(Clone, Copy, Debug)]
struct ExtentReader {
    thread: u32,
    /// The last block that it touched, of the file.
    last: u32,
    last_ns: u64,
    /// The file's touches by then.
    touches: u64,
    /// A bit each block of the extent.
    touched: u128,
    /// The reader has left it read through. What it still reads that it had not belongs to that.
    through: bool,
}

const _: () = assert!(PER_EXTENT == u128::BITS);

/// An extent that a reader has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftExtent {
    /// Which of the file's.
    pub(super) extent: u32,
    /// Nearly all of it was read.
    pub(super) read_through: bool,
}

/// Who reads a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExtentReaders {
    /// The latest touched first.
    visits: [Option<ExtentReader>; READERS_MAX],
    touches: u64,
}

impl ExtentReaders {
    fn latest(&mut self, thread: u32) -> Option<&mut ExtentReader> {
        let mut visits = self.visits.iter_mut().flatten();
        visits.find(|visit| visit.thread == thread)
    }

    /// The block at which a thread's last request ended.
    pub(super) fn last(&mut self, thread: u32) -> Option<u32> {
        self.latest(thread).map(|visit| visit.last)
    }

    /// A thread touches a block; says what extent it has left for that.
    pub(super) fn touch(&mut self, thread: u32, block: u32, now_ns: u64) -> Option<LeftExtent> {
        let extent = block / PER_EXTENT;
        let before = self.latest(thread);
        let left = before.filter(|before| before.extent() != extent);
        let left = left.map(|before| {
            before.through = before.touched.count_ones() >= READ_THROUGH;
            LeftExtent {
                extent: before.extent(),
                read_through: before.through,
            }
        });
        let known = |visit: &ExtentReader| (visit.thread, visit.extent()) == (thread, extent);
        let mut visits = self.visits.iter();
        let at = visits.position(|visit| visit.as_ref().is_some_and(known));
        self.visits[..=at.unwrap_or(READERS_MAX - 1)].rotate_right(1);
        self.touches += 1;
        let bit = 1 << (block % PER_EXTENT);
        let again = |visit: &ExtentReader| visit.touched & bit != 0 && block != visit.last;
        let goes_on = |visit: &ExtentReader| {
            at.is_some()
                && self.touches - visit.touches <= ELSEWHERE_BLOCKS_MAX
                && !(visit.through && again(visit))
        };
        let before = self.visits[0].filter(goes_on);
        self.visits[0] = Some(ExtentReader {
            thread,
            last: block,
            last_ns: now_ns,
            touches: self.touches,
            touched: bit | before.map_or(0, |visit| visit.touched),
            through: before.is_some_and(|visit| visit.through),
        });
        left
    }

    /// Whether somebody is reading an extent: it is where a thread was last, just now. One that was
    /// left for another need not wait.
    pub(super) fn reading(&self, extent: u32, now_ns: u64) -> bool {
        let visits = self.visits.iter().flatten();
        visits.enumerate().any(|(at, visit)| {
            let earlier = self.visits[..at].iter().flatten();
            visit.extent() == extent
                && now_ns < visit.last_ns + READ_NS
                && !earlier
                    .into_iter()
                    .any(|other| other.thread == visit.thread)
        })
    }
}

impl ExtentReader {
    fn extent(&self) -> u32 {
        self.last / PER_EXTENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = PER_EXTENT;

    fn through(left: impl IntoIterator<Item = LeftExtent>) -> Vec<u32> {
        let through = left.into_iter().filter(|left| left.read_through);
        through.map(|left| left.extent).collect()
    }

    #[test]
    fn an_extent_is_read_through_by_one_reader_whatever_others_do() {
        let mut visits = ExtentReaders::default();
        let mut left = Vec::new();
        for step in 0..=N {
            left.extend(visits.touch(7, N + step, 5));
            // Another one reads here and there.
            left.extend(visits.touch(8, 40 * N * (step % 2), 5));
        }
        assert_eq!(left.len(), 1 + N as usize, "each jump leaves an extent");
        assert_eq!(through(left), [1]);
        assert_eq!(visits.last(7), Some(2 * N));
        assert_eq!(visits.last(9), None);
    }

    /// Half of it, something elsewhere, and the other half; and again.
    #[test]
    fn who_comes_back_reads_on() {
        let mut visits = ExtentReaders::default();
        for _ in 0..2 {
            let all = (0..N / 2).chain([9 * N]).chain(N / 2..N).chain([N]);
            let left: Vec<LeftExtent> = all.filter_map(|block| visits.touch(1, block, 0)).collect();
            assert_eq!(through(left), [0]);
        }
    }

    /// Of an extent that was read through the rest is read after a look elsewhere: it is as it was
    /// without the rest. (sqlite, whose last block of each third extent was kept for that, and with
    /// it all of the extent.)
    #[test]
    fn who_comes_back_for_the_rest_has_read_it_through() {
        let mut visits = ExtentReaders::default();
        for _ in 0..2 {
            let all = (0..100).chain([N + 15]).chain(99..N).chain([N]);
            let left: Vec<LeftExtent> = all.filter_map(|block| visits.touch(1, block, 0)).collect();
            assert_eq!(through(left), [0, 0]);
            assert_eq!(
                visits.touch(1, 9 * N, 0).map(|left| left.read_through),
                Some(false)
            );
        }
    }

    /// Blocks of five extents in turn: each extent is touched all over, and none is read through.
    #[test]
    fn reads_here_and_there_read_nothing_through() {
        let mut visits = ExtentReaders::default();
        // 40 at a time, then 160 elsewhere.
        let parts = (0..4 * N)
            .step_by(40)
            .flat_map(|at| (0..5).map(move |extent| (extent, at)));
        let all =
            parts.flat_map(|(extent, at)| (at..at + 40).map(move |block| extent * N + block % N));
        let left: Vec<LeftExtent> = all.filter_map(|block| visits.touch(1, block, 0)).collect();
        assert!(left.len() > 40);
        assert_eq!(through(left), [0; 0]);
    }

    #[test]
    fn a_part_is_not_all_of_it_however_often_it_is_read() {
        let mut visits = ExtentReaders::default();
        for block in (0..READ_THROUGH - 1).cycle().take(10_000) {
            assert_eq!(visits.touch(1, block, 0), None);
        }
        let left = visits.touch(1, N, 0).expect("it left");
        assert!(!left.read_through);
    }

    #[test]
    fn who_was_last_seen_longest_ago_is_forgotten() {
        let mut visits = ExtentReaders::default();
        for thread in 0..=READERS_MAX as u32 {
            assert_eq!(visits.touch(thread, thread * N, u64::from(thread)), None);
        }
        assert!(!visits.reading(0, 0));
        assert!(visits.reading(1, 0));
        assert!(!visits.reading(1, READ_NS + 1));
        assert!(visits.reading(2, READ_NS + 1));
        visits.touch(2, 70 * N, READ_NS + 1);
        assert!(!visits.reading(2, READ_NS + 1), "it has been left");
        assert!(visits.reading(70, READ_NS + 1));
    }
}
