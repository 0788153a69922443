//! `hither run`: runs a program with its memory pages placed by a policy.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_core::placement::{self, Of};
use hither_core::spec::{Choice, SpecError, Value};
use hither_core::{Spec, placement::Entry};
use hither_live::SessionOptions;
use hither_live::pages::{Pages, PagesOptions, Runner, Tally};
use hither_sim::Size;
use hither_sys::arm;

use super::Subcommand;
use crate::exit::{self, Usage};
use crate::format::{count, counted, percent};
use crate::knowledge::{self, Regions};
use crate::preload;
use crate::ui::Ui;

/// The first way to count that works.
const AUTO: &str = "auto";

/// Run an unmodified program with its memory pages on the right nodes
#[derive(Args, Debug)]
#[command(
    after_help = "The program's output, signals and exit code pass through unchanged. Nothing is placed on a machine of \
    one memory node: the program runs as it is.\n\n\
    Examples:\n  \
    hither run --pages upm -- ./solver input             pages to where they are used, between iterations\n  \
    hither run --pages cache-aware -- ./solver input     streamed memory far, the rest near\n  \
    hither run --pages cache-aware,upm -- ./solver input both: what is near goes to where it is used\n  \
    hither run --pages upm --dry-run --log pages.jsonl -- ./solver input\n                                                       \
    decide and log, and leave the program alone\n  \
    hither run --pages upm --sites solver.sites -- ./solver input\n                                                       \
    begin where the last run ended\n  \
    hither run --pages 'cache-aware{limit=0.3}' --region-min 4MiB -- ./solver input"
)]
pub(super) struct Run {
    /// Where pages go: upm, cache-aware, or 'cache-aware,upm', with parameters as in 'cache-aware{limit=0.3}'; `hither
    /// policies --placements` says what they mean
    #[arg(long, value_name = "POLICY[,POLICY]")]
    pages: String,

    /// The smallest allocation whose pages are placed
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = region_min)]
    region_min: u64,

    /// How upm counts accesses; auto takes the first that works, and `hither topo --live` says which do
    #[arg(long, value_name = "HOW", default_value = AUTO, value_parser = [&[AUTO], &arm::NAMES[..]].concat())]
    counters: String,

    /// Decide where pages belong, and move none
    #[arg(long)]
    dry_run: bool,

    /// Write what was seen and decided to this file, a JSON document a line
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Start from what this file knows of call sites that allocate memory, where their regions had their pages included,
    /// and add what is learnt
    #[arg(long, value_name = "FILE")]
    sites: Option<PathBuf>,

    /// Start from such a file, and leave it as it is
    #[arg(long, value_name = "FILE", conflicts_with = "sites")]
    apply: Option<PathBuf>,

    /// Say what came of it as one line of JSON on stderr: stdout is the program's
    #[arg(long)]
    json: bool,

    /// The program to run, with its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

fn region_min(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) if bytes >= 4096 => Ok(bytes),
        Size::Percent(_) => Err("an allocation has a size in bytes".to_owned()),
        _ => Err("an allocation of less than a page (4KiB) has none to place".to_owned()),
    }
}

/// The policy, if it can place the pages of a running program, and what it is made of where that was given before it.
fn policies(text: &str) -> Result<(Spec<Entry>, Option<Spec<Entry>>), Usage> {
    let specs = Spec::<Entry>::parse_list(text);
    let specs = specs.map_err(|error: SpecError| Usage(error.to_string()))?;
    specs.iter().try_for_each(check)?;
    match *specs.as_slice() {
        [policy] => Ok((policy, None)),
        [initial, policy] if !initial.is_made_of_another() && policy.is_made_of_another() => {
            Ok((policy, Some(initial)))
        }
        _ => Err(Usage(format!(
            "--pages {text}: of two policies the first says where pages are put and the second moves them, as in cache-aware,upm"
        ))),
    }
}

fn check(spec: &Spec<Entry>) -> Result<(), Usage> {
    let entry = spec.entry();
    let names = |wanted: &dyn Fn(&Entry) -> bool| {
        let entries = placement::placements().iter();
        let names: Vec<&str> = entries
            .filter(|entry| wanted(entry))
            .map(|entry| entry.name())
            .collect();
        names.join(", ")
    };
    let live = |entry: &Entry| entry.of == Of::Memory && entry.live;
    if entry.of != Of::Memory {
        return Err(Usage(format!(
            "--pages {}: it places blocks of files; placements of memory are {}",
            entry.name,
            names(&|entry| entry.of == Of::Memory)
        )));
    }
    if !spec.live() {
        return Err(Usage(format!(
            "--pages {spec}: it cannot follow a running program; {} can",
            names(&live)
        )));
    }
    let replay = spec.params().find(|(param, _)| param.name == "replay");
    if replay.is_some_and(|(_, value)| value != Value::Count(0)) {
        return Err(Usage(format!(
            "--pages {}: replay is not for a running program, whose constructs do not wait for its pages",
            entry.name
        )));
    }
    Ok(())
}

impl Subcommand for Run {
    const NAME: &'static str = "run";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let (placement, initial) = policies(&self.pages)?;
        let known = self.sites.as_deref().or(self.apply.as_deref());
        let known = known.map(knowledge::load_regions).transpose()?;
        let Regions { sites, placed } = known.unwrap_or_default();
        self.note_small_regions(initial.as_ref().unwrap_or(&placement), ui);
        let options = PagesOptions {
            command: self.command.clone(),
            preload: preload::pages_library()?,
            placement,
            initial,
            dry_run: self.dry_run,
            log: self.log.clone(),
            sites,
            placed,
            counters: arm::NAMES.into_iter().find(|name| *name == self.counters),
            session: SessionOptions {
                region_min: self.region_min,
                files: false,
                ..SessionOptions::default()
            },
        };
        let ran = match Runner::new(options).run() {
            Ok(ran) => ran,
            Err(error) if error.start_status().is_some() => {
                return Err(Usage(error.to_string()).into());
            }
            Err(error) => return Err(error.into()),
        };
        let Some(pages) = ran.pages else {
            ui.note("this machine has one memory node: there is nowhere to place pages, and the program ran as it is");
            return Ok(exit::pass_on(ran.exit));
        };
        if self.json {
            eprintln!("{}", pages.to_json());
        } else {
            self.report(&pages, ui);
        }
        let learnt = Regions {
            sites: pages.sites,
            placed: pages.placed,
        };
        if let Some(path) = &self.sites
            && let Err(error) = knowledge::save_regions(path, &learnt)
        {
            ui.note(format_args!("what was learnt is not kept: {error:#}"));
        }
        Ok(exit::pass_on(ran.exit))
    }
}

impl Run {
    /// A policy may have a least size of its own.
    fn note_small_regions(&self, policy: &Spec<Entry>, ui: &Ui) {
        let region = policy.params().find(|(param, _)| param.name == "region");
        if let Some((_, Value::Count(least))) = region
            && least > self.region_min
        {
            ui.note(format_args!(
                "{} has nothing to say of regions of less than its own region={least}; --region-min is {}",
                policy.entry().name,
                self.region_min
            ));
        }
    }

    /// What came of it, in a few lines.
    fn report(&self, pages: &Pages, ui: &Ui) {
        let summary = &pages.summary;
        let undecided = summary.regions - summary.far - summary.near - summary.plain;
        let decided = |number, what: &str| match number {
            0 => String::new(),
            number => format!(", {} {what}", count(number)),
        };
        ui.note(format_args!(
            "{}: {} far, {} near{}{}; {} wanted on another node",
            counted(summary.regions, "region"),
            count(summary.far),
            count(summary.near),
            decided(undecided, "undecided"),
            decided(summary.known, "by what was known of their call sites"),
            counted(summary.pages_away, "page"),
        ));
        if self.dry_run {
            ui.note("a dry run: nothing was bound or moved");
        } else {
            ui.note(format_args!(
                "{} bound, {} moved{}{}",
                counted(summary.ranges_bound, "range"),
                counted(summary.pages_moved, "page"),
                decided(summary.ranges_refused, "ranges refused"),
                decided(summary.pages_refused, "pages refused"),
            ));
        }
        if summary.own > 0 {
            ui.note(format_args!(
                "{} left where the program, or numactl, wants them",
                counted(summary.own, "region")
            ));
        }
        report_counts(pages, ui);
        let share = pages.agent.as_secs_f64() / pages.ran.as_secs_f64().max(1e-9);
        ui.note(format_args!("the agent took {} of one CPU", percent(share)));
        if let Some(reason) = &pages.unwatched {
            ui.note(format_args!(
                "page faults were not watched, so nothing new was learnt: {reason}"
            ));
        } else if pages.without_kernel {
            ui.note(
                "faults inside system calls were not seen; kernel.perf_event_paranoid=1, or CAP_PERFMON, shows them",
            );
        }
        let lost = pages.faults_lost + pages.lost.events + pages.lost.no_ring + pages.lost.regions;
        if lost + pages.orders_refused > 0 {
            ui.note(format_args!(
                "missed: {} and {} for which there was no room, {} that did not fit",
                counted(pages.faults_lost, "fault"),
                counted(lost - pages.faults_lost, "allocation"),
                counted(pages.orders_refused, "order"),
            ));
        }
        if pages.unwatched_cpus > 0 {
            ui.note(format_args!(
                "{} came online meanwhile, and faults there were not seen",
                counted(pages.unwatched_cpus as u64, "CPU")
            ));
        }
        if summary.unfollowed > 0 {
            ui.note(format_args!(
                "{} larger than the machine's memory left alone",
                counted(summary.unfollowed, "reservation")
            ));
        }
        if let Some(error) = &pages.log {
            ui.note(format_args!("the log is not whole: {error}"));
        }
    }
}

/// What came of counting who uses what.
fn report_counts(pages: &Pages, ui: &Ui) {
    let summary = &pages.summary;
    if summary.applied > 0 {
        ui.note(format_args!(
            "{} placed as in an earlier run",
            counted(summary.applied, "region")
        ));
    }
    if summary.counted == 0 {
        return;
    }
    let Some(counters) = pages.counters else {
        let reasons = pages.uncounted.iter();
        let reasons: Vec<String> = reasons
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        ui.note(format_args!(
            "accesses could not be counted, so nothing moved: {}",
            reasons.join("; ")
        ));
        return;
    };
    let share = |tally: Tally| tally.share().map_or("none".to_owned(), percent);
    ui.note(format_args!(
        "{} from {} by {counters}, {} local; {} moved to where they are used",
        counted(summary.sampled.samples, "sample"),
        counted(summary.counted, "region"),
        share(summary.sampled),
        counted(summary.migrated, "page"),
    ));
    if summary.migrated > 0 {
        ui.note(format_args!(
            "local in what moved: {} before, {} after",
            share(summary.before),
            share(summary.after)
        ));
    }
    if let Some(reason) = pages.unarmed.filter(|_| summary.sampled.samples == 0) {
        ui.note(format_args!("nothing could be sampled: {reason}"));
    }
    if summary.stopped > 0 {
        ui.note(format_args!(
            "{} left alone, whose pages cannot be sampled or moved",
            counted(summary.stopped, "process")
        ));
    }
}
