//! `hither stat`: shows what is in a trace.

mod stacks;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::coverage::{self, Coverage};
use hither_analysis::format::{bytes, count, counted, percent, printable, shortened};
use hither_analysis::simulate::statistics;
use hither_analysis::stacks::folded;
use hither_analysis::table::{Align, Table};
use hither_trace::schema::ObjectKind;
use hither_trace::{RankedRow, Stats, Trace};

use super::options::{LoadArgs, heading};
use super::subcommand::Subcommand;
use crate::python_names;
use crate::ui::{self, Ui};

/// Show what is in a trace: requests, files, call sites, sharing
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hither stat trace.hither
  hither stat trace.hither --top 50
  hither stat trace.hither --stacks --top 3
  hither stat trace.hither --folded | inferno-flamegraph > stacks.svg
  hither stat trace.hither --json | jq .bytes
  hither stat --format lirs cs.trace.gz
  hither stat --columns key=3,size=4,time=1 --no-header cdn.csv")]
pub(super) struct Stat {
    /// The trace: a folder of `hither record`, or a file in another format
    trace: PathBuf,

    #[command(flatten, next_help_heading = heading::READING)]
    loading: LoadArgs,

    /// Rows in the tables of files and call sites
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = heading::OUTPUT)]
    top: usize,

    /// Print also the whole call stacks of the call sites in the table
    #[arg(long, conflicts_with = "json", help_heading = heading::OUTPUT)]
    stacks: bool,

    /// Print only the call stacks, all of them, folded, with their references: for flame graph
    /// tools
    #[arg(long, conflicts_with_all = ["json", "stacks"], help_heading = heading::OUTPUT)]
    folded: bool,

    /// Print one JSON document, with all rows
    #[arg(long, help_heading = heading::OUTPUT)]
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
            ui::print_json(&statistics(&trace, &stats))?;
        } else if self.folded {
            let sites = stats.by_site.iter();
            let references = sites.map(|row| (row.number, row.references));
            ui::print(&folded(&trace, references))?;
        } else {
            let mut text = text(&trace, &stats, self.top);
            if self.stacks {
                text += &stacks::lines(&trace, &stats, self.top);
            }
            ui::print(&text)?;
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
    if let Some(coverage) = Coverage::of(trace) {
        writeln!(out, "seen          {}", printable(&coverage.words()))?;
    }
    if !meta.command.is_empty() {
        let command = meta.command.join(" ");
        writeln!(out, "command       {}", printable(&command))?;
    }
    writeln!(
        out,
        "references    {} to {} of {} ({})",
        count(stats.references),
        counted(stats.blocks, &format!("distinct {}", unit(trace))),
        bytes(stats.block_bytes.into()),
        bytes(stats.footprint_bytes)
    )?;
    // A trace of block numbers has no times.
    let took = match counts.last_ns.saturating_sub(counts.first_ns) {
        0 => String::new(),
        ns => format!(" in {:.2} s", ns as f64 / 1e9),
    };
    let memory = total.loads + total.stores + total.faults;
    if memory > 0 {
        let faults = match total.faults {
            0 => String::new(),
            faults => format!(", {}", counted(faults, "fault")),
        };
        writeln!(
            out,
            "accesses      {} to memory{took}: {}, {}{faults}",
            count(memory),
            counted(total.loads, "load"),
            counted(total.stores, "store")
        )?;
    }
    if stats.iterations + stats.constructs > 0 {
        writeln!(
            out,
            "marks         {}, {}",
            counted(stats.iterations, "iteration"),
            counted(stats.constructs, "parallel construct")
        )?;
    }
    if total.requests > 0 {
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
    }
    if total.requests + memory > 0 {
        let nodes = match stats.nodes {
            1 => String::new(),
            nodes => format!(" on {}", counted(nodes, "node")),
        };
        writeln!(
            out,
            "made by       {} in {} of {}{nodes}",
            counted(stats.sites, "call site"),
            counted(stats.threads, "thread"),
            counted(stats.processes, "process")
        )?;
    }
    losses(out, trace, stats)?;
    sharing(out, trace, stats)?;
    reuse(out, stats)?;
    table(out, "call site", &stats.by_site, top, trace.has_sites())?;
    out.push_str(&python_names::hint(trace));
    let object = match memory {
        0 => "file",
        _ => "file or region",
    };
    table(out, object, &stats.by_object, top, trace.has_objects())
}

/// The word for a block: `page` if all blocks are memory.
fn unit(trace: &Trace) -> &'static str {
    let mut objects = trace.objects().iter();
    if trace.has_objects() && objects.all(|object| object.kind == ObjectKind::Memory) {
        "page"
    } else {
        "block"
    }
}

/// The shares of blocks, and of the accesses to them, by the number of threads, processes and nodes
/// that use them.
fn sharing(out: &mut String, trace: &Trace, stats: &Stats) -> std::fmt::Result {
    let users = [
        (stats.threads, "thread", stats.sharing.threads),
        (stats.processes, "process", stats.sharing.processes),
        (stats.nodes, "node", stats.sharing.nodes),
    ];
    if stats.blocks == 0 || users.iter().all(|(number, ..)| *number <= 1) {
        return Ok(());
    }
    writeln!(
        out,
        "\nSharing: {}s, and the accesses to them, by how many use them",
        unit(trace)
    )?;
    let unit = unit(trace);
    let mut table = Table::new([
        (String::new(), Align::Left),
        (format!("{unit}s of one"), Align::Right),
        ("of two".to_owned(), Align::Right),
        ("of more".to_owned(), Align::Right),
        ("accesses to those of one".to_owned(), Align::Right),
        ("of two".to_owned(), Align::Right),
        ("of more".to_owned(), Align::Right),
    ]);
    for (_, noun, shared) in users.into_iter().filter(|(number, ..)| *number > 1) {
        let blocks = shared.blocks.map(|part| (part, stats.blocks));
        let accesses = shared.accesses.map(|part| (part, stats.accesses));
        let shares = blocks.into_iter().chain(accesses);
        let shares = shares.map(|(part, whole)| percent(part as f64 / whole as f64));
        table.row(std::iter::once(noun.to_owned()).chain(shares));
    }
    out.write_str(&table.render())
}

fn losses(out: &mut String, trace: &Trace, stats: &Stats) -> std::fmt::Result {
    let losses = &stats.losses;
    if let Some(lost) = coverage::lost(losses) {
        writeln!(out, "LOST          {lost}")?;
    }
    if losses.damaged_records > 0 {
        writeln!(
            out,
            "DAMAGED       {}, written over by the program, and left out",
            counted(losses.damaged_records, "record")
        )?;
    }
    for program in &trace.meta().losses.not_recorded {
        writeln!(
            out,
            "NOT RECORDED  {} ({}), {}",
            printable(&program.path),
            printable(&program.reason),
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
        ("below", Align::Right),
        ("share", Align::Right),
        ("sum", Align::Right),
        ("", Align::Left),
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
    rows: &[RankedRow],
    top: usize,
    known: bool,
) -> std::fmt::Result {
    if !known || rows.is_empty() || top == 0 {
        return Ok(());
    }
    // The columns are bytes of requests, accesses to memory, or both.
    let memory = rows
        .iter()
        .any(|row| row.tally.loads + row.tally.stores > 0);
    let files = !memory || rows.iter().any(|row| row.tally.requests > 0);
    let columns = [
        (true, ("share", Align::Right)),
        (true, ("references", Align::Right)),
        (true, ("blocks", Align::Right)),
        (files, ("read", Align::Right)),
        (files, ("written", Align::Right)),
        (memory, ("loads", Align::Right)),
        (memory, ("stores", Align::Right)),
        (true, (what, Align::Left)),
    ];
    let shown = columns.map(|(shown, _)| shown);
    let heads = columns.into_iter().filter(|(shown, _)| *shown);
    let mut table = Table::new(heads.map(|(_, head)| head));
    for row in rows.iter().take(top) {
        let cells = [
            percent(row.share),
            count(row.references),
            count(row.blocks),
            bytes(row.tally.read_bytes),
            bytes(row.tally.written_bytes),
            count(row.tally.loads),
            count(row.tally.stores),
            shortened(&row.name, 90),
        ];
        let cells = cells.into_iter().zip(shown).filter(|(_, shown)| *shown);
        table.row(cells.map(|(cell, _)| cell));
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
