//! Carries out the actions of a policy, with their costs.

use hither_core::placement::{Action, ActionOutcome};
use hither_core::{Block, Node};

use super::clocks::Waiting;
use super::engine::Engine;
use crate::placement::report::Move;

/// The most rounds of actions in answer to outcomes. Further actions are refused, so that no policy
/// occupies the engine forever.
const ACTION_ROUNDS_MAX: usize = 8;

impl Engine {
    /// Carries out the actions of the policy, and those that it adds in answer to the outcomes.
    pub(super) fn act(&mut self, waiting: Waiting) {
        let mut rounds = 0;
        while !self.out.is_empty() {
            rounds += 1;
            std::mem::swap(&mut self.out, &mut self.running_actions);
            self.outcomes.clear();
            let (mut ns, mut flushes) = (u64::from(self.costs.call_ns), 0);
            for at in 0..self.running_actions.len() {
                let action = self.running_actions[at];
                let cost_ns = if rounds > ACTION_ROUNDS_MAX {
                    None
                } else {
                    self.apply(action)
                };
                if let Some(cost_ns) = cost_ns {
                    ns += cost_ns;
                    flushes += u64::from(cost_ns > 0);
                }
                let done = cost_ns.is_some();
                self.outcomes.push(ActionOutcome { action, done });
            }
            self.running_actions.clear();
            if self.costs.batched {
                flushes = flushes.min(1);
            }
            self.timeline.totals.tlb_shootdowns += flushes;
            ns += flushes * u64::from(self.costs.shootdown_ns);
            let shown_ns = match waiting {
                Waiting::Thread(_) => ns,
                _ => (ns as f64 * (1.0 - self.costs.hidden)).round() as u64,
            };
            self.overhead(ns, shown_ns, waiting);
            self.policy.on_outcomes(&self.outcomes, &self.nodes);
        }
    }

    /// Carries out an action. Returns its cost besides the call and the flush, or `None` if it is
    /// refused.
    fn apply(&mut self, action: Action) -> Option<u64> {
        let page_ns = u64::from(self.costs.page_ns);
        match action {
            Action::Migrate { block, to } => {
                let from = self.nodes.home(block).filter(|&home| home != to);
                let moved = from.and_then(|from| self.migrate(block, from, to));
                self.refused_unless(moved.is_some());
                Some(page_ns + moved?)
            }
            Action::Replicate { block, to } => {
                let from = self.nodes.nearest(block, to).filter(|&near| near != to);
                let from = from.filter(|_| self.nodes.free(to) > 0);
                self.refused_unless(from.is_some());
                let from = from?;
                self.insert(block, to);
                self.timeline.totals.replications += 1;
                Some(page_ns + self.copied(block, from, to, true))
            }
            Action::Drop { block, at } => {
                let held = self.nodes.replicated(block) && self.nodes.holds(block, at);
                held.then(|| self.remove(block, at))?;
                Some(page_ns)
            }
            Action::Promote { block, at } => {
                let replica = self.nodes.holds(block, at) && self.nodes.home(block) != Some(at);
                replica.then(|| self.nodes.promote(block, at))?;
                Some(0)
            }
        }
    }

    fn refused_unless(&mut self, done: bool) {
        self.timeline.totals.refused += u64::from(!done);
    }

    /// Moves an original. If its new home has a replica, nothing is copied.
    fn migrate(&mut self, block: Block, from: Node, to: Node) -> Option<u64> {
        let copy_ns = if self.nodes.holds(block, to) {
            self.nodes.promote(block, to);
            self.remove(block, from);
            0
        } else if self.nodes.free(to) > 0 {
            let old = self.nodes.slot(block, from).expect("it is at home");
            let slot = self.frames.take(to, block);
            self.nodes.migrate(block, to, slot);
            self.frames.release(from, old);
            self.copied(block, from, to, false)
        } else {
            return None;
        };
        self.timeline.totals.migrations += 1;
        Some(copy_ns)
    }

    fn copied(&mut self, block: Block, from: Node, to: Node, replica: bool) -> u64 {
        self.timeline.moved(Move {
            reference: self.done,
            block: block.0,
            from: from.0,
            to: to.0,
            replica,
        });
        self.timeline.totals.bytes_moved += u64::from(self.page_bytes);
        let latency_ns = self.nodes.topology().latency_ns(to, from);
        self.costs.copy_ns(self.page_bytes, latency_ns)
    }

    /// Adds `ns` of overhead, of which threads wait for `shown_ns`.
    pub(super) fn overhead(&mut self, ns: u64, shown_ns: u64, waiting: Waiting) {
        self.timeline.totals.overhead_ns += ns;
        match waiting {
            Waiting::Thread(thread) => self.clocks.pass(thread, shown_ns),
            Waiting::Process(process) => self.clocks.barrier(process, shown_ns),
            Waiting::All => self.clocks.pass_all(shown_ns),
        }
    }
}
