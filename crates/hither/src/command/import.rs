//! `hither import`: converts a trace of another tool to a trace folder.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use hither_analysis::format::counted;
use hither_trace::{Export, LoadOptions, format};

use super::options::columns::ColumnsArgs;
use super::options::trace_output::{DEFAULT_OUTPUT, goes_to_stdout, hint};
use super::options::{MemoryLimitArgs, block_bytes, format_name, open};
use super::subcommand::Subcommand;
use crate::interrupt;
use crate::ui::Ui;

/// Convert a trace in another format to a trace folder
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = help())]
pub(super) struct Import {
    /// The trace, plain or packed with bzip2, gzip, xz, zstd or tar; - is standard input
    ///
    /// Of an archive of several files, ARCHIVE:FILE names one.
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Format of the trace [default: by its content]
    #[arg(long, value_name = "NAME", value_parser = format_name, conflicts_with = "columns")]
    format: Option<String>,

    #[command(flatten)]
    columns: ColumnsArgs,

    /// Size of a block: a key is one block, an address is divided by it
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = block_bytes)]
    block: u32,

    #[command(flatten)]
    memory: MemoryLimitArgs,

    /// The trace folder to write
    #[arg(long, short, value_name = "DIR", default_value = DEFAULT_OUTPUT)]
    output: PathBuf,

    /// Replace an existing trace folder
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    hither import OLTP.lis.zst -o oltp.hither\n  \
    hither import --format u32be web07.trace.xz -o web07.hither\n  \
    hither import --columns key=3,time=1 --no-header cdn.csv -o cdn.hither\n  \
    strace -f -k -o make.log make; hither import make.log -o make.hither\n  \
    ssh server zstdcat block.csv.zst | hither import - --format msr\n\n\
    sim, stat and advise also read these formats as they are.";

/// The long help: the registry and the examples.
fn help() -> String {
    let mut text = "Formats (* has to be named, since the content does not show it):\n".to_owned();
    for format in format::FORMATS {
        let mark = if format.is_recognised() { " " } else { "*" };
        text += &format!("  {:<16}{mark} {}\n", format.name, format.doc);
    }
    text += "Delimited text of any columns is read with --columns.\n";
    text + "\n" + EXAMPLES
}

impl Subcommand for Import {
    const NAME: &'static str = "import";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        goes_to_stdout(&self.output, Export::find("hither")?)?;
        interrupt::remove_partial_on_interrupt(&self.output)?;
        let (input, bar) = open(&self.trace, "importing", ui)?;
        let options = LoadOptions {
            block_bytes: self.block,
            memory_bytes: self.memory.bytes(),
            ..LoadOptions::default()
        };
        let format = self.columns.format_or(self.format.as_deref());
        let imported =
            hither_trace::import(input, format.as_deref(), &options, &self.output, self.force)
                .map_err(|error| anyhow!("{error}{}", hint(&error)))?;
        bar.finish_and_clear();
        ui.note(format_args!(
            "{} of {} in {}",
            counted(imported.rows, "row"),
            imported.format,
            self.output.display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}
