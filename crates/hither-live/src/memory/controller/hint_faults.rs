//! Regions that the kernel samples by itself, by its hint faults.
//!
//! The controller *holds* a region by having the program give each run of pages with one home the
//! memory policy under which they are sampled and stay (`hither_sys::hint_faults`). It does so when
//! most pages of the region exist, or no more are touched: a policy that is set before says where
//! pages are allocated.
//!
//! - A region that *lies in parts* when it is filled, as what several threads have filled does, is
//!   held at once. As far as anybody knows it lies where it is used; passes of the kernel's scanner
//!   show later whether that is so ([`LOCAL_SHARE_MIN`]). The kernel would spoil it: it moves pages
//!   that two phases of an iteration use from two nodes to and fro. (nas from its best placement
//!   takes 6 to 7 % longer with balancing than without; in the lab, 2026-11.)
//! - The kernel moves the pages of all other regions, and of those that are not well placed. A
//!   region is held once several nodes use it and a pass shows that it is well placed by now, which
//!   a later pass has to confirm, or once there were many passes. The scanner is fast while it
//!   finds pages to move, and samples come as fast. It takes held pages for misplaced by the user's
//!   will, and slows down to a pass in minutes. What the kernel has not put right by then, or moves
//!   to and fro, the policy moves, by all samples so far. (Held from the first inspection on, nas
//!   that one thread had filled stayed half wrong, as its phases use a page from different nodes:
//!   `counters/stratified.rs`.)
//!
//! When pages of a held region have moved, the runs that lie on another node than their policy says
//! get a new policy. Until a new policy holds, the kernel may still move pages by the one before:
//! so after each change the region is inspected again, until nothing has changed.
//!
//! There are few runs ([`RUNS_MAX`]). So the kernel may pull a page of a run, that is on another
//! node than most of it, there when that node touches it. Pages that do not exist belong to no run,
//! so that the kernel's first touch holds for them, but for holes within a run.

use hither_core::{Block, Node, Object};
use rustc_hash::FxHashMap;

use super::super::event::Decision;
use super::hinted_regions::{
    HintStage, HintStep, HintedRegion, INSPECTION_INTERVAL_NS_MAX, INSPECTION_INTERVAL_NS_MIN,
    INSPECTIONS_PER_PASS, Inspection, MISSING_DIVISOR,
};
use super::placement_controller::PlacementController;
use super::saved_placements::{RUNS_MAX, runs};
use super::tracked_region::Sharing;
use crate::numa::ranges::PageRange;

/// A region lies in parts if at least one in so many of its pages is on another node than most, and
/// at most one in so many pairs of neighbours is on different nodes. Pages that were dealt out one
/// by one (`numactl --interleave`) do not lie in parts: nobody has put them where they are used.
const PARTS_DIVISOR: usize = 4;

/// A region is well placed if its local share is at least this share of the middle between two
/// others: the local share by chance, with each page on the node of whoever comes next, where the
/// kernel moves pages to; and the best possible one. The kernel then has little to improve, and
/// would rather spoil what two phases of an iteration use from two nodes.
const LOCAL_SHARE_MIN: f64 = 0.95;

/// Samples from phases with less than this share of the program's time say nothing about a region:
/// other phases may use its pages from elsewhere.
const TIME_SHARE_MIN: f64 = 0.5;

/// Policies that could not be set are set again after the longest interval of inspections. This
/// pause doubles so many times.
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// The most pages of a look-up.
const LOOKUP_PAGES_MAX: u32 = 1 << 16;

/// Going through the pages of a region takes a few nanoseconds a page. This delay before it keeps
/// updates of policies to a hundredth of a CPU.
const UPDATE_DELAY_NS_PER_PAGE: u64 = 200;

impl PlacementController {
    /// Has the kernel sample a region.
    pub(super) fn hint(&mut self, now_ns: u64, object: Object) {
        let generation = self.generations[object.index()];
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(region), Some(hints)) = (region, hints) {
            hints.live += 1;
            let due_ns = now_ns + INSPECTION_INTERVAL_NS_MIN;
            let inspection = hints.set(due_ns, (object, generation), HintStep::Inspect);
            region.hinted = Some(HintedRegion::new(inspection));
        }
    }

    /// A page was touched whose node is not known. The region is inspected when all but a few pages
    /// of it exist, or a while after many more were touched.
    pub(super) fn unknown_touched(&mut self, now_ns: u64, object: Object) {
        let generation = self.generations[object.index()];
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let Some(region) = region else { return };
        let (Some(hinted), Some(hints)) = (&mut region.hinted, hints) else {
            return;
        };
        hinted.new_touches += 1;
        let few = region.left / MISSING_DIVISOR;
        let present = hinted.present + hinted.new_touches;
        let missing = region.left.saturating_sub(present);
        if hinted.stage == HintStage::Filling && missing == few {
            hinted.inspect_by(now_ns, (object, generation), hints);
        } else if !hinted.is_inspected() && hinted.new_touches > few {
            let due_ns = now_ns + INSPECTION_INTERVAL_NS_MAX;
            hinted.inspection = Some(hints.set(due_ns, (object, generation), HintStep::Inspect));
        }
    }

    /// Several nodes use a region that one has filled. The samples so far say nothing about that,
    /// so the kernel moves its pages, unless it is still being filled or on trial.
    fn restart_hints(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let region = self.tracked[object.index()].as_mut();
        let Some(hinted) = region.and_then(|region| region.hinted.as_mut()) else {
            return;
        };
        match hinted.stage {
            HintStage::KernelMoves | HintStage::Held => {
                self.release(now_ns, object, out);
            }
            stage => hinted.begin(stage),
        }
    }

    /// Has the kernel move the pages of a region.
    fn release(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let generation = self.generations[object.index()];
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let (Some(region), Some(hints)) = (region, hints) else {
            return;
        };
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        hinted.begin(HintStage::KernelMoves);
        let held = !std::mem::take(&mut hinted.runs).is_empty();
        if !hinted.is_inspected() {
            let due_ns = now_ns + INSPECTION_INTERVAL_NS_MIN;
            hinted.inspection = Some(hints.set(due_ns, (object, generation), HintStep::Inspect));
        }
        if held {
            out.push(region.end_of_hints(self.page_bytes));
        }
    }

    /// Judges a region on trial, after a pass over it.
    fn judge_trial(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let well = self.is_well_placed(object);
        let region = self.tracked[object.index()].as_mut();
        let hinted = region.and_then(|region| region.hinted.as_mut());
        let Some(hinted) = hinted.filter(|hinted| hinted.stage == HintStage::Trial) else {
            return;
        };
        match well {
            Some(false) => self.release(now_ns, object, out),
            None if !hinted.is_exhausted() => {}
            _ => hinted.begin(HintStage::Held),
        }
    }

    /// Whether a region is well placed. `None` if it was not sampled in phases with enough of the
    /// program's time.
    fn is_well_placed(&mut self, object: Object) -> Option<bool> {
        let region = self.tracked[object.index()].as_ref()?;
        let program = self.counting.as_mut()?.programs.get_mut(&region.pid)?;
        let home = |block| self.host.home(block);
        let lies = program
            .estimates
            .lies(region.base, &home, &program.phases)?;
        let enough = LOCAL_SHARE_MIN * (lies.by_chance + lies.best) / 2.0;
        (lies.of_time >= TIME_SHARE_MIN).then_some(lies.local >= enough)
    }

    /// Takes the steps that are due.
    pub(super) fn hints_due(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let shared = hints.map_or_else(Vec::new, |hints| std::mem::take(&mut hints.shared));
        for object in shared {
            self.restart_hints(now_ns, object, out);
        }
        loop {
            let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
            let Some(hints) = hints else { return };
            for object in std::mem::take(&mut hints.stale) {
                let region = self.tracked[object.index()].as_mut();
                let pages = region.as_ref().map_or(0, |region| u64::from(region.pages));
                let hinted = region.and_then(|region| region.hinted.as_mut());
                let is_held = |hinted: &&mut HintedRegion| !hinted.runs.is_empty();
                if let Some(hinted) = hinted.filter(is_held).filter(|of| !of.updates) {
                    hinted.updates = true;
                    let due_ns = now_ns + pages * UPDATE_DELAY_NS_PER_PAGE;
                    hints.set(
                        due_ns,
                        (object, self.generations[object.index()]),
                        HintStep::UpdatePolicies,
                    );
                }
            }
            let Some(entry) = hints.due.first_entry() else {
                return;
            };
            if entry.key().0 > now_ns {
                return;
            }
            let (object, generation, step) = entry.remove();
            if self.generations[object.index()] != generation {
                continue;
            }
            match step {
                HintStep::Inspect => self.inspect(now_ns, (object, generation), out),
                HintStep::Judge => self.judge_trial(now_ns, object, out),
                HintStep::UpdatePolicies => self.update_policies(now_ns, object, out),
            }
        }
    }

    /// Asks for the nodes of all pages of a region.
    fn inspect(&mut self, now_ns: u64, inspection: Inspection, out: &mut Vec<Decision>) {
        let region = self.tracked[inspection.0.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let (Some(region), Some(hints)) = (region, hints) else {
            return;
        };
        let (pid, start, pages) = (region.pid, region.start, region.pages);
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        let lookups = pages.div_ceil(LOOKUP_PAGES_MAX);
        hinted.inspection = None;
        hinted.open_lookups = lookups;
        hinted.rests_until_ns = now_ns + hints.rest_ns(pages);
        hinted.new_touches = 0;
        for first in (0..lookups).map(|lookup| lookup * LOOKUP_PAGES_MAX) {
            let ranges = vec![PageRange {
                start: start + u64::from(first) * self.page_bytes,
                pages: LOOKUP_PAGES_MAX.min(pages - first),
            }];
            self.locate(pid, ranges, Some(inspection), out);
        }
    }

    /// Takes in the answer to a look-up of an inspection. With the last one the inspection ends.
    pub(super) fn inspected(
        &mut self,
        now_ns: u64,
        (object, generation): Inspection,
        out: &mut Vec<Decision>,
    ) {
        if self.generations[object.index()] != generation {
            return;
        }
        let region = self.tracked[object.index()].as_ref();
        let hinted = region.and_then(|region| region.hinted.as_ref());
        let kernel_moves =
            hinted.is_some_and(|of| of.stage == HintStage::KernelMoves && of.open_lookups == 1);
        let well = kernel_moves.then(|| self.is_well_placed(object)).flatten();
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let home = |page: u32| self.host.home(Block(region.base + page));
        let homes: Vec<Option<Node>> = (0..region.pages).map(home).collect();
        let present = homes.iter().flatten().count() as u32;
        let missing = region.left.saturating_sub(present);
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        hinted.open_lookups -= 1;
        if hinted.open_lookups > 0 {
            return;
        }
        let filled =
            present > 0 && present == hinted.present || missing <= region.left / MISSING_DIVISOR;
        let pass_is_over = hinted.of_pass > u64::from(present / INSPECTIONS_PER_PASS);
        let stage = hinted.stage;
        hinted.present = present;
        if stage == HintStage::KernelMoves && filled && region.users != Sharing::Several {
            // One node uses it, so that holding it gains nothing. A second user has it inspected
            // again.
            return;
        }
        let done = match stage {
            HintStage::Filling if present > 0 && !lies_in_parts(&homes) => {
                self.release(now_ns, object, out);
                return;
            }
            HintStage::Filling => filled,
            HintStage::KernelMoves => {
                if pass_is_over {
                    hinted.of_pass = 0;
                }
                filled && (hinted.is_exhausted() || pass_is_over && well == Some(true))
            }
            HintStage::Trial | HintStage::Held => true,
        };
        if done {
            self.hold(now_ns, object, out);
            return;
        }
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(hinted), Some(hints)) = (region.and_then(|of| of.hinted.as_mut()), hints) {
            if filled {
                // Samples of the next pass lead to the next inspection.
                return;
            }
            let wait_ns = hinted.wait_ns;
            hinted.wait_ns = (wait_ns * 2).min(INSPECTION_INTERVAL_NS_MAX);
            let due_ns = now_ns + wait_ns;
            hinted.inspection = Some(hints.set(due_ns, (object, generation), HintStep::Inspect));
        }
    }

    /// Holds a region where it is.
    fn hold(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let region = self.tracked[object.index()].as_mut();
        if let Some(hinted) = region.and_then(|region| region.hinted.as_mut()) {
            match hinted.stage {
                HintStage::KernelMoves if hinted.is_exhausted() => {
                    hinted.begin(HintStage::Held);
                }
                HintStage::Filling | HintStage::KernelMoves => hinted.begin(HintStage::Trial),
                HintStage::Trial | HintStage::Held => {}
            }
        }
        self.set_policies(now_ns, object, out);
    }

    /// Has the program give the runs of a region their policies, where these have changed.
    fn set_policies(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let home = |page: u32| Some(self.host.home(Block(region.base + page)));
        let homes: Vec<Option<Option<Node>>> = (0..region.pages).map(home).collect();
        let runs: Vec<(u32, Option<Node>)> = runs(&homes, RUNS_MAX)
            .into_iter()
            .map(|(pages, home)| (pages, home.flatten()))
            .collect();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let (Some(hinted), Some(hints)) = (&mut region.hinted, hints) else {
            return;
        };
        let before = std::mem::replace(&mut hinted.runs, runs);
        let changed = changed(&before, &hinted.runs);
        if !changed.is_empty() && !hinted.is_inspected() {
            let wait_ns = INSPECTION_INTERVAL_NS_MIN.max(hints.rest_ns(region.pages));
            let of = (object, self.generations[object.index()]);
            hinted.inspection = Some(hints.set(now_ns + wait_ns, of, HintStep::Inspect));
        }
        for (first, pages, node) in changed {
            out.push(Decision::Hint {
                pid: region.pid,
                start: region.start + u64::from(first) * self.page_bytes,
                length: u64::from(pages) * self.page_bytes,
                node: node.map(|node| self.host.kernel_number(node)),
            });
        }
    }

    /// A program has set the policy of a range, or could not. The kernel refuses where the process
    /// has too many mappings, or was confined meanwhile, and the table of bind requests may be
    /// full. Then the policy before holds, and this one is set again later where that may help.
    pub(super) fn hint_set(&mut self, now_ns: u64, pid: u32, (start, end): (u64, u64), error: u32) {
        if error == 0 {
            return;
        }
        self.summary.unarmed += (end - start) / self.page_bytes;
        if ![libc::ENOSPC, libc::ENOMEM].contains(&(error as i32)) {
            return;
        }
        let Some((object, _)) = self.find(pid, start) else {
            return;
        };
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(hinted), Some(hints)) = (region.and_then(|of| of.hinted.as_mut()), hints) {
            hinted.refused = true;
            if !std::mem::replace(&mut hinted.updates, true) {
                let of = (object, self.generations[object.index()]);
                let doublings = hinted.retries.min(RETRY_DOUBLINGS_MAX);
                let wait_ns = INSPECTION_INTERVAL_NS_MAX << doublings;
                hinted.retries += 1;
                hints.set(now_ns + wait_ns, of, HintStep::UpdatePolicies);
            }
        }
    }

    /// Sets the policies that have changed, or that were refused.
    fn update_policies(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        hinted.updates = false;
        let refused = std::mem::take(&mut hinted.refused);
        match hinted.stage {
            HintStage::Trial | HintStage::Held => {
                if refused {
                    hinted.runs.clear();
                }
                self.set_policies(now_ns, object, out);
            }
            HintStage::KernelMoves if refused => out.push(region.end_of_hints(self.page_bytes)),
            HintStage::Filling | HintStage::KernelMoves => {}
        }
    }

    /// Ends the sampling of a region.
    pub(super) fn unhint(&mut self, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(_), Some(hints)) = (&region.hinted, hints) {
            hints.end(true);
            region.hinted = None;
            out.push(region.end_of_hints(self.page_bytes));
        }
    }
}

#[cfg(test)]
impl PlacementController {
    pub(super) fn check_hints(&self) {
        let hints = self.counting.as_ref().and_then(|of| of.hints.as_ref());
        let hinted = self.tracked.iter().flatten();
        let hinted = hinted.filter(|of| of.hinted.is_some()).count();
        assert_eq!(hints.map_or(0, |hints| hints.live), hinted);
    }
}

/// Whether the pages of a region lie in parts on several nodes ([`PARTS_DIVISOR`]).
fn lies_in_parts(homes: &[Option<Node>]) -> bool {
    let mut of_node: FxHashMap<Node, usize> = FxHashMap::default();
    for &node in homes.iter().flatten() {
        *of_node.entry(node).or_default() += 1;
    }
    let present: usize = of_node.values().sum();
    let most = of_node.values().max().map_or(0, |&most| most);
    let pairs = || homes.windows(2).filter(|pair| pair[0].is_some());
    let apart = pairs().filter(|pair| pair[0] != pair[1]).count();
    (present - most) * PARTS_DIVISOR >= present && apart * PARTS_DIVISOR <= present
}

/// Where runs have changed: the first page, how many pages, and their node now.
fn changed(
    before: &[(u32, Option<Node>)],
    now: &[(u32, Option<Node>)],
) -> Vec<(u32, u32, Option<Node>)> {
    let mut changed: Vec<(u32, u32, Option<Node>)> = Vec::new();
    let mut old = before.iter().copied();
    let (mut old_left, mut old_node) = old.next().unwrap_or((u32::MAX, None));
    let mut at = 0;
    for &(mut left, node) in now {
        while left > 0 {
            let pages = left.min(old_left);
            if node != old_node {
                match changed.last_mut() {
                    Some((first, length, last)) if *last == node && *first + *length == at => {
                        *length += pages;
                    }
                    _ => changed.push((at, pages, node)),
                }
            }
            at += pages;
            left -= pages;
            old_left -= pages;
            if old_left == 0 {
                (old_left, old_node) = old.next().unwrap_or((u32::MAX, None));
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_from_what_is_dealt_out() {
        let homes = |of: fn(usize) -> Option<u16>| {
            let homes: Vec<_> = (0..1000).map(|page| of(page).map(Node)).collect();
            lies_in_parts(&homes)
        };
        assert!(homes(|page| Some((page / 250) as u16)));
        assert!(homes(|page| Some((page / 5 % 2) as u16)), "small parts");
        assert!(homes(|page| Some(u16::from(page >= 750))));
        assert!(!homes(|page| Some(u16::from(page > 750))), "nearly all");
        assert!(!homes(|page| Some((page % 4) as u16)), "dealt out");
        assert!(!homes(|_| Some(3)));
        assert!(homes(|page| (page < 400).then_some((page / 200) as u16)));
        assert!(!homes(|page| (page < 400).then_some(0)));
    }

    #[test]
    fn what_has_changed_is_told_once() {
        let on = |node| Some(Node(node));
        let first = [(10, on(0)), (6, None), (4, on(1))];
        assert_eq!(changed(&[], &first), [(0, 10, on(0)), (16, 4, on(1))]);
        assert_eq!(changed(&first, &first), []);
        let then = [(5, on(0)), (13, on(2)), (2, None)];
        assert_eq!(changed(&first, &then), [(5, 13, on(2)), (18, 2, None)]);
    }
}
