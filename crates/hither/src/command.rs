//! The commands: one file each, and one line each in [`COMMANDS`].

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use crate::ui::Ui;

mod advise;
#[cfg(feature = "cluster")]
mod cache;
#[cfg(feature = "cluster")]
mod cluster;
mod demo;
mod doctor;
mod export;
mod r#gen;
mod import;
#[cfg(feature = "cluster")]
mod mount;
#[cfg(feature = "cluster")]
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
#[cfg(feature = "cluster")]
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

/// A command that this build leaves out: it says so, whatever its arguments.
#[cfg(not(feature = "cluster"))]
const fn left_out(name: &'static str) -> CommandEntry {
    CommandEntry {
        name,
        define: |command| {
            let arguments = clap::Arg::new("arguments").num_args(0..).hide(true);
            let arguments = arguments.trailing_var_arg(true).allow_hyphen_values(true);
            command.about("Not in this build").arg(arguments)
        },
        run: |_, _| anyhow::bail!(crate::left_out::MESSAGE),
    }
}

/// Every command, sorted by name.
pub(crate) const COMMANDS: &[CommandEntry] = &[
    entry::<advise::Advise>(),
    #[cfg(feature = "cluster")]
    entry::<cache::Cache>(),
    #[cfg(not(feature = "cluster"))]
    left_out("cache"),
    #[cfg(feature = "cluster")]
    entry::<cluster::Cluster>(),
    #[cfg(not(feature = "cluster"))]
    left_out("cluster"),
    entry::<demo::Demo>(),
    entry::<doctor::Doctor>(),
    entry::<export::Export>(),
    entry::<r#gen::Gen>(),
    entry::<import::Import>(),
    #[cfg(feature = "cluster")]
    entry::<mount::Mount>(),
    #[cfg(not(feature = "cluster"))]
    left_out("mount"),
    #[cfg(feature = "cluster")]
    entry::<node::NodeCommand>(),
    #[cfg(not(feature = "cluster"))]
    left_out("node"),
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
    #[cfg(feature = "cluster")]
    entry::<unmount::Unmount>(),
    #[cfg(not(feature = "cluster"))]
    left_out("unmount"),
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
