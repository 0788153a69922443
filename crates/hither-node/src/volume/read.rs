//! Reading: from memory at once, or by waiting for what is missing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt, TryStreamExt};

use super::files::OpenFile;
use crate::key::ChunkKey;
use crate::pending::{Data, Origin, Parts, PendingRead, Waiter, WantedFile, Watcher};
use crate::protocol::Urgency;
use crate::source::SourceError;

impl OpenFile {
    /// Reads up to `bytes` from `offset` on: fewer only at the file's end. Calls `done` with them,
    /// on this thread if all are in memory.
    ///
    /// The error is [`SourceError::Changed`] where the file has another version at the source and
    /// what was asked for is not cached.
    pub fn read(
        self: &Arc<Self>,
        offset: u64,
        bytes: usize,
        done: impl FnOnce(Result<Data, SourceError>) + Send + 'static,
    ) {
        let end = offset.saturating_add(bytes as u64);
        let counters = self.volume.counters();
        counters.reads.add(1);
        if !self.settled {
            return self.read_past_the_cache(offset..end, done);
        }
        let end = end.min(self.file.bytes);
        if offset >= end {
            return done(Ok(Data::default()));
        }
        counters.read_bytes.add(end - offset);
        let first = (offset / u64::from(self.block_bytes)) as u32;
        let last = ((end - 1) / u64::from(self.block_bytes)) as u32;
        let before = self.last_block.swap(last, Ordering::Relaxed);
        let mut parts = Parts {
            blocks: Vec::with_capacity((last - first + 1) as usize),
            missing: 0,
            done: None,
        };
        let mut hit_bytes = 0;
        for index in first..=last {
            let start = u64::from(index) * u64::from(self.block_bytes);
            let within = offset.saturating_sub(start) as usize
                ..(end - start).min(u64::from(self.block_bytes)) as usize;
            let key = self.block(index);
            let store = self.volume.node.store();
            let block = if index == before {
                store.peek(&key)
            } else {
                store.read(&key)
            };
            let block = block.map(|block| block.slice(within.clone()));
            match &block {
                Some(block) => hit_bytes += block.len() as u64,
                None => parts.missing += 1,
            }
            parts.blocks.push((within, block));
        }
        counters.memory_bytes.add(hit_bytes);
        if parts.missing == 0 {
            let pieces = parts.blocks.into_iter().filter_map(|it| it.1).collect();
            done(Ok(Data(pieces)));
        } else {
            counters.awaited_bytes.add(end - offset - hit_bytes);
            parts.done = Some(Box::new(done));
            self.wait(first, parts);
        }
        self.prefetch(offset, end - offset);
    }

    /// Waits for the parts that are missing, and sees to it that they come.
    fn wait(self: &Arc<Self>, first: u32, parts: Parts) {
        let mut wanted: Vec<(ChunkKey, u64)> = Vec::new();
        for (index, (_, block)) in (first..).zip(&parts.blocks) {
            if block.is_none() {
                let (chunk, bit) = self.block(index).in_chunk();
                match wanted.last_mut() {
                    Some((last, mask)) if *last == chunk => *mask |= bit,
                    _ => wanted.push((chunk, bit)),
                }
            }
        }
        let file: Arc<dyn WantedFile> = Arc::clone(self) as _;
        let read = PendingRead::new(first, Arc::clone(&file), parts);
        for blocks in wanted {
            let waiter = Waiter::Read(Arc::clone(&read));
            let node = &self.volume.node;
            node.want(&file, blocks, Urgency::Demand, Some(waiter));
        }
    }

    /// Asks for what the reader will likely read next.
    fn prefetch(self: &Arc<Self>, offset: u64, bytes: u64) {
        let ranges = self.pattern.lock().on_read(offset, bytes, self.file.bytes);
        for range in ranges {
            self.prefetch_range(range);
        }
    }

    /// Asks for the blocks of `range` that are neither here nor on their way.
    fn prefetch_range(self: &Arc<Self>, range: Range<u64>) {
        let block_bytes = u64::from(self.block_bytes);
        let mut index = (range.start / block_bytes) as u32;
        let end = range.end.div_ceil(block_bytes) as u32;
        while index < end {
            let (chunk, first) = self.block(index).in_chunk();
            let mut mask = 0;
            let mut bit = first;
            while index < end && bit != 0 {
                mask |= bit;
                bit <<= 1;
                index += 1;
            }
            self.prefetch_blocks(chunk, mask, None);
        }
    }

    /// Asks for those blocks of a chunk that are neither here nor on their way. The `watcher`
    /// watches these and those on their way.
    pub(super) fn prefetch_blocks(
        self: &Arc<Self>,
        chunk: ChunkKey,
        mask: u64,
        watcher: Option<Watcher>,
    ) {
        let file: Arc<dyn WantedFile> = Arc::clone(self) as _;
        let waiter = watcher.map(Waiter::Watcher);
        let node = &self.volume.node;
        let started = node.want(&file, (chunk, mask), Urgency::Prefetch, waiter);
        let counters = self.volume.counters();
        counters
            .prefetched_blocks
            .add(u64::from(started.count_ones()));
    }

    /// Whether somebody who goes on as before will want some of these blocks.
    pub(super) fn is_ahead(&self, blocks: &Range<u32>) -> bool {
        if self.is_warming.load(Ordering::Relaxed) {
            return true;
        }
        let bytes = self.block_range(blocks.start).start..self.block_range(blocks.end - 1).end;
        self.pattern.lock().is_ahead(&bytes)
    }

    /// Reads a version that may still change unseen: what the source has now, kept nowhere.
    fn read_past_the_cache(
        self: &Arc<Self>,
        range: Range<u64>,
        done: impl FnOnce(Result<Data, SourceError>) + Send + 'static,
    ) {
        let file = Arc::clone(self);
        self.volume.node.runtime().spawn(async move {
            let read = async {
                let mut stream = file.volume.source().read_live(&file.file, range).await?;
                let mut pieces = Vec::new();
                while let Some(piece) = stream.next().await {
                    pieces.push(piece?);
                }
                Ok(Data(pieces))
            };
            let result: Result<Data, SourceError> = read.await;
            file.note(&result);
            file.volume.note_answer(&result);
            if let Ok(data) = &result {
                let bytes = data.pieces().iter().map(|piece| piece.len() as u64).sum();
                let counters = file.volume.counters();
                counters.read_bytes.add(bytes);
                counters.awaited_bytes.add(bytes);
                counters.fetches.add(1);
                counters.fetched_bytes.add(bytes);
                file.volume.on_served(Origin::Source, bytes);
            }
            done(result);
        });
    }

    /// Whether what this version has in memory is what the source has now of the first `bytes` of
    /// the same file, whose version is another one by now: of its first and its last such block. Of
    /// a version that is not in memory nothing is known.
    pub async fn still_begins(self: &Arc<Self>, bytes: u64) -> bool {
        let block_bytes = u64::from(self.block_bytes);
        let store = self.volume.node.store();
        let peek = |index: u32| Some((index, store.peek(&self.block(index))?));
        let blocks = 0..bytes.min(self.file.bytes).div_ceil(block_bytes) as u32;
        let first = blocks.clone().find_map(peek);
        let last = blocks.rev().find_map(peek);
        for (index, block) in first.iter().chain(&last) {
            let start = u64::from(*index) * block_bytes;
            let end = (start + block.len() as u64).min(bytes);
            let now = async {
                let source = self.volume.source();
                let stream = source.read_live(&self.file, start..end).await.ok()?;
                stream.try_collect::<Vec<_>>().await.ok()
            };
            let now = now.await.map(|pieces| pieces.concat());
            if now.as_deref() != Some(&block[..(end - start) as usize]) {
                return false;
            }
        }
        first.is_some() || bytes == 0
    }

    /// Remembers that the source has another version.
    pub(super) fn note<T>(&self, result: &Result<T, SourceError>) {
        if let Err(SourceError::Changed(_) | SourceError::NotFound(_)) = result {
            self.stale.store(true, Ordering::Relaxed);
            self.volume.counters().stale_reads.add(1);
        }
    }
}
