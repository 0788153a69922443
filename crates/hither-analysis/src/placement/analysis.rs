//! The placements of `hither advise` and of a report: simulated where nodes are named or known,
//! with advice, tables and JSON.

use std::sync::Arc;

use hither_sim::placement::{Binding, PlacementOutcome};
use hither_sim::{References, Size};
use hither_trace::Trace;
use serde_json::json;

use super::advice::{PlacementAdvice, advise};
use super::case::{PlacementCase, PlacementRequest, RunSettings, cases};
use super::data_kind::{data_kind, default_placements, placements_or_default};
use super::document::document;
use super::run::{RunControl, run};
use super::setup::PlacementSetup;
use super::table::{case_results, table};
use crate::Result;
use crate::progress::Progress;
use crate::run_plan::RunPlan;
use crate::topology;

/// Placements that were simulated, if any.
pub struct PlacementAnalysis {
    /// The settings of the runs.
    pub running: RunSettings,
    binding: Binding,
    /// The cases that were simulated. It is empty where no nodes are named or known.
    pub cases: Vec<PlacementCase>,
    /// The outcome of each case, in the same order.
    pub outcomes: Vec<PlacementOutcome>,
    /// The advice for each topology and size.
    advice: Vec<PlacementAdvice>,
}

impl PlacementAnalysis {
    /// Simulates placements on the nodes that are named, or else on the trace's own nodes if it has
    /// several. Each outcome keeps at most `moves` of its moves.
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
        let nodes = if named {
            placing.nodes.clone()
        } else if trace.nodes() > 1 {
            vec![Arc::new(topology::recorded(trace))]
        } else {
            Vec::new()
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
            sizes: if named { sizes.to_vec() } else { Vec::new() },
            policies: Vec::new(),
        };
        let block_bytes = u64::from(trace.options().block_bytes);
        placed.cases = cases(&request, block_bytes, trace.blocks_of_all())?;
        let runs = trace.references() as u64 * placed.cases.len() as u64;
        let bar = progress.begin("placing", Some(runs));
        let control = RunControl {
            progress: Some(&|done| bar.set_position(done)),
            cancel: progress.cancelled(),
        };
        placed.outcomes = run(trace, &placed.cases, &placed.running, moves, control)?;
        drop(bar);
        let results = case_results(&placed.cases, &placed.outcomes);
        placed.advice = advise(&results, block_bytes);
        Ok(placed)
    }

    /// The advice in words.
    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        self.advice.iter().flat_map(|advice| &advice.sentences)
    }

    /// The settings for `hither run`: those of the topology and size that gain most.
    pub fn plan(&self) -> Option<RunPlan> {
        let mut advice: Vec<&PlacementAdvice> = self.advice.iter().collect();
        advice.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        advice.into_iter().find_map(PlacementAdvice::plan)
    }

    /// The results as text, a table for each topology and size.
    pub fn table(&self, block_bytes: u64) -> String {
        let results = case_results(&self.cases, &self.outcomes);
        table(&results, self.binding, block_bytes)
    }

    /// Adds the fields `placement`, the advice, and `placements`, the results, if there are any.
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
