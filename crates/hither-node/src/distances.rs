//! Distances between the members of a cluster, as its configuration gives them.
//!
//! They are for the placement of blocks: what is used much goes near to who uses it. Nothing here
//! can make a read wrong, only slower. The protocol measures distances where the
//! configuration gives none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hither_core::Topology;
use hither_core::topology::{Latencies, NODES_MAX};
use hither_net::view::{MemberId, check_name};
use serde::Deserialize;

/// Where the distances between the members come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Distances {
    /// From round trips of pings.
    #[default]
    Measured,
    /// From the configuration.
    Configured(Arc<Configured>),
}

/// The part `[topology]` of a node's file. It has one of a shape with its members, places, and a
/// matrix.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyFile {
    /// A shape of [`Topology`], such as `mesh:5x5`.
    shape: Option<String>,
    /// The members at the shape's nodes, by number.
    members: Option<Vec<String>>,
    /// Where each member is: a path such as `zone1/rack1`.
    places: Option<BTreeMap<String, String>>,
    /// A file with a matrix of distances.
    matrix: Option<PathBuf>,
}

impl TopologyFile {
    /// The file with the matrix, if it names one.
    pub fn matrix(&self) -> Option<&Path> {
        self.matrix.as_deref()
    }
}

/// Distances between named members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// What people call them.
    name: String,
    /// The members, by number.
    names: Vec<String>,
    numbers: BTreeMap<MemberId, usize>,
    table: Table,
}

/// Distances between the named members, by row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Table {
    Hops(Vec<u16>, Latencies),
    LatencyNs(Vec<u32>),
}

/// What distances by places are called.
const PLACES: &str = "places";

/// The most parts of a place.
const LEVELS_MAX: usize = 32;

impl Distances {
    /// What `file` says, and where it names a matrix, the `matrix` that its file has.
    ///
    /// # Errors
    /// What is wrong, in one line without the file's name.
    pub fn new(file: TopologyFile, matrix: Option<&str>) -> Result<Distances, String> {
        let matrix = file.matrix.zip(matrix);
        let configured = match (file.shape, file.members, file.places, matrix) {
            (None, None, None, None) => return Ok(Distances::Measured),
            (Some(shape), Some(members), None, None) => Configured::of_shape(&shape, members),
            (Some(_), None, None, None) | (None, Some(_), None, None) => {
                Err("[topology]: shape and members come together".to_owned())
            }
            (None, None, Some(places), None) => Configured::of_places(&places),
            (None, None, None, Some((path, matrix))) => Configured::of_matrix(matrix)
                .map_err(|error| format!("{}: {error}", path.display())),
            _ => Err("[topology]: one of shape, places and matrix is expected".to_owned()),
        };
        Ok(Distances::Configured(Arc::new(configured?)))
    }

    /// What people call them: `measured`, a shape, `places` or `matrix`.
    pub fn name(&self) -> &str {
        match self {
            Distances::Measured => "measured",
            Distances::Configured(configured) => &configured.name,
        }
    }

    /// The members that the configuration names.
    pub fn names(&self) -> &[String] {
        match self {
            Distances::Measured => &[],
            Distances::Configured(configured) => &configured.names,
        }
    }

    /// Whether the members are at the nodes of a shape, which is the name: [`Distances::names`] has
    /// them by number.
    pub fn is_shape(&self) -> bool {
        self.are_hops() && self.name() != PLACES
    }

    /// Whether distances are known by hops alone.
    pub fn are_hops(&self) -> bool {
        match self {
            Distances::Measured => false,
            Distances::Configured(configured) => matches!(configured.table, Table::Hops(..)),
        }
    }

    /// Whether the distances of `member` are configured, or measured.
    pub fn covers(&self, member: MemberId) -> bool {
        match self {
            Distances::Measured => true,
            Distances::Configured(configured) => configured.numbers.contains_key(&member),
        }
    }

    /// The topology over these members, in their order. A member that the configuration does not
    /// name is as far from each other as any two that it names. Without a configuration all are
    /// equally far. `None` if there are no members, or more than [`NODES_MAX`].
    pub fn topology(&self, members: &[MemberId]) -> Option<Arc<Topology>> {
        if members.is_empty() || members.len() > NODES_MAX {
            return None;
        }
        Some(Arc::new(match self {
            Distances::Measured => Topology::uniform(members.len()).named(self.name()),
            Distances::Configured(configured) => configured.topology(members),
        }))
    }
}

impl Configured {
    fn new(name: &str, names: Vec<String>, table: Table) -> Result<Configured, String> {
        if names.is_empty() {
            return Err("[topology]: it names no member".to_owned());
        }
        let mut numbers = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            check_name(name).map_err(|error| format!("[topology]: {error}"))?;
            if numbers.insert(MemberId::of(name), number).is_some() {
                return Err(format!("[topology]: {name:?} is there twice"));
            }
        }
        Ok(Configured {
            name: name.to_owned(),
            names,
            numbers,
            table,
        })
    }

    fn of_shape(shape: &str, members: Vec<String>) -> Result<Configured, String> {
        let topology: Topology = shape
            .parse()
            .map_err(|error| format!("[topology]: shape: {error}"))?;
        if topology.nodes() != members.len() {
            return Err(format!(
                "[topology]: {} has {} nodes, but members names {}",
                topology.name(),
                topology.nodes(),
                members.len()
            ));
        }
        let hops = topology.all().flat_map(|from| {
            let topology = &topology;
            let hops = move |to| u16::try_from(topology.hops(from, to)).unwrap_or(u16::MAX);
            topology.all().map(hops)
        });
        let table = Table::Hops(hops.collect(), topology.latencies());
        Configured::new(topology.name(), members, table)
    }

    /// Members are the leaves of a tree: a hop is a step up or down.
    fn of_places(places: &BTreeMap<String, String>) -> Result<Configured, String> {
        let mut paths: Vec<Vec<&str>> = Vec::with_capacity(places.len());
        for (name, place) in places {
            let path: Vec<&str> = place.split('/').collect();
            if path.iter().any(|part| part.trim().is_empty()) {
                return Err(format!(
                    "[topology]: {place:?}, the place of {name:?}, is not of the form zone/rack"
                ));
            }
            if path.len() > LEVELS_MAX {
                return Err(format!(
                    "[topology]: the place of {name:?} has more than {LEVELS_MAX} parts"
                ));
            }
            paths.push(path);
        }
        check_count(paths.len())?;
        let mut hops = Vec::with_capacity(paths.len() * paths.len());
        for (from, one) in paths.iter().enumerate() {
            for (to, other) in paths.iter().enumerate() {
                let pairs = one.iter().zip(other);
                let common = pairs.take_while(|(one, other)| one == other).count();
                let steps = one.len() + 1 - common + other.len() + 1 - common;
                hops.push(if from == to { 0 } else { steps as u16 });
            }
        }
        let names = places.keys().cloned().collect();
        Configured::new(PLACES, names, Table::Hops(hops, Latencies::default()))
    }

    /// A line with the names, then a line of numbers for each, separated by commas.
    fn of_matrix(text: &str) -> Result<Configured, String> {
        let lines = text.lines().enumerate();
        let mut lines = lines.filter(|(_, line)| !line.trim().is_empty());
        let cells = |line: &str| -> Vec<String> {
            let cells = line.split(',').map(|cell| cell.trim().to_owned());
            cells.collect()
        };
        let (_, header) = lines.next().ok_or("a matrix without a line of names")?;
        let names = cells(header);
        check_count(names.len())?;
        let nodes = names.len();
        let mut latency_ns = Vec::with_capacity(nodes * nodes);
        let mut rows = 0;
        for (number, line) in lines {
            let row = cells(line);
            if row.len() != nodes || rows == nodes {
                return Err(if rows == nodes {
                    format!("line {}: more rows than the {nodes} names", number + 1)
                } else {
                    format!(
                        "line {}: {} numbers, for {nodes} names",
                        number + 1,
                        row.len()
                    )
                });
            }
            for cell in &row {
                let distance_us = cell.parse().ok().filter(|us| *us <= DISTANCE_MAX);
                let distance_us: u32 = distance_us.ok_or_else(|| {
                    let line = number + 1;
                    format!("line {line}: {cell:?} is not a whole number up to {DISTANCE_MAX}")
                })?;
                latency_ns.push(distance_us * 1_000);
            }
            rows += 1;
        }
        if rows != nodes {
            return Err(format!("{rows} rows, for {nodes} names"));
        }
        check_matrix(&names, &latency_ns)?;
        Configured::new("matrix", names, Table::LatencyNs(latency_ns))
    }

    fn topology(&self, members: &[MemberId]) -> Topology {
        let numbers = members.iter().map(|member| self.numbers.get(member));
        let numbers: Vec<Option<&usize>> = numbers.collect();
        let nodes = self.names.len();
        let topology = match &self.table {
            Table::Hops(table, latencies) => {
                let hops = select(table, nodes, &numbers, 1);
                Topology::from_hops(&self.name, &hops, *latencies)
            }
            Table::LatencyNs(table) => {
                let latency_ns = select(table, nodes, &numbers, 1_000);
                Topology::from_matrix(&self.name, &latency_ns)
            }
        };
        topology.expect("distances between different members are above 0")
    }
}

/// The longest distance of a matrix.
const DISTANCE_MAX: u32 = u32::MAX / 1_000;

fn check_count(members: usize) -> Result<(), String> {
    if members > NODES_MAX {
        Err(format!("[topology]: more than {NODES_MAX} members"))
    } else {
        Ok(())
    }
}

/// A matrix of distances is symmetric, and 0 on its diagonal alone.
fn check_matrix(names: &[String], latency_ns: &[u32]) -> Result<(), String> {
    let nodes = names.len();
    for (from, one) in names.iter().enumerate() {
        for (to, other) in names.iter().enumerate().skip(from) {
            let there = latency_ns[from * nodes + to] / 1_000;
            let back = latency_ns[to * nodes + from] / 1_000;
            if from == to && there != 0 {
                return Err(format!("from {one:?} to itself it is {there}, not 0"));
            }
            if there != back {
                return Err(format!(
                    "from {one:?} to {other:?} it is {there}, and back {back}: not symmetric"
                ));
            }
            if from != to && there == 0 {
                return Err(format!("from {one:?} to {other:?} it is 0"));
            }
        }
    }
    Ok(())
}

/// The rows and columns `numbers` of a square table. Where there is no number, the largest entry of
/// the table, and at least `least`.
fn select<T: Copy + Ord + Default>(
    table: &[T],
    nodes: usize,
    numbers: &[Option<&usize>],
    least: T,
) -> Vec<T> {
    let diameter = table.iter().copied().max().unwrap_or(least).max(least);
    let mut selected = Vec::with_capacity(numbers.len() * numbers.len());
    for (row, from) in numbers.iter().enumerate() {
        for (column, to) in numbers.iter().enumerate() {
            selected.push(match (from, to) {
                _ if row == column => T::default(),
                (Some(from), Some(to)) => table[*from * nodes + *to],
                _ => diameter,
            });
        }
    }
    selected
}

/// The names that are not among `members`.
pub(crate) fn unknown<'a>(
    names: &'a [String],
    members: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let members: BTreeSet<&str> = members.collect();
    let mut names = names.iter().map(String::as_str);
    names.find(|name| !members.contains(name))
}

#[cfg(test)]
mod tests;
