//! The picture of accesses: blocks against references, as in figures 1 and 2 of the PCC paper,
//! coloured by call site or class.
//!
//! The page gets an [`AccessGrid`] of cells, each some references wide and some blocks high. A cell
//! counts its references by call site and class. The grid begins with one reference and one block a
//! cell and is coarsened whenever it exceeds its budget. So a short trace shows each reference.
//! Regular patterns fill few cells and stay sharp in long traces: a scan takes one cell a column.
//! The page draws every zoom level from this grid. A pyramid of tiles would hold the same cells
//! several times.
//!
//! Blocks are ordered by file, in the order of first reference, and within a file by position. So a
//! scan is a straight line and a file is a band.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use hither_core::classify::Class;
use hither_core::{Block, Object};
use hither_trace::Trace;
use serde::Serialize;

/// The picture in the form that the page reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct AccessPicture {
    /// The number of references in a column.
    pub(super) column_references: u64,
    pub(super) columns: u64,
    /// The number of blocks in a row.
    pub(super) row_blocks: u64,
    pub(super) rows: u64,
    /// The policy whose classes it shows.
    pub(super) classes_by: Option<&'static str>,
    /// The call sites, most references first. Cells refer to them by index.
    pub(super) sites: Vec<u32>,
    /// The files from bottom to top: number, first row, number of rows. Files that are not in the
    /// table of files are left out.
    pub(super) objects: Vec<[u32; 3]>,
    /// The number of entries. An entry is a cell with one call site and class.
    pub(super) entries: u64,
    /// Four lists: for each column its number of entries; for each entry its row (as the difference
    /// to the entry before it in the column); for each entry the index of the call site times four
    /// plus the class (0 none, 1 sequential, 2 looping, 3 other); for each entry its references
    /// less one. All numbers are LEB128, compressed by zlib, in base64.
    pub(super) cells: String,
}

/// The vertical order of the blocks.
pub(super) struct BlockOrder {
    /// The row of each block.
    pub(super) rows: Vec<u32>,
    /// Object, first row and number of rows, from bottom to top.
    pub(super) objects: Vec<[u32; 3]>,
}

impl BlockOrder {
    /// Orders files by first reference, which is the order of block numbers, and blocks by their
    /// position in the file.
    pub(super) fn of(trace: &Trace) -> BlockOrder {
        let blocks = || (0..trace.blocks() as u32).map(Block);
        let object_of = |block| {
            if trace.has_objects() {
                trace.object_of(block)
            } else {
                Object(0)
            }
        };
        let mut rank = vec![u32::MAX; trace.objects().len().max(1)];
        let mut met = Vec::new();
        for block in blocks() {
            let object = object_of(block);
            if rank[object.index()] == u32::MAX {
                rank[object.index()] = met.len() as u32;
                met.push(object.0);
            }
        }
        let mut sorted: Vec<(u64, u32)> = blocks()
            .map(|block| {
                let rank = u64::from(rank[object_of(block).index()]);
                (rank << 32 | u64::from(trace.index_of(block)), block.0)
            })
            .collect();
        sorted.sort_unstable();
        let mut rows = vec![0; sorted.len()];
        let mut objects: Vec<[u32; 3]> = Vec::new();
        for (row, (key, block)) in sorted.into_iter().enumerate() {
            rows[block as usize] = row as u32;
            let object = met[(key >> 32) as usize];
            match objects.last_mut() {
                Some([last, _, blocks]) if *last == object => *blocks += 1,
                _ => objects.push([object, row as u32, 1]),
            }
        }
        BlockOrder { rows, objects }
    }
}

/// The cells of the picture.
#[derive(Debug)]
pub(super) struct AccessGrid {
    /// The most entries.
    entries_max: usize,
    blocks: u64,
    /// The number of references in a column; a power of two.
    column_references: u64,
    /// The number of blocks in a row, as a power of two.
    row_blocks_log2: u32,
    /// The number of entries of each column.
    columns: Vec<u32>,
    /// Key and number of references, by column, then by key. A key has the row in its upper half,
    /// then the index of the call site ([`SITE_BITS`]), then the class (2 bits).
    entries: Vec<(u64, u32)>,
    /// The keys of the column that is not full yet.
    open: Vec<u64>,
    references: u64,
}

/// The bits of a key that hold the index of the call site.
const SITE_BITS: u32 = 30;

impl AccessGrid {
    /// An empty grid of at most `entries_max` entries.
    pub(super) fn new(blocks: usize, entries_max: usize) -> AccessGrid {
        AccessGrid {
            entries_max: entries_max.max(1),
            blocks: blocks as u64,
            column_references: 1,
            row_blocks_log2: 0,
            columns: Vec::new(),
            entries: Vec::new(),
            open: Vec::new(),
            references: 0,
        }
    }

    /// Adds the next reference: to the block in `row`, by the call site with index `site`.
    #[inline]
    pub(super) fn push(&mut self, row: u32, site: u32, class: Option<Class>) {
        let class = match class {
            None => 0,
            Some(Class::Sequential) => 1,
            Some(Class::Looping) => 2,
            Some(Class::Other) => 3,
        };
        let site = u64::from(site) & ((1 << SITE_BITS) - 1);
        let row = u64::from(row >> self.row_blocks_log2);
        self.open.push(row << 32 | site << 2 | class);
        self.references += 1;
        if self.open.len() as u64 == self.column_references {
            self.close_column();
            while self.entries.len() > self.entries_max && self.coarsen() {}
        }
    }

    /// Counts the entries of the open column.
    fn close_column(&mut self) {
        let before = self.entries.len();
        self.open.sort_unstable();
        for same in self.open.chunk_by(|a, b| a == b) {
            self.entries.push((same[0], same.len() as u32));
        }
        self.open.clear();
        self.columns.push((self.entries.len() - before) as u32);
    }

    /// Doubles the width or the height of the cells. It keeps about twice as many columns as rows,
    /// since a screen is about twice as wide as it is high. Returns false if it can do neither.
    fn coarsen(&mut self) -> bool {
        let rows = self.blocks >> self.row_blocks_log2;
        if self.columns.len() as u64 > 2 * rows {
            self.column_references *= 2;
            self.regroup(2, |key| key);
        } else if rows > 0 {
            self.row_blocks_log2 += 1;
            let low = (1 << 32) - 1;
            self.regroup(1, move |key| key >> 33 << 32 | key & low);
        } else {
            return false;
        }
        true
    }

    /// Merges `together` columns into one and maps all keys.
    fn regroup(&mut self, together: usize, new_key: impl Fn(u64) -> u64) {
        let columns = std::mem::take(&mut self.columns);
        let entries = std::mem::take(&mut self.entries);
        let mut rest = entries.as_slice();
        for group in columns.chunks(together) {
            let (these, after) = rest.split_at(group.iter().sum::<u32>() as usize);
            rest = after;
            let mut merged: Vec<(u64, u32)> = these
                .iter()
                .map(|&(key, count)| (new_key(key), count))
                .collect();
            merged.sort_unstable();
            if group.len() < together {
                // The last column is not full yet.
                let keys = merged
                    .iter()
                    .flat_map(|&(key, count)| std::iter::repeat_n(key, count as usize));
                self.open.extend(keys);
                break;
            }
            let before = self.entries.len();
            for same in merged.chunk_by(|a, b| a.0 == b.0) {
                let count = same.iter().map(|(_, count)| count).sum();
                self.entries.push((same[0].0, count));
            }
            self.columns.push((self.entries.len() - before) as u32);
        }
    }

    /// The picture of the references that were added.
    pub(super) fn picture(
        mut self,
        classes_by: Option<&'static str>,
        sites: Vec<u32>,
        objects: Vec<[u32; 3]>,
    ) -> AccessPicture {
        if !self.open.is_empty() {
            self.close_column();
        }
        let mut bytes = Vec::new();
        for &entries in &self.columns {
            leb128(&mut bytes, entries.into());
        }
        let mut rest = self.entries.as_slice();
        for &entries in &self.columns {
            let (column, after) = rest.split_at(entries as usize);
            rest = after;
            let mut below = 0;
            for (key, _) in column {
                leb128(&mut bytes, (key >> 32) - below);
                below = key >> 32;
            }
        }
        for (key, _) in &self.entries {
            leb128(&mut bytes, key & ((1 << 32) - 1));
        }
        for (_, count) in &self.entries {
            leb128(&mut bytes, u64::from(count - 1));
        }
        let mut deflated = ZlibEncoder::new(Vec::new(), Compression::default());
        let deflated = deflated
            .write_all(&bytes)
            .and_then(|()| deflated.finish())
            .expect("memory can be written to");
        AccessPicture {
            column_references: self.column_references,
            columns: self.columns.len() as u64,
            row_blocks: 1 << self.row_blocks_log2,
            rows: self.blocks.div_ceil(1 << self.row_blocks_log2),
            classes_by,
            sites,
            objects,
            entries: self.entries.len() as u64,
            cells: STANDARD.encode(deflated),
        }
    }
}

fn leb128(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::ZlibDecoder;
    use hither_core::Random;

    use super::*;

    /// The cells of a picture, decoded as the page does: column, row, index of the call site,
    /// class, references.
    fn cells(picture: &AccessPicture) -> Vec<(u64, u64, u64, u64, u64)> {
        let deflated = STANDARD.decode(&picture.cells).unwrap();
        let mut bytes = Vec::new();
        ZlibDecoder::new(deflated.as_slice())
            .read_to_end(&mut bytes)
            .unwrap();
        let mut bytes = bytes.into_iter();
        let mut number = || {
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = bytes.next().unwrap();
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        let columns: Vec<u64> = (0..picture.columns).map(|_| number()).collect();
        let mut places = Vec::new();
        for (column, &entries) in columns.iter().enumerate() {
            let mut row = 0;
            for _ in 0..entries {
                row += number();
                places.push((column as u64, row));
            }
        }
        let keys: Vec<u64> = places.iter().map(|_| number()).collect();
        let counts: Vec<u64> = places.iter().map(|_| number() + 1).collect();
        assert_eq!(bytes.next(), None);
        let each = places.into_iter().zip(keys).zip(counts);
        each.map(|(((column, row), key), count)| (column, row, key >> 2, key & 3, count))
            .collect()
    }

    #[test]
    fn a_short_trace_is_there_point_by_point() {
        let mut grid = AccessGrid::new(3, 100);
        grid.push(0, 0, Some(Class::Looping));
        grid.push(2, 1, None);
        grid.push(1, 0, Some(Class::Other));
        let picture = grid.picture(Some("pcc"), vec![7, 9], Vec::new());
        assert_eq!((picture.columns, picture.rows, picture.entries), (3, 3, 3));
        assert_eq!(
            cells(&picture),
            [(0, 0, 0, 2, 1), (1, 2, 1, 0, 1), (2, 1, 0, 3, 1)]
        );
        let empty = AccessGrid::new(0, 100).picture(None, Vec::new(), Vec::new());
        assert_eq!((empty.columns, empty.rows, empty.entries), (0, 0, 0));
    }

    /// For any budget, the cells equal those of a grid that starts at the final resolution.
    #[test]
    fn coarsened_cells_are_those_of_a_coarse_grid() {
        for (references, blocks, budget) in [
            (1000u64, 40u64, 64),
            (5003, 3000, 100),
            (777, 1, 1),
            (4096, 5000, 3),
        ] {
            let mut random = Random::new(7);
            let stream: Vec<(u32, u32)> = (0..references)
                .map(|_| (random.below(blocks) as u32, random.below(3) as u32))
                .collect();
            let mut grid = AccessGrid::new(blocks as usize, budget);
            stream
                .iter()
                .for_each(|&(row, site)| grid.push(row, site, Some(Class::Other)));
            let picture = grid.picture(None, Vec::new(), Vec::new());
            let mut counted: BTreeMap<(u64, u64, u64, u64), u64> = BTreeMap::new();
            for (tick, &(row, site)) in stream.iter().enumerate() {
                let column = tick as u64 / picture.column_references;
                *counted
                    .entry((
                        column,
                        u64::from(row) / picture.row_blocks,
                        u64::from(site),
                        3,
                    ))
                    .or_default() += 1;
            }
            let counted: Vec<_> = counted
                .into_iter()
                .map(|((a, b, c, d), n)| (a, b, c, d, n))
                .collect();
            assert_eq!(cells(&picture), counted);
            assert_eq!(
                picture.columns,
                references.div_ceil(picture.column_references)
            );
            // The last column was still open when the budget was last checked.
            let last = |cell: &&(u64, u64, u64, u64, u64)| cell.0 + 1 == picture.columns;
            let open = cells(&picture).iter().filter(last).count();
            assert!(picture.entries as usize <= budget + open, "{picture:?}");
        }
    }

    /// Random references by random call sites compress worst: a million cells of them stay below
    /// 5 MiB.
    #[test]
    fn a_cell_takes_five_bytes_at_most() {
        let mut random = Random::new(11);
        let mut grid = AccessGrid::new(1 << 20, 1 << 15);
        for _ in 0..200_000 {
            let class = [
                None,
                Some(Class::Sequential),
                Some(Class::Looping),
                Some(Class::Other),
            ];
            let class = class[random.below(4) as usize];
            grid.push(
                random.below(1 << 20) as u32,
                random.below(1000) as u32,
                class,
            );
        }
        let picture = grid.picture(None, Vec::new(), Vec::new());
        assert!(picture.entries > 1 << 14);
        assert!(
            picture.cells.len() as u64 <= 5 * picture.entries,
            "{} bytes, {} entries",
            picture.cells.len(),
            picture.entries
        );
    }
}
