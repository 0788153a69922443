//! Arguments that several commands take.

pub(super) mod columns;
pub(super) mod curves;
#[cfg(feature = "cluster")]
pub(super) mod log;
pub(super) mod parameters;
pub(super) mod picture;
pub(super) mod placement;
pub(super) mod recording;
pub(super) mod running;
pub(super) mod trace_output;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use hither_analysis::free_memory::half_of_free_bytes;
use hither_analysis::load_options::normalized;
pub(super) use hither_analysis::load_options::{block_bytes, format_name};
use hither_analysis::simulate::{refuse_bytes, sizes};
use hither_core::Spec;
use hither_sim::{CacheSize, Size};
use hither_trace::{Input, LoadOptions, Location, Sample, Trace};
use indicatif::ProgressBar;

use self::columns::ColumnsArgs;
use crate::ui::Ui;

/// The headings of these options in the help.
pub(super) mod heading {
    /// The options about simulated caches.
    pub(crate) const CACHES: &str = "Caches";
    /// The options about placements.
    pub(crate) const NODES: &str = "Nodes";
    /// The options about results.
    pub(crate) const OUTPUT: &str = "Output";
    /// The options about reading a trace.
    pub(crate) const READING: &str = "Reading the trace";
    /// The options about recording a program.
    pub(crate) const RECORDING: &str = "Recording";
    /// The options about what is recorded without being started.
    pub(crate) const RUNNING: &str = "Programs that run already";
}

/// How a trace is read.
#[derive(Args, Debug)]
pub(super) struct LoadArgs {
    /// Format of the trace [default: by its content]
    #[arg(long, value_name = "NAME", value_parser = format_name, conflicts_with = "columns")]
    format: Option<String>,

    #[command(flatten)]
    columns: ColumnsArgs,

    #[command(flatten)]
    expanding: ExpandArgs,
}

/// The options that decide how requests become references.
#[derive(Args, Debug)]
pub(super) struct ExpandArgs {
    /// Block size, as 4096 or 64KiB
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = block_bytes)]
    block: u32,

    /// Count a block again if a request begins in the block where the thread's last one ended
    #[arg(long, hide_short_help = true)]
    keep_repeats: bool,

    /// Leave out transfers inside the kernel (sendfile, copy_file_range, splice)
    #[arg(long, hide_short_help = true)]
    no_in_kernel: bool,

    /// Count the mapping of a file range as one read of the range
    ///
    /// Later accesses through the mapping are not in the trace.
    #[arg(long, hide_short_help = true)]
    maps: bool,

    #[command(flatten)]
    memory: MemoryLimitArgs,
}

/// The option that limits the memory of a trace.
#[derive(Args, Debug)]
pub(super) struct MemoryLimitArgs {
    /// Keep at most BYTES of the trace in memory [default: half of the free memory]
    ///
    /// The rest goes to a temporary file in TMPDIR or /var/tmp. No result depends on it.
    #[arg(long, value_name = "BYTES", value_parser = memory_bytes, hide_short_help = true)]
    memory: Option<u64>,
}

impl MemoryLimitArgs {
    /// The limit: the given one, or half of the free memory.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.unwrap_or_else(half_of_free_bytes)
    }
}

fn memory_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => Ok(bytes),
        Size::Percent(_) => Err("memory is given in bytes, such as 2GiB".to_owned()),
    }
}

/// Opens a trace, with a progress bar for reading it. `-` is standard input.
pub(super) fn open(
    path: &Path,
    what: &'static str,
    ui: &Ui,
) -> anyhow::Result<(Input<'static>, ProgressBar)> {
    if path == Path::new("-") {
        let input = Input::new("(standard input)", io::stdin())?;
        return Ok((input, ui.spinner(what)));
    }
    // A folder has no position to show, and a pipe or a device has no length.
    let file = Location::of(path).file;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => {
            let file = File::open(file).with_context(|| path.display().to_string())?;
            let bar = ui.bar(what, metadata.len());
            let input = Input::file(path, bar.wrap_read(file))?;
            Ok((input, bar))
        }
        _ => Ok((Input::open(path)?, ui.spinner(what))),
    }
}

impl LoadArgs {
    /// The format, if one is named, and the options of loading.
    pub(super) fn options(&self, sample: Sample) -> (Option<String>, LoadOptions) {
        (self.format(), self.expanding.options(sample))
    }

    /// The format, if one is named.
    pub(super) fn format(&self) -> Option<String> {
        self.columns.format_or(self.format.as_deref())
    }

    /// Loads the trace at `path`.
    pub(super) fn load(&self, path: &Path, ui: &Ui) -> anyhow::Result<Trace> {
        self.load_with(path, &self.expanding.options(Sample::All), ui)
    }

    /// Loads the trace at `path` with options that [`LoadArgs::options`] made.
    pub(super) fn load_with(
        &self,
        path: &Path,
        options: &LoadOptions,
        ui: &Ui,
    ) -> anyhow::Result<Trace> {
        load(path, self.format().as_deref(), options, ui)
    }
}

impl ExpandArgs {
    fn options(&self, sample: Sample) -> LoadOptions {
        LoadOptions {
            block_bytes: self.block,
            keep_repeats: self.keep_repeats,
            include_in_kernel: !self.no_in_kernel,
            include_maps: self.maps,
            keep_lengths: false,
            keep_sizes: false,
            sample,
            memory_bytes: self.memory.bytes(),
        }
    }

    /// Loads the trace at `path`. Without a format, it is detected from the content. `keep_sizes`:
    /// with the sizes of objects, where the trace has them.
    pub(super) fn load(
        &self,
        path: &Path,
        format: Option<&str>,
        keep_sizes: bool,
        ui: &Ui,
    ) -> anyhow::Result<Trace> {
        let options = LoadOptions {
            keep_sizes,
            ..self.options(Sample::All)
        };
        load(path, format, &options, ui)
    }
}

fn load(
    path: &Path,
    format: Option<&str>,
    options: &LoadOptions,
    ui: &Ui,
) -> anyhow::Result<Trace> {
    let (input, bar) = open(path, "reading the trace", ui)?;
    let trace = Trace::read(input, format, options)?;
    bar.finish_and_clear();
    if let Some(unknown) = trace.meta().more.get("unknown_files") {
        ui.note(format_args!(
            "{}: left out calls on files that it does not name: {unknown}",
            path.display()
        ));
    }
    Ok(trace)
}

/// A list of policies, separated by commas outside of braces.
#[derive(Clone, Debug)]
pub(super) struct Specs(pub(super) Vec<Spec>);

impl std::str::FromStr for Specs {
    type Err = hither_core::spec::SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        <Spec>::parse_list(text).map(Specs)
    }
}

/// The option that samples a trace.
#[derive(Args, Debug)]
pub(super) struct SampleArgs {
    /// Simulate a sample (1%, 100000) and say the error
    ///
    /// It is a share of the blocks, or their number at most. The caches are smaller by the same
    /// factor. This is for traces that would take too long. It is not possible with policies that
    /// use files or call sites. Results that depend on the size of the sample are refused.
    #[arg(
        long,
        value_name = "RATE|BLOCKS",
        default_value = "100%",
        hide_default_value = true
    )]
    sample: Sample,
}

impl SampleArgs {
    pub(super) fn sample(&self) -> Sample {
        normalized(self.sample)
    }
}

/// The options about simulated caches.
#[derive(Args, Debug)]
pub(super) struct CacheArgs {
    /// Policies, as lru or 'pcc{sample=5}' (`hither policies`)
    #[arg(long = "policy", short = 'p', value_name = "P[,P]")]
    policies: Vec<Specs>,

    /// Sizes: 64MiB, 512 (blocks) or 10% (of all blocks)
    #[arg(
        long = "size",
        short = 's',
        value_name = "S[,S]",
        value_delimiter = ','
    )]
    sizes: Vec<Size>,
}

/// The option of a profile.
#[derive(Args, Debug)]
pub(super) struct ProfileArgs {
    /// Start from what FILE has about call sites, if it exists, and add what is learnt
    #[arg(id = "profile", long, value_name = "FILE", hide_short_help = true)]
    pub(super) path: Option<PathBuf>,
}

impl CacheArgs {
    /// The policies, or those of `otherwise` if none were named.
    pub(super) fn policies(&self, otherwise: impl FnOnce() -> Vec<Spec>) -> Vec<Spec> {
        let named: Vec<Spec> = self
            .policies
            .iter()
            .flat_map(|list| list.0.iter().copied())
            .collect();
        if named.is_empty() { otherwise() } else { named }
    }

    /// Whether policies were named.
    pub(super) fn names_policies(&self) -> bool {
        !self.policies.is_empty()
    }

    /// The sizes that the user wrote. By default they are five shares of the distinct blocks.
    pub(super) fn sizes(&self, trace: &Trace) -> anyhow::Result<Vec<CacheSize>> {
        refuse_bytes(&self.sizes, trace)?;
        let block_bytes = u64::from(trace.options().block_bytes);
        Ok(sizes(&self.sizes, block_bytes, trace.blocks_of_all())?)
    }

    /// Whether sizes were named.
    pub(super) fn names_sizes(&self) -> bool {
        !self.sizes.is_empty()
    }

    /// The sizes that were named.
    pub(super) fn sizes_as_written(&self) -> &[Size] {
        &self.sizes
    }
}
