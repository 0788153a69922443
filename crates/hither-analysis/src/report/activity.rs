//! One pass of a trace for what only a report shows: the picture, and which process and thread made
//! which references when.

use std::cmp::Reverse;

use hither_core::classify::pcc::{self, Pcc};
use hither_core::classify::ubm::Ubm;
use hither_core::classify::{Class, Classifier};
use hither_core::registry::Needs;
use hither_core::{Access, Spec};
use hither_sim::References;
use hither_trace::{Stats, Trace};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::access_picture::{AccessPicture, Grid, Order};
use crate::Result;
use crate::cache_analysis::parameter;
use crate::progress::Progress;

/// Parts of the trace that a strip of activity shows.
const PARTS: usize = 60;

const BATCH: usize = 8192;

/// What the pass found.
pub(super) struct Activity {
    pub(super) picture: AccessPicture,
    pub(super) processes: Vec<Process>,
    /// By call site, the processes and their references, most first.
    pub(super) of_sites: FxHashMap<u32, Vec<(u32, u64)>>,
}

/// A process with its threads, most references first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Process {
    process: u32,
    pid: u32,
    parent_pid: u32,
    exe: String,
    command: String,
    pub(super) references: u64,
    share: f64,
    /// References in each of sixty equal parts of the trace.
    over_time: Vec<u64>,
    threads: Vec<Thread>,
    threads_left_out: u64,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Thread {
    thread: u32,
    tid: u32,
    references: u64,
    share: f64,
}

/// The most threads that are listed of a process.
const THREADS: usize = 64;

/// The most characters of a command line: enough to know it by, and a linker's has a hundred
/// thousand.
const COMMAND: usize = 300;

/// The classifier of the PCC policy among `policies`, or as it is by default; of UBM where the
/// trace has no call sites.
fn classifier(trace: &Trace, policies: &[Spec]) -> Option<(&'static str, Box<dyn Classifier>)> {
    let spec = |name: &str| {
        let named = policies.iter().find(|spec| spec.entry().name == name);
        named
            .copied()
            .unwrap_or_else(|| name.parse().expect("a policy"))
    };
    let known = trace.knows();
    if known.sites {
        let spec = spec("pcc");
        let config = pcc::Config {
            threshold: parameter(&spec, "threshold"),
            sample: parameter(&spec, "sample"),
            entries_max: parameter(&spec, "entries") as usize,
            sites_max: parameter(&spec, "sites") as usize,
        };
        Some(("pcc", Box::new(Pcc::new(config, &[]))))
    } else if known.objects {
        let threshold = parameter(&spec("ubm"), "threshold") as u32;
        Some(("ubm", Box::new(Ubm::new(threshold))))
    } else {
        None
    }
}

impl Activity {
    /// Makes the pass; the picture has about so many `cells` at most.
    pub(super) fn of(
        trace: &Trace,
        stats: &Stats,
        policies: &[Spec],
        cells: usize,
        progress: &dyn Progress,
    ) -> Result<Activity> {
        let order = Order::of(trace);
        let mut grid = Grid::new(trace.blocks(), cells);
        let mut classifier = classifier(trace, policies);
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
        let mut over_time = vec![[0u64; PARTS]; trace.processes()];
        let mut pairs: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        let needs = Needs {
            objects: true,
            ..trace.knows()
        };
        let bar = progress.begin("drawing", Some(all));
        trace.for_each_batch(BATCH, needs, |batch| {
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
                    parts[(access.tick * PARTS as u64 / all) as usize] += 1;
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

fn processes(trace: &Trace, by_thread: &[u64], over_time: &[[u64; PARTS]]) -> Vec<Process> {
    let meta = trace.meta();
    let share = |references: u64| references as f64 / trace.references().max(1) as f64;
    let mut threads: Vec<Vec<Thread>> = vec![Vec::new(); over_time.len()];
    for (thread, &references) in by_thread.iter().enumerate() {
        let process = trace.process_of(hither_core::Thread(thread as u32));
        threads[process.index()].push(Thread {
            thread: thread as u32,
            tid: meta.threads.get(thread).map_or(0, |row| row.tid),
            references,
            share: share(references),
        });
    }
    let each = threads.into_iter().zip(over_time).enumerate();
    let mut processes: Vec<Process> = each
        .map(|(number, (mut threads, over_time))| {
            threads.sort_by_key(|thread| (Reverse(thread.references), thread.thread));
            let left_out = threads.len().saturating_sub(THREADS) as u64;
            let references = threads.iter().map(|thread| thread.references).sum();
            threads.truncate(THREADS);
            let row = meta.processes.get(number).cloned().unwrap_or_default();
            let mut command: String = row.command.join(" ");
            if let Some((cut, _)) = command.char_indices().nth(COMMAND) {
                command.truncate(cut);
                command.push('…');
            }
            Process {
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
