//! Where regions had their pages in the end, from one run to the next.
//!
//! A region is known again by who allocates it where, as how manieth (`SavedPlacement`): for what a
//! program's first thread allocates that is the same in every run. Where several threads allocate
//! at one site their order may differ from run to run; each thread's own regions are told apart by
//! the order in which threads came, so that a swap of two is what can go wrong, and what was placed
//! so is counted and moved like any other.

use std::collections::BTreeMap;

use hither_core::placement::RegionTier;
use hither_core::{Block, Object};
use rustc_hash::FxHashMap;

use super::super::event::Decision;
use super::bind_requests::State;
use super::lifecycle::TrackedRegion;
use super::page_runs::Run;
use super::placement_host::PlacementHost;
use super::{PlacementController, SavedPlacement};

/// Runs kept of a region: beyond, neighbours are joined. An order is posted for each, of which
/// there is room for 1024.
pub(super) const RUNS_MAX: usize = 64;

/// Of so many regions that a thread allocates at a site is kept where they were: those that come at
/// a program's start, and live long. One that allocates and frees the whole time would have no end
/// of them.
const NTH_MAX: u32 = 64;

/// Signature, thread, and how many before.
type Key = (u64, u32, u32);

/// What is known of regions to come.
#[derive(Debug, Default)]
pub(super) struct SavedPlacements {
    known: BTreeMap<Key, SavedPlacement>,
    /// Threads of each process that allocated regions, with their numbers in the order in which
    /// they did.
    threads: FxHashMap<u32, FxHashMap<u32, u32>>,
    /// Regions by process, thread and site.
    counts: BTreeMap<(u32, u32, u64), u32>,
}

impl SavedPlacements {
    pub(super) fn new(known: &[SavedPlacement]) -> SavedPlacements {
        let key = |placed: &SavedPlacement| (placed.signature, placed.thread, placed.nth);
        SavedPlacements {
            known: known
                .iter()
                .map(|placed| (key(placed), placed.clone()))
                .collect(),
            ..SavedPlacements::default()
        }
    }

    /// The number of a thread that allocates a region, and how many it allocated at the site
    /// before.
    pub(super) fn key(&mut self, pid: u32, tid: u32, signature: u64) -> (u32, u32) {
        let threads = self.threads.entry(pid).or_default();
        let next = threads.len() as u32;
        let thread = *threads.entry(tid).or_insert(next);
        let count = self.counts.entry((pid, thread, signature)).or_default();
        *count += 1;
        (thread, *count - 1)
    }

    /// A process is gone: its number may be another's.
    pub(super) fn ended(&mut self, pid: u32) {
        self.threads.remove(&pid);
        let of = self.counts.range((pid, 0, 0)..=(pid, u32::MAX, u64::MAX));
        let of: Vec<(u32, u32, u64)> = of.map(|(&key, _)| key).collect();
        for key in of {
            self.counts.remove(&key);
        }
    }

    /// Keeps where a region has its pages, if any of them were moved to where they are used.
    pub(super) fn keep(&mut self, region: &TrackedRegion, model: &PlacementHost) {
        let (thread, nth) = region.key;
        if region.migrated == 0 || region.signature == 0 || nth >= NTH_MAX {
            return;
        }
        let home = |page: u32| {
            let home = model.home(Block(region.base + page))?;
            Some(model.kernel_number(home))
        };
        let homes: Vec<Option<u32>> = (0..region.pages).map(home).collect();
        let placed = SavedPlacement {
            signature: region.signature,
            thread,
            nth,
            pages: region.pages,
            runs: runs(&homes, RUNS_MAX),
        };
        self.known.insert((region.signature, thread, nth), placed);
    }

    pub(super) fn all(&self) -> Vec<SavedPlacement> {
        self.known.values().cloned().collect()
    }
}

/// Homes as runs, as coarse as it takes to have no more than so many: of ever larger pieces what
/// most of their pages have. Pages of unknown homes go with their neighbours.
pub(super) fn runs<T: Copy + Ord>(homes: &[Option<T>], most_runs: usize) -> Vec<(u32, Option<T>)> {
    let mut piece = 1;
    let mut counts = Vec::new();
    loop {
        let mut runs: Vec<(u32, Option<T>)> = Vec::new();
        for pages in homes.chunks(piece) {
            let home = most(pages, &mut counts).or(runs.last().and_then(|&(_, home)| home));
            match runs.last_mut() {
                Some((length, last)) if *last == home => *length += pages.len() as u32,
                _ => runs.push((pages.len() as u32, home)),
            }
        }
        if runs.len() <= most_runs {
            return runs;
        }
        piece *= 2;
    }
}

/// The home of most pages that have one; the lowest among equals. `counts` is room to count in:
/// homes are few.
fn most<T: Copy + Ord>(pages: &[Option<T>], counts: &mut Vec<(T, usize)>) -> Option<T> {
    counts.clear();
    for &home in pages.iter().flatten() {
        match counts.iter_mut().find(|(counted, _)| *counted == home) {
            Some((_, count)) => *count += 1,
            None => counts.push((home, 1)),
        }
    }
    let by_count = |&&(home, count): &&(T, usize)| (count, std::cmp::Reverse(home));
    counts.iter().max_by_key(by_count).map(|&(home, _)| home)
}

impl PlacementController {
    /// Places a region as one of an earlier run had its pages in the end, unless it is known to be
    /// far.
    pub(super) fn apply(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_ref() else {
            return;
        };
        let (thread, nth) = region.key;
        let placed = self
            .saved_placements
            .known
            .get(&(region.signature, thread, nth));
        let placed = placed.filter(|_| region.class != Some(RegionTier::Remote));
        // Of another size it is another thing.
        let Some(placed) = placed.filter(|placed| placed.pages == region.pages) else {
            return;
        };
        let mut runs = Vec::new();
        let mut first = 0;
        for &(pages, home) in &placed.runs {
            let node = home.and_then(|home| self.model.node_of_kernel(home));
            let pages = pages.min(region.pages - first);
            if let Some(node) = node.filter(|_| pages > 0) {
                let nodes = self.model.bit(node);
                runs.push((
                    Run {
                        first,
                        pages,
                        nodes,
                    },
                    State::Requested,
                ));
            }
            first += pages;
        }
        self.summary.applied += 1;
        self.bind(now_ns, object, runs.into_iter(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_few_and_cover_all() {
        let on = |node: u32, pages: usize| std::iter::repeat_n(Some(node), pages);
        let homes: Vec<Option<u32>> = on(0, 10).chain([None; 5]).chain(on(3, 7)).collect();
        assert_eq!(runs(&homes, RUNS_MAX), [(15, Some(0)), (7, Some(3))]);
        let mixed: Vec<Option<u32>> = (0..1000).map(|page| Some(page / 2 % 2)).collect();
        let few = runs(&mixed, RUNS_MAX);
        assert!(few.len() <= RUNS_MAX);
        assert_eq!(few.iter().map(|&(pages, _)| pages).sum::<u32>(), 1000);
        assert_eq!(runs::<u32>(&[None; 4], RUNS_MAX), [(4, None)]);
    }

    #[test]
    fn regions_are_known_by_thread_and_order() {
        let mut placements = SavedPlacements::default();
        let mut key = |tid, signature| placements.key(9, tid, signature);
        assert_eq!([key(9, 1), key(9, 1), key(9, 2)], [(0, 0), (0, 1), (0, 0)]);
        assert_eq!([key(12, 1), key(9, 1)], [(1, 0), (0, 2)]);
        placements.ended(9);
        assert_eq!(placements.key(9, 12, 1), (0, 0));
    }
}
