//! What a run of the mechanism comes to, for the command, the log and the status.

use std::collections::BTreeMap;
use std::time::Duration;

use hither_ids::KernelNode;
use hither_session::replica::BLOCK_BYTES;
use hither_session::session::Lost;
use serde::Serialize;
use serde_json::Value;

use super::super::controller::ReplicationSummary;
use crate::error::Error;
use crate::status::to_report;

/// The result of a run.
#[derive(Debug, Default)]
pub struct ReplicationReport {
    /// The controller's figures.
    pub summary: ReplicationSummary,
    /// The machine's nodes, by the kernel's numbers.
    pub nodes: Vec<KernelNode>,
    /// There is one node, and only remote blocks may have replicas, so there were none.
    pub nothing_is_far: bool,
    /// Reads that replicas served: sixteen times those that were reported.
    pub served: u64,
    /// The bytes of these reads.
    pub served_bytes: u64,
    /// Reads that the kernel served.
    pub read: u64,
    /// The bytes of these reads.
    pub read_bytes: u64,
    /// The most memory that replicas took at any time.
    pub bytes_max: u64,
    /// Why files could have no replicas, and how often.
    pub refused: BTreeMap<String, u64>,
    /// Blocks for which there was no memory.
    pub no_memory: u64,
    /// Accesses that were not recorded.
    pub lost: Lost,
    /// CPU time of the agent and its lease process.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is incomplete.
    pub log: Option<Error>,
}

/// The figures of a run that do not depend on its timing: the last line of its log.
#[derive(Serialize)]
pub(super) struct ReplicationFigures<'a> {
    nodes: &'a [KernelNode],
    #[serde(flatten)]
    summary: &'a ReplicationSummary,
    refused_why: &'a BTreeMap<String, u64>,
    replicas_without_memory: u64,
    replica_bytes: Vec<u64>,
    replica_bytes_max: u64,
    reads_served: u64,
    served_bytes: u64,
    reads: u64,
    read_bytes: u64,
    accesses_lost: u64,
    records_damaged: u64,
}

impl ReplicationReport {
    pub(super) fn figures(&self) -> ReplicationFigures<'_> {
        let replicas = self.summary.replicas.iter();
        ReplicationFigures {
            nodes: &self.nodes,
            summary: &self.summary,
            refused_why: &self.refused,
            replicas_without_memory: self.no_memory,
            replica_bytes: replicas.map(|blocks| blocks * BLOCK_BYTES).collect(),
            replica_bytes_max: self.bytes_max,
            reads_served: self.served,
            served_bytes: self.served_bytes,
            reads: self.read,
            read_bytes: self.read_bytes,
            accesses_lost: self.lost.unrecorded(),
            records_damaged: self.lost.damaged,
        }
    }

    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        to_report(&self.figures(), self.agent, self.ran)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_these_keys() {
        let report = ReplicationReport {
            summary: ReplicationSummary {
                files: 1,
                leases: 2,
                ended: 3,
                references: 4,
                local: 5,
                made: 6,
                failed: 7,
                reclaimed: 8,
                replicas: vec![1, 0],
                tight: true,
            },
            nodes: vec![KernelNode(0), KernelNode(2)],
            nothing_is_far: false,
            served: 9,
            served_bytes: 10,
            read: 11,
            read_bytes: 12,
            bytes_max: 13,
            refused: BTreeMap::from([("mapped".to_owned(), 1)]),
            no_memory: 14,
            lost: Lost {
                events: 1,
                no_ring: 2,
                nested: 3,
                damaged: 4,
                ..Lost::default()
            },
            agent: Duration::from_nanos(15),
            ran: Duration::from_nanos(16),
            log: None,
        };
        let expected = json!({
            "nodes": [0, 2],
            "files": 1,
            "leases": 2,
            "files_ended": 3,
            "refused_why": { "mapped": 1 },
            "references": 4,
            "local_references": 5,
            "replicas_made": 6,
            "replicas_failed": 7,
            "replicas_without_memory": 14,
            "replicas_reclaimed": 8,
            "replica_bytes": [BLOCK_BYTES, 0],
            "replica_bytes_max": 13,
            "reads_served": 9,
            "served_bytes": 10,
            "reads": 11,
            "read_bytes": 12,
            "memory_is_tight": true,
            "accesses_lost": 6,
            "records_damaged": 4,
            "agent_ns": 15,
            "ran_ns": 16,
        });
        assert_eq!(report.to_json(), expected);
    }
}
