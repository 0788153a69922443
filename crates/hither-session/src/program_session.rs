//! The recorded program's side of a session.
//!
//! Everything here works inside other people's programs: system calls go past libc, nothing
//! allocates or panics, and no descriptor stays open (programs close all that they did not open).
//! Memory is asked for before it is written, because a store for which the kernel has none would be
//! a SIGBUS in the program.

use std::sync::atomic::Ordering;

use crate::bind_requests::BindRequestReceiver;
use crate::memory_limits;
use crate::record::{ACCESS_WORDS, FRAMES_MAX, Op, Record, WORDS_MAX, Words};
use crate::replica::view::View;
use crate::ring::{Control, Refused, Ring, Writer};
use crate::segment::{self, Segment};
use crate::session_name::SessionName;
use crate::userfaultfd_offers::PendingOffer;
use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::page_sampling::UserfaultfdOffer;
use hither_kernel::pid_namespace::{NAMESPACE_BITS, PidNamespace};
use hither_kernel::seccomp;

/// Linux has no more bits in a process or thread id (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;

const _: () = assert!(2 * PID_BITS + NAMESPACE_BITS == u64::BITS);

/// The owner of a ring: a thread, its process, and the pid namespace of both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: Pid,
    pub(crate) tid: Tid,
    pub(crate) namespace: PidNamespace,
}

impl Owner {
    pub(crate) fn pack(self) -> u64 {
        let id = |id: u32| u64::from(id & ((1 << PID_BITS) - 1));
        let namespace = u64::from(self.namespace.bits());
        namespace << (2 * PID_BITS) | id(self.pid.0) << PID_BITS | id(self.tid.0)
    }

    pub(crate) fn unpack(owner: u64) -> Owner {
        let id = |owner: u64| owner as u32 & ((1 << PID_BITS) - 1);
        Owner {
            pid: Pid(id(owner >> PID_BITS)),
            tid: Tid(id(owner)),
            namespace: PidNamespace::from_bits((owner >> (2 * PID_BITS)) as u32),
        }
    }
}

/// A session that this process can record into.
#[derive(Debug)]
pub struct ProgramSession {
    segment: Segment,
    /// Of the process that attached; a forked child may be in another one.
    pid_namespace: PidNamespace,
}

impl ProgramSession {
    /// Attaches to the session of this name. `None` if it is not there, is not ours to attach, has
    /// another version or is closed; or if this process is under more seccomp filters than the
    /// agent: one of these may kill it for a system call that it does not make itself. Nor where
    /// the process has little memory to itself ([`memory_limits`]).
    pub fn open(name: &[u8]) -> Option<Self> {
        let name = SessionName::parse(name)?;
        if seccomp::filter_count() > name.filters || !memory_limits::leave_room() {
            return None;
        }
        let (segment, maker) = Segment::attach(name.id, name.nonce)?;
        let mut attached = ProgramSession {
            segment,
            pid_namespace: PidNamespace::OWN,
        };
        // The agent has its own number in its own namespace only. This costs no system call.
        if maker != attached.segment.header().agent.load(Ordering::Relaxed) {
            attached.pid_namespace = PidNamespace::of_this_process(attached.agents_pid_namespace());
        }
        attached.recording().then_some(attached)
    }

    /// Detaches the session.
    ///
    /// # Safety
    /// Nothing uses this session any more, nor anything that was got from it.
    pub unsafe fn detach(&self) {
        // SAFETY: as the caller says.
        unsafe { self.segment.detach() };
    }

    /// The pid namespace in which this process attached.
    pub fn pid_namespace(&self) -> PidNamespace {
        self.pid_namespace
    }

    /// The inode number of the agent's pid namespace.
    pub fn agents_pid_namespace(&self) -> u64 {
        self.segment.header().pid_namespace.load(Ordering::Relaxed)
    }

    /// A number for a program image that no other one of the session has. It is not 0.
    pub fn next_image(&self) -> u32 {
        let images = &self.segment.header().images;
        images.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Whether the agent still takes events.
    #[inline]
    pub fn recording(&self) -> bool {
        self.segment.header().state.load(Ordering::Relaxed) == segment::RECORDING
    }

    /// How many frames of a call stack the agent wants, between 1 and [`FRAMES_MAX`].
    pub fn frames_max(&self) -> usize {
        (self.segment.header().frames_max.load(Ordering::Relaxed) as usize).clamp(1, FRAMES_MAX)
    }

    /// The smallest allocation that is tracked, in bytes; 0 where none is.
    pub fn region_min(&self) -> u64 {
        self.segment.header().region_min.load(Ordering::Relaxed)
    }

    /// Whether accesses to files are recorded.
    #[inline]
    pub fn files(&self) -> bool {
        self.segment.header().no_files.load(Ordering::Relaxed) == 0
    }

    /// Whether accesses to files are not recorded for now. It may end at any time, so descriptors
    /// are tracked all the same.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.segment.header().paused.load(Ordering::Relaxed) != 0
    }

    /// Whether accesses to the file of this key are not recorded any more.
    #[inline]
    pub fn is_unrecorded(&self, file: FileKey) -> bool {
        let unrecorded = &self.segment.header().unrecorded;
        unrecorded.place(file).load(Ordering::Relaxed) == file.0
    }

    /// The nodes for the file pages that this process reads in, a bit each; 0 for where the kernel
    /// puts them.
    pub fn file_nodes(&self) -> u64 {
        self.segment.header().file_nodes.load(Ordering::Relaxed)
    }

    /// Counts a read whose pages were placed on these nodes, or were not.
    pub fn count_file_read(&self, placed: bool) {
        let header = self.segment.header();
        let count = if placed {
            &header.file_reads_placed
        } else {
            &header.file_reads_left
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this process tracks how its descriptors are read, which
    /// [`ProgramSession::disables_readahead`] needs.
    pub fn tracks_readahead(&self) -> bool {
        self.segment.header().readahead.load(Ordering::Relaxed) != segment::READAHEAD_UNTRACKED
    }

    /// Whether a file that is opened is to be asked how much of it is cached.
    pub fn samples_cached(&self) -> bool {
        self.segment.header().samples_cached.load(Ordering::Relaxed) != 0
    }

    /// Whether reads of files that were all cached when they were opened are not recorded for now.
    #[inline]
    pub fn skips_cached(&self) -> bool {
        self.segment.header().skips_cached.load(Ordering::Relaxed) != 0
    }

    /// Whether a program is to announce itself when it starts.
    pub fn is_announced(&self) -> bool {
        self.segment.header().announced.load(Ordering::Relaxed) != 0
    }

    /// Whether readahead is disabled on descriptors that this process reads at random.
    #[inline]
    pub fn disables_readahead(&self) -> bool {
        self.segment.header().readahead.load(Ordering::Relaxed) == segment::READAHEAD_DISABLED
    }

    /// The program read bytes of something whose accesses are not recorded.
    pub fn count_other_read(&self, cpu: u16, bytes: u64) {
        self.segment.header().other_reads.add(cpu, bytes);
    }

    /// Counts a descriptor on which readahead was disabled.
    pub fn count_readahead_disabled(&self) {
        let disabled = &self.segment.header().readahead_disabled;
        disabled.fetch_add(1, Ordering::Relaxed);
    }

    /// Bits of the offset within a block of a file. A thread's repeated reads of one block need no
    /// record; 0 where each read is recorded.
    #[inline]
    pub fn block_bits(&self) -> u32 {
        self.segment.header().block_bits.load(Ordering::Relaxed)
    }

    /// The agent's bind requests, if it tracks regions. None for a process in another pid
    /// namespace, whose id means another process to the agent.
    #[inline]
    pub fn bind_requests(&self) -> Option<BindRequestReceiver<'_>> {
        if !self.pid_namespace.is_own() {
            return None;
        }
        let queue = self.segment.bind_request_queue();
        queue.map(BindRequestReceiver::new)
    }

    /// Whether the agent has replicas of files' blocks.
    pub fn has_replicas(&self) -> bool {
        self.segment.header().replicas.load(Ordering::Acquire) != 0
    }

    /// Replicas of files' blocks, where the agent has any and this process may see them. Opens
    /// files.
    pub fn replicas(&self) -> Option<View> {
        let header = self.segment.header();
        let packed = header.replicas.load(Ordering::Acquire);
        if !self.pid_namespace.is_own() || packed == 0 {
            return None;
        }
        let nonce = header.replicas_nonce.load(Ordering::Relaxed);
        View::open(Pid((packed >> 32) as u32), packed as u32, nonce)
    }

    /// Whether the agent wants a userfaultfd of this process; not of one in another pid namespace.
    pub fn sampling(&self) -> bool {
        self.pid_namespace.is_own() && self.segment.header().sampling.load(Ordering::Relaxed) != 0
    }

    /// Offers a descriptor to the agent. `None` if too many offers are pending.
    pub fn offer(&self, offer: &UserfaultfdOffer) -> Option<PendingOffer> {
        self.segment.header().offers.put(offer)
    }

    /// Whether the agent has taken or refused an offer.
    pub fn is_answered(&self, offered: &PendingOffer) -> bool {
        self.segment.header().offers.is_answered(offered)
    }

    /// Reports the error number for which there is no offer.
    pub fn report_offer_error(&self, error: i32) {
        self.segment
            .header()
            .offer_error
            .store(error as u32, Ordering::Relaxed);
    }

    /// Counts an allocation that this process has no room to track.
    pub fn count_untracked(&self) {
        self.segment
            .header()
            .regions_untracked
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a free ring for thread `tid` of process `pid`, by their numbers in `namespace`. `None`
    /// if there is none, or no memory: the caller reports the accesses that it cannot record with
    /// [`ProgramSession::count_no_ring`].
    pub fn claim(&self, pid: Pid, tid: Tid, namespace: PidNamespace) -> Option<Producer> {
        let owner = Owner {
            pid,
            tid,
            namespace,
        };
        let owner = owner.pack();
        let header = self.segment.header();
        let rings = self.segment.rings();
        let used = header.rings_used.load(Ordering::Relaxed) as usize;
        let from = (header.rings_taken.load(Ordering::Relaxed) as usize).min(rings);
        for index in (from..rings).chain(0..from) {
            // The controls from `used` on may have no memory yet.
            if index >= used && !self.segment.back_control(index) {
                return None;
            }
            let control = self.segment.ring(index)?.control;
            if !take(control, owner) {
                continue;
            }
            let taken = index as u32 + 1;
            header.rings_taken.store(taken, Ordering::Relaxed);
            header.rings_used.fetch_max(taken, Ordering::Relaxed);
            control.sequence.store(
                header.claims.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
            let generation = control.generation.load(Ordering::Relaxed);
            return Some(Producer {
                index,
                pid,
                generation,
                writer: Writer::default(),
            });
        }
        None
    }

    /// Counts an access that no ring was free for, or no memory, and the bytes that it moved.
    pub fn count_no_ring(&self, moved: u64) {
        let header = self.segment.header();
        header.no_ring.fetch_add(1, Ordering::Relaxed);
        header.no_ring_bytes.fetch_add(moved, Ordering::Relaxed);
    }

    #[inline]
    fn ring(&self, producer: &Producer) -> Option<Ring<'_>> {
        let ring = self.segment.ring(producer.index)?;
        (ring.control.generation.load(Ordering::Relaxed) == producer.generation).then_some(ring)
    }

    /// Appends an encoded record. `moved` is what [`moved`] says of it: a refused event is counted
    /// as lost, a refused definition is the caller's to send again.
    #[inline]
    pub fn push(&self, producer: &mut Producer, record: &[u64], moved: Option<u64>) -> Pushed {
        let Some(ring) = self.ring(producer) else {
            return Pushed::NoRing;
        };
        match ring.push(&mut producer.writer, record) {
            Ok(()) => Pushed::Taken,
            Err(refused) => self.refused(ring, refused, moved),
        }
    }

    /// Counts an event that was refused.
    #[cold]
    fn refused(&self, ring: Ring<'_>, refused: Refused, moved: Option<u64>) -> Pushed {
        match (refused, moved) {
            (Refused::Broken, _) => {
                // The agent notices that, too.
                ring.control.released.store(1, Ordering::Release);
                return Pushed::NoRing;
            }
            (Refused::Full, Some(bytes)) => {
                let [lost_events, lost_bytes] = ring.control.lost();
                lost_events.fetch_add(1, Ordering::Relaxed);
                lost_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            (Refused::NoMemory, Some(bytes)) => self.count_no_ring(bytes),
            (_, None) => {}
        }
        Pushed::Full
    }

    /// Encodes and appends a record; [`ProgramSession::push`] for those who have a buffer of their
    /// own.
    #[inline]
    pub fn push_record(&self, producer: &mut Producer, record: &Record<'_>) -> Pushed {
        let Some(moved) = moved(record) else {
            return self.push_definition(producer, record);
        };
        let mut buffer = [0; ACCESS_WORDS];
        let words = record.encode(&mut buffer);
        self.push(producer, buffer.get(..words).unwrap_or(&[]), Some(moved))
    }

    /// Apart, because its buffer is larger than what the stack of a signal handler may have to
    /// spare for every access.
    #[cold]
    #[inline(never)]
    fn push_definition(&self, producer: &mut Producer, record: &Record<'_>) -> Pushed {
        let mut buffer: Words = [0; WORDS_MAX];
        let words = record.encode(&mut buffer);
        self.push(producer, buffer.get(..words).unwrap_or(&[]), None)
    }

    /// Counts a call that a signal handler made while it interrupted the recorder.
    pub fn count_nested(&self, producer: &Producer) {
        if let Some(ring) = self.ring(producer) {
            ring.control.nested().fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives the ring back; the agent empties it and hands it on.
    pub fn release(&self, producer: Producer) {
        if let Some(ring) = self.ring(&producer) {
            ring.control.released.store(1, Ordering::Release);
        }
    }
}

/// Takes a ring for an owner, if it is free.
fn take(control: &Control, owner: u64) -> bool {
    // The load keeps the scan from taking every busy ring's cache line for itself.
    control.owner.load(Ordering::Relaxed) == 0
        && control
            .owner
            .compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

/// How many bytes an event says were read or written, 0 for what happened to a mapping, to a region
/// or in a team, `None` for definitions.
#[inline]
pub fn moved(record: &Record<'_>) -> Option<u64> {
    match record {
        Record::Access {
            op: Op::Read | Op::Write,
            length,
            ..
        } => Some(*length),
        Record::Access { .. }
        | Record::Region { .. }
        | Record::RegionEnd { .. }
        | Record::Bound { .. }
        | Record::Construct { .. }
        | Record::At { .. } => Some(0),
        _ => None,
    }
}

/// One thread's claim on a ring. It is plain data, so that it can be wiped with the memory that it
/// lies in (a forked child must not go on with its parent's ring).
#[derive(Debug)]
pub struct Producer {
    index: usize,
    pid: Pid,
    generation: u64,
    writer: Writer,
}

impl Producer {
    /// The process that claimed it.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    #[cfg(test)]
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the ring.
    Taken,
    /// It was refused: the ring is at its limit, or there is no memory.
    Full,
    /// The agent took the ring away, or it was written over: claim another.
    NoRing,
}
