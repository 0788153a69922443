//! A region of a program's memory, as the controller tracks it.

use std::ops::Range;

use hither_core::placement::{PageTouch, RegionTier};
use hither_core::{Block, Node, Object, Process, Thread};
use hither_ids::{Address, PageIndex, Pid};
use hither_kernel::writable_memory::MemoryKind;

use super::super::event::{Decision, Order};
use super::super::region_map::CutPages;
use super::page_runs::PageRun;

/// A region among those of its process and allocation site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RegionKey {
    /// The number of the thread that allocated it.
    pub(super) thread: u32,
    /// How many regions that thread had allocated there before.
    pub(super) nth: u32,
}

/// What is known of a region.
#[derive(Debug)]
pub(super) struct TrackedRegion {
    pub(super) pid: Pid,
    pub(super) process: Process,
    pub(super) start: Address,
    pub(super) pages: u32,
    /// The number of its first page, if the policy places its pages at their first touch.
    pub(super) base: Option<u32>,
    /// What it is, if it was found in the kernel's list of mappings and not reported by a hook.
    pub(super) kind: Option<MemoryKind>,
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
    /// Of a far region, what the policy keeps near.
    pub(super) kept: Vec<PageRun>,
    /// Which one of its site it is.
    pub(super) key: RegionKey,
    /// An earlier run has shown where it belongs, so that moving its pages pays.
    pub(super) known: bool,
    /// Its pages were asked to come back to a near node.
    pub(super) brought_back: bool,
    /// The runs that the program was asked to bind.
    pub(super) requested: Vec<PageRun>,
    /// The program has bound it by its site, before any touch.
    pub(super) site_bound: bool,
    /// The program has chosen itself where it is.
    pub(super) own: bool,
    /// Its first faults are watched.
    pub(super) watched: bool,
    /// Who uses it is counted.
    pub(super) counted: bool,
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
    pub(super) fn index_of(&self, address: Address, page_bytes: u64) -> Option<PageIndex> {
        let index = address.checked_sub(self.start)? / page_bytes;
        let index = u32::try_from(index).ok()?;
        (self.cuts.is_empty() && index < self.pages).then_some(PageIndex(index))
    }

    /// A touch of one of its pages.
    pub(super) fn touch(
        &self,
        object: Object,
        index: PageIndex,
        thread: Thread,
        node: Node,
    ) -> PageTouch {
        PageTouch {
            block: self.block(index),
            object,
            index: index.0,
            process: self.process,
            thread,
            node,
        }
    }

    /// The number of a page, of a region whose pages are placed at their first touch.
    pub(super) fn block(&self, index: PageIndex) -> Block {
        Block(self.base.expect("its pages are placed one by one") + index.0)
    }

    /// The address of a page.
    pub(super) fn address(&self, index: PageIndex, page_bytes: u64) -> Address {
        self.start + u64::from(index.0) * page_bytes
    }

    /// Whether the page was unmapped.
    pub(super) fn is_cut(&self, index: PageIndex) -> bool {
        let gone = |cut: &CutPages| (cut.first..cut.first + cut.pages).contains(&index.0);
        self.cuts.iter().any(gone)
    }

    /// The number of a first fault in the region, such that a fault on the page behind it has the
    /// next number: by huge pages as long as each had one fault at most, then by small pages.
    pub(super) fn index(
        &mut self,
        address: Address,
        page: PageIndex,
        huge_page_bytes: Option<u64>,
    ) -> u32 {
        let (FaultUnit::Huge(seen), Some(huge)) = (&mut self.unit, huge_page_bytes) else {
            return page.0;
        };
        let number = (address.0 / huge - self.start.0 / huge) as u32;
        if seen.contains(&number) {
            self.unit = FaultUnit::Small;
            return page.0;
        }
        seen.push(number);
        number
    }

    /// Has the program bind a run to these nodes.
    pub(super) fn bind_request(&self, run: &PageRun, nodes: u64, page_bytes: u64) -> Decision {
        Decision::Order(Order::Bind {
            pid: self.pid,
            start: self.address(PageIndex(run.first), page_bytes),
            length: u64::from(run.pages) * page_bytes,
            nodes,
        })
    }

    /// The request to move pages to these nodes.
    pub(super) fn move_request(
        &self,
        job: u64,
        pages: &Range<u32>,
        nodes: u64,
        page_bytes: u64,
    ) -> Decision {
        Decision::Order(Order::Move {
            job,
            pid: self.pid,
            start: self.address(PageIndex(pages.start), page_bytes),
            pages: pages.len() as u32,
            nodes,
        })
    }
}
