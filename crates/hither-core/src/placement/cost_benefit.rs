//! Cost and benefit: a block moves, gets a replica or survives its eviction where that saves more
//! time than it costs. All times are in hops: what a block takes from one node to the next.
//!
//! Source: our own. The weighted median is that of post-office placement. Forwarding has its
//! ancestors in N-chance forwarding (Dahlin, Wang, Anderson and Patterson, "Cooperative caching",
//! OSDI 1994, section 2.4) and in the age-based GMS (Feeley et al., "Implementing global memory
//! management in a workstation cluster", SOSP 1995).
//!
//! - *Window.* A block counts its last 4 to 8 accesses by node (halved at 8 of them, so that it
//!   follows its readers), for the 6 nodes that read it most. A node that finds no free counter
//!   takes one from the least of them.
//! - *Move.* On a remote access, the candidates are the nodes that read the block. The cost of one
//!   is the distance to all counted accesses: two hops for the lookup of a remote one, and its way.
//!   A node that serves more than its share is that much further away from everybody (`load`).
//! - *Confidence.* It moves if the gain, less the way of the move, is above `confidence` standard
//!   deviations of a gain that is only chance. So a block of one reader moves after three accesses,
//!   and one whose readers contradict each other stays. With `trigger`, it moves without this test
//!   after so many accesses, as post-office does.
//! - *Age of victims.* Each node knows for how long its last victims had been idle: the time that
//!   a block which comes now may stay. Nodes tell each other every 0.1 s.
//! - *Replica.* A reader gets one if its reads in the window save at least four times what a frame
//!   there earns in this time: one miss (`miss_hops`) in the age of its victims. Four, because
//!   a few accesses come in bursts. Writes drop replicas; what that cost is deducted.
//! - *Victims.* A last copy has another chance if the block is known to return: it has been read
//!   again after a time as long as half the age of victims, or after its eviction, and that time is
//!   not over. It goes to the neighbour with the oldest victims (or with room) if it may stay there
//!   for half again as long as it has to wait. Other copies are only dropped. So last copies
//!   outlive replicas.
//! - *Exchange.* A block that moves leaves a frame. The victim that makes room for it takes this
//!   frame, so a move pushes nothing out of the caches.
//! - *What comes of it.* A victim that is forwarded or exchanged takes the place of one that is
//!   about to be evicted. It pays if it is read there. Over the last 128 of them, at least as many
//!   have to pay as there are hits, per victim, on blocks that are in the older half of their time:
//!   what is pushed out is older still. If fewer do, only one in 16 has the other chance, to see
//!   whether that changes. So nothing is forwarded in vain for long where caches are small and
//!   sweeps long.
//!
//! Turned down, since they did not pay in simulation: a price of room in the cost of a move, nodes
//! beyond the neighbours for victims, victims that were never seen to return, counters for more
//! nodes. What each part pays is in docs/results/placement.md.
//!
//! A block takes 32 bytes: counters, times and flags. These stay after its eviction, because they
//! tell whether it returns.

use super::entry::{Build, EpochNeeds, PlacementEntry, PlacementSettings, ReplicaLayer};
use super::events::{Action, Epoch, EpochKind, IncomingBlock};
use super::interface::{AccessesWanted, FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs, Param, ParamKind, Values};
use crate::ids::{Block, Node};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "cost-benefit",
    summary: "moves, copies and keeps a block where that saves more time than it costs",
    source: "our own, after post-office, N-chance forwarding and GMS",
    params: PARAMS,
    needs: Needs::NOTHING,
    epochs: EpochNeeds {
        counts: false,
        period_ns: |_| Some(EXCHANGE_NS),
    },
    live: &[],
    compared: Compared::ByName,
    build: Build::Files(ReplicaLayer::Shared, &|settings, values| {
        Box::new(CostBenefit::new(settings, values))
    }),
};

const PARAMS: &[Param] = &[
    Param::real(
        "confidence",
        "standard deviations of chance that the gain of a move has to exceed; 10: never moves",
        1.5,
        0.0..=10.0,
    ),
    Param::count(
        "trigger",
        "accesses after which a block moves without that test; 0: with it",
        0,
        0..=255,
    ),
    switch(
        "load",
        "whether nodes that serve more than their share are avoided",
    ),
    switch("replicas", "whether there are replicas"),
    switch(
        "forward",
        "whether victims that are known to return go to a neighbour",
    ),
    switch(
        "exchange",
        "whether a victim takes the frame of the block that pushes it out",
    ),
    Param::count(
        "trial",
        "while the other chance of victims does not pay, one in so many has it; 1: all",
        16,
        1..=1_000_000,
    ),
    Param::count(
        "miss_hops",
        "what a miss costs; the default is table 1 of post-office: 8.2 ms at 0.1 ms a hop",
        82,
        1..=1_000_000,
    ),
];

const fn switch(name: &'static str, doc: &'static str) -> Param {
    Param {
        name,
        doc,
        kind: ParamKind::Name {
            default: "yes",
            names: &["yes", "no"],
        },
    }
}

/// How often nodes tell each other the age of their victims and their load.
const EXCHANGE_NS: u64 = 100_000_000;
/// Accesses to a block at which its counters are halved.
const WINDOW: u8 = 8;
/// Accesses from which a window tells a rate.
const RATE_ACCESSES_MIN: u8 = 4;
/// Nodes that a block counts.
const READERS: usize = 6;
/// The lookup of a remote access, in hops.
const LOOKUP_HOPS: u32 = 2;
/// How many times its price a replica has to earn.
const REPLICA_MARGIN: f64 = 4.0;
/// How many times as long as it waits a victim may stay.
const STAY_MARGIN: f64 = 1.5;
/// The part of a new value in a running mean: about the last 16 count.
const MEAN_SHARE: f64 = 1.0 / 16.0;
/// Tries that a [`Paid`] share remembers, and those that it starts from. The results are the same
/// from 32 to 512; few, since a home in a cluster sees only the victims of its own blocks.
const TRIES: f64 = 128.0;
const TRIES_ASSUMED: f64 = 16.0;
/// The unit of `returns_after`.
const RETURN_MS: u32 = 64;

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The last access that the original served, in ms. 0: none.
    last_ms: u32,
    /// The time that the counted accesses span.
    span_ms: u32,
    /// How long it was idle before it last returned, in units of [`RETURN_MS`]. 0: never seen.
    returns_after: u16,
    /// The nodes that read it, and how often. A count of 0 is free.
    readers: [u16; READERS],
    counts: [u8; READERS],
    /// Accesses and writes in the window.
    total: u8,
    writes: u8,
    /// The other chance that it had as a victim since its last access.
    chance: Chance,
}

/// Another chance for a victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Chance {
    #[default]
    None,
    Forwarded,
    Exchanged,
}

/// The share of tries that paid: of the last ones, about [`TRIES`].
#[derive(Clone, Copy, Debug)]
struct Paid {
    share: f64,
    tries: f64,
}

impl Paid {
    /// The share before any try, as if [`TRIES_ASSUMED`] had shown it.
    const fn starting_at(share: f64) -> Paid {
        let tries = TRIES_ASSUMED;
        Paid { share, tries }
    }

    fn tried(&mut self) {
        self.tries = (self.tries + 1.0).min(TRIES);
        self.share -= self.share / self.tries;
    }

    fn pays(&mut self) {
        self.share += 1.0 / self.tries;
    }
}

impl Entry {
    /// Notes an access that the original served, before it is counted. Returns how long the block
    /// was idle, if it was accessed before.
    fn touch(&mut self, now_ms: u32, window: u8) -> Option<u32> {
        if self.total >= window {
            self.halve();
        }
        let idle_ms = now_ms.wrapping_sub(self.last_ms);
        let before = self.last_ms != 0;
        if self.total == 0 || !before {
            self.span_ms = 0;
        } else {
            self.span_ms = self.span_ms.saturating_add(idle_ms);
        }
        (self.last_ms, self.chance) = (now_ms, Chance::None);
        before.then_some(idle_ms)
    }

    /// Counts an access of `by`. Returns the place of its counter, if it has one.
    fn count(&mut self, by: Node) -> Option<usize> {
        self.total = self.total.saturating_add(1);
        let used = self.counts.iter().zip(&self.readers);
        let known = used
            .clone()
            .position(|(&count, &reader)| count > 0 && reader == by.0);
        if let Some(at) = known {
            self.counts[at] = self.counts[at].saturating_add(1);
            return Some(at);
        }
        let least = (0..READERS).min_by_key(|&at| self.counts[at]).unwrap_or(0);
        let count = &mut self.counts[least];
        if *count > 1 {
            *count -= 1;
            return None;
        }
        (*count, self.readers[least]) = (1, by.0);
        Some(least)
    }

    /// The nodes that read it, with their counts.
    fn readers(&self) -> impl Iterator<Item = (Node, u32)> + Clone + '_ {
        let used = self.readers.iter().zip(&self.counts);
        used.filter(|(_, count)| **count > 0)
            .map(|(&reader, &count)| (Node(reader), u32::from(count)))
    }

    fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        (self.total, self.writes) = (self.total / 2, self.writes / 2);
        self.span_ms /= 2;
    }

    fn forget(&mut self) {
        (self.counts, self.total, self.writes) = ([0; READERS], 0, 0);
    }

    /// How long it will still be idle, if it is known to return.
    fn waits_ms(&self, now_ms: u32) -> Option<u32> {
        let returns_ms = u32::from(self.returns_after) * RETURN_MS;
        let left = returns_ms.checked_sub(now_ms.wrapping_sub(self.last_ms))?;
        (left > 0).then_some(left)
    }
}

/// What is known of a node. The others know the state of the last exchange.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// How long its victims were idle, on average. Infinite: it had none.
    victim_age_ms: f64,
    told_age_ms: f64,
    /// Accesses served since the last exchange.
    served: u32,
    /// What it serves beyond its share, as a part of the share.
    overload: f64,
    load: f64,
}

struct CostBenefit {
    confidence: f64,
    trigger: u8,
    window: u8,
    load: bool,
    replicas: bool,
    forward: bool,
    exchange: bool,
    trial: u32,
    miss_hops: f64,
    entries: Vec<Entry>,
    peers: Vec<Peer>,
    weights: Vec<u32>,
    /// Victims that were read where they were forwarded to; those that were where they were
    /// exchanged to; hits, per victim, on blocks in the older half of their time.
    forwarded: Paid,
    exchanged: Paid,
    old_hits: Paid,
    /// Victims so far that could have had another chance.
    victims: u32,
    now_ms: u32,
}

impl CostBenefit {
    fn new(settings: &PlacementSettings<'_>, values: &Values) -> CostBenefit {
        let topology = &settings.topology;
        let yes = |index| values.name(index) == "yes";
        let peer = Peer {
            victim_age_ms: f64::INFINITY,
            told_age_ms: f64::INFINITY,
            served: 0,
            overload: 0.0,
            load: 1.0,
        };
        CostBenefit {
            confidence: values.real(0),
            trigger: values.count(1) as u8,
            window: WINDOW.max(values.count(1) as u8),
            load: yes(2),
            replicas: yes(3),
            forward: yes(4),
            exchange: yes(5),
            trial: values.count(6) as u32,
            miss_hops: values.count(7) as f64,
            entries: vec![Entry::default(); settings.blocks as usize],
            peers: vec![peer; topology.nodes()],
            weights: topology.all().map(|node| topology.weight(node)).collect(),
            forwarded: Paid::starting_at(1.0),
            exchanged: Paid::starting_at(1.0),
            old_hits: Paid::starting_at(0.0),
            victims: 0,
            now_ms: 1,
        }
    }

    fn set_now(&mut self, nodes: &Nodes) {
        self.now_ms = (nodes.now_ns() / 1_000_000) as u32 + 1;
    }

    /// What a frame of the node earns in this time, in hops. A node without victims will keep a
    /// block for as long as there were none.
    fn price(&self, node: Node, time_ms: u32) -> f64 {
        let age_ms = self.peers[node.index()].told_age_ms;
        f64::from(time_ms) * self.miss_hops / age_ms.min(f64::from(self.now_ms))
    }

    /// Whether a replica at `by`, which has just read the block from `from`, is worth its frame.
    fn replica_pays(&self, entry: &Entry, reads: u8, by: Node, from: Node, nodes: &Nodes) -> bool {
        let hops = f64::from(distance(by, from, nodes));
        // A dropped replica costs the next read, and the write that waits.
        let saved = f64::from(reads) * hops - f64::from(entry.writes) * 2.0 * hops;
        entry.total >= RATE_ACCESSES_MIN
            && saved > REPLICA_MARGIN * self.price(by, entry.span_ms.saturating_add(1))
    }

    /// Where the block should move to, if the gain is no chance.
    fn better(&self, entry: &Entry, home: Node, nodes: &Nodes) -> Option<Node> {
        let weighed = entry.readers().map(|(reader, count)| {
            let weight = self.weights[reader.index()] * count;
            (reader, f64::from(weight))
        });
        let seen: f64 = weighed.clone().map(|(_, weight)| weight).sum();
        let cost = |node: Node| {
            let ways = weighed
                .clone()
                .map(|(reader, weight)| weight * f64::from(distance(reader, node, nodes)));
            ways.sum::<f64>() + seen * self.peers[node.index()].overload
        };
        let candidates = entry.readers().map(|(node, _)| (node, cost(node)));
        let (best, least) = candidates
            .min_by(|(node, one), (other, than)| one.total_cmp(than).then(node.cmp(other)))?;
        let gain = cost(home) - least - f64::from(nodes.topology().hops(home, best));
        let differences = weighed.map(|(reader, weight)| {
            let (here, there) = (distance(reader, home, nodes), distance(reader, best, nodes));
            weight * f64::from(here.abs_diff(there)).powi(2)
        });
        let variance: f64 = match self.trigger {
            0 => differences.sum::<f64>() * self.confidence.powi(2),
            _ => 0.0,
        };
        (best != home && gain > 0.0 && gain * gain > variance).then_some(best)
    }

    /// The neighbour that keeps a victim of `at` for longest, if it will be read there.
    fn keeper(&self, victim: &Entry, at: Node, nodes: &Nodes) -> Option<Node> {
        if !self.forward {
            return None;
        }
        let stays_ms = STAY_MARGIN * f64::from(victim.waits_ms(self.now_ms)?);
        let stay_ms = |node: Node| match nodes.free(node) {
            0 => self.peers[node.index()].told_age_ms,
            _ => f64::INFINITY,
        };
        let neighbours = nodes.topology().neighbours(at).iter();
        let oldest = neighbours
            .map(|&node| (node, stay_ms(node)))
            .filter(|(_, stay_ms)| *stay_ms > stays_ms)
            .max_by(|(_, one), (_, other)| one.total_cmp(other));
        Some(oldest?.0)
    }

    fn served(&mut self, at: Node) {
        self.peers[at.index()].served += 1;
    }
}

/// The cost of an access from one node to a block at another.
fn distance(from: Node, to: Node, nodes: &Nodes) -> u32 {
    if from == to {
        0
    } else {
        LOOKUP_HOPS + nodes.topology().hops(from, to)
    }
}

impl Placement for CostBenefit {
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.set_now(nodes);
        self.served(access.node);
        let entry = &mut self.entries[access.block.index()];
        if let Some(idle_ms) = entry.touch(self.now_ms, self.window) {
            entry.returns_after = in_units(idle_ms);
        }
        entry.count(access.node);
        access.node
    }

    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.set_now(nodes);
        self.served(from);
        let (block, by) = (access.block, access.node);
        if nodes.home(block) != Some(from) {
            return;
        }
        let age_ms = self.peers[from.index()].victim_age_ms;
        let entry = &mut self.entries[block.index()];
        let chance = entry.chance;
        let idle_ms = entry.touch(self.now_ms, self.window);
        let idle_ms = idle_ms.filter(|&idle_ms| 2.0 * f64::from(idle_ms) > age_ms);
        if let Some(idle_ms) = idle_ms {
            entry.returns_after = in_units(idle_ms);
        }
        match chance {
            Chance::Forwarded => self.forwarded.pays(),
            Chance::Exchanged => self.exchanged.pays(),
            Chance::None if idle_ms.is_some_and(|idle_ms| f64::from(idle_ms) <= age_ms) => {
                self.old_hits.pays();
            }
            Chance::None => {}
        }
        let counter = entry.count(by);
        let entry = &self.entries[block.index()];
        if by != from {
            if let Some(at) = counter.filter(|_| self.replicas)
                && self.replica_pays(entry, entry.counts[at], by, from, nodes)
            {
                // From now on its reads are no reason to move the original.
                self.entries[block.index()].counts[at] = 0;
                out.push(Action::Replicate { block, to: by });
                return;
            }
            if entry.total >= self.trigger
                && let Some(to) = self.better(entry, from, nodes)
            {
                self.entries[block.index()].forget();
                out.push(Action::Migrate { block, to });
            }
        }
    }

    fn on_write(&mut self, access: &Access, nodes: &Nodes, out: &mut Vec<Action>) {
        let writes = &mut self.entries[access.block.index()].writes;
        *writes = writes.saturating_add(1);
        if nodes.replicated(access.block) {
            out.extend(nodes.copies_but_nearest(access.block, access.node));
        }
    }

    fn on_epoch(&mut self, epoch: &Epoch<'_>, _: &Nodes, _: &mut Vec<Action>) {
        if epoch.kind != EpochKind::Period {
            return;
        }
        let all: u32 = self.peers.iter().map(|peer| peer.served).sum();
        let share = f64::from(all) / self.peers.len() as f64;
        for peer in &mut self.peers {
            let load = if all == 0 {
                1.0
            } else {
                f64::from(peer.served) / share
            };
            peer.load += (load - peer.load) * MEAN_SHARE;
            if self.load {
                peer.overload = (peer.load - 1.0).max(0.0);
            }
            (peer.told_age_ms, peer.served) = (peer.victim_age_ms, 0);
        }
    }

    fn forget(&mut self, block: Block) {
        self.entries[block.index()] = Entry::default();
    }

    fn grow(&mut self, blocks: u32) {
        let blocks = self.entries.len().max(blocks as usize);
        self.entries.resize(blocks, Entry::default());
    }

    fn check(&self, _: &Nodes) {
        for entry in &self.entries {
            let counted: u32 = entry.readers().map(|(_, count)| count).sum();
            assert!(counted <= u32::from(entry.total), "{entry:?}");
            assert!(entry.total <= self.window, "{entry:?}");
            let mut nodes: Vec<Node> = entry.readers().map(|(node, _)| node).collect();
            nodes.sort_unstable();
            assert!(nodes.is_sorted_by(|one, other| one < other), "{entry:?}");
        }
    }
}

impl FilePlacement for CostBenefit {
    fn forward_to(
        &mut self,
        evicted: Block,
        at: Node,
        incoming: IncomingBlock,
        nodes: &Nodes,
    ) -> Option<Node> {
        self.set_now(nodes);
        let entry = self.entries[evicted.index()];
        if entry.chance == Chance::None {
            let age = &mut self.peers[at.index()].victim_age_ms;
            let idle_ms = f64::from(self.now_ms.wrapping_sub(entry.last_ms));
            *age = if age.is_finite() {
                *age + (idle_ms - *age) * MEAN_SHARE
            } else {
                idle_ms
            };
        }
        self.old_hits.tried();
        let freed = incoming.from.filter(|_| self.exchange && incoming.migrates);
        let (to, chance) = match freed {
            Some(freed) => (freed, Chance::Exchanged),
            None => (self.keeper(&entry, at, nodes)?, Chance::Forwarded),
        };
        let paid = match chance {
            Chance::Exchanged => &mut self.exchanged,
            _ => &mut self.forwarded,
        };
        self.victims = self.victims.wrapping_add(1);
        if paid.share < self.old_hits.share && !self.victims.is_multiple_of(self.trial) {
            return None;
        }
        paid.tried();
        self.entries[evicted.index()].chance = chance;
        Some(to)
    }

    fn forwards(&self) -> bool {
        self.forward || self.exchange
    }

    fn accesses_wanted(&self) -> AccessesWanted {
        AccessesWanted::All
    }

    #[inline]
    fn prefetch(&self, accesses: &[Access]) {
        let entries = accesses
            .iter()
            .map(|access| &self.entries[access.block.index()]);
        std::hint::black_box(entries.fold(0, |sum, entry| sum ^ entry.total));
    }
}

/// A time in units of [`RETURN_MS`]. What is too long to write down counts as never.
fn in_units(time_ms: u32) -> u16 {
    u16::try_from(time_ms / RETURN_MS).unwrap_or(0)
}

#[cfg(test)]
mod tests;
