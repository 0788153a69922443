//! Blocks that have just left the memory: their bytes are kept for a moment, in case that another
//! member is to have them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::key::BlockKey;

/// Blocks that have left the memory.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// Whether the placement may want them.
    pub(crate) are_wanted: AtomicBool,
    /// Those of the current interval, and those of the one before.
    blocks: Mutex<[HashMap<BlockKey, Bytes>; 2]>,
}

impl Victims {
    /// Keeps the bytes of a block, if there is room.
    pub(crate) fn put(&self, key: BlockKey, data: Bytes, blocks_max: usize) {
        let mut blocks = self.blocks.lock();
        if blocks[0].len() + blocks[1].len() < blocks_max {
            blocks[0].insert(key, data);
        }
    }

    pub(crate) fn take(&self, key: &BlockKey) -> Option<Bytes> {
        let [now, before] = &mut *self.blocks.lock();
        now.remove(key).or_else(|| before.remove(key))
    }

    /// An interval has ended: lets go of what is older than it.
    pub(crate) fn end_interval(&self) {
        let [now, before] = &mut *self.blocks.lock();
        *before = std::mem::take(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FileKey;

    #[test]
    fn victims_stay_for_an_interval_and_are_bounded() {
        let victims = Victims::default();
        let key = |index| BlockKey {
            file: FileKey(1),
            index,
        };
        for index in 0..3 {
            victims.put(key(index), Bytes::from_static(b"x"), 2);
        }
        assert_eq!(victims.take(&key(2)), None, "no room");
        victims.end_interval();
        assert!(victims.take(&key(0)).is_some());
        assert!(victims.take(&key(0)).is_none());
        victims.end_interval();
        assert!(victims.take(&key(1)).is_none());
    }
}
