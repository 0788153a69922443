//! Numbers blocks densely in order of first appearance.
//!
//! One hash look-up a reference would cost a cache miss each on a large trace. Files are mostly read in order, so
//! eight neighbouring blocks share one entry of the hash table, and the entry used last is remembered: a scan hashes
//! once in eight blocks. The price is 32 bytes instead of 4 for a block that none of its neighbours joins.

use rustc_hash::FxHashMap;

const CHUNK: usize = 8;
const NONE: u32 = u32::MAX;

/// From a block's key to its number, and back.
#[derive(Debug)]
pub(crate) struct Interner {
    chunks: FxHashMap<u64, u32>,
    numbers: Vec<[u32; CHUNK]>,
    keys: Vec<u64>,
    /// Key and place of the chunk used last.
    last: (u64, u32),
}

impl Interner {
    pub(crate) fn new() -> Interner {
        // No chunk has a key this high: keys are divided by the size of a chunk.
        let last = (u64::MAX, 0);
        Interner {
            chunks: FxHashMap::default(),
            numbers: Vec::new(),
            keys: Vec::new(),
            last,
        }
    }

    /// The number of the block with this key, a new one if it was never seen.
    pub(crate) fn number(&mut self, key: u64) -> u32 {
        let chunk = key / CHUNK as u64;
        if self.last.0 != chunk {
            let place = *self.chunks.entry(chunk).or_insert_with(|| {
                self.numbers.push([NONE; CHUNK]);
                (self.numbers.len() - 1) as u32
            });
            self.last = (chunk, place);
        }
        let number = &mut self.numbers[self.last.1 as usize][key as usize % CHUNK];
        if *number == NONE {
            *number = self.keys.len() as u32;
            self.keys.push(key);
        }
        *number
    }

    /// The keys in order of their numbers.
    pub(crate) fn into_keys(self) -> Vec<u64> {
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_dense_and_in_order_of_first_appearance(keys in prop::collection::vec(
            prop_oneof![0u64..40, Just(u64::MAX), Just(u64::MAX - 8), any::<u64>()], 0..300))
        {
            let mut interner = Interner::new();
            let mut model: Vec<u64> = Vec::new();
            for &key in &keys {
                let expected = model.iter().position(|known| *known == key).unwrap_or_else(|| {
                    model.push(key);
                    model.len() - 1
                });
                prop_assert_eq!(interner.number(key) as usize, expected);
            }
            prop_assert_eq!(interner.into_keys(), model);
        }
    }
}
