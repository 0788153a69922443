//! The file-system benchmark iozone with several threads. Each thread has a file. All threads run
//! the same test at the same time, one test after the other: write, rewrite, read, reread, backward
//! read and stride read, one record per request.
//!
//! As in the paper, files have 128 MiB and records 4 KiB, and nothing is shared: data are remote
//! where a thread does not run on the node that wrote them. iozone starts new threads for each
//! test, and the scheduler chooses their nodes by load and not by their files. `--migrate-every`
//! also moves them during a test.

use super::definition::{Program, THREADS_MAX};
use super::execution::{Execution, Stopped};
use super::files::{File, FileRequest, Job, Scheduler, TimeModel, work};
use hither_core::registry::Param;
use hither_core::spec::Values;
use hither_trace::schema::RowOp;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "iozone",
    summary: "each thread writes and reads its own file: in order, again, backward, in strides",
    source: "the Iozone test of the dual-layered file cache (sections 4 and 5)",
    params: &[
        Param::count("size_mib", "the size of each file", 128, 1..=1 << 20),
        Param::count(
            "record_kib",
            "how much is read or written at a time",
            4,
            1..=1 << 20,
        ),
        Param::count("stride", "a stride in records", 17, 1..=1 << 20),
    ],
    threads: 4,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

/// The tests, with the functions that make their requests.
const TESTS: [(&str, RowOp); 6] = [
    ("write", RowOp::Write),
    ("rewrite", RowOp::Write),
    ("read", RowOp::Read),
    ("reread", RowOp::Read),
    ("backward", RowOp::Read),
    ("stride", RowOp::Read),
];

fn run(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let (bytes, record) = (values.count(0) << 20, values.count(1) << 10);
    let stride = values.count(2) as usize;
    let threads = execution.threads();
    let files: Vec<File> = (0..threads)
        .map(|thread| File::new(execution, format!("/tmp/iozone.DUMMY.{thread}"), bytes))
        .collect();
    let process = execution.process(&["iozone", "-T"]);
    let mut time_model = TimeModel::new(execution.random(0));
    let mut scheduler = Scheduler::new(execution, execution.random(1));
    let mut now = 0;
    for (number, (test, op)) in TESTS.into_iter().enumerate() {
        let site = execution.site(format!("iozone.{test}"));
        let mut waiting = vec![true; threads as usize];
        execution.done(number as f64 / TESTS.len() as f64);
        now = work(
            execution,
            &mut time_model,
            &mut scheduler,
            threads,
            now,
            |execution, scheduler, slot| {
                std::mem::take(&mut waiting[slot as usize]).then(|| {
                    let mut requests: Vec<FileRequest> =
                        files[slot as usize].whole(site, op, record).collect();
                    match test {
                        "backward" => requests.reverse(),
                        "stride" => requests = strided(&requests, stride),
                        _ => {}
                    }
                    Job::of_new(scheduler.thread(execution, process), requests)
                })
            },
        )?;
    }
    Ok(())
}

/// Every record once: every `stride`-th one, then the same from the next record on, and so forth.
fn strided(requests: &[FileRequest], stride: usize) -> Vec<FileRequest> {
    let passes = (0..stride).flat_map(|first| requests.iter().skip(first).step_by(stride));
    passes.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_come_back_for_what_they_left_out() {
        let file = File {
            object: 0,
            bytes: 7,
        };
        let requests: Vec<FileRequest> = file.whole(0, RowOp::Read, 1).collect();
        let order: Vec<u64> = strided(&requests, 3)
            .iter()
            .map(|request| request.offset)
            .collect();
        assert_eq!(order, [0, 3, 6, 1, 4, 2, 5]);
    }
}
