//! Runs of grep over the same files in parallel shells: every process reads every file once, so all data is shared by all
//! nodes and every run but the first ones on a node could find it there.
//!
//! As in the paper, 120 runs search 40 MB of `/etc`, each a process of one thread that reads whole files in order with
//! `read`. What it does not say is chosen here: 2000 files, of sizes spread log-normally as those of `/etc` are; buffers
//! of 32 KiB, GNU grep's; shells take the next run when their last one has ended; and a new process goes to a node with
//! the fewest running ones, as Linux balances on exec, which is how a shell's runs come to be on different nodes.

use super::execution::{Request, take_turns};
use super::files::{Pace, sizes};
use super::{Execution, Program, Stopped, count};
use crate::schema::RowOp;
use hither_core::spec::Values;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "parallel-grep",
    summary: "runs of grep over the same files in parallel shells, a shell a thread",
    source: "the Grep test of the dual-layered file cache (sections 4 and 5): 120 runs over 40 MB of /etc, 2 to 10 shells",
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
    iterates: false,
    run,
};

/// A shell, and where its run of grep is.
#[derive(Clone, Copy)]
struct Shell {
    thread: Option<u32>,
    file: usize,
    offset: u64,
}

fn run(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let (runs, files) = (values.count(0), values.count(1));
    let total = values.count(2) << 20;
    let buffer = values.count(3) << 10;
    let sizes = sizes(total, files, &mut execution.random(0));
    let files: Vec<(u32, u64)> = (0..)
        .zip(sizes)
        .map(|(number, bytes): (u32, u64)| {
            let path = format!("/etc/d{:02}/f{number:04}.conf", number / 40);
            (execution.file(path, bytes), bytes)
        })
        .collect();
    let site = execution.site("safe_read");
    let mut pace = Pace::new(execution.random(1));
    let mut tie = execution.random(2);
    let mut busy = vec![0u32; execution.nodes() as usize];
    let idle = Shell {
        thread: None,
        file: 0,
        offset: 0,
    };
    let mut shells = vec![idle; execution.threads() as usize];
    let mut started = 0;
    take_turns(execution, shells.len() as u32, |execution, number, now| {
        let shell = &mut shells[number as usize];
        let Some(thread) = shell.thread else {
            if started == runs {
                return Ok(None);
            }
            execution.done(started as f64 / runs as f64);
            started += 1;
            let fewest = *busy.iter().min().expect("there is a node");
            let free = busy.iter().filter(|&&running| running == fewest).count() as u64;
            let among = (0u32..)
                .zip(&busy)
                .filter(|(_, running)| **running == fewest);
            let (node, _) = among
                .clone()
                .nth(tie.below(free) as usize)
                .expect("one of them");
            busy[node as usize] += 1;
            let process = execution.process(&["grep", "-r", "PATTERN", "/etc"]);
            *shell = Shell {
                thread: Some(execution.thread_on(process, node)),
                ..idle
            };
            return Ok(Some(pace.start(now)));
        };
        let Some(&(object, bytes)) = files.get(shell.file) else {
            busy[execution.node(thread) as usize] -= 1;
            shell.thread = None;
            return Ok(Some(now + 1));
        };
        let length = buffer.min(bytes - shell.offset);
        let request = Request {
            thread,
            site,
            object,
            op: RowOp::Read,
            offset: shell.offset,
            length,
        };
        execution.push(request.row(now));
        shell.offset += length;
        if shell.offset == bytes {
            (shell.file, shell.offset) = (shell.file + 1, 0);
        }
        Ok(Some(pace.after(now, length)))
    })
}
