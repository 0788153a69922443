//! Page faults of a program and of everything that it starts, by perf's software event. It needs no
//! hardware counter and no privilege, and the program never waits.
//!
//! Why not userfaultfd: it stops the faulting thread until somebody answers. With
//! UFFD_FEATURE_SIGBUS, `read` into a registered page fails with EFAULT, which changes what
//! programs do (tried on Linux 6.18, 2026-11). perf only observes: it adds 0.3 to 1 us to a fault
//! of 2.5 to 3.5 us on that machine. While it is switched off, faults cost nothing more.
//!
//! **Whose faults.** Where it is allowed (CAP_PERFMON, or `kernel.perf_event_paranoid` below 1),
//! the faults of all programs are recorded, and whoever reads them leaves out those of others. Else
//! events are those of the thread that starts the program, and children inherit them. The kernel
//! takes such events along in each switch between threads, whether they are on or off, which costs
//! 0.3 us of 2 us, and copies one for each CPU when a thread starts (two processes that pass a byte
//! to and fro: 1.02 of the time with the first, 1.17 with the second; Linux 6.18, 2026-11).
//!
//! An event that children inherit can have a ring only if it is bound to a CPU (perf_event_open(2),
//! EINVAL), so there is one event and one ring for each CPU in both cases. The events are opened,
//! and on, before the program starts; the agent's own faults are excluded by process id.
//! `enable_on_exec` would exclude them as well, but children of the program inherit it in most
//! cases: each further exec then switches on what was switched off (1 in 12 runs of the test below,
//! depending on whether the kernel swapped the two tasks' contexts).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use hither_ids::{Address, Pid, Tid};

use crate::{page_bytes, sysfs};

/// One page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time_ns: u64,
    /// The address that was touched.
    pub address: Address,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The CPU that it ran on.
    pub cpu: u32,
}

/// A source of page faults.
pub trait PageFaults: Send {
    /// Passes on the faults since the last call: those of one CPU in their order, one CPU after the
    /// other. Returns their number.
    fn drain(&mut self, sink: &mut dyn FnMut(Fault)) -> usize;

    /// Faults that were lost because a ring was full.
    fn lost(&self) -> u64;

    /// Switches the recording of faults on or off; while it is off, faults cost nothing more.
    fn watch(&mut self, on: bool) -> io::Result<()>;

    /// Whether this includes faults that the kernel makes on behalf of a program (`read` into fresh
    /// memory).
    fn sees_kernel(&self) -> bool;

    /// Online CPUs that are not covered: they came online after the start.
    fn unwatched_cpus(&self) -> usize;

    /// Whether it includes the faults of programs that the caller did not start.
    fn is_of_all_programs(&self) -> bool {
        false
    }
}

/// Why faults cannot be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The kernel, or a container's system call filter, refuses (EACCES, EPERM); with
    /// `kernel.perf_event_paranoid` where it can be read.
    NotPermitted {
        /// The setting: above 2 it refuses everybody without CAP_PERFMON.
        paranoid: Option<i32>,
    },
    /// The kernel has no perf events, or a container hides them (ENOSYS, ENOENT, EOPNOTSUPP).
    NoPerf,
    /// Not enough descriptors: each CPU needs one (EMFILE, ENFILE).
    NoDescriptors {
        /// How many CPUs there are.
        cpus: usize,
    },
    /// No lockable memory for the rings, not even for small ones (EPERM or ENOMEM of mmap).
    NoMemory,
    /// The list of CPUs cannot be read.
    NoCpus,
    /// Another error number.
    Other(i32),
}

impl std::fmt::Display for WatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WatchError::NotPermitted {
                paranoid: Some(level),
            } if *level > 2 => write!(
                f,
                "kernel.perf_event_paranoid is {level}; with 2 or less, or CAP_PERFMON, \
                 page faults can be watched"
            ),
            WatchError::NotPermitted { .. } => f.write_str(
                "perf_event_open is not permitted here: \
                 a container's filter of system calls, or a security module",
            ),
            WatchError::NoPerf => f.write_str("this kernel has no perf events, or hides them"),
            WatchError::NoDescriptors { cpus } => write!(
                f,
                "one descriptor for each of {cpus} CPUs is needed, \
                 which is more than may be open (ulimit -n)"
            ),
            WatchError::NoMemory => f.write_str(
                "no memory may be locked for the faults' rings \
                 (kernel.perf_event_mlock_kb, ulimit -l)",
            ),
            WatchError::NoCpus => f.write_str("/sys does not say which CPUs are online"),
            WatchError::Other(error) => {
                write!(
                    f,
                    "perf_event_open: {}",
                    io::Error::from_raw_os_error(*error)
                )
            }
        }
    }
}

impl std::error::Error for WatchError {}

/// `struct perf_event_attr` up to version 5 (Linux 4.8).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_interrupt: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const TYPE_SOFTWARE: u32 = 1;
const SW_PAGE_FAULTS: u64 = 2;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ADDR: u64 = 1 << 3;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_DATA_SRC: u64 = 1 << 15;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const FREQUENCY: u64 = 1 << 10;
const WATERMARK: u64 = 1 << 14;
const PRECISE_AT: u32 = 15;
/// Which mappings and processes come and go: `mmap`, `comm`, `task`, `mmap_data`, `mmap2` and
/// `comm_exec`, with the fields of a sample after each of these records (`sample_id_all`).
const ADDRESS_SPACES: u64 = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 17 | 1 << 18 | 1 << 23 | 1 << 24;
const USE_CLOCK: u64 = 1 << 25;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;

/// Offsets in the first page of a ring (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Pages of a ring: as many as perf_event_mlock_kb allows an unprivileged user on each CPU by
/// default (512 KiB and a page). That is room for 13 000 faults, which take at least 13 ms. Where
/// less is allowed, rings are halved down to the minimum.
const RING_PAGES: usize = 128;
/// Of the ring of a single thread, which is one of many.
const THREAD_RING_PAGES: usize = 16;
/// The least number of pages of a ring.
const RING_PAGES_MIN: usize = 4;

/// What is sampled: page faults, or what [`crate::pmu`] finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The kernel's number of the device.
    pub(crate) kind: u32,
    /// Which of its events.
    pub(crate) config: [u64; 3],
    pub(crate) every: SamplePeriod,
    /// How exactly the address has to be that of the sampled instruction, 0 to 3.
    pub(crate) precise: u8,
    /// Whether the rings say as well which mappings and processes come and go.
    pub(crate) with_address_spaces: bool,
    /// Whether samples say what served the access (`PERF_SAMPLE_DATA_SRC`). Those that a cache
    /// served are then left out.
    pub(crate) with_source: bool,
}

/// How often an event is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SamplePeriod {
    /// One in this many.
    Count(u64),
    /// This many a second on each CPU.
    Second(u64),
}

impl Event {
    /// Each page fault.
    pub(crate) const PAGE_FAULTS: Event = Event {
        kind: TYPE_SOFTWARE,
        config: [SW_PAGE_FAULTS, 0, 0],
        every: SamplePeriod::Count(1),
        precise: 0,
        with_address_spaces: false,
        with_source: false,
    };
}

/// Whose events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Those of the calling thread, and of what it starts.
    Started,
    /// Those of one thread alone; 0 is this one.
    Thread(Tid),
    /// Those of all programs.
    AllPrograms,
}

/// The hypervisor is not excluded: on x86 that says nothing, and AMD's IBS refuses it.
fn attributes(event: Event, with_kernel: bool, scope: Scope) -> Attributes {
    let kernel = if with_kernel { 0 } else { EXCLUDE_KERNEL };
    let inherit = if scope == Scope::Started { INHERIT } else { 0 };
    let (sample_period, frequency) = match event.every {
        SamplePeriod::Count(count) => (count, 0),
        SamplePeriod::Second(times) => (times, FREQUENCY),
    };
    let precise = u64::from(event.precise.min(3)) << PRECISE_AT;
    let spaces = if event.with_address_spaces {
        ADDRESS_SPACES
    } else {
        0
    };
    let source = if event.with_source {
        SAMPLE_DATA_SRC
    } else {
        0
    };
    Attributes {
        kind: event.kind,
        size: size_of::<Attributes>() as u32,
        config: event.config[0],
        config1: event.config[1],
        config2: event.config[2],
        sample_period,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR | SAMPLE_CPU | source,
        flags: inherit | WATERMARK | USE_CLOCK | kernel | frequency | precise | spaces,
        // Nothing sleeps on the descriptor, so nothing ever has to be woken.
        wakeup: u32::MAX,
        clock: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    }
}

/// `perf_event_open` of the events on a CPU, or on any, which is for a single thread.
fn open_event(
    event: Event,
    scope: Scope,
    cpu: Option<u32>,
    with_kernel: bool,
) -> Result<OwnedFd, i32> {
    let attributes = attributes(event, with_kernel, scope);
    let thread = match scope {
        Scope::Started => 0,
        Scope::Thread(thread) => thread.raw(),
        Scope::AllPrograms => -1,
    };
    let cpu = cpu.map_or(-1, |cpu| cpu as i32);
    // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            cpu,
            -1,
            FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO));
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn paranoid() -> Option<i32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}

/// Opens an event on each CPU; with the kernel's own faults if that is allowed on all of them,
/// otherwise without, because a difference between CPUs would be a bias. A CPU that went offline
/// since the list was read is left out.
fn open_all<T>(
    cpus: &[u32],
    mut open: impl FnMut(u32, bool) -> Result<T, i32>,
    paranoid: impl Fn() -> Option<i32>,
) -> Result<(Vec<(u32, T)>, bool), WatchError> {
    let mut open_each = |with_kernel| {
        let events = cpus.iter().map(|&cpu| match open(cpu, with_kernel) {
            Ok(event) => Ok(Some((cpu, event))),
            Err(libc::ENODEV | libc::ENXIO) => Ok(None),
            Err(error) => Err(error),
        });
        events
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>, i32>>()
    };
    let (events, with_kernel) = match open_each(true) {
        Err(libc::EACCES | libc::EPERM) => (open_each(false), false),
        events => (events, true),
    };
    match events {
        Ok(events) if events.is_empty() => Err(WatchError::NoCpus),
        Ok(events) => Ok((events, with_kernel)),
        Err(libc::EACCES | libc::EPERM) => Err(WatchError::NotPermitted {
            paranoid: paranoid(),
        }),
        Err(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => Err(WatchError::NoPerf),
        Err(libc::EMFILE | libc::ENFILE) => Err(WatchError::NoDescriptors { cpus: cpus.len() }),
        Err(libc::ENOMEM) => Err(WatchError::NoMemory),
        Err(error) => Err(WatchError::Other(error)),
    }
}

/// The events of all CPUs and their rings.
#[derive(Debug)]
pub struct PerfRings {
    rings: Vec<Ring>,
    scope: Scope,
    with_kernel: bool,
    lost: u64,
    own: Pid,
}

impl PerfRings {
    /// Watches page faults: of all programs where that is allowed, else of what the calling thread
    /// starts from now on.
    pub fn open() -> Result<PerfRings, WatchError> {
        PerfRings::of_programs(Event::PAGE_FAULTS)
    }

    /// As [`PerfRings::open`], for an event that costs other programs next to nothing.
    pub(crate) fn of_programs(event: Event) -> Result<PerfRings, WatchError> {
        match PerfRings::on_each_cpu(&[event], Scope::AllPrograms) {
            Err(WatchError::NotPermitted { .. }) => PerfRings::of(&[event]),
            opened => opened,
        }
    }

    /// Watches events of what the calling thread starts from now on.
    pub(crate) fn of(events: &[Event]) -> Result<PerfRings, WatchError> {
        PerfRings::on_each_cpu(events, Scope::Started)
    }

    fn on_each_cpu(events: &[Event], scope: Scope) -> Result<PerfRings, WatchError> {
        let cpus = sysfs::online_cpus().map_err(|error| match error.raw_os_error() {
            Some(error) if error != libc::ENOENT => WatchError::Other(error),
            _ => WatchError::NoCpus,
        })?;
        let open = |cpu, with_kernel| {
            let each = events.iter();
            each.map(|&event| open_event(event, scope, Some(cpu), with_kernel))
                .collect::<Result<Vec<_>, i32>>()
        };
        let (by_cpu, with_kernel) = open_all(&cpus, open, paranoid)?;
        let opened = by_cpu
            .into_iter()
            .flat_map(|(cpu, events)| events.into_iter().map(move |event| (cpu, event)));
        let rings = PerfRings::map(opened.collect(), RING_PAGES)?;
        Ok(PerfRings {
            rings,
            scope,
            with_kernel,
            lost: 0,
            own: Pid::own(),
        })
    }

    /// Watches the calling thread alone.
    pub(crate) fn of_this_thread(event: Event) -> Result<PerfRings, WatchError> {
        PerfRings::on_any_cpu(event, Tid(0), true, RING_PAGES)
    }

    /// Watches the page faults of one thread of another process alone, those of the kernel on its
    /// behalf left out.
    pub fn of_thread(tid: Tid) -> Result<PerfRings, WatchError> {
        PerfRings::on_any_cpu(Event::PAGE_FAULTS, tid, false, THREAD_RING_PAGES)
    }

    fn on_any_cpu(
        event: Event,
        tid: Tid,
        with_kernel: bool,
        pages: usize,
    ) -> Result<PerfRings, WatchError> {
        let scope = Scope::Thread(tid);
        let open = |_, allowed| open_event(event, scope, None, with_kernel && allowed);
        let (events, allowed) = open_all(&[0], open, paranoid)?;
        Ok(PerfRings {
            rings: PerfRings::map(events, pages)?,
            scope,
            with_kernel: with_kernel && allowed,
            lost: 0,
            own: Pid(0),
        })
    }

    fn map(events: Vec<(u32, OwnedFd)>, pages: usize) -> Result<Vec<Ring>, WatchError> {
        let mapped = |(cpu, fd)| Ring::map(cpu, fd, pages).ok_or(WatchError::NoMemory);
        events.into_iter().map(mapped).collect()
    }
}

impl PerfRings {
    /// Passes on all records since the last call but those of losses, each CPU's in their order.
    pub(crate) fn records(&mut self, sink: &mut dyn FnMut(RingRecord<'_>)) {
        for ring in &mut self.rings {
            self.lost += ring.drain(sink);
        }
    }

    /// The process whose events are to be left out.
    pub(crate) fn own(&self) -> Pid {
        self.own
    }
}

impl PageFaults for PerfRings {
    fn drain(&mut self, sink: &mut dyn FnMut(Fault)) -> usize {
        let (mut faults, own) = (0, self.own);
        self.records(&mut |record| {
            if let Some(fault) = record.fault()
                && fault.pid != own
            {
                faults += 1;
                sink(fault);
            }
        });
        faults
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn watch(&mut self, on: bool) -> io::Result<()> {
        let request = if on { IOC_ENABLE } else { IOC_DISABLE };
        for ring in &self.rings {
            // SAFETY: the request takes no memory, and the descriptor is open as long as the ring.
            if unsafe { libc::ioctl(ring.fd.as_raw_fd(), request, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    fn sees_kernel(&self) -> bool {
        self.with_kernel
    }

    fn unwatched_cpus(&self) -> usize {
        let online = sysfs::online_cpus().unwrap_or_default();
        let watched = |cpu: &u32| self.rings.iter().any(|ring| ring.cpu == *cpu);
        online.iter().filter(|cpu| !watched(cpu)).count()
    }

    fn is_of_all_programs(&self) -> bool {
        self.scope == Scope::AllPrograms
    }
}

/// One CPU's event and its ring: a page of control words, then a power of two of pages that records
/// wrap around in.
#[derive(Debug)]
struct Ring {
    cpu: u32,
    fd: OwnedFd,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is not tied to a thread, and it is reached through one `Ring` alone.
unsafe impl Send for Ring {}

impl Ring {
    fn map(cpu: u32, fd: OwnedFd, mut pages: usize) -> Option<Ring> {
        let page = page_bytes() as usize;
        while pages >= RING_PAGES_MIN {
            if let Ok(base) = crate::syscalls::map((1 + pages) * page, Some(fd.as_raw_fd())) {
                let bytes = pages * page;
                return Some(Ring {
                    cpu,
                    fd,
                    base,
                    bytes,
                });
            }
            pages /= 2;
        }
        None
    }

    fn mapped_bytes(&self) -> usize {
        self.bytes + page_bytes() as usize
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is one of two within the first page of the mapping.
        let word = unsafe { self.base.add(offset) };
        // SAFETY: a word that the kernel reads and writes whole, aligned, in a mapping that lives
        // as long as `self`.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// The word at a position, which wraps around.
    fn word(&self, position: u64) -> u64 {
        let offset = (position % self.bytes as u64) as usize & !7;
        // SAFETY: the records begin after the first page, and `offset` is within their `bytes`.
        let word = unsafe { self.base.add(self.mapped_bytes() - self.bytes + offset) };
        // SAFETY: aligned and mapped as long as `self`; the kernel does not write between tail and
        // head.
        unsafe { word.cast::<u64>().read_volatile() }
    }

    /// Passes the records on; returns how many were lost.
    fn drain(&mut self, sink: &mut dyn FnMut(RingRecord<'_>)) -> u64 {
        let head = self.control(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.control(DATA_TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        while tail < head {
            let (kind, flags, bytes) = header(self.word(tail));
            if bytes < 8 || tail + bytes > head {
                // The kernel does not write this: nothing after it can be parsed.
                tail = head;
                lost += 1;
                break;
            }
            match kind {
                RECORD_LOST => lost += self.word(tail + 16),
                RECORD_LOST_SAMPLES => lost += self.word(tail + 8),
                _ => sink(RingRecord {
                    kind,
                    flags,
                    words: bytes / 8,
                    ring: self,
                    start: tail,
                }),
            }
            tail += bytes;
        }
        self.control(DATA_TAIL).store(tail, Ordering::Release);
        lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing refers to it any more.
        unsafe { crate::syscalls::unmap(self.base, self.mapped_bytes()) };
    }
}

/// Kind, flags and size of the record that begins with this word.
fn header(word: u64) -> (u32, u16, u64) {
    (word as u32, (word >> 32) as u16, word >> 48)
}

/// A record in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingRecord<'a> {
    pub(crate) kind: u32,
    /// `misc` of its header.
    pub(crate) flags: u16,
    /// Its length, with the word of its header.
    pub(crate) words: u64,
    ring: &'a Ring,
    start: u64,
}

impl RingRecord<'_> {
    /// A word; 0 is the header.
    pub(crate) fn word(&self, at: u64) -> u64 {
        self.ring.word(self.start + 8 * at)
    }

    /// The page fault or access, if it is one. Accesses that a cache served are none.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let served = (self.words > 5).then(|| DataSource(self.word(5)));
        let of_memory = served.is_none_or(DataSource::may_be_memory);
        (self.kind == RECORD_SAMPLE && of_memory)
            .then(|| sample([1, 2, 3, 4].map(|at| self.word(at))))
    }
}

/// The sample in the four words after a header, in perf's fixed order of fields.
fn sample([ids, time_ns, address, cpu]: [u64; 4]) -> Fault {
    Fault {
        time_ns,
        address: Address(address),
        pid: Pid(ids as u32),
        tid: Tid((ids >> 32) as u32),
        cpu: cpu as u32,
    }
}

/// What served a sampled access (`union perf_mem_data_src` of linux/perf_event.h).
#[derive(Clone, Copy, Debug)]
struct DataSource(u64);

impl DataSource {
    /// `PERF_MEM_OP_*` from bit 0 on: neither a load nor a store is known.
    const LOAD_OR_STORE: u64 = 0b110;
    /// `PERF_MEM_LVL_*` from bit 5 on. What the levels say is a hit.
    const HIT: u64 = 0x02 << 5;
    /// Memory of this node or another, and other nodes' caches.
    const MEMORY: u64 = (0x80 | 0x100 | 0x200 | 0x400 | 0x800) << 5;
    /// Caches of this node: L1, the line fill buffer, L2, L3.
    const CACHES: u64 = (0x08 | 0x10 | 0x20 | 0x40) << 5;

    /// Whether it is an access to memory as far as it says: a load that memory or another node's
    /// cache served; a store that missed the L1, of which processors do not say more.
    fn may_be_memory(self) -> bool {
        let is_access = self.0 == 0 || self.0 & DataSource::LOAD_OR_STORE != 0;
        let hit_memory = self.0 & DataSource::MEMORY != 0;
        let hit_cache = self.0 & DataSource::HIT != 0 && self.0 & DataSource::CACHES != 0;
        is_access && (hit_memory || !hit_cache)
    }
}

#[cfg(test)]
mod tests;
