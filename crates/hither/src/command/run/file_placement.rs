//! `hither run --file-placement`: places pages of files as the program reads them in, or moves them
//! to the nodes that read them.

use clap::Args;
use hither_analysis::format::{counted, duration_ns, percent};
use hither_analysis::run_plan::RunPlan;
use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_core::registry::Mechanism;
use hither_live::file_placement::{
    FileMigrationReport, FilePlacementOptions, FilePlacementReport, ReadPlacementReport,
};
use hither_live::numa::calibration;
use hither_live::{Mechanisms, RunReport};
use serde_json::Value;

use super::arguments::{KnowledgeArgs, OutputArgs};
use super::notes::Notes;
use super::switch::{Switch, stepped_aside};
use crate::exit::Usage;
use crate::ui::Ui;

/// The switch.
pub(super) const SWITCH: &str = "--file-placement";

/// The policy if none is named.
const DEFAULT_POLICY: &str = "round-robin";

/// The switch.
#[derive(Args, Debug)]
pub(super) struct FilePlacementArgs {
    /// Place file pages [default: round-robin]
    ///
    /// round-robin spreads pages over all nodes as the program reads them in, and
    /// 'single-node{node=1}' puts them on one. Threads with a memory policy of their own are left
    /// alone. upm moves cached pages to the node that reads them.
    #[arg(
        id = "file_placement",
        long = "file-placement",
        value_name = "POLICY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_POLICY
    )]
    policy: Option<String>,
}

impl FilePlacementArgs {
    /// The options of the mechanism, if it is on.
    fn options(&self) -> Result<Option<FilePlacementOptions>, Usage> {
        let policy = self.policy.as_deref().map(policy).transpose()?;
        Ok(policy.map(|policy| FilePlacementOptions {
            policy,
            cache: calibration::cache_folder(),
        }))
    }
}

impl Switch for FilePlacementArgs {
    fn mechanism(&self) -> &'static str {
        "file_placement"
    }

    fn switch(&self) -> &'static str {
        SWITCH
    }

    fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    fn apply_plan(&mut self, plan: &RunPlan, _is_forced: bool) -> Result<(), Usage> {
        self.policy = plan.file_placement.clone();
        Ok(())
    }

    /// --log and --metrics may be for another mechanism. A dry run is not possible where the
    /// program itself places pages.
    fn check(&self, output: &OutputArgs, is_combined: bool) -> Result<(), Usage> {
        let watched = [
            ("--dry-run", output.dry_run),
            ("--log", !is_combined && output.log.is_some()),
            ("--metrics", !is_combined && output.metrics.is_some()),
        ];
        let is_at_read = self.options()?.is_some_and(|options| options.is_at_read());
        let watched = watched.iter().find(|(_, is_given)| *is_given);
        match watched.filter(|_| is_at_read) {
            Some((option, _)) => Err(Usage(format!(
                "{option} with {SWITCH}={}: the program itself places pages as it reads, \
                 so there is nothing to watch; with {SWITCH}=upm there is",
                self.policy.as_deref().unwrap_or_default()
            ))),
            None => Ok(()),
        }
    }

    fn add_to(&self, mechanisms: &mut Mechanisms, _: &KnowledgeArgs) -> anyhow::Result<()> {
        mechanisms.file_placement = self.options()?;
        Ok(())
    }

    fn report(&self, ran: &RunReport, notes: &Notes<'_>) {
        match &ran.file_placement {
            Some(FilePlacementReport::AtRead(report)) => report_placement(report, notes.ui),
            Some(FilePlacementReport::Migration(report)) => report_migration(report, notes),
            None => {}
        }
    }

    fn document(&self, ran: &RunReport) -> Option<Value> {
        let figures = ran
            .file_placement
            .as_ref()
            .map(FilePlacementReport::to_json);
        self.is_on().then(|| figures.unwrap_or_else(stepped_aside))
    }
}

fn policy(text: &str) -> Result<Spec<PlacementEntry>, Usage> {
    let spec: Spec<PlacementEntry> = text
        .parse()
        .map_err(|error| Usage(format!("{SWITCH}={text}: {error}")))?;
    match spec.entry().name {
        "round-robin" | "single-node" => Ok(spec),
        _ if spec.is_made_of_another() && spec.entry().runs(Mechanism::FilePlacement) => Ok(spec),
        "first-touch" => Err(Usage(format!(
            "{SWITCH}=first-touch: that is what the kernel does anyway"
        ))),
        name => Err(Usage(format!(
            "{SWITCH}={name}: it does not place pages of files; round-robin and single-node \
             place them as they come into memory, upm moves them to where they are read"
        ))),
    }
}

/// What came of moving pages, in a few lines.
fn report_migration(followed: &FileMigrationReport, notes: &Notes<'_>) {
    let ui = notes.ui;
    let summary = &followed.summary;
    let local = summary.local as f64 / summary.accesses.max(1) as f64;
    let local = match summary.accesses {
        0 => "none of them read often enough to ask where its pages are".to_owned(),
        _ => format!("{} of what was read again was local", percent(local)),
    };
    ui.note(format_args!("{}: {local}", counted(summary.files, "file")));
    if notes.dry_run {
        ui.note(format_args!(
            "a dry run: {} would have been moved",
            counted(summary.wanted, "block")
        ))
    } else {
        ui.note(format_args!(
            "{} moved to where they are read, in {}",
            counted(summary.moved, "page"),
            duration_ns(summary.took_ns as f64)
        ))
    }
    for (why, pages) in &followed.refused {
        ui.note(format_args!("{} not moved: {why}", counted(*pages, "page")));
    }
    for (why, times) in &followed.left_alone {
        ui.note(format_args!(
            "left alone {}: {why}",
            counted(*times, "time")
        ));
    }
    notes.agent_of_one(followed.agent, followed.ran);
    notes.losses(&followed.lost, followed.log.as_ref());
}

/// What came of placing pages as they were read in, in a line or two.
fn report_placement(ran: &ReadPlacementReport, ui: &Ui) {
    if ran.one_node {
        return ui.note("one memory node: pages of files have nowhere else to go");
    }
    let nodes: Vec<String> = ran.nodes.iter().map(ToString::to_string).collect();
    let nodes = match &nodes[..] {
        [one] => format!("node {one}"),
        _ => format!("nodes {} in turn", nodes.join(", ")),
    };
    ui.note(format_args!(
        "pages of files went to {nodes} in {} that might bring some in",
        counted(ran.reads_placed, "read")
    ));
    if ran.reads_left_alone > 0 {
        ui.note(format_args!(
            "left alone {} of threads with a memory policy of their own",
            counted(ran.reads_left_alone, "read")
        ));
    }
}
