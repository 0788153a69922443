//! A region whose users are counted.

use std::collections::BTreeSet;
use std::ops::Range;

use hither_core::{Node, Process};
use hither_ids::{Address, Pid};
use hither_kernel::writable_memory::MemoryKind;

use super::super::event::{Decision, Order};
use super::super::locality::{Locality, MigrationGain};
use super::counts::RegionCounts;
use crate::numa::ranges::PageRange;

/// A region whose users are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionStart {
    pub(crate) pid: Pid,
    pub(crate) process: Process,
    pub(crate) start: Address,
    pub(crate) pages: u32,
    pub(crate) signature: u64,
    /// What it is, if no allocation has reported it.
    pub(crate) kind: Option<MemoryKind>,
}

/// What is known of a region.
#[derive(Debug)]
pub(super) struct CountedRegion {
    pub(super) pid: Pid,
    pub(super) process: Process,
    pub(super) start: Address,
    pub(super) pages: u32,
    pub(super) signature: u64,
    pub(super) kind: Option<MemoryKind>,
    /// The number of its first cell.
    pub(super) base: u32,
    pub(super) generation: u64,
    pub(super) counts: RegionCounts,
    pub(super) users: Sharing,
    /// Samples by node since pages were moved last.
    pub(super) by_node: Vec<u32>,
    /// Pages that were unmapped.
    pub(super) cuts: Vec<Range<u32>>,
    /// Cells that are parts of huge pages which are to stay: the policy is not asked about them.
    pub(super) huge: BTreeSet<u32>,
    /// Samples before the policy moved the first of its pages, and after.
    pub(super) before: Locality,
    pub(super) after: Locality,
    /// Pages that the policy moved; a page counts each time.
    pub(super) migrated: u32,
}

/// Which nodes use a region, as far as samples have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Nobody,
    Of(Node),
    Several,
}

impl CountedRegion {
    /// The pages of a cell.
    pub(super) fn pages_of(&self, cell: u32) -> Range<u32> {
        let pages = self.counts.cell_pages();
        cell * pages..((cell + 1) * pages).min(self.pages)
    }

    /// The pages of cells, in order.
    pub(super) fn ranges(&self, cells: &[u32], page_bytes: u64) -> Vec<PageRange> {
        let runs = cells.iter().map(|&cell| self.pages_of(cell));
        page_ranges(runs, |page| self.start + u64::from(page) * page_bytes)
    }

    pub(super) fn sampling(&self, on: bool, page_bytes: u64) -> Decision {
        Decision::Order(Order::Sample {
            pid: self.pid,
            start: self.start,
            length: u64::from(self.pages) * page_bytes,
            on,
        })
    }

    pub(super) fn gain(&self) -> Option<MigrationGain> {
        (self.migrated > 0).then_some(MigrationGain {
            signature: self.signature,
            migrated: self.migrated,
            before: self.before,
            after: self.after,
        })
    }
}

/// Pages, by their numbers, as ranges.
fn page_ranges(
    runs: impl Iterator<Item = Range<u32>>,
    address: impl Fn(u32) -> Address,
) -> Vec<PageRange> {
    let mut ranges: Vec<(u32, PageRange)> = Vec::new();
    for run in runs {
        match ranges.last_mut() {
            Some((end, range)) if *end == run.start => {
                range.pages += run.len() as u32;
                *end = run.end;
            }
            _ => ranges.push((
                run.end,
                PageRange {
                    start: address(run.start),
                    pages: run.len() as u32,
                },
            )),
        }
    }
    ranges.into_iter().map(|(_, range)| range).collect()
}
