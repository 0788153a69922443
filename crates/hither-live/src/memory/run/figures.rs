//! The figures of a run, for its log's last line and for whoever asks for JSON.

use serde_json::{Value, json};

use super::super::controller::{Locality, Summary};
use super::MemoryReport;

/// The figures of a run.
pub(super) fn end(pages: &MemoryReport) -> Value {
    let Summary {
        regions,
        far,
        near,
        known,
        unfollowed,
        faults,
        pages_away,
        ranges_bound,
        ranges_refused,
        pages_moved,
        pages_refused,
        plain,
        counted,
        applied,
        own,
        sampled,
        unarmed,
        judged,
        migrated,
        before,
        after,
        ref gains,
        stopped,
    } = pages.summary;
    let gains: Vec<Value> = gains
        .iter()
        .map(|gain| {
            json!({
                "site": format!("{:#x}", gain.signature),
                "pages_migrated": gain.migrated,
                "before": tally(gain.before),
                "after": tally(gain.after),
            })
        })
        .collect();
    let reasons = pages.uncounted.iter();
    let reasons: Vec<Value> = reasons
        .map(|(name, reason)| json!({ "counters": name, "why_not": reason.to_string() }))
        .collect();
    json!({
        "regions": regions,
        "far": far,
        "near": near,
        "known": known,
        "plain": plain,
        "unfollowed": unfollowed,
        "faults": faults,
        "faults_lost": pages.faults_lost,
        "pages_away": pages_away,
        "ranges_bound": ranges_bound,
        "ranges_refused": ranges_refused,
        "pages_moved": pages_moved,
        "pages_refused": pages_refused,
        "orders_refused": pages.bind_requests_refused,
        "unwatched": pages.unwatched.map(|reason| reason.to_string()),
        "counters": pages.counters,
        "no_counters": reasons,
        "regions_counted": counted,
        "regions_applied": applied,
        "regions_own": own,
        "sampled": tally(sampled),
        "unarmed": unarmed,
        "unarmed_why": pages.unarmed.map(|reason| reason.to_string()),
        "judged": judged,
        "pages_migrated": migrated,
        "before": tally(before),
        "after": tally(after),
        "gains": gains,
        "processes_left_alone": stopped,
    })
}

fn tally(tally: Locality) -> Value {
    json!({ "samples": tally.samples, "local_share": tally.share() })
}

impl MemoryReport {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        let mut figures = end(self);
        figures["agent_ns"] = json!(self.agent.as_nanos() as u64);
        figures["ran_ns"] = json!(self.ran.as_nanos() as u64);
        figures["calibration_why"] = json!(self.calibration);
        figures
    }
}
