//! The plugin's arguments, `key=value` each, from QEMU's `-plugin file=...,key=value,...`.

use crate::model::{Geometry, Machine, MemoryRange};
use std::path::PathBuf;

/// Bits of the directory's masks; see `model::directory`.
const CPUS_MAX: usize = 64;
const NODES_MAX: usize = 32;

/// All arguments, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the intervals are written, one JSON line each.
    pub out: PathBuf,
    /// The machine that is modelled.
    pub machine: Machine,
}

impl Options {
    /// Parses the arguments. All keys but those of the caches are required. The error is one line
    /// that names the argument.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut out, mut cpus, mut memory, mut line_bytes) = (None, None, None, 64);
        let mut l1 = Geometry {
            bytes: 32 << 10,
            ways: 8,
        };
        let mut l2 = Some(Geometry {
            bytes: 256 << 10,
            ways: 8,
        });
        let mut llc = Some(Geometry {
            bytes: 8 << 20,
            ways: 16,
        });
        for argument in arguments {
            let (key, value) = argument
                .split_once('=')
                .ok_or_else(|| format!("{argument:?}: expected key=value"))?;
            let wrong = |what: &str| format!("{key}={value}: {what}");
            match key {
                "out" if value.is_empty() => return Err(wrong("expected a path")),
                "out" => out = Some(PathBuf::from(value)),
                "cpus" => {
                    cpus = Some(
                        parse_cpus(value)
                            .ok_or_else(|| wrong("expected the node of each vCPU, as 0:0:1:1"))?,
                    )
                }
                "memory" => {
                    memory = Some(parse_memory(value).ok_or_else(|| {
                        wrong("expected START-END@NODE:... in hexadecimal, end exclusive")
                    })?);
                }
                "line" => {
                    line_bytes = value
                        .parse()
                        .ok()
                        .filter(|bytes: &u64| {
                            bytes.is_power_of_two() && (16..=4096).contains(bytes)
                        })
                        .ok_or_else(|| wrong("expected a power of two from 16 to 4096"))?;
                }
                "l1" => {
                    l1 = parse_geometry(value)
                        .ok_or_else(|| wrong("expected BYTESxWAYS"))?
                        .ok_or_else(|| wrong("the first level cannot be left out"))?;
                }
                "l2" => {
                    l2 = parse_geometry(value)
                        .ok_or_else(|| wrong("expected BYTESxWAYS, or 0x0 for none"))?
                }
                "llc" => {
                    llc = parse_geometry(value)
                        .ok_or_else(|| wrong("expected BYTESxWAYS, or 0x0 for none"))?
                }
                _ => {
                    return Err(format!(
                        "{key}: unknown argument (known: out, cpus, memory, line, l1, l2, llc)"
                    ));
                }
            }
        }
        let machine = Machine {
            cpus: cpus.ok_or("cpus=: missing")?,
            memory: memory.ok_or("memory=: missing")?,
            line_bytes,
            l1,
            l2,
            llc,
        };
        check(&machine)?;
        Ok(Self {
            out: out.ok_or("out=: missing")?,
            machine,
        })
    }
}

fn parse_cpus(value: &str) -> Option<Vec<usize>> {
    value.split(':').map(|node| node.parse().ok()).collect()
}

fn parse_memory(value: &str) -> Option<Vec<MemoryRange>> {
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let mut ranges = value
        .split(':')
        .map(|range| {
            let (span, node) = range.split_once('@')?;
            let (start, end) = span.split_once('-')?;
            Some(MemoryRange {
                start: hexadecimal(start)?,
                end: hexadecimal(end)?,
                node: node.parse().ok()?,
            })
        })
        .collect::<Option<Vec<_>>>()?;
    ranges.sort_by_key(|range| range.start);
    Some(ranges)
}

/// `Some(None)` is a level that is left out.
fn parse_geometry(value: &str) -> Option<Option<Geometry>> {
    let (bytes, ways) = value.split_once('x')?;
    match (bytes.parse().ok()?, ways.parse().ok()?) {
        (0, 0) => Some(None),
        (0, _) | (_, 0) => None,
        (bytes, ways) => Some(Some(Geometry { bytes, ways })),
    }
}

fn check(machine: &Machine) -> Result<(), String> {
    if machine.cpus.len() > CPUS_MAX {
        return Err(format!(
            "cpus=: {} vCPUs, at most {CPUS_MAX} are modelled",
            machine.cpus.len()
        ));
    }
    if machine.nodes() > NODES_MAX {
        return Err(format!(
            "node {}: at most {NODES_MAX} nodes are modelled",
            machine.nodes() - 1
        ));
    }
    for range in &machine.memory {
        let aligned = range.start % machine.line_bytes == 0 && range.end % machine.line_bytes == 0;
        if range.start >= range.end || !aligned {
            return Err(format!(
                "memory={:x}-{:x}@{}: empty, or not of whole lines",
                range.start, range.end, range.node
            ));
        }
    }
    if let Some(pair) = machine
        .memory
        .windows(2)
        .find(|pair| pair[0].end > pair[1].start)
    {
        return Err(format!(
            "memory=: the ranges at {:x} and {:x} overlap",
            pair[0].start, pair[1].start
        ));
    }
    for (name, level) in [
        ("l1", Some(machine.l1)),
        ("l2", machine.l2),
        ("llc", machine.llc),
    ] {
        let Some(level) = level else { continue };
        let row = level.ways as u64 * machine.line_bytes;
        if level.bytes < row || level.bytes % row != 0 {
            return Err(format!(
                "{name}={}x{}: not a whole number of sets of {row} bytes",
                level.bytes, level.ways
            ));
        }
    }
    let sets = machine.l1.bytes / (machine.l1.ways as u64 * machine.line_bytes);
    if machine.l1.ways > 16 || !sets.is_power_of_two() {
        return Err(format!(
            "l1={}x{}: at most 16 ways, and a power of two of sets",
            machine.l1.bytes, machine.l1.ways
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [&str; 3] = [
        "out=/tmp/x",
        "cpus=0:0:1",
        "memory=100000000-140000000@1:0-80000000@0",
    ];

    #[test]
    fn arguments_are_read() {
        let options = Options::parse(GOOD.into_iter().chain([
            "line=128",
            "l1=65536x2",
            "l2=0x0",
            "llc=1048576x16",
        ]))
        .unwrap();
        assert_eq!(options.out, PathBuf::from("/tmp/x"));
        let machine = options.machine;
        assert_eq!(machine.cpus, [0, 0, 1]);
        assert_eq!(
            machine.memory[1],
            MemoryRange {
                start: 0x1_0000_0000,
                end: 0x1_4000_0000,
                node: 1
            }
        );
        assert_eq!(
            (machine.line_bytes, machine.l1),
            (
                128,
                Geometry {
                    bytes: 65536,
                    ways: 2
                }
            )
        );
        assert_eq!(
            (machine.l2, machine.llc),
            (
                None,
                Some(Geometry {
                    bytes: 1 << 20,
                    ways: 16
                })
            )
        );
    }

    #[test]
    fn each_error_names_its_argument() {
        let with =
            |extra: &'static str| Options::parse(GOOD.into_iter().chain([extra])).unwrap_err();
        assert!(with("l3=1x1").starts_with("l3: unknown argument"));
        assert!(with("line=48").starts_with("line=48: expected a power"));
        assert!(with("l1=0x0").starts_with("l1=0x0: the first level"));
        assert!(with("l1=24576x8").starts_with("l1=24576x8: at most 16 ways"));
        assert!(with("l2=1000x8").starts_with("l2=1000x8: not a whole number"));
        assert!(with("memory=0-1000@0:800-2000@1").contains("overlap"));
        assert!(with("memory=0-1000").starts_with("memory=0-1000: expected"));
        assert!(with("cpus=0:x").starts_with("cpus=0:x: expected"));
        assert!(with("memory=0-1000@40").contains("at most 32 nodes"));
        assert_eq!(
            Options::parse(GOOD[..2].iter().copied()).unwrap_err(),
            "memory=: missing"
        );
    }
}
