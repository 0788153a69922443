//! `hither run --page-cache`: steers which blocks of a program's files stay cached.

use std::io;

use clap::Args;
use hither_analysis::format::{bytes, counted, duration_ns, less_or_more};
use hither_analysis::profile;
use hither_analysis::run_plan::RunPlan;
use hither_core::Spec;
use hither_core::registry::{Mechanism, baseline, replacement_policies};
use hither_kernel::cgroup::MemoryGroup;
use hither_live::page_cache::{BUDGET_MIN_BYTES, Budget, PageCacheOptions, PageCacheReport};
use hither_live::{Mechanisms, RunReport};
use hither_sim::Size;
use serde_json::Value;

use super::arguments::KnowledgeArgs;
use super::choice::Choice;
use super::machine::MachineState;
use super::notes::Notes;
use super::switch::Switch;
use crate::exit::Usage;
use crate::ui::Ui;

/// The switch.
pub(super) const SWITCH: &str = "--page-cache";

/// The switch for programs whose files are to leave nothing in the page cache.
const NO_CACHE_SWITCH: &str = "--no-cache";

/// The policy if none is named.
pub(super) const DEFAULT_POLICY: &str = "pcc";

/// The switch and its options.
#[derive(Args, Debug)]
pub(super) struct PageCacheArgs {
    /// Decide which blocks stay cached [default: pcc]
    ///
    /// A policy may have parameters, as in 'pcc{other=arc}'; `hither policies` explains them.
    #[arg(
        id = "page_cache",
        long = "page-cache",
        value_name = "POLICY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_POLICY
    )]
    policy: Option<String>,

    /// Limit for its files [default: the cgroup's]
    ///
    /// The files that the program reads and writes get no more, from the first byte on. It is a
    /// number of bytes with its unit, as 256MiB, at least 8MiB. A bare number is refused: the page
    /// cache is not counted in blocks. Without it, the limit is what the memory cgroup leaves for
    /// files. It is required if no memory cgroup has one.
    #[arg(long, value_name = "SIZE", value_parser = cache_bytes)]
    cache: Option<u64>,

    /// Leave nothing behind, as for backups (--stream)
    ///
    /// What the program reads is dropped soon after, and what it writes once the kernel has
    /// written it back, but for the last 8MiB or 32MiB; at the end these go, too. What other
    /// programs had cached, or use meanwhile, stays, so that a backup does not evict the pages of a
    /// database.
    #[arg(long, alias = "stream", conflicts_with_all = ["page_cache", "cache"])]
    no_cache: bool,

    /// The memory cgroup of programs that run already, if they are steered, and if it has a limit.
    #[arg(skip)]
    of_running: Option<Option<MemoryGroup>>,

    /// What is available for these files, if that is known without a memory cgroup.
    #[arg(skip)]
    available: Option<u64>,

    /// Also steer files that were cached before the program opened them
    ///
    /// By default these are left alone, since other programs may need them.
    #[arg(long, hide_short_help = true)]
    all_files: bool,

    /// Keep the kernel's readahead on for random reads
    ///
    /// By default it is switched off for them, since it replaces blocks that the policy keeps with
    /// blocks that nobody asked for.
    #[arg(long, hide_short_help = true)]
    keep_readahead: bool,
}

impl PageCacheArgs {
    /// What is steered are programs that run already, in this memory cgroup if it has a limit. All
    /// of their files are, and by default the policy does it.
    pub(super) fn running(&mut self, group: Option<MemoryGroup>) -> Result<(), Usage> {
        self.check_kernel()?;
        if !self.is_on() {
            self.policy = Some(DEFAULT_POLICY.to_owned());
        }
        self.of_running = Some(group);
        Ok(())
    }

    /// Refuses what only the library in a program can do.
    pub(super) fn check_kernel(&self) -> Result<(), Usage> {
        let option = if self.all_files {
            "--all-files"
        } else if self.keep_readahead {
            "--keep-readahead"
        } else {
            return Ok(());
        };
        let message = format!("{option} needs the library in the program");
        Err(Usage(message))
    }

    /// The memory cgroup of the programs, if it has a limit.
    fn memory_group(&self) -> io::Result<Option<MemoryGroup>> {
        match &self.of_running {
            Some(group) => Ok(group.clone()),
            None => MemoryGroup::of_this_process(),
        }
    }

    /// Whether nothing is to stay cached but what others have cached.
    pub(super) fn is_no_cache(&self) -> bool {
        self.no_cache && !self.all_files
    }

    /// Whether the page cache has a limit for these files.
    pub(super) fn is_limited(&self) -> bool {
        self.no_cache || self.policy.is_some() && self.cache.is_some()
    }
}

impl Switch for PageCacheArgs {
    fn mechanism(&self) -> &'static str {
        "page_cache"
    }

    fn switch(&self) -> &'static str {
        SWITCH
    }

    fn given_switch(&self) -> &'static str {
        if self.no_cache {
            NO_CACHE_SWITCH
        } else {
            SWITCH
        }
    }

    fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    fn is_on(&self) -> bool {
        self.policy.is_some() || self.no_cache
    }

    fn option(&self) -> Option<&'static str> {
        match self.cache {
            Some(_) => Some("--cache"),
            None if self.all_files => Some("--all-files"),
            None => self.keep_readahead.then_some("--keep-readahead"),
        }
    }

    fn learns(&self) -> bool {
        true
    }

    fn apply_plan(&mut self, plan: &RunPlan, is_forced: bool) -> Result<(), Usage> {
        let cache = plan.cache.as_deref().map(cache_bytes).transpose();
        let cache = cache.map_err(|why| Usage(format!("cache: {why}")))?;
        if let (Some(cache), None, false) = (cache, self.cache, is_forced) {
            refuse_small(cache)?;
        }
        self.cache = self.cache.or(cache);
        self.policy = plan.page_cache.clone();
        Ok(())
    }

    fn choose(&mut self, choice: &Choice) {
        if let Some(reason) = choice.page_cache {
            self.policy = Some(DEFAULT_POLICY.to_owned());
            self.available = reason.cache_bytes();
        }
    }

    fn add_to(&self, mechanisms: &mut Mechanisms, knowledge: &KnowledgeArgs) -> anyhow::Result<()> {
        if self.is_on() {
            mechanisms.page_cache = Some(options(self, knowledge)?);
        }
        Ok(())
    }

    fn report(&self, ran: &RunReport, notes: &Notes<'_>) {
        if let Some(ran) = &ran.page_cache {
            report(ran, notes);
        }
    }

    fn document(&self, ran: &RunReport) -> Option<Value> {
        ran.page_cache.as_ref().map(PageCacheReport::to_json)
    }

    fn learn(&self, ran: &RunReport, knowledge: &KnowledgeArgs, ui: &Ui) {
        if let Some(ran) = &ran.page_cache {
            knowledge.add_to_profile(|path| Ok(profile::save_sites(path, &ran.sites)?), ui);
        }
    }
}

/// Why a number of blocks or a share is not the size of memory that a run takes.
pub(super) fn bytes_are_needed(size: Size) -> String {
    match size {
        Size::Blocks(number) => format!(
            "{number} has no unit, and only simulated caches are counted in blocks: write bytes, \
             as in 256MiB"
        ),
        _ => "give a size in bytes, as in 256MiB".to_owned(),
    }
}

/// Parses the size of a cache that is large enough to be steered.
fn cache_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) if bytes >= BUDGET_MIN_BYTES => Ok(bytes),
        Size::Bytes(_) => Err("drops are of 2MiB at once: give at least 8MiB".to_owned()),
        size => Err(bytes_are_needed(size)),
    }
}

/// Parses a policy that can run live.
fn policy(text: &str) -> Result<Spec, Usage> {
    let spec: Spec = text
        .parse()
        .map_err(|error| Usage(format!("{SWITCH}={text}: {error}")))?;
    if spec.entry().runs(Mechanism::PageCache) {
        return Ok(spec);
    }
    let live = replacement_policies()
        .iter()
        .filter(|entry| entry.runs(Mechanism::PageCache));
    let names: Vec<&str> = live.map(|entry| entry.name).collect();
    Err(Usage(format!(
        "{SWITCH}={spec}: it needs the future; {} do not",
        names.join(", ")
    )))
}

/// The budget: what the memory cgroup leaves, or less. One that is given is a limit. Where it is
/// less than half of what the cgroup leaves, what would be read without it does not matter.
fn budget(args: &PageCacheArgs) -> anyhow::Result<Budget> {
    if args.no_cache {
        return Ok(Budget::Nothing);
    }
    let at_most = args.cache;
    match (args.memory_group(), args.cache, args.available) {
        (Ok(Some(group)), given, _)
            if given.is_none_or(|given| given >= group.file_bytes().unwrap_or(0) / 2) =>
        {
            Ok(Budget::Group {
                cached_before: match args.of_running {
                    Some(_) => 0,
                    None => group.cached_bytes(),
                },
                group,
                at_most,
            })
        }
        (_, Some(given), _) => Ok(Budget::Given(given)),
        (_, None, Some(available)) => Ok(Budget::Available(available)),
        (found, None, None) => {
            let why = match found {
                Err(error) => error.to_string(),
                Ok(_) => "no memory cgroup sets a limit".to_owned(),
            };
            let message = format!(
                "{SWITCH} without --cache: {why}; say how much of the page cache \
                 the program's files may have, as in --cache 1GiB"
            );
            Err(Usage(message).into())
        }
    }
}

/// Refuses the cache of a plan if memory leaves more than twice as much for files. Such a budget is
/// an order, so the program would read more than without hither where its files fit into memory.
/// From half on, the kernel's own count of reads ends steering that does not pay.
fn refuse_small(cache_bytes: u64) -> Result<(), Usage> {
    match MachineState::of_this_machine(&[]).left_for_files_bytes() {
        Some(left) if cache_bytes < left / 2 => Err(Usage(format!(
            "its cache of {} is less than half of the {} that memory leaves for files here, so \
             the program may read more than without hither; `hither advise` where it is to run, \
             under its memory limit, or --force",
            bytes(cache_bytes),
            bytes(left)
        ))),
        _ => Ok(()),
    }
}

/// The options of the mechanism. Where nothing is kept, the kernel's order of eviction is as good
/// as any.
fn options(args: &PageCacheArgs, knowledge: &KnowledgeArgs) -> anyhow::Result<PageCacheOptions> {
    Ok(PageCacheOptions {
        policy: match &args.policy {
            Some(named) => policy(named)?,
            None => baseline(),
        },
        budget: budget(args)?,
        all_files: args.all_files || args.of_running.is_some(),
        by_kernel: false,
        disable_readahead: !args.keep_readahead && !args.no_cache,
        sites: knowledge
            .profile()?
            .map(profile::load_sites)
            .transpose()?
            .unwrap_or_default(),
    })
}

/// The summary of the run, in a few lines.
fn report(files: &PageCacheReport, notes: &Notes<'_>) {
    let ui = notes.ui;
    let summary = &files.summary;
    ui.note(format_args!(
        "{}, {} read from storage in {}",
        counted(summary.files, "file"),
        bytes(files.storage_bytes),
        duration_ns(files.ran.as_nanos() as f64),
    ));
    if notes.dry_run {
        ui.note(format_args!(
            "simulated in {} of cache: {} missed, {} under LRU: {}",
            bytes(summary.budget_bytes),
            bytes(summary.missed_bytes),
            bytes(summary.lru_missed_bytes),
            less_or_more(summary.lru_missed_bytes, summary.missed_bytes),
        ));
    }
    if summary.reported {
        report_steered(files, ui);
        report_drops(files, notes.dry_run, ui);
    } else {
        ui.note("nothing to steer: too little was read from storage");
    }
    report_left_alone(files, ui);
    notes.agent_of_one(files.agent, files.ran);
    notes.losses(&files.lost, files.log.as_ref());
}

/// Notes what was read while steering, by the kernel's count. What it would have been without
/// steering nobody knows but who runs the program again.
fn report_steered(files: &PageCacheReport, ui: &Ui) {
    let read = files.summary.steered_read_bytes;
    if read > 0 {
        ui.note(format_args!("{} of it read while steering", bytes(read)));
    }
}

/// Notes what was dropped and evicted, and whether the policy stepped aside.
fn report_drops(files: &PageCacheReport, dry_run: bool, ui: &Ui) {
    let summary = &files.summary;
    let is_limited = summary.limit_bytes.is_some();
    if !is_limited && summary.judged > 0 && summary.stopped == 0 && !summary.steering {
        ui.note(
            "the page cache was left to the kernel: the policy would have saved nothing over LRU",
        );
    } else if summary.drops == 0 {
        ui.note("nothing had to be dropped");
    } else if dry_run {
        ui.note(format_args!(
            "a dry run: {}, {} in all, were not dropped",
            counted(summary.drops, "range"),
            bytes(summary.dropped_bytes)
        ));
    } else {
        ui.note(format_args!(
            "dropped {}, {} in all, in {}",
            counted(files.dropped, "range"),
            bytes(summary.dropped_bytes),
            duration_ns(files.drop_time.as_nanos() as f64)
        ));
    }
    if files.left_bytes > 0 {
        ui.note(format_args!(
            "{} stay cached beyond the limit: not written back yet, or mapped",
            bytes(files.left_bytes)
        ));
    }
    if files.readahead_disabled > 0 {
        ui.note(format_args!(
            "switched readahead off {} for random reads",
            counted(files.readahead_disabled, "time")
        ));
    }
    if let Some(evicted) = summary.evicted_by_class
        && summary.evicted_bytes > 0
    {
        ui.note(format_args!(
            "evicted by class: {} looping, {} sequential, {} other",
            bytes(evicted.looping),
            bytes(evicted.sequential),
            bytes(evicted.other)
        ));
    }
    if summary.stopped > 0 && !is_limited {
        let now = if summary.steering {
            "and resumed"
        } else {
            "until the end"
        };
        ui.note(format_args!(
            "stepped aside {}, where it saved nothing over LRU, {now}",
            counted(summary.stopped, "time"),
        ));
    }
}

/// Notes what was not steered, and why.
fn report_left_alone(files: &PageCacheReport, ui: &Ui) {
    let summary = &files.summary;
    if summary.preexisting_bytes > 0 {
        ui.note(format_args!(
            "left alone: {} that were cached before the run; --all-files takes them too",
            bytes(summary.preexisting_bytes)
        ));
    }
    if summary.shared_bytes > 0 {
        ui.note(format_args!(
            "left alone: {} that other programs have used meanwhile",
            bytes(summary.shared_bytes)
        ));
    }
    if summary.mapped > 0 {
        ui.note(format_args!(
            "left alone: {}",
            counted(summary.mapped, "mapped file")
        ));
    }
    if let Some(why) = files.why_mapped {
        ui.note(format_args!("mapped files cannot be steered: {why}"));
    }
    if let Some(why) = files.why_unreachable.filter(|_| summary.unreachable > 0) {
        ui.note(format_args!(
            "left alone: {} that could not be opened; the last one: {why}",
            counted(summary.unreachable, "file")
        ));
    }
    if let Some(why) = files.why_refused {
        ui.note(format_args!(
            "the kernel refused {}: {why}",
            counted(files.refused, "drop")
        ));
    }
    if let Some(why) = files.unseen {
        ui.note(match files.unknown_files {
            0 => format!("cannot tell which files other programs have cached: cachestat: {why}"),
            files => format!(
                "left alone: {} of which it is not known what other programs have cached: \
                 cachestat: {why}; --all-files takes them too",
                counted(files, "file")
            ),
        });
    }
}
