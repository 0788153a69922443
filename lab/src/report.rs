//! Results: one line of JSON per case, and a table for people. Both show medians over the runs and
//! the spread of the runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::machine::Machine;
use crate::price::{Totals, local};
use crate::run::{Built, Run};
use crate::scenario::{Caches, Case};

/// The result of a case: medians over its runs. For an even number of runs, the mean of the middle
/// two.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    /// The case's name in the scenario.
    pub(crate) case: String,
    /// The machine's name there.
    pub(crate) machine: String,
    /// The placement: where the data started.
    pub(crate) placement: String,
    /// The policy: what moved them.
    pub(crate) policy: String,
    /// Nodes, those without CPUs included.
    pub(crate) nodes: usize,
    /// CPUs of all nodes.
    pub(crate) cpus: u32,
    /// The program.
    pub(crate) program: String,
    /// Its arguments in the first run.
    pub(crate) args: Vec<String>,
    /// The share of the lines fetched from memory that came from the CPU's own node, user and
    /// kernel.
    pub(crate) local_share: f64,
    /// The same for user code only.
    pub(crate) local_share_user: f64,
    /// The computed local share, if there is one: from the placement if each thread touches only
    /// its own part, otherwise from the nodes of the program's pages as reported by the kernel.
    pub(crate) expected_local_share: Option<f64>,
    /// Lines fetched from memory, user and kernel.
    pub(crate) misses: f64,
    /// Lines fetched by user code.
    pub(crate) misses_user: f64,
    /// The number expected by the program's own arithmetic, if it has one.
    pub(crate) expected_misses: Option<u64>,
    /// `[cpu node][memory node]`, user and kernel, of the run with the median time.
    pub(crate) misses_by_pair: Vec<Vec<u64>>,
    /// Lines that came from another node's cache: `[cpu node][that node]`, of the same run.
    pub(crate) cache_to_cache: Vec<Vec<u64>>,
    /// The local share in each range that the program named, user code.
    pub(crate) ranges_local_share: Vec<f64>,
    /// The modelled time of the regions of interest.
    pub(crate) modelled_time_ms: f64,
    /// The part of it in the last half of the iterations.
    pub(crate) last_half_ms: f64,
    /// The part of the total spent waiting beyond the L1.
    pub(crate) modelled_stall_ms: f64,
    /// The kernel's share of the CPUs' time.
    pub(crate) kernel_share: f64,
    /// Other counts of the run with the median time: `[user, kernel]` where there are two.
    pub(crate) instructions: [u64; 2],
    pub(crate) accesses: [u64; 2],
    pub(crate) l1_hits: [u64; 2],
    /// Dirty lines written back to memory.
    pub(crate) write_backs: u64,
    /// Accesses to devices, which are not modelled.
    pub(crate) unmapped: u64,
    /// Intervals of the regions of interest, usually one per iteration.
    pub(crate) intervals: usize,
    /// Pages migrated while the program ran (`pgmigrate_success`).
    pub(crate) migrations: f64,
    /// Other counters of /proc/vmstat, of the run with the median time.
    pub(crate) vmstat: BTreeMap<String, u64>,
    /// The report of `hither run`, of the run with the median time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) hither: Vec<String>,
    /// Number of runs.
    pub(crate) repetitions: usize,
    /// The spread of the runs.
    pub(crate) spread: Spread,
    /// The figures of each run.
    pub(crate) runs: Vec<RunRow>,
    /// The facts that the program printed in the first run.
    pub(crate) facts: serde_json::Value,
    /// What is needed to repeat the run.
    pub(crate) provenance: Provenance,
}

/// (largest - smallest) / median over the runs. For the local share, the plain difference.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) misses: f64,
    pub(crate) local_share: f64,
    pub(crate) modelled_time_ms: f64,
}

/// One run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunRow {
    pub(crate) misses: u64,
    pub(crate) local_share: f64,
    pub(crate) modelled_time_ms: f64,
    pub(crate) migrations: u64,
    pub(crate) host_seconds: f64,
    pub(crate) cpu_seconds: f64,
}

/// The origin of a result.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Provenance {
    /// The lab's version.
    pub(crate) lab: String,
    /// The plugin's SHA-256.
    pub(crate) plugin_sha256: String,
    /// The SHA-256 of hither's command, if it ran.
    pub(crate) hither_sha256: Option<String>,
    /// The compiler of the programs.
    pub(crate) compiler: String,
    /// The packages inside and outside the guest.
    pub(crate) versions: BTreeMap<String, String>,
    /// The packages in whose root the program ran, if it is one of theirs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) packages: BTreeMap<String, String>,
    /// The machine in full.
    pub(crate) hardware: Option<Machine>,
    /// The modelled caches.
    pub(crate) caches: Caches,
    /// The latencies' name.
    pub(crate) constants: String,
    /// The divisor of NUMA balancing's periods, if it ran.
    pub(crate) balancing_scale: Option<u32>,
    /// The script of the first run.
    pub(crate) script: String,
}

/// The median; 0 without values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// (largest - smallest) / median; 0 if all are 0.
fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = values.clone().fold(f64::MIN, f64::max);
    let smallest = values.clone().fold(f64::MAX, f64::min);
    let middle = median(values);
    if middle == 0.0 {
        0.0
    } else {
        (largest - smallest) / middle
    }
}

/// The row of a case from its runs, at least one.
pub(crate) fn row(
    case: &Case,
    runs: &[Run],
    built: &Built,
    versions: &BTreeMap<String, String>,
) -> Row {
    let of = |figure: fn(&Totals) -> f64| runs.iter().map(move |run| figure(&run.totals));
    let time = |totals: &Totals| totals.time_ns / 1e6;
    let mut by_time: Vec<&Run> = runs.iter().collect();
    by_time.sort_by(|a, b| a.totals.time_ns.total_cmp(&b.totals.time_ns));
    let middle = by_time[(runs.len() - 1) / 2];
    let shares = || of(Totals::local_share);
    Row {
        case: case.name.clone(),
        machine: case.machine_name.clone(),
        placement: case.placement_name.clone(),
        policy: case.policy.name(),
        nodes: case.machine.nodes.len(),
        cpus: case.machine.cpus(),
        program: case.program.clone(),
        args: case.arguments(0, 0),
        local_share: median(shares()),
        local_share_user: median(of(Totals::local_share_of_user)),
        expected_local_share: case.local_share.or_else(|| runs[0].expected_local_share()),
        misses: median(of(|totals| totals.misses() as f64)),
        misses_user: median(of(|totals| totals.misses_of_user() as f64)),
        expected_misses: runs[0].expected_misses(),
        misses_by_pair: middle.totals.misses_by_pair(),
        cache_to_cache: middle.totals.cache_to_cache.clone(),
        ranges_local_share: middle
            .totals
            .ranges
            .iter()
            .map(|range| local(range))
            .collect(),
        modelled_time_ms: median(of(time)),
        last_half_ms: median(of(|totals| totals.last_half_ns / 1e6)),
        modelled_stall_ms: median(of(|totals| totals.stall_ns / 1e6)),
        kernel_share: median(of(Totals::kernel_share)),
        instructions: middle.totals.instructions,
        accesses: middle.totals.accesses,
        l1_hits: middle.totals.l1_hits,
        write_backs: middle.totals.write_backs,
        unmapped: middle.totals.unmapped,
        intervals: middle.intervals,
        migrations: median(runs.iter().map(|run| run.migrations() as f64)),
        vmstat: middle.vmstat.clone(),
        hither: middle.hither.clone(),
        repetitions: runs.len(),
        spread: Spread {
            misses: spread(of(|totals| totals.misses() as f64)),
            local_share: shares().fold(f64::MIN, f64::max) - shares().fold(f64::MAX, f64::min),
            modelled_time_ms: spread(of(time)),
        },
        runs: runs
            .iter()
            .map(|run| RunRow {
                misses: run.totals.misses(),
                local_share: run.totals.local_share(),
                modelled_time_ms: time(&run.totals),
                migrations: run.migrations(),
                host_seconds: run.host_seconds,
                cpu_seconds: run.cpu_seconds,
            })
            .collect(),
        facts: runs[0].facts.clone(),
        provenance: Provenance {
            lab: env!("CARGO_PKG_VERSION").to_owned(),
            plugin_sha256: built.plugin_sha256.clone(),
            hither_sha256: built.hither_sha256(case).map(str::to_owned),
            compiler: runs[0].compiler.clone(),
            versions: versions.clone(),
            packages: runs[0].packages.clone(),
            hardware: Some(case.machine.clone()),
            caches: case.caches.clone(),
            constants: case.constants.name.to_owned(),
            balancing_scale: case.policy.is_scaled().then_some(case.balancing_scale),
            script: runs[0].script.clone(),
        },
    }
}

/// The table for people.
pub(crate) fn table(rows: &[Row]) -> String {
    const HEADS: [&str; 11] = [
        "case",
        "machine",
        "placement",
        "policy",
        "local",
        "by arithmetic",
        "misses",
        "modelled ms",
        "last half",
        "kernel",
        "migrated",
    ];
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let within = |value: String, spread: f64, runs: usize| {
        if runs > 1 {
            format!("{value} ±{:.1} %", 50.0 * spread)
        } else {
            value
        }
    };
    let mut cells: Vec<[String; 11]> = vec![HEADS.map(str::to_owned)];
    for row in rows {
        cells.push([
            row.case.clone(),
            row.machine.clone(),
            row.placement.clone(),
            row.policy.clone(),
            percent(row.local_share),
            row.expected_local_share.map(percent).unwrap_or_default(),
            within(
                format!("{:.0}", row.misses),
                row.spread.misses,
                row.repetitions,
            ),
            within(
                format!("{:.2}", row.modelled_time_ms),
                row.spread.modelled_time_ms,
                row.repetitions,
            ),
            format!("{:.2}", row.last_half_ms),
            percent(row.kernel_share),
            format!("{:.0}", row.migrations),
        ]);
    }
    let width = |column: usize| {
        cells
            .iter()
            .map(|cells| cells[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    let mut text = String::new();
    for line in &cells {
        let mut out = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Names are left-aligned, numbers right-aligned. Writing to a String cannot fail.
            let _ = if column < 4 {
                write!(out, "{cell:<width$}  ")
            } else {
                write!(out, "{cell:>width$}  ")
            };
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
        assert_eq!(spread([90.0, 110.0, 100.0].into_iter()), 0.2);
        assert_eq!(spread([0.0, 0.0].into_iter()), 0.0);
    }

    #[test]
    fn a_table_lines_up() {
        let row = |case: &str, misses: f64, repetitions| Row {
            case: case.to_owned(),
            machine: "two".to_owned(),
            placement: "good".to_owned(),
            policy: "kernel".to_owned(),
            local_share: 0.995,
            expected_local_share: Some(1.0),
            misses,
            modelled_time_ms: 1.5,
            last_half_ms: 0.5,
            repetitions,
            spread: Spread {
                misses: 0.02,
                ..Spread::default()
            },
            ..Row::default()
        };
        let text = table(&[row("stream", 131_072.0, 3), row("c", 7.0, 1)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "case    machine  placement  policy   local  by arithmetic         misses  \
             modelled ms  last half  kernel  migrated"
        );
        assert_eq!(
            lines[1],
            "stream  two      good       kernel  99.5 %        100.0 %  131072 ±1.0 %  \
             1.50 ±0.0 %       0.50   0.0 %         0"
        );
        assert_eq!(
            lines[2],
            "c       two      good       kernel  99.5 %        100.0 %              7         \
             1.50       0.50   0.0 %         0"
        );
    }
}
