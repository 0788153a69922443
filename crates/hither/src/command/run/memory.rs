//! `hither run --memory`: places a program's memory on nodes.

use clap::Args;
use hither_analysis::format::{count, counted, duration_ns, percent};
use hither_analysis::profile::{self, RegionProfile};
use hither_analysis::run_plan::RunPlan;
use hither_core::placement::{self, Target};
use hither_core::registry::Mechanism;
use hither_core::spec::{RegistryEntry, SpecError, Value};
use hither_core::{Spec, placement::PlacementEntry};
use hither_kernel::samplers;
use hither_live::iterations::FoundIterations;
use hither_live::memory::{Locality, MemoryOptions, MemoryReport};
use hither_live::numa::{PagePolicy, calibration};
use hither_live::{Mechanisms, RunReport};
use hither_sim::Size;

use super::arguments::KnowledgeArgs;
use super::choice::Choice;
use super::notes::Notes;
use super::switch::{Switch, stepped_aside};
use crate::exit::Usage;
use crate::ui::Ui;

/// The switch.
pub(super) const SWITCH: &str = "--memory";

/// The policy if none is named.
pub(super) const DEFAULT_POLICY: &str = "majority";

/// The value of --counters that takes the first source that works.
const AUTO_COUNTERS: &str = "auto";

/// The default size of the smallest allocation whose pages are placed.
const DEFAULT_REGION_BYTES_MIN: u64 = 1 << 20;

/// The switch and its options.
#[derive(Args, Debug)]
pub(super) struct MemoryArgs {
    /// Place memory [default: majority]
    ///
    /// majority moves pages to the nodes that use them, and spreads what all use. upm moves them
    /// where that pays by its paper's criterion. cache-aware puts streamed memory on far nodes and
    /// other memory on near ones. cache-aware,majority does both. A policy may have parameters, as
    /// in 'cache-aware{limit=0.3}'; `hither policies --placements` explains them.
    #[arg(
        id = "memory",
        long,
        value_name = "POLICY[,POLICY]",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_POLICY
    )]
    policy: Option<String>,

    /// The smallest allocation whose pages are placed [default: 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = region_min, hide_short_help = true)]
    region_min: Option<u64>,

    /// How accesses are counted [default: auto, the first that works]
    ///
    /// `hither doctor` says which work on this machine.
    #[arg(
        long,
        value_name = "HOW",
        value_parser = [&[AUTO_COUNTERS], &samplers::NAMES[..]].concat(),
        hide_short_help = true
    )]
    counters: Option<String>,

    /// The share of one CPU that counting may take [default: 1%]
    #[arg(long, value_name = "PERCENT", value_parser = permille, hide_short_help = true)]
    cpu_budget: Option<u32>,
}

impl Switch for MemoryArgs {
    fn mechanism(&self) -> &'static str {
        "memory"
    }

    fn switch(&self) -> &'static str {
        SWITCH
    }

    fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    fn option(&self) -> Option<&'static str> {
        match (self.region_min, &self.counters) {
            (Some(_), _) => Some("--region-min"),
            (_, Some(_)) => Some("--counters"),
            _ => self.cpu_budget.map(|_| "--cpu-budget"),
        }
    }

    fn learns(&self) -> bool {
        true
    }

    fn apply_plan(&mut self, plan: &RunPlan, _is_forced: bool) -> Result<(), Usage> {
        self.policy = plan.memory.clone();
        Ok(())
    }

    fn choose(&mut self, choice: &Choice) {
        if choice.memory.is_some() {
            self.policy = Some(DEFAULT_POLICY.to_owned());
        }
    }

    fn add_to(&self, mechanisms: &mut Mechanisms, knowledge: &KnowledgeArgs) -> anyhow::Result<()> {
        if let Some(policy) = &self.policy {
            mechanisms.memory = Some(options(self, policy, knowledge)?);
        }
        Ok(())
    }

    fn report(&self, ran: &RunReport, notes: &Notes<'_>) {
        if let Some(ran) = &ran.memory {
            report(ran, notes);
        }
    }

    fn document(&self, ran: &RunReport) -> Option<serde_json::Value> {
        let figures = ran.memory.as_ref().map(MemoryReport::to_json);
        self.is_on().then(|| figures.unwrap_or_else(stepped_aside))
    }

    fn learn(&self, ran: &RunReport, knowledge: &KnowledgeArgs, ui: &Ui) {
        let Some(ran) = &ran.memory else {
            return;
        };
        let learnt = RegionProfile {
            call_sites: ran.sites.clone(),
            placements: ran.saved_placements.clone(),
        };
        knowledge.add_to_profile(|path| Ok(profile::save_regions(path, &learnt)?), ui);
    }
}

fn region_min(text: &str) -> Result<u64, String> {
    let size = text.parse::<Size>();
    match size.map_err(|_| "give a size in bytes, as in 4MiB".to_owned())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) if bytes >= 4096 => Ok(bytes),
        Size::Percent(_) => Err("an allocation has a size in bytes".to_owned()),
        _ => Err("an allocation of less than a page (4KiB) has none to place".to_owned()),
    }
}

/// Parses a percentage of a CPU into thousandths.
fn permille(text: &str) -> Result<u32, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    let permille = percent.map_or(f64::NAN, |percent| percent * 10.0);
    if (1.0..=1000.0).contains(&permille) {
        Ok(permille.round() as u32)
    } else {
        Err("give a percentage from 0.1% to 100%".to_owned())
    }
}

/// Parses a placement that can run live, or two: the second one moves the pages that the first one
/// has put.
fn policies(text: &str) -> Result<PagePolicy, Usage> {
    let specs = Spec::<PlacementEntry>::parse_list(text);
    let specs = specs.map_err(|error| match error {
        SpecError::Unknown { name, hint, .. } => Usage(format!(
            "{SWITCH}={text}: unknown placement `{name}`{hint}; {} can follow a running program",
            names(&is_live)
        )),
        error => Usage(format!("{SWITCH}={text}: {error}")),
    })?;
    specs.iter().try_for_each(check)?;
    match *specs.as_slice() {
        [policy] => Ok(policy.into()),
        [initial, policy] if !initial.is_made_of_another() && policy.is_made_of_another() => {
            Ok(PagePolicy {
                policy,
                initial: Some(initial),
            })
        }
        _ => Err(Usage(format!(
            "{SWITCH}={text}: of two policies the first says where pages are put \
             and the second moves them, as in cache-aware,majority"
        ))),
    }
}

fn is_live(entry: &PlacementEntry) -> bool {
    entry.runs(Mechanism::Memory)
}

/// The names of the placements that `wanted` selects, as a list.
fn names(wanted: &dyn Fn(&PlacementEntry) -> bool) -> String {
    let entries = placement::placement_policies().iter();
    let names = entries
        .filter(|entry| wanted(entry))
        .map(RegistryEntry::name);
    names.collect::<Vec<_>>().join(", ")
}

fn check(spec: &Spec<PlacementEntry>) -> Result<(), Usage> {
    let entry = spec.entry();
    if entry.target() != Target::Memory {
        return Err(Usage(format!(
            "{SWITCH}={}: it places blocks of files; placements of memory are {}",
            entry.name,
            names(&|entry| entry.target() == Target::Memory)
        )));
    }
    if !spec.runs(Mechanism::Memory) {
        return Err(Usage(format!(
            "{SWITCH}={spec}: it cannot follow a running program; {} can",
            names(&is_live)
        )));
    }
    let replay = spec.value("replay");
    if replay.is_some_and(|value| value != Value::Count(0)) {
        return Err(Usage(format!(
            "{SWITCH}={}: replay is not for a running program, \
             whose constructs do not wait for its pages",
            entry.name
        )));
    }
    Ok(())
}

/// The options of the mechanism.
fn options(
    args: &MemoryArgs,
    policy: &str,
    knowledge: &KnowledgeArgs,
) -> anyhow::Result<MemoryOptions> {
    let policy = policies(policy)?;
    let known = knowledge
        .profile()?
        .map(profile::load_regions)
        .transpose()?;
    let RegionProfile {
        call_sites,
        placements,
    } = known.unwrap_or_default();
    let MemoryArgs {
        region_min,
        counters,
        cpu_budget,
        ..
    } = args;
    Ok(MemoryOptions {
        policy,
        sites: call_sites,
        saved_placements: placements,
        cache: calibration::cache_folder(),
        counters: samplers::NAMES
            .into_iter()
            .find(|name| Some(*name) == counters.as_deref()),
        cpu_permille: cpu_budget.unwrap_or(MemoryOptions::DEFAULT_CPU_PERMILLE),
        region_min: region_min.unwrap_or(DEFAULT_REGION_BYTES_MIN),
    })
}

/// Notes if the policy's own smallest region is larger than --region-min.
pub(super) fn note_small_regions(options: &MemoryOptions, ui: &Ui) {
    let region_min = options.region_min;
    let policy = options.policy.initial.unwrap_or(options.policy.policy);
    if let Some(Value::Count(least)) = policy.value("region")
        && least > region_min
    {
        ui.note(format_args!(
            "{} ignores regions of less than its own region={least}; --region-min is {region_min}",
            policy.entry().name,
        ));
    }
}

/// Prints the summary.
fn report(pages: &MemoryReport, notes: &Notes<'_>) {
    let ui = notes.ui;
    let (summary, dry_run) = (&pages.summary, notes.dry_run);
    let undecided = summary.regions - summary.far - summary.near - summary.plain;
    let decided = |number, what: &str| match number {
        0 => String::new(),
        number => format!(", {} {what}", count(number)),
    };
    let mapped = match summary.mapped {
        0 => String::new(),
        mapped => format!(
            ", {} of them static data, heaps, stacks and arenas",
            count(mapped)
        ),
    };
    let regions = format!("{}{mapped}", counted(summary.regions, "region"));
    // Only policies that use far nodes distinguish far and near regions.
    if summary.far + summary.near + undecided + summary.known + summary.pages_away == 0 {
        ui.note(regions);
    } else {
        ui.note(format_args!(
            "{regions}: {} far, {} near{}{}; {} wanted on another node",
            count(summary.far),
            count(summary.near),
            decided(undecided, "undecided"),
            decided(summary.known, "by what was known of their call sites"),
            counted(summary.pages_away, "page"),
        ));
    }
    if dry_run {
        ui.note("a dry run: nothing was bound or moved");
    } else {
        ui.note(format_args!(
            "{} bound, {} moved{}{}{}",
            counted(summary.ranges_bound, "range"),
            counted(summary.pages_moved, "page"),
            match summary.huge_moved {
                0 => String::new(),
                moved => format!(" ({} among them, as wholes)", counted(moved, "huge page")),
            },
            decided(summary.ranges_refused, "ranges refused"),
            decided(summary.pages_refused, "pages refused"),
        ));
        report_balancing(pages, ui);
    }
    if summary.own > 0 {
        ui.note(format_args!(
            "{} left where the program, or numactl, wants them",
            counted(summary.own, "region")
        ));
    }
    if summary.own_processes > 0 {
        ui.note(format_args!(
            "{} left alone, which asks for certain nodes itself",
            counted(summary.own_processes, "process")
        ));
    }
    if pages.shared_left > 0 {
        ui.note(format_args!(
            "{} of shared memory left alone, which several processes map",
            counted(pages.shared_left as u64, "piece")
        ));
    }
    report_counts(pages, dry_run, ui);
    notes.agent_of_one(pages.agent, pages.ran);
    if let Some(reason) = &pages.unwatched {
        ui.note(format_args!(
            "page faults were not watched, so nothing new was learnt: {reason}"
        ));
    } else if pages.without_kernel {
        ui.note(
            "faults inside system calls were not seen; \
             kernel.perf_event_paranoid=1, or CAP_PERFMON, shows them",
        );
    }
    // If files are recorded too, lost records were most likely accesses, which are reported there.
    let events = if notes.is_combined {
        0
    } else {
        pages.lost.events + pages.lost.no_ring
    };
    let lost = pages.faults_lost + events + pages.lost.regions;
    if lost + pages.bind_requests_refused > 0 {
        ui.note(format_args!(
            "missed: {} and {} for which there was no room, {} that did not fit",
            counted(pages.faults_lost, "fault"),
            counted(lost - pages.faults_lost, "allocation"),
            counted(pages.bind_requests_refused, "bind request"),
        ));
    }
    if !notes.is_combined {
        notes.damaged(&pages.lost);
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
    if let Some(problem) = &pages.calibration {
        ui.note(format_args!(
            "what memory costs here could not be read or kept: {problem}"
        ));
    }
    if let Some(error) = &pages.log {
        ui.note(format_args!("the log is incomplete: {error}"));
    }
}

/// Prints what the kernel moved meanwhile. It counts that for the whole machine.
fn report_balancing(pages: &MemoryReport, ui: &Ui) {
    let moved = pages.machine_moves.map_or(0, |moves| moves.balancing);
    if moved > 0 {
        ui.note(format_args!(
            "meanwhile the kernel's balancing moved {}, on the whole machine",
            counted(moved, "page"),
        ));
    }
}

/// Prints what is known of the program's iterations, at whose ends pages are moved.
fn report_iterations(found: FoundIterations, ui: &Ui) {
    let constructs = counted(found.constructs, "parallel construct");
    if found.count > 0 {
        ui.note(format_args!(
            "{}{}, {}",
            counted(found.count, "iteration"),
            match found.mean_ns {
                0 => String::new(),
                mean_ns => format!(" of {} each", duration_ns(mean_ns as f64)),
            },
            if found.told {
                "which the program marks".to_owned()
            } else {
                format!("found in {constructs}")
            }
        ));
    } else if found.constructs > 0 {
        ui.note(format_args!("no iterations found in {constructs}"));
    }
}

/// Prints the part of the summary about counted accesses.
fn report_counts(pages: &MemoryReport, dry_run: bool, ui: &Ui) {
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
    let share = |tally: Locality| tally.share().map_or("unknown".to_owned(), percent);
    // What is said of writes must not be taken for all accesses.
    let writes_alone = samplers::sees_writes_alone(counters);
    let what = if writes_alone { " of writes" } else { "" };
    let local = summary.sampled.share().map(percent);
    let local = match (local, writes_alone) {
        (None, false) => String::new(),
        (None, true) => "; reads are not seen".to_owned(),
        (Some(local), false) => format!(", {local} local"),
        (Some(local), true) => format!(", {local} of these local; reads are not seen"),
    };
    report_iterations(summary.iterations, ui);
    let moved = if dry_run { "would have moved" } else { "moved" };
    ui.note(format_args!(
        "{}{what} from {} by {counters}{local}; {} {moved} to where they are used",
        counted(summary.sampled.samples, "sample"),
        counted(summary.counted, "region"),
        counted(summary.migrated, "page"),
    ));
    let kinds = summary.sampled_by_kind.iter();
    let kinds: Vec<String> = kinds
        .map(|(kind, &samples)| format!("{} {kind}", count(samples)))
        .collect();
    if !kinds.is_empty() {
        ui.note(format_args!(
            "samples of memory that no large allocation has reported: {}",
            kinds.join(", ")
        ));
    }
    if summary.sampled_outside > 0 {
        let all = summary.sampled.samples + summary.sampled_outside;
        ui.note(format_args!(
            "not covered: {} ({}) of pieces of memory under 64 KiB, new mappings, and files",
            counted(summary.sampled_outside, "sample"),
            percent(summary.sampled_outside as f64 / all as f64),
        ));
    }
    if summary.paused_ns > 0 {
        ui.note(format_args!(
            "samples were not listened to for {}: there was nothing to move{}",
            duration_ns(summary.paused_ns as f64),
            if samplers::is_of_balancing(counters) {
                " that the kernel's balancing had not moved"
            } else {
                ""
            }
        ));
    }
    if summary.migrated > 0 && !dry_run {
        ui.note(format_args!(
            "local in what moved{}: {} before, {} after",
            if writes_alone { ", of writes" } else { "" },
            share(summary.before),
            share(summary.after)
        ));
    }
    if let Some(reason) = pages.unarmed.filter(|_| summary.sampled.samples == 0) {
        ui.note(format_args!("nothing could be sampled: {reason}"));
    }
    if summary.stopped > 0 {
        let why = pages
            .unarmed
            .map_or(String::new(), |why| format!(": {why}"));
        ui.note(format_args!(
            "{} left alone, whose pages cannot be sampled or moved{why}",
            counted(summary.stopped, "process")
        ));
    }
}
