//! Programs of every kind, started in every way: they print and end as they do alone, and those
//! that can be recorded are.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use hither_testing::skip::{skip, skip_on_this_machine};
use serde_json::Value;

/// A folder with a program in several kinds, all of one source (`exec/program.c`).
struct Programs {
    folder: tempfile::TempDir,
    /// Names of those that this machine's compilers make.
    kinds: Vec<&'static str>,
}

/// Name, compiler, and options.
const KINDS: [(&str, &str, &[&str]); 6] = [
    ("glibc", "gcc", &[]),
    ("sanitized", "gcc", &["-fsanitize=address"]),
    ("musl", "musl-gcc", &[]),
    ("i386", "gcc", &["-m32"]),
    ("static", "gcc", &["-static"]),
    ("static-pie", "gcc", &["-static-pie"]),
];

/// Scripts that one of the kinds interprets.
const SCRIPTS: [(&str, &str); 3] = [
    ("musl-script", "musl"),
    ("i386-script", "i386"),
    ("glibc-script", "glibc"),
];

/// Those that can be recorded.
const RECORDED: [&str; 3] = ["./glibc", "./sanitized", "./glibc-script"];

/// What each program reads twice.
const DATA_BYTES: u64 = 100_000;

/// A library that says that it was loaded, as the program that it was loaded into ends.
const OTHER: &str = "#include <unistd.h>\n\
    __attribute__((destructor)) static void end(void) { write(1, \"other\\n\", 6); }\n";

/// Each command that starts programs.
const COMMANDS: [&[&str]; 5] = [
    &[
        "record",
        "-q",
        "--force",
        "-o",
        "t.hither",
        "--seen-by=library",
    ],
    &["record", "-q", "--force", "-o", "t.hither"],
    &["run", "--page-cache", "--cache", "8MiB"],
    &["run", "--replicas"],
    &["run", "--memory", "--dry-run"],
];

/// The user that root's tests become.
const USER: u32 = 65534;

/// The programs in a script, among other words.
fn words(script: &str) -> impl Iterator<Item = &str> {
    script.split([' ', ';', '"', ':', '\''])
}

fn compile(folder: &Path, compiler: &str, options: &[&str], from: &Path, to: &str) -> bool {
    let made = Command::new(compiler)
        .args(["-O1", "-pthread", "-o", to])
        .args(options)
        .arg(from)
        .current_dir(folder)
        .output();
    made.is_ok_and(|made| made.status.success())
}

/// Runs what follows as [`USER`].
fn of_user() -> Command {
    let mut command = Command::new("setpriv");
    let user = USER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command
}

fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("changed");
}

impl Programs {
    fn new() -> Programs {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        fs::write(at.join("data"), vec![7; DATA_BYTES as usize]).expect("written");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exec/program.c");
        let mut kinds = Vec::new();
        for (name, compiler, options) in KINDS {
            if compile(at, compiler, options, &source, name) {
                kinds.push(name)
            } else {
                skip(format_args!("{compiler} {options:?} makes no programs"))
            }
        }
        for (name, kind) in SCRIPTS {
            if kinds.contains(&kind) {
                let line = format!("#!{} script\n", at.join(kind).display());
                fs::write(at.join(name), line).expect("written");
                make_executable(&at.join(name));
                kinds.push(name);
            }
        }
        fs::write(at.join("other.c"), OTHER).expect("written");
        let flags = ["-shared", "-fPIC"];
        assert!(compile(at, "gcc", &flags, Path::new("other.c"), "other.so"));
        fs::create_dir(at.join("library")).expect("made");
        // Others may use it, and the ordinary user below owns what it writes to.
        make_executable(at);
        Programs { folder, kinds }
    }

    fn has(&self, chain: &str) -> bool {
        words(chain).all(|word| {
            let name = word.strip_prefix("./");
            name.is_none_or(|name| self.path(name).is_file())
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a shell script prints and how it ends, alone or under a command of hither.
    fn run(&self, script: &str, hither: Option<&[&str]>, as_user: bool) -> Ran {
        // The script's output only: the command says something of its own.
        fs::write(self.path("script"), script).expect("written");
        let mut command = if as_user {
            let mut command = of_user();
            command.args(hither.map(|_| self.path("hither")));
            command
        } else {
            Command::new(hither.map_or("env", |_| env!("CARGO_BIN_EXE_hither")))
        };
        if let Some(arguments) = hither {
            command.args(arguments).arg("--");
        }
        let ran = command
            .args(["sh", "-c", "exec sh ./script > out 2> errors"])
            .current_dir(self.folder.path())
            .env("TMPDIR", self.path("library"))
            .env("XDG_RUNTIME_DIR", self.path("library"))
            .env("XDG_CACHE_HOME", self.path("library"))
            .output()
            .expect("it starts");
        let read = |name| fs::read_to_string(self.path(name)).expect("written");
        Ran {
            code: ran.status.code(),
            out: read("out"),
            errors: read("errors"),
            said: String::from_utf8_lossy(&ran.stderr).into_owned(),
        }
    }

    /// Records a script, and checks that each program in it is recorded that can be, by what these
    /// programs read.
    fn check_recorded(&self, script: &str, as_user: bool) {
        let ran = self.run(script, Some(COMMANDS[0]), as_user);
        let expected = words(script).filter(|word| RECORDED.contains(word)).count();
        let meta = fs::read(self.path("t.hither/meta.json")).expect("a trace");
        let meta: Value = serde_json::from_slice(&meta).expect("JSON");
        let bytes = meta["seen"]["recorded_bytes"].as_u64().expect("a number");
        let found = bytes / (2 * DATA_BYTES);
        assert_eq!(found, expected as u64, "{script}: {bytes} {}", ran.said);
    }

    /// Checks that a script does under every command what it does alone.
    fn check(&self, script: &str, as_user: bool) -> Ran {
        let alone = self.run(script, None, as_user);
        for hither in COMMANDS {
            let ran = self.run(script, Some(hither), as_user);
            let said = format!("{hither:?} of {script}: {}", ran.said);
            assert_eq!(ran.out, alone.out, "{said}");
            assert_eq!(ran.errors, alone.errors, "{said}");
            assert_eq!(ran.code, alone.code, "{said}");
        }
        alone
    }
}

/// What a script did.
struct Ran {
    code: Option<i32>,
    out: String,
    errors: String,
    /// What the command said.
    said: String,
}

/// Chains of programs of all kinds.
const CHAINS: [&str; 4] = [
    "./glibc fork ./musl exec ./glibc spawn ./i386 fork ./static exec ./glibc vfork \
     ./static-pie execvp ./glibc fork ./musl-script fork ./glibc",
    "./musl fork ./i386 fork ./musl fork ./glibc exec ./i386-script fork ./sanitized",
    "./static fork ./i386 exec ./glibc-script exec ./musl-script spawn ./static-pie fork ./glibc",
    "./i386 spawn ./static-pie exec ./musl vfork ./glibc execl ./musl",
];

fn chains(programs: &Programs, as_user: bool) {
    for chain in CHAINS {
        if !programs.has(chain) {
            continue;
        }
        let alone = programs.check(&format!("{chain}; exit $?"), as_user);
        assert_eq!(alone.code, Some(7), "{}", alone.errors);
        programs.check_recorded(chain, as_user);
    }
}

#[test]
fn programs_that_cannot_load_the_library_run_as_they_do_alone_and_lose_no_child() {
    let programs = Programs::new();
    chains(&programs, false);
    // The first program, too, which the command itself starts.
    for kind in &programs.kinds {
        let program = programs.path(kind);
        let program = program.to_str().expect("text");
        let alone = Command::new(program)
            .current_dir(programs.folder.path())
            .output()
            .expect("it starts");
        for hither in COMMANDS {
            let ran = Command::new(env!("CARGO_BIN_EXE_hither"))
                .args(hither)
                .args(["--", program])
                .current_dir(programs.folder.path())
                .env("TMPDIR", programs.path("library"))
                .output()
                .expect("it starts");
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.stdout, alone.stdout, "{hither:?} {kind}: {said}");
            assert_eq!(ran.status, alone.status, "{hither:?} {kind}: {said}");
            assert!(!said.contains("ld.so"), "{hither:?} {kind}: {said}");
            assert!(!said.contains("Error "), "{hither:?} {kind}: {said}");
        }
    }
}

#[test]
fn programs_of_an_ordinary_user_run_as_they_do_alone() {
    let programs = Programs::new();
    let folder = programs.folder.path();
    if fs::metadata(folder).is_ok_and(|own| own.uid() != 0) {
        skip_on_this_machine("only root can become another user");
        return;
    }
    fs::copy(env!("CARGO_BIN_EXE_hither"), programs.path("hither")).expect("copied");
    let hither = programs.path("hither");
    let reached = of_user().arg("test").arg("-x").arg(hither).status();
    if !reached.is_ok_and(|reached| reached.success()) {
        skip(format_args!("{} is closed to others", folder.display()));
        return;
    }
    for name in ["", "library", "data"] {
        chown(programs.path(name), Some(USER), Some(USER)).expect("owned");
    }
    chains(&programs, true);
}

#[test]
fn what_a_program_may_not_open_is_not_in_its_environment() {
    let programs = Programs::new();
    // Below none of the folders that it may open.
    let library = tempfile::tempdir().expect("a folder");
    fs::remove_dir(programs.path("library")).expect("removed");
    std::os::unix::fs::symlink(library.path(), programs.path("library")).expect("linked");
    for way in [
        "exec",
        "fork",
        "vfork",
        "spawn",
        "own",
        "spawn_own",
        "empty",
    ] {
        let script = format!("./glibc landlock {way} ./glibc; exit $?");
        let alone = programs.check(&script, false);
        if alone.code == Some(77) {
            skip_on_this_machine("this kernel has no Landlock");
            return;
        }
        assert_eq!(alone.code, Some(7), "{}", alone.errors);
    }
    // What it may open goes on being recorded.
    fs::remove_file(programs.path("library")).expect("removed");
    fs::create_dir(programs.path("library")).expect("made");
    let script = "./glibc landlock fork ./glibc exec ./glibc; exit $?";
    programs.check(script, false);
    programs.check_recorded(script, false);
}

#[test]
fn a_program_that_is_started_with_an_environment_of_its_own_is_recorded() {
    let programs = Programs::new();
    for script in [
        "LD_PRELOAD=./other.so ./glibc",
        "export LD_PRELOAD='./other.so libm.so.6'; ./glibc; exec ./glibc",
        "LD_PRELOAD=:./other.so:libm.so.6: exec ./glibc",
        "LD_PRELOAD= ./glibc",
        "sh -c \"LD_PRELOAD=$LD_PRELOAD:./other.so exec ./glibc\"",
        "eval \"LD_PRELOAD=$LD_PRELOAD:./other.so; export LD_PRELOAD; ./glibc\"",
        "unset LD_PRELOAD; ./glibc",
        "unset LD_PRELOAD HITHER_SESSION ASAN_OPTIONS; exec ./glibc",
        "env -i ./glibc; env -u LD_PRELOAD ./glibc; env -i LD_PRELOAD=./other.so ./glibc",
        "env -i LD_PRELOAD=./other.so env -u LD_PRELOAD ./glibc",
        "LD_PRELOAD=./other.so ./glibc own ./glibc",
        "./glibc clearenv ./glibc fork ./glibc",
        "./glibc setenv ./glibc empty ./glibc null ./glibc",
        "./glibc execle ./glibc",
        "./glibc many ./glibc fexecve ./glibc execveat ./glibc spawn_own ./glibc own ./glibc",
        "./glibc own ./musl exec ./i386 exec ./glibc",
        "env -i ./musl fork ./static fork ./glibc empty ./i386 exec ./glibc",
        "ASAN_OPTIONS=detect_leaks=0 ./sanitized; env -i ./sanitized empty ./sanitized",
    ] {
        if !programs.has(script) {
            continue;
        }
        let alone = programs.check(&format!("{script}; exit $?"), false);
        assert_eq!(alone.code, Some(7), "{}", alone.errors);
        programs.check_recorded(script, false);
    }
    // But it can decline.
    programs.check_recorded("HITHER_SESSION= exec ././glibc", false);
    // An unset library of the user's does not come back.
    fs::write(programs.path("script"), "unset LD_PRELOAD; ./glibc").expect("written");
    let library = programs.path("other.so");
    let ran = Command::new(env!("CARGO_BIN_EXE_hither"))
        .args(COMMANDS[0])
        .args(["--", "sh", "./script"])
        .current_dir(programs.folder.path())
        .env("TMPDIR", programs.path("library"))
        .env("LD_PRELOAD", library)
        .output()
        .expect("it starts");
    let out = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(out.matches("other").count(), 1, "the shell's only: {out}");
}

#[test]
fn a_program_with_variables_of_those_names_keeps_them() {
    let programs = Programs::new();
    let ran = Command::new(env!("CARGO_BIN_EXE_hither"))
        .args(COMMANDS[0])
        .args(["--", "env"])
        .current_dir(programs.folder.path())
        .env("TMPDIR", programs.path("library"))
        .env("LD_PRELOAD", "libm.so.6:libdl.so.2")
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .output()
        .expect("it starts");
    let out = String::from_utf8_lossy(&ran.stdout);
    let line = |start: &str| out.lines().find_map(|line| line.strip_prefix(start));
    let libraries = line("LD_PRELOAD=").expect("set");
    let ours = libraries.strip_prefix("libm.so.6:libdl.so.2:");
    let ours = ours.unwrap_or_else(|| panic!("{libraries}"));
    assert!(ours.contains("/$PLATFORM/libhither_preload"), "{libraries}");
    let options = line("ASAN_OPTIONS=").expect("set");
    assert_eq!(options, "detect_leaks=0:verify_asan_link_order=0");
}

#[test]
fn what_system_starts_has_the_programs_own_environment() {
    let programs = Programs::new();
    let alone = programs.check("./glibc system ././glibc; exit $?", false);
    assert_eq!(alone.code, Some(7), "{}", alone.errors);
    // Seen is the first one alone.
    programs.check_recorded("./glibc system ././glibc", false);
}

#[test]
fn another_allocator_is_joined_under_each_command() {
    let programs = Programs::new();
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let there = Command::new("sh")
            .args(["-c", "LD_PRELOAD=$0 cat /dev/null", library])
            .output();
        if !there.is_ok_and(|there| there.stderr.is_empty()) {
            skip(library);
            continue;
        }
        let chain = format!("LD_PRELOAD={library} ./glibc exec ./musl fork ./glibc");
        if programs.has(&chain) {
            programs.check(&chain, false);
            programs.check_recorded(&chain, false);
        }
        let allocates = "print(sum(map(len, [bytes(3 << 20)] * 9)))";
        let script = format!("export LD_PRELOAD={library}; exec python3 -c '{allocates}'");
        programs.check(&script, false);
    }
}
