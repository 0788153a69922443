//! Runs of grep over the same files in parallel shells: every process reads every file once, so all
//! data is shared by all nodes and every run but the first ones on a node could find it there.
//!
//! As in the paper, 120 runs search 40 MB of `/etc`, each a process of one thread that reads whole
//! files in order with `read`. What it does not say is chosen here: 2000 files, of sizes spread
//! log-normally as those of `/etc` are; buffers of 32 KiB, GNU grep's; shells take the next run
//! when their last one has ended; and a new process goes to a node with the fewest running ones, as
//! Linux balances on exec, which is how a shell's runs come to be on different nodes.

use super::files::{Balance, File, Job, Pace, Piece, work};
use super::{Execution, Program, Stopped, THREADS_MAX, count};
use crate::schema::RowOp;
use hither_core::spec::Values;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "parallel-grep",
    summary: "runs of grep over the same files in parallel shells, a shell a thread",
    source: "the Grep test of the dual-layered file cache (sections 4 and 5): 120 runs over 40 MB \
             of /etc, 2 to 10 shells",
    params: &[
        count(
            "runs",
            "how many runs of grep, over all shells",
            120,
            1 << 20,
        ),
        count("files", "how many files", 2000, 1 << 20),
        count("size_mib", "the size of all files together", 40, 1 << 20),
        count("read_kib", "how much grep reads at a time", 32, 1 << 20),
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
    let pieces: Vec<Piece> = files.iter().flat_map(read).collect();
    let mut pace = Pace::new(execution.random(1));
    let mut balance = Balance::new(execution, execution.random(2));
    let shells = execution.threads();
    let mut started = 0;
    let next = |execution: &mut Execution, balance: &mut Balance, _| {
        execution.done(started as f64 / runs as f64);
        started += 1;
        (started <= runs).then(|| {
            let grep = balance.process(execution, &["grep", "-r", "PATTERN", "/etc"]);
            Job::of_new(grep, pieces.clone())
        })
    };
    work(execution, &mut pace, &mut balance, shells, 0, next)?;
    Ok(())
}
