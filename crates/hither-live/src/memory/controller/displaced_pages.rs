//! Pages of near regions that were touched while a far region's pages still held frames of the near
//! node.
//!
//! A loop that fills a far region makes no hooked call, so that its pages take near frames until
//! they are moved. Another page that is touched meanwhile may find no frame left: the kernel puts
//! it on another node, where it would stay. So the controller notes first faults of other regions
//! while a far region's pages are being moved, and has those pages brought to the node that touched
//! them once the far region has arrived. The mover leaves pages alone that are there already. (In
//! the lab, with two nodes, two regions of 24 MiB and near room for one, 42 % of the near region
//! stayed on the far node; 2026-11.)

use std::collections::{BTreeMap, BTreeSet};

use hither_core::{Node, Object};

use super::page_runs::PageRun;

/// The most pages that are noted: 4 GiB of pages, in 32 MiB of memory.
const NOTED_PAGES_MAX: usize = 1 << 20;

/// The most pages between two noted ones that are moved with them: a call for each page would cost
/// more.
const GAP_PAGES_MAX: u32 = 16;

/// First touches while far regions are being moved.
#[derive(Debug, Default)]
pub(super) struct DisplacedPages {
    /// Far regions that are being moved.
    moving: BTreeSet<Object>,
    /// The node that touched a page first, by region and index of the page.
    pages: BTreeMap<(Object, u32), Node>,
}

impl DisplacedPages {
    /// A far region is about to be moved.
    pub(super) fn leaves(&mut self, object: Object) {
        self.moving.insert(object);
    }

    /// A page of a region that is not far was touched first.
    pub(super) fn touched(&mut self, object: Object, page: u32, from: Node) {
        if !self.moving.is_empty() && self.pages.len() < NOTED_PAGES_MAX {
            self.pages.insert((object, page), from);
        }
    }

    /// Pages were unmapped; `all`: all that the region had left.
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

    /// A far region has arrived. Returns the noted pages, in runs of a region's pages that one node
    /// touched.
    pub(super) fn arrived(&mut self, object: Object) -> Vec<(Object, Node, PageRun)> {
        let mut runs: Vec<(Object, Node, PageRun)> = Vec::new();
        if !self.moving.remove(&object) {
            return runs;
        }
        for ((object, page), node) in std::mem::take(&mut self.pages) {
            match runs.last_mut() {
                Some((of, from, run))
                    if (*of, *from) == (object, node)
                        && page - run.first - run.pages <= GAP_PAGES_MAX =>
                {
                    run.pages = page + 1 - run.first;
                }
                _ => runs.push((
                    object,
                    node,
                    PageRun {
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
