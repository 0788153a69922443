//! Caches of objects of every size: their sizes as users write them, and tables of both hit ratios.

use hither_core::Spec;
use hither_sim::{CacheOptions, ObjectCache, ObjectOutcome, Row, Size};
use hither_trace::Trace;
use serde_json::Value;

use crate::format::{bytes, counted, percent, policy};
use crate::progress::Progress;
use crate::simulate::in_passes;
use crate::table::{Align, Table};
use crate::{Error, Result};

/// The size of a cache of objects, as a user wrote it and in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectSize {
    /// As it was written.
    pub written: Size,
    /// In bytes.
    pub bytes: u64,
}

/// Caches of objects: a row for each policy, with a cell for each size.
pub struct ObjectCaches {
    sizes: Vec<ObjectSize>,
    rows: Vec<Row<ObjectOutcome>>,
}

/// Whether these sizes mean caches of bytes, in a trace whose objects have sizes.
///
/// # Errors
///
/// If some do and others do not: one table has caches of one kind.
pub fn are_of_bytes(sizes: &[Size]) -> Result<bool> {
    let of_bytes = sizes.iter().filter(|size| size.is_of_bytes()).count();
    if of_bytes > 0 && of_bytes < sizes.len() {
        let problem = "this trace has objects of every size, of which some of these sizes count \
                       the number and others the bytes: write all in one way (10% or 10%B)";
        return Err(Error::Usage(problem.to_owned()));
    }
    Ok(of_bytes > 0)
}

/// The sizes in bytes.
pub fn sizes(written: &[Size], trace: &Trace) -> Result<Vec<ObjectSize>> {
    let distinct = trace.distinct_bytes_of_all();
    let size = |&written: &Size| {
        let bytes = written.bytes(distinct).expect("it is one of bytes");
        let bytes = bytes.map_err(|error| Error::Usage(error.to_string()))?;
        Ok(ObjectSize { written, bytes })
    };
    written.iter().map(size).collect()
}

/// Simulates every policy at every size.
pub fn simulate(
    trace: &Trace,
    policies: &[Spec],
    sizes: Vec<ObjectSize>,
    progress: &dyn Progress,
) -> Result<ObjectCaches> {
    let rows = in_passes(trace, policies, sizes.len(), progress, |policies, done| {
        let cache = |&spec: &Spec| {
            let sizes = sizes.iter();
            sizes.map(move |size| ObjectCache {
                spec,
                bytes: size.bytes,
            })
        };
        let caches: Vec<ObjectCache> = policies.iter().flat_map(cache).collect();
        let options = CacheOptions {
            progress: Some(done),
            cancel: progress.cancelled(),
            ..CacheOptions::default()
        };
        let outcomes = hither_sim::objects::run(trace, &caches, &options)?;
        let lengths = policies.iter().map(|&policy| (policy, sizes.len()));
        Ok(Row::split(lengths, outcomes))
    })?;
    Ok(ObjectCaches { sizes, rows })
}

impl ObjectCaches {
    /// All outcomes, row by row.
    pub fn outcomes(&self) -> impl Iterator<Item = &ObjectOutcome> {
        self.rows.iter().flat_map(|row| &row.cells)
    }

    /// The outcomes as JSON. A refused estimate has no counts.
    pub fn documents(&self) -> Result<Vec<Value>> {
        let document = |outcome: &ObjectOutcome| {
            let mut document = serde_json::to_value(outcome)?;
            let refused = outcome.estimate.map_or([false; 2], |estimate| {
                [estimate.refused.is_some(), estimate.bytes_refused.is_some()]
            });
            let counts = [
                ["hits", "misses", "hit_ratio"],
                ["hit_bytes", "missed_bytes", "byte_hit_ratio"],
            ];
            for (counts, _) in counts.iter().zip(refused).filter(|(_, refused)| *refused) {
                counts
                    .iter()
                    .for_each(|count| document[count] = Value::Null);
            }
            Ok(document)
        };
        self.outcomes().map(document).collect()
    }

    /// A table of both hit ratios of each policy at each size, and what must be said of them.
    pub fn text(&self) -> String {
        let heads = self.sizes.iter().flat_map(|size| {
            let written = match size.written {
                Size::Bytes(_) => size.written.to_string(),
                written => format!("{written} ({})", bytes(size.bytes)),
            };
            [
                (format!("{written}: objects"), Align::Right),
                ("bytes".to_owned(), Align::Right),
            ]
        });
        let first = [("hit ratio".to_owned(), Align::Left)];
        let mut table = Table::new(first.into_iter().chain(heads));
        for row in &self.rows {
            let cells = row.cells.iter().flat_map(ratios);
            table.row([policy(&row.policy)].into_iter().chain(cells));
        }
        let mut text = table.render();
        let known: Vec<String> = self
            .rows
            .iter()
            .filter(|row| row.policy.entry().needs.future)
            .map(|row| policy(&row.policy))
            .collect();
        if !known.is_empty() {
            text += &format!(
                "{}: a heuristic where objects have sizes, and no bound\n",
                known.join(", ")
            );
        }
        text + &self.passed_by() + &self.refusals()
    }

    /// A line on the objects that were not brought in, if there were any.
    fn passed_by(&self) -> String {
        let most = self.outcomes().max_by_key(|outcome| outcome.passed_by);
        match most.filter(|outcome| outcome.passed_by > 0) {
            None => String::new(),
            Some(outcome) => format!(
                "up to {} not brought in, since objects were too large ({}, {})\n",
                counted(outcome.passed_by, "miss"),
                policy(&outcome.spec),
                bytes(outcome.cache_bytes),
            ),
        }
    }

    /// A line for each refused estimate, with the reason.
    fn refusals(&self) -> String {
        let refused = self.outcomes().flat_map(|outcome| {
            let estimate = outcome.estimate;
            let reasons = estimate.map_or([None; 2], |estimate| {
                [estimate.refused, estimate.bytes_refused]
            });
            let of = ["objects", "bytes"];
            let reasons = reasons.into_iter().zip(of);
            reasons.filter_map(|(reason, of)| {
                let (name, size) = (policy(&outcome.spec), bytes(outcome.cache_bytes));
                Some(format!("{name} at {size} is refused ({of}): {}\n", reason?))
            })
        });
        refused.collect()
    }
}

/// Both hit ratios of a cache.
fn ratios(outcome: &ObjectOutcome) -> [String; 2] {
    let ratio = |ratio: f64, interval: Option<[f64; 2]>, is_refused: bool| match (
        outcome.estimate,
        interval,
    ) {
        (None, _) => percent(ratio),
        _ if is_refused => "refused".to_owned(),
        (_, None) => format!("{} ± ?", percent(ratio)),
        (_, Some([low, high])) => {
            format!("{} ({}-{})", percent(ratio), percent(low), percent(high))
        }
    };
    let estimate = outcome.estimate;
    [
        ratio(
            outcome.hit_ratio,
            estimate.and_then(|estimate| estimate.interval),
            estimate.is_some_and(|estimate| estimate.refused.is_some()),
        ),
        ratio(
            outcome.byte_hit_ratio,
            estimate.and_then(|estimate| estimate.byte_interval),
            estimate.is_some_and(|estimate| estimate.bytes_refused.is_some()),
        ),
    ]
}
