//! One machine of the cluster: its block store, and what is on its way there.
//!
//! A block that a reader needs and the store does not have is *in flight*: an entry says who waits
//! for it. Where it comes from is decided by the [state machine](crate::machine); this module
//! carries out what that says, and tells it what came of it. A block lands in the store first and
//! leaves the flights after, so whoever holds the lock of the flights and finds it in neither knows
//! that it is not here.

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use hither_core::Spec;
use hither_net::membership::{Membership, State};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::announcements::Listeners;
use crate::driver::Driver;
use crate::flights::Flights;
use crate::key::{BlockKey, ChunkKey, bits};
use crate::machine::{
    Blocks, Counters, FetchResult, Input, Keep, MemberId, Output, PeerState, Request,
    TopologyState, Urgency,
};
use crate::origin::Origin;
use crate::peers::Peers;
use crate::questions::Questions;
use crate::store::disk::settings::{Change, DiskError, DiskSettings};
use crate::store::disk::tier::DiskTier;
use crate::store::memory::{Evicted, Filling, MemoryStore, MemoryStoreError};
use crate::store::victims::Victims;

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Memory for blocks: those that are kept, those on their way, and what a source sends ahead
    /// of them.
    pub memory_bytes: u64,
    /// Length of a block.
    pub block_bytes: u32,
    /// What the memory keeps.
    pub policy: Spec,
    /// Prefetches from sources at the same time, at most: fewer than a source takes requests, so
    /// that readers do not queue behind them.
    pub prefetches_max: usize,
    /// A disk that holds blocks too.
    pub disk: Option<DiskSettings>,
}

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its memory cannot be had.
    #[error(transparent)]
    Memory(#[from] MemoryStoreError),
    /// Its disk cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl NodeSettings {
    /// Memory for what sources send before it is in the store.
    fn arriving_bytes(&self) -> u64 {
        self.memory_bytes / ARRIVING
    }

    /// The longest range that a source is asked for, so long as a block is not longer.
    fn run_bytes_max(&self) -> u64 {
        RUN_BYTES_MAX
            .min(self.arriving_bytes() / 2)
            .max(u64::from(self.block_bytes))
    }
}

/// How many prefetches run at the same time: they take no more than half of the memory for what
/// arrives, so that readers do not wait for it either.
fn prefetches_max(settings: &NodeSettings) -> usize {
    let fit = settings.arriving_bytes() / 2 / settings.run_bytes_max();
    settings.prefetches_max.min(fit as usize).max(1)
}

/// The part of the memory for what sources send before it is in the store: one in so many bytes.
const ARRIVING: u64 = 8;

/// The part of the frames that are never resident which may wait to be written to the disk: one in
/// so many.
const WRITES: usize = 4;

/// The unit in which that is counted.
const PAGE_BYTES: u64 = 4096;

/// The longest range that a source is asked for: one that it reads in one piece.
const RUN_BYTES_MAX: u64 = 8 << 20;

/// What files may take that memory and disk hold.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes {
    /// Of the memory.
    pub(crate) all: u64,
    /// Of that, what is pinned.
    pub(crate) pinned: u64,
    /// What is pinned on the disk.
    pub(crate) pinned_disk: u64,
}

/// See the module.
pub struct Node {
    pub(crate) store: MemoryStore,
    pub(crate) disk: Option<DiskTier>,
    pub(crate) driver: Driver,
    pub(crate) peers: Peers,
    pub(crate) prefetches: Semaphore,
    /// Somebody waits by now for a block that was a prefetch.
    pub(crate) hurried: Notify,
    /// Memory for what a source sends before it is in the store, in pages.
    arriving: Semaphore,
    arriving_pages: u32,
    settings: NodeSettings,
    runtime: Handle,
    pub(crate) flights: Flights,
    pub(crate) held: Mutex<HeldBytes>,
    pub(crate) victims: Victims,
    pub(crate) questions: Questions,
    /// What the node knows of its cluster, once it has joined one.
    pub(crate) membership: OnceLock<Membership>,
    pub(crate) listeners: Listeners,
}

impl Node {
    /// A node that works on `runtime`, alone until it joins others.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(settings: NodeSettings, runtime: Handle) -> Result<Arc<Node>, NodeError> {
        let arriving_bytes = settings.arriving_bytes();
        let arriving_pages = u32::try_from(arriving_bytes / PAGE_BYTES).unwrap_or(u32::MAX >> 1);
        let store = MemoryStore::new(
            settings.memory_bytes - arriving_bytes,
            settings.block_bytes,
            &settings.policy,
        );
        let store = store.map_err(|error| match error {
            MemoryStoreError::TooSmall { least, .. } => MemoryStoreError::TooSmall {
                bytes: settings.memory_bytes,
                block_bytes: settings.block_bytes,
                least: least.div_ceil(ARRIVING - 1) * ARRIVING,
            },
            error => error,
        })?;
        let disk = match &settings.disk {
            Some(disk) => {
                let writes_max = (store.spare_frames() / WRITES).max(1);
                Some(DiskTier::open(disk, settings.block_bytes, writes_max)?)
            }
            None => None,
        };
        let node = Arc::new(Node {
            store,
            disk,
            driver: Driver::new(),
            peers: Peers::default(),
            prefetches: Semaphore::new(prefetches_max(&settings)),
            hurried: Notify::new(),
            arriving: Semaphore::new(arriving_pages as usize),
            arriving_pages,
            settings,
            runtime,
            flights: Flights::default(),
            held: Mutex::default(),
            victims: Victims::default(),
            questions: Questions::default(),
            membership: OnceLock::new(),
            listeners: Listeners::default(),
        });
        node.start_disk()?;
        node.runtime.spawn(keep_time(Arc::downgrade(&node)));
        Ok(node)
    }

    /// What it was made of.
    pub fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// The runtime that the node works on.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The blocks that the node holds.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// The disk that holds blocks too, if there is one.
    pub fn disk(&self) -> Option<&DiskTier> {
        self.disk.as_ref()
    }

    /// Writes to the disk what is to be kept there, and lets go of it. Waits for the disk.
    pub fn close(&self) {
        if let Some(disk) = &self.disk {
            disk.close();
        }
    }

    /// What the state machine has counted.
    pub fn machine_counters(&self) -> Counters {
        self.driver.counters()
    }

    /// What the state machine knows of each other member.
    pub fn members(&self) -> Vec<PeerState> {
        self.driver.members()
    }

    /// How far the members of the cluster are from each other.
    pub fn topology(&self) -> TopologyState {
        self.driver.topology()
    }

    /// What is known of the cluster. `None` if the node is alone.
    pub fn membership(&self) -> Option<State> {
        self.membership
            .get()
            .map(|membership| membership.borrow().clone())
    }

    /// A member's name, as far as it is known.
    fn name_of(&self, id: MemberId) -> String {
        let state = self.membership();
        let member = state.as_ref().and_then(|state| state.view.member(id));
        member.map_or_else(|| format!("{id:?}"), |member| member.name.clone())
    }

    /// Blocks that are on their way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Asks for blocks that are in flight: the local disk first, where there is one.
    pub(crate) fn want(self: &Arc<Self>, chunk: ChunkKey, mask: u64, urgency: Urgency) {
        let mut blocks = Blocks::new(chunk, self.want_from_disk(chunk, mask));
        while blocks.mask != 0 {
            // What has come since the reader looked, as what was a prefetch may, is here: the
            // machine would take it for dropped, and ask for it again.
            for bit in bits(blocks.mask) {
                let key = chunk.block(bit);
                if let Some(data) = self.store.peek(&key) {
                    self.flights.give(&key, &data, Origin::Memory);
                    blocks.mask &= !(1 << bit);
                }
            }
            let are_missing = || {
                let mut keys = chunk.blocks(blocks.mask);
                blocks.mask != 0 && keys.all(|key| !self.store.contains(&key))
            };
            if self.input_if(are_missing, Input::Want { blocks, urgency }) {
                return;
            }
        }
    }

    /// Tells the state machine of blocks that memory and disk no longer have. Whoever drops a block
    /// from one of them calls this after; those that are still here are left out.
    pub(crate) fn note_dropped(self: &Arc<Self>, blocks: Blocks) {
        for key in blocks.chunk.blocks(blocks.mask) {
            let (chunk, bit) = key.in_chunk();
            let input = Input::Dropped(Blocks::new(chunk, bit));
            // A block that comes back is reported after this step.
            self.input_if(|| !self.is_here(&key), input);
        }
    }

    pub(crate) fn is_here(&self, key: &BlockKey) -> bool {
        let is_on_disk = |disk: &DiskTier| disk.contains(key);
        self.store.contains(key) || self.disk.as_ref().is_some_and(is_on_disk)
    }

    fn start_disk(self: &Arc<Self>) -> Result<(), DiskError> {
        let (Some(disk), Some(settings)) = (&self.disk, &self.settings.disk) else {
            return Ok(());
        };
        let node = Arc::downgrade(self);
        let listener = move |change| {
            if let Some(node) = node.upgrade() {
                node.on_disk_change(change);
            }
        };
        let started = disk.start(Arc::new(listener));
        started.map_err(|error| DiskError::Io {
            path: settings.folder.clone(),
            error,
        })
    }

    fn on_disk_change(self: &Arc<Self>, change: Change) {
        match change {
            Change::Dropped(blocks) => self.note_dropped(blocks),
            Change::Stored(blocks) => {
                // What is in memory is known to be held. What was evicted before it was written
                // was reported as dropped.
                let key = blocks.chunk.blocks(blocks.mask).next();
                let is_on_disk_alone =
                    || key.is_some_and(|key| !self.store.contains(&key) && self.is_here(&key));
                self.input_if(is_on_disk_alone, Input::Held(blocks));
            }
        }
    }

    /// Tells the state machine of all blocks on the disk.
    pub(crate) fn report_disk(self: &Arc<Self>) {
        for blocks in self.disk.iter().flat_map(DiskTier::chunks) {
            self.input(Input::Held(blocks));
        }
    }

    /// The same if `holds` says so. Returns whether it did.
    pub(crate) fn input_if(self: &Arc<Self>, holds: impl FnOnce() -> bool, input: Input) -> bool {
        let mut held = false;
        let holds = || {
            held = holds();
            held
        };
        for output in self.driver.step_if(holds, input, &self.peers) {
            self.carry_out(output);
        }
        held
    }

    /// Tells the state machine what happened, and does what it says.
    pub(crate) fn input(self: &Arc<Self>, input: Input) {
        for output in self.driver.step(input, &self.peers) {
            self.carry_out(output);
        }
    }

    fn carry_out(self: &Arc<Self>, output: Output) {
        match output {
            // The driver has sent it.
            Output::Send { .. } => {}
            Output::Fetch {
                blocks,
                keeper,
                urgency,
            } => self.fetch(blocks, urgency, keeper),
            Output::Hurry(blocks) => {
                self.flights.hurry(blocks);
                self.hurried.notify_waiters();
            }
            Output::Provide {
                home,
                request,
                blocks,
                keep,
            } => self.provide(home, request, blocks, keep),
            Output::Forward { blocks, to, keep } => self.forward(blocks, to, keep),
            Output::Drop(blocks) => self.drop_blocks(blocks),
            Output::Ready(blocks) => self.settle(blocks),
            Output::Fail { blocks, fault } => self.flights.fail(blocks, fault),
            Output::Shed(blocks) => self.flights.shed(blocks),
            Output::Suspected(member) => {
                let name = self.name_of(member);
                tracing::warn!("member {name} does not answer, or too slowly: going on without it");
            }
            Output::Trusted(member) => {
                tracing::info!("member {} answers again", self.name_of(member));
            }
        }
    }

    /// A run, in parts that a source is asked for.
    fn parts(&self, run: Range<u32>) -> impl Iterator<Item = Range<u32>> + use<> {
        let bytes = self.settings.run_bytes_max();
        let blocks = (bytes / u64::from(self.settings.block_bytes)) as usize;
        let end = run.end;
        run.step_by(blocks)
            .map(move |start| start..(start + blocks as u32).min(end))
    }

    /// Waits until there is memory for `bytes` that a source sends.
    pub(crate) async fn room_for(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX);
        let pages = pages.min(self.arriving_pages);
        // The semaphore is never closed.
        self.arriving.acquire_many(pages).await.ok()
    }

    /// Reads blocks from the source, each run of them by one request.
    fn fetch(self: &Arc<Self>, blocks: Blocks, urgency: Urgency, keeper: Option<MemberId>) {
        let mut lost = 0;
        for run in runs(blocks.mask).flat_map(|run| self.parts(run)) {
            let mask = mask_of(&run);
            match self.flights.file(blocks.chunk.blocks(mask)) {
                Some(file) => {
                    let first = blocks.chunk.block(run.start).index;
                    file.fetch(first..first + run.len() as u32, urgency, keeper);
                }
                None => lost |= mask,
            }
        }
        if lost != 0 {
            // Nobody wanted them here any more. Who does by now asks anew.
            let blocks = blocks.with_mask(lost);
            let result = FetchResult::NotKept;
            self.input(Input::FetchEnded { blocks, result });
        }
    }

    /// Sends blocks of the store to another node.
    fn provide(self: &Arc<Self>, home: MemberId, request: Request, blocks: Blocks, keep: Keep) {
        let mut missing = 0;
        for bit in bits(blocks.mask) {
            let key = blocks.chunk.block(bit);
            match self.store.get(&key) {
                Some(data) => {
                    let (to, id) = (request.member, Some(request.id));
                    self.peers.send_block(to, id, key, data, keep);
                }
                None => missing |= 1 << bit,
            }
        }
        let on_disk = missing & self.disk.as_ref().map_or(0, |it| it.held(&blocks.chunk));
        if on_disk != 0 {
            let blocks = blocks.with_mask(on_disk);
            self.provide_from_disk(home, request, blocks, keep);
        }
        self.missing(home, request, blocks.with_mask(missing & !on_disk));
    }

    /// Tells the state machine of blocks that could not be sent.
    pub(crate) fn missing(self: &Arc<Self>, home: MemberId, request: Request, blocks: Blocks) {
        if blocks.mask != 0 {
            self.input(Input::Missing {
                home,
                request,
                blocks,
            });
        }
    }

    /// The machine has no more to do for these blocks. Who waited has them since they landed, but
    /// for those who came after that and found them evicted again: they ask anew.
    fn settle(self: &Arc<Self>, blocks: Blocks) {
        let mut again = [0, 0];
        for bit in bits(blocks.mask) {
            let key = blocks.chunk.block(bit);
            let Some(urgency) = self.flights.urgency(&key) else {
                continue;
            };
            match self.store.peek(&key) {
                Some(data) => drop(self.flights.give(&key, &data, Origin::Memory)),
                None => again[usize::from(urgency == Urgency::Demand)] |= 1 << bit,
            }
        }
        for (mask, urgency) in again.into_iter().zip([Urgency::Prefetch, Urgency::Demand]) {
            if mask != 0 {
                self.want(blocks.chunk, mask, urgency);
            }
        }
    }

    /// A block that came `from` there, filled: keeps it, on the disk too if there is one and the
    /// block was sent to be kept, and gives it to those who wait.
    pub(crate) fn keep(self: &Arc<Self>, filling: Filling, from: Origin, keep: Keep) -> Bytes {
        let key = filling.key();
        let mut evicted = Evicted::new();
        let data = self
            .store
            .insert(filling, keep == Keep::Moved, &mut evicted);
        if let Some(disk) = self.disk.as_ref().filter(|_| keep != Keep::No) {
            disk.offer(key, data.clone());
        }
        self.flights.give(&key, &data, from);
        match from {
            Origin::Member(member) if keep == Keep::Moved => self.give_up(evicted, Some(member)),
            Origin::Source => self.give_up(evicted, None),
            Origin::Member(_) | Origin::Memory | Origin::Disk => self.note_evicted(evicted),
        }
        data
    }
}

/// Gives `node` its timer inputs, until it is gone.
async fn keep_time(node: Weak<Node>) {
    // A node that is dropped meanwhile is gone at the latest when this wait ends.
    const WAIT_MAX: Duration = Duration::from_secs(1);
    while let Some(node) = node.upgrade() {
        let Some(wait) = node.driver.idle_for() else {
            node.input(Input::Timer);
            continue;
        };
        tokio::select! {
            () = node.driver.nearer() => {}
            () = tokio::time::sleep(wait.min(WAIT_MAX)) => {}
        }
    }
}

/// The runs of successive bits of `mask`.
pub(crate) fn runs(mut mask: u64) -> impl Iterator<Item = Range<u32>> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let start = mask.trailing_zeros();
        let run = start..start + (mask >> start).trailing_ones();
        mask &= !mask_of(&run);
        Some(run)
    })
}

/// The bits of a run, which is not empty.
fn mask_of(run: &Range<u32>) -> u64 {
    u64::MAX >> (u64::BITS - run.len() as u32) << run.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_successive_bits() {
        let of = |mask| {
            runs(mask)
                .map(|run| (run.start, run.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0), []);
        assert_eq!(of(u64::MAX), [(0, 64)]);
        assert_eq!(of(0b1011_0001), [(0, 1), (4, 6), (7, 8)]);
        assert_eq!(of(1 << 63), [(63, 64)]);
    }
}
