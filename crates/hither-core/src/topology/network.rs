//! A topology: its nodes, and the distances and latencies between them.

use super::error::TopologyError;
use super::link::Link;
use super::median;
use super::routes::Routes;
use super::shape::{NODES_MAX, Shape};
use crate::ids::Node;

/// Nodes and the distances between them. Nodes are numbered from 0 without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    name: String,
    nodes: usize,
    shape: Shape,
    latencies: Latencies,
    /// Hops between two nodes, by row.
    hops: Vec<u16>,
    /// Latency of a memory access between two nodes in nanoseconds, by row.
    latency_ns: Vec<u32>,
    /// For each node all nodes, the nearest first, itself the very first; ties by number.
    nearest: Vec<Node>,
    /// How many of those are nearest to each node, with itself.
    around: Vec<u16>,
    about: Vec<About>,
    routes: Routes,
}

/// Latencies of accesses without contention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// An access to what the node itself holds.
    pub local_ns: u32,
    /// What each hop adds.
    pub hop_ns: u32,
    /// An access to storage, if the topology has one.
    pub storage_ns: Option<u32>,
}

impl Default for Latencies {
    /// AMD Opteron 246 (dual-layer paper, section 1): 70 ns, 104 ns over one hop.
    fn default() -> Self {
        Latencies {
            local_ns: 70,
            hop_ns: 34,
            storage_ns: None,
        }
    }
}

/// What is known of a node besides its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// A name for people; may be empty.
    pub name: String,
    /// The weight of its accesses when the best node for a block is computed: the thread priorities
    /// of the post-office paper (section 4.2).
    pub weight: u32,
    /// CPUs; 0 for a node with memory only.
    pub cpus: u32,
    /// How much it can hold, in a unit common to all nodes; bytes where the topology is a machine.
    /// 0: as much as the others, or not known.
    pub capacity_bytes: u64,
}

impl Default for About {
    fn default() -> Self {
        About {
            name: String::new(),
            weight: 1,
            cpus: 1,
            capacity_bytes: 0,
        }
    }
}

impl Topology {
    /// `nodes` nodes, each one hop from each other.
    ///
    /// # Panics
    /// If there are none, or more than [`NODES_MAX`]. For input there is [`str::parse`].
    pub fn uniform(nodes: usize) -> Topology {
        Topology::of(nodes.to_string(), nodes, Shape::Uniform)
    }

    /// Nodes with these latencies between them, by row; the diagonal has those of local accesses.
    /// The hops between two nodes are the rank of their latency among all remote latencies, from 1:
    /// a matrix does not say which links there are, so each pair has a link of its own.
    pub fn from_matrix(name: &str, latency_ns: &[u32]) -> Result<Topology, TopologyError> {
        let nodes = latency_ns.len().isqrt();
        if nodes == 0 || nodes * nodes != latency_ns.len() {
            return Err(TopologyError::NotSquare(latency_ns.len()));
        }
        if nodes > NODES_MAX {
            return Err(TopologyError::TooMany(name.to_owned()));
        }
        let mut ranks = Vec::with_capacity(latency_ns.len());
        for (from, row) in latency_ns.chunks_exact(nodes).enumerate() {
            for (to, &latency_ns) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                if latency_ns <= row[from] {
                    return Err(TopologyError::NearerThanItself { from, to });
                }
                ranks.push(latency_ns);
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        let least_local_ns = (0..nodes).map(|node| latency_ns[node * (nodes + 1)]).min();
        let local_ns = least_local_ns.unwrap_or_default();
        let hops = |from: usize, to: usize| {
            if from == to {
                return 0;
            }
            // Up to 1024 * 1023 different latencies exceed `u16`: the largest differ by latency,
            // but not by rank.
            let rank = ranks.partition_point(|&rank| rank < latency_ns[from * nodes + to]);
            u16::try_from(rank + 1).unwrap_or(u16::MAX)
        };
        let mut topology = Topology::with_hops(name.to_owned(), nodes, Shape::Matrix, hops);
        topology.latencies = Latencies {
            local_ns,
            hop_ns: ranks
                .first()
                .map_or(0, |&nearest| nearest - local_ns.min(nearest)),
            storage_ns: None,
        };
        topology.latency_ns = latency_ns.to_vec();
        Ok(topology)
    }

    /// Nodes with these hops between them, by row. As with a matrix of latencies, each pair has a
    /// link of its own; latencies grow with the hops. A node is no hop from itself, whatever the
    /// diagonal says.
    pub fn from_hops(
        name: &str,
        hops: &[u16],
        latencies: Latencies,
    ) -> Result<Topology, TopologyError> {
        let nodes = hops.len().isqrt();
        if nodes == 0 || nodes * nodes != hops.len() {
            return Err(TopologyError::NotSquare(hops.len()));
        }
        if nodes > NODES_MAX {
            return Err(TopologyError::TooMany(name.to_owned()));
        }
        let pairs = (0..hops.len()).map(|at| (at / nodes, at % nodes));
        let mut remote = pairs.zip(hops).filter(|((from, to), _)| from != to);
        if let Some(((from, to), _)) = remote.find(|(_, hops)| **hops == 0) {
            return Err(TopologyError::NearerThanItself { from, to });
        }
        let between = |from: usize, to: usize| {
            if from == to {
                0
            } else {
                hops[from * nodes + to]
            }
        };
        let mut topology = Topology::with_hops(name.to_owned(), nodes, Shape::Matrix, between);
        topology.latencies = latencies;
        topology.latency_ns = topology.latencies_by_hops(latencies);
        Ok(topology)
    }

    pub(super) fn of(name: String, nodes: usize, shape: Shape) -> Topology {
        let hops = shape.clone();
        Topology::with_hops(name, nodes, shape, |from, to| hops.hops(from, to))
    }

    fn with_hops(
        name: String,
        nodes: usize,
        shape: Shape,
        hops: impl Fn(usize, usize) -> u16,
    ) -> Topology {
        assert!(nodes > 0, "a topology has at least one node");
        assert!(
            nodes <= NODES_MAX,
            "a topology has at most {NODES_MAX} nodes"
        );
        let hops: Vec<u16> = (0..nodes * nodes)
            .map(|at| hops(at / nodes, at % nodes))
            .collect();
        let mut nearest = Vec::with_capacity(nodes * nodes);
        let mut around = Vec::with_capacity(nodes);
        for row in hops.chunks_exact(nodes) {
            let mut order: Vec<Node> = (0..nodes).map(|node| Node(node as u16)).collect();
            order.sort_by_key(|node| row[node.index()]);
            let least = order.get(1).map_or(0, |first| row[first.index()]);
            around.push(order.partition_point(|node| row[node.index()] <= least) as u16);
            nearest.extend(order);
        }
        let topology = Topology {
            name,
            nodes,
            shape,
            latencies: Latencies::default(),
            latency_ns: Vec::new(),
            hops,
            nearest,
            around,
            about: vec![About::default(); nodes],
            routes: Routes::default(),
        };
        topology.with_latencies(Latencies::default())
    }

    /// The same topology with another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Topology {
        self.name = name.into();
        self
    }

    /// The same topology with these latencies. A matrix takes only that of storage.
    #[must_use]
    pub fn with_latencies(mut self, latencies: Latencies) -> Topology {
        if self.shape == Shape::Matrix {
            self.latencies.storage_ns = latencies.storage_ns;
            return self;
        }
        self.latency_ns = self.latencies_by_hops(latencies);
        self.latencies = latencies;
        self
    }

    fn latencies_by_hops(&self, latencies: Latencies) -> Vec<u32> {
        let latency_ns = |&hops: &u16| {
            let on_the_way_ns = latencies.hop_ns.saturating_mul(u32::from(hops));
            latencies.local_ns.saturating_add(on_the_way_ns)
        };
        self.hops.iter().map(latency_ns).collect()
    }

    /// The same topology with `change` applied to what is known of each node.
    #[must_use]
    pub fn with_nodes(mut self, mut change: impl FnMut(Node, &mut About)) -> Topology {
        for (node, about) in self.about.iter_mut().enumerate() {
            change(Node(node as u16), about);
        }
        self
    }

    /// What a user writes for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// All nodes, by number.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = Node> + ExactSizeIterator + use<> {
        (0..self.nodes as u16).map(Node)
    }

    /// Its kind: `uniform`, `mesh`, `torus`, `hypercube`, `ring`, `tree` or `matrix`.
    pub fn kind(&self) -> &'static str {
        self.shape.kind()
    }

    /// The length of each axis, slowest first; empty where the nodes are not on a grid. A hypercube
    /// is a grid.
    pub fn axes(&self) -> &[usize] {
        match &self.shape {
            Shape::Grid { axes, .. } => axes,
            _ => &[],
        }
    }

    /// The fan-out of each level of a tree or of hierarchical rings, the topmost first; empty for
    /// others.
    pub fn levels(&self) -> &[usize] {
        match &self.shape {
            Shape::Hierarchy { fan, .. } => fan,
            _ => &[],
        }
    }

    /// The latencies. For a matrix: the least local latency, and what the nearest remote one adds.
    pub fn latencies(&self) -> Latencies {
        self.latencies
    }

    /// Latency of an access to what a node itself holds (for a matrix, the least one).
    pub fn local_ns(&self) -> u32 {
        self.latencies.local_ns
    }

    /// The latency that each hop adds.
    pub fn hop_ns(&self) -> u32 {
        self.latencies.hop_ns
    }

    /// Latency of storage, if the topology has one.
    pub fn storage_ns(&self) -> Option<u32> {
        self.latencies.storage_ns
    }

    /// What is known of a node.
    pub fn about(&self, node: Node) -> &About {
        &self.about[node.index()]
    }

    /// The weight of a node's accesses when the best node for a block is computed.
    #[inline]
    pub fn weight(&self, node: Node) -> u32 {
        self.about[node.index()].weight
    }

    /// Whether nodes have different weights.
    pub fn weighted(&self) -> bool {
        self.about.iter().any(|about| about.weight != 1)
    }

    /// A node's CPUs; 0 for a node with memory only.
    pub fn cpus(&self, node: Node) -> u32 {
        self.about[node.index()].cpus
    }

    /// Divides `total` among the nodes: by their capacities where these are known, otherwise
    /// evenly. The parts add up to `total`; remainders go by largest remainder, to the lowest
    /// number among equals.
    pub fn shares(&self, total: u32) -> Vec<u32> {
        let known = self.about.iter().all(|about| about.capacity_bytes > 0);
        let parts = self.about.iter().map(|about| {
            if known {
                u128::from(about.capacity_bytes)
            } else {
                1
            }
        });
        let parts: Vec<u128> = parts.collect();
        let whole: u128 = parts.iter().sum();
        let scaled = |part: &u128| part * u128::from(total);
        let mut shares: Vec<u32> = parts
            .iter()
            .map(|part| (scaled(part) / whole) as u32)
            .collect();
        let mut order: Vec<usize> = (0..self.nodes).collect();
        order.sort_by_key(|&node| std::cmp::Reverse(scaled(&parts[node]) % whole));
        let rest = total - shares.iter().sum::<u32>();
        for &node in order.iter().take(rest as usize) {
            shares[node] += 1;
        }
        shares
    }

    /// Hops from one node to another.
    #[inline]
    pub fn hops(&self, from: Node, to: Node) -> u32 {
        self.hops[from.index() * self.nodes + to.index()].into()
    }

    /// Latency of an uncontended access from one node to the memory of another, in nanoseconds.
    #[inline]
    pub fn latency_ns(&self, from: Node, to: Node) -> u32 {
        self.latency_ns[from.index() * self.nodes + to.index()]
    }

    /// All nodes in order of distance, starting with the node itself; ties by number.
    #[inline]
    pub fn nearest(&self, node: Node) -> &[Node] {
        &self.nearest[node.index() * self.nodes..][..self.nodes]
    }

    /// The nearest other nodes, by number: on a grid those one hop away, on a tree those under the
    /// same switch.
    #[inline]
    pub fn neighbours(&self, node: Node) -> &[Node] {
        &self.nearest(node)[1..self.around[node.index()].into()]
    }

    /// The next node for a block that moves towards `to` step by step: the first one on the route.
    /// On a grid the route goes along the last axis first, then along the one before (`X`, then
    /// `Y`). Where it leads through switches, it is the nearest node that is nearer to `to`. At the
    /// end it is `to` itself.
    #[inline]
    pub fn next_hop(&self, from: Node, to: Node) -> Node {
        if self.shape != Shape::Matrix {
            return Node(self.shape.next(from.index(), to.index()) as u16);
        }
        let nearer = |node: &&Node| self.hops(**node, to) < self.hops(from, to);
        let best = self.nearest(from).iter().filter(nearer);
        let best = best.min_by_key(|&&node| (self.hops(from, node), self.hops(node, to)));
        best.copied().unwrap_or(to)
    }

    /// The node with the least sum of `weights` times latency, where each weight belongs to an
    /// accessing node; the lowest number among equals. On a grid it is computed axis by axis
    /// (post-office paper, figure 5), in time linear in weights and axes; on a matrix, over each
    /// pair of a node and a weight that is not 0.
    ///
    /// # Panics
    /// If there is not one weight a node.
    #[inline]
    pub fn median(&self, weights: &[u32]) -> Node {
        assert_eq!(weights.len(), self.nodes, "one weight a node");
        let node = match &self.shape {
            Shape::Matrix => median::of_matrix(weights, &self.latency_ns),
            shape => median::of_shape(weights, shape),
        };
        Node(node as u16)
    }

    /// How many directed links the network has; a ring counts as one.
    pub fn links(&self) -> usize {
        self.routes.get(&self.shape, self.nodes).links.len()
    }

    /// The two ends of a link.
    pub fn link(&self, link: u32) -> Link {
        self.routes.get(&self.shape, self.nodes).links[link as usize]
    }

    /// The links from one node to another, in order; none from a node to itself. There are as many
    /// as hops, except on a matrix, where each pair has one link of its own. Grids are routed in
    /// the order of their axes, the last one first, and never the long way; of two equal ways
    /// around a torus, the ascending one.
    #[inline]
    pub fn route(&self, from: Node, to: Node) -> &[u32] {
        let routes = self.routes.get(&self.shape, self.nodes);
        routes.between(from.index() * self.nodes + to.index())
    }
}
