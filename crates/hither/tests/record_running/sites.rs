//! The call sites of programs that run already.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

use hither_testing::skip::skip;
use hither_trace::schema::SiteRow;
use hither_trace::{LoadOptions, Trace};

use super::*;

/// How the program is built, and a function on the stack of the second file's reads. musl's
/// functions do not say where they save registers, and `by_stream` has its caller by one.
const BUILDS: &[(&str, &[&str], &str)] = &[
    ("plain", &["gcc", "-O2", "-g"], "second"),
    (
        "frame_pointers",
        &["gcc", "-O2", "-fno-omit-frame-pointer"],
        "second",
    ),
    (
        "no_table",
        &[
            "gcc",
            "-O2",
            "-fno-omit-frame-pointer",
            "-fno-asynchronous-unwind-tables",
        ],
        "second",
    ),
    ("static", &["gcc", "-O2", "-static"], "second"),
    ("musl", &["musl-gcc", "-O2", "-static"], "by_stream"),
    ("go", &["go", "build"], "second"),
];

/// Builds the program. None if the compiler is not there, which is said.
fn build(folder: &Path, name: &str, compiler: &[&str]) -> Option<PathBuf> {
    let (compiler, options) = (compiler[0], &compiler[1..]);
    let extension = if compiler == "go" { "go" } else { "c" };
    let source = format!("tests/record_running/sites.{extension}");
    let program = folder.join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let built = Command::new(compiler)
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .env(
            "PATH",
            [&path, OsStr::new(":/usr/local/go/bin")].join(OsStr::new("")),
        )
        .env("GOCACHE", folder.join("go-cache"))
        .status();
    match built {
        Ok(status) => assert!(status.success(), "{name}"),
        Err(error) => {
            skip(format!("{compiler}: {error}"));
            return None;
        }
    }
    Some(program)
}

/// Starts it with its two files.
fn start_it(folder: &Path, program: &Path) -> Child {
    for file in ["one", "two"] {
        fs::write(folder.join(file), vec![7; 1 << 16]).expect("written");
    }
    Command::new(program)
        .args(["one", "two"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// Records the program while it reads each file a hundred times.
fn record(folder: &Path, program: &Path) -> Trace {
    let mut program = start_it(folder, program);
    let mut said = BufReader::new(program.stdout.take().expect("piped"));
    read_once(&mut program, &mut said);
    let recording = start_recording(folder, program.id());
    for _ in 0..100 {
        read_once(&mut program, &mut said);
    }
    // The code of a program that has ended cannot be looked at any more, and on a busy machine the
    // recorder may come that late.
    let asked = Command::new("kill")
        .args(["-INT", &recording.id().to_string()])
        .status();
    assert!(asked.expect("asked").success());
    let output = recording.wait_with_output().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    drop(program.stdin.take());
    program.wait().expect("waited for");
    load(&folder.join("t.hither"))
}

fn load(trace: &Path) -> Trace {
    Trace::load(trace, None, &LoadOptions::default()).expect("a trace")
}

/// The sites that have read each file, and how many bytes.
fn readers(trace: &Trace) -> BTreeMap<(String, u32), (&SiteRow, u64)> {
    let mut readers = BTreeMap::new();
    trace
        .for_each_request(|row| {
            let path = String::from_utf8_lossy(&trace.objects()[row.object as usize].path);
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            let site = &trace.sites()[row.site as usize];
            readers.entry((name, row.site)).or_insert((site, 0)).1 += row.length;
        })
        .expect("rows");
    readers.retain(|(file, _), _| matches!(&file[..], "one" | "two"));
    readers
}

fn has_frame(site: &SiteRow, name: &str) -> bool {
    let functions = site
        .frames
        .iter()
        .filter_map(|frame| frame.function.as_deref());
    functions
        .into_iter()
        .any(|function| function == name || function == format!("main.{name}"))
}

#[test]
fn call_sites_are_named_however_the_program_was_built() {
    if !can_observe() {
        return;
    }
    for (name, compiler, of_second) in BUILDS {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let folder = folder.path();
        let Some(program) = build(folder, name, compiler) else {
            continue;
        };
        let trace = record(folder, &program);
        let readers = readers(&trace);
        for (file, function) in [("one", "first"), ("two", of_second)] {
            let of_file = || readers.iter().filter(|((of, _), _)| of == file);
            let bytes = |(site, bytes): &(&SiteRow, u64)| (has_frame(site, function), *bytes);
            let all: Vec<(bool, u64)> = of_file().map(|(_, reader)| bytes(reader)).collect();
            let named: u64 = all.iter().filter(|site| site.0).map(|site| site.1).sum();
            let total: u64 = all.iter().map(|site| site.1).sum();
            assert!(total >= 100 << 16, "{name}: {file}: {total} bytes");
            assert!(
                named * 10 >= total * 9,
                "{name}: {file}: {all:?}: {readers:#?}"
            );
        }
    }
}

#[test]
fn a_call_site_has_the_signature_that_the_library_gives_it() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    let Some(program) = build(folder, "program", &["gcc", "-O2"]) else {
        return;
    };
    let running = record(folder, &program);
    let program = program.to_str().expect("text");
    let mut library = Command::new(env!("CARGO_BIN_EXE_hither"))
        .args(["record", "-o", "l.hither", "--seen-by=library", "--"])
        .args([program, "one", "two"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let input = library.stdin.as_mut().expect("piped");
    input.write_all(b"\n\n").expect("it reads");
    assert!(library.wait().expect("waited for").success());
    let library = load(&folder.join("l.hither"));
    let signatures = |trace: &Trace| -> BTreeSet<(String, u64)> {
        let readers = readers(trace);
        let all = readers.into_iter();
        all.map(|((file, _), (site, _))| (file, site.signature))
            .collect()
    };
    let (by_kernel, by_library) = (signatures(&running), signatures(&library));
    assert!(by_library.len() >= 2, "{by_library:?}");
    assert_eq!(
        by_kernel,
        by_library,
        "{:#?}\n{:#?}",
        running.sites(),
        library.sites()
    );
}
