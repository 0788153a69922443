//! Results of placements as pictures, and their timeline as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use hither_core::placement::Target;
use hither_sim::placement::{Binding, PlacementOutcome};
use hither_trace::Trace;

use super::case::{CaseResult, PlacementCase, RunSettings};
use super::table;
use crate::file::name_of;
use crate::format::{count, counted, percent, policy, shortened};
use crate::plot::{
    Heatmap, HeatmapPanel, MoveArrow, MovesMap, MovesPanel, NodeLayout, Plot, Timeline,
    TimelineRun, TimelineStep,
};

/// Draws the outcomes of placements.
pub struct Pictures<'a> {
    trace: &'a Trace,
    results: &'a [CaseResult],
    binding: Binding,
    warm_up: u64,
}

impl<'a> Pictures<'a> {
    /// The pictures of these results.
    pub fn of(trace: &'a Trace, results: &'a [CaseResult], running: &RunSettings) -> Pictures<'a> {
        let nodes = hither_sim::References::nodes(trace);
        Pictures {
            trace,
            results,
            binding: running.binding.resolved(nodes),
            warm_up: running.warm_up.end(trace),
        }
    }

    /// All pictures in which there is something: the title and the SVG of each.
    pub fn titles_and_svgs(&self) -> Vec<(String, String)> {
        let titled = |picture: &dyn Plot| (picture.title().to_owned(), picture.svg());
        let moves = self.moves();
        let moves = (!moves.panels.is_empty()).then(|| titled(&moves));
        let mut pictures = vec![titled(&self.heatmap())];
        pictures.extend(moves);
        pictures.push(titled(&self.timeline()));
        pictures
    }

    fn title(&self, what: &str) -> String {
        format!("{what}: {}", shortened(&name_of(self.trace.path()), 50))
    }

    /// The heading that all cases share, if they do, and the trace that they come from.
    fn subtitle(&self) -> String {
        let block_bytes = u64::from(self.trace.options().block_bytes);
        let headings = || {
            self.results
                .iter()
                .map(|result| table::heading(&result.case, self.binding, block_bytes))
        };
        let first = headings().next().unwrap_or_default();
        let shared = if headings().all(|other| other == first) {
            format!("{first}  ·  ")
        } else {
            String::new()
        };
        format!(
            "{shared}{}  ·  trace {}  ·  hither {}",
            counted(self.trace.references_of_all(), "reference"),
            self.trace.sha256().get(..12).unwrap_or("made up"),
            env!("CARGO_PKG_VERSION")
        )
    }

    /// The label of a case: its placement, and the settings by which it differs from other cases.
    fn label(&self, case: &PlacementCase) -> String {
        let own = &case.configuration;
        let differ = |of: &dyn Fn(&PlacementCase) -> String| {
            let mut all = self.results.iter().map(|result| of(&result.case));
            let first = all.next();
            all.any(|other| Some(other) != first)
        };
        let mut label = policy(&own.spec);
        let topology = |case: &PlacementCase| case.configuration.topology.name().to_owned();
        if differ(&topology) {
            label += &format!(", {}", topology(case));
        }
        if differ(&|case: &PlacementCase| case.size.clone()) {
            label += &format!(", {}", case.size);
        }
        let replacement = |case: &PlacementCase| policy(&case.configuration.replacement);
        if differ(&replacement) {
            label += &format!(", {}", replacement(case));
        }
        shortened(&label, 40)
    }

    /// The accesses from each node to each node that served them.
    pub fn heatmap(&self) -> Heatmap {
        let panel = |CaseResult { case, outcome }: &CaseResult| HeatmapPanel {
            label: self.label(case),
            note: format!(
                "{} local, {:.2} hops a hit, imbalance {:.2}",
                percent(outcome.totals.local_hit_ratio()),
                outcome.totals.mean_hops(),
                outcome.node_imbalance()
            ),
            traffic: outcome.traffic.clone(),
        };
        Heatmap {
            title: self.title("Who was served by whom"),
            subtitle: self.subtitle(),
            panels: self.results.iter().map(panel).collect(),
        }
    }

    /// The blocks that moved between nodes.
    pub fn moves(&self) -> MovesMap {
        let panel = |CaseResult { case, outcome }: &CaseResult| {
            let topology = &case.configuration.topology;
            let nodes = topology.nodes();
            let all = outcome.traffic.iter().sum::<u64>().max(1) as f64;
            let served = |node: usize| {
                let column = outcome.traffic.iter().skip(node).step_by(nodes);
                column.sum::<u64>() as f64 / all
            };
            MovesPanel {
                label: self.label(case),
                note: moved(outcome),
                layout: NodeLayout::of(topology),
                served: (0..nodes).map(served).collect(),
                arrows: arrows(outcome),
            }
        };
        let (moving, still): (Vec<&CaseResult>, Vec<&CaseResult>) =
            (self.results.iter()).partition(|result| !result.outcome.moves.is_empty());
        MovesMap {
            title: self.title("Blocks that moved"),
            subtitle: self.subtitle(),
            panels: moving.into_iter().map(panel).collect(),
            still: still
                .into_iter()
                .map(|result| self.label(&result.case))
                .collect(),
        }
    }

    /// The contents of each node and the local hit ratio over time.
    pub fn timeline(&self) -> Timeline {
        let run = |CaseResult { case, outcome }: &CaseResult| TimelineRun {
            label: self.label(case),
            steps: outcome
                .timeline
                .iter()
                .map(|interval| TimelineStep {
                    end: interval.end,
                    local: interval.totals.local_hit_ratio(),
                    moved: interval.totals.migrations + interval.totals.replications,
                    used: interval.used.clone(),
                })
                .collect(),
        };
        let memory = self
            .results
            .iter()
            .all(|result| result.case.target() == Target::Memory);
        Timeline {
            title: self.title("Over time"),
            subtitle: self.subtitle(),
            unit: if memory { "pages" } else { "cached blocks" },
            warm_up: self.warm_up,
            runs: self.results.iter().map(run).collect(),
        }
    }

    /// The timeline as CSV: a line for each interval. The last columns are the nodes, as many as
    /// the largest topology has.
    pub fn timeline_csv(&self) -> String {
        let mut text = String::new();
        let widest = self
            .results
            .iter()
            .map(|result| result.outcome.capacity.len())
            .max()
            .unwrap_or(0);
        let names = |result: &CaseResult| -> Vec<String> {
            let totals = serde_json::to_value(result.outcome.totals).expect("plain data");
            let counts = totals.as_object().expect("a struct");
            counts.keys().cloned().collect()
        };
        let counts = self.results.first().map(names).unwrap_or_default();
        let used = (0..widest).map(|node| format!("used_{node}"));
        let fixed = [
            "placement",
            "nodes",
            "size",
            "policy",
            "end",
            "end_ns",
            "local_hit_ratio",
        ];
        let heads: Vec<String> = fixed
            .map(str::to_owned)
            .into_iter()
            .chain(counts.iter().cloned())
            .chain(used)
            .collect();
        text.push_str(&heads.join(","));
        text.push('\n');
        for CaseResult { case, outcome } in self.results {
            let configuration = &case.configuration;
            for interval in &outcome.timeline {
                // Specs contain commas, so they are quoted. Writing to a string cannot fail.
                let _ = write!(
                    text,
                    "\"{}\",\"{}\",\"{}\",\"{}\",{},{},{}",
                    configuration.spec,
                    outcome.nodes.replace('"', "\"\""),
                    case.size,
                    configuration.replacement,
                    interval.end,
                    interval.end_ns,
                    interval.totals.local_hit_ratio()
                );
                let totals = serde_json::to_value(interval.totals).expect("plain data");
                for name in &counts {
                    let _ = write!(text, ",{}", totals[name]);
                }
                for node in 0..widest {
                    let _ = match interval.used.get(node) {
                        Some(used) => write!(text, ",{used}"),
                        None => write!(text, ","),
                    };
                }
                text.push('\n');
            }
        }
        text
    }
}

/// The number of moves, in words.
fn moved(outcome: &PlacementOutcome) -> String {
    let (totals, warm_up) = (&outcome.totals, &outcome.warm_up);
    let migrations = totals.migrations + warm_up.migrations;
    let replications = totals.replications + warm_up.replications;
    let kept = outcome.moves.len() as u64;
    let first = if kept < migrations + replications {
        format!("; of the first {}", count(kept))
    } else {
        String::new()
    };
    format!(
        "{} migrated, {} replicated{first}",
        count(migrations),
        count(replications)
    )
}

fn arrows(outcome: &PlacementOutcome) -> Vec<MoveArrow> {
    let mut blocks: BTreeMap<(u16, u16, bool), u64> = BTreeMap::new();
    for moved in &outcome.moves {
        *blocks
            .entry((moved.from, moved.to, moved.replica))
            .or_default() += 1;
    }
    let arrow = |((from, to, replica), blocks): ((u16, u16, bool), u64)| MoveArrow {
        from: from.into(),
        to: to.into(),
        replica,
        blocks,
    };
    blocks.into_iter().map(arrow).collect()
}
