//! Results for people: a table for each topology, size and replacement, a row a placement in the
//! order asked for.

use hither_core::placement::Target;
use hither_sim::placement::{Binding, PlacementOutcome, Totals};

use super::PlacementCase;
use crate::format::{bytes, count, counted, duration_ns, percent, policy};
use crate::table::{Align, Table};

/// A row: a case, and as much of its outcome as a sweep keeps.
pub struct CaseResult<'a> {
    /// What was simulated.
    pub case: &'a PlacementCase,
    /// What was counted after the warm-up.
    pub totals: &'a Totals,
    /// The modelled time of the whole run in nanoseconds.
    pub modelled_time_ns: u64,
}

/// The rows of whole outcomes.
pub fn lines<'a>(
    cases: &'a [PlacementCase],
    outcomes: &'a [PlacementOutcome],
) -> Vec<CaseResult<'a>> {
    let line = |(case, outcome): (&'a PlacementCase, &'a PlacementOutcome)| CaseResult {
        case,
        totals: &outcome.totals,
        modelled_time_ns: outcome.modelled_time_ns,
    };
    cases.iter().zip(outcomes).map(line).collect()
}

/// The tables.
pub fn table(lines: &[CaseResult<'_>], binding: Binding, block_bytes: u64) -> String {
    let together = lines.chunk_by(|a, b| group(a.case) == group(b.case));
    let text = |lines: &[CaseResult<'_>]| {
        let heading = heading(lines[0].case, binding, block_bytes);
        format!("\n{heading}\n{}", rows(lines))
    };
    together.map(text).collect()
}

/// What the placements of a table have in common. Two topologies may have one name, but not one
/// place in memory.
pub(super) fn group(case: &PlacementCase) -> (*const hither_core::Topology, &str, &[u32], String) {
    let configuration = &case.configuration;
    (
        std::sync::Arc::as_ptr(&configuration.topology),
        case.size.as_str(),
        &configuration.capacity,
        configuration.replacement.to_string(),
    )
}

/// Nodes, their sizes, what they give up, and who runs on them.
pub(super) fn heading(case: &PlacementCase, binding: Binding, block_bytes: u64) -> String {
    let configuration = &case.configuration;
    let (name, nodes) = (
        configuration.topology.name(),
        configuration.topology.nodes() as u64,
    );
    let named = match name.parse() == Ok(nodes) {
        true => String::new(),
        false => format!("{name}: "),
    };
    let (what, replacement) = match case.target() {
        Target::Files => ("block", format!(", {}", policy(&configuration.replacement))),
        Target::Memory => ("frame", String::new()),
    };
    let least = configuration.capacity.iter().min().copied().unwrap_or(0);
    let most = configuration.capacity.iter().max().copied().unwrap_or(0);
    let size = bytes(u64::from(most) * block_bytes);
    let held = match least == most {
        true => format!("{} ({size}) each", counted(most.into(), what)),
        false => format!(
            "{} to {} {what}s (up to {size})",
            count(least.into()),
            count(most.into())
        ),
    };
    let bound = match binding {
        // A sweep has no trace at hand any more that would tell.
        Binding::Auto => "",
        Binding::Trace => ", on the nodes that the trace says",
        Binding::Threads => ", threads in turn",
        Binding::Processes => ", processes in turn",
    };
    format!(
        "{named}{} of {held}{replacement}{bound}",
        counted(nodes, "node")
    )
}

fn rows(lines: &[CaseResult<'_>]) -> String {
    let first = &lines[0];
    let relative = format!("by {}", first.case.configuration.spec.entry().name);
    let heads = [
        ("placement", Align::Left),
        ("local", Align::Right),
        ("remote", Align::Right),
        ("miss", Align::Right),
        ("hops", Align::Right),
        ("hit", Align::Right),
        ("access", Align::Right),
        ("migrations", Align::Right),
        ("replicas", Align::Right),
        ("moved", Align::Right),
        ("time", Align::Right),
        (relative.as_str(), Align::Right),
    ];
    // A placement compared with itself says nothing.
    let columns = heads.len() - usize::from(lines.len() == 1);
    let mut table = Table::new(heads.into_iter().take(columns));
    let first_ns = first.modelled_time_ns as f64;
    for line in lines {
        let totals = line.totals;
        let part = |part: u64| match totals.accesses {
            0 => "-".to_owned(),
            all => percent(part as f64 / all as f64),
        };
        // Where nobody held anything, there is no mean of those that did.
        let of_hits = |mean: String| match totals.local + totals.remote {
            0 => "-".to_owned(),
            _ => mean,
        };
        let time_ns = line.modelled_time_ns as f64;
        let relative = match first_ns > 0.0 {
            true => format!("{:.3}", time_ns / first_ns),
            false => "-".to_owned(),
        };
        let cells = [
            policy(&line.case.configuration.spec),
            part(totals.local),
            part(totals.remote),
            part(totals.misses),
            of_hits(format!("{:.2}", totals.mean_hops())),
            of_hits(duration_ns(totals.hit_latency_ns())),
            duration_ns(totals.access_latency_ns()),
            count(totals.migrations),
            count(totals.replications),
            bytes(totals.bytes_moved),
            duration_ns(time_ns),
            relative,
        ];
        table.row(cells.into_iter().take(columns));
    }
    table.render()
}

/// More columns than this do not fit a terminal.
const TRAFFIC_MAX: usize = 16;

/// The accesses from each node to each node that served them, in percent of all, for people.
pub fn traffic(cases: &[PlacementCase], outcomes: &[PlacementOutcome]) -> String {
    let mut text = String::new();
    for (case, outcome) in cases.iter().zip(outcomes) {
        let nodes = outcome.capacity.len();
        let name = policy(&case.configuration.spec);
        if nodes > TRAFFIC_MAX {
            text += &format!(
                "\n{name} on {}: {nodes} nodes are too many to print; --heatmap draws them\n",
                outcome.nodes
            );
            continue;
        }
        text += &format!(
            "\n{name} on {}: accesses in %, from (row) to the node that served\n",
            outcome.nodes
        );
        let heads = (0..nodes).map(|node| (node.to_string(), Align::Right));
        let mut table = Table::new([("from".to_owned(), Align::Right)].into_iter().chain(heads));
        let all = outcome.traffic.iter().sum::<u64>().max(1) as f64;
        for (node, row) in outcome.traffic.chunks(nodes.max(1)).enumerate() {
            let cell = |&served: &u64| match 100.0 * served as f64 / all {
                0.0 => ".".to_owned(),
                little if little < 0.05 => "+".to_owned(),
                part => format!("{part:.1}"),
            };
            table.row([node.to_string()].into_iter().chain(row.iter().map(cell)));
        }
        text += &table.render();
    }
    text
}
