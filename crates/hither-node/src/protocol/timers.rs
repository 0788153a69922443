//! Deadlines of chunks, in order.

use std::collections::BTreeSet;

use super::event::Time;
use crate::key::ChunkKey;

/// At most one deadline a chunk. Its owner keeps it too, so that it can be replaced.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, ChunkKey)>);

impl Timers {
    /// Replaces the deadline of `chunk`, which is `current`.
    pub(super) fn set(
        &mut self,
        chunk: ChunkKey,
        current: &mut Option<Time>,
        deadline: Option<Time>,
    ) {
        if *current == deadline {
            return;
        }
        if let Some(time) = *current {
            let removed = self.0.remove(&(time, chunk));
            debug_assert!(removed, "a deadline is known to both sides");
        }
        if let Some(time) = deadline {
            self.0.insert((time, chunk));
        }
        *current = deadline;
    }

    /// The first deadline.
    pub(super) fn first(&self) -> Option<Time> {
        self.0.first().map(|&(time, _)| time)
    }

    /// A chunk whose deadline has come.
    pub(super) fn due(&self, now: Time) -> Option<ChunkKey> {
        let &(time, chunk) = self.0.first()?;
        (time <= now).then_some(chunk)
    }

    /// The chunks that have a deadline, in order of their deadlines.
    pub(super) fn chunks(&self) -> impl Iterator<Item = ChunkKey> {
        self.0.iter().map(|&(_, chunk)| chunk)
    }

    /// How many chunks have a deadline.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
