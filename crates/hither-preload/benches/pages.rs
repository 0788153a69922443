//! What the hooks that place pages cost a program: alone, behind the library without a session, and
//! tracked. A small block takes the way past the hooks, a large one is told of, and so are the
//! beginning, the barriers and the end of a parallel region. Run by `cargo test --benches` once
//! each, so that it cannot rot.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use hither_session::session::{Session, SessionOptions};

#[path = "../libraries.rs"]
mod libraries;

fn library(target: &Path) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    libraries::build(env!("CARGO"), package, target).pages
}

fn program(scratch: &Path, name: &str) -> PathBuf {
    let program = scratch.join(format!("{name}-bench"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let status = Command::new("gcc")
        .args(["-O2", "-fno-builtin", "-fopenmp", "-o"])
        .arg(&program)
        .arg(source.join(name).with_extension("c"))
        .status()
        .expect("a C compiler");
    assert!(status.success());
    program
}

/// Runs the program with an agent that keeps up, and returns the time that it took for its rounds.
fn run(mut command: Command, session: Option<&mut Session>) -> Duration {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("spawned");
    if let Some(session) = session {
        while child.try_wait().expect("waited").is_none() {
            session.drain(|_, _| ());
            std::thread::sleep(Duration::from_millis(1));
        }
        session.reap(|_, _| ());
    }
    let output = child.wait_with_output().expect("waited");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    Duration::from_nanos(said.trim().parse().expect("nanoseconds"))
}

fn hooks(criterion: &mut Criterion) {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = library(scratch.parent().expect("target/tmp has a parent"));
    let (heap, constructs) = (program(scratch, "heap"), program(scratch, "constructs"));
    for (name, program, arguments) in [
        ("malloc and free, 64 bytes", &heap, &["64"][..]),
        ("malloc and free, 2 MiB of the heap", &heap, &["2097152"]),
        (
            "malloc and free, 2 MiB mapped",
            &heap,
            &["2097152", "mapped"],
        ),
        ("a parallel region with a barrier", &constructs, &[]),
    ] {
        for way in ["plain", "no session", "tracked"] {
            let mut session = Session::create(SessionOptions {
                files: false,
                region_min: 1 << 20,
                ..SessionOptions::default()
            })
            .expect("a session");
            criterion.bench_function(&format!("{name}, {way}"), |bencher| {
                bencher.iter_custom(|rounds| {
                    let mut command = Command::new(program);
                    command.arg(rounds.to_string()).args(arguments);
                    if way != "plain" {
                        command.env("LD_PRELOAD", &library);
                    }
                    if way == "tracked" {
                        command.env("HITHER_SESSION", session.name());
                        return run(command, Some(&mut session));
                    }
                    run(command, None)
                });
            });
        }
    }
}

criterion_group!(benches, hooks);
criterion_main!(benches);
