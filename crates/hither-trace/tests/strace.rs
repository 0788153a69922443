//! Logs of strace: file, offset, call site and process of each request; and a real log of `cat`.

mod common;

use std::path::Path;
use std::process::Command;

use common::samples::STRACE;
use hither_core::registry::Needs;
use hither_testing::skip::skip;
use hither_trace::{Input, LoadOptions, Result, Trace};

fn read(log: &str) -> Result<Trace> {
    let options = LoadOptions {
        keep_repeats: true,
        ..LoadOptions::default()
    };
    Trace::read(Input::new("log", log.as_bytes())?, Some("strace"), &options)
}

/// Path, block, site and process of each reference, and whether it writes.
fn references(trace: &Trace) -> Vec<(String, u32, u32, u32, bool)> {
    let needs = Needs {
        future: false,
        ..Needs::ALL
    };
    let mut found = Vec::new();
    trace
        .fill(0, trace.references(), needs, &mut found)
        .unwrap();
    found
        .iter()
        .map(|access| {
            let path = trace.objects()[access.object.index()].path_lossy();
            let writes = access.op == hither_core::Op::Write;
            (
                path.into_owned(),
                access.index,
                access.site.0,
                access.process.0,
                writes,
            )
        })
        .collect()
}

#[test]
fn positions_sites_and_processes_are_followed() {
    let trace = read(STRACE).unwrap();
    let a = |block, site, process| ("/data/a".to_owned(), block, site, process, false);
    let out = |block| ("out".to_owned(), block, 0, 1, true);
    assert_eq!(
        references(&trace),
        [
            // Two blocks; then the child continues at its parent's position, from the same call
            // site.
            a(0, 1, 1),
            a(1, 1, 1),
            a(2, 1, 2),
            a(1, 0, 2),
            out(0),
            // sendfile with an offset of its own. Its target is tracked as a descriptor, not as a
            // file.
            a(0, 0, 1),
        ]
    );
    let site = &trace.sites()[1];
    assert_eq!(site.function.as_deref(), Some("scan(int, char*)"));
    assert_eq!(site.module.as_deref(), Some("/bin/prog"));
    assert_eq!(site.frames.len(), 3);
    assert_eq!(
        (site.frames[2].offset, site.frames[2].function.as_ref()),
        (0x2222, None)
    );
    let meta = trace.meta();
    let program = &meta.processes[1];
    assert_eq!((program.pid, program.exe.as_str()), (100, "/bin/prog"));
    assert_eq!(program.command, ["prog", "a\"b"]);
    let child = &meta.processes[2];
    assert_eq!(
        (child.pid, child.parent_pid, child.exe.as_str()),
        (101, 100, "/bin/prog")
    );
    // The read from descriptor 9, whose opening is not in the log.
    assert_eq!(meta.more["unknown_files"], 1);
    let counts = trace.counts();
    assert_eq!((counts.maps, counts.total.in_kernel_bytes), (1, 4096));
}

#[test]
fn annotations_of_y_name_files_that_were_open_before() {
    let log = "\
        07:00:00.000001 read(3</data/b>, \"x\"..., 4096) = 4096 <0.000003>\n\
        07:00:00.500001 read(4<pipe:[12]>, \"x\"..., 4096) = 4096 <0.000003>\n\
        07:00:01.000001 write(1</dev/null<char 1:3>>, \"x\"..., 4096) = 4096 <0.000003>\n\
        07:00:02.000001 openat(AT_FDCWD</data>, \"c d\", O_RDONLY) = 5</data/c d> <0.1>\n\
        07:00:03.000001 read(5</data/c d>, \"x\"..., 4096) = 1 <0.000003>\n";
    let trace = read(log).unwrap();
    let paths: Vec<_> = references(&trace)
        .into_iter()
        .map(|reference| reference.0)
        .collect();
    assert_eq!(paths, ["/data/b", "/data/c d"]);
    assert_eq!(trace.counts().last_ns, 3_000_000_000);
    assert!(!trace.meta().more.contains_key("unknown_files"));
}

#[test]
fn descriptors_are_closed_copied_and_lost_at_exec() {
    let log = r#"
1 openat(AT_FDCWD, "/x/dir", O_RDONLY|O_DIRECTORY) = 3
1 openat(3, "kept", O_RDONLY) = 4
1 openat(AT_FDCWD, "/x/lost", O_RDONLY|O_CLOEXEC) = 5
1 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, exit_signal=0}, 88) = 2
2 fcntl(4, F_DUPFD, 10) = 10
2 read(10, "x", 1) = 1
2 read(5, "x", 1) = 1
1 chdir("/y") = 0
1 open("z", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 6
1 pwrite64(6, "x", 1, 8192) = 1
1 execve("/bin/other", ["other"], 0x1 /* 1 var */) = 0
1 read(4, "x", 1) = 1
1 read(5, "x", 1) = 1
1 close_range(4, 4294967295, 0) = 0
1 read(4, "x", 1) = 1
"#;
    let trace = read(log).unwrap();
    let found: Vec<_> = references(&trace)
        .into_iter()
        .map(|(path, block, _, process, _)| (path, block, process))
        .collect();
    let expect = |path: &str, block, process| (path.to_owned(), block, process);
    assert_eq!(
        found,
        [
            expect("/x/dir/kept", 0, 0),
            expect("/x/lost", 0, 0),
            expect("/y/z", 2, 0),
            expect("/x/dir/kept", 0, 1),
        ]
    );
    assert_eq!(trace.meta().more["unknown_files"], 2);
    assert_eq!(trace.threads(), 3);
}

#[test]
fn what_is_no_log_is_named_by_its_line() {
    let cases = [
        (
            "1 close(3) = 0\nmake: *** [all] Error 2\n",
            "log:2: not a line of strace: \"make: *** [all] Error 2\"",
        ),
        (
            "1 close(3) = 0\n1 read(3, \"x",
            "log:2: not a line of strace: \"1 read(3, \\\"x\"",
        ),
        (
            "1 open(\"/a\", 0) = 3\n1 pread64(3, \"x\", 1, 18446744073709551615) = 1\n",
            "log:2: bytes 18446744073709551615 + 1 lie beyond 2^32 - 1 blocks: \"1 pread64(3, \
             \\\"x\\\", 1, 1844674407370955161\"",
        ),
    ];
    for (log, problem) in cases {
        assert_eq!(read(log).unwrap_err().to_string(), problem);
    }
}

/// As `strace -f -q 2> log` writes it: the number of a thread while several are traced.
#[test]
fn lines_without_a_number_are_those_of_the_only_process() {
    // The end of the clone names the parent, and the end of the child leaves it alone again.
    let resumed = r#"
openat(AT_FDCWD, "/a", O_RDONLY) = 3
read(3, "x", 4096) = 4096
clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
[pid    11] openat(AT_FDCWD, "/b", O_RDONLY) = 4
[pid    10] <... clone resumed>, child_tidptr=0x7f) = 11
[pid    11] read(4, "x", 4096) = 4096
[pid    11] read(3, "x", 4096) = 4096
[pid    10] read(3, "x", 4096) = 4096
[pid    10] wait4(11,  <unfinished ...>
[pid    11] exit_group(0) = ?
[pid    11] +++ exited with 0 +++
<... wait4 resumed>NULL, 0, NULL) = 11
--- SIGCHLD {si_signo=SIGCHLD} ---
read(3, "x", 4096) = 4096
exit_group(0) = ?
+++ exited with 0 +++
"#;
    // The clone returns before the child is traced, a message cuts a line, and no exit is shown.
    let returned = resumed
        .replace(
            " <unfinished ...>\n[pid    11] open",
            ") = 11\n[pid    11] open",
        )
        .replace(
            "[pid    10] <... clone resumed>, child_tidptr=0x7f) = 11\n",
            "",
        )
        .replace("[pid    11] +++ exited with 0 +++\n", "");
    let cut = resumed.replace(
        "clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>\n",
        "clone(child_stack=NULL, strace: Process 11 attached\n <unfinished ...>\n",
    );
    for log in [resumed, &returned, &cut] {
        let trace = read(log).unwrap();
        let found: Vec<_> = references(&trace)
            .into_iter()
            .map(|(path, block, _, process, _)| (path, block, process))
            .collect();
        let expect = |path: &str, block, process| (path.to_owned(), block, process);
        let expected = [
            expect("/a", 0, 0),
            expect("/b", 0, 1),
            expect("/a", 1, 1),
            expect("/a", 2, 0),
            expect("/a", 3, 0),
        ];
        assert_eq!(found, expected, "{log}");
        let processes = &trace.meta().processes;
        let numbers: Vec<_> = processes
            .iter()
            .map(|row| (row.pid, row.parent_pid))
            .collect();
        assert_eq!(numbers, [(10, 0), (11, 10)]);
        assert!(!trace.meta().more.contains_key("unknown_files"));
    }
}

/// The first process waits, unnamed, while its child forks.
#[test]
fn a_process_in_a_call_is_none_that_makes_another() {
    let log = r#"
openat(AT_FDCWD, "/a", O_RDONLY) = 3
clone(child_stack=NULL, flags=SIGCHLD) = 11
wait4(-1, strace: Process 11 attached
 <unfinished ...>
[pid    11] clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
[pid    12] read(3, "x", 4096) = 4096
[pid    11] <... clone resumed>) = 12
[pid    12] +++ exited with 0 +++
[pid    11] +++ exited with 0 +++
<... wait4 resumed>NULL, 0, NULL) = 11
read(3, "x", 4096) = 4096
"#;
    let trace = read(log).unwrap();
    let found = references(&trace).into_iter();
    let found: Vec<_> = found.map(|(path, block, ..)| (path, block)).collect();
    assert_eq!(found, [("/a".to_owned(), 0), ("/a".to_owned(), 1)]);
}

#[test]
fn a_log_that_does_not_say_whose_a_call_is_is_refused() {
    // With -qq and without exit_group, nothing says which of the two is left.
    let silent = r#"
openat(AT_FDCWD, "/a", O_RDONLY) = 3
clone(child_stack=NULL, flags=SIGCHLD) = 11
[pid    11] read(3, "x", 4096) = 4096
[pid    10] read(3, "x", 4096) = 4096
read(3, "x", 4096) = 4096
"#;
    // The third process is the first one, or a child of the one that forks.
    let two = r#"
openat(AT_FDCWD, "/a", O_RDONLY) = 3
clone(child_stack=NULL, flags=SIGCHLD) = 11
[pid    11] clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
[pid    10] read(3, "x", 4096) = 4096
"#;
    for (log, line) in [(silent, 6), (two, 5)] {
        let error = read(log).unwrap_err().to_string();
        let place = format!("log:{line}: no thread is named");
        assert!(error.starts_with(&place), "{error}");
    }
    // Without -f, children are not traced.
    let alone = silent
        .replace("[pid    11] ", "")
        .replace("[pid    10] ", "");
    assert_eq!(read(&alone).unwrap().references(), 3);
}

/// strace's log on stderr, of a program that forks.
#[test]
fn a_real_log_from_stderr_has_all_reads_of_parent_and_child() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), vec![7; 300_000]).unwrap();
    for flags in [&["-f", "-q"][..], &["-f"]] {
        let script = "exec 3< data; head -c 4096 <&3; (cat <&3; cat data); cat data";
        let mut strace = Command::new("strace");
        strace.args(flags).args(["sh", "-c", script]);
        let Ok(output) = strace.current_dir(folder.path()).output() else {
            return skip("strace does not run here");
        };
        if output.stdout.len() != 900_000 {
            return skip("strace does not run here");
        }
        let trace = read(str::from_utf8(&output.stderr).unwrap()).unwrap();
        let bytes: u64 = trace
            .objects()
            .iter()
            .zip(trace.object_counts())
            .filter(|(object, _)| object.path.ends_with(b"data"))
            .map(|(_, tally)| tally.read_bytes)
            .sum();
        assert_eq!(bytes, 900_000, "{flags:?}");
    }
}

/// strace and the C library of this machine, of any version.
#[test]
fn a_real_log_of_cat_has_the_bytes_that_it_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("data"), vec![7; 300_000]).unwrap();
    for flags in [
        &["-f"][..],
        &["-f", "-k"],
        &["-f", "-yy", "-tt", "-T"],
        &["-ttt", "-y", "-r"],
        &["-r"],
    ] {
        let Some(log) = strace(path, flags) else {
            skip("strace does not run here");
            return;
        };
        let trace = Trace::load(&log, None, &LoadOptions::default()).unwrap();
        assert_eq!(trace.format(), "strace");
        let read: u64 = trace
            .objects()
            .iter()
            .zip(trace.object_counts())
            .filter(|(object, _)| object.path.ends_with(b"data"))
            .map(|(_, tally)| tally.read_bytes)
            .sum();
        assert_eq!(read, 600_000, "{flags:?}");
        assert_eq!(trace.has_sites(), flags.contains(&"-k"));
    }
}

/// The log of `cat data data`.
fn strace(folder: &Path, flags: &[&str]) -> Option<std::path::PathBuf> {
    let log = folder.join("log");
    let mut strace = Command::new("strace");
    strace.args(flags).arg("-o").arg(&log);
    strace.args(["cat", "data", "data"]).current_dir(folder);
    let output = strace.output().ok()?;
    (output.status.success() && output.stdout.len() == 600_000).then_some(log)
}

#[test]
fn an_import_writes_whole_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let input = Input::new("log", STRACE.as_bytes()).unwrap();
    let options = LoadOptions::default();
    let imported = hither_trace::import(input, None, &options, &path, false).unwrap();
    assert_eq!((imported.format.as_str(), imported.rows), ("strace", 6));
    let (from, to) = (
        read(STRACE).unwrap(),
        Trace::load(&path, None, &options).unwrap(),
    );
    assert_eq!(from.sites(), to.sites());
    assert_eq!(from.meta(), to.meta());
    assert_eq!(from.counts().total, to.counts().total);
    assert_eq!(to.objects()[0].size, 12288);
}
