//! What `hither run` switches on where no switch is given: what can help on this machine, as far as
//! that is known before the program starts.
//!
//! Which files a program reads is not known then. A memory limit is a sign that not all of them
//! fit, and the files that the command line names are a lower bound of what is read. A program that
//! finds its files elsewhere on a machine without a limit gets nothing by itself. Steering the page
//! cache where everything fits does no harm: it steps aside where nothing is gained. Replicas take
//! memory and make writers wait, so they are switched on by name alone.

use std::ffi::OsString;
use std::fmt;
use std::fs;

use hither_analysis::format::bytes;
use hither_live::page_cache::BUDGET_MIN_BYTES;
use hither_sys::cgroup::MemoryGroup;
use hither_sys::machine::{Machine as _, NodeMemory, ThisMachine};

use super::{memory, page_cache};

/// What is known of the machine and the program before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// The limit of the memory cgroup, if there is one.
    limit: Option<Limit>,
    /// Memory that is available to new allocations.
    available_bytes: u64,
    /// The size of the files that the command line names.
    named_files_bytes: u64,
    /// Nodes with memory.
    nodes: usize,
    /// Whether the kernel moves pages between nodes by itself.
    kernel_balances: bool,
}

/// The limit of a memory cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    /// What it leaves for pages of files.
    files_bytes: u64,
}

impl Machine {
    /// This machine, for this command.
    pub(super) fn here(command: &[OsString]) -> Machine {
        let group = MemoryGroup::of_this_process().ok().flatten();
        let limit = group.and_then(|group| {
            Some(Limit {
                bytes: group.limit_bytes()?,
                files_bytes: group.file_bytes()?,
            })
        });
        // Where the kernel does not show its nodes nothing is known of them or of what is free.
        let nodes = ThisMachine.nodes().ok();
        let available = |nodes: &Vec<NodeMemory>| -> u64 {
            nodes.iter().map(NodeMemory::available_bytes).sum()
        };
        let files = command
            .iter()
            .skip(1)
            .filter_map(|word| fs::metadata(word).ok());
        let files = files.filter(fs::Metadata::is_file);
        let balancing = fs::read_to_string("/proc/sys/kernel/numa_balancing");
        Machine {
            limit,
            available_bytes: nodes.as_ref().map_or(u64::MAX, available),
            named_files_bytes: files.map(|file| file.len()).sum(),
            nodes: nodes.map_or(1, |nodes| {
                nodes.iter().filter(|node| node.bytes > 0).count()
            }),
            kernel_balances: balancing.is_ok_and(|setting| setting.trim() != "0"),
        }
    }
}

/// What is switched on, and why. As text it is one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Why the page cache is steered.
    pub(super) page_cache: Option<PageCacheReason>,
    /// Why memory is placed.
    pub(super) memory: Option<MemoryReason>,
    machine: Machine,
}

/// Why steering the page cache can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageCacheReason {
    /// A memory cgroup has a limit.
    Limit {
        /// The limit.
        bytes: u64,
    },
    /// The files that the command line names are larger than what is available.
    FilesDoNotFit {
        /// The size of these files.
        files_bytes: u64,
        /// What is available.
        available_bytes: u64,
    },
}

/// Why placing memory can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryReason {
    nodes: usize,
}

impl PageCacheReason {
    /// How much of the page cache the program's files may have, where no cgroup says that.
    pub(super) fn cache_bytes(self) -> Option<u64> {
        match self {
            PageCacheReason::Limit { .. } => None,
            PageCacheReason::FilesDoNotFit {
                available_bytes, ..
            } => Some(available_bytes),
        }
    }
}

/// Chooses by what is known.
pub(super) fn choose(machine: &Machine) -> Choice {
    let Machine {
        limit,
        available_bytes,
        named_files_bytes: files_bytes,
        nodes,
        kernel_balances,
    } = *machine;
    let page_cache = match limit {
        // A limit says how much there is for files, which the available memory does not.
        Some(Limit { bytes, files_bytes }) => {
            (files_bytes >= BUDGET_MIN_BYTES).then_some(PageCacheReason::Limit { bytes })
        }
        None => (files_bytes > available_bytes && available_bytes >= BUDGET_MIN_BYTES).then_some(
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
            let (switch, policy) = (page_cache::SWITCH, page_cache::POLICY);
            format!("{switch}={policy}, because {why}")
        });
        let memory = self.memory.map(|why| {
            let (switch, policy) = (memory::SWITCH, memory::POLICY);
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
            None => "no memory limit in the way".to_owned(),
        };
        let nodes = match self.machine.nodes {
            ..=1 => "one memory node".to_owned(),
            nodes => format!("the kernel balances the {nodes} memory nodes"),
        };
        write!(
            f,
            "automatic: nothing to switch on ({cache}, {nodes}): the program runs as it is"
        )
    }
}

impl fmt::Display for PageCacheReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PageCacheReason::Limit { bytes: limit } => {
                write!(f, "its memory is limited to {}", bytes(limit))
            }
            PageCacheReason::FilesDoNotFit {
                files_bytes,
                available_bytes,
            } => write!(
                f,
                "its files have {} and {} of memory are free",
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
    const PLAIN: Machine = Machine {
        limit: None,
        available_bytes: 4096 * MIB,
        named_files_bytes: 100 * MIB,
        nodes: 1,
        kernel_balances: false,
    };

    fn limited(files_bytes: u64) -> Machine {
        Machine {
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
            "automatic: nothing to switch on (no memory limit in the way, one memory node): \
             the program runs as it is"
        );
        let balanced = choose(&Machine {
            nodes: 4,
            kernel_balances: true,
            ..limited(5 * MIB)
        });
        assert_eq!((balanced.page_cache, balanced.memory), (None, None));
        assert_eq!(
            balanced.to_string(),
            "automatic: nothing to switch on (the memory limit leaves 5.00 MiB for files, \
             the kernel balances the 4 memory nodes): the program runs as it is"
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
            "automatic: --page-cache=pcc, because its memory is limited to 512.00 MiB"
        );
    }

    #[test]
    fn files_that_do_not_fit_into_free_memory_switch_the_page_cache_on() {
        let larger = Machine {
            named_files_bytes: 5000 * MIB,
            ..PLAIN
        };
        let choice = choose(&larger);
        let reason = choice.page_cache.expect("it is on");
        assert_eq!(reason.cache_bytes(), Some(4096 * MIB));
        assert_eq!(
            choice.to_string(),
            "automatic: --page-cache=pcc, because its files have 4.88 GiB \
             and 4.00 GiB of memory are free"
        );
        // With a limit its own remainder counts.
        let full = Machine {
            named_files_bytes: 5000 * MIB,
            ..limited(0)
        };
        assert_eq!(choose(&full).page_cache, None);
        let nothing_free = Machine {
            available_bytes: MIB,
            ..PLAIN
        };
        assert_eq!(choose(&nothing_free).page_cache, None);
    }

    #[test]
    fn several_nodes_switch_memory_on_unless_the_kernel_balances_them() {
        let four = Machine { nodes: 4, ..PLAIN };
        let choice = choose(&four);
        assert_eq!(
            (choice.page_cache, choice.memory),
            (None, Some(MemoryReason { nodes: 4 }))
        );
        assert_eq!(
            choice.to_string(),
            "automatic: --memory=upm, because there are 4 memory nodes \
             and the kernel does not balance them"
        );
        let balanced = Machine {
            kernel_balances: true,
            ..four
        };
        assert_eq!(choose(&balanced).memory, None);
    }

    #[test]
    fn both_are_switched_on_and_said_in_one_line() {
        let both = Machine {
            nodes: 2,
            ..limited(300 * MIB)
        };
        let said = choose(&both).to_string();
        assert!(said.contains("--page-cache=pcc, because "), "{said}");
        assert!(said.contains("; --memory=upm, because "), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}
