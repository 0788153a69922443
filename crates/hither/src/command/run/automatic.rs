//! What `hither run` switches on without a switch: what can help on this machine, as far as that is
//! known before the program starts.
//!
//! The files that a program will read are not known then. A memory limit suggests that they do not
//! all fit. The files that the command line names are a lower bound. So a program that finds its
//! files elsewhere, on a machine without a limit, is not helped automatically. Steering the page
//! cache of files that fit does no harm, since the policy steps aside where it saves nothing.
//! Replicas take memory and make writers wait, so they are switched on only by name.

use std::fmt;

use hither_analysis::format::bytes;

use super::choice::{Choice, MemoryReason, PageCacheReason};
use super::machine::{Limit, MachineState};
use super::{memory, page_cache};

/// The least that must be left for files. The agent's memory and its program take 13 to 26 MiB of
/// it. A loop of 42 MiB in a cgroup of 64 MiB, which fits without the agent, read 63 to 153 MiB
/// from storage with it (2026-11).
const FILES_MIN_BYTES: u64 = 96 << 20;

/// Chooses what to switch on.
pub(super) fn choose(machine: &MachineState) -> Choice {
    let MachineState {
        limit,
        available_bytes,
        named_files_bytes: files_bytes,
        nodes,
        kernel_balances,
    } = *machine;
    let page_cache = match limit {
        // With a limit, the available memory of the machine does not matter.
        Some(Limit { bytes, files_bytes }) => {
            (files_bytes >= FILES_MIN_BYTES).then_some(PageCacheReason::Limit { bytes })
        }
        None => (files_bytes > available_bytes && available_bytes >= FILES_MIN_BYTES).then_some(
            PageCacheReason::FilesDoNotFit {
                files_bytes,
                available_bytes,
            },
        ),
    };
    let memory = (nodes > 1 && !kernel_balances).then_some(MemoryReason { nodes });
    Choice {
        page_cache,
        memory,
        machine: *machine,
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page_cache = self.page_cache.map(|why| {
            let (switch, policy) = (page_cache::SWITCH, page_cache::DEFAULT_POLICY);
            format!("{switch}={policy}, because {why}")
        });
        let memory = self.memory.map(|why| {
            let (switch, policy) = (memory::SWITCH, memory::DEFAULT_POLICY);
            format!("{switch}={policy}, because {why}")
        });
        let on: Vec<String> = page_cache.into_iter().chain(memory).collect();
        if !on.is_empty() {
            return write!(f, "automatic: {}", on.join("; "));
        }
        let cache = match self.machine.limit {
            Some(limit) => format!(
                "the memory limit leaves {} for files",
                bytes(limit.files_bytes)
            ),
            None => "no memory limit".to_owned(),
        };
        let nodes = match self.machine.nodes {
            ..=1 => "one memory node".to_owned(),
            nodes => format!("the kernel balances the {nodes} memory nodes"),
        };
        write!(
            f,
            "automatic: nothing to switch on ({cache}, {nodes}); the program runs unchanged"
        )
    }
}

impl fmt::Display for PageCacheReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PageCacheReason::Limit { bytes: limit } => {
                write!(f, "memory is limited to {}", bytes(limit))
            }
            PageCacheReason::FilesDoNotFit {
                files_bytes,
                available_bytes,
            } => write!(
                f,
                "its files have {} and {} of memory is free",
                bytes(files_bytes),
                bytes(available_bytes)
            ),
        }
    }
}

impl fmt::Display for MemoryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes;
        write!(
            f,
            "there are {nodes} memory nodes and the kernel does not balance them"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine of one node with enough memory.
    const PLAIN: MachineState = MachineState {
        limit: None,
        available_bytes: 4096 * MIB,
        named_files_bytes: 100 * MIB,
        nodes: 1,
        kernel_balances: false,
    };

    fn limited(files_bytes: u64) -> MachineState {
        MachineState {
            limit: Some(Limit {
                bytes: 512 * MIB,
                files_bytes,
            }),
            ..PLAIN
        }
    }

    #[test]
    fn nothing_is_switched_on_where_nothing_can_help() {
        let choice = choose(&PLAIN);
        assert_eq!((choice.page_cache, choice.memory), (None, None));
        assert_eq!(
            choice.to_string(),
            "automatic: nothing to switch on (no memory limit, one memory node); \
             the program runs unchanged"
        );
        let balanced = choose(&MachineState {
            nodes: 4,
            kernel_balances: true,
            ..limited(95 * MIB)
        });
        assert_eq!((balanced.page_cache, balanced.memory), (None, None));
        assert_eq!(
            balanced.to_string(),
            "automatic: nothing to switch on (the memory limit leaves 95.00 MiB for files, \
             the kernel balances the 4 memory nodes); the program runs unchanged"
        );
    }

    #[test]
    fn a_memory_limit_switches_the_page_cache_on() {
        let choice = choose(&limited(300 * MIB));
        let reason = choice.page_cache.expect("it is on");
        assert_eq!(reason.cache_bytes(), None, "the cgroup says how much");
        assert_eq!(choice.memory, None);
        assert_eq!(
            choice.to_string(),
            "automatic: --page-cache=pcc, because memory is limited to 512.00 MiB"
        );
    }

    #[test]
    fn files_that_do_not_fit_into_free_memory_switch_the_page_cache_on() {
        let larger = MachineState {
            named_files_bytes: 5000 * MIB,
            ..PLAIN
        };
        let choice = choose(&larger);
        let reason = choice.page_cache.expect("it is on");
        assert_eq!(reason.cache_bytes(), Some(4096 * MIB));
        assert_eq!(
            choice.to_string(),
            "automatic: --page-cache=pcc, because its files have 4.88 GiB \
             and 4.00 GiB of memory is free"
        );
        // With a limit its own remainder counts.
        let full = MachineState {
            named_files_bytes: 5000 * MIB,
            ..limited(0)
        };
        assert_eq!(choose(&full).page_cache, None);
        let nothing_free = MachineState {
            available_bytes: MIB,
            ..PLAIN
        };
        assert_eq!(choose(&nothing_free).page_cache, None);
    }

    #[test]
    fn several_nodes_switch_memory_on_unless_the_kernel_balances_them() {
        let four = MachineState { nodes: 4, ..PLAIN };
        let choice = choose(&four);
        assert_eq!(
            (choice.page_cache, choice.memory),
            (None, Some(MemoryReason { nodes: 4 }))
        );
        assert_eq!(
            choice.to_string(),
            "automatic: --memory=majority, because there are 4 memory nodes \
             and the kernel does not balance them"
        );
        let balanced = MachineState {
            kernel_balances: true,
            ..four
        };
        assert_eq!(choose(&balanced).memory, None);
    }

    #[test]
    fn both_are_switched_on_and_said_in_one_line() {
        let both = MachineState {
            nodes: 2,
            ..limited(300 * MIB)
        };
        let said = choose(&both).to_string();
        assert!(said.contains("--page-cache=pcc, because "), "{said}");
        assert!(said.contains("; --memory=majority, because "), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}
