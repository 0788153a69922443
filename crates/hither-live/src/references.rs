//! References to blocks, by the rule of [`hither_core::references`], with dense numbers for files
//! and blocks, as policies need them.

use std::ops::RangeInclusive;

use hither_core::references::{BlockSize, LastRequests, Request};
use hither_core::{Block, Op};
use hither_ids::FileKey;
use rustc_hash::FxHashMap;

/// Of so many threads that are not the first of their file the last request is remembered: threads
/// come and go for as long as a run takes.
const OTHER_THREADS_MAX: usize = 1 << 16;

/// The last requests of a run's threads.
pub(crate) fn last_requests() -> LastRequests<Op> {
    LastRequests::remembering(OTHER_THREADS_MAX)
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockPosition {
    /// The number of the file.
    pub(crate) file: u32,
    /// The block's index in it.
    pub(crate) index: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct References {
    block_size: BlockSize,
    last: LastRequests<Op>,
    files: Vec<ReferencedFile>,
    by_key: FxHashMap<FileKey, u32>,
    /// By block.
    positions: Vec<BlockPosition>,
    blocks: FxHashMap<BlockPosition, Block>,
}

#[derive(Debug)]
struct ReferencedFile {
    key: FileKey,
    blocks: Vec<Block>,
}

impl References {
    /// For blocks of so many bytes.
    pub(crate) fn new(block_bytes: u32) -> References {
        References {
            block_size: BlockSize::new(block_bytes),
            last: last_requests(),
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
    pub(crate) fn file(&mut self, key: FileKey) -> u32 {
        let next = self.files.len() as u32;
        let number = *self.by_key.entry(key).or_insert(next);
        if number == next {
            self.files.push(ReferencedFile {
                key,
                blocks: Vec::new(),
            });
        }
        number
    }

    pub(crate) fn key(&self, file: u32) -> FileKey {
        self.files[file as usize].key
    }

    /// The blocks that are known of a file.
    pub(crate) fn blocks_of(&self, file: u32) -> &[Block] {
        &self.files[file as usize].blocks
    }

    /// The number of a block, known or new.
    pub(crate) fn block(&mut self, file: u32, index: u32) -> Block {
        let next = Block(self.positions.len() as u32);
        let position = BlockPosition { file, index };
        let block = *self.blocks.entry(position).or_insert(next);
        if block == next {
            self.positions.push(position);
            self.files[file as usize].blocks.push(block);
        }
        block
    }

    /// The number of a block that is known.
    pub(crate) fn find(&self, file: u32, index: u32) -> Option<Block> {
        self.blocks.get(&BlockPosition { file, index }).copied()
    }

    /// Where a block is.
    pub(crate) fn position(&self, block: Block) -> BlockPosition {
        self.positions[block.index()]
    }

    /// The indices of the blocks that a range touches.
    pub(crate) fn indices(&self, offset: u64, length: u64) -> RangeInclusive<u32> {
        self.block_size.indices(offset, length)
    }

    /// The indices of the blocks that a thread's request refers to.
    pub(crate) fn of_request(
        &mut self,
        file: u32,
        thread: u32,
        request: Request<Op>,
    ) -> impl Iterator<Item = u32> + use<> {
        self.last.indices(file, thread, request, self.block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_place_and_by_number() {
        let mut references = References::new(100);
        let file = references.file(FileKey(7));
        let blocks = [9, 2].map(|index| references.block(file, index));
        assert_eq!(blocks, [Block(0), Block(1)]);
        assert_eq!(references.block(file, 9), Block(0));
        assert_eq!(references.find(file, 2), Some(Block(1)));
        assert_eq!(references.find(file, 3), None);
        let second = BlockPosition { file, index: 2 };
        assert_eq!(references.position(Block(1)), second);
        assert_eq!(references.blocks_of(file), blocks);
        assert_eq!((references.files(), references.blocks()), (1, 2));
        assert_eq!(references.key(file), FileKey(7));
    }
}
