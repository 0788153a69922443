//! A topology as a TOML file.
//!
//! ```toml
//! shape = "mesh:2x2"                # or a preset; or one of the two matrices:
//! # latency_ns = [[80, 130], [130, 80]]     nanoseconds, by row, local ones on the diagonal
//! # distances = [[10, 21], [21, 10]]        as firmware gives them: 10 is local_ns
//! local_ns = 80                     # what an access to the node itself takes
//! hop_ns = 50                       # what each hop adds; not with a matrix
//! storage_ns = 8_200_000
//! cpus = 16                         # of each node
//! capacity = "64GiB"                # 4096 bytes or more; a bare number is of bytes
//! weight = 1                        # of its accesses when the best place for a block is sought
//!
//! [[nodes]]                         # one for each node, in order; what is not said is as above
//! name = "left"
//! capacity = "128GiB"
//! ```
//!
//! Each error names its line, also that of an unknown key.

use std::path::Path;

use hither_core::Topology;
use hither_core::topology::{About, Latencies};
use hither_sim::Size;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::latency_origin::LatencyOrigin;
use crate::Result;
use crate::format::counted;
use crate::toml_file::{self, Problem, read_as};

/// The smallest capacity of a node: one page.
const CAPACITY_BYTES_MIN: u64 = 4096;

/// The distance of a node to itself in the firmware's table (ACPI SLIT).
const LOCAL_DISTANCE: u64 = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyDocument {
    shape: Option<Spanned<String>>,
    latency_ns: Option<Spanned<Matrix>>,
    distances: Option<Spanned<Matrix>>,
    local_ns: Option<Spanned<u32>>,
    hop_ns: Option<Spanned<u32>>,
    storage_ns: Option<u32>,
    cpus: Option<u32>,
    capacity: Option<Spanned<Value>>,
    weight: Option<Spanned<u32>>,
    #[serde(default)]
    nodes: Vec<Spanned<NodeTable>>,
}

type Matrix = Vec<Spanned<Vec<u32>>>;

/// A node of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    name: Option<Spanned<String>>,
    cpus: Option<u32>,
    capacity: Option<Spanned<Value>>,
    weight: Option<Spanned<u32>>,
}

/// The topology in the file at `path`, which is its name.
pub(super) fn read(path: &Path) -> Result<Topology> {
    let topology = toml_file::read(path, topology)?;
    Ok(topology.named(path.display().to_string()))
}

/// Where the latencies in the file at `path` are from.
pub(super) fn latency_origin(path: &Path) -> Result<LatencyOrigin> {
    toml_file::read(path, |document: TopologyDocument| {
        let given = [&document.local_ns, &document.hop_ns].map(Option::is_some);
        Ok(match (&document.shape, &document.distances, given) {
            (Some(shape), _, [false, false]) => LatencyOrigin::of_name(shape.as_ref()),
            (Some(_), _, [true, true]) => LatencyOrigin::File,
            (Some(_), ..) => LatencyOrigin::FileInPart,
            (None, Some(_), _) => LatencyOrigin::FileDistances,
            (None, None, _) => LatencyOrigin::File,
        })
    })
}

fn topology(document: TopologyDocument) -> Result<Topology, Problem> {
    let made = shape(&document)?;
    let nodes = made.nodes();
    if let (Some(entry), false) = (document.nodes.last(), document.nodes.len() == nodes) {
        let entries = document.nodes.len();
        let problem = format!("{entries} [[nodes]], but the topology has {nodes}");
        return Err(Problem::at(entry.span())(problem));
    }
    let capacity = document.capacity.as_ref().map(bytes).transpose()?;
    let mut about: Vec<About> = made.all().map(|node| made.about(node).clone()).collect();
    for about in &mut about {
        about.cpus = document.cpus.unwrap_or(about.cpus);
        about.weight = weight(&document.weight, about.weight)?;
        about.capacity_bytes = capacity.unwrap_or(about.capacity_bytes);
    }
    for (about, entry) in about.iter_mut().zip(document.nodes) {
        let entry = entry.into_inner();
        about.name = match &entry.name {
            Some(name) if name.as_ref().chars().any(char::is_control) => {
                // A terminal would interpret them, and SVG does not allow them.
                return Err(Problem::at(name.span())("a name has no control characters"));
            }
            Some(name) => name.as_ref().clone(),
            None => String::new(),
        };
        about.cpus = entry.cpus.unwrap_or(about.cpus);
        about.weight = weight(&entry.weight, about.weight)?;
        if let Some(capacity) = &entry.capacity {
            about.capacity_bytes = bytes(capacity)?;
        }
    }
    Ok(made.with_nodes(|node, at| *at = about[node.index()].clone()))
}

/// The weight of a node. Policies multiply a node's accesses by it and add up the products.
fn weight(said: &Option<Spanned<u32>>, otherwise: u32) -> Result<u32, Problem> {
    const WEIGHT_MAX: u32 = 1_000_000;
    match said {
        Some(weight) if *weight.as_ref() > WEIGHT_MAX => {
            let problem = format!("a weight is at most {WEIGHT_MAX}");
            Err(Problem::at(weight.span())(problem))
        }
        Some(weight) => Ok(*weight.as_ref()),
        None => Ok(otherwise),
    }
}

/// The topology with its latencies, without the settings of nodes.
fn shape(document: &TopologyDocument) -> Result<Topology, Problem> {
    let TopologyDocument {
        shape,
        latency_ns,
        distances,
        local_ns,
        hop_ns,
        ..
    } = document;
    let number = |of: &Option<Spanned<u32>>| of.as_ref().map(|number| *number.as_ref());
    let made = match (shape, latency_ns, distances) {
        (Some(shape), None, None) => {
            let made: Topology = shape.as_ref().parse().map_err(Problem::at(shape.span()))?;
            let given = made.latencies();
            return Ok(made.with_latencies(Latencies {
                local_ns: number(local_ns).unwrap_or(given.local_ns),
                hop_ns: number(hop_ns).unwrap_or(given.hop_ns),
                storage_ns: document.storage_ns.or(given.storage_ns),
            }));
        }
        (None, Some(latencies), None) => {
            if let Some(local) = local_ns {
                let problem = "local latencies are on the diagonal of latency_ns";
                return Err(Problem::at(local.span())(problem));
            }
            matrix(latencies, |latency_ns| latency_ns)
        }
        (None, None, Some(distances)) => {
            let local_ns = u64::from(number(local_ns).unwrap_or(Latencies::default().local_ns));
            matrix(distances, |distance| {
                let latency_ns = u64::from(distance) * local_ns / LOCAL_DISTANCE;
                u32::try_from(latency_ns).unwrap_or(u32::MAX)
            })
        }
        _ => Err(Problem::of_all(
            "write one of `shape`, `latency_ns` and `distances`",
        )),
    }?;
    if let Some(hop) = hop_ns {
        return Err(Problem::at(hop.span())("a matrix has no latency of a hop"));
    }
    Ok(made.with_latencies(Latencies {
        storage_ns: document.storage_ns,
        ..Latencies::default()
    }))
}

fn matrix(rows: &Spanned<Matrix>, latency_ns: impl Fn(u32) -> u32) -> Result<Topology, Problem> {
    let nodes = rows.as_ref().len();
    let mut latencies = Vec::new();
    for row in rows.as_ref() {
        let columns = row.as_ref().len();
        if columns != nodes {
            let columns = counted(columns as u64, "column");
            let rows = counted(nodes as u64, "row");
            let problem = format!("{columns}, but the matrix has {rows}");
            return Err(Problem::at(row.span())(problem));
        }
        latencies.extend(row.as_ref().iter().copied().map(&latency_ns));
    }
    Topology::from_matrix("matrix", &latencies).map_err(Problem::at(rows.span()))
}

fn bytes(value: &Spanned<Value>) -> Result<u64, Problem> {
    read_as(value, |text| {
        match text.parse::<Size>().map_err(|error| error.to_string())? {
            Size::Bytes(bytes) | Size::Blocks(bytes) if bytes < CAPACITY_BYTES_MIN => Err(format!(
                "a capacity of {} is less than a page; write it with its unit, such as 64GiB",
                counted(bytes, "byte")
            )),
            Size::Bytes(bytes) | Size::Blocks(bytes) => Ok(bytes),
            Size::Percent(_) => Err("a capacity is given in bytes, such as 64GiB".to_owned()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::Node;

    fn parsed(text: &str) -> Result<Topology> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.toml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_shape_with_latencies_and_nodes() {
        let made = parsed(
            "shape = \"mesh:1x2\"\nlocal_ns = 80\nhop_ns = 50\nstorage_ns = 8_200_000\n\
             cpus = 16\ncapacity = \"1GiB\"\n\
             [[nodes]]\nname = \"left\"\ncapacity = 4096\nweight = 3\n[[nodes]]\ncpus = 0\n",
        )
        .unwrap();
        assert!(made.name().ends_with("machine.toml"));
        assert_eq!(made.latency_ns(Node(0), Node(1)), 130);
        assert_eq!(made.storage_ns(), Some(8_200_000));
        let about = |name: &str, weight, cpus, capacity_bytes| About {
            name: name.to_owned(),
            weight,
            cpus,
            capacity_bytes,
        };
        assert_eq!(*made.about(Node(0)), about("left", 3, 16, 4096));
        assert_eq!(*made.about(Node(1)), about("", 1, 0, 1 << 30));
    }

    #[test]
    fn matrices_of_latencies_and_of_distances() {
        let made = parsed("latency_ns = [[80, 130], [140, 90]]\nstorage_ns = 9\n").unwrap();
        assert_eq!(made.latency_ns(Node(1), Node(0)), 140);
        assert_eq!(made.storage_ns(), Some(9));
        let made = parsed("distances = [[10, 21], [21, 10]]\nlocal_ns = 100\n").unwrap();
        assert_eq!(
            (made.local_ns(), made.latency_ns(Node(0), Node(1))),
            (100, 210)
        );
        // Latencies of a preset that the file does not give stay.
        let made = parsed("shape = \"numachine-4\"\nlocal_ns = 1\n").unwrap();
        assert_eq!(
            (made.local_ns(), made.hop_ns(), made.cpus(Node(0))),
            (1, 3060, 4)
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_file_and_line() {
        for (text, expected) in [
            (
                "",
                "machine.toml:1: write one of `shape`, `latency_ns` and `distances`",
            ),
            (
                "shape = \"2\"\nlatency_ns = [[1]]",
                "machine.toml:1: write one of",
            ),
            (
                "\nshape = \"mesh:0x5\"\n",
                "machine.toml:2: `mesh:0x5`: `0` is not a whole number",
            ),
            ("\nshap = \"2\"\n", "machine.toml:2: unknown field `shap`"),
            (
                "latency_ns = [\n  [1, 2],\n  [2],\n]\n",
                "machine.toml:3: 1 column, but the matrix has 2 rows",
            ),
            (
                "latency_ns = [[2, 1], [1, 2]]\n",
                "machine.toml:1: from node 0, node 1 is as near as node 0 itself",
            ),
            (
                "distances = []\n",
                "machine.toml:1: a matrix of 0 latencies is not square",
            ),
            (
                "distances = [[10, -1], [1, 10]]\n",
                "machine.toml:1: invalid value: integer `-1`, expected u32",
            ),
            (
                "latency_ns = [[1]]\nlocal_ns = 5\n",
                "machine.toml:2: local latencies are on the diagonal",
            ),
            (
                "latency_ns = [[1]]\nhop_ns = 5\n",
                "machine.toml:2: a matrix has no latency of a hop",
            ),
            (
                "shape = \"2\"\ncapacity = \"5%\"\n",
                "machine.toml:2: a capacity is given in bytes",
            ),
            (
                "shape = \"2\"\n[[nodes]]\n[[nodes]]\ncapacity = \"1\"\n",
                "machine.toml:4: a capacity of 1 byte is less than a page",
            ),
            (
                "shape = \"2\"\ncapacity = 1.5\n",
                "machine.toml:2: expected a text or a whole number, found float",
            ),
            (
                "shape = \"2\"\n[[nodes]]\ncpus = 1\n",
                "machine.toml:2: 1 [[nodes]], but the topology has 2",
            ),
            (
                "shape = \"1\"\n[[nodes]]\ncpu = 1\n",
                "machine.toml:3: unknown field `cpu`",
            ),
            (
                "shape = \"1\"\n[[nodes]]\nname = \"\\u001b[31m\"\n",
                "machine.toml:3: a name has no control characters",
            ),
            (
                "shape = \"1\"\nweight = 4294967295\n",
                "machine.toml:2: a weight is at most 1000000",
            ),
            ("shape = \n", "machine.toml:1: "),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
