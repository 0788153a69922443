//! What the package offers beside traces: simulations, curves, placements and generated traces.
//! Results are JSON.

use std::path::Path;
use std::sync::Arc;

use hither_analysis::curve::Curves;
use hither_analysis::free_memory::half_of_free_bytes;
use hither_analysis::placement::{self, PlacementRequest, RunControl, RunSettings};
use hither_analysis::plot::Plot;
use hither_analysis::result_rows::RowFormat;
use hither_analysis::simulate::{self as analysis, trace_summary};
use hither_analysis::{Progress, topology};
use hither_core::registry;
use hither_core::{Spec, Topology};
use hither_sim::{Points, Size, Spacing};
use hither_trace::generate::{Request, RequestOptions, RequestPart};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::refused;
use crate::trace::Trace;
use crate::work;

/// The policies of texts such as `pcc{threshold=50}`.
pub(crate) fn specs(py: Python<'_>, policies: &[String]) -> PyResult<Vec<Spec>> {
    let parsed = policies.iter().map(|policy| policy.parse());
    let parsed: Result<Vec<Spec>, _> = parsed.collect();
    parsed.map_err(|error| refused(py, error))
}

/// The same, or those of `otherwise` if there are none.
fn specs_or(
    py: Python<'_>,
    policies: &[String],
    otherwise: impl FnOnce() -> Vec<Spec>,
) -> PyResult<Vec<Spec>> {
    match policies.is_empty() {
        true => Ok(otherwise()),
        false => specs(py, policies),
    }
}

/// The sizes of texts such as `64MiB` and `10%`.
pub(crate) fn parsed_sizes(py: Python<'_>, sizes: &[String]) -> PyResult<Vec<Size>> {
    let parsed = sizes.iter().map(|size| size.parse());
    let parsed: Result<Vec<Size>, _> = parsed.collect();
    parsed.map_err(|error| refused(py, error))
}

/// Simulates each policy at each size. JSON as of `hither sim --json`.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    trace: &Trace,
    policies: Vec<String>,
    sizes: Vec<String>,
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let trace = trace.get(py)?;
    let policies = specs_or(py, &policies, registry::compared_everywhere)?;
    let sizes = parsed_sizes(py, &sizes)?;
    work::run(py, show, move |progress| {
        let block_bytes = u64::from(trace.options().block_bytes);
        let sizes = analysis::sizes(&sizes, block_bytes, trace.blocks_of_all())?;
        let outcomes = analysis::caches(&trace, &policies, &sizes, &[], 0, progress)?;
        let results = analysis::outcome_documents(&outcomes)?;
        let named: Vec<String> = sizes.iter().map(|(size, _)| size.to_string()).collect();
        let policies: Vec<String> = policies.iter().map(Spec::to_string).collect();
        let document = json!({
            "trace": trace_summary(&trace), "results": results, "sizes": named,
            "policies": policies,
        });
        Ok(document.to_string())
    })
}

/// The miss-ratio curve of each policy: rows as of `hither sim --curve mrc.json`, and a picture
/// (SVG).
#[pyfunction]
pub(crate) fn curve(
    py: Python<'_>,
    trace: &Trace,
    policies: Vec<String>,
    points: usize,
    is_log: bool,
    show: &Bound<'_, PyAny>,
) -> PyResult<(String, String)> {
    let trace = trace.get(py)?;
    let policies = specs_or(py, &policies, registry::compared_everywhere)?;
    if !(2..=4096).contains(&points) {
        let problem = format!("a curve of {points} points: 2 to 4096 are possible");
        return Err(refused(py, problem));
    }
    let points = Points {
        simulated: points,
        spacing: match is_log {
            true => Spacing::Log,
            false => Spacing::Linear,
        },
        ..Points::default()
    };
    work::run(py, show, move |progress| {
        let curves = Curves::of(&trace, &policies, points, progress)?;
        let rows = RowFormat::Json.write(&curves.rows())?;
        let rows = String::from_utf8_lossy(&rows).into_owned();
        Ok((rows, curves.chart(is_log).svg()))
    })
}

/// Simulates placements on nodes. JSON as of `hither sim --nodes ... --json`.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "each is an option of the command"
)]
pub(crate) fn place(
    py: Python<'_>,
    trace: &Trace,
    nodes: Vec<String>,
    placements: Vec<String>,
    sizes: Vec<String>,
    policies: Vec<String>,
    bind: &str,
    warm_up: &str,
    costs: &str,
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let trace = trace.get(py)?;
    let nodes = topologies(py, &nodes)?;
    let running = RunSettings {
        binding: placement::parse_binding(bind).map_err(|error| refused(py, error))?,
        warm_up: warm_up
            .parse()
            .map_err(|error: String| refused(py, error))?,
        costs: costs.parse().map_err(|error: String| refused(py, error))?,
    };
    let named = placements.iter().map(|placement| placement.parse());
    let named: Result<Vec<_>, _> = named.collect();
    let named = named.map_err(|error: hither_core::spec::SpecError| refused(py, error))?;
    let request = PlacementRequest {
        nodes,
        placements: named,
        sizes: parsed_sizes(py, &sizes)?,
        policies: specs_or(py, &policies, || vec![registry::baseline()])?,
    };
    work::run(py, show, move |progress| {
        let defaults = placement::default_placements(placement::data_kind(&trace));
        let placements = placement::placements_or_default(&request.placements, &defaults)?;
        let request = PlacementRequest {
            placements,
            ..request
        };
        placement::check_kind(&trace, &request.placements)?;
        let block_bytes = u64::from(trace.options().block_bytes);
        let cases = placement::cases(&request, block_bytes, trace.blocks_of_all())?;
        let all = trace.references() as u64 * cases.len() as u64;
        let bar = progress.begin("placing", Some(all));
        let control = RunControl {
            progress: Some(&|done| bar.set_position(done)),
            cancel: progress.cancelled(),
        };
        let outcomes = placement::run(&trace, &cases, &running, 0, control)?;
        let results = cases.iter().zip(&outcomes);
        let results: Vec<serde_json::Value> = results
            .map(|(case, outcome)| placement::document(case, outcome, &running, &trace))
            .collect();
        Ok(json!({ "trace": trace_summary(&trace), "results": results }).to_string())
    })
}

/// The nodes of these names or in these files.
pub(crate) fn topologies(py: Python<'_>, nodes: &[String]) -> PyResult<Vec<Arc<Topology>>> {
    let this_machine = || {
        let problem = "`this` is for the command: name a shape (mesh:5x5), a preset (opteron2) or \
                       a file that ends in .toml";
        Err(problem.to_owned())
    };
    let load = |nodes: &String| topology::load(nodes, &this_machine).map(Arc::new);
    let loaded: Result<Vec<Arc<Topology>>, _> = nodes.iter().map(load).collect();
    loaded.map_err(|error| refused(py, error))
}

/// Generates a trace: patterns (with `references`), or programs.
#[pyfunction]
pub(crate) fn generate(
    py: Python<'_>,
    parts: Vec<String>,
    references: Option<u64>,
    threads: Option<u32>,
    nodes: Option<u32>,
    seed: u64,
    show: &Bound<'_, PyAny>,
) -> PyResult<Trace> {
    let parsed = parts.iter().map(|part| part.parse());
    let parsed: Result<Vec<RequestPart>, String> = parsed.collect();
    let options = RequestOptions {
        references,
        threads,
        nodes,
        migrate_every: None,
        seed,
    };
    let request = parsed.and_then(|parts| Request::new(&parts, &options));
    let mut request = request.map_err(|error| refused(py, error))?;
    let name = Path::new(&parts.join(" + ")).to_owned();
    let made = work::run(py, show, move |progress| {
        let bar = progress.begin("generating", Some(STEPS));
        let position = |done| bar.set_position((done * STEPS as f64) as u64);
        Ok(request.trace(&name, half_of_free_bytes(), position)?)
    })?;
    Ok(Trace::new(made))
}

/// Steps of the progress of a generated trace.
const STEPS: u64 = 1000;
