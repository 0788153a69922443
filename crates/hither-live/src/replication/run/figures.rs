//! The figures of a run, for its log's last line and for whoever asks for JSON.

use hither_sys::replica::BLOCK_BYTES;
use serde_json::{Value, json};

use super::super::controller::Summary;
use super::ReplicationReport;

/// The figures of a run that do not hang on the clock.
pub(super) fn end(run: &ReplicationReport) -> Value {
    let Summary {
        files,
        leases,
        ended,
        references,
        local,
        made,
        failed,
        reclaimed,
        ref replicas,
        tight,
    } = run.summary;
    let bytes: Vec<u64> = replicas.iter().map(|blocks| blocks * BLOCK_BYTES).collect();
    json!({
        "nodes": run.nodes,
        "files": files,
        "leases": leases,
        "files_ended": ended,
        "refused_why": run.refused,
        "references": references,
        "local_references": local,
        "replicas_made": made,
        "replicas_failed": failed,
        "replicas_without_memory": run.no_memory,
        "replicas_reclaimed": reclaimed,
        "replica_bytes": bytes,
        "replica_bytes_max": run.bytes_max,
        "reads_served": run.served,
        "served_bytes": run.served_bytes,
        "reads": run.read,
        "read_bytes": run.read_bytes,
        "memory_is_tight": tight,
        "accesses_lost": run.lost.events + run.lost.no_ring + run.lost.nested,
    })
}

impl ReplicationReport {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        let mut figures = end(self);
        figures["agent_ns"] = json!(self.agent.as_nanos() as u64);
        figures["ran_ns"] = json!(self.ran.as_nanos() as u64);
        figures
    }
}
