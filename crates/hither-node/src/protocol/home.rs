//! The home: answers those who want blocks of its chunks.
//!
//! For each block that is wanted there are three cases. Somebody holds it: the holder is told to
//! deliver. Somebody reads it from the source: the requester waits. Otherwise the requester is
//! granted to read it. A waiting request always waits for somebody's read; when that ends without
//! the block, another requester is granted it.
//!
//! The directory says who holds what, and so who delivers. The [`Placer`] hears of the same reports
//! and decides where copies are kept.

use std::collections::BTreeMap;

use super::directory::{Directory, Entry, Fetcher};
use super::effects::Effects;
use super::event::Time;
use super::message::{
    Blocks, Frames, Keep, Message, ReadEntry, ReportEntry, Request, RequestId, Urgency,
};
use super::placer::Placer;
use super::serve::{carry_out, direct, grant, grant_others, hurry, refuse, send_away, wait};
use super::view::MemberId;
use crate::key::{ChunkKey, bits};

/// See the module.
pub(super) struct Home {
    pub(super) directory: Directory,
    /// `None` while there is nobody else.
    pub(super) placer: Option<Placer>,
}

impl Home {
    pub(super) fn new(chunks_max: usize) -> Home {
        Home {
            directory: Directory::new(chunks_max),
            placer: None,
        }
    }

    /// Starts a placer that knows what the directory says.
    pub(super) fn set_placer(&mut self, mut placer: Option<Placer>) {
        if let (Some(before), Some(placer)) = (&mut self.placer, &mut placer) {
            placer.go_on_with_log(before.take_log());
        }
        self.placer = placer;
        let Some(placer) = &mut self.placer else {
            return;
        };
        for chunk in self.directory.chunks() {
            let entry = self.directory.get(chunk);
            for &(member, mask) in entry.iter().flat_map(|entry| &entry.holders) {
                placer.held(Blocks::new(chunk, mask), member, &mut Vec::new());
            }
        }
    }

    /// How full a member is.
    pub(super) fn on_frames(&mut self, member: MemberId, frames: Frames) {
        if let Some(placer) = &mut self.placer {
            placer.set_frames(member, frames);
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
        let Home { directory, placer } = self;
        let Some(entry) = directory.entry(chunk) else {
            return refuse(effects, request, blocks);
        };
        remove_holder(placer, entry, request.member, blocks);
        if let Some(busy) = &mut entry.busy {
            busy.remove_waiter(request.member, mask);
        }
        let mut rest = mask;
        rest &= !direct(placer, effects, entry, request, blocks, avoid);
        if rest != 0 {
            rest &= !wait(effects, entry, request, blocks.with_mask(rest));
        }
        if rest != 0 {
            grant(placer, effects, entry, request, blocks.with_mask(rest));
        }
        self.update_entry(effects, chunk);
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
            self.update_entry(effects, blocks.chunk);
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
            remove_holder(&mut self.placer, entry, from, blocks);
            // The answer may be old, and the requester have the blocks from elsewhere by now. If it
            // still waits, it asks.
            let held = rest & entry.held_by(request.member);
            rest &= !held;
            if held != 0 {
                let (id, blocks) = (request.id, blocks.with_mask(held));
                effects.send(request.member, Message::AskHome { id, blocks });
            }
        }
        if rest == 0 {
            self.update_entry(effects, blocks.chunk);
        } else {
            self.on_want(effects, request, blocks.with_mask(rest), Some(from));
        }
    }

    /// A member reports what it holds and what it has dropped.
    pub(super) fn on_report(&mut self, effects: &mut Effects, from: MemberId, line: ReportEntry) {
        let chunk = line.chunk;
        let Home { directory, placer } = self;
        let entry = match directory.get(chunk) {
            None if line.held == 0 => None,
            _ => directory.entry(chunk),
        };
        let dropped = Blocks::new(chunk, line.dropped & !line.held);
        // Without room for an entry, nobody will find the blocks here: one more read of the source.
        let Some(entry) = entry else {
            if let Some(placer) = placer {
                placer.dropped(dropped, from);
            }
            return;
        };
        remove_holder(placer, entry, from, dropped);
        let held = Blocks::new(chunk, line.held);
        let mut waiters = Vec::new();
        if held.mask != 0 {
            add_holder(placer, effects, entry, from, held);
            if let Some(busy) = &mut entry.busy {
                busy.remove_fetcher(from, held.mask);
                busy.remove_fetcher_for(from, held.mask);
                waiters = busy.take_waiters(held.mask);
            }
        }
        for waiter in waiters {
            let (request, blocks) = (waiter.request(), Blocks::new(chunk, waiter.mask));
            let found = direct(placer, effects, entry, request, blocks, None);
            let rest = blocks.with_mask(blocks.mask & !found);
            if rest.mask != 0 {
                grant(placer, effects, entry, request, rest);
            }
        }
        self.update_entry(effects, chunk);
    }

    /// Readers of a member have read from its own copies, or asked other members directly.
    pub(super) fn on_reads(&mut self, effects: &mut Effects, from: MemberId, line: &ReadEntry) {
        let chunk = line.blocks.chunk;
        let Home { directory, placer } = self;
        let Some(entry) = directory.get(chunk) else {
            return;
        };
        for (bit, &count) in bits(line.blocks.mask).zip(&line.counts) {
            for _ in 0..count {
                let placer_now = placer.as_mut();
                let order = placer_now.and_then(|it| it.on_read(chunk, bit, from));
                if let Some(order) = order {
                    carry_out(placer, effects, entry, Blocks::new(chunk, 1 << bit), order);
                }
            }
        }
    }

    /// A member gives up blocks for want of room: whoever is to have a last copy is sent it.
    pub(super) fn on_victims(
        &mut self,
        effects: &mut Effects,
        at: MemberId,
        blocks: Blocks,
        moved_from: Option<MemberId>,
    ) {
        let Home { directory, placer } = self;
        let Some(entry) = directory.get(blocks.chunk) else {
            if let Some(placer) = placer {
                placer.dropped(blocks, at);
            }
            return;
        };
        entry.remove_holder(at, blocks.mask);
        effects.counters.victim_blocks += u64::from(blocks.mask.count_ones());
        let mut taken: BTreeMap<MemberId, u64> = BTreeMap::new();
        for bit in bits(blocks.mask) {
            let Some(placer) = placer.as_mut() else {
                break;
            };
            let block = blocks.with_mask(1 << bit);
            match placer.victim(block.chunk, bit, at, moved_from) {
                Some(to) if effects.may_have(to, block) => {
                    *taken.entry(to).or_default() |= block.mask;
                }
                Some(_) => placer.refused(block),
                None => {}
            }
        }
        for (to, mask) in taken {
            effects.counters.forwarded_blocks += u64::from(mask.count_ones());
            let (blocks, keep) = (blocks.with_mask(mask), Keep::Copy);
            effects.send(to, Message::Expect { blocks, from: at });
            effects.send(at, Message::Send { blocks, to, keep });
        }
        self.update_entry(effects, blocks.chunk);
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
                keeper: from,
                mask: blocks.mask,
                urgency,
                deadline: effects.now.after(effects.settings.grant_ns),
            });
            self.update_entry(effects, blocks.chunk);
        }
    }

    /// A member does not read blocks from the source after all, or has not kept what it was sent.
    /// If it tried to read them, those who wait are all granted to try: the next one would likely
    /// fail as well, and all would wait in turn.
    pub(super) fn on_not_fetched(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        blocks: Blocks,
        tried: bool,
    ) {
        if let Some(placer) = &mut self.placer {
            placer.not_kept(blocks, from);
        }
        if let Some(entry) = self.directory.get(blocks.chunk) {
            if let Some(busy) = &mut entry.busy {
                let lost = busy.remove_fetcher(from, blocks.mask)
                    | busy.remove_fetcher_for(from, blocks.mask);
                let placer = &mut self.placer;
                grant_others(placer, effects, entry, blocks.with_mask(lost), tried);
            }
            self.update_entry(effects, blocks.chunk);
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
                let late = Blocks::new(chunk, late);
                grant_others(&mut self.placer, effects, entry, late, false);
            }
            self.update_entry(effects, chunk);
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
                let lost = busy.remove_fetcher(member, u64::MAX)
                    | busy.remove_fetcher_for(member, u64::MAX);
                let lost = Blocks::new(chunk, lost);
                grant_others(&mut self.placer, effects, entry, lost, false);
            }
            self.update_entry(effects, chunk);
        }
    }

    /// A member has restarted, or left for good: what it held is gone until it reports again.
    pub(super) fn forget_holder(&mut self, effects: &mut Effects, member: MemberId) {
        for chunk in self.directory.chunks() {
            if let Some(entry) = self.directory.get(chunk) {
                let all = Blocks::new(chunk, u64::MAX);
                remove_holder(&mut self.placer, entry, member, all);
            }
            self.update_entry(effects, chunk);
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
                self.update_entry(effects, chunk);
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

    fn update_entry(&mut self, effects: &mut Effects, chunk: ChunkKey) {
        self.directory.update_entry(chunk);
        effects.counters.evicted_entries += self.directory.take_evicted();
    }
}

/// A member holds blocks from now on. Copies that have moved to it are dropped elsewhere.
fn add_holder(
    placer: &mut Option<Placer>,
    effects: &mut Effects,
    entry: &mut Entry,
    member: MemberId,
    blocks: Blocks,
) {
    entry.add_holder(member, blocks.mask);
    let mut left = Vec::new();
    if let Some(placer) = placer {
        placer.held(blocks, member, &mut left);
    }
    for (bit, member) in left {
        let block = blocks.with_mask(entry.held_by(member) & 1 << bit);
        if block.mask != 0 {
            effects.send(member, Message::Drop(block));
        }
    }
}

/// A member holds blocks no longer.
fn remove_holder(placer: &mut Option<Placer>, entry: &mut Entry, member: MemberId, blocks: Blocks) {
    let removed = entry.remove_holder(member, blocks.mask);
    if let Some(placer) = placer {
        placer.dropped(blocks.with_mask(removed), member);
    }
}
