//! Results of simulated caches: a row for each policy, and in it a cell for each size.
//!
//! A [`Row`] stands alone where each policy has sizes of its own, as miss-ratio curves do. A
//! [`Grid`] is rows that have the same sizes.

use hither_core::Spec;
use serde::Serialize;

use crate::caches::{CacheConfiguration, CacheOptions, CacheOutcome, Error, run};
use crate::references::References;
use crate::size::Size;

/// A cache size, as a user wrote it and in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheSize {
    /// As it was written.
    #[serde(rename = "size")]
    pub written: Size,
    /// In blocks.
    #[serde(rename = "cache_blocks")]
    pub blocks: u32,
}

/// A policy with a cell for each size.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<T = CacheOutcome> {
    /// The policy and its parameters.
    pub policy: Spec,
    /// Its cells, by size.
    pub cells: Vec<T>,
}

/// Rows of the same sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid<T = CacheOutcome> {
    sizes: Vec<CacheSize>,
    rows: Vec<Row<T>>,
}

impl<T> Row<T> {
    /// The same row with other cells.
    pub fn map<U>(&self, cell: impl Fn(&T) -> U) -> Row<U> {
        Row {
            policy: self.policy,
            cells: self.cells.iter().map(cell).collect(),
        }
    }

    /// Rows of these policies, of which the cells come one after the other, `lengths` in each row.
    ///
    /// # Panics
    ///
    /// Panics if there are more or fewer cells.
    pub fn split(
        rows: impl IntoIterator<Item = (Spec, usize)>,
        cells: impl IntoIterator<Item = T>,
    ) -> Vec<Row<T>> {
        let mut cells = cells.into_iter();
        let row = |(policy, length)| {
            let cells: Vec<T> = cells.by_ref().take(length).collect();
            assert_eq!(cells.len(), length, "too few cells");
            Row { policy, cells }
        };
        let rows = rows.into_iter().map(row).collect();
        assert!(cells.next().is_none(), "too many cells");
        rows
    }
}

impl Row<u32> {
    /// Simulates each policy at its sizes in blocks, all in one pass over the references.
    pub fn run(
        rows: &[Row<u32>],
        references: &impl References,
        options: &CacheOptions<'_>,
    ) -> Result<Vec<Row>, Error> {
        let configurations: Vec<CacheConfiguration> =
            rows.iter().flat_map(Row::configurations).collect();
        let outcomes = run(references, &configurations, options)?;
        let lengths = rows.iter().map(|row| (row.policy, row.cells.len()));
        Ok(Row::split(lengths, outcomes))
    }

    /// The caches of a row of sizes in blocks.
    pub fn configurations(&self) -> impl Iterator<Item = CacheConfiguration> + '_ {
        let spec = self.policy;
        let sizes = self.cells.iter();
        sizes.map(move |&cache_blocks| CacheConfiguration { spec, cache_blocks })
    }
}

impl<T> Grid<T> {
    /// Rows that have a cell for each of these sizes.
    ///
    /// # Panics
    ///
    /// Panics if a row has more or fewer.
    pub fn new(sizes: Vec<CacheSize>, rows: Vec<Row<T>>) -> Grid<T> {
        for row in &rows {
            assert_eq!(row.cells.len(), sizes.len(), "cells of a row");
        }
        Grid { sizes, rows }
    }

    /// The sizes, in the order of the cells of each row.
    pub fn sizes(&self) -> &[CacheSize] {
        &self.sizes
    }

    /// The rows, in the order in which the policies were named.
    pub fn rows(&self) -> &[Row<T>] {
        &self.rows
    }

    /// The policies, in the order of the rows.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = Spec> + Clone + '_ {
        self.rows.iter().map(|row| row.policy)
    }

    /// The cells of the first policy of this name, whatever its parameters.
    pub fn row_of(&self, name: &str) -> Option<&Row<T>> {
        self.rows.iter().find(|row| row.policy.entry().name == name)
    }

    /// All cells, row by row.
    pub fn cells(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().flat_map(|row| &row.cells)
    }

    /// The same grid with other cells.
    pub fn map<U>(&self, cell: impl Fn(&T) -> U) -> Grid<U> {
        Grid {
            sizes: self.sizes.clone(),
            rows: self.rows.iter().map(|row| row.map(&cell)).collect(),
        }
    }
}

impl<T> IntoIterator for Grid<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    /// All cells, row by row.
    fn into_iter(self) -> Self::IntoIter {
        let rows = self.rows.into_iter();
        let cells: Vec<T> = rows.flat_map(|row| row.cells).collect();
        cells.into_iter()
    }
}
