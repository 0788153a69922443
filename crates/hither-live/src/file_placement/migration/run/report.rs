//! What a run of the mechanism comes to, for the command, the log and the status.

use std::collections::BTreeMap;
use std::time::Duration;

use hither_session::session::Lost;
use serde::Serialize;
use serde_json::Value;

use super::super::controller::FileMigrationSummary;
use crate::error::Error;
use crate::status::to_report;

/// What was done about the pages of a program's files.
#[derive(Debug, Default)]
pub struct FileMigrationReport {
    /// What the controller counted.
    pub summary: FileMigrationSummary,
    /// Pages that could not be moved, by reason.
    pub refused: BTreeMap<String, u64>,
    /// How often a file could not be opened or looked up in the page cache, by reason.
    pub left_alone: BTreeMap<String, u64>,
    /// What programs could not report.
    pub lost: Lost,
    /// Processor time of the agent.
    pub agent: Duration,
    /// How long the program ran.
    pub ran: Duration,
    /// Why the log is incomplete.
    pub log: Option<Error>,
}

/// The figures of a run that do not depend on its timing: the last line of its log.
#[derive(Serialize)]
pub(super) struct FileMigrationFigures<'a> {
    #[serde(flatten)]
    summary: FileMigrationSummary,
    file_pages_refused: u64,
    file_pages_refused_why: &'a BTreeMap<String, u64>,
    left_alone_why: &'a BTreeMap<String, u64>,
    accesses_lost: u64,
    records_damaged: u64,
}

impl FileMigrationReport {
    pub(super) fn figures(&self) -> FileMigrationFigures<'_> {
        FileMigrationFigures {
            summary: self.summary,
            file_pages_refused: self.refused.values().sum(),
            file_pages_refused_why: &self.refused,
            left_alone_why: &self.left_alone,
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
        let report = FileMigrationReport {
            summary: FileMigrationSummary {
                files: 1,
                accesses: 2,
                local: 3,
                wanted: 4,
                moved: 5,
                took_ns: 6,
            },
            refused: BTreeMap::from([("busy".to_owned(), 7), ("shared".to_owned(), 1)]),
            left_alone: BTreeMap::from([("gone".to_owned(), 9)]),
            lost: Lost {
                events: 1,
                no_ring: 2,
                nested: 3,
                damaged: 4,
                ..Lost::default()
            },
            agent: Duration::from_nanos(11),
            ran: Duration::from_nanos(12),
            log: None,
        };
        let expected = json!({
            "files": 1,
            "file_accesses": 2,
            "file_local_accesses": 3,
            "file_blocks_wanted": 4,
            "file_pages_moved": 5,
            "file_pages_refused": 8,
            "file_pages_refused_why": { "busy": 7, "shared": 1 },
            "left_alone_why": { "gone": 9 },
            "moving_ns": 6,
            "accesses_lost": 6,
            "records_damaged": 4,
            "agent_ns": 11,
            "ran_ns": 12,
        });
        assert_eq!(report.to_json(), expected);
    }
}
