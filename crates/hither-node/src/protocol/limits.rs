//! A limit on blocks in flight, and the chunks that queue for it.

use std::collections::{BTreeSet, VecDeque};

use super::message::Urgency;
use crate::key::ChunkKey;

/// Blocks in flight and two queues: those that readers wait for go first, and the prefetch starts
/// only below its share of the limit. A chunk may stand in a queue for nothing: whether it still
/// has blocks to start is up to its flight.
#[derive(Debug)]
pub(super) struct Limit {
    blocks_max: u32,
    prefetch_blocks_max: u32,
    in_flight: u32,
    demand: VecDeque<ChunkKey>,
    prefetch: VecDeque<ChunkKey>,
}

impl Limit {
    /// A limit of `blocks_max`, of which the prefetch may use `prefetch_percent`.
    pub(super) fn new(blocks_max: u32, prefetch_percent: u32) -> Limit {
        let share = u64::from(blocks_max) * u64::from(prefetch_percent.min(100)) / 100;
        Limit {
            blocks_max: blocks_max.max(1),
            prefetch_blocks_max: (share as u32).max(1),
            in_flight: 0,
            demand: VecDeque::new(),
            prefetch: VecDeque::new(),
        }
    }

    /// Whether more may start. What starts is not cut to the limit, so it is exceeded by fewer
    /// blocks than a chunk has.
    pub(super) fn has_room(&self, urgency: Urgency) -> bool {
        match urgency {
            Urgency::Demand => self.in_flight < self.blocks_max,
            Urgency::Prefetch => self.in_flight < self.prefetch_blocks_max,
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn start(&mut self, blocks: u32) {
        self.in_flight += blocks;
    }

    pub(super) fn end(&mut self, blocks: u32) {
        self.in_flight -= blocks;
    }

    pub(super) fn queue(&mut self, urgency: Urgency, chunk: ChunkKey) {
        let queue = match urgency {
            Urgency::Demand => &mut self.demand,
            Urgency::Prefetch => &mut self.prefetch,
        };
        if queue.back() != Some(&chunk) {
            queue.push_back(chunk);
        }
    }

    /// Removes chunks that stand in a queue for nothing or twice, if they outnumber the others:
    /// `flights` is how many chunks are in flight at all, and `in_flight` says which.
    pub(super) fn compact(&mut self, flights: usize, in_flight: impl Fn(ChunkKey) -> bool) {
        for queue in [&mut self.demand, &mut self.prefetch] {
            if queue.len() > 64 + 2 * flights {
                let mut seen = BTreeSet::new();
                queue.retain(|&chunk| in_flight(chunk) && seen.insert(chunk));
            }
        }
    }

    /// The next chunk that may start, and for whom.
    pub(super) fn next(&mut self) -> Option<(Urgency, ChunkKey)> {
        for urgency in [Urgency::Demand, Urgency::Prefetch] {
            if !self.has_room(urgency) {
                continue;
            }
            let queue = match urgency {
                Urgency::Demand => &mut self.demand,
                Urgency::Prefetch => &mut self.prefetch,
            };
            if let Some(chunk) = queue.pop_front() {
                return Some((urgency, chunk));
            }
        }
        None
    }

    /// Whether something queues that there is room for.
    pub(super) fn can_start(&self) -> bool {
        let demand = !self.demand.is_empty() && self.has_room(Urgency::Demand);
        demand || (!self.prefetch.is_empty() && self.has_room(Urgency::Prefetch))
    }

    /// Whether nothing is in flight and nothing queues.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.demand.is_empty() && self.prefetch.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FileKey;

    fn chunk(number: u32) -> ChunkKey {
        let file = FileKey(1);
        ChunkKey { file, number }
    }

    #[test]
    fn readers_go_before_the_prefetch_and_have_more_room() {
        let mut limit = Limit::new(4, 50);
        limit.queue(Urgency::Prefetch, chunk(1));
        limit.queue(Urgency::Demand, chunk(2));
        limit.start(2);
        assert_eq!(limit.next(), Some((Urgency::Demand, chunk(2))));
        assert_eq!(limit.next(), None, "the prefetch has had its share");
        limit.end(1);
        assert_eq!(limit.next(), Some((Urgency::Prefetch, chunk(1))));
        limit.end(1);
        assert!(limit.is_idle());
    }

    #[test]
    fn a_queue_does_not_fill_with_what_was_given_up() {
        let mut limit = Limit::new(1, 100);
        for number in 0..1_000 {
            for chunk in [chunk(number), chunk(7)] {
                limit.queue(Urgency::Prefetch, chunk);
                limit.compact(1, |chunk| chunk.number == 7);
            }
        }
        assert!(limit.prefetch.len() <= 66);
        assert!(limit.prefetch.contains(&chunk(7)));
    }
}
