//! The `hither` command: glue between the command line and the libraries.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 fine, 1 failed, 2 bad usage.
//! `record`, `run` and `advise -- CMD` pass on the code of the program that they ran; 126 says that
//! it cannot be executed, and 127 that there is none of that name.
#![forbid(unsafe_code)]
// They panic where stderr cannot be written: `ui` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr))]

mod command;
mod documentation;
mod exit;
mod hints;
mod interrupt;
#[cfg(not(feature = "cluster"))]
mod left_out;
mod output;
mod preload;
mod python_names;
mod this_machine;
mod ui;
#[cfg(feature = "cluster")]
mod work_report;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use clap::error::ContextValue;
use hither_analysis::format::{printable, printable_lines};
use hither_kernel::huge_pages::HugePageAllocator;

const _: () = assert!(
    hither_analysis::advice::STEERABLE_MIN_BYTES == hither_live::page_cache::BUDGET_MIN_BYTES,
    "advice is about caches that a run can steer"
);

#[global_allocator]
static ALLOCATOR: HugePageAllocator = HugePageAllocator;

fn main() -> ExitCode {
    keep_decoder_panics_quiet();
    hither_live::outlive_file_size_limit();
    let matches = match parser().try_get_matches() {
        Ok(matches) => matches,
        Err(mut error) => {
            let words: Vec<OsString> = std::env::args_os().collect();
            hints::add_to(&mut error, &words);
            exit_by(error)
        }
    };
    let ui = ui::Ui::new(matches.get_flag("quiet"));
    let ran = match documentation::run(&matches, parser) {
        Some(written) => written.map(|()| ExitCode::SUCCESS),
        None => command::run(&matches, &ui),
    };
    match ran {
        Ok(code) => code,
        Err(error) => exit::report(&error),
    }
}

/// Ends by an error of the parser, which may show an argument: of `hither stat *`, any name.
fn exit_by(mut error: clap::Error) -> ! {
    // The lines of the message are meant, and those of an argument are not.
    let printed = |value: &ContextValue| match value {
        ContextValue::String(text) => Some(ContextValue::String(printable(text).into_owned())),
        _ => None,
    };
    let shown = error.context();
    let shown: Vec<_> = shown
        .filter_map(|(kind, value)| Some((kind, printed(value)?)))
        .collect();
    for (kind, value) in shown {
        error.insert(kind, value);
    }
    let text = error.render().to_string();
    let shown = printable_lines(&text);
    if shown == text {
        error.exit()
    }
    ui::write_to_stderr(&shown);
    std::process::exit(error.exit_code())
}

/// The Parquet decoder panics on some damaged files. `hither-trace` turns that into an error that
/// names the file; the panic's own message would only frighten.
fn keep_decoder_panics_quiet() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let decoder = |file: &str| file.contains("/parquet-") || file.contains("/bytes-");
        if !panic
            .location()
            .is_some_and(|location| decoder(location.file()))
        {
            print(panic);
        }
    }));
}

const EXAMPLES: &str = "Examples:
  hither demo                          what steering gains, in a minute
  hither advise -- make                record a program and say what would help
  hither record -o make.hither -- make only record it
  hither sim make.hither -p lru,opt    simulate caches on a trace
  hither run -- make                   run a program with what can help";

fn parser() -> Command {
    let quiet = clap::Arg::new("quiet")
        .long("quiet")
        .short('q')
        .global(true)
        .action(clap::ArgAction::SetTrue)
        .help("Print only results and errors: no progress and no notes");
    let commands = |parser| documentation::define(command::define(parser));
    commands(
        Command::new("hither")
            .version(concat!(
                env!("CARGO_PKG_VERSION"),
                " (",
                env!("HITHER_BUILD"),
                ")"
            ))
            .about("Keep data near the code that uses it: record, simulate, advise, run, mount")
            .after_help(EXAMPLES)
            .subcommand_required(true)
            .arg_required_else_help(true)
            .arg(quiet),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_sound() {
        parser().debug_assert();
    }

    #[test]
    fn the_commands_are_sorted_and_each_has_its_file() {
        let names: Vec<&str> = command::COMMANDS.iter().map(|entry| entry.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/command");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                entry
                    .unwrap()
                    .path()
                    .file_stem()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .filter(|name| !["mod", "options", "subcommand"].contains(&name.as_str()))
            .collect();
        files.sort();
        // One of several files has a folder of the same name.
        files.dedup();
        assert_eq!(files, names);
    }
}
