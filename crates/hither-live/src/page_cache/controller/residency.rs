//! Checks what is kept against the page cache, a few extents at a time: the kernel may have
//! reclaimed it, or what other programs had cached. Where the kernel tells what goes, the policy
//! learns that at once.

use hither_core::Block;
use hither_ids::FileKey;

use super::super::event::{Decision, Order};
use super::PageCacheController;
use super::extents::{BLOCK_BYTES, BlockRun, ExtentPosition};

/// The extents of one check. At 5 us each, and 10 us for opening a file, four checks a second take
/// less than a hundredth of a CPU.
const EXTENTS_MAX: usize = 128;

/// Where an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentOffset {
    /// The file's key.
    pub(super) file: FileKey,
    /// In bytes.
    pub(super) offset: u64,
}

impl PageCacheController {
    /// Has the next extents checked.
    pub(super) fn check_residency(&mut self, out: &mut Vec<Decision>) {
        let extents = self.extents_to_check(EXTENTS_MAX);
        for of_file in extents.chunk_by(|a, b| a.file == b.file) {
            out.push(Decision::Order(Order::FindAbsent {
                file: of_file[0].file,
                offsets: of_file.iter().map(|extent| extent.offset).collect(),
            }));
        }
    }

    /// Pages have left the page cache. A block that has lost a part is not kept: to use it takes a
    /// read. The rest of it may be dropped.
    pub(super) fn is_evicted(&mut self, run: BlockRun) {
        for block in self.extents.blocks(run) {
            if self.model.remove(block) {
                self.summary.absent_bytes += BLOCK_BYTES;
                self.extents.evicted(block);
            }
        }
    }

    /// At most `count` extents, by file and offset: those with kept or preexisting blocks, in turn.
    /// While evictions are not carried out the model does not say what is cached.
    pub(super) fn extents_to_check(&mut self, count: usize) -> Vec<ExtentOffset> {
        let steering = self.gain_monitor.steering();
        let kept = |block: Block| steering && self.model.residency.slot(block).is_some();
        let held = self.extents.held(self.next_checked, count, kept);
        self.next_checked = match held.last() {
            Some(&last) if held.len() == count => ExtentPosition {
                number: last.number + 1,
                ..last
            },
            _ => ExtentPosition::default(),
        };
        let held = held.into_iter().map(|at| ExtentOffset {
            file: self.files[at.file as usize].key,
            offset: at.bytes().start,
        });
        held.collect()
    }
}
