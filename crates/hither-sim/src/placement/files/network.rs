//! Links between nodes, each busy with one block at a time.

use hither_core::topology::{Link, Place};
use hither_core::{Node, Topology};

/// Servers of one request at a time, links or disks: which parts of their time are taken.
///
/// Nodes are at different times when their accesses are taken in the order of the trace, so requests arrive out of
/// order, and a queue that only knew when it is free again would hold up a node that lags behind until it has caught up
/// with the one ahead: all nodes would run as slowly as the slowest. (With such queues, 2026-11, links that were busy
/// for 2 % of the time tripled the latency of a hit.) Time is therefore cut into slots, and a request takes the first
/// ones that are free from its arrival on. Those of some seconds are remembered.
#[derive(Clone, Debug)]
pub(super) struct Calendars {
    servers: usize,
    /// How many words are remembered of each.
    remembered: u64,
    /// 64 slots each; those of all servers at about one time lie together, since that is how they are used.
    words: Vec<Word>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    number: u64,
    taken: u64,
}

impl Calendars {
    /// Of each server, so many words are `remembered`, a power of two.
    pub(super) fn new(servers: usize, remembered: u64) -> Calendars {
        assert!(remembered.is_power_of_two(), "taken by a mask");
        Calendars {
            servers,
            remembered,
            words: vec![Word::default(); servers * remembered as usize],
        }
    }

    /// The slots of a word; one that is not remembered is free.
    #[inline]
    fn word(&mut self, server: usize, number: u64) -> &mut Word {
        let word =
            &mut self.words[(number & (self.remembered - 1)) as usize * self.servers + server];
        if word.number != number {
            *word = Word { number, taken: 0 };
        }
        word
    }

    /// When a request that arrives at `at_ns` begins to be served.
    pub(super) fn start(&mut self, server: usize, slot_ns: u64, at_ns: u64) -> u64 {
        let mut slot = at_ns / slot_ns;
        for _ in 0..self.remembered {
            let free = !self.word(server, slot / 64).taken & (u64::MAX << (slot % 64));
            if free != 0 {
                slot = slot / 64 * 64 + u64::from(free.trailing_zeros());
                break;
            }
            slot = (slot / 64 + 1) * 64;
        }
        at_ns.max(slot * slot_ns)
    }

    /// Serves a request that takes one slot; gives when it is done.
    #[inline]
    pub(super) fn serve_one(&mut self, server: usize, slot_ns: u64, at_ns: u64) -> u64 {
        let slot = at_ns / slot_ns;
        let word = self.word(server, slot / 64);
        let free = 1 << (slot % 64);
        if word.taken & free == 0 {
            word.taken |= free;
            return at_ns + slot_ns;
        }
        self.serve(server, slot_ns, at_ns, slot_ns)
    }

    /// Serves a request; gives when it is done.
    pub(super) fn serve(
        &mut self,
        server: usize,
        slot_ns: u64,
        at_ns: u64,
        service_ns: u64,
    ) -> u64 {
        let first = at_ns / slot_ns;
        let (mut number, mut from) = (first / 64, first % 64);
        let count = service_ns.div_ceil(slot_ns);
        let (mut left, mut last) = (count, first);
        for _ in 0..self.remembered {
            let taken = &mut self.word(server, number).taken;
            let free = lowest(!*taken & (u64::MAX << from), left);
            if free != 0 {
                *taken |= free;
                left -= u64::from(free.count_ones());
                last = number * 64 + u64::from(free.ilog2());
            }
            if left == 0 {
                break;
            }
            (number, from) = (number + 1, 0);
        }
        if left > 0 {
            // All that is remembered is taken: after that.
            last = number * 64;
        }
        let in_last_ns = service_ns - count.saturating_sub(1) * slot_ns;
        (at_ns + service_ns).max(last * slot_ns + in_last_ns)
    }
}

/// The lowest `count` of the bits that are set, or all where there are fewer.
#[inline]
fn lowest(bits: u64, count: u64) -> u64 {
    if u64::from(bits.count_ones()) <= count {
        return bits;
    }
    // The widest part from bit 0 on that has no more; a disk takes a hundred slots at a time.
    let part = |width: u32| bits & ((1 << width) - 1);
    let fits = |width: u32| u64::from(part(width).count_ones()) <= count;
    let steps = [32, 16, 8, 4, 2, 1].into_iter();
    part(steps.fold(0, |width, step| {
        width + if fits(width + step) { step } else { 0 }
    }))
}

/// 6.5 s of links that take 0.1 ms for a block. Nodes' clocks are farther apart at times, and what a link is booked
/// for is forgotten then; with 52 s latencies of hits were the same within 1 % (2026-11), at two thirds of the
/// speed.
const WORDS: u64 = 1024;
/// All links together remember no more than 64 MiB, but for 16 words each: a link for each pair of nodes makes a million
/// links of 1024 nodes, and 16 GiB of whole calendars.
const WORDS_OF_ALL: u64 = 1 << 22;
const WORDS_MIN: u64 = 16;

/// The words that each of so many links remembers, a power of two.
fn words(links: usize) -> u64 {
    let share = WORDS_OF_ALL / links.max(1) as u64;
    (1 << share.max(1).ilog2()).clamp(WORDS_MIN, WORDS)
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
    /// `hop_ns` is what a block takes over a link. A matrix has a link for each pair of nodes, which takes by what the
    /// pair's latency has beyond a local one, `hop_ns` being that of the nearest.
    pub(super) fn new(topology: &Topology, hop_ns: u64, contention: bool) -> Network {
        let beyond_ns = |from: Node, to: Node| {
            let local_ns = topology.latency_ns(from, from);
            u64::from(topology.latency_ns(from, to).saturating_sub(local_ns))
        };
        let block_ns = |link: u32| match topology.link(link) {
            Link::Wire {
                from: Place::Node(from),
                to: Place::Node(to),
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

    /// Sends a block, which every node on the way stores and forwards; gives when it has arrived.
    #[inline]
    pub(super) fn send(&mut self, topology: &Topology, from: Node, to: Node, at_ns: u64) -> u64 {
        let route = topology.route(from, to).iter();
        route.fold(at_ns, |at_ns, &link| {
            let block_ns = self.block_ns[link as usize];
            match self.contention {
                true => self.calendars.serve_one(link as usize, block_ns, at_ns),
                false => at_ns + block_ns,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::Random;

    #[test]
    fn the_lowest_bits() {
        let mut random = Random::new(5);
        for _ in 0..1000 {
            let (bits, count) = (random.bits() & random.bits(), random.below(66));
            let mut left = bits;
            (0..count).for_each(|_| left &= left.wrapping_sub(1));
            assert_eq!(lowest(bits, count), bits & !left, "{count} of {bits:#x}");
        }
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
        let mut calendars = Calendars::new(2, WORDS);
        let mut serve = |at_ns, service_ns| match service_ns {
            10 => calendars.serve_one(1, 10, at_ns),
            longer => calendars.serve(1, 10, at_ns, longer),
        };
        assert_eq!(serve(1000, 10), 1010);
        assert_eq!(serve(3, 10), 13);
        assert_eq!(serve(5, 10), 20);
        assert_eq!(serve(1005, 10), 1020);
        // Longer ones take several slots: here 102 to 104, then 105 to 204.
        assert_eq!(serve(1011, 25), 1045);
        assert_eq!(serve(1000, 1000), 2050);
        assert_eq!(calendars.start(1, 10, 1000), 2050);
        assert_eq!(calendars.start(0, 10, 1000), 1000);
    }
}
