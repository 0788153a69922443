//! The shared segment: its layout in memory, and the mapping of it.
//!
//! One page of session header, then the lists of free chunks, the rings' control parts, the bind
//! requests, and the chunks. Memory is taken where it is used: neither a ring nor a chunk that is
//! never used takes any, nor do the bind requests of a session that makes none.
//! [`crate::session`] gives back what chunks had taken.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::bind_requests::BindRequestQueue;
use crate::chunks::{CHUNK_BYTES, CHUNKS_MAX, Chunks, FreeLists};
use crate::pool_parts::{PoolParts, Source};
use crate::ring::{Control, Ring};
use crate::userfaultfd_offers::Offers;
use hither_ids::FileKey;
use hither_kernel::shared_memory::{self, Id, populate};
use hither_kernel::{PAGE_BYTES_MIN, page_bytes, syscalls};

/// "hither" and the layout's version; a preload library of another version stays out.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"hither\0\x0d");

/// The session recorder takes events.
pub(crate) const RECORDING: u32 = 1;
/// The session is over: programs that still run go on unrecorded.
pub(crate) const CLOSED: u32 = 2;

/// What programs do about readahead: nothing; track how their descriptors are read; and disable it
/// on those that are read at random.
pub(crate) const READAHEAD_UNTRACKED: u32 = 0;
pub(crate) const READAHEAD_TRACKED: u32 = 1;
pub(crate) const READAHEAD_DISABLED: u32 = 2;

/// The first bytes of the segment.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// Written last by the agent, so that a half-made segment is refused.
    pub(crate) magic: AtomicU64,
    /// What the environment of programs says too: another segment may have got the number.
    pub(crate) nonce: AtomicU64,
    pub(crate) rings: AtomicU32,
    pub(crate) chunks: AtomicU32,
    /// The most chunks that may be queued in a ring.
    pub(crate) ring_chunks: AtomicU32,
    pub(crate) frames_max: AtomicU32,
    pub(crate) state: AtomicU32,
    /// One past the highest ring that was ever claimed: the agent checks only these.
    pub(crate) rings_used: AtomicU32,
    /// No ring below this is free, as far as is known.
    pub(crate) rings_taken: AtomicU32,
    /// Counts claims.
    pub(crate) claims: AtomicU64,
    /// Accesses by threads that found no free ring or no memory, and the bytes that they moved.
    pub(crate) no_ring: AtomicU64,
    pub(crate) no_ring_bytes: AtomicU64,
    /// The agent's process, and the inode of its pid namespace: elsewhere the ids mean nothing to
    /// it.
    pub(crate) agent: AtomicU32,
    pub(crate) pid_namespace: AtomicU64,
    /// Counts program images.
    pub(crate) images: AtomicU32,
    /// The smallest allocation that is a region, in bytes; 0 where allocations are not tracked and
    /// no bind requests are made.
    pub(crate) region_min: AtomicU64,
    /// Accesses to files are not recorded.
    pub(crate) no_files: AtomicU32,
    /// Accesses to files are not recorded for now.
    pub(crate) paused: AtomicU32,
    /// Bits of the offset within a block of a file. A thread reports several reads of one block in
    /// a row once; 0 where it reports each.
    pub(crate) block_bits: AtomicU32,
    /// Allocations that found their program's table of regions full.
    pub(crate) regions_untracked: AtomicU64,
    /// Programs are to offer a userfaultfd.
    pub(crate) sampling: AtomicU32,
    /// The error number of the last program that could not offer one.
    pub(crate) offer_error: AtomicU32,
    pub(crate) offers: Offers,
    /// The agent's process and its descriptor of the replicas' control; 0 where there are none.
    pub(crate) replicas: AtomicU64,
    /// The nonce that identifies that control.
    pub(crate) replicas_nonce: AtomicU64,
    /// The nodes for the file pages that programs read in, a bit each; 0 for where the kernel puts
    /// them.
    pub(crate) file_nodes: AtomicU64,
    /// Reads whose pages were placed on those nodes.
    pub(crate) file_reads_placed: AtomicU64,
    /// Reads that were not placed, since their threads had a policy of their own.
    pub(crate) file_reads_left: AtomicU64,
    /// [`READAHEAD_UNTRACKED`], [`READAHEAD_TRACKED`] or [`READAHEAD_DISABLED`].
    pub(crate) readahead: AtomicU32,
    /// Times that a program disabled readahead on a descriptor.
    pub(crate) readahead_disabled: AtomicU64,
    /// Programs are to say of a file that they open how much of it is cached.
    pub(crate) samples_cached: AtomicU32,
    /// Reads of files that were cached when they were opened are not recorded.
    pub(crate) skips_cached: AtomicU32,
    /// Programs are to announce themselves.
    pub(crate) announced: AtomicU32,
    /// Files whose accesses are not recorded any more.
    pub(crate) unrecorded: UnrecordedFiles,
    /// Bytes that programs read of what is not recorded: pipes, sockets, terminals, /proc.
    pub(crate) other_reads: SpreadCount,
    pub(crate) free: FreeLists,
}

const _: () = assert!(size_of::<Header>() <= PAGE_BYTES_MIN);

/// A count that many CPUs add to: each mostly to a cache line of its own.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct SpreadCount([CacheLine; 16]);

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct CacheLine(AtomicU64);

impl SpreadCount {
    pub(crate) fn add(&self, cpu: u16, more: u64) {
        let line = &self.0[usize::from(cpu) % self.0.len()];
        line.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        let lines = self.0.iter().map(|line| line.0.load(Ordering::Relaxed));
        lines.fold(0, u64::saturating_add)
    }
}

/// Keys of files, each at the one place that follows from it. Of two keys with the same place the
/// later one is kept, and the other file is recorded again.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct UnrecordedFiles([AtomicU64; 128]);

impl Default for UnrecordedFiles {
    fn default() -> UnrecordedFiles {
        UnrecordedFiles([const { AtomicU64::new(0) }; 128])
    }
}

impl UnrecordedFiles {
    /// The place of a key, which is a hash already; its lowest bits are the same in all.
    pub(crate) fn place(&self, key: FileKey) -> &AtomicU64 {
        &self.0[(key.0 >> 2) as usize % self.0.len()]
    }
}

/// Gives shared memory its size. It takes room only where it is used, but counts as a whole against
/// the limit on the size of files.
pub(crate) fn resize(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // SAFETY: ftruncate takes no memory; the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EFBIG) => {
            let problem = format!(
                "shared memory of {} MiB is more than the limit on the size of files \
                 (ulimit -f) allows",
                bytes >> 20
            );
            io::Error::new(error.kind(), problem)
        }
        _ => error,
    })
}

/// How many rings and chunks a segment has. Each part begins with a page. The page's size is no
/// part of the contents: all who attach the segment are on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    rings: usize,
    chunks: usize,
    page: usize,
}

impl Layout {
    pub(crate) fn new(rings: usize, chunks: usize) -> Option<Self> {
        let page = page_bytes() as usize;
        let sane = (1..=1 << 16).contains(&rings) && (1..=CHUNKS_MAX).contains(&chunks);
        // Memory comes and goes by chunks.
        (sane && page <= CHUNK_BYTES).then_some(Layout {
            rings,
            chunks,
            page,
        })
    }

    pub(crate) fn chunks(self) -> usize {
        self.chunks
    }

    /// These bytes, up to the end of their last page.
    #[inline]
    fn pages(self, bytes: usize) -> usize {
        (bytes + self.page - 1) & !(self.page - 1)
    }

    /// Where in the segment the control parts begin. Before them lie the header and the lists of
    /// free chunks.
    fn controls_at(self) -> usize {
        self.page + self.pages(self.chunks * size_of::<AtomicU16>())
    }

    fn bind_requests_at(self) -> usize {
        self.controls_at() + self.pages(self.rings * size_of::<Control>())
    }

    fn chunks_at(self) -> usize {
        self.bind_requests_at() + self.pages(size_of::<BindRequestQueue>())
    }

    pub(crate) fn bytes(self) -> usize {
        self.chunks_at() + self.chunks * CHUNK_BYTES
    }

    /// Where the pool is, in the segment of this number, length and nonce.
    fn pool(self, id: Id, bytes: usize, nonce: u64) -> Source {
        Source {
            id,
            bytes,
            pool_at: self.chunks_at(),
            first: [MAGIC, nonce],
        }
    }
}

/// An attached segment: all that comes before the chunks, and of these the first part, which each
/// thread that records begins with, and those that were wanted (`pool_parts`).
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    layout: Layout,
    parts: PoolParts,
}

// SAFETY: the memory is not tied to a thread, and everything in it is reached through atomics.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment with memory for what programs write to without asking first, and for bind
    /// requests if there will be any, which even a load would have to take. Returns its number too.
    pub(crate) fn create(
        layout: Layout,
        nonce: u64,
        bind_requests: bool,
    ) -> io::Result<(Id, Segment)> {
        let (id, base) = shared_memory::create(layout.bytes())?;
        let segment = Segment {
            base,
            layout,
            parts: PoolParts::all(layout.pool(id, layout.bytes(), nonce), base),
        };
        segment.reserve(0..layout.controls_at());
        if bind_requests {
            segment.reserve(layout.bind_requests_at()..layout.chunks_at());
        }
        segment.exclude_from_dumps();
        Ok((id, segment))
    }

    /// Attaches the segment of this number, which holds this nonce. Returns its maker, too, as
    /// [`shared_memory::Status`] has it.
    pub(crate) fn attach(id: Id, nonce: u64) -> Option<(Segment, u32)> {
        let shared_memory::Status { bytes, maker, .. } = shared_memory::status(id).ok()?;
        // The smallest possible one, for its header.
        Layout::new(1, 1).filter(|layout| layout.bytes() <= bytes)?;
        let base = shared_memory::attach(id).ok()?;
        // SAFETY: as in `header`.
        let header = unsafe { &*base.cast::<Header>() };
        let is_it = header.magic.load(Ordering::Acquire) == MAGIC
            && header.nonce.load(Ordering::Relaxed) == nonce;
        let rings = header.rings.load(Ordering::Relaxed) as usize;
        let layout = Layout::new(rings, header.chunks.load(Ordering::Relaxed) as usize);
        // The size is the kernel's and stays; what the header says is anybody's.
        let layout = layout.filter(|layout| is_it && layout.bytes() <= bytes);
        let pool = layout.map(|layout| layout.pool(id, bytes, nonce));
        let kept = pool.map_or(0, Source::first_part_end);
        // SAFETY: it was just attached, and the header is not looked at any more where it goes.
        unsafe { shared_memory::keep(base, bytes, 0..kept) };
        let layout = layout?;
        let parts = PoolParts::first(pool?, base);
        let segment = Segment {
            base,
            layout,
            parts,
        };
        segment.exclude_from_dumps();
        Some((segment, maker.0))
    }

    /// Detaches all of it.
    ///
    /// # Safety
    /// Nothing that was got from this segment is used any more, nor this itself.
    pub(crate) unsafe fn detach(&self) {
        // SAFETY: as the caller says.
        unsafe { self.parts.detach() };
        // SAFETY: as above.
        unsafe { syscalls::unmap(self.base, self.layout.chunks_at()) };
    }

    /// How much of it programs keep attached as long as they use it.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.parts.source().first_part_end()
    }

    /// A crash of the program should not write a gigabyte of chunks into its core file. Failure is
    /// harmless.
    fn exclude_from_dumps(&self) {
        let bytes = self.kept_bytes();
        // SAFETY: the segment is attached, and the advice keeps its contents.
        let _ = unsafe { syscalls::advise(self.base, bytes, libc::MADV_DONTDUMP) };
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the segment starts with a page that holds a Header, made of atomics for which any
        // bytes are valid, and it is attached as long as `self` lives.
        unsafe { &*self.base.cast::<Header>() }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.bytes());
        // SAFETY: callers pass offsets of the layout, which lie inside the segment.
        unsafe { self.base.add(offset) }
    }

    /// Takes memory for a range of bytes, which nobody uses yet.
    fn reserve(&self, bytes: std::ops::Range<usize>) {
        for page in bytes.step_by(self.layout.page) {
            // SAFETY: the page is in the segment, whose other users are yet to come.
            unsafe { self.at(page).write_volatile(0) };
        }
    }

    /// Asks for memory behind the control part of ring `index`, if there is one.
    pub(crate) fn back_control(&self, index: usize) -> bool {
        let offset = self.layout.controls_at() + index * size_of::<Control>();
        let page = offset & !(self.layout.page - 1);
        // SAFETY: the page is in the segment, and the first words of each control are there to be
        // written over.
        index < self.layout.rings && unsafe { populate(self.at(page), self.layout.page) }
    }

    /// Ring `index`, if there is one.
    #[inline]
    pub(crate) fn ring(&self, index: usize) -> Option<Ring<'_>> {
        if index >= self.layout.rings {
            return None;
        }
        let control = self
            .at(self.layout.controls_at() + index * size_of::<Control>())
            .cast::<Control>();
        // SAFETY: `index` is in range, so this is one of the Controls that the layout places there,
        // aligned because the page is; its fields are atomics, and it lives as long as `self`.
        let control = unsafe { &*control };
        Some(Ring {
            index,
            control,
            chunks: self.chunks(),
            chunks_max: &self.header().ring_chunks,
        })
    }

    /// The pool of chunks.
    #[inline]
    pub(crate) fn chunks(&self) -> Chunks<'_> {
        let Layout { chunks, page, .. } = self.layout;
        let next = self.at(page).cast::<AtomicU16>();
        // SAFETY: the layout places so many of them there, page-aligned, in a segment that is
        // attached as long as `self` lives.
        let next = unsafe { std::slice::from_raw_parts(next, chunks) };
        Chunks {
            lists: &self.header().free,
            next,
            parts: &self.parts,
        }
    }

    /// The bind requests; in memory that the agent has reserved if it tracks regions, and must not
    /// be touched otherwise.
    pub(crate) fn bind_request_queue(&self) -> Option<&BindRequestQueue> {
        if self.header().region_min.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let queue = self
            .at(self.layout.bind_requests_at())
            .cast::<BindRequestQueue>();
        // SAFETY: the layout places it there, page-aligned; it is made of atomics, for which any
        // bytes are valid, and lives as long as `self`.
        Some(unsafe { &*queue })
    }

    pub(crate) fn rings(&self) -> usize {
        self.layout.rings
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: every reference into it borrows from `self`.
        unsafe { self.detach() };
    }
}
