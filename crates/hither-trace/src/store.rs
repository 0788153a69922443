//! The references of a trace: in memory up to a budget, beyond it in a temporary file.
//!
//! References are kept in *chunks* of [`CHUNK_REFERENCES`]. A chunk is one vector of `u32`: the
//! blocks, then the runs with four numbers each. It is written once, when it is full, and read as a
//! whole. So a trace larger than memory costs one write, and then sequential reads of 4 bytes per
//! reference. The file has no name (it is unlinked on creation), so nothing is left however the
//! process ends.
//!
//! 8192 references are 32 KiB. The simulator's batches have the same size, so each costs one read,
//! and a chunk in use stays in the second-level cache.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use hither_core::Op;

use crate::error::{Error, Result};

/// References per chunk. Only the last chunk of a trace has fewer.
pub(crate) const CHUNK_REFERENCES: usize = 8192;

const RUN_WORDS: usize = 4;

/// What the references of a run share: call site, thread, op, node, and accesses per reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) site: u32,
    pub(crate) thread: u32,
    pub(crate) op: Op,
    pub(crate) node: u16,
    pub(crate) count: u16,
}

impl Run {
    /// A run of a bare block number: the first thread, the unknown site, node 0.
    pub(crate) fn bare(op: Op) -> Run {
        Run {
            site: 0,
            thread: 0,
            op,
            node: 0,
            count: 1,
        }
    }

    /// Unpacks a run. Its first word is its start in the chunk.
    #[inline]
    fn of([_, site, thread_op, node_count]: &[u32; RUN_WORDS]) -> Run {
        Run {
            site: *site,
            thread: thread_op >> 2,
            op: [Op::Read, Op::Write, Op::Map, Op::Delete][(thread_op & 3) as usize],
            node: (node_count >> 16) as u16,
            count: *node_count as u16,
        }
    }

    /// Packs a run: the site; the thread above two bits for the op; the node above 16 bits for the
    /// count.
    fn words(self) -> [u32; RUN_WORDS - 1] {
        [
            self.site,
            self.thread << 2 | self.op as u32,
            u32::from(self.node) << 16 | u32::from(self.count),
        ]
    }
}

/// Up to [`CHUNK_REFERENCES`] successive references.
pub(crate) struct Chunk<'a> {
    words: Cow<'a, [u32]>,
    references: usize,
}

impl Chunk<'_> {
    /// The block of each reference.
    pub(crate) fn blocks(&self) -> &[u32] {
        &self.words[..self.references]
    }

    /// The runs, each with its range in the chunk.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Run, Range<usize>)> + '_ {
        self.runs_in(0..self.references)
    }

    /// The runs of a range of the chunk, each with its part of that range.
    pub(crate) fn runs_in(
        &self,
        part: Range<usize>,
    ) -> impl Iterator<Item = (Run, Range<usize>)> + '_ {
        let (runs, _) = self.words[self.references..].as_chunks::<RUN_WORDS>();
        let begun = runs.partition_point(|run| run[0] as usize <= part.start);
        let mut left = &runs[begun.saturating_sub(1)..];
        let mut start = part.start;
        std::iter::from_fn(move || {
            let (run, after) = left.split_first()?;
            let end = after.first().map_or(part.end, |run| run[0] as usize);
            let range = start..end.min(part.end);
            (left, start) = (after, range.end);
            (!range.is_empty()).then(|| (Run::of(run), range))
        })
    }
}

/// The references of a trace. They are appended during the load and read afterwards.
#[derive(Debug)]
pub(crate) struct Store {
    full: SpillList,
    /// The chunk that is not full yet.
    blocks: Vec<u32>,
    runs: Vec<u32>,
    has_sites: bool,
    has_writes: bool,
    has_deletes: bool,
}

impl Store {
    /// An empty store that uses about `memory_bytes`.
    pub(crate) fn new(memory_bytes: u64) -> Store {
        Store {
            full: SpillList::new(memory_bytes),
            blocks: Vec::new(),
            runs: Vec::new(),
            has_sites: false,
            has_writes: false,
            has_deletes: false,
        }
    }

    pub(crate) fn references(&self) -> usize {
        self.full.len() * CHUNK_REFERENCES + self.blocks.len()
    }

    pub(crate) fn chunks(&self) -> usize {
        self.full.len() + usize::from(!self.blocks.is_empty())
    }

    /// Appends a reference.
    pub(crate) fn push(&mut self, block: u32, run: Run) -> Result<()> {
        self.append(&[block], run)
    }

    /// Appends references of a run.
    pub(crate) fn append(&mut self, mut blocks: &[u32], run: Run) -> Result<()> {
        let words = run.words();
        while !blocks.is_empty() {
            if self.runs.last_chunk() != Some(&words) {
                self.runs.push(self.blocks.len() as u32);
                self.runs.extend(words);
                self.has_sites |= run.site != 0;
                self.has_writes |= run.op == Op::Write;
                self.has_deletes |= run.op == Op::Delete;
            }
            let room = CHUNK_REFERENCES - self.blocks.len();
            let (fitting, rest) = blocks.split_at(room.min(blocks.len()));
            self.blocks.extend_from_slice(fitting);
            if self.blocks.len() == CHUNK_REFERENCES {
                self.close()?;
            }
            blocks = rest;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let mut words = Vec::with_capacity(CHUNK_REFERENCES + self.runs.len());
        words.extend_from_slice(&self.blocks);
        words.extend_from_slice(&self.runs);
        self.blocks.clear();
        self.runs.clear();
        self.full.push(words)
    }

    /// The chunk of that number.
    pub(crate) fn chunk(&self, number: usize) -> Result<Chunk<'_>> {
        Ok(if number < self.full.len() {
            Chunk {
                words: self.full.get(number)?,
                references: CHUNK_REFERENCES,
            }
        } else {
            Chunk {
                words: Cow::Owned([&self.blocks[..], &self.runs].concat()),
                references: self.blocks.len(),
            }
        })
    }

    pub(crate) fn has_sites(&self) -> bool {
        self.has_sites
    }

    pub(crate) fn has_writes(&self) -> bool {
        self.has_writes
    }

    pub(crate) fn has_deletes(&self) -> bool {
        self.has_deletes
    }

    /// Bytes of the memory budget that are left.
    pub(crate) fn memory_left_bytes(&self) -> u64 {
        self.full.memory_left_bytes
    }

    /// Whether some references are on disk.
    #[cfg(test)]
    pub(crate) fn spilled(&self) -> bool {
        self.full.disk.is_some()
    }
}

/// Vectors of numbers, in memory or in a temporary file.
#[derive(Debug)]
pub(crate) struct SpillList {
    pieces: Vec<SpillItem>,
    memory_left_bytes: u64,
    disk: Option<SpillFile>,
}

#[derive(Debug)]
enum SpillItem {
    Memory(Box<[u32]>),
    File { offset: u64, words: u32 },
}

#[derive(Debug)]
struct SpillFile {
    file: File,
    /// The folder of the file, for errors.
    folder: PathBuf,
    bytes: u64,
}

impl SpillList {
    pub(crate) fn new(memory_bytes: u64) -> SpillList {
        SpillList {
            pieces: Vec::new(),
            memory_left_bytes: memory_bytes,
            disk: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn memory_left_bytes(&self) -> u64 {
        self.memory_left_bytes
    }

    pub(crate) fn push(&mut self, words: Vec<u32>) -> Result<()> {
        let bytes = 4 * words.len() as u64;
        if let Some(left) = self.memory_left_bytes.checked_sub(bytes) {
            self.memory_left_bytes = left;
            self.pieces
                .push(SpillItem::Memory(words.into_boxed_slice()));
            return Ok(());
        }
        let disk = match &mut self.disk {
            Some(disk) => disk,
            none => none.insert(SpillFile::new()?),
        };
        let offset = disk.bytes;
        disk.append(&words)?;
        self.pieces.push(SpillItem::File {
            offset,
            words: words.len() as u32,
        });
        Ok(())
    }

    pub(crate) fn get(&self, number: usize) -> Result<Cow<'_, [u32]>> {
        match (&self.pieces[number], &self.disk) {
            (SpillItem::Memory(words), _) => Ok(Cow::Borrowed(words)),
            (&SpillItem::File { offset, words }, Some(disk)) => {
                disk.read(offset, words).map(Cow::Owned)
            }
            (SpillItem::File { .. }, None) => unreachable!("a piece on disk without a file"),
        }
    }
}

impl SpillFile {
    /// `TMPDIR` if it is set, else `/var/tmp`, which unlike `/tmp` is rarely in memory.
    fn new() -> Result<SpillFile> {
        let named = std::env::var_os("TMPDIR")
            .filter(|name| !name.is_empty())
            .map(PathBuf::from);
        let lasting = Some(PathBuf::from("/var/tmp")).filter(|folder| folder.is_dir());
        let folder = named.or(lasting).unwrap_or_else(std::env::temp_dir);
        let file = tempfile::tempfile_in(&folder).map_err(|source| Error::TemporaryFile {
            folder: folder.clone(),
            source,
        })?;
        Ok(SpillFile {
            file,
            folder,
            bytes: 0,
        })
    }

    fn append(&mut self, words: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file
            .write_all_at(&bytes, self.bytes)
            .map_err(Error::io(&self.folder))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn read(&self, offset: u64, words: u32) -> Result<Vec<u32>> {
        let mut bytes = vec![0; 4 * words as usize];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(Error::io(&self.folder))?;
        let words = bytes.chunks_exact(4);
        Ok(words
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// References with short and long runs, over several chunks.
    fn references() -> Vec<(u32, Run)> {
        let run = |tick: u32| Run {
            site: if tick < 9000 { tick % 3 } else { 7 },
            thread: tick / 5000,
            op: match tick % 11 {
                0 => Op::Write,
                1 => Op::Map,
                _ => Op::Read,
            },
            node: (tick / 3000) as u16,
            count: if tick < 12_000 { u16::MAX } else { 1 },
        };
        (0..3 * CHUNK_REFERENCES as u32 + 17)
            .map(|tick| (tick.wrapping_mul(2_654_435_761), run(tick)))
            .collect()
    }

    #[test]
    fn what_goes_in_comes_out_wherever_it_lay() {
        let references = references();
        for memory_bytes in [0, 100_000, u64::MAX] {
            let mut store = Store::new(memory_bytes);
            for (block, run) in &references {
                store.push(*block, *run).unwrap();
            }
            assert_eq!(store.spilled(), memory_bytes != u64::MAX);
            assert_eq!(store.references(), references.len());
            let mut found = Vec::new();
            for number in 0..store.chunks() {
                let chunk = store.chunk(number).unwrap();
                let mut end = 0;
                for (run, range) in chunk.runs() {
                    assert_eq!(range.start, end);
                    end = range.end;
                    found.extend(chunk.blocks()[range].iter().map(|block| (*block, run)));
                }
                assert_eq!(end, chunk.blocks().len());
            }
            assert!(found == references, "with {memory_bytes} bytes of memory");
        }
    }

    #[test]
    fn an_empty_store_has_no_chunk() {
        let store = Store::new(0);
        assert_eq!((store.references(), store.chunks()), (0, 0));
    }
}
