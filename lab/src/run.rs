//! Runs a case in its guest and reads what came back: the script that the guest runs, and its answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::guest::{Guest, Job, PluginArgs};
use crate::price::{Totals, price};
use crate::scenario::Case;

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

/// What the guest runs for `case`: the policy, the program, and the kernel's counters before and after it.
fn script(case: &Case, repetition: u32) -> String {
    let quoted: Vec<String> = case
        .arguments(repetition)
        .iter()
        .map(|arg| quote(arg))
        .collect();
    let numactl = match case.placement.numactl.as_slice() {
        [] => String::new(),
        args => format!(
            "numactl {} ",
            args.iter()
                .map(|arg| quote(arg))
                .collect::<Vec<_>>()
                .join(" ")
        ),
    };
    let counters = format!(
        "grep -E '^({}) ' /proc/vmstat | sed 's/^/{VMSTAT_MARK} /'\n",
        VMSTAT.join("|")
    );
    // A thread that spins at a barrier executes instructions and misses nothing: it would be counted as work.
    format!(
        "set -e\nexport OMP_WAIT_POLICY=passive\n{}{counters}{numactl}./{} {}\n{counters}",
        case.policy.setup(case.balancing_scale),
        quote(&case.program),
        quoted.join(" ")
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

/// The folder of built programs, and the plugin.
#[derive(Debug)]
pub(crate) struct Built {
    /// The counting plugin.
    pub(crate) plugin: PathBuf,
    /// Where the programs of lab/programs lie.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

/// Runs `case` for the `repetition`th time, from 0.
pub(crate) fn run(case: &Case, repetition: u32, guest: &Guest<'_>, built: &Built) -> Result<Run> {
    let path = built.programs.get(&case.program).with_context(|| {
        let names: Vec<&str> = built.programs.keys().map(String::as_str).collect();
        format!(
            "program: no `{}` in lab/programs, which has {}; `roi` brackets any other",
            case.program,
            names.join(", ")
        )
    })?;
    let script = script(case, repetition);
    let mut job = Job::new(script.clone(), Duration::from_secs(case.timeout_s))
        .plugin(PluginArgs {
            library: built.plugin.clone(),
            options: case.caches.options(),
        })
        .file(path, &case.program);
    for path in &case.host_programs {
        ensure!(
            Path::new(path).is_file(),
            "host_programs: no file {path} here"
        );
        job = job.program(path);
    }
    let ran = guest.run(&job)?;
    if ran.status != 0 {
        bail!(
            "the guest's script ended with status {}; it wrote\n{}\n{}",
            ran.status,
            tail(&ran.stdout),
            tail(&ran.console)
        );
    }
    // Each region is a `begin`: its intervals come in order, or the file is not what the plugin writes.
    let in_order = ran
        .counts
        .is_sorted_by_key(|interval| (interval.region, interval.interval));
    ensure!(in_order, "the plugin's counts are out of order");
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

/// The last lines of a text, for an error.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Builds the plugin with the cargo that built the lab; the same target folder, so that nothing is built twice.
pub(crate) fn build_plugin(quiet: bool) -> Result<PathBuf> {
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
        .context("cargo, to build the plugin")?;
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

    #[test]
    fn errors_carry_the_last_lines() {
        let text: String = (0..40).map(|line| format!("{line}\n")).collect();
        assert!(tail(&text).starts_with("25\n"));
        assert_eq!(tail("one"), "one");
    }
}
