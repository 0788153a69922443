//! The file-system benchmark iozone with several threads: each has a file, and all do the same test
//! at the same time, one test after the other: write, re-write, read, re-read, backward read and
//! stride read, a record at a time.
//!
//! As in the paper, files are of 128 MiB and records of 4 KiB, and nothing is shared: a thread's
//! data is remote where the thread is not on the node that it was written on. iozone starts new
//! threads for each test, and the scheduler gives them nodes by load and not by where their file
//! is; `--migrate-every` moves them during a test as well.

use super::files::{Balance, File, Job, Pace, Piece, work};
use super::{Execution, Program, Stopped, THREADS_MAX, count};
use crate::schema::RowOp;
use hither_core::spec::Values;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "iozone",
    summary: "each thread writes and reads its file: again, in order, backward, in strides",
    source: "the Iozone test of the dual-layered file cache (sections 4 and 5)",
    params: &[
        count("size_mib", "the size of each file", 128, 1 << 20),
        count(
            "record_kib",
            "how much is read or written at a time",
            4,
            1 << 20,
        ),
        count("stride", "a stride in records", 17, 1 << 20),
    ],
    threads: 4,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

/// The tests, by the functions that make their requests.
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
    let mut pace = Pace::new(execution.random(0));
    let mut balance = Balance::new(execution, execution.random(1));
    let mut now = 0;
    for (number, (test, op)) in TESTS.into_iter().enumerate() {
        let site = execution.site(format!("iozone.{test}"));
        let mut waiting = vec![true; threads as usize];
        execution.done(number as f64 / TESTS.len() as f64);
        now = work(
            execution,
            &mut pace,
            &mut balance,
            threads,
            now,
            |execution, balance, slot| {
                std::mem::take(&mut waiting[slot as usize]).then(|| {
                    let mut pieces: Vec<Piece> =
                        files[slot as usize].whole(site, op, record).collect();
                    match test {
                        "backward" => pieces.reverse(),
                        "stride" => pieces = strided(&pieces, stride),
                        _ => {}
                    }
                    Job::of_new(balance.thread(execution, process), pieces)
                })
            },
        )?;
    }
    Ok(())
}

/// Every record once: each so many after the last one, and from the start again one further.
fn strided(pieces: &[Piece], stride: usize) -> Vec<Piece> {
    let passes = (0..stride).flat_map(|first| pieces.iter().skip(first).step_by(stride));
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
        let pieces: Vec<Piece> = file.whole(0, RowOp::Read, 1).collect();
        let order: Vec<u64> = strided(&pieces, 3)
            .iter()
            .map(|piece| piece.offset)
            .collect();
        assert_eq!(order, [0, 3, 6, 1, 4, 2, 5]);
    }
}
