//! Which processes a recording has, and what is said of those that it has not: daemons, programs in
//! other namespaces and other roots.

use std::fs;
use std::path::Path;
use std::process::Command;

use hither_testing::skip::skip_on_this_machine;
use serde_json::Value;

const DATA_BYTES: u64 = 100_000;

/// Becomes a daemon in the way of old: forks twice and leads a session, without an exec, and closes
/// all descriptors. Makes a folder `ready` as an orphan, waits for a file `go`, reads `data`, and
/// makes a file `done`.
const DAEMON: &str = "\
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static char buffer[4096];
int main(void) {
    struct stat about;
    if (fork()) return 0;
    setsid();
    pid_t parent = getpid();
    if (fork()) _exit(0);
    for (int fd = 0; fd < 256; fd++) close(fd);
    while (getppid() == parent) usleep(1000);
    mkdir(\"ready\", 0700);
    while (stat(\"go\", &about)) usleep(1000);
    int file = open(\"data\", O_RDONLY);
    while (read(file, buffer, sizeof buffer) > 0);
    close(open(\"done\", O_CREAT | O_WRONLY, 0600));
    return 0;
}
";

/// Reads `data` by an io_uring, which is set up by number or by liburing.
const RINGS: &str = "\
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static char buffer[100000];
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);
int main(void) {
#ifdef LIBRARY
    static char ring[4096];
    return io_uring_queue_init(1, ring, 0) ? 77 : 0;
#else
    struct io_uring_params about;
    memset(&about, 0, sizeof about);
    int ring = syscall(SYS_io_uring_setup, 1, &about);
    if (ring < 0) return 77;
    char *queue = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry =
        mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_READ;
    entry->fd = open(\"data\", O_RDONLY);
    entry->addr = (unsigned long)buffer;
    entry->len = sizeof buffer;
    *(unsigned *)(queue + about.sq_off.array) = 0;
    *(unsigned *)(queue + about.sq_off.tail) = 1;
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1) return 1;
    return buffer[99999] == 7 ? 0 : 2;
#endif
}
";

/// Compiles a program in a folder; false if it cannot be linked.
fn compiled(folder: &Path, name: &str, source: &str, flags: &[&str]) -> bool {
    fs::write(folder.join(format!("{name}.c")), source).expect("written");
    let gcc = Command::new("gcc")
        .args(["-O1", "-o", name, &format!("{name}.c")])
        .args(flags)
        .current_dir(folder)
        .output();
    gcc.expect("gcc starts").status.success()
}

/// A folder with a file `data`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("data"), vec![7; DATA_BYTES as usize]).expect("written");
    folder
}

/// A recording of a shell script: what was said, and the trace's `meta.json`.
struct Recorded {
    said: String,
    meta: Value,
}

impl Recorded {
    /// Of a shell script.
    fn of(folder: &Path, script: &str) -> Recorded {
        let output = Command::new(env!("CARGO_BIN_EXE_hither"))
            .args(["record", "--force", "-o", "t.hither", "--seen-by=library"])
            .args(["--", "sh", "-c"])
            .arg(script)
            .current_dir(folder)
            // Where the library goes, to be hidden.
            .env("TMPDIR", folder)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script}: {said}");
        let meta = fs::read(folder.join("t.hither/meta.json")).expect("a trace");
        let meta = serde_json::from_slice(&meta).expect("JSON");
        Recorded { said, meta }
    }

    fn seen(&self, field: &str) -> u64 {
        let number = self.meta["seen"][field].as_u64();
        number.unwrap_or_else(|| panic!("{field}: {}", self.meta["seen"]))
    }

    fn not_recorded(&self) -> &[Value] {
        let programs = self.meta["losses"]["not_recorded"].as_array();
        programs.expect("a list")
    }

    /// (namespace, pid, first argument) of each process.
    fn processes(&self) -> Vec<(u64, u64, &str)> {
        let processes = self.meta["processes"].as_array().expect("a list");
        let number = |process: &Value, field: &str| process[field].as_u64().unwrap_or(0);
        let row = |process| {
            let namespace = number(process, "pid_namespace");
            let name = process["command"][0].as_str().unwrap_or_default();
            (namespace, number(process, "pid"), name)
        };
        processes.iter().map(row).collect()
    }
}

/// Whether this user may make namespaces.
fn may(unshare: &str) -> bool {
    let tried = Command::new("sh")
        .args(["-c", &format!("{unshare} true")])
        .output();
    let may = tried.is_ok_and(|tried| tried.status.success());
    if !may {
        skip_on_this_machine(format_args!("{unshare} is not permitted"));
    }
    may
}

const NAMESPACE: &str = "unshare --user --map-root-user --pid --fork --kill-child";

#[test]
fn processes_of_pid_namespaces_are_told_apart() {
    if !may(NAMESPACE) {
        return;
    }
    let folder = folder();
    // The first process of each runs `unshare`, then the shell; the second reads. Each waits for
    // the other: the kernel gives the number of a namespace that has ended to the next one.
    let sandbox = |meet: &str| format!("{NAMESPACE} sh -c 'cat data > /dev/null; {meet}' 2>&- &");
    let (one, other) = (sandbox("echo > gate"), sandbox("read line < gate"));
    let recorded = Recorded::of(folder.path(), &format!("mkfifo gate; {one} {other} wait"));
    let processes = recorded.processes();
    for namespace in [1, 2] {
        let expected = [(1, "unshare"), (1, "sh"), (2, "cat")];
        for (pid, name) in expected {
            let found = processes
                .iter()
                .filter(|&&process| process == (namespace, pid, name));
            assert_eq!(found.count(), 1, "{processes:?}");
        }
    }
    assert_eq!(
        recorded.not_recorded(),
        [Value::Null; 0],
        "{}",
        recorded.said
    );
    assert_eq!(recorded.seen("left_running"), 0, "{}", recorded.said);
    assert!(recorded.seen("recorded_bytes") >= 2 * DATA_BYTES);
}

/// There are 1024 rings, and each process takes one.
#[test]
fn processes_of_a_pid_namespace_that_have_ended_give_their_rings_back() {
    if !may(NAMESPACE) {
        return;
    }
    let folder = folder();
    let reads = 1200;
    let script = format!(
        "{NAMESPACE} sh -c 'i=0; while [ $i -lt {reads} ]; do cat data; i=$((i+1)); done' > out"
    );
    let recorded = Recorded::of(folder.path(), &script);
    assert!(
        recorded.seen("recorded_bytes") >= reads * DATA_BYTES,
        "{}",
        recorded.said
    );
    assert!(!recorded.said.contains("lost"), "{}", recorded.said);
    assert_eq!(
        recorded.not_recorded(),
        [Value::Null; 0],
        "{}",
        recorded.said
    );
}

#[test]
fn a_process_that_goes_on_in_a_pid_namespace_is_counted_once() {
    if !may(NAMESPACE) {
        return;
    }
    let folder = folder();
    let script = "mkfifo ready; unshare --user --map-root-user --pid --fork \
                  sh -c 'echo > ready; exec sleep 60' > /dev/null 2>&1 & read line < ready; \
                  cat /proc/$!/task/$!/children > pids; echo $! >> pids";
    let recorded = Recorded::of(folder.path(), script);
    let pids = fs::read_to_string(folder.path().join("pids")).expect("written");
    for pid in pids.split_whitespace() {
        let killed = Command::new("kill").arg(pid).status();
        assert!(killed.expect("kill starts").success(), "{pid} runs");
    }
    // `unshare`, which waits, and its child.
    assert_eq!(recorded.seen("left_running"), 2, "{}", recorded.said);
}

/// The message of the dynamic linker about a library that it cannot find.
const LINKER: &str = "cannot be preloaded";

const MOUNTS: &str = "unshare --user --map-root-user --mount";

#[test]
fn a_program_that_cannot_see_the_library_is_spared_an_error_and_said() {
    if !may(MOUNTS) {
        return;
    }
    let folder = folder();
    let hidden = "cannot open the recorder's library: runs in a root without it (chroot, \
                  mount namespace), or confined (Landlock)";
    let there = "for there in /*; do mkdir root$there && mount --rbind $there root$there; done";
    for (script, program) in [
        ("mount -t tmpfs none hither-*; cat data", "/cat"),
        ("mount -t tmpfs none hither-*; exec cat data", "/cat"),
        (
            "mkdir root; mount -t tmpfs none root; THERE; \
             mount -t tmpfs none root$PWD/hither-*; chroot root cat $PWD/data",
            "cat",
        ),
    ] {
        let script = script.replace("THERE", there);
        fs::write(folder.path().join("script"), script).expect("written");
        let recorded = Recorded::of(folder.path(), &format!("{MOUNTS} sh ./script > out"));
        let out = fs::read(folder.path().join("out")).expect("written");
        assert_eq!(out.len() as u64, DATA_BYTES, "{}", recorded.said);
        assert!(!recorded.said.contains(LINKER), "{}", recorded.said);
        let [.., row] = recorded.not_recorded() else {
            panic!("{}", recorded.said)
        };
        assert_eq!(row["reason"], hidden, "{}", recorded.said);
        let path = row["path"].as_str().unwrap_or_default();
        assert!(path.ends_with(program), "{row}");
        // What it read is known to be missing.
        assert!(
            recorded.seen("unseen_bytes") >= DATA_BYTES,
            "{}",
            recorded.said
        );
    }
}

#[test]
fn libraries_that_the_user_preloads_stay_where_ours_is_hidden() {
    if !may(MOUNTS) {
        return;
    }
    let folder = folder();
    let script = "export LD_PRELOAD=\"libm.so.6 $LD_PRELOAD:libdl.so.2\"; \
                  mount -t tmpfs none hither-*; env > out; env -u LD_PRELOAD env > without";
    fs::write(folder.path().join("script"), script).expect("written");
    let recorded = Recorded::of(folder.path(), &format!("{MOUNTS} sh ./script"));
    assert!(!recorded.said.contains(LINKER), "{}", recorded.said);
    let out = |name| fs::read_to_string(folder.path().join(name)).expect("written");
    let preload = "LD_PRELOAD=libm.so.6:libdl.so.2";
    assert!(
        out("out").lines().any(|line| line == preload),
        "{}",
        out("out")
    );
    assert!(!out("without").contains("LD_PRELOAD"), "{}", out("without"));
}

#[test]
fn a_daemon_is_recorded_while_the_program_runs_and_said_when_it_goes_on() {
    let folder = folder();
    assert!(compiled(folder.path(), "daemon", DAEMON, &[]));
    // It reads as an orphan, and has ended before the program does.
    let script = "./daemon; touch go; while ! [ -e done ]; do sleep 0.01; done";
    let recorded = Recorded::of(folder.path(), script);
    assert!(
        recorded.seen("recorded_bytes") >= DATA_BYTES,
        "{}",
        recorded.said
    );
    assert_eq!(recorded.seen("left_running"), 0, "{}", recorded.said);
    // Though no account of the kernel's has it.
    assert!(
        recorded.seen("unseen_bytes") < DATA_BYTES,
        "{}",
        recorded.said
    );

    // It has used no file when the program ends, so that it has not announced itself.
    for name in ["go", "done"] {
        fs::remove_file(folder.path().join(name)).expect("removed");
    }
    fs::remove_dir(folder.path().join("ready")).expect("removed");
    let script = "./daemon; while ! [ -e ready ]; do sleep 0.01; done";
    let recorded = Recorded::of(folder.path(), script);
    assert_eq!(recorded.seen("left_running"), 1, "{}", recorded.said);
    let said = "1 process that went on when the program had ended";
    assert!(recorded.said.contains(said), "{}", recorded.said);
    fs::write(folder.path().join("go"), "").expect("written");
    while !folder.path().join("done").exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn an_orphan_does_not_hide_what_others_read_unseen() {
    let folder = folder();
    assert!(compiled(folder.path(), "daemon", DAEMON, &[]));
    assert!(compiled(folder.path(), "static", READER, &["-static"]));
    let script = "./daemon; touch go; while ! [ -e done ]; do sleep 0.01; done; ./static";
    let recorded = Recorded::of(folder.path(), script);
    assert!(
        recorded.seen("recorded_bytes") >= DATA_BYTES,
        "{}",
        recorded.said
    );
    assert!(
        recorded.seen("unseen_bytes") >= DATA_BYTES,
        "{}",
        recorded.said
    );
    assert!(
        recorded.said.contains("/static: statically linked"),
        "{}",
        recorded.said
    );
}

/// Reads `data`, as a static program: no recorder sees it.
const READER: &str = "\
#include <fcntl.h>
#include <unistd.h>
static char buffer[4096];
int main(void) {
    int file = open(\"data\", O_RDONLY);
    while (read(file, buffer, sizeof buffer) > 0);
    return 0;
}
";

/// An ordinary user may not read the account of a process that has ended (Linux 6.18), nor ever
/// that of a setuid program.
#[test]
fn what_is_not_seen_is_known_to_an_ordinary_user_too() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const USER: u32 = 65534;
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let set = |name: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(at(name), mode).expect("set");
    };
    assert!(compiled(folder.path(), "static", READER, &["-static"]));
    fs::copy(at("static"), at("setuid")).expect("copied");
    fs::copy(env!("CARGO_BIN_EXE_hither"), at("hither")).expect("copied");
    set("setuid", 0o4755);
    set(".", 0o777);
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| {
        use std::os::unix::fs::MetadataExt;
        about.uid() == 0
    });
    if !is_root {
        skip_on_this_machine("only root makes a setuid program for another user");
    }
    for program in [
        "./static",
        "sh -c ./static;true",
        "./setuid",
        "sh -c ./setuid;true",
    ] {
        let words = program.split(' ').map(|word| word.replace(';', "; "));
        let hither = |line: &[&str]| {
            let mut command = Command::new(at("hither"));
            command
                .args(line)
                .current_dir(folder.path())
                .env("TMPDIR", folder.path());
            command
                .env("HOME", folder.path())
                .env_remove("XDG_RUNTIME_DIR");
            if is_root {
                command.uid(USER).gid(USER);
            }
            command
        };
        let mut record = hither(&[
            "record",
            "--force",
            "-o",
            "u.hither",
            "--seen-by=library",
            "--",
        ]);
        let output = record.args(words).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {said}");
        let advice = hither(&["advise", "--explain", "u.hither"])
            .output()
            .expect("it starts");
        let advice = String::from_utf8_lossy(&advice.stdout).into_owned();
        let meta: Value =
            serde_json::from_slice(&fs::read(at("u.hither/meta.json")).expect("a trace"))
                .expect("JSON");
        let unseen = meta["seen"]["unseen_bytes"].as_u64();
        assert!(
            unseen >= Some(DATA_BYTES),
            "{program}: {said} {}",
            meta["seen"]
        );
        // Nor is more counted than it read: the recorder's own reads are not its.
        assert!(
            unseen < Some(2 * DATA_BYTES),
            "{program}: {said} {}",
            meta["seen"]
        );
        assert!(advice.contains("\nNo verdict: "), "{program}: {advice}");
        if is_root {
            let mode = fs::metadata(at("u.hither"))
                .expect("a trace")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o700, "a trace is its owner's");
        }
    }
}

#[test]
fn reads_by_io_uring_are_said_not_to_be_seen() {
    let folder = folder();
    assert!(compiled(folder.path(), "numbers", RINGS, &[]));
    let can = Command::new(folder.path().join("numbers"))
        .current_dir(folder.path())
        .status();
    if !can.is_ok_and(|ran| ran.success()) {
        skip_on_this_machine("this kernel has no io_uring");
        return;
    }
    let mut programs = vec!["./numbers"];
    let library = "-l:liburing.so.2";
    if compiled(folder.path(), "library", RINGS, &["-DLIBRARY", library]) {
        programs.push("./library")
    } else {
        skip_on_this_machine("there is no liburing.so.2")
    }
    for program in programs {
        let recorded = Recorded::of(folder.path(), &format!("{program}; cat data > /dev/null"));
        assert_eq!(recorded.seen("io_uring_processes"), 1, "{}", recorded.said);
        // The kernel counts none of it, so that nothing else would tell.
        assert!(
            recorded.seen("unseen_bytes") < DATA_BYTES,
            "{}",
            recorded.said
        );
        let said = "not seen: what 1 process may have read by io_uring";
        assert!(recorded.said.contains(said), "{program}: {}", recorded.said);
    }
    let none = Recorded::of(folder.path(), "cat data > /dev/null");
    assert_eq!(none.seen("io_uring_processes"), 0, "{}", none.said);
}

#[test]
fn reads_that_bypass_the_page_cache_are_said_to() {
    let folder = folder();
    let direct = "dd if=data of=/dev/null bs=64k iflag=direct";
    let can = Command::new("sh")
        .args(["-c", direct])
        .current_dir(folder.path())
        .output();
    if !can.is_ok_and(|ran| ran.status.success()) {
        skip_on_this_machine("this file system has no O_DIRECT");
        return;
    }
    let both = Recorded::of(folder.path(), &format!("cat data > /dev/null; {direct}"));
    assert_eq!(both.seen("direct_bytes"), DATA_BYTES, "{}", both.said);
    assert!(
        both.said.contains("past the page cache, by O_DIRECT"),
        "{}",
        both.said
    );
    let later = "import fcntl, os; file = os.open('data', os.O_RDONLY); \
                 fcntl.fcntl(file, fcntl.F_SETFL, os.O_DIRECT); \
                 import mmap; print(os.preadv(file, [mmap.mmap(-1, 65536)], 0))";
    let set = Recorded::of(folder.path(), &format!("python3 -c \"{later}\""));
    assert_eq!(set.seen("direct_bytes"), 65536, "{}", set.said);
    let none = Recorded::of(folder.path(), "cat data > /dev/null");
    assert_eq!(none.seen("direct_bytes"), 0, "{}", none.said);
}

#[test]
fn of_a_mapped_file_is_told_what_is_cached() {
    let folder = folder();
    fs::write(folder.path().join("large"), vec![7; 8 << 20]).expect("written");
    let touches = "import mmap; file = open('large', 'rb'); \
                   map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); \
                   print(sum(map[page] for page in range(0, 8 << 20, 4096)))";
    let recorded = Recorded::of(folder.path(), &format!("python3 -c \"{touches}\""));
    assert_eq!(recorded.seen("mapped_bytes"), 8 << 20, "{}", recorded.said);
    assert_eq!(
        recorded.seen("mapped_cached_bytes"),
        8 << 20,
        "it was touched"
    );
    let said = "8.00 MiB in 1 mapped file, of which 8.00 MiB are cached";
    assert!(recorded.said.contains(said), "{}", recorded.said);
    let written_anew = "import os; os.truncate('large', 0); os.truncate('large', 8 << 20); \
                        import mmap; file = open('large', 'rb'); \
                        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)";
    let untouched = Recorded::of(folder.path(), &format!("python3 -c \"{written_anew}\""));
    assert_eq!(
        untouched.seen("mapped_bytes"),
        8 << 20,
        "{}",
        untouched.said
    );
    assert_eq!(
        untouched.seen("mapped_cached_bytes"),
        0,
        "nothing was touched"
    );
}
