//! Where regions had their pages in the end, from one run to the next.
//!
//! A region is identified by call site, thread and allocation index (`SavedPlacement`). For regions
//! of a program's first thread these are the same in every run. Where several threads allocate at
//! one site, threads are numbered in the order of their first allocations. That order may differ
//! from run to run, so that two threads may be swapped. The regions are then placed wrongly, and
//! counted and moved like any other.

use std::collections::BTreeMap;

use hither_core::Object;
use hither_core::placement::SavedPlacement;
use hither_ids::{Pid, Tid};
use rustc_hash::FxHashMap;

use super::super::migration::Migration;
use super::tracked_region::{RegionKey, TrackedRegion};

/// The most runs that are saved of a region: beyond, neighbours are joined. Each run needs a bind
/// request, and there is room for 1024 of them.
pub(super) const RUNS_MAX: usize = 64;

/// The most regions that are saved for a thread and site: the first ones, which are allocated at a
/// program's start and live long. A program that allocates and frees all the time would have no end
/// of them.
const REGIONS_PER_SITE_MAX: u32 = 64;

/// Signature, thread, and allocation index.
type SavedKey = (u64, u32, u32);

/// Placements of earlier runs, and of this one.
#[derive(Debug, Default)]
pub(super) struct SavedPlacements {
    known: BTreeMap<SavedKey, SavedPlacement>,
    /// By process, the numbers of threads that allocated regions, in the order in which they did.
    threads: FxHashMap<Pid, FxHashMap<Tid, u32>>,
    /// How many regions were allocated, by process, thread and site.
    counts: BTreeMap<(Pid, u32, u64), u32>,
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

    /// A thread allocates a region.
    pub(super) fn key(&mut self, pid: Pid, tid: Tid, signature: u64) -> RegionKey {
        let threads = self.threads.entry(pid).or_default();
        let next = threads.len() as u32;
        let thread = *threads.entry(tid).or_insert(next);
        let count = self.counts.entry((pid, thread, signature)).or_default();
        *count += 1;
        RegionKey {
            thread,
            nth: *count - 1,
        }
    }

    /// A process has ended: its number may be used again.
    pub(super) fn ended(&mut self, pid: Pid) {
        self.threads.remove(&pid);
        let of = self.counts.range((pid, 0, 0)..=(pid, u32::MAX, u64::MAX));
        let of: Vec<(Pid, u32, u64)> = of.map(|(&key, _)| key).collect();
        for key in of {
            self.counts.remove(&key);
        }
    }

    /// The placement of a region that a thread allocates, by [`SavedPlacements::key`].
    pub(super) fn find(&self, signature: u64, key: RegionKey) -> Option<&SavedPlacement> {
        self.known.get(&(signature, key.thread, key.nth))
    }

    /// Saves the placement of a region, if any of its pages were moved to where they are used.
    pub(super) fn keep(
        &mut self,
        object: Object,
        region: &TrackedRegion,
        migration: Option<&Migration>,
    ) {
        let RegionKey { thread, nth } = region.key;
        let moved = migration.filter(|migration| migration.has_moved(object));
        let homes = moved.and_then(|migration| migration.homes(object));
        let Some((cell_pages, homes)) = homes else {
            return;
        };
        if region.signature == 0 || nth >= REGIONS_PER_SITE_MAX {
            return;
        }
        let mut left = region.pages;
        let of_cells = runs(&homes, RUNS_MAX).into_iter();
        let in_pages = of_cells.map(|(cells, home)| {
            let pages = left.min(cells * cell_pages);
            left -= pages;
            (pages, home.map(|home| home.0))
        });
        let placed = SavedPlacement {
            signature: region.signature,
            thread,
            nth,
            pages: region.pages,
            runs: in_pages.collect(),
        };
        self.known.insert((region.signature, thread, nth), placed);
    }

    pub(super) fn all(&self) -> Vec<SavedPlacement> {
        self.known.values().cloned().collect()
    }
}

/// The homes of pages as runs, at most so many. If there are more, pages are taken together in
/// pieces of twice the size, with the home of most of their pages, until there are not. Pages of
/// unknown homes join their neighbours.
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

/// The home of most pages that have one, and the lowest among equals. `counts` is room to count in:
/// there are few homes.
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
        let mut key = |tid, signature| {
            let RegionKey { thread, nth } = placements.key(Pid(9), tid, signature);
            (thread, nth)
        };
        assert_eq!(
            [key(Tid(9), 1), key(Tid(9), 1), key(Tid(9), 2)],
            [(0, 0), (0, 1), (0, 0)]
        );
        assert_eq!([key(Tid(12), 1), key(Tid(9), 1)], [(1, 0), (0, 2)]);
        placements.ended(Pid(9));
        let first = RegionKey { thread: 0, nth: 0 };
        assert_eq!(placements.key(Pid(9), Tid(12), 1), first);
    }
}
