//! The topology of a running cluster.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use hither_analysis::table::{Align, Table};
use hither_analysis::topology::drawing;
use hither_core::Topology;
use hither_core::topology::Latencies;

use hither_service::client;
use hither_service::topology::TopologyStatus;

/// What the node at `socket` says, or the only one of this user.
pub(super) fn ask(socket: Option<&Path>) -> anyhow::Result<TopologyStatus> {
    let socket = match socket {
        Some(socket) => socket.to_owned(),
        None => client::only_socket()?,
    };
    let status = client::topology(&socket)?;
    let status = status.with_context(|| format!("{}: this node is alone", socket.display()))?;
    ensure!(
        !status.hops.is_empty(),
        "{}: no topology of {} members",
        socket.display(),
        status.members.len()
    );
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

/// Members and distances, and a drawing of a shape.
pub(super) fn text(
    status: &TopologyStatus,
    topology: &Topology,
) -> Result<String, std::fmt::Error> {
    let mut text = format!("{}\n", head(status));
    if let Some(drawing) = drawing(topology) {
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
