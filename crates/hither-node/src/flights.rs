//! Blocks that are on their way to this node, and who waits for them.

use std::collections::hash_map::Entry as MapEntry;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc::UnboundedSender;

use crate::key::{BlockKey, ChunkKey, bits};
use crate::machine::{Blocks, Fault, MemberId, Urgency};
use crate::origin::Origin;
use crate::pending::PendingRead;
use crate::source::{SourceError, SourcePath};
use crate::store::memory::MemoryStore;

/// A version of a file, as far as the node needs to know it to get its blocks.
pub(crate) trait FlightFile: Send + Sync {
    /// Where it is at its source.
    fn path(&self) -> &SourcePath;

    /// Length of block `index`.
    fn block_len(&self, index: u32) -> u64;

    /// Starts to read successive blocks of one chunk from the source. Each of them lands in the
    /// node, or is sent to the `keeper`, or the node is told why not.
    fn fetch(self: Arc<Self>, blocks: Range<u32>, urgency: Urgency, keeper: Option<MemberId>);

    /// A prefetch of it was given up.
    fn on_dropped_prefetch(&self);

    /// A block of it came from another node.
    fn on_peer_block(&self);

    /// Whether the source says that block `index` has other bytes than these, which came from
    /// another node.
    fn contradicts(&self, index: u32, bytes: &[u8]) -> bool;

    /// Readers that waited got so many bytes from there.
    fn on_served(&self, from: Origin, bytes: u64);

    /// A block of it, of so many bytes, was read from the local disk.
    fn on_disk_block(&self, bytes: u64);

    /// A block of it was read past the store: no memory was free for it.
    fn on_overflow(&self);
}

/// See the module.
#[derive(Default)]
pub(crate) struct Flights {
    flights: Mutex<FxHashMap<BlockKey, Flight>>,
}

/// Who watches flights and is no reader of theirs, so they are no more urgent for it: hears of the
/// source's errors, and finds the channel closed once all of its flights have ended, whatever has
/// become of them.
pub(crate) type Watcher = UnboundedSender<SourceError>;

/// A block that is on its way.
struct Flight {
    file: Arc<dyn FlightFile>,
    waiting: Vec<Waiting>,
    watchers: Vec<Watcher>,
    /// Whether somebody waits for it, here or on another node.
    urgent: bool,
    /// Whether it is read from the local disk: nobody else is asked for it then.
    is_on_disk: bool,
    /// What the source said, if it did not give the block.
    error: Option<SourceError>,
}

/// Who is asked for blocks that are wanted, as masks of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    /// The local disk.
    pub(crate) disk: u64,
    /// Other nodes, or the source.
    pub(crate) others: u64,
}

/// A reader that waits for a block, and the block's place among those that it waits for.
pub(crate) struct Waiting {
    pub(crate) read: Arc<PendingRead>,
    pub(crate) part: usize,
}

impl Flight {
    fn new(file: Arc<dyn FlightFile>, waiting: Vec<Waiting>) -> Flight {
        Flight {
            file,
            urgent: !waiting.is_empty(),
            is_on_disk: false,
            waiting,
            watchers: Vec::new(),
            error: None,
        }
    }
}

impl Flights {
    /// A reader waits for a block of `file`: gives it at once if it is in `store` by now. Returns
    /// whether the block must be asked for.
    pub(crate) fn wait_for(
        &self,
        key: BlockKey,
        file: Arc<dyn FlightFile>,
        waiting: Waiting,
        store: &MemoryStore,
    ) -> bool {
        let mut flights = self.flights.lock();
        match flights.entry(key) {
            MapEntry::Occupied(mut flight) => {
                let flight = flight.get_mut();
                flight.waiting.push(waiting);
                !std::mem::replace(&mut flight.urgent, true)
            }
            MapEntry::Vacant(vacant) => {
                if let Some(data) = store.peek(&key) {
                    drop(flights);
                    let bytes = waiting.read.supply(waiting.part, Ok(data));
                    file.on_served(Origin::Memory, bytes);
                    return false;
                }
                vacant.insert(Flight::new(file, vec![waiting]));
                true
            }
        }
    }

    /// Of the blocks `mask` of a chunk, those that are neither in `store` nor on their way: they
    /// are on their way from now on. `watcher` watches them, and those that were on their way.
    pub(crate) fn start_prefetch(
        &self,
        file: &Arc<dyn FlightFile>,
        chunk: ChunkKey,
        mask: u64,
        store: &MemoryStore,
        watcher: Option<&Watcher>,
    ) -> u64 {
        let mut started = 0;
        let mut flights = self.flights.lock();
        for bit in bits(mask) {
            let key = chunk.block(bit);
            let flight = match flights.entry(key) {
                MapEntry::Occupied(flight) => flight.into_mut(),
                MapEntry::Vacant(_) if store.contains(&key) => continue,
                MapEntry::Vacant(vacant) => {
                    started |= 1 << bit;
                    vacant.insert(Flight::new(Arc::clone(file), Vec::new()))
                }
            };
            flight.watchers.extend(watcher.cloned());
        }
        started
    }

    /// Somebody waits for these blocks, here or elsewhere.
    pub(crate) fn hurry(&self, blocks: Blocks) {
        let mut flights = self.flights.lock();
        for key in blocks.chunk.blocks(blocks.mask) {
            if let Some(flight) = flights.get_mut(&key) {
                flight.urgent = true;
            }
        }
    }

    /// Prefetches are given up, but for those that a reader waits for by now.
    pub(crate) fn shed(&self, blocks: Blocks) {
        let mut flights = self.flights.lock();
        for key in blocks.chunk.blocks(blocks.mask) {
            if let MapEntry::Occupied(flight) = flights.entry(key)
                && flight.get().waiting.is_empty()
                && !flight.get().is_on_disk
            {
                flight.remove().file.on_dropped_prefetch();
            }
        }
    }

    /// Whether nobody waits for any of these blocks: they are no longer on their way then.
    pub(crate) fn drop_unwanted(&self, keys: impl Iterator<Item = BlockKey> + Clone) -> bool {
        let mut flights = self.flights.lock();
        let is_urgent = |key: &BlockKey| flights.get(key).is_some_and(|flight| flight.urgent);
        if keys.clone().any(|key| is_urgent(&key)) {
            return false;
        }
        for key in keys {
            flights.remove(&key);
        }
        true
    }

    /// Of the blocks `mask` of a chunk that are wanted: those of `on_disk` are read from the disk
    /// from now on. What is read from there already, or has come meanwhile, is left out.
    pub(crate) fn claim_for_disk(&self, chunk: ChunkKey, mask: u64, on_disk: u64) -> Claim {
        let mut claim = Claim::default();
        let mut flights = self.flights.lock();
        for bit in bits(mask) {
            match flights.get_mut(&chunk.block(bit)) {
                Some(flight) if !flight.is_on_disk => {
                    flight.is_on_disk = on_disk & 1 << bit != 0;
                    if flight.is_on_disk {
                        claim.disk |= 1 << bit
                    } else {
                        claim.others |= 1 << bit
                    }
                }
                _ => {}
            }
        }
        claim
    }

    /// The disk does not have a block after all. Whether it is still wanted, and for whom.
    pub(crate) fn return_from_disk(&self, key: &BlockKey) -> Option<Urgency> {
        if let Some(flight) = self.flights.lock().get_mut(key) {
            flight.is_on_disk = false;
        }
        self.urgency(key)
    }

    /// Whether somebody waits for the block.
    pub(crate) fn is_urgent(&self, key: &BlockKey) -> bool {
        self.urgency(key) == Some(Urgency::Demand)
    }

    /// Whether the block is on its way, and for whom.
    pub(crate) fn urgency(&self, key: &BlockKey) -> Option<Urgency> {
        let flights = self.flights.lock();
        flights.get(key).map(|flight| {
            if flight.urgent {
                Urgency::Demand
            } else {
                Urgency::Prefetch
            }
        })
    }

    /// The file of the first of these blocks that is on its way. All blocks of a chunk are of one
    /// version of one file, whoever opened it.
    pub(crate) fn file(
        &self,
        mut keys: impl Iterator<Item = BlockKey>,
    ) -> Option<Arc<dyn FlightFile>> {
        let flights = self.flights.lock();
        keys.find_map(|key| Some(Arc::clone(&flights.get(&key)?.file)))
    }

    /// Gives a block that came `from` there to those who wait. Whether there was anybody.
    pub(crate) fn give(&self, key: &BlockKey, data: &Bytes, from: Origin) -> bool {
        let Some(flight) = self.flights.lock().remove(key) else {
            return false;
        };
        let is_wanted = !flight.waiting.is_empty();
        for waiting in flight.waiting {
            let bytes = waiting.read.supply(waiting.part, Ok(data.clone()));
            flight.file.on_served(from, bytes);
        }
        is_wanted
    }

    /// Remembers why the source did not give a block.
    pub(crate) fn note_error(&self, key: &BlockKey, error: &SourceError) {
        if let Some(flight) = self.flights.lock().get_mut(key) {
            flight.error = Some(error.clone());
        }
    }

    /// These blocks cannot be had.
    pub(crate) fn fail(&self, blocks: Blocks, fault: Fault) {
        for key in blocks.chunk.blocks(blocks.mask) {
            let mut flights = self.flights.lock();
            // Who has asked since then gets what is on the disk.
            let MapEntry::Occupied(flight) = flights.entry(key) else {
                continue;
            };
            if flight.get().is_on_disk {
                continue;
            }
            let flight = flight.remove();
            drop(flights);
            let error = flight.error.unwrap_or_else(|| {
                let path = flight.file.path().clone();
                match fault {
                    Fault::NotFound => SourceError::NotFound(path),
                    Fault::Changed => SourceError::Changed(path),
                    Fault::Denied | Fault::Failed => SourceError::Failed {
                        path,
                        reason: "the source gave no answer".to_owned(),
                    },
                }
            });
            for watcher in flight.watchers {
                // It may have gone.
                let _ = watcher.send(error.clone());
            }
            for waiting in flight.waiting {
                waiting.read.supply(waiting.part, Err(error.clone()));
            }
        }
    }

    /// Blocks that are on their way.
    pub(crate) fn len(&self) -> usize {
        self.flights.lock().len()
    }
}
