//! `hither run --page-cache`: what the page cache keeps of a program's files.

use clap::Args;
use hither_analysis::format::{bytes, counted, duration_ns, saved};
use hither_analysis::profile;
use hither_core::Spec;
use hither_core::registry::{Mechanism, replacement_policies};
use hither_live::page_cache::{BUDGET_MIN_BYTES, Budget, PageCacheOptions, PageCacheReport};
use hither_sim::Size;
use hither_sys::cgroup::MemoryGroup;

use super::arguments::KnowledgeArgs;
use super::notes::Notes;
use crate::exit::Usage;
use crate::ui::Ui;

/// The switch.
pub(super) const SWITCH: &str = "--page-cache";

/// The policy where none is named.
pub(super) const POLICY: &str = "pcc";

/// The switch and its options.
#[derive(Args, Debug)]
pub(super) struct PageCacheArgs {
    /// Decide by POLICY what the page cache keeps of the program's files [default: pcc]
    ///
    /// A policy may have parameters, as in 'pcc{other=arc}'; `hither policies` explains them.
    #[arg(
        id = "page_cache",
        long = "page-cache",
        value_name = "POLICY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = POLICY
    )]
    pub(super) policy: Option<String>,

    /// Let these files have SIZE of the page cache [default: what the memory cgroup leaves]
    ///
    /// It has to be given where no memory cgroup has a limit.
    #[arg(long, value_name = "SIZE", value_parser = cache_bytes)]
    pub(super) cache: Option<u64>,

    /// Steer files, too, of which something was cached before the program opened them
    ///
    /// Other programs may need these pages.
    #[arg(long, hide_short_help = true)]
    all_files: bool,

    /// Leave the kernel's readahead on where the program reads at random
    ///
    /// Readahead brings in what was not asked for, in place of what the policy keeps.
    #[arg(long, hide_short_help = true)]
    keep_readahead: bool,
}

impl PageCacheArgs {
    /// The first option that is given.
    pub(super) fn options(&self) -> Option<&'static str> {
        match self.cache {
            Some(_) => Some("--cache"),
            None if self.all_files => Some("--all-files"),
            None => self.keep_readahead.then_some("--keep-readahead"),
        }
    }
}

/// The size of a cache that can be steered.
pub(super) fn cache_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) if bytes >= BUDGET_MIN_BYTES => Ok(bytes),
        Size::Bytes(_) => Err("drops are of 2MiB at once: give at least 8MiB".to_owned()),
        _ => Err("give a size in bytes, as in 256MiB".to_owned()),
    }
}

/// The policy, if it can follow a running program.
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

/// The budget that is given, or that of the memory cgroup.
fn budget(args: &PageCacheArgs) -> anyhow::Result<Budget> {
    if let Some(bytes) = args.cache {
        return Ok(Budget::Bytes(bytes));
    }
    match MemoryGroup::of_this_process() {
        Ok(Some(group)) => Ok(Budget::Group(group)),
        found => {
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

/// What governs the page cache.
pub(super) fn options(
    args: &PageCacheArgs,
    policy_text: &str,
    knowledge: &KnowledgeArgs,
) -> anyhow::Result<PageCacheOptions> {
    Ok(PageCacheOptions {
        policy: policy(policy_text)?,
        budget: budget(args)?,
        all_files: args.all_files,
        disable_readahead: !args.keep_readahead,
        sites: knowledge
            .profile()?
            .map(profile::load_sites)
            .transpose()?
            .unwrap_or_default(),
    })
}

/// Adds what was learnt to the profile, if there is one.
pub(super) fn learn(knowledge: &KnowledgeArgs, files: &PageCacheReport, ui: &Ui) {
    knowledge.add_to_profile(|path| Ok(profile::save_sites(path, &files.sites)?), ui);
}

/// What came of it, in a few lines.
pub(super) fn report(files: &PageCacheReport, notes: &Notes<'_>) {
    let ui = notes.ui;
    let summary = &files.summary;
    ui.note(format_args!(
        "{}: {} read from storage in {}; {} missed in {} of cache, {} by least recently used: {}",
        counted(summary.files, "file"),
        bytes(files.storage_bytes),
        duration_ns(files.ran.as_nanos() as f64),
        bytes(summary.missed_bytes),
        bytes(summary.budget_bytes),
        bytes(summary.lru_missed_bytes),
        saved(summary.lru_missed_bytes, summary.missed_bytes),
    ));
    report_drops(files, notes.dry_run, ui);
    report_left_alone(files, ui);
    notes.agent_of_one(files.agent, files.ran);
    let lost = files.lost.events + files.lost.no_ring + files.lost.nested;
    notes.losses(lost, files.log.as_ref());
}

/// What was dropped, and where the policy stepped aside.
fn report_drops(files: &PageCacheReport, dry_run: bool, ui: &Ui) {
    let summary = &files.summary;
    if summary.judged > 0 && summary.stopped == 0 && !summary.steering {
        ui.note(
            "the page cache was left to the kernel: \
             nothing was to be gained over least recently used",
        );
    } else if summary.drops == 0 {
        ui.note("nothing was to be dropped");
    } else if dry_run {
        ui.note(format_args!(
            "a dry run: {}, {} in all, were not dropped",
            counted(summary.drops, "range"),
            bytes(summary.dropped_bytes)
        ));
    } else {
        ui.note(format_args!(
            "{} dropped, {} in all, in {}",
            counted(files.dropped, "range"),
            bytes(summary.dropped_bytes),
            duration_ns(files.drop_time.as_nanos() as f64)
        ));
    }
    if files.readahead_disabled > 0 {
        ui.note(format_args!(
            "readahead was switched off {} where the program read at random",
            counted(files.readahead_disabled, "time")
        ));
    }
    if let Some(evicted) = summary.evicted_by_class
        && summary.evicted_bytes > 0
    {
        ui.note(format_args!(
            "{} of looping blocks were given up, {} of sequential and {} of other ones",
            bytes(evicted.looping),
            bytes(evicted.sequential),
            bytes(evicted.other)
        ));
    }
    if summary.stopped > 0 {
        let now = if summary.steering {
            "and began again"
        } else {
            "to the end"
        };
        ui.note(format_args!(
            "stepped aside {}, where it gained nothing over least recently used, {now}",
            counted(summary.stopped, "time"),
        ));
    }
}

/// What was not steered, and why.
fn report_left_alone(files: &PageCacheReport, ui: &Ui) {
    let summary = &files.summary;
    if summary.preexisting_bytes > 0 {
        ui.note(format_args!(
            "{} left alone that were cached before the program came; --all-files steers them too",
            bytes(summary.preexisting_bytes)
        ));
    }
    if summary.mapped > 0 {
        ui.note(format_args!(
            "{} left alone that were mapped",
            counted(summary.mapped, "file")
        ));
    }
    if let Some(why) = files.why_unreachable {
        ui.note(format_args!(
            "{} left alone that could not be got at; the last one: {why}",
            counted(summary.unreachable, "file")
        ));
    }
    if let Some(why) = files.why_refused {
        ui.note(format_args!(
            "{} refused: {why}",
            counted(files.refused, "drop")
        ));
    }
    if let Some(why) = files.unseen {
        ui.note(format_args!(
            "what others have cached cannot be told from what the program has: cachestat: {why}"
        ));
    }
}
