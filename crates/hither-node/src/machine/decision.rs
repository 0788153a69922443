//! Where copies of a block go: the one place in which a home decides it.
//!
//! Policies of the core will be put here. Until then the rule is the paper's simplest one,
//! *first and forever*: a block stays with the node that read it from the source.

use super::message::Blocks;
use super::view::MemberId;

/// A delivery that a home is about to order.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The blocks that are wanted.
    pub blocks: Blocks,
    /// The member that wants them.
    pub requester: MemberId,
    /// The home.
    pub home: MemberId,
    /// Members that can be reached and hold some of the blocks, with masks, those that reported
    /// last at the end. Never empty.
    pub holders: &'a [(MemberId, u64)],
}

/// How a delivery is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Position of the holder that delivers what it has of the blocks.
    pub holder: usize,
    /// Whether the requester keeps a copy, and so becomes a holder.
    pub keep: bool,
}

/// Decides over the copies of those chunks that a node is the home of.
pub trait Decision: Send {
    /// A requester wants blocks that others hold.
    fn deliver(&mut self, access: &Access<'_>) -> Delivery;
}

/// A block stays where it was first read, and readers elsewhere do not keep it.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstAndForever;

impl Decision for FirstAndForever {
    /// The home itself delivers if it can, which saves a hop; otherwise the member that became a
    /// holder last does. A second holder exists only because the first one could not be reached or
    /// was slow.
    fn deliver(&mut self, access: &Access<'_>) -> Delivery {
        let mut holders = access.holders.iter();
        let home = holders.position(|&(member, _)| member == access.home);
        Delivery {
            holder: home.unwrap_or(access.holders.len() - 1),
            keep: false,
        }
    }
}
