//! The figures of a node: `GET /status`. Metrics and tables are made of these.
//!
//! Reads that the kernel's page cache serves never reach the node, and are in no figure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hither_net::membership::{Standing, State};
use hither_net::mesh::PeerStats;
use hither_node::node::Node;
use hither_node::protocol::PeerState;
use hither_node::source::counters::SourceCounters;
use hither_node::store::disk::settings::{DiskCounts, DiskUsage};
use hither_node::volume::Counts;
use serde::{Deserialize, Serialize};

use crate::served::{Served, ServedVolume};

/// A node.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct NodeStatus {
    /// Its process.
    pub pid: u32,
    /// What it is called.
    pub node: Option<String>,
    /// The version of the program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Its cluster, if it is not alone.
    pub cluster: Option<ClusterStatus>,
    /// Its memory.
    pub memory: MemoryStatus,
    /// Its disk, if it has one.
    pub disk: Option<DiskStatus>,
    /// Where all reads were served from.
    pub served: ServedBytes,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
    /// What its part of the protocol has counted, by name.
    pub machine: BTreeMap<String, u64>,
}

/// A cluster, as a node sees it.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Whether the node takes part.
    pub joined: bool,
    /// Why it does not.
    pub reason: Option<String>,
    /// Whether the list of members can be asked.
    pub membership_reachable: bool,
    /// The number of the list of members.
    pub epoch: u64,
    /// All members, the node too, by name.
    pub members: Vec<MemberStatus>,
}

/// A member, as a node sees it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Whether it is the node itself.
    pub this_node: bool,
    /// Whether both connections with it are up.
    pub connected: bool,
    /// Whether it is suspected: nothing is asked of it then.
    pub suspected: bool,
    /// From the latest ping that it answered to the answer.
    pub round_trip_ns: Option<u64>,
    /// Bytes that were sent to it.
    pub sent_bytes: u64,
    /// Bytes that came from it.
    pub received_bytes: u64,
}

/// The memory of a node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct MemoryStatus {
    /// The limit.
    pub limit_bytes: u64,
    /// Length of a block.
    pub block_bytes: u32,
    /// What is kept.
    pub policy: String,
    /// Blocks that are kept.
    pub blocks: u64,
    /// Their length in all.
    pub bytes: u64,
    /// What is pinned.
    #[serde(default)]
    pub pinned_bytes: u64,
    /// Frames, of a block's length each, that nobody has.
    pub frames_free: u64,
    /// Blocks that are on their way.
    pub blocks_in_flight: u64,
}

/// The disk of a node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DiskStatus {
    /// What is on it.
    pub usage: DiskUsage,
    /// What it has counted.
    pub counts: DiskCounts,
    /// What is pinned.
    #[serde(default)]
    pub pinned_bytes: u64,
}

/// Where reads were served from, in bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ServedBytes {
    /// This node's memory, blocks included that were fetched ahead of the reader.
    pub memory: u64,
    /// This node's disk: the reader waited.
    pub disk: u64,
    /// Other members: the reader waited.
    pub peer: u64,
    /// The source: the reader waited.
    pub source: u64,
}

impl ServedBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.memory + self.disk + self.peer + self.source
    }

    /// The parts, by the word that names them in metrics.
    pub fn parts(&self) -> [(&'static str, u64); 4] {
        [
            ("memory", self.memory),
            ("disk", self.disk),
            ("peer", self.peer),
            ("source", self.source),
        ]
    }
}

/// A volume.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Where the data is.
    pub source: String,
    /// Where it is mounted.
    pub directory: Option<PathBuf>,
    /// Where its reads were served from.
    pub served: ServedBytes,
    /// Of `served.peer`, the bytes by member.
    pub peers: BTreeMap<String, u64>,
    /// Whether the source answered the last request.
    pub source_answers: bool,
    /// What the volume has counted.
    pub counts: Counts,
    /// What the source was asked for, if it counts.
    pub requests: Option<SourceStatus>,
}

/// What a source was asked for.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct SourceStatus {
    /// Requests, each attempt counted.
    pub requests: u64,
    /// Bytes of files received.
    pub bytes: u64,
    /// Attempts that were repeated.
    pub retries: u64,
    /// Requests that failed in the end.
    pub errors: u64,
    /// Attempts that the source turned away for its load.
    pub throttled: u64,
}

/// What a node tells other members about itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct NodeBrief {
    /// The version of the program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Its memory.
    pub memory: MemoryStatus,
    /// Where its reads were served from.
    pub served: ServedBytes,
}

impl Served {
    /// The figures now.
    pub(crate) fn status(&self) -> NodeStatus {
        let state = self.node.membership();
        let volumes: Vec<VolumeStatus> = self
            .volumes
            .iter()
            .map(|volume| volume.status(state.as_ref()))
            .collect();
        let counters = serde_json::to_value(self.node.protocol_counters());
        NodeStatus {
            pid: std::process::id(),
            node: self.name.clone(),
            cluster: state.map(|state| self.cluster_status(&state)),
            disk: disk(&self.node),
            served: self.served(),
            volumes,
            machine: counters
                .and_then(serde_json::from_value)
                .unwrap_or_default(),
            ..self.brief().into()
        }
    }

    /// What other members are told.
    pub(crate) fn brief(&self) -> NodeBrief {
        NodeBrief {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.since.elapsed().as_secs_f64(),
            memory: memory(&self.node),
            served: self.served(),
        }
    }

    fn served(&self) -> ServedBytes {
        let volumes = self.volumes.iter().map(ServedVolume::served);
        volumes.fold(ServedBytes::default(), |sum, served| ServedBytes {
            memory: sum.memory + served.memory,
            disk: sum.disk + served.disk,
            peer: sum.peer + served.peer,
            source: sum.source + served.source,
        })
    }

    fn cluster_status(&self, state: &State) -> ClusterStatus {
        let seen = self.node.members();
        let stats = self.node.mesh().map(|mesh| mesh.stats());
        let stats = stats.unwrap_or_default();
        let reason = match &state.standing {
            Standing::Member => None,
            Standing::Isolated(reason) => Some(reason.clone()),
        };
        let members = state.view.members().iter().map(|member| {
            let seen = seen.iter().find(|seen| seen.member == member.id());
            let stats = stats.iter().find(|stats| stats.name == member.name);
            MemberStatus {
                name: member.name.clone(),
                address: member.address.clone(),
                this_node: Some(&member.name) == self.name.as_ref(),
                ..of_member(seen, stats)
            }
        });
        ClusterStatus {
            name: self.cluster.clone().unwrap_or_default(),
            joined: reason.is_none(),
            reason,
            membership_reachable: state.source_reachable,
            epoch: state.view.epoch(),
            members: members.collect(),
        }
    }
}

fn of_member(seen: Option<&PeerState>, stats: Option<&PeerStats>) -> MemberStatus {
    MemberStatus {
        connected: stats.is_some_and(|stats| stats.connected),
        suspected: seen.is_some_and(|seen| seen.suspected),
        round_trip_ns: seen.and_then(|seen| seen.round_trip_ns),
        sent_bytes: stats.map_or(0, |stats| stats.sent_bytes),
        received_bytes: stats.map_or(0, |stats| stats.received_bytes),
        ..MemberStatus::default()
    }
}

impl From<NodeBrief> for NodeStatus {
    fn from(brief: NodeBrief) -> NodeStatus {
        NodeStatus {
            version: brief.version,
            uptime_s: brief.uptime_s,
            memory: brief.memory,
            served: brief.served,
            ..NodeStatus::default()
        }
    }
}

fn memory(node: &Node) -> MemoryStatus {
    let (settings, usage) = (node.settings(), node.store().usage());
    MemoryStatus {
        limit_bytes: settings.memory_bytes,
        block_bytes: settings.block_bytes,
        policy: settings.policy.to_string(),
        blocks: usage.blocks as u64,
        bytes: usage.bytes,
        pinned_bytes: node.pinned_bytes(),
        frames_free: usage.frames_free as u64,
        blocks_in_flight: node.in_flight() as u64,
    }
}

fn disk(node: &Node) -> Option<DiskStatus> {
    let disk = node.disk()?;
    Some(DiskStatus {
        usage: disk.usage(),
        counts: disk.counts(),
        pinned_bytes: node.pinned_disk_bytes(),
    })
}

impl ServedVolume {
    fn served(&self) -> ServedBytes {
        let counts = self.volume.counters().counts();
        ServedBytes {
            memory: counts.memory_bytes,
            disk: counts.disk_bytes,
            peer: counts.peer_bytes,
            source: counts.source_bytes,
        }
    }

    fn status(&self, state: Option<&State>) -> VolumeStatus {
        let peers = self.volume.peer_bytes().into_iter().map(|(id, bytes)| {
            let member = state.and_then(|state| state.view.member(id));
            let name = member.map(|member| member.name.clone());
            (name.unwrap_or_else(|| format!("{id:?}")), bytes)
        });
        VolumeStatus {
            name: self.volume.name().to_owned(),
            source: self.source.clone(),
            directory: self.directory.clone(),
            served: self.served(),
            peers: peers.collect(),
            source_answers: self.volume.source_answers(),
            counts: self.volume.counters().counts(),
            requests: self.volume.source().counters().map(SourceStatus::from),
        }
    }
}

impl From<&SourceCounters> for SourceStatus {
    fn from(counters: &SourceCounters) -> SourceStatus {
        SourceStatus {
            requests: counters.requests.get(),
            bytes: counters.bytes.get(),
            retries: counters.retries.get(),
            errors: counters.errors.get(),
            throttled: counters.throttled.get(),
        }
    }
}
