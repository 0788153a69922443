//! Traces of Arrow tables: a row is a request, or a reference to a block.

use std::collections::HashMap;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::RecordBatchStreamReader;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Schema};
use hither_analysis::Error;
use hither_core::Op;
use hither_trace::TraceBuilder;
use hither_trace::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use twox_hash::XxHash64;

use crate::errors::refused;
use crate::trace::{Trace, options};
use crate::work;

/// Rows that are converted at a time.
const BATCH_ROWS: usize = 1 << 16;

/// A trace of a table: anything that has `__arrow_c_stream__`. `python/src/hither/_arrow.py` says
/// which columns it has.
#[pyfunction]
pub(crate) fn from_arrow(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    name: PathBuf,
    block: &str,
    keep_repeats: bool,
    show: &Bound<'_, PyAny>,
) -> PyResult<Trace> {
    let batches = stream(table)?;
    let options = options(py, block, "100%", keep_repeats, true, true)?;
    let layout = Layout::of(&batches.schema()).map_err(|problem| refused(py, problem))?;
    let loaded = work::run(py, show, move |progress| {
        let mut import = Import::new(TraceBuilder::new(name, &options)?, layout);
        let bar = hither_analysis::progress::Progress::begin(progress, "reading", None);
        for batch in batches {
            let batch = batch.map_err(|error| Error::Usage(error.to_string()))?;
            for at in (0..batch.num_rows()).step_by(BATCH_ROWS) {
                let part = batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at));
                import.add(&part)?;
                bar.advance(part.num_rows() as u64);
            }
        }
        Ok(import.builder.finish()?)
    })?;
    Ok(Trace::new(loaded))
}

/// The batches of a table.
#[expect(unsafe_code, reason = "the Arrow C stream interface passes a pointer")]
fn stream(table: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let Ok(method) = table.getattr("__arrow_c_stream__") else {
        let problem = format!(
            "a table with __arrow_c_stream__ is needed, not {}",
            table.get_type()
        );
        return Err(PyTypeError::new_err(problem));
    };
    let capsule = method.call0()?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds an `ArrowArrayStream` (Arrow PyCapsule interface), which
    // is valid while the capsule lives; it is moved out, so that the capsule releases nothing.
    let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.cast().as_ptr()) };
    reader.map_err(|error| refused(table.py(), error))
}

/// The columns that are used.
struct Layout {
    place: Place,
    op: Option<usize>,
    site: Option<usize>,
    process: Option<usize>,
    thread: Option<usize>,
    node: Option<usize>,
    count: Option<usize>,
    time_ns: Option<usize>,
}

/// What says which blocks a row is about.
enum Place {
    /// `block` alone.
    Block(usize),
    /// `file` and `file_block`.
    FileBlock(usize, usize),
    /// `file`, `offset` and `length`, in bytes.
    Range(usize, usize, usize),
}

impl Layout {
    fn of(schema: &Schema) -> Result<Layout, String> {
        let column = |name: &str| schema.index_of(name).ok();
        let range = column("file").zip(column("offset")).zip(column("length"));
        let place = match (
            range,
            column("file").zip(column("file_block")),
            column("block"),
        ) {
            (Some(((file, offset), length)), _, _) => Place::Range(file, offset, length),
            (None, Some((file, index)), _) => Place::FileBlock(file, index),
            (None, None, Some(block)) => Place::Block(block),
            (None, None, None) => {
                let fields = schema.fields().iter();
                let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
                return Err(format!(
                    "the table has the columns {}: what is read is `file`, `offset` and `length`, \
                     or `file` and `file_block`, or `block`",
                    names.join(", ")
                ));
            }
        };
        Ok(Layout {
            place,
            op: column("op"),
            site: column("site"),
            process: column("process"),
            thread: column("thread"),
            node: column("node"),
            count: column("count"),
            time_ns: column("time_ns"),
        })
    }

    /// Whether blocks and operations are all that there is.
    fn is_bare(&self) -> bool {
        let others = [
            self.site,
            self.process,
            self.thread,
            self.node,
            self.count,
            self.time_ns,
        ];
        matches!(self.place, Place::Block(_)) && others.iter().all(Option::is_none)
    }
}

struct Import {
    builder: TraceBuilder,
    layout: Layout,
    files: HashMap<Name, u32>,
    sites: HashMap<Name, u32>,
    processes: HashMap<u64, u32>,
    threads: HashMap<(u32, u64), u32>,
    rows: u64,
}

/// A file or a call site, as the table names it.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Number(u64),
    Text(String),
}

impl Import {
    fn new(mut builder: TraceBuilder, layout: Layout) -> Import {
        if !layout.is_bare() {
            builder.describe(Vec::new(), vec![SiteRow::unknown()], Meta::default());
        }
        Import {
            builder,
            layout,
            files: HashMap::new(),
            sites: HashMap::from([(Name::Number(0), 0)]),
            processes: HashMap::new(),
            threads: HashMap::new(),
            rows: 0,
        }
    }

    fn add(&mut self, batch: &RecordBatch) -> hither_analysis::Result<()> {
        let first = self.rows;
        self.rows += batch.num_rows() as u64;
        let columns = Columns { batch, first };
        let ops = match self.layout.op {
            None => vec![RowOp::Read; batch.num_rows()],
            Some(op) => columns
                .names(op)?
                .resolved(|name| op_of(name).map_err(Error::Usage))?,
        };
        if self.layout.is_bare()
            && let Place::Block(block) = self.layout.place
        {
            for (id, op) in columns.numbers(block)?.into_iter().zip(ops) {
                let op = match op {
                    RowOp::Write => Op::Write,
                    _ => Op::Read,
                };
                self.builder.key(id, op)?;
            }
            return Ok(());
        }
        self.requests(&columns, ops)
    }

    fn requests(&mut self, columns: &Columns<'_>, ops: Vec<RowOp>) -> hither_analysis::Result<()> {
        let block_bytes = u64::from(self.builder.block_bytes());
        let in_bytes = |blocks: Vec<u64>| -> Vec<u64> {
            let bytes = blocks
                .into_iter()
                .map(|block| block.saturating_mul(block_bytes));
            bytes.collect()
        };
        let rows = ops.len();
        let (files, offsets, lengths) = match self.layout.place {
            Place::Block(block) => {
                let one = self.file(&Name::Text("blocks".to_owned()));
                let offsets = in_bytes(columns.numbers(block)?);
                (vec![one; rows], offsets, vec![block_bytes; rows])
            }
            Place::FileBlock(file, index) => {
                let offsets = in_bytes(columns.numbers(index)?);
                let files = columns.names(file)?.resolved(|name| Ok(self.file(name)))?;
                (files, offsets, vec![block_bytes; rows])
            }
            Place::Range(file, offset, length) => {
                let files = columns.names(file)?.resolved(|name| Ok(self.file(name)))?;
                (files, columns.numbers(offset)?, columns.numbers(length)?)
            }
        };
        let sites = match self.layout.site {
            None => vec![0; rows],
            Some(site) => columns.names(site)?.resolved(|name| Ok(self.site(name)))?,
        };
        let or = |column: Option<usize>, otherwise| match column {
            None => Ok(vec![otherwise; rows]),
            Some(column) => columns.numbers(column),
        };
        let (processes, threads) = (or(self.layout.process, 0)?, or(self.layout.thread, 0)?);
        let (nodes, counts) = (or(self.layout.node, 0)?, or(self.layout.count, 1)?);
        let times = or(self.layout.time_ns, 0)?;
        for at in 0..rows {
            let (process, thread) = self.thread(processes[at], threads[at]);
            // Too large is an error of the row in any case.
            let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            self.builder.request(&AccessRow {
                time_ns: times[at],
                process,
                thread,
                node: small(nodes[at]),
                site: sites[at],
                object: files[at],
                op: ops[at],
                in_kernel: false,
                offset: offsets[at],
                length: lengths[at],
                count: small(counts[at]),
            })?;
        }
        Ok(())
    }

    fn file(&mut self, name: &Name) -> u32 {
        if let Some(&known) = self.files.get(name) {
            return known;
        }
        let path = match name {
            Name::Number(number) => number.to_string(),
            Name::Text(path) => path.clone(),
        };
        let number = self.builder.add_object(ObjectRow {
            path: path.into_bytes(),
            ..ObjectRow::default()
        });
        self.files.insert(name.clone(), number);
        number
    }

    fn site(&mut self, name: &Name) -> u32 {
        if let Some(&known) = self.sites.get(name) {
            return known;
        }
        let row = match name {
            Name::Number(signature) => SiteRow {
                signature: *signature,
                ..SiteRow::unknown()
            },
            Name::Text(function) => SiteRow {
                // 0 is the unknown site's.
                signature: XxHash64::oneshot(0, function.as_bytes()).max(1),
                function: Some(function.clone()),
                ..SiteRow::unknown()
            },
        };
        let number = self.builder.add_site(row);
        self.sites.insert(name.clone(), number);
        number
    }

    /// The numbers of a process and one of its threads.
    fn thread(&mut self, process: u64, thread: u64) -> (u32, u32) {
        let builder = &mut self.builder;
        let process = *self
            .processes
            .entry(process)
            .or_insert_with(|| builder.add_process(ProcessRow::default()));
        let thread = *self.threads.entry((process, thread)).or_insert_with(|| {
            builder.add_thread(ThreadRow {
                process,
                ..ThreadRow::default()
            })
        });
        (process, thread)
    }
}

fn op_of(name: &Name) -> Result<RowOp, String> {
    let known = [RowOp::Read, RowOp::Write, RowOp::Map];
    let found = match name {
        Name::Text(text) => known.into_iter().find(|op| op.name() == text),
        Name::Number(_) => None,
    };
    let shown = match name {
        Name::Text(text) => text.clone(),
        Name::Number(number) => number.to_string(),
    };
    found.ok_or_else(|| format!("column `op`: `{shown}` is none of read, write and map"))
}

/// Some rows of a table.
struct Columns<'a> {
    batch: &'a RecordBatch,
    /// The row of the table that is the first here.
    first: u64,
}

/// A column of names: a name for each row, by its place among the different ones.
struct Names {
    different: Vec<Name>,
    of_row: Vec<usize>,
}

impl Names {
    /// What `one` makes of the name of each row. It is called once for each different name, in the
    /// order of the rows.
    fn resolved<T: Copy>(
        &self,
        mut one: impl FnMut(&Name) -> hither_analysis::Result<T>,
    ) -> hither_analysis::Result<Vec<T>> {
        let mut known: Vec<Option<T>> = vec![None; self.different.len()];
        let resolved = self.of_row.iter().map(|&at| match known[at] {
            Some(known) => Ok(known),
            None => {
                let new = one(&self.different[at])?;
                known[at] = Some(new);
                Ok(new)
            }
        });
        resolved.collect()
    }
}

impl Columns<'_> {
    fn name(&self, column: usize) -> String {
        self.batch.schema_ref().field(column).name().clone()
    }

    fn error(&self, column: usize, row: usize, problem: &str) -> Error {
        let (name, row) = (self.name(column), self.first + row as u64);
        Error::Usage(format!("column `{name}`, row {row}: {problem}"))
    }

    /// A column of whole numbers from 0 on.
    fn numbers(&self, column: usize) -> hither_analysis::Result<Vec<u64>> {
        let array = self.batch.column(column);
        self.no_nulls(column)?;
        macro_rules! signed {
            ($kind:ty) => {{
                let values = array.as_primitive::<$kind>().values();
                let negative = values.iter().position(|&value| value < 0);
                if let Some(row) = negative {
                    return Err(self.error(column, row, &format!("{} is below 0", values[row])));
                }
                values.iter().map(|&value| value as u64).collect()
            }};
        }
        macro_rules! unsigned {
            ($kind:ty) => {{
                let values = array.as_primitive::<$kind>().values();
                values.iter().map(|&value| u64::from(value)).collect()
            }};
        }
        Ok(match array.data_type() {
            DataType::Int8 => signed!(Int8Type),
            DataType::Int16 => signed!(Int16Type),
            DataType::Int32 => signed!(Int32Type),
            DataType::Int64 => signed!(Int64Type),
            DataType::UInt8 => unsigned!(UInt8Type),
            DataType::UInt16 => unsigned!(UInt16Type),
            DataType::UInt32 => unsigned!(UInt32Type),
            DataType::UInt64 => unsigned!(UInt64Type),
            other => {
                let name = self.name(column);
                let problem = format!("column `{name}` has to be of whole numbers, not {other}");
                return Err(Error::Usage(problem));
            }
        })
    }

    /// A column of texts, or of numbers.
    fn names(&self, column: usize) -> hither_analysis::Result<Names> {
        let array = self.batch.column(column);
        self.no_nulls(column)?;
        if let Some(dictionary) = array.as_any_dictionary_opt()
            && let Some(texts) = texts(dictionary.values())
        {
            return Ok(Names {
                different: texts.into_iter().map(Name::Text).collect(),
                of_row: dictionary.normalized_keys(),
            });
        }
        let names: Vec<Name> = match texts(array) {
            Some(texts) => texts.into_iter().map(Name::Text).collect(),
            None => self
                .numbers(column)?
                .into_iter()
                .map(Name::Number)
                .collect(),
        };
        let mut numbers: HashMap<&Name, usize> = HashMap::new();
        let mut different = Vec::new();
        let mut of_row = Vec::with_capacity(names.len());
        for name in &names {
            of_row.push(*numbers.entry(name).or_insert_with(|| {
                different.push(name.clone());
                different.len() - 1
            }));
        }
        Ok(Names { different, of_row })
    }

    fn no_nulls(&self, column: usize) -> hither_analysis::Result<()> {
        let array = self.batch.column(column);
        let null = (0..array.len()).find(|&row| array.null_count() > 0 && array.is_null(row));
        null.map_or(Ok(()), |row| {
            Err(self.error(column, row, "there is no value"))
        })
    }
}

/// The values of an array of texts.
fn texts(array: &dyn Array) -> Option<Vec<String>> {
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().map(owned).collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(owned).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(owned).collect(),
        _ => return None,
    })
}
