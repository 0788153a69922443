//! Runs a case in its guest and reads what came back: the script that the guest runs, and its answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cache::Cache;
use crate::guest::{Guest, Job, PluginArgs};
use crate::price::{Totals, price};
use crate::programs::Programs;
use crate::scenario::Case;
use crate::{hash, interrupt};

/// Lines of /proc/vmstat that tell of pages that moved, or of the work to find them.
const VMSTAT: [&str; 6] = [
    "numa_hint_faults",
    "numa_hint_faults_local",
    "numa_pages_migrated",
    "numa_pte_updates",
    "pgmigrate_fail",
    "pgmigrate_success",
];

/// Marks the counters in the script's output.
const VMSTAT_MARK: &str = "@vmstat";

/// How many of the last lines that a guest wrote an error shows.
pub(crate) const LINES_SHOWN: usize = 15;

/// One run of a case.
#[derive(Debug)]
pub(crate) struct Run {
    /// What was counted, and its price.
    pub(crate) totals: Totals,
    /// Intervals between marks.
    pub(crate) intervals: usize,
    /// How far each counter of /proc/vmstat went up.
    pub(crate) vmstat: BTreeMap<String, u64>,
    /// The program's line of JSON; null where it printed none.
    pub(crate) facts: Value,
    /// The time that the run took on this host.
    pub(crate) host_seconds: f64,
    /// The CPU time that QEMU took.
    pub(crate) cpu_seconds: f64,
    /// What the guest ran.
    pub(crate) script: String,
}

impl Run {
    /// What the program says that it must miss.
    pub(crate) fn expected_misses(&self) -> Option<u64> {
        self.facts.get("expected_misses").and_then(Value::as_u64)
    }

    /// The local share that follows from where the program's pages lie, as it asked the kernel.
    pub(crate) fn expected_local_share(&self) -> Option<f64> {
        self.facts
            .get("expected_local_share")
            .and_then(Value::as_f64)
    }

    /// Pages migrated, by whomever.
    pub(crate) fn migrations(&self) -> u64 {
        self.vmstat.get("pgmigrate_success").copied().unwrap_or(0)
    }
}

/// The program with its arguments, and numactl before it where the placement asks for that.
fn command(case: &Case, repetition: u32) -> String {
    let mut words = Vec::new();
    if !case.placement.numactl.is_empty() {
        words.push("numactl".to_owned());
        words.extend(case.placement.numactl.iter().map(|arg| quote(arg)));
    }
    words.push(format!("./{}", quote(&case.program)));
    words.extend(case.arguments(repetition).iter().map(|arg| quote(arg)));
    words.join(" ")
}

/// What the guest runs for `case`: the policy, the program, and the kernel's counters before and after it.
fn script(case: &Case, repetition: u32) -> String {
    let counters = format!(
        "grep -E '^({}) ' /proc/vmstat | sed 's/^/{VMSTAT_MARK} /'\n",
        VMSTAT.join("|")
    );
    // A thread that spins at a barrier executes instructions and misses nothing: it would be counted as work.
    format!(
        "set -e\nexport OMP_WAIT_POLICY=passive\n{}{counters}{}\n{counters}",
        case.policy.setup(case.balancing_scale),
        command(case, repetition)
    )
}

/// A word of the shell.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=,./:@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// What the script wrote: how far the counters went, and the program's facts.
fn answer(stdout: &str) -> (BTreeMap<String, u64>, Value) {
    let mut counters: BTreeMap<String, u64> = BTreeMap::new();
    let mut facts = Value::Null;
    for line in stdout.lines() {
        if let Some(counter) = line.strip_prefix(VMSTAT_MARK) {
            let mut words = counter.split_ascii_whitespace();
            if let (Some(name), Some(value)) = (
                words.next(),
                words.next().and_then(|value| value.parse().ok()),
            ) {
                // The first time it is the state before, the second time the state after.
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
    (counters, facts)
}

/// What the lab compiles.
#[derive(Debug)]
pub(crate) struct Built {
    /// The counting plugin.
    pub(crate) plugin: PathBuf,
    /// Its SHA-256.
    pub(crate) plugin_sha256: String,
    /// The programs of lab/programs.
    pub(crate) programs: Programs,
}

impl Built {
    /// Compiles the programs, and the plugin unless one is given.
    pub(crate) fn new(cache: &Cache, plugin: Option<&Path>, quiet: bool) -> Result<Self> {
        let programs = Programs::build(cache)?;
        let plugin = match plugin {
            Some(path) => {
                fs::canonicalize(path).with_context(|| format!("--plugin {}", path.display()))?
            }
            None => build_plugin(quiet)?,
        };
        let bytes = fs::read(&plugin).with_context(|| plugin.display().to_string())?;
        Ok(Self {
            plugin_sha256: hash::sha256(&bytes),
            plugin,
            programs,
        })
    }
}

/// A job with the case's programs in its folder.
fn job(case: &Case, script: String, timeout: Duration, built: &Built) -> Result<Job> {
    let path = built.programs.path(&case.program);
    let mut job = Job::new(script, timeout).file(path, &case.program);
    for path in &case.host_programs {
        ensure!(
            Path::new(path).is_file(),
            "host_programs: no file {path} here"
        );
        job = job.program(path);
    }
    Ok(job)
}

/// Opens a shell on the user's terminal in the guest of `case`, its policy set up and its programs there.
pub(crate) fn shell(case: &Case, guest: &Guest<'_>, built: &Built) -> Result<()> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    // The shell that leads a session and opens a terminal has it for its own: Ctrl-C works.
    let script = format!(
        "{}{{ echo; echo {}; echo '(`exit` ends the guest)'; }} > /dev/ttyS0\n\
         exec setsid sh -c 'exec sh -i < /dev/ttyS0 > /dev/ttyS0 2>&1'\n",
        case.policy.setup(case.balancing_scale),
        quote(&format!("{}: {}", case.id(), command(case, 0))),
    );
    guest.run_on_terminal(&job(case, script, DAY, built)?)
}

/// Runs `case` for the `repetition`th time, from 0.
pub(crate) fn run(case: &Case, repetition: u32, guest: &Guest<'_>, built: &Built) -> Result<Run> {
    let script = script(case, repetition);
    let timeout = Duration::from_secs(case.timeout_s);
    let job = job(case, script.clone(), timeout, built)?.plugin(PluginArgs {
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
        "no region of interest was marked: a program needs lab_begin and lab_end, or `roi` before it"
    );
    let totals = price(&ran.counts, &case.machine, case.constants);
    let (vmstat, facts) = answer(&ran.stdout);
    Ok(Run {
        totals,
        intervals: ran.counts.len(),
        vmstat,
        facts,
        host_seconds: ran.host_seconds,
        cpu_seconds: ran.cpu_seconds,
        script,
    })
}

/// Builds the plugin with the cargo that built the lab; the same target folder, so that nothing is built twice.
fn build_plugin(quiet: bool) -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin/Cargo.toml");
    ensure!(
        manifest.is_file(),
        "{} is gone: say --plugin PATH",
        manifest.display()
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--lib",
            "--message-format=json-render-diagnostics",
            "--manifest-path",
        ])
        .arg(&manifest);
    if quiet {
        command.arg("--quiet");
    }
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo, to build the plugin (or say --plugin PATH)")?;
    interrupt::check()?;
    ensure!(output.status.success(), "the plugin does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let library = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| {
            (message["reason"] == "compiler-artifact" && message["target"]["name"] == "lab_plugin")
                .then_some(())?;
            let files = message["filenames"]
                .as_array()?
                .iter()
                .filter_map(Value::as_str);
            files
                .filter(|file| file.ends_with(".so"))
                .map(PathBuf::from)
                .next()
        });
    library.context("cargo named no .so of the plugin")
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
        let stdout = "@vmstat pgmigrate_success 5\n@vmstat numa_hint_faults 0\n{\"expected_misses\": 12}\n\
                      @vmstat pgmigrate_success 9\n@vmstat numa_hint_faults 3\n";
        let (vmstat, facts) = answer(stdout);
        assert_eq!(vmstat["pgmigrate_success"], 4);
        assert_eq!(vmstat["numa_hint_faults"], 3);
        assert_eq!(facts["expected_misses"], 12);
    }
}
