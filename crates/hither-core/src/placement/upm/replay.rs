//! Record and replay: pages that are needed elsewhere during one construct of each iteration are
//! moved before it and back after it.
//!
//! The paper (end of section 2.3) only names the mechanism. What it does here follows the same
//! authors' "Is data distribution necessary in OpenMP?" (SC 2000): one iteration is recorded
//! construct by construct, once the placement has settled, and the competitive criterion is applied
//! to the counts of each construct alone. The most rewarding pages, a limited number for each
//! construct, are moved before it in every later iteration, and moved back when it ends. A move has
//! to pay for the way back, too: it must save twice the migration latency. A page that two
//! successive constructs need on the same node stays there between them.

use super::criteria::Better;
use crate::ids::{Block, Node};
use crate::placement::counters::Counters;
use crate::placement::nodes::Nodes;

/// Invocations before an iteration is recorded: the first two do most of the migrations (paper,
/// table 1).
const SETTLING_INVOCATIONS: u64 = 2;

pub(super) struct Replay {
    /// The most pages moved for a construct.
    pages: usize,
    state: ReplayState,
    /// The current construct, counted from the beginning of the iteration.
    construct: usize,
    /// The counts of the iteration up to the beginning of the construct; kept while recording.
    seen: Counters,
    /// Scratch: the counts of one page in the construct.
    here: Vec<u32>,
    /// For each construct what to move, by block.
    plans: Vec<Vec<Planned>>,
    /// Whether a block is in a plan.
    planned: Vec<bool>,
    /// Blocks that were moved for the current construct, with their homes.
    away: Vec<(Block, Node)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayState {
    /// Invocations until an iteration is recorded.
    Settling(u64),
    Recording,
    Replaying,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    block: Block,
    better: Better,
}

/// A page to move now.
pub(super) type Step = (Block, Node);

impl Replay {
    pub(super) fn new(nodes: usize, blocks: u32, pages: u64) -> Replay {
        let blocks = if pages == 0 { 0 } else { blocks };
        Replay {
            pages: pages as usize,
            state: ReplayState::Settling(SETTLING_INVOCATIONS),
            construct: 0,
            seen: Counters::new(nodes, blocks),
            here: vec![0; nodes],
            plans: Vec::new(),
            planned: vec![false; blocks as usize],
            away: Vec::new(),
        }
    }

    /// Makes room for blocks numbered below `blocks`.
    pub(super) fn grow(&mut self, blocks: u32) {
        if self.pages > 0 {
            self.seen.grow(blocks);
            self.planned.resize(blocks as usize, false);
        }
    }

    /// Whether the page is moved for constructs, so that the competitive criterion leaves it alone.
    #[inline]
    pub(super) fn owns(&self, block: Block) -> bool {
        self.planned.get(block.index()) == Some(&true)
    }

    /// A construct ended; `judge` is the competitive criterion at the cost of two migrations.
    pub(super) fn construct_ended(
        &mut self,
        counts: &Counters,
        nodes: &Nodes,
        judge: impl Fn(&[u32], Node) -> Option<Better>,
        steps: &mut Vec<Step>,
    ) {
        if self.state == ReplayState::Recording {
            self.record(counts, nodes, judge);
        }
        self.construct += 1;
        if self.state == ReplayState::Replaying {
            self.step(nodes, steps);
        }
    }

    /// An iteration ended, and with it the current construct, unless that ended already.
    pub(super) fn iteration_ended(
        &mut self,
        counts: &Counters,
        nodes: &Nodes,
        judge: impl Fn(&[u32], Node) -> Option<Better>,
        steps: &mut Vec<Step>,
    ) {
        if self.pages == 0 {
            return;
        }
        match &mut self.state {
            ReplayState::Settling(1) => self.state = ReplayState::Recording,
            ReplayState::Settling(left) => *left -= 1,
            ReplayState::Recording => {
                self.record(counts, nodes, judge);
                self.seen.clear();
                for planned in self.plans.iter().flatten() {
                    self.planned[planned.block.index()] = true;
                }
                self.state = ReplayState::Replaying;
            }
            ReplayState::Replaying => {}
        }
        self.construct = 0;
        if self.state == ReplayState::Replaying {
            self.step(nodes, steps);
        }
    }

    /// Threads moved: what was recorded no longer holds. Pages stay where they are; the criteria
    /// move them if needed.
    pub(super) fn forget(&mut self) {
        for planned in self.plans.drain(..).flatten() {
            self.planned[planned.block.index()] = false;
        }
        self.seen.clear();
        self.away.clear();
        self.state = ReplayState::Settling(SETTLING_INVOCATIONS);
    }

    fn record(
        &mut self,
        counts: &Counters,
        nodes: &Nodes,
        judge: impl Fn(&[u32], Node) -> Option<Better>,
    ) {
        self.plans.resize(self.construct + 1, Vec::new());
        let plan = &mut self.plans[self.construct];
        for &block in counts.touched() {
            let (now, seen) = (counts.of(block), self.seen.of(block));
            let Some(home) = nodes.home(block).filter(|_| now != seen) else {
                continue;
            };
            for (here, (now, seen)) in self.here.iter_mut().zip(now.iter().zip(seen)) {
                *here = now - seen;
            }
            if let Some(better) = judge(&self.here, home) {
                plan.push(Planned { block, better });
            }
            self.seen.add_row(block, &self.here);
        }
        plan.sort_by(|a, b| {
            let gain = b.better.gain_ns.total_cmp(&a.better.gain_ns);
            gain.then(a.block.cmp(&b.block))
        });
        plan.truncate(self.pages);
        plan.sort_by_key(|planned| planned.block);
    }

    /// Moves the pages of the construct that ended back, and those of the next one there.
    fn step(&mut self, nodes: &Nodes, steps: &mut Vec<Step>) {
        let plan = self
            .plans
            .get(self.construct)
            .map_or(&[][..], Vec::as_slice);
        self.away.retain(|&(block, home)| {
            let at = nodes.home(block);
            // The move was refused, or the page was evicted and placed again: nothing to undo.
            if at.is_none() || at == Some(home) {
                return false;
            }
            let planned = plan.binary_search_by_key(&block, |planned| planned.block);
            let wanted = planned.map_or(home, |found| plan[found].better.to);
            if at != Some(wanted) {
                steps.push((block, wanted));
            }
            wanted != home
        });
        let kept = self.away.len();
        for planned in plan {
            let away = self.away[..kept]
                .iter()
                .any(|&(block, _)| block == planned.block);
            match nodes.home(planned.block) {
                Some(home) if !away && home != planned.better.to => {
                    steps.push((planned.block, planned.better.to));
                    self.away.push((planned.block, home));
                }
                _ => {}
            }
        }
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        for plan in &self.plans {
            assert!(plan.len() <= self.pages, "more pages than allowed");
            assert!(plan.is_sorted_by(|a, b| a.block < b.block));
        }
        assert!(
            self.away.len() <= self.pages,
            "more pages away than allowed"
        );
    }
}
