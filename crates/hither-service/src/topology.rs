//! `GET /topology`: how far the members of the cluster are from each other, as the node has it.

use hither_analysis::table::{Align, Table};
use hither_core::{Node, Topology};
use serde::{Deserialize, Serialize};

use crate::served::Served;

/// See the module.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct TopologyStatus {
    /// Where it is from: `measured`, or of the configuration `places`, `matrix` or a shape.
    pub from: String,
    /// Whether it is known. Until then, all members are equally far from each other.
    pub is_known: bool,
    /// Changes with the distances and the members.
    pub generation: u64,
    /// The members, by name.
    pub members: Vec<String>,
    /// Hops from the member of the row. There are none with too many members.
    pub hops: Vec<Vec<u32>>,
    /// The same in nanoseconds, or thousandths of the unit of a matrix. None where hops are all
    /// that is known.
    pub latency_ns: Option<Vec<Vec<u32>>>,
    /// Of a shape: the members at its nodes, by number.
    pub positions: Vec<String>,
}

impl Served {
    /// The topology of the cluster now. `None` if the node is alone.
    pub(crate) fn topology(&self) -> Option<TopologyStatus> {
        let membership = self.node.membership()?;
        let state = self.node.topology();
        let name = |(at, &id)| {
            let member = membership.view.member(id);
            let name = member.map_or_else(|| format!("{id:?}"), |member| member.name.clone());
            (name, at)
        };
        let mut order: Vec<(String, usize)> = state.members.iter().enumerate().map(name).collect();
        order.sort();
        let distances = &state.distances;
        let topology = state.topology.as_deref();
        let nodes = |of: fn(&Topology, Node, Node) -> u32| -> Vec<Vec<u32>> {
            let Some(topology) = topology else {
                return Vec::new();
            };
            let node = |&(_, at): &(String, usize)| Node(at as u16);
            let row = |from: &(String, usize)| {
                let cells = order.iter().map(|to| of(topology, node(from), node(to)));
                cells.collect()
            };
            order.iter().map(row).collect()
        };
        let has_latencies =
            !distances.are_hops() && topology.is_some_and(|it| it.kind() == "matrix");
        Some(TopologyStatus {
            from: distances.name().to_owned(),
            is_known: state.is_known,
            generation: state.generation,
            hops: nodes(Topology::hops),
            latency_ns: has_latencies.then(|| nodes(Topology::latency_ns)),
            positions: if distances.is_shape() {
                distances.names().to_vec()
            } else {
                Vec::new()
            },
            members: order.into_iter().map(|(name, _)| name).collect(),
        })
    }
}

impl TopologyStatus {
    /// Where it is from, for people.
    pub fn whence(&self) -> String {
        match (&self.from[..], self.is_known) {
            ("measured", true) => "measured".to_owned(),
            ("measured", false) => "measured, not known yet".to_owned(),
            (configured, _) => format!("{configured}, of the configuration"),
        }
    }

    /// All distances, from the member of the row.
    pub fn table(&self) -> String {
        if self.hops.is_empty() {
            return "too many members for a topology\n".to_owned();
        }
        let (title, rows, unit) = match (&self.latency_ns, &self.from[..]) {
            (None, _) => ("hops", &self.hops, 1),
            (Some(rows), "measured") => ("round trips in µs", rows, 1_000),
            (Some(rows), _) => ("distances", rows, 1_000),
        };
        let heads = self.members.iter().map(|name| (name.clone(), Align::Right));
        let mut table = Table::new([(String::new(), Align::Left)].into_iter().chain(heads));
        for (name, row) in self.members.iter().zip(rows) {
            let cells = row.iter().map(|distance| (distance / unit).to_string());
            table.row([name.clone()].into_iter().chain(cells));
        }
        format!("{title}, from the member of the row\n{}", table.render())
    }
}
