//! Threaded programs that are really executed, over arrays whose every load and store goes through
//! modelled caches: what they miss, by page, is the trace.
//!
//! Each program computes what it says, and its tests check the result; so who shares which page
//! with whom, in which construct and how often, is not made up. What is simplified against the
//! program that it stands for, its file says.
//!
//! - [`cache`]: the private caches of the processors, coherent by a directory;
//! - [`team`]: threads that run abreast in parallel constructs, their time, and the rows that their
//!   misses become;
//! - [`array`]: arrays in the simulated memory;
//! - a file a program.
//!
//! The caches are small by today's measure and so are the data, as the papers scaled theirs: what
//! matters is that the data of a thread do not fit, and that is checked in seconds.

mod array;
pub(super) mod bucket_sort;
mod cache;
pub(super) mod cfd;
pub(super) mod cg;
pub(super) mod matmul;
pub(super) mod multigrid;
pub(super) mod stencil;
mod team;

use hither_core::placement::EpochKind;
use hither_core::registry::{Param, ParamKind};
use hither_core::spec::Values;

use self::team::{Team, TeamSettings};
use super::{Execution, Program, Stopped, switch};
use crate::schema::RowOp;

/// Threads where the user does not say.
const THREADS: u32 = 16;
/// The most threads: each has a processor, and a directory has a bit for each.
const THREADS_MAX: u32 = cache::PROCESSORS_MAX as u32;

/// A program.
trait Kernel: Sized {
    /// Its line in the registry.
    const PROGRAM: &'static Program;

    /// Lays its arrays out.
    fn new(team: &mut Team, values: &Values) -> Self;

    /// Writes the data that the iterations begin with: in blocks, by who uses them, or all by
    /// thread 0.
    fn initialise(&mut self, team: &mut Team);

    /// An iteration, of constructs that are the same in all.
    fn iterate(&mut self, team: &mut Team, iteration: u64);
}

/// How many parameters all programs have, after their own.
const SHARED: usize = 5;

/// A parameter that is a whole number.
const fn count(name: &'static str, doc: &'static str, default: u64, min: u64, max: u64) -> Param {
    Param {
        name,
        doc,
        kind: ParamKind::Count { default, min, max },
    }
}

/// The first of the parameters that all have.
const fn iterations(default: u64) -> Param {
    count(
        "iterations",
        "how often the whole computation is done",
        default,
        1,
        1 << 32,
    )
}

/// The second.
const SERIAL_INIT: Param = switch(
    "serial_init",
    "1: thread 0 initialises all data, so that the first touch puts every page on its node; 0: \
     each thread its own",
    0,
);

/// The third.
const L1_WAYS: Param = count(
    "l1_ways",
    "ways of a processor's first-level cache, of 4 KiB each",
    4,
    1,
    cache::L1_WAYS_MAX as u64,
);

/// The fourth.
const fn l2_kib(default: u64) -> Param {
    count(
        "l2_kib",
        "size of a processor's second-level cache in KiB, 8 ways; what it misses is the trace",
        default,
        cache::L2_KIB_MIN,
        1 << 16,
    )
}

/// The last.
const SLICE_NS: Param = count(
    "slice_ns",
    "a thread's misses on one page within so many nanoseconds are one row",
    20_000,
    0,
    1 << 32,
);

/// Runs a program. The initialisation is not an iteration and ends without a mark of one, as the
/// page migration paper's measurements leave it out; its constructs are marked.
fn run<K: Kernel>(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let own = K::PROGRAM.params.len() - SHARED;
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
    for region in team.regions() {
        execution.region(format!("{}.{}", K::PROGRAM.name, region.name), region.bytes);
    }
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
    Ok(())
}

/// Blocks of neighbouring threads on each node, since they share borders; where there are more
/// nodes than threads, the threads are dealt out as everybody's are.
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

#[cfg(test)]
mod testing {
    use super::*;
    use crate::generate::ProgramSpec;
    use hither_core::random::Random;

    /// The values of a program's parameters.
    pub(super) fn values(spec: &str) -> Values {
        *spec.parse::<ProgramSpec>().unwrap().values()
    }

    /// Threads with caches so small that tests at tiny sizes miss.
    pub(super) fn team(threads: usize) -> Team {
        Team::new(&TeamSettings {
            threads,
            l1_ways: 1,
            l2_kib: 32,
            slice_ns: 10_000,
            serial_init: false,
            random: Random::new(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{team, values};
    use super::*;
    use crate::schema::AccessRow;

    #[test]
    fn the_parameters_that_all_have_stand_last() {
        let entries = crate::generate::PROGRAMS
            .iter()
            .filter(|entry| entry.iterates);
        let mut seen = 0;
        for entry in entries {
            let shared = &entry.params[entry.params.len() - SHARED..];
            let names: Vec<&str> = shared.iter().map(|param| param.name).collect();
            assert_eq!(
                names,
                ["iterations", "serial_init", "l1_ways", "l2_kib", "slice_ns"]
            );
            seen += 1;
        }
        assert_eq!(seen, 6);
    }

    /// A program alone: the rows of its initialisation and of two iterations.
    fn rows<K: Kernel>(spec: &str, slice_ns: u64) -> Vec<AccessRow> {
        let mut team = team(3);
        team.slice(slice_ns);
        let mut kernel = K::new(&mut team, &values(spec));
        kernel.initialise(&mut team);
        let mut rows = team.take_rows();
        for iteration in 0..2 {
            kernel.iterate(&mut team, iteration);
            rows.extend(team.take_rows());
        }
        assert!(rows.is_sorted_by_key(|row| row.time_ns), "{spec}");
        for row in rows.iter().filter(|row| row.op != RowOp::Mark) {
            let region = team.regions()[row.object as usize];
            let (first, last) = (row.offset, row.offset + row.length - 1);
            assert_eq!(
                first / team::PAGE_BYTES as u64,
                last / team::PAGE_BYTES as u64
            );
            assert!(first < region.bytes && row.count > 0, "{spec}: {row:?}");
            assert!((row.site as usize) < team.sites().len());
        }
        rows
    }

    /// Rows are gathered or not: the misses are the same ones, page by page.
    fn is_gathered<K: Kernel>(spec: &str) {
        let misses = |rows: &[AccessRow]| {
            let rows = rows.iter().filter(|row| row.op != RowOp::Mark);
            let page = |row: &AccessRow| row.offset / team::PAGE_BYTES as u64;
            let mut misses: Vec<_> = rows
                .flat_map(|row| {
                    let miss = (row.site, row.thread, row.object, page(row), row.op.name());
                    std::iter::repeat_n(miss, row.count as usize)
                })
                .collect();
            misses.sort_unstable();
            misses
        };
        let (gathered, single) = (rows::<K>(spec, 20_000), rows::<K>(spec, 0));
        assert_eq!(misses(&gathered), misses(&single), "{spec}");
        assert!(gathered.len() < single.len(), "{spec}");
    }

    #[test]
    fn gathering_changes_no_miss_and_rows_stay_within_pages() {
        is_gathered::<cfd::Cfd>("cfd{points=8}");
        is_gathered::<cg::ConjugateGradient>("cg{rows=500,nonzeros=3,steps=3}");
        is_gathered::<bucket_sort::BucketSort>("bucket-sort{keys=3000,key_bits=12,bucket_bits=4}");
        is_gathered::<matmul::Matmul>("matmul{rows=40,block=16}");
        is_gathered::<multigrid::Multigrid>("multigrid{levels=3}");
        is_gathered::<stencil::Stencil>("stencil{points=24}");
    }
}
