//! `hither run --place-files`: pages of files on the nodes that a policy says, as the program reads
//! them in, or where they are read.

use std::process::ExitCode;

use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_core::registry::Mechanism;
use hither_live::Error;
use hither_live::file_pages::{self, FilePagesOptions, Ran};
use hither_live::following::{Followed, FollowingOptions, Runner};
use hither_live::pages::calibration;

use super::{Run, note_agent, started};
use crate::exit::{self, Usage};
use crate::format::{counted, duration_ns, percent};
use crate::preload;
use crate::ui::Ui;

/// What the policy does with pages of files.
pub(super) enum Way {
    /// As they come in: on the one node, or on all in turn. Pages are placed in the program, which
    /// asks nobody, so such a policy looks at nothing but what is read.
    Placed(Option<u32>),
    /// They follow their readers.
    Following(Box<Spec<PlacementEntry>>),
}

/// What the options ask for.
pub(super) fn way(run: &Run, text: &str) -> Result<Way, Usage> {
    let way = named(text)?;
    let watched = [
        ("--dry-run", run.dry_run),
        ("--log", run.log.is_some()),
        ("--metrics", run.metrics.is_some()),
    ];
    match (&way, watched.iter().find(|(_, given)| *given)) {
        (Way::Placed(_), Some((option, _))) => Err(Usage(format!(
            "{option}: with --place-files {text} the program itself places pages as it reads, and there is nothing to watch; there is with upm"
        ))),
        _ => Ok(way),
    }
}

fn named(text: &str) -> Result<Way, Usage> {
    let spec: Spec<PlacementEntry> = text
        .parse()
        .map_err(|error| Usage(format!("--place-files {text}: {error}")))?;
    match spec.entry().name {
        "round-robin" => Ok(Way::Placed(None)),
        "single-node" => Ok(Way::Placed(Some(spec.values().count(0) as u32))),
        _ if spec.is_made_of_another() && spec.entry().runs(Mechanism::FilePlacement) => {
            Ok(Way::Following(Box::new(spec)))
        }
        "first-touch" => Err(Usage(
            "--place-files first-touch: that is what the kernel does anyway".to_owned(),
        )),
        name => Err(Usage(format!(
            "--place-files {name}: round-robin and single-node say where pages of files come into memory, upm moves them to where they are read"
        ))),
    }
}

/// Runs the program.
pub(super) fn run(run: &Run, way: Way, ui: &Ui) -> anyhow::Result<ExitCode> {
    match way {
        Way::Placed(node) => placed(run, node, ui),
        Way::Following(policy) => following(run, *policy, ui),
    }
}

fn placed(run: &Run, node: Option<u32>, ui: &Ui) -> anyhow::Result<ExitCode> {
    let options = FilePagesOptions {
        command: run.command.clone(),
        preload: preload::library()?,
        node,
    };
    let ran = match file_pages::run(&options) {
        Err(error @ Error::NoNode { .. }) => {
            return Err(Usage(format!("--place-files: {error}")).into());
        }
        ran => started(ran)?,
    };
    match run.json {
        true => eprintln!("{}", ran.to_json()),
        false => report_placed(&ran, ui),
    }
    Ok(exit::pass_on(ran.exit))
}

fn following(run: &Run, policy: Spec<PlacementEntry>, ui: &Ui) -> anyhow::Result<ExitCode> {
    let options = FollowingOptions {
        run: run.options(preload::library()?),
        policy,
        cache: calibration::place(),
    };
    run.note_one_node(ui);
    let ran = started(Runner::new(options).run())?;
    let Some(followed) = ran.followed else {
        run.ran_on_one_node();
        return Ok(exit::pass_on(ran.exit));
    };
    match run.json {
        true => eprintln!("{}", followed.to_json()),
        false => report_followed(&followed, run.dry_run, ui),
    }
    Ok(exit::pass_on(ran.exit))
}

/// What came of it, in a few lines.
fn report_followed(followed: &Followed, dry_run: bool, ui: &Ui) {
    let summary = &followed.summary;
    let local = summary.local as f64 / summary.accesses.max(1) as f64;
    let local = match summary.accesses {
        0 => "none of them read often enough to ask where its pages are".to_owned(),
        _ => format!("{} of what was read again was local", percent(local)),
    };
    ui.note(format_args!("{}: {local}", counted(summary.files, "file")));
    match dry_run {
        true => ui.note(format_args!(
            "a dry run: {} would have been moved",
            counted(summary.wanted, "block")
        )),
        false => ui.note(format_args!(
            "{} moved to where they are read, in {}",
            counted(summary.moved, "page"),
            duration_ns(summary.took_ns as f64)
        )),
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
    note_agent(followed.agent, followed.ran, ui);
    let lost = followed.lost.events + followed.lost.no_ring + followed.lost.nested;
    if lost > 0 {
        ui.note(format_args!(
            "missed {} for which there was no room",
            counted(lost, "access")
        ));
    }
    if let Some(error) = &followed.log {
        ui.note(format_args!("the log is not whole: {error}"));
    }
}

/// What came of it, in a line or two.
fn report_placed(ran: &Ran, ui: &Ui) {
    if ran.one_node {
        return ui.note("one memory node: pages of files have nowhere else to go");
    }
    let nodes: Vec<String> = ran.nodes.iter().map(u32::to_string).collect();
    let nodes = match &nodes[..] {
        [one] => format!("node {one}"),
        _ => format!("nodes {} in turn", nodes.join(", ")),
    };
    ui.note(format_args!(
        "pages of files went to {nodes} in {} that might bring some in",
        counted(ran.reads.placed, "read")
    ));
    if ran.reads.left > 0 {
        ui.note(format_args!(
            "left alone {} of threads with a memory policy of their own",
            counted(ran.reads.left, "read")
        ));
    }
}
