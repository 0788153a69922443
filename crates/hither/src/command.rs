//! The commands: one file each, and one line each in [`COMMANDS`].

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use crate::ui::Ui;

mod advise;
mod cache;
mod cluster;
mod demo;
mod doctor;
mod export;
mod r#gen;
mod import;
mod mount;
mod node;
pub(crate) mod options;
mod place;
mod policies;
mod record;
mod recover;
mod report;
mod run;
mod sim;
mod stat;
mod subcommand;
mod sweep;
mod top;
mod topo;
mod unmount;

use subcommand::Subcommand;

/// An entry of the registry of commands.
pub(crate) struct CommandEntry {
    /// The name of the command.
    pub(crate) name: &'static str,
    define: fn(Command) -> Command,
    run: fn(&ArgMatches, &Ui) -> anyhow::Result<ExitCode>,
}

const fn entry<C: Subcommand>() -> CommandEntry {
    CommandEntry {
        name: C::NAME,
        define: C::augment_args,
        run: |matches, ui| C::from_arg_matches(matches)?.run(ui),
    }
}

/// Every command, sorted by name.
pub(crate) const COMMANDS: &[CommandEntry] = &[
    entry::<advise::Advise>(),
    entry::<cache::Cache>(),
    entry::<cluster::Cluster>(),
    entry::<demo::Demo>(),
    entry::<doctor::Doctor>(),
    entry::<export::Export>(),
    entry::<r#gen::Gen>(),
    entry::<import::Import>(),
    entry::<mount::Mount>(),
    entry::<node::NodeCommand>(),
    entry::<place::Place>(),
    entry::<policies::Policies>(),
    entry::<record::Record>(),
    entry::<recover::Recover>(),
    entry::<report::ReportCommand>(),
    entry::<run::Run>(),
    entry::<sim::Sim>(),
    entry::<stat::Stat>(),
    entry::<sweep::SweepCommand>(),
    entry::<top::Top>(),
    entry::<topo::Topo>(),
    entry::<unmount::Unmount>(),
];

/// Adds every command to the parser.
pub(crate) fn define(parser: Command) -> Command {
    COMMANDS.iter().fold(parser, |parser, entry| {
        parser.subcommand((entry.define)(Command::new(entry.name)))
    })
}

/// Runs the command that was parsed.
pub(crate) fn run(matches: &ArgMatches, ui: &Ui) -> anyhow::Result<ExitCode> {
    let (name, matches) = matches.subcommand().expect("the parser requires a command");
    let entry = COMMANDS
        .iter()
        .find(|entry| entry.name == name)
        .expect("the parser knows no other command");
    (entry.run)(matches, ui)
}
