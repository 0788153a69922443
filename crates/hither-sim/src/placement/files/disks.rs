//! The disks below the caches: which disk holds a block, and how long an access to it takes.

use std::hint::select_unpredictable;

use hither_core::{Block, Node, Object};

use super::costs::FileCosts;
use super::network::Calendars;

/// Disks of nodes, with files striped over them block by block: block `i` of a file is on disk
/// `(start + i) mod n`. Files lie one after the other.
#[derive(Clone, Debug)]
pub(super) struct Disks {
    costs: FileCosts,
    calendars: Calendars,
    slot_ns: u64,
    disks: Vec<Disk>,
    /// The position of each block.
    places: Vec<DiskPosition>,
    /// Blocks per disk.
    span: u32,
}

/// 42 s of disks that transfer a block in 0.08 ms. Queues of disks are long.
const WORDS_PER_DISK: u64 = 8192;

#[derive(Clone, Copy, Debug)]
struct DiskPosition {
    /// The number of its disk.
    disk: u32,
    /// The position of the block on the disk.
    at: u32,
}

#[derive(Clone, Debug)]
struct Disk {
    node: Node,
    head: u32,
    /// The expected position of the next block of each stream in the buffer, the most recent stream
    /// last.
    streams: Vec<u32>,
}

/// No stream.
const NO_STREAM: u32 = u32::MAX;

impl Disks {
    /// Disks for blocks at `places` in files of `object_blocks` blocks each. If that is empty,
    /// blocks lie in the order of their numbers.
    pub(super) fn new(
        costs: &FileCosts,
        at: &[Node],
        places: impl ExactSizeIterator<Item = (Object, u32)>,
        object_blocks: &[u32],
    ) -> Disks {
        let mut end = 0u32;
        let start = |&blocks: &u32| {
            let start = end;
            end = end.saturating_add(blocks);
            start
        };
        let starts: Vec<u32> = object_blocks.iter().map(start).collect();
        let disk = |&node: &Node| Disk {
            node,
            head: 0,
            streams: Vec::new(),
        };
        let disks = at.len() as u32;
        let place = |(block, (object, index)): (u32, (Object, u32))| {
            let place = match starts.get(object.index()) {
                Some(start) => start.saturating_add(index),
                None => block,
            };
            DiskPosition {
                disk: place % disks,
                at: place / disks,
            }
        };
        let blocks = places.len() as u32;
        Disks {
            costs: costs.clone(),
            calendars: Calendars::new(at.len(), WORDS_PER_DISK),
            slot_ns: costs.disk_transfer_ns.max(1),
            disks: at.iter().map(disk).collect(),
            span: end.max(blocks).div_ceil(disks).max(1),
            places: (0..).zip(places).map(place).collect(),
        }
    }

    /// The memory of the calendars of that many disks.
    pub(super) fn bytes(disks: usize) -> u64 {
        Calendars::bytes(disks, WORDS_PER_DISK)
    }

    /// The node whose disk holds a block.
    pub(super) fn node(&self, block: Block) -> Node {
        self.disks[self.places[block.index()].disk as usize].node
    }

    /// Reads or writes a block, after all earlier requests. Returns when it is done.
    pub(super) fn transfer(&mut self, block: Block, at_ns: u64) -> u64 {
        let DiskPosition { disk, at } = self.places[block.index()];
        let (disk, slot_ns) = (disk as usize, self.slot_ns);
        let free = self.calendars.first_free(disk, at_ns / slot_ns);
        let service_ns = match self.costs.disk_ns {
            0 => {
                let start_ns = at_ns.max(free.slot * slot_ns);
                self.disks[disk].service_ns(&self.costs, at, self.span, start_ns)
            }
            always => always,
        };
        let slots = service_ns.div_ceil(slot_ns);
        if slots == 0 {
            return at_ns;
        }
        let last = self.calendars.take(disk, free, slots);
        (at_ns + service_ns).max(last * slot_ns + service_ns - (slots - 1) * slot_ns)
    }
}

impl Disk {
    /// The duration of an access to the block at `place` if the arm is free at `start_ns`. Moves
    /// the arm. The `span` blocks of the disk are spread over all of it.
    fn service_ns(&mut self, costs: &FileCosts, place: u32, span: u32, start_ns: u64) -> u64 {
        let after = place.saturating_add(1);
        // The access continues a stream if its position is among the blocks read ahead.
        let reach = costs.disk_ahead_blocks.min(after);
        let goes_on = |next: u32| next.wrapping_sub(after - reach) < reach;
        // Checks all streams and keeps the last match: leaving the loop early cost four
        // mispredicted branches per transfer (callgrind, 2026-11).
        let mut stream = NO_STREAM;
        for (nth, &next) in self.streams.iter().enumerate() {
            stream = select_unpredictable(goes_on(next), nth as u32, stream);
        }
        if stream != NO_STREAM {
            self.streams.remove(stream as usize);
        } else if self.streams.len() == costs.disk_streams as usize {
            self.streams.remove(0);
        }
        self.streams.push(after);
        if stream != NO_STREAM {
            return costs.disk_transfer_ns;
        }
        let distance = f64::from(place.abs_diff(std::mem::replace(&mut self.head, place)));
        let part = (distance / f64::from(span)).min(1.0).sqrt();
        let range_ns = costs
            .disk_seek_ns_max
            .saturating_sub(costs.disk_seek_ns_min);
        let seek_ns = match distance {
            0.0 => 0,
            _ => costs.disk_seek_ns_min + (range_ns as f64 * part) as u64,
        };
        let (turn_ns, track) = (costs.disk_turn_ns, u64::from(costs.disk_track_blocks));
        let passes_ns = u64::from(place) % track * turn_ns / track;
        let arrived_ns = (start_ns + seek_ns) % turn_ns;
        let wait_ns = match passes_ns.checked_sub(arrived_ns) {
            Some(wait_ns) => wait_ns,
            None => passes_ns + turn_ns - arrived_ns,
        };
        seek_ns + wait_ns + costs.disk_transfer_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::{Random, Topology};

    #[test]
    fn files_are_striped_one_behind_the_other() {
        let places = [(Object(0), 2), (Object(1), 0)];
        let nodes = [Node(0), Node(7)];
        let mut disks = Disks::new(&FileCosts::plain(), &nodes, places.into_iter(), &[3, 7]);
        assert_eq!(
            (disks.node(Block(0)), disks.node(Block(1))),
            (Node(0), Node(7))
        );
        assert_eq!(disks.transfer(Block(0), 5), 100_005);
        assert_eq!(disks.transfer(Block(0), 6), 200_000, "waits its turn");
        assert_eq!(disks.transfer(Block(1), 6), 100_006, "another disk");
    }

    /// Table 1: 8.2 ms for 4 KiB at random; what follows what was read comes from the buffer.
    #[test]
    fn a_random_access_takes_what_the_paper_says_and_a_sequential_one_a_transfer() {
        let blocks = 1_000_000u32;
        let costs = FileCosts::of(&Topology::mesh(&[1]), 4096);
        let places = vec![(Object(0), 0); blocks as usize];
        let mut disks = Disks::new(&costs, &[Node(0)], places.into_iter(), &[]);
        let mut random = Random::new(3);
        let (mut now_ns, mut total_ns) = (0, 0);
        for _ in 0..20_000 {
            let block = random.below(u64::from(blocks)) as u32;
            now_ns += 20_000_000 + random.below(6_000_000);
            total_ns += disks.transfer(Block(block), now_ns) - now_ns;
        }
        let mean_ns = total_ns / 20_000;
        assert!((8_100_000..8_300_000).contains(&mean_ns), "{mean_ns} ns");
        for block in [100, 900_000, 101, 900_001, 103] {
            now_ns += 20_000_000;
            let took_ns = disks.transfer(Block(block), now_ns) - now_ns;
            assert_eq!(
                took_ns == 80_000,
                ![100, 900_000].contains(&block),
                "{block}"
            );
        }
    }
}
