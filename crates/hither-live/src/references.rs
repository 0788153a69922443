//! Makes references to blocks of the requests of programs, with dense numbers for files and blocks,
//! as policies need them.
//!
//! A request is one reference to each of its blocks, in ascending order. There is one exception: a
//! request that continues, within a block, where the same thread's last request to that file ended
//! is no new reference to that block, since both are one pass over it. A request for the same bytes
//! again is a new reference.

use std::ops::RangeInclusive;

use hither_core::Block;
use rustc_hash::FxHashMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct References {
    block_bytes: u64,
    files: Vec<ReferencedFile>,
    by_key: FxHashMap<u64, u32>,
    /// By block: its file, and its index there.
    positions: Vec<(u32, u32)>,
    blocks: FxHashMap<(u32, u32), Block>,
}

#[derive(Debug)]
struct ReferencedFile {
    key: u64,
    blocks: Vec<Block>,
    /// The thread of the last request, and the offset where that ended.
    last: Option<(u32, u64)>,
}

impl References {
    /// For blocks of so many bytes.
    pub(crate) fn new(block_bytes: u64) -> References {
        References {
            block_bytes,
            files: Vec::new(),
            by_key: FxHashMap::default(),
            positions: Vec::new(),
            blocks: FxHashMap::default(),
        }
    }

    /// How many files are known.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// How many blocks are known.
    pub(crate) fn blocks(&self) -> u32 {
        self.positions.len() as u32
    }

    /// The number of a file, known or new.
    pub(crate) fn file(&mut self, key: u64) -> u32 {
        let next = self.files.len() as u32;
        let number = *self.by_key.entry(key).or_insert(next);
        if number == next {
            self.files.push(ReferencedFile {
                key,
                blocks: Vec::new(),
                last: None,
            });
        }
        number
    }

    pub(crate) fn key(&self, file: u32) -> u64 {
        self.files[file as usize].key
    }

    /// The blocks that are known of a file.
    pub(crate) fn blocks_of(&self, file: u32) -> &[Block] {
        &self.files[file as usize].blocks
    }

    /// The number of a block, known or new.
    pub(crate) fn block(&mut self, file: u32, index: u32) -> Block {
        let next = Block(self.positions.len() as u32);
        let block = *self.blocks.entry((file, index)).or_insert(next);
        if block == next {
            self.positions.push((file, index));
            self.files[file as usize].blocks.push(block);
        }
        block
    }

    /// The number of a block that is known.
    pub(crate) fn find(&self, file: u32, index: u32) -> Option<Block> {
        self.blocks.get(&(file, index)).copied()
    }

    /// A block's file, and its index there.
    pub(crate) fn position(&self, block: Block) -> (u32, u32) {
        self.positions[block.index()]
    }

    /// The indices of the blocks that a range touches. Indices that do not fit into 32 bits become
    /// the largest.
    pub(crate) fn indices(&self, offset: u64, length: u64) -> RangeInclusive<u32> {
        let index = |byte: u64| u32::try_from(byte / self.block_bytes).unwrap_or(u32::MAX);
        index(offset)..=index(offset.saturating_add(length.max(1) - 1))
    }

    /// The indices of the blocks that a thread's request refers to.
    pub(crate) fn of_request(
        &mut self,
        file: u32,
        thread: u32,
        offset: u64,
        length: u64,
    ) -> impl Iterator<Item = u32> + use<> {
        let inside = !offset.is_multiple_of(self.block_bytes);
        let indices = self.indices(offset, length);
        let file = &mut self.files[file as usize];
        let goes_on = inside && file.last == Some((thread, offset));
        file.last = Some((thread, offset.saturating_add(length)));
        indices.skip(usize::from(goes_on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_goes_on_in_a_block_is_no_new_reference_to_it() {
        let mut references = References::new(100);
        let (one, other) = (references.file(0xa), references.file(0xb));
        assert_eq!((one, other, references.file(0xa)), (0, 1, 0));
        let mut of = |file, thread, offset, length| {
            let indices = references.of_request(file, thread, offset, length);
            indices.collect::<Vec<u32>>()
        };
        assert_eq!(of(one, 1, 50, 200), [0, 1, 2]);
        assert_eq!(of(one, 1, 250, 100), [3], "in the block where it ended");
        assert_eq!(of(one, 2, 350, 10), [3], "another thread");
        assert_eq!(of(other, 2, 360, 10), [3], "another file");
        assert!(of(one, 2, 360, 40).is_empty());
        assert_eq!(of(one, 2, 400, 1), [4], "where a block begins");
        assert_eq!(of(one, 2, 400, 1), [4], "the same again");
        assert_eq!(of(one, 1, u64::MAX, 7), [u32::MAX]);
    }

    #[test]
    fn blocks_are_found_by_place_and_by_number() {
        let mut references = References::new(100);
        let file = references.file(7);
        let blocks = [9, 2].map(|index| references.block(file, index));
        assert_eq!(blocks, [Block(0), Block(1)]);
        assert_eq!(references.block(file, 9), Block(0));
        assert_eq!(references.find(file, 2), Some(Block(1)));
        assert_eq!(references.find(file, 3), None);
        assert_eq!(references.position(Block(1)), (file, 2));
        assert_eq!(references.blocks_of(file), blocks);
        assert_eq!((references.files(), references.blocks()), (1, 2));
        assert_eq!(references.key(file), 7);
    }
}
