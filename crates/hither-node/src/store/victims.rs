//! Blocks that have just left the memory: their bytes are kept for a moment, in case that another
//! member is to have them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::key::BlockKey;

/// Blocks that have left the memory. Where there is no room for another one, the oldest goes: it
/// is the least likely to be asked for, since nobody says of a block that no member takes it.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// Whether the placement may want them.
    pub(crate) are_wanted: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Blocks by when they came: a number.
    blocks: HashMap<BlockKey, (u64, Bytes)>,
    /// In the order of their numbers, with those that were taken.
    order: VecDeque<(u64, BlockKey)>,
    next: u64,
    /// The first number of this interval.
    interval: u64,
}

impl Kept {
    fn drop_oldest(&mut self) {
        let Some((number, key)) = self.order.pop_front() else {
            return;
        };
        if self.blocks.get(&key).is_some_and(|(of, _)| *of == number) {
            self.blocks.remove(&key);
        }
    }
}

impl Victims {
    /// Keeps the bytes of a block.
    pub(crate) fn put(&self, key: BlockKey, data: Bytes, blocks_max: usize) {
        if blocks_max == 0 {
            return;
        }
        let mut kept = self.kept.lock();
        while kept.blocks.len() >= blocks_max {
            kept.drop_oldest();
        }
        let number = kept.next;
        kept.next += 1;
        kept.order.push_back((number, key));
        kept.blocks.insert(key, (number, data));
    }

    pub(crate) fn take(&self, key: &BlockKey) -> Option<Bytes> {
        let (_, data) = self.kept.lock().blocks.remove(key)?;
        Some(data)
    }

    /// An interval has ended: lets go of what is older than it.
    pub(crate) fn end_interval(&self) {
        let kept = &mut *self.kept.lock();
        let interval = std::mem::replace(&mut kept.interval, kept.next);
        while kept
            .order
            .front()
            .is_some_and(|(number, _)| *number < interval)
        {
            kept.drop_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FileKey;

    #[test]
    fn victims_stay_for_an_interval_and_the_newest_have_room() {
        let victims = Victims::default();
        let key = |index| BlockKey {
            file: FileKey(1),
            index,
        };
        let put = |index, max| victims.put(key(index), Bytes::from_static(b"x"), max);
        (0..3).for_each(|index| put(index, 2));
        assert_eq!(victims.take(&key(0)), None, "it was the oldest");
        victims.end_interval();
        assert!(victims.take(&key(1)).is_some());
        assert!(victims.take(&key(1)).is_none());
        victims.end_interval();
        assert!(victims.take(&key(2)).is_none());
        // It leaves the memory again: the first time does not count.
        [3, 4, 3, 5, 6].into_iter().for_each(|index| put(index, 3));
        assert!(victims.take(&key(4)).is_none());
        assert!([3, 5, 6].iter().all(|it| victims.take(&key(*it)).is_some()));
        put(7, 0);
        assert!(victims.take(&key(7)).is_none());
    }
}
