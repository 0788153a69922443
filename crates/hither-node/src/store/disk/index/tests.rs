//! The index against a naive twin: a list of chunks, searched from end to end.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Length and checksum of a chunk's blocks, by their index.
type Contents = BTreeMap<u32, (u32, u64)>;

/// Chunks from the oldest to the newest: what is in them, and whether they were read.
#[derive(Default)]
struct Twin {
    chunks: Vec<(ChunkKey, Contents, bool)>,
    hand: Option<ChunkKey>,
    /// A file as often as it is held.
    holds: Vec<FileKey>,
}

impl Twin {
    fn position(&self, chunk: ChunkKey) -> Option<usize> {
        self.chunks.iter().position(|it| it.0 == chunk)
    }

    fn insert(&mut self, key: BlockKey, bytes: u32, checksum: u64) {
        let (chunk, bit) = key.in_chunk();
        self.remove(chunk, bit);
        let at = self.position(chunk).unwrap_or_else(|| {
            self.chunks.push((chunk, BTreeMap::new(), false));
            self.chunks.len() - 1
        });
        self.chunks[at].1.insert(key.index, (bytes, checksum));
    }

    fn remove(&mut self, chunk: ChunkKey, mask: u64) {
        let Some(at) = self.position(chunk) else {
            return;
        };
        for key in chunk.blocks(mask) {
            self.chunks[at].1.remove(&key.index);
        }
        if self.chunks[at].1.is_empty() {
            if self.hand == Some(chunk) {
                self.hand = self.chunks.get(at + 1).map(|it| it.0);
            }
            self.chunks.remove(at);
        }
    }

    fn evict(&mut self) -> Option<ChunkKey> {
        let mut at = self.hand.map_or(0, |hand| self.position(hand).unwrap());
        let mut passes = 0;
        loop {
            let (chunk, _, visited) = self.chunks.get_mut(at)?;
            if self.holds.contains(&chunk.file) {
                self.hand = Some(*chunk);
                if passes == HELD_PASSES_MAX {
                    return None;
                }
                passes += 1;
            } else if !std::mem::take(visited) {
                let chunk = *chunk;
                self.hand = Some(chunk);
                self.remove(chunk, u64::MAX);
                return Some(chunk);
            }
            at = (at + 1) % self.chunks.len();
        }
    }

    fn bytes(&self) -> u64 {
        let blocks = self.chunks.iter().flat_map(|it| it.1.values());
        blocks.map(|it| u64::from(it.0).div_ceil(4096) * 4096).sum()
    }
}

fn block(number: u32) -> BlockKey {
    let file = FileKey(u128::from(number % 3));
    // A few neighbours in each of a few chunks.
    let index = number / 3 % 4 * CHUNK_BLOCKS + number / 12 % 5;
    BlockKey { file, index }
}

fn same(index: &DiskIndex, twin: &Twin) {
    index.check();
    assert_eq!(index.bytes(), twin.bytes());
    let order: Vec<ChunkKey> = index.iter().map(|it| it.chunk).collect();
    let expected: Vec<ChunkKey> = twin.chunks.iter().map(|it| it.0).collect();
    assert_eq!(order, expected);
    for (chunk, blocks, _) in &twin.chunks {
        assert_eq!(index.held(chunk).count_ones() as usize, blocks.len());
        for (&number, &(bytes, checksum)) in blocks {
            let file = chunk.file;
            let key = BlockKey {
                file,
                index: number,
            };
            let located = index.get(&key).unwrap();
            assert_eq!((located.bytes, located.checksum), (bytes, checksum));
        }
    }
}

proptest! {
    #[test]
    fn equals_its_naive_twin(steps in proptest::collection::vec((0..13_u8, 0..60_u32), 1..200)) {
        let (mut index, mut twin) = (DiskIndex::default(), Twin::default());
        for (number, (what, which)) in (0_u64..).zip(steps) {
            let key = block(which);
            let (chunk, bit) = key.in_chunk();
            match what {
                0..5 => {
                    let bytes = which * 977 + 1;
                    index.insert(key, bytes, number);
                    twin.insert(key, bytes, number);
                }
                5 => {
                    let before = index.held(&chunk);
                    prop_assert_eq!(index.remove(Blocks::new(chunk, bit)), before & bit);
                    twin.remove(chunk, bit);
                }
                6..8 => {
                    index.touch(&chunk);
                    if let Some(at) = twin.position(chunk) {
                        twin.chunks[at].2 = true;
                    }
                }
                8 => {
                    let evicted = index.evict();
                    let is_held = evicted.is_some_and(|it| index.is_held(it.chunk.file));
                    prop_assert!(!is_held);
                    prop_assert!(evicted.is_some() || !index.can_evict(), "few are held");
                    prop_assert_eq!(evicted.map(|it| it.chunk), twin.evict());
                }
                9..11 => {
                    index.hold(key.file);
                    twin.holds.push(key.file);
                }
                11 => {
                    index.release(key.file);
                    if let Some(at) = twin.holds.iter().position(|&it| it == key.file) {
                        twin.holds.swap_remove(at);
                    }
                    prop_assert_eq!(index.is_held(key.file), twin.holds.contains(&key.file));
                }
                _ => {
                    let removed = index.remove_file(key.file);
                    prop_assert_eq!(index.file_bytes(key.file), None);
                    for blocks in removed {
                        twin.remove(blocks.chunk, u64::MAX);
                    }
                }
            }
            same(&index, &twin);
        }
    }
}

#[test]
fn what_is_read_stays() {
    let mut index = DiskIndex::default();
    let key = |number: u32| BlockKey {
        file: FileKey(1),
        index: number * CHUNK_BLOCKS,
    };
    for number in 0..10 {
        index.insert(key(number), 4096, 0);
    }
    index.touch(&key(0).in_chunk().0);
    index.touch(&key(1).in_chunk().0);
    let evicted: Vec<u32> = std::iter::from_fn(|| index.evict())
        .map(|it| it.chunk.number)
        .collect();
    assert_eq!(evicted, [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    assert_eq!((index.bytes(), index.blocks(), index.chunks()), (0, 0, 0));
}

#[test]
fn what_is_held_stays() {
    let mut index = DiskIndex::default();
    let key = |file: u128, number: u32| BlockKey {
        file: FileKey(file),
        index: number * CHUNK_BLOCKS,
    };
    // More chunks of a held file than one eviction passes over.
    let held = HELD_PASSES_MAX as u32 + 1;
    for number in 0..held {
        index.insert(key(1, number), 4096, 0);
    }
    index.insert(key(2, 0), 4096, 0);
    index.hold(FileKey(1));
    index.hold(FileKey(1));
    assert_eq!(index.evict(), None, "the bound");
    assert!(index.can_evict());
    assert_eq!(index.evict().unwrap().chunk, key(2, 0).in_chunk().0);
    assert!(!index.can_evict(), "all is held");
    assert_eq!(index.evict(), None);
    index.release(FileKey(1));
    assert_eq!(index.evict(), None, "it is still held once");
    index.release(FileKey(1));
    index.check();
    for _ in 0..held {
        assert_eq!(index.evict().unwrap().chunk.file, FileKey(1));
    }
    assert_eq!(index.evict(), None);
}

#[test]
fn a_chunk_that_is_written_again_is_another_one() {
    let mut index = DiskIndex::default();
    let key = block(7);
    index.insert(key, 100, 5);
    let before = index.get(&key).unwrap();
    assert_eq!(index.evict().unwrap().chunk, key.in_chunk().0);
    assert_eq!(index.get(&key), None);
    index.insert(key, 100, 5);
    assert_ne!(index.get(&key).unwrap(), before);
}
