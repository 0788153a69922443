//! What a run of the mechanism comes to, for the command, the log and the status.

use std::time::Duration;

use hither_core::placement::{SavedPlacement, SiteTier};
use hither_kernel::machine::PageMoves;
use hither_kernel::page_faults::WatchError;
use hither_kernel::page_sampling::SamplingError;
use hither_session::session::Lost;
use serde::Serialize;
use serde_json::Value;

use super::super::controller::MemorySummary;
use crate::error::Error;
use crate::status::to_report;

/// What was done about a program's pages.
#[derive(Debug, Default)]
pub struct MemoryReport {
    /// What the controller counted.
    pub summary: MemorySummary,
    /// Tiers of allocation sites, for the next run.
    pub sites: Vec<SiteTier>,
    /// Placements of regions, for the next run.
    pub saved_placements: Vec<SavedPlacement>,
    /// Pages that were moved on this machine while the program ran, by whomever.
    pub machine_moves: Option<PageMoves>,
    /// How accesses were counted, if the policy needed counts and there was a way.
    pub counters: Option<&'static str>,
    /// The ways to count that were refused, and why.
    pub uncounted: Vec<(&'static str, SamplingError)>,
    /// Pieces of shared memory that were left alone, since several processes map them.
    pub shared_left: usize,
    /// Why pages could not be sampled, the last time.
    pub unarmed: Option<SamplingError>,
    /// Why no faults were watched. Then only regions of known sites could be placed.
    pub unwatched: Option<WatchError>,
    /// The kernel's own faults on the program's behalf (`read` into fresh memory) were not seen.
    pub without_kernel: bool,
    /// Faults that found no room in their ring.
    pub faults_lost: u64,
    /// What programs could not report.
    pub lost: Lost,
    /// CPUs that came online after the start, whose faults were not seen.
    pub unwatched_cpus: usize,
    /// Bind requests that found no room.
    pub bind_requests_refused: u64,
    /// Processor time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is incomplete.
    pub log: Option<Error>,
    /// Why the calibration could not be read or kept.
    pub calibration: Option<String>,
}

/// A way to count accesses that was refused.
#[derive(Serialize)]
struct RefusedCounters {
    counters: &'static str,
    why_not: String,
}

/// The figures of a run that do not depend on its timing: the last line of its log.
#[derive(Serialize)]
pub(super) struct MemoryFigures<'a> {
    #[serde(flatten)]
    summary: &'a MemorySummary,
    faults_lost: u64,
    records_damaged: u64,
    bind_requests_refused: u64,
    shared_left: usize,
    unwatched: Option<String>,
    counters: Option<&'static str>,
    no_counters: Vec<RefusedCounters>,
    unarmed_why: Option<String>,
}

impl MemoryReport {
    pub(super) fn figures(&self) -> MemoryFigures<'_> {
        let refused = self.uncounted.iter().map(|(name, why)| RefusedCounters {
            counters: name,
            why_not: why.to_string(),
        });
        MemoryFigures {
            summary: &self.summary,
            faults_lost: self.faults_lost,
            records_damaged: self.lost.damaged,
            bind_requests_refused: self.bind_requests_refused,
            shared_left: self.shared_left,
            unwatched: self.unwatched.map(|why| why.to_string()),
            counters: self.counters,
            no_counters: refused.collect(),
            unarmed_why: self.unarmed.map(|why| why.to_string()),
        }
    }

    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        #[derive(Serialize)]
        struct CalibratedFigures<'a> {
            #[serde(flatten)]
            figures: MemoryFigures<'a>,
            machine_pages_moved: Option<u64>,
            balancing_pages_moved: Option<u64>,
            calibration_why: Option<&'a str>,
        }
        let figures = CalibratedFigures {
            figures: self.figures(),
            machine_pages_moved: self.machine_moves.map(|moves| moves.all),
            balancing_pages_moved: self.machine_moves.map(|moves| moves.balancing),
            calibration_why: self.calibration.as_deref(),
        };
        to_report(&figures, self.agent, self.ran)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::locality::{Locality, MigrationGain};
    use super::*;
    use crate::iterations::FoundIterations;

    #[test]
    fn a_report_has_these_keys() {
        let of = |samples, local| Locality {
            samples,
            placed: 4,
            local,
        };
        let report = MemoryReport {
            summary: MemorySummary {
                regions: 1,
                mapped: 25,
                own_processes: 26,
                paused_ns: 27,
                sampled_by_kind: [("heap", 28)].into(),
                sampled_outside: 29,
                iterations: FoundIterations::default(),
                far: 2,
                near: 3,
                known: 4,
                unfollowed: 5,
                faults: 6,
                pages_away: 7,
                ranges_bound: 8,
                ranges_refused: 9,
                pages_moved: 10,
                huge_moved: 32,
                pages_refused: 11,
                plain: 12,
                counted: 13,
                applied: 14,
                own: 15,
                sampled: Locality::default(),
                unarmed: 16,
                judged: 17,
                migrated: 18,
                before: of(5, 1),
                after: of(6, 3),
                gains: vec![MigrationGain {
                    signature: 0xab,
                    migrated: 19,
                    before: of(7, 0),
                    after: of(8, 4),
                }],
                stopped: 20,
            },
            counters: Some("one"),
            uncounted: vec![("two", SamplingError::NoHardware)],
            unarmed: Some(SamplingError::NoCall),
            faults_lost: 21,
            bind_requests_refused: 22,
            agent: Duration::from_nanos(23),
            ran: Duration::from_nanos(24),
            calibration: Some("unreadable".to_owned()),
            machine_moves: Some(PageMoves {
                all: 31,
                balancing: 30,
            }),
            ..MemoryReport::default()
        };
        let of = |samples, local_share| json!({ "samples": samples, "local_share": local_share });
        let mut expected = json!({
            "regions": 1,
            "regions_mapped": 25,
            "processes_own": 26,
            "far": 2,
            "near": 3,
            "known": 4,
            "plain": 12,
            "unfollowed": 5,
            "faults": 6,
            "faults_lost": 21,
            "records_damaged": 0,
            "pages_away": 7,
            "ranges_bound": 8,
            "ranges_refused": 9,
            "pages_moved": 10,
            "pages_refused": 11,
            "bind_requests_refused": 22,
            "shared_left": 0,
            "unwatched": null,
            "counters": "one",
            "no_counters": [{
                "counters": "two",
                "why_not": SamplingError::NoHardware.to_string(),
            }],
            "regions_counted": 13,
            "regions_applied": 14,
            "regions_own": 15,
            "sampled": of(0, None),
            "paused_ns": 27,
            "unarmed": 16,
            "unarmed_why": SamplingError::NoCall.to_string(),
            "judged": 17,
            "pages_migrated": 18,
            "before": of(5, Some(0.25)),
            "after": of(6, Some(0.75)),
            "gains": [{
                "site": "0xab",
                "pages_migrated": 19,
                "before": of(7, Some(0.0)),
                "after": of(8, Some(1.0)),
            }],
            "processes_left_alone": 20,
            "agent_ns": 23,
            "ran_ns": 24,
            "calibration_why": "unreadable",
        });
        let more = json!({
            "sampled_by_kind": { "heap": 28 },
            "sampled_outside": 29,
            "huge_pages_moved": 32,
            "iterations": { "count": 0, "mean_ns": 0, "constructs": 0, "told": false },
            "machine_pages_moved": 31,
            "balancing_pages_moved": 30,
        });
        let (expected_object, more) = (expected.as_object_mut(), more.as_object());
        expected_object.unwrap().extend(more.unwrap().clone());
        assert_eq!(report.to_json(), expected);
    }
}
