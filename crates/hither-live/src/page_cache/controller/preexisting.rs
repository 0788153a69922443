//! What other programs had cached of a file before the run's programs came to it.
//!
//! Where there is a limit, the library asks when a program opens a file, before the program can
//! have read any of it, and says what was cached. Otherwise it is judged by what programs can have
//! brought in: no more than they have read and written so far, or, where there is a limit, since
//! the file cannot have been open yet.
//!
//! Programs may have brought in themselves as much as they have read and written so far, less what
//! other files have of it. If no more of this file is cached, nothing is another's. If programs can
//! have brought in but half of it, all is taken for another's; otherwise what is cached outside of
//! the range that they have read so far, with its readahead. Of a mapped file that range is not
//! known: then nothing is.
//!
//! Other programs may cache what the run's programs will read next. So where there is a limit, it
//! is asked ahead of each reader.

use std::ops::Range;

use super::super::event::{Decision, Order};
use super::PageCacheController;
use super::attribution::{AHEAD_BYTES, CountedFile, UncountedFile};
use super::extents::{EXTENT_BYTES, ExtentPosition};
use crate::program_files::CachedBefore;

/// How far a program that reads from storage may be ahead of its first record that is seen.
const REPORTING_LAG_BYTES: u64 = 8 << 20;

/// The most extents of a file that are asked when it is opened, without a limit.
const EXTENTS_MAX: u64 = 4096;

/// The kernel reads so many times as far ahead as is set: in two windows, which are twice as long
/// for those who say that they read in order.
const READ_AHEADS: u64 = 4;

impl PageCacheController {
    /// A program uses a file for the first time.
    pub(super) fn find_preexisting(
        &mut self,
        file: u32,
        bytes: u64,
        cached_before: Option<&CachedBefore>,
        out: &mut Vec<Decision>,
    ) {
        let is_told = self.limit.as_ref().is_some_and(|limit| limit.is_told);
        if !self.spare_preexisting || bytes == 0 || is_told {
            return;
        }
        let before = cached_before.filter(|_| self.limit.is_some());
        let mut foreign_bytes = 0;
        for range in before.into_iter().flat_map(|before| &before.ranges) {
            let range = range.start.min(bytes)..range.end.min(bytes);
            let length = range.end - range.start;
            foreign_bytes += length;
            self.is_preexisting(file, range, length);
        }
        // Of the rest, all that is cached may be another's.
        let known_bytes = before.map_or(0, |before| before.known_bytes.min(bytes));
        if before.is_some() && known_bytes == bytes {
            // A program may open thousands of files: none of them is opened here, too. It may bring
            // in all that is left.
            let own = self.attribution.brought_in_bytes();
            self.attribution.attributed_bytes += own.min(bytes - foreign_bytes.min(bytes));
            return;
        }
        let uncounted = UncountedFile {
            bytes,
            known_bytes,
            foreign_bytes,
            is_asked: before.is_some(),
        };
        self.attribution.uncounted.insert(file, uncounted);
        out.push(Decision::Order(Order::CountFile {
            file: self.files[file as usize].key,
        }));
    }

    /// So much of a file is cached, if that can be said, and this range of it was read by then. If
    /// that is more than programs have transferred by the last count, it is judged after the next
    /// one, which has all that they had brought in of it.
    pub(super) fn file_counted(
        &mut self,
        file: u32,
        counted: CountedFile,
        out: &mut Vec<Decision>,
    ) {
        let Some(of) = self.attribution.uncounted.get(&file) else {
            return;
        };
        let own = self.attribution.brought_in_bytes();
        let is_more = counted.cached_bytes.is_some_and(|cached| own < cached);
        if is_more && counted.counts_reads && !of.is_asked {
            if self.attribution.counted.is_empty() {
                out.push(Decision::Order(Order::Count));
            }
            self.attribution.counted.push((file, counted));
        } else {
            self.find_foreign(file, counted, out);
        }
    }

    /// What programs have transferred is counted.
    pub(super) fn judge_counted(&mut self, out: &mut Vec<Decision>) {
        for (file, counted) in std::mem::take(&mut self.attribution.counted) {
            self.find_foreign(file, counted, out);
        }
    }

    /// Has what others have cached of a file found.
    fn find_foreign(&mut self, file: u32, counted: CountedFile, out: &mut Vec<Decision>) {
        let CountedFile {
            cached_bytes,
            counts_reads,
            read,
        } = counted;
        let Some(of) = self.attribution.uncounted.remove(&file) else {
            return;
        };
        let rest = of.known_bytes..of.bytes;
        let Some(cached_bytes) = cached_bytes else {
            if self.limit.is_some() {
                self.is_preexisting(file, rest, 0);
            }
            return;
        };
        let own = self.attribution.brought_in_bytes();
        let attributed = own.min(cached_bytes.saturating_sub(of.foreign_bytes));
        self.attribution.attributed_bytes += attributed;
        if cached_bytes == 0 || !of.is_asked && counts_reads && cached_bytes <= own {
            return;
        }
        let reached = self.reached(file, read.as_ref());
        let (ranges, by_extent) = if self.limit.is_some() {
            let ahead = reached.end.clamp(rest.start, rest.end)..rest.end;
            let ranges = if of.is_asked {
                // Of the front it is known what was cached before.
                vec![rest.start..reached.start.clamp(rest.start, rest.end), ahead]
            } else {
                vec![rest]
            };
            (ranges, false)
        } else {
            let all = counts_reads && own < cached_bytes / 2;
            let of_file = &self.files[file as usize];
            if !all && of_file.watched.is_some() {
                // How far programs have come in it is not known.
                return;
            }
            let end = of.bytes.div_ceil(EXTENT_BYTES).min(EXTENTS_MAX) * EXTENT_BYTES;
            let first = reached.start / EXTENT_BYTES * EXTENT_BYTES;
            let after = reached.end.next_multiple_of(EXTENT_BYTES);
            let outside = [0..first.min(end), after.min(end)..end];
            let whole = 0..end;
            let ranges = if all { vec![whole] } else { outside.into() };
            (ranges, true)
        };
        let ranges: Vec<Range<u64>> = ranges.into_iter().filter(|of| !of.is_empty()).collect();
        if !ranges.is_empty() {
            out.push(Decision::Order(Order::FindPreexisting {
                file: self.files[file as usize].key,
                ranges,
                by_extent,
            }));
        }
    }

    /// So many bytes of a range were cached by others.
    pub(super) fn is_preexisting(&mut self, file: u32, range: Range<u64>, cached_bytes: u64) {
        if self.spare_preexisting {
            let found = self.foreign(file, range.start, range.end - range.start);
            self.summary.preexisting_bytes += found.min(cached_bytes);
        }
    }

    /// The range of a file that programs have read so far, with what may have been read ahead.
    fn reached(&self, file: u32, read: Option<&Range<u64>>) -> Range<u64> {
        let ahead = 2 * self.files[file as usize].readahead_bytes;
        match read {
            // The file was opened, and no read of it was reported yet.
            None => 0..ahead.max(REPORTING_LAG_BYTES),
            Some(read) => {
                let page_bytes = self.limit.as_ref().map_or(1, |limit| limit.page_bytes);
                let end = read.end + ahead + REPORTING_LAG_BYTES;
                read.start / page_bytes * page_bytes..end.next_multiple_of(page_bytes)
            }
        }
    }

    /// Where there is a limit: has it asked what others have cached where a program will read next.
    pub(super) fn find_ahead(
        &mut self,
        file: u32,
        offset: u64,
        length: u64,
        write: bool,
        out: &mut Vec<Decision>,
    ) {
        let end = offset.saturating_add(length);
        let from = self.attribution.accessed(file, offset, end, write);
        let (Some(from), Some(limit)) = (from.filter(|_| self.spare_preexisting), &self.limit)
        else {
            return;
        };
        let of_file = &self.files[file as usize];
        let from = from + READ_AHEADS * of_file.readahead_bytes;
        let to = from + AHEAD_BYTES;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut start = from;
        while start < to {
            let next = (start / EXTENT_BYTES + 1) * EXTENT_BYTES;
            let is_counted = limit.is_counted(ExtentPosition::of_byte(file, start));
            match ranges.last_mut() {
                _ if is_counted => {}
                Some(last) if last.end == start => last.end = next.min(to),
                _ => ranges.push(start..next.min(to)),
            }
            start = next;
        }
        if !ranges.is_empty() {
            let file = of_file.key;
            out.push(Decision::Order(Order::FindAhead { file, ranges }));
        }
    }

    /// A range ahead of a reader is cached. If no program comes near it, others have cached it.
    pub(super) fn is_cached_ahead(&mut self, file: u32, range: Range<u64>) {
        self.attribution.ahead.push((file, range));
    }

    /// All reads are known that programs had made when it was asked ahead of them.
    pub(super) fn take_ahead(&mut self) {
        for (file, range) in std::mem::take(&mut self.attribution.ahead) {
            let read_on = self.attribution.read_on.get(&file);
            let read_to = read_on.map_or(0, |read_on| read_on.read_to);
            let ahead = READ_AHEADS * self.files[file as usize].readahead_bytes;
            if range.start >= read_to + ahead + AHEAD_BYTES / 4 {
                let length = range.end - range.start;
                self.is_preexisting(file, range, length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hither_ids::FileKey;

    use super::super::super::event::{Input, TimedInput};
    use super::super::config::LimitConfig;
    use super::super::tests::config;
    use super::super::{BLOCK_BYTES, PageCacheConfig};

    use super::*;
    use crate::controller::{Controller, orders};

    const BYTES: u64 = 100 * EXTENT_BYTES;

    /// Of file 1.
    fn opened(cached_before: Option<CachedBefore>) -> Input {
        Input::Opened {
            file: FileKey(1),
            bytes: BYTES,
            readahead_bytes: 0,
            is_first: true,
            cached_before,
        }
    }

    fn counted(cached_bytes: Option<u64>, counts_reads: bool) -> Input {
        Input::FileCounted {
            file: FileKey(1),
            cached_bytes,
            counts_reads,
            read: Some(3 * EXTENT_BYTES..4 * EXTENT_BYTES),
        }
    }

    fn stored(transferred_bytes: u64) -> Input {
        Input::Stored {
            bytes: 0,
            transferred_bytes,
        }
    }

    fn read_at(offset: u64) -> Input {
        Input::Access {
            file: FileKey(1),
            offset,
            length: BLOCK_BYTES,
            signature: 1,
            process: 0,
            thread: 0,
            write: false,
        }
    }

    fn controller(limit: Option<LimitConfig>) -> PageCacheController {
        let config = PageCacheConfig {
            limit,
            ..config("lru", 1000)
        };
        PageCacheController::new(&config).expect("a sound configuration")
    }

    fn limit() -> Option<LimitConfig> {
        Some(LimitConfig {
            bytes: 50 * EXTENT_BYTES,
            keeps: true,
            is_told: false,
            page_bytes: 4096,
        })
    }

    /// The orders on the last of these inputs.
    fn ordered(controller: &mut PageCacheController, inputs: Vec<Input>) -> Vec<Order> {
        let mut last = Vec::new();
        for input in inputs {
            last.clear();
            controller.step(&TimedInput { time_ns: 1, input }, &mut last);
        }
        orders(last)
    }

    fn found(ranges: Vec<Range<u64>>, by_extent: bool) -> Vec<Order> {
        vec![Order::FindPreexisting {
            file: FileKey(1),
            ranges,
            by_extent,
        }]
    }

    #[test]
    fn what_programs_cannot_have_brought_in_is_anothers() {
        let asked = ordered(&mut controller(None), vec![opened(None)]);
        assert_eq!(asked, [Order::CountFile { file: FileKey(1) }]);
        let ordered = |transferred, counted| {
            let mut controller = controller(None);
            let inputs = vec![stored(transferred), opened(None), counted];
            match &ordered(&mut controller, inputs)[..] {
                // It may be more by now.
                [Order::Count] => ordered(&mut controller, vec![stored(transferred)]),
                found => found.to_vec(),
            }
        };
        let some = Some(40 * EXTENT_BYTES);
        assert_eq!(ordered(40 * EXTENT_BYTES, counted(some, true)), []);
        assert_eq!(ordered(0, counted(None, true)), []);
        let whole = 0..BYTES;
        let all = found(vec![whole], true);
        assert_eq!(ordered(19 * EXTENT_BYTES, counted(some, true)), all);
        // Outside of what they have read, with what may not be reported yet.
        let outside = vec![0..3 * EXTENT_BYTES, 8 * EXTENT_BYTES..BYTES];
        let outside = found(outside, true);
        assert_eq!(ordered(30 * EXTENT_BYTES, counted(some, true)), outside);
        assert_eq!(ordered(90 * EXTENT_BYTES, counted(some, false)), outside);
    }

    /// What programs have brought in until they are asked is in the count after that.
    #[test]
    fn files_are_judged_by_what_was_transferred_after_they_were_counted() {
        let mut controller = controller(None);
        let counted = counted(Some(40 * EXTENT_BYTES), true);
        assert_eq!(
            ordered(&mut controller, vec![opened(None), counted]),
            [Order::Count]
        );
        assert_eq!(
            ordered(&mut controller, vec![stored(40 * EXTENT_BYTES)]),
            []
        );
    }

    #[test]
    fn with_a_limit_it_is_known_what_was_cached_when_a_file_was_opened() {
        let first = 0..EXTENT_BYTES;
        let before = |known_bytes| {
            Some(CachedBefore {
                known_bytes,
                ranges: vec![first.clone()],
            })
        };
        let mut controller = controller(limit());
        assert_eq!(ordered(&mut controller, vec![opened(before(BYTES))]), []);
        assert_eq!(controller.summary().preexisting_bytes, EXTENT_BYTES);
        let known = 2 * EXTENT_BYTES;
        let inputs = vec![opened(before(known)), counted(Some(EXTENT_BYTES), true)];
        let outside = vec![known..3 * EXTENT_BYTES, 8 * EXTENT_BYTES..BYTES];
        assert_eq!(ordered(&mut controller, inputs), found(outside, false));
        // What the kernel does not say is left alone.
        let inputs = vec![opened(before(known)), counted(None, false)];
        assert_eq!(ordered(&mut controller, inputs), []);
        let own = controller.limit.as_ref().expect("a limit");
        let between = EXTENT_BYTES..known;
        assert_eq!(own.own_parts(0, 0..BYTES), [between]);
    }

    /// An answer counts if no program has come near by the next tick.
    #[test]
    fn others_caching_is_found_ahead_of_readers() {
        for comes_near in [false, true] {
            let mut controller = controller(limit());
            let first = EXTENT_BYTES;
            let asked = ordered(&mut controller, vec![opened(None), read_at(first)]);
            let [
                Order::FindAhead {
                    file: FileKey(1),
                    ranges,
                },
            ] = &asked[..]
            else {
                panic!("{asked:?}");
            };
            assert_eq!(ranges.len(), 1);
            assert_eq!(ranges[0].end - ranges[0].start, AHEAD_BYTES);
            let ahead = Input::CachedAhead {
                file: FileKey(1),
                offset: ranges[0].start,
                length: EXTENT_BYTES,
            };
            let near = if comes_near { ranges[0].start } else { first };
            ordered(&mut controller, vec![ahead, read_at(near), Input::Tick]);
            let found = controller.summary().preexisting_bytes;
            assert_eq!(found, if comes_near { 0 } else { EXTENT_BYTES });
        }
    }
}
