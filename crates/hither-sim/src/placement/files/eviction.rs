//! Eviction: which copy leaves a node to make room for another one, and where it goes.

use hither_core::placement::{IncomingBlock, ReplicaLayer};
use hither_core::{Access, Block, Node, ReplacementPolicy, Slot};

use super::engine::{EMPTY_SLOT, FileEngine};
use crate::placement::Move;

/// A victim on its way to another node.
pub(super) struct Forwarded {
    block: Block,
    from: Node,
    to: Node,
}

impl FileEngine {
    /// Makes room at `at` for `block`, which comes as `incoming` says. `None` if that is
    /// impossible. Victims that another node takes must be [forwarded](FileEngine::forward) after
    /// the block is inserted.
    pub(super) fn make_room(
        &mut self,
        at: Node,
        block: Block,
        incoming: IncomingBlock,
        access: &Access,
        at_ns: u64,
    ) -> Option<Option<Forwarded>> {
        if self.nodes.free(at) > 0 {
            return Some(None);
        }
        if let Some(replica) = self.placement.replica_victim(at, block, &self.nodes) {
            assert_ne!(self.nodes.home(replica), Some(at), "not a replica");
            self.timeline.totals.evictions += 1;
            self.leave(replica, at, at_ns);
            return Some(None);
        }
        let node_cache = &mut self.node_caches[at.index()];
        if node_cache.ranked == 0 {
            return None;
        }
        let slot = if self.remembered.is_empty() {
            node_cache.replacement.victim(access)
        } else {
            let access = self.known(block, access);
            let node_cache = &mut self.node_caches[at.index()];
            node_cache.replacement.victim(&access)
        };
        let node_cache = &mut self.node_caches[at.index()];
        node_cache.promised = true;
        let evicted = Block(node_cache.block_of[slot.index()]);
        self.evicted_in_cascade[at.index()] = self.cascade;
        let asked = self.nodes.home(evicted) == Some(at)
            && (self.layer == ReplicaLayer::Separate || !self.nodes.replicated(evicted));
        let to = if asked {
            self.placement
                .forward_to(evicted, at, incoming, &self.nodes)
        } else {
            None
        };
        match to.filter(|&to| to != at && self.evicted_in_cascade[to.index()] != self.cascade) {
            Some(to) if self.nodes.holds(evicted, to) => {
                // The replacement policy has already forgotten the original: it counts as a replica
                // from here on.
                let node_cache = &mut self.node_caches[at.index()];
                node_cache.ranked -= 1;
                self.nodes.promote(evicted, to);
                let there = self.nodes.slot(evicted, to).expect("it holds the block");
                let known = self.known(evicted, access);
                self.list(to, there, &known);
                self.detach(evicted, at, false);
                self.timeline.totals.evictions += 1;
                self.placement
                    .on_removed(evicted, at, &self.nodes, &mut self.actions);
                Some(None)
            }
            Some(to) => {
                self.drop_replicas(evicted, at_ns);
                self.detach(evicted, at, true);
                Some(Some(Forwarded {
                    block: evicted,
                    from: at,
                    to,
                }))
            }
            None => {
                self.timeline.totals.evictions += 1;
                self.drop_replicas_of_original(evicted, at, at_ns);
                self.detach(evicted, at, true);
                self.left(evicted, at, at_ns);
                Some(None)
            }
        }
    }

    /// Forwards victims to the nodes that the placement names. `freed` is the node that an incoming
    /// block left: a victim that goes there swaps places with it and stays modified. Any other
    /// victim is written back (POP, figure 4, lines 23 to 25).
    pub(super) fn forward(
        &mut self,
        forwarded: Option<Forwarded>,
        freed: Option<Node>,
        access: &Access,
        at_ns: u64,
    ) {
        let mut next = forwarded;
        while let Some(Forwarded { block, from, to }) = next.take() {
            if freed != Some(to) && self.dirty[block.index()] {
                self.write_back(block, from, at_ns);
            }
            let incoming = IncomingBlock {
                from: Some(from),
                migrates: false,
            };
            let Some(pushed) = self.make_room(to, block, incoming, access, at_ns) else {
                self.timeline.totals.evictions += 1;
                self.left(block, from, at_ns);
                return;
            };
            self.add(block, to, access);
            self.background(from, to, at_ns);
            self.timeline.totals.forwarded += 1;
            next = pushed;
        }
    }

    /// Removes a copy for good.
    pub(super) fn leave(&mut self, block: Block, at: Node, at_ns: u64) {
        self.drop_replicas_of_original(block, at, at_ns);
        self.detach(block, at, false);
        self.left(block, at, at_ns);
    }

    pub(super) fn drop_replicas_of_original(&mut self, block: Block, at: Node, at_ns: u64) {
        if self.nodes.home(block) == Some(at) {
            self.drop_replicas(block, at_ns);
        }
    }

    /// A layer of replicas leaves together with its original.
    pub(super) fn drop_replicas(&mut self, block: Block, at_ns: u64) {
        if self.layer == ReplicaLayer::Shared {
            return;
        }
        loop {
            let replica = self.nodes.copies(block).nth(1);
            let Some((at, _)) = replica else {
                return;
            };
            self.detach(block, at, false);
            self.left(block, at, at_ns);
        }
    }

    /// Finishes the removal of a copy: modified data are written to storage before the last copy
    /// goes.
    pub(super) fn left(&mut self, block: Block, at: Node, at_ns: u64) {
        if self.nodes.home(block).is_none() && self.dirty[block.index()] {
            self.write_back(block, at, at_ns);
        }
        self.placement
            .on_removed(block, at, &self.nodes, &mut self.actions);
    }

    /// Removes a copy from a node. `forgotten`: the replacement policy named it as its victim.
    pub(super) fn detach(&mut self, block: Block, at: Node, forgotten: bool) {
        let ranked = forgotten || self.ranks(block, at);
        let slot = self.nodes.remove(block, at);
        if ranked && !forgotten {
            self.node_caches[at.index()].replacement.removed(slot);
        }
        self.put_away(at, slot, ranked);
    }

    /// Frees a slot.
    pub(super) fn put_away(&mut self, at: Node, slot: Slot, ranked: bool) {
        let node_cache = &mut self.node_caches[at.index()];
        node_cache.block_of[slot.index()] = EMPTY_SLOT;
        node_cache.free.push(slot.0);
        if ranked {
            node_cache.ranked -= 1;
        } else {
            self.resized(at);
        }
    }

    /// Inserts a copy on a node that has room.
    pub(super) fn add(&mut self, block: Block, at: Node, access: &Access) {
        let slot = self.node_caches[at.index()].take(block);
        self.nodes.insert(block, at, slot);
        if self.ranks(block, at) {
            let access = self.known(block, access);
            self.list(at, slot, &access);
        } else {
            if std::mem::take(&mut self.node_caches[at.index()].promised) {
                let access = self.known(block, access);
                let node_cache = &mut self.node_caches[at.index()];
                node_cache.replacement.inserted(slot, &access);
                node_cache.replacement.removed(slot);
            }
            self.resized(at);
        }
    }

    /// Lets the replacement policy rank a copy from now on.
    pub(super) fn list(&mut self, at: Node, slot: Slot, access: &Access) {
        self.ranked(at).inserted(slot, access);
    }

    /// Counts one more block that the policy of a node ranks. Returns the policy, to be told.
    pub(super) fn ranked(&mut self, at: Node) -> &mut dyn ReplacementPolicy {
        let node_cache = &mut self.node_caches[at.index()];
        node_cache.ranked += 1;
        node_cache.promised = false;
        &mut *node_cache.replacement
    }

    /// The capacity of the originals is what the layer of replicas leaves.
    pub(super) fn resized(&mut self, at: Node) {
        let node_cache = &mut self.node_caches[at.index()];
        let replicas = self.nodes.used(at).saturating_sub(node_cache.ranked);
        let originals = self.nodes.capacity(at).saturating_sub(replicas);
        // A cache without capacity has no policy.
        node_cache
            .replacement
            .resized(originals.clamp(1, self.nodes.blocks()));
    }

    #[inline]
    pub(super) fn ranks(&self, block: Block, at: Node) -> bool {
        self.layer == ReplicaLayer::Shared || self.nodes.home(block) == Some(at)
    }

    /// The access by which the replacement policy learns of a block that arrives without an access.
    pub(super) fn known(&self, block: Block, access: &Access) -> Access {
        match self.remembered.get(block.index()) {
            Some(&remembered) => Access {
                tick: access.tick,
                ..remembered
            },
            None => Access { block, ..*access },
        }
    }

    /// Sends a block in the background.
    pub(super) fn background(&mut self, from: Node, to: Node, at_ns: u64) {
        self.timeline.totals.bytes_moved += self.block_bytes;
        self.timeline.totals.overhead_ns +=
            self.network.send(&self.topology, from, to, at_ns) - at_ns;
    }

    pub(super) fn write_back(&mut self, block: Block, from: Node, at_ns: u64) {
        self.dirty[block.index()] = false;
        self.timeline.totals.write_backs += 1;
        let disk_at = self.disks.node(block);
        let arrived_ns = self.network.send(&self.topology, from, disk_at, at_ns);
        self.disks.transfer(block, arrived_ns);
    }

    pub(super) fn note(
        &mut self,
        access: &Access,
        block: Block,
        from: Node,
        to: Node,
        replica: bool,
    ) {
        self.timeline.moved(Move {
            reference: access.tick,
            block: block.0,
            from: from.0,
            to: to.0,
            replica,
        });
    }
}
