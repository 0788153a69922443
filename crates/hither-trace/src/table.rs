//! Parquet tables: their columns, writing and reading.
//!
//! This uses parquet's column interface and not its `arrow` feature. The arrow crates took 430 s
//! of the 1,005 s of CPU that a release build cost (2026-11), and nothing here computes on columns.
//!
//! A column holds one value per row, or a list of structs per row. Deeper nesting is not supported.

mod column;
mod dictionary;
mod read;
mod write;

pub use column::{Column, ColumnType};
pub use write::{Cells, write_bytes};

pub(crate) use read::{RowBatch, Table};
pub(crate) use write::{MAGIC, TableWriter, end_of, footer};
