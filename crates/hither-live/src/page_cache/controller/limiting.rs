//! How the controller keeps its [limit](super::limit).

use std::ops::Range;

use super::super::event::{Decision, Input, Order};
use super::PageCacheController;
use super::extents::{BLOCK_BYTES, BlockRun, CHUNK_BYTES, ExtentPosition};
use super::limit::{CacheLimit, MARKED_BYTES_MAX};
use super::unexplained::NextFile;

impl PageCacheController {
    /// Whether the limit has something to drop.
    pub(super) fn is_over_limit(&self, now_ns: u64) -> bool {
        let steering = self.gain_monitor.steering();
        let limit = self.limit.as_ref();
        limit.is_some_and(|limit| limit.due(now_ns, steering))
    }

    /// Drops what is beyond the limit.
    pub(super) fn drop_beyond_limit(&mut self, out: &mut Vec<Decision>) {
        let steering = self.gain_monitor.steering();
        let Some(limit) = &mut self.limit else {
            return;
        };
        for at in limit.take(self.now_ns, steering) {
            self.drop_range(at.file, at.bytes(), out);
            if steering {
                for block in self.extents.blocks_of(at) {
                    self.model.remove(block);
                    self.extents.absent(block);
                }
            }
        }
    }

    /// Drops what the policy has evicted.
    pub(super) fn drop_run(&mut self, run: BlockRun, out: &mut Vec<Decision>) {
        let start = u64::from(run.first) * BLOCK_BYTES;
        let range = start..start + u64::from(run.blocks) * BLOCK_BYTES;
        if let Some(limit) = &mut self.limit {
            limit.dropped(run.file, &range);
        }
        self.drop_range(run.file, range, out);
    }

    /// Drops a range of a file, without what is foreign.
    fn drop_range(&mut self, file: u32, range: Range<u64>, out: &mut Vec<Decision>) {
        let parts = match &self.limit {
            Some(limit) => limit.own_parts(file, range),
            None => vec![range],
        };
        for part in parts {
            let length = part.end - part.start;
            let limit = self.limit.as_ref();
            let size = limit.map_or(u64::MAX, |limit| limit.size(file));
            self.summary.drops += 1;
            self.summary.dropped_bytes += length.min(size.saturating_sub(part.start));
            out.push(Decision::Order(Order::Drop {
                file: self.files[file as usize].key,
                offset: part.start,
                length,
            }));
        }
    }

    /// Tells the limit what has happened to files.
    pub(super) fn limit_input(&mut self, input: &Input, out: &mut Vec<Decision>) {
        let Some(limit) = &mut self.limit else {
            return;
        };
        let file = match *input {
            Input::Opened { file, .. }
            | Input::Unreported { file }
            | Input::Access { file, .. }
            | Input::Watched { file, .. }
            | Input::Mapped { file }
            | Input::Cut { file, .. }
            | Input::Absent { file, .. }
            | Input::CachedAhead { file, .. }
            | Input::ExtentsCounted { file, .. }
            | Input::Undropped { file, .. }
            | Input::Inserted { file, .. }
            | Input::UsedByOthers { file, .. }
            | Input::Gone { file } => file,
            Input::CheckLimit { .. } if limit.is_told => return,
            Input::CheckLimit { all } => {
                self.attribution.looked_up();
                return self.count_unexplained(all, out);
            }
            Input::Ended => return limit.end(),
            _ => return,
        };
        let file = self.file(file);
        let (Some(limit), now_ns) = (&mut self.limit, self.now_ns) else {
            return;
        };
        let extent = |offset| ExtentPosition::of_byte(file, offset);
        match *input {
            Input::Opened { bytes, .. } => {
                limit.sized(file, bytes);
                self.unexplained.used(file, bytes);
            }
            Input::Unreported { .. } => self.unexplained.used_unseen(file),
            Input::Access {
                offset,
                length,
                write,
                ..
            } => {
                limit.accessed(file, offset, length);
                if !limit.is_told {
                    self.unexplained.used(file, offset.saturating_add(length));
                    self.find_ahead(file, offset, length, write, out);
                }
            }
            Input::Watched { .. } | Input::Mapped { .. } => self.unexplained.mapped(file),
            Input::Cut { bytes, .. } => limit.sized(file, bytes),
            Input::Absent { offset, length, .. } => {
                // Where it is told what comes in, what is absent is nobody's.
                if !limit.is_told {
                    limit.not_foreign(file, offset, length);
                }
                limit.found(extent(offset), 0);
            }
            Input::CachedAhead { offset, length, .. } => {
                self.is_cached_ahead(file, offset..offset + length);
            }
            Input::ExtentsCounted {
                offset,
                end,
                ref cached,
                questions,
                goes_on,
                ..
            } => {
                limit.counted(file, offset..end, cached);
                self.unexplained
                    .asked(file, questions, goes_on.then_some(end));
                self.count_next(out);
            }
            Input::Undropped { offset, bytes, .. } => {
                limit.left(extent(offset), bytes, now_ns);
            }
            Input::Inserted { offset, length, .. } => limit.inserted(file, offset, length),
            Input::UsedByOthers { offset, length, .. } => {
                self.summary.shared_bytes += limit.foreign(file, offset, length);
            }
            Input::Gone { .. } => limit.gone(file),
            _ => {}
        }
    }

    /// Has it counted what is cached of files that have pages which nothing explains.
    fn count_unexplained(&mut self, all: bool, out: &mut Vec<Decision>) {
        self.unexplained.begin(all);
        self.count_next(out);
    }

    /// Has the next file asked, if there is one.
    fn count_next(&mut self, out: &mut Vec<Decision>) {
        let Some(limit) = &self.limit else {
            return;
        };
        let next = self.unexplained.next();
        if let Some(NextFile {
            file,
            offset,
            questions,
        }) = next
        {
            // A question is about a chunk at most.
            let end = offset.saturating_add(CHUNK_BYTES.saturating_mul(questions.into()));
            out.push(Decision::Order(Order::CountExtents {
                file: self.files[file as usize].key,
                offset,
                foreign: limit.foreign_within(file, offset..end),
                questions,
            }));
        }
    }

    /// Other programs have a range of a file cached. Returns how many bytes of it were not known.
    pub(super) fn foreign(&mut self, file: u32, offset: u64, length: u64) -> u64 {
        let run = BlockRun::from(file, offset, length);
        let Some(limit) = &mut self.limit else {
            return self.extents.preexisting(run) * BLOCK_BYTES;
        };
        // Of larger ranges the policy does not know. Nothing of them is dropped all the same.
        if length <= MARKED_BYTES_MAX {
            self.extents.preexisting(run);
        }
        limit.foreign(file, offset, length)
    }

    /// What the kernel has not dropped yet, or will not.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.limit.as_ref().map_or(0, CacheLimit::left_bytes)
    }
}

#[cfg(test)]
mod tests;
