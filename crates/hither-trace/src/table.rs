//! Reads Parquet files batch by batch, and distrusts them: a trace is something that one gets from
//! others.
//!
//! The types of columns are taken from the Parquet schema alone and not from the Arrow schema that
//! some writers embed, so that a trace that went through pandas or DuckDB reads like our own.

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};

use crate::error::{Error, Result};

/// Rows decoded at a time: enough to amortise the call, few enough for the second-level cache.
const BATCH_ROWS: usize = 1 << 14;

/// A Parquet file that is being read.
pub(crate) struct Table {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
}

impl Table {
    /// Opens a file and checks that it has the `wanted` columns of `schema`, with their types.
    pub(crate) fn open(path: PathBuf, schema: &Schema, wanted: &[&str]) -> Result<Table> {
        let file = File::open(&path).map_err(Error::io(&path))?;
        let reader = guarded(&path, || {
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let metadata =
                ArrowReaderMetadata::load(&file, options.clone()).map_err(Error::parquet(&path))?;
            let mut fields: Vec<Arc<Field>> = metadata.schema().fields().iter().cloned().collect();
            let mut roots = Vec::new();
            for name in wanted {
                let expected = schema
                    .field_with_name(name)
                    .expect("a column of the schema")
                    .data_type();
                let root = check(&path, &fields, name, expected)?;
                if let DataType::Dictionary(..) = expected {
                    let field = fields[root].as_ref().clone();
                    fields[root] = Arc::new(field.with_data_type(expected.clone()));
                }
                roots.push(root);
            }
            let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
            let options = options.with_schema(Arc::new(Schema::new(fields)));
            let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)
                .map_err(Error::parquet(&path))?;
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()
                .map_err(Error::parquet(&path))
        })?;
        Ok(Table { path, reader })
    }

    /// The next rows.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>> {
        let path = &self.path;
        let reader = &mut self.reader;
        guarded(path, || match reader.next() {
            None => Ok(None),
            Some(Ok(rows)) => Ok(Some(Batch {
                path: path.clone(),
                rows,
            })),
            Some(Err(error)) => Err(Error::Parquet {
                path: path.clone(),
                problem: error.to_string(),
            }),
        })
    }
}

/// Some rows of a table.
pub(crate) struct Batch {
    path: PathBuf,
    rows: RecordBatch,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// A column that may hold nulls.
    pub(crate) fn nullable<A: Array + 'static>(&self, name: &str) -> Result<&A> {
        let column = self.rows.column_by_name(name);
        typed(column.map(|column| column.as_any()))
            .ok_or_else(|| self.error(name, "has an unexpected type"))
    }

    /// A column that must not hold nulls.
    pub(crate) fn column<A: Array + 'static>(&self, name: &str) -> Result<&A> {
        let column = self.nullable::<A>(name)?;
        if column.null_count() > 0 {
            Err(self.error(name, "holds nulls"))
        } else {
            Ok(column)
        }
    }

    /// A field of a nested column that may hold nulls.
    pub(crate) fn nested<'a, A: Array + 'static>(
        &self,
        parent: &'a StructArray,
        name: &str,
    ) -> Result<&'a A> {
        let column = parent.column_by_name(name);
        typed(column.map(|column| column.as_any()))
            .ok_or_else(|| self.error(name, "has an unexpected type"))
    }

    /// An error about a column of these rows.
    pub(crate) fn error(&self, column: &str, problem: &str) -> Error {
        column_error(&self.path, column, problem.to_owned())
    }
}

fn typed<A: 'static>(column: Option<&dyn Any>) -> Option<&A> {
    column.and_then(|column| column.downcast_ref())
}

fn column_error(path: &Path, column: &str, problem: String) -> Error {
    Error::Column {
        path: path.to_owned(),
        column: column.to_owned(),
        problem,
    }
}

/// Where a column stands among `fields`, if it is there with the expected type.
fn check(path: &Path, fields: &[Arc<Field>], name: &str, expected: &DataType) -> Result<usize> {
    let place = fields.iter().position(|field| field.name() == name);
    let place = place.ok_or_else(|| column_error(path, name, "is missing".to_owned()))?;
    let actual = fields[place].data_type();
    match (expected, actual) {
        (DataType::List(expected), DataType::List(actual)) => {
            let (DataType::Struct(expected), DataType::Struct(actual)) =
                (expected.data_type(), actual.data_type())
            else {
                return Err(column_error(
                    path,
                    name,
                    format!("is a list of {}", actual.data_type()),
                ));
            };
            for field in expected {
                check(path, actual, field.name(), field.data_type())
                    .map_err(|error| within(error, name))?;
            }
        }
        (expected, actual) => {
            let expected = match expected {
                DataType::Dictionary(_, values) => values,
                plain => plain,
            };
            if expected != actual {
                return Err(column_error(
                    path,
                    name,
                    format!("is {actual}, not {expected}"),
                ));
            }
        }
    }
    Ok(place)
}

/// Puts the name of a nested column's parent before its own.
fn within(error: Error, parent: &str) -> Error {
    match error {
        Error::Column {
            path,
            column,
            problem,
        } => Error::Column {
            path,
            column: format!("{parent}.{column}"),
            problem,
        },
        other => other,
    }
}

/// Runs the decoder, and makes an error of a panic in it. It does panic: in 6000 loads with one to
/// three bits flipped (`tests/damaged.rs`, parquet 60.1, 2026-11), 13 times, in five places (a
/// negative column start, a division by zero, an index out of bounds). What it leaves behind is
/// dropped with the table. The panic hook still prints its line on stderr; the hook is the
/// program's, and a library has no business replacing it.
fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        let problem = format!("the decoder gave up: {}", said.unwrap_or("no reason given"));
        Err(Error::Parquet {
            path: path.to_owned(),
            problem,
        })
    })
}
