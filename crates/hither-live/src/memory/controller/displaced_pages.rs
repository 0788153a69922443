//! Pages of near regions that were touched while a far region's pages still held the near node's
//! frames.
//!
//! A loop that fills a far region calls nothing that we hook, so that its pages take near frames
//! until they are moved. What is touched meanwhile may find none left: the kernel puts it on
//! another node, and there it would stay. So first faults of other regions that are seen while a
//! far region is on its way are noted, and once it has arrived those pages are brought to the node
//! that touched them; what is there already, the mover leaves alone. (In the lab, two nodes, two
//! regions of 24 MiB and near room for one: 42 % of the near region was on the far node for good,
//! 2026-11.)

use std::collections::{BTreeMap, BTreeSet};

use hither_core::{Node, Object};

use super::super::event::Decision;
use super::PlacementController;
use super::page_runs::Run;

/// No more are noted: 32 MiB of memory, 4 GiB of pages.
const PAGES_MAX: usize = 1 << 20;

/// Pages that nobody is known to have touched lie between, so many at the most, and go along: a
/// call for each page would cost more.
const GAP: u32 = 16;

/// Who touched what meanwhile.
#[derive(Debug, Default)]
pub(super) struct DisplacedPages {
    /// Far regions on their way.
    moving: BTreeSet<Object>,
    /// The node that touched a page first, by region and page.
    pages: BTreeMap<(Object, u32), Node>,
}

impl DisplacedPages {
    /// Pages of a far region are to be moved.
    pub(super) fn leaves(&mut self, object: Object) {
        self.moving.insert(object);
    }

    /// A page of a region that is not far was touched first.
    pub(super) fn touched(&mut self, object: Object, page: u32, from: Node) {
        if !self.moving.is_empty() && self.pages.len() < PAGES_MAX {
            self.pages.insert((object, page), from);
        }
    }

    /// Pages are gone, and with the last of them their region.
    pub(super) fn cut(&mut self, object: Object, first: u32, pages: u32, all: bool) {
        let range = (object, first)..(object, first + pages);
        let gone: Vec<_> = self.pages.range(range).map(|(&key, _)| key).collect();
        for key in gone {
            self.pages.remove(&key);
        }
        if all {
            self.moving.remove(&object);
        }
    }

    /// A far region is where it belongs: what was noted, in runs of a region's pages that one node
    /// touched.
    fn arrived(&mut self, object: Object) -> Vec<(Object, Node, Run)> {
        let mut runs: Vec<(Object, Node, Run)> = Vec::new();
        if !self.moving.remove(&object) {
            return runs;
        }
        for ((object, page), node) in std::mem::take(&mut self.pages) {
            match runs.last_mut() {
                Some((of, from, run))
                    if (*of, *from) == (object, node) && page - run.first - run.pages <= GAP =>
                {
                    run.pages = page + 1 - run.first;
                }
                _ => runs.push((
                    object,
                    node,
                    Run {
                        first: page,
                        pages: 1,
                        nodes: 0,
                    },
                )),
            }
        }
        runs
    }
}

impl PlacementController {
    /// A far region is where it belongs: others come home.
    pub(super) fn fetch(&mut self, far: Object, out: &mut Vec<Decision>) {
        for (object, node, run) in self.spilled.arrived(far) {
            let Some(region) = self.tracked[object.index()].as_ref() else {
                continue;
            };
            out.push(Decision::Move {
                job: self.job_count,
                pid: region.pid,
                start: region.address(run.first, self.page_bytes),
                pages: run.pages,
                nodes: self.model.bit(node),
            });
            self.job_count += 1;
        }
    }
}
