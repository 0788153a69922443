//! Runs of grep over the same files in parallel shells. Every process reads every file once, so all
//! nodes share all data. Every run but the first on a node could find the data there.
//!
//! As in the paper, 120 runs search 40 MB of `/etc`. Each is a process of one thread that reads
//! whole files in order with `read`. The rest is chosen here: 2000 files, with log-normal sizes
//! like those of `/etc`; buffers of 32 KiB, as in GNU grep; a shell starts its next run when the
//! last one has ended; a new process runs on a node with the fewest running threads, as Linux
//! balances on exec, so the runs of a shell use several nodes.

use super::definition::{Program, THREADS_MAX};
use super::execution::{Execution, Stopped};
use super::files::{File, FileRequest, Job, Scheduler, TimeModel, work};
use hither_core::registry::Param;
use hither_core::spec::Values;
use hither_trace::schema::RowOp;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "parallel-grep",
    summary: "runs of grep over the same files in parallel shells, one shell per thread",
    source: "the Grep test of the dual-layered file cache (sections 4 and 5): 120 runs over 40 MB \
             of /etc, 2 to 10 shells",
    params: &[
        Param::count(
            "runs",
            "how many runs of grep, over all shells",
            120,
            1..=1 << 20,
        ),
        Param::count("files", "how many files", 2000, 1..=1 << 20),
        Param::count(
            "size_mib",
            "the size of all files together",
            40,
            1..=1 << 20,
        ),
        Param::count("read_kib", "how much grep reads at a time", 32, 1..=1 << 20),
    ],
    threads: 4,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

fn run(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let (runs, files) = (values.count(0), values.count(1));
    let (total, buffer) = (values.count(2) << 20, values.count(3) << 10);
    let mut random = execution.random(0);
    let files = File::folder(execution, total, files, &mut random, |number| {
        format!("/etc/d{:02}/f{number:04}.conf", number / 40)
    });
    let site = execution.site("safe_read");
    let read = |file: &File| file.whole(site, RowOp::Read, buffer);
    let requests: Vec<FileRequest> = files.iter().flat_map(read).collect();
    let mut time_model = TimeModel::new(execution.random(1));
    let mut scheduler = Scheduler::new(execution, execution.random(2));
    let shells = execution.threads();
    let mut started = 0;
    let next = |execution: &mut Execution, scheduler: &mut Scheduler, _| {
        execution.done(started as f64 / runs as f64);
        started += 1;
        (started <= runs).then(|| {
            let grep = scheduler.process(execution, &["grep", "-r", "PATTERN", "/etc"]);
            Job::of_new(grep, requests.clone())
        })
    };
    work(execution, &mut time_model, &mut scheduler, shells, 0, next)?;
    Ok(())
}
