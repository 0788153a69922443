//! The mechanism in a run: its options, its report, and how it is set up.
//!
//! The agent takes records of reads and makes replicas. A child of it, the lease process, holds the
//! leases and ends replicas, also while the agent is stopped. If the lease process dies, the kernel
//! marks that in a word that programs check on every read (a robust futex), before it releases the
//! leases. If the agent dies, the kernel kills the lease process. Programs then read as usual.

mod actuator;
mod memory_pressure;
mod nodes;
mod report;

use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::lease;
use hither_kernel::machine::{Machine, NodeMemory, ThisMachine};
use hither_kernel::syscalls;
use hither_session::lease_process::BREAK_TIME_MIN;
use hither_session::replica::agent::Replicas as Shared;
use hither_session::replica::{BLOCK_BYTES, NODES_MAX};

pub(crate) use self::actuator::ReplicationActuator;
use self::nodes::shape;
pub use self::report::ReplicationReport;
use super::controller::ReplicationConfig;
use super::leases::Leases;
use crate::error::{Error, Result};
use crate::mechanism::{Controlled, SessionNeeds};
use crate::system::System;

/// Which blocks of its files a program may have replicas of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those that are on another node.
    Far,
    /// All blocks, for tests.
    All,
}

/// The options of the mechanism.
#[derive(Clone, Debug)]
pub struct ReplicationOptions {
    /// The placement with its parameters; one for files, that can run live.
    pub policy: Spec<PlacementEntry>,
    /// Which blocks may have replicas.
    pub scope: Scope,
    /// The most memory of each node for replicas. By default an eighth of the smallest node, and at
    /// most a quarter of what a memory cgroup leaves for files.
    pub node_bytes: Option<u64>,
}

/// Why this machine permits no replicas, whatever the files and its nodes.
pub fn obstacles() -> impl Iterator<Item = &'static str> {
    let impatient = lease::break_time().is_none_or(|time| time < BREAK_TIME_MIN);
    let impatient = impatient.then_some(
        "fs.lease-break-time is less than 4 seconds: \
         writers would not wait for replicas to end",
    );
    let uncopied = (!syscalls::copies()).then_some(
        "process_vm_writev is not available (a seccomp filter, or a kernel without \
         CONFIG_CROSS_MEMORY_ATTACH)",
    );
    impatient.into_iter().chain(uncopied)
}

/// The mechanism.
pub(crate) type ReplicationMechanism = Controlled<ReplicationActuator>;

/// Sets the mechanism up for a run.
///
/// # Errors
/// There is no shared memory for replicas, or no process for their leases.
pub(crate) fn set_up(
    options: &ReplicationOptions,
    _system: &System,
    dry_run: bool,
) -> Result<Option<ReplicationMechanism>> {
    // No program runs on nodes with memory but without a CPU.
    let nodes = ThisMachine.nodes().unwrap_or_default();
    let mut nodes: Vec<NodeMemory> = nodes
        .into_iter()
        .filter(|node| !node.cpus.is_empty())
        .collect();
    nodes.truncate(NODES_MAX);
    let node_bytes = options.node_bytes.unwrap_or_else(|| usual_bytes(&nodes));
    let replicas_max = u32::try_from(node_bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
    let config = ReplicationConfig {
        policy: options.policy,
        nodes: nodes.len().max(1) as u8,
        all: options.scope == Scope::All,
        replicas_max: replicas_max.max(1),
        block_bytes: BLOCK_BYTES,
        dry_run,
    };
    let nothing_is_far = nodes.len() < 2 && options.scope == Scope::Far;
    let obstacles: Vec<&str> = obstacles().collect();
    let none = nothing_is_far || !obstacles.is_empty();
    let shared = Shared::create(&shape(&nodes, node_bytes)).map_err(Error::Session)?;
    let leases = if none || dry_run {
        Leases::none(shared.shared())
    } else {
        Leases::start(shared.shared()).map_err(Error::Session)?
    };
    let control = shared.shared().control();
    let policy = options.policy.to_string();
    let mut actuator = ReplicationActuator::new(shared, leases, &nodes, policy, dry_run);
    actuator.control = (!none && !dry_run).then_some(control);
    actuator.report_mut().nothing_is_far = nothing_is_far;
    for obstacle in obstacles {
        actuator.refuse(obstacle);
    }
    let needs = SessionNeeds {
        // Nothing is recorded where there can be no replicas. Call sites are not needed.
        block_bytes: (!none || dry_run).then_some(0),
        ..SessionNeeds::default()
    };
    Controlled::new(actuator, config, needs).map(Some)
}

/// The default for the replicas' memory on each node.
fn usual_bytes(nodes: &[NodeMemory]) -> u64 {
    let smallest = nodes.iter().map(|node| node.bytes).min().unwrap_or(0);
    let group = MemoryGroup::of_this_process().ok().flatten();
    let left = group.and_then(|group| group.file_bytes());
    let share = left.map_or(u64::MAX, |left| left / 4);
    (smallest / 8)
        .min(share / nodes.len().max(1) as u64)
        .max(1 << 20)
}
