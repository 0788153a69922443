//! What a home does with a request, case by case: direct a holder, let it wait, grant it.

use super::decision::{Access, Decision};
use super::directory::{Entry, Fetcher, Waiter};
use super::effects::Effects;
use super::message::{Blocks, Message, Request, Urgency};
use super::view::MemberId;
use crate::key::ChunkKey;

/// Directs holders to deliver what they have of `blocks`. Returns the blocks that will come.
pub(super) fn direct(
    decision: &mut dyn Decision,
    effects: &mut Effects,
    entry: &Entry,
    request: Request,
    blocks: Blocks,
    avoid: Option<MemberId>,
) -> u64 {
    let mut rest = blocks.mask;
    loop {
        let usable = |&&(member, mask): &&(MemberId, u64)| {
            let other = member != request.member && Some(member) != avoid;
            mask & rest != 0 && other && effects.peers.is_usable(member)
        };
        let holders: Vec<_> = entry.holders.iter().filter(usable).copied().collect();
        if holders.is_empty() {
            return blocks.mask & !rest;
        }
        let delivery = decision.deliver(&Access {
            blocks: blocks.with_mask(rest),
            requester: request.member,
            home: effects.me,
            holders: &holders,
        });
        let (holder, mask) = holders[delivery.holder];
        let found = blocks.with_mask(rest & mask);
        rest &= !mask;
        effects.counters.directed_blocks += u64::from(found.mask.count_ones());
        let deliver = Message::Deliver {
            request,
            blocks: found,
            keep: delivery.keep,
        };
        effects.send(holder, deliver);
        let at = Message::At {
            id: request.id,
            blocks: found,
            holder,
        };
        effects.send(request.member, at);
    }
}

/// Lets a request wait for those of `blocks` that others read from the source. Returns these.
pub(super) fn wait(
    effects: &mut Effects,
    entry: &mut Entry,
    request: Request,
    blocks: Blocks,
) -> u64 {
    let Some(busy) = &mut entry.busy else {
        return 0;
    };
    let others = busy.fetchers.iter().filter(|fetcher| {
        fetcher.member != request.member && effects.peers.is_usable(fetcher.member)
    });
    let read = others.fold(0, |mask, fetcher| mask | fetcher.mask);
    // What the requester was granted before, and asks for again, is granted to it again.
    let own = busy.remove_fetcher(request.member, blocks.mask);
    let blocks = blocks.with_mask(blocks.mask & read & !own);
    if blocks.mask == 0 {
        // What is left is granted by the caller.
        return 0;
    }
    if busy.waiters.len() >= effects.settings.waiters_max {
        refuse(effects, request, blocks);
        return blocks.mask;
    }
    busy.waiters.push(Waiter {
        member: request.member,
        id: request.id,
        mask: blocks.mask,
        urgency: request.urgency,
        // It asks again before that.
        deadline: effects.now.after(2 * effects.settings.pending_ns),
    });
    effects.counters.pending_blocks += u64::from(blocks.mask.count_ones());
    let id = request.id;
    effects.send(request.member, Message::Pending { id, blocks });
    if request.urgency == Urgency::Demand {
        hurry(effects, &mut busy.fetchers, request.member, blocks);
    }
    blocks.mask
}

/// Tells those who read `blocks` as a prefetch that a reader of `except` waits.
pub(super) fn hurry(
    effects: &mut Effects,
    fetchers: &mut [Fetcher],
    except: MemberId,
    blocks: Blocks,
) {
    for fetcher in fetchers {
        let mask = fetcher.mask & blocks.mask;
        if mask != 0 && fetcher.urgency == Urgency::Prefetch {
            fetcher.urgency = Urgency::Demand;
            if fetcher.member != except {
                effects.send(fetcher.member, Message::Hurry(blocks.with_mask(mask)));
            }
        }
    }
}

/// Grants a requester to read blocks from the source.
pub(super) fn grant(effects: &mut Effects, entry: &mut Entry, request: Request, blocks: Blocks) {
    entry.busy().add_fetcher(Fetcher {
        member: request.member,
        mask: blocks.mask,
        urgency: request.urgency,
        deadline: effects.now.after(effects.settings.grant_ns),
    });
    effects.send(request.member, Message::Grant(blocks));
}

/// A fetcher was lost: grants those of `blocks` that nobody else reads to `all` who wait for them,
/// or to the first one, readers before the prefetch.
pub(super) fn grant_others(effects: &mut Effects, entry: &mut Entry, blocks: Blocks, all: bool) {
    let busy = entry.busy();
    let orphaned = blocks.mask & !busy.fetching();
    if orphaned == 0 {
        return;
    }
    let mut waiters = busy.take_waiters(orphaned);
    waiters.sort_by_key(|waiter| std::cmp::Reverse(waiter.urgency));
    let mut granted = 0;
    for waiter in waiters {
        let mask = if all {
            waiter.mask
        } else {
            waiter.mask & !granted
        };
        granted |= mask;
        if mask != 0 {
            grant(effects, entry, waiter.request(), blocks.with_mask(mask));
        }
        if waiter.mask != mask {
            let mask = waiter.mask & !mask;
            entry.busy().waiters.push(Waiter { mask, ..waiter });
        }
    }
}

/// Tells those who wait to ask somebody else.
pub(super) fn send_away(effects: &mut Effects, chunk: ChunkKey, waiters: Vec<Waiter>) {
    for waiter in waiters {
        let id = waiter.id;
        let blocks = Blocks::new(chunk, waiter.mask);
        effects.send(waiter.member, Message::NotHome { id, blocks });
    }
}

/// Sends a requester to the source.
pub(super) fn refuse(effects: &mut Effects, request: Request, blocks: Blocks) {
    effects.counters.overflows += 1;
    let id = request.id;
    effects.send(request.member, Message::Refused { id, blocks });
}
