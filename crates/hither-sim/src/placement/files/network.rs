//! Links between nodes, each busy with one block at a time.

use hither_core::topology::{Link, Place};
use hither_core::{Node, Topology};

/// Something that serves one request at a time: a link, or a disk.
///
/// Nodes are at different times when their accesses are taken in the order of the trace, so requests arrive out of order. What
/// a request waits for is therefore the work that is queued, not the time at which it will be done: a node that lags behind is not
/// held up by the time that another is ahead.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    last_ns: u64,
    backlog_ns: u64,
}

impl Queue {
    /// How long a request that arrives at `at_ns` waits before it is served.
    #[inline]
    pub(super) fn wait_ns(&mut self, at_ns: u64) -> u64 {
        if at_ns > self.last_ns {
            self.backlog_ns = self.backlog_ns.saturating_sub(at_ns - self.last_ns);
            self.last_ns = at_ns;
        }
        self.backlog_ns
    }

    /// Serves a request after those before it; gives when it is done.
    #[inline]
    pub(super) fn serve(&mut self, at_ns: u64, service_ns: u64) -> u64 {
        let wait_ns = self.wait_ns(at_ns);
        self.backlog_ns += service_ns;
        at_ns + wait_ns + service_ns
    }
}

/// The links of a topology.
#[derive(Clone, Debug)]
pub(super) struct Network {
    links: Vec<Wire>,
    contention: bool,
}

#[derive(Clone, Copy, Debug)]
struct Wire {
    queue: Queue,
    /// How long a block takes over it.
    block_ns: u64,
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
        let wire = |link| Wire {
            queue: Queue::default(),
            block_ns: block_ns(link),
        };
        Network {
            links: (0..topology.links() as u32).map(wire).collect(),
            contention,
        }
    }

    /// Sends a block, which every node on the way stores and forwards; gives when it has arrived.
    #[inline]
    pub(super) fn send(&mut self, topology: &Topology, from: Node, to: Node, at_ns: u64) -> u64 {
        let route = topology.route(from, to).iter();
        route.fold(at_ns, |at_ns, &link| {
            let Wire { queue, block_ns } = &mut self.links[link as usize];
            if self.contention {
                queue.serve(at_ns, *block_ns)
            } else {
                at_ns + *block_ns
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_matrix_takes_by_its_latencies() {
        let matrix =
            Topology::from_matrix("m", &[70, 100, 190, 100, 70, 100, 190, 100, 70]).unwrap();
        let mut network = Network::new(&matrix, 10, true);
        assert_eq!(network.send(&matrix, Node(0), Node(1), 0), 10);
        assert_eq!(network.send(&matrix, Node(0), Node(2), 0), 40);
    }

    /// A request from the past waits for the work that is queued, not for the clock of who came before.
    #[test]
    fn a_late_request_is_not_held_up_by_an_early_clock() {
        let mut queue = Queue::default();
        assert_eq!(queue.serve(1000, 10), 1010);
        assert_eq!(queue.serve(0, 10), 20);
        assert_eq!(queue.serve(1005, 10), 1030);
    }
}
