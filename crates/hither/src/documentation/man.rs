//! `hither man`: the manual, one page for each command. Hidden commands have none.
//!
//! `clap_mangen` renders all but what stands after the options: it would fill the lines of examples
//! into one paragraph.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::roff::{Roff, roman};
use hither_analysis::file::write_whole;

/// Write the manual, a page for each command
#[derive(Args, Debug)]
#[command(
    hide = true,
    after_help = "\
The packages install these pages already.

Examples:
  hither man pages && man -l pages/hither-run.1    read one here
  hither man ~/.local/share/man/man1               for `man hither`"
)]
pub(super) struct Man {
    /// The folder for the pages, which is made if there is none
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(super) fn write(self, parser: Command) -> anyhow::Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let mut parser = parser.disable_help_subcommand(true);
        parser.build();
        write_pages(&parser, &self.folder)
    }
}

/// Writes the page of a command and those of the commands below it.
fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let below = command.get_subcommands();
    for command in below.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        write_pages(command, folder)?;
    }
    let (name, page) = page(command)?;
    write_whole(&folder.join(name), &page)?;
    Ok(())
}

/// The name of the file of a command's page, and its text.
fn page(command: &Command) -> std::io::Result<(String, Vec<u8>)> {
    let source = concat!("hither ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone())
        .source(source)
        .manual("hither");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    if let Some(after) = after {
        after_options(&after.to_string()).to_writer(&mut page)?;
    }
    if command.get_name() != "hither" {
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman("hither(1)")]);
        roff.to_writer(&mut page)?;
    }
    Ok((man.get_filename(), page))
}

/// What stands after the options: lines that are indented stay lines, others are filled.
fn after_options(text: &str) -> Roff {
    let mut roff = Roff::new();
    let (mut headed, mut keeps_lines) = (false, false);
    for line in text.lines() {
        let heading = line
            .strip_suffix(':')
            .filter(|heading| heading.chars().all(char::is_alphabetic));
        let keep = line.starts_with(' ') && heading.is_none();
        if keeps_lines && !keep {
            roff.control("fi", []);
        }
        if let Some(heading) = heading {
            roff.control("SH", [heading.to_uppercase().as_str()]);
        } else if !headed {
            roff.control("SH", ["NOTES"]);
        }
        if keep && !keeps_lines {
            roff.control("nf", []);
        }
        (headed, keeps_lines) = (true, keep);
        if line.is_empty() {
            roff.control("PP", []);
        } else if heading.is_none() {
            roff.text([roman(line)]);
        }
    }
    if keeps_lines {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines_and_paragraphs_do_not() {
        let text = "One\nparagraph.\n\nExamples:\n  hither a   first\n  hither b   second";
        let page = after_options(text).to_roff();
        let lines: Vec<&str> = page.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                ".SH NOTES",
                "One",
                "paragraph.",
                ".PP",
                ".SH EXAMPLES",
                ".nf",
                "  hither a   first",
                "  hither b   second",
                ".fi"
            ]
        );
    }
}
