//! `hither topo`: shows a topology: its nodes, their distances, and a drawing.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format;
use hither_analysis::plot::Network;
use hither_analysis::table::{Align, Table};
use hither_analysis::topology::{LatencyOrigin, drawing, latency_origin};
use hither_core::topology::{About, presets};
use hither_core::{Node, Topology};
use serde_json::json;

use super::options::picture::{PictureFile, picture};
use super::subcommand::Subcommand;
use crate::output::check_folder;
use crate::this_machine;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Examples:
  hither topo                          this machine's memory nodes
  hither topo mesh:5x5                 a mesh; also 4, torus:4x4x4, ring:4x4,
                                       hypercube:4, tree:4x4
  hither topo torus:4x4 -o torus.svg   a picture; also .png
  hither topo --list                   machines of the papers
  hither topo origin2000-16 --json     one of them as JSON
  hither topo machine.toml             from a file: latencies, capacity, CPUs,
                                       weights (docs/topologies.md)";

/// Draw a topology: this machine, a mesh, a machine of the papers
///
/// The line `latencies` says where the latencies are from. None of them is measured: those of this
/// machine are assumed from the firmware's distances. `hither doctor --calibrate` measures.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Topo {
    /// A shape, a preset, `this` machine, or a file that ends in .toml
    #[arg(value_name = "TOPOLOGY", default_value = "this")]
    topology: String,

    /// List the presets
    #[arg(long, conflicts_with = "topology")]
    list: bool,

    /// Draw it, as .svg or .png
    #[arg(
        long,
        short,
        value_name = "FILE",
        value_parser = picture,
        conflicts_with = "list"
    )]
    output: Option<PictureFile>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The most nodes for which tables of nodes and of pairs are printed.
const NODES_SHOWN_MAX: usize = 16;

impl Subcommand for Topo {
    const NAME: &'static str = "topo";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if self.list {
            self.list()?;
            return Ok(ExitCode::SUCCESS);
        }
        let topology = this_machine::load(&self.topology)?;
        let origin = latency_origin(&self.topology)?;
        if let Some(file) = &self.output {
            check_folder(&file.path)?;
            file.save(&Network::new(&topology, &head(&topology))?, ui)?;
        }
        if self.json {
            ui::print_json(&document(&topology, origin))?;
        } else if self.output.is_none() {
            ui::print(&text(&topology, origin)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Topo {
    fn list(&self) -> anyhow::Result<()> {
        if self.json {
            let entries = presets().iter().map(|preset| {
                json!({ "name": preset.name, "summary": preset.summary, "source": preset.source })
            });
            return ui::print_json(&json!({ "presets": entries.collect::<Vec<_>>() }));
        }
        let entries = presets().iter().map(|preset| {
            let (name, summary, source) = (preset.name, preset.summary, preset.source);
            format!("{name}: {summary}\n    source: {source}\n")
        });
        ui::print(&entries.collect::<Vec<_>>().join("\n"))
    }
}

/// The topology in one line.
fn head(topology: &Topology) -> String {
    let nodes = format::counted(topology.nodes() as u64, "node");
    let latencies = topology.latencies();
    let local = latency(latencies.local_ns);
    let storage = match latencies.storage_ns {
        Some(storage_ns) => format!(", {} from storage", latency(storage_ns)),
        None => String::new(),
    };
    // A matrix has no links but those of each pair, and no latency of a hop.
    match topology.kind() {
        "matrix" => format!("matrix of {nodes}; {local} local{storage}"),
        kind => format!(
            "{kind} of {nodes}, {}; {local} local, {} a hop{storage}",
            format::counted(topology.links() as u64, "directed link"),
            latency(latencies.hop_ns),
        ),
    }
}

fn document(topology: &Topology, origin: LatencyOrigin) -> serde_json::Value {
    let latencies = topology.latencies();
    let of_each = |from: Node, of: fn(&Topology, Node, Node) -> u32| -> Vec<u32> {
        topology.all().map(|to| of(topology, from, to)).collect()
    };
    let nodes = topology.all().map(|node| {
        let About {
            name,
            weight,
            cpus,
            capacity_bytes,
        } = topology.about(node);
        json!({
            "name": name,
            "cpus": cpus,
            "capacity_bytes": (*capacity_bytes > 0).then_some(capacity_bytes),
            "weight": weight,
            "neighbours": topology.neighbours(node).iter().map(|other| other.0).collect::<Vec<_>>(),
            "hops": of_each(node, Topology::hops),
            "latency_ns": of_each(node, Topology::latency_ns),
        })
    });
    json!({
        "name": topology.name(),
        "kind": topology.kind(),
        "axes": topology.axes(),
        "levels": topology.levels(),
        "links": topology.links(),
        "local_ns": latencies.local_ns,
        "hop_ns": latencies.hop_ns,
        "storage_ns": latencies.storage_ns,
        "latency_from": origin.name(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

fn text(topology: &Topology, origin: LatencyOrigin) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let matrix = topology.kind() == "matrix";
    writeln!(text, "{}: {}", topology.name(), head(topology))?;
    writeln!(text, "latencies: {}", whence(origin))?;
    let alike = topology
        .all()
        .all(|node| topology.about(node) == topology.about(Node(0)));
    if alike {
        let about = topology.about(Node(0));
        let cpus = format::counted(about.cpus.into(), "CPU");
        let capacity = match about.capacity_bytes {
            0 => String::new(),
            bytes => format!(", {}", format::bytes(bytes)),
        };
        writeln!(text, "each node: {cpus}{capacity}")?;
    }
    if let Some(drawing) = drawing(topology) {
        write!(text, "\n{drawing}")?;
    }
    if topology.nodes() <= NODES_SHOWN_MAX {
        writeln!(text, "\n{}", of_nodes(topology).render())?;
        if matrix {
            writeln!(text, "latency in ns, from the node of the row")?;
            text += &of_pairs(topology, Topology::latency_ns).render();
        } else {
            writeln!(text, "hops, from the node of the row")?;
            text += &of_pairs(topology, Topology::hops).render();
        }
    } else if !alike {
        writeln!(text, "\n{}", of_nodes(topology).render())?;
    }
    if !matrix && topology.nodes() > 1 {
        writeln!(text, "\n{}", of_distances(topology).render().trim_end())?;
    }
    Ok(text)
}

/// Where the latencies are from, for people.
fn whence(origin: LatencyOrigin) -> &'static str {
    match origin {
        LatencyOrigin::Defaults => "built-in defaults, not measured",
        LatencyOrigin::Preset => "from the paper, not measured here",
        LatencyOrigin::File => "from the file, not measured by hither",
        LatencyOrigin::FileInPart => {
            "from the file, and defaults that it does not give; not measured"
        }
        LatencyOrigin::FileDistances => "by the file's distances, not measured",
        LatencyOrigin::Firmware => {
            "assumed, by the firmware's distances; not measured (see `hither doctor`)"
        }
    }
}

/// Nanoseconds for people.
fn latency(ns: u32) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000 => format!("{} us", f64::from(ns) / 1e3),
        _ => format!("{} ms", f64::from(ns) / 1e6),
    }
}

/// A table with a row for each node. Columns that no node has are left out.
fn of_nodes(topology: &Topology) -> Table {
    let any = |known: fn(&About) -> bool| topology.all().any(|node| known(topology.about(node)));
    let named = any(|about| !about.name.is_empty());
    let sized = any(|about| about.capacity_bytes > 0);
    let mut columns = vec![("node", Align::Right)];
    columns.extend(named.then_some(("name", Align::Left)));
    columns.push(("CPUs", Align::Right));
    columns.extend(sized.then_some(("capacity", Align::Right)));
    columns.extend(topology.weighted().then_some(("weight", Align::Right)));
    columns.push(("nearest", Align::Left));
    let mut table = Table::new(columns);
    for node in topology.all() {
        let about = topology.about(node);
        let mut row = vec![node.0.to_string()];
        row.extend(named.then(|| about.name.clone()));
        row.push(about.cpus.to_string());
        row.extend(sized.then(|| match about.capacity_bytes {
            0 => String::new(),
            bytes => format::bytes(bytes),
        }));
        row.extend(topology.weighted().then(|| about.weight.to_string()));
        let neighbours = topology.neighbours(node).iter();
        let neighbours: Vec<String> = neighbours.map(|other| other.0.to_string()).collect();
        row.push(neighbours.join(" "));
        table.row(row);
    }
    table
}

/// A table with a row and a column for each node.
fn of_pairs(topology: &Topology, of: fn(&Topology, Node, Node) -> u32) -> Table {
    let heads = topology
        .all()
        .map(|node| (node.0.to_string(), Align::Right));
    let mut table = Table::new([(String::new(), Align::Right)].into_iter().chain(heads));
    for from in topology.all() {
        let cells = topology.all().map(|to| of(topology, from, to).to_string());
        table.row([from.0.to_string()].into_iter().chain(cells));
    }
    table
}

/// A table with a row for each distance: its latency, and the share of the pairs of nodes.
fn of_distances(topology: &Topology) -> Table {
    let mut pairs: Vec<(u64, u32)> = Vec::new();
    for from in topology.all() {
        for to in topology.all().filter(|to| *to != from) {
            let hops = topology.hops(from, to) as usize;
            pairs.resize(pairs.len().max(hops + 1), (0, 0));
            pairs[hops] = (pairs[hops].0 + 1, topology.latency_ns(from, to));
        }
    }
    let all: u64 = pairs.iter().map(|(pairs, _)| pairs).sum();
    let columns = ["hops", "latency", "pairs", "part of all"];
    let mut table = Table::new(columns.map(|column| (column, Align::Right)));
    let some = pairs
        .iter()
        .enumerate()
        .filter(|(_, (pairs, _))| *pairs > 0);
    for (hops, &(pairs, latency_ns)) in some {
        table.row([
            hops.to_string(),
            latency(latency_ns),
            format::count(pairs),
            format::percent(pairs as f64 / all as f64),
        ]);
    }
    table
}
