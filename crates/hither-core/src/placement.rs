//! Which node holds what: where a page or block is first placed, when it migrates or is replicated,
//! and where evicted blocks go. One file a policy.
//!
//! Three traits, of which a policy implements two:
//!
//! - [`Placement`]: what every policy decides (where a block goes first) and what it is told
//!   (accesses, writes, copies that left, ends of epochs, outcomes of its actions).
//! - [`MemoryPlacement`], for the pages of a program on the nodes of a machine: allocated and freed
//!   regions, their tiers, and the time that observation costs.
//! - [`FilePlacement`], for blocks of files in the caches of nodes, over storage: which replica
//!   makes room, and where an evicted block goes.
//!
//! The caller (a simulator's engine, or the live runtime by a [`PlacementHost`] or
//! [`FileHost`]) owns the state,
//! [`Nodes`]. It carries out the [actions](Action) that a policy asks for, as far as possible, and
//! reports the outcomes. A policy keeps only what it has learnt. What does not change during a run
//! (what a policy needs to know, whether it can run live, its period) is in its
//! [entry](PlacementEntry), not in the traits.

mod a_priori;
mod always_migrate;
mod autonuma;
mod cache_aware;
mod cost_benefit;
mod counters;
mod dual_layer;
mod entry;
mod events;
mod file_host;
mod first_and_forever;
mod first_touch;
mod host;
mod host_log;
mod interface;
mod local_only;
mod majority;
mod nodes;
mod one_step;
mod post_office;
mod registry;
mod rendezvous;
mod round_robin;
mod single_node;
#[cfg(test)]
mod testing;
mod threshold;
mod upm;

pub use counters::Counters;
pub use entry::{
    Build, BuildFiles, BuildMemory, EpochNeeds, PlacementEntry, PlacementSettings, ReplicaLayer,
    Target,
};
pub use events::{
    Action, ActionOutcome, Epoch, EpochKind, IncomingBlock, Mark, Region, RegionTier,
    SavedPlacement, SiteTier, ThreadMigration,
};
pub use file_host::{FileHost, FileHostSettings};
pub use host::{HostNode, PageTouch, PlacementHost, PlacementHostSettings};
pub use host_log::{HostAnswer, HostCall, ReplayError, Replayed, log_line, replay, start_line};
pub use interface::{AccessesWanted, FilePlacement, MemoryPlacement, Placement};
pub use nodes::{Nodes, rendezvous_node};
pub use registry::{compared, placement_policies};
