//! `hither run --place-files`: pages of files on the nodes that a policy says, as the program reads them in.

use std::process::ExitCode;

use hither_core::Spec;
use hither_core::placement::Entry;
use hither_live::Error;
use hither_live::file_pages::{self, FilePagesOptions, Ran};

use super::{Run, started};
use crate::exit::{self, Usage};
use crate::format::counted;
use crate::preload;
use crate::ui::Ui;

/// The one node that the policy names, or none: all in turn.
///
/// Pages are placed in the program, which asks nobody, so the policy must be one that looks at nothing but what is read.
fn node(text: &str) -> Result<Option<u32>, Usage> {
    let spec: Spec<Entry> = text
        .parse()
        .map_err(|error| Usage(format!("--place-files {text}: {error}")))?;
    match spec.entry().name {
        "round-robin" => Ok(None),
        "single-node" => Ok(Some(spec.values().count(0) as u32)),
        "first-touch" => Err(Usage(
            "--place-files first-touch: that is what the kernel does anyway".to_owned(),
        )),
        name => Err(Usage(format!(
            "--place-files {name}: it does not say where pages come into memory; round-robin and single-node do"
        ))),
    }
}

/// Runs the program.
pub(super) fn run(run: &Run, text: &str, ui: &Ui) -> anyhow::Result<ExitCode> {
    let options = FilePagesOptions {
        command: run.command.clone(),
        preload: preload::library()?,
        node: node(text)?,
    };
    let ran = match file_pages::run(&options) {
        Err(error @ Error::NoNode { .. }) => {
            return Err(Usage(format!("--place-files {text}: {error}")).into());
        }
        ran => started(ran)?,
    };
    match run.json {
        true => eprintln!("{}", ran.to_json()),
        false => report(&ran, ui),
    }
    Ok(exit::pass_on(ran.exit))
}

/// What came of it, in a line or two.
fn report(ran: &Ran, ui: &Ui) {
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
