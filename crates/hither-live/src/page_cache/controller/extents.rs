//! Which blocks of which files there are, in extents: what is dropped at once.
//!
//! Blocks are what the policy ranks, extents are what the kernel gives up: a folio that lies only
//! partly in a range is left whole (`mapping_try_invalidate`), and readahead makes folios as large
//! as its window, up to [`EXTENT_BYTES`]. They are aligned to their size in the file, so an aligned
//! extent holds whole folios. Measured 2026-11 on ext4, Linux 6.18, with a readahead of 8 MiB, by
//! another process than the reader: of every other 4, 64, 256 KiB or 1 MiB of 32 MiB
//! `POSIX_FADV_DONTNEED` drops nothing (2 of 4096 pages), of every other 2 MiB all; 2 to 4 us a
//! call that drops nothing, 9 us one that drops 2 MiB.
//!
//! So an evicted block is *stale* until its extent has none that is kept, and then the whole extent
//! goes in one call with its neighbours. Where reads are random the folios are small, and few
//! extents ever are free of kept blocks: runs of stale blocks go by themselves once there are many
//! of them, or when a second has passed.
//!
//! An extent that is being read waits: under `mru` one miss elsewhere evicts the block that was
//! read last, and what readahead has brought of the rest of the extent would go with it. (Five
//! scans by sqlite read 230 MiB more than the policy missed, 2026-11.)

use std::collections::{BTreeMap, BTreeSet};

use hither_core::Block;

/// The size of a block. 16 KiB rather than the kernel's 4: at two policies of 20 to 60 ns a block,
/// a program that reads 10 GB/s from the page cache costs the agent a twentieth of a CPU, not a
/// fifth, and yet a source file of 20 KiB is not taken for one of 64.
pub(crate) const BLOCK_BYTES: u64 = 16 << 10;

/// The size of an extent: of the largest folio that the page cache of x86-64 and arm64 (4 KiB
/// pages) has.
pub(crate) const EXTENT_BYTES: u64 = 2 << 20;

/// Blocks of an extent.
pub(super) const PER_EXTENT: u32 = (EXTENT_BYTES / BLOCK_BYTES) as u32;

/// Blocks that have numbers, at most: 1 TiB, and 0.5 GiB of tables.
const BLOCKS_MAX: usize = 1 << 26;

/// How long after the last write its pages may be dirty: the kernel writes back what is 30 s old
/// (vm.dirty_expire_centisecs), and looks every 5 s.
const DIRTY_NS: u64 = 40_000_000_000;

/// Evicted, and perhaps in the page cache still.
const STALE: u8 = 1;
/// In the page cache before the program came: somebody else's.
const PREEXISTING: u8 = 2;

const NONE: u32 = u32::MAX;

/// A block's place: file, and which block of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockPosition {
    pub(super) file: u32,
    pub(super) index: u32,
}

impl BlockPosition {
    /// Its extent: the file, and which of its extents.
    pub(super) fn extent(self) -> (u32, u32) {
        (self.file, self.index / PER_EXTENT)
    }

    fn within(self) -> usize {
        (self.index % PER_EXTENT) as usize
    }
}

#[derive(Clone, Debug, Default)]
struct Extent {
    /// The block's number, [`NONE`] where it has none; as long as the last block that has one, or
    /// marks, needs.
    blocks: Vec<u32>,
    marks: Vec<u8>,
    /// It was read through: it is kept or given up as one.
    one: bool,
    written_ns: Option<u64>,
}

impl Extent {
    fn cover(&mut self, within: usize) {
        if self.blocks.len() <= within {
            self.blocks.resize(within + 1, NONE);
            self.marks.resize(within + 1, 0);
        }
    }

    fn block(&self, within: usize) -> Option<Block> {
        let block = self.blocks.get(within).copied();
        block.filter(|&block| block != NONE).map(Block)
    }

    fn dirty(&self, now_ns: u64) -> bool {
        self.written_ns
            .is_some_and(|written_ns| now_ns < written_ns + DIRTY_NS)
    }
}

/// What an extent, and its file, is to those who drop.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtentState {
    /// Nothing of it is to be dropped.
    pub(super) left_alone: bool,
    /// The extent is being read.
    pub(super) read: bool,
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRun {
    pub(super) file: u32,
    pub(super) first: u32,
    pub(super) blocks: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents {
    extents: BTreeMap<(u32, u32), Extent>,
    /// By block.
    places: Vec<BlockPosition>,
    /// Extents of which a block was evicted since the last look.
    fresh: BTreeSet<(u32, u32)>,
    /// Those that had kept blocks, or written ones, when looked at.
    partial: BTreeSet<(u32, u32)>,
    stale: usize,
}

impl Extents {
    /// The block there, for an access at `now_ns`; none where it is somebody else's, or there are
    /// too many. What is accessed is in the page cache by right.
    pub(super) fn accessed(
        &mut self,
        place: BlockPosition,
        write: bool,
        now_ns: u64,
    ) -> Option<Block> {
        let extent = self.extents.entry(place.extent()).or_default();
        if write {
            extent.written_ns = Some(now_ns);
        }
        let within = place.within();
        extent.cover(within);
        if extent.marks[within] & PREEXISTING != 0 {
            return None;
        }
        if extent.marks[within] & STALE != 0 {
            extent.marks[within] &= !STALE;
            self.stale -= 1;
        }
        if extent.blocks[within] == NONE {
            if self.places.len() >= BLOCKS_MAX {
                return None;
            }
            extent.blocks[within] = self.places.len() as u32;
            self.places.push(place);
        }
        extent.block(within)
    }

    /// A block is not to be kept.
    pub(super) fn evicted(&mut self, block: Block) {
        let place = self.places[block.index()];
        let extent = self.extents.get_mut(&place.extent());
        let marks = &mut extent.expect("a block has an extent").marks[place.within()];
        self.stale += usize::from(*marks & STALE == 0);
        *marks |= STALE;
        self.fresh.insert(place.extent());
    }

    /// A block that has a number is none of the program's page cache any more.
    pub(super) fn lost(&mut self, block: Block) {
        let place = self.places[block.index()];
        if let Some(extent) = self.extents.get_mut(&place.extent()) {
            self.stale -= usize::from(extent.marks[place.within()] & STALE != 0);
            extent.marks[place.within()] &= !STALE;
        }
    }

    /// Blocks in a range that have no number yet are somebody else's; returns how many.
    pub(super) fn preexisting(&mut self, run: BlockRun) -> u64 {
        let mut marked = 0;
        for index in run.first..run.first + run.blocks {
            let place = BlockPosition {
                file: run.file,
                index,
            };
            let extent = self.extents.entry(place.extent()).or_default();
            extent.cover(place.within());
            if extent.blocks[place.within()] == NONE {
                marked += u64::from(extent.marks[place.within()] & PREEXISTING == 0);
                extent.marks[place.within()] |= PREEXISTING;
            }
        }
        marked
    }

    /// Nobody else's is in the page cache there any more: what comes is the program's.
    pub(super) fn not_preexisting(&mut self, run: BlockRun) {
        for place in self.places_in(run, |marks, _| marks & PREEXISTING != 0) {
            if let Some(extent) = self.extents.get_mut(&place.extent()) {
                extent.marks[place.within()] &= !PREEXISTING;
            }
        }
    }

    /// The blocks in a range that have numbers.
    pub(super) fn blocks(&self, run: BlockRun) -> Vec<Block> {
        let places = self.places_in(run, |_, block| block != NONE);
        let block =
            |place: &BlockPosition| self.extents.get(&place.extent())?.block(place.within());
        places.iter().filter_map(block).collect()
    }

    fn places_in(&self, run: BlockRun, wanted: impl Fn(u8, u32) -> bool) -> Vec<BlockPosition> {
        let end = u64::from(run.first) + u64::from(run.blocks);
        let last = (end.div_ceil(u64::from(PER_EXTENT))).min(u64::from(u32::MAX)) as u32;
        let range = (run.file, run.first / PER_EXTENT)..(run.file, last);
        let mut places = Vec::new();
        for (&(file, number), extent) in self.extents.range(range) {
            let all = (number * PER_EXTENT..).zip(extent.marks.iter().zip(&extent.blocks));
            let found = all.filter(|&(index, (&marks, &block))| {
                index >= run.first && u64::from(index) < end && wanted(marks, block)
            });
            places.extend(found.map(|(index, _)| BlockPosition { file, index }));
        }
        places
    }

    /// Whatever was evicted is no more to be dropped.
    pub(super) fn nothing_stale(&mut self) {
        for extent in self.extents.values_mut() {
            extent.marks.iter_mut().for_each(|marks| *marks &= !STALE);
        }
        self.fresh.clear();
        self.partial.clear();
        self.stale = 0;
    }

    /// How many evicted blocks may be in the page cache still.
    pub(super) fn stale(&self) -> usize {
        self.stale
    }

    /// The blocks of an extent that have numbers.
    pub(super) fn blocks_of(&self, (file, extent): (u32, u32)) -> Vec<Block> {
        self.blocks(BlockRun {
            file,
            first: extent * PER_EXTENT,
            blocks: PER_EXTENT,
        })
    }

    /// An extent is one: it is kept or given up as a whole.
    pub(super) fn read_through(&mut self, at: (u32, u32)) {
        if let Some(extent) = self.extents.get_mut(&at) {
            extent.one = true;
        }
    }

    /// A block of an extent is not kept any more; the blocks of that extent, if it was one until
    /// now.
    pub(super) fn broken_up(&mut self, block: Block) -> Option<Vec<Block>> {
        let at = self.places[block.index()].extent();
        let extent = self.extents.get_mut(&at)?;
        std::mem::take(&mut extent.one).then(|| self.blocks_of(at))
    }

    /// An extent is read no more: it need not wait.
    pub(super) fn left(&mut self, at: (u32, u32)) {
        if self.partial.remove(&at) {
            self.fresh.insert(at);
        }
    }

    /// Extents of which nothing is to be kept, since the last call; those that have blocks that
    /// `kept` knows are put by. `state` says of a file whether anything of it is to be dropped, and
    /// which extent of it is being read.
    pub(super) fn whole(
        &mut self,
        now_ns: u64,
        kept: impl Fn(Block) -> bool,
        state: impl Fn((u32, u32)) -> ExtentState,
    ) -> Vec<BlockRun> {
        let mut runs = Vec::new();
        for at in std::mem::take(&mut self.fresh) {
            self.look(at, now_ns, &kept, &state, &mut runs);
        }
        merged(runs)
    }

    fn look(
        &mut self,
        at: (u32, u32),
        now_ns: u64,
        kept: &impl Fn(Block) -> bool,
        state: &impl Fn((u32, u32)) -> ExtentState,
        runs: &mut Vec<BlockRun>,
    ) {
        self.partial.remove(&at);
        let state = state(at);
        let Some(extent) = self.extents.get_mut(&at).filter(|_| !state.left_alone) else {
            return;
        };
        let whole = (0..extent.blocks.len()).all(|within| {
            extent.marks[within] & PREEXISTING == 0 && !extent.block(within).is_some_and(kept)
        });
        if !whole || extent.dirty(now_ns) || state.read {
            self.partial.insert(at);
            return;
        }
        for marks in &mut extent.marks {
            self.stale -= usize::from(*marks & STALE != 0);
            *marks &= !STALE;
        }
        runs.push(BlockRun {
            file: at.0,
            first: at.1 * PER_EXTENT,
            blocks: PER_EXTENT,
        });
    }

    /// What is stale in the extents that were put by, at the last resort: where folios are small it
    /// goes. Extents that were written to wait on.
    pub(super) fn parts(
        &mut self,
        now_ns: u64,
        kept: impl Fn(Block) -> bool,
        state: impl Fn((u32, u32)) -> ExtentState,
    ) -> Vec<BlockRun> {
        let mut runs = Vec::new();
        for at in std::mem::take(&mut self.partial) {
            self.look(at, now_ns, &kept, &state, &mut runs);
            if !self.partial.contains(&at) {
                continue;
            }
            let Some(extent) = self.extents.get_mut(&at) else {
                continue;
            };
            if extent.dirty(now_ns) {
                continue;
            }
            self.partial.remove(&at);
            for (index, marks) in (at.1 * PER_EXTENT..).zip(&mut extent.marks) {
                if *marks & STALE != 0 {
                    *marks &= !STALE;
                    self.stale -= 1;
                    runs.push(BlockRun {
                        file: at.0,
                        first: index,
                        blocks: 1,
                    });
                }
            }
        }
        merged(runs)
    }

    /// Extents, at most so many, of which something is kept or somebody else's, from one place on.
    pub(super) fn held(
        &self,
        from: (u32, u32),
        count: usize,
        kept: impl Fn(Block) -> bool,
    ) -> Vec<(u32, u32)> {
        let all = self.extents.range(from..);
        let held = all.filter(|(_, extent)| {
            (0..extent.blocks.len()).any(|within| {
                extent.marks[within] & PREEXISTING != 0 || extent.block(within).is_some_and(&kept)
            })
        });
        held.take(count).map(|(&at, _)| at).collect()
    }

    /// Whether there is anything to look at.
    pub(super) fn due(&self) -> bool {
        !self.fresh.is_empty() || !self.partial.is_empty()
    }

    /// Walks every invariant and panics on a broken one. `kept` says what the model holds.
    #[cfg(test)]
    pub(super) fn check(&self, kept: impl Fn(Block) -> bool) {
        let mut stale = 0;
        for (&at, extent) in &self.extents {
            assert_eq!(extent.blocks.len(), extent.marks.len());
            assert!(extent.blocks.len() <= PER_EXTENT as usize);
            for (within, marks) in extent.marks.iter().enumerate() {
                if let Some(block) = extent.block(within) {
                    let place = self.places[block.index()];
                    assert_eq!((place.extent(), place.within()), (at, within));
                    assert!(
                        marks & STALE == 0 || !kept(block),
                        "kept and stale: {place:?}"
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

/// Runs that follow one another as one. They are ordered.
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
