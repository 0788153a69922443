//! The figures of a run, for its log's last line and for whoever asks for JSON.

use serde_json::{Value, json};

use super::super::controller::Summary;
use super::FileMigrationReport;

/// The figures of a run that do not hang on the clock.
pub(super) fn end(run: &FileMigrationReport) -> Value {
    let Summary {
        files,
        accesses,
        local,
        wanted,
        moved,
        took_ns,
    } = run.summary;
    json!({
        "files": files,
        "file_accesses": accesses,
        "file_local_accesses": local,
        "file_blocks_wanted": wanted,
        "file_pages_moved": moved,
        "file_pages_refused": run.refused.values().sum::<u64>(),
        "file_pages_refused_why": run.refused,
        "left_alone_why": run.left_alone,
        "moving_ns": took_ns,
        "accesses_lost": run.lost.events + run.lost.no_ring + run.lost.nested,
    })
}

impl FileMigrationReport {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        let mut figures = end(self);
        figures["agent_ns"] = json!(self.agent.as_nanos() as u64);
        figures["ran_ns"] = json!(self.ran.as_nanos() as u64);
        figures
    }
}
