//! Programs that limit their own resources, or are started with limits, get as far as they get
//! alone.

#[allow(dead_code, reason = "not all who include this file use all of it")]
mod support;

use std::path::Path;
use std::process::{Command, Output};

const MIB: u64 = 1 << 20;

/// As in `lifetimes.rs`, but with a fixed memory for replicas: by default they take address space
/// by the size of the machine's memory.
const MODES: [&[&str]; 4] = [
    &["record", "--force", "-o", "trace.hither", "--"],
    &["run", "--page-cache", "--cache", "8MiB", "--"],
    &[
        "run",
        "--replicas",
        "--replicate",
        "all",
        "--replica-memory",
        "64MiB",
        "--",
    ],
    &["run", "--memory", "--file-placement", "--"],
];

/// How much less memory a program may get than alone, in MiB: what the dynamic linker has mapped of
/// the library's file, and what it has mapped for good.
const LESS_MIB_MAX: i64 = 3;

fn run(folder: &Path, before: &[&str], arguments: &[&str]) -> Output {
    let program = folder.join("program");
    let mut command = match before {
        [] => Command::new(&program),
        _ => {
            let mut hither = Command::new(env!("CARGO_BIN_EXE_hither"));
            hither.args(before).arg(&program);
            hither
        }
    };
    command
        .args(arguments)
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_CACHE_HOME", folder);
    command.output().expect("it starts")
}

/// What a program has said, and apart from it the MiB that it got, in their order.
fn said(output: &Output) -> (String, Vec<i64>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut lines, mut memory) = (String::new(), Vec::new());
    for line in text.lines() {
        match line.split_once(" memory ") {
            Some((_, mib)) => memory.push(mib.parse().expect("a number")),
            None => lines = lines + line + "\n",
        }
    }
    (format!("{}\n{lines}", output.status), memory)
}

/// Runs a program in all modes and checks that it says what it says alone.
fn check(folder: &Path, arguments: &[&str], wrong: &mut Vec<String>, less_max: i64) {
    let alone = said(&run(folder, &[], arguments));
    for mode in MODES {
        let output = run(folder, mode, arguments);
        let under = said(&output);
        let less = alone.1.iter().zip(&under.1).map(|(all, left)| all - left);
        let is_close = alone.1.len() == under.1.len() && less.max().unwrap_or(0) <= less_max;
        if alone.0 != under.0 || !is_close {
            let stderr = String::from_utf8_lossy(&output.stderr);
            wrong.push(format!(
                "{arguments:?}, {mode:?}: {alone:?}\n{under:?}\n{stderr}"
            ));
        }
    }
}

#[test]
fn a_program_that_limits_its_memory_gets_what_it_gets_alone() {
    let folder = support::folder("limits/program");
    let folder = folder.path();
    let mut wrong = Vec::new();
    for (how, resource, mib) in [
        ("set", "as", 24),
        ("set", "as", 64),
        ("set", "as", 400),
        ("number", "as", 64),
        ("set", "data", 4),
        ("number", "data", 16),
        ("lock", "memlock", 4),
        ("vfork", "as", 64),
    ] {
        let bytes = (mib * MIB).to_string();
        check(
            folder,
            &[how, resource, &bytes, "data"],
            &mut wrong,
            LESS_MIB_MAX,
        );
    }
    // Other threads may be at what the library has mapped: it stays, and is little.
    for (how, resource, mib) in [("thread", "as", 200), ("set", "as", 600)] {
        let bytes = (mib * MIB).to_string();
        check(folder, &[how, resource, &bytes, "data"], &mut wrong, 64);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_other_limit_matters() {
    let folder = support::folder("limits/program");
    let folder = folder.path();
    let mut wrong = Vec::new();
    for (resource, limit) in [
        ("stack", 64 << 10),
        ("nofile", 4),
        ("nproc", 1),
        ("fsize", 0),
        ("memlock", 0),
        ("rttime", 100_000),
        ("cpu", 100),
        ("sigpending", 0),
    ] {
        let limit = limit.to_string();
        check(folder, &["set", resource, &limit, "data"], &mut wrong, 0);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the library and all that it maps may take of a program's address space, in MiB: of one
/// thread that reads, and without replicas.
const ADDRESS_SPACE_MIB_MAX: u64 = 64;

#[test]
fn the_library_takes_little_address_space() {
    let folder = support::folder("limits/program");
    let folder = folder.path();
    std::fs::write(folder.join("data"), vec![b'x'; 64 << 10]).expect("written");
    let script = "cat data data data > /dev/null; \
                  exec python3 -c 'f = open(\"data\", \"rb\"); f.read(); f.seek(0); f.read(); \
                  print([line for line in open(\"/proc/self/status\") if \"VmSize\" in line])'";
    let mib = |before: &[&str]| {
        let (program, rest) = before.split_first().unwrap_or((&"sh", &[]));
        let mut command = match before {
            [] => Command::new(program),
            _ => Command::new(env!("CARGO_BIN_EXE_hither")),
        };
        if !before.is_empty() {
            command.arg(program).args(rest).arg("sh");
        }
        let output = command
            .args(["-c", script])
            .current_dir(folder)
            .env("XDG_RUNTIME_DIR", folder)
            .env("XDG_CACHE_HOME", folder)
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("KiB") >> 10
    };
    let alone = mib(&[]);
    for mode in [MODES[0], MODES[1], MODES[3]] {
        let taken = mib(mode).saturating_sub(alone);
        println!("{taken} MiB, {mode:?}");
        assert!(taken <= ADDRESS_SPACE_MIB_MAX, "{taken} MiB, {mode:?}");
    }
}

#[test]
fn a_program_with_little_address_space_is_left_alone_and_one_with_more_is_recorded() {
    let folder = support::folder("limits/program");
    let folder = folder.path();
    std::fs::write(folder.join("data"), vec![7; 100_000]).expect("written");
    let recorded = |limit_mib: u64| {
        let mut record = Command::new(env!("CARGO_BIN_EXE_hither"));
        let script = format!("ulimit -v {}; exec cat data > /dev/null", limit_mib << 10);
        record
            .args(["record", "--force", "-o", "t.hither", "--seen-by=library"])
            .args(["--", "sh", "-c", &script])
            .current_dir(folder);
        let output = record.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let stat = Command::new(env!("CARGO_BIN_EXE_hither"))
            .args(["stat", "--json", "t.hither"])
            .current_dir(folder)
            .output()
            .expect("it starts");
        let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (stat["bytes"]["read"].as_u64().unwrap_or(0), said)
    };
    let (bytes, said) = recorded(488);
    assert!(bytes < 100_000, "{bytes}: {said}");
    let (bytes, said) = recorded(4096);
    assert!(bytes >= 100_000, "{bytes}: {said}");
}
