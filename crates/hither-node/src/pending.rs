//! Reads that wait for blocks, and what reads return.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::source::SourceError;

/// What a read returned: pieces, one after the other. They are the cache's own memory.
#[derive(Clone, Debug, Default)]
pub struct Data(pub(crate) Vec<Bytes>);

impl Data {
    /// The pieces.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }
}

/// What is called with the result of a read.
pub(crate) type Done = Box<dyn FnOnce(Result<Data, SourceError>) + Send>;

/// A read that waits for blocks.
pub(crate) struct PendingRead {
    parts: Mutex<Parts>,
}

pub(crate) struct Parts {
    /// One a block: the part of it that was asked for, and the bytes once they are here.
    pub(crate) blocks: Vec<(Range<usize>, Option<Bytes>)>,
    pub(crate) missing: usize,
    /// `None` once the read has ended.
    pub(crate) done: Option<Done>,
}

impl PendingRead {
    /// A read with parts missing.
    pub(crate) fn new(parts: Parts) -> Arc<PendingRead> {
        Arc::new(PendingRead {
            parts: Mutex::new(parts),
        })
    }

    /// Gives the read its part number `part`: a whole block, or why there is none. Returns how many
    /// bytes of it the read takes.
    pub(crate) fn supply(&self, part: usize, block: Result<Bytes, SourceError>) -> u64 {
        let mut taken = 0;
        let mut guard = self.parts.lock();
        let parts = &mut *guard;
        let result = match block {
            Err(error) => Err(error),
            Ok(block) => {
                let (range, bytes) = &mut parts.blocks[part];
                debug_assert!(bytes.is_none(), "a part was supplied twice");
                *bytes = Some(block.slice(range.clone()));
                taken = range.len() as u64;
                parts.missing -= 1;
                if parts.missing > 0 {
                    return taken;
                }
                let blocks = std::mem::take(&mut parts.blocks);
                Ok(Data(blocks.into_iter().filter_map(|it| it.1).collect()))
            }
        };
        let done = parts.done.take();
        drop(guard);
        if let Some(done) = done {
            done(result);
        }
        taken
    }
}
