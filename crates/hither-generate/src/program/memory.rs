//! Threaded programs that are executed over arrays in simulated memory. Each load and store goes
//! through modelled caches. The misses, by page, are the trace.
//!
//! Each program but [`sweeps`] computes real results, which its tests check. So its sharing of
//! pages, by construct and thread, is real as well. The file of a program says what is simpler than
//! in the original.
//!
//! - [`cache`]: the private caches of the processors, coherent by a directory;
//! - [`team`]: threads in parallel constructs, their time, and the rows of their misses;
//! - [`array`]: arrays in simulated memory;
//! - [`kernel`]: what a program consists of, and how it is run;
//! - one file per program.
//!
//! Caches and data are small by today's measure, as in the papers. The data of a thread must not
//! fit its cache, and tests must run in seconds.

mod array;
pub(super) mod bucket_sort;
mod cache;
pub(super) mod cfd;
pub(super) mod cg;
mod kernel;
pub(super) mod matmul;
pub(super) mod multigrid;
pub(super) mod stencil;
pub(super) mod sweeps;
mod team;

#[cfg(test)]
mod testing {
    use hither_core::random::Random;
    use hither_core::spec::Values;

    use super::team::{Team, TeamSettings};
    use crate::ProgramSpec;

    /// The values of a program's parameters.
    pub(super) fn values(spec: &str) -> Values {
        *spec.parse::<ProgramSpec>().unwrap().values()
    }

    /// Threads whose caches are so small that tests with tiny data miss.
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
    use super::kernel::{Kernel, SHARED_PARAMS};
    use super::testing::{team, values};
    use super::*;
    use hither_trace::schema::{AccessRow, RowOp};

    #[test]
    fn the_parameters_that_all_have_stand_last() {
        let entries = crate::PROGRAMS.iter().filter(|entry| entry.iterates);
        let mut seen = 0;
        for entry in entries {
            let shared = &entry.params[entry.params.len() - SHARED_PARAMS..];
            let names: Vec<&str> = shared.iter().map(|param| param.name).collect();
            assert_eq!(
                names,
                ["iterations", "serial_init", "l1_ways", "l2_kib", "slice_ns"]
            );
            seen += 1;
        }
        assert_eq!(seen, 7);
    }

    /// The rows of a program's initialisation and of two iterations.
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

    /// Gathering misses into rows changes no miss, page by page.
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
        is_gathered::<sweeps::Sweeps>("sweeps{like=turb3d,kib=576}");
    }
}
