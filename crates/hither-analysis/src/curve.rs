//! Miss-ratio curves of a trace, as rows of data and as a picture.

use std::path::Path;

use hither_core::Spec;
use hither_sim::{CacheOptions, MissRatioCurve, Points};
use hither_trace::Trace;

use crate::file::name_of;
use crate::format::{bytes, counted, policy, shortened};
use crate::plot::{Chart, ChartLine};
use crate::progress::Progress;
use crate::result_rows::{ResultRow, TraceInfo};
use crate::{Error, Result};

/// The miss-ratio curves of some policies on one trace.
#[derive(Debug)]
pub struct Curves {
    source: TraceInfo,
    curves: Vec<MissRatioCurve>,
}

impl Curves {
    /// Computes the curve of each policy at these cache sizes. Fails where the trace has no
    /// references.
    pub fn of(
        trace: &Trace,
        policies: &[Spec],
        points: Points,
        progress: &dyn Progress,
    ) -> Result<Curves> {
        if trace.references() == 0 {
            let path = trace.path().display();
            let problem = format!("{path} has no references: there is no curve");
            return Err(Error::Usage(problem));
        }
        let bar = progress.begin("simulating", Some(trace.references() as u64));
        let position = |done| bar.set_position(done);
        let options = CacheOptions {
            progress: Some(&position),
            cancel: progress.cancelled(),
            ..CacheOptions::default()
        };
        Ok(Curves {
            curves: hither_sim::curves(trace, policies, points, &options)?,
            source: TraceInfo::of(trace, trace.path()),
        })
    }

    /// The curve of each policy on its own.
    pub fn each(self) -> Vec<Curves> {
        let source = self.source;
        let curves = self.curves.into_iter().map(|curve| Curves {
            source: source.clone(),
            curves: vec![curve],
        });
        curves.collect()
    }

    /// Curves of one trace together; none if there are none.
    pub fn joined(curves: Vec<Curves>) -> Option<Curves> {
        curves.into_iter().reduce(|mut all, more| {
            all.curves.extend(more.curves);
            all
        })
    }

    /// One row for each policy and cache size.
    pub fn rows(&self) -> Vec<ResultRow<'_>> {
        let rows = self.curves.iter().map(|curve| rows(curve, &self.source));
        rows.flatten().collect()
    }

    /// The curves as a picture, over a logarithmic axis of cache sizes or a linear one.
    pub fn chart(&self, log: bool) -> Chart {
        chart(&self.curves, &self.source, log)
    }
}

fn rows<'a>(
    curve: &'a MissRatioCurve,
    source: &'a TraceInfo,
) -> impl Iterator<Item = ResultRow<'a>> {
    curve.cells.iter().map(move |outcome| ResultRow {
        source,
        policy: Some(curve.policy),
        size: outcome.cache_blocks.to_string(),
        cache_blocks: outcome.cache_blocks.into(),
        hits: outcome.hits,
        misses: outcome.misses,
        refused: outcome.is_refused(),
        standard_error: outcome
            .estimate
            .and_then(|estimate| estimate.standard_error),
        placement: None,
    })
}

fn chart(curves: &[MissRatioCurve], source: &TraceInfo, log: bool) -> Chart {
    let name = name_of(Path::new(&source.trace));
    Chart {
        title: format!("Miss ratio by cache size: {}", shortened(&name, 60)),
        subtitle: format!(
            "{} to {} of {}  ·  trace {}  ·  hither {}",
            counted(source.references, "reference"),
            counted(source.distinct, "distinct block"),
            bytes(source.block_bytes).replace(".00", ""),
            source.sha256.get(..12).unwrap_or("made up"),
            env!("CARGO_PKG_VERSION")
        ),
        block_bytes: source.block_bytes,
        log,
        lines: curves
            .iter()
            .map(|curve| ChartLine {
                label: shortened(&policy(&curve.policy), 32),
                points: curve
                    .cells
                    .iter()
                    .filter(|outcome| !outcome.is_refused())
                    .map(|outcome| (outcome.cache_blocks.into(), 1.0 - outcome.hit_ratio))
                    .collect(),
            })
            .collect(),
    }
}
