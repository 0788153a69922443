//! What a trace holds, and the rows of results, as Arrow tables.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, ListArray, RecordBatch,
    RecordBatchIterator, RecordBatchReader, StringArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, SchemaRef};
use hither_core::Access;
use hither_core::registry::Needs;
use hither_trace::schema::{ObjectRow, SiteRow};
use hither_trace::{RequestCounts, Trace as Loaded};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use serde_json::Value;

use crate::errors::refused;
use crate::trace::Trace;

/// Rows of a batch of accesses.
const BATCH_ROWS: usize = 1 << 16;

type Batches = Box<dyn RecordBatchReader + Send>;

/// A table. Each stream of it begins at the first row.
#[pyclass(frozen, module = "hither._hither")]
pub(crate) struct Table {
    rows: usize,
    schema: SchemaRef,
    batches: Box<dyn Fn() -> Batches + Send + Sync>,
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.rows
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// A stream of the whole table. The schema that the reader would like is not looked at, as the
    /// interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let stream = FFI_ArrowArrayStream::new((self.batches)());
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

impl Table {
    /// A table in memory.
    fn of(batch: RecordBatch) -> Table {
        let schema = batch.schema();
        let its = schema.clone();
        Table {
            rows: batch.num_rows(),
            schema,
            batches: Box::new(move || {
                let all = std::iter::once(Ok(batch.clone()));
                Box::new(RecordBatchIterator::new(all, its.clone()))
            }),
        }
    }
}

/// The references of a trace: a row for each.
#[pyfunction]
pub(crate) fn accesses(py: Python<'_>, trace: &Trace) -> PyResult<Table> {
    let trace = trace.get(py)?;
    let schema = access_columns(&[]).schema();
    let its = schema.clone();
    Ok(Table {
        rows: trace.references(),
        schema,
        batches: Box::new(move || {
            Box::new(References {
                trace: Arc::clone(&trace),
                schema: its.clone(),
                next: 0,
                batch: Vec::new(),
            })
        }),
    })
}

/// The references of a trace, batch after batch.
struct References {
    trace: Arc<Loaded>,
    schema: SchemaRef,
    next: usize,
    batch: Vec<Access>,
}

impl Iterator for References {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.trace.references() {
            return None;
        }
        let needs = Needs {
            objects: true,
            ..Needs::NOTHING
        };
        let filled = self
            .trace
            .fill(self.next, BATCH_ROWS, needs, &mut self.batch);
        self.next += BATCH_ROWS;
        let columns = filled.map(|()| access_columns(&self.batch));
        Some(columns.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for References {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn access_columns(accesses: &[Access]) -> RecordBatch {
    let numbers = |number: fn(&Access) -> u32| -> ArrayRef {
        Arc::new(accesses.iter().map(number).collect::<UInt32Array>())
    };
    let nodes: UInt16Array = accesses.iter().map(|access| access.node.0).collect();
    let names = StringArray::from(vec!["read", "write", "map"]);
    let ops = accesses.iter().map(|access| access.op as i8).collect();
    let ops = DictionaryArray::<Int8Type>::new(ops, Arc::new(names));
    table(vec![
        ("block", numbers(|access| access.block.0)),
        ("file", numbers(|access| access.object.0)),
        ("file_block", numbers(|access| access.index)),
        ("op", Arc::new(ops)),
        ("site", numbers(|access| access.site.0)),
        ("process", numbers(|access| access.process.0)),
        ("thread", numbers(|access| access.thread.0)),
        ("node", Arc::new(nodes)),
        ("count", numbers(|access| access.count)),
    ])
}

/// The files of a trace, or the regions of memory: `file` of an access is the row.
#[pyfunction]
pub(crate) fn files(py: Python<'_>, trace: &Trace) -> PyResult<Table> {
    let trace = trace.get(py)?;
    let objects = trace.objects();
    let numbers = |number: fn(&ObjectRow) -> u64| -> ArrayRef {
        Arc::new(objects.iter().map(number).collect::<UInt64Array>())
    };
    let paths = objects.iter().map(|object| Some(object.path_lossy()));
    let kinds = objects.iter().map(|object| Some(object.kind.name()));
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("path", Arc::new(paths.collect::<StringArray>())),
        ("kind", Arc::new(kinds.collect::<StringArray>())),
        ("size", numbers(|object| object.size)),
        ("first_seen_ns", numbers(|object| object.first_seen_ns)),
        ("last_seen_ns", numbers(|object| object.last_seen_ns)),
    ];
    columns.extend(count_columns(trace.object_counts()));
    Ok(Table::of(table(columns)))
}

/// The call sites of a trace: `site` of an access is the row, and row 0 is the unknown site.
#[pyfunction]
pub(crate) fn sites(py: Python<'_>, trace: &Trace) -> PyResult<Table> {
    let trace = trace.get(py)?;
    let sites = trace.sites();
    let texts = |text: fn(&SiteRow) -> Option<String>| -> ArrayRef {
        Arc::new(sites.iter().map(text).collect::<StringArray>())
    };
    let signatures: UInt64Array = sites.iter().map(|site| site.signature).collect();
    let lines: UInt32Array = sites.iter().map(|site| site.line).collect();
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("label", texts(|site| Some(site.label()))),
        ("signature", Arc::new(signatures)),
        ("function", texts(|site| site.function.clone())),
        ("source", texts(|site| site.file.clone())),
        ("line", Arc::new(lines)),
        ("module", texts(|site| site.module.clone())),
        ("stack", Arc::new(stacks(sites))),
    ];
    columns.extend(count_columns(trace.site_counts()));
    Ok(Table::of(table(columns)))
}

/// The frames of each site, innermost first.
fn stacks(sites: &[SiteRow]) -> ListArray {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for site in sites {
        let labels = site.frames.iter().map(|frame| Some(frame.label()));
        lists.append_value(labels);
    }
    lists.finish()
}

fn count_columns(counts: &[RequestCounts]) -> Vec<(&'static str, ArrayRef)> {
    let column = |count: fn(&RequestCounts) -> u64| -> ArrayRef {
        Arc::new(counts.iter().map(count).collect::<UInt64Array>())
    };
    vec![
        ("requests", column(|counts| counts.requests)),
        ("sequential", column(|counts| counts.sequential)),
        ("read_bytes", column(|counts| counts.read_bytes)),
        ("written_bytes", column(|counts| counts.written_bytes)),
        ("mapped_bytes", column(|counts| counts.mapped_bytes)),
        ("loads", column(|counts| counts.loads)),
        ("stores", column(|counts| counts.stores)),
        ("faults", column(|counts| counts.faults)),
    ]
}

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

/// A table of rows that are JSON objects with the same keys. A column is of whole numbers, of
/// numbers, of truth values or of texts; what is none of these becomes JSON texts.
#[pyfunction]
pub(crate) fn rows(py: Python<'_>, json: &str) -> PyResult<Table> {
    let parsed = serde_json::from_str::<Vec<serde_json::Map<String, Value>>>(json);
    let rows = parsed.map_err(|error| refused(py, error))?;
    let names: Vec<&String> = rows
        .first()
        .map(|row| row.keys().collect())
        .unwrap_or_default();
    let columns = names.iter().map(|name| {
        let values = rows
            .iter()
            .map(|row| row.get(*name).unwrap_or(&Value::Null));
        (name.as_str(), column(&values.collect::<Vec<_>>()))
    });
    let columns: Vec<(&str, ArrayRef)> = columns.collect();
    if columns.is_empty() {
        return Ok(Table::of(RecordBatch::new_empty(Arc::new(
            arrow_schema::Schema::empty(),
        ))));
    }
    Ok(Table::of(table(columns)))
}

fn column(values: &[&Value]) -> ArrayRef {
    let all = |is: fn(&Value) -> bool| values.iter().all(|value| value.is_null() || is(value));
    let values = values.iter();
    if all(Value::is_i64) {
        Arc::new(values.map(|value| value.as_i64()).collect::<Int64Array>())
    } else if all(Value::is_number) {
        Arc::new(values.map(|value| value.as_f64()).collect::<Float64Array>())
    } else if all(Value::is_boolean) {
        Arc::new(
            values
                .map(|value| value.as_bool())
                .collect::<BooleanArray>(),
        )
    } else {
        let text = |value: &&Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        Arc::new(values.map(text).collect::<StringArray>())
    }
}
