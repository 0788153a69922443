//! Programs in parallel constructs: what is recorded of them, and that they behave the same.
//! LLVM's runtime is tried where clang and libomp are installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hither_session::record::ConstructKind::{
    self, Barrier, Hidden, Iteration, ParallelBegin, ParallelEnd,
};

use crate::support::{
    Construct, Recording, Run, check_same, compile, compile_by, follow, pages_library, placed,
    regions_session, scratch,
};
use hither_testing::skip::skip;

/// The compilers that can build programs for OpenMP.
fn compilers() -> &'static [&'static str] {
    static FOUND: OnceLock<&[&str]> = OnceLock::new();
    FOUND.get_or_init(
        || match hither_testing::needs::openmp("clang", &scratch()) {
            None => &["gcc", "clang"],
            Some(missing) => {
                skip(missing);
                &["gcc"]
            }
        },
    )
}

fn has_clang() -> bool {
    compilers().contains(&"clang")
}

fn program(compiler: &str) -> PathBuf {
    compile_by(compiler, "parallel.c", &["-O1", "-fopenmp"])
}

/// Runs a command plainly and under the library, checks that it says the same, and returns what was
/// recorded.
fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Run {
    let session = regions_session(1 << 20);
    let mut command = placed(&session, program);
    let mut plain = Command::new(program);
    for command in [&mut command, &mut plain] {
        command
            .args(arguments)
            .env("OMP_CANCELLATION", "true")
            // Teams larger than the machine must not spin.
            .env("OMP_WAIT_POLICY", "passive")
            .envs(environment.iter().copied());
    }
    let run = follow(session, command);
    check_same(&run, &mut plain);
    assert_eq!(run.recording.lost.events, 0);
    run
}

fn openmp(compiler: &str, name: &str, iterations: &str, threads: &str) -> Recording {
    let environment = [("OMP_NUM_THREADS", threads)];
    run(&program(compiler), &[name, iterations], &environment).recording
}

fn count(recording: &Recording, kind: ConstructKind) -> usize {
    let is = |construct: &&Construct| construct.kind == kind;
    recording.constructs.iter().filter(is).count()
}

/// One thread told of all constructs: regions one after another, barriers within them.
#[track_caller]
fn in_order(constructs: &[Construct]) {
    let mut region = None;
    for construct in constructs {
        assert_eq!(construct.tid, constructs[0].tid, "the master alone");
        assert_ne!(construct.signature, 0);
        match construct.kind {
            ParallelBegin => assert_eq!(region.replace(construct.signature), None),
            ParallelEnd => assert_eq!(region.take(), Some(construct.signature)),
            Barrier => assert!(region.is_some()),
            Iteration => {}
            Hidden => panic!("another tool"),
        }
    }
    assert_eq!(region, None);
}

#[test]
fn the_master_tells_of_each_construct_once() {
    for compiler in compilers() {
        for threads in ["1", "4"] {
            for (name, regions, barriers) in [
                // The data are filled in one region before, and summed in three after.
                ("bt", 4 + 6 * 5, 6 * 10),
                ("cg", 4 + 6 * (5 + 25 * 3), 0),
                ("jacobi", 4 + 6 * 2, 0),
                ("inside", 4 + 1, 6 * 3),
                ("nested", 4 + 6 * 2, 6),
                ("told", 4 + 12 * 2, 0),
            ] {
                let recording = openmp(compiler, name, "6", threads);
                in_order(&recording.constructs);
                let begun = count(&recording, ParallelBegin);
                assert_eq!(begun, regions, "{compiler} {name} on {threads}");
                let passed = count(&recording, Barrier);
                // clang joins what gcc keeps apart: barriers before the end of a region, and
                // reductions have some of their own.
                if *compiler == "gcc" || barriers > 0 {
                    assert!(
                        passed >= barriers,
                        "{compiler} {name} on {threads}: {passed}"
                    );
                    assert!(
                        passed <= barriers + barriers / 3,
                        "{compiler} {name} on {threads}: {passed}"
                    );
                }
                let team: u16 = threads.parse().expect("a number");
                let teams = recording
                    .constructs
                    .iter()
                    .filter(|construct| construct.kind == Barrier);
                for barrier in teams {
                    assert_eq!(barrier.threads, if name == "nested" { 2 } else { team });
                }
                let told = if name == "told" { 6 } else { 0 };
                assert_eq!(count(&recording, Iteration), told);
            }
        }
    }
}

#[test]
fn tasks_and_cancelled_loops_run_as_ever() {
    for compiler in compilers() {
        for threads in ["1", "4"] {
            for (name, regions) in [("tasks", 4 + 6 * 2), ("cancel", 4 + 6)] {
                let recording = openmp(compiler, name, "6", threads);
                in_order(&recording.constructs);
                assert_eq!(
                    count(&recording, ParallelBegin),
                    regions,
                    "{compiler} {name}"
                );
            }
        }
    }
}

#[test]
fn a_site_has_one_signature_and_its_own() {
    for compiler in compilers() {
        let recording = openmp(compiler, "jacobi", "40", "2");
        let begun: Vec<u64> = recording
            .constructs
            .iter()
            .filter(|construct| construct.kind == ParallelBegin)
            .map(|construct| construct.signature)
            .collect();
        // The first region fills; then two a step, and the norm after each tenth.
        let (first, second, norm) = (begun[1], begun[2], begun[21]);
        assert!(first != second && second != norm && first != norm);
        for step in 0..4 {
            let from = 1 + step * 21;
            assert_eq!(begun[from..from + 20], [first, second].repeat(10));
            assert_eq!(begun[from + 20], norm);
        }
        for site in [first, second, norm] {
            assert!(
                recording.sites.contains_key(&site),
                "{compiler}: it is defined"
            );
        }
    }
}

#[test]
fn each_thread_of_a_team_says_once_where_it_runs() {
    for compiler in compilers() {
        let recording = openmp(compiler, "jacobi", "20", "64");
        let master = recording.constructs[0].tid;
        let mut tids: Vec<u32> = recording.places.iter().map(|&(_, tid)| tid).collect();
        tids.sort_unstable();
        tids.dedup();
        assert_eq!(tids.len(), 63, "{compiler}");
        assert!(!tids.contains(&master));
        if !Path::new("/sys/devices/system/node/node1").exists() {
            assert_eq!(
                recording.places.len(),
                63,
                "there is no other node to come from"
            );
        }
    }
}

#[test]
fn a_program_in_a_sandbox_is_not_killed_for_what_only_we_ask() {
    let forbid = compile("forbid.c", &["-O1", "-static"]);
    for compiler in compilers() {
        let program = program(compiler);
        let path = program.to_str().expect("a path");
        for answer in ["refuse", "kill"] {
            let arguments = [answer, path, "jacobi", "20"];
            let recording = run(&forbid, &arguments, &[("OMP_NUM_THREADS", "4")]).recording;
            assert!(recording.constructs.is_empty(), "left alone: {answer}");
        }
    }
}

#[test]
fn a_forked_child_tells_for_itself() {
    for compiler in compilers() {
        let recording = openmp(compiler, "forks", "10", "4");
        let mut by_process: Vec<Vec<Construct>> = Vec::new();
        for construct in &recording.constructs {
            match by_process.iter_mut().find(|of| of[0].pid == construct.pid) {
                Some(of) => of.push(*construct),
                None => by_process.push(vec![*construct]),
            }
        }
        let mut counts: Vec<usize> = by_process.iter().map(Vec::len).collect();
        counts.sort_unstable();
        // Two regions a step and one norm: twice in the parent, with one region before and three
        // after, once in the child.
        assert_eq!(counts, [2 * 21, 2 * (2 * 21 + 4)], "{compiler}");
        by_process.iter().for_each(|of| in_order(of));
    }
}

#[test]
fn plug_ins_bring_their_own_runtimes() {
    let host = compile("parallel_host.c", &["-O1", "-ldl"]);
    let flags = ["-O1", "-shared", "-fPIC", "-fopenmp"];
    let mut plugins: Vec<PathBuf> = Vec::new();
    for compiler in compilers() {
        plugins.push(compile_by(compiler, "parallel_plugin.c", &flags));
        let at_load = [&flags[..], &["-DAT_LOAD"]].concat();
        plugins.push(compile_by(compiler, "parallel_plugin.c", &at_load));
    }
    let paths: Vec<&str> = plugins
        .iter()
        .map(|path| path.to_str().expect("a path"))
        .collect();
    let recording = run(&host, &paths, &[("OMP_NUM_THREADS", "4")]).recording;
    in_order(&recording.constructs);
    // 10 iterations of two regions in each, and 3 as some are loaded; then gcc's once more.
    let expected = (compilers().len() + 1) * (20 + 26);
    assert_eq!(count(&recording, ParallelBegin), expected);
}

/// Runs the host that takes steps with these plug-ins.
fn take_steps(plugins: &[PathBuf]) -> Run {
    take_steps_in(plugins, &[])
}

fn take_steps_in(plugins: &[PathBuf], environment: &[(&str, &str)]) -> Run {
    let host = compile("parallel_tail_host.c", &["-O2", "-ldl"]);
    let paths: Vec<&str> = plugins
        .iter()
        .map(|path| path.to_str().expect("a path"))
        .collect();
    let environment = [&[("OMP_NUM_THREADS", "4")], environment].concat();
    let run = run(&host, &paths, &environment);
    let unrecorded = Command::new(&host)
        .args(&paths)
        .envs(environment)
        .env("OMP_WAIT_POLICY", "passive")
        .env("LD_PRELOAD", pages_library())
        .env_remove("HITHER_SESSION")
        .output()
        .expect("runs");
    assert_eq!(unrecorded, run.output, "without a session");
    run
}

#[test]
fn calls_in_the_end_of_a_function_find_their_runtime() {
    let flags = ["-O2", "-shared", "-fPIC", "-fopenmp"];
    let mut plugins: Vec<PathBuf> = Vec::new();
    for compiler in compilers() {
        plugins.push(compile_by(compiler, "parallel_tail.c", &flags));
        let at_load = [&flags[..], &["-DAT_LOAD"]].concat();
        plugins.push(compile_by(compiler, "parallel_tail.c", &at_load));
    }
    // Each alone, where there is no other runtime to fall back on, and all together.
    let mut hosts: Vec<&[PathBuf]> = plugins.chunks(1).collect();
    hosts.push(&plugins);
    for plugins in hosts {
        let run = take_steps(plugins);
        in_order(&run.recording.constructs);
        let at_load = |plugin: &&PathBuf| plugin.to_string_lossy().contains("DATLOAD");
        let steps = 11 * plugins.len() + plugins.iter().filter(at_load).count();
        assert_eq!(count(&run.recording, ParallelBegin), steps);
        let said = String::from_utf8_lossy(&run.output.stdout).into_owned();
        for (line, plugin) in said.lines().zip(plugins) {
            let all = if at_load(&plugin) {
                "48 of 48"
            } else {
                "44 of 44"
            };
            assert_eq!(line, all, "{}", plugin.display());
        }
    }
}

#[test]
fn a_module_that_is_not_linked_to_its_runtime_finds_it() {
    let flags = ["-O2", "-shared", "-fPIC", "-fopenmp"];
    let loader = scratch().join("openmp-loader.c");
    std::fs::write(&loader, "int loader;\n").expect("written");
    for compiler in compilers() {
        // `-c` and a link without -fopenmp: what the library calls is of whoever loads it.
        let object = compile_by(compiler, "parallel_tail.c", &[&flags[..], &["-c"]].concat());
        let [library, plugin] = ["unlinked", "loader"]
            .map(|name| scratch().join(format!("openmp-{name}-{compiler}.so")));
        let link = |arguments: &[&str], from: &[&Path], to: &Path| {
            let mut command = Command::new(compiler);
            let command = command.args(["-shared", "-fPIC"]).args(arguments);
            let linked = command.args(from).arg("-o").arg(to).status();
            assert!(linked.expect("a compiler").success());
        };
        link(&[], &[&object], &library);
        let both = ["-fopenmp", "-Wl,--no-as-needed"];
        link(&both, &[&loader, &library], &plugin);
        // Alone, and with other runtimes around it.
        let others = compilers()
            .iter()
            .filter(|other| other != &compiler)
            .map(|other| compile_by(other, "parallel_tail.c", &flags));
        let mut all: Vec<PathBuf> = others.clone().collect();
        all.push(plugin.clone());
        all.extend(others.map(|other| {
            let copy = other.with_extension("copy.so");
            std::fs::copy(&other, &copy).expect("copied");
            copy
        }));
        for plugins in [&[plugin][..], &all] {
            let run = take_steps(plugins);
            in_order(&run.recording.constructs);
            let begun = count(&run.recording, ParallelBegin);
            assert_eq!(begun, 11 * plugins.len(), "{compiler}");
            let said = String::from_utf8_lossy(&run.output.stdout).into_owned();
            assert!(said.lines().all(|line| line == "44 of 44"), "{said}");
        }
    }
}

#[test]
fn a_plug_in_keeps_its_runtime_when_another_is_loaded_for_all() {
    let flags = ["-O2", "-shared", "-fPIC", "-fopenmp"];
    // One is bound as it is loaded, and one as it calls.
    let now = compile("parallel_tail.c", &flags);
    let [first, copy, other] = ["first", "copy", "other"].map(|name| {
        let path = scratch().join(format!("openmp-{name}.so"));
        std::fs::copy(&now, &path).expect("copied");
        path
    });
    let runtime = Command::new("gcc")
        .arg("-print-file-name=libgomp.so.1")
        .output();
    let runtime = String::from_utf8(runtime.expect("gcc").stdout).expect("a path");
    let for_all = scratch().join("openmp-for-all.so");
    std::fs::copy(runtime.trim_end(), &for_all).expect("copied");
    let marked = |mark: &str, path: &Path| PathBuf::from(format!("{mark}{}", path.display()));
    let plugins = [
        first,
        marked("+", &for_all),
        copy,
        // What was known of modules is void after that.
        marked("-", &other),
        now,
    ];
    for environment in [&[][..], &[("LAZY", "1")]] {
        let run = take_steps_in(&plugins, environment);
        let said = String::from_utf8_lossy(&run.output.stdout).into_owned();
        assert_eq!(said, "44 of 44\n".repeat(3), "{environment:?}");
        in_order(&run.recording.constructs);
        assert_eq!(count(&run.recording, ParallelBegin), 33);
    }
}

#[test]
fn more_runtimes_than_are_kept_are_called_all_the_same() {
    let flags = ["-O2", "-shared", "-fPIC"];
    let own = compile("parallel_own.c", &flags);
    let copies: Vec<PathBuf> = (0..20)
        .map(|copy| {
            let path = scratch().join(format!("parallel-own-{copy}.so"));
            std::fs::copy(&own, &path).expect("copied");
            path
        })
        .collect();
    let run = take_steps(&copies);
    in_order(&run.recording.constructs);
    let said = String::from_utf8_lossy(&run.output.stdout).into_owned();
    assert_eq!(said, "11 of 11\n".repeat(copies.len()));
}

#[test]
fn a_program_of_gcc_on_the_runtime_of_llvm_tells_once() {
    if !has_clang() {
        skip("no libomp");
        return;
    }
    let object = compile("parallel.c", &["-O1", "-fopenmp", "-c"]);
    // clang links objects of any compiler with its own runtime.
    let program = scratch().join("openmp-gcc-on-libomp");
    let linked = Command::new("clang")
        .args(["-fopenmp", "-o"])
        .args([&program, &object])
        .status()
        .expect("clang");
    assert!(linked.success());
    for name in ["bt", "inside"] {
        let environment = [("OMP_NUM_THREADS", "4")];
        let recording = run(&program, &[name, "6"], &environment).recording;
        in_order(&recording.constructs);
        let (regions, barriers) = if name == "bt" { (34, 60) } else { (5, 18) };
        assert_eq!(count(&recording, ParallelBegin), regions);
        assert_eq!(count(&recording, Barrier), barriers);
    }
}

#[test]
fn another_tool_keeps_its_runtime() {
    if !has_clang() {
        skip("no libomp");
        return;
    }
    let own = compile_by(
        "clang",
        "parallel_tool.c",
        &["-O1", "-fopenmp", "-rdynamic"],
    );
    // It stands in front of our library, which is never asked.
    let recording = run(&own, &[], &[]).recording;
    assert_eq!(recording.constructs, []);

    let flags = ["-O1", "-fopenmp", "-shared", "-fPIC", "-DLIBRARY"];
    let library = compile_by("clang", "parallel_tool.c", &flags);
    let library = library.to_str().expect("a path");
    let program = program("clang");
    let behind = compile_by("clang", "parallel.c", &["-O1", "-fopenmp", library]);
    let tools = [("OMP_TOOL_LIBRARIES", library)];
    for (program, environment) in [(&program, &tools[..]), (&behind, &[])] {
        let recording = run(program, &["bt", "6"], environment).recording;
        let kinds: Vec<ConstructKind> = recording.constructs.iter().map(|told| told.kind).collect();
        assert_eq!(kinds, [Hidden]);
    }

    let disabled = [("OMP_TOOL", "disabled")];
    let recording = run(&program, &["bt", "6"], &disabled).recording;
    assert_eq!(recording.constructs, []);
}

#[test]
fn a_program_that_tells_its_iterations_needs_no_hither() {
    // Where a weak symbol would be bound when the program is linked, and where nothing can be found
    // at run time.
    for flags in [
        &["-O1", "-fopenmp", "-no-pie", "-fno-pie"][..],
        &["-O1", "-fopenmp", "-ldl"],
    ] {
        let told = compile("parallel.c", flags);
        let recording = run(&told, &["told", "6"], &[("OMP_NUM_THREADS", "2")]).recording;
        assert_eq!(count(&recording, Iteration), 6, "{flags:?}");
    }
}
