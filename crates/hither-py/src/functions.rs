//! What the package offers beside traces: simulations, curves, placements and generated traces.
//! Results are JSON.

use std::fmt::Display;
use std::path::Path;
use std::ptr;
use std::str::FromStr;
use std::sync::Arc;

use hither_analysis::curve::Curves;
use hither_analysis::free_memory::half_of_free_bytes;
use hither_analysis::objects;
use hither_analysis::placement::{self, PlacementCase, PlacementRequest, RunControl, RunSettings};
use hither_analysis::plot::{Chart, ChartLine, Plot};
use hither_analysis::result_rows::RowFormat;
use hither_analysis::simulate::{self as analysis, trace_summary};
use hither_analysis::{Progress, topology};
use hither_core::placement::Target;
use hither_core::registry;
use hither_core::spec::RegistryEntry;
use hither_core::{Spec, Topology};
use hither_generate::{Request, RequestOptions, RequestPart};
use hither_sim::placement::PlacementSpec;
use hither_sim::{CacheOptions, Points, Size, Spacing};
use hither_trace::Trace as Loaded;
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde_json::json;

use crate::errors::{raised, refused};
use crate::own;
use crate::trace::Trace;
use crate::work::{self, Work};

/// The policies of texts such as `pcc{threshold=50}`.
pub(crate) fn specs(py: Python<'_>, policies: &[String]) -> PyResult<Vec<Spec>> {
    let parsed = policies.iter().map(|policy| policy.parse());
    let parsed: Result<Vec<Spec>, _> = parsed.collect();
    parsed.map_err(|error| refused(py, error))
}

/// What a user names: each is a text, or a class of a policy in Python.
type Named<'py> = Vec<Bound<'py, PyAny>>;

/// The replacement policies of names.
fn replacements(py: Python<'_>, named: &Named<'_>) -> PyResult<Vec<Spec>> {
    let one = |name: &Bound<'_, PyAny>| match name.cast::<PyString>() {
        Ok(text) => parsed(py, text),
        Err(_) => own::replacement(name),
    };
    named.iter().map(one).collect()
}

fn parsed<T: FromStr<Err: Display>>(py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<T> {
    let text = text.to_string();
    text.parse().map_err(|error| refused(py, error))
}

/// Whether it is a policy in Python.
fn is_own<E: RegistryEntry>(spec: &Spec<E>) -> bool {
    !E::all().iter().any(|entry| ptr::eq(entry, spec.entry()))
}

/// Runs the built-in ones of some policies together, and those in Python on the thread that holds
/// the interpreter. Each policy has one result; they are in the order of `specs`.
fn in_both_ways<S: Send + 'static, T: Send + 'static>(
    py: Python<'_>,
    show: &Bound<'_, PyAny>,
    specs: Vec<S>,
    is_own: impl Fn(&S) -> bool,
    run: impl Fn(Vec<S>, &Work) -> hither_analysis::Result<Vec<T>> + Clone + Send + 'static,
) -> PyResult<Vec<T>> {
    let are_own: Vec<bool> = specs.iter().map(&is_own).collect();
    let (own, built_in): (Vec<S>, Vec<S>) = specs.into_iter().partition(is_own);
    let again = run.clone();
    let results = if built_in.is_empty() {
        Vec::new()
    } else {
        work::run(py, show, move |work| again(built_in, work))?
    };
    let of_own = if own.is_empty() {
        Vec::new()
    } else {
        work::run_holding(py, show, move |work| run(own, work))?
    };
    let (mut results, mut of_own) = (results.into_iter(), of_own.into_iter());
    let next = |is_own| {
        if is_own {
            of_own.next()
        } else {
            results.next()
        }
    };
    Ok(are_own.into_iter().filter_map(next).collect())
}

/// The same, or those of `otherwise` if there are none.
fn replacements_or(
    py: Python<'_>,
    named: &Named<'_>,
    otherwise: impl FnOnce() -> Vec<Spec>,
) -> PyResult<Vec<Spec>> {
    if named.is_empty() {
        Ok(otherwise())
    } else {
        replacements(py, named)
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
    policies: Named<'_>,
    sizes: Vec<String>,
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let trace = trace.get(py)?;
    let policies = replacements_or(py, &policies, registry::compared_everywhere)?;
    let sizes = parsed_sizes(py, &sizes)?;
    if trace.has_sizes() {
        return simulate_objects(py, trace, policies, &sizes, show);
    }
    analysis::refuse_bytes(&sizes, &trace).map_err(|error| raised(py, &error))?;
    let block_bytes = u64::from(trace.options().block_bytes);
    let sizes = analysis::sizes(&sizes, block_bytes, trace.blocks_of_all());
    let sizes = sizes.map_err(|error| raised(py, &error))?;
    let named: Vec<Size> = sizes.iter().map(|size| size.written).collect();
    let of = Arc::clone(&trace);
    let rows = in_both_ways(py, show, policies, is_own, move |policies, work| {
        let caches = analysis::caches(
            &of,
            &policies,
            sizes.clone(),
            &CacheOptions::default(),
            work,
        )?;
        Ok(caches.rows().to_vec())
    })?;
    let outcomes = rows.iter().flat_map(|row| &row.cells);
    let results = analysis::outcome_documents(outcomes).map_err(|error| raised(py, &error))?;
    let policies: Vec<String> = rows.iter().map(|row| row.policy.to_string()).collect();
    let document = json!({
        "trace": trace_summary(&trace), "results": results, "sizes": named,
        "policies": policies,
    });
    Ok(document.to_string())
}

/// Simulates caches of objects of every size. JSON as of `hither sim --objects --json`.
fn simulate_objects(
    py: Python<'_>,
    trace: Arc<Loaded>,
    policies: Vec<Spec>,
    sizes: &[Size],
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let sizes = objects::sizes(sizes, trace.distinct_bytes_of_all());
    let sizes = sizes.map_err(|error| raised(py, &error))?;
    let named: Vec<Size> = sizes.iter().map(|size| size.written).collect();
    let names: Vec<String> = policies.iter().map(Spec::to_string).collect();
    let of = Arc::clone(&trace);
    let caches = work::run(py, show, move |work| {
        objects::simulate(&of, &policies, sizes, work)
    })?;
    let results = caches.documents().map_err(|error| raised(py, &error))?;
    let document = json!({
        "trace": trace_summary(&trace), "results": results, "sizes": named,
        "policies": names,
    });
    Ok(document.to_string())
}

/// The miss-ratio curve of each policy: rows as of `hither sim --curve mrc.json`, and a picture
/// (SVG).
#[pyfunction]
pub(crate) fn curve(
    py: Python<'_>,
    trace: &Trace,
    policies: Named<'_>,
    points: usize,
    is_log: bool,
    show: &Bound<'_, PyAny>,
) -> PyResult<(String, String)> {
    let trace = trace.get(py)?;
    let policies = replacements_or(py, &policies, registry::compared_everywhere)?;
    if !(2..=4096).contains(&points) {
        let problem = format!("a curve of {points} points: 2 to 4096 are possible");
        return Err(refused(py, problem));
    }
    let points = Points {
        simulated: points,
        spacing: if is_log {
            Spacing::Log
        } else {
            Spacing::Linear
        },
        ..Points::default()
    };
    let curves = in_both_ways(py, show, policies, is_own, move |policies, work| {
        Ok(Curves::of(&trace, &policies, points, work)?.each())
    })?;
    let drawn = Curves::joined(curves).map(|curves| {
        let rows = RowFormat::Json.write(&curves.rows())?;
        let rows = String::from_utf8_lossy(&rows).into_owned();
        Ok((rows, curves.chart(is_log).svg()))
    });
    drawn
        .expect("at least one policy is simulated")
        .map_err(|error| raised(py, &error))
}

/// The picture (SVG) of miss ratios by cache size in blocks: a name and its points for each line.
#[pyfunction]
pub(crate) fn chart(
    title: String,
    subtitle: String,
    block_bytes: u64,
    lines: Vec<(String, Vec<(f64, f64)>)>,
) -> String {
    let lines = lines.into_iter();
    let chart = Chart {
        title,
        subtitle,
        block_bytes,
        log: true,
        lines: lines
            .map(|(label, points)| ChartLine { label, points })
            .collect(),
    };
    chart.svg()
}

/// Simulates placements on nodes. JSON as of `hither place --json`.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "each is an option of the command"
)]
pub(crate) fn place(
    py: Python<'_>,
    trace: &Trace,
    nodes: Vec<String>,
    placements: Named<'_>,
    sizes: Vec<String>,
    policies: Named<'_>,
    bind: &str,
    warm_up: &str,
    costs: &str,
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let trace = trace.get(py)?;
    let refuse = |error: &dyn Display| refused(py, error);
    let running = RunSettings {
        binding: placement::parse_binding(bind).map_err(|error| refuse(&error))?,
        warm_up: warm_up.parse().map_err(|error: String| refuse(&error))?,
        costs: costs.parse().map_err(|error: String| refuse(&error))?,
    };
    let kind = placement::data_kind(&trace);
    let one = |name: &Bound<'_, PyAny>| match name.cast::<PyString>() {
        Ok(text) => parsed(py, text),
        Err(_) => own::placement(name, kind.unwrap_or(Target::Files)),
    };
    let named: PyResult<Vec<PlacementSpec>> = placements.iter().map(one).collect();
    let raise = |error| raised(py, &error);
    let placements =
        placement::placements_or_default(&named?, &placement::default_placements(kind));
    let request = PlacementRequest {
        nodes: topologies(py, &nodes)?,
        placements: placements.map_err(raise)?,
        sizes: parsed_sizes(py, &sizes)?,
        policies: replacements_or(py, &policies, || vec![registry::baseline()])?,
        reclaims: running.costs.reclaims(),
    };
    placement::check_kind(&trace, &request.placements).map_err(raise)?;
    let block_bytes = u64::from(trace.options().block_bytes);
    let cases = placement::cases(&request, block_bytes, trace.blocks_of_all()).map_err(raise)?;
    let of_own = |case: &PlacementCase| {
        let case = &case.configuration;
        is_own(&case.spec) || is_own(&case.replacement)
    };
    let (of, settings) = (Arc::clone(&trace), running.clone());
    let results = in_both_ways(py, show, cases, of_own, move |cases, work| {
        let all = of.references() as u64 * cases.len() as u64;
        let bar = work.begin("placing", Some(all));
        let control = RunControl {
            progress: Some(&|done| bar.set_position(done)),
            cancel: work.cancelled(),
        };
        placement::run(&of, cases, &settings, 0, control)
    })?;
    let results: Vec<serde_json::Value> = results
        .iter()
        .map(|result| placement::document(result, &running, &trace))
        .collect();
    Ok(json!({ "trace": trace_summary(&trace), "results": results }).to_string())
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
        queues: None,
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

/// Half of the memory that is free to this process.
#[pyfunction]
#[pyo3(name = "half_of_free_bytes")]
pub(crate) fn free_bytes() -> u64 {
    half_of_free_bytes()
}

/// Steps of the progress of a generated trace.
const STEPS: u64 = 1000;
