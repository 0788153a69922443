//! What can be observed on this machine, and what is in the way.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::event::Kind;
use crate::observer::{Observer, is_initial_pid_namespace};
use crate::options::{Options, Scope};

/// The kernel's description of its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Bits of the capabilities that the programs need, and their names. CAP_SYS_ADMIN has both.
const CAPABILITIES: &[(u32, &str)] = &[(38, "CAP_PERFMON"), (39, "CAP_BPF")];
const CAP_SYS_ADMIN: u32 = 21;

/// What can be observed on this machine. Its text has one line for each finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is in the way of everything.
    pub obstacles: Vec<Obstacle>,
    /// Each kind of event about pages, and why it cannot be observed. Empty if there are obstacles.
    pub kinds: Vec<(Kind, Option<Obstacle>)>,
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel does not describe its types.
    NoBtf,
    /// This process lacks rights.
    NoCapability(&'static str),
    /// Processes have other numbers here than the programs see.
    PidNamespace,
    /// The kernel has no such tracepoint.
    NoTracepoint(&'static str),
    /// The kernel refused a program, for this reason.
    Refused(String),
}

impl Display for Obstacle {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NoBtf => {
                write!(to, "the kernel has no BTF (/sys/kernel/btf/vmlinux)")
            }
            Obstacle::NoCapability(name) => write!(to, "{name} is missing"),
            Obstacle::PidNamespace => write!(to, "not in the initial pid namespace"),
            Obstacle::NoTracepoint(name) => write!(to, "the kernel has no tracepoint {name}"),
            Obstacle::Refused(why) => write!(to, "{why}"),
        }
    }
}

impl Display for Probe {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        for obstacle in &self.obstacles {
            writeln!(to, "{obstacle}")?;
        }
        for (kind, obstacle) in &self.kinds {
            let tracepoint = kind.tracepoint();
            match obstacle {
                None => writeln!(to, "{kind:?}: by tracepoint {tracepoint}")?,
                Some(obstacle) => writeln!(to, "{kind:?}: {obstacle}")?,
            }
        }
        Ok(())
    }
}

impl Probe {
    /// Finds out, by loading and attaching each program for a moment. It observes nobody.
    pub fn run() -> Probe {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut obstacles: Vec<Obstacle> = missing_capabilities(&status)
            .map(Obstacle::NoCapability)
            .collect();
        if !Path::new(BTF).exists() {
            obstacles.push(Obstacle::NoBtf);
        }
        if !is_initial_pid_namespace() {
            obstacles.push(Obstacle::PidNamespace);
        }
        let kinds = if obstacles.is_empty() {
            Kind::all().map(|kind| (kind, obstacle_of(kind))).collect()
        } else {
            Vec::new()
        };
        Probe { obstacles, kinds }
    }

    /// Whether reads can be observed.
    pub fn is_possible(&self) -> bool {
        self.kinds.contains(&(Kind::Read, None))
    }
}

fn obstacle_of(kind: Kind) -> Option<Obstacle> {
    let options = Options {
        scope: Scope::Processes(Vec::new()),
        kinds: vec![kind],
        ring_bytes: 1 << 12,
        ..Options::default()
    };
    match Observer::new(&options) {
        Ok(_) => None,
        Err(Error::NoTracepoint(name)) => Some(Obstacle::NoTracepoint(name)),
        Err(error) => Some(Obstacle::Refused(with_causes(&error))),
    }
}

/// In one line. What the verifier says goes on for pages.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let line = error.to_string();
        text.push_str(": ");
        text.push_str(line.lines().next().unwrap_or_default());
        cause = error.source();
    }
    text
}

/// The names of the capabilities that are missing, by the text of /proc/self/status.
fn missing_capabilities(status: &str) -> impl Iterator<Item = &'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"))
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0);
    let has = move |bit: u32| effective >> bit & 1 != 0;
    let missing = CAPABILITIES
        .iter()
        .filter(move |(bit, _)| !has(*bit) && !has(CAP_SYS_ADMIN));
    missing.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let missing = |mask: &str| {
            let status = format!("Name:\tx\nCapEff:\t{mask}\n");
            missing_capabilities(&status).collect::<Vec<_>>()
        };
        assert_eq!(missing("0000000000000000"), ["CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(missing("0000008000000000"), ["CAP_PERFMON"]);
        assert!(missing("000000c000000000").is_empty());
        assert!(missing("0000000000200000").is_empty());
    }

    #[test]
    fn each_finding_is_a_line() {
        let probe = Probe {
            obstacles: Vec::new(),
            kinds: vec![
                (Kind::Read, None),
                (
                    Kind::Fault,
                    Some(Obstacle::NoTracepoint("mm_filemap_fault")),
                ),
            ],
        };
        assert!(probe.is_possible());
        assert_eq!(
            probe.to_string(),
            "Read: by tracepoint mm_filemap_get_pages\n\
             Fault: the kernel has no tracepoint mm_filemap_fault\n"
        );
    }
}
