//! `hither export`: writes a trace for other tools.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use hither_analysis::format::counted;
use hither_trace::{EXPORTS, Export as Target};

use super::options::columns::ColumnsArgs;
use super::options::trace_output::{goes_to_stdout, hint, named, target_name};
use super::options::{ExpandArgs, format_name};
use super::subcommand::Subcommand;
use crate::interrupt;
use crate::ui::Ui;

/// Write a trace for other tools, such as libCacheSim
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = help())]
pub(super) struct Export {
    /// The trace, in any format that can be read
    trace: PathBuf,

    /// Format to write
    #[arg(long, value_name = "NAME", default_value = "hither", value_parser = target_name)]
    format: String,

    /// Format of the trace that is read [default: by its content]
    #[arg(long, value_name = "NAME", value_parser = format_name, conflicts_with = "columns")]
    from: Option<String>,

    #[command(flatten)]
    columns: ColumnsArgs,

    #[command(flatten)]
    expanding: ExpandArgs,

    /// The file or folder to write; - is standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Replace an existing file or folder
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    hither export build.hither --format oracle-general -o build.oracleGeneral\n  \
    hither export build.hither --format csv -o - | zstd > build.csv.zst\n  \
    hither export --from u32be web07.trace.xz -o web07.hither";

/// The long help: the registry and the examples.
fn help() -> String {
    let mut text = "Formats:\n".to_owned();
    for export in EXPORTS {
        text += &format!("  {:<15} {}\n", export.name, export.doc);
    }
    text + "\n" + EXAMPLES
}

impl Subcommand for Export {
    const NAME: &'static str = "export";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let target = Target::find(&self.format)?;
        let to_stdout = goes_to_stdout(&self.output, target)?;
        if !to_stdout {
            interrupt::remove_partial_on_interrupt(&self.output)?;
        }
        let from = self.columns.format_or(self.from.as_deref());
        let trace = self
            .expanding
            .load(&self.trace, from.as_deref(), target.is_stream(), ui)?;
        if trace.says_sizes() && !target.is_stream() {
            ui.note(format_args!(
                "{}: a trace folder has blocks, so sizes of objects are left out",
                self.trace.display()
            ));
        }
        let references = trace.references() as u64;
        let bar = ui.bar("exporting", references);
        let progress = |done| bar.set_position(done);
        if to_stdout {
            target
                .write_stream(&trace, io::stdout().lock(), progress)
                .map_err(named)?;
        } else {
            target
                .write(&trace, &self.output, self.force, progress)
                .map_err(|error| anyhow!("{error}{}", hint(&error)))?;
        }
        bar.finish_and_clear();
        ui.note(format_args!(
            "{} in {}",
            counted(references, "reference"),
            self.output.display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}
