//! Blocks that the node reads from its disk, for its own readers and for other nodes.
//!
//! A block that is wanted here and lies on the disk is read from there before anybody else is
//! asked, as the protocol says. One that turns out to be bad or gone is asked for as if it had
//! never been there. Reads go straight into frames of the store, so they take no memory beside it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::key::{BlockKey, ChunkKey};
use crate::node::{Node, runs};
use crate::pending::{Landing, Origin, WantedFile, file_of};
use crate::protocol::{Blocks, DiskResult, Input, Keep, MemberId, Request, Urgency};
use crate::store::disk::index::Located;
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
    /// Reads blocks of a chunk that are wanted here.
    pub(crate) fn read_disk(self: &Arc<Self>, blocks: Blocks) {
        for run in runs(blocks.mask) {
            let node = Arc::clone(self);
            let read = async move { node.read_run(blocks.chunk, run).await };
            self.runtime().spawn(read);
        }
    }

    /// Reads successive blocks of a chunk.
    async fn read_run(self: Arc<Self>, chunk: ChunkKey, run: Range<u32>) {
        let mut next = run.start;
        while next < run.end {
            for outcome in self.read_from_disk(chunk, next..run.end).await {
                let (key, blocks) = (chunk.block(next), Blocks::new(chunk, 1 << next));
                let input = |result| Input::DiskRead { blocks, result };
                match outcome {
                    Outcome::Read(_) => {}
                    Outcome::Unwanted => self.input(input(DiskResult::GivenUp)),
                    // Another member may have sent it meanwhile.
                    Outcome::Missing => match self.store.peek(&key) {
                        Some(data) => {
                            let landing = Landing::Block(&data, Origin::Memory);
                            self.land(input(DiskResult::Read), landing);
                        }
                        None => self.input(input(DiskResult::Missing)),
                    },
                }
                next += 1;
            }
        }
    }

    /// Reads the first blocks of a run: at least one, at most as many as there is memory for.
    async fn read_from_disk(self: &Arc<Self>, chunk: ChunkKey, run: Range<u32>) -> Vec<Outcome> {
        let Some(disk) = &self.disk else {
            return vec![Outcome::Missing];
        };
        let _turn = disk.turn().await;
        let count = (READ_BYTES_MAX / self.settings().block_bytes).max(1) as usize;
        let keys = run.map(|bit| chunk.block(bit)).take(count);
        let mut located = disk.locate(keys.clone());
        // All blocks of a chunk are of one version of one file, whoever opened it.
        let file = keys.clone().find_map(|key| self.driver.wanted(&key));
        let file = file.as_ref().map(|(file, _)| file_of(file));
        let is_right = |block: &Located| {
            file.is_none_or(|file| file.block_len(block.key.index) == u64::from(block.bytes))
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
        let is_prefetch = |key: &BlockKey| {
            let wanted = self.driver.wanted(key);
            wanted.is_some_and(|(_, urgency)| urgency == Urgency::Prefetch)
        };
        let fillings: Vec<Filling> = located
            .iter()
            .map_while(|it| {
                let is_prefetch = is_prefetch(&it.key);
                self.store.fill(it.key, it.bytes as usize, is_prefetch)
            })
            .collect();
        if fillings.is_empty() {
            if is_prefetch(&first.key) {
                return vec![Outcome::Unwanted];
            }
            return vec![self.read_past_the_store(first, file).await];
        }
        located.truncate(fillings.len());
        self.read_into(located, fillings, file).await
    }

    async fn read_into(
        self: &Arc<Self>,
        located: Vec<Located>,
        mut fillings: Vec<Filling>,
        file: Option<&Arc<dyn WantedFile>>,
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
            let input = has_read(filling.key());
            let data = self.keep(filling, Origin::Disk, Keep::No, input);
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
        file: Option<&Arc<dyn WantedFile>>,
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
        let landing = Landing::Block(&data, Origin::Disk);
        self.land(has_read(block.key), landing);
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
            let mut missing = 0;
            for run in runs(blocks.mask) {
                let mut next = run.start;
                while next < run.end {
                    let outcomes = node.read_from_disk(blocks.chunk, next..run.end);
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

/// The disk has given a block.
fn has_read(key: BlockKey) -> Input {
    let (chunk, mask) = key.in_chunk();
    let (blocks, result) = (Blocks::new(chunk, mask), DiskResult::Read);
    Input::DiskRead { blocks, result }
}
