//! `hither man` and `hither completions`: what is made of the parser. They stand apart from the
//! other commands, which the parser is made of. They are hidden: packages call them, and the help
//! has to fit on a screen.

use clap::{ArgMatches, Args, Command, FromArgMatches};

mod completions;
mod man;

use completions::Completions;
use man::Man;

/// Adds both to the parser.
pub(crate) fn define(parser: Command) -> Command {
    parser
        .subcommand(Completions::augment_args(Command::new("completions")))
        .subcommand(Man::augment_args(Command::new("man")))
}

/// Runs one of them on what `parser` makes, if it is meant.
pub(crate) fn run(matches: &ArgMatches, parser: fn() -> Command) -> Option<anyhow::Result<()>> {
    let (name, matches) = matches.subcommand()?;
    match name {
        "completions" => Some(of(matches, |one: Completions| one.print(parser()))),
        "man" => Some(of(matches, |one: Man| one.write(parser()))),
        _ => None,
    }
}

fn of<C: FromArgMatches>(
    matches: &ArgMatches,
    run: impl FnOnce(C) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    run(C::from_arg_matches(matches)?)
}
