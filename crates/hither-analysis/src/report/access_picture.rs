//! The space-time picture: blocks against virtual time, as in PCC's figures 1 and 2, by call site
//! and class.
//!
//! A picture of millions of points is a density. What the page gets is a [`Grid`] of cells, some
//! references wide and some blocks high, and for each cell how many references of which call site
//! and class fall into it. It begins with a cell a reference and a block and is coarsened whenever
//! it outgrows its budget, so that a short trace is there point by point and zooming shows each
//! reference, while regular patterns, which fill few cells, stay sharp in traces of any length: a
//! scan takes as many cells as there are columns. The page draws every zoom from this one grid; a
//! pyramid of tiles would hold the same cells several times over.
//!
//! Blocks stand by file in the order of first reference, and within a file by position: a scan is a
//! straight line, and a file a band.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use hither_core::classify::Class;
use hither_core::{Block, Object};
use hither_trace::Trace;
use serde::Serialize;

/// The picture as the page gets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct AccessPicture {
    /// References in a column.
    pub(super) column_references: u64,
    pub(super) columns: u64,
    /// Blocks in a row.
    pub(super) row_blocks: u64,
    pub(super) rows: u64,
    /// The policy whose classification it shows.
    pub(super) classes_by: Option<&'static str>,
    /// The call sites, most references first; a cell names one by its position here.
    pub(super) sites: Vec<u32>,
    /// Files that lie one above the other: number, first block, blocks. Those that the table of
    /// files leaves out are left out.
    pub(super) objects: Vec<[u32; 3]>,
    /// Cells with their call site and class.
    pub(super) entries: u64,
    /// For all columns, the number of entries; then for all entries the rows (each less the one
    /// before it in the column), then the position of the call site times four plus the class (0
    /// none, 1 sequential, 2 looping, 3 other), then the references less one. All as LEB128,
    /// deflated (zlib), in base64.
    pub(super) cells: String,
}

/// Where each block stands.
pub(super) struct Order {
    /// By block.
    pub(super) rows: Vec<u32>,
    /// Object, first row and number of rows, from below.
    pub(super) objects: Vec<[u32; 3]>,
}

impl Order {
    /// Files by first reference (which is the order that blocks are numbered in), blocks by their
    /// position in the file.
    pub(super) fn of(trace: &Trace) -> Order {
        let blocks = || (0..trace.blocks() as u32).map(Block);
        let object_of = |block| match trace.has_objects() {
            true => trace.object_of(block),
            false => Object(0),
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
        Order { rows, objects }
    }
}

/// The cells.
#[derive(Debug)]
pub(super) struct Grid {
    /// The most entries.
    budget: usize,
    blocks: u64,
    /// References in a column; a power of two.
    step: u64,
    /// A row holds two to the power of this many blocks.
    shift: u32,
    /// Entries of each column.
    columns: Vec<u32>,
    /// By column, then by key: row, position of the call site, class; and how many references.
    entries: Vec<(u64, u32)>,
    /// The keys of the column that is being filled.
    open: Vec<u64>,
    references: u64,
}

const SITE_BITS: u32 = 30;

impl Grid {
    /// An empty one.
    pub(super) fn new(blocks: usize, budget: usize) -> Grid {
        Grid {
            budget: budget.max(1),
            blocks: blocks as u64,
            step: 1,
            shift: 0,
            columns: Vec::new(),
            entries: Vec::new(),
            open: Vec::new(),
            references: 0,
        }
    }

    /// Adds the next reference, which is to the block in `row`, by the call site at `position`.
    #[inline]
    pub(super) fn push(&mut self, row: u32, position: u32, class: Option<Class>) {
        let class = match class {
            None => 0,
            Some(Class::Sequential) => 1,
            Some(Class::Looping) => 2,
            Some(Class::Other) => 3,
        };
        let position = u64::from(position) & ((1 << SITE_BITS) - 1);
        let row = u64::from(row >> self.shift);
        self.open.push(row << 32 | position << 2 | class);
        self.references += 1;
        if self.open.len() as u64 == self.step {
            self.close();
            while self.entries.len() > self.budget && self.coarsen() {}
        }
    }

    /// Ends the open column.
    fn close(&mut self) {
        let before = self.entries.len();
        self.open.sort_unstable();
        for same in self.open.chunk_by(|a, b| a == b) {
            self.entries.push((same[0], same.len() as u32));
        }
        self.open.clear();
        self.columns.push((self.entries.len() - before) as u32);
    }

    /// Makes cells twice as wide or twice as high, whichever there are more of; a screen is about
    /// twice as wide as it is high.
    fn coarsen(&mut self) -> bool {
        let rows = self.blocks >> self.shift;
        if self.columns.len() as u64 > 2 * rows {
            self.step *= 2;
            self.regroup(2, |key| key);
        } else if rows > 0 {
            self.shift += 1;
            let low = (1 << 32) - 1;
            self.regroup(1, move |key| key >> 33 << 32 | key & low);
        } else {
            return false;
        }
        true
    }

    /// Puts so many columns together, with new keys.
    fn regroup(&mut self, together: usize, new: impl Fn(u64) -> u64) {
        let columns = std::mem::take(&mut self.columns);
        let entries = std::mem::take(&mut self.entries);
        let mut rest = entries.as_slice();
        for group in columns.chunks(together) {
            let (these, after) = rest.split_at(group.iter().sum::<u32>() as usize);
            rest = after;
            let mut merged: Vec<(u64, u32)> = these
                .iter()
                .map(|&(key, count)| (new(key), count))
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

    /// The picture of what was added.
    pub(super) fn picture(
        mut self,
        classes_by: Option<&'static str>,
        sites: Vec<u32>,
        objects: Vec<[u32; 3]>,
    ) -> AccessPicture {
        if !self.open.is_empty() {
            self.close();
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
            column_references: self.step,
            columns: self.columns.len() as u64,
            row_blocks: 1 << self.shift,
            rows: self.blocks.div_ceil(1 << self.shift),
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

    /// The cells of a picture, read as the page reads them: column, row, position of the site,
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
        let mut grid = Grid::new(3, 100);
        grid.push(0, 0, Some(Class::Looping));
        grid.push(2, 1, None);
        grid.push(1, 0, Some(Class::Other));
        let picture = grid.picture(Some("pcc"), vec![7, 9], Vec::new());
        assert_eq!((picture.columns, picture.rows, picture.entries), (3, 3, 3));
        assert_eq!(
            cells(&picture),
            [(0, 0, 0, 2, 1), (1, 2, 1, 0, 1), (2, 1, 0, 3, 1)]
        );
        let empty = Grid::new(0, 100).picture(None, Vec::new(), Vec::new());
        assert_eq!((empty.columns, empty.rows, empty.entries), (0, 0, 0));
    }

    /// Whatever the budget, the cells are those of counting afresh at the resolution that was
    /// reached.
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
            let mut grid = Grid::new(blocks as usize, budget);
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
            // The last column was still open when the budget was last held.
            let last = |cell: &&(u64, u64, u64, u64, u64)| cell.0 + 1 == picture.columns;
            let open = cells(&picture).iter().filter(last).count();
            assert!(picture.entries as usize <= budget + open, "{picture:?}");
        }
    }

    /// Random references by random call sites are the worst there is to pack: a million cells of
    /// them stay below 5 MiB.
    #[test]
    fn a_cell_takes_five_bytes_at_most() {
        let mut random = Random::new(11);
        let mut grid = Grid::new(1 << 20, 1 << 15);
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
