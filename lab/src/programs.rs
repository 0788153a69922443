//! The programs of scenarios, compiled by the host's C compiler: statically, so that a guest needs
//! only one file, and again with shared libraries, so that libraries such as hither's can be
//! preloaded.
//!
//! They are in C, because the placement papers' programs use OpenMP's static partition of loops,
//! and because a small C loop has exactly the access pattern that it shows. The sources are part of
//! this binary. Compiled programs are kept in the cache under a hash of the sources, the options
//! and the compiler's version, so a second run starts at once and a changed source is always
//! recompiled.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use serde::Deserialize;

use crate::cache::Cache;
use crate::{hash, interrupt};

macro_rules! sources {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../programs/", $file)))),*]
    };
}

/// All sources by file name. A test compares the list with the folder.
const SOURCES: &[(&str, &str)] = sources![
    "adi.h",
    "bt.c",
    "cg.c",
    "chase.c",
    "cycle.h",
    "lab.c",
    "lab.h",
    "mark.h",
    "nas.c",
    "npb.h",
    "npb_trace.h",
    "readers.c",
    "roi.c",
    "search.c",
    "sp.c",
    "spmv.c",
    "stream.c",
    "tiers.c",
    "update.c",
];

/// The source that all programs share. Every other `.c` file is a program.
const SHARED_SOURCE: &str = "lab.c";

const OPTIONS: &[&str] = &[
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-fopenmp",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// The compiler of a program, which determines its OpenMP library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compiler {
    /// `$CC`, or `cc`: libgomp if it is GCC.
    #[default]
    Cc,
    /// `clang`: LLVM's libomp, only for programs with shared libraries.
    Clang,
}

impl Compiler {
    fn command(self) -> OsString {
        match self {
            Compiler::Cc => std::env::var_os("CC").unwrap_or_else(|| "cc".into()),
            Compiler::Clang => "clang".into(),
        }
    }
}

/// The folder of programs with shared libraries.
const DYNAMIC_FOLDER: &str = "dynamic";

/// The programs that can count themselves (`lab/programs/npb_trace.h`).
pub(crate) const COUNTING: &[&str] = &["bt", "cg", "sp"];

/// The folder of those programs, compiled so that they do.
const COUNTING_FOLDER: &str = "counting";

/// The compiled programs.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// The compiler's version.
    pub(crate) compiler: String,
}

impl Programs {
    /// The programs in the cache, or freshly compiled into it.
    pub(crate) fn build(cache: &Cache, compiler: Compiler) -> Result<Self> {
        Self::build_with(cache, &compiler.command(), compiler == Compiler::Cc)
    }

    fn build_with(cache: &Cache, compiler: &OsString, linked_static: bool) -> Result<Self> {
        let version = compile(compiler, &["--version".into()])?.stdout;
        let sources = SOURCES.iter().flat_map(|(file, text)| [*file, text]);
        let parts = sources.chain(OPTIONS.iter().copied()).map(str::as_bytes);
        let name = format!("programs-{}", hash::short(parts.chain([&version[..]])));
        let folder = cache.entry(&name, |folder| compile_all(compiler, folder, linked_static))?;
        let version = String::from_utf8_lossy(&version);
        let compiler = version.lines().next().unwrap_or_default().to_owned();
        Ok(Self { folder, compiler })
    }

    /// The path of the program of that name, one of [`names`].
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The path of the same program with shared libraries.
    pub(crate) fn dynamic_path(&self, name: &str) -> PathBuf {
        self.folder.join(DYNAMIC_FOLDER).join(name)
    }

    /// The path of the program that counts itself, one of [`COUNTING`].
    pub(crate) fn counting_path(&self, name: &str) -> PathBuf {
        self.folder.join(COUNTING_FOLDER).join(name)
    }
}

/// The names of all programs.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SOURCES
        .iter()
        .filter(|(file, _)| *file != SHARED_SOURCE)
        .filter_map(|(file, _)| file.strip_suffix(".c"))
}

fn compile_all(compiler: &OsString, folder: &Path, linked_static: bool) -> Result<()> {
    let [dynamic, counting] = [DYNAMIC_FOLDER, COUNTING_FOLDER].map(|name| folder.join(name));
    for folder in [&dynamic, &counting] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    for (file, text) in SOURCES {
        let path = folder.join(file);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    let program = |name: &str, more: Option<&str>, to: &Path| {
        let mut arguments: Vec<OsString> = OPTIONS.iter().map(OsString::from).collect();
        arguments.extend(more.map(OsString::from));
        arguments.extend([
            "-o".into(),
            to.join(name).into(),
            folder.join(format!("{name}.c")).into(),
            folder.join(SHARED_SOURCE).into(),
            "-lm".into(),
        ]);
        compile(compiler, &arguments)
    };
    for name in names() {
        program(name, None, &dynamic)?;
        if linked_static {
            program(name, Some("-static"), folder)?;
        }
    }
    for name in COUNTING {
        program(name, Some("-DLAB_TRACE"), &counting)?;
    }
    Ok(())
}

fn compile(compiler: &OsString, arguments: &[OsString]) -> Result<Output> {
    let name = compiler.display();
    let output = match Command::new(compiler).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "no C compiler `{name}`: the lab compiles its programs with it (Debian: apt install \
             gcc libc6-dev, and clang libomp-dev for cases of LLVM's OpenMP; Fedora: dnf install \
             gcc glibc-static, clang libomp-devel; or name another than cc in CC)"
        ),
        Err(error) => {
            return Err(error).with_context(|| format!("running the C compiler `{name}`"));
        }
    };
    interrupt::check()?;
    if !output.status.success() {
        bail!(
            "the C compiler `{name}` ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use hither_testing::skip::skip;
    use std::process::Stdio;
    use std::sync::OnceLock;

    use serde_json::Value;

    use super::*;

    /// Compiled once for all tests, beside cargo's own output.
    fn programs() -> &'static Programs {
        static PROGRAMS: OnceLock<Programs> = OnceLock::new();
        PROGRAMS.get_or_init(|| Programs::build(&test_cache(), Compiler::Cc).unwrap())
    }

    fn test_cache() -> Cache {
        Cache::at(&std::env::current_exe().unwrap().with_file_name("lab-cache")).unwrap()
    }

    fn run(name: &str, arguments: &str) -> Value {
        let output = Command::new(programs().path(name))
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments}: {errors}");
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(facts["program"], name);
        facts
    }

    /// Runs `name` with several numbers of threads, first touches and migrations. The result must
    /// always be the same.
    fn same_result(name: &str, arguments: &str) -> Value {
        let first = run(name, &format!("{arguments} --threads 1"));
        for rest in [
            "--threads 2 --init parallel --migrate hand",
            "--threads 3 --init single",
            "--threads 4 --init interleave",
        ] {
            let other = run(name, &format!("{arguments} {rest}"));
            assert_eq!(other["checksum"], first["checksum"], "{name} {rest}");
            assert_eq!(other["lines"], first["lines"], "{name} {rest}");
        }
        first
    }

    #[test]
    fn the_list_of_sources_is_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let mut files: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let listed: Vec<&str> = SOURCES.iter().map(|(file, _)| *file).collect();
        assert_eq!(files, listed);
    }

    #[test]
    fn a_missing_compiler_is_named() {
        let error =
            Programs::build_with(&test_cache(), &"no-such-compiler".into(), true).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no C compiler `no-such-compiler`"),
            "{error}"
        );
    }

    #[test]
    fn a_second_build_finds_the_first() {
        let modified = || {
            fs::metadata(programs().path("roi"))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = modified();
        let second = Programs::build(&test_cache(), Compiler::Cc).unwrap();
        assert_eq!(second.path("roi"), programs().path("roi"));
        assert_eq!(modified(), before);
    }

    #[test]
    fn with_shared_libraries_it_is_the_same_program() {
        let path = programs().dynamic_path("chase");
        let libraries = Command::new("ldd").arg(&path).output().unwrap().stdout;
        assert!(String::from_utf8_lossy(&libraries).contains("libgomp"));
        let output = Command::new(path)
            .args(["--bytes", "100K", "--iterations", "3", "--region", "all"])
            .output()
            .unwrap();
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        let same = run("chase", "--bytes 100K --iterations 3");
        assert_eq!(facts["checksum"], same["checksum"]);
        assert_eq!(facts["expected_misses"], Value::Null);
    }

    #[test]
    fn with_llvm_the_result_is_the_same() {
        let scratch = std::env::current_exe().unwrap();
        if let Some(missing) = hither_testing::needs::openmp("clang", scratch.parent().unwrap()) {
            return skip(missing);
        }
        let clang = Programs::build(&test_cache(), Compiler::Clang).unwrap();
        let path = clang.dynamic_path("nas");
        let libraries = Command::new("ldd").arg(&path).output().unwrap().stdout;
        assert!(String::from_utf8_lossy(&libraries).contains("libomp"));
        assert!(!clang.path("nas").exists());
        let arguments = "--size 16 --iterations 4 --threads 2";
        let output = Command::new(path)
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(facts["error"].as_f64().unwrap() < 1e-9, "{facts}");
        assert_eq!(facts["lines"], run("nas", arguments)["lines"]);
    }

    #[test]
    fn stream_counts_its_lines() {
        for (kernel, arrays) in [("sum", 1), ("triad", 3)] {
            let facts = same_result(
                "stream",
                &format!("--kernel {kernel} --bytes 100K --iterations 3"),
            );
            // 100 KiB are 25 pages of 64 lines.
            assert_eq!(facts["lines"], arrays * 25 * 64);
            assert_eq!(facts["expected_misses"], 3 * arrays * 25 * 64);
        }
    }

    #[test]
    fn chase_meets_every_line() {
        let facts = same_result("chase", "--bytes 100K --iterations 3");
        assert_eq!(facts["expected_misses"], 3 * 25 * 64);
        // The sum of the lines' numbers from 1, three times.
        assert_eq!(facts["checksum"], format!("{:016x}", 3 * 1600 * 1601 / 2));
    }

    #[test]
    fn tiers_counts_both_regions() {
        let facts = same_result(
            "tiers",
            "--stream-bytes 100K --random-bytes 40K --rounds 3 --stream-node 0 --random-node 0 \
             --iterations 2",
        );
        assert_eq!(facts["expected_misses"], 2 * (1600 + 3 * 640));
        assert_eq!(facts["random_accesses"], 2 * 3 * 640);
        let arguments = "--stream-bytes 100K --random-bytes 40K --rounds 3 --iterations 2";
        let updated = same_result("tiers", &format!("{arguments} --random-access update"));
        assert_eq!(updated["checksum"], facts["checksum"]);
    }

    #[test]
    fn spmv_counts_what_streams() {
        let facts = same_result("spmv", "--rows 1000 --entries 16 --iterations 3");
        assert_eq!(facts["expected_misses"], Value::Null);
        // Eight bytes for a row's end; four and eight for each entry's column and value.
        assert_eq!(facts["streamed_lines"], 1000 * (8 + 16 * (4 + 8)) / 64);
    }

    #[test]
    fn updates_are_the_same_for_any_number_of_threads() {
        let facts = same_result("update", "--bytes 100K --updates 5000 --iterations 3");
        assert_eq!(facts["expected_misses"], Value::Null);
        assert_eq!(facts["updates"], 15_000);
    }

    #[test]
    fn nas_finds_its_solution_however_the_threads_move() {
        let still = same_result("nas", "--size 16 --iterations 4");
        assert_eq!(still["expected_misses"], 4 * 8 * 14 * 14 * 16 * 8 / 64);
        let moving = same_result("nas", "--size 16 --iterations 4 --rotate-every 1");
        assert_eq!(moving["moves"], 3);
        assert_eq!(moving["checksum"], still["checksum"]);
        if std::thread::available_parallelism().unwrap().get() > 1 {
            let halved = same_result("nas", "--size 16 --iterations 4 --halve-after 2 --half 1");
            assert_eq!(halved["checksum"], still["checksum"]);
        }
    }

    /// A number of the facts.
    fn number(facts: &Value, name: &str) -> f64 {
        facts[name].as_f64().unwrap()
    }

    #[test]
    fn bt_and_sp_reach_the_exact_solution() {
        for name in ["bt", "sp"] {
            let facts = same_result(name, "--class S --iterations 300");
            // Reached but for rounding: the start is 18 off.
            assert!(number(&facts, "error") < 1e-6, "{name}");
        }
    }

    /// The estimates are those of NPB 2.3, to its own tolerance. Sums depend on the threads.
    #[test]
    fn cg_verifies_as_the_benchmark_does() {
        for (arguments, zeta) in [
            ("--class S --threads 1", 8.5971775078648),
            ("--class S --threads 3 --init single", 8.5971775078648),
            ("--class W --threads 2", 10.362595087124),
        ] {
            let facts = run("cg", &format!("{arguments} --iterations 15"));
            assert!((number(&facts, "zeta") - zeta).abs() < 1e-10, "{facts}");
        }
    }

    /// The facts of a program that counted itself, and what it wrote.
    fn trace(name: &str, arguments: &str) -> (Value, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let output = Command::new(programs().counting_path(name))
            .args(arguments.split_whitespace())
            .arg("--trace")
            .arg(&file)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments}: {errors}");
        let facts = serde_json::from_slice(&output.stdout).unwrap();
        (facts, fs::read_to_string(file).unwrap())
    }

    #[test]
    fn programs_that_count_themselves_compute_the_same() {
        for name in COUNTING {
            let arguments = "--class S --iterations 3 --counted 3 --threads 4";
            let (facts, text) = trace(name, arguments);
            let same = run(name, "--class S --iterations 3 --threads 4");
            assert_eq!(facts["checksum"], same["checksum"], "{name}");
            let iterations: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with("iteration"))
                .collect();
            // The initialisation with the first iteration, and the three.
            assert_eq!(iterations, ["iteration 1"; 4], "{name}");
        }
    }

    /// One thread misses each line of BT's arrays once, in the initialisation and the first
    /// iteration, and never again: 21 values a point, in lines of 128 bytes, fit its cache.
    #[test]
    fn one_thread_misses_each_line_once() {
        let (facts, text) = trace(
            "bt",
            "--class S --padding 0 --iterations 9 --counted 2 --threads 1",
        );
        assert_eq!(facts["iteration_misses"], 0);
        let (first, rest) = text.split_once("iteration 1\n").unwrap();
        let counts = first.lines().filter_map(|line| {
            let mut words = line.split(' ').filter(|_| line.starts_with(['l', 's']));
            let kind = words.next().filter(|word| word.len() == 1);
            kind.and(words.next_back())?.parse::<u64>().ok()
        });
        let lines = |values: u64| (values * 12u64.pow(3) * 8).div_ceil(128);
        assert_eq!(counts.sum::<u64>(), 3 * lines(5) + 6 * lines(1));
        assert!(
            rest.contains("iteration 8\n"),
            "the second for the other eight: {rest}"
        );
        assert!(!rest.contains("\nl ") && !rest.contains("\ns "), "{rest}");
    }

    /// Two processors a node: the second half of four is node 1.
    #[test]
    fn threads_of_a_trace_leave_half_of_the_processors() {
        let arguments = "--class S --iterations 4 --counted 1 --threads 4 --halve-after 2 --half 1";
        let (_, text) = trace("sp", arguments);
        let threads: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("thread"))
            .collect();
        let before = ["thread 0 0", "thread 1 0", "thread 2 1", "thread 3 1"];
        assert_eq!(
            threads,
            [&before[..], &["thread 0 1", "thread 1 1"]].concat()
        );
    }

    /// One way of two is half of the cache, with as many sets.
    #[test]
    fn a_shared_cache_has_fewer_ways_until_the_program_has_its_own_processors() {
        let halves = "--class S --iterations 4 --counted 1 --threads 4 --halve-after 2";
        let until = |options: &str| {
            let (_, text) = trace("sp", &format!("{halves} {options}"));
            let (first, second) = text.rsplit_once("iteration 2\nthread 0 0").unwrap();
            (first.to_owned(), second.to_owned())
        };
        let shared = until("--cache-kib 64 --cache-ways 2 --shared-ways 1");
        let half = until("--cache-kib 32 --cache-ways 1");
        let all = until("--cache-kib 64 --cache-ways 2");
        assert!(shared.0 == half.0, "one way");
        assert!(shared.0 != all.0);
        assert!(shared.1 != half.1, "two ways from then on");
    }

    #[test]
    fn readers_read_everything_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data");
        for copies in ["one", "node"] {
            let arguments = format!(
                "--bytes 200K --iterations 3 --copies {copies} --file {}",
                file.display()
            );
            let (mut checksums, block) = (Vec::new(), 16 << 10);
            for rest in [
                "--threads 1",
                "--threads 2 --migrate hand",
                "--threads 3 --init single",
                "--threads 4 --init interleave",
                "--threads 2 --call sendfile --take 100K",
                "--threads 2 --cold yes --init single",
            ] {
                let facts = run("readers", &format!("{arguments} {rest}"));
                let lines = 13 * block / 64;
                assert_eq!(facts["file_lines"], lines);
                let threads = facts["threads"].as_u64().unwrap();
                assert_eq!(facts["expected_misses"], 3 * threads * lines);
                checksums.push(facts["checksum"].clone());
            }
            checksums.dedup();
            assert_eq!(checksums.len(), 1);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn search_finds_its_lines_with_the_real_program() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        let arguments = format!(
            "--files 5 --bytes 64K --iterations 2 --command grep --folder {}",
            tree.display()
        );
        let facts = run("search", &format!("{arguments} --threads 2"));
        // 5120 lines, of which every thousandth is looked up, from the first one on.
        assert_eq!(facts["checksum"], format!("{:016x}", 6));
        assert!(!tree.exists());
    }

    /// Most test machines have one node. There everything is local, and the programs must report
    /// it.
    #[test]
    fn on_one_node_all_is_local() {
        for (name, sizes) in [
            ("stream", "--bytes 64K"),
            ("chase", "--bytes 64K"),
            ("tiers", "--stream-bytes 64K --random-bytes 64K"),
            ("nas", "--size 16"),
        ] {
            let facts = run(name, &format!("{sizes} --iterations 2 --threads 2"));
            if facts["nodes"] == 1 {
                assert_eq!(facts["expected_local_share"], 1.0, "{name}");
                assert_eq!(facts["migrated_pages"], 0, "{name}");
            }
            let pages = facts["lines"].as_u64().unwrap() / 64;
            assert_eq!(facts["local_pages"], pages, "{name}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for (arguments, complaint) in [
            ("--bytes 4x", "`4x` is not a number"),
            ("--bytes -1", "`-1` is not a number"),
            ("--bytes 99999999999G", "is not a number"),
            ("--init sing", "none of parallel|single|interleave"),
            ("--threads 0", "--threads must be from 1"),
            ("--threads", "its value is missing"),
            ("--thread 2", "unknown option `--thread`"),
        ] {
            let output = Command::new(programs().path("stream"))
                .args(arguments.split_whitespace())
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(1), "{arguments}");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains(complaint), "{arguments}: {errors}");
        }
    }

    #[test]
    fn roi_ends_as_its_command_does() {
        use std::os::unix::process::ExitStatusExt;

        let roi = |script: &str| {
            Command::new(programs().path("roi"))
                .args(["sh", "-c", script])
                .status()
                .unwrap()
        };
        assert_eq!(roi("exit 7").code(), Some(7));
        assert_eq!(roi("kill -TERM $$").signal(), Some(15));
        // The parent is roi itself: the signal passes through it and ends the command's wait.
        assert_eq!(
            roi("trap 'exit 9' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done").code(),
            Some(9)
        );
        let missing = Command::new(programs().path("roi"))
            .arg("no-such-command")
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(missing.code(), Some(127));
    }
}
