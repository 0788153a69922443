//! Runs a case in its guest: writes the script that the guest runs, and parses its answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cache::Cache;
use crate::guest::{self, Guest, Job, LINES_SHOWN, Outside, PluginArgs};
use crate::policy::{InitialState, Policy};
use crate::price::{Totals, price};
use crate::programs::{Compiler, Programs};
use crate::scenario::Case;
use crate::{hash, interrupt};

/// Lines of /proc/vmstat about moved pages, and about the search for pages to move.
const VMSTAT_COUNTERS: [&str; 6] = [
    "numa_hint_faults",
    "numa_hint_faults_local",
    "numa_pages_migrated",
    "numa_pte_updates",
    "pgmigrate_fail",
    "pgmigrate_success",
];

/// Marks the counters in the script's output.
const VMSTAT_MARK: &str = "@vmstat";

/// One run of a case.
#[derive(Debug)]
pub(crate) struct Run {
    /// The counts and their price.
    pub(crate) totals: Totals,
    /// Intervals between marks.
    pub(crate) intervals: usize,
    /// The increase of each counter of /proc/vmstat.
    pub(crate) vmstat: BTreeMap<String, u64>,
    /// The program's line of JSON. Null if it printed none.
    pub(crate) facts: Value,
    /// The time that the run took on this host.
    pub(crate) host_seconds: f64,
    /// The CPU time that QEMU took.
    pub(crate) cpu_seconds: f64,
    /// The script that the guest ran.
    pub(crate) script: String,
    /// The compiler of the program.
    pub(crate) compiler: String,
    /// The versions of the packages in whose root it ran.
    pub(crate) packages: BTreeMap<String, String>,
    /// The output of `hither run` on its standard error.
    pub(crate) hither: Vec<String>,
}

impl Run {
    /// The number of misses that the program expects.
    pub(crate) fn expected_misses(&self) -> Option<u64> {
        self.facts.get("expected_misses").and_then(Value::as_u64)
    }

    /// The local share that follows from the nodes of the program's pages, as reported by the
    /// kernel.
    pub(crate) fn expected_local_share(&self) -> Option<f64> {
        self.facts
            .get("expected_local_share")
            .and_then(Value::as_f64)
    }

    /// Pages migrated, by any mechanism.
    pub(crate) fn migrations(&self) -> u64 {
        self.vmstat.get("pgmigrate_success").copied().unwrap_or(0)
    }
}

/// The mount point of a case's own file system.
const DISK_MOUNT_POINT: &str = "/disk";

/// Files for the output of `hither run`, and for its profile of call sites.
const HITHER_OUTPUT_PATH: &str = "/tmp/hither.said";
const PROFILE_PATH: &str = "/tmp/hither.sites";

/// Marks hither's output in the script's output.
const HITHER_OUTPUT_MARK: &str = "@hither";

/// The standard error of the other copies of the program.
fn beside(copy: u32) -> String {
    format!("/tmp/beside.{copy}")
}

/// The program with its arguments, preceded by `hither run` and numactl if policy and placement
/// need them.
fn command(case: &Case, repetition: u32, copy: u32) -> String {
    let mut words = Vec::new();
    if let Policy::Hither {
        mechanism,
        argument,
    } = &case.policy
    {
        words.push(format!(
            "./hither run {}={}",
            mechanism.option,
            quote(argument)
        ));
        words.extend(mechanism.more.iter().map(|&word| word.to_owned()));
        if mechanism.scaled {
            words.push(format!("--cpu-budget {}%", case.balancing_scale.min(100)));
        }
        if mechanism.given == InitialState::Sites {
            words.push(format!("--profile {PROFILE_PATH}"));
        }
        words.push("--".to_owned());
    }
    if !case.placement.numactl.is_empty() {
        words.push("numactl".to_owned());
        words.extend(case.placement.numactl.iter().map(|arg| quote(arg)));
    }
    words.push(format!("./{}", quote(&case.program)));
    words.extend(
        case.arguments(repetition, copy)
            .iter()
            .map(|arg| quote(arg)),
    );
    let command = words.join(" ");
    if case.packages.is_empty() {
        command
    } else {
        guest::inside(&quote(&format!("cd /job && exec {command}")))
    }
}

/// The commands that mount what the case needs and make what its program reads.
fn prepared(case: &Case) -> String {
    let mut commands = String::new();
    if case.disk_mib.is_some() {
        commands += &guest::mount(DISK_MOUNT_POINT);
    }
    if !case.packages.is_empty() {
        commands += &guest::mount_outside();
        let prepare = format!("set -e; cd /tmp; {}", case.prepare);
        commands += &format!("{} > /dev/null\n", guest::inside(&quote(&prepare)));
    }
    commands
}

/// The script for `case`: the policy, the program, and the kernel's counters before and after it.
fn script(case: &Case, repetition: u32) -> String {
    let counters = format!(
        "grep -E '^({}) ' /proc/vmstat | sed 's/^/{VMSTAT_MARK} /'\n",
        VMSTAT_COUNTERS.join("|")
    );
    let command = command(case, repetition, 0);
    // The other copies are counted if they share CPUs with the first, but they set no marks.
    let (mut start, mut end) = (String::new(), String::new());
    for copy in 1..case.copies {
        let (command, said) = (self::command(case, repetition, copy), beside(copy));
        start += &format!("LAB_UNMARKED=1 {command} > /dev/null 2> {said} &\ncopy{copy}=$!\n");
        end += &format!("wait $copy{copy} || {{ status=$?; cat {said} >&2; exit $status; }}\n");
    }
    let commands = match &case.policy {
        Policy::Hither { mechanism, .. } => {
            let said = format!("|| {{ status=$?; cat {HITHER_OUTPUT_PATH} >&2; exit $status; }}");
            let teach = match mechanism.given {
                InitialState::Sites => {
                    format!("LAB_UNMARKED=1 {command} > /dev/null 2> {HITHER_OUTPUT_PATH} {said}\n")
                }
                InitialState::Nothing | InitialState::Hints => String::new(),
            };
            format!(
                "{teach}{counters}{start}{command} 2> {HITHER_OUTPUT_PATH} {said}\n\
                 sed 's/^/{HITHER_OUTPUT_MARK} /' {HITHER_OUTPUT_PATH}"
            )
        }
        _ => format!("{counters}{start}{command}"),
    };
    // A thread that spins at a barrier executes instructions without misses, which would count as
    // work.
    format!(
        "set -e\nexport OMP_WAIT_POLICY=passive\n{}{}{}{commands}\n{end}{counters}",
        prepared(case),
        case.policy.setup(case.balancing_scale),
        case.near_free_mib.map(scarce).unwrap_or_default(),
    )
}

/// Leaves `mib` of node 0 free. Huge pages take the rest, which nothing moves, reclaims or demotes.
/// The kernel's own reserve, a twentieth of so little memory, would be most of what is left, so it
/// is set to the value for a larger memory.
fn scarce(mib: u32) -> String {
    format!(
        "echo 2048 > /proc/sys/vm/min_free_kbytes\n\
         near=/sys/devices/system/node/node0\n\
         free() {{ sed -n 's/^Node 0 MemFree: *\\([0-9]*\\) kB$/\\1/p' $near/meminfo; }}\n\
         echo $((($(free) - {mib} * 1024) / 2048)) \
         > $near/hugepages/hugepages-2048kB/nr_hugepages\n\
         [ $(free) -lt $((({mib} + 4) * 1024)) ] || {{ \
         echo near_free_mib: $(free) kB are still free >&2; exit 1; }}\n"
    )
}

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=,./:@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Parses the script's output: increases of the counters, facts of the program, and hither's
/// output.
fn answer(stdout: &str) -> (BTreeMap<String, u64>, Value, Vec<String>) {
    let mut counters: BTreeMap<String, u64> = BTreeMap::new();
    let mut facts = Value::Null;
    let mut said = Vec::new();
    for line in stdout.lines() {
        if let Some(line) = line.strip_prefix(HITHER_OUTPUT_MARK) {
            said.push(line.trim_start().to_owned());
            continue;
        }
        if let Some(counter) = line.strip_prefix(VMSTAT_MARK) {
            let mut words = counter.split_ascii_whitespace();
            if let (Some(name), Some(value)) = (
                words.next(),
                words.next().and_then(|value| value.parse().ok()),
            ) {
                // The first time it is the state before the program, the second time the state
                // after it.
                counters
                    .entry(name.to_owned())
                    .and_modify(|before: &mut u64| *before = u64::saturating_sub(value, *before))
                    .or_insert(value);
            }
        } else if line.starts_with('{')
            && let Ok(value) = serde_json::from_str(line)
        {
            facts = value;
        }
    }
    (counters, facts, said)
}

/// The binaries that the lab builds.
#[derive(Debug)]
pub(crate) struct Built {
    /// The counting plugin.
    pub(crate) plugin: PathBuf,
    /// Its SHA-256.
    pub(crate) plugin_sha256: String,
    /// The programs of lab/programs, compiled by `cc`.
    programs: Programs,
    /// The same compiled by clang, if a case needs it. Without clang only such cases fail.
    clang: Option<Result<Programs>>,
    /// hither's command and its SHA-256, if a case needs it.
    hither: Option<(PathBuf, String)>,
}

impl Built {
    /// Compiles the programs, and the plugin unless one is given.
    pub(crate) fn new(cache: &Cache, plugin: Option<&Path>, quiet: bool) -> Result<Self> {
        let programs = Programs::build(cache, Compiler::Cc)?;
        let plugin = match plugin {
            Some(path) => {
                fs::canonicalize(path).with_context(|| format!("--plugin {}", path.display()))?
            }
            None => build("plugin/Cargo.toml", "lab_plugin", quiet)
                .context("building the plugin (or say --plugin PATH)")?,
        };
        let bytes = fs::read(&plugin).with_context(|| plugin.display().to_string())?;
        Ok(Self {
            plugin_sha256: hash::sha256(&bytes),
            plugin,
            programs,
            clang: None,
            hither: None,
        })
    }

    /// Adds the programs compiled by clang.
    pub(crate) fn with_clang(self, cache: &Cache) -> Self {
        Self {
            clang: Some(Programs::build(cache, Compiler::Clang)),
            ..self
        }
    }

    /// The programs as `case` needs them.
    fn programs(&self, case: &Case) -> Result<&Programs> {
        match (case.compiler, &self.clang) {
            (Compiler::Cc, _) => Ok(&self.programs),
            (Compiler::Clang, Some(Ok(programs))) => Ok(programs),
            (Compiler::Clang, Some(Err(error))) => bail!("{error:#}"),
            (Compiler::Clang, None) => bail!("the programs are not compiled by clang"),
        }
    }

    /// Adds hither's command: the given one, or a release build. It is stripped, since its symbols
    /// would fill a guest's memory.
    pub(crate) fn with_hither(
        self,
        cache: &Cache,
        given: Option<&Path>,
        quiet: bool,
    ) -> Result<Self> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => build("../crates/hither/Cargo.toml", "hither", quiet)
                .context("building hither (or say --hither PATH)")?,
        };
        let bytes = fs::read(&path).with_context(|| format!("hither: {}", path.display()))?;
        let sha256 = hash::sha256(&bytes);
        let stripped = cache.entry(&format!("hither-{}", hash::short([&bytes[..]])), |folder| {
            fs::create_dir_all(folder)?;
            let to = folder.join("hither");
            let status = Command::new("strip").arg("-o").args([&to, &path]).status();
            let status = status.context("running strip (Debian: apt install binutils)")?;
            ensure!(status.success(), "strip {}: {status}", path.display());
            Ok(())
        })?;
        Ok(Self {
            hither: Some((stripped.join("hither"), sha256)),
            ..self
        })
    }

    /// The SHA-256 of the command, if `case` runs it.
    pub(crate) fn hither_sha256(&self, case: &Case) -> Option<&str> {
        let (_, sha256) = self.hither.as_ref()?;
        matches!(case.policy, Policy::Hither { .. }).then_some(sha256)
    }
}

/// A job with the case's programs in its folder.
fn job(
    case: &Case,
    script: String,
    timeout: Duration,
    built: &Built,
    outside: Option<&Outside>,
) -> Result<Job> {
    let mut job = Job::new(script, timeout);
    if let Some(outside) = outside {
        job = job.outside(&outside.image);
    }
    if let Some(mib) = case.disk_mib {
        job = job.disk(mib);
    }
    let programs = built.programs(case)?;
    job = if case.dynamic {
        job.program(programs.dynamic_path(&case.program))
    } else {
        job.file(programs.path(&case.program), &case.program)
    };
    if let (Policy::Hither { .. }, Some((hither, _))) = (&case.policy, &built.hither) {
        job = job.program(hither);
    }
    for path in &case.host_programs {
        ensure!(
            Path::new(path).is_file(),
            "host_programs: no file {path} here"
        );
        job = job.program(path);
    }
    Ok(job)
}

/// Opens a shell on the user's terminal in the guest of `case`, with its policy and its programs.
pub(crate) fn shell(
    case: &Case,
    guest: &Guest<'_>,
    built: &Built,
    outside: Option<&Outside>,
) -> Result<()> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    // The shell leads a session and opens the terminal, so the terminal is its own and Ctrl-C
    // works.
    let script = format!(
        "{}{}{}{{ echo; echo {}; echo '(`exit` ends the guest)'; }} > /dev/ttyS0\n\
         exec setsid sh -c 'exec sh -i < /dev/ttyS0 > /dev/ttyS0 2>&1'\n",
        prepared(case),
        case.policy.setup(case.balancing_scale),
        case.near_free_mib.map(scarce).unwrap_or_default(),
        quote(&format!("{}: {}", case.id(), command(case, 0, 0))),
    );
    guest.run_on_terminal(&job(case, script, DAY, built, outside)?)
}

/// Runs `case` for the `repetition`th time, from 0.
pub(crate) fn run(
    case: &Case,
    repetition: u32,
    guest: &Guest<'_>,
    built: &Built,
    outside: Option<&Outside>,
) -> Result<Run> {
    let script = script(case, repetition);
    let timeout = Duration::from_secs(case.timeout_s);
    let job = job(case, script.clone(), timeout, built, outside)?.plugin(PluginArgs {
        library: built.plugin.clone(),
        options: case.caches.options(),
    });
    let ran = guest.run(&job)?;
    if ran.status != 0 {
        let own = |line: &&str| !line.starts_with(VMSTAT_MARK);
        let wrote: Vec<&str> = ran
            .stdout
            .lines()
            .filter(own)
            .chain(ran.console.lines())
            .collect();
        bail!(
            "the guest's script ended with status {}; it wrote last\n  {}",
            ran.status,
            wrote[wrote.len().saturating_sub(LINES_SHOWN)..].join("\n  ")
        );
    }
    ensure!(
        !ran.counts.is_empty(),
        "no region of interest was marked: a program needs lab_begin and lab_end, or `roi` before \
         it"
    );
    let totals = price(&ran.counts, &case.machine, case.constants, case.caches.line);
    let (vmstat, facts, hither) = answer(&ran.stdout);
    Ok(Run {
        hither,
        totals,
        intervals: ran.counts.len(),
        vmstat,
        facts,
        host_seconds: ran.host_seconds,
        cpu_seconds: ran.cpu_seconds,
        script,
        compiler: built.programs(case)?.compiler.clone(),
        packages: outside.map_or_else(BTreeMap::new, |outside| outside.versions.clone()),
    })
}

/// Builds a package of this workspace with the cargo that built the lab, in the same target folder,
/// so that nothing is built twice. Returns the path of `target`'s output.
fn build(manifest: &str, target: &str, quiet: bool) -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
    ensure!(manifest.is_file(), "{} is gone", manifest.display());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--locked"])
        .arg("--message-format=json-render-diagnostics")
        .arg("--manifest-path")
        .arg(&manifest);
    if quiet {
        command.arg("--quiet");
    }
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo")?;
    interrupt::check()?;
    ensure!(output.status.success(), "it does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifact = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| {
            message["reason"] == "compiler-artifact" && message["target"]["name"] == target
        })
        .find_map(|message| match message["executable"].as_str() {
            Some(program) => Some(program.into()),
            None => {
                let mut files = message["filenames"].as_array()?.iter();
                let library =
                    files.find_map(|file| file.as_str().filter(|file| file.ends_with(".so")));
                library.map(PathBuf::from)
            }
        });
    artifact.context("cargo named no such file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_need_be() {
        assert_eq!(quote("--place"), "--place");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn an_answer_is_read() {
        let stdout = "@vmstat pgmigrate_success 5\n\
                      @vmstat numa_hint_faults 0\n\
                      {\"expected_misses\": 12}\n\
                      @hither 2 regions\n\
                      @vmstat pgmigrate_success 9\n\
                      @vmstat numa_hint_faults 3\n";
        let (vmstat, facts, said) = answer(stdout);
        assert_eq!(said, ["2 regions"]);
        assert_eq!(vmstat["pgmigrate_success"], 4);
        assert_eq!(vmstat["numa_hint_faults"], 3);
        assert_eq!(facts["expected_misses"], 12);
    }
}
