//! Traces as Python objects.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hither_analysis::format::bytes;
use hither_analysis::free_memory::half_of_free_bytes;
use hither_analysis::load_options::{block_bytes, format_name, normalized};
use hither_analysis::simulate::{statistics, trace_summary};
use hither_trace::{LoadOptions, RequestCounts, Sample, Stats, Trace as Loaded, TraceBuilder};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{exception, refused};
use crate::work;

/// A loaded trace, until it is closed.
#[pyclass(frozen, module = "hither._hither")]
pub(crate) struct Trace(Mutex<Option<Arc<Loaded>>>);

impl Trace {
    pub(crate) fn new(trace: Loaded) -> Trace {
        Trace(Mutex::new(Some(Arc::new(trace))))
    }

    /// The trace, unless it was closed.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Arc<Loaded>> {
        let trace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || exception(py, "ClosedError", "the trace was closed");
        trace.clone().ok_or_else(closed)
    }
}

#[pymethods]
impl Trace {
    /// References to blocks.
    #[getter]
    fn references(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.references_of_all())
    }

    /// Distinct blocks.
    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.blocks_of_all())
    }

    /// Bytes of a block.
    #[getter]
    fn block_bytes(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.options().block_bytes)
    }

    /// What `--json` has of a trace, as JSON.
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        Ok(trace_summary(&*self.get(py)?).to_string())
    }

    /// What `hither stat --json` prints, as JSON.
    fn statistics(&self, py: Python<'_>, show: &Bound<'_, PyAny>) -> PyResult<String> {
        let trace = self.get(py)?;
        work::run(py, show, move |_| {
            Ok(statistics(&trace, &Stats::of(&trace)?).to_string())
        })
    }

    /// The files and the call sites that moved most bytes, at most `count` of each. JSON.
    fn most_used(&self, py: Python<'_>, count: usize) -> PyResult<String> {
        let trace = self.get(py)?;
        let files = trace.objects().iter().map(|object| object.path_lossy());
        let sites = trace.sites().iter().map(|site| site.label());
        let files = most_used(files, trace.object_counts(), count);
        let sites = most_used(sites, trace.site_counts(), count);
        Ok(json!({ "files": files, "sites": sites }).to_string())
    }

    /// Lets go of the memory. Closing twice does nothing.
    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Those of the names whose counts say that they moved most bytes.
fn most_used(
    names: impl Iterator<Item = impl Into<String>>,
    counts: &[RequestCounts],
    count: usize,
) -> Vec<Value> {
    let mut all: Vec<(String, &RequestCounts)> = names.map(Into::into).zip(counts).collect();
    let moved = |counts: &RequestCounts| counts.read_bytes.saturating_add(counts.written_bytes);
    all.sort_by_key(|(_, counts)| Reverse(moved(counts)));
    all.truncate(count);
    let row = |(name, counts): (String, &RequestCounts)| {
        json!({
            "name": name,
            "requests": counts.requests,
            "read": bytes(counts.read_bytes),
            "written": bytes(counts.written_bytes),
        })
    };
    all.into_iter().map(row).collect()
}

/// The options of loading, checked.
pub(crate) fn options(
    py: Python<'_>,
    block: &str,
    sample: &str,
    keep_repeats: bool,
    in_kernel: bool,
    maps: bool,
) -> PyResult<LoadOptions> {
    let sample: Sample = sample.parse().map_err(|error| refused(py, error))?;
    Ok(LoadOptions {
        block_bytes: block_bytes(block).map_err(|error| refused(py, error))?,
        keep_repeats,
        include_in_kernel: in_kernel,
        include_maps: maps,
        keep_lengths: false,
        keep_sizes: false,
        sample: normalized(sample),
        memory_bytes: half_of_free_bytes(),
    })
}

/// Reads a trace from a file or a folder, which results call `name`, by default the path.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "each is an option of the command"
)]
pub(crate) fn load(
    py: Python<'_>,
    path: PathBuf,
    format: Option<&str>,
    block: &str,
    sample: &str,
    keep_repeats: bool,
    in_kernel: bool,
    maps: bool,
    objects: bool,
    name: Option<PathBuf>,
    show: &Bound<'_, PyAny>,
) -> PyResult<Trace> {
    let options = LoadOptions {
        keep_sizes: objects,
        ..options(py, block, sample, keep_repeats, in_kernel, maps)?
    };
    let format = format.map(format_name).transpose();
    let format = format.map_err(|error| refused(py, error))?;
    let loaded = work::run(py, show, move |_| {
        let trace = Loaded::load(&path, format.as_deref(), &options)?;
        Ok(match name {
            Some(name) => trace.named(name),
            None => trace,
        })
    })?;
    Ok(Trace::new(loaded))
}

/// A trace of bare blocks: `blocks` has native 64-bit numbers, `writes`, if there are any, a byte
/// for each of them.
#[pyfunction]
pub(crate) fn from_blocks(
    py: Python<'_>,
    name: PathBuf,
    blocks: Vec<u8>,
    writes: Option<Vec<u8>>,
    block: &str,
    show: &Bound<'_, PyAny>,
) -> PyResult<Trace> {
    let options = options(py, block, "100%", true, true, false)?;
    let loaded = work::run(py, show, move |_| {
        let mut builder = TraceBuilder::new(name, &options)?;
        let (ids, _) = blocks.as_chunks::<8>();
        for (at, id) in ids.iter().enumerate() {
            let is_write = writes.as_ref().is_some_and(|writes| writes[at] != 0);
            let op = if is_write {
                hither_core::Op::Write
            } else {
                hither_core::Op::Read
            };
            builder.key(u64::from_ne_bytes(*id), op)?;
        }
        Ok(builder.finish()?)
    })?;
    Ok(Trace::new(loaded))
}
