//! `hither completions`: the script by which a shell completes commands and options. It is hidden, as
//! `hither man` is: packages call it, and the help has to fit on a screen.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use super::subcommand::Subcommand;
use crate::ui::{self, Ui};

/// Print the script by which a shell completes commands and options
#[derive(Args, Debug)]
#[command(
    hide = true,
    after_help = "\
The packages install these scripts already.

Examples:
  source <(hither completions bash)                      in this shell of bash
  hither completions fish > ~/.config/fish/completions/hither.fish
  hither completions zsh > ~/.zfunc/_hither              in a folder of $fpath"
)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Subcommand for Completions {
    const NAME: &'static str = "completions";

    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::parser(), "hither", &mut script);
        ui::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
