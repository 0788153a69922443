//! The machine that a recording is made on, as `/proc` and `/sys` tell it. What cannot be read is left at its
//! default: a container that hides `/sys` still records.

use std::fs;
use std::path::Path;

use hither_trace::schema::{Machine, MemoryNode};

/// Type of the entry with the page size in the auxiliary vector.
const AT_PAGESZ: u64 = 6;

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Host, kernel, CPUs and memory.
pub(crate) fn machine() -> Machine {
    Machine {
        host: text("/proc/sys/kernel/hostname"),
        kernel: text("/proc/sys/kernel/osrelease"),
        cpus: parse_list(&text("/sys/devices/system/cpu/online")).len() as u32,
        page_bytes: page_bytes(&fs::read("/proc/self/auxv").unwrap_or_default()),
        memory_bytes: kib_field(&text("/proc/meminfo"), "MemTotal:"),
    }
}

/// The memory nodes in order of their numbers.
pub fn nodes() -> Vec<MemoryNode> {
    nodes_in(Path::new("/sys/devices/system/node"))
}

fn nodes_in(folder: &Path) -> Vec<MemoryNode> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        entry
            .file_name()
            .to_str()?
            .strip_prefix("node")?
            .parse()
            .ok()
    });
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .map(|node| {
            let folder = folder.join(format!("node{node}"));
            let distances = text(folder.join("distance"));
            MemoryNode {
                node,
                cpus: parse_list(&text(folder.join("cpulist"))),
                memory_bytes: kib_field(&text(folder.join("meminfo")), "MemTotal:"),
                distances: distances
                    .split_whitespace()
                    .filter_map(|distance| distance.parse().ok())
                    .collect(),
            }
        })
        .collect()
}

/// The node of each CPU, indexed by CPU; 0 for those that no node claims.
pub(crate) fn node_of_cpu(nodes: &[MemoryNode]) -> Vec<u32> {
    let cpus = nodes
        .iter()
        .flat_map(|node| &node.cpus)
        .max()
        .map_or(0, |&cpu| cpu as usize + 1);
    let mut map = vec![0; cpus];
    for node in nodes {
        for &cpu in &node.cpus {
            map[cpu as usize] = node.node;
        }
    }
    map
}

/// The kernel's list format: `0-3,8,10-11`.
fn parse_list(list: &str) -> Vec<u32> {
    /// More CPUs than any machine has: a list that says otherwise is not believed.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(CPUS_MAX));
        }
    }
    cpus
}

/// A line `NAME  123 kB` somewhere in `text`, in bytes.
fn kib_field(text: &str, name: &str) -> u64 {
    let mut words = text
        .split_whitespace()
        .skip_while(|&word| word != name)
        .skip(1);
    words
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn page_bytes(auxiliary_vector: &[u8]) -> u32 {
    let (words, _) = auxiliary_vector.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    words
        .chunks_exact(2)
        .find(|entry| entry[0] == AT_PAGESZ)
        .map_or(0, |entry| entry[1] as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(""), Vec::<u32>::new());
        assert_eq!(parse_list("x,1-y,7"), [7]);
        assert_eq!(parse_list("3-1"), Vec::<u32>::new());
    }

    #[test]
    fn nodes_with_gaps_map_their_cpus() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (node, cpus, kib) in [(2, "4-5,1", 2048), (0, "0,2-3", 1024)] {
            let node_folder = folder.path().join(format!("node{node}"));
            fs::create_dir(&node_folder).expect("made");
            fs::write(node_folder.join("cpulist"), format!("{cpus}\n")).expect("written");
            fs::write(
                node_folder.join("meminfo"),
                format!("Node {node} MemTotal:  {kib} kB\n"),
            )
            .expect("written");
            fs::write(node_folder.join("distance"), "10 21\n").expect("written");
        }
        fs::write(folder.path().join("online"), "0,2\n").expect("written");
        let nodes = nodes_in(folder.path());
        assert_eq!(
            nodes
                .iter()
                .map(|node| (node.node, node.memory_bytes))
                .collect::<Vec<_>>(),
            [(0, 1 << 20), (2, 2 << 20)]
        );
        assert_eq!(nodes[1].distances, [10, 21]);
        assert_eq!(node_of_cpu(&nodes), [0, 2, 0, 0, 2, 2]);
        assert_eq!(node_of_cpu(&[]), Vec::<u32>::new());
    }

    #[test]
    fn this_machine_has_a_page_size_and_memory() {
        let machine = machine();
        assert!(machine.page_bytes.is_power_of_two());
        assert!(machine.memory_bytes > 0);
        assert!(machine.cpus > 0);
    }
}
