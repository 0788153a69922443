//! How far the members of a running cluster are from each other.

use std::fmt::Write;

use anyhow::{Context, ensure};
use hither_analysis::table::{Align, Table};
use hither_analysis::topology::drawing;
use hither_core::Topology;
use hither_core::topology::Latencies;

use hither_service::topology::TopologyStatus;

/// What a node knows of the distances in its cluster, if it knows any.
pub(super) fn known(status: Option<&TopologyStatus>) -> anyhow::Result<&TopologyStatus> {
    let status = status.context("this node is alone")?;
    let members = status.members.len();
    ensure!(!status.hops.is_empty(), "no topology of {members} members");
    Ok(status)
}

/// The topology to draw: of a shape all its nodes, otherwise the members.
pub(super) fn topology(status: &TopologyStatus) -> anyhow::Result<Topology> {
    let (topology, names) = match (&status.latency_ns, &status.positions[..]) {
        (None, positions @ [_, ..]) => (status.from.parse()?, positions),
        (None, []) => {
            let hops = status.hops.concat().into_iter();
            let hops: Vec<u16> = hops
                .map(|hops| hops.try_into().unwrap_or(u16::MAX))
                .collect();
            let topology = Topology::from_hops(&status.from, &hops, Latencies::default())?;
            (topology, &status.members[..])
        }
        (Some(latency_ns), _) => {
            let topology = Topology::from_matrix(&status.from, &latency_ns.concat())?;
            (topology, &status.members[..])
        }
    };
    Ok(topology.with_nodes(|node, about| {
        if let Some(name) = names.get(node.index()) {
            about.name.clone_from(name);
        }
    }))
}

/// The topology in one line.
pub(super) fn head(status: &TopologyStatus) -> String {
    let members = hither_analysis::format::counted(status.members.len() as u64, "member");
    format!("{members}; distances: {}", status.whence())
}

/// The distances, and a drawing of a shape.
pub(super) fn text(status: &TopologyStatus) -> anyhow::Result<String> {
    let mut text = String::new();
    let topology = topology(status)?;
    if let Some(drawing) = drawing(&topology) {
        write!(text, "\n{drawing}")?;
        let columns = [
            ("node", Align::Right),
            ("member", Align::Left),
            ("", Align::Left),
        ];
        let mut table = Table::new(columns);
        for node in topology.all() {
            let name = &topology.about(node).name;
            let is_there = status.members.contains(name);
            let state = if is_there { "" } else { "not in the cluster" };
            table.row([node.0.to_string(), name.clone(), state.to_owned()]);
        }
        write!(text, "\n{}", table.render())?;
    }
    write!(text, "\n{}", status.table())?;
    Ok(text)
}
