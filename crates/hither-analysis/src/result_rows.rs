//! Results as data: one row a cache or a placement, with all that is needed to make it again, as
//! CSV, JSON or Parquet.
//!
//! The columns are listed once and every format is written from that list. Nothing in a file
//! depends on when or where it was written, so that the same results are the same bytes.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::str::FromStr;

use hither_core::{Spec, Topology};
use hither_sim::ObjectOutcome;
use hither_sim::placement::PlacementSpec;
use hither_trace::Trace;
use hither_trace::table::{self, Cells, ColumnType};
use serde::{Deserialize, Serialize};

use crate::placement::{self, CaseSummary, RunSettings};
use crate::{Error, Result};

/// The columns that describe a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInfo {
    /// The path, as the user wrote it.
    pub trace: String,
    /// The hash of the content, in hexadecimal.
    pub sha256: String,
    /// The format of the trace.
    pub format: String,
    /// The options it was loaded with, as JSON.
    pub loaded_with: String,
    /// The share of the blocks that was simulated. It is text, since a journal is read back and
    /// JSON has no exact fractions.
    pub sample_rate: String,
    /// The references of the whole trace, even for a sample.
    pub references: u64,
    /// The distinct blocks of the whole trace; an estimate for a sample.
    pub distinct: u64,
    /// The bytes of all distinct objects of the whole trace, where sizes are taken into account; an
    /// estimate for a sample.
    pub distinct_bytes: Option<u64>,
    /// The size of a block in bytes.
    pub block_bytes: u64,
    /// The placements that are compared by default.
    pub placements: String,
}

impl TraceInfo {
    /// The description of `trace`, which the user called `name`.
    pub fn of(trace: &Trace, name: &Path) -> TraceInfo {
        TraceInfo {
            trace: name.to_string_lossy().into_owned(),
            sha256: trace.sha256().to_owned(),
            format: trace.format().to_owned(),
            loaded_with: serde_json::to_string(trace.options()).expect("plain data"),
            sample_rate: (trace.sampled().map_or(1.0, |sampled| sampled.rate)).to_string(),
            references: trace.references_of_all(),
            distinct: trace.blocks_of_all(),
            distinct_bytes: trace.has_sizes().then(|| trace.distinct_bytes_of_all()),
            block_bytes: trace.options().block_bytes.into(),
            placements: placement::default_placements(placement::data_kind(trace)),
        }
    }
}

/// One cache, or one placement on nodes.
#[derive(Clone, Debug)]
pub struct ResultRow<'a> {
    /// The trace.
    pub source: &'a TraceInfo,
    /// The replacement policy. `None`: pages of memory are placed.
    pub policy: Option<Spec>,
    /// The size as the user wrote it.
    pub size: String,
    /// The size in blocks, of all nodes together; 0 for a cache of objects.
    pub cache_blocks: u64,
    /// The references that the cache or a node served.
    pub hits: u64,
    /// The other references.
    pub misses: u64,
    /// The policy does not scale: a sample does not show the counts, and they are not written.
    pub refused: bool,
    /// The standard error of the miss ratio, if it is an estimate and the error is known.
    pub standard_error: Option<f64>,
    /// The further columns of a cache of objects.
    pub objects: Option<ObjectCells>,
    /// The further columns of a placement.
    pub placement: Option<PlacementColumns<'a>>,
}

/// The columns of a cache of objects of every size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectCells {
    /// The size of the cache.
    pub cache_bytes: u64,
    /// The bytes of references that the cache served.
    pub hit_bytes: u64,
    /// The bytes of the other references.
    pub missed_bytes: u64,
    /// A sample does not show the bytes, and they are not written.
    pub refused: bool,
    /// The bits of the standard error of the byte miss ratio, if it is an estimate and the error is
    /// known: a journal is JSON, which has no exact fractions.
    pub error_bits: Option<u64>,
}

impl ObjectCells {
    /// Those of an outcome.
    pub fn of(outcome: &ObjectOutcome) -> ObjectCells {
        let error = outcome.errors().map(|[_, of_bytes]| of_bytes);
        ObjectCells {
            cache_bytes: outcome.cache_bytes,
            hit_bytes: outcome.hit_bytes,
            missed_bytes: outcome.missed_bytes,
            refused: error.is_some_and(|error| error.refused.is_some()),
            error_bits: error
                .and_then(|error| error.standard_error)
                .map(f64::to_bits),
        }
    }

    /// The value, unless the estimate is refused.
    fn known<T>(&self, value: T) -> Option<T> {
        (!self.refused).then_some(value)
    }

    /// The bytes missed per byte; 0 without bytes.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.missed_bytes, self.hit_bytes)
    }
}

/// Misses divided by misses and hits; 0 without either.
fn ratio(misses: u64, hits: u64) -> f64 {
    match hits + misses {
        0 => 0.0,
        all => misses as f64 / all as f64,
    }
}

/// The columns of a placement.
#[derive(Clone, Copy, Debug)]
pub struct PlacementColumns<'a> {
    /// The settings of the run.
    pub running: &'a RunSettings,
    /// The case, and what came of it.
    pub result: CaseSummary<'a>,
    /// The load of the busiest node divided by the mean load; 1 is balanced.
    pub node_imbalance: f64,
}

impl PlacementColumns<'_> {
    fn spec(&self) -> PlacementSpec {
        self.result.case.configuration.spec
    }

    fn topology(&self) -> &Topology {
        &self.result.case.configuration.topology
    }
}

impl<'a> ResultRow<'a> {
    /// The row of a cache of objects, of a size that no user wrote.
    pub(crate) fn of_objects(source: &'a TraceInfo, outcome: &ObjectOutcome) -> ResultRow<'a> {
        let error = outcome.errors().map(|[of_objects, _]| of_objects);
        ResultRow {
            source,
            policy: Some(outcome.spec),
            size: format!("{}B", outcome.cache_bytes),
            cache_blocks: 0,
            hits: outcome.hits,
            misses: outcome.misses,
            refused: error.is_some_and(|error| error.refused.is_some()),
            standard_error: error.and_then(|error| error.standard_error),
            objects: Some(ObjectCells::of(outcome)),
            placement: None,
        }
    }

    /// The value, unless the estimate is refused.
    fn known<T>(&self, value: T) -> Option<T> {
        (!self.refused).then_some(value)
    }

    /// The misses divided by the references; 0 without references.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses, self.hits)
    }
}

enum Column {
    Text(fn(&ResultRow<'_>) -> String),
    Count(fn(&ResultRow<'_>) -> u64),
    Real(fn(&ResultRow<'_>) -> Option<f64>),
    /// Not every row has one.
    OptionalText(fn(&ResultRow<'_>) -> Option<String>),
    /// Not every row has one.
    OptionalCount(fn(&ResultRow<'_>) -> Option<u64>),
}

const COLUMNS: &[(&str, Column)] = &[
    ("trace", Column::Text(|row| row.source.trace.clone())),
    ("sha256", Column::Text(|row| row.source.sha256.clone())),
    ("format", Column::Text(|row| row.source.format.clone())),
    (
        "loaded_with",
        Column::Text(|row| row.source.loaded_with.clone()),
    ),
    (
        "sample_rate",
        Column::Real(|row| row.source.sample_rate.parse().ok()),
    ),
    ("references", Column::Count(|row| row.source.references)),
    ("distinct_blocks", Column::Count(|row| row.source.distinct)),
    (
        "distinct_bytes",
        Column::OptionalCount(|row| row.source.distinct_bytes),
    ),
    ("block_bytes", Column::Count(|row| row.source.block_bytes)),
    (
        "policy",
        Column::OptionalText(|row| Some(row.policy?.entry().name.to_owned())),
    ),
    (
        "spec",
        Column::OptionalText(|row| Some(row.policy?.to_string())),
    ),
    ("size", Column::Text(|row| row.size.clone())),
    (
        "cache_blocks",
        Column::OptionalCount(|row| row.objects.is_none().then_some(row.cache_blocks)),
    ),
    (
        "cache_bytes",
        Column::Count(|row| {
            let of_blocks = row.cache_blocks * row.source.block_bytes;
            row.objects.map_or(of_blocks, |objects| objects.cache_bytes)
        }),
    ),
    ("hits", Column::OptionalCount(|row| row.known(row.hits))),
    ("misses", Column::OptionalCount(|row| row.known(row.misses))),
    (
        "miss_ratio",
        Column::Real(|row| row.known(row.miss_ratio())),
    ),
    ("standard_error", Column::Real(|row| row.standard_error)),
    (
        "hit_bytes",
        Column::OptionalCount(|row| row.objects.and_then(|cells| cells.known(cells.hit_bytes))),
    ),
    (
        "missed_bytes",
        Column::OptionalCount(|row| {
            row.objects
                .and_then(|cells| cells.known(cells.missed_bytes))
        }),
    ),
    (
        "byte_miss_ratio",
        Column::Real(|row| {
            row.objects
                .and_then(|cells| cells.known(cells.miss_ratio()))
        }),
    ),
    (
        "byte_standard_error",
        Column::Real(|row| row.objects?.error_bits.map(f64::from_bits)),
    ),
    (
        "placement",
        Column::OptionalText(|row| Some(row.placement?.spec().entry().name.to_owned())),
    ),
    (
        "placement_spec",
        Column::OptionalText(|row| Some(row.placement?.spec().to_string())),
    ),
    (
        "nodes",
        Column::OptionalText(|row| Some(row.placement?.topology().name().to_owned())),
    ),
    (
        "binding",
        Column::OptionalText(|row| {
            Some(placement::binding_name(row.placement?.running.binding).to_owned())
        }),
    ),
    (
        "warm_up",
        Column::OptionalText(|row| Some(row.placement?.running.warm_up.to_string())),
    ),
    (
        "costs",
        Column::OptionalText(|row| Some(row.placement?.running.costs.to_string())),
    ),
    (
        "local_hit_ratio",
        Column::Real(|row| Some(row.placement?.result.totals.local_hit_ratio())),
    ),
    (
        "hops",
        Column::Real(|row| Some(row.placement?.result.totals.mean_hops())),
    ),
    (
        "hit_latency_ns",
        Column::Real(|row| Some(row.placement?.result.totals.hit_latency_ns())),
    ),
    (
        "access_latency_ns",
        Column::Real(|row| Some(row.placement?.result.totals.access_latency_ns())),
    ),
    (
        "migrations",
        Column::OptionalCount(|row| Some(row.placement?.result.totals.migrations)),
    ),
    (
        "replications",
        Column::OptionalCount(|row| Some(row.placement?.result.totals.replications)),
    ),
    (
        "bytes_moved",
        Column::OptionalCount(|row| Some(row.placement?.result.totals.bytes_moved)),
    ),
    (
        "modelled_time_ns",
        Column::OptionalCount(|row| Some(row.placement?.result.modelled_time_ns)),
    ),
    (
        "node_imbalance",
        Column::Real(|row| Some(row.placement?.node_imbalance)),
    ),
    (
        "hither",
        Column::Text(|_| env!("CARGO_PKG_VERSION").to_owned()),
    ),
];

/// A format for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated values (RFC 4180), with a header line.
    Csv,
    /// One array of objects.
    Json,
    /// Apache Parquet.
    Parquet,
}

impl RowFormat {
    /// All formats with their names, which are also the extensions of their files.
    pub const ALL: [(&'static str, RowFormat); 3] = [
        ("csv", RowFormat::Csv),
        ("json", RowFormat::Json),
        ("parquet", RowFormat::Parquet),
    ];

    /// The rows as the content of a file.
    pub fn write(self, rows: &[ResultRow<'_>]) -> Result<Vec<u8>> {
        match self {
            RowFormat::Csv => Ok(csv(rows).into_bytes()),
            RowFormat::Json => json(rows),
            RowFormat::Parquet => parquet(rows).map_err(|error| Error::Encode {
                format: "Parquet",
                problem: error.to_string(),
            }),
        }
    }
}

impl FromStr for RowFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<RowFormat, String> {
        let known = RowFormat::ALL.iter().find(|(name, _)| *name == text);
        known
            .map(|&(_, format)| format)
            .ok_or_else(|| format!("unknown format {text:?} (known: csv, json, parquet)"))
    }
}

impl fmt::Display for RowFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = RowFormat::ALL[*self as usize];
        f.write_str(name)
    }
}

/// The rows as CSV by RFC 4180, but with line feeds as line ends.
fn csv(rows: &[ResultRow<'_>]) -> String {
    let mut text = String::new();
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    text.push_str(&names.join(","));
    text.push('\n');
    for row in rows {
        for (index, (_, column)) in COLUMNS.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            // Writing to a string cannot fail.
            let _ = match column {
                Column::Text(value) => text.write_str(&quoted(value(row))),
                Column::Count(value) => write!(text, "{}", value(row)),
                Column::Real(value) => value(row).map_or(Ok(()), |value| write!(text, "{value}")),
                Column::OptionalText(value) => {
                    value(row).map_or(Ok(()), |value| text.write_str(&quoted(value)))
                }
                Column::OptionalCount(value) => {
                    value(row).map_or(Ok(()), |value| write!(text, "{value}"))
                }
            };
        }
        text.push('\n');
    }
    text
}

fn quoted(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// One array, an object a line.
fn json(rows: &[ResultRow<'_>]) -> Result<Vec<u8>> {
    let mut bytes = b"[".to_vec();
    for (index, row) in rows.iter().enumerate() {
        bytes.extend(if index == 0 { &b"\n"[..] } else { b",\n" });
        for (column, (name, value)) in COLUMNS.iter().enumerate() {
            bytes.extend(if column == 0 { &b"  {"[..] } else { b", " });
            serde_json::to_writer(&mut bytes, name)?;
            bytes.extend(b": ");
            match value {
                Column::Text(value) => serde_json::to_writer(&mut bytes, &value(row))?,
                Column::Count(value) => serde_json::to_writer(&mut bytes, &value(row))?,
                Column::Real(value) => serde_json::to_writer(&mut bytes, &value(row))?,
                Column::OptionalText(value) => serde_json::to_writer(&mut bytes, &value(row))?,
                Column::OptionalCount(value) => serde_json::to_writer(&mut bytes, &value(row))?,
            }
        }
        bytes.push(b'}');
    }
    bytes.extend(b"\n]\n");
    Ok(bytes)
}

fn parquet(rows: &[ResultRow<'_>]) -> hither_trace::Result<Vec<u8>> {
    let required = table::Column::required;
    let nullable = table::Column::nullable;
    let columns = COLUMNS.iter().map(|&(name, ref column)| match column {
        Column::Text(value) => (
            required(name, ColumnType::Utf8),
            Cells::texts(rows.iter().map(value)),
        ),
        Column::Count(value) => (
            required(name, ColumnType::UInt64),
            Cells::u64s(rows.iter().map(value)),
        ),
        Column::Real(value) => (
            nullable(name, ColumnType::Float64),
            Cells::optional_f64s(rows.iter().map(value)),
        ),
        Column::OptionalText(value) => (
            nullable(name, ColumnType::Utf8),
            Cells::optional_texts(rows.iter().map(value)),
        ),
        Column::OptionalCount(value) => (
            nullable(name, ColumnType::UInt64),
            Cells::optional_u64s(rows.iter().map(value)),
        ),
    });
    let created_by = concat!("hither ", env!("CARGO_PKG_VERSION"));
    table::write_bytes(created_by, columns.collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use hither_sim::placement::{Binding, PlacementConfiguration, Totals};

    use super::*;
    use crate::placement::{PlacementCase, WarmUpSpec};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    /// A placement that was simulated.
    struct Placed {
        case: PlacementCase,
        running: RunSettings,
        totals: Totals,
    }

    fn placed() -> Placed {
        let mesh = Arc::new("mesh:2x2".parse().unwrap());
        Placed {
            case: PlacementCase {
                configuration: PlacementConfiguration::even(
                    "first-touch".parse().unwrap(),
                    mesh,
                    10,
                ),
                size: "10%".to_owned(),
            },
            running: RunSettings {
                binding: Binding::Threads,
                warm_up: WarmUpSpec::Percent(10.0),
                ..RunSettings::default()
            },
            totals: Totals {
                accesses: 4,
                local: 2,
                remote: 1,
                misses: 1,
                hops: 2,
                hit_ns: 300,
                miss_ns: 500,
                migrations: 7,
                bytes_moved: 4096,
                ..Totals::default()
            },
        }
    }

    fn rows<'a>(source: &'a TraceInfo, placed: &'a Placed) -> Vec<ResultRow<'a>> {
        let row = ResultRow {
            source,
            policy: Some("ubm{expire=0}".parse().unwrap()),
            size: "10%".to_owned(),
            cache_blocks: 10,
            hits: 3,
            misses: 1,
            refused: false,
            standard_error: Some(0.01),
            objects: None,
            placement: None,
        };
        let empty = ResultRow {
            policy: Some("lru".parse().unwrap()),
            hits: 0,
            misses: 0,
            refused: false,
            standard_error: None,
            ..row.clone()
        };
        let objects = ResultRow {
            cache_blocks: 0,
            objects: Some(ObjectCells {
                cache_bytes: 1000,
                hit_bytes: 300,
                missed_bytes: 500,
                refused: false,
                error_bits: Some(0.25f64.to_bits()),
            }),
            ..row.clone()
        };
        let placed = PlacementColumns {
            running: &placed.running,
            result: CaseSummary {
                case: &placed.case,
                totals: &placed.totals,
                modelled_time_ns: 800,
            },
            node_imbalance: 1.5,
        };
        let placed = ResultRow {
            policy: None,
            placement: Some(placed),
            refused: false,
            standard_error: None,
            ..row.clone()
        };
        vec![row, empty, objects, placed]
    }

    fn source() -> TraceInfo {
        TraceInfo {
            trace: "a \"b\", c.trace".to_owned(),
            sha256: "00ff".to_owned(),
            format: "lirs".to_owned(),
            loaded_with: "{}".to_owned(),
            sample_rate: "0.5".to_owned(),
            references: 4,
            distinct: 100,
            distinct_bytes: Some(7000),
            block_bytes: 4096,
            placements: "first-touch".to_owned(),
        }
    }

    #[test]
    fn csv_quotes_what_it_must() {
        let (source, placed) = (source(), placed());
        let text = csv(&rows(&source, &placed));
        let version = env!("CARGO_PKG_VERSION");
        let of_trace = "\"a \"\"b\"\", c.trace\",00ff,lirs,{},0.5,4,100,7000,4096";
        let head = "trace,sha256,format,loaded_with,sample_rate,references,distinct_blocks,\
                    distinct_bytes,block_bytes,policy,spec,size,cache_blocks,cache_bytes,\
                    hits,misses,miss_ratio,\
                    standard_error,hit_bytes,missed_bytes,byte_miss_ratio,\
                    byte_standard_error,placement,placement_spec,nodes,binding,warm_up,costs,\
                    local_hit_ratio,hops,hit_latency_ns,access_latency_ns,migrations,\
                    replications,bytes_moved,modelled_time_ns,node_imbalance,hither";
        let cache = "ubm,\"ubm{threshold=3,expire=0,steady=1,periods=power,period_of=stream,\
                     gain=segments,sequential=keep,mapped=classified,other=lru,as=hither}\",10%,10,\
                     40960,3,1,0.25,0.01,,,,,,,,,,,,,,,,,,,";
        let empty = "lru,lru,10%,10,40960,0,0,0,,,,,,,,,,,,,,,,,,,,";
        let objects = cache.replace(
            "10%,10,40960,3,1,0.25,0.01,,,,,",
            "10%,,1000,3,1,0.25,0.01,300,500,0.625,0.25,",
        );
        let placed = ",,10%,10,40960,3,1,0.25,,,,,,first-touch,first-touch,mesh:2x2,threads,10%,,\
                      0.5,0.6666666666666666,100,200,7,0,4096,800,1.5";
        let rows = [cache, empty, &objects, placed];
        let lines = rows.map(|row| format!("{of_trace},{row},{version}\n"));
        assert_eq!(text, format!("{head}\n{}", lines.concat()));
    }

    #[test]
    fn json_and_parquet_hold_the_same() {
        let (source, placed) = (source(), placed());
        let rows = rows(&source, &placed);
        let parsed: serde_json::Value =
            serde_json::from_slice(&RowFormat::Json.write(&rows).unwrap()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&RowFormat::Parquet.write(&rows).unwrap())
            .unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let read: Vec<_> = reader.get_row_iter(None).unwrap().collect();
        assert_eq!(read.len(), rows.len());
        for (row, parsed) in read.into_iter().zip(parsed.as_array().unwrap()) {
            let row = row.unwrap();
            assert_eq!(row.len(), COLUMNS.len());
            for ((name, field), (expected, _)) in row.get_column_iter().zip(COLUMNS) {
                assert_eq!(name, expected);
                let value = match field {
                    Field::Null => serde_json::Value::Null,
                    Field::Str(text) => text.as_str().into(),
                    Field::ULong(count) => (*count).into(),
                    Field::Double(real) => (*real).into(),
                    other => panic!("{name}: {other}"),
                };
                assert_eq!(parsed[name], value, "{name}");
            }
        }
        assert_eq!(RowFormat::Json.write(&[]).unwrap(), b"[\n]\n");
        assert!(RowFormat::Parquet.write(&[]).is_ok());
    }
}
