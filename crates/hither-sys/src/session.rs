//! The agent's side of a session: makes the shared segment, drains the rings, and recycles the
//! rings of threads that are gone.
//!
//! The segment (`shared_memory`) is freed with the last process that uses it. If the agent
//! dies, nothing empties the rings: the programs fill them, drop what no longer fits, and run on.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::bind_requests::BindRequestSender;
use crate::page_sampling::{SamplingError, UserfaultfdOffer};
use crate::pid_namespace::{self, ForeignProcesses, PidNamespace};
use crate::plausible::{TRANSFER_BYTES_MAX, is_plausible};
use crate::process::monotonic_ns;
use crate::program_session::Owner;
use crate::record::{FRAMES_MAX, Record, WORDS_MAX, Words};
use crate::ring::{Popped, Ring};
use crate::seccomp;
use crate::segment::{self, Layout, Segment};
use crate::session_name::SessionName;
use crate::shared_memory;

/// Memory that a ring keeps between owners; what it took beyond is given back to the kernel.
const RING_BYTES_KEPT: u64 = 256 << 10;

/// How far ahead of the agent's clock the time of a record may be.
const CLOCK_SLACK_NS: u64 = 1_000_000_000;

/// The largest ring where the kernel counts rings that are not used against what it may promise to
/// programs: 1024 of these are 128 MiB.
const RING_BYTES_MAX_IF_COUNTED: usize = 128 << 10;

/// The shape of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How many threads can record at once, 1 to 65536.
    pub rings: usize,
    /// Size of a ring, a power of two from 4 KiB to 1 GiB. Only rings that are used take memory.
    /// With `vm.overcommit_memory=2`, where all count, a ring has at most 128 KiB.
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
    /// The pid namespace of both. In another one than ours (a container) they name no process of
    /// ours, or another one.
    pub namespace: PidNamespace,
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
    /// Records and counts that no recorder writes, and contents of rings without any record: a
    /// program has written over them. They were refused.
    pub damaged: u64,
    /// Allocations that found their program's table of regions full.
    pub regions: u64,
}

impl Lost {
    /// Accesses, and events of regions, that no record was made of, for whatever reason.
    pub fn unrecorded(&self) -> u64 {
        self.events
            .saturating_add(self.no_ring)
            .saturating_add(self.nested)
    }
}

/// A recording session, seen by the agent. Dropping it closes it.
#[derive(Debug)]
pub struct Session {
    segment: Segment,
    id: shared_memory::Id,
    name: String,
    /// Losses of owners that are gone.
    past: Lost,
    /// CLOCK_MONOTONIC when it was created.
    created_ns: u64,
    buffer: Box<Words>,
    /// To know who has ended in other pid namespaces.
    foreign: ForeignProcesses,
}

impl Session {
    /// Makes the segment. Fails if there is no room, or the options are out of range.
    pub fn create(options: SessionOptions) -> io::Result<Self> {
        let ring_bytes = match shared_memory::counts_as_a_whole() {
            true => options.ring_bytes.min(RING_BYTES_MAX_IF_COUNTED),
            false => options.ring_bytes,
        };
        let layout = Layout::new(options.rings, ring_bytes / 8)
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
        // The control parts are written without asking first, so their memory is reserved here; so
        // is that of the bind requests, which even a load would have to take.
        let reserved = match options.region_min {
            0 => layout.control_bytes(),
            _ => layout.fixed_bytes(),
        };
        let (id, segment) = Segment::create(layout, reserved)?;
        let name = SessionName {
            id,
            filters: seccomp::filter_count(),
            // std seeds these keys from the kernel's random numbers.
            nonce: std::hash::RandomState::new().build_hasher().finish(),
        };
        fill(&segment, layout, &options, name.nonce);
        Ok(Session {
            segment,
            id,
            name: name.to_string(),
            past: Lost::default(),
            created_ns: monotonic_ns(),
            buffer: Box::new([0; WORDS_MAX]),
            foreign: ForeignProcesses::default(),
        })
    }

    /// What programs get as `HITHER_SESSION`.
    pub fn name(&self) -> &str {
        &self.name
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
    /// (exec). Their content goes to `sink`. It reads /proc once for each ring, and the list of all
    /// processes where some are in another pid namespace; a few calls a second are enough. A ring
    /// in another namespace is held until its process has ended.
    pub fn reap(&mut self, mut sink: impl FnMut(&RingInfo, Record<'_>)) -> usize {
        let mut newest: HashMap<u64, u64> = HashMap::new();
        let claims: Vec<(usize, u64, u64)> = (0..self.rings_used())
            .filter_map(|index| {
                let control = self.ring(index)?.control;
                let owner = control.owner.load(Ordering::Acquire);
                let sequence = control.sequence.load(Ordering::Relaxed);
                // A sequence of 0 is a claim in the making.
                (owner != 0 && sequence != 0).then_some((index, owner, sequence))
            })
            .collect();
        for &(_, owner, sequence) in &claims {
            let entry = newest.entry(owner).or_default();
            *entry = sequence.max(*entry);
        }
        let is_foreign = |&(_, owner, _): &_| !Owner::unpack(owner).namespace.is_own();
        if claims.iter().any(is_foreign) {
            self.foreign.update();
        }
        let mut records = 0;
        for (index, owner, sequence) in claims {
            let superseded = newest.get(&owner).is_some_and(|&newest| newest > sequence);
            let Owner {
                pid,
                tid,
                namespace,
            } = Owner::unpack(owner);
            if superseded || !self.foreign.has_thread(namespace, pid, tid) {
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

    /// Has programs record no accesses to files until further notice, or record them again. A
    /// program that starts meanwhile announces itself with its first record.
    pub fn pause(&self, paused: bool) {
        let header = self.segment.header();
        header.paused.store(u32::from(paused), Ordering::Relaxed);
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

    /// Bytes that programs read, by calls that the library saw, of what is not recorded: pipes,
    /// sockets, terminals, files under /proc.
    pub fn other_read_bytes(&self) -> u64 {
        self.segment.header().other_reads.sum()
    }

    /// Other processes that have the library at work: they have recorded, or could.
    pub fn processes(&self) -> Vec<u32> {
        shared_memory::other_users(self.id)
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
        let elapsed_ns = self.elapsed_ns();
        let header = self.segment.header();
        let counts = [&header.no_ring, &header.regions_untracked];
        match counts.map(|count| count.load(Ordering::Relaxed)) {
            [no_ring, regions] if no_ring.max(regions) <= elapsed_ns => {
                (lost.no_ring, lost.regions) = (no_ring, regions);
            }
            _ => lost.damaged += 1,
        }
        for index in 0..self.rings_used() {
            if let Some(ring) = self.ring(index) {
                add_losses(&mut lost, ring, elapsed_ns);
            }
        }
        lost
    }

    fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.created_ns)
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
        let owner = Owner::unpack(owner);
        let info = RingInfo {
            index,
            pid: owner.pid,
            tid: owner.tid,
            namespace: owner.namespace,
            generation: ring.control.generation.load(Ordering::Relaxed),
        };
        let mut latest_ns = 0;
        let mut is_past = |time_ns| {
            if time_ns > latest_ns {
                latest_ns = monotonic_ns().saturating_add(CLOCK_SLACK_NS);
            }
            time_ns <= latest_ns
        };
        let mut records = 0;
        // No longer than to empty a full ring: whoever writes over the positions would keep the
        // agent here.
        while records < self.segment.layout().ring_bytes() / 8
            && let Some(popped) = ring.pop(&mut self.buffer)
        {
            let record = match popped {
                Popped::Record(words) => Record::decode(&self.buffer[..words]),
                Popped::Damaged => None,
            };
            match record.filter(|record| is_plausible(record, &mut is_past)) {
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
        let elapsed_ns = self.elapsed_ns();
        add_losses(&mut self.past, ring, elapsed_ns);
        if ring.head() > RING_BYTES_KEPT / 8 {
            self.segment.clear_slots(index);
        }
        ring.recycle();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

/// Adds what a ring has lost in so many nanoseconds. No thread loses a record a nanosecond, or more
/// bytes than each record may move.
fn add_losses(lost: &mut Lost, ring: Ring<'_>, elapsed_ns: u64) {
    let control = ring.control;
    let counts = [&control.lost_events, &control.nested, &control.lost_bytes];
    let [events, nested, bytes] = counts.map(|count| count.load(Ordering::Relaxed));
    if events.max(nested) > elapsed_ns || bytes > events.saturating_mul(TRANSFER_BYTES_MAX) {
        lost.damaged += 1;
        return;
    }
    lost.events += events;
    lost.bytes = lost.bytes.saturating_add(bytes);
    lost.nested += nested;
}

/// Writes the header, its magic number last.
fn fill(segment: &Segment, layout: Layout, options: &SessionOptions, nonce: u64) {
    let header = segment.header();
    let set32 = |field: &AtomicU32, value: u32| field.store(value, Ordering::Relaxed);
    let set64 = |field: &AtomicU64, value: u64| field.store(value, Ordering::Relaxed);
    set64(&header.nonce, nonce);
    set32(&header.rings, options.rings as u32);
    set32(&header.ring_words, (layout.ring_bytes() / 8) as u32);
    set32(&header.frames_max, options.frames_max as u32);
    set32(&header.agent, std::process::id());
    set64(&header.pid_namespace, pid_namespace::own_inode());
    set64(&header.region_min, options.region_min);
    let block_bits = options.block_bytes.checked_ilog2().unwrap_or(0);
    set32(&header.block_bits, block_bits);
    let readahead = match options.readahead {
        true => segment::READAHEAD_TRACKED,
        false => segment::READAHEAD_UNTRACKED,
    };
    set32(&header.readahead, readahead);
    set32(&header.no_files, u32::from(!options.files));
    set32(&header.sampling, u32::from(options.sampling));
    set64(&header.file_nodes, options.file_nodes);
    set32(&header.state, segment::RECORDING);
    header.magic.store(segment::MAGIC, Ordering::Release);
}

#[cfg(test)]
mod tests {
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
        ProgramSession::open(session.name().as_bytes())
    }

    fn exec(pid: u32) -> Record<'static> {
        Record::Exec {
            pid,
            time_ns: 1,
            path: b"/bin/true",
            hidden: false,
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
        let mut one = attached.claim(10, 11, PidNamespace::OWN).expect("a ring");
        let mut two = attached.claim(10, 12, PidNamespace::OWN).expect("a ring");
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
            let mut producer = attached
                .claim(1, round + 1, PidNamespace::OWN)
                .expect("the only ring");
            assert!(
                attached.claim(1, 99, PidNamespace::OWN).is_none(),
                "no second ring"
            );
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
        let mut producer = attached.claim(1, 1, PidNamespace::OWN).expect("a ring");
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
    fn what_a_program_writes_over_is_refused_and_counted() {
        let mut session = session(1, 4096);
        let attached = attach(&session).expect("attached");
        let mut producer = attached.claim(1, 1, PidNamespace::OWN).expect("a ring");
        let access = |time_ns, length| Record::Access {
            op: crate::record::Op::Read,
            flags: 0,
            cpu: 0,
            time_ns,
            signature: 0,
            object: 0,
            offset: 0,
            length,
        };
        for record in [
            access(1, 10),
            access(1, u64::MAX),
            access(u64::MAX, 10),
            access(monotonic_ns(), 20),
        ] {
            assert_eq!(attached.push_record(&mut producer, &record), Pushed::Taken);
        }
        let mut bytes = 0;
        session.drain(|_, record| {
            if let Record::Access { length, .. } = record {
                bytes += length;
            }
        });
        assert_eq!((bytes, session.lost().damaged), (30, 2));
        let control = session.ring(0).expect("a ring").control;
        control.lost_events.store(1, Ordering::Relaxed);
        control.lost_bytes.store(u64::MAX, Ordering::Relaxed);
        let lost = session.lost();
        assert_eq!((lost.events, lost.bytes, lost.damaged), (0, 0, 3));
        control.lost_bytes.store(5, Ordering::Relaxed);
        let header = session.segment.header();
        header.no_ring.store(u64::MAX, Ordering::Relaxed);
        let lost = session.lost();
        assert_eq!((lost.events, lost.bytes, lost.no_ring), (1, 5, 0));
        assert_eq!((lost.unrecorded(), lost.damaged), (1, 3));
    }

    #[test]
    fn rings_of_the_dead_are_reaped_and_theirs_alone() {
        let mut session = session(8, 1 << 20);
        let attached = attach(&session).expect("attached");
        let (pid, tid) = (raw_pid(), crate::syscalls::tid());
        let mut old_image = attached.claim(pid, tid, PidNamespace::OWN).expect("a ring");
        let mut alive = attached.claim(pid, tid, PidNamespace::OWN).expect("a ring");
        let mut dead = attached
            .claim(pid, 0x3f_ffff, PidNamespace::OWN)
            .expect("a ring");
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
        let closed = session.name().to_owned();
        drop(session);
        assert!(ProgramSession::open(closed.as_bytes()).is_none(), "gone");
    }

    #[test]
    fn only_the_session_of_that_name_is_attached() {
        let session = session(1, 4096);
        let name = SessionName::parse(session.name().as_bytes()).expect("a name");
        let open = |name: SessionName| ProgramSession::open(name.to_string().as_bytes());
        assert!(open(name).is_some());
        let nonce = name.nonce ^ 1;
        assert!(open(SessionName { nonce, ..name }).is_none(), "another one");
        let (id, base) = shared_memory::create(1 << 20).expect("a segment");
        assert!(
            open(SessionName { id, ..name }).is_none(),
            "somebody else's"
        );
        // SAFETY: attached there.
        unsafe { shared_memory::detach(base) };
        session.segment.header().magic.store(1, Ordering::Relaxed);
        assert!(open(name).is_none(), "another version's");
    }

    #[test]
    fn a_segment_claims_no_more_than_it_has() {
        let session = session(1, 4096);
        let header = session.segment.header();
        header.rings.store(2, Ordering::Relaxed);
        assert!(attach(&session).is_none());
        header.rings.store(1, Ordering::Relaxed);
        assert!(attach(&session).is_some());
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
        let mut producer = attached.claim(1, 1, PidNamespace::OWN).expect("a ring");
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
        let header = session.segment.header();
        header.agent.store(0, Ordering::Relaxed);
        let attached = attach(&session).expect("attached");
        assert!(attached.pid_namespace().is_own(), "by its inode");
        header.pid_namespace.fetch_add(1, Ordering::Relaxed);
        let attached = attach(&session).expect("attached");
        assert!(!attached.pid_namespace().is_own());
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
