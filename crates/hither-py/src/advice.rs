//! What would help a program.

use hither_analysis::Progress;
use hither_analysis::cache_analysis::{self, CacheAnalysis};
use hither_analysis::coverage::Coverage;
use hither_analysis::placement::{self, PlacementAnalysis, PlacementSetup};
use hither_analysis::simulate::{sizes_to_advise_on, trace_summary};
use hither_core::Spec;
use hither_core::placement::Target;
use hither_core::registry::compared_in_advice;
use hither_live::page_cache::expected_reads;
use hither_trace::Trace as Loaded;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::functions::{parsed_sizes, specs, topologies};
use crate::trace::Trace;
use crate::work;

/// Advice on a trace: JSON as of `hither advise --json`, and `sentences`, the advice in words.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    trace: &Trace,
    policies: Vec<String>,
    sizes: Vec<String>,
    nodes: Vec<String>,
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let trace = trace.get(py)?;
    let (policies, sizes) = (specs(py, &policies)?, parsed_sizes(py, &sizes)?);
    let placing = PlacementSetup {
        nodes: topologies(py, &nodes)?,
        ..PlacementSetup::default()
    };
    work::run(py, show, move |progress| {
        let placed = PlacementAnalysis::of(&trace, &placing, &sizes, 0, progress)?;
        let (mut document, mut sentences) = match placement::data_kind(&trace) {
            Some(Target::Memory) => (json!({ "trace": trace_summary(&trace) }), Vec::new()),
            _ => on_caches(&trace, policies, &sizes, progress)?,
        };
        placed.add_to(&mut document, &trace);
        sentences.extend(placed.sentences().cloned());
        document["sentences"] = sentences.into();
        Ok(document.to_string())
    })
}

/// The document and the sentences about caches.
fn on_caches(
    trace: &Loaded,
    policies: Vec<Spec>,
    named: &[hither_sim::Size],
    progress: &dyn Progress,
) -> hither_analysis::Result<(Value, Vec<String>)> {
    let policies = if policies.is_empty() {
        cache_analysis::supported_policies(compared_in_advice(), trace, progress)
    } else {
        policies
    };
    let sizes = sizes_to_advise_on(named, trace)?;
    let asked = !named.is_empty();
    let verdict = CacheAnalysis::of(
        trace,
        policies,
        sizes,
        asked,
        None,
        expected_reads,
        progress,
    )?;
    let seen = Coverage::of(trace).map(|coverage| coverage.sentence());
    let sentences = seen.into_iter().chain(verdict.sentences(trace));
    Ok((verdict.document(trace), sentences.collect()))
}
