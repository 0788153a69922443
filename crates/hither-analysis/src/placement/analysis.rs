//! The placements of `hither advise` and of a report: simulated where nodes are named or known,
//! with advice, tables and JSON.

use std::sync::Arc;

use hither_sim::placement::Binding;
use hither_sim::{References, Size};
use hither_trace::Trace;
use serde_json::json;

use super::advice::{PlacementAdvice, advise};
use super::case::{CaseResult, PlacementRequest, RunSettings, cases};
use super::data_kind::{data_kind, default_placements, placements_or_default};
use super::document::document;
use super::run::{RunControl, run};
use super::setup::PlacementSetup;
use super::table::table;
use crate::Result;
use crate::progress::Progress;
use crate::run_plan::RunPlan;
use crate::topology;

/// Placements that were simulated, if any.
pub struct PlacementAnalysis {
    /// The settings of the runs.
    pub running: RunSettings,
    binding: Binding,
    /// The results. It is empty where no nodes are named or known.
    pub results: Vec<CaseResult>,
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
            results: Vec::new(),
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
            reclaims: placing.running.costs.reclaims(),
        };
        let block_bytes = u64::from(trace.options().block_bytes);
        let cases = cases(&request, block_bytes, trace.blocks_of_all())?;
        let runs = trace.references() as u64 * cases.len() as u64;
        let bar = progress.begin("placing", Some(runs));
        let control = RunControl {
            progress: Some(&|done| bar.set_position(done)),
            cancel: progress.cancelled(),
        };
        placed.results = run(trace, cases, &placed.running, moves, control)?;
        drop(bar);
        placed.advice = advise(placed.results.iter().map(CaseResult::summary), block_bytes);
        Ok(placed)
    }

    /// The advice in words.
    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        self.advice.iter().flat_map(|advice| &advice.sentences)
    }

    /// The advice for each topology and size in a sentence.
    pub fn verdicts(&self) -> impl Iterator<Item = &String> {
        let advice = self.advice.iter();
        let mut sentences: Vec<_> = advice.filter_map(|one| one.sentences.first()).collect();
        // Of several sizes the same may hold.
        sentences.dedup();
        sentences.into_iter()
    }

    /// The settings for `hither run`: those of the topology and size that gain most.
    pub fn plan(&self) -> Option<RunPlan> {
        let mut advice: Vec<&PlacementAdvice> = self.advice.iter().collect();
        advice.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        advice.into_iter().find_map(PlacementAdvice::plan)
    }

    /// The results as text, a table for each topology and size.
    pub fn table(&self, block_bytes: u64) -> String {
        let results = self.results.iter().map(CaseResult::summary);
        table(results, self.binding, block_bytes)
    }

    /// Adds the fields `placement`, the advice, and `placements`, the results, if there are any.
    pub fn add_to(&self, out: &mut serde_json::Value, trace: &Trace) {
        if self.results.is_empty() {
            return;
        }
        let results = self.results.iter();
        out["placements"] = results
            .map(|result| document(result, &self.running, trace))
            .collect();
        out["placement"] = json!(self.advice);
    }
}
