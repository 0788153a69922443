//! Blocks that the node reads from its disk, for its own readers and for other nodes.
//!
//! A block that is wanted here and lies on the disk is read from there before anybody else is
//! asked; the state machine does not hear of it. One that turns out to be bad or gone is asked for
//! as if it had never been there. Reads go straight into frames of the store, so they take no
//! memory beside it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::flights::FlightFile;
use crate::key::{BlockKey, ChunkKey};
use crate::machine::{Blocks, Keep, MemberId, Request, Urgency};
use crate::node::{Node, runs};
use crate::origin::Origin;
use crate::store::disk::index::Located;
use crate::store::disk::tier::DiskTier;
use crate::store::memory::Filling;

/// The longest read: longer ones are no faster, and hold more frames meanwhile.
const READ_BYTES_MAX: u32 = 1 << 20;

/// What has become of a block that was to be read.
enum Outcome {
    /// Its bytes. Who waits for them has them.
    Read(Bytes),
    /// The disk does not have it.
    Missing,
    /// It is a prefetch, and memory is short.
    Unwanted,
}

impl Node {
    /// Starts to read those blocks of `mask`, all of which are in flight, that are on the disk.
    /// Returns the others.
    pub(crate) fn want_from_disk(self: &Arc<Self>, chunk: ChunkKey, mask: u64) -> u64 {
        let Some(disk) = &self.disk else {
            return mask;
        };
        let claim = self
            .flights
            .claim_for_disk(chunk, mask, disk.held(&chunk) & mask);
        for run in runs(claim.disk) {
            let node = Arc::clone(self);
            let read = async move { node.read_run(chunk, run).await };
            self.runtime().spawn(read);
        }
        claim.others
    }

    /// Reads successive blocks of a chunk, which are in flight.
    async fn read_run(self: Arc<Self>, chunk: ChunkKey, run: Range<u32>) {
        let Some(disk) = &self.disk else {
            return;
        };
        let mut again = [0, 0];
        let mut next = run.start;
        while next < run.end {
            for outcome in self.read_from_disk(disk, chunk, next..run.end).await {
                let key = chunk.block(next);
                if let Outcome::Missing = outcome
                    && let Some(urgency) = self.flights.return_from_disk(&key)
                {
                    again[usize::from(urgency == Urgency::Demand)] |= 1 << next;
                }
                next += 1;
            }
        }
        for (mask, urgency) in again.into_iter().zip([Urgency::Prefetch, Urgency::Demand]) {
            if mask != 0 {
                self.want(chunk, mask, urgency);
            }
        }
    }

    /// Reads the first blocks of a run: at least one, at most as many as there is memory for.
    async fn read_from_disk(
        self: &Arc<Self>,
        disk: &DiskTier,
        chunk: ChunkKey,
        run: Range<u32>,
    ) -> Vec<Outcome> {
        let _turn = disk.turn().await;
        let count = (READ_BYTES_MAX / self.settings().block_bytes).max(1) as usize;
        let keys = run.map(|bit| chunk.block(bit)).take(count);
        let mut located = disk.locate(keys.clone());
        let file = self.flights.file(keys);
        let is_right = |block: &Located| {
            let bytes = |file: &Arc<dyn FlightFile>| file.block_len(block.key.index);
            file.as_ref()
                .is_none_or(|file| bytes(file) == u64::from(block.bytes))
        };
        let right = located.iter().take_while(|block| is_right(block)).count();
        if let Some(wrong) = located.get(right) {
            disk.discard(wrong, None);
        }
        located.truncate(right);
        let Some(&first) = located.first() else {
            return vec![Outcome::Missing];
        };
        // What nobody here is on its way for is for another node, where a reader waits.
        let is_prefetch = |key: &BlockKey| self.flights.urgency(key) == Some(Urgency::Prefetch);
        let fillings: Vec<Filling> = located
            .iter()
            .map_while(|it| {
                let is_prefetch = is_prefetch(&it.key);
                self.store.fill(it.key, it.bytes as usize, is_prefetch)
            })
            .collect();
        if fillings.is_empty() {
            if is_prefetch(&first.key) && self.flights.drop_unwanted(std::iter::once(first.key)) {
                if let Some(file) = &file {
                    file.on_dropped_prefetch();
                }
                return vec![Outcome::Unwanted];
            }
            return vec![self.read_past_the_store(first, file.as_ref()).await];
        }
        located.truncate(fillings.len());
        self.read_into(located, fillings, file.as_ref()).await
    }

    async fn read_into(
        self: &Arc<Self>,
        located: Vec<Located>,
        mut fillings: Vec<Filling>,
        file: Option<&Arc<dyn FlightFile>>,
    ) -> Vec<Outcome> {
        let count = fillings.len();
        let node = Arc::clone(self);
        let read = self.runtime().spawn_blocking(move || {
            let mut buffers: Vec<&mut [u8]> = fillings.iter_mut().map(Filling::memory).collect();
            let right = match &node.disk {
                Some(disk) => disk.read(&located, &mut buffers),
                None => vec![false; buffers.len()],
            };
            (fillings, right)
        });
        // It fails only where the runtime ends.
        let Ok((fillings, right)) = read.await else {
            return (0..count).map(|_| Outcome::Missing).collect();
        };
        let landed = fillings.into_iter().zip(right).map(|(mut filling, right)| {
            if !right {
                let (chunk, bit) = filling.key().in_chunk();
                self.note_dropped(Blocks::new(chunk, bit));
                return Outcome::Missing;
            }
            filling.set_filled();
            let data = self.keep(filling, Origin::Disk, Keep::No);
            if let Some(file) = file {
                file.on_disk_block(data.len() as u64);
            }
            Outcome::Read(data)
        });
        landed.collect()
    }

    /// Reads a block for which no frame is free, for those who wait alone.
    async fn read_past_the_store(
        self: &Arc<Self>,
        block: Located,
        file: Option<&Arc<dyn FlightFile>>,
    ) -> Outcome {
        let _room = self.room_for(block.bytes.into()).await;
        let node = Arc::clone(self);
        let read = self.runtime().spawn_blocking(move || {
            let mut data = vec![0; block.bytes as usize];
            let right = match &node.disk {
                Some(disk) => disk.read(&[block], &mut [&mut data]),
                None => Vec::new(),
            };
            (right == [true]).then_some(Bytes::from(data))
        });
        let Some(data) = read.await.ok().flatten() else {
            let (chunk, bit) = block.key.in_chunk();
            self.note_dropped(Blocks::new(chunk, bit));
            return Outcome::Missing;
        };
        self.flights.give(&block.key, &data, Origin::Disk);
        if let Some(file) = file {
            file.on_disk_block(data.len() as u64);
            file.on_overflow();
        }
        Outcome::Read(data)
    }

    /// Sends blocks of the disk to another node.
    pub(crate) fn provide_from_disk(
        self: &Arc<Self>,
        home: MemberId,
        request: Request,
        blocks: Blocks,
        keep: Keep,
    ) {
        let node = Arc::clone(self);
        self.runtime().spawn(async move {
            let Some(disk) = &node.disk else {
                return;
            };
            let mut missing = 0;
            for run in runs(blocks.mask) {
                let mut next = run.start;
                while next < run.end {
                    let outcomes = node.read_from_disk(disk, blocks.chunk, next..run.end);
                    for outcome in outcomes.await {
                        match outcome {
                            Outcome::Read(data) => {
                                let key = blocks.chunk.block(next);
                                let (to, id) = (request.member, Some(request.id));
                                node.peers.send_block(to, id, key, data, keep);
                            }
                            Outcome::Missing | Outcome::Unwanted => missing |= 1 << next,
                        }
                        next += 1;
                    }
                }
            }
            node.missing(home, request, blocks.with_mask(missing));
        });
    }
}
