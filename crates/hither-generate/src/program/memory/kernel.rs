//! What a program over simulated memory consists of (arrays, initialisation, iterations), the
//! parameters that all have, and how one is run.

use hither_core::placement::EpochKind;
use hither_core::registry::Param;
use hither_core::spec::Values;

use super::cache;
use super::team::{Team, TeamSettings};
use crate::program::definition::Program;
use crate::program::execution::{Execution, Stopped};
use hither_trace::schema::{RegionReferences, RowOp};

/// Threads by default.
pub(super) const THREADS: u32 = 16;
/// The largest number of threads: each has a processor, and the directory has one bit for each.
pub(super) const THREADS_MAX: u32 = cache::PROCESSORS_MAX as u32;

/// A program.
pub(super) trait Kernel: Sized {
    /// Its entry in the registry.
    const PROGRAM: &'static Program;

    /// Lays out its arrays.
    fn new(team: &mut Team, values: &Values) -> Self;

    /// Writes the data that the iterations start from: each thread its own, or thread 0 all of
    /// them.
    fn initialise(&mut self, team: &mut Team);

    /// Runs an iteration. All iterations consist of the same constructs.
    fn iterate(&mut self, team: &mut Team, iteration: u64);
}

/// The number of parameters that all programs have, after their own.
pub(super) const SHARED_PARAMS: usize = 5;

/// The first of the shared parameters.
pub(super) const fn iterations(default: u64) -> Param {
    Param::count(
        "iterations",
        "how often the whole computation is done",
        default,
        1..=1 << 32,
    )
}

/// The second shared parameter.
pub(super) const SERIAL_INIT: Param = Param::switch(
    "serial_init",
    "1: thread 0 initialises all data, so that the first touch puts every page on its node; 0: \
     each thread its own",
    false,
);

/// The third shared parameter.
pub(super) const L1_WAYS: Param = Param::count(
    "l1_ways",
    "ways of a processor's first-level cache, of 4 KiB each",
    4,
    1..=cache::L1_WAYS_MAX as u64,
);

/// The fourth shared parameter.
pub(super) const fn l2_kib(default: u64) -> Param {
    Param::count(
        "l2_kib",
        "size of a processor's second-level cache in KiB, 8 ways; what it misses is the trace",
        default,
        cache::L2_KIB_MIN..=1 << 16,
    )
}

/// The last shared parameter.
pub(super) const SLICE_NS: Param = Param::count(
    "slice_ns",
    "a thread's misses on one page within this time are one row",
    20_000,
    0..=1 << 32,
);

/// Runs a program. Its initialisation is not an iteration and has no mark of one, as the
/// measurements of the page migration paper leave it out. The constructs of the initialisation are
/// marked.
pub(super) fn run<K: Kernel>(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let own = K::PROGRAM.params.len() - SHARED_PARAMS;
    let shared = |at: usize| values.count(own + at);
    let threads = execution.threads();
    let mut team = Team::new(&TeamSettings {
        threads: threads as usize,
        serial_init: shared(1) == 1,
        l1_ways: shared(2) as usize,
        l2_kib: shared(3) as u32,
        slice_ns: shared(4),
        random: execution.random(0),
    });
    let mut kernel = K::new(&mut team, values);
    let process = execution.process(&[K::PROGRAM.name]);
    start_threads(process, execution);
    let nodes = |execution: &Execution| (0..threads).map(|thread| execution.node(thread)).collect();
    let mut before: Vec<u32> = nodes(execution);
    let mut sites = Vec::new();
    let names = team.regions().iter().map(|region| {
        let name = format!("{}.{}", K::PROGRAM.name, region.name);
        execution.region(name, region.bytes)
    });
    let objects: Vec<u32> = names.collect();
    let iterations = shared(0);
    for iteration in 0..=iterations {
        match iteration.checked_sub(1) {
            None => kernel.initialise(&mut team),
            Some(iteration) => kernel.iterate(&mut team, iteration),
        }
        sites.extend(
            team.sites()[sites.len()..]
                .iter()
                .map(|site| execution.site(format!("{}::{site}", K::PROGRAM.name))),
        );
        for mut row in team.take_rows() {
            row.site = sites[row.site as usize];
            match row.op {
                RowOp::Mark => execution.mark(EpochKind::Construct, row.time_ns)?,
                _ => execution.push(row),
            }
        }
        execution.done(iteration as f64 / (iterations + 1) as f64);
        if iteration > 0 {
            execution.iteration_ends(team.now_ns())?;
            let after = nodes(execution);
            team.moved(&before, &after);
            before = after;
        }
    }
    for (&object, region) in objects.iter().zip(team.regions()) {
        let (references, misses) = team.references(region);
        execution.references(RegionReferences {
            object,
            references: references.to_vec(),
            misses: misses.to_vec(),
        });
    }
    Ok(())
}

/// Starts blocks of neighbouring threads on each node, since neighbours share borders. With more
/// nodes than threads, threads are dealt to the nodes in turn.
fn start_threads(process: u32, execution: &mut Execution) {
    let (threads, nodes) = (execution.threads(), execution.nodes());
    for thread in 0..threads {
        if threads < nodes {
            execution.thread(process);
        } else {
            execution.thread_on(
                process,
                (u64::from(thread) * u64::from(nodes) / u64::from(threads)) as u32,
            );
        }
    }
}
