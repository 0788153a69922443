//! Replacement policies that are written in Python, on the same traces and with the same counts as
//! the built-in ones.
//!
//! What is in the cache is known here, so a policy that names a victim which is not there is found
//! at once. The interpreter is held throughout, but for reading the trace.

use std::sync::Arc;

use hither_analysis::simulate::sizes;
use hither_core::registry::Needs;
use hither_trace::Trace as Loaded;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use serde_json::json;

use crate::errors::{exception, refused};
use crate::functions::parsed_sizes;
use crate::trace::{BATCH, Trace};

/// Simulates a policy at each size: `make` is called with the capacity in blocks and returns it.
/// JSON: a list with a result for each size, as those of `simulate`.
#[pyfunction]
pub(crate) fn simulate_own(
    py: Python<'_>,
    trace: &Trace,
    name: &str,
    make: &Bound<'_, PyAny>,
    sizes_as_written: Vec<String>,
    show: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let trace = trace.get(py)?;
    if trace.sampled().is_some() {
        let problem = format!("{name} is a policy in Python: it takes whole traces, no samples");
        return Err(refused(py, problem));
    }
    let parsed = parsed_sizes(py, &sizes_as_written)?;
    let block_bytes = u64::from(trace.options().block_bytes);
    let sizes = sizes(&parsed, block_bytes, trace.blocks_of_all());
    let mut results = Vec::new();
    for (_, cache_blocks) in sizes.map_err(|error| refused(py, error))? {
        let policy = make.call1((cache_blocks,))?;
        let hits = Run::new(&trace, &policy, cache_blocks)?.hits(name, show)?;
        let accesses = trace.references() as u64;
        results.push(json!({
            "policy": name,
            "params": {},
            "cache_blocks": cache_blocks,
            "accesses": accesses,
            "hits": hits,
            "misses": accesses - hits,
            "hit_ratio": if accesses == 0 { 0.0 } else { hits as f64 / accesses as f64 },
            "classes": {},
        }));
    }
    Ok(json!(results).to_string())
}

/// A policy on a trace. Its methods are looked up once.
struct Run<'py> {
    trace: Arc<Loaded>,
    hit: Bound<'py, PyAny>,
    victim: Bound<'py, PyAny>,
    inserted: Bound<'py, PyAny>,
    cache_blocks: u32,
    /// By block.
    resident: Vec<bool>,
    used: u32,
}

impl<'py> Run<'py> {
    fn new(trace: &Arc<Loaded>, policy: &Bound<'py, PyAny>, cache_blocks: u32) -> PyResult<Self> {
        Ok(Run {
            trace: Arc::clone(trace),
            hit: policy.getattr("hit")?,
            victim: policy.getattr("victim")?,
            inserted: policy.getattr("inserted")?,
            cache_blocks,
            resident: vec![false; trace.blocks()],
            used: 0,
        })
    }

    fn hits(mut self, name: &str, show: &Bound<'py, PyAny>) -> PyResult<u64> {
        let py = self.hit.py();
        let all = self.trace.references();
        let (mut hits, mut batch) = (0, Vec::new());
        for start in (0..all).step_by(BATCH) {
            let trace = Arc::clone(&self.trace);
            let filled = py.detach(|| trace.fill(start, BATCH, Needs::NOTHING, &mut batch));
            filled.map_err(|error| exception(py, "TraceError", &error.to_string()))?;
            for (at, access) in (start..).zip(&batch) {
                hits += u64::from(self.access(name, at, access.block.0)?);
            }
            py.check_signals()?;
            if !show.is_none() {
                show.call1((name, start + batch.len(), all))?;
            }
        }
        Ok(hits)
    }

    /// Whether the block was there.
    fn access(&mut self, name: &str, at: usize, block: u32) -> PyResult<bool> {
        let number = PyInt::new(self.hit.py(), block);
        if self.resident[block as usize] {
            self.hit.call1((number,))?;
            return Ok(true);
        }
        if self.used == self.cache_blocks {
            let victim = self.victim.call1((&number,))?;
            let known = victim.extract::<u32>().ok().filter(|&victim| {
                let resident = self.resident.get(victim as usize);
                resident.is_some_and(|&resident| resident)
            });
            let Some(known) = known else {
                let text = format!(
                    "{name}: at access {at}, of block {block}, victim() returned {}, \
                     which is not in the cache",
                    victim.repr()?
                );
                return Err(exception(self.hit.py(), "PolicyError", &text));
            };
            self.resident[known as usize] = false;
            self.used -= 1;
        }
        self.resident[block as usize] = true;
        self.used += 1;
        self.inserted.call1((number,))?;
        Ok(false)
    }
}
