//! Real programs under the preload library: as many iterations are found as they make.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hither_core::placement::EpochKind;
use hither_live::SessionOptions;
use hither_live::iterations::{Iterations, State};
use hither_session::record::{ConstructKind, Record};
use hither_session::session::Session;
use hither_testing::skip::skip;

/// `programs/parallel.c`, compiled; `None` where that compiler is not there.
fn compile(compiler: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("iterations-{compiler}"));
    let output = Command::new(compiler)
        .args(["-O1", "-fopenmp", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../hither-preload/tests/programs/parallel.c"
        ))
        .output();
    output
        .is_ok_and(|output| output.status.success())
        .then_some(program)
}

/// What a run showed.
struct Shown {
    /// Iterations that ended, and constructs.
    iterations: usize,
    constructs: usize,
    state: State,
}

fn run(library: &Path, program: &Path, name: &str, iterations: &str) -> Shown {
    let mut session = Session::create(SessionOptions {
        files: false,
        region_min: 1 << 20,
        ..SessionOptions::default()
    })
    .expect("a session");
    let mut child = Command::new(program)
        .args([name, iterations])
        .env("LD_PRELOAD", library)
        .env("HITHER_SESSION", session.name())
        .env("OMP_NUM_THREADS", "3")
        .env("OMP_WAIT_POLICY", "passive")
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut threads: HashMap<u32, (Iterations, usize, usize)> = HashMap::new();
    let mut drain = |session: &mut Session| {
        session.drain(|ring, record| {
            let Record::Construct {
                kind, signature, ..
            } = record
            else {
                return;
            };
            let (iterations, ended, constructs) = threads.entry(ring.tid.0).or_default();
            *ended +=
                usize::from(iterations.construct(kind, signature) == Some(EpochKind::Iteration));
            *constructs += usize::from(matches!(
                kind,
                ConstructKind::ParallelBegin | ConstructKind::Barrier
            ));
        })
    };
    let status = loop {
        let status = child.try_wait().expect("the program is ours");
        drain(&mut session);
        if let Some(status) = status {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success(), "{name}: {status}");
    assert_eq!(session.lost().events, 0);
    assert_eq!(threads.len(), 1, "the master's");
    let (iterations, ended, constructs) = threads.into_values().next().expect("one");
    iterations.check();
    Shown {
        iterations: ended,
        constructs,
        state: iterations.state(),
    }
}

#[test]
fn as_many_iterations_are_found_as_programs_make() {
    let library = support::pages_preload();
    for compiler in ["gcc", "clang"] {
        let Some(program) = compile(compiler) else {
            skip(format_args!(
                "{compiler}: it or its OpenMP runtime is not installed"
            ));
            continue;
        };
        // Two are needed to see that they repeat (more if they are short), and the last is not
        // ended by a next one.
        for (name, made, found, length) in [
            ("bt", 60, 57..=58, 15),
            ("jacobi", 100, 92..=98, 2),
            ("inside", 60, 54..=58, 3),
            ("nested", 60, 54..=58, 3),
            ("cancel", 60, 50..=58, 3),
        ] {
            let shown = run(&library, &program, name, &made.to_string());
            let State::Iterating {
                constructs,
                confidence,
                ..
            } = shown.state
            else {
                panic!(
                    "{compiler} {name}: {:?} after {} constructs",
                    shown.state, shown.constructs
                )
            };
            println!(
                "{compiler} {name}: {} of {made}, {constructs:?} constructs, confidence \
                    {confidence:.2}",
                shown.iterations
            );
            assert!(
                found.contains(&shown.iterations),
                "{compiler} {name}: {} iterations",
                shown.iterations
            );
            assert!(confidence > 0.8, "{compiler} {name}: {confidence}");
            if compiler == "gcc" {
                assert_eq!(constructs, Some(length), "{name}");
            }
        }

        // The inner iterations are found first, and are wrong, until the outer one has come back.
        let shown = run(&library, &program, "cg", "40");
        let State::Iterating { constructs, .. } = shown.state else {
            panic!("{compiler} cg: {:?}", shown.state)
        };
        println!(
            "{compiler} cg: {} of 40, {constructs:?} constructs",
            shown.iterations
        );
        assert_eq!(constructs, Some(80), "{compiler} cg");
        assert!(
            (37..=38 + 25).contains(&shown.iterations),
            "{compiler} cg: {}",
            shown.iterations
        );

        let shown = run(&library, &program, "told", "40");
        assert_eq!(shown.state, State::Told);
        assert!(
            (40..=43).contains(&shown.iterations),
            "{compiler} told: {}",
            shown.iterations
        );
    }
}
