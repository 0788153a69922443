//! A region of a program's memory, as the controller tracks it.

use hither_core::placement::{PageTouch, RegionTier};
use hither_core::{Block, Node, Object, Process, Thread};
use rustc_hash::FxHashMap;

use super::super::event::Decision;
use super::super::region_map::CutPages;
use super::bind_segments::Segment;
use super::hinted_regions::HintedRegion;
use super::location_query::LocationQuery;
use super::page_runs::PageRun;
use super::summary::{Locality, MigrationGain};

/// What is known of a region.
#[derive(Debug)]
pub(super) struct TrackedRegion {
    pub(super) pid: u32,
    pub(super) process: Process,
    pub(super) start: u64,
    pub(super) pages: u32,
    /// The number of its first page.
    pub(super) base: u32,
    /// How many of its pages are still mapped.
    pub(super) left: u32,
    /// The pages that are not.
    pub(super) cuts: Vec<CutPages>,
    pub(super) signature: u64,
    /// First faults that were seen.
    pub(super) faults: u32,
    pub(super) unit: FaultUnit,
    /// `None` while it is watched.
    pub(super) tier: Option<RegionTier>,
    /// The node of the thread whose fault settled it.
    pub(super) from: Node,
    pub(super) segments: Vec<Segment>,
    /// Of a far region, what the policy keeps near.
    pub(super) kept: Vec<PageRun>,
    /// The number of the thread that allocated it, and how many regions that thread had allocated
    /// at the site before.
    pub(super) key: (u32, u32),
    /// The program has chosen itself where it is.
    pub(super) own: bool,
    /// Its first faults are watched.
    pub(super) watched: bool,
    /// Its pages are sampled.
    pub(super) counted: bool,
    /// When to look up the pages of a window, by the window's first page.
    pub(super) asked: FxHashMap<u32, LocationQuery>,
    /// The kernel samples it.
    pub(super) hinted: Option<HintedRegion>,
    /// Samples by node since the last judgement.
    pub(super) of_node: Vec<u64>,
    pub(super) users: Sharing,
    /// Samples before the policy moved the first of its pages, and after.
    pub(super) before: Locality,
    pub(super) after: Locality,
    /// Pages that the policy moved; a page counts each time.
    pub(super) migrated: u32,
}

/// Which nodes use a region, as far as samples have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// No sample yet.
    Nobody,
    /// One node alone.
    Of(Node),
    /// Several nodes.
    Several,
}

/// The pages by which first faults of a region are numbered.
#[derive(Debug)]
pub(super) enum FaultUnit {
    /// Huge pages: those that had a fault, each one at most so far.
    Huge(Vec<u32>),
    /// Small pages.
    Small,
}

impl TrackedRegion {
    /// The index of an address, if no page of the region was unmapped.
    pub(super) fn index_of(&self, address: u64, page_bytes: u64) -> Option<u32> {
        let index = address.checked_sub(self.start)? / page_bytes;
        let index = u32::try_from(index).ok()?;
        (self.cuts.is_empty() && index < self.pages).then_some(index)
    }

    /// A touch of one of its pages.
    pub(super) fn touch(
        &self,
        object: Object,
        index: u32,
        thread: Thread,
        node: Node,
    ) -> PageTouch {
        PageTouch {
            block: Block(self.base + index),
            object,
            index,
            process: self.process,
            thread,
            node,
        }
    }

    /// The address of a page.
    pub(super) fn address(&self, index: u32, page_bytes: u64) -> u64 {
        self.start + u64::from(index) * page_bytes
    }

    /// Whether the page was unmapped.
    pub(super) fn is_cut(&self, index: u32) -> bool {
        let gone = |cut: &CutPages| (cut.first..cut.first + cut.pages).contains(&index);
        self.cuts.iter().any(gone)
    }

    /// The number of a first fault in the region, such that a fault on the page behind it has the
    /// next number: by huge pages as long as each had one fault at most, then by small pages.
    pub(super) fn index(&mut self, address: u64, page: u32, huge_page_bytes: Option<u64>) -> u32 {
        let (FaultUnit::Huge(seen), Some(huge)) = (&mut self.unit, huge_page_bytes) else {
            return page;
        };
        let number = (address / huge - self.start / huge) as u32;
        if seen.contains(&number) {
            self.unit = FaultUnit::Small;
            return page;
        }
        seen.push(number);
        number
    }

    /// What moving its pages has changed, if any were moved.
    pub(super) fn migration_gain(&self) -> Option<MigrationGain> {
        (self.migrated > 0).then_some(MigrationGain {
            signature: self.signature,
            migrated: self.migrated,
            before: self.before,
            after: self.after,
        })
    }

    /// Has the program bind a run to these nodes.
    pub(super) fn bind_request(&self, run: &PageRun, nodes: u64, page_bytes: u64) -> Decision {
        Decision::Bind {
            pid: self.pid,
            start: self.address(run.first, page_bytes),
            length: u64::from(run.pages) * page_bytes,
            nodes,
        }
    }

    /// Switches the sampling of the region on or off.
    pub(super) fn sampling(&self, on: bool, page_bytes: u64) -> Decision {
        Decision::Sample {
            pid: self.pid,
            start: self.start,
            length: u64::from(self.pages) * page_bytes,
            on,
        }
    }

    /// Ends the kernel's sampling of the region.
    pub(super) fn end_of_hints(&self, page_bytes: u64) -> Decision {
        Decision::Hint {
            pid: self.pid,
            start: self.start,
            length: u64::from(self.pages) * page_bytes,
            node: None,
        }
    }
}
