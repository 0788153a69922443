//! What may be in the way of all observing.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

use hither_kernel::pid_namespace;

use crate::source::Hook;

/// The kernel's description of its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Bits of the capabilities that the programs need, and their names. CAP_SYS_ADMIN has both.
const CAPABILITIES: &[(u32, &str)] = &[(38, "CAP_PERFMON"), (39, "CAP_BPF")];
const CAP_SYS_ADMIN: u32 = 21;

/// The inode of the initial pid namespace, a constant of the kernel.
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel does not describe its types.
    NoBtf,
    /// This process lacks rights.
    NoCapability(&'static str),
    /// Processes have other numbers here than the programs see.
    PidNamespace,
    /// The kernel has no such tracepoint or function.
    NoHook(Hook),
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
            Obstacle::NoHook(hook) => write!(to, "the kernel has no {hook}"),
            Obstacle::Refused(why) => write!(to, "{why}"),
        }
    }
}

impl Obstacle {
    /// What is in the way of everything here.
    pub fn all() -> impl Iterator<Item = Obstacle> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = missing_capabilities(&status).map(Obstacle::NoCapability);
        let btf = (!Path::new(BTF).exists()).then_some(Obstacle::NoBtf);
        let other_namespace = pid_namespace::own_inode() != INITIAL_PID_NAMESPACE;
        let namespace = other_namespace.then_some(Obstacle::PidNamespace);
        let all: Vec<Obstacle> = capabilities.chain(btf).chain(namespace).collect();
        all.into_iter()
    }
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
}
