//! What is known of the machine and the program before it starts.

use std::ffi::OsString;
use std::fs;

use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::machine::{Machine as _, NodeMemory, ThisMachine};

/// What is known of the machine and the program before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineState {
    /// The limit of the memory cgroup, if there is one.
    pub(crate) limit: Option<Limit>,
    /// Memory that is available to new allocations.
    pub(super) available_bytes: u64,
    /// The size of the files that the command line names.
    pub(super) named_files_bytes: u64,
    /// Nodes with memory.
    pub(super) nodes: usize,
    /// Whether the kernel moves pages between nodes by itself.
    pub(super) kernel_balances: bool,
}

/// The limit of a memory cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The limit.
    pub(crate) bytes: u64,
    /// What it leaves for pages of files.
    pub(crate) files_bytes: u64,
}

impl MachineState {
    /// This machine, for this command.
    pub(crate) fn of_this_machine(command: &[OsString]) -> MachineState {
        let group = MemoryGroup::of_this_process().ok().flatten();
        let limit = group.and_then(|group| {
            Some(Limit {
                bytes: group.limit_bytes()?,
                files_bytes: group.file_bytes()?,
            })
        });
        // Without nodes in sysfs, neither nodes nor free memory are known.
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
        MachineState {
            limit,
            available_bytes: nodes.as_ref().map_or(u64::MAX, available),
            named_files_bytes: files.map(|file| file.len()).sum(),
            nodes: nodes.map_or(1, |nodes| {
                nodes.iter().filter(|node| node.bytes > 0).count()
            }),
            kernel_balances: balancing.is_ok_and(|setting| setting.trim() != "0"),
        }
    }

    /// What memory leaves for pages of files. `None`: not known.
    pub(super) fn left_for_files_bytes(&self) -> Option<u64> {
        let available = Some(self.available_bytes).filter(|&available| available < u64::MAX);
        let limited = self.limit.map(|limit| limit.files_bytes);
        available.into_iter().chain(limited).min()
    }
}
