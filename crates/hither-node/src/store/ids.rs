//! Dense numbers for the blocks that a policy hears of.
//!
//! Policies index arrays by block, and remember some blocks that were evicted (ghosts). A node sees
//! new blocks for as long as it runs, so numbers must come back: a block keeps its number while it
//! is resident and for [`REMEMBERED`] times the cache's size of evictions after. A policy that
//! still remembers it by then takes the number's next block for it: a decision that may be worse,
//! and nothing else.

use std::collections::VecDeque;

use hither_core::{Block, Object};
use rustc_hash::FxHashMap;

use crate::key::{BlockKey, FileKey};

/// Evicted blocks that keep their numbers, as a multiple of the cache's size. The most that a
/// policy of the core remembers by default is 4 times its size (`mq`).
const REMEMBERED: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct BlockIds {
    known: FxHashMap<BlockKey, Known>,
    /// Blocks in the order of their evictions. One that came back since then is there in vain.
    evicted: VecDeque<(Evicted, u64)>,
    evictions: u64,
    remembered_max: usize,
    blocks: Numbers,
    files: FxHashMap<FileKey, FileUse>,
    objects: Numbers,
}

#[derive(Debug)]
struct Known {
    id: u32,
    /// The eviction after which it is forgotten; `None` while it is resident.
    evicted: Option<u64>,
}

#[derive(Debug)]
enum Evicted {
    Block(BlockKey),
    /// A frame of small blocks: nothing ever comes back under its number.
    Shared(u32),
}

#[derive(Debug)]
struct FileUse {
    id: u32,
    blocks: u32,
}

#[derive(Debug, Default)]
struct Numbers {
    next: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl BlockIds {
    pub(super) fn new(capacity: u32) -> BlockIds {
        BlockIds {
            remembered_max: REMEMBERED * capacity as usize,
            ..BlockIds::default()
        }
    }

    /// The numbers of a block that comes in, and of its file.
    pub(super) fn insert(&mut self, key: BlockKey) -> (Block, Object) {
        if let Some(known) = self.known.get_mut(&key) {
            known.evicted = None;
            return (Block(known.id), Object(self.files[&key.file].id));
        }
        let id = self.blocks.take();
        self.known.insert(key, Known { id, evicted: None });
        let objects = &mut self.objects;
        let file = self.files.entry(key.file).or_insert_with(|| FileUse {
            id: objects.take(),
            blocks: 0,
        });
        file.blocks += 1;
        (Block(id), Object(file.id))
    }

    /// The numbers of a block that was inserted and not evicted.
    pub(super) fn get(&self, key: &BlockKey) -> (Block, Object) {
        let block = Block(self.known[key].id);
        (block, Object(self.files[&key.file].id))
    }

    /// A number for a frame of small blocks.
    pub(super) fn insert_shared(&mut self) -> Block {
        Block(self.blocks.take())
    }

    /// A block left.
    pub(super) fn evict(&mut self, key: BlockKey) {
        self.evictions += 1;
        let known = self
            .known
            .get_mut(&key)
            .expect("an evicted block was inserted");
        known.evicted = Some(self.evictions);
        self.forget_oldest(Evicted::Block(key));
    }

    /// A frame of small blocks left.
    pub(super) fn evict_shared(&mut self, block: Block) {
        self.evictions += 1;
        self.forget_oldest(Evicted::Shared(block.0));
    }

    fn forget_oldest(&mut self, evicted: Evicted) {
        self.evicted.push_back((evicted, self.evictions));
        while self.evicted.len() > self.remembered_max {
            let Some((evicted, eviction)) = self.evicted.pop_front() else {
                return;
            };
            match evicted {
                Evicted::Shared(id) => self.blocks.free.push(id),
                Evicted::Block(key) => self.forget(key, eviction),
            }
        }
    }

    fn forget(&mut self, key: BlockKey, eviction: u64) {
        match self.known.get(&key) {
            Some(known) if known.evicted == Some(eviction) => self.blocks.free.push(known.id),
            _ => return,
        }
        self.known.remove(&key);
        let file = self
            .files
            .get_mut(&key.file)
            .expect("its blocks are counted");
        file.blocks -= 1;
        if file.blocks == 0 {
            self.objects.free.push(file.id);
            self.files.remove(&key.file);
        }
    }

    /// Panics unless the numbers in use are distinct and the counts agree.
    pub(super) fn check(&self) {
        let mut ids: Vec<u32> = self.known.values().map(|known| known.id).collect();
        ids.extend(
            self.evicted
                .iter()
                .filter_map(|(evicted, _)| match evicted {
                    Evicted::Shared(id) => Some(*id),
                    Evicted::Block(_) => None,
                }),
        );
        ids.extend(&self.blocks.free);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "a number names two blocks");
        let blocks: u32 = self.files.values().map(|file| file.blocks).sum();
        assert_eq!(blocks as usize, self.known.len());
        assert!(self.evicted.len() <= self.remembered_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> BlockKey {
        BlockKey {
            file: FileKey(u128::from(index % 3)),
            index,
        }
    }

    #[test]
    fn a_block_keeps_its_number_until_it_is_long_gone() {
        let mut ids = BlockIds::new(2);
        let first = ids.insert(key(0));
        ids.evict(key(0));
        assert_eq!(ids.insert(key(0)), first);
        ids.evict(key(0));
        for index in 1..=8 {
            ids.insert(key(index));
            ids.evict(key(index));
            ids.check();
        }
        // Eight blocks were evicted since: its number names another one by now.
        assert!(!ids.known.contains_key(&key(0)));
        let next: Vec<Block> = (20..30).map(|index| ids.insert(key(index)).0).collect();
        assert!(next.contains(&first.0));
        ids.check();
    }

    #[test]
    fn numbers_stay_few() {
        let mut ids = BlockIds::new(4);
        for index in 0..10_000 {
            ids.insert(key(index));
            ids.evict(key(index));
            let shared = ids.insert_shared();
            ids.evict_shared(shared);
        }
        assert!(ids.blocks.next <= 20, "{}", ids.blocks.next);
        ids.check();
    }
}
