//! Where a process has the pool of chunks: in parts, the first attached with what comes before it,
//! each other one when a chunk of it is first wanted.
//!
//! A pool of 512 MiB takes memory only where it is used, but attached as a whole it would take that
//! much address space of each program, which a program may have limited (`RLIMIT_AS`), and locks
//! with its own memory (`mlockall`). Most programs never need more than the first part. A segment
//! can only be attached whole; so it is, and what is not wanted is unmapped again.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use hither_kernel::shared_memory::{self, Id};
use hither_kernel::syscalls;

/// Size of a chunk. It has room for 340 accesses, and for two of the largest records.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;

/// The most chunks of a pool: 1 GiB, less one chunk for the number that is none.
pub(crate) const CHUNKS_MAX: usize = u16::MAX as usize;

/// Chunks of a part: 16 MiB of them.
pub(crate) const PART_CHUNKS: usize = 1 << 10;

/// The length of a part.
const PART_BYTES: usize = PART_CHUNKS * CHUNK_BYTES;

const PARTS_MAX: usize = CHUNKS_MAX.div_ceil(PART_CHUNKS);

/// The segment that has the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) id: Id,
    /// Its length.
    pub(crate) bytes: usize,
    /// Where in it the pool begins.
    pub(crate) pool_at: usize,
    /// What its first two words are. In another IPC namespace, into which a program can move
    /// (`unshare`), the number is another one's.
    pub(crate) first: [u64; 2],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PoolParts {
    source: Source,
    /// Where each part is; null where it is not attached.
    places: [AtomicPtr<AtomicU64>; PARTS_MAX],
}

impl Source {
    /// The bytes of the segment that a part has, if there is such a part.
    fn part(self, part: usize) -> Option<std::ops::Range<usize>> {
        let start = self.pool_at.checked_add(part * PART_BYTES)?;
        let end = (start + PART_BYTES).min(self.bytes);
        (start < end).then_some(start..end)
    }

    /// Where the first part ends, in the segment.
    pub(crate) fn first_part_end(self) -> usize {
        self.part(0).map_or(self.pool_at, |part| part.end)
    }
}

impl PoolParts {
    /// Of a segment at `base` of which so many parts are attached, from the first one on.
    fn attached(source: Source, base: *mut u8, parts: usize) -> PoolParts {
        let places = [const { AtomicPtr::new(std::ptr::null_mut()) }; PARTS_MAX];
        for (part, place) in places.iter().enumerate().take(parts) {
            if let Some(range) = source.part(part) {
                let at = base.wrapping_add(range.start);
                place.store(at.cast(), Ordering::Relaxed);
            }
        }
        PoolParts { source, places }
    }

    /// Of a segment that is attached at `base` up to the end of the first part.
    pub(crate) fn first(source: Source, base: *mut u8) -> PoolParts {
        PoolParts::attached(source, base, 1)
    }

    /// Of a segment that is attached at `base` as a whole.
    pub(crate) fn all(source: Source, base: *mut u8) -> PoolParts {
        PoolParts::attached(source, base, PARTS_MAX)
    }

    /// Where they come from.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// Where the chunk at a place of the pool lies; null where its part is not attached.
    #[inline]
    pub(crate) fn chunk(&self, place: usize) -> *const AtomicU64 {
        let part = self.places.get(place / PART_CHUNKS);
        let part = part.map_or(std::ptr::null_mut(), |part| part.load(Ordering::Acquire));
        if part.is_null() {
            part
        } else {
            part.wrapping_byte_add(place % PART_CHUNKS * CHUNK_BYTES)
        }
    }

    /// Attaches the part that has the chunk at a place of the pool, if it is not attached yet.
    /// False where that is not possible.
    #[inline]
    pub(crate) fn reach(&self, place: usize) -> bool {
        !self.chunk(place).is_null() || self.attach(place / PART_CHUNKS)
    }

    #[cold]
    fn attach(&self, part: usize) -> bool {
        let (Some(range), Some(place)) = (self.source.part(part), self.places.get(part)) else {
            return false;
        };
        let length = range.len();
        let Some(at) = self.attach_range(range) else {
            return false;
        };
        // Nobody looks at the whole of it. Failure is harmless.
        // SAFETY: the range was just attached, and the advice keeps its contents.
        let _ = unsafe { syscalls::advise(at, length, libc::MADV_DONTDUMP) };
        let (null, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        let taken = place.compare_exchange(null, at.cast(), order, Ordering::Acquire);
        if taken.is_err() {
            // Another thread was here first. SAFETY: nobody has been given this.
            unsafe { syscalls::unmap(at, length) };
        }
        true
    }

    /// Attaches a range of the segment.
    fn attach_range(&self, range: std::ops::Range<usize>) -> Option<*mut u8> {
        let Source {
            id, bytes, first, ..
        } = self.source;
        if shared_memory::status(id).ok()?.bytes != bytes {
            return None;
        }
        let base = shared_memory::attach(id).ok()?;
        // SAFETY: a segment is a page long at least, its memory is aligned and initialised, and any
        // bytes are a value of these.
        let words = unsafe { &*base.cast::<[AtomicU64; 2]>() };
        let is_ours = [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed)) == first;
        let kept = if is_ours { range } else { 0..0 };
        // SAFETY: the segment was just attached there, and nobody refers to it.
        unsafe { shared_memory::keep(base, bytes, kept.clone()) };
        is_ours.then(|| base.wrapping_add(kept.start))
    }

    /// Detaches all parts.
    ///
    /// # Safety
    /// Nothing refers to a chunk any more.
    pub(crate) unsafe fn detach(&self) {
        for (part, place) in self.places.iter().enumerate() {
            let at = place.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if let (false, Some(range)) = (at.is_null(), self.source.part(part)) {
                // SAFETY: the part lies there, and as the caller says.
                unsafe { syscalls::unmap(at.cast(), range.len()) };
            }
        }
    }
}
