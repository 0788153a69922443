//! Disables readahead on descriptors with a random access pattern, once the page cache is full.
//!
//! The kernel also takes a read for part of a stream where so much before it is cached as a stream
//! would have left behind (`page_cache_sync_ra`, Linux 6.12). In a file whose records are read in
//! shuffled order, and of which half is cached, it reads a gigabyte ahead in six epochs over half a
//! gigabyte. That pushes out what the policy keeps. `POSIX_FADV_RANDOM` ends it: the kernel then
//! reads what it is asked for and no more.
//!
//! **When.** A descriptor's pattern is random after [`RANDOM_READS_MIN`] reads in a row that each
//! began away from the end of an earlier read: the thread's own last one, or one that the
//! descriptor remembers, or that of a stream ([`crate::streams`]). So many streams through one
//! descriptor are streams still, whichever threads read them, and so is a reader that leaves out
//! little on its way. A long read is a stream by itself. The first read that continues another one
//! enables readahead again. As long as all files fit into memory, which the agent knows, nothing
//! changes: readahead then only brings sooner what will be needed.
//!
//! **Which descriptors.** The advice applies to the open file description. So only a descriptor
//! counts that the program has opened here and that nobody else has. Readahead is enabled again
//! before another process or descriptor gets it, or just after a socket has carried it away. Who
//! takes a descriptor by `pidfd_getfd`, or sends one by number or through io_uring without libc, is
//! not seen, and gets it as it is. A descriptor that the program advises on itself, or maps, is
//! left alone until it is closed.
//!
//! Threads may race for a descriptor's words. Its state changes by compare-and-swap; a count or an
//! end that is lost costs a few reads.

use std::sync::atomic::{AtomicU32, Ordering};

use hither_kernel::file_id::mix;
use hither_kernel::syscalls;
use hither_session::program_session::ProgramSession;

use crate::descriptor_table::{Row, Table};
use crate::files;
use crate::streams::Streams;

/// Reads in a row that make a pattern random. The way down a B-tree is four.
const RANDOM_READS_MIN: u32 = 16;

/// Blocks that a reader may leave out and still continue a stream: what the kernel's first
/// readaheads cover.
const SKIPPED_BLOCKS_MAX: u32 = 4;

/// A read of more blocks than this is a stream by itself, which the kernel reads faster for reading
/// ahead.
const SINGLE_BLOCKS_MAX: u32 = 64;

/// Ends of reads that a descriptor remembers. A read that continues none replaces a random one, so
/// that with somewhat more streams most are still known.
const ENDS_MAX: usize = 6;

/// Readahead is as the kernel has it.
const ENABLED: u32 = 0;
/// A thread is changing it.
const CHANGING: u32 = 1;
/// The kernel was told to read nothing ahead.
const DISABLED: u32 = 2;
/// Not to be touched while it is open.
const LEFT_ALONE: u32 = 3;

/// The state of a descriptor: half a cache line. A descriptor without a row is left alone.
#[repr(C)]
pub(crate) struct Descriptor {
    state: AtomicU32,
    /// Reads in a row that continued no other, at most [`RANDOM_READS_MIN`].
    random_reads: AtomicU32,
    /// The blocks in which reads ended.
    ends: [AtomicU32; ENDS_MAX],
}

pub(crate) static TABLE: Table<Descriptor> = Table::new();
/// The streams of all descriptors.
static STREAMS: Streams = Streams::new();
/// The number of [`DISABLED`] descriptors, and the highest one there ever was.
static DISABLED_COUNT: AtomicU32 = AtomicU32::new(0);
static DISABLED_HIGHEST: AtomicU32 = AtomicU32::new(0);

/// A read, by the blocks in which it began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// It continues the same thread's last read of the file.
    pub(crate) continues_thread: bool,
}

/// Whether a read that begins in block `first` continues one that ended in block `end`.
#[inline]
pub(crate) fn is_near(end: u32, first: u32) -> bool {
    first.wrapping_sub(end) <= SKIPPED_BLOCKS_MAX
}

/// Starts to track reads, if the agent wants that. To be called once, when the library is loaded.
pub(crate) fn start(session: &ProgramSession) {
    if session.files() && session.tracks_readahead() {
        TABLE.open();
    }
}

/// Whether readahead is disabled on a descriptor.
#[inline]
pub(crate) fn is_any_disabled() -> bool {
    DISABLED_COUNT.load(Ordering::Relaxed) != 0
}

/// Stops tracking reads, and enables readahead on all descriptors. Writes nothing if none is
/// tracked: reads call this for as long as the agent is gone.
#[cold]
pub(crate) fn stop() {
    if TABLE.is_open() {
        enable_all();
        TABLE.close();
    }
}

/// Takes a `read` through `fd` into account; it is evaluated only if the descriptor is tracked.
/// Disables readahead, and returns true, if the pattern has become random and that is `wanted`;
/// enables it again otherwise. `ours` says whether the table describes the calling process's
/// descriptors.
#[inline]
pub(crate) fn on_read(
    fd: i32,
    read: impl FnOnce() -> Read,
    wanted: impl FnOnce() -> bool,
    ours: impl FnOnce() -> bool,
) -> bool {
    let Some(descriptor) = TABLE.row(fd) else {
        return false;
    };
    let state = descriptor.state.load(Ordering::Relaxed);
    if state == LEFT_ALONE {
        return false;
    }
    let disable = descriptor.is_random_with(fd, read()) && wanted();
    disable != (state == DISABLED) && ours() && descriptor.change(fd, disable)
}

/// The program uses `fd` in a way that readahead is to serve: the descriptor is not touched any
/// more while it is open.
pub(crate) fn leave(fd: i32) {
    if let Some(descriptor) = TABLE.row(fd) {
        descriptor.change(fd, false);
        descriptor.state.store(LEFT_ALONE, Ordering::Relaxed);
    }
}

/// Enables readahead on every descriptor: others are about to have them, too.
pub(crate) fn enable_all() {
    if !is_any_disabled() {
        return;
    }
    for fd in 0..=DISABLED_HIGHEST.load(Ordering::Relaxed) as i32 {
        if let Some(descriptor) = TABLE.row(fd) {
            descriptor.change(fd, false);
        }
    }
}

// SAFETY: words, of which zeroes are values.
unsafe impl Row for Descriptor {
    fn is_blank(&self) -> bool {
        let words = [&self.state, &self.random_reads].map(|word| word.load(Ordering::Relaxed));
        words == [ENABLED, 0]
    }

    fn forget(&self) {
        self.random_reads.store(0, Ordering::Relaxed);
        if self.state.swap(ENABLED, Ordering::Relaxed) == DISABLED {
            DISABLED_COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Descriptor {
    /// Takes a read into account: whether the pattern is random with it.
    #[inline]
    fn is_random_with(&self, fd: i32, read: Read) -> bool {
        let before = self.random_reads.load(Ordering::Relaxed);
        // Most reads continue the thread's last one: no end is looked up for them.
        let continues = read.continues_thread
            || self.continues_an_end(read)
            || STREAMS.continues(fd, read.first, read.last);
        let random_reads = if continues {
            0
        } else {
            (before + 1).min(RANDOM_READS_MIN)
        };
        if random_reads != before {
            self.random_reads.store(random_reads, Ordering::Relaxed);
        }
        random_reads == RANDOM_READS_MIN
    }

    /// Whether a read continues one of the remembered ends, or is a stream by itself. Its own end
    /// is remembered.
    fn continues_an_end(&self, read: Read) -> bool {
        let mut ends = self.ends.iter();
        let near = ends.position(|end| is_near(end.load(Ordering::Relaxed), read.first));
        let place = near.unwrap_or_else(|| mix(u64::from(read.last)) as usize % ENDS_MAX);
        if let Some(end) = self.ends.get(place) {
            end.store(read.last, Ordering::Relaxed);
        }
        near.is_some() || read.last.wrapping_sub(read.first) > SINGLE_BLOCKS_MAX
    }

    /// Tells the kernel, if that is a change. Returns whether readahead is disabled now and was not
    /// before.
    #[cold]
    fn change(&self, fd: i32, disable: bool) -> bool {
        let (before, after) = if disable {
            (ENABLED, DISABLED)
        } else {
            (DISABLED, ENABLED)
        };
        let taken =
            self.state
                .compare_exchange(before, CHANGING, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        let may_change = !disable || files::is_alone(fd);
        let done = may_change && syscalls::set_readahead(fd, !disable).is_ok();
        if disable && done {
            DISABLED_HIGHEST.fetch_max(fd as u32, Ordering::Relaxed);
            DISABLED_COUNT.fetch_add(1, Ordering::Relaxed);
        } else if !disable {
            DISABLED_COUNT.fetch_sub(1, Ordering::Relaxed);
        }
        let after = if done { after } else { LEFT_ALONE };
        self.state.store(after, Ordering::Release);
        disable && done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor {
            state: AtomicU32::new(ENABLED),
            random_reads: AtomicU32::new(0),
            ends: [const { AtomicU32::new(0) }; ENDS_MAX],
        }
    }

    fn blocks(first: u32, blocks: u32) -> Read {
        Read {
            first,
            last: first + blocks - 1,
            continues_thread: false,
        }
    }

    /// The first blocks of reads at random.
    fn anywhere() -> impl Iterator<Item = u32> {
        (1..).map(|read: u32| read.wrapping_mul(2_654_435_761) >> 8)
    }

    /// How many of these reads are found to be of a random pattern.
    fn at_random(reads: impl Iterator<Item = Read>) -> usize {
        let descriptor = descriptor();
        reads
            .filter(|&read| descriptor.is_random_with(3, read))
            .count()
    }

    #[test]
    fn a_pattern_is_random_after_some_reads_and_until_one_continues_another() {
        let records = || anywhere().map(|first| blocks(first, 8));
        let before = RANDOM_READS_MIN as usize - 1;
        assert_eq!(at_random(records().take(before)), 0);
        assert_eq!(at_random(records().take(before + 100)), 100);
        let on = |gap: u32| {
            let first = anywhere().nth(before).expect("a read");
            let next = blocks(first + 7 + gap, 8);
            at_random(records().take(before + 1).chain([next]))
        };
        assert_eq!(
            [
                on(0),
                on(1),
                on(SKIPPED_BLOCKS_MAX),
                on(SKIPPED_BLOCKS_MAX + 1)
            ],
            [1, 1, 1, 2]
        );
        let mut own = records().take(2 * before).collect::<Vec<_>>();
        own[before - 1].continues_thread = true;
        assert_eq!(at_random(own.into_iter()), 0);
    }

    #[test]
    fn streams_through_one_descriptor_are_streams_whoever_reads_them() {
        for count in 1..=ENDS_MAX as u32 {
            let streams = (0..100).flat_map(|step| (0..count).map(move |of| (of, step)));
            let reads = streams.map(|(of, step)| blocks((of + 1) * 100_000 + 2 * step, 2));
            assert_eq!(at_random(reads), 0, "{count}");
        }
        // Of more than are remembered it is for the threads to know, or for chance.
        let count = ENDS_MAX as u32 + 2;
        let streams = (0..1000).flat_map(|step| (0..count).map(move |of| (of, step)));
        let reads = streams.map(|(of, step)| blocks((of + 1) * 100_000 + 2 * step, 2));
        assert!(at_random(reads) < 80, "of 8000");
    }

    #[test]
    fn long_reads_are_streams_and_short_ones_in_a_small_file_are_near() {
        assert_eq!(
            at_random(
                anywhere()
                    .map(|at| blocks(at, SINGLE_BLOCKS_MAX + 2))
                    .take(100)
            ),
            0
        );
        let small = anywhere().map(|first| blocks(first % (2 * SKIPPED_BLOCKS_MAX), 1));
        assert_eq!(at_random(small.take(1000)), 0);
    }
}
