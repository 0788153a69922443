//! `hither run`: runs a program with its file cache steered, replicas of its files near it, or its
//! memory pages placed, by a policy.

mod files;
mod pages;
mod place_files;
mod replicas;

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgGroup, Args};
use hither_live::observe::unseen;
use hither_live::{RunOptions, has_one_node};
use hither_sim::Size;
use hither_sys::page_sampling;

use super::Subcommand;
use crate::exit::{self, Usage};
use crate::format::{duration_ns, percent};
use crate::metrics;
use crate::plan::Plan;
use crate::ui::Ui;

/// The first way to count that works.
const AUTO: &str = "auto";

/// What is steered by where nothing is said.
const FILES_POLICY: &str = "pcc";

/// What says which blocks have replicas where nothing is said.
const REPLICAS_POLICY: &str = "dual-layer";

/// Where pages of files go where nothing is said.
const PLACE_FILES_POLICY: &str = "round-robin";

/// Run an unmodified program with its file cache steered, its files replicated near it, or its
/// memory placed on nodes
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("what").required(true).multiple(true),
    after_help = "The program's output and exit code pass through unchanged; 1 and 2 are also hither's own, as where there is no such program. \
    Signals of the terminal reach it by themselves; of those to hither alone TERM, HUP, USR1 and USR2 are passed on, INT and QUIT ignored. No page \
    is placed on a machine of one memory node: the program runs as it is, and --log, --sites and --metrics get nothing. With --dry-run \
    --sites is written all the same.\n\n\
    Examples:\n  \
    hither run --files --cache 2GiB -- ./scan data       pcc says what the page cache keeps of its files\n  \
    hither run --files ubm -- make                       ubm, with what the memory cgroup's limit leaves for files\n  \
    hither run --files --cache 2GiB --sites scan.sites -- ./scan data\n                                                       \
    begin with what the last run learnt of its call sites\n  \
    hither run --files --metrics 9464 -- ./scan data     Prometheus finds at localhost:9464/metrics what it does\n  \
    hither run --plan plan.toml -- ./scan data           what `hither advise --save plan.toml` found to help\n  \
    hither run --replicas -- ./server                    what is read from another node's memory is copied near\n  \
    hither run --replicas --replicate all -- ./server    whatever is read again: faster than the kernel on one node, too\n  \
    hither run --place-files -- ./server                 pages of its files on all nodes in turn\n  \
    hither run --place-files upm -- ./server             pages of its files to the node that reads them\n  \
    hither run --pages upm -- ./solver input             pages to where they are used, between iterations\n  \
    hither run --pages cache-aware -- ./solver input     streamed memory far, the rest near\n  \
    hither run --pages cache-aware,upm -- ./solver input both: what is near goes to where it is used\n  \
    hither run --pages upm --dry-run --log pages.jsonl -- ./solver input\n                                                       \
    decide and log, and bind and move nothing\n  \
    hither run --pages upm --sites solver.sites -- ./solver input\n                                                       \
    begin where the last run ended\n  \
    hither run --pages 'cache-aware{limit=0.3}' --region-min 4MiB -- ./solver input"
)]
pub(super) struct Run {
    /// What the page cache keeps of the files that the program reads, with parameters as in
    /// 'pcc{other=arc}'; pcc where no policy is given; `hither policies` says what they mean
    #[arg(long, group = "what", value_name = "POLICY", num_args = 0..=1, default_missing_value = FILES_POLICY)]
    files: Option<String>,

    /// How much of the page cache these files may have; what the program's memory cgroup leaves
    /// where nothing is given, and needed where none has a limit
    #[arg(long, value_name = "SIZE", value_parser = cache_bytes)]
    cache: Option<u64>,

    /// Steer files, too, of which something was cached before the program came to them: other
    /// programs may need that
    #[arg(long)]
    all_files: bool,

    /// Leave the kernel's readahead on where the program reads at random; it brings in what was not
    /// asked for, in place of what the policy keeps
    #[arg(long)]
    keep_readahead: bool,

    /// Copy blocks of files to the nodes that read them from far, and have them read there, as this
    /// policy says; dual-layer where none is given. A writer of a file, whoever it is, waits until
    /// its copies are out of use
    #[arg(long, group = "what", value_name = "POLICY", num_args = 0..=1, default_missing_value = REPLICAS_POLICY)]
    replicas: Option<String>,

    /// What may have replicas: far blocks, or all, since a copy in memory that is mapped is read
    /// faster than the kernel reads
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["files", "pages", "place_files"], default_value = "far", value_parser = ["far", "all"])]
    replicate: String,

    /// The most memory of each node for replicas; an eighth where nothing is given
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["files", "pages", "place_files"], value_parser = replica_bytes)]
    replica_memory: Option<u64>,

    /// Where pages of files go. As the program reads them in, and for good: round-robin, on all
    /// nodes in turn, where nothing is said, or on one, 'single-node{node=1}'; threads with a
    /// memory policy of their own are left alone. Or upm: pages that are cached move to the node
    /// that reads them
    #[arg(long, group = "what", value_name = "POLICY", num_args = 0..=1, default_missing_value = PLACE_FILES_POLICY, conflicts_with_all = ["sites", "apply"])]
    place_files: Option<String>,

    /// Where pages go: upm, cache-aware, or 'cache-aware,upm', with parameters as in
    /// 'cache-aware{limit=0.3}'; `hither policies --placements` says what they mean
    #[arg(long, group = "what", value_name = "POLICY[,POLICY]")]
    pages: Option<String>,

    /// Apply what `hither advise --save` wrote: TOML, `files` with `cache`, `replicas` or `pages`
    /// as the options are
    #[arg(long, group = "what", value_name = "FILE")]
    plan: Option<PathBuf>,

    /// The smallest allocation whose pages are placed
    #[arg(long, value_name = "BYTES", default_value = "1MiB", conflicts_with_all = ["files", "replicas", "place_files"], value_parser = region_min)]
    region_min: u64,

    /// How upm counts accesses; auto takes the first that works, and `hither topo --live` says
    /// which do
    #[arg(long, value_name = "HOW", default_value = AUTO, conflicts_with_all = ["files", "replicas", "place_files"], value_parser = [&[AUTO], &page_sampling::NAMES[..]].concat())]
    counters: String,

    /// Share of the CPUs that counting may take; of more than 16 as of 16
    #[arg(long, value_name = "PERCENT", default_value = "1%", conflicts_with_all = ["files", "replicas", "place_files"], value_parser = permille)]
    cpu_budget: u32,

    /// Decide what to drop, what to copy, or where pages belong, and do none of it. Counting by
    /// write-protect still arms pages: the next write to each faults once
    #[arg(long)]
    dry_run: bool,

    /// Write what was seen and decided to this file, a JSON document a line
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Start from what this file knows of call sites (which read files or allocate memory, and on
    /// which nodes their memory was in the end), and add what is learnt
    #[arg(long, value_name = "FILE", conflicts_with = "replicas")]
    sites: Option<PathBuf>,

    /// Start from such a file, and leave it as it is
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sites", "replicas"])]
    apply: Option<PathBuf>,

    /// Serve what the run does to Prometheus while it runs, at http://ADDR/metrics: an address and
    /// a port, or a port, which is then this machine's own alone; 0 takes one that is free
    #[arg(long, value_name = "ADDR", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,

    /// Say what came of it as one line of JSON on stderr: stdout is the program's
    #[arg(long)]
    json: bool,

    /// The program to run, with its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

fn region_min(text: &str) -> Result<u64, String> {
    let size = text.parse::<Size>();
    match size.map_err(|_| "give a size in bytes, as in 4MiB".to_owned())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) if bytes >= 4096 => Ok(bytes),
        Size::Percent(_) => Err("an allocation has a size in bytes".to_owned()),
        _ => Err("an allocation of less than a page (4KiB) has none to place".to_owned()),
    }
}

/// A part of the CPUs, in thousandths.
fn permille(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    let permille = percent.map_or(f64::NAN, |percent| percent * 10.0);
    match (1.0..=1000.0).contains(&permille) {
        true => Ok(permille.round() as u32),
        false => Err("give a percentage from 0.1% to 100%".to_owned()),
    }
}

fn cache_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) if bytes >= hither_live::page_cache::BUDGET_MIN_BYTES => Ok(bytes),
        Size::Bytes(_) => Err("what is dropped at once is 2MiB: give at least 8MiB".to_owned()),
        _ => Err("give a size in bytes, as in 256MiB".to_owned()),
    }
}

fn replica_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) if bytes >= 1 << 20 => Ok(bytes),
        _ => Err("give a size in bytes, at least 1MiB".to_owned()),
    }
}

impl Subcommand for Run {
    const NAME: &'static str = "run";

    fn run(mut self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.goes_together()?;
        if let Some(path) = self.plan.take() {
            self.apply_plan(&path, ui)?;
        }
        let place_files = self.place_files.as_deref();
        let place_files = place_files.map(|policy| place_files::way(&self, policy));
        let place_files = place_files.transpose()?;
        if let Some(at) = self.metrics {
            let at = metrics::serve(at).with_context(|| format!("--metrics {at}"))?;
            ui.note(format_args!("metrics at http://{at}/metrics"));
        }
        if !self.json {
            self.note_unseen(ui);
        }
        match (&self.files, &self.replicas, place_files, &self.pages) {
            (Some(policy), ..) => files::run(&self, policy, ui),
            (_, Some(policy), ..) => replicas::run(&self, policy, ui),
            (_, _, Some(way), _) => place_files::run(&self, way, ui),
            (.., Some(policy)) => pages::run(&self, policy, ui),
            _ => self.as_it_is(),
        }
    }
}

impl Run {
    /// An error that says why, where two things are asked for that one run does not do.
    fn goes_together(&self) -> Result<(), Usage> {
        let asked = [
            ("--files", self.files.is_some()),
            ("--replicas", self.replicas.is_some()),
            ("--place-files", self.place_files.is_some()),
            ("--pages", self.pages.is_some()),
            ("--plan", self.plan.is_some()),
        ];
        let asked = asked.iter().filter(|(_, is_asked)| *is_asked);
        let asked: Vec<&str> = asked.map(|(name, _)| *name).collect();
        let (first, second, why) = match asked[..] {
            ["--files", "--replicas", ..] => (
                "--files",
                "--replicas",
                "of the reads that copies serve only one in 16 is told of, so what the page cache is to keep could not be judged",
            ),
            [first, "--plan", ..] => (first, "--plan", "the plan says what to do"),
            [first, second, ..] => (first, second, "a run does one of them"),
            [first] if first != "--plan" && self.files.is_none() => match self.of_files() {
                Some(given) => (given, first, "it is for --files"),
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(Usage(format!("{first} with {second}: {why}")))
    }

    /// What is given that has a sense with steered files alone.
    fn of_files(&self) -> Option<&'static str> {
        match self.cache {
            Some(_) => Some("--cache"),
            None if self.all_files => Some("--all-files"),
            None => self.keep_readahead.then_some("--keep-readahead"),
        }
    }

    /// Takes over what a plan says, as if it had been written on the command line; what was is
    /// kept.
    fn apply_plan(&mut self, path: &Path, ui: &Ui) -> anyhow::Result<()> {
        let plan = Plan::load(path)?;
        if plan.is_empty() {
            ui.note(format_args!(
                "{}: nothing to apply: the program runs as it is",
                path.display()
            ));
        }
        let cache = plan.cache.as_deref().map(cache_bytes).transpose();
        let cache = cache.map_err(|why| Usage(format!("{}: cache: {why}", path.display())))?;
        if plan.files.is_none()
            && let Some(given) = self.of_files()
        {
            let message = format!("{}: no `files` for {given}", path.display());
            return Err(Usage(message).into());
        }
        self.cache = self.cache.or(cache);
        (self.files, self.replicas, self.pages) = (plan.files, plan.replicas, plan.pages);
        Ok(())
    }

    /// Runs the program, and nothing else.
    fn as_it_is(&self) -> anyhow::Result<ExitCode> {
        let ended = started(hither_live::run_uninstrumented(&self.command))?;
        Ok(exit::pass_on(ended))
    }

    /// Says so where a program's file shows that it cannot be seen.
    fn note_unseen(&self, ui: &Ui) {
        if let Some(program) = self.command.first()
            && let Some(why) = unseen(program)
        {
            ui.note(format_args!(
                "{} is left as it is, but for programs that it starts: {why}",
                program.display()
            ));
        }
    }

    /// Says so where pages have nowhere to go, before the program starts, which may run for long.
    fn note_one_node(&self, ui: &Ui) {
        if self.json || !has_one_node() {
            return;
        }
        ui.note(match self.dry_run {
            true => "one memory node: pages have nowhere to go; the dry run watches the program all the same",
            false => "one memory node: pages have nowhere to go; the program runs as it is, and nothing is logged, learnt or shown",
        });
    }

    /// What there is to say after that.
    fn ran_on_one_node(&self) {
        if self.json {
            eprintln!("{}", serde_json::json!({ "nodes": 1 }));
        }
    }

    /// What to run, with the library at this path.
    fn options(&self, preload: PathBuf) -> RunOptions {
        RunOptions {
            command: self.command.clone(),
            preload,
            dry_run: self.dry_run,
            log: self.log.clone(),
        }
    }

    /// The file of what is known of call sites. One that is to be written may still be missing, one
    /// that is to be applied may not.
    fn known(&self) -> anyhow::Result<Option<&Path>> {
        if let Some(path) = &self.apply {
            File::open(path).with_context(|| path.display().to_string())?;
        }
        Ok(self.sites.as_deref().or(self.apply.as_deref()))
    }

    /// Keeps what was learnt, if that is wanted. The program has run, so a failure is worth a note
    /// and no more.
    fn keep(&self, save: impl FnOnce(&Path) -> anyhow::Result<()>, ui: &Ui) {
        if let Some(path) = &self.sites
            && let Err(error) = save(path)
        {
            ui.note(format_args!("what was learnt is not kept: {error:#}"));
        }
    }
}

/// What the agent took; of a short run that is its start and end, and no share of anything.
fn note_agent(took: Duration, ran: Duration, ui: &Ui) {
    let share = match ran.as_secs() {
        0 => String::new(),
        _ => format!(
            ", {} of one CPU",
            percent(took.as_secs_f64() / ran.as_secs_f64())
        ),
    };
    let took = duration_ns(took.as_nanos() as f64);
    ui.note(format_args!(
        "the agent took {took} of processor time{share}"
    ));
}

/// What ran, or why it did not: a program that cannot be started is the user's to mend.
fn started<T>(ran: hither_live::Result<T>) -> anyhow::Result<T> {
    ran.map_err(|error| match error.start_status() {
        Some(_) => Usage(error.to_string()).into(),
        None => error.into(),
    })
}
