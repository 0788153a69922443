//! UPM: user-level dynamic page migration. At the end of each iteration of a program, the counts of
//! accesses by page and node describe its whole access pattern; then pages move, all at once, to
//! where they are used.
//!
//! Source: Nikolopoulos, Papatheodorou, Polychronopoulos, Labarta and Ayguadé, "A case for
//! user-level dynamic page migration", ICS 2000, sections 3 and 4. Readings chosen where several
//! are possible:
//!
//! - *Counters accumulate over iterations* (`history=1`), as the hardware's do: section 3.2 speaks
//!   of counts that increase linearly with the iterations, of obsolete history, and of waiting
//!   until enough was collected. A page whose remote accesses cost little moves once they have cost
//!   as much as the migration, which makes the criterion competitive. With `history=0` each
//!   iteration is judged by itself.
//! - `c(h)` counts every node with more accesses than the home, including the candidate itself.
//! - *A page freezes* when the competitive criterion would return it to its previous home, whatever
//!   the criterion of its last migration; cycles of three nodes go unnoticed, as the paper says of
//!   BT (section 5.4). Figure 1 applies the prevention to the predictive criterion, section 3.3 to
//!   the competitive one only; here it is the latter. A predictive migration clears the past of its
//!   page: its counters, its previous home and its freezing.
//! - *The predictive criterion* also takes over when the number of threads changed (sections 3.2
//!   and 5.5). Then a page may follow to any node, because the work went to threads that need not
//!   have moved. When no page satisfies it any more, the competitive criterion is applied in the
//!   same invocation.
//! - *Selectiveness* is raised by the factor `tune`, which the paper does not give, and never
//!   lowered.
//! - *Hot areas* are all objects.
//! - *The periodic mode* adds up what each period counted, and examines `visit` pages a period,
//!   taking areas in turn. With `history=0` the counters of a page start again at zero when it was
//!   examined. It has no iterations to compare, and so no predictive criterion. The paper lets the
//!   runtime tune the period and does not say how. With `adapt=1` an invocation that finds no
//!   candidate doubles the time to the next one, up to 64 periods, and one that finds any sets it
//!   back to one. The number of pages is the user's.
//! - *In a mix of programs* each has its own iterations, threads and criteria, as if linked with
//!   its own copy of the runtime.
//! - *In a running program* the counts are estimates from samples: conservative rather than
//!   complete, and with their own history. So each iteration is judged by itself, and none is
//!   skipped (the sampler knows what was seen before several nodes used a page). No area is tuned
//!   by what may be noise, and none is cold; the sampler itself samples less where nothing comes of
//!   it. More accesses than an iteration ago may be noise as well: a page follows only to a node
//!   that has more of its accesses than its home. Samples move with threads, so an iteration that
//!   ends before moved threads have stayed long enough is put off, once: otherwise the competitive
//!   criterion would decide what the predictive one is for. The cost of a migration is measured.
//! - A separate thread does the work, overlapped with the program's (section 4): observation costs
//!   nothing here.

mod areas;
mod config;
mod criteria;
mod movers;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::counters::Counters;
use super::entry::{Build, EpochNeeds, PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Epoch, EpochKind, Region, RegionTier};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Values};
use crate::ids::{Block, Node, Object, Process};
use areas::Areas;
use config::{PARAMS, UpmConfig};
use criteria::Bar;
use movers::Movers;
use replay::{Replay, Step};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "upm",
    summary: "at the end of each iteration, to where remote accesses cost more than a move",
    source: "Nikolopoulos et al., ICS 2000",
    params: PARAMS,
    needs: Needs {
        objects: true,
        processes: true,
        ..Needs::NOTHING
    },
    epochs: EpochNeeds {
        counts: true,
        period_ns: config::period_ns,
    },
    live: &[Mechanism::FilePlacement, Mechanism::Memory],
    compared: Compared::Everywhere(3),
    build: Build::Memory(&build),
};

/// Builds the policy.
fn build(settings: &PlacementSettings<'_>, values: &Values) -> Box<dyn MemoryPlacement> {
    let config = UpmConfig::of(values, settings.sampled);
    let nodes = settings.topology.nodes();
    Box::new(Upm {
        initial: settings.initial(values, 0),
        programs: Vec::new(),
        last: Vec::new(),
        areas: Areas::new(nodes, settings.blocks),
        // A trace without iterations accumulates its periods, whatever the parameters say.
        sums: Counters::new(nodes, settings.blocks),
        pause: Pause::default(),
        config,
        nodes,
        pages: vec![PageHistory::default(); settings.blocks as usize],
        early: false,
        statistics: UpmStatistics::default(),
        asked: VecDeque::new(),
        visiting: Vec::new(),
        steps: Vec::new(),
    })
}

struct Upm {
    config: UpmConfig,
    nodes: usize,
    initial: Box<dyn MemoryPlacement>,
    areas: Areas,
    /// By process.
    programs: Vec<UpmProgram>,
    /// Counts of each program's last iteration, for the predictive criterion: by process, or one
    /// table for all where no two have a page in common, as for running programs.
    last: Vec<Counters>,
    /// Counts since the start, or since a page was last examined; unused where each iteration is
    /// judged by itself.
    sums: Counters,
    pause: Pause,
    pages: Vec<PageHistory>,
    /// Whether the invocation is one of the program's first two.
    early: bool,
    statistics: UpmStatistics,
    /// Migrations asked for that have no outcome yet.
    asked: VecDeque<PendingMove>,
    /// Scratch: pages that a period examines, and what replay asks for.
    visiting: Vec<Block>,
    steps: Vec<Step>,
}

/// The state of one program.
struct UpmProgram {
    movers: Movers,
    replay: Replay,
    /// Whether the predictive criterion is in use.
    following: bool,
    /// Iterations that ended.
    iterations: u64,
    /// The last iteration was not judged, because threads had just moved.
    put_off: bool,
}

impl UpmProgram {
    /// A new program, with tables for no blocks.
    fn new(nodes: usize, config: &UpmConfig) -> UpmProgram {
        UpmProgram {
            movers: Movers::new(nodes, config.stay),
            replay: Replay::new(nodes, 0, config.replay),
            following: false,
            iterations: 0,
            put_off: false,
        }
    }
}

/// The periods that pass without an invocation (`adapt`).
struct Pause {
    /// Periods from an invocation to the next.
    length: u64,
    left: u64,
}

/// The most periods from an invocation to the next.
const PAUSE_MAX: u64 = 64;

impl Default for Pause {
    fn default() -> Pause {
        Pause { length: 1, left: 0 }
    }
}

impl Pause {
    /// Whether the period that ended has no invocation.
    fn passes(&mut self) -> bool {
        let passes = self.left > 0;
        self.left -= u64::from(passes);
        passes
    }

    /// An invocation found candidates or none.
    fn examined(&mut self, found: bool) {
        self.length = if found {
            1
        } else {
            (self.length * 2).min(PAUSE_MAX)
        };
        self.left = self.length - 1;
    }
}

/// What the paper keeps of a page that was selected: its previous home, and whether it is frozen.
#[derive(Clone, Copy, Default)]
struct PageHistory {
    previous: Option<Node>,
    frozen: bool,
}

struct PendingMove {
    block: Block,
    from: Node,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Competitive,
    Predictive,
    Replay,
}

#[derive(Default)]
struct UpmStatistics {
    invocations: u64,
    candidates: u64,
    migrated: u64,
    first_two: u64,
    predicted: u64,
    frozen: u64,
    replayed: u64,
    refused: u64,
    tuned: u64,
    cold: u64,
}

impl Upm {
    fn ask(&mut self, block: Block, from: Node, to: Node, why: Why, out: &mut Vec<Action>) {
        self.asked.push_back(PendingMove { block, from, why });
        out.push(Action::Migrate { block, to });
    }

    /// The program of a process, which may not have touched a page yet.
    fn program(&mut self, process: Process) -> &mut UpmProgram {
        let fresh = || UpmProgram::new(self.nodes, &self.config);
        let programs = self.programs.len().max(process.index() + 1);
        self.programs.resize_with(programs, fresh);
        // Tables are allocated only for programs with epochs: most processes have none.
        let blocks = self.pages.len() as u32;
        if self.config.predictive {
            let table = self.last_of(process);
            let tables = self.last.len().max(table + 1);
            let fresh = || Counters::new(self.nodes, 0);
            self.last.resize_with(tables, fresh);
            self.last[table].grow(blocks);
        }
        let program = &mut self.programs[process.index()];
        program.replay.grow(blocks);
        program
    }

    /// The index of a program's table in the tables of last iterations.
    fn last_of(&self, process: Process) -> usize {
        if self.config.sampled {
            0
        } else {
            process.index()
        }
    }

    fn iteration(
        &mut self,
        process: Process,
        counts: &Counters,
        nodes: &Nodes,
        out: &mut Vec<Action>,
    ) {
        let (skip, predictive) = (self.config.skip, self.config.predictive);
        let sampled = self.config.sampled;
        let program = self.program(process);
        let put_off = sampled && predictive && program.movers.wait() && !program.put_off;
        program.put_off = put_off;
        if put_off {
            return;
        }
        program.iterations += 1;
        if program.iterations <= skip {
            program.movers.restart();
        } else {
            self.invocation(process, counts, nodes, out);
        }
        if predictive {
            let table = self.last_of(process);
            let last = &mut self.last[table];
            // Estimates that have not changed are not reported again.
            if sampled {
                counts.touched().iter().for_each(|&block| last.reset(block))
            } else {
                last.clear()
            }
            last.add_all(counts);
        }
    }

    fn invocation(
        &mut self,
        process: Process,
        counts: &Counters,
        nodes: &Nodes,
        out: &mut Vec<Action>,
    ) {
        self.statistics.invocations += 1;
        self.early = self.programs[process.index()].iterations <= self.config.skip + 2;
        if self.config.history {
            self.sums.add_all(counts);
        }
        let at = process.index();
        let program = &mut self.programs[at];
        if program.movers.take_triggered() && self.config.predictive {
            program.following = true;
            program.replay.forget();
            self.areas.wake(process);
        }
        if self.programs[at].following {
            self.programs[at].following = self.predict(process, counts, nodes, out);
        }
        if !self.programs[at].following {
            self.programs[at].movers.followed();
            self.compete(process, counts, nodes, out);
        }
        let replay = &mut self.programs[at].replay;
        replay.iteration_ended(counts, nodes, self.config.judge(nodes), &mut self.steps);
        self.replay_steps(nodes, out);
    }

    /// Whether any page satisfies the predictive criterion.
    fn predict(
        &mut self,
        process: Process,
        counts: &Counters,
        nodes: &Nodes,
        out: &mut Vec<Action>,
    ) -> bool {
        let program = &self.programs[process.index()];
        let last = &self.last[self.last_of(process)];
        let asked = out.len();
        for &block in counts.touched() {
            let Some(home) = nodes.home(block) else {
                continue;
            };
            let (now, before) = (counts.of(block), last.of(block));
            let sure = |to: &Node| !self.config.sampled || now[to.index()] > now[home.index()];
            let to = criteria::predictive(now, before, home, program.movers.to());
            if let Some(to) = to.filter(sure) {
                self.asked.push_back(PendingMove {
                    block,
                    from: home,
                    why: Why::Predictive,
                });
                out.push(Action::Migrate { block, to });
            }
        }
        let candidates = out.len() - asked;
        self.statistics.candidates += candidates as u64;
        candidates > 0
    }

    fn compete(
        &mut self,
        process: Process,
        counts: &Counters,
        nodes: &Nodes,
        out: &mut Vec<Action>,
    ) {
        for &block in counts.touched() {
            if !self.programs[process.index()].replay.owns(block) {
                self.consider(block, Some(counts), nodes, out);
            }
        }
        let finished = self.areas.finish(self.config.tune, self.config.cold);
        self.statistics.tuned += finished.tuned;
        self.statistics.cold += finished.cold;
    }

    fn period(&mut self, counts: &Counters, nodes: &Nodes, out: &mut Vec<Action>) {
        self.sums.add_all(counts);
        if self.pause.passes() {
            return;
        }
        self.statistics.invocations += 1;
        self.early = self.statistics.invocations <= 2;
        let candidates = self.statistics.candidates;
        let mut visiting = std::mem::take(&mut self.visiting);
        self.areas.next(self.config.visit, &mut visiting);
        for &block in &visiting {
            self.consider(block, None, nodes, out);
            if !self.config.history {
                self.sums.reset(block);
            }
        }
        self.visiting = visiting;
        if self.config.adapt {
            self.pause.examined(self.statistics.candidates > candidates);
        }
        let finished = self.areas.finish_passed(self.config.tune, self.config.cold);
        self.statistics.tuned += finished.tuned;
        self.statistics.cold += finished.cold;
    }

    /// The competitive criterion for one page. `counts` are those of the iteration, or `None` in
    /// the periodic mode.
    #[inline]
    fn consider(
        &mut self,
        block: Block,
        counts: Option<&Counters>,
        nodes: &Nodes,
        out: &mut Vec<Action>,
    ) {
        let (Some(area), Some(home)) = (self.areas.visit(block), nodes.home(block)) else {
            return;
        };
        let prices = self.config.prices(nodes, home);
        let counts = counts.unwrap_or(&self.sums);
        if self.config.tune > 1.0 {
            for (node, remote_ns) in prices.remote(counts.of(block), home) {
                self.areas.add(area, node, remote_ns);
            }
        }
        if self.pages[block.index()].frozen {
            return;
        }
        let counts = if self.config.history {
            &self.sums
        } else {
            counts
        };
        let bar = Bar {
            factor: self.areas.factor(area),
            migration_ns: self.config.migration_ns,
        };
        let Some(better) = prices.competitive(counts.of(block), home, bar) else {
            return;
        };
        self.statistics.candidates += 1;
        self.areas.candidate(area);
        let page = &mut self.pages[block.index()];
        if self.config.freeze && page.previous == Some(better.to) {
            page.frozen = true;
            self.statistics.frozen += 1;
        } else {
            self.ask(block, home, better.to, Why::Competitive, out);
        }
    }

    fn replay_steps(&mut self, nodes: &Nodes, out: &mut Vec<Action>) {
        let mut steps = std::mem::take(&mut self.steps);
        for (block, to) in steps.drain(..) {
            let home = nodes.home(block).expect("replay moves what has a home");
            self.ask(block, home, to, Why::Replay, out);
        }
        self.steps = steps;
    }
}

impl Placement for Upm {
    fn grow(&mut self, blocks: u32) {
        self.pages.resize(blocks as usize, PageHistory::default());
        self.sums.grow(blocks);
        self.areas.grow(blocks);
        self.initial.grow(blocks);
    }

    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.areas
            .placed(access.block, access.object, access.process);
        self.initial.place(access, nodes)
    }

    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.initial.on_access(access, from, nodes, out);
    }

    fn on_removed(&mut self, block: Block, at: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.pages[block.index()] = PageHistory::default();
        self.initial.on_removed(block, at, nodes, out);
    }

    fn on_epoch(&mut self, epoch: &Epoch<'_>, nodes: &Nodes, out: &mut Vec<Action>) {
        self.initial.on_epoch(epoch, nodes, out);
        for moved in epoch.thread_migrations {
            self.program(moved.process).movers.moved(moved);
        }
        let Some(process) = epoch.process else {
            self.period(epoch.counts, nodes, out);
            return;
        };
        let program = self.program(process);
        program.movers.poll(epoch.kind, epoch.active_threads);
        if epoch.kind == EpochKind::Construct {
            let judge = self.config.judge(nodes);
            let replay = &mut self.programs[process.index()].replay;
            replay.construct_ended(epoch.counts, nodes, judge, &mut self.steps);
            self.replay_steps(nodes, out);
        } else {
            self.iteration(process, epoch.counts, nodes, out);
        }
    }

    fn on_outcomes(&mut self, outcomes: &[ActionOutcome], _: &Nodes) {
        for outcome in outcomes {
            let asked = self
                .asked
                .pop_front()
                .expect("an outcome of what was asked for");
            debug_assert!(
                matches!(outcome.action, Action::Migrate { block, .. } if block == asked.block)
            );
            if !outcome.done {
                self.statistics.refused += 1;
                continue;
            }
            self.statistics.replayed += u64::from(asked.why == Why::Replay);
            if asked.why == Why::Replay {
                continue;
            }
            self.statistics.migrated += 1;
            self.statistics.first_two += u64::from(self.early);
            let page = &mut self.pages[asked.block.index()];
            if asked.why == Why::Predictive {
                self.statistics.predicted += 1;
                self.sums.reset(asked.block);
                *page = PageHistory::default();
            } else {
                page.previous = Some(asked.from);
            }
        }
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let of = &self.statistics;
        vec![
            ("invocations", of.invocations),
            ("candidates", of.candidates),
            ("migrated", of.migrated),
            ("migrated_in_first_two", of.first_two),
            ("migrated_predictively", of.predicted),
            ("frozen", of.frozen),
            ("refused", of.refused),
            ("replayed", of.replayed),
            ("areas_tuned", of.tuned),
            ("areas_cold", of.cold),
        ]
    }

    fn check(&self, nodes: &Nodes) {
        self.areas.check();
        for program in &self.programs {
            program.replay.check();
        }
        self.initial.check(nodes);
        assert!(self.asked.is_empty(), "an action never had an outcome");
    }
}

impl MemoryPlacement for Upm {
    fn on_region_allocated(&mut self, region: &Region) {
        self.initial.on_region_allocated(region);
    }

    fn on_region_freed(&mut self, object: Object) {
        let (process, blocks) = self.areas.freed(object);
        let table = self.last_of(process);
        let mut last = self.last.get_mut(table);
        let mut program = self.programs.get_mut(process.index());
        for block in blocks {
            self.sums.reset(block);
            if let Some(last) = last.as_mut().filter(|of| block.index() < of.blocks()) {
                last.reset(block);
            }
            if let Some(program) = program.as_mut().filter(|of| of.replay.owns(block)) {
                program.replay.forget();
            }
        }
        self.initial.on_region_freed(object);
    }

    fn on_process_exit(&mut self, process: Process) {
        if let Some(program) = self.programs.get_mut(process.index()) {
            *program = UpmProgram::new(self.nodes, &self.config);
        }
        self.initial.on_process_exit(process);
    }

    fn region_tier(&self, object: Object) -> Option<RegionTier> {
        self.initial.region_tier(object)
    }

    fn needs_first_faults(&self, object: Object) -> bool {
        self.initial.needs_first_faults(object)
    }

    fn set_migration_ns(&mut self, migration_ns: u64) {
        self.config.set_migration_ns(migration_ns);
    }
}
