//! Where the view comes from, and whether this node is part of it.
//!
//! A [`Membership`] is something to watch: the current view, this node's standing in it, and
//! whether the source of both can be reached. There are two sources: a fixed list
//! ([`fixed`]) and etcd ([`etcd`]).

pub mod etcd;
pub mod fixed;

use tokio::sync::watch;

use crate::view::View;

/// What a node knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The members that are known.
    pub view: View,
    /// Whether this node is one of them.
    pub standing: Standing,
    /// Whether the source of the view answers. If it does not, the view is the last one known.
    pub source_reachable: bool,
}

/// Whether this node takes part in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Member,
    /// It does not, for the reason given: it serves nobody, and asks nobody.
    Isolated(String),
}

/// The current state, and all changes of it.
pub type Membership = watch::Receiver<State>;
