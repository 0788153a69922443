//! Events between accesses: barriers, epochs, the ends of processes, and intervals of the timeline.

use hither_core::Process;
use hither_core::placement::{Epoch, EpochKind, Mark};

use super::clocks::Waiting;
use super::engine::Engine;

impl Engine {
    /// Adds the waits for busy memory and processors, at a barrier of a process or for all.
    pub(super) fn add_waits(&mut self, barrier: Option<Process>) {
        self.timeline.totals.hit_ns += self.clocks.add_waits(barrier);
    }

    /// Handles the events before `reference`.
    pub(super) fn reached(&mut self, reference: u64) {
        if reference >= self.timeline.stop() {
            if self.timeline.warm_up_ends(reference) {
                self.add_waits(None);
            }
            let used = |node| self.nodes.used(node);
            self.timeline.reached(reference, self.clocks.now_ns(), used);
        }
    }

    /// A construct or an iteration of a process ended.
    pub(super) fn mark(&mut self, mark: Mark) {
        self.add_waits(Some(mark.process));
        self.clocks.barrier(mark.process, 0);
        if self.period_ns.is_none() {
            self.epoch(mark.kind, Waiting::Process(mark.process));
        }
        if mark.kind == EpochKind::Iteration {
            let used = |node| self.nodes.used(node);
            let now_ns = self.clocks.of_ns(mark.process);
            self.timeline.iteration(mark.reference, now_ns, used);
        }
    }

    /// A process ended: its pages are freed.
    pub(super) fn ended(&mut self, process: Process) {
        self.add_waits(Some(process));
        self.timeline.processes[process.index()].end_ns = self.clocks.ended(process);
        for block in std::mem::take(&mut self.touched[process.index()]) {
            while let Some(at) = self.nodes.home(block) {
                self.remove(block, at);
            }
            self.seen[block.index()] = false;
            self.dirty[block.index()] = false;
        }
        self.act(Waiting::All);
    }

    #[cold]
    pub(super) fn period(&mut self) {
        self.add_waits(None);
        self.epoch(EpochKind::Period, Waiting::All);
        let period_ns = self.period_ns.unwrap_or(u64::MAX).max(1);
        let passed = self.clocks.now_ns() / period_ns;
        self.next_epoch_ns = (passed + 1).saturating_mul(period_ns);
    }

    fn epoch(&mut self, kind: EpochKind, waiting: Waiting) {
        self.nodes.set_now_ns(self.clocks.now_ns());
        let process = match waiting {
            Waiting::Process(process) => Some(process),
            Waiting::Thread(_) | Waiting::All => None,
        };
        let of = process.filter(|_| self.by_process);
        let counts = of.map_or(0, |process| process.index());
        let (thread_migrations, active_threads) = self.clocks.epoch(of);
        let epoch = Epoch {
            kind,
            process,
            counts: &self.counts[counts],
            thread_migrations,
            active_threads,
        };
        self.policy.on_epoch(&epoch, &self.nodes, &mut self.out);
        let watched_ns = self.policy.take_overhead_ns();
        if watched_ns > 0 {
            self.overhead(watched_ns, watched_ns, waiting);
        }
        self.act(waiting);
        if kind != EpochKind::Construct {
            self.counts[counts].clear();
            self.clocks.rest(of);
        }
    }
}
