//! Results as text: one table for each topology, size and replacement policy, with a row for each
//! placement in the order of the request.

use hither_core::placement::Target;
use hither_sim::placement::Binding;

use super::case::{CaseResult, CaseSummary, PlacementCase};
use crate::format::{bytes, count, counted, duration_ns, percent, policy};
use crate::table::{Align, Table};

/// The tables.
pub fn table<'a>(
    results: impl IntoIterator<Item = CaseSummary<'a>>,
    binding: Binding,
    block_bytes: u64,
) -> String {
    let results: Vec<CaseSummary<'_>> = results.into_iter().collect();
    let groups = results.chunk_by(|a, b| group_key(a.case) == group_key(b.case));
    let text = |group: &[CaseSummary<'_>]| {
        let heading = heading(group[0].case, binding, block_bytes);
        format!("\n{heading}\n{}", rows(group))
    };
    groups.map(text).collect()
}

/// What the placements of a table have in common. Two topologies may have the same name, so they
/// are compared by address.
pub(super) fn group_key(
    case: &PlacementCase,
) -> (*const hither_core::Topology, &str, &[u32], String) {
    let configuration = &case.configuration;
    (
        std::sync::Arc::as_ptr(&configuration.topology),
        case.size.as_str(),
        &configuration.capacity,
        configuration.replacement.to_string(),
    )
}

/// The heading of a table: the nodes, their capacity and replacement policy, and the binding.
pub(super) fn heading(case: &PlacementCase, binding: Binding, block_bytes: u64) -> String {
    let configuration = &case.configuration;
    let (name, nodes) = (
        configuration.topology.name(),
        configuration.topology.nodes() as u64,
    );
    let named = if name.parse() == Ok(nodes) {
        String::new()
    } else {
        format!("{name}: ")
    };
    let (what, replacement) = match case.target() {
        Target::Files => ("block", format!(", {}", policy(&configuration.replacement))),
        Target::Memory => ("frame", String::new()),
    };
    let least = configuration.capacity.iter().min().copied().unwrap_or(0);
    let most = configuration.capacity.iter().max().copied().unwrap_or(0);
    let size = bytes(u64::from(most) * block_bytes);
    let held = if least == most {
        format!("{} ({size}) each", counted(most.into(), what))
    } else {
        format!(
            "{} to {} {what}s (up to {size})",
            count(least.into()),
            count(most.into())
        )
    };
    let bound = match binding {
        // In a sweep the trace is no longer loaded, so the binding is not resolved.
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

fn rows(results: &[CaseSummary<'_>]) -> String {
    let first = &results[0];
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
    // The last column compares with the first placement, so a single one needs no such column.
    let columns = heads.len() - usize::from(results.len() == 1);
    let mut table = Table::new(heads.into_iter().take(columns));
    let first_ns = first.modelled_time_ns as f64;
    for result in results {
        let totals = result.totals;
        let share = |part: u64| match totals.accesses {
            0 => "-".to_owned(),
            all => percent(part as f64 / all as f64),
        };
        // Without hits there is no mean over hits.
        let of_hits = |mean: String| match totals.local + totals.remote {
            0 => "-".to_owned(),
            _ => mean,
        };
        let time_ns = result.modelled_time_ns as f64;
        let relative = if first_ns > 0.0 {
            format!("{:.3}", time_ns / first_ns)
        } else {
            "-".to_owned()
        };
        let cells = [
            policy(&result.case.configuration.spec),
            share(totals.local),
            share(totals.remote),
            share(totals.misses),
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

/// The most nodes of a traffic matrix: more columns do not fit a terminal.
const TRAFFIC_NODES_MAX: usize = 16;

/// A matrix for each case: the accesses from each node to the node that served them, in percent.
pub fn traffic(results: &[CaseResult]) -> String {
    let mut text = String::new();
    for CaseResult { case, outcome } in results {
        let nodes = outcome.capacity.len();
        let name = policy(&case.configuration.spec);
        if nodes > TRAFFIC_NODES_MAX {
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
