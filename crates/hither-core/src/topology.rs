//! Nodes and the distances between them: what "near" means to a placement.
//!
//! A topology is made once and shared (`Arc<Topology>`): all distances are worked out when it is made, so that a policy
//! or an engine looks them up in one load.

use crate::ids::Node;

/// Nodes and the distances between them. Nodes are numbered from 0 without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    name: String,
    nodes: usize,
    /// Length of each axis, slowest first; empty where the nodes lie on no grid.
    axes: Vec<usize>,
    /// Hops between two nodes, by row.
    hops: Vec<u16>,
    /// Latency of a memory access between two nodes in nanoseconds, by row.
    latency_ns: Vec<u32>,
    /// For each node all nodes, the nearest first, itself the very first; ties by number.
    nearest: Vec<Node>,
}

/// Latencies where nothing else is said: AMD Opteron (dual-layer paper, section 1): 70 ns, 104 ns over one hop.
const LOCAL_NS: u32 = 70;
const HOP_NS: u32 = 34;

impl Topology {
    /// `nodes` nodes, each one hop from each other.
    ///
    /// # Panics
    /// If there are none.
    pub fn uniform(nodes: usize) -> Topology {
        Topology::from_hops(nodes.to_string(), nodes, Vec::new(), |a, b| {
            u16::from(a != b)
        })
    }

    /// A mesh with axes of these lengths, slowest first; on 5x5, node 7 is at row 1, column 2.
    ///
    /// # Panics
    /// If it has no nodes.
    pub fn mesh(axes: &[usize]) -> Topology {
        let name = axes.iter().map(usize::to_string).collect::<Vec<_>>();
        let nodes = axes.iter().product();
        Topology::from_hops(
            format!("mesh:{}", name.join("x")),
            nodes,
            axes.to_vec(),
            |mut a, mut b| {
                let mut hops = 0;
                for axis in axes.iter().rev() {
                    hops += (a % axis).abs_diff(b % axis) as u16;
                    (a, b) = (a / axis, b / axis);
                }
                hops
            },
        )
    }

    fn from_hops(
        name: String,
        nodes: usize,
        axes: Vec<usize>,
        hops: impl Fn(usize, usize) -> u16,
    ) -> Topology {
        assert!(nodes > 0, "a topology has at least one node");
        let hops: Vec<u16> = (0..nodes * nodes)
            .map(|at| hops(at / nodes, at % nodes))
            .collect();
        let latency_ns = hops
            .iter()
            .map(|&hops| LOCAL_NS + HOP_NS * u32::from(hops))
            .collect();
        let mut nearest = Vec::with_capacity(nodes * nodes);
        for row in hops.chunks_exact(nodes) {
            let mut order: Vec<Node> = (0..nodes).map(|node| Node(node as u16)).collect();
            order.sort_by_key(|node| row[node.index()]);
            nearest.extend(order);
        }
        Topology {
            name,
            nodes,
            axes,
            hops,
            latency_ns,
            nearest,
        }
    }

    /// What a user writes for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Length of each axis, slowest first; empty where the nodes lie on no grid.
    pub fn axes(&self) -> &[usize] {
        &self.axes
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

    /// All nodes, the nearest first, the node itself the very first; ties by number.
    pub fn nearest(&self, node: Node) -> &[Node] {
        &self.nearest[node.index() * self.nodes..][..self.nodes]
    }

    /// The nodes one hop away, by number.
    pub fn neighbours(&self, node: Node) -> &[Node] {
        let nearest = &self.nearest(node)[1..];
        let end = nearest.partition_point(|&other| self.hops(node, other) <= 1);
        &nearest[..end]
    }

    /// The node with the least sum of `weights` times hops to it; the lowest number among equals.
    pub fn median(&self, weights: &[u32]) -> Node {
        let cost = |node: &Node| -> u64 {
            let from_all = weights.iter().enumerate();
            from_all
                .map(|(from, &weight)| {
                    u64::from(weight) * u64::from(self.hops(Node(from as u16), *node))
                })
                .sum()
        };
        let all = (0..self.nodes).map(|node| Node(node as u16));
        all.min_by_key(cost).expect("a topology has a node")
    }
}
