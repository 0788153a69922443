//! Regions that the kernel samples by itself: its hint faults are the samples.
//!
//! A region is *held* where it is by having the program give each run of pages with one home the
//! policy under which they are sampled and stay (`hither_sys::hint_faults`): when most of its pages
//! are there, or no more come, since a policy given before would say where they are to come from.
//!
//! - One that *lies in parts* then, as what several threads have filled does, lies where it is
//!   used, as far as anybody knows, and is held at once; passes of the kernel's scanner say later
//!   whether that is so ([`WELL`]). The kernel would spoil it: it moves what two phases of an
//!   iteration use from two nodes to and fro (nas from its best placement, in the lab, 2026-11,
//!   takes 6 to 7 % longer with balancing than without).
//! - All others, and those that do not lie well, are left to the kernel, migrations included, until
//!   several nodes use them and a pass shows that they lie well by now, which a later pass has to
//!   say once more, or there were many: the scanner goes fast while it finds pages to move, and
//!   samples come as fast; what is held it takes for misplaced by the user's will, and slows down
//!   to a pass in minutes. What the kernel has not put right by then, or moves to and fro, is the
//!   policy's to do, by all that was sampled meanwhile. (Held from the first look on, nas that one
//!   thread had filled stayed half wrong, as its phases use a page from different nodes:
//!   `counters/stratified.rs`.)
//!
//! When pages have moved, what is on another node than its policy says gets a new one. Until a
//! policy holds the kernel may move pages still, by the one before, so that after each it is asked
//! anew where they are, until that is as it was told.
//!
//! Runs are few ([`RUNS_MAX`]): what of a run is on another node than most of it may be pulled
//! there by the kernel when that node touches it. Pages that are not there go with none, so that
//! the kernel's first touch holds for them, but for holes in a run.

use std::collections::BTreeMap;

use hither_core::{Block, Node, Object};
use rustc_hash::FxHashMap;

use super::super::counters::CPUS_MAX;
use super::super::event::Decision;
use super::PlacementController;
use super::lifecycle::{Sharing, TrackedRegion};
use super::saved_placements::{RUNS_MAX, runs};
use crate::numa::ranges::PageRange;

/// The first look at a region comes so long after its allocation, each further one twice as long
/// after the one before, up to [`LOOK_MAX_NS`].
const LOOK_NS: u64 = 50_000_000;
const LOOK_MAX_NS: u64 = 5_000_000_000;

/// A region has most of its pages where no more than this part is missing.
const MISSING: u32 = 16;

/// A region lies in parts where so large a part of it is elsewhere than most of it, and all but so
/// large a part of its pages are beside others of their node. Pages that were dealt out one by one
/// (`numactl --interleave`) are not: nobody has put them where they are used.
const PART: usize = 4;

/// The kernel moves a page at the second touch from the same node. What it has not put right in so
/// many passes it never will.
const PASSES: u64 = 16;

/// What is left to the kernel is looked at so many times a pass: between two passes it may lie
/// well, and the next one spoils it.
const LOOKS: u32 = 4;

/// A region lies well where so much is local of what is half way between what would be if each page
/// were with whoever comes next, which is where the kernel moves them, and what there can be: the
/// kernel has little to mend then, and would rather spoil what two phases of an iteration use from
/// two nodes.
const WELL: f64 = 0.95;

/// As long as what was sampled was so in phases that have less of the program's time, there may be
/// others that use the pages from elsewhere.
const COVERED: f64 = 0.5;

/// What could not be done is told again after the longest time between two looks, and so often
/// after twice as long each time.
const RETRIES_MAX: u32 = 6;

/// Pages asked about at once.
const ASKED: u32 = 1 << 16;

/// Going through the pages of a region takes a few nanoseconds a page, and asking where they are a
/// few hundred: this keeps either to a hundredth of a CPU.
const TELL_PER_PAGE_NS: u64 = 200;
const LOOK_PER_PAGE_NS: u64 = 20_000;

/// Where that is more, a large region rests so long, or as long as keeps looks to a hundredth of
/// all CPUs that count: 9 minutes for 100 GiB are too long.
const REST_NS: u64 = 100_000_000;

/// The region that is looked at, and which of those with its number it is.
pub(super) type Inspection = (Object, u32);

/// Regions to be looked at, and when.
#[derive(Debug)]
pub(super) struct Hints {
    cpus: u64,
    due: BTreeMap<(u64, u64), (Object, u32, Step)>,
    count: u64,
    /// Regions of which pages have moved.
    stale: Vec<Object>,
    /// Regions that a second node has come to.
    shared: Vec<Object>,
    /// Regions that the kernel samples.
    live: usize,
}

/// What is due.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// To ask where pages are.
    Inspect,
    /// To say whether a region lies well.
    Judge,
    /// To tell the program, where that has changed.
    Tell,
}

/// How far a region is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Its pages are still coming.
    #[default]
    Filling,
    /// It is held where it is, until it is seen whether it lies well.
    Trial,
    /// The kernel moves its pages.
    Left,
    /// It is held where it is.
    Held,
}

/// A region that is to be sampled by the kernel.
#[derive(Debug, Default)]
pub(super) struct Hinted {
    stage: Stage,
    /// What the program was told while it is held, from the first page on.
    runs: Vec<(u32, Option<Node>)>,
    /// Pages that are there, as far as is known.
    there: u32,
    /// Samples in this stage, since several nodes use it.
    samples: u64,
    /// Of these, since the last pass of the scanner was over.
    of_pass: u64,
    /// Answers that are waited for.
    asked: u32,
    wait_ns: u64,
    /// What a pass has made of it is not looked at before.
    rests_until_ns: u64,
    /// First touches since the last look.
    news: u32,
    /// It is to be told what has changed.
    tells: bool,
    /// Some of what it was told could not be done.
    refused: bool,
    /// How often it was told again for that.
    retries: u32,
    /// The look that is due.
    look: Option<(u64, u64)>,
}

impl Hinted {
    /// A look is due, or under way.
    fn looks(&self) -> bool {
        self.look.is_some() || self.asked > 0
    }

    /// There were so many passes in this stage that it is held for good.
    fn had_its_time(&self) -> bool {
        self.samples >= PASSES * u64::from(self.there)
    }

    /// A page was touched. When so many were as make a pass of the scanner, or a part of one, it is
    /// looked what came of it, unless one node alone uses the region.
    pub(super) fn sampled(
        &mut self,
        now_ns: u64,
        of: (Object, u32),
        users: Sharing,
        hints: &mut Hints,
    ) {
        self.samples += 1;
        self.of_pass += 1;
        match self.stage {
            // Some of the pass may have come before it was known that several nodes use the region.
            Stage::Trial if self.of_pass >= u64::from(self.there - self.there / MISSING) => {
                self.of_pass = 0;
                hints.set(now_ns, of, Step::Judge);
            }
            Stage::Left
                if users == Sharing::Several && self.of_pass > u64::from(self.there / LOOKS) =>
            {
                self.look_by(now_ns.max(self.rests_until_ns), of, hints);
            }
            _ => {}
        }
    }

    /// A look is due then at the latest, unless one is under way.
    fn look_by(&mut self, due_ns: u64, of: (Object, u32), hints: &mut Hints) {
        if self.asked > 0
            || self
                .look
                .is_some_and(|(already_ns, _)| already_ns <= due_ns)
        {
            return;
        }
        if let Some(key) = self.look.take() {
            hints.due.remove(&key);
        }
        self.look = Some(hints.set(due_ns, of, Step::Inspect));
    }

    /// It is another matter from now on.
    fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        self.samples = 0;
        self.of_pass = 0;
        self.retries = 0;
        self.wait_ns = LOOK_NS;
    }
}

impl Hints {
    pub(super) fn new(cpus: usize) -> Hints {
        Hints {
            cpus: cpus.clamp(1, CPUS_MAX) as u64,
            due: BTreeMap::new(),
            count: 0,
            stale: Vec::new(),
            shared: Vec::new(),
            live: 0,
        }
    }

    /// How long a region of so many pages rests between two looks.
    fn rest_ns(&self, pages: u32) -> u64 {
        let alone_ns = u64::from(pages) * LOOK_PER_PAGE_NS;
        alone_ns.min(REST_NS.max(alone_ns / self.cpus))
    }

    /// `of`: a region, and which of those with its number it is.
    fn set(&mut self, due_ns: u64, of: (Object, u32), step: Step) -> (u64, u64) {
        let key = (due_ns, self.count);
        self.due.insert(key, (of.0, of.1, step));
        self.count += 1;
        key
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due.keys().next().map(|&(due_ns, _)| due_ns)
    }

    /// Whether the kernel samples anything.
    pub(super) fn is_live(&self) -> bool {
        self.live > 0
    }

    /// Pages of a region have moved.
    pub(super) fn moved(&mut self, object: Object) {
        self.stale.push(object);
    }

    /// A second node has come to a region.
    pub(super) fn shared(&mut self, object: Object) {
        self.shared.push(object);
    }

    /// A region is no longer sampled.
    pub(super) fn end(&mut self, region: &TrackedRegion) {
        self.live -= usize::from(region.hinted.is_some());
    }
}

impl PlacementController {
    /// A region is to be sampled by the kernel.
    pub(super) fn hint(&mut self, now_ns: u64, object: Object) {
        let generation = self.generations[object.index()];
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(region), Some(hints)) = (region, hints) {
            hints.live += 1;
            let look = hints.set(now_ns + LOOK_NS, (object, generation), Step::Inspect);
            region.hinted = Some(Hinted {
                wait_ns: LOOK_NS,
                look: Some(look),
                ..Hinted::default()
            });
        }
    }

    /// A page that nobody knew of was touched. When all that were missing have come it is asked
    /// where they are; when many came later, after a while.
    pub(super) fn unknown_touched(&mut self, now_ns: u64, object: Object) {
        let generation = self.generations[object.index()];
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let Some(region) = region else { return };
        let (Some(hinted), Some(hints)) = (&mut region.hinted, hints) else {
            return;
        };
        hinted.news += 1;
        let missing = region.left.saturating_sub(hinted.there + hinted.news);
        if hinted.stage == Stage::Filling && missing == region.left / MISSING {
            hinted.look_by(now_ns, (object, generation), hints);
        } else if !hinted.looks() && hinted.news > region.left / MISSING {
            let due_ns = now_ns + LOOK_MAX_NS;
            hinted.look = Some(hints.set(due_ns, (object, generation), Step::Inspect));
        }
    }

    /// Several nodes use a region that one has filled: what was seen so far says nothing of that,
    /// and it is the kernel's unless it is still being filled or on trial.
    fn begin_anew(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let region = self.tracked[object.index()].as_mut();
        let Some(hinted) = region.and_then(|region| region.hinted.as_mut()) else {
            return;
        };
        match hinted.stage {
            Stage::Left | Stage::Held => self.leave(now_ns, object, out),
            stage => hinted.begin(stage),
        }
    }

    /// Leaves a region to the kernel.
    fn leave(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let generation = self.generations[object.index()];
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let (Some(region), Some(hints)) = (region, hints) else {
            return;
        };
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        hinted.begin(Stage::Left);
        let held = !std::mem::take(&mut hinted.runs).is_empty();
        if !hinted.looks() {
            hinted.look = Some(hints.set(now_ns + LOOK_NS, (object, generation), Step::Inspect));
        }
        if held {
            out.push(region.given_back(self.page_bytes));
        }
    }

    /// A pass over a region that is held at first is over: does it lie well?
    fn judge_trial(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let well = self.lies_well(object);
        let region = self.tracked[object.index()].as_mut();
        let hinted = region.and_then(|region| region.hinted.as_mut());
        let Some(hinted) = hinted.filter(|hinted| hinted.stage == Stage::Trial) else {
            return;
        };
        match well {
            Some(false) => self.leave(now_ns, object, out),
            None if !hinted.had_its_time() => {}
            _ => hinted.begin(Stage::Held),
        }
    }

    /// Whether a region lies well, if it was seen in phases that have half of the time.
    fn lies_well(&mut self, object: Object) -> Option<bool> {
        let region = self.tracked[object.index()].as_ref()?;
        let program = self.counting.as_mut()?.programs.get_mut(&region.pid)?;
        let home = |block| self.model.home(block);
        let lies = program
            .estimates
            .lies(region.base, &home, &program.phases)?;
        let enough = WELL * (lies.by_chance + lies.best) / 2.0;
        (lies.of_time >= COVERED).then_some(lies.local >= enough)
    }

    /// Does what is due.
    pub(super) fn hints_due(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let shared = hints.map_or_else(Vec::new, |hints| std::mem::take(&mut hints.shared));
        for object in shared {
            self.begin_anew(now_ns, object, out);
        }
        loop {
            let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
            let Some(hints) = hints else { return };
            for object in std::mem::take(&mut hints.stale) {
                let region = self.tracked[object.index()].as_mut();
                let pages = region.as_ref().map_or(0, |region| u64::from(region.pages));
                let hinted = region.and_then(|region| region.hinted.as_mut());
                // Before the first policy there is none to change.
                let told = |hinted: &&mut Hinted| !hinted.runs.is_empty() && !hinted.tells;
                if let Some(hinted) = hinted.filter(told) {
                    hinted.tells = true;
                    let due_ns = now_ns + pages * TELL_PER_PAGE_NS;
                    hints.set(
                        due_ns,
                        (object, self.generations[object.index()]),
                        Step::Tell,
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
                Step::Inspect => self.look_where(now_ns, (object, generation), out),
                Step::Judge => self.judge_trial(now_ns, object, out),
                Step::Tell => self.tell_again(now_ns, object, out),
            }
        }
    }

    /// Asks where the pages of a region are.
    fn look_where(&mut self, now_ns: u64, look: Inspection, out: &mut Vec<Decision>) {
        let region = self.tracked[look.0.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        let (Some(region), Some(hints)) = (region, hints) else {
            return;
        };
        let (pid, start, pages) = (region.pid, region.start, region.pages);
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        let pieces = pages.div_ceil(ASKED);
        hinted.look = None;
        hinted.asked = pieces;
        hinted.rests_until_ns = now_ns + hints.rest_ns(pages);
        hinted.news = 0;
        for first in (0..pieces).map(|piece| piece * ASKED) {
            let ranges = vec![PageRange {
                start: start + u64::from(first) * self.page_bytes,
                pages: ASKED.min(pages - first),
            }];
            self.locate(pid, ranges, Some(look), out);
        }
    }

    /// The kernel has said where some pages are.
    pub(super) fn looked(
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
        let is_left = hinted.is_some_and(|of| of.stage == Stage::Left && of.asked == 1);
        let well = is_left.then(|| self.lies_well(object)).flatten();
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let home = |page: u32| self.model.home(Block(region.base + page));
        let homes: Vec<Option<Node>> = (0..region.pages).map(home).collect();
        let there = homes.iter().flatten().count() as u32;
        let missing = region.left.saturating_sub(there);
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        hinted.asked -= 1;
        if hinted.asked > 0 {
            return;
        }
        let filled = there > 0 && there == hinted.there || missing <= region.left / MISSING;
        let over = hinted.of_pass > u64::from(there / LOOKS);
        let stage = hinted.stage;
        hinted.there = there;
        if stage == Stage::Left && filled && region.users != Sharing::Several {
            // There is nothing to be had from holding it. Who comes has it looked at again.
            return;
        }
        let done = match stage {
            Stage::Filling if there > 0 && !lies_in_parts(&homes) => {
                self.leave(now_ns, object, out);
                return;
            }
            Stage::Filling => filled,
            Stage::Left => {
                if over {
                    hinted.of_pass = 0;
                }
                filled && (hinted.had_its_time() || over && well == Some(true))
            }
            Stage::Trial | Stage::Held => true,
        };
        if done {
            self.hold(now_ns, object, out);
            return;
        }
        let region = self.tracked[object.index()].as_mut();
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(hinted), Some(hints)) = (region.and_then(|of| of.hinted.as_mut()), hints) {
            if filled {
                // The next pass.
                return;
            }
            let wait_ns = hinted.wait_ns;
            hinted.wait_ns = (wait_ns * 2).min(LOOK_MAX_NS);
            hinted.look = Some(hints.set(now_ns + wait_ns, (object, generation), Step::Inspect));
        }
    }

    /// Has a region held where it is.
    fn hold(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let region = self.tracked[object.index()].as_mut();
        if let Some(hinted) = region.and_then(|region| region.hinted.as_mut()) {
            match hinted.stage {
                Stage::Left if hinted.had_its_time() => hinted.begin(Stage::Held),
                Stage::Filling | Stage::Left => hinted.begin(Stage::Trial),
                Stage::Trial | Stage::Held => {}
            }
        }
        self.tell(now_ns, object, out);
    }

    /// Has the program give the runs of a region their policies, where they have changed.
    fn tell(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let home = |page: u32| Some(self.model.home(Block(region.base + page)));
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
        if !changed.is_empty() && !hinted.looks() {
            let wait_ns = LOOK_NS.max(hints.rest_ns(region.pages));
            let generation = self.generations[object.index()];
            hinted.look = Some(hints.set(now_ns + wait_ns, (object, generation), Step::Inspect));
        }
        for (first, pages, node) in changed {
            out.push(Decision::Hint {
                pid: region.pid,
                start: region.start + u64::from(first) * self.page_bytes,
                length: u64::from(pages) * self.page_bytes,
                node: node.map(|node| self.model.kernel_number(node)),
            });
        }
    }

    /// A program has given a range the policy, or could not. The kernel says no for want of
    /// mappings, or to a program that was confined meanwhile; and orders wait where there is room
    /// for so many. Then what was told before holds, and it is told again later where that may
    /// help.
    pub(super) fn hinted(&mut self, now_ns: u64, pid: u32, (start, end): (u64, u64), error: u32) {
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
            if !std::mem::replace(&mut hinted.tells, true) {
                let of = (object, self.generations[object.index()]);
                let wait_ns = LOOK_MAX_NS << hinted.retries.min(RETRIES_MAX);
                hinted.retries += 1;
                hints.set(now_ns + wait_ns, of, Step::Tell);
            }
        }
    }

    /// Tells the program what has changed, or was refused.
    fn tell_again(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let Some(hinted) = &mut region.hinted else {
            return;
        };
        hinted.tells = false;
        let refused = std::mem::take(&mut hinted.refused);
        match hinted.stage {
            Stage::Trial | Stage::Held => {
                if refused {
                    hinted.runs.clear();
                }
                self.tell(now_ns, object, out);
            }
            Stage::Left if refused => out.push(region.given_back(self.page_bytes)),
            Stage::Filling | Stage::Left => {}
        }
    }

    /// Gives a region back to the kernel.
    pub(super) fn unhint(&mut self, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let hints = self.counting.as_mut().and_then(|of| of.hints.as_mut());
        if let (Some(_), Some(hints)) = (&region.hinted, hints) {
            hints.end(region);
            region.hinted = None;
            out.push(region.given_back(self.page_bytes));
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

/// Whether pages are on several nodes, each with its part of them.
fn lies_in_parts(homes: &[Option<Node>]) -> bool {
    let mut of_node: FxHashMap<Node, usize> = FxHashMap::default();
    for &node in homes.iter().flatten() {
        *of_node.entry(node).or_default() += 1;
    }
    let there: usize = of_node.values().sum();
    let most = of_node.values().max().map_or(0, |&most| most);
    let pairs = || homes.windows(2).filter(|pair| pair[0].is_some());
    let apart = pairs().filter(|pair| pair[0] != pair[1]).count();
    (there - most) * PART >= there && apart * PART <= there
}

/// Where runs differ from what they were: first page, pages, and what they are now.
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
    fn large_regions_rest_by_all_cpus_between_two_looks() {
        let rest_ms = |cpus, pages| Hints::new(cpus).rest_ns(pages) / 1_000_000;
        assert_eq!([1, 4, 64].map(|cpus| rest_ms(cpus, 4_000)), [80; 3]);
        let gib = 1 << 18;
        assert_eq!(
            [1, 4, 64].map(|cpus| rest_ms(cpus, gib)),
            [5_242, 1_310, 327]
        );
        assert_eq!(rest_ms(16, 16_000), 100);
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
