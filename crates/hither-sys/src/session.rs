//! The agent's side of a session: makes the shared segment, drains the rings, and recycles the
//! rings of threads that are gone.
//!
//! The segment lies in /dev/shm (or the folder for temporary files) under a random name that only
//! its owner may open. If the agent dies, nothing empties the rings: the programs fill them, drop
//! what no longer fits, and run on.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::bind_requests::BindRequestSender;
use crate::page_sampling::{SamplingError, UserfaultfdOffer};
use crate::program_session::{OTHER_PID_NAMESPACE, unpack_owner};
use crate::record::{FRAMES_MAX, Record, WORDS_MAX, Words};
use crate::ring::{Popped, Ring};
use crate::seccomp;
use crate::segment::{self, Header, Layout, Segment};

/// Memory that a ring keeps between owners; what it took beyond is given back to the kernel.
const RING_BYTES_KEPT: u64 = 256 << 10;

/// The shape of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How many threads can record at once, 1 to 65536.
    pub rings: usize,
    /// Size of a ring, a power of two from 4 KiB to 1 GiB. Only rings that are used take memory.
    pub ring_bytes: usize,
    /// How many frames of a call stack make its signature, 1 to [`FRAMES_MAX`].
    pub frames_max: usize,
    /// Whether accesses to files are recorded.
    pub files: bool,
    /// Size of a block: a power of two, or 0 to record every access. A read at an explicit offset
    /// is not recorded if it is within the block in which the thread's last recorded access ended.
    /// Counting references to blocks does not need such reads, and a program that reads a file in
    /// small pieces is spared most of the cost. The time of other accesses is that of the kernel's
    /// last tick.
    pub block_bytes: u64,
    /// Whether programs track which descriptors are read at random, which
    /// [`Session::disable_readahead`] needs. Needs `block_bytes`.
    pub readahead: bool,
    /// The smallest allocation that is tracked as a region, in bytes: at least a page, or 0 for
    /// none.
    pub region_min: u64,
    /// Whether programs with regions offer a userfaultfd, with which the agent samples their pages.
    pub sampling: bool,
    /// The nodes for the file pages that programs read in, a bit each: in turn, where there are
    /// several. 0 for where the kernel puts them.
    pub file_nodes: u64,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            rings: 1024,
            ring_bytes: 1 << 20,
            frames_max: 32,
            files: true,
            block_bytes: 0,
            readahead: false,
            region_min: 0,
            sampling: false,
            file_nodes: 0,
        }
    }
}

/// The effect of [`SessionOptions::file_nodes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileReads {
    /// Reads that might bring pages in, whose pages were placed on these nodes.
    pub placed: u64,
    /// Such reads by threads with a memory policy of their own, which are not placed.
    pub left: u64,
}

/// Whose ring a record came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingInfo {
    /// Which ring.
    pub index: usize,
    /// The process that claimed it. After an exec the process claims another ring.
    pub pid: u32,
    /// The thread that claimed it.
    pub tid: u32,
    /// Its ids are of another pid namespace than ours (a container): here they name no process, or
    /// another one.
    pub other_pid_namespace: bool,
    /// Counts the owners that this ring has had: index and generation name one owner.
    pub generation: u64,
}

/// What was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Accesses, and events of regions, that found their ring full.
    pub events: u64,
    /// The bytes that those accesses moved.
    pub bytes: u64,
    /// Accesses of threads that found no ring free.
    pub no_ring: u64,
    /// Calls made by signal handlers that had interrupted the recorder itself.
    pub nested: u64,
    /// Times that a ring held what no producer writes, and was emptied unread.
    pub damaged: u64,
    /// Allocations that found their program's table of regions full.
    pub regions: u64,
}

impl Lost {
    /// Accesses, and events of regions, that no record was made of, for whatever reason.
    pub fn unrecorded(&self) -> u64 {
        self.events + self.no_ring + self.nested
    }
}

/// A recording session, seen by the agent. Dropping it closes it and removes its file.
#[derive(Debug)]
pub struct Session {
    segment: Segment,
    file: File,
    path: PathBuf,
    /// Losses of owners that are gone.
    past: Lost,
    buffer: Box<Words>,
}

impl Session {
    /// Makes the segment. Fails if there is no folder for it, no room, or the options are out of
    /// range.
    pub fn create(options: SessionOptions) -> io::Result<Self> {
        let layout = Layout::new(options.rings, options.ring_bytes / 8)
            .filter(|_| (1..=FRAMES_MAX).contains(&options.frames_max))
            .filter(|_| options.block_bytes == 0 || options.block_bytes.is_power_of_two())
            .filter(|_| options.region_min == 0 || options.region_min >= segment::PAGE as u64)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("session out of range: {options:?}"),
                )
            })?;
        if options.readahead && options.block_bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "random reads are detected by blocks: readahead needs block_bytes",
            ));
        }
        let (path, file) = create_file()?;
        let segment = fill(&file, layout, &options).inspect_err(|_| {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&path);
        })?;
        Ok(Session {
            segment,
            file,
            path,
            past: Lost::default(),
            buffer: Box::new([0; WORDS_MAX]),
        })
    }

    /// The segment's file: what programs get as `HITHER_SESSION`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes every queued record to `sink`, oldest first within a ring, and frees the rings of
    /// threads that said they are done. Returns the number of records.
    pub fn drain(&mut self, mut sink: impl FnMut(&RingInfo, Record<'_>)) -> usize {
        let mut records = 0;
        for index in 0..self.rings_used() {
            // Read before the ring is emptied: a released ring gets no more records.
            let released = self
                .ring(index)
                .is_some_and(|ring| ring.control.released.load(Ordering::Acquire) != 0);
            records += self.drain_ring(index, &mut sink);
            if released {
                self.recycle(index);
            }
        }
        records
    }

    /// Frees the rings whose thread is gone: it has ended, or has claimed a newer ring since
    /// (exec). Their content goes to `sink`. It reads /proc once for each ring; a few calls a
    /// second are enough.
    pub fn reap(&mut self, mut sink: impl FnMut(&RingInfo, Record<'_>)) -> usize {
        let mut newest: HashMap<u64, u64> = HashMap::new();
        let claims: Vec<(usize, u64, u64)> = (0..self.rings_used())
            .filter_map(|index| {
                let control = self.ring(index)?.control;
                let owner = control.owner.load(Ordering::Acquire);
                let sequence = control.sequence.load(Ordering::Relaxed);
                // Owners in another pid namespace cannot be looked up here; a sequence of 0 is a
                // claim in the making.
                (owner != 0 && owner & OTHER_PID_NAMESPACE == 0 && sequence != 0)
                    .then_some((index, owner, sequence))
            })
            .collect();
        for &(_, owner, sequence) in &claims {
            let entry = newest.entry(owner).or_default();
            *entry = sequence.max(*entry);
        }
        let mut records = 0;
        for (index, owner, sequence) in claims {
            let (pid, tid) = unpack_owner(owner);
            let superseded = newest.get(&owner).is_some_and(|&newest| newest > sequence);
            if superseded || !Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
                records += self.drain_ring(index, &mut sink);
                self.recycle(index);
            }
        }
        records
    }

    /// Where to post bind requests, if the session tracks regions.
    pub fn bind_requests(&mut self) -> Option<BindRequestSender<'_>> {
        self.segment
            .bind_request_queue()
            .map(BindRequestSender::new)
    }

    /// Passes on the descriptors that programs have offered since the last call. Each program
    /// closes its own copy once `sink` has returned.
    pub fn offers(&mut self, sink: impl FnMut(&UserfaultfdOffer)) {
        self.segment.header().offers.take_all(sink);
    }

    /// Why the last program that could offer no descriptor could not.
    pub fn offer_error(&self) -> Option<SamplingError> {
        let error = self.segment.header().offer_error.load(Ordering::Relaxed);
        (error != 0).then(|| SamplingError::from_errno(error as i32))
    }

    /// Gives replicas to the programs that start from now on: the descriptor of the replicas'
    /// control in this process, and the nonce that identifies it.
    pub fn set_replicas(&mut self, (control, nonce): (u32, u64)) {
        let header = self.segment.header();
        header.replicas_nonce.store(nonce, Ordering::Relaxed);
        let packed = u64::from(std::process::id()) << 32 | u64::from(control);
        header.replicas.store(packed, Ordering::Release);
    }

    /// Stops recording accesses to the file of this key, as far as there is room to remember it.
    pub fn stop_recording_file(&self, object: u64) {
        let unrecorded = &self.segment.header().unrecorded;
        unrecorded.place(object).store(object, Ordering::Relaxed);
    }

    /// Has programs disable readahead, from now on, on descriptors that they read at random. Has no
    /// effect where they do not track that ([`SessionOptions::readahead`]).
    pub fn disable_readahead(&self) {
        let readahead = &self.segment.header().readahead;
        let (before, after) = (segment::READAHEAD_TRACKED, segment::READAHEAD_DISABLED);
        let _ = readahead.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Times that a program has disabled readahead on a descriptor.
    pub fn readahead_disabled(&self) -> u64 {
        let disabled = &self.segment.header().readahead_disabled;
        disabled.load(Ordering::Relaxed)
    }

    /// How programs have read files so far.
    pub fn file_reads(&self) -> FileReads {
        let header = self.segment.header();
        FileReads {
            placed: header.file_reads_placed.load(Ordering::Relaxed),
            left: header.file_reads_left.load(Ordering::Relaxed),
        }
    }

    /// Ends the recording: programs that still run go on unrecorded. What they have queued can
    /// still be drained.
    pub fn close(&mut self) {
        self.segment
            .header()
            .state
            .store(segment::CLOSED, Ordering::Release);
    }

    /// What was not recorded so far.
    pub fn lost(&self) -> Lost {
        let mut lost = self.past;
        let header = self.segment.header();
        lost.no_ring = header.no_ring.load(Ordering::Relaxed);
        lost.regions = header.regions_untracked.load(Ordering::Relaxed);
        for index in 0..self.rings_used() {
            if let Some(ring) = self.ring(index) {
                add_losses(&mut lost, ring);
            }
        }
        lost
    }

    fn rings_used(&self) -> usize {
        let used = self.segment.header().rings_used.load(Ordering::Relaxed) as usize;
        used.min(self.segment.rings())
    }

    fn ring(&self, index: usize) -> Option<Ring<'_>> {
        self.segment.ring(index)
    }

    fn drain_ring(&mut self, index: usize, sink: &mut impl FnMut(&RingInfo, Record<'_>)) -> usize {
        let Some(ring) = self.segment.ring(index) else {
            return 0;
        };
        let owner = ring.control.owner.load(Ordering::Acquire);
        if owner == 0 {
            return 0;
        }
        let (pid, tid) = unpack_owner(owner);
        let info = RingInfo {
            index,
            pid,
            tid,
            other_pid_namespace: owner & OTHER_PID_NAMESPACE != 0,
            generation: ring.control.generation.load(Ordering::Relaxed),
        };
        let mut records = 0;
        while let Some(popped) = ring.pop(&mut self.buffer) {
            let record = match popped {
                Popped::Record(words) => Record::decode(&self.buffer[..words]),
                Popped::Damaged => None,
            };
            match record {
                Some(record) => sink(&info, record),
                None => self.past.damaged += 1,
            }
            records += 1;
        }
        records
    }

    fn recycle(&mut self, index: usize) {
        let Some(ring) = self.segment.ring(index) else {
            return;
        };
        add_losses(&mut self.past, ring);
        if 8 * ring.head() > RING_BYTES_KEPT {
            let layout = self.segment.layout();
            // A refusal (no support for holes) only means that the memory stays.
            let _ = fallocate(
                &self.file,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                layout.slots_at(index),
                layout.ring_bytes(),
            );
        }
        ring.recycle();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
        // Somebody may have removed it already; there is nobody to tell.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn add_losses(lost: &mut Lost, ring: Ring<'_>) {
    lost.events += ring.control.lost_events.load(Ordering::Relaxed);
    lost.bytes += ring.control.lost_bytes.load(Ordering::Relaxed);
    lost.nested += ring.control.nested.load(Ordering::Relaxed);
}

/// An agent locks its file right after it has made it: within this time at the latest.
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);

/// Removes what agents of this user left behind that were killed: the kernel has taken their locks
/// off. Programs that still have it mapped keep what they have.
fn remove_abandoned(folder: &Path, prefix: &str) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(prefix));
        if !ours {
            continue;
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.path());
        let Ok(file) = file else {
            continue;
        };
        let made = file.metadata().and_then(|about| about.modified());
        let age = made.ok().and_then(|made| made.elapsed().ok());
        if age.is_some_and(|age| age > LOCK_DELAY_MAX) && file.try_lock().is_ok() {
            // Another agent may have been faster.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A new file that only we can open, in memory if possible.
fn create_file() -> io::Result<(PathBuf, File)> {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    // SAFETY: getuid takes nothing and cannot fail.
    let uid = unsafe { libc::getuid() };
    remove_abandoned(&folder, &format!("hither-{uid}-"));
    loop {
        // std seeds these keys from the kernel's random numbers.
        let random = std::hash::RandomState::new().build_hasher().finish();
        let path = folder.join(format!("hither-{uid}-{random:016x}"));
        match OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
            Ok(file) => {
                // Where that fails the worst is that the file outlives a kill, or goes before its
                // time with programs to come.
                let _ = file.lock();
                return Ok((path, file));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("{}: {error}", path.display()),
                ));
            }
        }
    }
}

/// Sizes the file, maps it and writes the header, its magic number last.
fn fill(file: &File, layout: Layout, options: &SessionOptions) -> io::Result<Segment> {
    segment::resize(file.as_fd(), layout.bytes())?;
    // The control parts are written without asking first, so their memory is reserved here; so is
    // that of the bind requests, which even a load would have to take.
    let reserved = match options.region_min {
        0 => layout.control_bytes(),
        _ => layout.fixed_bytes(),
    };
    match fallocate(file, 0, 0, reserved) {
        Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => return Err(error),
        _ => {}
    }
    let segment = Segment::map(file.as_raw_fd(), layout).map_err(io::Error::from_raw_os_error)?;
    let header: &Header = segment.header();
    header.rings.store(options.rings as u32, Ordering::Relaxed);
    header
        .ring_words
        .store((options.ring_bytes / 8) as u32, Ordering::Relaxed);
    header
        .frames_max
        .store(options.frames_max as u32, Ordering::Relaxed);
    header
        .pid_namespace
        .store(segment::pid_namespace(), Ordering::Relaxed);
    header
        .region_min
        .store(options.region_min, Ordering::Relaxed);
    header.block_bits.store(
        options.block_bytes.checked_ilog2().unwrap_or(0),
        Ordering::Relaxed,
    );
    header.readahead.store(
        match options.readahead {
            true => segment::READAHEAD_TRACKED,
            false => segment::READAHEAD_UNTRACKED,
        },
        Ordering::Relaxed,
    );
    header
        .no_files
        .store(u32::from(!options.files), Ordering::Relaxed);
    header
        .filters
        .store(seccomp::filter_count(), Ordering::Relaxed);
    header
        .sampling
        .store(u32::from(options.sampling), Ordering::Relaxed);
    header
        .file_nodes
        .store(options.file_nodes, Ordering::Relaxed);
    header.state.store(segment::RECORDING, Ordering::Relaxed);
    header.magic.store(segment::MAGIC, Ordering::Release);
    Ok(segment)
}

fn fallocate(file: &File, mode: i32, offset: usize, length: usize) -> io::Result<()> {
    // SAFETY: fallocate takes no memory; the descriptor is open as long as `file`.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::program_session::{ProgramSession, Pushed};

    fn session(rings: usize, ring_bytes: usize) -> Session {
        Session::create(SessionOptions {
            rings,
            ring_bytes,
            frames_max: 16,
            ..SessionOptions::default()
        })
        .expect("a session")
    }

    fn attach(session: &Session) -> Option<ProgramSession> {
        ProgramSession::open(&CString::new(session.path().as_os_str().as_bytes()).expect("no NUL"))
    }

    fn exec(pid: u32) -> Record<'static> {
        Record::Exec {
            pid,
            time_ns: 1,
            path: b"/bin/true",
        }
    }

    fn drained(session: &mut Session) -> Vec<(RingInfo, u32)> {
        let mut seen = Vec::new();
        session.drain(|info, record| match record {
            Record::Exec { pid, .. } => seen.push((*info, pid)),
            other => panic!("unexpected {other:?}"),
        });
        seen
    }

    #[test]
    fn records_arrive_with_their_owner() {
        let mut session = session(4, 4096);
        let attached = attach(&session).expect("attached");
        assert_eq!(attached.frames_max(), 16);
        let mut one = attached.claim(10, 11).expect("a ring");
        let mut two = attached.claim(10, 12).expect("a ring");
        assert_eq!(attached.push_record(&mut one, &exec(1)), Pushed::Taken);
        assert_eq!(attached.push_record(&mut two, &exec(2)), Pushed::Taken);
        let seen = drained(&mut session);
        assert_eq!(
            seen.iter()
                .map(|(info, pid)| (info.pid, info.tid, *pid))
                .collect::<Vec<_>>(),
            [(10, 11, 1), (10, 12, 2)]
        );
        assert!(drained(&mut session).is_empty());
    }

    #[test]
    fn released_rings_are_emptied_and_used_again() {
        let mut session = session(1, 4096);
        let attached = attach(&session).expect("attached");
        for round in 0..5 {
            let mut producer = attached.claim(1, round + 1).expect("the only ring");
            assert!(attached.claim(1, 99).is_none(), "no second ring");
            attached.push_record(&mut producer, &exec(round));
            attached.release(producer);
            let seen = drained(&mut session);
            assert_eq!(seen.len(), 1);
            assert_eq!(
                (seen[0].0.generation, seen[0].0.tid, seen[0].1),
                (u64::from(round), round + 1, round)
            );
        }
    }

    #[test]
    fn a_full_ring_counts_what_it_drops() {
        let mut session = session(1, 4096);
        let attached = attach(&session).expect("attached");
        let mut producer = attached.claim(1, 1).expect("a ring");
        let access = Record::Access {
            op: crate::record::Op::Read,
            flags: 0,
            cpu: 0,
            time_ns: 0,
            signature: 0,
            object: 0,
            offset: 0,
            length: 10,
        };
        let taken = (0..100)
            .filter(|_| attached.push_record(&mut producer, &access) == Pushed::Taken)
            .count();
        assert_eq!(taken, 512 / 6);
        let lost = session.lost();
        assert_eq!(
            (lost.events, lost.bytes),
            (100 - taken as u64, 10 * (100 - taken as u64))
        );
        attached.count_no_ring();
        attached.count_nested(&producer);
        attached.release(producer);
        assert_eq!(session.drain(|_, _| ()), taken);
        let after = Lost {
            no_ring: 1,
            nested: 1,
            ..lost
        };
        assert_eq!(session.lost(), after, "losses outlive the owner");
    }

    #[test]
    fn rings_of_the_dead_are_reaped_and_theirs_alone() {
        let mut session = session(8, 1 << 20);
        let attached = attach(&session).expect("attached");
        let (pid, tid) = (raw_pid(), crate::syscalls::tid());
        let mut old_image = attached.claim(pid, tid).expect("a ring");
        let mut alive = attached.claim(pid, tid).expect("a ring");
        let mut dead = attached.claim(pid, 0x3fff_ffff).expect("a ring");
        for value in 0..10_000 {
            attached.push_record(&mut dead, &exec(value));
        }
        attached.push_record(&mut old_image, &exec(7));
        attached.push_record(&mut alive, &exec(8));
        assert_eq!(session.reap(|_, _| ()), 10_001);
        assert_eq!(
            attached.push_record(&mut dead, &exec(1)),
            Pushed::NoRing,
            "it was given away"
        );
        assert_eq!(
            attached.push_record(&mut old_image, &exec(1)),
            Pushed::NoRing
        );
        assert_eq!(attached.push_record(&mut alive, &exec(9)), Pushed::Taken);
        assert_eq!(
            drained(&mut session)
                .iter()
                .map(|(_, pid)| *pid)
                .collect::<Vec<_>>(),
            [8, 9]
        );
    }

    #[test]
    fn what_a_killed_agent_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = std::time::SystemTime::now() - 2 * LOCK_DELAY_MAX;
        let make = |name: &str, made| {
            let file = File::create(folder.path().join(name)).expect("made");
            file.set_modified(made).expect("set");
            file
        };
        make("hither-1-left", old);
        make("hither-2-of-others", old);
        make("hither-1-young", std::time::SystemTime::now());
        let held = make("hither-1-held", old);
        held.lock().expect("locked");
        remove_abandoned(folder.path(), "hither-1-");
        let entries = std::fs::read_dir(folder.path()).expect("there").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(
            names,
            ["hither-1-held", "hither-1-young", "hither-2-of-others"]
        );
        drop(held);
        remove_abandoned(folder.path(), "hither-1-");
        assert!(!folder.path().join("hither-1-held").exists());
    }

    fn raw_pid() -> u32 {
        std::process::id()
    }

    #[test]
    fn closed_or_missing_sessions_are_refused() {
        let mut session = session(1, 4096);
        let attached = attach(&session).expect("attached");
        assert!(attached.recording());
        session.close();
        assert!(!attached.recording());
        assert!(attach(&session).is_none(), "closed");
        let path = session.path().to_owned();
        drop(session);
        assert!(!path.exists());
        assert!(
            ProgramSession::open(&CString::new(path.as_os_str().as_bytes()).expect("no NUL"))
                .is_none()
        );
        let junk = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(junk.path(), vec![0xff; 1 << 16]).expect("written");
        assert!(
            ProgramSession::open(
                &CString::new(junk.path().as_os_str().as_bytes()).expect("no NUL")
            )
            .is_none()
        );
    }

    #[test]
    fn what_is_wanted_reaches_the_program() {
        let plain = session(1, 4096);
        let attached = attach(&plain).expect("attached");
        assert_eq!((attached.region_min(), attached.files()), (0, true));
        assert!(attached.bind_requests().is_none(), "no regions, no orders");
        assert!(!attached.is_unrecorded(0xabc0));
        plain.stop_recording_file(0xabc0);
        assert!(attached.is_unrecorded(0xabc0) && !attached.is_unrecorded(0xabc4));
        let mut session = Session::create(SessionOptions {
            files: false,
            region_min: 1 << 20,
            ..SessionOptions::default()
        })
        .expect("a session");
        let attached = attach(&session).expect("attached");
        assert_eq!((attached.region_min(), attached.files()), (1 << 20, false));
        let mut producer = attached.claim(1, 1).expect("a ring");
        let region = Record::Region {
            start: 1,
            length: 2,
            signature: 3,
            time_ns: 4,
            cpu: 5,
            kind: crate::record::RegionKind::Malloc,
        };
        assert_eq!(attached.push_record(&mut producer, &region), Pushed::Taken);
        attached.count_untracked();
        let mut seen = 0;
        session.drain(|_, record| {
            assert_eq!(record, region);
            seen += 1;
        });
        assert_eq!((seen, session.lost().regions), (1, 1));
        assert!(attached.bind_requests().is_some());
        // Of another pid namespace, where this process's number is another's.
        let namespace = &session.segment.header().pid_namespace;
        namespace.fetch_add(1, Ordering::Relaxed);
        let attached = attach(&session).expect("attached");
        assert!(attached.bind_requests().is_none());
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let good = SessionOptions::default();
        for bad in [
            SessionOptions { rings: 0, ..good },
            SessionOptions {
                ring_bytes: 5000,
                ..good
            },
            SessionOptions {
                frames_max: 65,
                ..good
            },
            SessionOptions {
                block_bytes: 5000,
                ..good
            },
            SessionOptions {
                readahead: true,
                ..good
            },
            SessionOptions {
                region_min: 4095,
                ..good
            },
        ] {
            assert_eq!(
                Session::create(bad).expect_err("refused").kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }
}
