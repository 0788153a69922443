//! Has the kernel read nothing ahead through descriptors that are surely read at random, once the
//! page cache is full.
//!
//! The kernel takes a read for one of a stream also where so much before it is cached as a stream
//! would have left behind (`page_cache_sync_ra`, Linux 6.12). Of a file whose records are read in
//! shuffled order, and of which half is cached, it so reads a gigabyte ahead in six epochs over
//! half of one, which pushes out what the policy keeps. `POSIX_FADV_RANDOM` ends that: the kernel
//! then reads what it is asked for and no more.
//!
//! **When.** The last [`READS`] reads through the descriptor each began where none of the last ones
//! had ended, nor a little beyond; neither the thread's own last one nor those that the descriptor
//! remembers. So several streams through one descriptor are streams still, whichever threads read
//! them, and so is a reader who leaves out little on its way. A long read is a stream by itself.
//! The first read that does go on takes it back. As long as all fits into memory, which the agent
//! knows, nothing is said: there readahead only brings sooner what will be needed.
//!
//! **Of which descriptors.** The advice is given to the open file description. So only one counts
//! that the program has opened here and nobody else has: before another process or descriptor gets
//! it, it is as it was; as soon as it is sent, where it goes over a socket. Who fetches one
//! (`pidfd_getfd`), or sends it by number or through io_uring without libc, is not seen, and gets
//! it as it is. What the program gives any advice of its own on is left alone until it is closed,
//! and so is what it maps.
//!
//! Threads may race for a descriptor's words. What was said of it changes hands by
//! compare-and-swap; a count or an end that is lost costs a few reads.

use std::sync::atomic::{AtomicU32, Ordering};

use hither_sys::syscalls;

use crate::descriptors::{Row, Table};
use crate::files;
use crate::signature::mix;

/// So many reads in a row at random are no accident: a B-tree's way down is four.
const READS: u32 = 16;

/// Blocks that a reader may leave out and be reading on: what the kernel's first readaheads cover.
const NEAR: u32 = 4;

/// A read of more blocks than this is a stream by itself, which the kernel reads the better for
/// reading ahead.
const LONG: u32 = 64;

/// Ends of reads that are remembered. One that fits no read gives its place up by chance, so that
/// of somewhat more streams most are known still.
const ENDS: usize = 6;

/// The kernel reads ahead as it likes.
const FOLLOWED: u32 = 0;
/// Somebody is about to change that.
const BUSY: u32 = 1;
/// It was told to read nothing ahead.
const STILL: u32 = 2;
/// Not to be touched while it is open.
const LEFT: u32 = 3;

/// Half a line of the processor's cache. A descriptor without one is left alone.
#[repr(C)]
pub(crate) struct Descriptor {
    state: AtomicU32,
    /// Reads in a row that began nowhere near an end, at most [`READS`].
    far: AtomicU32,
    /// The blocks in which reads ended.
    ends: [AtomicU32; ENDS],
}

pub(crate) static TABLE: Table<Descriptor> = Table::new();
/// How many descriptors are [`STILL`], and the highest that ever was.
static STILLED: AtomicU32 = AtomicU32::new(0);
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// A read, by the blocks in which it began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// It goes on where the same thread's last read of the file ended.
    pub(crate) goes_on: bool,
}

/// Whether a read that begins in block `first` goes on from one that ended in block `end`.
#[inline]
pub(crate) fn is_near(end: u32, first: u32) -> bool {
    first.wrapping_sub(end) <= NEAR
}

/// Follows reads from now on. To be called once.
pub(crate) fn start() {
    TABLE.open();
}

/// Follows no read any more, and takes back what was said. Where none is followed it writes
/// nothing: reads come by here for as long as nobody hears them.
#[cold]
pub(crate) fn stop() {
    if TABLE.is_open() {
        take_back_all();
        TABLE.close();
    }
}

/// Takes in a `read` through `fd`, which is looked at if anybody follows it. Where it was one of
/// many at random, and that is `wanted`, the kernel is told to read nothing ahead, which is
/// returned; otherwise, to read ahead again. `ours` says whether the table describes the calling
/// process's descriptors.
#[inline]
pub(crate) fn read(
    fd: i32,
    read: impl FnOnce() -> Read,
    wanted: impl FnOnce() -> bool,
    ours: impl FnOnce() -> bool,
) -> bool {
    let Some(descriptor) = TABLE.row(fd) else {
        return false;
    };
    let state = descriptor.state.load(Ordering::Relaxed);
    if state == LEFT {
        return false;
    }
    let still = descriptor.is_read_at_random(read()) && wanted();
    still != (state == STILL) && ours() && descriptor.change(fd, still)
}

/// The program has a use for `fd` in which it is not to be touched: nothing is said of it any more
/// while it is open.
pub(crate) fn leave(fd: i32) {
    if let Some(descriptor) = TABLE.row(fd) {
        descriptor.change(fd, false);
        descriptor.state.store(LEFT, Ordering::Relaxed);
    }
}

/// The kernel reads ahead through every descriptor as it likes: others are about to have them, too.
pub(crate) fn take_back_all() {
    if STILLED.load(Ordering::Relaxed) == 0 {
        return;
    }
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) as i32 {
        if let Some(descriptor) = TABLE.row(fd) {
            descriptor.change(fd, false);
        }
    }
}

// SAFETY: words, of which zeroes are values.
unsafe impl Row for Descriptor {
    fn is_blank(&self) -> bool {
        let words = [&self.state, &self.far].map(|word| word.load(Ordering::Relaxed));
        words == [FOLLOWED, 0]
    }

    fn forget(&self) {
        self.far.store(0, Ordering::Relaxed);
        if self.state.swap(FOLLOWED, Ordering::Relaxed) == STILL {
            STILLED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Descriptor {
    /// Takes in a read: whether it and those before it were at random.
    #[inline]
    fn is_read_at_random(&self, read: Read) -> bool {
        let before = self.far.load(Ordering::Relaxed);
        // Nothing is looked up for one who reads on by himself: that is most reads.
        let far = match read.goes_on || self.is_near_an_end(read) {
            true => 0,
            false => (before + 1).min(READS),
        };
        if far != before {
            self.far.store(far, Ordering::Relaxed);
        }
        far == READS
    }

    /// Whether a read goes on where one ended, or need not; where it ends is remembered.
    fn is_near_an_end(&self, read: Read) -> bool {
        let mut ends = self.ends.iter();
        let near = ends.position(|end| is_near(end.load(Ordering::Relaxed), read.first));
        let place = near.unwrap_or_else(|| mix(u64::from(read.last)) as usize % ENDS);
        if let Some(end) = self.ends.get(place) {
            end.store(read.last, Ordering::Relaxed);
        }
        near.is_some() || read.last.wrapping_sub(read.first) > LONG
    }

    /// Tells the kernel, if that is a change; whether it now reads nothing ahead that did before.
    #[cold]
    fn change(&self, fd: i32, still: bool) -> bool {
        let (before, after) = match still {
            true => (FOLLOWED, STILL),
            false => (STILL, FOLLOWED),
        };
        let taken = self
            .state
            .compare_exchange(before, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        let done = (!still || files::is_alone(fd)) && syscalls::set_readahead(fd, !still).is_ok();
        if still && done {
            HIGHEST.fetch_max(fd as u32, Ordering::Relaxed);
            STILLED.fetch_add(1, Ordering::Relaxed);
        } else if !still {
            STILLED.fetch_sub(1, Ordering::Relaxed);
        }
        let after = if done { after } else { LEFT };
        self.state.store(after, Ordering::Release);
        still && done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor {
            state: AtomicU32::new(FOLLOWED),
            far: AtomicU32::new(0),
            ends: [const { AtomicU32::new(0) }; ENDS],
        }
    }

    fn blocks(first: u32, blocks: u32) -> Read {
        Read {
            first,
            last: first + blocks - 1,
            goes_on: false,
        }
    }

    /// The first blocks of reads here and there.
    fn anywhere() -> impl Iterator<Item = u32> {
        (1..).map(|read: u32| read.wrapping_mul(2_654_435_761) >> 8)
    }

    /// How many of these reads are found to be at random.
    fn at_random(reads: impl Iterator<Item = Read>) -> usize {
        let descriptor = descriptor();
        reads
            .filter(|&read| descriptor.is_read_at_random(read))
            .count()
    }

    #[test]
    fn reads_here_and_there_are_at_random_after_some_and_until_one_goes_on() {
        let records = || anywhere().map(|first| blocks(first, 8));
        let before = READS as usize - 1;
        assert_eq!(at_random(records().take(before)), 0);
        assert_eq!(at_random(records().take(before + 100)), 100);
        let on = |gap: u32| {
            let first = anywhere().nth(before).expect("a read");
            let next = blocks(first + 7 + gap, 8);
            at_random(records().take(before + 1).chain([next]))
        };
        assert_eq!([on(0), on(1), on(NEAR), on(NEAR + 1)], [1, 1, 1, 2]);
        let mut own = records().take(2 * before).collect::<Vec<_>>();
        own[before - 1].goes_on = true;
        assert_eq!(at_random(own.into_iter()), 0);
    }

    #[test]
    fn streams_through_one_descriptor_are_streams_whoever_reads_them() {
        for count in 1..=ENDS as u32 {
            let streams = (0..100).flat_map(|step| (0..count).map(move |of| (of, step)));
            let reads = streams.map(|(of, step)| blocks((of + 1) * 100_000 + 2 * step, 2));
            assert_eq!(at_random(reads), 0, "{count}");
        }
        // Of more than are remembered it is for the threads to know, or for chance.
        let count = ENDS as u32 + 2;
        let streams = (0..1000).flat_map(|step| (0..count).map(move |of| (of, step)));
        let reads = streams.map(|(of, step)| blocks((of + 1) * 100_000 + 2 * step, 2));
        assert!(at_random(reads) < 80, "of 8000");
    }

    #[test]
    fn long_reads_are_streams_and_short_ones_in_a_small_file_are_near() {
        assert_eq!(
            at_random(anywhere().map(|at| blocks(at, LONG + 2)).take(100)),
            0
        );
        let small = anywhere().map(|first| blocks(first % (2 * NEAR), 1));
        assert_eq!(at_random(small.take(1000)), 0);
    }
}
