//! What a home does with a request, case by case: direct a holder, let it wait, grant it. And how
//! what the placement orders is carried out.

use std::collections::BTreeMap;

use hither_core::placement::AccessesWanted;

use super::directory::{Entry, Fetcher, Waiter};
use super::effects::Effects;
use super::message::{Blocks, COPIES_MAX, Copies, Keep, Message, Request, Urgency};
use super::placer::{Order, Placer};
use super::view::MemberId;
use crate::key::{ChunkKey, bits};

/// Directs holders to deliver what they have of `blocks`, each block the one on the shortest way
/// from the home over it to the requester, and has the placement decide whether copies move.
/// Returns the blocks that will come.
pub(super) fn direct(
    placer: &mut Option<Placer>,
    effects: &mut Effects,
    entry: &Entry,
    request: Request,
    blocks: Blocks,
    avoid: Option<MemberId>,
) -> u64 {
    let usable = |&&(member, mask): &&(MemberId, u64)| {
        let other = member != request.member && Some(member) != avoid;
        mask & blocks.mask != 0 && other && effects.peers.is_usable(member)
    };
    let mut holders: Vec<_> = entry.holders.iter().filter(usable).copied().collect();
    let hops = |from, to| placer.as_ref().map_or(0, |it| it.hops(from, to));
    // Among equals the home itself, which saves a message, and who has reported last.
    holders.reverse();
    holders.sort_by_key(|&(holder, _)| {
        let way = hops(effects.me, holder) + hops(holder, request.member);
        (way, holder != effects.me)
    });
    let mut found = 0;
    let mut deliveries: BTreeMap<(MemberId, Keep), u64> = BTreeMap::new();
    let mut orders = Vec::new();
    for bit in bits(blocks.mask) {
        let Some(&(holder, _)) = holders.iter().find(|(_, mask)| mask & 1 << bit != 0) else {
            continue;
        };
        found |= 1 << bit;
        // A prefetch is no read yet.
        let read = placer
            .as_mut()
            .filter(|_| request.urgency == Urgency::Demand);
        let order = read.and_then(|it| it.on_read(blocks.chunk, bit, request.member));
        let keep = match order {
            Some(Order::Send { to, keep }) if to == request.member => {
                effects.counters.on_move(keep, 1);
                keep
            }
            Some(order) => {
                orders.push((bit, order));
                Keep::No
            }
            None => Keep::No,
        };
        *deliveries.entry((holder, keep)).or_default() |= 1 << bit;
    }
    let copies = copies_for(placer, effects, entry, request);
    for ((holder, keep), mask) in deliveries {
        let found = blocks.with_mask(mask);
        effects.counters.directed_blocks += u64::from(mask.count_ones());
        let deliver = Message::Deliver {
            request,
            blocks: found,
            keep,
        };
        effects.send(holder, deliver);
        let at = Message::At {
            id: request.id,
            blocks: found,
            holder,
            copies: copies.clone(),
        };
        effects.send(request.member, at);
    }
    for (bit, order) in orders {
        carry_out(placer, effects, entry, blocks.with_mask(1 << bit), order);
    }
    found
}

/// Whom a requester may ask directly for blocks of the chunk from now on, the nearest first.
/// Nobody, if the placement is to hear of each read at once.
fn copies_for(
    placer: &Option<Placer>,
    effects: &Effects,
    entry: &Entry,
    request: Request,
) -> Vec<Copies> {
    let Some(placer) = placer
        .as_ref()
        .filter(|it| it.accesses_wanted() != AccessesWanted::Remote)
    else {
        return Vec::new();
    };
    let others = [effects.me, request.member];
    let may = |&&(member, _): &&(MemberId, u64)| {
        !others.contains(&member) && effects.peers.is_usable(member)
    };
    let copies = entry.holders.iter().filter(may);
    let mut copies: Vec<_> = copies
        .map(|&(member, mask)| Copies { member, mask })
        .collect();
    copies.sort_by_key(|copies| placer.hops(copies.member, request.member));
    copies.truncate(COPIES_MAX);
    copies
}

/// Has an order for one block carried out by who holds it, or says that it cannot be.
pub(super) fn carry_out(
    placer: &mut Option<Placer>,
    effects: &mut Effects,
    entry: &Entry,
    block: Blocks,
    order: Order,
) {
    let Some(placer) = placer else {
        return;
    };
    match order {
        Order::Drop { at } => effects.send(at, Message::Drop(block)),
        Order::Send { to, keep } => {
            let holds = |&&(member, mask): &&(MemberId, u64)| {
                mask & block.mask != 0 && member != to && effects.peers.is_usable(member)
            };
            let holders = entry.holders.iter().filter(holds);
            let nearest = holders.min_by_key(|&&(member, _)| placer.hops(member, to));
            match nearest.filter(|_| effects.may_have(to, block)) {
                Some(&(from, _)) => {
                    effects.counters.on_move(keep, 1);
                    let blocks = block;
                    effects.send(to, Message::Expect { blocks, from });
                    effects.send(from, Message::Send { blocks, to, keep });
                }
                None => placer.refused(block),
            }
        }
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
    // What the requester reads for another member is there once that one has it.
    let others = busy.fetchers.iter().filter(|fetcher| {
        fetcher.keeper != request.member && effects.peers.is_usable(fetcher.member)
    });
    let read = others.fold(0, |mask, fetcher| mask | fetcher.mask);
    // What the requester was granted before, and asks for again, is granted to it again.
    let own = busy.remove_own(request.member, blocks.mask);
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

/// Grants a requester to read blocks from the source. The placement says who keeps them.
pub(super) fn grant(
    placer: &mut Option<Placer>,
    effects: &mut Effects,
    entry: &mut Entry,
    request: Request,
    blocks: Blocks,
) {
    let mut keepers: BTreeMap<MemberId, u64> = BTreeMap::new();
    for bit in bits(blocks.mask) {
        let keeper = placer.as_mut().map_or(request.member, |it| {
            it.keeper(blocks.chunk, bit, request.member)
        });
        let keeper = if effects.may_have(keeper, blocks) {
            keeper
        } else {
            request.member
        };
        *keepers.entry(keeper).or_default() |= 1 << bit;
    }
    for (keeper, mask) in keepers {
        entry.busy().add_fetcher(Fetcher {
            member: request.member,
            keeper,
            mask,
            urgency: request.urgency,
            deadline: effects.now.after(effects.settings.grant_ns),
        });
        let blocks = blocks.with_mask(mask);
        if keeper != request.member {
            let from = request.member;
            effects.send(keeper, Message::Expect { blocks, from });
        }
        let id = request.id;
        effects.send(request.member, Message::Grant { id, blocks, keeper });
    }
}

/// A fetcher was lost: grants those of `blocks` that nobody else reads to `all` who wait for them,
/// or to the first one, readers before the prefetch.
pub(super) fn grant_others(
    placer: &mut Option<Placer>,
    effects: &mut Effects,
    entry: &mut Entry,
    blocks: Blocks,
    all: bool,
) {
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
            grant(
                placer,
                effects,
                entry,
                waiter.request(),
                blocks.with_mask(mask),
            );
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
        effects.send(waiter.member, Message::AskHome { id, blocks });
    }
}

/// Sends a requester to the source.
pub(super) fn refuse(effects: &mut Effects, request: Request, blocks: Blocks) {
    effects.counters.overflows += 1;
    let id = request.id;
    effects.send(request.member, Message::Refused { id, blocks });
}
