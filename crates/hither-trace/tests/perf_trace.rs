//! What perf trace prints: file, offset, thread and process of each request; and a real log.

mod common;

use std::fs;
use std::process::Command;

use common::samples::PERF_TRACE;
use hither_core::Op;
use hither_core::registry::Needs;
use hither_testing::skip::skip;
use hither_trace::{Input, LoadOptions, Result, Trace};

fn read(log: &str) -> Result<Trace> {
    let options = LoadOptions {
        keep_repeats: true,
        ..LoadOptions::default()
    };
    Trace::read(Input::new("log", log.as_bytes())?, None, &options)
}

/// Path, block, process and thread of each reference, and whether it writes.
fn references(trace: &Trace) -> Vec<(String, u32, u32, u32, bool)> {
    let mut found = Vec::new();
    trace
        .for_each_batch(4096, Needs::ALL, |batch| {
            found.extend(batch.iter().map(|access| {
                let path = trace.objects()[access.object.index()].path_lossy();
                let writes = access.op == Op::Write;
                (
                    path.into_owned(),
                    access.index,
                    access.process.0,
                    access.thread.0,
                    writes,
                )
            }));
        })
        .unwrap();
    found
}

#[test]
fn positions_threads_and_processes_are_followed() {
    let trace = read(PERF_TRACE).unwrap();
    let of = |path: &str, block, process, thread| (path.to_owned(), block, process, thread, false);
    let a = |block, process, thread| of("/data/a b", block, process, thread);
    // The first process executes the program, so that it is the second one.
    let expected = [
        // The 100 bytes before the name was known moved the position: 100 to 8100.
        a(0, 1, 1),
        a(1, 1, 1),
        // At an offset of 0, which perf leaves out, and of 70000.
        a(0, 1, 1),
        a(17, 1, 1),
        // The child reads on by a copy of the descriptor: 8100 to 12196.
        a(1, 2, 2),
        a(2, 2, 2),
        // A thread by another copy, whose file perf does not name: 12196 to 12206.
        a(2, 1, 3),
        ("out".to_owned(), 0, 1, 1, true),
        ("out".to_owned(), 1, 1, 1, true),
        // sendfile from an offset that is not shown: what it writes, from 6000 to 7000.
        ("out".to_owned(), 1, 1, 1, true),
        // What posix_spawn starts has closed its own descriptor 4: this file is another, of a third
        // process that the exec made.
        of("/data/c", 0, 4, 5),
        a(2, 1, 1),
        a(3, 1, 1),
    ];
    assert_eq!(references(&trace), expected);
    let meta = trace.meta();
    assert_eq!(meta.more["unknown_files"], 1);
    assert_eq!(trace.counts().maps, 1);
    let processes: Vec<(u32, u32, &str)> = meta
        .processes
        .iter()
        .map(|process| (process.pid, process.parent_pid, process.exe.as_str()))
        .collect();
    assert_eq!(
        processes,
        [
            (100, 0, ""),
            (100, 0, "pp"),
            (101, 100, "pp"),
            (103, 100, "pp"),
            (103, 100, "cat")
        ]
    );
    assert_eq!(trace.counts().last_ns, 21_950_000 - 1);
}

#[test]
fn what_cannot_be_known_is_refused() {
    let begin = "0.100 ( 0.017 ms): pp/100 openat(dfd: CWD, filename: \"/a\") = 4\n\
                 0.200 ( 0.148 ms): pp/100 clone3(uargs: 0x7fff, size: 88) = 102\n";
    for (line, problem) in [
        (
            "0.571 ( 0.012 ms): pp/102 read(fd: 4, buf: 0x5, count: 13) = 13",
            "log:3: a child of clone3, which may be a thread or a process",
        ),
        ("LOST 34 events!", "log:3: events are missing"),
        (
            "0.571 ( 0.012 ms): pp/102 read(fd: 4",
            "log:3: not a line of perf trace",
        ),
        ("hello", "log:3: not a line of perf trace"),
        (
            "0.5 ( 0.012 ms): pp/100 pread64(fd: 4, pos: 18446744073709551615) = 9",
            "log:3: bytes 18446744073709551615 + 9 lie beyond",
        ),
    ] {
        let error = read(&format!("{begin}{line}\n")).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
    let more = "0.3 ( 0.0 ms): pp/100 minfault [_start+0x0] => /bin/cat@0x12 (d.)\n\n\
                0.4 (         ): pp/100 net:net_dev_queue(skbaddr: 0x1, len: 9)\n\
                0.5 ( 0.012 ms): pp/100 preadv2(fd: 4, vlen: 1, pos_l: -1) = 9000\n\
                0.5 ( 0.012 ms): pp/100 copy_file_range(fd_in: 4, off_in: 0x7f, fd_out: 4, \
                off_out: 0x7f, len: 9) = 9\n Summary of events:\n\n pp (100), 9 events, 100.0%\n";
    let trace = read(&format!("{begin}{more}")).unwrap();
    assert_eq!(trace.references(), 3);
}

#[test]
fn a_real_log_has_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    fs::write(&data, vec![7; 300_000]).unwrap();
    // A shell forks, and dd reads on from where another has read.
    let script = "dd bs=4096 count=10 of=/dev/null; sleep 0.1; dd bs=4096 count=20 of=/dev/null";
    let traced = Command::new("perf")
        .args(["trace", "-o"])
        .arg(&log)
        .args(["sh", "-c", script])
        .stdin(fs::File::open(&data).unwrap())
        .output();
    if !traced.is_ok_and(|output| output.status.success()) {
        skip("perf trace cannot be used");
        return;
    }
    let log = fs::read_to_string(&log).unwrap();
    if log.contains("LOST ") {
        skip("perf trace has lost events");
        return;
    }
    let trace = read(&log).unwrap();
    assert_eq!(trace.format(), "perf-trace");
    let path = data.display().to_string();
    let blocks: Vec<u32> = references(&trace)
        .into_iter()
        .filter_map(|(of, block, ..)| (of == path).then_some(block))
        .collect();
    let unknown = trace.meta().more.get("unknown_files");
    // perf may be too late to see the name of a descriptor, and says none then.
    if unknown.is_none() {
        assert_eq!(blocks, (0..30).collect::<Vec<u32>>());
    } else {
        assert!(
            blocks.is_sorted() && blocks.iter().all(|block| *block < 30),
            "{blocks:?}"
        );
    }
}
