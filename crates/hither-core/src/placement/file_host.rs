//! Hosts a file placement on a node of a live cluster, for the blocks whose directory entries that
//! node has.
//!
//! In the simulator the engine owns the copies of all blocks and carries actions out at once. In a
//! cluster, a node knows who holds its share of the blocks by what others report, and what it
//! orders takes time and may be refused. A [`FileHost`] takes in what is known and gives out what
//! the placement wants. It does no I/O, and equal inputs give equal outputs.
//!
//! An action is *under way* from the call that returns it until
//! [`end_action`](FileHost::end_action). Until then, no other action is returned for its block.
//! Copies come and go as they are reported ([`added`](FileHost::added),
//! [`removed`](FileHost::removed)), whether that was ordered or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::counters::Counters;
use super::entry::{PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Epoch, EpochKind, IncomingBlock};
use super::interface::{AccessesWanted, FilePlacement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::ids::{Block, Node, Slot};
use crate::spec::Spec;
use crate::topology::Topology;

/// What a [`FileHost`] starts from.
#[derive(Clone, Debug)]
pub struct FileHostSettings {
    /// The placement, with its parameters.
    pub policy: Spec<PlacementEntry>,
    /// Distances between the nodes.
    pub topology: Arc<Topology>,
    /// The node that the host is on, which has the directory entries of its blocks.
    pub at: Node,
    /// How many blocks each node holds, as far as that is known.
    pub capacity: Vec<u32>,
    /// Size of a block.
    pub block_bytes: u32,
}

/// See the module.
pub struct FileHost {
    placement: Box<dyn FilePlacement>,
    nodes: Nodes,
    under_way: BTreeMap<Block, UnderWay>,
    /// Accesses shown to the placement so far.
    accesses: u64,
    /// The period that the placement is asked by, and when it ends next.
    period_ns: Option<u64>,
    period_ends_ns: u64,
    no_counts: Counters,
    actions: Vec<Action>,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    action: Action,
    /// Whether the copy that moves has left its node already.
    has_left: bool,
}

impl FileHost {
    /// A host without any block. `None` where the policy is none for a cluster.
    pub fn new(settings: &FileHostSettings) -> Option<FileHost> {
        if !settings.policy.entry().runs_in_clusters() {
            return None;
        }
        let placement = settings.policy.build_files(&PlacementSettings {
            topology: Arc::clone(&settings.topology),
            capacity: &settings.capacity,
            blocks: 0,
            block_bytes: settings.block_bytes,
            totals: None,
            initial: None,
            sampled: false,
        })?;
        let topology = Arc::clone(&settings.topology);
        let mut nodes = Nodes::new(topology, settings.capacity.clone(), 0);
        nodes.set_directory(settings.at);
        Some(FileHost {
            placement,
            no_counts: Counters::new(nodes.len(), 0),
            nodes,
            under_way: BTreeMap::default(),
            accesses: 0,
            period_ns: settings.policy.period_ns(),
            period_ends_ns: 0,
            actions: Vec::new(),
        })
    }

    /// Sets the time, and ends the placement's periods that have passed.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.nodes.set_now_ns(now_ns);
        let Some(period_ns) = self.period_ns.filter(|_| now_ns >= self.period_ends_ns) else {
            return;
        };
        self.period_ends_ns = now_ns + period_ns;
        let epoch = Epoch {
            kind: EpochKind::Period,
            process: None,
            counts: &self.no_counts,
            thread_migrations: &[],
            active_threads: 0,
        };
        self.placement
            .on_epoch(&epoch, &self.nodes, &mut self.actions);
        debug_assert!(
            self.actions.is_empty(),
            "placements of files act on accesses"
        );
        self.actions.clear();
    }

    /// Which accesses are to be reported.
    pub fn accesses_wanted(&self) -> AccessesWanted {
        self.placement.accesses_wanted()
    }

    /// Whether victims are to be asked for.
    pub fn forwards(&self) -> bool {
        self.placement.forwards()
    }

    /// The copies, as far as they are known.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Makes room for blocks numbered below `blocks`. The number grows by an eighth at least each
    /// time: a home has millions of blocks, and room for others takes memory.
    pub fn grow(&mut self, blocks: u32) {
        let before = self.nodes.blocks();
        if blocks > before {
            let blocks = blocks.max(before.saturating_add(before / 8));
            self.nodes.grow(blocks);
            self.placement.grow(blocks);
        }
    }

    /// How many frames a node has, and how many of them are free.
    pub fn set_frames(&mut self, node: Node, frames: u32, free: u32) {
        self.nodes.set_frames(node, frames, free);
    }

    /// No node holds the block, and `by` reads it from storage: returns the node that is to keep
    /// it.
    pub fn place(&mut self, block: Block, by: Node) -> Node {
        let access = self.access_of(block, by);
        self.placement.place(&access, &self.nodes)
    }

    /// `by` reads a block. Returns what is to be done: nothing if nobody is known to hold the
    /// block, or something is under way for it. Which copy is the original is decided here: to
    /// promote a replica takes nothing. A block migrates to a replica as to any node, since what
    /// was reported of a replica may be old: nothing is dropped before the node says that it holds
    /// the block.
    pub fn access(&mut self, block: Block, by: Node) -> Option<Action> {
        let from = self.nodes.nearest(block, by)?;
        let access = self.access_of(block, by);
        self.placement
            .on_access(&access, from, &self.nodes, &mut self.actions);
        let action = self.actions.drain(..).next()?;
        debug_assert!(
            block_of(action) == block,
            "{action:?} on an access of {block:?}"
        );
        if self.under_way.contains_key(&block) {
            return None;
        }
        let home = self.nodes.home(block)?;
        let action = match action {
            Action::Promote { at, .. } if at != home && self.nodes.holds(block, at) => {
                self.nodes.promote(block, at);
                return None;
            }
            Action::Migrate { to, .. } if to != home => action,
            Action::Replicate { to, .. } if !self.nodes.holds(block, to) => action,
            Action::Drop { at, .. } if self.nodes.holds(block, at) => action,
            _ => return None,
        };
        self.start(action, false);
        Some(action)
    }

    /// The action that is under way for a block.
    pub fn under_way(&self, block: Block) -> Option<Action> {
        self.under_way.get(&block).map(|it| it.action)
    }

    /// What was under way for a block is done or given up.
    pub fn end_action(&mut self, block: Block, done: bool) {
        let Some(UnderWay { action, has_left }) = self.under_way.remove(&block) else {
            return;
        };
        let outcome = ActionOutcome { action, done };
        self.placement.on_outcomes(&[outcome], &self.nodes);
        if let Some(home) = self.nodes.home(block).filter(|_| has_left && !done) {
            self.removed(block, home);
        }
    }

    fn start(&mut self, action: Action, has_left: bool) {
        let under_way = UnderWay { action, has_left };
        self.under_way.insert(block_of(action), under_way);
    }

    /// A node holds a copy from now on. If a migration to it is under way, it has the original, and
    /// the copy that was the original counts no longer. Returns where that one is, to be dropped.
    pub fn added(&mut self, block: Block, at: Node) -> Option<Node> {
        let moves_here = self.under_way(block) == Some(Action::Migrate { block, to: at });
        let from = self.nodes.home(block).filter(|_| moves_here);
        if self.nodes.holds(block, at) {
            let from = from.filter(|&from| from != at)?;
            self.nodes.promote(block, at);
            self.remove(block, from);
            self.end_action(block, true);
            return Some(from);
        }
        if self.nodes.free(at) == 0 {
            let frames = self.nodes.capacity(at);
            self.nodes.set_frames(at, frames, 1);
        }
        match from {
            Some(from) => {
                let free = self.nodes.free(from);
                self.nodes.migrate(block, at, Slot(0));
                self.nodes.set_frames(from, self.nodes.capacity(from), free);
            }
            None => self.nodes.insert(block, at, Slot(0)),
        }
        if moves_here || self.under_way(block) == Some(Action::Replicate { block, to: at }) {
            self.end_action(block, true);
        }
        from
    }

    /// A node holds a copy no longer.
    pub fn removed(&mut self, block: Block, at: Node) {
        if !self.nodes.holds(block, at) {
            return;
        }
        self.remove(block, at);
        self.placement
            .on_removed(block, at, &self.nodes, &mut self.actions);
        self.actions.clear();
        match self.under_way(block) {
            Some(Action::Drop { at: dropped, .. }) if dropped == at => self.end_action(block, true),
            Some(_) if self.nodes.home(block).is_none() => self.end_action(block, false),
            _ => {}
        }
    }

    /// Removes a copy. Its frame is not taken for free: a block that another node's host knows has
    /// it by now, as likely as not. What is free, `set_frames` says.
    fn remove(&mut self, block: Block, at: Node) {
        let free = self.nodes.free(at);
        self.nodes.remove(block, at);
        self.nodes.set_frames(at, self.nodes.capacity(at), free);
    }

    /// A copy leaves `at` to make room for another block. If it is the last one, as far as is
    /// known, the placement may name a node that takes it: its migration is under way then.
    /// Otherwise it is gone.
    pub fn victim(&mut self, block: Block, at: Node, incoming: IncomingBlock) -> Option<Node> {
        let is_last = self.nodes.home(block) == Some(at) && !self.nodes.replicated(block);
        let asked = is_last && !self.under_way.contains_key(&block);
        let to = if asked {
            self.placement.forward_to(block, at, incoming, &self.nodes)
        } else {
            None
        };
        match to.filter(|&to| to != at) {
            Some(to) => self.start(Action::Migrate { block, to }, true),
            None => self.removed(block, at),
        }
        to.filter(|&to| to != at)
    }

    /// Nobody holds the block, and its number will stand for another one.
    pub fn forget(&mut self, block: Block) {
        self.end_action(block, false);
        while let Some(at) = self.nodes.home(block) {
            self.removed(block, at);
        }
        self.placement.forget(block);
    }

    fn access_of(&mut self, block: Block, by: Node) -> Access {
        self.accesses += 1;
        Access {
            node: by,
            ..Access::bare(self.accesses - 1, block)
        }
    }

    /// Walks every invariant and panics on a broken one.
    pub fn check(&self) {
        self.nodes.check();
        for (&block, under_way) in &self.under_way {
            assert_eq!(block_of(under_way.action), block);
            assert!(self.nodes.home(block).is_some(), "{under_way:?} of no copy");
        }
    }
}

/// The block that an action is about.
fn block_of(action: Action) -> Block {
    match action {
        Action::Migrate { block, .. }
        | Action::Replicate { block, .. }
        | Action::Drop { block, .. }
        | Action::Promote { block, .. } => block,
    }
}

impl std::fmt::Debug for FileHost {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("FileHost")
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::entry::RegistryEntry;

    fn host(policy: &str, nodes: usize) -> FileHost {
        let settings = FileHostSettings {
            policy: policy.parse().expect("a placement"),
            topology: Arc::new(Topology::mesh(&[1, nodes])),
            at: Node(0),
            capacity: vec![4; nodes],
            block_bytes: 4096,
        };
        let mut host = FileHost::new(&settings).expect("a placement for clusters");
        host.grow(8);
        host
    }

    #[test]
    fn a_move_is_under_way_until_the_copy_has_come() {
        let mut host = host("always-migrate", 3);
        let block = Block(2);
        assert_eq!(host.place(block, Node(1)), Node(1));
        assert_eq!(host.access(block, Node(2)), None, "nobody holds it yet");
        assert_eq!(host.added(block, Node(1)), None);
        let moved = Action::Migrate { block, to: Node(2) };
        assert_eq!(host.access(block, Node(2)), Some(moved));
        assert_eq!(host.access(block, Node(0)), None, "one at a time");
        assert_eq!(host.added(block, Node(2)), Some(Node(1)));
        assert_eq!(host.nodes().home(block), Some(Node(2)));
        host.removed(block, Node(1));
        assert!(host.access(block, Node(0)).is_some());
        host.end_action(block, false);
        assert_eq!(host.nodes().home(block), Some(Node(2)), "refused");
        host.check();
    }

    #[test]
    fn a_replica_has_to_say_that_it_is_there_before_the_original_goes() {
        let mut host = host("always-migrate", 3);
        let block = Block(2);
        host.added(block, Node(1));
        host.added(block, Node(2));
        let moved = Action::Migrate { block, to: Node(2) };
        assert_eq!(host.access(block, Node(2)), Some(moved));
        assert_eq!(host.nodes().home(block), Some(Node(1)));
        assert_eq!(host.added(block, Node(2)), Some(Node(1)));
        assert_eq!(host.nodes().home(block), Some(Node(2)));
        assert!(!host.nodes().replicated(block));
        host.check();
    }

    #[test]
    fn a_node_that_holds_more_than_is_known_gets_frames() {
        let mut host = host("first-and-forever", 2);
        host.set_frames(Node(1), 2, 0);
        for block in 0..6 {
            host.added(Block(block), Node(1));
        }
        assert_eq!(host.nodes().free(Node(1)), 0);
        host.set_frames(Node(1), 8, 1);
        assert_eq!(
            (host.nodes().used(Node(1)), host.nodes().free(Node(1))),
            (7, 1)
        );
        host.check();
    }

    #[test]
    fn what_is_free_is_what_was_said() {
        let mut host = host("always-migrate", 3);
        for node in [Node(1), Node(2)] {
            host.set_frames(node, 4, 0);
        }
        let free = |host: &FileHost| [Node(1), Node(2)].map(|node| host.nodes().free(node));
        host.added(Block(0), Node(1));
        host.added(Block(1), Node(1));
        host.removed(Block(0), Node(1));
        assert_eq!(free(&host), [0, 0], "another block has its frame");
        assert!(host.access(Block(1), Node(2)).is_some());
        host.added(Block(1), Node(2));
        assert_eq!(free(&host), [0, 0]);
        host.set_frames(Node(1), 4, 2);
        host.added(Block(0), Node(1));
        assert_eq!(free(&host), [1, 0]);
        host.check();
    }

    #[test]
    fn only_a_last_copy_is_forwarded() {
        let mut host = host("one-step", 3);
        let (block, from) = (Block(0), Some(Node(2)));
        let incoming = IncomingBlock {
            from,
            migrates: true,
        };
        host.added(block, Node(1));
        assert_eq!(host.victim(block, Node(1), incoming), from);
        host.end_action(block, false);
        assert_eq!(host.nodes().home(block), None, "it had left");
        host.added(block, Node(1));
        assert_eq!(
            host.victim(block, Node(1), IncomingBlock::FROM_STORAGE),
            None
        );
        assert_eq!(host.nodes().home(block), None);
        host.added(block, Node(1));
        host.added(block, Node(0));
        assert_eq!(host.victim(block, Node(1), incoming), None);
        assert_eq!(host.nodes().home(block), Some(Node(0)));
    }

    #[test]
    fn placements_of_memory_and_of_layers_run_in_no_cluster() {
        for entry in PlacementEntry::all() {
            let spec = Spec::named(entry.name).expect("its name");
            let settings = FileHostSettings {
                policy: spec,
                topology: Arc::new(Topology::uniform(2)),
                at: Node(1),
                capacity: vec![1; 2],
                block_bytes: 1,
            };
            let runs = FileHost::new(&settings).is_some();
            assert_eq!(runs, entry.runs_in_clusters(), "{}", entry.name);
        }
    }

    /// Copies that come, go and are refused in any order: no placement gives out two actions for a
    /// block at once, or one that makes no sense, and all invariants hold.
    #[test]
    fn reports_in_any_order() {
        let all = PlacementEntry::all().iter();
        for entry in all.filter(|entry| entry.runs_in_clusters()) {
            let mut host = host(entry.name, 4);
            let mut random = Random::new(7);
            for step in 0..20_000_u64 {
                host.set_now_ns(step * 1_000_000);
                let block = Block(random.below(8) as u32);
                let node = Node(random.below(4) as u16);
                match random.below(8) {
                    0 => drop(host.added(block, node)),
                    1 => host.removed(block, node),
                    2 => host.end_action(block, false),
                    3 if host.nodes().home(block).is_none() => {
                        host.added(block, host.nodes().all().next().expect("a node"));
                    }
                    3 => host.set_frames(node, 4, random.below(3) as u32),
                    4 if random.below(50) == 0 => host.forget(block),
                    5 => {
                        let from = (random.below(2) == 0).then_some(node);
                        let migrates = from.is_some();
                        let at = Node(random.below(4) as u16);
                        host.victim(block, at, IncomingBlock { from, migrates });
                    }
                    _ => {
                        let before = host.under_way(block);
                        if let Some(action) = host.access(block, node) {
                            assert_eq!(before, None);
                            assert_eq!(host.under_way(block), Some(action));
                        }
                    }
                }
                host.check();
            }
            assert!(host.accesses > 1000, "{}", entry.name);
        }
    }
}
