//! The notes after a run that all mechanisms have in common.

use std::time::Duration;

use hither_analysis::format::{counted, duration_ns, percent};

use crate::ui::Ui;

/// Where notes go, and what they depend on.
pub(super) struct Notes<'a> {
    pub(super) ui: &'a Ui,
    pub(super) dry_run: bool,
    /// Whether several mechanisms were switched on.
    pub(super) is_combined: bool,
}

impl Notes<'_> {
    /// Notes the CPU time of the agent, if it worked for one mechanism alone. With several, the run
    /// notes it once.
    pub(super) fn agent_of_one(&self, took: Duration, ran: Duration) {
        if !self.is_combined {
            self.agent(took, ran);
        }
    }

    /// Notes the CPU time of the agent. For less than a second it is no share of the run, since
    /// start and end dominate it.
    pub(super) fn agent(&self, took: Duration, ran: Duration) {
        let share = match ran.as_secs() {
            0 => String::new(),
            _ => format!(
                ", {} of one CPU",
                percent(took.as_secs_f64() / ran.as_secs_f64())
            ),
        };
        let took = duration_ns(took.as_nanos() as f64);
        self.ui
            .note(format_args!("the agent took {took} of CPU time{share}"));
    }

    /// Notes what the agent missed, and why its log is incomplete, if so.
    pub(super) fn losses(&self, accesses: u64, log: Option<&hither_live::Error>) {
        if accesses > 0 {
            let accesses = counted(accesses, "access");
            self.ui
                .note(format_args!("lost {accesses} for which there was no room"));
        }
        if let Some(error) = log {
            self.ui.note(format_args!("the log is incomplete: {error}"));
        }
    }
}
