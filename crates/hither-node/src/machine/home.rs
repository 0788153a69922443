//! The home: answers those who want blocks of its chunks.
//!
//! For each block that is wanted there are three cases. Somebody holds it: the holder is told to
//! deliver. Somebody reads it from the source: the requester waits. Otherwise the requester is
//! granted to read it. A waiting request always waits for somebody's read; when that ends without
//! the block, another requester is granted it.

use super::decision::Decision;
use super::directory::{Directory, Fetcher};
use super::effects::Effects;
use super::event::Time;
use super::message::{Blocks, ReportEntry, Request, RequestId, Urgency};
use super::serve::{direct, grant, grant_others, hurry, refuse, send_away, wait};
use super::view::MemberId;
use crate::key::ChunkKey;

/// See the module.
pub(super) struct Home {
    pub(super) directory: Directory,
    decision: Box<dyn Decision>,
}

impl Home {
    pub(super) fn new(chunks_max: usize, decision: Box<dyn Decision>) -> Home {
        Home {
            directory: Directory::new(chunks_max),
            decision,
        }
    }

    /// A member wants blocks, other than from `avoid`.
    pub(super) fn on_want(
        &mut self,
        effects: &mut Effects,
        request: Request,
        blocks: Blocks,
        avoid: Option<MemberId>,
    ) {
        let Blocks { chunk, mask } = blocks;
        let Some(entry) = self.directory.entry(chunk) else {
            return refuse(effects, request, blocks);
        };
        entry.remove_holder(request.member, mask);
        if let Some(busy) = &mut entry.busy {
            busy.remove_waiter(request.member, mask);
        }
        let mut rest = mask;
        rest &= !direct(&mut *self.decision, effects, entry, request, blocks, avoid);
        if rest != 0 {
            rest &= !wait(effects, entry, request, blocks.with_mask(rest));
        }
        if rest != 0 {
            grant(effects, entry, request, blocks.with_mask(rest));
        }
        self.settle(effects, chunk);
    }

    /// A reader of a member waits for blocks by now.
    pub(super) fn on_raise(&mut self, effects: &mut Effects, from: MemberId, blocks: Blocks) {
        let entry = self.directory.get(blocks.chunk);
        let Some(busy) = entry.and_then(|entry| entry.busy.as_mut()) else {
            return;
        };
        for waiter in &mut busy.waiters {
            if waiter.member == from && waiter.mask & blocks.mask != 0 {
                waiter.urgency = Urgency::Demand;
            }
        }
        hurry(effects, &mut busy.fetchers, from, blocks);
    }

    /// A member no longer wants blocks.
    pub(super) fn on_withdraw(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        id: RequestId,
        blocks: Blocks,
    ) {
        let entry = self.directory.get(blocks.chunk);
        if let Some(busy) = entry.and_then(|entry| entry.busy.as_mut()) {
            busy.waiters.retain_mut(|waiter| {
                if waiter.member == from && waiter.id == id {
                    waiter.mask &= !blocks.mask;
                }
                waiter.mask != 0
            });
            self.settle(effects, blocks.chunk);
        }
    }

    /// A holder no longer has what it was to deliver.
    pub(super) fn on_gone(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        request: Request,
        blocks: Blocks,
    ) {
        effects.counters.gone_blocks += u64::from(blocks.mask.count_ones());
        let mut rest = blocks.mask;
        if let Some(entry) = self.directory.get(blocks.chunk) {
            entry.remove_holder(from, blocks.mask);
            // The answer may be old, and the requester have the blocks from elsewhere by now.
            rest &= !entry.held_by(request.member);
        }
        if rest == 0 {
            self.settle(effects, blocks.chunk);
        } else {
            self.on_want(effects, request, blocks.with_mask(rest), Some(from));
        }
    }

    /// A member reports what it holds and what it has dropped.
    pub(super) fn on_report(&mut self, effects: &mut Effects, from: MemberId, line: ReportEntry) {
        let chunk = line.chunk;
        let entry = match self.directory.get(chunk) {
            None if line.held == 0 => None,
            _ => self.directory.entry(chunk),
        };
        // Without room for an entry, nobody will find the blocks here: one more read of the source.
        let Some(entry) = entry else {
            return;
        };
        entry.remove_holder(from, line.dropped & !line.held);
        let mut waiters = Vec::new();
        if line.held != 0 {
            entry.add_holder(from, line.held);
            if let Some(busy) = &mut entry.busy {
                busy.remove_fetcher(from, line.held);
                waiters = busy.take_waiters(line.held);
            }
        }
        for waiter in waiters {
            let (request, blocks) = (waiter.request(), Blocks::new(chunk, waiter.mask));
            let found = direct(&mut *self.decision, effects, entry, request, blocks, None);
            if waiter.mask & !found != 0 {
                grant(
                    effects,
                    entry,
                    request,
                    blocks.with_mask(waiter.mask & !found),
                );
            }
        }
        self.settle(effects, chunk);
    }

    /// A member reads blocks from the source, as a former home knew.
    pub(super) fn on_fetching(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        blocks: Blocks,
        urgency: Urgency,
    ) {
        if let Some(entry) = self.directory.entry(blocks.chunk) {
            entry.busy().add_fetcher(Fetcher {
                member: from,
                mask: blocks.mask,
                urgency,
                deadline: effects.now.after(effects.settings.grant_ns),
            });
            self.settle(effects, blocks.chunk);
        }
    }

    /// A member does not read blocks from the source after all. If it tried to, those who wait are
    /// all granted to try: the next one would likely fail as well, and all would wait in turn.
    pub(super) fn on_not_fetched(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        blocks: Blocks,
        tried: bool,
    ) {
        if let Some(entry) = self.directory.get(blocks.chunk) {
            if let Some(busy) = &mut entry.busy {
                let lost = busy.remove_fetcher(from, blocks.mask);
                grant_others(effects, entry, blocks.with_mask(lost), tried);
            }
            self.settle(effects, blocks.chunk);
        }
    }

    /// Handles the deadlines that have come. Returns whether there was one.
    pub(super) fn on_timer(&mut self, effects: &mut Effects) -> bool {
        let mut any = false;
        let now = effects.now;
        while let Some(chunk) = self.directory.due(now) {
            any = true;
            if let Some(entry) = self.directory.get(chunk)
                && let Some(busy) = &mut entry.busy
            {
                busy.waiters.retain(|waiter| waiter.deadline > now);
                let late = busy
                    .fetchers
                    .extract_if(.., |fetcher| fetcher.deadline <= now);
                let late = late.fold(0, |mask, fetcher| mask | fetcher.mask);
                effects.counters.grant_timeout_blocks += u64::from(late.count_ones());
                grant_others(effects, entry, Blocks::new(chunk, late), false);
            }
            self.settle(effects, chunk);
        }
        any
    }

    /// The next deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.directory.deadline()
    }

    /// A member is suspected, or has restarted: its reads are granted to others.
    pub(super) fn on_lost(&mut self, effects: &mut Effects, member: MemberId) {
        for chunk in self.directory.busy_chunks() {
            if let Some(entry) = self.directory.get(chunk)
                && let Some(busy) = &mut entry.busy
            {
                busy.remove_waiter(member, u64::MAX);
                let lost = busy.remove_fetcher(member, u64::MAX);
                grant_others(effects, entry, Blocks::new(chunk, lost), false);
            }
            self.settle(effects, chunk);
        }
    }

    /// A member has restarted, or left for good: what it held is gone until it reports again.
    pub(super) fn forget_holder(&mut self, effects: &mut Effects, member: MemberId) {
        for chunk in self.directory.chunks() {
            if let Some(entry) = self.directory.get(chunk) {
                entry.remove_holder(member, u64::MAX);
            }
            self.settle(effects, chunk);
        }
    }

    /// The view changed. Chunks that have another home now have nobody waiting here
    /// any more. Who holds them is kept until there is no room for it: their home may come back
    /// with the next view, and holders that saw only the next one would not report again.
    pub(super) fn on_view_changed(&mut self, effects: &mut Effects) {
        let epoch = effects.peers.view().epoch;
        for chunk in self.directory.busy_chunks() {
            if !effects.peers.acts_as_home(chunk, epoch, 0) {
                let entry = self.directory.get(chunk);
                if let Some(busy) = entry.and_then(|entry| entry.busy.as_mut()) {
                    busy.fetchers.clear();
                    let waiters = std::mem::take(&mut busy.waiters);
                    send_away(effects, chunk, waiters);
                }
                self.settle(effects, chunk);
            }
        }
    }

    /// This node is no home any more: forgets all.
    pub(super) fn on_isolated(&mut self, effects: &mut Effects) {
        for chunk in self.directory.chunks() {
            let entry = self.directory.remove(chunk);
            if let Some(busy) = entry.and_then(|entry| entry.busy) {
                send_away(effects, chunk, busy.waiters);
            }
        }
    }

    fn settle(&mut self, effects: &mut Effects, chunk: ChunkKey) {
        self.directory.settle(chunk);
        effects.counters.evicted_entries += self.directory.take_evicted();
    }
}
