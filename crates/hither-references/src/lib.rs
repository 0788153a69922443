//! From requests to references: the one rule of which blocks a request refers to.
//!
//! **The rule.** A request for bytes of a file refers to each block that it touches, in ascending
//! order. The first of them is left out where the request goes on with what the same thread's last
//! request on the same file began: it has the same operation, begins in the block in which that one
//! ended, and not before that end. So a program that reads a file 100 bytes at a time refers to
//! each block once, and one that reads the same 100 bytes twice refers to their block twice. Linux
//! counts in the same way (`filemap_read` compares with `prev_pos` before it marks a page
//! accessed); without it a policy that counts references would take small buffers for popularity.
//!
//! A trace that is loaded ([`LastRequests`]), the controllers of a run (the same) and the library
//! inside programs ([`Reported`], which leaves out what makes no reference) use it. They are in a
//! crate of their own, as the library cannot afford hither-core.
#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

/// The largest index of a block in its file, so that 32 bits also hold the number of blocks up to
/// it. Of blocks of 4 KiB, it is 16 TiB into the file.
pub const INDEX_MAX: u32 = u32::MAX - 1;

/// The index of a block in its file. Blocks beyond [`INDEX_MAX`] count as that one; a trace with
/// such blocks is refused.
#[inline]
const fn index(block: u64) -> u32 {
    if block < INDEX_MAX as u64 {
        block as u32
    } else {
        INDEX_MAX
    }
}

/// The size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    bytes: u32,
    /// Its logarithm, if it is a power of two: a shift is faster than a division.
    shift: Option<u32>,
}

impl BlockSize {
    /// # Panics
    ///
    /// Panics if `bytes` is 0.
    pub const fn new(bytes: u32) -> BlockSize {
        assert!(bytes > 0, "blocks of 0 bytes");
        let shift = if bytes.is_power_of_two() {
            Some(bytes.ilog2())
        } else {
            None
        };
        BlockSize { bytes, shift }
    }

    /// Blocks of 2^`bits` bytes, 2^31 at most.
    pub const fn of_bits(bits: u32) -> BlockSize {
        let bits = if bits < u32::BITS {
            bits
        } else {
            u32::BITS - 1
        };
        BlockSize {
            bytes: 1 << bits,
            shift: Some(bits),
        }
    }

    /// The index of the block that holds the byte at this offset, [`INDEX_MAX`] at most.
    #[inline]
    pub const fn index_of(self, offset: u64) -> u32 {
        index(self.block_of(offset))
    }

    /// The indices of the blocks that a range touches. One of no bytes touches where it begins.
    #[inline]
    pub const fn indices(self, offset: u64, length: u64) -> RangeInclusive<u32> {
        let length = if length == 0 { 1 } else { length };
        let last = offset.saturating_add(length - 1);
        RangeInclusive::new(self.index_of(offset), self.index_of(last))
    }

    /// The number of the block that holds the byte at this offset.
    #[inline]
    pub const fn block_of(self, offset: u64) -> u64 {
        match self.shift {
            Some(shift) => offset >> shift,
            // Not 0; said so that no panic is compiled in.
            None => match offset.checked_div(self.bytes as u64) {
                Some(block) => block,
                None => 0,
            },
        }
    }
}

/// A request for bytes of a file, `O` being the operations. One of no bytes says where its thread
/// has come to ([`Reported`]), and refers to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<O> {
    /// What is done.
    pub op: O,
    /// Where, in bytes.
    pub offset: u64,
    /// To how many bytes.
    pub length: u64,
}

impl<O: Copy> Request<O> {
    #[inline]
    fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// The blocks that it touches; none, if it has no byte.
    #[inline]
    fn blocks(self, size: BlockSize) -> RangeInclusive<u64> {
        match self.length {
            0 => RangeInclusive::new(1, 0),
            _ => size.block_of(self.offset)..=size.block_of(self.end() - 1),
        }
    }
}

/// A thread's last request on a file, as far as the rule needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRequest<O> {
    end: u64,
    op: O,
}

impl<O: Copy + PartialEq> LastRequest<O> {
    /// As such.
    #[inline]
    pub fn of(request: Request<O>) -> LastRequest<O> {
        LastRequest {
            end: request.end(),
            op: request.op,
        }
    }

    /// Where it ended.
    #[inline]
    pub fn end(self) -> u64 {
        self.end
    }

    /// Whether the next request goes on in the block where this one ended, so that its first block
    /// is left out.
    #[inline]
    pub fn goes_on(self, next: Request<O>, size: BlockSize) -> bool {
        self.op == next.op
            && self.end <= next.offset
            && self.end > 0
            && size.block_of(self.end - 1) == size.block_of(next.offset)
    }
}

/// A thread of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reader {
    file: u32,
    thread: u32,
}

/// The last request of each thread on each file, by their numbers. Many files are used by one
/// thread only, so nothing is hashed for the first thread of a file.
#[derive(Clone, Debug)]
pub struct LastRequests<O> {
    of_first_threads: Vec<Option<(u32, LastRequest<O>)>>,
    of_others: FxHashMap<Reader, LastRequest<O>>,
    others_max: usize,
}

impl<O> Default for LastRequests<O> {
    fn default() -> LastRequests<O> {
        LastRequests::remembering(usize::MAX)
    }
}

impl<O> LastRequests<O> {
    /// None yet. Of threads that are not a file's first, no more than so many are remembered, each
    /// with its file; then all of them are forgotten.
    pub fn remembering(others_max: usize) -> LastRequests<O> {
        LastRequests {
            of_first_threads: Vec::new(),
            of_others: FxHashMap::default(),
            others_max,
        }
    }
}

impl<O: Copy + PartialEq> LastRequests<O> {
    /// Notes a request of a thread on a file. Returns the one before.
    #[inline]
    pub fn replace(
        &mut self,
        file: u32,
        thread: u32,
        request: LastRequest<O>,
    ) -> Option<LastRequest<O>> {
        if self.of_first_threads.len() <= file as usize {
            self.of_first_threads.resize(file as usize + 1, None);
        }
        match &mut self.of_first_threads[file as usize] {
            Some((first, last)) if *first == thread => {
                // Field by field: a copy of the whole would wait for the stores that just made it.
                let (end, op) = (last.end, last.op);
                (last.end, last.op) = (request.end, request.op);
                Some(LastRequest { end, op })
            }
            Some(_) => {
                let reader = Reader { file, thread };
                let is_new = || !self.of_others.contains_key(&reader);
                if self.of_others.len() >= self.others_max && is_new() {
                    self.of_others.clear();
                }
                self.of_others.insert(reader, request)
            }
            none => {
                *none = Some((thread, request));
                None
            }
        }
    }

    /// The indices of the blocks that a thread's request refers to.
    pub fn indices(
        &mut self,
        file: u32,
        thread: u32,
        request: Request<O>,
        size: BlockSize,
    ) -> impl Iterator<Item = u32> + use<O> {
        let last = self.replace(file, thread, LastRequest::of(request));
        let goes_on = last.is_some_and(|last| last.goes_on(request, size));
        let blocks = request.blocks(size);
        let indices = index(*blocks.start())..=index(*blocks.end());
        indices.skip(usize::from(goes_on))
    }
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOfFile {
    /// The file's key.
    pub file: u64,
    /// The number of the block in it.
    pub block: u64,
}

/// What is reported of a request, by [`Reported::report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<O> {
    /// Where the thread has come to in a file, if that has to be known first.
    pub before: Option<(u64, Request<O>)>,
    /// Whether the request itself is reported.
    pub is_reported: bool,
}

/// What a thread has reported to somebody who makes references of it, in blocks of a size or of a
/// multiple of it: what makes none is left out.
#[derive(Clone, Copy, Debug)]
pub struct Reported<O> {
    /// The file of the last request; `None` where there was none yet.
    file: Option<u64>,
    last: LastRequest<O>,
    /// Where the last one that was reported ended.
    reported_end: u64,
    size: BlockSize,
}

impl<O: Copy + PartialEq> Reported<O> {
    /// Nothing yet. The operation is any.
    pub const fn nothing(op: O) -> Reported<O> {
        Reported {
            file: None,
            last: LastRequest { end: 0, op },
            reported_end: 0,
            size: BlockSize::of_bits(0),
        }
    }

    /// After this request on a file was reported.
    #[inline]
    pub fn after(file: u64, request: Request<O>, size: BlockSize) -> Reported<O> {
        let last = LastRequest::of(request);
        Reported {
            file: Some(file),
            last,
            reported_end: last.end,
            size,
        }
    }

    /// The thread makes a request on a file. The library in programs does this in steps, since it
    /// knows the file only after the call.
    pub fn report(&mut self, file: u64, request: Request<O>, size: BlockSize) -> Report<O> {
        if self.leaves_out(request) == Some(file) {
            *self = self.left_out(request);
            return Report {
                before: None,
                is_reported: false,
            };
        }
        let before = self.catches_up(file, request);
        *self = Reported::after(file, request, size);
        Report {
            before,
            is_reported: true,
        }
    }

    /// Where the last request ended.
    #[inline]
    pub fn last_block(&self) -> Option<BlockOfFile> {
        let block = self.size.block_of(self.last.end.saturating_sub(1));
        self.file.map(|file| BlockOfFile { file, block })
    }

    /// The file of which the next request may be left out, since it would refer to no block. If it
    /// is of that file, [`Reported::left_out`] has to follow.
    #[inline]
    pub fn leaves_out(&self, next: Request<O>) -> Option<u64> {
        let blocks = next.blocks(self.size);
        let leaves_out = blocks.start() == blocks.end() && self.last.goes_on(next, self.size);
        self.file.filter(|_| leaves_out)
    }

    /// As it is after this request was left out.
    #[inline]
    pub fn left_out(self, request: Request<O>) -> Reported<O> {
        Reported {
            last: LastRequest::of(request),
            ..self
        }
    }

    /// What has to be reported before the next request, which is not left out: where the thread has
    /// come to in the file of the last one, which nobody would know otherwise.
    #[inline]
    pub fn catches_up(&self, file: u64, next: Request<O>) -> Option<(u64, Request<O>)> {
        let last_file = self.file.filter(|_| self.last.end != self.reported_end)?;
        // In the same file it matters only where the next one would seem to go on.
        let may_seem = self.last.op == next.op && next.offset < self.last.end;
        let is_known = last_file == file && !may_seem;
        let request = Request {
            op: self.last.op,
            offset: self.last.end,
            length: 0,
        };
        (!is_known).then_some((last_file, request))
    }
}

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Op {
        Read,
        Write,
    }
    use Op::{Read, Write};

    fn request(op: Op, offset: u64, length: u64) -> Request<Op> {
        Request { op, offset, length }
    }

    #[test]
    fn a_request_that_goes_on_in_a_block_is_no_new_reference_to_it() {
        let size = BlockSize::new(100);
        let mut last = LastRequests::default();
        let mut of = |file, thread, op, offset, length| {
            let blocks = last.indices(file, thread, request(op, offset, length), size);
            blocks.collect::<Vec<u32>>()
        };
        assert_eq!(of(0, 1, Read, 50, 200), [0, 1, 2]);
        assert_eq!(of(0, 1, Read, 250, 100), [3], "in the block where it ended");
        assert_eq!(of(0, 2, Read, 350, 10), [3], "another thread");
        assert_eq!(of(1, 2, Read, 360, 10), [3], "another file");
        assert_eq!(of(0, 2, Read, 370, 30), [0; 0], "farther on in the block");
        assert_eq!(of(0, 2, Read, 380, 10), [3], "before its end");
        assert_eq!(of(0, 2, Read, 380, 10), [3], "the same again");
        assert_eq!(of(0, 2, Write, 390, 10), [3], "another operation");
        assert_eq!(of(0, 2, Write, 400, 1), [4], "where a block begins");
        assert_eq!(of(0, 2, Write, 450, 0), [0; 0], "nothing");
        assert_eq!(of(0, 2, Write, 440, 10), [4], "before where it has come to");
    }

    #[test]
    fn blocks_beyond_the_largest_index_count_as_one() {
        let size = BlockSize::new(4096);
        let last = u64::from(INDEX_MAX) * 4096;
        assert_eq!(size.indices(last - 1, 0), INDEX_MAX - 1..=INDEX_MAX - 1);
        assert_eq!(size.indices(last - 1, u64::MAX), INDEX_MAX - 1..=INDEX_MAX);
        let blocks = LastRequests::default().indices(0, 0, request(Read, last - 1, 1 << 30), size);
        assert_eq!(blocks.collect::<Vec<u32>>(), [INDEX_MAX - 1, INDEX_MAX]);
    }

    #[test]
    fn of_threads_that_are_not_the_first_so_many_are_remembered() {
        let size = BlockSize::new(100);
        let mut last = LastRequests::remembering(2);
        let mut of = |thread, offset| {
            let blocks = last.indices(7, thread, request(Read, offset, 10), size);
            blocks.count()
        };
        assert_eq!([of(1, 0), of(2, 0), of(3, 0)], [1; 3]);
        assert_eq!([of(1, 10), of(2, 10), of(3, 10)], [0; 3]);
        assert_eq!([of(4, 0), of(2, 20)], [1; 2], "forgotten at the fourth");
        assert_eq!([of(1, 20), of(2, 30), of(4, 10)], [0; 3]);
    }

    /// Whoever gets only what [`Reported`] does not leave out makes the same references in the same
    /// order, also in larger blocks.
    #[test]
    fn what_is_left_out_makes_no_reference() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let (mut all, mut kept, mut catching_up) = (0, 0, 0);
        for round in 0..400 {
            let size = BlockSize::of_bits(8);
            let larger = BlockSize::of_bits(8 + round % 3);
            let mut threads = [Reported::nothing(Read); 3];
            let [mut told, mut filtered] = [LastRequests::default(), LastRequests::default()];
            let mut at = [0_u64; 4];
            for _ in 0..200 {
                let (file, thread) = (random(4), random(3) as u32);
                let at = &mut at[file as usize];
                *at = match random(8) {
                    0 => at.saturating_sub(random(100)),
                    1 => random(2000),
                    _ => *at + random(2) * random(40),
                };
                let op = if random(10) == 0 { Write } else { Read };
                let request = request(op, *at, 1 + random(100));
                *at += request.length;
                let referenced = |to: &mut LastRequests<Op>, file: u64, request| {
                    let blocks = to.indices(file as u32, thread, request, larger);
                    blocks.collect::<Vec<u32>>()
                };
                let expected = referenced(&mut told, file, request);
                let report = threads[thread as usize].report(file, request, size);
                all += 1;
                if let Some((before, catches_up)) = report.before {
                    catching_up += 1;
                    assert_eq!(referenced(&mut filtered, before, catches_up), [0; 0]);
                }
                if report.is_reported {
                    kept += 1;
                    assert_eq!(referenced(&mut filtered, file, request), expected);
                } else {
                    assert_eq!(expected, [0; 0]);
                }
            }
        }
        assert!(
            kept + catching_up < all && catching_up > 100,
            "{kept} of {all}"
        );
    }
}
