//! Readahead, as Linux does it: which requests to the disk the misses of a cache become.
//!
//! Source: `mm/readahead.c` of Linux 6.12 (`page_cache_sync_ra`, `page_cache_async_ra`). A miss
//! reads a *window* of the file: at its start, or after the block that was read before it, a small
//! one; elsewhere the missed block alone, unless the blocks before it are cached, which are then
//! taken for the trail of a sequential reader. One block of each window has a mark. Its first
//! use shows that the reader has come so far, and reads the next window, of twice the size, up to
//! the largest.
//!
//! The policy sees what it sees without readahead, the references, as it does in a live run. Blocks
//! that were read ahead lie beside its cache, as many as an eighth of it or four windows; the first
//! use brings a block into the cache. So readahead changes no hit ratio. It changes how often the
//! disk is asked, and for how much.
//!
//! Readings and departures:
//! - A state is kept for each process and file, where the kernel has one for each open file.
//! - A request of more than 256 blocks counts as one of 256. None reads more at a time than a
//!   window; the kernel's may, as far as the disk takes it.
//! - A block is a page, and a request ends with one. Folios of several pages are not modelled.
//! - A write reads nothing. (The kernel's reads a page of which it writes a part.)
//! - `fadvise`, `madvise` and direct reads are not known.

use std::collections::VecDeque;

use hither_core::readahead_windows::{first_size, next_size};
use hither_core::{Access, Block, Op, Residency};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::references::References;

/// Blocks that were read ahead and not used yet take at most this part of the cache, or
/// [`AHEAD_WINDOWS_MIN`] windows if that is more. Then the oldest of them goes.
const AHEAD_PART: u32 = 8;

/// What `hither run` keeps free for readahead.
const AHEAD_WINDOWS_MIN: u32 = 4;

/// The largest window of a disk for which nothing else is set, in bytes (VM_READAHEAD_PAGES).
pub const WINDOW_BYTES: u32 = 128 << 10;

/// A position in a file, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    object: u32,
    index: u32,
}

/// Where the blocks of a trace are, and how long its files.
#[derive(Clone, Debug)]
pub(crate) struct Files<'a> {
    blocks: FxHashMap<Place, Block>,
    /// By object, in blocks.
    lengths: Vec<u32>,
    /// By reference: see [`References::blocks_left`].
    blocks_left: &'a [u8],
}

impl Files<'_> {
    /// Those that the references are to.
    pub(crate) fn of(references: &impl References) -> Files<'_> {
        let block_bytes = u64::from(references.block_bytes());
        let bytes = references.object_bytes();
        let length = |&bytes: &u64| u32::try_from(bytes.div_ceil(block_bytes)).unwrap_or(u32::MAX);
        let mut lengths: Vec<u32> = bytes.iter().map(length).collect();
        let mut blocks = FxHashMap::default();
        for block in (0..references.blocks()).map(Block) {
            let (object, index) = references.place_of(block);
            let place = Place {
                object: object.0,
                index,
            };
            blocks.insert(place, block);
            // Files grow after they were opened.
            if lengths.len() <= object.index() {
                lengths.resize(object.index() + 1, 0);
            }
            let length = &mut lengths[object.index()];
            *length = (*length).max(index.saturating_add(1));
        }
        Files {
            blocks,
            lengths,
            blocks_left: references.blocks_left(),
        }
    }

    fn is_cached(&self, residency: &Residency, place: Place) -> bool {
        let block = self.blocks.get(&place);
        block.is_some_and(|&block| residency.slot(block).is_some())
    }
}

/// What the disk was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reads {
    /// Requests to the disk: each for successive blocks that were not in memory.
    pub requests: u64,
    /// Blocks that they read.
    pub blocks: u64,
    /// Misses of reads that found their block read ahead.
    pub found_ahead: u64,
    /// Blocks that were read ahead and went before they were read, or never were.
    pub unused: u64,
}

/// `file_ra_state` of the kernel, in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The current window: where it starts and its size.
    start: u32,
    size: u32,
    /// The mark is so many blocks before its end.
    marked_before_end: u32,
    /// The block after the last request, if there was one (`prev_pos`).
    after_last: Option<u32>,
}

/// Who reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reader {
    process: u32,
    object: u32,
}

/// When a block was read ahead.
#[derive(Clone, Copy, Debug)]
struct Coming {
    place: Place,
    number: u64,
}

/// A block that was read ahead.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// Its place in the order of their coming.
    number: u64,
    marked: bool,
}

/// The readahead of one cache.
#[derive(Clone, Debug)]
pub(crate) struct Readahead<'a> {
    files: &'a Files<'a>,
    /// The largest window, in blocks.
    window: u32,
    ahead_max: usize,
    streams: FxHashMap<Reader, Stream>,
    ahead: FxHashMap<Place, Ahead>,
    /// The blocks read ahead in the order of their coming. Those that were used since are still in
    /// it.
    order: VecDeque<Coming>,
    came: u64,
    reads: Reads,
}

impl<'a> Readahead<'a> {
    /// Of a cache of `cache_blocks` blocks, with windows of up to `window` blocks.
    pub(crate) fn new(files: &'a Files<'a>, window: u32, cache_blocks: u32) -> Self {
        let least = window.saturating_mul(AHEAD_WINDOWS_MIN);
        Readahead {
            files,
            window,
            ahead_max: least.max(cache_blocks / AHEAD_PART) as usize,
            streams: FxHashMap::default(),
            ahead: FxHashMap::default(),
            order: VecDeque::new(),
            came: 0,
            reads: Reads::default(),
        }
    }

    /// What was read. Blocks that lie there unused count as such.
    pub(crate) fn reads(&self) -> Reads {
        Reads {
            unused: self.reads.unused + self.ahead.len() as u64,
            ..self.reads
        }
    }

    /// The cache has served this access, and had its block or not.
    pub(crate) fn served(&mut self, access: &Access, hit: bool, residency: &Residency) {
        let place = Place {
            object: access.object.0,
            index: access.index,
        };
        if access.op == Op::Write {
            // It is in the cache from now on.
            self.reads.unused += u64::from(self.ahead.remove(&place).is_some());
            return;
        }
        let left = self.files.blocks_left.get(access.tick as usize);
        let asked = u32::from(left.copied().unwrap_or(0)) + 1;
        let reader = Reader {
            process: access.process.0,
            object: place.object,
        };
        let mut stream = self.streams.get(&reader).copied().unwrap_or_default();
        if !hit {
            match self.ahead.remove(&place) {
                Some(found) => {
                    self.reads.found_ahead += 1;
                    if found.marked {
                        self.marked_was_used(&mut stream, place, asked, residency);
                    }
                }
                None => self.missed(&mut stream, place, asked, residency),
            }
        }
        if asked == 1 {
            stream.after_last = Some(place.index.saturating_add(1));
        }
        self.streams.insert(reader, stream);
    }

    /// The kernel's `page_cache_sync_ra`, for a request of which so many blocks are left.
    fn missed(&mut self, stream: &mut Stream, place: Place, asked: u32, residency: &Residency) {
        let index = place.index;
        let follows = stream
            .after_last
            .is_some_and(|after| index.wrapping_sub(after) <= 1);
        if index == 0 || follows || asked > self.window {
            let size = first_size(asked, self.window);
            *stream = Stream {
                start: index,
                size,
                marked_before_end: if size > asked { size - asked } else { size / 2 },
                ..*stream
            };
            return self.read_window(stream, place.object, Some(index), residency);
        }
        let before = (1..=self.window.min(index)).take_while(|&back| {
            let index = index - back;
            self.is_in_memory(Place { index, ..place }, residency)
        });
        let before = before.count() as u32;
        if before <= asked {
            // The request alone. The state stays as it is.
            let request = Stream {
                start: index,
                size: asked,
                ..Stream::default()
            };
            return self.read_window(&request, place.object, Some(index), residency);
        }
        // Cached from its start: a long stream, probably.
        let trail = if before == index { 2 * before } else { before };
        *stream = Stream {
            start: index,
            size: (trail + asked).min(self.window),
            marked_before_end: 1,
            ..*stream
        };
        self.read_window(stream, place.object, Some(index), residency);
    }

    /// The kernel's `page_cache_async_ra`, for a request of which so many blocks are left.
    fn marked_was_used(
        &mut self,
        stream: &mut Stream,
        place: Place,
        asked: u32,
        residency: &Residency,
    ) {
        let expected = stream.start + stream.size.saturating_sub(stream.marked_before_end);
        if place.index == expected {
            stream.start = stream.start.saturating_add(stream.size);
            stream.size = next_size(stream.size, self.window);
        } else {
            // Readers take turns, and the state is another one's.
            let within = (1..=self.window).find(|&on| {
                let index = place.index.saturating_add(on);
                !self.is_in_memory(Place { index, ..place }, residency)
            });
            let Some(within) = within else {
                return;
            };
            stream.start = place.index.saturating_add(within);
            stream.size = next_size(within + asked, self.window);
        }
        stream.marked_before_end = stream.size;
        self.read_window(stream, place.object, None, residency);
    }

    /// Reads the blocks of a stream's window that are not in memory, but for the missed one, which
    /// the cache has already: that one is read all the same.
    fn read_window(
        &mut self,
        stream: &Stream,
        object: u32,
        missed: Option<u32>,
        residency: &Residency,
    ) {
        let length = self.files.lengths.get(object as usize).copied();
        let end = stream.start.saturating_add(stream.size);
        let marked = end.saturating_sub(stream.marked_before_end);
        let mut in_request = false;
        for index in stream.start..end.min(length.unwrap_or(0)) {
            let place = Place { object, index };
            let is_missed = missed == Some(index);
            if !is_missed && self.is_in_memory(place, residency) {
                in_request = false;
                continue;
            }
            self.reads.requests += u64::from(!in_request);
            self.reads.blocks += 1;
            in_request = true;
            if !is_missed {
                self.keep(place, index == marked);
            }
        }
    }

    fn is_in_memory(&self, place: Place, residency: &Residency) -> bool {
        self.ahead.contains_key(&place) || self.files.is_cached(residency, place)
    }

    /// A block was read ahead. If they are too many, the oldest goes.
    fn keep(&mut self, place: Place, marked: bool) {
        let number = self.came;
        self.came += 1;
        self.ahead.insert(place, Ahead { number, marked });
        self.order.push_back(Coming { place, number });
        let lies = |ahead: &FxHashMap<Place, Ahead>, one: &Coming| {
            let now = ahead.get(&one.place);
            now.is_some_and(|now| now.number == one.number)
        };
        while self.ahead.len() > self.ahead_max
            && let Some(oldest) = self.order.pop_front()
        {
            if lies(&self.ahead, &oldest) {
                self.ahead.remove(&oldest.place);
                self.reads.unused += 1;
            }
        }
        if self.order.len() > 2 * self.ahead_max {
            self.order.retain(|one| lies(&self.ahead, one));
        }
    }
}

#[cfg(test)]
mod tests;
