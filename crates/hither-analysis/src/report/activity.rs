//! The pass over a trace for what only a report shows: the picture of accesses, and the references
//! of each process and thread over time.

use std::cmp::Reverse;

use hither_core::classify::pcc::Pcc;
use hither_core::classify::{Class, Classifier};
use hither_core::registry::Needs;
use hither_core::{Access, replacement};
use hither_sim::{Grid, References};
use hither_trace::{Stats, Trace};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::access_picture::{AccessGrid, AccessPicture, BlockOrder};
use crate::Result;
use crate::progress::Progress;

/// The number of equal parts of the trace in which a process's references are counted.
const TRACE_PARTS: usize = 60;

/// The number of accesses that the pass takes from the trace at a time.
const BATCH_ACCESSES: usize = 8192;

/// The results of the pass.
pub(super) struct Activity {
    pub(super) picture: AccessPicture,
    pub(super) processes: Vec<ProcessActivity>,
    /// For each call site its processes with their references, most first.
    pub(super) of_sites: FxHashMap<u32, Vec<(u32, u64)>>,
}

/// A process with its threads. Threads with most references come first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ProcessActivity {
    process: u32,
    pid: u32,
    parent_pid: u32,
    exe: String,
    command: String,
    pub(super) references: u64,
    share: f64,
    /// The references in each of the [`TRACE_PARTS`].
    over_time: Vec<u64>,
    threads: Vec<ThreadActivity>,
    threads_left_out: u64,
}

/// The references of a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ThreadActivity {
    thread: u32,
    tid: u32,
    references: u64,
    share: f64,
}

/// The most threads that are listed for a process.
const THREADS_MAX: usize = 64;

/// The most characters of a command line. A linker's may have a hundred thousand.
const COMMAND_CHARACTERS_MAX: usize = 300;

/// PCC's classifier with the parameters of the simulated policy, or its defaults. UBM's where the
/// trace has no call sites.
fn classifier(trace: &Trace, caches: &Grid) -> Option<(&'static str, Box<dyn Classifier>)> {
    let spec = |name: &str| {
        let simulated = caches.row_of(name).map(|row| row.policy);
        simulated.unwrap_or_else(|| name.parse().expect("a policy"))
    };
    let known = trace.knows();
    if known.sites {
        let config = replacement::pcc::config(spec("pcc").values());
        Some(("pcc", Box::new(Pcc::new(config, &[]))))
    } else if known.objects {
        let classifier = replacement::ubm::classifier(spec("ubm").values());
        Some(("ubm", Box::new(classifier)))
    } else {
        None
    }
}

impl Activity {
    /// Makes the pass. The picture has at most about this many `cells`.
    pub(super) fn of(
        trace: &Trace,
        stats: &Stats,
        caches: &Grid,
        cells: usize,
        progress: &dyn Progress,
    ) -> Result<Activity> {
        let order = BlockOrder::of(trace);
        let mut grid = AccessGrid::new(trace.blocks(), cells);
        let mut classifier = classifier(trace, caches);
        let sites: Vec<u32> = stats
            .by_site
            .iter()
            .filter(|row| row.references > 0)
            .map(|row| row.number)
            .collect();
        let mut positions = vec![0; trace.sites().len()];
        for (position, &site) in sites.iter().enumerate() {
            positions[site as usize] = position as u32;
        }
        let all = trace.references() as u64;
        let mut over_time = vec![[0u64; TRACE_PARTS]; trace.processes()];
        let mut pairs: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        let needs = Needs {
            objects: true,
            ..trace.knows()
        };
        let bar = progress.begin("drawing", Some(all));
        trace.for_each_batch(BATCH_ACCESSES, needs, |batch| {
            for same in batch.chunk_by(|a, b| (a.site, a.process) == (b.site, b.process)) {
                let Access { site, process, .. } = same[0];
                let references = same.len() as u64;
                *pairs.entry((site.0, process.0)).or_default() += references;
                let position = positions[site.index()];
                let parts = &mut over_time[process.index()];
                for access in same {
                    let class: Option<Class> = classifier
                        .as_mut()
                        .map(|(_, classifier)| classifier.classify(access).class);
                    grid.push(order.rows[access.block.index()], position, class);
                    parts[(access.tick * TRACE_PARTS as u64 / all) as usize] += 1;
                }
            }
            bar.advance(batch.len() as u64);
        })?;
        drop(bar);
        let mut of_sites: FxHashMap<u32, Vec<(u32, u64)>> = FxHashMap::default();
        for ((site, process), references) in pairs {
            of_sites
                .entry(site)
                .or_default()
                .push((process, references));
        }
        for processes in of_sites.values_mut() {
            processes.sort_by_key(|&(process, references)| (Reverse(references), process));
        }
        let classes_by = classifier.map(|(name, _)| name);
        Ok(Activity {
            picture: grid.picture(classes_by, sites, order.objects),
            processes: processes(trace, &stats.by_thread, &over_time),
            of_sites,
        })
    }
}

fn processes(
    trace: &Trace,
    by_thread: &[u64],
    over_time: &[[u64; TRACE_PARTS]],
) -> Vec<ProcessActivity> {
    let meta = trace.meta();
    let share = |references: u64| references as f64 / trace.references().max(1) as f64;
    let mut threads: Vec<Vec<ThreadActivity>> = vec![Vec::new(); over_time.len()];
    for (thread, &references) in by_thread.iter().enumerate() {
        let process = trace.process_of(hither_core::Thread(thread as u32));
        threads[process.index()].push(ThreadActivity {
            thread: thread as u32,
            tid: meta.threads.get(thread).map_or(0, |row| row.tid),
            references,
            share: share(references),
        });
    }
    let each = threads.into_iter().zip(over_time).enumerate();
    let mut processes: Vec<ProcessActivity> = each
        .map(|(number, (mut threads, over_time))| {
            threads.sort_by_key(|thread| (Reverse(thread.references), thread.thread));
            let left_out = threads.len().saturating_sub(THREADS_MAX) as u64;
            let references = threads.iter().map(|thread| thread.references).sum();
            threads.truncate(THREADS_MAX);
            let row = meta.processes.get(number).cloned().unwrap_or_default();
            let mut command: String = row.command.join(" ");
            if let Some((cut, _)) = command.char_indices().nth(COMMAND_CHARACTERS_MAX) {
                command.truncate(cut);
                command.push('…');
            }
            ProcessActivity {
                process: number as u32,
                pid: row.pid,
                parent_pid: row.parent_pid,
                exe: row.exe,
                command,
                references,
                share: share(references),
                over_time: over_time.to_vec(),
                threads,
                threads_left_out: left_out,
            }
        })
        .collect();
    processes.sort_by_key(|process| (Reverse(process.references), process.process));
    processes
}
