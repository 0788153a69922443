//! What both engines record while they run: totals, the timeline, iterations, serving nodes, and
//! moves.

use hither_core::Node;

use super::report::{Interval, Move, PlacementOutcome, ProcessTotals, Totals};
use super::{PlacementConfiguration, PlacementOptions};
use crate::references::References;

/// A report in progress.
pub(super) struct Timeline {
    /// Totals since the start.
    pub(super) totals: Totals,
    nodes: usize,
    references: u64,
    /// The first reference after the warm-up.
    warm_end: u64,
    /// Totals and time at the end of the warm-up, once it is over.
    warm_up: Option<(Totals, u64)>,
    parts: u64,
    /// Totals at the end of the last interval, and of the last iteration.
    at_part: Totals,
    at_iteration: Totals,
    timeline: Vec<Interval>,
    iterations: Vec<Interval>,
    traffic: Vec<u64>,
    /// By process. Empty if the engine does not separate them.
    pub(super) processes: Vec<ProcessTotals>,
    moves_max: usize,
    moves: Vec<Move>,
}

impl Timeline {
    /// Starts the report of a run over `references`.
    pub(super) fn new(
        references: &impl References,
        nodes: usize,
        options: &PlacementOptions<'_>,
    ) -> Self {
        Timeline {
            totals: Totals::default(),
            nodes,
            references: references.references(),
            warm_end: options.warm_up.end(references),
            warm_up: None,
            parts: options.intervals as u64,
            at_part: Totals::default(),
            at_iteration: Totals::default(),
            timeline: Vec::with_capacity(options.intervals),
            iterations: Vec::new(),
            traffic: vec![0; nodes * nodes],
            processes: Vec::new(),
            moves_max: options.moves,
            moves: Vec::new(),
        }
    }

    /// The end of the next interval. Lengths are equal; if they do not divide evenly, the first
    /// ones are shorter.
    fn part_end(&self) -> u64 {
        let next = u128::from(self.references) * (self.timeline.len() as u128 + 1);
        match self.parts {
            0 => u64::MAX,
            parts => (next / u128::from(parts)) as u64,
        }
    }

    /// The reference before which [`reached`](Timeline::reached) must be called next.
    pub(super) fn stop(&self) -> u64 {
        match self.warm_up {
            None => self.warm_end.min(self.part_end()),
            Some(_) => self.part_end(),
        }
    }

    /// Whether the warm-up ends before `reference`.
    pub(super) fn warm_up_ends(&self, reference: u64) -> bool {
        self.warm_up.is_none() && reference >= self.warm_end
    }

    /// The run has reached `reference` at this time.
    pub(super) fn reached(&mut self, reference: u64, now_ns: u64, used: impl Fn(Node) -> u32) {
        if self.warm_up_ends(reference) {
            self.warm_up = Some((self.totals, now_ns));
            self.traffic.fill(0);
            for process in &mut self.processes {
                (process.local, process.remote, process.misses) = (0, 0, 0);
            }
        }
        while (self.timeline.len() as u64) < self.parts && reference >= self.part_end() {
            let totals = self.totals.since(&self.at_part);
            self.at_part = self.totals;
            let part = self.interval(reference, now_ns, totals, &used);
            self.timeline.push(part);
        }
    }

    /// An iteration ended at this time.
    pub(super) fn iteration(&mut self, reference: u64, now_ns: u64, used: impl Fn(Node) -> u32) {
        let totals = self.totals.since(&self.at_iteration);
        self.at_iteration = self.totals;
        let iteration = self.interval(reference, now_ns, totals, used);
        self.iterations.push(iteration);
    }

    fn interval(
        &self,
        end: u64,
        end_ns: u64,
        totals: Totals,
        used: impl Fn(Node) -> u32,
    ) -> Interval {
        Interval {
            end,
            end_ns,
            totals,
            used: (0..self.nodes)
                .map(|node| used(Node(node as u16)))
                .collect(),
        }
    }

    /// Records `count` accesses of `by` that `from` served.
    #[inline]
    pub(super) fn served(&mut self, from: Node, by: Node, count: u64) {
        self.traffic[from.index() * self.nodes + by.index()] += count;
    }

    /// A block moved.
    pub(super) fn moved(&mut self, moved: Move) {
        if self.moves.len() < self.moves_max {
            self.moves.push(moved);
        }
    }

    /// The report, after the last [`reached`](Timeline::reached).
    pub(super) fn outcome(
        self,
        configuration: &PlacementConfiguration,
        costs: serde_json::Value,
        end_ns: u64,
        statistics: Vec<(&'static str, u64)>,
    ) -> PlacementOutcome {
        let (warm_up, warm_ns) = self.warm_up.expect("the end of the run was reached");
        PlacementOutcome {
            nodes: configuration.topology.name().to_owned(),
            capacity: configuration.capacity.clone(),
            costs,
            totals: self.totals.since(&warm_up),
            warm_up,
            modelled_time_ns: end_ns - warm_ns,
            timeline: self.timeline,
            iterations: self.iterations,
            traffic: self.traffic,
            processes: self.processes,
            moves: self.moves,
            statistics,
        }
    }
}
