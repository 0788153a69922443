//! What other programs had cached of a file before the run's programs came to it.
//!
//! Where there is a limit, the library asks when a program opens a file, before the program can
//! have read any of it, and says what was cached ([`Record::Cached`]). Otherwise it is judged by
//! what programs can have brought in: no more than they have read and written so far, or, where
//! there is a limit, since the file cannot have been open yet.
//!
//! [`Record::Cached`]: hither_session::record::Record::Cached

use std::ops::Range;

use hither_kernel::cached_parts::{self, Effort};
use hither_kernel::page_bytes;
use hither_kernel::page_cache::CachedFile;

use super::super::super::controller::{EXTENT_BYTES, PageCacheController};
use super::super::super::event::{Input, TimedInput};
use super::PageCacheActuator;
use crate::mechanism::Context;
use crate::program_files::OpenedFile;

/// How far a program that reads from storage may be ahead of its first record that is seen.
const REPORTING_LAG_BYTES: u64 = 8 << 20;

/// The most extents whose residency is checked when a file is opened, without a limit.
const PREEXISTING_EXTENTS_MAX: u64 = 4096;

/// A question takes 0.3 to 0.5 us.
const EFFORT: Effort = Effort {
    cached_bytes_max: u64::MAX,
    questions_max: 1 << 15,
};

impl PageCacheActuator {
    /// Tells the controller which parts of a file were cached before the program opened it.
    ///
    /// Programs may have brought in themselves as much as they have read and written so far, less
    /// what other files have of it. If no more of this file is cached, nothing is another's. If
    /// programs can have brought in but half of it, all is taken for another's; otherwise what is
    /// cached outside of the range that they have read so far, with its readahead. Of a mapped file
    /// that range is not known: then nothing is.
    pub(super) fn find_preexisting(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: u64,
        opened_file: &OpenedFile,
        events: &[TimedInput],
    ) {
        let size = opened_file.bytes;
        if !self.spare_preexisting || size == 0 {
            return;
        }
        let before = opened_file.cached_before.as_ref();
        let before = before.filter(|_| self.limiter.is_some());
        let mut foreign_bytes = 0;
        for range in before.into_iter().flat_map(|before| &before.ranges) {
            let range = range.start.min(size)..range.end.min(size);
            let bytes = range.end - range.start;
            foreign_bytes += bytes;
            self.preexisting(context, now_ns, file, range, bytes);
        }
        // Of the rest, all that is cached may be another's.
        let known_bytes = before.map_or(0, |before| before.known_bytes.min(size));
        let is_unknown = self.limiter.is_some() && known_bytes < size;
        if before.is_some() && !is_unknown {
            // A program may open thousands of files: none of them is opened here, too. It may bring
            // in all that is left.
            let own = self.brought_in_bytes();
            self.attributed_bytes += own.min(size - foreign_bytes.min(size));
            return;
        }
        let Ok(opened) = self.program_files.open(file) else {
            if is_unknown {
                self.preexisting(context, now_ns, file, known_bytes..size, 0);
            }
            return;
        };
        let cached = match opened.cached(0, size) {
            Ok(cached) => cached.pages * page_bytes(),
            Err(refused) => {
                self.report.unseen = Some(refused);
                if is_unknown {
                    self.report.unknown_files += 1;
                    self.preexisting(context, now_ns, file, known_bytes..size, 0);
                }
                return;
            }
        };
        let counts = opened.counts_reads();
        // Once a poll: a program may open thousands of files that are cached.
        let is_asked = before.is_some();
        if !is_asked && counts && self.brought_in_bytes() < cached && self.counted_ns != now_ns {
            self.count_storage(context, now_ns);
        }
        let own = self.brought_in_bytes();
        self.attributed_bytes += own.min(cached.saturating_sub(foreign_bytes));
        if cached == 0 || !is_asked && counts && cached <= own {
            return;
        }
        if self.limiter.is_some() {
            let reached = self.reached(file, events);
            for part in foreign_parts(&*opened, known_bytes..size, is_asked, &reached) {
                let bytes = part.end.min(size) - part.start;
                self.preexisting(context, now_ns, file, part, bytes);
            }
            return;
        }
        let all = counts && own < cached / 2;
        if !all && self.mapped_files.is_watched(file) {
            // How far programs have come in it is not known.
            return;
        }
        let reached = self.reached(file, events);
        for extent in 0..size.div_ceil(EXTENT_BYTES).min(PREEXISTING_EXTENTS_MAX) {
            let (start, end) = (extent * EXTENT_BYTES, (extent + 1) * EXTENT_BYTES);
            let outside = end <= reached.start || start >= reached.end;
            let cached = opened.cached(start, EXTENT_BYTES);
            let cached = cached.map_or(0, |cached| cached.pages * page_bytes());
            if (all || outside) && cached > 0 {
                self.preexisting(context, now_ns, file, start..end, cached.min(size - start));
            }
        }
    }

    /// Tells the controller that so many bytes of a range were cached by others.
    pub(super) fn preexisting(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: u64,
        range: Range<u64>,
        cached_bytes: u64,
    ) {
        let preexisting = Input::Preexisting {
            file,
            offset: range.start,
            length: range.end - range.start,
            cached_bytes,
        };
        context.input(now_ns, preexisting);
    }

    /// What programs have read and written, so far as no file is known to have it.
    fn brought_in_bytes(&self) -> u64 {
        let brought_in = self.transferred.read_bytes + self.transferred.written_bytes;
        let brought_in = self.transferred_lately().unwrap_or(brought_in);
        brought_in.saturating_sub(self.attributed_bytes)
    }

    /// The range of a file that programs have read so far, with what may have been read ahead.
    fn reached(&mut self, file: u64, events: &[TimedInput]) -> Range<u64> {
        let ahead = 2 * self.program_files.readahead_bytes(file);
        let (mut from, mut to) = (u64::MAX, 0);
        for at in events {
            if let Input::Access {
                file: of,
                offset,
                length,
                write: false,
                ..
            } = at.input
                && of == file
            {
                (from, to) = (from.min(offset), to.max(offset + length));
            }
        }
        match to {
            // The file was opened, and no read of it was reported yet.
            0 => 0..ahead.max(REPORTING_LAG_BYTES),
            to => {
                let to = to + ahead + REPORTING_LAG_BYTES;
                from - from % page_bytes()..to.next_multiple_of(page_bytes())
            }
        }
    }
}

/// The parts of a range of a file that others have cached, where there is a limit: all that is
/// cached, or, where it was asked what was cached in front of the range, what programs cannot have
/// reached since.
fn foreign_parts(
    opened: &dyn CachedFile,
    range: Range<u64>,
    is_asked: bool,
    reached: &Range<u64>,
) -> Vec<Range<u64>> {
    let Range { start, end } = range;
    let parts = if is_asked {
        [
            start..reached.start.clamp(start, end),
            reached.end.clamp(start, end)..end,
        ]
    } else {
        [start..end, end..end]
    };
    let mut found = Vec::new();
    for part in parts {
        // What cannot be asked counts as cached.
        found.extend(cached_parts(opened, part.clone()).unwrap_or_else(|| vec![part]));
    }
    found
}

/// The cached parts of a range, to the page. `None` where the kernel does not say.
pub(super) fn cached_parts(opened: &dyn CachedFile, range: Range<u64>) -> Option<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let end = range.end;
    let asked_to = cached_parts::find(
        range,
        EFFORT,
        &mut |part| Some(opened.cached(part.start, part.end - part.start).ok()?.pages),
        &mut |part| found.push(part),
    );
    (asked_to >= end).then_some(found)
}
