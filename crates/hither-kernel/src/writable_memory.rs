//! The memory that a process writes to, by /proc/PID/maps: static data, heap, stacks, anonymous and
//! shared mappings. Pages of mapped files are not among it.

use hither_ids::{Address, Pid};

use crate::file_id::Inode;
use std::fs::{self, File};
use std::io::Read;

/// What a range of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Static variables of the program or a library: `.data` and `.bss`.
    Static,
    /// The heap that `brk` moves.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// A private mapping of no file: arenas of an allocator, stacks of other threads.
    Anonymous,
    /// Shared memory: SysV, memfd, tmpfs, a shared mapping of no file.
    Shared,
}

impl MemoryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [MemoryKind; 5] = [
        MemoryKind::Static,
        MemoryKind::Heap,
        MemoryKind::Stack,
        MemoryKind::Anonymous,
        MemoryKind::Shared,
    ];

    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Static => "static data",
            MemoryKind::Heap => "heap",
            MemoryKind::Stack => "stack",
            MemoryKind::Anonymous => "anonymous",
            MemoryKind::Shared => "shared",
        }
    }
}

/// A range of memory that a process may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritableRange {
    /// The first address.
    pub start: Address,
    /// The address behind the last.
    pub end: Address,
    /// What it is.
    pub kind: MemoryKind,
    /// Of shared memory: its inode, which is the same for all who map it.
    pub file: Option<Inode>,
}

/// The writable memory of another process, in order, without what it shares with this one; none
/// where it may not be asked, or has ended.
pub fn writable_memory(pid: Pid) -> Vec<WritableRange> {
    let text = |of: &str| fs::read(format!("/proc/{of}/maps")).unwrap_or_default();
    let own = text("self");
    let own = String::from_utf8_lossy(&own);
    let is_shared = |line: &&str| line.split_ascii_whitespace().nth(1) == Some("rw-s");
    let shared: Vec<_> = own
        .lines()
        .filter(is_shared)
        .filter_map(Inode::of_mapping)
        .collect();
    ranges_in(&String::from_utf8_lossy(&text(&pid.to_string())), &shared)
}

/// Whether the first thread of a process asks for certain nodes by a policy of its own (`numactl
/// --membind`, `--preferred`), which then decides where all of its memory goes.
///
/// The policy is that of the first mapping in /proc/PID/numa_maps, which has none of its own: it is
/// the program's text. The file is read no further, since the kernel goes through the pages of each
/// mapping that is read of.
pub fn asks_for_nodes(pid: Pid) -> bool {
    let mut line = [0; 256];
    let file = File::open(format!("/proc/{pid}/numa_maps"));
    let read = file.and_then(|mut file| file.read(&mut line)).unwrap_or(0);
    asks_in(&String::from_utf8_lossy(&line[..read]))
}

fn asks_in(numa_maps: &str) -> bool {
    let policy = numa_maps.split_ascii_whitespace().nth(1).unwrap_or("");
    policy.starts_with("bind") || policy.starts_with("prefer")
}

/// The writable ranges of a text like /proc/PID/maps (proc_pid_maps(5)). A piece of `.bss` has no
/// name, and follows the `.data` that it belongs to. Mappings of the files `but` are left out.
fn ranges_in(maps: &str, but: &[Inode]) -> Vec<WritableRange> {
    let mut ranges = Vec::new();
    // The end of the last mapping of a file.
    let mut data_end = 0;
    for line in maps.lines() {
        let Some((range, name)) = range_of(line) else {
            continue;
        };
        let (start, end) = range;
        let permissions = line.split_ascii_whitespace().nth(1).unwrap_or("");
        // Huge pages of the pool stay where they are.
        let is_pool = name.starts_with("/anon_hugepage") || name.starts_with("/dev/hugepages");
        let is_private_file = name.starts_with('/') && !is_shared_memory(name) && !is_pool;
        let file = Inode::of_mapping(line);
        let kind = match name {
            _ if !permissions.starts_with("rw") => None,
            _ if file.is_some_and(|file| but.contains(&file)) => None,
            "[heap]" => Some(MemoryKind::Heap),
            "[stack]" => Some(MemoryKind::Stack),
            _ if name.starts_with("[anon") => Some(MemoryKind::Anonymous),
            _ if name.starts_with('[') => None,
            _ if permissions.ends_with('s') => is_shared_memory(name).then_some(MemoryKind::Shared),
            "" if start == data_end => Some(MemoryKind::Static),
            "" => Some(MemoryKind::Anonymous),
            _ if is_private_file => Some(MemoryKind::Static),
            _ => None,
        };
        if is_private_file {
            data_end = end;
        }
        ranges.extend(kind.map(|kind| WritableRange {
            start: Address(start),
            end: Address(end),
            kind,
            file: file.filter(|_| kind == MemoryKind::Shared),
        }));
    }
    ranges
}

/// The addresses and the name of a mapping.
fn range_of(line: &str) -> Option<((u64, u64), &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    // Permissions, offset, device and inode are before the name, which may have blanks.
    let name = rest.split_ascii_whitespace().nth(4).map_or("", |word| {
        &rest[word.as_ptr() as usize - rest.as_ptr() as usize..]
    });
    Some(((number(start)?, number(end)?), name))
}

/// Whether a mapping of that name is of memory and not of a file.
fn is_shared_memory(name: &str) -> bool {
    let is_memory = ["/dev/shm/", "/memfd:", "/dev/zero", "/SYSV"];
    is_memory.into_iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00401000 r-xp 00000000 fe:01 1057 /usr/bin/a b
00500000-00501000 r--p 00001000 fe:01 1057 /usr/bin/a b
00501000-00503000 rw-p 00002000 fe:01 1057 /usr/bin/a b
00503000-00700000 rw-p 00000000 00:00 0 
01000000-01021000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f1000000000-7f1000100000 rw-s 00000000 00:05 32 /SYSV00000000 (deleted)
7f1100000000-7f1100100000 rw-s 00000000 00:01 33 /memfd:hither (deleted)
7f1200000000-7f1200100000 rw-s 00000000 00:1a 34 /dev/shm/psm_1
7f1300000000-7f1300100000 rw-s 00000000 fe:01 35 /var/lib/a.db
7f1380000000-7f1380200000 rw-p 00000000 00:0f 36 /anon_hugepage (deleted)
7f1400000000-7f1400002000 rw-p 00000000 00:00 0                          [anon: a name]
7f1500000000-7f1500002000 r--p 00000000 00:00 0                          [vvar]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn a_process_has_these_kinds_of_memory() {
        let ours = Inode::on(0, 1, 33);
        let ranges = ranges_in(MAPS, &[ours]);
        let short: Vec<(u64, MemoryKind)> = ranges
            .iter()
            .map(|range| (range.start.0, range.kind))
            .collect();
        assert_eq!(
            short,
            [
                (0x50_1000, MemoryKind::Static),
                (0x50_3000, MemoryKind::Static),
                (0x100_0000, MemoryKind::Heap),
                (0x7f00_0000_0000, MemoryKind::Anonymous),
                (0x7f10_0000_0000, MemoryKind::Shared),
                (0x7f12_0000_0000, MemoryKind::Shared),
                (0x7f14_0000_0000, MemoryKind::Anonymous),
                (0x7ffc_0000_0000, MemoryKind::Stack),
            ]
        );
        assert_eq!(ranges[1].end, Address(0x70_0000));
        let files: Vec<_> = ranges.iter().filter_map(|range| range.file).collect();
        assert_eq!(files, [Inode::on(0, 5, 32), Inode::on(0, 0x1a, 34)]);
        assert_eq!(ranges_in(MAPS, &[]).len(), ranges.len() + 1);
    }

    #[test]
    fn the_memory_of_this_process() {
        static mut COUNTER: [u64; 1000] = [1; 1000];
        let (local, heap) = (1_u64, Box::new([1_u64; 100_000]));
        let addresses = [
            (&raw const COUNTER as u64, MemoryKind::Static),
            (&raw const *heap as u64, MemoryKind::Anonymous),
        ];
        let ranges = writable_memory(Pid::own());
        for (address, kind) in addresses {
            let found = ranges
                .iter()
                .find(|range| (range.start..range.end).contains(&Address(address)));
            assert_eq!(found.map(|range| range.kind), Some(kind), "{address:x}");
        }
        // A test runs on a thread whose stack is mapped by pthread_create.
        let stack = &raw const local as u64;
        assert!(
            ranges
                .iter()
                .any(|of| (of.start..of.end).contains(&Address(stack)))
        );
        assert_eq!(writable_memory(Pid(0)), []);
    }

    #[test]
    fn numactl_is_seen() {
        assert!(asks_in("00400000 bind:0 file=/usr/bin/a mapped=1 N0=1\n"));
        assert!(asks_in("00400000 prefer:1 file=/usr/bin/a\n"));
        for policy in [
            "default",
            "local",
            "interleave:0-3",
            "weighted interleave:0-1",
        ] {
            assert!(!asks_in(&format!("00400000 {policy} file=/usr/bin/a\n")));
        }
        assert!(!asks_in("") && !asks_for_nodes(Pid::own()));
    }
}
