//! Fetching blocks from a source into the store.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::SemaphorePermit;

use super::files::OpenFile;
use crate::node::Node;
use crate::pending::{Landing, Origin, WantedFile};
use crate::protocol::{Blocks, FetchResult, Input, Keep, MemberId, Urgency};
use crate::source::SourceError;
use crate::store::memory::Filling;

impl WantedFile for OpenFile {
    fn block_len(&self, index: u32) -> u64 {
        let range = self.block_range(index);
        range.end.saturating_sub(range.start)
    }

    fn fetch(self: Arc<Self>, blocks: Range<u32>, urgency: Urgency, keeper: Option<MemberId>) {
        let node = Arc::clone(&self.volume.node);
        let runtime = node.runtime().clone();
        runtime.spawn(fetch(node, self, blocks, urgency, keeper));
    }

    fn on_dropped_prefetches(&self, blocks: u64) {
        self.volume.counters().dropped_prefetches.add(blocks);
    }

    fn on_peer_block(&self) {
        self.volume.counters().peer_blocks.add(1);
    }

    fn contradicts(&self, index: u32, bytes: &[u8]) -> bool {
        let md5 = self.md5(index);
        md5.is_some_and(|md5| self.volume.etags.contradicts(md5, bytes))
    }

    fn on_served(&self, from: Origin, bytes: u64) {
        self.volume.on_served(from, bytes);
    }

    fn on_disk_block(&self, bytes: u64) {
        self.volume.counters().disk_read_bytes.add(bytes);
    }

    fn on_overflow(&self) {
        self.volume.counters().overflow_blocks.add(1);
    }
}

/// Fetches successive blocks of a chunk of `file`, all of which are in flight, and tells the
/// protocol of each of them what came of it.
async fn fetch(
    node: Arc<Node>,
    file: Arc<OpenFile>,
    blocks: Range<u32>,
    urgency: Urgency,
    keeper: Option<MemberId>,
) {
    let counters = file.volume.counters();
    let _permit = match urgency {
        Urgency::Demand => None,
        Urgency::Prefetch => {
            let permit = turn(&node, file.blocks(&blocks)).await;
            if permit.is_some() && !file.is_ahead(&blocks) {
                let ended = ended(&file, blocks, FetchResult::GivenUp);
                return node.input(ended);
            }
            permit
        }
    };
    let mut next = blocks.start;
    let result = blocks_of(&node, &file, blocks.clone(), keeper, &mut next).await;
    file.note(&result);
    file.volume.note_answer(&result);
    if let Err(error) = result {
        counters.fetch_errors.add(1);
        let ended = ended(&file, next..blocks.end, FetchResult::Failed);
        node.land(ended, Landing::Failed(&error));
    }
}

/// Waits for a prefetch's turn, or until somebody waits for one of its blocks.
async fn turn(node: &Node, blocks: Blocks) -> Option<SemaphorePermit<'_>> {
    let mut acquire = pin!(node.prefetches.acquire());
    loop {
        let mut hurried = pin!(node.hurried.notified());
        // From here on no notification is missed.
        hurried.as_mut().enable();
        if node.driver.is_urgent(blocks) {
            return None;
        }
        tokio::select! {
            permit = &mut acquire => return permit.ok(),
            () = hurried => {}
        }
    }
}

/// How the read of `blocks`, which are of one chunk, has ended.
fn ended(file: &OpenFile, blocks: Range<u32>, result: FetchResult) -> Input {
    let blocks = file.blocks(&blocks);
    Input::FetchEnded { blocks, result }
}

/// Fetches `blocks`; `next` is the first one that has not landed.
async fn blocks_of(
    node: &Arc<Node>,
    file: &Arc<OpenFile>,
    blocks: Range<u32>,
    keeper: Option<MemberId>,
    next: &mut u32,
) -> Result<(), SourceError> {
    if file.is_stale() {
        return Err(SourceError::Changed(file.file.path.clone()));
    }
    let range = file.block_range(blocks.start).start..file.block_range(blocks.end - 1).end;
    let counters = file.volume.counters();
    let _room = node.room_for(range.end - range.start).await;
    counters.fetches.add(1);
    let mut stream = file.volume.source().read(&file.file, range).await?;
    let mut arriving = Arriving::start(node, file, *next, keeper);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        counters.fetched_bytes.add(piece.len() as u64);
        let mut rest: &[u8] = &piece;
        while !rest.is_empty() {
            rest = arriving.write(rest);
            if arriving.missing() > 0 {
                break;
            }
            arriving.land(node, file, *next);
            *next += 1;
            if *next == blocks.end {
                return Ok(());
            }
            arriving = Arriving::start(node, file, *next, keeper);
        }
    }
    Err(SourceError::Failed {
        path: file.file.path.clone(),
        reason: "the source sent less than was asked for".to_owned(),
    })
}

impl OpenFile {
    /// Successive blocks of one chunk.
    fn blocks(&self, blocks: &Range<u32>) -> Blocks {
        let (chunk, first) = self.block(blocks.start).in_chunk();
        Blocks::new(
            chunk,
            (u64::MAX >> (u64::BITS - blocks.len() as u32)) * first,
        )
    }

    /// Takes note of a block of the source: it shows whether another node has sent a wrong one.
    fn note_source_block(&self, index: u32, bytes: &[u8]) {
        if let Some(md5) = self.md5(index)
            && self.volume.etags.note_source(md5, bytes)
        {
            let (path, volume) = (&self.file.path, self.volume.name());
            tracing::error!(
                "a member has sent wrong bytes of a file of {volume}: the etag of {path:?} is right"
            );
        }
    }
}

/// A block as its bytes come in.
enum Arriving {
    Kept(Filling),
    /// No frame is free for it, or another member keeps it: who waits gets it past the store. Of
    /// each request there is at most one such block.
    Passed {
        data: BytesMut,
        bytes: usize,
        keeper: Option<MemberId>,
    },
}

impl Arriving {
    fn start(node: &Node, file: &OpenFile, index: u32, keeper: Option<MemberId>) -> Arriving {
        let key = file.block(index);
        let bytes = file.block_len(index) as usize;
        // Who did not ask for a block takes only whole ones.
        let keeper = keeper.filter(|_| bytes == file.block_bytes as usize);
        if keeper.is_some() {
            let data = BytesMut::with_capacity(bytes);
            return Arriving::Passed {
                data,
                bytes,
                keeper,
            };
        }
        let is_urgent = node.driver.is_urgent(file.blocks(&(index..index + 1)));
        match node.store.fill(key, bytes, !is_urgent) {
            Some(filling) => Arriving::Kept(filling),
            None => Arriving::Passed {
                data: BytesMut::with_capacity(bytes),
                bytes,
                keeper,
            },
        }
    }

    fn missing(&self) -> usize {
        match self {
            Arriving::Kept(filling) => filling.missing(),
            Arriving::Passed { data, bytes, .. } => bytes - data.len(),
        }
    }

    /// Adds the beginning of `data`, as much as is missing, and returns the rest.
    fn write<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let (now, rest) = data.split_at(data.len().min(self.missing()));
        match self {
            Arriving::Kept(filling) => {
                filling.write(now);
            }
            Arriving::Passed { data, .. } => data.extend_from_slice(now),
        }
        rest
    }

    /// The block is complete.
    fn land(self, node: &Arc<Node>, file: &Arc<OpenFile>, index: u32) {
        let ended = |result| ended(file, index..index + 1, result);
        match self {
            Arriving::Kept(filling) => {
                let input = ended(FetchResult::Kept);
                let data = node.keep(filling, Origin::Source, Keep::Copy, input);
                file.note_source_block(index, &data);
            }
            Arriving::Passed { data, keeper, .. } => {
                let data = Bytes::from(data);
                file.note_source_block(index, &data);
                let landing = Landing::Block(&data, Origin::Source);
                if let Some(keeper) = keeper {
                    node.land(ended(FetchResult::Sent), landing);
                    let key = file.block(index);
                    node.peers.send_block(keeper, None, key, data, Keep::Copy);
                } else if node.land(ended(FetchResult::NotKept), landing) {
                    file.on_overflow();
                } else {
                    file.on_dropped_prefetches(1);
                }
            }
        }
    }
}
