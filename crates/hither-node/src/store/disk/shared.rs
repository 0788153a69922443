//! What the thread that writes and those that read share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc::UnboundedSender;

use super::folder::Folder;
use super::index::DiskIndex;
use super::settings::{DiskCounts, DiskUsage};
use crate::key::BlockKey;
use crate::protocol::Blocks;
use crate::source::counters::Count;

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: Folder,
    pub(super) block_bytes: u32,
    pub(super) index: Mutex<DiskIndex>,
    pub(super) queue: Queue,
    pub(super) counters: Counters,
    /// What the blocks and the journal may take at the moment.
    pub(super) limit_bytes: AtomicU64,
    /// What the journal takes, and would take once more while it is rewritten.
    pub(super) journal_bytes: AtomicU64,
}

impl Shared {
    /// How much is there.
    pub(super) fn usage(&self) -> DiskUsage {
        let index = self.index.lock();
        DiskUsage {
            blocks: index.blocks(),
            chunks: index.chunks(),
            bytes: index.bytes() + self.journal_bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
        }
    }
}

/// The counts of [`DiskCounts`], kept without locks.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) written_blocks: Count,
    pub(super) skipped_blocks: Count,
    pub(super) read_blocks: Count,
    pub(super) bad_blocks: Count,
    pub(super) evicted_blocks: Count,
    pub(super) full_blocks: Count,
    pub(super) failed_blocks: Count,
}

impl Counters {
    pub(super) fn counts(&self) -> DiskCounts {
        DiskCounts {
            written_blocks: self.written_blocks.get(),
            skipped_blocks: self.skipped_blocks.get(),
            read_blocks: self.read_blocks.get(),
            bad_blocks: self.bad_blocks.get(),
            evicted_blocks: self.evicted_blocks.get(),
            full_blocks: self.full_blocks.get(),
            failed_blocks: self.failed_blocks.get(),
        }
    }
}

/// What is to be done to the files.
#[derive(Debug)]
pub(super) enum Job {
    /// Write a block.
    Write { key: BlockKey, data: Bytes },
    /// Give back what these blocks take, which are no longer in the index.
    Release(Blocks),
    /// Remove blocks, and drop what says so.
    Remove(Blocks, UnboundedSender<()>),
}

/// Jobs in their order. The blocks that wait here hold memory, so there is a limit on them.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Says that there is something to do, or never will be.
    filled: Condvar,
    /// Says that all is done.
    idle: Condvar,
    writes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    writes: usize,
    /// The writer is at a job.
    is_busy: bool,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(writes_max: usize) -> Queue {
        Queue {
            state: Mutex::new(State {
                // Until it asks for its first job, it makes room.
                is_busy: true,
                ..State::default()
            }),
            filled: Condvar::new(),
            idle: Condvar::new(),
            writes_max,
        }
    }

    /// Adds a block to be written. Whether there was room for it.
    pub(super) fn write(&self, key: BlockKey, data: Bytes) -> bool {
        let mut state = self.state.lock();
        if state.writes >= self.writes_max || state.is_closed {
            return false;
        }
        state.writes += 1;
        state.jobs.push_back(Job::Write { key, data });
        self.filled.notify_one();
        true
    }

    /// Adds blocks whose room is to be given back.
    pub(super) fn release(&self, blocks: Blocks) {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.jobs.push_back(Job::Release(blocks));
            self.filled.notify_one();
        }
    }

    /// Adds blocks that are to be removed, after those that are to be written.
    pub(super) fn remove(&self, blocks: Blocks, done: UnboundedSender<()>) {
        let mut state = self.state.lock();
        if !state.is_closed {
            state.jobs.push_back(Job::Remove(blocks, done));
            self.filled.notify_one();
        }
    }

    /// The next job, once there is one. `None` once the queue is closed and empty. The job before
    /// is done by now.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        state.is_busy = false;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.writes -= usize::from(matches!(job, Job::Write { .. }));
                state.is_busy = true;
                return Some(job);
            }
            self.idle.notify_all();
            if state.is_closed {
                return None;
            }
            self.filled.wait(&mut state);
        }
    }

    /// Waits until all jobs are done.
    pub(super) fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        while !state.jobs.is_empty() || state.is_busy {
            self.idle.wait(&mut state);
        }
    }

    /// Takes no more jobs.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_all();
    }
}
