//! `hither stat`: what is in a trace.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_trace::{Ranked, Stats, Trace};
use serde_json::json;

use super::Subcommand;
use super::options::Loading;
use crate::format::{Lean, Table, bytes, count, counted, percent, shortened};
use crate::simulate::about;
use crate::ui::{self, Ui};

/// Say what is in a trace: requests and bytes, files, call sites, sharing, reuse distances
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hither stat trace.hither\n  \
    hither stat trace.hither --top 50\n  \
    hither stat trace.hither --json | jq .bytes\n  \
    hither stat --format lirs cs.trace.gz")]
pub(super) struct Stat {
    /// The trace: a folder that `hither record` wrote, or a file in another format
    trace: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// Rows in the tables of files and call sites
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Print one JSON document, with all rows
    #[arg(long)]
    json: bool,
}

impl Subcommand for Stat {
    const NAME: &'static str = "stat";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let trace = self.loading.load(&self.trace, ui)?;
        let spinner = ui.spinner("counting");
        let stats = Stats::of(&trace)?;
        spinner.finish_and_clear();
        if self.json {
            let total = stats.counts.total;
            ui::print_json(&json!({
                "trace": about(&trace),
                "bytes": {
                    "read": total.read_bytes,
                    "written": total.written_bytes,
                    "in_kernel": total.in_kernel_bytes,
                    "mapped": total.mapped_bytes,
                },
                "stats": stats,
            }))?;
        } else {
            ui::print(&text(&trace, &stats, self.top))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(trace: &Trace, stats: &Stats, top: usize) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = describe(&mut text, trace, stats, top);
    text
}

fn describe(out: &mut String, trace: &Trace, stats: &Stats, top: usize) -> std::fmt::Result {
    let (counts, total) = (&stats.counts, &stats.counts.total);
    let meta = trace.meta();
    if !meta.command.is_empty() {
        writeln!(out, "command       {}", meta.command.join(" "))?;
    }
    writeln!(
        out,
        "references    {} to {} of {} ({})",
        count(stats.references),
        counted(stats.blocks, "distinct block"),
        bytes(stats.block_bytes.into()),
        bytes(stats.footprint_bytes)
    )?;
    if total.requests > 0 {
        // A trace of bare block numbers has no clock.
        let took = match counts.last_ns.saturating_sub(counts.first_ns) {
            0 => String::new(),
            ns => format!(" in {:.2} s", ns as f64 / 1e9),
        };
        writeln!(
            out,
            "requests      {}{took}, {} sequential",
            count(total.requests),
            percent(stats.sequential_share)
        )?;
        writeln!(
            out,
            "bytes         {} read, {} written, {} of these inside the kernel; {} mapped",
            bytes(total.read_bytes),
            bytes(total.written_bytes),
            bytes(total.in_kernel_bytes),
            bytes(total.mapped_bytes)
        )?;
        writeln!(
            out,
            "made by       {} in {} of {}",
            counted(stats.sites, "call site"),
            counted(stats.threads, "thread"),
            counted(stats.processes, "process")
        )?;
    }
    let [one, two, more] = stats.sharing.processes;
    if stats.processes > 1 {
        writeln!(
            out,
            "shared        {} by one process, {} by two, {} by more",
            counted(one, "block"),
            count(two),
            count(more)
        )?;
    }
    losses(out, trace, stats)?;
    reuse(out, stats)?;
    table(out, "call site", &stats.by_site, top, trace.has_sites())?;
    table(out, "file", &stats.by_object, top, trace.has_objects())
}

fn losses(out: &mut String, trace: &Trace, stats: &Stats) -> std::fmt::Result {
    let losses = &stats.losses;
    if losses.dropped_events > 0 {
        writeln!(
            out,
            "LOST          {} of {}: the rings were full (record with larger --ring-bytes)",
            counted(losses.dropped_events, "access"),
            bytes(losses.dropped_bytes)
        )?;
    }
    for program in &trace.meta().losses.not_recorded {
        writeln!(
            out,
            "NOT RECORDED  {} ({}), {}",
            program.path,
            program.reason,
            counted(program.count, "time")
        )?;
    }
    Ok(())
}

/// The share of references that an LRU cache of each power of two would serve, as a bar.
fn reuse(out: &mut String, stats: &Stats) -> std::fmt::Result {
    if stats.references == 0 {
        return Ok(());
    }
    const WIDTH: f64 = 40.0;
    writeln!(
        out,
        "\nLRU stack distances, in blocks: what a cache of that size would add to the hits"
    )?;
    let mut table = Table::new([
        ("below", Lean::Right),
        ("share", Lean::Right),
        ("sum", Lean::Right),
        ("", Lean::Left),
    ]);
    let (total, mut sum) = (stats.references as f64, 0.0);
    for (exponent, &hits) in stats.reuse.buckets.iter().enumerate() {
        let share = hits as f64 / total;
        sum += share;
        let bar = "#".repeat((share * WIDTH).round() as usize);
        table.row([count(1 << exponent), percent(share), percent(sum), bar]);
    }
    let cold = stats.reuse.cold as f64 / total;
    let bar = "#".repeat((cold * WIDTH).round() as usize);
    table.row([
        "first use".to_owned(),
        percent(cold),
        percent(sum + cold),
        bar,
    ]);
    out.write_str(&table.render())
}

fn table(
    out: &mut String,
    what: &str,
    rows: &[Ranked],
    top: usize,
    known: bool,
) -> std::fmt::Result {
    if !known || rows.is_empty() || top == 0 {
        return Ok(());
    }
    let mut table = Table::new([
        ("share", Lean::Right),
        ("references", Lean::Right),
        ("blocks", Lean::Right),
        ("read", Lean::Right),
        ("written", Lean::Right),
        (what, Lean::Left),
    ]);
    for row in rows.iter().take(top) {
        table.row([
            percent(row.share),
            count(row.references),
            count(row.blocks),
            bytes(row.tally.read_bytes),
            bytes(row.tally.written_bytes),
            shortened(&row.name, 90),
        ]);
    }
    writeln!(out)?;
    out.write_str(&table.render())?;
    if rows.len() > top {
        writeln!(
            out,
            "  ... {} more (--top)",
            count((rows.len() - top) as u64)
        )?;
    }
    Ok(())
}
