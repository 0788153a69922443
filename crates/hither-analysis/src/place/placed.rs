//! Placements as a part of a larger answer: run where nodes are named or known, and told in
//! sentences, a table and a document.

use std::sync::Arc;

use hither_sim::placement::{Binding, PlacementOutcome};
use hither_sim::{References, Size};
use hither_trace::Trace;
use serde_json::json;

use super::{
    Advice, Case, Placing, Request, Running, Watch, advice, cases, document, kind, lines, named_or,
    recorded, run, table, usual,
};
use crate::Result;
use crate::plan::Plan;
use crate::progress::Progress;

/// Placements that were simulated, if any.
pub struct Placed {
    pub running: Running,
    binding: Binding,
    pub cases: Vec<Case>,
    pub outcomes: Vec<PlacementOutcome>,
    /// One for each topology and size.
    advice: Vec<Advice>,
}

impl Placed {
    /// Simulates placements on the nodes that are named, or else on those that the trace knows,
    /// where it knows several; keeps up to so many `moves` of each.
    pub fn of(
        trace: &Trace,
        placing: &Placing,
        sizes: &[Size],
        moves: usize,
        progress: &dyn Progress,
    ) -> Result<Placed> {
        let running = placing.running.clone();
        let mut placed = Placed {
            binding: running.binding.resolved(References::nodes(trace)),
            running,
            cases: Vec::new(),
            outcomes: Vec::new(),
            advice: Vec::new(),
        };
        let named = !placing.nodes.is_empty();
        let nodes = match named {
            true => placing.nodes.clone(),
            false if trace.nodes() > 1 => vec![Arc::new(recorded(trace))],
            false => Vec::new(),
        };
        if nodes.is_empty() || trace.references() == 0 {
            return Ok(placed);
        }
        let request = Request {
            nodes,
            placements: named_or(&placing.placements, &usual(kind(trace)))?,
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
        let watch = Watch {
            progress: Some(&|done| bar.set_position(done)),
            cancel: None,
        };
        placed.outcomes = run(trace, &placed.cases, &placed.running, moves, watch)?;
        drop(bar);
        let lines = lines(&placed.cases, &placed.outcomes);
        placed.advice = advice(&lines, block_bytes);
        Ok(placed)
    }

    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        self.advice.iter().flat_map(|advice| &advice.sentences)
    }

    /// What `hither run` could apply: of all topologies and sizes, what gains most.
    pub fn plan(&self) -> Option<Plan> {
        let mut advice: Vec<&Advice> = self.advice.iter().collect();
        advice.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        advice.into_iter().find_map(Advice::plan)
    }

    pub fn table(&self, block_bytes: u64) -> String {
        let lines = lines(&self.cases, &self.outcomes);
        table(&lines, self.binding, block_bytes)
    }

    /// Adds `placement`, the advice, and `placements`, the results, where there are any.
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
