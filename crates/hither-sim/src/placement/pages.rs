//! Pages of memory on the nodes of a machine: accesses, faults, migrations and what they cost.
//!
//! An access stands for `count` cache misses of a thread on a page. The first to a page faults, the policy says where
//! the page goes; the others are local or remote, by the latencies of the topology, and wait where a node's memory is
//! busy (`clocks`). Frames are finite: a node that is full passes a page on to the nearest one that is not, and where
//! all are full the policy's node reclaims a frame (`frames`); a page that was reclaimed comes back from the swap,
//! at a price ([`Costs`]). Policies act on accesses (the thread waits) and at epochs (everybody waits): at the marks of
//! the trace, or by time where it has none.
//!
//! In a trace of several processes each has iterations, counters and barriers of its own. A process's pages (those it
//! touched first) are free again after its last access, as when it ends.
//!
//! Where marks end constructs or iterations, the threads of the process wait for each other. A trace without marks has
//! no barriers, and its modelled time is that of its slowest thread.
//!
//! The cost of an access does not depend on the number of nodes, but for its row of counters, which is what the
//! hardware it stands for has: see `benches/placement.rs`.

mod clocks;
mod costs;
mod frames;
#[cfg(test)]
mod tests;

use hither_core::placement::{
    Action, Counters, Epoch, EpochKind, Mark, Nodes, Of, Outcome as Done, Settings,
};
use hither_core::{Access, Block, Node, Op, Placement, Process, Thread};

use self::clocks::Clocks;
pub use self::costs::{Costs, CostsError};
use self::frames::Frames;
use super::report::{Move, OfProcess, Outcome};
use super::timeline::Timeline;
use super::{Binding, Configuration, Options};
use crate::one_cache::Error;
use crate::references::References;

const BATCH: usize = 8192;

/// Runs a placement of pages over all references.
pub fn run(
    references: &impl References,
    configuration: &Configuration,
    costs: &Costs,
    options: &Options<'_>,
) -> Result<Outcome, Error> {
    configuration.check(references, Of::Memory)?;
    let source = Source::new(references, configuration, options);
    let totals = match configuration.spec.foresight() {
        true => Some(source.totals()?),
        false => None,
    };
    let processes = source.processes()?;
    let policy = configuration.spec.build(&Settings {
        topology: configuration.topology.clone(),
        capacity: &configuration.capacity,
        blocks: references.blocks(),
        block_bytes: references.block_bytes(),
        object_bytes: &references.object_bytes(),
        object_owners: &processes.owners,
        totals: totals.as_ref(),
    });
    drop(totals);
    drive(
        policy,
        &source,
        processes.ends,
        configuration,
        costs,
        options,
    )
}

fn drive(
    policy: Box<dyn Placement>,
    source: &Source<'_, impl References>,
    ends: Vec<End>,
    configuration: &Configuration,
    costs: &Costs,
    options: &Options<'_>,
) -> Result<Outcome, Error> {
    let references = source.references;
    let mut engine = Engine::new(policy, references, configuration, costs, options);
    let mut marks = references.marks().iter().copied().peekable();
    let mut ends = ends.into_iter().peekable();
    let (mut batch, mut start) = (Vec::with_capacity(BATCH), 0);
    let (mut done, end) = (0, references.references());
    loop {
        while let Some(mark) = marks.next_if(|mark| mark.reference <= done) {
            engine.mark(mark);
        }
        while let Some(ended) = ends.next_if(|end| end.reference <= done) {
            engine.ended(ended.process);
        }
        if done == end {
            engine.settle();
        }
        engine.reached(done);
        if done == end {
            break;
        }
        if done == start + batch.len() as u64 {
            options.report(done)?;
            start = done;
            source.fill(start, &mut batch)?;
        }
        let mark = marks.peek().map_or(u64::MAX, |mark| mark.reference);
        let ended = ends.peek().map_or(u64::MAX, |end| end.reference);
        let stop = (start + batch.len() as u64)
            .min(mark)
            .min(ended)
            .min(engine.timeline.stop().max(done + 1));
        engine.drive(&batch[(done - start) as usize..(stop - start) as usize]);
        done = stop;
    }
    options.report(done)?;
    Ok(engine.outcome(configuration))
}

/// The references, each from one of the simulated nodes.
struct Source<'a, R> {
    references: &'a R,
    binding: Binding,
    trace_nodes: usize,
    nodes: usize,
    needs: hither_core::registry::Needs,
}

impl<'a, R: References> Source<'a, R> {
    fn new(references: &'a R, configuration: &Configuration, options: &Options<'_>) -> Self {
        let trace_nodes = references.nodes();
        Source {
            references,
            binding: options.binding.resolved(trace_nodes),
            trace_nodes,
            nodes: configuration.topology.nodes(),
            needs: configuration.spec.needs(),
        }
    }

    fn fill(&self, start: u64, out: &mut Vec<Access>) -> Result<(), Error> {
        self.references.fill(start, BATCH, self.needs, out)?;
        self.binding.bind(self.trace_nodes, self.nodes, out);
        Ok(())
    }

    /// All accesses by page and node.
    fn totals(&self) -> Result<Counters, Error> {
        let mut totals = Counters::new(self.nodes, self.references.blocks());
        self.each(|access| totals.add(access.block, access.node, access.count))?;
        Ok(totals)
    }

    /// Which process is the first to use each object, and when each but the last to end makes its last access. Of a
    /// trace of one process nothing need be read for that.
    fn processes(&self) -> Result<Processes, Error> {
        let all = self.references.processes();
        let mut owners = Vec::new();
        if all <= 1 {
            let ends = Vec::new();
            return Ok(Processes { owners, ends });
        }
        const NOBODY: Process = Process(u32::MAX);
        let mut last = vec![None; all];
        self.each(|access| {
            last[access.process.index()] = Some(access.tick);
            let object = access.object.index();
            if object >= owners.len() {
                owners.resize(object + 1, NOBODY);
            }
            if owners[object] == NOBODY {
                owners[object] = access.process;
            }
        })?;
        let ends = (0..).zip(last).filter_map(|(process, last)| {
            Some(End {
                reference: last? + 1,
                process: Process(process),
            })
        });
        let mut ends: Vec<End> = ends.collect();
        ends.sort_by_key(|end| end.reference);
        ends.pop();
        Ok(Processes { owners, ends })
    }

    fn each(&self, mut each: impl FnMut(&Access)) -> Result<(), Error> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut start = 0;
        while start < self.references.references() {
            self.fill(start, &mut batch)?;
            batch.iter().for_each(&mut each);
            start += batch.len() as u64;
        }
        Ok(())
    }
}

struct Processes {
    /// By object.
    owners: Vec<Process>,
    ends: Vec<End>,
}

/// A process makes its last access before that reference.
#[derive(Clone, Copy)]
struct End {
    reference: u64,
    process: Process,
}

/// Who waits while pages move.
#[derive(Clone, Copy)]
enum Waiting {
    Thread(Thread),
    Process(Process),
    All,
}

struct Engine {
    policy: Box<dyn Placement>,
    nodes: Nodes,
    frames: Frames,
    /// By process, where each has iterations of its own; otherwise all in the first.
    counts: Vec<Counters>,
    by_process: bool,
    /// The pages that each process touched first, where there are several.
    touched: Vec<Vec<Block>>,
    clocks: Clocks,
    timeline: Timeline,
    costs: Costs,
    page_bytes: u32,
    /// Pages that were touched before, and those written since they were last read from the swap.
    seen: Vec<bool>,
    dirty: Vec<bool>,
    /// Free frames of all nodes.
    free: u64,
    /// References made.
    done: u64,
    /// Time between epochs, where they come by time.
    period_ns: Option<u64>,
    next_epoch_ns: u64,
    check: bool,
    out: Vec<Action>,
    acting: Vec<Action>,
    settled: Vec<Done>,
}

impl Engine {
    fn new(
        policy: Box<dyn Placement>,
        references: &impl References,
        configuration: &Configuration,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Engine {
        let (nodes, blocks) = (configuration.topology.nodes(), references.blocks());
        let processes = references.processes();
        let unmarked = references.marks().is_empty() && options.period_ns > 0;
        let period_ns = policy.period_ns().or(unmarked.then_some(options.period_ns));
        let by_process = processes > 1 && period_ns.is_none();
        let several = if processes > 1 { processes } else { 0 };
        let mut timeline = Timeline::new(references, nodes, options);
        timeline.processes = vec![OfProcess::default(); several];
        Engine {
            policy,
            nodes: Nodes::new(
                configuration.topology.clone(),
                configuration.capacity.clone(),
                blocks,
            ),
            frames: Frames::new(nodes, blocks),
            counts: (0..if by_process { processes } else { 1 })
                .map(|_| Counters::new(nodes, blocks))
                .collect(),
            by_process,
            touched: vec![Vec::new(); several],
            clocks: Clocks::new(references.threads(), nodes, costs.service_ns),
            timeline,
            costs: *costs,
            page_bytes: references.block_bytes(),
            seen: vec![false; blocks as usize],
            dirty: vec![false; blocks as usize],
            free: configuration
                .capacity
                .iter()
                .map(|&frames| u64::from(frames))
                .sum(),
            done: 0,
            period_ns,
            next_epoch_ns: period_ns.unwrap_or(u64::MAX),
            check: options.check,
            out: Vec::new(),
            acting: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn drive(&mut self, accesses: &[Access]) {
        for access in accesses {
            self.access(access);
            self.done += 1;
            if self.clocks.now_ns() >= self.next_epoch_ns {
                self.period();
            }
            if self.check {
                self.walk();
            }
        }
    }

    #[inline]
    fn access(&mut self, access: &Access) {
        let Access {
            block,
            node,
            thread,
            count,
            ..
        } = *access;
        self.clocks.seen(access);
        self.nodes.set_now_ns(self.clocks.now_ns());
        let holder = self.nodes.nearest(block, node);
        let (from, missed) = match holder {
            Some(from) => (from, 0),
            None => (self.fault(access), 1),
        };
        let latency_ns = u64::from(self.nodes.topology().latency_ns(node, from));
        let hits = u64::from(count) - missed.min(u64::from(count));
        let hit_ns = hits * latency_ns;
        let totals = &mut self.timeline.totals;
        totals.accesses += hits + missed;
        totals.hit_ns += hit_ns;
        totals.miss_ns += missed * latency_ns;
        if from == node {
            totals.local += hits;
        } else {
            totals.remote += hits;
            totals.hops += hits * u64::from(self.nodes.topology().hops(node, from));
            totals.bytes_moved += (hits + missed) * u64::from(self.costs.line_bytes);
        }
        self.timeline.served(node, from, hits + missed);
        if let Some(of) = self.timeline.processes.get_mut(access.process.index()) {
            of.misses += missed;
            *(if from == node {
                &mut of.local
            } else {
                &mut of.remote
            }) += hits;
        }
        let computed_ns = u64::from(count) * u64::from(self.costs.compute_ns);
        self.clocks
            .pass(thread, hit_ns + missed * latency_ns + computed_ns);
        self.clocks.served(thread, from, count);
        let counts = if self.by_process {
            access.process.index()
        } else {
            0
        };
        self.counts[counts].add(block, node, count);
        self.frames.touch(block);
        if holder.is_some() {
            self.policy.served(access, from, &self.nodes, &mut self.out);
        }
        if access.op == Op::Write {
            self.written(access, from);
        }
        let watched_ns = self.policy.overhead_ns();
        if watched_ns > 0 {
            self.overhead(watched_ns, watched_ns, Waiting::Thread(thread));
        }
        if !self.out.is_empty() {
            self.act(Waiting::Thread(thread));
        }
    }

    /// A write that `served` took goes to every other copy that the policy lets stand.
    fn written(&mut self, access: &Access, served: Node) {
        self.dirty[access.block.index()] = true;
        self.policy.written(access, &self.nodes, &mut self.out);
        if !self.nodes.replicated(access.block) {
            return;
        }
        if !self.out.is_empty() {
            let before = self.copies(access.block);
            self.act(Waiting::Thread(access.thread));
            let after = self.copies(access.block);
            self.timeline.totals.invalidations += before.saturating_sub(after);
        }
        let topology = self.nodes.topology();
        let others = self.nodes.copies(access.block).map(|(node, _)| node);
        let (mut ns, mut bytes) = (0, 0);
        for other in others.filter(|&node| node != served) {
            ns += u64::from(access.count) * u64::from(topology.latency_ns(access.node, other));
            bytes += u64::from(access.count) * u64::from(self.costs.line_bytes);
        }
        self.timeline.totals.bytes_moved += bytes;
        self.timeline.totals.hit_ns += ns;
        self.clocks.pass(access.thread, ns);
    }

    fn copies(&self, block: Block) -> u64 {
        self.nodes.copies(block).count() as u64
    }

    /// Gives a page a frame; returns its node.
    fn fault(&mut self, access: &Access) -> Node {
        let wanted = self.policy.place(access, &self.nodes);
        let at = match self.nodes.free(wanted) {
            0 if self.free == 0 => {
                self.reclaim(wanted, access.block);
                wanted
            }
            0 => {
                let mut near = self.nodes.topology().nearest(wanted).iter().copied();
                near.find(|&node| self.nodes.free(node) > 0)
                    .expect("a node has a free frame")
            }
            _ => wanted,
        };
        self.insert(access.block, at);
        if let Some(touched) = self.touched.get_mut(access.process.index()) {
            touched.push(access.block);
        }
        let again = std::mem::replace(&mut self.seen[access.block.index()], true);
        let fault_ns = u64::from(match again {
            true => self.costs.refault_ns,
            false => self.costs.fault_ns,
        });
        self.timeline.totals.misses += 1;
        self.timeline.totals.miss_ns += fault_ns;
        self.clocks.pass(access.thread, fault_ns);
        at
    }

    fn insert(&mut self, block: Block, at: Node) {
        let slot = self.frames.take(at, block);
        self.nodes.insert(block, at, slot);
        self.free -= 1;
    }

    fn remove(&mut self, block: Block, at: Node) {
        let slot = self.nodes.remove(block, at);
        self.frames.release(at, slot);
        self.free += 1;
        self.policy.gone(block, at, &self.nodes, &mut self.out);
    }

    /// Frees a frame of a full node: of the replica that the policy names, or of what the clock finds.
    fn reclaim(&mut self, at: Node, incoming: Block) {
        let named = self.policy.reclaim(at, incoming, &self.nodes);
        let victim = named.unwrap_or_else(|| self.frames.victim(at));
        self.timeline.totals.evictions += 1;
        let last = !self.nodes.replicated(victim);
        if last && std::mem::take(&mut self.dirty[victim.index()]) {
            self.timeline.totals.write_backs += 1;
        }
        self.remove(victim, at);
    }

    /// Does what the policy asked for, and what it asks for when it hears of that.
    fn act(&mut self, waiting: Waiting) {
        while !self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut self.acting);
            self.settled.clear();
            let (mut ns, mut flushes) = (u64::from(self.costs.call_ns), 0);
            for at in 0..self.acting.len() {
                let action = self.acting[at];
                let cost_ns = self.apply(action);
                if let Some(cost_ns) = cost_ns {
                    ns += cost_ns;
                    flushes += u64::from(cost_ns > 0);
                }
                let done = cost_ns.is_some();
                self.settled.push(Done { action, done });
            }
            self.acting.clear();
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
            self.policy.settled(&self.settled, &self.nodes);
        }
    }

    /// Does one thing and says what it cost besides the call and the flush; `None`: refused.
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

    /// Moves an original; where its new home has a replica, nothing is copied.
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

    /// `ns` of work, for `shown_ns` of which somebody waits.
    fn overhead(&mut self, ns: u64, shown_ns: u64, waiting: Waiting) {
        self.timeline.totals.overhead_ns += ns;
        match waiting {
            Waiting::Thread(thread) => self.clocks.pass(thread, shown_ns),
            Waiting::Process(process) => self.clocks.barrier(Some(process), shown_ns),
            Waiting::All => self.clocks.pass_all(shown_ns),
        }
    }

    /// Adds the waiting for busy memory.
    fn settle(&mut self) {
        self.timeline.totals.hit_ns += self.clocks.settle();
    }

    /// The run is before that reference.
    fn reached(&mut self, reference: u64) {
        if reference >= self.timeline.stop() {
            if self.timeline.warm_up_ends(reference) {
                self.settle();
            }
            let used = |node| self.nodes.used(node);
            self.timeline.reached(reference, self.clocks.now_ns(), used);
        }
    }

    /// A construct or an iteration of a process ended.
    fn mark(&mut self, mark: Mark) {
        self.settle();
        self.clocks.barrier(Some(mark.process), 0);
        if self.period_ns.is_none() {
            self.epoch(mark.kind, Waiting::Process(mark.process));
        }
        if mark.kind == EpochKind::Iteration {
            let used = |node| self.nodes.used(node);
            self.timeline
                .iteration(mark.reference, self.clocks.now_ns(), used);
        }
    }

    /// A process ended: its pages are nobody's.
    fn ended(&mut self, process: Process) {
        self.settle();
        self.timeline.processes[process.index()].end_ns = self.clocks.of_ns(process);
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
    fn period(&mut self) {
        self.settle();
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
        let (moved, threads) = self.clocks.epoch(of);
        let epoch = Epoch {
            kind,
            process,
            counts: &self.counts[counts],
            moved,
            threads,
        };
        self.policy.epoch(&epoch, &self.nodes, &mut self.out);
        let watched_ns = self.policy.overhead_ns();
        if watched_ns > 0 {
            self.overhead(watched_ns, watched_ns, waiting);
        }
        self.act(waiting);
        if kind != EpochKind::Construct {
            self.counts[counts].clear();
            self.clocks.rest(of);
        }
    }

    /// Walks every invariant and panics on a broken one.
    fn walk(&self) {
        self.nodes.check();
        self.policy.check(&self.nodes);
        let blocks = (0..self.nodes.blocks()).map(Block);
        let copies = |block| {
            self.nodes
                .copies(block)
                .map(move |(node, slot)| (block, node, slot))
        };
        self.frames.check(blocks.flat_map(copies));
        let free = self
            .nodes
            .all()
            .map(|node| u64::from(self.nodes.free(node)));
        assert_eq!(free.sum::<u64>(), self.free, "free frames");
        let totals = &self.timeline.totals;
        let kinds = totals.local + totals.remote + totals.misses;
        assert_eq!(kinds, totals.accesses, "local, remote or a miss");
    }

    fn outcome(mut self, configuration: &Configuration) -> Outcome {
        for (number, of) in (0..).zip(&mut self.timeline.processes) {
            if of.end_ns == 0 {
                of.end_ns = self.clocks.of_ns(Process(number));
            }
        }
        let statistics = self.policy.statistics();
        let end_ns = self.clocks.now_ns();
        let costs = serde_json::to_value(self.costs).expect("numbers alone");
        self.timeline
            .outcome(configuration, costs, end_ns, statistics)
    }
}
