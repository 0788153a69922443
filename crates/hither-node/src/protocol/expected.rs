//! Blocks that this node is to keep without having asked for them, as the homes of their chunks
//! have announced: who will send them. What nobody has announced is not taken, since it could be
//! anything.
//!
//! An announcement that nothing follows is forgotten after a while, and the oldest first where
//! there are too many.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::event::Time;
use super::message::Blocks;
use super::view::MemberId;
use crate::key::ChunkKey;

/// Blocks of a chunk that a member will send.
#[derive(Clone, Copy, Debug)]
struct Sender {
    member: MemberId,
    mask: u64,
    until: Time,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Expected {
    chunks: FxHashMap<ChunkKey, Vec<Sender>>,
    /// Announcements in the order of their ends, also those that are fulfilled by now.
    order: VecDeque<(Time, ChunkKey)>,
    announcements_max: usize,
}

impl Expected {
    pub(super) fn new(announcements_max: usize) -> Expected {
        Expected {
            chunks: FxHashMap::default(),
            order: VecDeque::new(),
            announcements_max,
        }
    }

    /// A member will send blocks, until then.
    pub(super) fn add(&mut self, blocks: Blocks, member: MemberId, until: Time, now: Time) {
        let is_over = |first: &(Time, ChunkKey)| first.0 <= now;
        while self.order.len() >= self.announcements_max || self.order.front().is_some_and(is_over)
        {
            let Some((end, chunk)) = self.order.pop_front() else {
                break;
            };
            self.retain(chunk, |sender| sender.until > end);
        }
        self.order.push_back((until, blocks.chunk));
        self.chunks.entry(blocks.chunk).or_default().push(Sender {
            member,
            mask: blocks.mask,
            until,
        });
    }

    /// Whether a member is to send all of these blocks.
    pub(super) fn has(&self, blocks: Blocks, member: MemberId, now: Time) -> bool {
        let senders = self.chunks.get(&blocks.chunk).into_iter().flatten();
        let senders = senders.filter(|it| it.member == member && it.until > now);
        blocks.mask & !senders.fold(0, |mask, sender| mask | sender.mask) == 0
    }

    /// Blocks have come from a member.
    pub(super) fn remove(&mut self, blocks: Blocks, member: MemberId) {
        self.retain(blocks.chunk, |sender| {
            if sender.member == member {
                sender.mask &= !blocks.mask;
            }
            sender.mask != 0
        });
    }

    fn retain(&mut self, chunk: ChunkKey, keeps: impl FnMut(&mut Sender) -> bool) {
        if let Some(senders) = self.chunks.get_mut(&chunk) {
            senders.retain_mut(keeps);
            if senders.is_empty() {
                self.chunks.remove(&chunk);
            }
        }
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        assert!(self.order.len() <= self.announcements_max.max(1));
        assert!(self.order.iter().is_sorted_by_key(|it| it.0));
        let senders = || {
            self.chunks
                .iter()
                .flat_map(|(chunk, it)| it.iter().map(move |it| (chunk, it)))
        };
        assert!(self.chunks.values().all(|senders| !senders.is_empty()));
        assert!(senders().all(|(_, sender)| sender.mask != 0));
        assert!(senders().count() <= self.order.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FileKey;

    fn blocks(number: u32, mask: u64) -> Blocks {
        let file = FileKey(1);
        Blocks::new(ChunkKey { file, number }, mask)
    }

    #[test]
    fn each_announced_block_is_taken_once_of_who_was_announced() {
        let [one, other] = [1, 2].map(MemberId);
        let mut expected = Expected::new(8);
        expected.add(blocks(0, 0b011), one, Time(10), Time(0));
        expected.add(blocks(0, 0b100), one, Time(11), Time(1));
        let has = |expected: &Expected, mask, member, now| {
            expected.check();
            expected.has(blocks(0, mask), member, Time(now))
        };
        assert!(has(&expected, 0b111, one, 9));
        assert!(!has(&expected, 0b1000, one, 9) && !has(&expected, 0b1, other, 9));
        assert!(!expected.has(blocks(1, 1), one, Time(9)));
        assert!(has(&expected, 0b100, one, 10) && !has(&expected, 0b1, one, 10));
        expected.remove(blocks(0, 0b1), other);
        expected.remove(blocks(0, 0b100), one);
        assert!(!has(&expected, 0b100, one, 9) && has(&expected, 0b11, one, 9));
    }

    #[test]
    fn announcements_are_bounded() {
        let mut expected = Expected::new(3);
        for number in 0..10 {
            expected.add(
                blocks(number, 1),
                MemberId(1),
                Time(100 + u64::from(number)),
                Time(0),
            );
            expected.check();
        }
        let known = (0..10).filter(|&it| expected.has(blocks(it, 1), MemberId(1), Time(0)));
        assert_eq!(known.collect::<Vec<_>>(), [7, 8, 9]);
        expected.add(blocks(0, 1), MemberId(1), Time(300), Time(200));
        expected.check();
        assert_eq!(expected.chunks.len(), 1, "what is over is forgotten");
    }
}
