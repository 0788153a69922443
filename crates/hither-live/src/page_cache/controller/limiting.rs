//! How the controller keeps its [limit](super::limit).

use std::ops::Range;

use super::super::event::{Decision, Input, Order};
use super::PageCacheController;
use super::extents::{BLOCK_BYTES, BlockRun, EXTENT_BYTES};
use super::limit::{CacheLimit, MARKED_BYTES_MAX, span};

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
        for (file, extent) in limit.take(self.now_ns, steering) {
            self.drop_range(file, span(extent), out);
            if steering {
                let run = BlockRun::from(file, u64::from(extent) * EXTENT_BYTES, EXTENT_BYTES);
                for block in self.extents.blocks(run) {
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
    pub(super) fn limit_input(&mut self, input: &Input) {
        let (Input::Access { file, .. }
        | Input::Size { file, .. }
        | Input::Cut { file, .. }
        | Input::Absent { file, .. }
        | Input::Found { file, .. }
        | Input::Undropped { file, .. }
        | Input::Gone { file }) = *input
        else {
            if let (Input::Ended, Some(limit)) = (input, &mut self.limit) {
                limit.end();
            }
            return;
        };
        if self.limit.is_none() {
            return;
        }
        let file = self.file(file);
        let (Some(limit), now_ns) = (&mut self.limit, self.now_ns) else {
            return;
        };
        let extent = |offset: u64| (offset / EXTENT_BYTES) as u32;
        match *input {
            Input::Access { offset, length, .. } => limit.accessed(file, offset, length),
            Input::Size { bytes, .. } | Input::Cut { bytes, .. } => limit.sized(file, bytes),
            Input::Absent { offset, length, .. } => {
                limit.not_foreign(file, offset, length);
                limit.found(file, extent(offset), 0);
            }
            Input::Found { offset, bytes, .. } => limit.found(file, extent(offset), bytes),
            Input::Undropped { offset, bytes, .. } => {
                limit.left(file, extent(offset), bytes, now_ns);
            }
            Input::Gone { .. } => limit.gone(file),
            _ => {}
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

    /// The parts of an extent of a file that are not foreign. No logged decision.
    pub(crate) fn own_parts(&self, file: u64, extent: u32) -> Vec<Range<u64>> {
        let number = self.by_key.get(&file).copied();
        match (&self.limit, number) {
            (Some(limit), Some(file)) => limit.own_parts(file, span(extent)),
            _ => vec![span(extent)],
        }
    }

    /// Whether an extent of a file counts, or the kernel has left a part of it. No logged decision.
    pub(crate) fn is_counted(&self, file: u64, extent: u32) -> bool {
        let number = self.by_key.get(&file).copied();
        let limit = self.limit.as_ref().zip(number);
        limit.is_some_and(|(limit, file)| limit.is_counted((file, extent)))
    }

    /// What the kernel has not dropped yet, or will not.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.limit.as_ref().map_or(0, CacheLimit::left_bytes)
    }
}

#[cfg(test)]
mod tests;
