//! What a run of the mechanism comes to, for the command, the log and the status.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hither_core::site_profile::SiteProfile;
use hither_kernel::page_cache::{OpenError, PageCacheError};
use hither_session::session::Lost;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::super::controller::{PageCacheSummary, ReadStats, SiteStats};
use super::mapped::MappedError;
use crate::error::Error;
use crate::status::to_report;

/// A file, and how much of it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileStats {
    /// The path where it was last found.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// How much of it was read.
    #[serde(flatten)]
    pub tally: ReadStats,
}

fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct PageCacheReport {
    /// The controller's figures.
    pub summary: PageCacheSummary,
    /// Profiles of call sites at the end.
    pub sites: Vec<SiteProfile>,
    /// The files with the most bytes read, in descending order.
    pub busiest_files: Vec<FileStats>,
    /// The call sites with the most bytes read, in descending order.
    pub busiest_sites: Vec<SiteStats>,
    /// Bytes read from storage by the program and its descendants that were waited for; this
    /// includes other children of this process that were waited for meanwhile.
    pub storage_bytes: u64,
    /// Drops that the kernel carried out.
    pub dropped: u64,
    /// The time that these took.
    pub drop_time: Duration,
    /// Drops that the kernel refused.
    pub refused: u64,
    /// Why it refused the last one.
    pub why_refused: Option<PageCacheError>,
    /// Why the last file that could not be opened could not be.
    pub why_unreachable: Option<OpenError>,
    /// Why mapped files were left alone that could have been steered.
    pub why_mapped: Option<MappedError>,
    /// Why the kernel did not say what is cached. Without that, pages of other programs are not
    /// told from the program's.
    pub unseen: Option<PageCacheError>,
    /// Files of which the kernel does not say what is cached, and which a limit so leaves alone.
    pub unknown_files: u64,
    /// Bytes beyond the limit that the kernel had not dropped when the run ended.
    pub left_bytes: u64,
    /// Descriptors that were found to be read at random and whose readahead was disabled; each time
    /// counts.
    pub readahead_disabled: u64,
    /// Accesses that were not recorded.
    pub lost: Lost,
    /// CPU time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is incomplete.
    pub log: Option<Error>,
}

/// The figures of a run that do not depend on its timing: the last line of its log.
#[derive(Serialize)]
pub(super) struct PageCacheFigures<'a> {
    #[serde(flatten)]
    summary: PageCacheSummary,
    mapped_why: Option<String>,
    unreachable_why: Option<String>,
    drops_refused: u64,
    refused_why: Option<String>,
    unseen_why: Option<String>,
    files_unknown: u64,
    left_bytes: u64,
    busiest_files: &'a [FileStats],
    busiest_sites: &'a [SiteStats],
    readahead_disabled: u64,
    accesses_lost: u64,
    records_damaged: u64,
}

impl PageCacheReport {
    pub(super) fn figures(&self) -> PageCacheFigures<'_> {
        PageCacheFigures {
            summary: self.summary,
            mapped_why: self.why_mapped.map(|why| why.to_string()),
            unreachable_why: self.why_unreachable.map(|why| why.to_string()),
            drops_refused: self.refused,
            refused_why: self.why_refused.map(|why| why.to_string()),
            unseen_why: self.unseen.map(|why| why.to_string()),
            files_unknown: self.unknown_files,
            left_bytes: self.left_bytes,
            busiest_files: &self.busiest_files,
            busiest_sites: &self.busiest_sites,
            readahead_disabled: self.readahead_disabled,
            accesses_lost: self.lost.unrecorded(),
            records_damaged: self.lost.damaged,
        }
    }

    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        #[derive(Serialize)]
        struct TimedFigures<'a> {
            #[serde(flatten)]
            figures: PageCacheFigures<'a>,
            storage_bytes: u64,
            drop_ns: u64,
        }
        let figures = TimedFigures {
            figures: self.figures(),
            storage_bytes: self.storage_bytes,
            drop_ns: self.drop_time.as_nanos() as u64,
        };
        to_report(&figures, self.agent, self.ran)
    }
}

#[cfg(test)]
mod tests {
    use hither_core::classify::Class;
    use hither_core::replacement::ClassCounts;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_these_keys() {
        let tally = ReadStats {
            referenced_bytes: 1,
            missed_bytes: 2,
            lru_missed_bytes: 3,
        };
        let report = PageCacheReport {
            summary: PageCacheSummary {
                files: 1,
                mapped: 2,
                watched: 25,
                unreachable: 3,
                budget_bytes: 4,
                limit_bytes: Some(26),
                references: 5,
                missed_bytes: 6,
                lru_missed_bytes: 7,
                evicted_bytes: 8,
                drops: 9,
                dropped_bytes: 10,
                preexisting_bytes: 11,
                shared_bytes: 29,
                absent_bytes: 12,
                steered_read_bytes: 22,
                reported: true,
                judged: 13,
                stopped: 14,
                lost: 24,
                steering: true,
                classes: Some(ClassCounts {
                    sequential: 1,
                    looping: 2,
                    other: 3,
                }),
                evicted_by_class: None,
            },
            busiest_files: vec![FileStats {
                path: PathBuf::from("/a"),
                tally,
            }],
            busiest_sites: vec![SiteStats {
                signature: 0xab,
                class: Some(Class::Looping),
                tally,
            }],
            storage_bytes: 15,
            dropped: 16,
            drop_time: Duration::from_nanos(17),
            refused: 18,
            unknown_files: 27,
            left_bytes: 28,
            readahead_disabled: 19,
            lost: Lost {
                events: 1,
                no_ring: 2,
                nested: 3,
                damaged: 4,
                ..Lost::default()
            },
            agent: Duration::from_nanos(20),
            ran: Duration::from_nanos(21),
            ..PageCacheReport::default()
        };
        let expected = json!({
            "files": 1,
            "files_mapped": 2,
            "files_watched": 25,
            "mapped_why": null,
            "files_unreachable": 3,
            "unreachable_why": null,
            "budget_bytes": 4,
            "limit_bytes": 26,
            "references": 5,
            "missed_bytes": 6,
            "lru_missed_bytes": 7,
            "evicted_bytes": 8,
            "evicted_by_class_bytes": null,
            "drops": 9,
            "drops_refused": 18,
            "refused_why": null,
            "dropped_bytes": 10,
            "preexisting_bytes": 11,
            "shared_bytes": 29,
            "unseen_why": null,
            "files_unknown": 27,
            "left_bytes": 28,
            "absent_bytes": 12,
            "steered_read_bytes": 22,
            "reported": true,
            "windows_judged": 13,
            "times_stopped": 14,
            "times_lost": 24,
            "steering": true,
            "classes": { "sequential": 1, "looping": 2, "other": 3 },
            "busiest_files": [{
                "path": "/a",
                "referenced_bytes": 1,
                "missed_bytes": 2,
                "lru_missed_bytes": 3,
            }],
            "busiest_sites": [{
                "site": "0xab",
                "class": "looping",
                "referenced_bytes": 1,
                "missed_bytes": 2,
                "lru_missed_bytes": 3,
            }],
            "readahead_disabled": 19,
            "accesses_lost": 6,
            "records_damaged": 4,
            "storage_bytes": 15,
            "drop_ns": 17,
            "agent_ns": 20,
            "ran_ns": 21,
        });
        assert_eq!(report.to_json(), expected);
    }
}
