//! Miss-ratio curves of a trace, as rows of data and as a picture.

use std::path::Path;

use hither_core::Spec;
use hither_sim::{CacheOptions, MissRatioCurve, ObjectOutcome, Points, Row};
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
    curves: Vec<Curve>,
}

/// The curve of a policy.
#[derive(Debug)]
enum Curve {
    /// Over sizes in blocks.
    Blocks(MissRatioCurve),
    /// Over sizes in bytes, of objects of every size.
    Objects(Row<ObjectOutcome>),
}

impl Curves {
    /// Computes the curve of each policy at these cache sizes; over sizes in bytes where the sizes
    /// of objects are known. Fails where the trace has no references.
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
        let curves = if trace.has_sizes() {
            let curves = hither_sim::object_curves(trace, policies, points, &options)?;
            curves.into_iter().map(Curve::Objects).collect()
        } else {
            let curves = hither_sim::curves(trace, policies, points, &options)?;
            curves.into_iter().map(Curve::Blocks).collect()
        };
        Ok(Curves {
            curves,
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
        let source = &self.source;
        let rows = self.curves.iter().map(|curve| match curve {
            Curve::Blocks(curve) => rows(curve, source).collect::<Vec<_>>(),
            Curve::Objects(curve) => {
                let rows = curve.cells.iter();
                rows.map(|outcome| ResultRow::of_objects(source, outcome))
                    .collect()
            }
        });
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
        objects: None,
        placement: None,
    })
}

fn chart(curves: &[Curve], source: &TraceInfo, log: bool) -> Chart {
    let name = name_of(Path::new(&source.trace));
    let (of, each, unit) = match source.distinct_bytes {
        Some(distinct_bytes) => ("distinct object", distinct_bytes, 1),
        None => ("distinct block", source.block_bytes, source.block_bytes),
    };
    Chart {
        title: format!("Miss ratio by cache size: {}", shortened(&name, 60)),
        subtitle: format!(
            "{} to {} of {}  ·  trace {}  ·  hither {}",
            counted(source.references, "reference"),
            counted(source.distinct, of),
            bytes(each).replace(".00", ""),
            source.sha256.get(..12).unwrap_or("made up"),
            env!("CARGO_PKG_VERSION")
        ),
        block_bytes: unit,
        log,
        lines: curves.iter().flat_map(lines).collect(),
    }
}

/// The lines of a curve: one of blocks, or one of objects and one of bytes.
fn lines(curve: &Curve) -> Vec<ChartLine> {
    match curve {
        Curve::Blocks(curve) => {
            let cells = curve.cells.iter().filter(|outcome| !outcome.is_refused());
            let points =
                cells.map(|outcome| (outcome.cache_blocks.into(), 1.0 - outcome.hit_ratio));
            vec![ChartLine {
                label: shortened(&policy(&curve.policy), 32),
                points: points.collect(),
            }]
        }
        Curve::Objects(curve) => {
            let name = shortened(&policy(&curve.policy), 24);
            let line = |of: usize, label: String| {
                let is_known = |outcome: &&ObjectOutcome| {
                    let errors = outcome.errors();
                    errors.is_none_or(|errors| errors[of].refused.is_none())
                };
                let ratio = |outcome: &ObjectOutcome| match of {
                    0 => outcome.hit_ratio,
                    _ => outcome.byte_hit_ratio,
                };
                let cells = curve.cells.iter().filter(is_known);
                let points =
                    cells.map(|outcome| (outcome.cache_bytes as f64, 1.0 - ratio(outcome)));
                ChartLine {
                    label,
                    points: points.collect(),
                }
            };
            vec![line(0, name.clone()), line(1, format!("{name}, bytes"))]
        }
    }
}
