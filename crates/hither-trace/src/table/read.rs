//! Reads Parquet files in batches. Traces come from other people, so nothing in a file is trusted.
//!
//! Column types are taken from the Parquet schema, and not from the Arrow schema that some writers
//! embed. So a trace that passed through pandas or DuckDB reads like our own.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::ByteArray;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};

use super::column::{Column, ColumnType, Values};
use super::dictionary::{IndexPages, is_dictionary};
use crate::error::{Error, Result};

/// Rows decoded at a time: enough to amortise the call, and few enough for the second-level cache.
const BATCH_ROWS: usize = 1 << 14;

/// A Parquet file that is being read.
pub(crate) struct Table {
    path: PathBuf,
    file: SerializedFileReader<File>,
    leaves: Vec<Leaf>,
    /// The row group to open next.
    next_row_group: usize,
    /// Rows of the open row group that are not yet read.
    rows_left: usize,
}

impl Table {
    /// Opens a file and checks that it has the `wanted` columns, with their types.
    pub(crate) fn open<'a>(
        path: PathBuf,
        wanted: impl IntoIterator<Item = &'a Column>,
    ) -> Result<Table> {
        let file = File::open(&path).map_err(Error::io(&path))?;
        let (file, leaves) = guarded(&path, || {
            let file = SerializedFileReader::new(file).map_err(Error::parquet(&path))?;
            let schema = file.metadata().file_metadata().schema_descr();
            let mut leaves = Vec::new();
            for column in wanted {
                find(schema, column, &mut leaves).map_err(|(name, problem)| Error::Column {
                    path: path.clone(),
                    column: name,
                    problem,
                })?;
            }
            Ok((file, leaves))
        })?;
        Ok(Table {
            path,
            file,
            leaves,
            next_row_group: 0,
            rows_left: 0,
        })
    }

    /// The row groups before the one that is being read.
    pub(crate) fn row_groups_read(&self) -> usize {
        self.next_row_group.saturating_sub(1)
    }

    /// The next rows. `None` at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RowBatch<'_>>> {
        let path = self.path.clone();
        let rows = guarded(&path, || {
            while self.rows_left == 0 {
                if self.next_row_group == self.file.num_row_groups() {
                    return Ok(0);
                }
                self.open_row_group().map_err(Error::parquet(&path))?;
            }
            let rows = self.rows_left.min(BATCH_ROWS);
            for leaf in &mut self.leaves {
                if leaf.read(rows).map_err(Error::parquet(&path))? != rows {
                    let problem = "ends before the row group does";
                    return Err(column_error(&path, &leaf.name, problem));
                }
            }
            self.rows_left -= rows;
            Ok(rows)
        })?;
        Ok((rows > 0).then_some(RowBatch { table: self, rows }))
    }

    fn open_row_group(&mut self) -> parquet::errors::Result<()> {
        self.next_row_group += 1;
        let row_group = self.file.get_row_group(self.next_row_group - 1)?;
        for leaf in &mut self.leaves {
            let pages = row_group.get_column_page_reader(leaf.index)?;
            leaf.open(row_group.metadata().column(leaf.index), pages)?;
        }
        self.rows_left = usize::try_from(row_group.metadata().num_rows())?;
        Ok(())
    }
}

/// Some rows of a table.
pub(crate) struct RowBatch<'a> {
    table: &'a Table,
    rows: usize,
}

impl<'a> RowBatch<'a> {
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// A column of booleans that must not hold nulls.
    pub(crate) fn booleans(&self, name: &str) -> Result<&'a [bool]> {
        match &self.without_nulls(name)?.values {
            Values::Boolean(values) => Ok(values),
            _ => Err(self.unexpected_type(name)),
        }
    }

    /// A column of numbers that must not hold nulls.
    pub(crate) fn u32s(&self, name: &str) -> Result<U32s<'a>> {
        match &self.without_nulls(name)?.values {
            Values::Int32(values) => Ok(U32s(values)),
            _ => Err(self.unexpected_type(name)),
        }
    }

    /// A column of numbers that must not hold nulls.
    pub(crate) fn u64s(&self, name: &str) -> Result<U64s<'a>> {
        match &self.without_nulls(name)?.values {
            Values::Int64(values) => Ok(U64s(values)),
            _ => Err(self.unexpected_type(name)),
        }
    }

    /// A column of bytes, or of text as bytes, that must not hold nulls.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<&'a [u8]>> {
        let values = self.without_nulls(name)?.bytes();
        values.ok_or_else(|| self.unexpected_type(name))
    }

    /// A column of text that must not hold nulls, and what `parse` makes of it. `None` is an error.
    pub(crate) fn parsed<T: Copy>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>> {
        let leaf = self.without_nulls(name)?;
        let unknown = |text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            self.error(name, &format!("unknown {name} {text:?}"))
        };
        let parse = |text: &[u8]| std::str::from_utf8(text).ok().and_then(&parse);
        if let (Some(names), Values::Int32(indices)) = (&leaf.names, &leaf.values) {
            let parsed: Vec<Option<T>> = names.iter().map(|name| parse(name)).collect();
            let value = |&index: &i32| {
                parsed[index as usize].ok_or_else(|| unknown(&names[index as usize]))
            };
            return indices.iter().map(value).collect();
        }
        let texts = self.bytes(name)?.into_iter();
        texts
            .map(|text| parse(text).ok_or_else(|| unknown(text)))
            .collect()
    }

    /// A column of numbers, or a field `PARENT.FIELD` of the structs in its lists, with nulls.
    pub(crate) fn optional_u32s(&self, name: &str) -> Result<Vec<Option<u32>>> {
        let leaf = self.leaf(name)?;
        match &leaf.values {
            Values::Int32(values) => Ok(leaf.cells(values, |value| value.cast_unsigned())),
            _ => Err(self.unexpected_type(name)),
        }
    }

    /// Like [`RowBatch::optional_u32s`].
    pub(crate) fn optional_u64s(&self, name: &str) -> Result<Vec<Option<u64>>> {
        let leaf = self.leaf(name)?;
        match &leaf.values {
            Values::Int64(values) => Ok(leaf.cells(values, |value| value.cast_unsigned())),
            _ => Err(self.unexpected_type(name)),
        }
    }

    /// Like [`RowBatch::optional_u32s`], of bytes.
    pub(crate) fn optional_bytes(&self, name: &str) -> Result<Vec<Option<&'a [u8]>>> {
        let leaf = self.leaf(name)?;
        let values = leaf.bytes().ok_or_else(|| self.unexpected_type(name))?;
        Ok(leaf.cells(&values, |value| *value))
    }

    /// Like [`RowBatch::optional_u32s`], of text.
    pub(crate) fn optional_texts(&self, name: &str) -> Result<Vec<Option<&'a str>>> {
        let text = |cell: Option<&'a [u8]>| cell.map(std::str::from_utf8).transpose();
        let cells = self.optional_bytes(name)?.into_iter().map(text);
        cells
            .collect::<Result<_, _>>()
            .map_err(|_| self.error(name, "holds text that is not UTF-8"))
    }

    /// The lengths of the lists of a column, one per row. The lists must not be null.
    pub(crate) fn list_lengths(&self, name: &str) -> Result<Vec<usize>> {
        let table = self.table;
        let mut lengths: Option<Vec<usize>> = None;
        for leaf in table.leaves.iter().filter(|leaf| leaf.lies_in(name)) {
            let own = leaf
                .list_lengths()
                .ok_or_else(|| self.error(name, "holds nulls"))?;
            if own.len() != self.rows || lengths.as_ref().is_some_and(|other| *other != own) {
                return Err(self.error(name, "has fields of different lengths"));
            }
            lengths = Some(own);
        }
        lengths.ok_or_else(|| self.unexpected_type(name))
    }

    /// Whether a column is read as indices into a dictionary.
    #[cfg(test)]
    pub(super) fn has_indices(&self, name: &str) -> bool {
        self.leaf(name).is_ok_and(|leaf| leaf.names.is_some())
    }

    /// An error about a column of these rows.
    pub(crate) fn error(&self, column: &str, problem: &str) -> Error {
        column_error(&self.table.path, column, problem)
    }

    fn unexpected_type(&self, column: &str) -> Error {
        self.error(column, "has an unexpected type")
    }

    fn leaf(&self, name: &str) -> Result<&'a Leaf> {
        let mut leaves = self.table.leaves.iter();
        leaves
            .find(|leaf| leaf.name == name)
            .ok_or_else(|| self.unexpected_type(name))
    }

    fn without_nulls(&self, name: &str) -> Result<&'a Leaf> {
        let leaf = self.leaf(name)?;
        if leaf.values.len() == self.rows {
            Ok(leaf)
        } else {
            Err(self.error(name, "holds nulls"))
        }
    }
}

/// A column of [`ColumnType::UInt32`], which Parquet stores as signed numbers.
#[derive(Clone, Copy)]
pub(crate) struct U32s<'a>(&'a [i32]);

impl U32s<'_> {
    /// The values of the first rows. With a length that the compiler sees, a loop over them checks
    /// no bounds.
    pub(crate) fn first(self, rows: usize) -> Self {
        Self(&self.0[..rows])
    }

    pub(crate) fn get(self, row: usize) -> u32 {
        self.0[row].cast_unsigned()
    }
}

/// A column of [`ColumnType::UInt64`], which Parquet stores as signed numbers.
#[derive(Clone, Copy)]
pub(crate) struct U64s<'a>(&'a [i64]);

impl U64s<'_> {
    /// The values of the first rows. With a length that the compiler sees, a loop over them checks
    /// no bounds.
    pub(crate) fn first(self, rows: usize) -> Self {
        Self(&self.0[..rows])
    }

    pub(crate) fn get(self, row: usize) -> u64 {
        self.0[row].cast_unsigned()
    }
}

/// A leaf column: one of the table, or a field of the structs in a list.
struct Leaf {
    /// Its name. A field has the name of its parent first: `frames.module`.
    name: String,
    /// Its position among the leaves of the file.
    index: usize,
    descriptor: ColumnDescPtr,
    /// Reads the open row group.
    reader: Option<ColumnReader>,
    values: Values,
    /// Of a column of bytes that is stored as a dictionary: the dictionary. The values are indices
    /// into it.
    names: Option<Vec<Vec<u8>>>,
    /// Definition levels. Empty if the column cannot have nulls.
    definitions: Vec<i16>,
    /// Repetition levels: 0 where a row begins. Empty outside lists.
    repetitions: Vec<i16>,
}

impl Leaf {
    /// Begins with a column chunk.
    fn open(
        &mut self,
        chunk: &ColumnChunkMetaData,
        pages: Box<dyn PageReader>,
    ) -> parquet::errors::Result<()> {
        let descriptor = self.descriptor.clone();
        let is_bytes = descriptor.physical_type() == PhysicalType::BYTE_ARRAY;
        if is_bytes && is_dictionary(chunk) {
            let (pages, names) = IndexPages::new(pages)?;
            let reader = ColumnReaderImpl::new(descriptor, Box::new(pages));
            self.reader = Some(ColumnReader::Int32ColumnReader(reader));
            self.values = Values::Int32(Vec::new());
            self.names = Some(names);
            return Ok(());
        }
        if is_bytes {
            self.values = Values::Bytes(Vec::new());
            self.names = None;
        }
        self.reader = Some(get_column_reader(descriptor, pages));
        Ok(())
    }

    /// The values of a column of bytes.
    fn bytes(&self) -> Option<Vec<&[u8]>> {
        match (&self.values, &self.names) {
            (Values::Bytes(values), _) => Some(values.iter().map(ByteArray::data).collect()),
            (Values::Int32(values), Some(names)) => {
                let name = |&index: &i32| names[index as usize].as_slice();
                Some(values.iter().map(name).collect())
            }
            _ => None,
        }
    }

    /// Decodes the next rows of the open row group. Returns their number.
    fn read(&mut self, rows: usize) -> parquet::errors::Result<usize> {
        use ColumnReader::{
            BoolColumnReader, ByteArrayColumnReader, DoubleColumnReader, Int32ColumnReader,
            Int64ColumnReader,
        };
        self.definitions.clear();
        self.repetitions.clear();
        let definitions = Some(&mut self.definitions);
        let repetitions = Some(&mut self.repetitions);
        let (records, ..) = match (&mut self.reader, &mut self.values) {
            (Some(BoolColumnReader(reader)), Values::Boolean(values)) => {
                values.clear();
                reader.read_records(rows, definitions, repetitions, values)?
            }
            (Some(Int32ColumnReader(reader)), Values::Int32(values)) => {
                values.clear();
                reader.read_records(rows, definitions, repetitions, values)?
            }
            (Some(Int64ColumnReader(reader)), Values::Int64(values)) => {
                values.clear();
                reader.read_records(rows, definitions, repetitions, values)?
            }
            (Some(DoubleColumnReader(reader)), Values::Double(values)) => {
                values.clear();
                reader.read_records(rows, definitions, repetitions, values)?
            }
            (Some(ByteArrayColumnReader(reader)), Values::Bytes(values)) => {
                values.clear();
                reader.read_records(rows, definitions, repetitions, values)?
            }
            _ => unreachable!("a reader of the type that was checked"),
        };
        Ok(records)
    }

    /// Whether it is a field of the structs in the column `parent`.
    fn lies_in(&self, parent: &str) -> bool {
        let field = self.name.strip_prefix(parent);
        field.is_some_and(|field| field.starts_with('.'))
    }

    /// Values and nulls in order. In lists, one cell per element.
    fn cells<'a, P, T>(&'a self, values: &'a [P], get: impl Fn(&'a P) -> T) -> Vec<Option<T>> {
        let mut values = values.iter().map(get);
        if self.descriptor.max_def_level() == 0 {
            return values.map(Some).collect();
        }
        let element = self.descriptor.repeated_ancestor_def_level();
        let whole = self.descriptor.max_def_level();
        let levels = self.definitions.iter().filter(|&&level| level >= element);
        levels
            .map(|&level| if level == whole { values.next() } else { None })
            .collect()
    }

    /// The lengths of its lists, one per row. `None` if a list is null.
    fn list_lengths(&self) -> Option<Vec<usize>> {
        let element = self.descriptor.repeated_ancestor_def_level();
        let mut lengths = Vec::new();
        for (&definition, &repetition) in self.definitions.iter().zip(&self.repetitions) {
            if definition + 1 < element {
                return None;
            }
            if repetition == 0 {
                lengths.push(0);
            }
            *lengths.last_mut()? += usize::from(definition >= element);
        }
        Some(lengths)
    }
}

/// A column's name and what is wrong with it.
type Problem = (String, String);

/// Finds the leaves of a column and checks their types.
fn find(schema: &SchemaDescriptor, column: &Column, leaves: &mut Vec<Leaf>) -> Result<(), Problem> {
    let problem = |problem: String| (column.name.to_owned(), problem);
    let roots = schema.root_schema().get_fields();
    let root = roots.iter().find(|root| root.name() == column.name);
    let root = root.ok_or_else(|| problem("is missing".to_owned()))?;
    let ColumnType::List(fields) = column.column_type else {
        let leaf = leaf(schema, &[column.name], column.name, column.column_type)?;
        if leaf.descriptor.max_rep_level() > 0 {
            return Err(problem(format!(
                "is a list, not {}",
                column.column_type.name()
            )));
        }
        leaves.push(leaf);
        return Ok(());
    };
    let element = element_path(root).map_err(problem)?;
    for field in fields {
        let mut path = element.clone();
        path.push(field.name);
        let name = format!("{}.{}", column.name, field.name);
        let leaf = leaf(schema, &path, &name, field.column_type)?;
        if leaf.descriptor.max_rep_level() != 1 {
            return Err((name, "is not a field of structs in a list".to_owned()));
        }
        leaves.push(leaf);
    }
    Ok(())
}

/// The names on the path from `root`, a column of lists, to their elements, which are structs. The
/// layouts are in <https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists>.
fn element_path(root: &Type) -> Result<Vec<&str>, String> {
    let is_repeated = |node: &Type| {
        let info = node.get_basic_info();
        info.has_repetition() && info.repetition() == Repetition::REPEATED
    };
    if !root.is_group() {
        return Err(format!("is {}, not a list", type_name(root)));
    }
    if is_repeated(root) {
        return Ok(vec![root.name()]);
    }
    let [list] = root.get_fields() else {
        return Err("is a struct, not a list".to_owned());
    };
    if !is_repeated(list) {
        return Err("is a struct, not a list".to_owned());
    }
    let element = match list.is_group().then(|| list.get_fields()) {
        None => return Err(format!("is a list of {}", type_name(list))),
        Some([element]) => element,
        // An older layout without a separate level for the list.
        Some(_) => return Ok(vec![root.name(), list.name()]),
    };
    if element.is_group() {
        Ok(vec![root.name(), list.name(), element.name()])
    } else {
        Err(format!("is a list of {}", type_name(element)))
    }
}

/// The leaf at this path, if it has the expected type.
fn leaf(
    schema: &SchemaDescriptor,
    path: &[&str],
    name: &str,
    column_type: ColumnType,
) -> Result<Leaf, Problem> {
    let problem = |problem: String| (name.to_owned(), problem);
    let here = |leaf: &ColumnDescPtr| leaf.path().parts() == path;
    let Some(index) = schema.columns().iter().position(here) else {
        let below =
            |leaf: &ColumnDescPtr| leaf.path().parts().iter().zip(path).all(|(a, b)| a == b);
        return Err(problem(if schema.columns().iter().any(below) {
            format!("is nested, not {}", column_type.name())
        } else {
            "is missing".to_owned()
        }));
    };
    let descriptor = schema.column(index);
    let actual = type_name(descriptor.self_type());
    if actual != column_type.name() {
        return Err(problem(format!("is {actual}, not {}", column_type.name())));
    }
    Ok(Leaf {
        name: name.to_owned(),
        index,
        descriptor,
        reader: None,
        values: Values::new(column_type),
        names: None,
        definitions: Vec::new(),
        repetitions: Vec::new(),
    })
}

/// The type of a schema node, by the name that pyarrow and the arrow crates use.
fn type_name(node: &Type) -> String {
    if node.is_group() {
        return "a struct".to_owned();
    }
    let info = node.get_basic_info();
    let (logical, converted) = (info.logical_type_ref(), info.converted_type());
    let physical = node.get_physical_type();
    let integer = |bits: i8, is_signed: bool| {
        if is_signed {
            format!("Int{bits}")
        } else {
            format!("UInt{bits}")
        }
    };
    match (physical, logical, converted) {
        (PhysicalType::BOOLEAN, ..) => "Boolean".to_owned(),
        (_, Some(LogicalType::Integer(int)), _) => integer(int.bit_width, int.is_signed),
        (_, None, ConvertedType::UINT_8) => integer(8, false),
        (_, None, ConvertedType::UINT_16) => integer(16, false),
        (_, None, ConvertedType::UINT_32) => integer(32, false),
        (_, None, ConvertedType::UINT_64) => integer(64, false),
        (_, None, ConvertedType::INT_8) => integer(8, true),
        (_, None, ConvertedType::INT_16) => integer(16, true),
        (PhysicalType::INT32, None, ConvertedType::NONE | ConvertedType::INT_32) => {
            integer(32, true)
        }
        (PhysicalType::INT64, None, ConvertedType::NONE | ConvertedType::INT_64) => {
            integer(64, true)
        }
        (PhysicalType::FLOAT, ..) => "Float32".to_owned(),
        (PhysicalType::DOUBLE, ..) => "Float64".to_owned(),
        (PhysicalType::BYTE_ARRAY, Some(LogicalType::String | LogicalType::Json), _)
        | (PhysicalType::BYTE_ARRAY, None, ConvertedType::UTF8 | ConvertedType::JSON) => {
            "Utf8".to_owned()
        }
        (PhysicalType::BYTE_ARRAY, Some(LogicalType::Bson | LogicalType::Enum), _)
        | (
            PhysicalType::BYTE_ARRAY,
            None,
            ConvertedType::NONE | ConvertedType::BSON | ConvertedType::ENUM,
        ) => "Binary".to_owned(),
        (_, Some(logical), _) => format!("{logical:?}"),
        (_, None, ConvertedType::NONE) => physical.to_string(),
        (_, None, converted) => converted.to_string(),
    }
}

fn column_error(path: &Path, column: &str, problem: &str) -> Error {
    Error::Column {
        path: path.to_owned(),
        column: column.to_owned(),
        problem: problem.to_owned(),
    }
}

/// Runs the decoder, and turns a panic in it into an error. It does panic: in 6000 loads with one
/// to three bits flipped, it panicked 13 times, in five places: a negative column start, a division
/// by zero, an index out of bounds (`tests/damaged.rs`, parquet 60.1, 2026-11). The decoder's state
/// is dropped with the table. The panic hook still prints a line on stderr; the hook belongs to the
/// program, so a library must not replace it.
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
