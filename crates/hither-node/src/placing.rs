//! The node's part in placing blocks: it says how full its memory is, what its readers read from
//! it, and what leaves it, and it sends and drops what the homes of the blocks order.
//!
//! The bytes of blocks that leave the memory are kept for a moment, in case that another member is
//! to have them: some 100 ms, and the newest, an eighth of the frames that are never resident
//! at most. Only whole blocks are kept so: small ones share frames, and who has not asked for a
//! block takes whole ones only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hither_net::view::MemberId;

use crate::key::{BlockKey, bits};
use crate::node::Node;
use crate::protocol::{Blocks, Input, Keep, ReadEntry};
use crate::store::memory::Evicted;

/// How often a node says how full its memory is and what was read from it.
const USAGE_INTERVAL: Duration = Duration::from_millis(100);

/// The part of the frames that are never resident which victims may hold: one in so many.
const VICTIMS: usize = 8;

impl Node {
    /// Tells the protocol of what the memory has evicted for a block that has moved here from
    /// a member, or came from the source.
    pub(crate) fn give_up(self: &Arc<Self>, evicted: Evicted, from: Option<MemberId>) {
        if !self.victims.are_wanted.load(Ordering::Relaxed) {
            return self.note_evicted(evicted);
        }
        let blocks_max = self.store.spare_frames() / VICTIMS;
        for (key, data) in evicted {
            if data.len() != self.settings().block_bytes as usize {
                self.note_block_dropped(key);
                continue;
            }
            let (chunk, mask) = key.in_chunk();
            let blocks = Blocks::new(chunk, mask);
            self.victims.put(key, data, blocks_max);
            let victims = Input::Victims { blocks, from };
            self.input(victims);
        }
    }

    /// Sends blocks of the memory, or that have just left it, to a member that is to keep them.
    pub(crate) fn forward(self: &Arc<Self>, blocks: Blocks, to: MemberId, keep: Keep) {
        let mut missing = 0;
        for bit in bits(blocks.mask) {
            let key = blocks.chunk.block(bit);
            let data = self.victims.take(&key).or_else(|| self.store.peek(&key));
            match data {
                Some(data) if data.len() == self.settings().block_bytes as usize => {
                    self.peers.send_block(to, None, key, data, keep);
                }
                Some(_) => {}
                None => missing |= 1 << bit,
            }
        }
        if missing != 0 {
            self.note_dropped(blocks.with_mask(missing));
        }
    }

    /// Drops blocks from the memory, but for those of files that are held.
    pub(crate) fn drop_blocks(self: &Arc<Self>, blocks: Blocks) {
        for key in blocks.chunk.blocks(blocks.mask) {
            self.store.remove_unless_held(&key);
        }
        self.note_dropped(blocks);
    }

    /// Says from time to time how full the memory is, and what was read from it, for as long as the
    /// node is there.
    pub(crate) fn report_usage(self: &Arc<Self>) {
        let node = Arc::downgrade(self);
        self.runtime().spawn(async move {
            let mut interval = tokio::time::interval(USAGE_INTERVAL);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let Some(node) = node.upgrade() else {
                    return;
                };
                node.victims.end_interval();
                let reads = entries(node.store.take_reads());
                let frames = node.store.frames();
                node.input(Input::Usage { frames, reads });
                let (counts, forwards) = node.driver.wishes();
                node.store.count_reads(counts);
                node.victims.are_wanted.store(forwards, Ordering::Relaxed);
            }
        });
    }
}

/// Reads by block, gathered by chunk.
fn entries(mut reads: Vec<(BlockKey, u8)>) -> Vec<ReadEntry> {
    reads.sort_unstable_by_key(|&(key, _)| (key.file, key.index));
    let mut entries: Vec<ReadEntry> = Vec::new();
    for (key, count) in reads {
        let (chunk, mask) = key.in_chunk();
        match entries.last_mut() {
            Some(entry) if entry.blocks.chunk == chunk => {
                entry.blocks.mask |= mask;
                entry.counts.push(count);
            }
            _ => entries.push(ReadEntry {
                blocks: Blocks::new(chunk, mask),
                counts: vec![count],
            }),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FileKey;

    #[test]
    fn reads_are_gathered_by_chunk() {
        let read = |file, index, count| {
            let file = FileKey(file);
            (BlockKey { file, index }, count)
        };
        let reads = vec![read(1, 65, 3), read(2, 0, 1), read(1, 2, 9), read(1, 0, 7)];
        let entries = entries(reads);
        let found = entries.iter().map(|it| (it.blocks.mask, &it.counts[..]));
        let found: Vec<_> = found.collect();
        assert_eq!(found, [(0b101, &[7, 9][..]), (0b10, &[3]), (1, &[1])]);
    }
}
