//! What the kernel reports of the page cache, as a source of events: it sees programs that have no
//! library of ours, such as static ones, and those that run already.
//!
//! [`Observer`] has the events. Here they become the records that the library would have made. A
//! process is announced by its first event, a file by its first use. Pages stand for bytes: of a
//! read it is known which pages it needed. [`stacks`] has the call sites. Where one is not known, a
//! program and a file stand for it.

mod address_space;
mod alarm;
mod arch;
mod call;
mod elf;
mod guess;
mod names;
mod stacks;
mod walk;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::hash::Hasher;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread;

use hither_core::references::INDEX_MAX;
use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::file_id::FileId;
use hither_kernel::page_bytes;
use hither_kernel::pid_namespace::PidNamespace;
use hither_kernel::process::monotonic_ns;
use hither_kernel::process_tree::Transferred;
use hither_kernel_events::event::{Event, File, Kind, OwnNumbers, What};
use hither_kernel_events::stack::STACK_BYTES_MAX;
use hither_kernel_events::{Observer, Options, Scope, Source, UserStack};
use hither_session::record::{IN_CALL, Op, Record, UNKNOWN_SITE, USED_FILE, signature};
use hither_session::session::{Lost, RingInfo};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use self::alarm::Alarm;
use self::names::Names;
use self::stacks::Stacks;
use crate::error::{Error, Result};
use crate::event_source::{EventSource, TakeRecord};
use crate::file_filter::FileFilter;

/// The library's rings have the indices below.
const FIRST_INDEX: usize = 1 << 16;

/// Program images of the library have lower numbers.
const FIRST_IMAGE: u32 = 1 << 31;

/// Whether it was the kernel that announced the program image of this number.
pub(crate) fn is_kernels_image(number: u32) -> bool {
    number >= FIRST_IMAGE
}

/// Whether records of this thread are the kernel's.
pub(crate) fn is_kernels(ring: &RingInfo) -> bool {
    ring.index >= OTHERS.index
}

/// As much of a program's arguments as the library sends.
const ARGUMENTS_BYTES_MAX: usize = 1024;

/// Longer than a fault takes from the mapping of pages around the address to the look-up of the
/// page itself.
const FAULT_NS: u64 = 5_000_000;

/// No page that a trace can have has a higher number.
const PAGES_MAX: u64 = INDEX_MAX as u64;

/// Longer reads become several: a row has at most what one call can move.
const PAGES_OF_A_READ_MAX: u64 = 1 << 18;

/// In place of the thread of a program that is not observed.
const OTHERS: RingInfo = RingInfo {
    index: FIRST_INDEX - 1,
    pid: Pid(0),
    tid: Tid(0),
    namespace: PidNamespace::OWN,
    generation: 0,
};

/// Of the type of a file in its mode, and a regular file's.
const TYPE_OF_FILE: u32 = 0o170_000;
const REGULAR_FILE: u32 = 0o100_000;

/// See the module.
pub(crate) struct KernelSource {
    observer: Observer,
    named: Named,
    /// Set up by the first drain.
    alarm: Option<Alarm>,
    /// Nothing new comes.
    is_closed: bool,
}

/// A touch, as long as the kernel may still say that it was another page that was touched.
struct HeldTouch {
    ring: RingInfo,
    time_ns: u64,
    access: Record<'static>,
}

impl HeldTouch {
    fn give(self, take: &mut TakeRecord<'_>) {
        take(&self.ring, self.access);
    }
}

/// What is to be reported.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) scope: Scope,
    pub(crate) files: FileFilter,
    /// Also what other programs use of the files.
    pub(crate) others: bool,
    /// Also what comes into the page cache.
    pub(crate) inserted: bool,
    /// Also what goes, but by this process.
    pub(crate) evicted: bool,
    /// The most frames of a call site. With 0, one is a program and a file. None: there are none.
    pub(crate) frames_max: Option<usize>,
    /// Programs have the library, too: processes have the numbers that it knows, those of their own
    /// namespaces.
    pub(crate) beside_library: bool,
}

/// What has got a name already.
struct Named {
    /// What processes run, as far as it was read while they lived.
    abouts: FxHashMap<Pid, About>,
    images: FxHashMap<Pid, ProcessImage>,
    /// How many there were.
    image_count: u32,
    /// Processes that this one has started, and that run no program of their own yet.
    starting: FxHashSet<Pid>,
    /// Processes have the numbers of their own pid namespaces.
    beside_library: bool,
    /// By the index of a thread: the touch that it has last caused to map pages.
    held: FxHashMap<usize, HeldTouch>,
    /// Of threads that have ended: the indices are used again.
    free: VecDeque<RingInfo>,
    /// How many indices there are.
    index_count: usize,
    /// Files that were reported. None of those that are not recorded.
    files: FxHashMap<File, Option<FileKey>>,
    /// Which of them are.
    wanted: FileFilter,
    /// Those of which the kernel is to report no more.
    to_exclude: Vec<File>,
    /// Events of files whose names were lost, where it depends on the name what is recorded.
    unnamed: u64,
    /// Events that cannot be.
    damaged: u64,
    /// Programs, and the files that each uses.
    sites: FxHashSet<(u64, FileKey)>,
    stacks: Stacks,
    /// Accesses have call sites.
    with_sites: bool,
    modules: FxHashSet<u64>,
    names: Names,
}

impl Named {
    fn new(frames_max: Option<usize>, beside_library: bool, wanted: FileFilter) -> Named {
        Named {
            starting: FxHashSet::default(),
            beside_library,
            held: FxHashMap::default(),
            abouts: FxHashMap::default(),
            images: FxHashMap::default(),
            image_count: 0,
            free: VecDeque::new(),
            index_count: 0,
            files: FxHashMap::default(),
            wanted,
            to_exclude: Vec::new(),
            unnamed: 0,
            damaged: 0,
            sites: FxHashSet::default(),
            stacks: Stacks::new(frames_max.unwrap_or(0)),
            with_sites: frames_max.is_some(),
            modules: FxHashSet::default(),
            names: Names::new(),
        }
    }
}

/// The site of an event: of none, without any.
#[derive(Clone, Copy, Debug, Default)]
struct EventSite {
    signature: u64,
    /// Flags of its accesses.
    flags: u16,
}

/// What a process runs.
#[derive(Debug)]
struct ProcessImage {
    number: u32,
    /// The key of the program's file.
    program: u64,
    exe: PathBuf,
    threads: FxHashMap<Tid, RingInfo>,
}

impl KernelSource {
    /// # Errors
    /// The kernel's events cannot be had, or not those that are needed.
    pub(crate) fn observe(observed: &Observed) -> Result<KernelSource> {
        let of_programs = [Kind::Read, Kind::Fault, Kind::Map, Kind::Dirty];
        let kinds = of_programs.into_iter();
        let kinds = kinds.chain(observed.inserted.then_some(Kind::Insert));
        let kinds = kinds.chain(observed.evicted.then_some(Kind::Evict));
        let options = Options {
            scope: observed.scope.clone(),
            kinds: kinds.collect(),
            others: observed.others,
            calls: observed.beside_library,
            devices: observed.files.devices.clone(),
            excludes: observed.files.is_by_name(),
            stack_bytes: match observed.frames_max {
                None | Some(0) => 0,
                Some(_) => STACK_BYTES_MAX,
            },
            ..Options::default()
        };
        let group = MemoryGroup::of_this_process().ok().flatten();
        let limit_bytes = group.and_then(|group| group.limit_bytes());
        let observer = Observer::new(&options.within(limit_bytes.unwrap_or(u64::MAX)));
        let observer = observer.map_err(Error::Observer)?;
        // System calls do not say what others do, and some kernels not what comes in.
        let is_by_calls = observer.source(Kind::Read) == Some(Source::SystemCalls);
        if observed.others && (is_by_calls || !observer.unseen().is_empty()) {
            return Err(Error::KernelSaysTooLittle);
        }
        let frames_max = observed.frames_max;
        let processes = match &observed.scope {
            Scope::Processes(processes) => &processes[..],
            Scope::Everything | Scope::Started | Scope::Cgroup(_) => &[],
        };
        let wanted = observed.files.clone();
        let mut named = Named::new(frames_max, observed.beside_library, wanted);
        for &process in processes {
            named.look_up(process);
            named.stacks.prepare(process);
        }
        Ok(KernelSource {
            observer,
            named,
            alarm: None,
            is_closed: false,
        })
    }
}

impl KernelSource {
    /// Whether the kernel has no events of touches of mapped files.
    pub(crate) fn lacks_touches(&self) -> bool {
        let mut unseen = self.observer.unseen().iter();
        unseen.any(|(kind, _)| matches!(kind, Kind::Fault | Kind::Map))
    }
}

impl EventSource for KernelSource {
    fn drain(&mut self, until_ns: u64, take: &mut TakeRecord<'_>) -> usize {
        let KernelSource {
            observer,
            named,
            alarm,
            is_closed,
        } = self;
        if alarm.is_none() && named.stacks.are_asked_for() {
            // Without, processes that soon end have no call sites.
            let set_up = |copied| Alarm::new(copied, thread::current());
            *alarm = observer.copied_stacks().and_then(set_up).ok();
        }
        let count = observer.drain(until_ns, &mut |event| named.take(&event, take));
        let until_ns = if *is_closed {
            u64::MAX
        } else {
            until_ns.min(monotonic_ns()).saturating_sub(FAULT_NS)
        };
        named.give_held(until_ns, take);
        named.stacks.tell(observer);
        for file in named.to_exclude.drain(..) {
            // What is reported of it all the same is left out here.
            let _ = observer.exclude(file);
        }
        count
    }

    fn deadline_ns(&self) -> Option<u64> {
        Some(self.observer.deadline_ns())
    }

    fn lost(&self) -> Lost {
        let lost = self.observer.lost();
        let events = lost.events() - lost.damaged + self.named.unnamed;
        Lost {
            events,
            // Of each at least a page.
            bytes: events.saturating_mul(page_bytes()),
            damaged: lost.damaged + self.named.damaged,
            ..Lost::default()
        }
    }

    fn transferred_by_ended(&self) -> Option<Transferred> {
        Some(self.observer.transferred_by_ended())
    }

    fn pause(&mut self, paused: bool) -> bool {
        self.observer.pause(paused).is_ok()
    }

    fn leave_out_calls(&mut self, process: Pid, since_ns: u64) {
        // Without, they come, and are left out later.
        let _ = self.observer.leave_out_calls(process, since_ns);
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.observer.close();
    }
}

impl Named {
    /// Makes records of an event.
    fn take(&mut self, event: &Event<'_>, take: &mut TakeRecord<'_>) {
        match event.what {
            What::Pages {
                kind,
                file,
                first_page,
                last_page,
                same_fault,
                is_outside,
                is_in_call,
                stack,
            } => {
                let object = match self.files.get(&file) {
                    Some(object) => *object,
                    // There was no room for its names.
                    None if self.wanted.is_by_name() => {
                        self.unnamed += 1;
                        None
                    }
                    None => Some(id_of(file).key()),
                };
                let Some(object) = object else {
                    return;
                };
                if last_page >= PAGES_MAX {
                    self.damaged += 1;
                    return;
                }
                // To find its program is what this process does.
                if !self.starting.is_empty() && self.starting.contains(&event.process) {
                    return;
                }
                let pages = first_page..last_page + 1;
                let (ring, site, found) = if is_outside {
                    (OTHERS, EventSite::default(), uses_by_others(kind, pages))
                } else {
                    let ring = self.ring(event, take);
                    let site = self.site_of(event, stack, &ring, object, take);
                    (ring, site, accesses(kind, same_fault, pages))
                };
                let EventSite { signature, flags } = site;
                let flags = if is_in_call { flags | IN_CALL } else { flags };
                if !is_outside && !self.held.is_empty() {
                    // Of this fault, another page was touched than those that were mapped.
                    let is_other = kind == Kind::Fault && same_fault;
                    let held = self.held.remove(&ring.index);
                    if let Some(held) = held.filter(|_| !is_other) {
                        held.give(take);
                    }
                }
                for (op, pages) in found {
                    let access = Record::Access {
                        op,
                        flags,
                        cpu: event.cpu,
                        time_ns: event.time_ns,
                        signature,
                        object,
                        offset: pages.start.saturating_mul(page_bytes()),
                        length: (pages.end - pages.start).saturating_mul(page_bytes()),
                    };
                    if kind == Kind::Map && op == Op::Fault {
                        let time_ns = event.time_ns;
                        let held = HeldTouch {
                            ring,
                            time_ns,
                            access,
                        };
                        self.held.insert(ring.index, held);
                    } else {
                        take(&ring, access);
                    }
                }
            }
            What::File {
                file,
                size,
                mode,
                names,
                is_cut,
            } => {
                match self.files.get(&file) {
                    Some(Some(_)) => return,
                    // The kernel has forgotten it.
                    Some(None) => return self.leave_out(file),
                    None if mode & TYPE_OF_FILE != REGULAR_FILE => return self.leave_out(file),
                    None => {}
                }
                let (process, now_ns) = (event.process, event.time_ns);
                let below_root = names.path();
                let of = &mut self.names;
                let name = of.of(process, file.device, below_root, is_cut, now_ns);
                if !self.wanted.has_name(&name.seen) {
                    return self.leave_out(file);
                }
                let id = id_of(file);
                let ring = if self.starting.contains(&event.process) {
                    OTHERS
                } else {
                    self.ring(event, take)
                };
                let object = id.key();
                self.files.insert(file, Some(object));
                for path in name.paths() {
                    let defined = Record::Object {
                        object,
                        id,
                        size,
                        asked_pages: None,
                        path: path.as_os_str().as_bytes(),
                    };
                    take(&ring, defined);
                }
            }
            // It announces itself by its first event. Until it executes a program, it is its
            // parent's.
            What::Fork { parent } => {
                // Its number may have been another's, whose end was not seen.
                self.forget(event.process, take);
                if parent == Pid::own() {
                    self.starting.insert(event.process);
                }
                self.stacks.fork(parent, event.process);
                self.names.fork(parent, event.process);
                if !self.abouts.contains_key(&parent) {
                    self.look_up(parent);
                }
                let about = self.abouts.get(&parent).cloned();
                let about = about.map(|about| About {
                    parent,
                    is_forked: true,
                    ..about
                });
                self.abouts
                    .extend(about.map(|about| (event.process, about)));
            }
            What::Exec { name } => {
                let before = self.abouts.remove(&event.process).unwrap_or_default();
                self.forget(event.process, take);
                self.look_up(event.process);
                // It may have ended by now: then its name is all that is known of its program.
                let about = || About {
                    exe: OsStr::from_bytes(name).into(),
                    args: Vec::new(),
                    is_forked: false,
                    ..before
                };
                self.abouts.entry(event.process).or_insert_with(about);
            }
            What::Exit => {
                self.forget(event.process, take);
                self.names.forget(event.process);
            }
        }
    }

    /// Nothing is recorded of a file. The kernel is to report no more of it, where it excludes
    /// files.
    fn leave_out(&mut self, file: File) {
        self.files.insert(file, None);
        if self.wanted.is_by_name() {
            self.to_exclude.push(file);
        }
    }

    /// Passes on the touches up to a time.
    fn give_held(&mut self, until_ns: u64, take: &mut TakeRecord<'_>) {
        let due = |_: &usize, held: &mut HeldTouch| held.time_ns <= until_ns;
        let due: Vec<HeldTouch> = self.held.extract_if(due).map(|(_, held)| held).collect();
        due.into_iter().for_each(|held| held.give(take));
    }

    /// The thread of an event, which is announced by the first one.
    fn ring(&mut self, event: &Event<'_>, take: &mut TakeRecord<'_>) -> RingInfo {
        let (pid, tid) = (event.process, event.thread);
        let known = self.images.get(&pid).and_then(|of| of.threads.get(&tid));
        if let Some(ring) = known {
            return *ring;
        }
        let before = self.free.pop_front();
        if before.is_none() {
            self.index_count += 1;
        }
        if !self.abouts.contains_key(&pid) {
            self.look_up(pid);
        }
        let about = self.abouts.get(&pid).cloned().unwrap_or_default();
        let numbers = self.numbers(event);
        let ring = RingInfo {
            index: before.map_or(FIRST_INDEX + self.index_count - 1, |ring| ring.index),
            pid: numbers.process,
            tid: numbers.thread,
            namespace: numbers.namespace,
            generation: before.map_or(0, |ring| ring.generation) + 1,
        };
        let image_count = &mut self.image_count;
        let image = self.images.entry(pid).or_insert_with(|| {
            *image_count += 1;
            ProcessImage {
                number: FIRST_IMAGE + *image_count - 1,
                program: hash(about.exe.as_os_str().as_bytes()),
                exe: about.exe.clone(),
                threads: FxHashMap::default(),
            }
        });
        image.threads.insert(tid, ring);
        let process = Record::Process {
            pid: ring.pid,
            // Its number is another one in the process's own namespace.
            parent: if ring.namespace.is_own() {
                about.parent
            } else {
                Pid(0)
            },
            image: image.number,
            forked: about.is_forked,
            time_ns: event.time_ns,
            exe: about.exe.as_os_str().as_bytes(),
            args: &about.args,
        };
        take(&ring, process);
        ring
    }

    /// What the thread of an event is called: by the library, if that is beside.
    fn numbers(&self, event: &Event<'_>) -> OwnNumbers {
        let own = event.own_numbers.filter(|_| self.beside_library);
        own.unwrap_or(OwnNumbers {
            namespace: PidNamespace::OWN,
            process: event.process,
            thread: event.thread,
        })
    }

    /// Finds out what a process runs, if it has not ended.
    fn look_up(&mut self, process: Pid) {
        let about = About::of(process);
        if !about.exe.as_os_str().is_empty() {
            self.abouts.insert(process, about);
            self.names.look_up(process);
        }
    }

    /// The site of an event, and the flags of its access.
    fn site_of(
        &mut self,
        event: &Event<'_>,
        stack: UserStack<'_>,
        ring: &RingInfo,
        object: FileKey,
        take: &mut TakeRecord<'_>,
    ) -> EventSite {
        if !self.with_sites {
            return EventSite::default();
        }
        let mut define = |record: Record<'_>| take(ring, record);
        let (process, time_ns) = (event.process, event.time_ns);
        let site = self.stacks.site(process, time_ns, stack, &mut define);
        let flags = match site {
            Some(signature) => {
                return EventSite {
                    signature,
                    flags: 0,
                };
            }
            None if self.stacks.are_asked_for() => UNKNOWN_SITE,
            None => 0,
        };
        EventSite {
            signature: self.site(process, ring, object, take),
            flags,
        }
    }

    /// The site of a program's accesses to a file, which is defined by the first one.
    fn site(
        &mut self,
        process: Pid,
        ring: &RingInfo,
        object: FileKey,
        take: &mut TakeRecord<'_>,
    ) -> u64 {
        let Some(image) = self.images.get(&process) else {
            return 0;
        };
        let frames = [image.program, 0, USED_FILE, object.0];
        let signature = signature(&frames);
        if self.sites.insert((image.program, object)) {
            if self.modules.insert(image.program) {
                let module = Record::Module {
                    module: image.program,
                    build_id: &[],
                    path: image.exe.as_os_str().as_bytes(),
                };
                take(ring, module);
            }
            let site = Record::Site {
                signature,
                truncated: true,
                frames: &frames,
            };
            take(ring, site);
        }
        signature
    }

    /// A process has ended, or runs another program.
    fn forget(&mut self, process: Pid, take: &mut TakeRecord<'_>) {
        self.abouts.remove(&process);
        self.starting.remove(&process);
        self.stacks.forget(process);
        let threads = self.images.remove(&process).map(|image| image.threads);
        let threads = threads.into_iter().flat_map(FxHashMap::into_values);
        for ring in threads {
            if let Some(held) = self.held.remove(&ring.index) {
                held.give(take);
            }
            self.free.push_back(ring);
        }
    }
}

/// The same for the same bytes in each recording.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// A file, by its device, its number and how often that was used before. Nothing is asked of the
/// file system: it may not answer.
fn id_of(file: File) -> FileId {
    let inode = file.inode();
    FileId {
        device: inode.device,
        inode: inode.number,
        birth_ns: u64::from(file.generation),
    }
}

/// What the kernel's event is to a program: nothing if it is the kernel's own doing.
fn accesses(kind: Kind, same_fault: bool, pages: Range<u64>) -> Vec<(Op, Range<u64>)> {
    match kind {
        Kind::Read => {
            let starts = pages.clone().step_by(PAGES_OF_A_READ_MAX as usize);
            let part = |start| start..pages.end.min(start + PAGES_OF_A_READ_MAX);
            starts.map(|start| (Op::Read, part(start))).collect()
        }
        Kind::Fault => vec![(Op::Fault, pages)],
        Kind::Dirty => vec![(Op::Write, pages)],
        Kind::Map => {
            // Which of these was touched is not known, nor which will be.
            let first = (Op::Fault, pages.start..pages.start + 1);
            let touched = (!same_fault).then_some(first);
            let others = pages.end - pages.start > 1;
            touched
                .into_iter()
                .chain(others.then_some((Op::Map, pages)))
                .collect()
        }
        Kind::Insert => vec![(Op::Insert, pages)],
        Kind::Evict => vec![(Op::Evict, pages)],
    }
}

/// The same of a program that is not observed: it uses pages of a file that is.
fn uses_by_others(kind: Kind, pages: Range<u64>) -> Vec<(Op, Range<u64>)> {
    match kind {
        Kind::Read | Kind::Fault | Kind::Map | Kind::Insert | Kind::Dirty => {
            vec![(Op::UseByOthers, pages)]
        }
        Kind::Evict => vec![(Op::Evict, pages)],
    }
}

/// What /proc says of a process. It may have ended.
#[derive(Clone, Debug, Default)]
struct About {
    parent: Pid,
    exe: PathBuf,
    args: Vec<u8>,
    /// It runs what its parent does, with a copy of its memory.
    is_forked: bool,
}

impl About {
    fn of(pid: Pid) -> About {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
        let mut args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.truncate(ARGUMENTS_BYTES_MAX);
        About {
            parent: parent.and_then(|pid| pid.parse().ok()).unwrap_or_default(),
            exe: fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default(),
            args,
            is_forked: false,
        }
    }
}

#[cfg(test)]
mod tests;
