//! Tables that cross as Arrow streams (the Arrow PyCapsule interface): pandas, polars, DuckDB and
//! pyarrow take and give them without a copy.

mod export;
mod import;

pub(crate) use export::{Table, accesses, files, rows, sites};
pub(crate) use import::from_arrow;
