//! Where in a file its readers are, and how much of the extents around there they have read.
//!
//! Readers are kept by thread, since several threads may read one file in different places, and by
//! extent, since a scan may look something up elsewhere and come back (sqlite reads an inner page
//! of a table's tree for every 1.6 MiB of leaves). Only the few that were active last are kept.

use super::extents::BLOCKS_PER_EXTENT;

/// The most readers of a file that are followed at a time.
const READERS_MAX: usize = 8;

/// A reader that comes back after this many touches of the file elsewhere starts anew: random
/// reads, too, touch all of an extent in time.
const ELSEWHERE_BLOCKS_MAX: u64 = BLOCKS_PER_EXTENT as u64;

/// An extent counts as read through if its reader touched this many of its blocks. The kernel has
/// such an extent in large folios, which are dropped whole or not at all. Scans skip some blocks
/// (sqlite the inner pages of a table's tree, cscope what a query skips).
const READ_THROUGH_BLOCKS_MIN: u32 = BLOCKS_PER_EXTENT / 4 * 3;

/// An extent whose reader was idle for this long is not being read any more.
const READER_IDLE_NS_MAX: u64 = 50_000_000;

/// A thread that reads an extent.
#[derive(Clone, Copy, Debug)]
struct ExtentReader {
    thread: u32,
    /// The last block of the file that it touched.
    last: u32,
    last_ns: u64,
    /// Touches of the file up to then.
    touches: u64,
    /// By block of the extent, a bit: the blocks that it touched.
    touched: u128,
    /// It has left the extent read through. Blocks that it reads later for the first time belong to
    /// that pass.
    through: bool,
}

const _: () = assert!(BLOCKS_PER_EXTENT == u128::BITS);

/// An extent that a reader has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftExtent {
    /// Its number within the file.
    pub(super) extent: u32,
    /// Nearly all of it was read.
    pub(super) read_through: bool,
}

/// The readers of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExtentReaders {
    /// The most recently active first.
    readers: [Option<ExtentReader>; READERS_MAX],
    touches: u64,
}

impl ExtentReaders {
    fn latest(&mut self, thread: u32) -> Option<&mut ExtentReader> {
        let mut readers = self.readers.iter_mut().flatten();
        readers.find(|reader| reader.thread == thread)
    }

    /// A thread touches a block. Returns the extent that it has left for that, if any.
    pub(super) fn touch(&mut self, thread: u32, block: u32, now_ns: u64) -> Option<LeftExtent> {
        let extent = block / BLOCKS_PER_EXTENT;
        let before = self.latest(thread);
        let left = before.filter(|before| before.extent() != extent);
        let left = left.map(|before| {
            before.through = before.touched.count_ones() >= READ_THROUGH_BLOCKS_MIN;
            LeftExtent {
                extent: before.extent(),
                read_through: before.through,
            }
        });
        let is_it = |reader: &ExtentReader| (reader.thread, reader.extent()) == (thread, extent);
        let mut readers = self.readers.iter();
        let at = readers.position(|reader| reader.as_ref().is_some_and(is_it));
        self.readers[..=at.unwrap_or(READERS_MAX - 1)].rotate_right(1);
        self.touches += 1;
        let bit = 1 << (block % BLOCKS_PER_EXTENT);
        let again = |reader: &ExtentReader| reader.touched & bit != 0 && block != reader.last;
        let goes_on = |reader: &ExtentReader| {
            at.is_some()
                && self.touches - reader.touches <= ELSEWHERE_BLOCKS_MAX
                && !(reader.through && again(reader))
        };
        let before = self.readers[0].filter(goes_on);
        self.readers[0] = Some(ExtentReader {
            thread,
            last: block,
            last_ns: now_ns,
            touches: self.touches,
            touched: bit | before.map_or(0, |reader| reader.touched),
            through: before.is_some_and(|reader| reader.through),
        });
        left
    }

    /// Whether an extent is being read: some thread was active there last, and not long ago. A
    /// thread that has gone on to another extent does not count.
    pub(super) fn reading(&self, extent: u32, now_ns: u64) -> bool {
        let readers = self.readers.iter().flatten();
        readers.enumerate().any(|(at, reader)| {
            let earlier = self.readers[..at].iter().flatten();
            reader.extent() == extent
                && now_ns < reader.last_ns + READER_IDLE_NS_MAX
                && !earlier
                    .into_iter()
                    .any(|other| other.thread == reader.thread)
        })
    }
}

impl ExtentReader {
    fn extent(&self) -> u32 {
        self.last / BLOCKS_PER_EXTENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = BLOCKS_PER_EXTENT;

    fn through(left: impl IntoIterator<Item = LeftExtent>) -> Vec<u32> {
        let through = left.into_iter().filter(|left| left.read_through);
        through.map(|left| left.extent).collect()
    }

    #[test]
    fn an_extent_is_read_through_by_one_reader_whatever_others_do() {
        let mut readers = ExtentReaders::default();
        let mut left = Vec::new();
        for step in 0..=N {
            left.extend(readers.touch(7, N + step, 5));
            // Another thread reads here and there.
            left.extend(readers.touch(8, 40 * N * (step % 2), 5));
        }
        assert_eq!(left.len(), 1 + N as usize, "each jump leaves an extent");
        assert_eq!(through(left), [1]);
    }

    /// Half of it, something elsewhere, and the other half; and again.
    #[test]
    fn who_comes_back_reads_on() {
        let mut readers = ExtentReaders::default();
        for _ in 0..2 {
            let all = (0..N / 2).chain([9 * N]).chain(N / 2..N).chain([N]);
            let left: Vec<LeftExtent> =
                all.filter_map(|block| readers.touch(1, block, 0)).collect();
            assert_eq!(through(left), [0]);
        }
    }

    /// After an extent was read through and left, its rest is read: it still counts as read
    /// through. (sqlite: without this, the last block of each third extent was kept, and with it
    /// the whole extent.)
    #[test]
    fn who_comes_back_for_the_rest_has_read_it_through() {
        let mut readers = ExtentReaders::default();
        for _ in 0..2 {
            let all = (0..100).chain([N + 15]).chain(99..N).chain([N]);
            let left: Vec<LeftExtent> =
                all.filter_map(|block| readers.touch(1, block, 0)).collect();
            assert_eq!(through(left), [0, 0]);
            assert_eq!(
                readers.touch(1, 9 * N, 0).map(|left| left.read_through),
                Some(false)
            );
        }
    }

    /// Blocks of five extents in turn: each extent is touched all over, and none counts as read
    /// through.
    #[test]
    fn reads_here_and_there_read_nothing_through() {
        let mut readers = ExtentReaders::default();
        // 40 at a time, then 160 elsewhere.
        let parts = (0..4 * N)
            .step_by(40)
            .flat_map(|at| (0..5).map(move |extent| (extent, at)));
        let all =
            parts.flat_map(|(extent, at)| (at..at + 40).map(move |block| extent * N + block % N));
        let left: Vec<LeftExtent> = all.filter_map(|block| readers.touch(1, block, 0)).collect();
        assert!(left.len() > 40);
        assert_eq!(through(left), [0; 0]);
    }

    #[test]
    fn a_part_is_not_all_of_it_however_often_it_is_read() {
        let mut readers = ExtentReaders::default();
        for block in (0..READ_THROUGH_BLOCKS_MIN - 1).cycle().take(10_000) {
            assert_eq!(readers.touch(1, block, 0), None);
        }
        let left = readers.touch(1, N, 0).expect("it left");
        assert!(!left.read_through);
    }

    #[test]
    fn who_was_last_seen_longest_ago_is_forgotten() {
        let mut readers = ExtentReaders::default();
        for thread in 0..=READERS_MAX as u32 {
            assert_eq!(readers.touch(thread, thread * N, u64::from(thread)), None);
        }
        assert!(!readers.reading(0, 0));
        assert!(readers.reading(1, 0));
        assert!(!readers.reading(1, READER_IDLE_NS_MAX + 1));
        assert!(readers.reading(2, READER_IDLE_NS_MAX + 1));
        readers.touch(2, 70 * N, READER_IDLE_NS_MAX + 1);
        assert!(
            !readers.reading(2, READER_IDLE_NS_MAX + 1),
            "it has been left"
        );
        assert!(readers.reading(70, READER_IDLE_NS_MAX + 1));
    }
}
