//! Links between nodes, each busy with one block at a time.

use std::hint::select_unpredictable;

use hither_core::topology::{Link, LinkEnd};
use hither_core::{Node, Topology};

/// Servers of one request at a time, links or disks: which parts of their time are taken.
///
/// Nodes are at different times when their accesses are taken in the order of the trace, so
/// requests arrive out of order, and a queue that only knew when it is free again would hold up a
/// node that lags behind until it has caught up with the one ahead: all nodes would run as slowly
/// as the slowest. (With such queues, 2026-11, links that were busy for 2 % of the time tripled the
/// latency of a hit.) Time is therefore cut into slots, and a request takes the first ones that are
/// free from its arrival on. Those of some seconds are remembered.
#[derive(Clone, Debug)]
pub(super) struct Calendars {
    /// How many words are remembered of each server.
    remembered: u64,
    /// 64 slots each; those of a server lie together, since a request on a busy disk passes many.
    /// For links it is all the same whether the words of one link or those of one time are
    /// neighbours.
    words: Vec<Word>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    number: u64,
    taken: u64,
}

/// The first free slot for a request; nothing may be taken before it is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) slot: u64,
    /// How many words are remembered from the one of the slot on.
    words: u64,
}

impl Calendars {
    /// Of each server, so many words are `remembered`, a power of two.
    pub(super) fn new(servers: usize, remembered: u64) -> Calendars {
        assert!(remembered.is_power_of_two(), "taken by a mask");
        Calendars {
            remembered,
            words: vec![Word::default(); servers * remembered as usize],
        }
    }

    /// What they take in memory.
    pub(super) fn bytes(servers: usize, remembered: u64) -> u64 {
        servers as u64 * remembered * size_of::<Word>() as u64
    }

    /// The slots of a word that are taken, to be changed; those of one that is not remembered are
    /// free.
    #[inline]
    fn word(&mut self, server: usize, number: u64) -> &mut u64 {
        let time = number & (self.remembered - 1);
        let word = &mut self.words[server * self.remembered as usize + time as usize];
        // Without a branch: on every fourth link or so it was foreseen wrongly.
        let taken = select_unpredictable(word.number == number, word.taken, 0);
        *word = Word { number, taken };
        &mut word.taken
    }

    /// The first free slot from `slot` on; the one after all that are remembered where those are
    /// taken.
    pub(super) fn first_free(&mut self, server: usize, slot: u64) -> Free {
        let (mut number, mut before) = (slot / 64, !(u64::MAX << (slot % 64)));
        for passed in 0..self.remembered {
            let taken = *self.word(server, number) | before;
            if taken != u64::MAX {
                return Free {
                    slot: number * 64 + u64::from(taken.trailing_ones()),
                    words: self.remembered - passed,
                };
            }
            (number, before) = (number + 1, 0);
        }
        Free {
            slot: number * 64,
            words: 0,
        }
    }

    /// Takes `count` slots, at least one, from the first free one on; gives the last of them.
    pub(super) fn take(&mut self, server: usize, free: Free, count: u64) -> u64 {
        let (mut number, mut from) = (free.slot / 64, free.slot % 64);
        let mut left = count;
        for _ in 0..free.words {
            let taken = self.word(server, number);
            let mut free = !*taken & (u64::MAX << from);
            // Run by run: a word has one or two.
            while free != 0 {
                let start = free.trailing_zeros();
                let run = u64::from((free >> start).trailing_ones()).min(left);
                let run_bits = u64::MAX >> (64 - run) << start;
                *taken |= run_bits;
                free &= !run_bits;
                left -= run;
                if left == 0 {
                    return number * 64 + u64::from(start) + run - 1;
                }
            }
            (number, from) = (number + 1, 0);
        }
        // All that is remembered is taken: after that.
        number * 64
    }

    /// Takes the first free slot from `slot` on, which mostly is that one itself; gives the one
    /// after it.
    #[inline]
    fn take_one(&mut self, server: usize, slot: u64) -> u64 {
        let taken = self.word(server, slot / 64);
        let bit = 1 << (slot % 64);
        let free = *taken & bit == 0;
        *taken |= bit;
        if free {
            slot + 1
        } else {
            self.take_later(server, slot)
        }
    }

    /// Apart, for the registers that calls from within the loop over a route would take from it.
    #[cold]
    #[inline(never)]
    fn take_later(&mut self, server: usize, slot: u64) -> u64 {
        let free = self.first_free(server, slot);
        self.take(server, free, 1) + 1
    }
}

/// 6.5 s of links that take 0.1 ms for a block. Nodes' clocks are farther apart at times, and what
/// a link is booked for is forgotten then; with 52 s latencies of hits were the same within 1 %
/// (2026-11), at two thirds of the speed.
const WORDS_PER_LINK_MAX: u64 = 1024;
/// All links together remember no more than 64 MiB, but for 16 words each: a link for each pair of
/// nodes makes a million links of 1024 nodes, and 16 GiB of whole calendars.
const WORDS_TOTAL_MAX: u64 = 1 << 22;
const WORDS_MIN: u64 = 16;

/// The words that each of so many links remembers, a power of two.
fn words(links: usize) -> u64 {
    let share = WORDS_TOTAL_MAX / links.max(1) as u64;
    (1 << share.max(1).ilog2()).clamp(WORDS_MIN, WORDS_PER_LINK_MAX)
}

/// The links of a topology.
#[derive(Clone, Debug)]
pub(super) struct Network {
    calendars: Calendars,
    /// How long a block takes over each link, at least 1.
    block_ns: Vec<u64>,
    contention: bool,
}

impl Network {
    /// `hop_ns` is what a block takes over a link. A matrix has a link for each pair of nodes,
    /// which takes by what the pair's latency has beyond a local one, `hop_ns` being that of the
    /// nearest.
    pub(super) fn new(topology: &Topology, hop_ns: u64, contention: bool) -> Network {
        let beyond_ns = |from: Node, to: Node| {
            let local_ns = topology.latency_ns(from, from);
            u64::from(topology.latency_ns(from, to).saturating_sub(local_ns))
        };
        let block_ns = |link: u32| match topology.link(link) {
            Link::Wire {
                from: LinkEnd::Node(from),
                to: LinkEnd::Node(to),
            } if topology.kind() == "matrix" => {
                hop_ns * beyond_ns(from, to) / u64::from(topology.hop_ns()).max(1)
            }
            _ => hop_ns,
        };
        let links = topology.links();
        Network {
            calendars: Calendars::new(if contention { links } else { 0 }, words(links)),
            block_ns: (0..links as u32)
                .map(|link| block_ns(link).max(1))
                .collect(),
            contention,
        }
    }

    /// What the calendars of a topology's links take in memory.
    pub(super) fn bytes(topology: &Topology, contention: bool) -> u64 {
        let links = if contention { topology.links() } else { 0 };
        Calendars::bytes(links, words(links))
    }

    /// Sends a block, which every node on the way stores and forwards; gives when it has arrived.
    #[inline]
    pub(super) fn send(&mut self, topology: &Topology, from: Node, to: Node, at_ns: u64) -> u64 {
        let route = topology.route(from, to);
        let Some(&first) = route.first() else {
            return at_ns;
        };
        // All links of a route take equally long: where links differ, in a matrix, a route is one
        // of them. So a slot on one is followed by the next on the one behind it, without another
        // division.
        let block_ns = self.block_ns[first as usize];
        let unhindered_ns = at_ns + block_ns * route.len() as u64;
        if !self.contention {
            return unhindered_ns;
        }
        let start = at_ns / block_ns;
        let end = route.iter().fold(start, |slot, &link| {
            self.calendars.take_one(link as usize, slot)
        });
        match end - start == route.len() as u64 {
            true => unhindered_ns,
            // Whoever waited goes on at the beginning of a slot.
            false => end * block_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::Random;

    /// Requests of one to three words against a list of slots, on calendars that remember all there
    /// is, and on one that forgets.
    #[test]
    fn the_first_free_slots_are_taken() {
        let mut random = Random::new(5);
        let mut calendars = Calendars::new(3, 256);
        let mut taken = vec![[false; 256 * 64]; 3];
        for _ in 0..150 {
            let server = random.below(3) as usize;
            let (slot, count) = (random.below(2000), 1 + random.below(190));
            let free = calendars.first_free(server, slot);
            let mut left = (slot as usize..).filter(|&slot| !taken[server][slot]);
            let expected: Vec<usize> = left.by_ref().take(count as usize).collect();
            assert_eq!(free.slot, expected[0] as u64);
            let last = match count {
                1 => calendars.take_one(server, slot) - 1,
                _ => calendars.take(server, free, count),
            };
            assert_eq!(last, expected[expected.len() - 1] as u64);
            expected.iter().for_each(|&slot| taken[server][slot] = true);
        }
        let mut full = Calendars::new(1, 2);
        let free = full.first_free(0, 70);
        assert_eq!(full.take(0, free, 200), 192, "122 are remembered");
        assert_eq!(full.first_free(0, 70).slot, 192);
        assert_eq!(full.first_free(0, 64).slot, 64);
    }

    #[test]
    fn a_block_waits_for_the_one_on_its_link() {
        let line = Topology::mesh(&[1, 4]);
        let mut network = Network::new(&line, 10, true);
        assert_eq!(network.send(&line, Node(0), Node(3), 100), 130);
        assert_eq!(
            network.send(&line, Node(3), Node(0), 100),
            130,
            "the other way is free"
        );
        assert_eq!(
            network.send(&line, Node(0), Node(1), 104),
            120,
            "6 ns are left of the first"
        );
        assert_eq!(network.send(&line, Node(0), Node(0), 104), 104);
    }

    #[test]
    fn many_links_remember_less() {
        for (links, each) in [
            (0, 1024),
            (4096, 1024),
            (4097, 512),
            (65_280, 64),
            (1024 * 1023, 16),
        ] {
            assert_eq!(words(links), each, "{links}");
        }
    }

    #[test]
    fn a_matrix_takes_by_its_latencies() {
        let matrix =
            Topology::from_matrix("m", &[70, 100, 190, 100, 70, 100, 190, 100, 70]).unwrap();
        let mut network = Network::new(&matrix, 10, true);
        assert_eq!(network.send(&matrix, Node(0), Node(1), 0), 10);
        assert_eq!(network.send(&matrix, Node(0), Node(2), 0), 40);
    }

    /// A request from the past takes what is free there, and not the clock of who came before.
    #[test]
    fn a_late_request_is_not_held_up_by_an_early_clock() {
        let mut calendars = Calendars::new(2, WORDS_PER_LINK_MAX);
        let mut take = |slot, count| {
            let free = calendars.first_free(1, slot);
            calendars.take(1, free, count)
        };
        assert_eq!(take(100, 1), 100);
        assert_eq!(take(0, 1), 0);
        assert_eq!(take(0, 1), 1);
        assert_eq!(take(100, 1), 101);
        // Longer ones take several slots: here 102 to 104, then 105 to 204.
        assert_eq!(take(101, 3), 104);
        assert_eq!(take(100, 100), 204);
        assert_eq!(calendars.first_free(1, 100).slot, 205);
        assert_eq!(calendars.first_free(0, 100).slot, 100);
    }
}
