//! The commands: one file each, and one line each in [`COMMANDS`].

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::ui::Ui;

mod advise;
mod export;
mod r#gen;
mod import;
pub(crate) mod options;
mod policies;
mod record;
mod report;
mod run;
mod sim;
mod stat;
mod sweep;
mod top;
mod topo;

/// What a command is: its arguments, parsed by clap, and what it does with them.
trait Subcommand: Args + FromArgMatches {
    /// The word that selects it.
    const NAME: &'static str;
    /// Does the work. The exit code is 0 but for commands that pass on another program's.
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode>;
}

/// A row of the registry of commands.
pub(crate) struct Entry {
    /// The word that selects the command.
    pub(crate) name: &'static str,
    define: fn(Command) -> Command,
    run: fn(&ArgMatches, &Ui) -> anyhow::Result<ExitCode>,
}

const fn entry<C: Subcommand>() -> Entry {
    Entry {
        name: C::NAME,
        define: C::augment_args,
        run: |matches, ui| C::from_arg_matches(matches)?.run(ui),
    }
}

/// Every command, sorted by name.
pub(crate) const COMMANDS: &[Entry] = &[
    entry::<advise::Advise>(),
    entry::<export::Export>(),
    entry::<r#gen::Gen>(),
    entry::<import::Import>(),
    entry::<policies::Policies>(),
    entry::<record::Record>(),
    entry::<report::Report>(),
    entry::<run::Run>(),
    entry::<sim::Sim>(),
    entry::<stat::Stat>(),
    entry::<sweep::Sweeping>(),
    entry::<top::Top>(),
    entry::<topo::Topo>(),
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
