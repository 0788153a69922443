//! Real programs under the real recorder, from their start to the trace.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use hither_live::Error;
use hither_live::observe::{Recorded, Recorder};
use hither_testing::skip::skip_on_this_machine;
use hither_trace::schema::SiteRow;
use hither_trace::{LoadOptions, Trace};
use support::{compile, leftovers, options, recorder};

const READER: &str = "\
#include <fcntl.h>
#include <unistd.h>
static char buffer[4096];
__attribute__((noinline)) long header(int fd) {
    return read(fd, buffer, 100);
}
__attribute__((noinline)) long body(int fd) {
    long total = 0, n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0) total += n;
    return total;
}
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0) return 1;
    long total = header(fd) + body(fd);
    return total == 100000 ? 0 : 2;
}
";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn load(recorded: &Recorded) -> Trace {
    Trace::load(&recorded.trace, None, &LoadOptions::default()).expect("a trace")
}

#[test]
fn a_program_s_reads_are_recorded_with_their_places_in_the_source() {
    let folder = folder();
    let program = compile(folder.path(), "reader", READER, &["-g", "-O1"]);
    let data = folder.path().join("data");
    fs::write(&data, vec![1; 100_000]).expect("written");
    let recorded = recorder(folder.path(), &[&program, &data])
        .run()
        .expect("recorded");
    assert_eq!(recorded.exit.code(), Some(0));
    assert_eq!(recorded.losses.dropped_events, 0);
    let trace = load(&recorded);
    let object = trace
        .objects()
        .iter()
        .position(|object| object.path.ends_with(b"/data"))
        .expect("the file");
    assert_eq!(trace.object_counts()[object].read_bytes, 100_000);
    assert_eq!(trace.objects()[object].size, 100_000);
    let site = |name: &str| {
        trace
            .sites()
            .iter()
            .find(|site| site.function.as_deref() == Some(name))
    };
    let (header, body) = (
        site("header").expect("a site"),
        site("body").expect("a site"),
    );
    assert_eq!((header.line, body.line), (Some(5), Some(9)));
    assert!(
        header
            .frames
            .iter()
            .any(|frame| frame.function.as_deref() == Some("main"))
    );
    assert_eq!(header.module.as_deref(), program.to_str());
    let process = &trace.meta().processes[0];
    assert_eq!(process.exe, program.to_string_lossy());
    assert_eq!(process.command[1], data.to_string_lossy());
    assert!(
        trace.meta().losses.not_recorded.is_empty(),
        "{:?}",
        trace.meta().losses
    );
}

#[test]
fn the_same_program_has_the_same_trace_but_for_times() {
    let folder = folder();
    let program = compile(folder.path(), "reader", READER, &["-g"]);
    let data = folder.path().join("data");
    fs::write(&data, vec![1; 100_000]).expect("written");
    let traces = ["a", "b"].map(|name| {
        let mut options = options(folder.path(), &[&program, &data]);
        options.trace.output = folder.path().join(name);
        load(&Recorder::new(options).run().expect("recorded"))
    });
    assert_eq!(traces[0].sites(), traces[1].sites());
    assert_eq!(
        traces[0].block_stream().unwrap(),
        traces[1].block_stream().unwrap()
    );
}

#[test]
fn exit_codes_and_signals_are_the_program_s() {
    let folder = folder();
    for (script, code, signal) in [
        ("exit 3", Some(3), None),
        ("kill -9 $$", None, Some(9)),
        ("exit 0", Some(0), None),
    ] {
        let mut options = options(folder.path(), &["sh", "-c", script]);
        options.trace.force = true;
        let recorded = Recorder::new(options).run().expect("recorded");
        assert_eq!(
            (recorded.exit.code(), recorded.exit.signal()),
            (code, signal),
            "{script}"
        );
        assert!(recorded.trace.is_dir());
    }
}

#[test]
fn a_program_that_cannot_start_leaves_nothing() {
    let folder = folder();
    let plain = folder.path().join("plain");
    fs::write(&plain, "no program").expect("written");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).expect("changed");
    let missing = folder.path().join("missing");
    for (program, status) in [
        (missing.as_path(), 127),
        (Path::new("no-such-program-anywhere"), 127),
        (&plain, 126),
    ] {
        let error = recorder(folder.path(), &[program])
            .run()
            .expect_err("no such program");
        assert_eq!(error.start_status(), Some(status), "{error}");
        assert!(
            error.to_string().contains(&*program.to_string_lossy()),
            "{error}"
        );
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    }
    let error = recorder::<&str>(folder.path(), &[])
        .run()
        .expect_err("no program");
    assert!(matches!(error, Error::NoCommand));
}

#[test]
fn the_program_does_not_start_where_the_trace_cannot_be_written() {
    let folder = folder();
    let marker = folder.path().join("started");
    let mut options = options(folder.path(), &[Path::new("touch"), &marker]);
    fs::create_dir(&options.trace.output).expect("made");
    for force in [false, true] {
        // With force too: an empty folder is no trace.
        options.trace.force = force;
        let error = Recorder::new(options.clone()).run().expect_err("it exists");
        assert!(matches!(error, Error::Output(_)), "{error}");
    }
    options.trace.output = folder.path().join("no/such/folder/t.hither");
    let error = Recorder::new(options.clone()).run().expect_err("no folder");
    assert!(matches!(error, Error::Output(_)), "{error}");
    options.preload = Some(folder.path().join("missing.so"));
    let error = Recorder::new(options).run().expect_err("no library");
    assert!(matches!(error, Error::Preload { .. }), "{error}");
    assert!(!marker.exists());
}

#[test]
fn programs_that_cannot_be_recorded_are_reported() {
    let folder = folder();
    let program = compile(
        folder.path(),
        "static",
        "int main(void) { return 7; }\n",
        &["-static"],
    );
    let recorded = recorder(folder.path(), &[&program])
        .run()
        .expect("recorded");
    assert_eq!(recorded.exit.code(), Some(7));
    let rows: Vec<_> = recorded
        .losses
        .not_recorded
        .iter()
        .map(|row| (row.reason.as_str(), row.count))
        .collect();
    assert_eq!(rows, [("statically linked", 1)]);
    assert_eq!(recorded.summary.accesses, 0);

    let script = format!("{0}; {0}; cat /dev/null; ls > /dev/null", program.display());
    let mut options = options(folder.path(), &["sh", "-c", &script]);
    options.trace.force = true;
    let recorded = Recorder::new(options).run().expect("recorded");
    let rows: Vec<_> = recorded
        .losses
        .not_recorded
        .iter()
        .map(|row| (row.path.as_str(), row.count))
        .collect();
    assert_eq!(rows, [(program.to_str().expect("UTF-8"), 2)]);
    let trace = load(&recorded);
    let exe = |name: &str| {
        trace
            .meta()
            .processes
            .iter()
            .any(|process| process.exe.ends_with(name))
    };
    assert!(exe("/cat") && exe("/ls"), "{:?}", trace.meta().processes);
}

#[test]
fn a_recording_ends_with_its_command() {
    let folder = folder();
    let pid = folder.path().join("pid");
    // The shell ends only when the process that it leaves behind has made itself known.
    let script = format!(
        "sh -c 'echo $$ > {0}; exec sleep 60' & while ! [ -s {0} ]; do :; done",
        pid.display()
    );
    let recorded = recorder(folder.path(), &["sh", "-c", &script]);
    let recorded = recorded.run().expect("recorded");
    assert_eq!(recorded.exit.code(), Some(0));
    let pid = fs::read_to_string(pid).expect("read");
    assert!(
        Command::new("kill")
            .arg(pid.trim())
            .status()
            .expect("kill starts")
            .success(),
        "it still runs"
    );
    assert_eq!(recorded.seen.left_running, 1);
}

/// Records a program that makes 300,000 reads and exits with code 5, onto a small file system.
fn record_onto(size: &str, check: impl FnOnce(&Path, hither_live::Result<Recorded>)) {
    let folder = folder();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("made");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(&disk)
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        skip_on_this_machine("mounting a small file system takes root");
        return;
    }
    let program = compile(
        folder.path(),
        "many",
        "#include <fcntl.h>\n#include <unistd.h>\n#include <stdlib.h>\n\
         int main(void) { char c; int fd = open(\"/etc/passwd\", O_RDONLY);\n\
         for (int i = 0; i < 300000; i++) if (pread(fd, &c, 1, rand() % 100) != 1) return 1;\n\
         return 5; }\n",
        &["-O1"],
    );
    let mut options = options(folder.path(), &[&program]);
    options.trace.output = disk.join("t.hither");
    // Nothing is lost but what does not fit.
    options.session.ring_bytes = 1 << 25;
    check(&disk, Recorder::new(options).run());
    assert!(
        Command::new("umount")
            .arg(&disk)
            .status()
            .expect("umount starts")
            .success()
    );
}

#[test]
fn a_full_disk_cuts_the_trace_and_the_program_goes_on() {
    // Room for some row groups, and for hardly any.
    for size in ["256k", "16k"] {
        record_onto(size, |disk, recorded| {
            let recorded = recorded.expect("a trace all the same");
            assert_eq!(recorded.exit.code(), Some(5));
            assert_eq!(leftovers(disk), ["t.hither"]);
            let cut = recorded.cut.as_ref().expect("it is cut");
            assert_eq!(cut.reason, "the disk was full");
            assert_eq!(recorded.losses.dropped_events, 0);
            let trace = load(&recorded);
            let meta = trace.meta();
            assert_eq!(meta.cut.as_ref(), Some(cut));
            assert!(cut.ran_ns > Some(cut.time_ns), "{cut:?}");
            let accesses = trace.counts().total.requests;
            assert!(accesses > 0 || size == "16k", "of {size}");
            assert_eq!(recorded.summary.accesses, accesses);
            assert_eq!(recorded.seen.recorded_bytes, accesses);
            assert_eq!(cut.lost_accesses, Some(300_000 - accesses));
            assert_eq!(cut.lost_read_bytes, Some(300_000 - accesses));
            let named = |site: &SiteRow| site.function.as_deref() == Some("main");
            assert_eq!(trace.sites().iter().any(named), accesses > 0);
        });
    }
}

#[test]
fn a_disk_without_room_for_any_trace_is_an_error() {
    record_onto("8k", |disk, recorded| {
        let error = recorded.expect_err("the disk is full");
        assert_eq!(leftovers(disk), Vec::<String>::new());
        let Error::Trace { source, exit, left } = &error else {
            panic!("{error}")
        };
        assert!(source.is_no_space(), "{error}");
        assert_eq!((exit.code(), left), (Some(5), &None));
        let message = error.to_string();
        assert!(
            message.contains("t.hither") && message.contains("No space left on device"),
            "{message}"
        );
    });
}

#[test]
fn no_session_is_left_behind() {
    let folder = folder();
    let marker = folder.path().join("session");
    let script = format!("echo $HITHER_SESSION > {}", marker.display());
    recorder(folder.path(), &["sh", "-c", &script])
        .run()
        .expect("recorded");
    let session = fs::read_to_string(&marker).expect("read");
    let (segment, _) = session.split_once('-').expect("a session's name");
    let segments = fs::read_to_string("/proc/sysvipc/shm").expect("read");
    let mut numbers = segments
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(1));
    assert!(!numbers.any(|number| number == Some(segment)), "{segments}");
}
