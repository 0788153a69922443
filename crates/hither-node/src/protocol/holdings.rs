//! What this node holds, and which home knows of it.
//!
//! Each held chunk remembers the home that it was reported to. When that home changes, restarts or
//! may have lost messages, a sweep reports again, a bounded number of chunks at a time.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::effects::Effects;
use super::event::Time;
use super::message::{Blocks, Message, REPORT_ENTRIES_MAX, ReportEntry};
use super::view::MemberId;
use crate::key::ChunkKey;

#[derive(Debug, Default)]
struct Held {
    mask: u64,
    /// The home that all of `mask` was reported to.
    reported_to: Option<MemberId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    chunks: BTreeMap<ChunkKey, Held>,
    /// Dropped blocks that are to be reported, by the home that believes in them.
    dropped: BTreeMap<MemberId, BTreeMap<ChunkKey, u64>>,
    /// When these are to be reported.
    report_at: Option<Time>,
    /// When the sweep goes on. `None`: all is reported.
    sweep_at: Option<Time>,
    /// The last chunk that the sweep examined.
    swept: Option<ChunkKey>,
}

impl Holdings {
    /// The blocks of `blocks` that are held.
    pub(super) fn held(&self, blocks: Blocks) -> u64 {
        let held = self.chunks.get(&blocks.chunk);
        held.map_or(0, |held| held.mask & blocks.mask)
    }

    /// Takes note of blocks that the store has now, and reports them at once.
    pub(super) fn add(&mut self, effects: &mut Effects, blocks: Blocks) {
        let Blocks { chunk, mask } = blocks;
        let home = effects.peers.home(chunk).map(|(home, _)| home);
        let held = self.chunks.entry(chunk).or_default();
        held.mask |= mask;
        let reported = if held.reported_to == home {
            mask
        } else {
            held.mask
        };
        held.reported_to = home;
        let Some(home) = home else {
            return;
        };
        if let Some(dropped) = self.dropped.get_mut(&home)
            && let Some(dropped) = dropped.get_mut(&chunk)
        {
            *dropped &= !reported;
        }
        let entry = ReportEntry {
            chunk,
            held: reported,
            dropped: 0,
        };
        send_report(effects, home, vec![entry]);
    }

    /// Takes note of blocks that were held before the node started, or while it was isolated: the
    /// sweep will report them.
    pub(super) fn add_silently(&mut self, effects: &Effects, blocks: Blocks) {
        let held = self.chunks.entry(blocks.chunk).or_default();
        held.mask |= blocks.mask;
        held.reported_to = None;
        self.sweep(effects);
    }

    /// Reports again what was reported already, to a home that does not know it.
    pub(super) fn repeat(&self, effects: &mut Effects, blocks: Blocks, home: MemberId) {
        let entry = ReportEntry {
            chunk: blocks.chunk,
            held: self.held(blocks),
            dropped: 0,
        };
        send_report(effects, home, vec![entry]);
    }

    /// Takes note of blocks that the store no longer has.
    pub(super) fn remove(&mut self, effects: &Effects, blocks: Blocks) {
        let Blocks { chunk, mask } = blocks;
        let Some(held) = self.chunks.get_mut(&chunk) else {
            return;
        };
        let dropped = held.mask & mask;
        held.mask &= !mask;
        if let Some(home) = held.reported_to
            && dropped != 0
        {
            *self
                .dropped
                .entry(home)
                .or_default()
                .entry(chunk)
                .or_default() |= dropped;
            let at = effects.now.after(effects.settings.report_ns);
            self.report_at.get_or_insert(at);
        }
        if held.mask == 0 {
            self.chunks.remove(&chunk);
        }
    }

    /// The store gives up blocks. Returns the home to be asked who takes them; `None` if none knows
    /// of them: there is nothing to ask then.
    pub(super) fn give_up(&mut self, effects: &Effects, blocks: Blocks) -> Option<MemberId> {
        let held = self.chunks.get_mut(&blocks.chunk)?;
        let is_held = held.mask & blocks.mask == blocks.mask;
        let home = held.reported_to.filter(|&it| effects.peers.is_usable(it));
        let Some(home) = home.filter(|_| is_held) else {
            self.remove(effects, blocks);
            return None;
        };
        held.mask &= !blocks.mask;
        if held.mask == 0 {
            self.chunks.remove(&blocks.chunk);
        }
        Some(home)
    }

    /// Homes may have changed: starts the sweep.
    pub(super) fn sweep(&mut self, effects: &Effects) {
        self.swept = None;
        if self.chunks.is_empty() || effects.peers.is_isolated() {
            self.sweep_at = None;
        } else {
            let at = effects.now.after(effects.settings.sweep_ns);
            self.sweep_at.get_or_insert(at);
        }
    }

    /// `home` does not know any more what was reported to it, or may have missed some of it.
    pub(super) fn forget_home(&mut self, effects: &Effects, home: MemberId) {
        self.dropped.remove(&home);
        for held in self.chunks.values_mut() {
            if held.reported_to == Some(home) {
                held.reported_to = None;
            }
        }
        self.sweep(effects);
    }

    /// No home knows anything: the node is isolated, and its directory entries will be gone.
    pub(super) fn forget_homes(&mut self) {
        self.dropped.clear();
        self.report_at = None;
        self.sweep_at = None;
        self.swept = None;
        for held in self.chunks.values_mut() {
            held.reported_to = None;
        }
    }

    /// The next deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        let times = [self.report_at, self.sweep_at];
        times.into_iter().flatten().min()
    }

    /// Sends the reports that are due.
    pub(super) fn on_timer(&mut self, effects: &mut Effects) {
        let due = |time: Option<Time>| time.is_some_and(|time| time <= effects.now);
        let (report, sweep) = (due(self.report_at), due(self.sweep_at));
        if report {
            self.report_at = None;
            for (home, chunks) in std::mem::take(&mut self.dropped) {
                let entries = chunks.into_iter().map(|(chunk, dropped)| ReportEntry {
                    chunk,
                    held: 0,
                    dropped,
                });
                send_batches(effects, home, entries.filter(|entry| entry.dropped != 0));
            }
        }
        if sweep {
            self.sweep_step(effects);
        }
    }

    fn sweep_step(&mut self, effects: &mut Effects) {
        let mut reports: BTreeMap<MemberId, Vec<ReportEntry>> = BTreeMap::new();
        let from = self.swept.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.chunks.range_mut((from, Bound::Unbounded));
        for (&chunk, held) in rest.by_ref().take(effects.settings.sweep_chunks) {
            self.swept = Some(chunk);
            let Some((home, _)) = effects.peers.home(chunk) else {
                continue;
            };
            if held.reported_to != Some(home) {
                held.reported_to = Some(home);
                reports.entry(home).or_default().push(ReportEntry {
                    chunk,
                    held: held.mask,
                    dropped: 0,
                });
            }
        }
        let next = effects.now.after(effects.settings.sweep_ns);
        self.sweep_at = rest.next().is_some().then_some(next);
        for (home, entries) in reports {
            send_batches(effects, home, entries.into_iter());
        }
    }

    /// How many chunks are held in part or in whole.
    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self, effects: &Effects) {
        assert!(self.chunks.values().all(|held| held.mask != 0));
        assert!(self.dropped.is_empty() || self.report_at.is_some());
        let unreported = self.chunks.iter().any(|(&chunk, held)| {
            let home = effects.peers.home(chunk);
            home.is_some_and(|(home, _)| held.reported_to != Some(home))
        });
        assert!(
            !unreported || self.sweep_at.is_some(),
            "all is reported in the end"
        );
    }
}

fn send_batches(effects: &mut Effects, home: MemberId, entries: impl Iterator<Item = ReportEntry>) {
    let mut entries = entries.peekable();
    while entries.peek().is_some() {
        let batch = entries.by_ref().take(REPORT_ENTRIES_MAX).collect();
        send_report(effects, home, batch);
    }
}

fn send_report(effects: &mut Effects, home: MemberId, entries: Vec<ReportEntry>) {
    let incarnation = effects.incarnation();
    let report = Message::Report {
        incarnation,
        entries,
    };
    effects.send(home, report);
}
