//! The links of a network, on which messages queue.

use crate::ids::Node;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkEnd {
    /// A node.
    Node(Node),
    /// A router or switch, which holds no blocks.
    Switch(u16),
}

/// A directed link, on which messages queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// From one place to another.
    Wire {
        /// Where a message enters.
        from: LinkEnd,
        /// Where it leaves.
        to: LinkEnd,
    },
    /// A whole ring that goes one way: a request and its reply together pass each of its segments
    /// once.
    Ring(u16),
}
