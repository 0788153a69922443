//! Blocks and extents of files: which blocks were evicted, and which extents can be dropped.
//!
//! The policy ranks blocks; the kernel drops folios. It leaves a folio whole that lies only partly
//! in a range (`mapping_try_invalidate`), and readahead makes folios as large as its window, up to
//! [`EXTENT_BYTES`]. Folios are aligned to their size in the file, so an aligned extent holds whole
//! folios. Measured on ext4, Linux 6.18, with a readahead of 8 MiB, by another process than the
//! reader: `POSIX_FADV_DONTNEED` of every other 4, 64, 256 KiB or 1 MiB of 32 MiB drops nothing (2
//! of 4096 pages); of every other 2 MiB, all. A call that drops nothing takes 2 to 4 us, one that
//! drops 2 MiB takes 9 us (2026-11).
//!
//! So an evicted block is *stale* until no block of its extent is kept; then the whole extent is
//! dropped, in one call with its neighbours. Where reads are random, folios are small and most
//! extents have a kept block: there, runs of stale blocks are dropped by themselves once there are
//! many of them, or when a second has passed.
//!
//! An extent that is being read waits. Under `mru` a miss elsewhere evicts the block that was read
//! last, and dropping would also drop what readahead has brought in of the rest of the extent.
//! (Five scans by sqlite read 230 MiB more than the policy missed, 2026-11.)

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hither_core::Block;
use hither_core::references::BlockSize;

use crate::references::BlockPosition;

/// The size of a block. With 16 KiB rather than the kernel's 4, a program that reads 10 GB/s from
/// the page cache costs the agent a twentieth of a CPU rather than a fifth (two policies at 20 to
/// 60 ns a block). A source file of 20 KiB still does not count as 64.
pub(crate) const BLOCK_BYTES: u64 = 16 << 10;

/// The same as a size.
pub(crate) const BLOCK_SIZE: BlockSize = BlockSize::new(BLOCK_BYTES as u32);

/// The size of an extent: that of the largest folio in the page cache of x86-64 and arm64 (with 4
/// KiB pages).
pub(crate) const EXTENT_BYTES: u64 = 2 << 20;

/// Where nothing is cached of so much, extents are not asked one by one.
pub(crate) const CHUNK_BYTES: u64 = 32 * EXTENT_BYTES;

/// Blocks of an extent.
pub(super) const BLOCKS_PER_EXTENT: u32 = (EXTENT_BYTES / BLOCK_BYTES) as u32;

/// The most blocks that get numbers: 1 TiB of data, with 0.5 GiB of tables.
const BLOCKS_MAX: usize = 1 << 26;

/// How long after the last write its pages may be dirty: the kernel writes back what is 30 s old
/// (vm.dirty_expire_centisecs), and checks every 5 s.
const DIRTY_NS_MAX: u64 = 40_000_000_000;

/// A mark of a block: it was evicted, and may still be in the page cache.
const STALE: u8 = 1;
/// A mark of a block: it was in the page cache before the program accessed it.
const PREEXISTING: u8 = 2;

/// In place of a block's number where it has none.
const NO_BLOCK: u32 = u32::MAX;

/// Where an extent is. In order of files, and of bytes within a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ExtentPosition {
    pub(super) file: u32,
    /// Its number in the file.
    pub(super) number: u32,
}

impl ExtentPosition {
    /// The extent that has a byte of a file.
    pub(super) fn of_byte(file: u32, offset: u64) -> ExtentPosition {
        let number = (offset / EXTENT_BYTES) as u32;
        ExtentPosition { file, number }
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> Range<u64> {
        let start = u64::from(self.number) * EXTENT_BYTES;
        start..start + EXTENT_BYTES
    }

    /// Its blocks.
    pub(super) fn blocks(self) -> BlockRun {
        BlockRun {
            file: self.file,
            first: self.number * BLOCKS_PER_EXTENT,
            blocks: BLOCKS_PER_EXTENT,
        }
    }
}

impl BlockPosition {
    /// Its extent.
    pub(super) fn extent(self) -> ExtentPosition {
        ExtentPosition {
            file: self.file,
            number: self.index / BLOCKS_PER_EXTENT,
        }
    }

    fn within(self) -> usize {
        (self.index % BLOCKS_PER_EXTENT) as usize
    }
}

#[derive(Clone, Debug, Default)]
struct Extent {
    /// By position in the extent, the block's number or [`NO_BLOCK`]. Only as long as needed for
    /// the last block that has a number or a mark.
    blocks: Vec<u32>,
    marks: Vec<u8>,
    /// It was read through: it is kept or dropped as a whole.
    is_unit: bool,
    written_ns: Option<u64>,
}

impl Extent {
    fn cover(&mut self, within: usize) {
        if self.blocks.len() <= within {
            self.blocks.resize(within + 1, NO_BLOCK);
            self.marks.resize(within + 1, 0);
        }
    }

    fn block(&self, within: usize) -> Option<Block> {
        let block = self.blocks.get(within).copied();
        block.filter(|&block| block != NO_BLOCK).map(Block)
    }

    fn dirty(&self, now_ns: u64) -> bool {
        self.written_ns
            .is_some_and(|written_ns| now_ns < written_ns + DIRTY_NS_MAX)
    }
}

/// Whether an extent can be dropped now.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtentState {
    /// Nothing of its file is to be dropped.
    pub(super) left_alone: bool,
    /// A thread is reading it.
    pub(super) is_being_read: bool,
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRun {
    pub(super) file: u32,
    pub(super) first: u32,
    pub(super) blocks: u32,
}

impl BlockRun {
    /// The blocks that a range of bytes touches.
    pub(super) fn from(file: u32, offset: u64, length: u64) -> BlockRun {
        let (first, last) = BLOCK_SIZE.indices(offset, length).into_inner();
        BlockRun {
            file,
            first,
            blocks: last - first + 1,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents {
    extents: BTreeMap<ExtentPosition, Extent>,
    /// By block.
    positions: Vec<BlockPosition>,
    /// Extents to examine: a block of each was evicted since the last call.
    to_examine: BTreeSet<ExtentPosition>,
    /// Extents with stale blocks that had kept or dirty blocks, or a reader, when examined.
    waiting: BTreeSet<ExtentPosition>,
    stale: usize,
}

impl Extents {
    /// The block at a position, for an access at `now_ns`. None for a preexisting one, or if there
    /// are too many blocks. An accessed block is not stale any more.
    pub(super) fn accessed(
        &mut self,
        position: BlockPosition,
        write: bool,
        now_ns: u64,
    ) -> Option<Block> {
        let extent = self.extents.entry(position.extent()).or_default();
        if write {
            extent.written_ns = Some(now_ns);
        }
        let within = position.within();
        extent.cover(within);
        if extent.marks[within] & PREEXISTING != 0 {
            return None;
        }
        if extent.marks[within] & STALE != 0 {
            extent.marks[within] &= !STALE;
            self.stale -= 1;
        }
        if extent.blocks[within] == NO_BLOCK {
            if self.positions.len() >= BLOCKS_MAX {
                return None;
            }
            extent.blocks[within] = self.positions.len() as u32;
            self.positions.push(position);
        }
        extent.block(within)
    }

    /// The policy has evicted a block.
    pub(super) fn evicted(&mut self, block: Block) {
        let position = self.positions[block.index()];
        let extent = self.extents.get_mut(&position.extent());
        let marks = &mut extent.expect("a block has an extent").marks[position.within()];
        self.stale += usize::from(*marks & STALE == 0);
        *marks |= STALE;
        self.to_examine.insert(position.extent());
    }

    /// A block is not in the page cache any more, or not as the program's.
    pub(super) fn absent(&mut self, block: Block) {
        let position = self.positions[block.index()];
        if let Some(extent) = self.extents.get_mut(&position.extent()) {
            let marks = &mut extent.marks[position.within()];
            self.stale -= usize::from(*marks & STALE != 0);
            *marks &= !STALE;
        }
    }

    /// Marks the blocks of a range that have no number yet as preexisting; returns how many are
    /// newly marked.
    pub(super) fn preexisting(&mut self, run: BlockRun) -> u64 {
        self.mark_preexisting(run, false)
    }

    /// The same of all blocks of a range, of which none is kept or stale.
    pub(super) fn used_by_others(&mut self, run: BlockRun) -> u64 {
        self.mark_preexisting(run, true)
    }

    fn mark_preexisting(&mut self, run: BlockRun, all: bool) -> u64 {
        let mut marked = 0;
        for index in run.first..run.first + run.blocks {
            let position = BlockPosition {
                file: run.file,
                index,
            };
            let extent = self.extents.entry(position.extent()).or_default();
            extent.cover(position.within());
            if all || extent.blocks[position.within()] == NO_BLOCK {
                let marks = &mut extent.marks[position.within()];
                marked += u64::from(*marks & PREEXISTING == 0);
                *marks |= PREEXISTING;
            }
        }
        marked
    }

    /// Nothing preexisting of a range is cached any more: what is read from now on is the
    /// program's.
    pub(super) fn not_preexisting(&mut self, run: BlockRun) {
        for position in self.positions_in(run, |marks, _| marks & PREEXISTING != 0) {
            if let Some(extent) = self.extents.get_mut(&position.extent()) {
                extent.marks[position.within()] &= !PREEXISTING;
            }
        }
    }

    /// The blocks of a range that have numbers.
    pub(super) fn blocks(&self, run: BlockRun) -> Vec<Block> {
        let positions = self.positions_in(run, |_, block| block != NO_BLOCK);
        let block = |position: &BlockPosition| {
            let extent = self.extents.get(&position.extent())?;
            extent.block(position.within())
        };
        positions.iter().filter_map(block).collect()
    }

    fn positions_in(&self, run: BlockRun, wanted: impl Fn(u8, u32) -> bool) -> Vec<BlockPosition> {
        let end = u64::from(run.first) + u64::from(run.blocks);
        let last = (end.div_ceil(u64::from(BLOCKS_PER_EXTENT))).min(u64::from(u32::MAX)) as u32;
        let at = |number| ExtentPosition {
            file: run.file,
            number,
        };
        let range = at(run.first / BLOCKS_PER_EXTENT)..at(last);
        let mut positions = Vec::new();
        for (&ExtentPosition { file, number }, extent) in self.extents.range(range) {
            let all = (number * BLOCKS_PER_EXTENT..).zip(extent.marks.iter().zip(&extent.blocks));
            let found = all.filter(|&(index, (&marks, &block))| {
                index >= run.first && u64::from(index) < end && wanted(marks, block)
            });
            positions.extend(found.map(|(index, _)| BlockPosition { file, index }));
        }
        positions
    }

    /// No evicted block is to be dropped any more.
    pub(super) fn clear_stale(&mut self) {
        for extent in self.extents.values_mut() {
            extent.marks.iter_mut().for_each(|marks| *marks &= !STALE);
        }
        self.to_examine.clear();
        self.waiting.clear();
        self.stale = 0;
    }

    /// How many evicted blocks may still be in the page cache.
    pub(super) fn stale(&self) -> usize {
        self.stale
    }

    /// The blocks of an extent that have numbers.
    pub(super) fn blocks_of(&self, at: ExtentPosition) -> Vec<Block> {
        self.blocks(at.blocks())
    }

    /// Whether any block of an extent is as wanted.
    pub(super) fn any_block_of(&self, at: ExtentPosition, wanted: impl Fn(Block) -> bool) -> bool {
        let blocks_of = |extent: &Extent| {
            let mut blocks = (0..extent.blocks.len()).filter_map(|within| extent.block(within));
            blocks.any(wanted)
        };
        self.extents.get(&at).is_some_and(blocks_of)
    }

    /// Makes an extent a unit: it is kept or dropped as a whole.
    pub(super) fn make_unit(&mut self, at: ExtentPosition) {
        if let Some(extent) = self.extents.get_mut(&at) {
            extent.is_unit = true;
        }
    }

    /// A block is not kept any more, so its extent is no unit any more. Returns the blocks of the
    /// extent if it was one.
    pub(super) fn break_unit(&mut self, block: Block) -> Option<Vec<Block>> {
        let at = self.positions[block.index()].extent();
        let extent = self.extents.get_mut(&at)?;
        std::mem::take(&mut extent.is_unit).then(|| self.blocks_of(at))
    }

    /// A reader has left an extent: the extent need not wait for it any more.
    pub(super) fn reader_left(&mut self, at: ExtentPosition) {
        if self.waiting.remove(&at) {
            self.to_examine.insert(at);
        }
    }

    /// Takes the extents with evictions since the last call that can be dropped whole; the others
    /// wait. `kept` says what the model holds.
    pub(super) fn take_whole(
        &mut self,
        now_ns: u64,
        kept: impl Fn(Block) -> bool,
        state: impl Fn(ExtentPosition) -> ExtentState,
    ) -> Vec<BlockRun> {
        let mut runs = Vec::new();
        for at in std::mem::take(&mut self.to_examine) {
            self.examine(at, now_ns, &kept, &state, &mut runs);
        }
        merged(runs)
    }

    fn examine(
        &mut self,
        at: ExtentPosition,
        now_ns: u64,
        kept: &impl Fn(Block) -> bool,
        state: &impl Fn(ExtentPosition) -> ExtentState,
        runs: &mut Vec<BlockRun>,
    ) {
        self.waiting.remove(&at);
        let state = state(at);
        let Some(extent) = self.extents.get_mut(&at).filter(|_| !state.left_alone) else {
            return;
        };
        let whole = (0..extent.blocks.len()).all(|within| {
            extent.marks[within] & PREEXISTING == 0 && !extent.block(within).is_some_and(kept)
        });
        if !whole || extent.dirty(now_ns) || state.is_being_read {
            self.waiting.insert(at);
            return;
        }
        for marks in &mut extent.marks {
            self.stale -= usize::from(*marks & STALE != 0);
            *marks &= !STALE;
        }
        runs.push(at.blocks());
    }

    /// Takes the stale blocks of the extents that wait: where folios are small the kernel drops
    /// them. Extents with dirty pages wait on.
    pub(super) fn take_parts(
        &mut self,
        now_ns: u64,
        kept: impl Fn(Block) -> bool,
        state: impl Fn(ExtentPosition) -> ExtentState,
    ) -> Vec<BlockRun> {
        let mut runs = Vec::new();
        for at in std::mem::take(&mut self.waiting) {
            self.examine(at, now_ns, &kept, &state, &mut runs);
            if !self.waiting.contains(&at) {
                continue;
            }
            let Some(extent) = self.extents.get_mut(&at) else {
                continue;
            };
            if extent.dirty(now_ns) {
                continue;
            }
            self.waiting.remove(&at);
            for (index, marks) in (at.blocks().first..).zip(&mut extent.marks) {
                if *marks & STALE != 0 {
                    *marks &= !STALE;
                    self.stale -= 1;
                    runs.push(BlockRun {
                        file: at.file,
                        first: index,
                        blocks: 1,
                    });
                }
            }
        }
        merged(runs)
    }

    /// At most `count` extents from `from` on that have a kept or a preexisting block.
    pub(super) fn held(
        &self,
        from: ExtentPosition,
        count: usize,
        kept: impl Fn(Block) -> bool,
    ) -> Vec<ExtentPosition> {
        let all = self.extents.range(from..);
        let held = all.filter(|(_, extent)| {
            (0..extent.blocks.len()).any(|within| {
                extent.marks[within] & PREEXISTING != 0 || extent.block(within).is_some_and(&kept)
            })
        });
        held.take(count).map(|(&at, _)| at).collect()
    }

    /// Whether any extent has stale blocks to drop.
    pub(super) fn due(&self) -> bool {
        !self.to_examine.is_empty() || !self.waiting.is_empty()
    }

    /// Walks every invariant and panics on a broken one. `kept` says what the model holds.
    #[cfg(test)]
    pub(super) fn check(&self, kept: impl Fn(Block) -> bool) {
        let mut stale = 0;
        for (&at, extent) in &self.extents {
            assert_eq!(extent.blocks.len(), extent.marks.len());
            assert!(extent.blocks.len() <= BLOCKS_PER_EXTENT as usize);
            for (within, marks) in extent.marks.iter().enumerate() {
                if let Some(block) = extent.block(within) {
                    let position = self.positions[block.index()];
                    assert_eq!((position.extent(), position.within()), (at, within));
                    assert!(
                        marks & STALE == 0 || !kept(block),
                        "kept and stale: {position:?}"
                    );
                } else {
                    assert_eq!(marks & STALE, 0, "stale and never read");
                }
                stale += usize::from(marks & STALE != 0);
            }
        }
        assert_eq!(stale, self.stale);
    }
}

/// Merges adjacent runs. They are ordered.
fn merged(runs: Vec<BlockRun>) -> Vec<BlockRun> {
    let mut merged: Vec<BlockRun> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if last.file == run.file && last.first + last.blocks == run.first => {
                last.blocks += run.blocks;
            }
            _ => merged.push(run),
        }
    }
    merged
}
