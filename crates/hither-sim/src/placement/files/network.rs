//! Links between nodes, each busy with one block at a time.

use std::hint::select_unpredictable;

use hither_core::topology::{Link, LinkEnd};
use hither_core::{Node, Topology};

/// Servers of one request at a time, links or disks, with the parts of their time that are taken.
///
/// Accesses are simulated in the order of the trace, and nodes are at different times. So requests
/// arrive out of order. A queue that only knew when it is free again would stop a node that lags
/// behind until it has caught up, and all nodes would run as slowly as the slowest. (With such
/// queues, links busy for 2 % of the time tripled the latency of a hit; 2026-11.) Therefore time is
/// cut into slots, and a request takes the first free slots after its arrival. Some seconds of
/// slots are kept.
#[derive(Clone, Debug)]
pub(super) struct Calendars {
    /// Words kept per server.
    remembered: u64,
    /// 64 slots per word. The words of a server lie together, since a request on a busy disk passes
    /// many. For links, the order does not matter.
    words: Vec<Word>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    number: u64,
    taken: u64,
}

/// The first free slot for a request. Nothing may be taken before it is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) slot: u64,
    /// Words kept from the word of the slot on.
    words: u64,
}

impl Calendars {
    /// Calendars of servers that keep `remembered` words each, a power of two.
    pub(super) fn new(servers: usize, remembered: u64) -> Calendars {
        assert!(remembered.is_power_of_two(), "taken by a mask");
        Calendars {
            remembered,
            words: vec![Word::default(); servers * remembered as usize],
        }
    }

    /// The memory of the calendars.
    pub(super) fn bytes(servers: usize, remembered: u64) -> u64 {
        servers as u64 * remembered * size_of::<Word>() as u64
    }

    /// The taken slots of a word. The slots of a word that is not kept are free.
    #[inline]
    fn word(&mut self, server: usize, number: u64) -> &mut u64 {
        let time = number & (self.remembered - 1);
        let word = &mut self.words[server * self.remembered as usize + time as usize];
        // Without a branch, which was mispredicted on every fourth link or so.
        let taken = select_unpredictable(word.number == number, word.taken, 0);
        *word = Word { number, taken };
        &mut word.taken
    }

    /// The first free slot from `slot` on. If all kept slots are taken, the one after them.
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

    /// Takes `count` slots, at least one, from the first free one on. Returns the last of them.
    pub(super) fn take(&mut self, server: usize, free: Free, count: u64) -> u64 {
        let (mut number, mut from) = (free.slot / 64, free.slot % 64);
        let mut left = count;
        for _ in 0..free.words {
            let taken = self.word(server, number);
            let mut free = !*taken & (u64::MAX << from);
            // By runs of free slots: a word has one or two.
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
        // All kept slots are taken, so it takes slots after them.
        number * 64
    }

    /// Takes the first free slot from `slot` on, usually `slot` itself. Returns the slot after it.
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

    /// A separate function, since its calls would cost the loop over a route registers.
    #[cold]
    #[inline(never)]
    fn take_later(&mut self, server: usize, slot: u64) -> u64 {
        let free = self.first_free(server, slot);
        self.take(server, free, 1) + 1
    }
}

/// 6.5 s of links that take 0.1 ms per block. The clocks of nodes are sometimes further apart, and
/// older slots are forgotten. With 52 s the latencies of hits were the same within 1 %, at two
/// thirds of the speed (2026-11).
const WORDS_PER_LINK_MAX: u64 = 1024;
/// All links together keep at most 64 MiB, but each at least 16 words. One link per pair of nodes
/// makes a million links for 1024 nodes, and 16 GiB of full calendars.
const WORDS_TOTAL_MAX: u64 = 1 << 22;
const WORDS_MIN: u64 = 16;

/// The words that each of that many links keeps, a power of two.
fn words(links: usize) -> u64 {
    let share = WORDS_TOTAL_MAX / links.max(1) as u64;
    (1 << share.max(1).ilog2()).clamp(WORDS_MIN, WORDS_PER_LINK_MAX)
}

/// The links of a topology.
#[derive(Clone, Debug)]
pub(super) struct Network {
    calendars: Calendars,
    /// The time of a block on each link, at least 1.
    block_ns: Vec<u64>,
    contention: bool,
}

impl Network {
    /// `hop_ns` is the time of a block on a link. A matrix topology has one link per pair of nodes.
    /// Its time is proportional to the pair's latency beyond a local one; `hop_ns` is that of the
    /// nearest pair.
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

    /// The memory of the calendars of a topology's links.
    pub(super) fn bytes(topology: &Topology, contention: bool) -> u64 {
        let links = if contention { topology.links() } else { 0 };
        Calendars::bytes(links, words(links))
    }

    /// Sends a block, which every node on the way stores and forwards. Returns when it has arrived.
    #[inline]
    pub(super) fn send(&mut self, topology: &Topology, from: Node, to: Node, at_ns: u64) -> u64 {
        let route = topology.route(from, to);
        let Some(&first) = route.first() else {
            return at_ns;
        };
        // All links of a route take equally long: links differ only in a matrix, where a route is
        // one link. So a slot on one link is followed by the next slot on the next link, without
        // another division.
        let block_ns = self.block_ns[first as usize];
        let unhindered_ns = at_ns + block_ns * route.len() as u64;
        if !self.contention {
            return unhindered_ns;
        }
        let start = at_ns / block_ns;
        let end = route.iter().fold(start, |slot, &link| {
            self.calendars.take_one(link as usize, slot)
        });
        if end - start == route.len() as u64 {
            unhindered_ns
        } else {
            // A request that waited continues at the beginning of a slot.
            end * block_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::Random;

    /// Requests of one to three words against a list of slots, with calendars that keep everything
    /// and with one that forgets.
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

    /// A late request takes free slots in its own past, and not after those of earlier requests.
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
