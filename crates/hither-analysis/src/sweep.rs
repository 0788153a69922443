//! Sweeps: every policy at every size, and every placement on every topology, on every trace. A
//! sweep may take hours and can be resumed.
//!
//! A sweep goes trace by trace, and within a trace by *units*: caches that one pass simulates.
//! After each unit its counts are appended to a journal beside the output, so an interrupted sweep
//! loses at most one unit. Which caches make a unit depends on the machine. The counts and their
//! order in the output do not. Several machines can each do a [`Shard`].

mod copies;
mod journal;
mod plan;
mod shard;
mod spec;
mod stamp;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hither_core::Spec;
use hither_sim::{CacheConfiguration, CacheOptions, ObjectCache, Size};
use hither_trace::{Input, Location, Trace};
use rayon::current_num_threads;

pub use copies::use_copies;
pub use journal::{Journal, JournalEntry};
pub use plan::{JobDefaults, SweepPlan, TraceJob};
pub use shard::Shard;
pub use spec::read_plan;

use crate::objects;
use crate::placement::{self, PlacementCase, RunControl, RunSettings};
use crate::progress::{Progress, Task};
use crate::result_rows::{ResultRow, TraceInfo};
use crate::simulate;
use crate::{Error, Result};
use journal::ItemCounts;

/// A sweep, with what is done so far.
pub struct Sweep<'a> {
    plan: &'a SweepPlan,
    /// The state of each trace of the plan.
    states: Vec<TraceState>,
    /// Where counts are saved, or the journals of the shards that it was merged from.
    journals: Vec<Journal>,
    run: SweepOptions,
}

/// How a sweep runs. No result depends on it.
pub struct SweepOptions {
    /// The approximate size of a unit: its references times its caches.
    pub unit_references: u64,
    /// Ends the sweep early once it is true.
    pub cancel: Arc<AtomicBool>,
    /// Only this part of the caches is done.
    pub shard: Option<Shard>,
}

/// The state of a trace.
#[derive(Default)]
struct TraceState {
    /// `None` until the trace was loaded, by this run or by one that the journal recorded.
    known: Option<TraceWork>,
}

/// The work on a trace that was loaded.
struct TraceWork {
    source: TraceInfo,
    stamp: String,
    caches: Vec<WorkItem>,
}

/// One cache, or one placement on nodes.
struct WorkItem {
    kind: WorkKind,
    /// The size as the user wrote it.
    size: String,
    /// `None` until it was simulated.
    counts: Option<ItemCounts>,
}

impl WorkItem {
    /// One that is to be done, of a size as the user wrote it.
    fn new(kind: WorkKind, size: Size) -> WorkItem {
        WorkItem {
            kind,
            size: size.to_string(),
            counts: None,
        }
    }
}

#[derive(Clone)]
enum WorkKind {
    Cache(Box<CacheConfiguration>),
    Objects(Box<ObjectCache>),
    Placement(Box<PlacementCase>),
}

impl WorkKind {
    /// The approximate memory of its simulation for each distinct block of the trace.
    fn bytes_per_block(&self) -> u64 {
        match self {
            WorkKind::Cache(_) | WorkKind::Objects(_) => simulate::CACHE_BYTES_PER_BLOCK,
            WorkKind::Placement(case) => placement::bytes_per_block(&case.configuration.topology),
        }
    }
}

/// The results of a trace so far.
pub struct TraceResults<'a> {
    /// What is simulated on it.
    pub job: &'a TraceJob,
    /// The trace.
    pub source: &'a TraceInfo,
    /// A row for each cache or placement that is done, in the order of the plan.
    pub rows: Vec<ResultRow<'a>>,
}

/// How a sweep ended.
pub enum SweepEnd {
    /// All caches are done.
    Complete,
    /// It was cancelled before all were done.
    Cancelled,
}

impl<'a> Sweep<'a> {
    /// A sweep that resumes from the entries of its journal, if it has one.
    pub fn new(
        plan: &'a SweepPlan,
        journal: Option<(Journal, Vec<JournalEntry>)>,
        run: SweepOptions,
    ) -> Result<Sweep<'a>> {
        let mut sweep = Sweep {
            plan,
            states: plan.jobs.iter().map(|_| TraceState::default()).collect(),
            journals: Vec::new(),
            run,
        };
        if let Some((journal, entries)) = journal {
            sweep.take(journal, entries)?;
        }
        Ok(sweep)
    }

    /// What the journals beside `output` have by now, those of sweeps at work too: that of one
    /// shard, or all that are there.
    pub fn so_far(plan: &'a SweepPlan, output: &Path, run: SweepOptions) -> Result<Sweep<'a>> {
        let paths = match run.shard {
            Some(shard) => vec![shard.path(output)],
            None => {
                let whole = Some(journal_path(output)).filter(|path| path.exists());
                let shards = shard::found(output)?.into_iter();
                whole
                    .into_iter()
                    .chain(shards.map(|shard| shard.path(output)))
                    .collect()
            }
        };
        let mut sweep = Sweep::new(plan, None, run)?;
        for path in paths {
            for entry in Journal::read(&path, &plan.digest())? {
                sweep.replay(entry, &path)?;
            }
        }
        Ok(sweep)
    }

    /// Applies the entries of a journal, and holds it.
    fn take(&mut self, journal: Journal, entries: Vec<JournalEntry>) -> Result<()> {
        for entry in entries {
            self.replay(entry, journal.path())?;
        }
        self.journals.push(journal);
        Ok(())
    }

    /// The sweep that the shards beside `output` have done together. Fails where they have not done
    /// all.
    pub fn merged(plan: &'a SweepPlan, output: &Path, run: SweepOptions) -> Result<Sweep<'a>> {
        let shards = shard::found(output)?;
        let mut sweep = Sweep::new(plan, None, run)?;
        for shard in &shards {
            let (journal, entries) = Journal::open(shard.path(output), &plan.digest())?;
            sweep.take(journal, entries)?;
        }
        let open = plan.jobs.iter().zip(&sweep.states).filter(|(_, state)| {
            let known = state.known.as_ref();
            !known.is_some_and(TraceWork::is_done)
        });
        let open: Vec<String> = open
            .map(|(job, _)| job.name.display().to_string())
            .collect();
        if open.is_empty() {
            return Ok(sweep);
        }
        let shards: Vec<String> = shards.iter().map(Shard::to_string).collect();
        Err(Error::Usage(format!(
            "{}: {} {} not all done; shards that are there: {}",
            output.display(),
            open.join(", "),
            if open.len() == 1 { "is" } else { "are" },
            if shards.is_empty() {
                "none".to_owned()
            } else {
                shards.join(", ")
            }
        )))
    }

    /// Applies an entry of the journal.
    fn replay(&mut self, entry: JournalEntry, journal: &Path) -> Result<()> {
        let foreign = |problem: &str| Error::Unusable {
            path: journal.to_owned(),
            problem: format!("not of this sweep: {problem}"),
        };
        let missing = |problem: &'static str| move || foreign(problem);
        match entry {
            JournalEntry::Trace {
                trace,
                source,
                stamp,
            } => {
                let job = self
                    .plan
                    .jobs
                    .get(trace)
                    .ok_or_else(missing("a trace too many"))?;
                let known = &mut self.states[trace].known;
                match known {
                    Some(known) if known.source == source => {}
                    Some(_) => {
                        let name = job.name.display();
                        return Err(foreign(&format!(
                            "{name} differs from that of another shard"
                        )));
                    }
                    None => *known = Some(TraceWork::new(job, source, stamp)?),
                }
            }
            JournalEntry::Done { trace, counts } => {
                let state = self
                    .states
                    .get_mut(trace)
                    .ok_or_else(missing("a trace too many"))?;
                let known = state
                    .known
                    .as_mut()
                    .ok_or_else(missing("a trace not announced"))?;
                for counts in counts {
                    let cache = known.caches.get_mut(counts.cache);
                    cache.ok_or_else(missing("a cache too many"))?.counts = Some(counts);
                }
            }
        }
        Ok(())
    }

    /// The number of caches that are done, and of all caches of the traces loaded so far.
    pub fn progress(&self) -> (usize, usize) {
        let caches = || self.states.iter().filter_map(|state| state.known.as_ref());
        let done = |known: &TraceWork| {
            known
                .caches
                .iter()
                .filter(|cache| cache.counts.is_some())
                .count()
        };
        (
            caches().map(done).sum(),
            caches().map(|known| known.caches.len()).sum(),
        )
    }

    /// Does the work that is left.
    pub fn run(&mut self, progress: &dyn Progress) -> Result<SweepEnd> {
        let weights = shard::weights(self.plan);
        let task = progress.begin("", Some(weights.iter().sum()));
        let mut before = 0;
        for (index, job) in self.plan.jobs.iter().enumerate() {
            task.set_position(before);
            let number = format!(
                "{}/{} {}",
                index + 1,
                self.plan.jobs.len(),
                job.name.display()
            );
            task.set_message(number);
            match self.one_trace(index, job, before, &weights, &*task) {
                Ok(()) => before += weights[index],
                Err(Error::Cancelled) => return Ok(SweepEnd::Cancelled),
                Err(error) => return Err(error),
            }
        }
        Ok(SweepEnd::Complete)
    }

    /// Does the work on one trace. Its part of the progress bar begins at `before` and has the
    /// length of its weight.
    fn one_trace(
        &mut self,
        index: usize,
        job: &TraceJob,
        before: u64,
        weights: &[u64],
        task: &dyn Task,
    ) -> Result<()> {
        let weight = weights[index];
        let shard = self.run.shard;
        if shard.is_some_and(|shard| !shard.reads(weights, index)) {
            return Ok(());
        }
        let stamp = stamp::of(&job.path)?;
        let is_ours = |cache: usize, caches: usize| {
            shard.is_none_or(|shard| shard.has(weights, index, cache, caches))
        };
        let state = &self.states[index];
        if let Some(known) = &state.known
            && known
                .open()
                .all(|cache| !is_ours(cache, known.caches.len()))
            && known.stamp == stamp
        {
            return Ok(());
        }
        let trace = job.load()?;
        let of_job = |error: Error| match error {
            Error::Cancelled => Error::Cancelled,
            error => error.in_trace(&job.name),
        };
        self.announce(index, job, &trace, stamp).map_err(of_job)?;
        let known = self.states[index].known.as_mut().expect("announced");

        let caches = known.caches.len();
        let open: Vec<usize> = known
            .open()
            .filter(|&cache| is_ours(cache, caches))
            .collect();
        let (all, done_before) = (known.caches.len(), known.caches.len() - open.len());
        let part = |caches: f64| before + (weight as f64 * caches / all.max(1) as f64) as u64;
        task.set_position(part(done_before as f64));
        task.reset_rate();
        let mut done = done_before;
        let memory_bytes = job.options.memory_bytes;
        for unit in units(&open, known, self.run.unit_references, memory_bytes, &trace) {
            let progress = |caches: f64| {
                task.set_position(part(done as f64 + caches));
            };
            let counts = known.simulate(&unit, &trace, job, &progress, &self.run.cancel);
            let counts = counts.map_err(of_job)?;
            done += unit.len();
            for of_cache in &counts {
                known.caches[of_cache.cache].counts = Some(*of_cache);
            }
            if let Some(journal) = self.journals.first_mut() {
                journal.append(&JournalEntry::Done {
                    trace: index,
                    counts,
                })?;
            }
        }
        if self.run.cancel.load(Ordering::Relaxed) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Compares a loaded trace with the journal, or adds it there if it is new.
    fn announce(
        &mut self,
        index: usize,
        job: &TraceJob,
        trace: &Trace,
        stamp: String,
    ) -> Result<()> {
        let source = TraceInfo::of(trace, &job.name);
        let state = &mut self.states[index];
        if let Some(known) = &state.known {
            if known.source == source {
                return Ok(());
            }
            return Err(Error::TraceChanged {
                before: known.source.sha256.clone(),
                now: source.sha256,
            });
        }
        if let Some(journal) = self.journals.first_mut() {
            journal.append(&JournalEntry::Trace {
                trace: index,
                source: source.clone(),
                stamp: stamp.clone(),
            })?;
        }
        state.known = Some(TraceWork::new(job, source, stamp)?);
        Ok(())
    }

    /// A row for each cache, in the order of the plan.
    pub fn rows(&self) -> Vec<ResultRow<'_>> {
        self.by_trace().flat_map(|results| results.rows).collect()
    }

    /// The results of each trace.
    pub fn by_trace(&self) -> impl Iterator<Item = TraceResults<'_>> {
        self.states
            .iter()
            .zip(&self.plan.jobs)
            .filter_map(|(state, job)| {
                let known = state.known.as_ref()?;
                Some(TraceResults {
                    job,
                    source: &known.source,
                    rows: known.rows(&job.placing.running).collect(),
                })
            })
    }

    /// Removes the journal, or those of all shards, once the output is written.
    pub fn finish(self) -> Result<()> {
        self.journals.into_iter().try_for_each(Journal::remove)
    }
}

impl TraceWork {
    fn new(job: &TraceJob, source: TraceInfo, stamp: String) -> Result<TraceWork> {
        // An empty trace has nothing to simulate, and a share of no blocks is no size.
        let caches = match (source.references, job.placing.nodes.is_empty()) {
            (0, _) => Vec::new(),
            (_, true) if let Some(distinct_bytes) = source.distinct_bytes => {
                let sizes = objects::sizes(&job.sizes, distinct_bytes)?;
                at_each_size(&job.policies, &sizes, |spec, size| {
                    let bytes = size.bytes;
                    let kind = WorkKind::Objects(Box::new(ObjectCache { spec, bytes }));
                    WorkItem::new(kind, size.written)
                })
            }
            (_, true) => {
                let sizes = simulate::sizes(&job.sizes, source.block_bytes, source.distinct)?;
                at_each_size(&job.policies, &sizes, |spec, size| {
                    let cache_blocks = size.blocks;
                    let cache = CacheConfiguration { spec, cache_blocks };
                    WorkItem::new(WorkKind::Cache(Box::new(cache)), size.written)
                })
            }
            (_, false) => {
                let request = job.request(&source.placements)?;
                let cases = placement::cases(&request, source.block_bytes, source.distinct)?;
                let caches = cases.into_iter().map(|case| WorkItem {
                    size: case.size.clone(),
                    kind: WorkKind::Placement(Box::new(case)),
                    counts: None,
                });
                caches.collect()
            }
        };
        Ok(TraceWork {
            caches,
            source,
            stamp,
        })
    }

    /// Simulates a unit, whose items are all caches of blocks, all caches of objects, or all
    /// placements. `progress` gets the number
    /// of items that would be done by now.
    fn simulate(
        &self,
        unit: &[usize],
        trace: &Trace,
        job: &TraceJob,
        progress: &(dyn Fn(f64) + Sync),
        cancel: &AtomicBool,
    ) -> Result<Vec<ItemCounts>> {
        let passes = |references: u64| references as f64 / trace.references().max(1) as f64;
        let cases: Vec<PlacementCase> = unit
            .iter()
            .filter_map(|&cache| self.case(cache))
            .cloned()
            .collect();
        if !cases.is_empty() {
            let control = RunControl {
                progress: Some(&|references| progress(passes(references))),
                cancel: Some(cancel),
            };
            let results = placement::run(trace, cases, &job.placing.running, 0, control)?;
            return Ok(unit.iter().zip(&results).map(ItemCounts::placed).collect());
        }
        let kinds = || unit.iter().map(|&cache| &self.caches[cache].kind);
        let configurations = kinds().filter_map(|kind| match kind {
            WorkKind::Cache(configuration) => Some(**configuration),
            _ => None,
        });
        let configurations: Vec<CacheConfiguration> = configurations.collect();
        let of_objects = kinds().filter_map(|kind| match kind {
            WorkKind::Objects(cache) => Some(**cache),
            _ => None,
        });
        let of_objects: Vec<ObjectCache> = of_objects.collect();
        let options = CacheOptions {
            progress: Some(&|references| progress(passes(references) * unit.len() as f64)),
            cancel: Some(cancel),
            ..CacheOptions::default()
        };
        if !of_objects.is_empty() {
            let outcomes = hither_sim::objects::run(trace, &of_objects, &options)?;
            return Ok(unit
                .iter()
                .zip(&outcomes)
                .map(ItemCounts::objects)
                .collect());
        }
        let outcomes = hither_sim::run(trace, &configurations, &options)?;
        Ok(unit.iter().zip(&outcomes).map(ItemCounts::cache).collect())
    }

    fn case(&self, cache: usize) -> Option<&PlacementCase> {
        match &self.caches[cache].kind {
            WorkKind::Placement(case) => Some(case),
            _ => None,
        }
    }

    /// The indices of the items that are not done.
    fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.caches.len()).filter(|&cache| self.caches[cache].counts.is_none())
    }

    fn is_done(&self) -> bool {
        self.open().next().is_none()
    }

    fn rows<'a>(&'a self, running: &'a RunSettings) -> impl Iterator<Item = ResultRow<'a>> {
        self.caches.iter().filter_map(|cache| {
            let counts = cache.counts.as_ref()?;
            let (policy, cache_blocks, placed) = match &cache.kind {
                WorkKind::Cache(own) => (Some(own.spec), own.cache_blocks.into(), None),
                WorkKind::Objects(own) => (Some(own.spec), 0, None),
                WorkKind::Placement(case) => (
                    case.policy(),
                    case.blocks(),
                    (counts.placed.as_ref()).map(|counts| counts.columns(case, running)),
                ),
            };
            Some(ResultRow {
                source: &self.source,
                policy,
                size: cache.size.clone(),
                cache_blocks,
                hits: counts.hits,
                misses: counts.misses,
                refused: counts.refused,
                standard_error: counts.error_bits.map(f64::from_bits),
                objects: counts.objects,
                placement: placed,
            })
        })
    }
}

/// An item for each policy at each size.
fn at_each_size<S>(
    policies: &[Spec],
    sizes: &[S],
    item: impl Fn(Spec, &S) -> WorkItem,
) -> Vec<WorkItem> {
    let items = policies
        .iter()
        .flat_map(|&spec| sizes.iter().map(move |size| (spec, size)));
    items.map(|(spec, size)| item(spec, size)).collect()
}

/// Divides the open items into units.
///
/// A unit has at least as many items as there are threads, since threads would idle otherwise, and
/// more if the references allow, but no more than `memory_bytes` has room for. All sizes of a stack
/// algorithm stay together, since one pass over its stack serves them all.
fn units(
    open: &[usize],
    known: &TraceWork,
    unit_references: u64,
    memory_bytes: u64,
    trace: &Trace,
) -> Vec<Vec<usize>> {
    let mut whole: Vec<Vec<usize>> = Vec::new();
    for &cache in open {
        let stack = |cache: usize| match &known.caches[cache].kind {
            WorkKind::Cache(own) if hither_sim::stack::is_stack_algorithm(&own.spec) => {
                Some(own.spec)
            }
            _ => None,
        };
        let spec = stack(cache);
        let same = whole
            .iter_mut()
            .find(|caches| spec.is_some() && stack(caches[0]) == spec);
        match same {
            Some(caches) => caches.push(cache),
            None => whole.push(vec![cache]),
        }
    }
    let passes = unit_references / trace.references().max(1) as u64;
    let each = open
        .iter()
        .map(|&cache| known.caches[cache].kind.bytes_per_block());
    let each = each.max().unwrap_or(1) * trace.blocks().max(1) as u64;
    let at_once = passes.max(current_num_threads() as u64);
    let at_once = at_once.min(memory_bytes / each).max(1);
    let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
    whole.chunks(at_once).map(<[Vec<usize>]>::concat).collect()
}

/// Fails where a plan has nothing to do, or what cannot be done.
pub fn check_plan(plan: &SweepPlan) -> Result<()> {
    if plan.jobs.is_empty() {
        let problem = "no traces: name some with --trace or in a TOML file";
        return Err(Error::Usage(problem.to_owned()));
    }
    for job in &plan.jobs {
        if job.placing.nodes.is_empty() && !job.placing.placements.is_empty() {
            let problem = "placements are for nodes, and none are named";
            return Err(Error::Usage(format!("{}: {problem}", job.name.display())));
        }
        if job.path == Path::new("-") {
            let problem = "a sweep may read its traces again, so none of them is standard input \
                           (a file -: ./-)";
            return Err(Error::Usage(problem.to_owned()));
        }
    }
    Ok(())
}

/// The traces that a shard reads, or those of the whole plan.
pub fn traces_read(plan: &SweepPlan, shard: Option<Shard>) -> Vec<&TraceJob> {
    let weights = shard::weights(plan);
    let jobs = plan.jobs.iter().enumerate();
    jobs.filter(|&(index, _)| shard.is_none_or(|shard| shard.reads(&weights, index)))
        .map(|(_, job)| job)
        .collect()
}

/// Fails where a trace is missing or its format cannot be detected, so that the error comes before
/// hours of simulation.
pub fn check_traces(jobs: &[&TraceJob]) -> Result<()> {
    for job in jobs {
        let path = &job.path;
        let found =
            std::fs::metadata(Location::of(path).file).map_err(|error| missing(job, error))?;
        // What is read from a pipe could not be read again.
        if found.is_file() || found.is_dir() {
            hither_trace::format::choose(job.format.as_deref(), &mut Input::open(path)?)?;
        }
    }
    Ok(())
}

/// The error of a trace that is not there.
fn missing(job: &TraceJob, error: std::io::Error) -> Error {
    let name = job.name.display().to_string();
    if name.contains("://") {
        Error::Usage(format!(
            "{name}: the command reads no URLs; `hither.sweep` in Python does, and --copies names \
             copies on this machine"
        ))
    } else {
        Error::of_file(&job.path)(error)
    }
}

/// The path of the journal of an output.
pub fn journal_path(output: &Path) -> std::path::PathBuf {
    crate::file::beside(output, ".journal")
}
