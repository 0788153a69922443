//! Writes tables, column by column.
//!
//! Parquet stores the column chunks of a row group one after the other, but rows come one by one.
//! So each open chunk is encoded in memory, and the row group is assembled when it is full. Memory
//! holds the encoded row group (2 to 8 MB for 2^20 accesses), and not its rows (69 MB).

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnWriter, get_column_writer};
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::SchemaDescriptor;

use super::column::{Column, ColumnType, Values, parquet_schema};
use crate::error::{self, Error};

/// The first bytes of a Parquet file.
pub(crate) const MAGIC: &[u8] = b"PAR1";

/// The cells of a leaf column: its non-null values, and where nulls and lists are.
pub struct Cells {
    values: Values,
    /// Definition levels, for a column with nulls or in a list.
    definitions: Option<Vec<i16>>,
    /// Repetition levels, for a column in a list: 0 where a row begins, 1 within the list.
    repetitions: Option<Vec<i16>>,
}

/// Separates values from nulls.
fn split<T>(cells: impl Iterator<Item = Option<T>>) -> (Vec<T>, Option<Vec<i16>>) {
    let mut definitions = Vec::new();
    let values = cells
        .inspect(|cell| definitions.push(i16::from(cell.is_some())))
        .flatten()
        .collect();
    (values, Some(definitions))
}

fn byte_array(bytes: impl Into<Vec<u8>>) -> ByteArray {
    ByteArray::from(bytes.into())
}

impl Cells {
    fn required(values: Values) -> Cells {
        Cells {
            values,
            definitions: None,
            repetitions: None,
        }
    }

    fn nullable(values: Values, definitions: Option<Vec<i16>>) -> Cells {
        Cells {
            values,
            definitions,
            repetitions: None,
        }
    }

    /// Of a [`ColumnType::Boolean`] column.
    pub fn booleans(values: impl IntoIterator<Item = bool>) -> Cells {
        Cells::required(Values::Boolean(values.into_iter().collect()))
    }

    /// Of a [`ColumnType::UInt32`] column.
    pub fn u32s(values: impl IntoIterator<Item = u32>) -> Cells {
        let values = values.into_iter().map(u32::cast_signed).collect();
        Cells::required(Values::Int32(values))
    }

    /// Of a [`ColumnType::UInt32`] column with nulls.
    pub fn optional_u32s(cells: impl IntoIterator<Item = Option<u32>>) -> Cells {
        let cells = cells.into_iter().map(|cell| cell.map(u32::cast_signed));
        let (values, definitions) = split(cells);
        Cells::nullable(Values::Int32(values), definitions)
    }

    /// Of a [`ColumnType::UInt64`] column.
    pub fn u64s(values: impl IntoIterator<Item = u64>) -> Cells {
        let values = values.into_iter().map(u64::cast_signed).collect();
        Cells::required(Values::Int64(values))
    }

    /// Of a [`ColumnType::UInt64`] column with nulls.
    pub fn optional_u64s(cells: impl IntoIterator<Item = Option<u64>>) -> Cells {
        let cells = cells.into_iter().map(|cell| cell.map(u64::cast_signed));
        let (values, definitions) = split(cells);
        Cells::nullable(Values::Int64(values), definitions)
    }

    /// Of a [`ColumnType::Float64`] column with nulls.
    pub fn optional_f64s(cells: impl IntoIterator<Item = Option<f64>>) -> Cells {
        let (values, definitions) = split(cells.into_iter());
        Cells::nullable(Values::Double(values), definitions)
    }

    /// Of a [`ColumnType::Utf8`] column.
    pub fn texts<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Cells {
        let values = values.into_iter().map(|text| byte_array(text.into()));
        Cells::required(Values::Bytes(values.collect()))
    }

    /// Of a [`ColumnType::Utf8`] column with nulls.
    pub fn optional_texts<T: Into<String>>(cells: impl IntoIterator<Item = Option<T>>) -> Cells {
        let cells = cells.into_iter();
        let (values, definitions) =
            split(cells.map(|cell| cell.map(|text| byte_array(text.into()))));
        Cells::nullable(Values::Bytes(values), definitions)
    }

    /// Of a [`ColumnType::Utf8`] column with few distinct static values, which are not copied.
    pub(crate) fn names(values: impl IntoIterator<Item = &'static str>) -> Cells {
        let values = values
            .into_iter()
            .map(|name| ByteArray::from(Bytes::from_static(name.as_bytes())));
        Cells::required(Values::Bytes(values.collect()))
    }

    /// Of a [`ColumnType::Binary`] column with nulls.
    pub fn optional_bytes(cells: impl IntoIterator<Item = Option<Vec<u8>>>) -> Cells {
        let (values, definitions) = split(cells.into_iter().map(|cell| cell.map(byte_array)));
        Cells::nullable(Values::Bytes(values), definitions)
    }

    /// Puts the cells of a field into lists of these lengths, one per row.
    pub(crate) fn in_lists(self, lengths: impl Iterator<Item = usize>) -> Cells {
        let mut fields = self.definitions.map(Vec::into_iter);
        let mut definitions = Vec::new();
        let mut repetitions = Vec::new();
        for length in lengths {
            if length == 0 {
                definitions.push(0);
                repetitions.push(0);
            }
            for at in 0..length {
                // A cell in a list is one level deeper than it was.
                let own = fields
                    .as_mut()
                    .map_or(0, |fields| fields.next().unwrap_or(0));
                definitions.push(1 + own);
                repetitions.push(i16::from(at > 0));
            }
        }
        Cells {
            values: self.values,
            definitions: Some(definitions),
            repetitions: Some(repetitions),
        }
    }

    fn write(&self, writer: &mut ColumnWriter<'_>) -> Result<()> {
        use ColumnWriter::{
            BoolColumnWriter, ByteArrayColumnWriter, DoubleColumnWriter, Int32ColumnWriter,
            Int64ColumnWriter,
        };
        let definitions = self.definitions.as_deref();
        let repetitions = self.repetitions.as_deref();
        match (writer, &self.values) {
            (BoolColumnWriter(writer), Values::Boolean(values)) => {
                writer.write_batch(values, definitions, repetitions)
            }
            (Int32ColumnWriter(writer), Values::Int32(values)) => {
                writer.write_batch(values, definitions, repetitions)
            }
            (Int64ColumnWriter(writer), Values::Int64(values)) => {
                writer.write_batch(values, definitions, repetitions)
            }
            (DoubleColumnWriter(writer), Values::Double(values)) => {
                writer.write_batch(values, definitions, repetitions)
            }
            (ByteArrayColumnWriter(writer), Values::Bytes(values)) => {
                writer.write_batch(values, definitions, repetitions)
            }
            _ => Err(ParquetError::General(
                "cells of another type than their column's".to_owned(),
            )),
        }?;
        Ok(())
    }
}

/// Writes a table whose rows come in batches.
pub(crate) struct TableWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    properties: WriterPropertiesPtr,
    /// The column chunks of the open row group. Empty if none is open.
    chunks: Vec<OpenColumn>,
}

impl<W: Write + Send> TableWriter<W> {
    /// Starts a table of these columns.
    pub(crate) fn new(
        output: W,
        columns: &[Column],
        properties: WriterProperties,
    ) -> Result<TableWriter<W>> {
        let properties = Arc::new(properties);
        let file = SerializedFileWriter::new(output, parquet_schema(columns), properties.clone())?;
        Ok(TableWriter {
            file,
            properties,
            chunks: Vec::new(),
        })
    }

    /// Appends rows to the open row group: one element of `leaves` per leaf column, in the schema's
    /// order.
    pub(crate) fn write(&mut self, leaves: &[Cells]) -> Result<()> {
        if self.chunks.is_empty() {
            self.open_row_group();
        }
        assert_eq!(leaves.len(), self.chunks.len(), "cells for each column");
        for (chunk, cells) in self.chunks.iter_mut().zip(leaves) {
            cells.write(&mut chunk.writer)?;
        }
        Ok(())
    }

    /// The row groups that are written.
    pub(crate) fn row_groups(&self) -> &[RowGroupMetaData] {
        self.file.flushed_row_groups()
    }

    /// Writes the open row group, if there is one, and passes all bytes on to the output.
    pub(crate) fn end_row_group(&mut self) -> Result<()> {
        if self.chunks.is_empty() {
            return Ok(());
        }
        let mut row_group = self.file.next_row_group()?;
        for chunk in self.chunks.drain(..) {
            let closed = chunk.writer.close()?;
            let pages = Bytes::from(std::mem::take(&mut *chunk.pages.lock()));
            row_group.append_column(&pages, closed)?;
        }
        row_group.close()?;
        self.file.flush()?;
        Ok(())
    }

    /// Completes the table and returns the output.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.end_row_group()?;
        self.file.into_inner()
    }

    fn open_row_group(&mut self) {
        let schema = self.file.schema_descr();
        let open = |column| {
            let pages = Pages::default();
            let page_writer = OpenColumnPages {
                sink: TrackedWrite::new(pages.clone()),
            };
            OpenColumn {
                writer: get_column_writer(
                    schema.column(column),
                    self.properties.clone(),
                    Box::new(page_writer),
                ),
                pages,
            }
        };
        self.chunks = (0..schema.num_columns()).map(open).collect();
    }
}

/// The footer of a table of these columns and row groups: what follows the last row group.
pub(crate) fn footer(
    columns: &[Column],
    row_groups: &[RowGroupMetaData],
    key_values: Option<Vec<KeyValue>>,
) -> Result<Vec<u8>> {
    let properties = WriterProperties::default();
    let file = FileMetaData::new(
        properties.writer_version().as_num(),
        row_groups.iter().map(RowGroupMetaData::num_rows).sum(),
        Some(properties.created_by().to_owned()),
        key_values,
        Arc::new(SchemaDescriptor::new(parquet_schema(columns))),
        None,
    );
    let metadata = ParquetMetaData::new(file, row_groups.to_vec());
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
    Ok(footer)
}

/// Where the last of these row groups ends in its file.
pub(crate) fn end_of(row_groups: &[RowGroupMetaData]) -> u64 {
    let columns = row_groups.iter().flat_map(RowGroupMetaData::columns);
    let ends = columns.map(|column| {
        let (start, length) = column.byte_range();
        start.saturating_add(length)
    });
    ends.max().unwrap_or(0).max(MAGIC.len() as u64)
}

impl<W: Write + Send> fmt::Debug for TableWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// A column chunk that is being encoded.
struct OpenColumn {
    writer: ColumnWriter<'static>,
    pages: Pages,
}

/// The encoded pages of a column chunk, shared by its column writer and the row group.
#[derive(Clone, Default)]
struct Pages(Arc<Mutex<Vec<u8>>>);

impl Pages {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Pages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends pages to [`Pages`]. `SerializedPageWriter` borrows its output, so each page gets a new
/// one; it has no other state.
struct OpenColumnPages {
    sink: TrackedWrite<Pages>,
}

impl PageWriter for OpenColumnPages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        SerializedPageWriter::new(&mut self.sink).write_page(page)
    }

    fn close(&mut self) -> Result<()> {
        self.sink.flush()?;
        Ok(())
    }
}

/// A table as the bytes of a Parquet file. `created_by` is the name of the program in the file.
///
/// # Panics
///
/// Panics if a column is a list, since lists have several leaf columns.
pub fn write_bytes(created_by: &str, table: Vec<(Column, Cells)>) -> error::Result<Vec<u8>> {
    let (columns, cells): (Vec<Column>, Vec<Cells>) = table.into_iter().unzip();
    let list = |column: &Column| matches!(column.column_type, ColumnType::List(_));
    assert!(!columns.iter().any(list), "columns of plain values");
    let properties = WriterProperties::builder()
        .set_created_by(created_by.to_owned())
        .build();
    let write = || {
        let mut writer = TableWriter::new(Vec::new(), &columns, properties)?;
        writer.write(&cells)?;
        writer.finish()
    };
    write().map_err(|error: ParquetError| Error::Output {
        source: io::Error::other(error),
    })
}
