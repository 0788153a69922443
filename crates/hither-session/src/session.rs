//! The agent's side of a session: makes the shared segment, drains the rings, recycles the rings of
//! threads that are gone, and gives back memory that nothing is queued in any more.
//!
//! The segment (`shared_memory`) is freed with the last process that uses it. If the agent
//! dies, nothing empties the rings: the programs fill them, drop what no longer fits, and run on.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::bind_requests::BindRequestSender;
use crate::chunks::{CHUNK_BYTES, CHUNKS_MAX};
use crate::plausible::{TRANSFER_BYTES_MAX, is_plausible};
use crate::program_session::Owner;
use crate::record::{FRAMES_MAX, Record, WORDS_MAX, Words};
use crate::ring::{Popped, Reader, Ring};
use crate::segment::{self, Layout, Segment};
use crate::session_name::SessionName;
use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::page_bytes;
use hither_kernel::page_sampling::{SamplingError, UserfaultfdOffer};
use hither_kernel::pid_namespace::{self, ForeignProcesses, PidNamespace};
use hither_kernel::process::monotonic_ns;
use hither_kernel::seccomp;
use hither_kernel::shared_memory;
use hither_kernel::syscalls::SYS_CACHESTAT;
use hither_kernel::sysfs::kib_field;

/// What the pool of chunks may take of the memory that this process may use. It is charged to the
/// programs: an agent that is dead or starved must not leave them without.
const POOL_MEMORY_DIVISOR: u64 = 8;

/// The smallest pool.
const POOL_BYTES_MIN: u64 = 1 << 20;

/// The largest pool where the kernel counts memory that is not used against what it may promise to
/// programs.
const POOL_BYTES_MAX_IF_COUNTED: u64 = 128 << 20;

/// How many threads a call of [`Session::reap`] looks up in /proc at most: 2 ms of work.
const LOOKUPS_MAX: usize = 512;

/// Free chunks that keep their memory for the next burst.
const WARM_CHUNKS: usize = (256 << 10) / CHUNK_BYTES;

/// How many chunks a call of [`Session::reap`] gives back to the kernel at most: 3 ms of work.
const COOLED_CHUNKS_MAX: usize = 1024;

/// How far ahead of the agent's clock the time of a record may be.
const CLOCK_SLACK_NS: u64 = 1_000_000_000;

/// The shape of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How many threads can record at once, 1 to 65536.
    pub rings: usize,
    /// How much may be queued for one thread, from 16 KiB to 1 GiB: a multiple of 16 KiB.
    pub ring_bytes: usize,
    /// How much may be queued for all threads: a thread holds at least 16 KiB of it from its first
    /// access on. It takes memory only while it is used. At most an eighth of the memory that this
    /// process may use, or 1 MiB; with `vm.overcommit_memory=2`, where all of it counts, at most
    /// 128 MiB.
    pub pool_bytes: usize,
    /// How many frames of a call stack make its signature, 1 to [`FRAMES_MAX`].
    pub frames_max: usize,
    /// Whether accesses to files are recorded.
    pub files: bool,
    /// Size of a block: a power of two, or 0 to record every access. A read is not recorded if it
    /// is known, by its explicit offset or by the position that is followed, to go on in the block
    /// in which the thread's last request ended. Counting references to blocks does not
    /// need such reads, and a program that reads a file in small pieces is spared most of the cost.
    /// The time of other accesses is that of the kernel's last tick.
    pub block_bytes: u64,
    /// Whether programs track which descriptors are read at random, which
    /// [`Session::disable_readahead`] needs. Needs `block_bytes`.
    pub readahead: bool,
    /// Whether programs say of a file that they open how much of it is cached, before they read it
    /// ([`Record::Object`]). They do not where a filter of system calls forbids the question.
    pub samples_cached: bool,
    /// Whether programs announce themselves when they start, whatever they do then. Otherwise they
    /// do with their first record.
    pub announced: bool,
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
            rings: 1 << 14,
            ring_bytes: 1 << 20,
            pool_bytes: 512 << 20,
            frames_max: 32,
            files: true,
            block_bytes: 0,
            readahead: false,
            samples_cached: false,
            announced: true,
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
    pub pid: Pid,
    /// The thread that claimed it.
    pub tid: Tid,
    /// The pid namespace of both. In another one than ours (a container) they name no process of
    /// ours, or another one.
    pub namespace: PidNamespace,
    /// Counts the owners that this ring has had: index and generation name one owner.
    pub generation: u64,
}

/// What was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Accesses, and events of regions, for which there was no room: the agent was late.
    pub events: u64,
    /// The bytes that those accesses moved.
    pub bytes: u64,
    /// The same, of threads that found no ring free or no memory.
    pub no_ring: u64,
    /// The bytes that those accesses moved.
    pub no_ring_bytes: u64,
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

    /// The bytes that these moved. What a nested call moved is not counted.
    pub fn unrecorded_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.no_ring_bytes)
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
    /// Where each ring is read that was ever used.
    readers: Vec<Reader>,
    /// How many threads were looked up so far.
    looked_up: usize,
    /// The fewest free chunks with memory since the last [`Session::reap`].
    warm_min: usize,
}

impl Session {
    /// Makes the segment. Fails if there is no room, or the options are out of range.
    pub fn create(options: SessionOptions) -> io::Result<Self> {
        let layout = Layout::new(options.rings, pool_bytes(&options) / CHUNK_BYTES)
            .filter(|_| (CHUNK_BYTES..=1 << 30).contains(&options.ring_bytes))
            .filter(|_| options.ring_bytes.is_multiple_of(CHUNK_BYTES))
            .filter(|_| (1..=FRAMES_MAX).contains(&options.frames_max))
            .filter(|_| options.block_bytes == 0 || options.block_bytes.is_power_of_two())
            .filter(|_| options.region_min == 0 || options.region_min >= page_bytes())
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
        // std seeds these keys from the kernel's random numbers.
        let nonce = std::hash::RandomState::new().build_hasher().finish();
        let (id, segment) = Segment::create(layout, nonce, options.region_min > 0)?;
        let name = SessionName {
            id,
            filters: seccomp::filter_count(),
            nonce,
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
            readers: Vec::new(),
            looked_up: 0,
            warm_min: 0,
        })
    }

    /// What programs get as `HITHER_SESSION`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Passes every queued record to `sink`, oldest first within a ring, and frees the rings of
    /// threads that said they are done. Returns the number of records.
    pub fn drain(&mut self, mut sink: impl FnMut(&RingInfo, Record<'_>)) -> usize {
        self.drain_while(|ring, record| {
            sink(ring, record);
            true
        })
    }

    /// As [`Session::drain`], but goes on to the next ring when `sink` returns false. The rest of
    /// the ring stays queued.
    pub fn drain_while(&mut self, mut sink: impl FnMut(&RingInfo, Record<'_>) -> bool) -> usize {
        let mut records = 0;
        for index in 0..self.rings_used() {
            // Read before the ring is emptied: a released ring gets no more records.
            let released = self
                .ring(index)
                .is_some_and(|ring| ring.control.released.load(Ordering::Acquire) != 0);
            let Drained { count, is_broken } = self.drain_ring(index, &mut sink);
            records += count;
            if released && !is_broken && self.is_empty(index) {
                self.recycle(index, true);
            }
        }
        self.warm_min = self.warm_min.min(self.segment.chunks().warm());
        records
    }

    /// Frees the rings whose thread is gone: it has ended, or has claimed a newer ring since
    /// (exec). Their content goes to `sink`. Gives the memory back to the kernel that no drain
    /// since the last call needed. It looks up to 512 threads up in /proc, others the next time,
    /// and the list of all processes where some are in another pid namespace; a few calls a second
    /// are enough. A ring in another namespace is held until its process has ended.
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
        let first = self.looked_up % claims.len().max(1);
        self.looked_up = first + LOOKUPS_MAX;
        let in_turn = claims.iter().cycle().skip(first).take(claims.len());
        for (turn, &(index, owner, sequence)) in in_turn.enumerate() {
            let superseded = newest.get(&owner).is_some_and(|&newest| newest > sequence);
            let Owner {
                pid,
                tid,
                namespace,
            } = Owner::unpack(owner);
            let is_gone = || !self.foreign.has_thread(namespace, pid, tid);
            if superseded || turn < LOOKUPS_MAX && is_gone() {
                let mut sink = |ring: &RingInfo, record: Record<'_>| {
                    sink(ring, record);
                    true
                };
                let Drained { count, is_broken } = self.drain_ring(index, &mut sink);
                records += count;
                if !is_broken {
                    self.recycle(index, true);
                }
            }
        }
        self.give_memory_back();
        records
    }

    fn give_memory_back(&mut self) {
        let chunks = self.segment.chunks();
        let surplus = self.warm_min.saturating_sub(WARM_CHUNKS);
        // SAFETY: the range is a chunk, whole pages of the segment, which nobody has taken.
        let clear = |at| unsafe { shared_memory::clear(at, CHUNK_BYTES) };
        for _ in 0..surplus.min(COOLED_CHUNKS_MAX) {
            if !chunks.cool(clear) {
                break;
            }
        }
        self.warm_min = chunks.warm();
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
        let packed = u64::from(Pid::own().0) << 32 | u64::from(control);
        header.replicas.store(packed, Ordering::Release);
    }

    /// Stops recording accesses to the file of this key, as far as there is room to remember it.
    pub fn stop_recording_file(&self, file: FileKey) {
        let unrecorded = &self.segment.header().unrecorded;
        unrecorded.place(file).store(file.0, Ordering::Relaxed);
    }

    /// Has programs record no accesses to files until further notice, or record them again. A
    /// program that starts meanwhile announces itself with its first record.
    pub fn pause(&self, paused: bool) {
        let header = self.segment.header();
        header.paused.store(u32::from(paused), Ordering::Relaxed);
    }

    /// Has programs record no reads of a file until further notice, as far as it was all cached
    /// when they opened it, or record them again. Needs [`SessionOptions::samples_cached`].
    pub fn skip_cached(&self, skipped: bool) {
        let skips_cached = &self.segment.header().skips_cached;
        skips_cached.store(u32::from(skipped), Ordering::Relaxed);
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
    pub fn processes(&self) -> Vec<Pid> {
        shared_memory::other_users(self.id, self.segment.kept_bytes())
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
        let counts = [
            &header.no_ring,
            &header.regions_untracked,
            &header.no_ring_bytes,
        ];
        match counts.map(|count| count.load(Ordering::Relaxed)) {
            [no_ring, regions, bytes]
                if no_ring.max(regions) <= elapsed_ns && is_possible(no_ring, bytes) =>
            {
                (lost.no_ring, lost.regions, lost.no_ring_bytes) = (no_ring, regions, bytes);
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

    fn is_empty(&self, index: usize) -> bool {
        let reader = self.readers.get(index).copied().unwrap_or_default();
        self.ring(index).is_some_and(|ring| ring.is_empty(&reader))
    }

    fn drain_ring(
        &mut self,
        index: usize,
        sink: &mut impl FnMut(&RingInfo, Record<'_>) -> bool,
    ) -> Drained {
        let Some(ring) = self.segment.ring(index) else {
            return Drained::default();
        };
        let owner = ring.control.owner.load(Ordering::Acquire);
        if owner == 0 {
            return Drained::default();
        }
        if self.readers.len() <= index {
            self.readers.resize(index + 1, Reader::default());
        }
        let reader = &mut self.readers[index];
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
        let mut goes_on = true;
        let mut drained = Drained::default();
        // No longer than to take what is queued now: a fast producer, or one that writes over the
        // positions, would keep the agent here.
        let records_max = ring.queued_words(reader);
        while goes_on
            && !drained.is_broken
            && drained.count < records_max
            && let Some(popped) = ring.pop(reader, &mut self.buffer)
        {
            drained.is_broken = popped == Popped::Broken;
            let record = match popped {
                Popped::Record(words) => Record::decode(&self.buffer[..words]),
                Popped::Damaged | Popped::Broken => None,
            };
            match record.filter(|record| is_plausible(record, &mut is_past)) {
                Some(record) => goes_on = sink(&info, record),
                None => self.past.damaged += 1,
            }
            drained.count += 1;
        }
        ring.acknowledge(reader);
        if drained.is_broken {
            // Its owner claims another one.
            self.recycle(index, false);
        }
        drained
    }

    /// Frees a ring. If its owner `is_gone`, all its chunks are free, too.
    fn recycle(&mut self, index: usize, is_gone: bool) {
        let elapsed_ns = self.elapsed_ns();
        let (Some(ring), Some(reader)) = (self.segment.ring(index), self.readers.get_mut(index))
        else {
            return;
        };
        add_losses(&mut self.past, ring, elapsed_ns);
        ring.recycle(reader, is_gone);
        let taken = &self.segment.header().rings_taken;
        taken.fetch_min(index as u32, Ordering::Relaxed);
    }
}

/// What became of a ring.
#[derive(Debug, Default)]
struct Drained {
    /// How many records there were, damaged ones included.
    count: usize,
    /// It was of no more use, and is free.
    is_broken: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

/// How large the pool of a session is.
fn pool_bytes(options: &SessionOptions) -> usize {
    let memory_bytes = match MemoryGroup::of_this_process() {
        Ok(Some(group)) => group.limit_bytes(),
        _ => std::fs::read_to_string("/proc/meminfo")
            .ok()
            .map(|text| kib_field(&text, "MemTotal:")),
    };
    let share_max = memory_bytes.unwrap_or(u64::MAX) / POOL_MEMORY_DIVISOR;
    let counted_max = if shared_memory::counts_as_a_whole() {
        POOL_BYTES_MAX_IF_COUNTED
    } else {
        u64::MAX
    };
    // One thread may have all of it, but for what another one has of it.
    let bytes = options.pool_bytes.max(options.ring_bytes) as u64;
    let bytes = bytes.min(share_max.max(POOL_BYTES_MIN)).min(counted_max);
    bytes.min((CHUNKS_MAX * CHUNK_BYTES) as u64) as usize
}

/// Whether so many accesses can have moved so many bytes.
fn is_possible(events: u64, bytes: u64) -> bool {
    bytes <= events.saturating_mul(TRANSFER_BYTES_MAX)
}

/// Adds what a ring has lost in so many nanoseconds. No thread loses a record a nanosecond, or more
/// bytes than each record may move.
fn add_losses(lost: &mut Lost, ring: Ring<'_>, elapsed_ns: u64) {
    let control = ring.control;
    let [lost_events, lost_bytes] = control.lost();
    let counts = [lost_events, control.nested(), lost_bytes];
    let [events, nested, bytes] = counts.map(|count| count.load(Ordering::Relaxed));
    if events.max(nested) > elapsed_ns || !is_possible(events, bytes) {
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
    set32(&header.chunks, layout.chunks() as u32);
    set32(
        &header.ring_chunks,
        (options.ring_bytes / CHUNK_BYTES) as u32,
    );
    set32(&header.frames_max, options.frames_max as u32);
    set32(&header.agent, Pid::own().0);
    set64(&header.pid_namespace, pid_namespace::own_inode());
    set64(&header.region_min, options.region_min);
    let block_bits = options.block_bytes.checked_ilog2().unwrap_or(0);
    set32(&header.block_bits, block_bits);
    let readahead = if options.readahead {
        segment::READAHEAD_TRACKED
    } else {
        segment::READAHEAD_UNTRACKED
    };
    set32(&header.readahead, readahead);
    let samples_cached = options.samples_cached && seccomp::allows(SYS_CACHESTAT);
    set32(&header.samples_cached, u32::from(samples_cached));
    set32(&header.announced, u32::from(options.announced));
    set32(&header.no_files, u32::from(!options.files));
    set32(&header.sampling, u32::from(options.sampling));
    set64(&header.file_nodes, options.file_nodes);
    set32(&header.state, segment::RECORDING);
    header.magic.store(segment::MAGIC, Ordering::Release);
}

#[cfg(test)]
mod tests;
