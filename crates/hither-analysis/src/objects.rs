//! Caches of objects of every size: their sizes as users write them, and tables of both hit ratios.

use hither_core::Spec;
use hither_sim::{CacheOptions, ObjectBounds, ObjectCache, ObjectOutcome, RatioError, Row, Size};
use hither_trace::Trace;
use serde_json::Value;

use crate::format::{bytes, counted, policy};
use crate::progress::Progress;
use crate::simulate::{DEFAULT_SIZES, Ratio, in_passes};
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

/// The sizes in bytes, for a trace whose distinct objects have `distinct` bytes. By default they
/// are five shares of those.
pub fn sizes(named: &[Size], distinct: u64) -> Result<Vec<ObjectSize>> {
    let size = |&written: &Size| {
        let bytes = written.bytes(distinct);
        let bytes = bytes.map_err(|error| Error::Usage(error.to_string()))?;
        Ok(ObjectSize { written, bytes })
    };
    let sizes = if named.is_empty() {
        &DEFAULT_SIZES
    } else {
        named
    };
    sizes.iter().map(size).collect()
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

/// The bounds of the best cache at every size.
pub fn bounds(
    trace: &Trace,
    sizes: &[ObjectSize],
    progress: &dyn Progress,
) -> Result<Vec<ObjectBounds>> {
    let _task = progress.begin("bounds", None);
    let sizes: Vec<u64> = sizes.iter().map(|size| size.bytes).collect();
    Ok(hither_sim::object_bounds(trace, &sizes)?)
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
            let errors = outcome.errors();
            let is_refused = |error: RatioError| error.refused.is_some();
            let refused = errors.map_or([false; 2], |errors| errors.map(is_refused));
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
        let rows: Vec<Row<[Ratio; 2]>> = self.rows.iter().map(|row| row.map(ratios)).collect();
        ratio_table("hit ratio", &self.sizes, &rows) + &self.passed_by() + &self.refusals()
    }

    /// A line on the objects that were not brought in, if there were any.
    fn passed_by(&self) -> String {
        // The first one of several.
        let most = self.outcomes().reduce(|most, next| {
            if next.passed_by > most.passed_by {
                next
            } else {
                most
            }
        });
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
            let errors = outcome.errors().into_iter().flatten();
            errors.zip(["objects", "bytes"]).filter_map(|(error, of)| {
                let (name, size) = (policy(&outcome.spec), bytes(outcome.cache_bytes));
                let reason = error.refused?;
                Some(format!("{name} at {size} is refused ({of}): {reason}\n"))
            })
        });
        refused.collect()
    }
}

/// A table of two ratios, of objects and of bytes, with a row for each policy and two columns for
/// each size, and what must be said of those that know the future.
pub fn ratio_table(head: &str, sizes: &[ObjectSize], rows: &[Row<[Ratio; 2]>]) -> String {
    let labelled = rows.iter().map(|row| (policy(&row.policy), &row.cells[..]));
    let know_the_future = rows
        .iter()
        .filter(|row| row.policy.entry().needs.future)
        .map(|row| policy(&row.policy));
    let know_the_future: Vec<String> = know_the_future.collect();
    let mut text = table_of(head, sizes, labelled);
    if !know_the_future.is_empty() {
        text += &know_the_future.join(", ");
        text += ": a heuristic where objects have sizes, and no bound\n";
    }
    text
}

/// A table of what no cache exceeds, and of what one that knows the future reaches.
pub fn bounds_table(sizes: &[ObjectSize], bounds: &[ObjectBounds]) -> String {
    let most = bounds
        .iter()
        .map(|bound| shares(bound, bound.hits_at_most, bound.hit_bytes_at_most));
    let least = bounds.iter().map(|bound| {
        Some(shares(
            bound,
            bound.hits_at_least?,
            bound.hit_bytes_at_least?,
        ))
    });
    let (most, least): (Vec<_>, Option<Vec<_>>) = (most.collect(), least.collect());
    let mut rows = vec![("at most (pfoo-l)".to_owned(), &most[..])];
    if let Some(least) = &least {
        rows.push(("at least (pfoo-u)".to_owned(), least));
    }
    let mut text = table_of("best cache", sizes, rows.into_iter());
    if least.is_none() {
        text += "what the best cache hits at least is not known where objects expire\n";
    }
    text
}

/// So many hits, and the bytes of them, as shares of all.
fn shares(bound: &ObjectBounds, hits: u64, hit_bytes: u64) -> [Ratio; 2] {
    let share = |part: u64, all: u64| Ratio::Exact(part as f64 / all.max(1) as f64);
    [share(hits, bound.accesses), share(hit_bytes, bound.bytes)]
}

/// A table of two ratios for each row and size.
fn table_of<'a>(
    head: &str,
    sizes: &[ObjectSize],
    rows: impl Iterator<Item = (String, &'a [[Ratio; 2]])>,
) -> String {
    let heads = sizes.iter().flat_map(|size| {
        let written = match size.written {
            Size::Bytes(_) => size.written.to_string(),
            written => format!("{written} ({})", bytes(size.bytes)),
        };
        [
            (format!("{written}: objects"), Align::Right),
            ("bytes".to_owned(), Align::Right),
        ]
    });
    let first = [(head.to_owned(), Align::Left)];
    let mut table = Table::new(first.into_iter().chain(heads));
    for (label, cells) in rows {
        let cells = cells.iter().flatten().map(Ratio::text);
        table.row([label].into_iter().chain(cells));
    }
    table.render()
}

/// Both hit ratios of a cache.
fn ratios(outcome: &ObjectOutcome) -> [Ratio; 2] {
    let ratios = [outcome.hit_ratio, outcome.byte_hit_ratio];
    let Some(errors) = outcome.errors() else {
        return ratios.map(Ratio::Exact);
    };
    let ratio = |of: usize| match errors[of] {
        RatioError {
            refused: Some(_), ..
        } => Ratio::Refused,
        error => Ratio::Estimate(ratios[of], error.standard_error),
    };
    [ratio(0), ratio(1)]
}
