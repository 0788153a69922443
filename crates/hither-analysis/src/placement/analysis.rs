//! Placements as a part of a larger answer: run where nodes are named or known, and told in
//! sentences, a table and a document.

use std::sync::Arc;

use hither_sim::placement::{Binding, PlacementOutcome};
use hither_sim::{References, Size};
use hither_trace::Trace;
use serde_json::json;

use super::{
    PlacementAdvice, PlacementCase, PlacementRequest, PlacementSetup, RunControl, RunSettings,
    advise, cases, data_kind, default_placements, document, lines, placements_or_default,
    recorded_topology, run, table,
};
use crate::Result;
use crate::progress::Progress;
use crate::run_plan::RunPlan;

/// Placements that were simulated, if any.
pub struct PlacementAnalysis {
    /// How the runs went.
    pub running: RunSettings,
    binding: Binding,
    /// What was simulated; empty where no nodes are named or known.
    pub cases: Vec<PlacementCase>,
    /// The outcome of each case, in the same order.
    pub outcomes: Vec<PlacementOutcome>,
    /// One for each topology and size.
    advice: Vec<PlacementAdvice>,
}

impl PlacementAnalysis {
    /// Simulates placements on the nodes that are named, or else on those that the trace knows,
    /// where it knows several; keeps up to so many `moves` of each.
    pub fn of(
        trace: &Trace,
        placing: &PlacementSetup,
        sizes: &[Size],
        moves: usize,
        progress: &dyn Progress,
    ) -> Result<PlacementAnalysis> {
        let running = placing.running.clone();
        let mut placed = PlacementAnalysis {
            binding: running.binding.resolved(References::nodes(trace)),
            running,
            cases: Vec::new(),
            outcomes: Vec::new(),
            advice: Vec::new(),
        };
        let named = !placing.nodes.is_empty();
        let nodes = match named {
            true => placing.nodes.clone(),
            false if trace.nodes() > 1 => vec![Arc::new(recorded_topology(trace))],
            false => Vec::new(),
        };
        if nodes.is_empty() || trace.references() == 0 {
            return Ok(placed);
        }
        let request = PlacementRequest {
            nodes,
            placements: placements_or_default(
                &placing.placements,
                &default_placements(data_kind(trace)),
            )?,
            sizes: match named {
                true => sizes.to_vec(),
                false => Vec::new(),
            },
            policies: Vec::new(),
        };
        let block_bytes = u64::from(trace.options().block_bytes);
        placed.cases = cases(&request, block_bytes, trace.blocks_of_all())?;
        let runs = trace.references() as u64 * placed.cases.len() as u64;
        let bar = progress.begin("placing", Some(runs));
        let watch = RunControl {
            progress: Some(&|done| bar.set_position(done)),
            cancel: None,
        };
        placed.outcomes = run(trace, &placed.cases, &placed.running, moves, watch)?;
        drop(bar);
        let lines = lines(&placed.cases, &placed.outcomes);
        placed.advice = advise(&lines, block_bytes);
        Ok(placed)
    }

    /// The advice in words.
    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        self.advice.iter().flat_map(|advice| &advice.sentences)
    }

    /// What `hither run` could apply: of all topologies and sizes, what gains most.
    pub fn plan(&self) -> Option<RunPlan> {
        let mut advice: Vec<&PlacementAdvice> = self.advice.iter().collect();
        advice.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        advice.into_iter().find_map(PlacementAdvice::plan)
    }

    /// The results as text, a table for each topology and size.
    pub fn table(&self, block_bytes: u64) -> String {
        let lines = lines(&self.cases, &self.outcomes);
        table(&lines, self.binding, block_bytes)
    }

    /// Adds `placement`, the advise, and `placements`, the results, where there are any.
    pub fn add_to(&self, out: &mut serde_json::Value, trace: &Trace) {
        if self.cases.is_empty() {
            return;
        }
        let each = self.cases.iter().zip(&self.outcomes);
        let results = each.map(|(case, outcome)| document(case, outcome, &self.running, trace));
        out["placements"] = results.collect();
        out["placement"] = json!(self.advice);
    }
}
