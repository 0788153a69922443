//! `meta.json`: how the trace was made. It is JSON and not Parquet because it is small and nested,
//! and because people open it first.

use serde::{Deserialize, Serialize};

/// The version of the trace folder that this crate writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// The contents of `meta.json`. A missing field gets its default, so a trace of another tool needs
/// only `{"format": 1}`. In text that is not UTF-8, invalid bytes are replaced by U+FFFD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// The version of hither that wrote the trace.
    #[serde(default)]
    pub hither: String,
    /// When recording started, in nanoseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ns: u64,
    /// The clock of every `time_ns` in the trace; its zero is the start of the recording.
    #[serde(default)]
    pub clock: String,
    /// The recorded command, one element per argument.
    #[serde(default)]
    pub command: Vec<String>,
    /// The working folder in which it was started.
    #[serde(default)]
    pub cwd: String,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
    /// The machine's memory nodes, in order of their numbers.
    #[serde(default)]
    pub nodes: Vec<MemoryNode>,
    /// The processes. The position of a process is its number in the trace.
    #[serde(default)]
    pub processes: Vec<ProcessRow>,
    /// The threads. The position of a thread is its number in the trace.
    #[serde(default)]
    pub threads: Vec<ThreadRow>,
    /// What the trace lacks.
    #[serde(default)]
    pub losses: Losses,
    /// Where and why the trace ends before the program did. `None`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// How much of what the program read the trace has, where the recorder knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// What the recorder's memory cgroup left for pages of files over time. Empty without a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_left: Vec<MemoryLeft>,
    /// All references to regions of memory, of which the accesses are the cache misses: only in
    /// traces of programs whose caches were modelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<RegionReferences>,
    /// Further values of the writer.
    #[serde(default)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Default for Meta {
    fn default() -> Self {
        Meta {
            format: FORMAT_VERSION,
            hither: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ns: 0,
            clock: String::new(),
            command: Vec::new(),
            cwd: String::new(),
            machine: Machine::default(),
            nodes: Vec::new(),
            processes: Vec::new(),
            threads: Vec::new(),
            losses: Losses::default(),
            cut: None,
            seen: None,
            memory_left: Vec::new(),
            references: Vec::new(),
            more: serde_json::Map::new(),
        }
    }
}

impl Meta {
    /// Appends a process, which gets the next number.
    pub(crate) fn add_process(&mut self, row: ProcessRow) -> u32 {
        let process = self.processes.len() as u32;
        self.processes.push(ProcessRow { process, ..row });
        process
    }

    /// Appends a thread, which gets the next number.
    pub(crate) fn add_thread(&mut self, row: ThreadRow) -> u32 {
        let thread = self.threads.len() as u32;
        self.threads.push(ThreadRow { thread, ..row });
        thread
    }
}

/// The references to a region of memory, loads and stores, by page. Accesses to memory in a trace
/// are usually cache misses: how many references hit the caches between them is not known from
/// these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionReferences {
    /// The region, an index into `objects.parquet`.
    pub object: u32,
    /// References to each of its pages, by all threads: hits and misses.
    pub references: Vec<u64>,
    /// The misses among them.
    pub misses: Vec<u64>,
}

/// The machine that a trace was recorded on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel release, as `uname -r` gives it.
    pub kernel: String,
    /// Number of CPUs online.
    pub cpus: u32,
    /// Size of a page.
    pub page_bytes: u32,
    /// Size of the memory.
    pub memory_bytes: u64,
}

/// A memory node (NUMA node) of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryNode {
    /// Its number.
    pub node: u32,
    /// The CPUs of the node.
    pub cpus: Vec<u32>,
    /// Size of its memory.
    pub memory_bytes: u64,
    /// Distance to each node, as the firmware reports it (10 is local).
    pub distances: Vec<u32>,
}

/// A process: one program image. An exec starts another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessRow {
    /// Its number in the trace.
    pub process: u32,
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// Its parent's process id there; 0 if the parent is in another pid namespace.
    pub parent_pid: u32,
    /// The pid namespace: 0 is the recorder's, others are numbered in the order of their
    /// processes. Of one namespace, processes with equal ids ran one after the other. Two that did
    /// not exist at the same time may have one number, as the kernel gives theirs out again.
    #[serde(skip_serializing_if = "is_zero")]
    pub pid_namespace: u32,
    /// Path of the program.
    pub exe: String,
    /// Its arguments, the program's name included.
    pub command: Vec<String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A thread of one process. A thread that survives an exec is another thread of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadRow {
    /// Its number in the trace.
    pub thread: u32,
    /// The number of its process.
    pub process: u32,
    /// Its thread id.
    pub tid: u32,
}

/// Known events that the trace lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Accesses that were dropped, for whatever reason.
    pub dropped_events: u64,
    /// The bytes that they moved. What the nested ones moved is not known.
    pub dropped_bytes: u64,
    /// Of those accesses: there was no room, since the recorder got too little CPU time.
    pub dropped_ring_full: u64,
    /// There was no ring for their thread, or no memory.
    pub dropped_no_ring: u64,
    /// A signal handler made them while it interrupted the recorder.
    pub dropped_nested: u64,
    /// Records that the program had written over, which were left out.
    pub damaged_records: u64,
    /// Programs that could not be recorded.
    pub not_recorded: Vec<NotRecorded>,
}

impl Losses {
    /// Whether nothing is known to be missing.
    pub fn is_empty(&self) -> bool {
        *self == Losses::default()
    }
}

/// The end of a trace that ends before the program did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    /// Time of the last access that the trace has.
    pub time_ns: u64,
    /// Why there is no later one.
    pub reason: String,
    /// How long the program ran. `None`: not known.
    pub ran_ns: Option<u64>,
    /// The accesses that were recorded and are not in the trace. `None`: not known.
    pub lost_accesses: Option<u64>,
    /// The bytes that they read. `None`: not known.
    pub lost_read_bytes: Option<u64>,
}

/// How much of what the program read a recording has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Bytes of files that recorded calls read.
    pub recorded_bytes: u64,
    /// Those of them that were read of files opened with `O_DIRECT`: they bypass the page cache.
    pub direct_bytes: u64,
    /// Bytes that recorded programs read of what is not recorded: pipes, sockets, terminals, files
    /// under /proc.
    pub other_bytes: u64,
    /// What the kernel has counted beyond these two and the losses: bytes that calls which the
    /// recorder did not see had read, of files or pipes. Processes that nobody waited for, and what
    /// was recorded of them, are left out. `None`: the kernel did not say, or counted less than was
    /// recorded.
    pub unseen_bytes: Option<u64>,
    /// All that the kernel has counted. `None`: it did not say.
    pub called_bytes: Option<u64>,
    /// Bytes that the kernel fetched from storage, readahead and mapped files included.
    pub storage_bytes: Option<u64>,
    /// Processes that went on, unrecorded, when the program had ended.
    pub left_running: u64,
    /// Processes that set up an io_uring. What they read by it is neither recorded nor counted.
    pub io_uring_processes: u64,
    /// Files that the program mapped.
    pub mapped_files: u64,
    /// Their bytes, from the first to the last one mapped. Which of these it touched is recorded as
    /// far as `touches` says.
    pub mapped_bytes: u64,
    /// What of these was in the page cache when the program had ended: by this program or another,
    /// then or before. `None`: not known of each of them.
    pub mapped_cached_bytes: Option<u64>,
    /// How the touches of mapped files were recorded. `None`: they were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touches: Option<Touches>,
    /// The limit of the recorder's memory cgroup. `None`: the machine's memory is the limit.
    pub memory_limit_bytes: Option<u64>,
    /// What the programs in that cgroup left of it for pages of files: the median over the
    /// recording. `None`: there is no limit, or the recording does not say.
    pub memory_left_bytes: Option<u64>,
    /// How late the recorder was woken, or less, 19 of 20 times, in nanoseconds: an agent in its
    /// place would be as late.
    pub recorder_late_ns: u64,
    /// How far the kernel reads ahead in the program's files: the most over their devices.
    pub readahead_bytes: u64,
    /// All is by the kernel's events: whole pages, of the page cache alone. `unseen_bytes` is then
    /// what was lost of them, at least.
    pub kernel_events: bool,
    /// Bytes of reads that the kernel's events alone have, where these are recorded beside the
    /// library's: whole pages.
    pub kernel_alone_bytes: u64,
    /// The kernel lacks events of touches of mapped files: none of them is recorded.
    pub touches_unseen: bool,
    /// Accesses that were recorded, also those that merging has made one row of.
    pub accesses: u64,
    /// Those of them of whose call site no more is known than the program and the file.
    pub unknown_sites: u64,
}

/// What a memory cgroup left for pages of files at some time, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryLeft {
    /// In nanoseconds since the start of the recording.
    pub time_ns: u64,
    /// Its limit, less the memory of programs and the kernel that cannot be reclaimed.
    pub bytes: u64,
    /// What of that was mapped: at least the code of programs that the group had read.
    pub mapped_bytes: u64,
    /// The recorder's memory in the group.
    pub recorder_bytes: u64,
    /// What the kernel held there for the recorder alone.
    pub recorder_kernel_bytes: u64,
}

/// How the touches of mapped files were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Touches {
    /// The touches of a page within so long count once.
    pub interval_ns: u64,
    /// Of the mapped files, those of which only the first touch by each process is recorded.
    pub first_only_files: u64,
    /// Of the mapped files, those that no report of the kernel's names: none of their touches is
    /// recorded.
    pub unseen_files: u64,
    /// The bytes of `unseen_files`, from the first to the last mapped one.
    pub unseen_bytes: u64,
    /// Page faults that were lost because the kernel's buffer was full.
    pub lost_faults: u64,
}

/// A program that ran and could not be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct NotRecorded {
    /// Path of the program.
    pub path: String,
    /// Why: statically linked, setuid, ...
    pub reason: String,
    /// How often it ran.
    pub count: u64,
}
