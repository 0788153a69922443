//! Loads and attaches the programs, and reads their ring.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::{Btf, Ebpf, EbpfLoader};
use hither_ids::Pid;
use hither_kernel::page_bytes;
use hither_kernel::process::monotonic_ns;
use hither_kernel::process_tree::Transferred;

use crate::attach::Attached;
use crate::cgroup::Cgroup;
use crate::error::Error;
use crate::event::{Event, File, Kind, What, number};
use crate::obstacle::Obstacle;
use crate::options::{Options, Scope};
use crate::processes::{children_of, is_alive};
use crate::source::Source;
use crate::stack::{KnownStack, KnownStacks, STACK_BYTES_MAX, StackPlace};

/// The programs, as compiled for this processor. aya reads words of it in place.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) const OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/observer.x86_64.bpf.o");
#[cfg(target_arch = "aarch64")]
pub(crate) const OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/observer.arm64.bpf.o");

/// A `file_key` of `bpf/observer.h`, as bytes.
type FileMapKey = [u8; 16];

/// The value of a file there that is excluded.
const FILE_EXCLUDED: u8 = 2;

/// The longest time between two drains, in nanoseconds.
const DRAIN_PERIOD_MAX_NS: u64 = 100_000_000;

/// Of the processes of [`Scope::Processes`], so many stacks are known at the same time.
const KNOWN_STACKS_OF_PROCESSES_MAX: u32 = 1 << 13;

/// The shortest time between two drains, in nanoseconds.
const DRAIN_PERIOD_MIN_NS: u64 = 1_000_000;

/// Observes until it is dropped or closed: the programs are detached with it, also when this
/// process is killed.
pub struct Observer {
    programs: Ebpf,
    ring: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
    ended: PerCpuArray<MapData, [u64; 3]>,
    processes: HashMap<MapData, u32, u8>,
    known_stacks: KnownStacks,
    files: HashMap<MapData, FileMapKey, u8>,
    told_of: HashMap<MapData, u32, u64>,
    attached: Attached,
    damaged: u64,
    /// Processes that are followed until the next drain.
    have_ended: BTreeSet<Pid>,
    pace: Pace,
}

/// Events that were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events about pages that found the ring full, by kind.
    pub pages: Vec<(Kind, u64)>,
    /// Files that found the ring full: they are reported with the next event about them.
    pub files: u64,
    /// Processes whose beginning or end was not reported, or that are not followed since there are
    /// too many.
    pub processes: u64,
    /// Bytes from the ring that were no event.
    pub damaged: u64,
}

impl Lost {
    /// All of them.
    pub fn events(&self) -> u64 {
        let pages = self.pages.iter().map(|(_, count)| count);
        self.files + self.processes + self.damaged + pages.sum::<u64>()
    }
}

impl Observer {
    /// Observes from now on what `options` say.
    pub fn new(options: &Options) -> Result<Observer, Error> {
        if let Some(obstacle) = Obstacle::all().next() {
            return Err(Error::Obstacle(obstacle));
        }
        let btf = Btf::from_sys_fs().map_err(Error::Btf)?;
        let mut programs = load(options, &btf)?;
        let mut observer = Observer {
            ring: map(&mut programs, "ring")?,
            lost: map(&mut programs, "lost")?,
            ended: map(&mut programs, "ended")?,
            processes: map(&mut programs, "processes")?,
            known_stacks: KnownStacks::new(map(&mut programs, "known_stacks")?),
            files: map(&mut programs, "files")?,
            told_of: map(&mut programs, "told_of")?,
            pace: Pace::new(options.ring_bytes),
            attached: Attached::default(),
            damaged: 0,
            have_ended: BTreeSet::new(),
            programs,
        };
        let mut devices: HashMap<MapData, u32, u8> = map(&mut observer.programs, "devices")?;
        for device in &options.devices {
            devices.insert(device.0, 1, 0).map_err(refused("devices"))?;
        }
        // First, so that no process begins unseen.
        observer.attached.processes(&mut observer.programs, &btf)?;
        if let Scope::Processes(all) = &options.scope {
            for process in all {
                observer.follow(*process)?;
            }
        }
        observer
            .attached
            .kinds(&mut observer.programs, options, &btf)?;
        Ok(observer)
    }

    /// Reports nothing of pages from now on, which costs nobody anything, or reports again.
    /// Processes are followed meanwhile.
    pub fn pause(&mut self, paused: bool) -> Result<(), Error> {
        self.attached.pause(&mut self.programs, paused)
    }

    /// By what a kind of events is seen. None if it is not.
    pub fn source(&self, kind: Kind) -> Option<Source> {
        let mut sources = self.attached.sources.iter();
        sources.find_map(|(of, source)| (*of == kind).then_some(*source))
    }

    /// The kinds that were asked for and are not seen, and why. Reads are not among them: without
    /// these, nothing is observed.
    pub fn unseen(&self) -> &[(Kind, Error)] {
        &self.attached.unseen
    }

    /// Observes this process and those below it, too, by its number in the initial pid namespace.
    /// What they start from now on is observed without that.
    pub fn follow(&mut self, process: Pid) -> Result<(), Error> {
        let mut new = BTreeSet::from([process]);
        let mut followed = BTreeSet::new();
        // A process that is not followed yet may start another one meanwhile.
        while !new.is_empty() {
            for process in &new {
                self.processes
                    .insert(process.0, 1, 0)
                    .map_err(refused("processes"))?;
                // Its end was not seen: the number may become another process's.
                if !is_alive(*process) {
                    let _ = self.processes.remove(&process.0);
                }
            }
            followed.append(&mut new);
            new = &children_of(&followed) - &followed;
        }
        Ok(())
    }

    /// Passes on what there is, up to the first event after `until_ns` (CLOCK_MONOTONIC). Returns
    /// the number of events. The events of one thread come in order.
    pub fn drain(&mut self, until_ns: u64, take: &mut dyn FnMut(Event<'_>)) -> usize {
        // Events may come faster than they are taken.
        let until_ns = until_ns.min(monotonic_ns());
        let (mut count, mut bytes) = (0, 0);
        // By now the last threads of those that had ended at the last drain have, too.
        let had_ended = std::mem::take(&mut self.have_ended);
        for process in had_ended {
            let _ = self.processes.remove(&process.0);
        }
        while let Some(item) = self.ring.next() {
            bytes += item.len() as u64;
            let Some(event) = Event::decode(&item) else {
                self.damaged += 1;
                continue;
            };
            match event.what {
                What::Exit => drop(self.have_ended.insert(event.process)),
                // It has the number of one that has ended.
                What::Fork { .. } => drop(self.have_ended.remove(&event.process)),
                _ => {}
            }
            let time_ns = event.time_ns;
            count += 1;
            take(event);
            if time_ns > until_ns {
                break;
            }
        }
        self.pace.drained(monotonic_ns(), bytes);
        count
    }

    /// Becomes ready (epoll(7), edge-triggered) when a stack was copied. Who follows it then finds
    /// what is mapped in its process, which may soon end.
    pub fn copied_stacks(&self) -> std::io::Result<OwnedFd> {
        self.ring.as_fd().try_clone_to_owned()
    }

    /// From now on, events with this stack have its name.
    pub fn know_stack(&mut self, stack: &KnownStack) -> Result<(), Error> {
        self.known_stacks
            .insert(stack)
            .map_err(refused("known_stacks"))
    }

    /// The stack there is not known any more: its process has ended, or is another program.
    pub fn forget_stack(&mut self, place: &StackPlace) {
        self.known_stacks.remove(place);
    }

    /// Since then, somebody else tells of the calls of this process: events in them are left out,
    /// where [`Options::calls`] asks for these, until it runs another program.
    pub fn leave_out_calls(&mut self, process: Pid, since_ns: u64) -> Result<(), Error> {
        let inserted = self.told_of.insert(process.0, since_ns, 0);
        inserted.map_err(refused("told_of"))
    }

    /// From now on, nothing is reported of this file, where [`Options::excludes`] says so. Events
    /// that are on their way still come. The kernel's side remembers the files that were used last:
    /// one that it has forgotten is reported anew.
    pub fn exclude(&mut self, file: File) -> Result<(), Error> {
        self.files
            .insert(file_map_key(file), FILE_EXCLUDED, 0)
            .map_err(refused("files"))
    }

    /// When the ring has to be drained at the latest (CLOCK_MONOTONIC), so that nothing is lost if
    /// events come four times as fast as they did.
    pub fn deadline_ns(&self) -> u64 {
        self.pace.deadline_ns
    }

    /// What was lost so far.
    pub fn lost(&self) -> Lost {
        let of = |number: u8| {
            let counts = self.lost.get(&u32::from(number), 0);
            counts.map_or(0, |counts| counts.iter().sum::<u64>())
        };
        Lost {
            pages: Kind::all().map(|kind| (kind, of(kind as u8))).collect(),
            files: of(number::FILE),
            processes: of(number::FORK) + of(number::EXEC) + of(number::EXIT),
            damaged: self.damaged,
        }
    }

    /// What observed threads that have ended had transferred in their lives.
    pub fn transferred_by_ended(&self) -> Transferred {
        let mut sum = Transferred::default();
        let of_processors = self.ended.get(&0, 0);
        for [called_bytes, read_bytes, written_bytes] in
            of_processors.iter().flat_map(|all| all.iter().copied())
        {
            sum.add(Transferred {
                called_bytes,
                read_bytes,
                written_bytes,
            });
        }
        sum
    }

    /// Nothing new is observed from now on. What there is can still be drained.
    pub fn close(&mut self) {
        self.attached.close();
    }
}

fn load(options: &Options, btf: &Btf) -> Result<Ebpf, Error> {
    let own = std::process::id();
    let started = u32::from(options.scope == Scope::Started);
    let scope = options.scope.number();
    let stack_bytes = options.stack_bytes.min(STACK_BYTES_MAX);
    let devices = u32::from(!options.devices.is_empty());
    let files = u32::from(options.files);
    let excluded = u32::from(options.excludes);
    let others = u32::from(options.others);
    let calls = u32::from(options.calls);
    let sampled_below = options.sampling.below();
    let cgroup = match &options.scope {
        Scope::Cgroup(cgroup) => cgroup.clone(),
        _ => Cgroup::default(),
    };
    let memory_hierarchy = u32::from(cgroup.is_memory_hierarchy);
    let page_shift = page_bytes().trailing_zeros();
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(btf))
        // Task storage: only the programs use it.
        .allow_unsupported_maps()
        .override_global("own_process", &own, true)
        .override_global("scope", &scope, true)
        .override_global("stack_bytes", &stack_bytes, true)
        .override_global("with_devices", &devices, true)
        .override_global("with_files", &files, true)
        .override_global("with_excluded", &excluded, true)
        .override_global("with_others", &others, true)
        .override_global("with_calls", &calls, true)
        .override_global("with_started", &started, true)
        .override_global("sampled_below", &sampled_below, true)
        .override_global("memory_hierarchy", &memory_hierarchy, true)
        .override_global("cgroup_id", &cgroup.id, true)
        // Where pages have one size, it is compiled in.
        .override_global("page_shift", &page_shift, cfg!(target_arch = "aarch64"))
        .map_max_entries("ring", options.ring_bytes)
        .map_max_entries("told_of", options.files_max)
        .map_max_entries("files", options.files_max);
    if stack_bytes == 0 {
        // No program uses them then.
        loader.map_max_entries("scratch", 1);
        loader.map_max_entries("known_stacks", 1);
    } else {
        let stacks_max = match options.scope {
            Scope::Processes(_) => options.stacks_max.min(KNOWN_STACKS_OF_PROCESSES_MAX),
            _ => options.stacks_max,
        };
        loader.map_max_entries("known_stacks", stacks_max);
    }
    loader.load(OBJECT).map_err(Error::Load)
}

fn map<T: TryFrom<Map, Error = MapError>>(
    programs: &mut Ebpf,
    name: &'static str,
) -> Result<T, Error> {
    let map = programs.take_map(name).ok_or(Error::Missing(name))?;
    T::try_from(map).map_err(refused(name))
}

fn file_map_key(file: File) -> FileMapKey {
    let mut key = FileMapKey::default();
    key[..8].copy_from_slice(&file.inode.to_ne_bytes());
    key[8..12].copy_from_slice(&file.device.0.to_ne_bytes());
    key[12..].copy_from_slice(&file.generation.to_ne_bytes());
    key
}

fn refused(name: &'static str) -> impl Fn(MapError) -> Error {
    move |source| Error::Map { name, source }
}

/// How often to drain, by how fast events come.
struct Pace {
    ring_bytes: u64,
    drained_ns: u64,
    deadline_ns: u64,
}

impl Pace {
    fn new(ring_bytes: u32) -> Pace {
        let now_ns = monotonic_ns();
        Pace {
            ring_bytes: u64::from(ring_bytes),
            drained_ns: now_ns,
            deadline_ns: now_ns + DRAIN_PERIOD_MIN_NS,
        }
    }

    /// At `now_ns`, so many bytes were taken from the ring. The next drain is due when a quarter of
    /// the ring will be full.
    fn drained(&mut self, now_ns: u64, bytes: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.drained_ns);
        let quarter = u128::from(self.ring_bytes / 4);
        let period_ns = u128::from(elapsed_ns) * quarter / u128::from(bytes.max(1));
        let period_ns = u64::try_from(period_ns).unwrap_or(u64::MAX);
        self.drained_ns = now_ns;
        self.deadline_ns = now_ns + period_ns.clamp(DRAIN_PERIOD_MIN_NS, DRAIN_PERIOD_MAX_NS);
    }
}
