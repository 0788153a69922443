//! A world for the tests of placements: no latencies, no time but what the test sets; every
//! action is carried out at once.

use std::sync::Arc;

use super::counters::Counters;
use super::entry::{PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Epoch, EpochKind, ThreadMigration};
use super::interface::MemoryPlacement;
use super::nodes::Nodes;
use crate::access::Access;
use crate::ids::{Block, Node, Object, Process, Slot, Thread};
use crate::spec::Spec;
use crate::topology::Topology;

/// A placement and the nodes that it acts on, with frames enough for everything.
pub(crate) struct World {
    pub(crate) policy: Box<dyn MemoryPlacement>,
    pub(crate) nodes: Nodes,
    counts: Counters,
}

impl World {
    /// The nodes of an Origin2000 (300 ns, 100 ns a hop) in a row.
    pub(crate) fn origin(policy: &str, nodes: usize, blocks: u32) -> World {
        let topology: Topology = format!("mesh:{nodes}").parse().expect("a mesh");
        let latencies = crate::topology::Latencies {
            local_ns: 300,
            hop_ns: 100,
            storage_ns: None,
        };
        let topology = Arc::new(topology.with_latencies(latencies));
        let capacity = vec![blocks; nodes];
        let spec: Spec<PlacementEntry> = policy.parse().expect("a placement");
        let settings = PlacementSettings {
            topology: topology.clone(),
            capacity: &capacity,
            blocks,
            block_bytes: 16 << 10,
            totals: None,
            initial: None,
            sampled: false,
        };
        World {
            policy: spec.build_memory(&settings).expect("it places memory"),
            nodes: Nodes::new(topology, capacity, blocks),
            counts: Counters::new(nodes, blocks),
        }
    }

    /// Thread `thread` (of process 0) on `node` touches a page `count` times; returns its home
    /// afterwards.
    pub(crate) fn access(&mut self, thread: u32, node: u16, block: u32, count: u32) -> u16 {
        let access = Access {
            thread: Thread(thread),
            node: Node(node),
            count,
            ..Access::bare(0, Block(block))
        };
        self.make(&access)
    }

    /// Any access.
    pub(crate) fn make(&mut self, access: &Access) -> u16 {
        let mut out = Vec::new();
        match self.nodes.home(access.block) {
            None => {
                let home = self.policy.place(access, &self.nodes);
                self.nodes.insert(access.block, home, Slot(0));
            }
            Some(home) => self.policy.on_access(access, home, &self.nodes, &mut out),
        }
        self.counts.add(access.block, access.node, access.count);
        self.act(&out);
        self.home(access.block.0)
    }

    /// Pages, all of one object, are placed at these nodes, and nothing is counted.
    pub(crate) fn place(&mut self, object: u32, homes: &[(u32, u16)]) {
        for &(block, node) in homes {
            self.make(&Access {
                object: Object(object),
                node: Node(node),
                ..Access::bare(0, Block(block))
            });
        }
        self.counts.clear();
    }

    /// Counts accesses without telling the policy, as hardware does.
    pub(crate) fn count(&mut self, block: u32, counts: &[u32]) {
        self.counts.add_row(Block(block), counts);
    }

    /// An iteration (or construct, or period) of process 0 ends; returns what moved.
    pub(crate) fn end(&mut self, kind: EpochKind) -> Vec<(u32, u16)> {
        self.end_moved(kind, &[])
    }

    /// The same, after threads moved to these nodes.
    pub(crate) fn end_moved(&mut self, kind: EpochKind, moved: &[(u32, u16)]) -> Vec<(u32, u16)> {
        let moved: Vec<ThreadMigration> = moved
            .iter()
            .map(|&(thread, to)| ThreadMigration {
                thread: Thread(thread),
                process: Process(0),
                from: Node(0),
                to: Node(to),
            })
            .collect();
        let mut out = Vec::new();
        let epoch = Epoch {
            kind,
            process: (kind != EpochKind::Period).then_some(Process(0)),
            counts: &self.counts,
            thread_migrations: &moved,
            active_threads: 4,
        };
        self.policy.on_epoch(&epoch, &self.nodes, &mut out);
        if kind != EpochKind::Construct {
            self.counts.clear();
        }
        self.act(&out)
    }

    /// Adds pages; there are always frames for them.
    pub(crate) fn grow(&mut self, blocks: u32) {
        self.nodes.grow(blocks);
        self.counts.grow(blocks);
        self.policy.grow(blocks);
    }

    /// Frees an object and the pages it has left.
    pub(crate) fn free(&mut self, object: u32, blocks: impl IntoIterator<Item = u32>) {
        for block in blocks.into_iter().map(Block) {
            let node = self.nodes.home(block).expect("placed");
            self.nodes.remove(block, node);
            self.policy
                .on_removed(block, node, &self.nodes, &mut Vec::new());
            self.counts.reset(block);
        }
        self.policy.on_region_freed(Object(object));
        self.policy.check(&self.nodes);
    }

    /// Where a page is.
    pub(crate) fn home(&self, block: u32) -> u16 {
        self.nodes.home(Block(block)).expect("placed").0
    }

    /// What the policy counted under that name.
    pub(crate) fn statistic(&self, name: &str) -> u64 {
        let all = self.policy.statistics();
        let found = all.iter().find(|(other, _)| *other == name);
        found.expect("counted").1
    }

    fn act(&mut self, actions: &[Action]) -> Vec<(u32, u16)> {
        let mut moved = Vec::new();
        let mut outcomes = Vec::new();
        for &action in actions {
            let Action::Migrate { block, to } = action else {
                panic!("{action:?} is no migration");
            };
            let done = self.nodes.home(block) != Some(to) && self.nodes.free(to) > 0;
            if done {
                self.nodes.migrate(block, to, Slot(0));
                moved.push((block.0, to.0));
            }
            outcomes.push(ActionOutcome { action, done });
        }
        self.policy.on_outcomes(&outcomes, &self.nodes);
        self.policy.check(&self.nodes);
        moved
    }
}
