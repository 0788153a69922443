//! A fixed amount of memory, cut into frames of one size that are taken and come back by
//! themselves: the memory of a block cache.
//!
//! The arena is one mapping, on huge pages where the kernel has them. [`Arena::take`] gives a frame
//! to its only owner, who fills it; a frame that was cut ([`Frame::split_to`]) comes back when its
//! last part is dropped. So no reader ever looks at memory that somebody else writes, and the
//! mapping bounds what the cache takes, whatever is being filled or still being read.

use std::sync::{Arc, Mutex, PoisonError};
use std::{io, slice};

use crate::{huge_pages, syscalls};

/// See the module. Clones are handles to the same memory.
#[derive(Clone, Debug)]
pub struct Arena {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    mapping: Mapping,
    frame_bytes: usize,
    /// The numbers of the frames that nobody has. The one that came back last is taken first: its
    /// memory is likely in the processor's caches.
    free: Mutex<Vec<u32>>,
}

/// Memory of this process, unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    /// Its address, with exposed provenance.
    start: usize,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: `Arena::new` mapped so much there. Each frame holds the arena, so there is none.
        unsafe { syscalls::unmap(start, self.bytes) };
    }
}

impl Arena {
    /// An arena of `frames` frames of `frame_bytes` each. Memory is taken from the system when a
    /// frame is first written.
    ///
    /// # Errors
    /// The system does not have so much address space.
    pub fn new(frames: u32, frame_bytes: usize) -> io::Result<Arena> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = (frames as usize)
            .checked_mul(frame_bytes)
            .filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or_else(too_large)?;
        let start = huge_pages::map(bytes);
        if start.is_null() {
            return Err(too_large());
        }
        Ok(Arena {
            shared: Arc::new(Shared {
                mapping: Mapping {
                    start: start.expose_provenance(),
                    bytes,
                },
                frame_bytes,
                free: Mutex::new((0..frames).rev().collect()),
            }),
        })
    }

    /// A frame that nobody has; its contents are arbitrary. `None` if all are in use.
    pub fn take(&self) -> Option<Frame> {
        let number = self.shared.free().pop()?;
        let start = self.shared.mapping.start + number as usize * self.shared.frame_bytes;
        Some(Frame {
            start,
            bytes: self.shared.frame_bytes,
            _whole: Arc::new(Whole {
                arena: Arc::clone(&self.shared),
                number,
            }),
        })
    }

    /// Frames that nobody has at the moment.
    pub fn free(&self) -> usize {
        self.shared.free().len()
    }

    /// Length of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.shared.frame_bytes
    }
}

impl Shared {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // Whoever panicked had pushed or popped one number, or not: both leave a sound list.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A frame as its parts hold it: it comes back when the last of them is dropped.
#[derive(Debug)]
struct Whole {
    arena: Arc<Shared>,
    number: u32,
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.arena.free().push(self.number);
    }
}

/// A frame, or a part of one, and the only way to its memory.
#[derive(Debug)]
pub struct Frame {
    /// Its address, with exposed provenance.
    start: usize,
    bytes: usize,
    _whole: Arc<Whole>,
}

impl Frame {
    /// Cuts off the first `bytes` and returns them as a part of their own.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn split_to(&mut self, bytes: usize) -> Frame {
        assert!(bytes <= self.bytes, "{bytes} of {} bytes", self.bytes);
        let part = Frame {
            start: self.start,
            bytes,
            _whole: Arc::clone(&self._whole),
        };
        self.start += bytes;
        self.bytes -= bytes;
        part
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        let start = std::ptr::with_exposed_provenance(self.start);
        // SAFETY: within the mapping, which lives as long as the arena that this part holds. Parts
        // do not overlap and `take` gives a frame only when it has none, so whoever writes here
        // does it through `as_mut` of this part, and that borrows it exclusively. The memory is
        // initialised: the kernel gave it zeroed.
        unsafe { slice::from_raw_parts(start, self.bytes) }
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: as above, and this borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(start, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_distinct_and_come_back() {
        let arena = Arena::new(3, 4096).unwrap();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!(frames.len(), 3);
        for (value, frame) in (1..).zip(&mut frames) {
            frame.as_mut().fill(value);
        }
        for (value, frame) in (1..).zip(&frames) {
            assert!(frame.as_ref().iter().all(|&byte| byte == value));
        }
        frames.pop();
        assert_eq!(arena.free(), 1);
        assert!(arena.take().is_some());
    }

    #[test]
    fn a_cut_frame_comes_back_with_its_last_part() {
        let arena = Arena::new(1, 4096).unwrap();
        let mut rest = arena.take().unwrap();
        let mut first = rest.split_to(100);
        let second = rest.split_to(3996);
        first.as_mut().fill(1);
        assert_eq!(rest.as_ref().len(), 0);
        assert!(second.as_ref().iter().all(|&byte| byte == 0));
        drop(first);
        drop(rest);
        assert!(arena.take().is_none());
        drop(second);
        assert!(arena.take().is_some());
    }

    #[test]
    fn an_arena_outlives_its_handle_while_a_frame_is_held() {
        let arena = Arena::new(1, 1 << 20).unwrap();
        let mut frame = arena.take().unwrap();
        drop(arena);
        std::thread::spawn(move || frame.as_mut().fill(9))
            .join()
            .unwrap();
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert!(Arena::new(0, 4096).is_err());
        assert!(Arena::new(u32::MAX, usize::MAX / 4).is_err());
        assert!(Arena::new(u32::MAX, 1 << 30).is_err());
    }
}
