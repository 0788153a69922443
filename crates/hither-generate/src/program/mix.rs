//! Programs that run at the same time, as one trace.
//!
//! Each program runs on a thread and sends batches. They are merged by time; of rows of the same
//! time, those of the earlier program come first. Numbers are assigned anew, in order of first use.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use hither_core::random::mix;
use serde_json::Value;

use super::definition::ProgramSpec;
use super::execution::{Execution, ExecutionSettings, RowBatch};
use crate::workload::signature;
use hither_trace::Importer;
use hither_trace::LoadOptions;
use hither_trace::Result;
use hither_trace::Sink;
use hither_trace::Trace;
use hither_trace::TraceBuilder;
use hither_trace::Writer;
use hither_trace::schema::{
    AccessRow, Machine, MemoryNode, Meta, ObjectRow, ProcessRow, RegionReferences, RowOp, SiteRow,
    ThreadRow,
};

/// Batches that a program may be ahead of the merge.
const BATCHES_AHEAD_MAX: usize = 4;

/// The first process and thread id.
const FIRST_PID: u32 = 1000;

/// Options of all programs of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MixOptions {
    /// Threads of each program. `None`: the default of the program.
    pub threads: Option<u32>,
    /// Nodes of the machine. `None`: as many as the largest number of threads of a program.
    pub nodes: Option<u32>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Threads migrate to other nodes after that number of iterations, or in programs without
    /// iterations after that number of their own requests. 0: never.
    pub migrate_every: u64,
    /// Queues that the programs are dealt to in turn. The programs of a queue run one after
    /// another, as a list of jobs on a processor. `None`: all programs begin together.
    pub queues: Option<u32>,
}

/// Programs that run at the same time, or in queues.
#[derive(Clone, Debug)]
pub struct ProgramMix {
    programs: Vec<ProgramSpec>,
    conditions: MixOptions,
}

impl ProgramMix {
    /// The mix of these programs.
    ///
    /// # Panics
    ///
    /// Panics without a program, with 0 threads, nodes or queues, or with more threads than a
    /// program can have.
    pub fn new(programs: &[ProgramSpec], conditions: MixOptions) -> ProgramMix {
        assert!(!programs.is_empty(), "a mix has a program");
        assert!(conditions.threads != Some(0), "a program has a thread");
        assert!(conditions.nodes != Some(0), "a machine has a node");
        assert!(conditions.queues != Some(0), "a program has a queue");
        let mix = ProgramMix {
            programs: programs.to_vec(),
            conditions,
        };
        for program in programs {
            let entry = program.entry();
            assert!(mix.threads(program) <= entry.threads_max, "{}", entry.name);
        }
        mix
    }

    /// The number of nodes of the machine.
    pub fn nodes(&self) -> u32 {
        let most = self.programs.iter().map(|program| self.threads(program));
        let most = most.max().expect("a mix has a program");
        self.conditions.nodes.unwrap_or(most)
    }

    fn threads(&self, program: &ProgramSpec) -> u32 {
        self.conditions.threads.unwrap_or(program.entry().threads)
    }

    /// Runs the programs, writes the trace folder and returns its number of rows. `force` is as for
    /// [`Writer::create`]. `progress` is called now and then with the share that is done, from 0 to
    /// 1.
    pub fn write(
        &self,
        folder: impl AsRef<Path>,
        force: bool,
        progress: impl FnMut(f64),
    ) -> Result<u64> {
        let folder = folder.as_ref();
        let writer = Writer::create(folder, force)?;
        let block_bytes = LoadOptions::DEFAULT.block_bytes;
        let mut importer = Importer::new(folder, block_bytes, writer);
        self.run(&mut importer, progress)?;
        importer.finish()
    }

    /// Runs the programs and returns the trace. References beyond the memory budget of `options`
    /// lie in a temporary file. Export formats with next uses need this. Errors name `path`.
    pub fn trace(
        &self,
        path: &Path,
        options: &LoadOptions,
        progress: impl FnMut(f64),
    ) -> Result<Trace> {
        let mut builder = TraceBuilder::new(path, options)?;
        self.run(&mut builder, progress)?;
        builder.finish()
    }

    fn run(&self, sink: &mut dyn Sink, progress: impl FnMut(f64)) -> Result<()> {
        sink.describe(Vec::new(), vec![SiteRow::unknown()], self.meta());
        thread::scope(|scope| {
            let mut threads_before = 0;
            let mut feeds = Vec::with_capacity(self.programs.len());
            for (number, program) in (1u64..).zip(&self.programs) {
                let (out, batches) = sync_channel(BATCHES_AHEAD_MAX);
                let setting = ExecutionSettings {
                    threads: self.threads(program),
                    nodes: self.nodes(),
                    seed: mix(self.conditions.seed ^ mix(number)),
                    migrate_every: self.conditions.migrate_every,
                    iterates: program.entry().iterates,
                    threads_before,
                };
                threads_before += setting.threads;
                scope.spawn(move || {
                    let mut execution = Execution::new(setting, out);
                    // The receiver that stopped it reports the error.
                    let _ = (program.entry().run)(program.values(), &mut execution)
                        .and_then(|()| execution.finish());
                });
                feeds.push(ProgramFeed::new(batches));
            }
            let queues = self.conditions.queues;
            let queues = queues.map_or(feeds.len(), |queues| queues as usize);
            merge(feeds, queues, sink, progress)
        })
    }

    fn meta(&self) -> Meta {
        let nodes = self.nodes();
        let specs = || self.programs.iter().map(ProgramSpec::to_string);
        let mut command: Vec<String> = ["hither", "gen"].map(str::to_owned).into();
        command.extend(specs());
        let conditions = &self.conditions;
        let numbers = [
            ("threads", conditions.threads.map(u64::from)),
            ("nodes", conditions.nodes.map(u64::from)),
            ("seed", Some(conditions.seed)),
            (
                "migrate-every",
                Some(conditions.migrate_every).filter(|&every| every > 0),
            ),
            ("queues", conditions.queues.map(u64::from)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                command.extend([format!("--{name}"), number.to_string()]);
            }
        }
        let generated = [
            ("programs", specs().collect::<Vec<_>>().into()),
            ("seed", Value::from(conditions.seed)),
        ];
        let generated = generated.map(|(key, value)| (key.to_owned(), value));
        let generated = Value::Object(generated.into_iter().collect());
        let node = |node| MemoryNode {
            node,
            cpus: vec![node],
            ..MemoryNode::default()
        };
        Meta {
            clock: "modelled time".to_owned(),
            command,
            machine: Machine {
                cpus: nodes,
                page_bytes: LoadOptions::DEFAULT.block_bytes,
                ..Machine::default()
            },
            nodes: (0..nodes).map(node).collect(),
            more: [("generated".to_owned(), generated)].into_iter().collect(),
            ..Meta::default()
        }
    }
}

/// The batches of a program, and the trace's numbers of what it created.
struct ProgramFeed {
    batches: Receiver<RowBatch>,
    /// When the program begins. `None`: after another one of its queue, which has not ended.
    start_ns: Option<u64>,
    rows: VecDeque<AccessRow>,
    /// An object without a number has no access yet.
    objects: Vec<(ObjectRow, Option<u32>)>,
    sites: Vec<u32>,
    processes: Vec<u32>,
    threads: Vec<u32>,
    references: Vec<RegionReferences>,
    done: f64,
}

impl ProgramFeed {
    fn new(batches: Receiver<RowBatch>) -> ProgramFeed {
        ProgramFeed {
            batches,
            start_ns: None,
            rows: VecDeque::new(),
            objects: Vec::new(),
            sites: vec![0],
            processes: Vec::new(),
            threads: Vec::new(),
            references: Vec::new(),
            done: 0.0,
        }
    }

    /// Fetches the next batch if no row is left. Returns whether there is new progress to report.
    fn fetch(&mut self, sink: &mut dyn Sink) -> bool {
        let mut news = false;
        while self.rows.is_empty()
            && let Ok(batch) = self.batches.recv()
        {
            news = true;
            self.objects
                .extend(batch.objects.into_iter().map(|row| (row, None)));
            for function in batch.sites {
                self.sites.push(sink.add_site(SiteRow {
                    signature: signature(&function),
                    function: Some(function),
                    ..SiteRow::default()
                }));
            }
            for (exe, command) in batch.processes {
                let pid = FIRST_PID + sink.meta().processes.len() as u32;
                self.processes.push(sink.add_process(ProcessRow {
                    pid,
                    parent_pid: 1,
                    exe,
                    command,
                    ..ProcessRow::default()
                }));
            }
            for process in batch.threads {
                let tid = FIRST_PID + sink.meta().threads.len() as u32;
                let process = self.processes[process as usize];
                self.threads.push(sink.add_thread(ThreadRow {
                    process,
                    tid,
                    ..ThreadRow::default()
                }));
            }
            self.references.extend(batch.references);
            self.rows = batch.rows.into();
            self.done = batch.done;
        }
        news
    }

    /// The time of the next row in the trace, if the program runs.
    fn next_ns(&self) -> Option<u64> {
        Some(self.start_ns? + self.rows.front()?.time_ns)
    }

    /// The row with the time and the numbers of the trace.
    fn numbered(&mut self, row: AccessRow, sink: &mut dyn Sink) -> AccessRow {
        let time_ns = row.time_ns + self.start_ns.unwrap_or_default();
        let object = match self.objects.get_mut(row.object as usize) {
            Some((object, number)) if row.op != RowOp::Mark => *number.get_or_insert_with(|| {
                sink.add_object(ObjectRow {
                    first_seen_ns: time_ns,
                    ..std::mem::take(object)
                })
            }),
            _ => 0,
        };
        AccessRow {
            time_ns,
            process: self.processes[row.process as usize],
            thread: self.threads[row.thread as usize],
            site: self.sites[row.site as usize],
            object,
            ..row
        }
    }
}

/// Begins the program `at`, or the next one of its queue that does anything.
fn start(feeds: &mut [ProgramFeed], at: usize, queues: usize, now_ns: u64) {
    for feed in feeds.iter_mut().skip(at).step_by(queues) {
        feed.start_ns = Some(now_ns);
        if !feed.rows.is_empty() {
            return;
        }
    }
}

fn merge(
    mut feeds: Vec<ProgramFeed>,
    queues: usize,
    sink: &mut dyn Sink,
    mut progress: impl FnMut(f64),
) -> Result<()> {
    for feed in &mut feeds {
        feed.fetch(sink);
    }
    (0..queues).for_each(|queue| start(&mut feeds, queue, queues, 0));
    loop {
        let heads = feeds.iter().enumerate();
        let heads = heads.filter_map(|(at, feed)| Some((feed.next_ns()?, at)));
        let Some((_, at)) = heads.min() else {
            break;
        };
        let feed = &mut feeds[at];
        let row = feed.rows.pop_front().expect("it has a row");
        let row = feed.numbered(row, sink);
        sink.request(&row)?;
        if !feed.rows.is_empty() {
            continue;
        }
        let news = feed.fetch(sink);
        if feed.rows.is_empty() {
            start(&mut feeds, at + queues, queues, row.time_ns);
        }
        if news {
            let done: f64 = feeds.iter().map(|feed| feed.done).sum();
            progress(done / feeds.len() as f64);
        }
    }
    for feed in &mut feeds {
        // A region without an access is no object of the trace.
        let objects = &feed.objects;
        sink.meta()
            .references
            .extend(feed.references.drain(..).filter_map(|of| {
                let object = objects[of.object as usize].1?;
                Some(RegionReferences { object, ..of })
            }));
    }
    Ok(())
}
