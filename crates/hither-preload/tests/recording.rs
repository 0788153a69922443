//! The preload library inside real processes: C programs that do what programs do, with an agent
//! that checks what was recorded, and that nothing else about them changed.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod openmp;
mod pages;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hither_session::record::{IN_KERNEL, Op, RUN_TIME_CODE};
use hither_session::session::{Lost, Session, SessionOptions};
use support::{
    Recording, Run, blocks_session, check_same, compile, data, finish, follow, follow_with, record,
    record_alone, scratch, session, under,
};

/// The signatures of reads at `offset`.
fn signatures(recording: &Recording, path: &Path) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for access in recording.of(Op::Read, path) {
        found
            .entry(access.offset)
            .or_default()
            .insert(access.signature);
    }
    found
}

#[test]
fn every_form_of_read_is_seen_once_at_its_place() {
    let file = data(10_000);
    for flags in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-D_FORTIFY_SOURCE=2"],
        // Segments that lie apart, as in Debian's node: the dynamic linker's own lookup then
        // misleads.
        &["-O2", "-no-pie", "-Wl,--section-start=.fini=0x9000000"],
        &[
            "-O2",
            "-D_FILE_OFFSET_BITS=64",
            "-D_FORTIFY_SOURCE=3",
            "-fno-omit-frame-pointer",
        ],
    ] {
        let run = record(&compile("reads.c", flags), &[file.path()]);
        let expected = [
            (0, 100),
            (100, 101),
            (1000, 102),
            (2000, 103),
            (3000, 104),
            (4000, 104),
            (5000, 50),
            (6000, 104),
            (7000, 104),
            (8000, 50),
        ];
        assert_eq!(run.recording.reads(file.path()), expected, "{flags:?}");
        let sites: BTreeSet<u64> = run
            .recording
            .of(Op::Read, file.path())
            .iter()
            .map(|read| read.signature)
            .collect();
        assert_eq!(
            sites.len(),
            expected.len(),
            "each call is a site of its own"
        );
        assert!(
            sites
                .iter()
                .all(|site| run.recording.sites.contains_key(site)),
            "all sites are defined"
        );
    }
}

#[test]
fn who_counts_blocks_is_not_told_twice_of_one() {
    let (one, other) = (data(40_000), data(40_000));
    let program = compile("blocks.c", &["-O1"]);
    let session = blocks_session(16 << 10);
    let mut command = under(&session, &program);
    command.args([one.path(), other.path()]);
    let run = follow(session, command);
    check_same(
        &run,
        Command::new(&program).args([one.path(), other.path()]),
    );
    assert_eq!(
        run.recording.reads(one.path()),
        [
            (0, 512),
            (0, 512),
            (100, 512),
            (16200, 512),
            (16384, 7),
            (16384, 9),
            (16384, 512),
            (16384, 512),
            (16384, 512),
            (16391, 7),
            (17000, 512),
            (20000, 512),
            (32768, 0),
        ]
    );
    assert_eq!(
        run.recording.reads(other.path()),
        [(16384, 10), (16384, 512)]
    );
    assert_eq!(run.recording.of(Op::Write, one.path()).len(), 1);
}

/// Pages of files follow who reads them by this.
#[test]
fn who_counts_blocks_is_told_of_the_cpu() {
    let (one, other) = (data(40_000), data(40_000));
    let last = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1);
    let session = blocks_session(16 << 10);
    let mut command = under(&session, Path::new("taskset"));
    command.args(["-c", &last.to_string()]);
    command.arg(compile("blocks.c", &["-O1"]));
    command.args([one.path(), other.path()]);
    let run = follow(session, command);
    let read = run.recording.of(Op::Read, one.path());
    assert_eq!(read.len(), 13);
    assert!(read.iter().all(|access| usize::from(access.cpu) == last));
}

#[test]
fn stdio_reads_are_seen_whole() {
    let (file, other) = (data(300_000), data(100_000));
    let program = compile("stdio.c", &["-O1"]);
    let stdio =
        |mode: &str| record(&program, &[Path::new(mode), file.path(), other.path()]).recording;
    for mode in ["getc", "fread", "fdopen", "wide"] {
        let recording = stdio(mode);
        assert_eq!(
            recording.covered(file.path()),
            if mode == "wide" { 4096 } else { 300_000 },
            "{mode}"
        );
        if matches!(mode, "getc" | "fdopen") {
            assert_eq!(
                recording.covered(other.path()),
                100_000,
                "{mode}: the next file on the same descriptor"
            );
            let total: u64 = recording.accesses.iter().map(|access| access.length).sum();
            assert_eq!(total, 400_000, "{mode}: nothing twice");
        }
    }
    let offsets: BTreeSet<u64> = stdio("seek")
        .reads(file.path())
        .iter()
        .map(|(offset, _)| *offset)
        .collect();
    assert_eq!(offsets, (0..64).map(|block| block * 4096).collect());
}

#[test]
fn writes_and_truncations_are_seen() {
    let file = data(0);
    let recording = record(&compile("writes.c", &["-O1"]), &[file.path()]).recording;
    let expected = [
        (0, 100),
        (100, 100),
        (1000, 50),
        (2000, 100),
        (3000, 60),
        (3060, 40),
    ];
    assert_eq!(recording.writes(file.path()), expected);
    let cuts: Vec<u64> = recording
        .of(Op::Truncate, file.path())
        .iter()
        .map(|cut| cut.offset)
        .collect();
    assert_eq!(cuts, [512, 300]);

    let recording = record(
        &compile("stdio.c", &["-O1"]),
        &[Path::new("write"), file.path(), file.path()],
    )
    .recording;
    let written: u64 = recording
        .writes(file.path())
        .iter()
        .map(|(_, length)| length)
        .sum();
    assert_eq!(
        written,
        std::fs::metadata(file.path()).expect("written").len()
    );
}

#[test]
fn two_hundred_threads_each_have_a_ring() {
    let file = data(1 << 20);
    let recording = record(
        &compile("threads.c", &["-O1"]),
        &[Path::new("200"), file.path()],
    )
    .recording;
    let mut expected: Vec<(u64, u64)> =
        (0..200 * 20).flat_map(|read| [(read * 64, 8); 2]).collect();
    expected.sort_unstable();
    assert_eq!(recording.reads(file.path()), expected);
    let threads: BTreeSet<u32> = recording.accesses.iter().map(|access| access.tid).collect();
    assert_eq!(threads.len(), 400);
    assert_eq!(recording.lost, Default::default());
}

#[test]
fn fifteen_hundred_threads_at_once_lose_nothing() {
    let file = data(1 << 20);
    let program = compile("live.c", &["-O1"]);
    let Run { output, recording } = record_alone(&program, &[file.path(), Path::new("1500")]);
    assert!(output.status.success(), "{output:?}");
    let expected: Vec<(u64, u64)> = (0..1500).flat_map(|thread| [(thread * 8, 8); 50]).collect();
    assert_eq!(recording.reads(file.path()), expected);
    assert_eq!(recording.lost, Lost::default());
}

#[test]
fn threads_without_a_ring_count_what_they_lose_in_bytes() {
    let file = data(1 << 20);
    let program = compile("live.c", &["-O1"]);
    let session = Session::create(SessionOptions {
        rings: 10,
        ..SessionOptions::default()
    })
    .expect("a session");
    let mut command = under(&session, &program);
    command.args([file.path(), Path::new("30")]);
    let Run { output, recording } = follow(session, command);
    assert!(output.status.success(), "{output:?}");
    let lost = recording.lost;
    // The main thread has a ring, too. Each thread asks for one 51 times in all.
    assert_eq!(
        (lost.no_ring, lost.no_ring_bytes),
        (21 * 50, 21 * 50 * 8),
        "{lost:?}"
    );
    assert_eq!(recording.reads(file.path()).len(), 9 * 50);
}

#[test]
fn children_record_for_themselves() {
    let file = data(10_000);
    let program = compile("processes.c", &["-O1"]);
    for (mode, expected, processes) in [
        ("fork", &[(0, 1), (1000, 2), (2000, 3), (3000, 4)][..], 3),
        ("clone", &[(0, 1), (1000, 2)], 2),
        ("vfork", &[(0, 1), (4000, 6), (5000, 10)], 2),
        ("spawn", &[(0, 1), (5000, 10)], 2),
        ("spawn-empty", &[(0, 1), (5000, 10)], 2),
        ("exec-empty", &[(0, 1), (5000, 10)], 1),
        ("execl", &[(0, 1), (5000, 10)], 1),
        ("execle", &[(0, 1), (5000, 10)], 1),
        ("fexecve", &[(0, 1), (5000, 10)], 1),
        ("exec-fails", &[(0, 1), (6000, 7)], 1),
        ("_exit", &[(0, 1), (7000, 8)], 1),
    ] {
        let recording = record(&program, &[Path::new(mode), file.path()]).recording;
        assert_eq!(recording.reads(file.path()), expected, "{mode}");
        let pids: BTreeSet<u32> = recording.accesses.iter().map(|access| access.pid).collect();
        assert_eq!(pids.len(), processes, "{mode}");
        assert_eq!(recording.processes, pids, "{mode}: each said what it is");
        assert_eq!(recording.lost, Default::default(), "{mode}");
        let executes = !matches!(mode, "fork" | "clone" | "_exit");
        assert_eq!(
            recording.execs.is_empty(),
            !executes,
            "{mode}: {:?}",
            recording.execs
        );
    }
}

#[test]
fn descriptors_that_change_hands_stay_attributed() {
    let (file, other) = (data(10_000), data(5_000));
    let program = compile("descriptors.c", &["-O1"]);
    let descriptors =
        |mode: &str| record(&program, &[Path::new(mode), file.path(), other.path()]).recording;
    let recording = descriptors("dup");
    assert_eq!(
        recording.reads(file.path()),
        [(0, 10), (100, 11), (200, 12), (300, 13), (400, 14)]
    );
    assert_eq!(recording.reads(other.path()), [(0, 20), (100, 21)]);
    let recording = descriptors("close-all");
    assert_eq!(recording.reads(file.path()), [(0, 31)]);
    assert_eq!(recording.reads(other.path()), [(0, 30), (0, 32)]);
    let recording = descriptors("pipe");
    assert_eq!(
        recording.accesses.len(),
        0,
        "pipes and /proc are no files: {:?}",
        recording.accesses
    );
}

#[test]
fn calls_are_where_the_kernel_says_however_the_position_moves() {
    let program = compile("positions.c", &["-O1"]);
    for seed in 1..=12 {
        let file = data(10_000);
        let run = record(&program, &[file.path(), Path::new(&seed.to_string())]);
        let output = String::from_utf8(run.output.stdout.clone()).expect("text");
        let mut expected: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for line in output.lines() {
            let columns: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| columns[at].parse().expect("a number");
            let calls = expected.entry(columns[0]).or_default();
            calls.push((number(1), number(2)));
        }
        let mut writes = run.recording.writes(file.path());
        writes.sort_unstable();
        for (op, found) in [
            ("read", run.recording.reads(file.path())),
            ("write", writes),
        ] {
            let mut expected = expected.remove(op).expect("some");
            expected.sort_unstable();
            assert!(expected.len() > 5, "{op}: {}", expected.len());
            assert_eq!(found, expected, "{op}, seed {seed}");
        }
    }
}

/// What is not reported moves positions, too.
#[test]
fn calls_are_where_the_kernel_says_also_after_pauses() {
    let program = compile("positions.c", &["-O1"]);
    let mut all = 0;
    for seed in 1..=30 {
        let file = data(10_000);
        // Of two bytes: next to no read lies within the block of the one before.
        let session = blocks_session(2);
        let mut command = under(&session, &program);
        command.args([file.path(), Path::new(&seed.to_string())]);
        let mut paused = false;
        let run = follow_with(session, command, |session| {
            for _ in 0..50 {
                paused = !paused;
                session.pause(paused);
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        assert!(run.output.status.success(), "{:?}", run.output);
        let output = String::from_utf8(run.output.stdout.clone()).expect("text");
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for line in output.lines().filter(|line| line.starts_with("read ")) {
            let numbers = line.split(' ').skip(1);
            let numbers: Vec<u64> = numbers.map(|word| word.parse().expect("one")).collect();
            expected.push((numbers[0], numbers[1]));
        }
        let found = run.recording.reads(file.path()).into_iter();
        // One of no bytes says where the program has come to.
        for read in found.filter(|&(_, length)| length > 0) {
            all += 1;
            let at = expected.iter().position(|&other| other == read);
            let at = at.unwrap_or_else(|| panic!("seed {seed}: {read:?} is none of {expected:?}"));
            expected.swap_remove(at);
        }
    }
    assert!(all > 100, "{all} reads were reported");
}

#[test]
fn files_have_their_paths_however_they_are_opened() {
    let folder = tempfile::tempdir_in(scratch()).expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    for name in ["a/b", "c"] {
        std::fs::create_dir_all(root.join(name)).expect("made");
    }
    for name in [
        "one", "two", "three", "made", "a/b/x", "a/b/y", "a/b/z", "c/x", "c/y", "c/z",
    ] {
        std::fs::write(root.join(name), [b'x'; 1000]).expect("written");
    }
    // Not beside a plain run: the name of a temporary file is another one each time.
    let run = record_alone(&compile("names.c", &["-O1"]), &[&root]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let output = String::from_utf8(run.output.stdout.clone()).expect("text");
    let expected = output.lines().map(|line| {
        let (length, path) = line.split_once(' ').expect("two columns");
        (length.parse().expect("a number"), path.into())
    });
    let expected: BTreeMap<u64, PathBuf> = expected.collect();
    assert_eq!(expected.len(), 23, "{output}");
    let found = run
        .recording
        .accesses
        .iter()
        .filter(|access| access.op == Op::Read);
    let found = found.map(|access| {
        let path = run.recording.objects.get(&access.object);
        let path = path.map(|path| path.canonicalize().expect("it is there"));
        (access.length, path.unwrap_or_default())
    });
    let found: BTreeMap<u64, PathBuf> = found.collect();
    assert_eq!(found, expected);
}

#[test]
fn maps_and_copies_in_the_kernel_are_marked() {
    let (file, copy) = (data(20_000), data(0));
    let recording = record(&compile("kernel.c", &["-O1"]), &[file.path(), copy.path()]).recording;
    assert_eq!(
        recording.reads(file.path()),
        [(1000, 500), (2000, 600), (3000, 700)]
    );
    assert_eq!(recording.writes(copy.path()), [(0, 500), (500, 600)]);
    assert!(
        recording
            .of(Op::Read, file.path())
            .iter()
            .all(|read| read.flags & IN_KERNEL != 0)
    );
    for op in [Op::Map, Op::Unmap] {
        let ranges: Vec<_> = recording
            .of(op, file.path())
            .iter()
            .map(|map| (map.offset, map.length))
            .collect();
        assert_eq!(ranges, [(4096, 8192)], "{op:?}");
    }
}

#[test]
fn a_signal_handler_may_read_whenever_it_likes() {
    let file = data(8_000);
    let program = compile("signals.c", &["-O1"]);
    let Run { output, recording } = record_alone(&program, &[file.path()]);
    let said = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<u64> = said
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    assert_eq!(numbers[1], 0, "wrong data");
    let lost = recording.lost;
    assert_eq!(
        recording.accesses.len() as u64 + lost.nested + lost.events,
        numbers[0],
        "{lost:?}"
    );
    assert_eq!(lost.damaged, 0);
}

#[test]
fn a_handler_that_jumps_out_of_the_recorder_does_not_silence_its_thread() {
    let file = data(8_000);
    let program = compile("signals.c", &["-O1"]);
    let Run { output, recording } = record_alone(&program, &[file.path(), Path::new("jump")]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.ends_with(" 0\n"), "wrong data: {said}");
    let after = recording
        .reads(file.path())
        .into_iter()
        .filter(|read| *read == (0, 8))
        .count();
    assert_eq!(after, 100, "{:?}", recording.lost);
}

#[test]
fn stacks_without_room_to_spare_are_enough() {
    let file = data(100);
    let run = record(&compile("tight.c", &["-O1", "-pthread"]), &[file.path()]);
    assert_eq!(
        String::from_utf8_lossy(&run.output.stdout),
        "handler: 0\ncoroutine: 0\ncancelled\n"
    );
    let reads = run.recording.reads(file.path()).len();
    assert!(reads >= 12, "{reads}");
}

#[test]
fn cancellation_and_exceptions_unwind_through_a_hook() {
    let file = data(8_000);
    let recording = record(
        &compile("unwinds.cc", &["-O2", "-fnon-call-exceptions"]),
        &[file.path()],
    )
    .recording;
    let expected: Vec<(u64, u64)> = (0..10).map(|byte| (byte, 1)).chain([(100, 1)]).collect();
    assert_eq!(recording.reads(file.path()), expected, "{recording:?}");
    assert_eq!(
        recording.lost.nested, 0,
        "no thread was left inside the recorder"
    );
}

#[test]
fn signatures_tell_call_sites_apart_and_nothing_else() {
    let file = data(4_096);
    let mut seen = Vec::new();
    for flags in [
        &["-O0"][..],
        &["-O2", "-fomit-frame-pointer"],
        &["-O2", "-fno-omit-frame-pointer"],
    ] {
        let program = compile("stacks.c", flags);
        let first = signatures(&record(&program, &[file.path()]).recording, file.path());
        for site in [1, 2, 3, 4] {
            assert_eq!(
                first[&(64 * site)].len(),
                1,
                "{flags:?}: site {site} is one"
            );
        }
        let distinct: BTreeSet<&u64> = first.values().flatten().collect();
        assert_eq!(
            distinct.len(),
            first.values().map(BTreeSet::len).sum::<usize>(),
            "{flags:?}: none is shared"
        );
        // At -O2 the compiler unrolls the recursion, so that depths may differ in the frames that
        // they have at all.
        if flags == ["-O0"] {
            assert_eq!(
                first[&(64 * 5)].len(),
                1,
                "the depth of a recursion does not matter"
            );
        }
        let again = signatures(&record(&program, &[file.path()]).recording, file.path());
        assert_eq!(first, again, "{flags:?}: the same in every run");
        seen.push(first);
    }
    assert_ne!(seen[0], seen[1], "another build is another program");
}

#[test]
fn stacks_go_on_beyond_trampolines_made_at_run_time() {
    let file = data(4_096);
    for flags in [
        &["-O0"][..],
        &["-O2", "-fomit-frame-pointer"],
        &["-O2", "-fno-omit-frame-pointer"],
    ] {
        let program = compile("trampolines.c", flags);
        let run = || record(&program, &[file.path()]).recording;
        let (recording, again) = (run(), run());
        let sites = signatures(&recording, file.path());
        // r: code made at run time, p: the program, of which its main is not the innermost.
        let shape = |site: u64| {
            let all = &sites[&(64 * site)];
            assert_eq!(all.len(), 1, "{flags:?}: site {site} is one");
            let frames = recording.sites[all.first().unwrap()].chunks_exact(2);
            let of = |frame: &[u64]| match &recording.modules[&frame[0]] {
                path if path.as_os_str().as_bytes() == RUN_TIME_CODE => "r",
                path if *path == program => "p",
                _ => "",
            };
            frames.map(of).collect::<String>()
        };
        for site in [1, 2, 3] {
            // The leaf, inner, outer, main and _start; the trampoline counts once.
            assert_eq!(shape(site), "prpppp", "{flags:?}: site {site}");
        }
        for site in [4, 5] {
            assert_eq!(
                shape(site),
                "p",
                "{flags:?}: site {site} ends at the trampoline"
            );
        }
        let others = signatures(&again, file.path());
        let same = |site: u64| sites[&(64 * site)] == others[&(64 * site)];
        let in_each_process = [1, 2, 3, 4, 5].map(same);
        assert_eq!(in_each_process, [false, false, false, true, true]);
    }
}

#[test]
fn unloaded_libraries_are_not_mistaken_for_their_successors() {
    let file = data(4_096);
    let one = compile("plugin.c", &["-shared", "-fPIC", "-O1", "-DSITE=1"]);
    let two = compile("plugin.c", &["-shared", "-fPIC", "-O1", "-DSITE=2"]);
    let program = compile("plugins.c", &["-O1"]);
    let recording = record(&program, &[file.path(), &one, &two]).recording;
    let sites = signatures(&recording, file.path());
    for (offset, library) in [(64, &one), (128, &two)] {
        assert_eq!(sites[&offset].len(), 1);
        let signature = sites[&offset].first().expect("one");
        let innermost = recording.sites[signature][0];
        assert_eq!(recording.modules[&innermost], **library);
    }
}

#[test]
fn a_full_ring_drops_and_the_program_goes_on() {
    let file = data(8_000);
    let program = compile("many.c", &["-O1"]);
    let session = session(16 << 10);
    let output = under(&session, &program)
        .args([file.path(), Path::new("5000")])
        .output()
        .expect("runs");
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "17487500 77\n",
        "results and errno"
    );
    let Run { recording, .. } = finish(session, Recording::default(), output);
    assert!(recording.lost.events > 4000, "{:?}", recording.lost);
    assert_eq!(
        recording.accesses.len() as u64 + recording.lost.events,
        5000
    );
    assert_eq!(recording.lost.bytes, 8 * recording.lost.events);
}

#[test]
fn programs_outlive_their_agent() {
    let file = data(8_000);
    let program = compile("many.c", &["-O1"]);
    // Dropped, as when the agent ends before its programs do, and leaked, as when it is killed.
    for kill in [false, true] {
        let session = session(1 << 16);
        let mut child = under(&session, &program)
            .args([file.path(), Path::new("3000000")])
            .spawn()
            .expect("spawned");
        let mut session = session;
        let deadline = Instant::now() + Duration::from_secs(30);
        while session.drain(|_, _| ()) == 0 {
            assert!(Instant::now() < deadline, "it never recorded anything");
            std::thread::sleep(Duration::from_millis(1));
        }
        if kill {
            std::mem::forget(session)
        } else {
            drop(session)
        }
        let status = child.wait().expect("waited");
        assert!(status.success(), "{status:?}, signal {:?}", status.signal());
    }
}

#[test]
fn other_preloaded_libraries_still_see_what_they_wrap() {
    let file = data(10_000);
    let other = compile("interposer.c", &["-shared", "-fPIC", "-O1"]);
    let program = compile("interposed.c", &["-O1"]);
    let session = session(1 << 16);
    let mut both = support::library().as_os_str().to_owned();
    both.push(":");
    both.push(&other);
    let output = under(&session, &program)
        .arg(file.path())
        .env("LD_PRELOAD", both)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"again\n");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "open\npread\nmmap\nfcntl\nfopen\nexecv\n"
    );
    let Run { recording, .. } = finish(session, Recording::default(), output);
    assert_eq!(recording.reads(file.path()), [(10, 1), (20, 1)]);
}

#[test]
fn a_program_that_confines_itself_is_left_alone_from_then_on() {
    let file = data(10_000);
    let program = compile("seccomp.c", &["-O1"]);
    for mode in ["strict", "prctl", "syscall"] {
        let Run { output, recording } = record(&program, &[file.path(), Path::new(mode)]);
        assert_eq!(output.stdout, b"read\ndone\n", "{mode}");
        assert_eq!(
            recording.reads(file.path()),
            [(0, 10), (10, 20)],
            "{mode}: up to there, and no further"
        );
    }
}

#[test]
fn a_program_that_a_sandbox_runs_is_not_killed_for_what_only_we_ask() {
    let file = data(10_000);
    let program = compile("reads.c", &["-O2"]);
    let forbid = compile("forbid.c", &["-O1", "-static"]);
    let plain = record(&program, &[file.path()]).recording;
    for answer in ["refuse", "kill"] {
        let arguments = [Path::new(answer), &program, file.path()];
        let Run { output, recording } = record(&forbid, &arguments);
        assert_eq!(output.stdout, b"done\n", "{answer}");
        assert_eq!(recording.reads(file.path()), [], "left alone: {answer}");
    }
    // As in a container that refuses calls to the agent, too.
    let session = session(1 << 20);
    let mut command = under(&session, &forbid);
    let arguments = [Path::new("refuse"), &program, file.path()];
    command
        .args(arguments)
        .env("HITHER_SESSION", support::name_of_filtered_agent(&session));
    let Run { output, recording } = follow(session, command);
    assert_eq!(output.stdout, b"done\n");
    assert_eq!(recording.reads(file.path()), plain.reads(file.path()));
    // Their innermost frames tell them apart.
    let sites = |recording| {
        let of_all = signatures(recording, file.path()).into_values().flatten();
        of_all.collect::<BTreeSet<u64>>().len()
    };
    assert_eq!(sites(&recording), sites(&plain));
}

#[test]
fn threads_with_descriptors_of_their_own_are_told_apart() {
    let (one, other) = (data(10_000), data(10_000));
    let program = compile("unshared.c", &["-O1", "-pthread"]);
    for how in ["unshare", "syscall", "close_range"] {
        let arguments = [one.path(), other.path(), Path::new(how)];
        let Run { output, recording } = record(&program, &arguments);
        assert_eq!(output.stdout, b"done\n", "{how}");
        assert_eq!(recording.reads(one.path()), [(0, 10), (5000, 12)], "{how}");
        let reads = recording.reads(other.path());
        assert_eq!(reads, [(5000, 11), (9000, 13)], "{how}");
    }
}

#[test]
fn without_a_session_nothing_happens() {
    let file = data(10_000);
    let program = compile("reads.c", &["-O2"]);
    for session in [None, Some(""), Some("/nonexistent"), Some("/etc/passwd")] {
        let mut command = std::process::Command::new(&program);
        command
            .arg(file.path())
            .env("LD_PRELOAD", support::library())
            .env_remove("HITHER_SESSION");
        session.map(|session| command.env("HITHER_SESSION", session));
        let output = command.output().expect("runs");
        assert!(output.status.success());
        assert_eq!(output.stdout, b"done\n");
        assert_eq!(output.stderr, b"");
    }
    assert!(scratch().is_dir());
}
