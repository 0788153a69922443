//! What a column is: its name, its type, whether it holds nulls, and its type in Parquet.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::ByteArray;
use parquet::schema::types::{Type, TypePtr};

/// The type of a column's values. The names are those that pyarrow and the arrow crates use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// True or false.
    Boolean,
    /// An unsigned integer of 32 bits.
    UInt32,
    /// An unsigned integer of 64 bits.
    UInt64,
    /// A floating point number of 64 bits.
    Float64,
    /// Text in UTF-8.
    Utf8,
    /// Bytes.
    Binary,
    /// A list of structs with these fields.
    List(&'static [Column]),
}

impl ColumnType {
    /// Its name in error messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            ColumnType::Boolean => "Boolean",
            ColumnType::UInt32 => "UInt32",
            ColumnType::UInt64 => "UInt64",
            ColumnType::Float64 => "Float64",
            ColumnType::Utf8 => "Utf8",
            ColumnType::Binary => "Binary",
            ColumnType::List(_) => "a list of structs",
        }
    }
}

/// A column of a table, or a field of the structs in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub(super) name: &'static str,
    pub(super) column_type: ColumnType,
    pub(super) nullable: bool,
}

impl Column {
    /// A column without nulls.
    pub const fn required(name: &'static str, column_type: ColumnType) -> Column {
        Column {
            name,
            column_type,
            nullable: false,
        }
    }

    /// A column that may hold nulls.
    pub const fn nullable(name: &'static str, column_type: ColumnType) -> Column {
        Column {
            name,
            column_type,
            nullable: true,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The column in Parquet's terms.
    fn to_parquet(self) -> TypePtr {
        let repetition = if self.nullable {
            Repetition::OPTIONAL
        } else {
            Repetition::REQUIRED
        };
        let (physical, logical) = match self.column_type {
            ColumnType::Boolean => (PhysicalType::BOOLEAN, None),
            ColumnType::UInt32 => (PhysicalType::INT32, Some(LogicalType::integer(32, false))),
            ColumnType::UInt64 => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
            ColumnType::Float64 => (PhysicalType::DOUBLE, None),
            ColumnType::Utf8 => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            ColumnType::Binary => (PhysicalType::BYTE_ARRAY, None),
            ColumnType::List(fields) => {
                // `list` and `element` are the names that the Parquet specification wants.
                let element = group("element", Repetition::REQUIRED, fields_of(fields), None);
                let list = group("list", Repetition::REPEATED, vec![element], None);
                return group(self.name, repetition, vec![list], Some(LogicalType::List));
            }
        };
        let built = Type::primitive_type_builder(self.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build();
        Arc::new(built.expect("a type that Parquet allows"))
    }
}

fn fields_of(columns: &[Column]) -> Vec<TypePtr> {
    columns.iter().map(|column| column.to_parquet()).collect()
}

fn group(
    name: &str,
    repetition: Repetition,
    fields: Vec<TypePtr>,
    logical: Option<LogicalType>,
) -> TypePtr {
    let built = Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_fields(fields)
        .with_logical_type(logical)
        .build();
    Arc::new(built.expect("a group that Parquet allows"))
}

/// The schema of a table with these columns.
pub(super) fn parquet_schema(columns: &[Column]) -> TypePtr {
    let built = Type::group_type_builder("schema")
        .with_fields(fields_of(columns))
        .build();
    Arc::new(built.expect("a schema that Parquet allows"))
}

/// The non-null values of a leaf column, in Parquet's physical types. Unsigned integers are stored
/// as signed ones with the same bits.
pub(super) enum Values {
    Boolean(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl Values {
    pub(super) fn new(column_type: ColumnType) -> Values {
        match column_type {
            ColumnType::Boolean => Values::Boolean(Vec::new()),
            ColumnType::UInt32 => Values::Int32(Vec::new()),
            ColumnType::UInt64 => Values::Int64(Vec::new()),
            ColumnType::Float64 => Values::Double(Vec::new()),
            ColumnType::Utf8 | ColumnType::Binary => Values::Bytes(Vec::new()),
            ColumnType::List(_) => unreachable!("a list is not a leaf"),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Values::Boolean(values) => values.len(),
            Values::Int32(values) => values.len(),
            Values::Int64(values) => values.len(),
            Values::Double(values) => values.len(),
            Values::Bytes(values) => values.len(),
        }
    }
}
