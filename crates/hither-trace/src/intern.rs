//! Numbers blocks densely in order of first appearance.
//!
//! This look-up is most of the cost of loading a trace, and on a large one it is a cache miss. The
//! table is open addressing over 4-byte numbers; keys are compared where they have to be kept
//! anyway, by number. That is 8 to 16 bytes a block for the table, a quarter to half full, and 8
//! for its key, where a table of pairs would take 32. The eight blocks whose keys differ in the
//! lowest three bits start out side by side, so that a scan of a file touches a line of the table
//! once and not eight times.
//!
//! Small keys need no hash: they index an array of numbers. Small are those below [`SMALL`] and
//! those below four times the number of blocks, so that the array takes 16 bytes a block at most,
//! like the table. On 10 million references to 760,000 blocks (zipf, 2026-11) numbering then takes
//! 10 ns a reference instead of 18.

/// From a block's key to its number, and back.
#[derive(Debug)]
pub(crate) struct Interner {
    /// Numbers, or [`NONE`]; a power of two of them, at most half in use.
    table: Vec<u32>,
    /// By how much a 64-bit hash is shifted to be the number of a group of eight places.
    shift: u32,
    keys: Vec<u64>,
    /// How many keys are in the table.
    large: usize,
    /// The numbers of small keys, or [`NONE`].
    small: Vec<u32>,
}

/// Keys below it are small in any case: 256 KiB of numbers.
const SMALL: u64 = 1 << 16;
const NONE: u32 = u32::MAX;
const GROUP_BITS: u32 = 3;
const FIRST_BITS: u32 = 10;

impl Interner {
    pub(crate) fn new() -> Interner {
        Interner {
            table: vec![NONE; 1 << FIRST_BITS],
            shift: 64 - (FIRST_BITS - GROUP_BITS),
            keys: Vec::new(),
            large: 0,
            small: Vec::new(),
        }
    }

    /// How many blocks have a number.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of the block with this key, a new one if it was never seen; none if there are
    /// 2^32 - 1 already.
    #[inline]
    pub(crate) fn number(&mut self, key: u64) -> Option<u32> {
        match self.small.get(key as usize) {
            Some(&number) if number != NONE => Some(number),
            Some(_) => self.insert_small(key),
            None => self.number_large(key),
        }
    }

    #[inline]
    fn number_large(&mut self, key: u64) -> Option<u32> {
        let mut at = self.home(key);
        loop {
            let number = self.table[at];
            if number == NONE {
                return self.insert(at, key);
            }
            if self.keys[number as usize] == key {
                return Some(number);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    /// The keys in order of their numbers.
    pub(crate) fn into_keys(self) -> Vec<u64> {
        self.keys
    }

    /// The place where the search for a key begins.
    #[inline]
    fn home(&self, key: u64) -> usize {
        let group = hash(key >> GROUP_BITS) >> self.shift;
        (group << GROUP_BITS | (key & ((1 << GROUP_BITS) - 1))) as usize
    }

    /// Gives a new key its number.
    fn new_number(&mut self, key: u64) -> Option<u32> {
        let number = u32::try_from(self.keys.len()).ok();
        let number = number.filter(|number| *number != NONE)?;
        self.keys.push(key);
        Some(number)
    }

    #[cold]
    #[inline(never)]
    fn insert_small(&mut self, key: u64) -> Option<u32> {
        let number = self.new_number(key)?;
        self.small[key as usize] = number;
        Some(number)
    }

    /// Makes room for small keys up to `key`. Those of them that are in the table are found in the
    /// array from now on.
    fn cover(&mut self, key: u64) {
        let length = (key as usize + 1).next_power_of_two();
        self.small.resize(length, NONE);
        for (number, &key) in self.keys.iter().enumerate() {
            if let Some(place) = self.small.get_mut(key as usize) {
                *place = number as u32;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn insert(&mut self, at: usize, key: u64) -> Option<u32> {
        if key < SMALL.max(4 * self.keys.len() as u64) {
            self.cover(key);
            return self.insert_small(key);
        }
        let number = self.new_number(key)?;
        self.table[at] = number;
        self.large += 1;
        if 2 * self.large > self.table.len() {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let places = 2 * self.table.len();
        // The old table goes first: both together would be the peak of memory of the whole load.
        self.table = Vec::new();
        self.table = vec![NONE; places];
        self.shift -= 1;
        let keys = self.keys.iter().enumerate();
        for (number, &key) in keys.filter(|(_, key)| **key >= self.small.len() as u64) {
            let mut at = self.home(key);
            while self.table[at] != NONE {
                at = (at + 1) & (self.table.len() - 1);
            }
            self.table[at] = number as u32;
        }
    }
}

/// The upper and the lower half of a 128-bit product, folded: one multiplication whose upper bits
/// depend on every bit of the key.
#[inline]
fn hash(key: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_dense_and_in_order_of_first_appearance(keys in prop::collection::vec(
            prop_oneof![
                0u64..40,
                SMALL - 20..SMALL + 20,
                Just(u64::MAX),
                Just(u64::MAX - 8),
                any::<u64>(),
            ],
            0..3000,
        )) {
            let mut interner = Interner::new();
            let mut model: Vec<u64> = Vec::new();
            let mut known = std::collections::BTreeMap::new();
            for &key in &keys {
                let expected = *known.entry(key).or_insert_with(|| {
                    model.push(key);
                    model.len() - 1
                });
                prop_assert_eq!(interner.number(key).unwrap() as usize, expected);
            }
            prop_assert_eq!(interner.len(), model.len());
            prop_assert_eq!(interner.into_keys(), model);
        }
    }

    /// More blocks than a quarter of the largest key: keys move from the table to the array while
    /// they come.
    #[test]
    fn keys_that_become_small_keep_their_numbers() {
        let mut interner = Interner::new();
        let keys = || (0..3 * SMALL).map(|step| step * 5_038_849 % (3 * SMALL));
        for (number, key) in keys().enumerate() {
            assert_eq!(interner.number(key), Some(number as u32), "key {key}");
        }
        assert!(interner.small.len() as u64 >= 3 * SMALL);
        assert!(interner.large > 0, "none was ever large");
        for (number, key) in keys().enumerate().step_by(1009) {
            assert_eq!(interner.number(key), Some(number as u32), "key {key}");
        }
    }

    /// Keys in equal steps must not pile up in one part of the table: the longest search stays
    /// short.
    #[test]
    fn regular_keys_spread() {
        for shift in [0, 3, 12, 20, 29, 32, 40, 44] {
            let mut interner = Interner::new();
            for key in 0..50_000u64 {
                interner.number(SMALL + 200_000 + (key << shift));
            }
            let mut longest = 0;
            let mut stretch = 0;
            for number in &interner.table {
                stretch = if *number == NONE { 0 } else { stretch + 1 };
                longest = longest.max(stretch);
            }
            assert!(longest < 2000, "step 2^{shift}: {longest} places in a row");
        }
    }
}
