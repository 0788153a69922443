//! One machine of the cluster: its block store, and what is on its way there.
//!
//! A block that a reader needs and the memory does not have is *in flight*: in the table of the
//! [protocol](crate::protocol), which says where it comes from. This module carries out what
//! that says, and tells it what came of it.
//!
//! Who waits for a block is in that table too. So whoever lands the block has its bytes in hand for
//! all who came before; who comes after finds it in memory, which is looked at under the protocol's
//! lock.

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
use crate::key::{BlockKey, ChunkKey, bits};
use crate::peers::Peers;
use crate::pending::{Landing, Origin, Waiter, WantedFile, file_of, hand_over};
use crate::protocol::{
    Blocks, Counters, Input, Keep, MemberId, Output, PeerState, Request, Token, TopologyState,
    Urgency,
};
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

    /// What the protocol has counted.
    pub fn protocol_counters(&self) -> Counters {
        self.driver.counters()
    }

    /// What the protocol knows of each other member.
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
        self.driver.blocks_in_flight()
    }

    /// A reader waits for blocks of a chunk, or the prefetch wants them. What is in memory by now
    /// is given at once. Returns those of the others that were not on their way: they are from now
    /// on.
    pub(crate) fn want(
        self: &Arc<Self>,
        file: &Arc<dyn WantedFile>,
        (chunk, mask): (ChunkKey, u64),
        urgency: Urgency,
        waiter: Option<Waiter>,
    ) -> u64 {
        let waiter = waiter.map(Token::new);
        let mut here: Vec<(u32, Bytes)> = Vec::new();
        let mut started = 0;
        let outputs = self.driver.step(
            |protocol| {
                let mut blocks = Blocks::new(chunk, mask);
                // The protocol would take what has come since the reader looked for dropped.
                for bit in bits(mask) {
                    let key = chunk.block(bit);
                    if let Some(data) = self.store.peek(&key) {
                        here.push((key.index, data));
                        blocks.mask &= !(1 << bit);
                    }
                }
                if blocks.mask == 0 {
                    return None;
                }
                started = blocks.mask & !protocol.in_flight(blocks);
                let on_disk = self.disk.as_ref().map_or(0, |disk| disk.held(&chunk));
                Some(Input::Want {
                    blocks,
                    urgency,
                    file: Token::new(Arc::clone(file)),
                    waiter: waiter.clone(),
                    on_disk: on_disk & blocks.mask,
                })
            },
            &self.peers,
        );
        self.carry_out(outputs, Landing::Nothing);
        if let Some(waiter) = &waiter
            && let Waiter::Read(read) = waiter.get::<Waiter>()
        {
            for (index, data) in here {
                read.supply(index, Ok(data), Origin::Memory);
            }
        }
        started
    }

    /// Tells the protocol what came of a block, and those who waited for it. Returns whether a
    /// reader did.
    pub(crate) fn land(self: &Arc<Self>, input: Input, landing: Landing<'_>) -> bool {
        let outputs = self.driver.step(|_| Some(input), &self.peers);
        self.carry_out(outputs, landing)
    }

    /// Tells the protocol what happened, and does what it says. What somebody has seen of
    /// memory and disk is told as far as it is still so: what comes back is told after this.
    pub(crate) fn input(self: &Arc<Self>, input: Input) {
        let outputs = self.driver.step(|_| self.still_true(input), &self.peers);
        self.carry_out(outputs, Landing::Nothing);
    }

    /// What of an input is still so.
    fn still_true(&self, mut input: Input) -> Option<Input> {
        let is_in_memory = |key: &BlockKey| self.store.contains(key);
        let is_on_disk = |key: &BlockKey| {
            let disk = self.disk.as_ref();
            disk.is_some_and(|disk| disk.contains(key))
        };
        let keep = |blocks: &mut Blocks, is_so: &dyn Fn(&BlockKey) -> bool| {
            let chunk = blocks.chunk;
            blocks.mask = bits(blocks.mask)
                .filter(|&bit| is_so(&chunk.block(bit)))
                .fold(0, |mask, bit| mask | 1 << bit);
            blocks.mask != 0
        };
        let holds = match &mut input {
            Input::Dropped(blocks) | Input::Victims { blocks, .. } => {
                keep(blocks, &|key| !is_in_memory(key) && !is_on_disk(key))
            }
            // What is in memory is known to be held. What was evicted before it was written was
            // reported as dropped.
            Input::Held(blocks) => keep(blocks, &|key| !is_in_memory(key) && is_on_disk(key)),
            _ => true,
        };
        holds.then_some(input)
    }

    /// Tells the protocol of blocks that memory and disk no longer have. Whoever drops a block
    /// from one of them calls this after.
    pub(crate) fn note_dropped(self: &Arc<Self>, blocks: Blocks) {
        self.input(Input::Dropped(blocks));
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
            Change::Stored(blocks) => self.input(Input::Held(blocks)),
        }
    }

    /// Tells the protocol of all blocks on the disk.
    pub(crate) fn report_disk(self: &Arc<Self>) {
        for blocks in self.disk.iter().flat_map(DiskTier::chunks) {
            self.input(Input::Held(blocks));
        }
    }

    /// Does what the protocol says. Returns whether a reader waited for what has landed.
    fn carry_out(self: &Arc<Self>, outputs: Vec<Output>, landing: Landing<'_>) -> bool {
        let mut has_readers = false;
        for output in outputs {
            match output {
                Output::Ready { chunk, waiters } | Output::Fail { chunk, waiters } => {
                    has_readers |= hand_over(chunk, &waiters, landing);
                }
                // The driver has sent it.
                Output::Send { .. } => {}
                Output::Fetch {
                    blocks,
                    keeper,
                    urgency,
                    file,
                } => self.fetch(file_of(&file), blocks, urgency, keeper),
                Output::ReadDisk(blocks) => self.read_disk(blocks),
                Output::Hurry(_) => self.hurried.notify_waiters(),
                Output::Provide {
                    home,
                    request,
                    blocks,
                    keep,
                } => self.provide(home, request, blocks, keep),
                Output::Forward { blocks, to, keep } => self.forward(blocks, to, keep),
                Output::Drop(blocks) => self.drop_blocks(blocks),
                // Who watches them sees that they are gone.
                Output::Shed { blocks, file, .. } => {
                    let blocks = u64::from(blocks.mask.count_ones());
                    file_of(&file).on_dropped_prefetches(blocks);
                }
                Output::Suspected(member) => tracing::warn!(
                    "member {} does not answer, or too slowly: going on without it",
                    self.name_of(member)
                ),
                Output::Trusted(member) => {
                    tracing::info!("member {} answers again", self.name_of(member));
                }
            }
        }
        has_readers
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
    fn fetch(
        &self,
        file: &Arc<dyn WantedFile>,
        blocks: Blocks,
        urgency: Urgency,
        keeper: Option<MemberId>,
    ) {
        for run in runs(blocks.mask).flat_map(|run| self.parts(run)) {
            let first = blocks.chunk.block(run.start).index;
            let run = first..first + run.len() as u32;
            Arc::clone(file).fetch(run, urgency, keeper);
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

    /// Tells the protocol of blocks that could not be sent.
    pub(crate) fn missing(self: &Arc<Self>, home: MemberId, request: Request, blocks: Blocks) {
        if blocks.mask != 0 {
            self.input(Input::Missing {
                home,
                request,
                blocks,
            });
        }
    }

    /// Lands a block that came `from` there, filled: keeps it, on the disk too if there is one and
    /// the block was sent to be kept, tells the protocol by `input`, and gives it to those who
    /// wait.
    pub(crate) fn keep(
        self: &Arc<Self>,
        filling: Filling,
        from: Origin,
        keep: Keep,
        input: Input,
    ) -> Bytes {
        let key = filling.key();
        let mut evicted = Evicted::new();
        let data = self
            .store
            .insert(filling, keep == Keep::Moved, &mut evicted);
        if let Some(disk) = self.disk.as_ref().filter(|_| keep != Keep::No) {
            disk.offer(key, data.clone());
        }
        self.land(input, Landing::Block(&data, from));
        match from {
            Origin::Member(member) if keep == Keep::Moved => self.give_up(evicted, Some(member)),
            Origin::Source => self.give_up(evicted, None),
            Origin::Member(_) | Origin::Memory | Origin::Disk => self.note_evicted(evicted),
        }
        // It may be gone already, and whoever evicted it may have said so before.
        if !self.store.contains(&key) {
            self.note_block_dropped(key);
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
