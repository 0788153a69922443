//! The figures of a run, for its log's last line and for whoever asks for JSON.

use serde_json::{Value, json};

use super::super::driver::Summary;
use super::Files;

/// The figures of a run that do not hang on the clock.
pub(super) fn end(files: &Files) -> Value {
    let Summary {
        files: used,
        mapped,
        unreachable,
        budget_bytes,
        references,
        missed_bytes,
        lru_missed_bytes,
        evicted_bytes,
        drops,
        dropped_bytes,
        foreign_bytes,
        absent_bytes,
        judged,
        stopped,
        steering,
        classes,
    } = files.summary;
    let classes = classes.map(|classes| {
        json!({
            "sequential": classes.sequential,
            "looping": classes.looping,
            "other": classes.other,
        })
    });
    json!({
        "files": used,
        "files_mapped": mapped,
        "files_unreachable": unreachable,
        "unreachable_why": files.why_unreachable.map(|why| why.to_string()),
        "budget_bytes": budget_bytes,
        "references": references,
        "missed_bytes": missed_bytes,
        "lru_missed_bytes": lru_missed_bytes,
        "evicted_bytes": evicted_bytes,
        "drops": drops,
        "drops_refused": files.refused,
        "refused_why": files.why_refused.map(|why| why.to_string()),
        "dropped_bytes": dropped_bytes,
        "foreign_bytes": foreign_bytes,
        "unseen_why": files.unseen.map(|why| why.to_string()),
        "absent_bytes": absent_bytes,
        "windows_judged": judged,
        "times_stopped": stopped,
        "steering": steering,
        "classes": classes,
        "accesses_lost": files.lost.events + files.lost.no_ring + files.lost.nested,
    })
}

impl Files {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        let mut figures = end(self);
        figures["storage_bytes"] = json!(self.storage_bytes);
        figures["drop_ns"] = json!(self.drop_time.as_nanos() as u64);
        figures["agent_ns"] = json!(self.agent.as_nanos() as u64);
        figures["ran_ns"] = json!(self.ran.as_nanos() as u64);
        figures
    }
}
