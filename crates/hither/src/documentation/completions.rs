//! `hither completions`: the script by which a shell completes commands and options.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::ui;

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

impl Completions {
    pub(super) fn print(self, mut parser: Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut parser, "hither", &mut script);
        ui::print(&String::from_utf8(script)?)
    }
}
