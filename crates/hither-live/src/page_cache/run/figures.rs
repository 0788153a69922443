//! The figures of a run, for its log's last line and for whoever asks for JSON.

use hither_core::classify::Class;
use hither_core::replacement::ClassCounts;
use serde_json::{Value, json};

use super::super::controller::{ReadStats, Summary};
use super::PageCacheReport;

/// The figures of a run that do not hang on the clock.
pub(super) fn end(files: &PageCacheReport) -> Value {
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
        preexisting_bytes,
        absent_bytes,
        judged,
        stopped,
        steering,
        classes,
        evicted_by_class,
    } = files.summary;
    let busiest_files = files.busiest_files.iter().map(|file| {
        let mut document = tally(&file.tally);
        document["path"] = json!(file.path.to_string_lossy());
        document
    });
    let busiest_sites = files.busiest_sites.iter().map(|site| {
        let mut document = tally(&site.tally);
        document["site"] = json!(format!("{:#x}", site.signature));
        document["class"] = json!(site.class.map(class));
        document
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
        "evicted_by_class_bytes": evicted_by_class.map(by_class),
        "drops": drops,
        "drops_refused": files.refused,
        "refused_why": files.why_refused.map(|why| why.to_string()),
        "dropped_bytes": dropped_bytes,
        "foreign_bytes": preexisting_bytes,
        "unseen_why": files.unseen.map(|why| why.to_string()),
        "absent_bytes": absent_bytes,
        "windows_judged": judged,
        "times_stopped": stopped,
        "steering": steering,
        "classes": classes.map(by_class),
        "busiest_files": busiest_files.collect::<Vec<_>>(),
        "busiest_sites": busiest_sites.collect::<Vec<_>>(),
        "readahead_disabled": files.readahead_disabled,
        "accesses_lost": files.lost.events + files.lost.no_ring + files.lost.nested,
    })
}

fn by_class(counts: ClassCounts) -> Value {
    json!({
        "sequential": counts.sequential,
        "looping": counts.looping,
        "other": counts.other,
    })
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Sequential => "sequential",
        Class::Looping => "looping",
        Class::Other => "other",
    }
}

fn tally(tally: &ReadStats) -> Value {
    json!({
        "referenced_bytes": tally.referenced_bytes,
        "missed_bytes": tally.missed_bytes,
        "lru_missed_bytes": tally.lru_missed_bytes,
    })
}

impl PageCacheReport {
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
