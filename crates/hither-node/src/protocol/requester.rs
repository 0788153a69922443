//! The requester: gets the blocks that local readers and the prefetch want.
//!
//! Blocks of a chunk that have come equally far form a [`Part`]. Each part either has a deadline,
//! or stands in a queue, or is being read from the source by the runtime, which always reports the
//! end: so every block comes to an end. Whatever goes wrong with other nodes leads to the source.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::effects::Effects;
use super::event::Output;
use super::flight::{Ask, Flight, Part, State};
use super::hints::Hints;
use super::limits::Limit;
use super::message::{Blocks, Keep, Message, ReadEntry, Request, RequestId, Urgency};
use super::settings::Settings;
use super::timers::Timers;
use super::view::MemberId;
use super::waiters::{Token, Waiters};
use crate::key::{BlockKey, ChunkKey};

/// A read of the source counts for one part in so many of the smoothed time.
const SMOOTHING: u64 = 8;

/// Reads between two reports that are told; of more, some.
const UNSEEN_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) flights: BTreeMap<ChunkKey, Flight>,
    pub(super) timers: Timers,
    pub(super) fetches: Limit,
    /// Blocks asked for at each home; a home without any has no entry.
    pub(super) asks: BTreeMap<MemberId, Limit>,
    /// Blocks of the prefetch in queues.
    pub(super) queued_prefetch: u32,
    /// How long a read of the source takes that a reader waits for, smoothed.
    source_ns: Option<u64>,
    /// What numbers of requests are made of.
    secret: u128,
    /// Requests so far.
    requests: u64,
    pub(super) hints: Hints,
    /// Blocks that readers got from members that were asked directly, since the last report.
    reads: Vec<Blocks>,
}

/// Blocks that a reader or the prefetch wants.
pub(super) struct Wanted {
    pub(super) blocks: Blocks,
    pub(super) urgency: Urgency,
    /// What they are blocks of.
    pub(super) file: Token,
    /// Which of them are on the local disk.
    pub(super) on_disk: u64,
}

impl Requester {
    pub(super) fn new(settings: &Settings) -> Requester {
        Requester {
            flights: BTreeMap::new(),
            timers: Timers::default(),
            fetches: Limit::new(settings.fetch_blocks_max, settings.prefetch_percent),
            asks: BTreeMap::new(),
            queued_prefetch: 0,
            source_ns: None,
            secret: settings.secret,
            requests: 0,
            hints: Hints::new(settings.hint_chunks_max),
            reads: Vec::new(),
        }
    }

    /// A reader or the prefetch wants blocks, for which `waiter` waits.
    pub(super) fn want(&mut self, effects: &mut Effects, wanted: Wanted, waiter: Option<Token>) {
        let Wanted {
            blocks,
            urgency,
            file,
            on_disk,
        } = wanted;
        let Blocks { chunk, mask } = blocks;
        let flight = self.flights.entry(chunk).or_default();
        let fresh = mask & !flight.mask();
        if let Some(waiter) = waiter {
            flight.waiters.add(waiter, mask);
        }
        if urgency == Urgency::Demand {
            self.raise(effects, blocks.with_mask(mask & !fresh), |_| true);
        }
        let part = Part {
            mask: fresh & !on_disk,
            urgency,
            started: effects.now,
            retries: 0,
            keeper: None,
            file,
            state: State::FetchQueued,
        };
        if fresh & on_disk != 0 {
            let mask = fresh & on_disk;
            let part = Part {
                mask,
                ..part.clone()
            };
            self.read_disk(effects, chunk, part);
        }
        if part.mask != 0 {
            effects.counters.wanted_blocks += u64::from(part.count());
            self.ask(effects, chunk, part, None);
        }
        self.update_flight(chunk);
    }

    /// Reads the blocks of a part that is not in flight from the local disk.
    pub(super) fn read_disk(&mut self, effects: &mut Effects, chunk: ChunkKey, part: Part) {
        let blocks = Blocks::new(chunk, part.mask);
        effects.out.push(Output::ReadDisk(blocks));
        self.put(chunk, part.into_state(State::OnDisk));
    }

    /// The prefetch no longer wants blocks, for which nobody waits. Reads that have started go on.
    pub(super) fn cancel(&mut self, effects: &mut Effects, blocks: Blocks) {
        let parts = self.take(blocks, |part| {
            part.urgency == Urgency::Prefetch && !part.state.is_read()
        });
        for part in parts {
            let blocks = blocks.with_mask(part.mask);
            self.take_waiters(blocks);
            if let Some(Ask { home, id, .. }) = part.state.ask() {
                effects.send(home, Message::Withdraw { id, blocks });
            } else if part.state == State::FetchQueued {
                effects.not_fetched(blocks, false);
            }
        }
        self.update_flight(blocks.chunk);
    }

    /// Takes out who waits for blocks.
    pub(super) fn take_waiters(&mut self, blocks: Blocks) -> Waiters {
        let flight = self.flights.get_mut(&blocks.chunk);
        flight.map_or_else(Waiters::default, |it| it.waiters.take(blocks.mask))
    }

    /// Gives blocks that have come to those who wait for them.
    pub(super) fn give(&mut self, effects: &mut Effects, blocks: Blocks) {
        let (chunk, waiters) = (blocks.chunk, self.take_waiters(blocks));
        if waiters.mask() != 0 {
            effects.out.push(Output::Ready { chunk, waiters });
        }
    }

    /// Gives up the blocks of a part of the prefetch, which is not in flight.
    pub(super) fn shed(&mut self, effects: &mut Effects, chunk: ChunkKey, part: Part) {
        let blocks = Blocks::new(chunk, part.mask);
        effects.counters.shed_blocks += u64::from(part.count());
        effects.out.push(Output::Shed {
            blocks,
            file: part.file,
            waiters: self.take_waiters(blocks),
        });
    }

    /// Raises the urgency of those parts of the prefetch that `wanted` names.
    pub(super) fn raise(
        &mut self,
        effects: &mut Effects,
        blocks: Blocks,
        wanted: impl Fn(&Part) -> bool,
    ) {
        let parts = self.take(blocks, |part| {
            part.urgency == Urgency::Prefetch && wanted(part)
        });
        for mut part in parts {
            part.urgency = Urgency::Demand;
            let blocks = blocks.with_mask(part.mask);
            match part.state {
                State::AskQueued { .. } => self.ask(effects, blocks.chunk, part, None),
                State::FetchQueued => self.fetch(effects, blocks.chunk, part),
                State::Fetching => {
                    effects.out.push(Output::Hurry(blocks));
                    self.put(blocks.chunk, part);
                }
                State::OnDisk => self.put(blocks.chunk, part),
                State::Asked { ask } | State::Pending { ask } | State::Coming { ask, .. } => {
                    effects.send(ask.home, Message::Raise(blocks));
                    self.put(blocks.chunk, part);
                }
            }
        }
    }

    /// Asks for the blocks of a part that is not in flight: those who hold them, as far as that is
    /// known, otherwise the home.
    pub(super) fn ask(
        &mut self,
        effects: &mut Effects,
        chunk: ChunkKey,
        part: Part,
        avoid: Option<MemberId>,
    ) {
        let Some((home, rank)) = effects.peers.home(chunk) else {
            return self.fetch(effects, chunk, part);
        };
        if home != effects.me {
            let limit = limit_of(&mut self.asks, home, &effects.settings);
            if !limit.has_room(part.urgency) {
                return self.queue(effects, chunk, part.into_state(State::AskQueued { home }));
            }
        }
        let part = if part.retries == 0 && avoid.is_none() && home != effects.me {
            self.ask_holders(effects, chunk, part, home)
        } else {
            part
        };
        if part.mask == 0 {
            return;
        }
        let id = self.next_id(effects, &part);
        let message = Message::Want {
            id,
            blocks: Blocks::new(chunk, part.mask),
            urgency: part.urgency,
            rank,
            avoid,
        };
        effects.send(home, message);
        let deadline = effects.now.after(effects.settings.answer_ns);
        let ask = Ask { home, id, deadline };
        self.put(chunk, part.into_state(State::Asked { ask }));
    }

    /// Asks members for those blocks of a part that they are known to hold. Returns what is left.
    fn ask_holders(
        &mut self,
        effects: &mut Effects,
        chunk: ChunkKey,
        part: Part,
        home: MemberId,
    ) -> Part {
        let blocks = Blocks::new(chunk, part.mask);
        let may = |member| member != effects.me && effects.may_have(member, blocks);
        let holders: Vec<_> = self.hints.holders(blocks, may).collect();
        let mut rest = part.mask;
        for (holder, mask) in holders {
            rest &= !mask;
            let part = part.only(mask);
            let id = self.next_id(effects, &part);
            effects.counters.hinted_blocks += u64::from(part.count());
            let message = Message::Deliver {
                request: Request {
                    member: effects.me,
                    id,
                    urgency: part.urgency,
                },
                blocks: blocks.with_mask(mask),
                keep: Keep::No,
            };
            effects.send(holder, message);
            let deadline = effects.now.after(effects.settings.delivery_ns);
            let ask = Ask { home, id, deadline };
            let is_seen = false;
            let state = State::Coming {
                ask,
                holder,
                is_seen,
            };
            self.put(chunk, part.into_state(state));
        }
        part.only(rest)
    }

    fn next_id(&mut self, effects: &mut Effects, part: &Part) -> RequestId {
        effects.counters.asked_blocks += u64::from(part.count());
        self.requests += 1;
        let hash = Sha256::new()
            .chain_update(self.secret.to_le_bytes())
            .chain_update(self.requests.to_le_bytes())
            .finalize();
        let mut id = [0; 8];
        id.copy_from_slice(&hash[..8]);
        RequestId(u64::from_le_bytes(id))
    }

    /// Those of `blocks` that are on their way.
    pub(super) fn in_flight(&self, blocks: Blocks) -> u64 {
        let flight = self.flights.get(&blocks.chunk);
        flight.map_or(0, |flight| flight.mask() & blocks.mask)
    }

    /// Those of `blocks` that come from elsewhere, and not from this node's disk.
    pub(super) fn coming(&self, blocks: Blocks) -> u64 {
        let flight = self.flights.get(&blocks.chunk);
        let parts = flight.into_iter().flat_map(|flight| &flight.parts);
        let parts = parts.filter(|part| part.state != State::OnDisk);
        blocks.mask & parts.fold(0, |mask, part| mask | part.mask)
    }

    /// Whether somebody waits for one of these blocks, here or on another node.
    pub(super) fn is_urgent(&self, blocks: Blocks) -> bool {
        let flight = self.flights.get(&blocks.chunk);
        let mut parts = flight.into_iter().flat_map(|flight| &flight.parts);
        parts.any(|part| part.mask & blocks.mask != 0 && part.urgency == Urgency::Demand)
    }

    /// What a block is of and how urgent it is, if it is on its way.
    pub(super) fn wanted(&self, block: &BlockKey) -> Option<(&Token, Urgency)> {
        let (chunk, bit) = block.in_chunk();
        let mut parts = self.flights.get(&chunk)?.parts.iter();
        let part = parts.find(|part| part.mask & bit != 0)?;
        Some((&part.file, part.urgency))
    }

    /// Whether all of these blocks were asked for by the request `id`. Who names it was asked: the
    /// home, or a holder that it has told to deliver. Which of these it is may not be known yet:
    /// the home's word and the block come by two ways, and a holder that has nothing passes the
    /// request back, so that a block of the next one may come before the home's word about that
    /// one.
    pub(super) fn expects(&self, blocks: Blocks, id: RequestId) -> bool {
        let flight = self.flights.get(&blocks.chunk);
        let parts = flight.into_iter().flat_map(|flight| &flight.parts);
        let expected = parts.filter(|part| part.state.is_asked(id));
        blocks.mask & !expected.fold(0, |mask, part| mask | part.mask) == 0
    }

    /// Takes note that blocks came that the home has not seen a reader of.
    pub(super) fn on_unseen_read(&mut self, blocks: Blocks) {
        if self.reads.len() < UNSEEN_MAX {
            self.reads.push(blocks);
        }
    }

    /// What readers have got from members that were asked directly, since the last call.
    pub(super) fn take_reads(&mut self) -> impl Iterator<Item = ReadEntry> + use<> {
        std::mem::take(&mut self.reads).into_iter().map(|blocks| {
            let counts = vec![1; blocks.mask.count_ones() as usize];
            ReadEntry { blocks, counts }
        })
    }

    /// Asks again, or reads from the source if that was done too often.
    pub(super) fn retry(
        &mut self,
        effects: &mut Effects,
        chunk: ChunkKey,
        mut part: Part,
        avoid: Option<MemberId>,
    ) {
        if part.retries >= effects.settings.retries_max {
            return self.lose_patience(effects, chunk, part);
        }
        part.retries += 1;
        effects.counters.retried_blocks += u64::from(part.count());
        self.ask(effects, chunk, part, avoid);
    }

    pub(super) fn lose_patience(&mut self, effects: &mut Effects, chunk: ChunkKey, part: Part) {
        effects.counters.patience_blocks += u64::from(part.count());
        self.fetch(effects, chunk, part);
    }

    /// Reads the blocks of a part that is not in flight from the source, now or when there is room.
    pub(super) fn fetch(&mut self, effects: &mut Effects, chunk: ChunkKey, mut part: Part) {
        if !self.fetches.has_room(part.urgency) {
            return self.queue(effects, chunk, part.into_state(State::FetchQueued));
        }
        effects.counters.fetched_blocks += u64::from(part.count());
        effects.out.push(Output::Fetch {
            blocks: Blocks::new(chunk, part.mask),
            keeper: part.keeper,
            urgency: part.urgency,
            file: part.file.clone(),
        });
        part.started = effects.now;
        self.put(chunk, part.into_state(State::Fetching));
    }

    /// Queues a part, or sheds it if it is for the prefetch and too much of that queues already.
    fn queue(&mut self, effects: &mut Effects, chunk: ChunkKey, part: Part) {
        let queue_max = effects.settings.prefetch_queue_blocks_max;
        if part.urgency == Urgency::Prefetch && self.queued_prefetch >= queue_max {
            if part.state == State::FetchQueued {
                effects.not_fetched(Blocks::new(chunk, part.mask), false);
            }
            return self.shed(effects, chunk, part);
        }
        let (state, urgency) = (part.state, part.urgency);
        self.put(chunk, part);
        let limit = match state {
            State::AskQueued { home } => limit_of(&mut self.asks, home, &effects.settings),
            _ => &mut self.fetches,
        };
        limit.queue(urgency, chunk);
        let flights = &self.flights;
        limit.compact(flights.len(), |chunk| flights.contains_key(&chunk));
    }

    /// Puts a part into its flight and counts it. The caller updates the flight in the end.
    pub(super) fn put(&mut self, chunk: ChunkKey, part: Part) {
        if part.urgency == Urgency::Prefetch && part.state.is_queued() {
            self.queued_prefetch += part.count();
        }
        if part.state == State::Fetching {
            self.fetches.start(part.count());
        }
        if let Some(ask) = part.state.ask()
            && let Some(limit) = self.asks.get_mut(&ask.home)
        {
            limit.start(part.count());
        }
        self.flights.entry(chunk).or_default().parts.push(part);
    }

    /// Takes blocks of those parts that `wanted` names out of their flight.
    pub(super) fn take(&mut self, blocks: Blocks, wanted: impl Fn(&Part) -> bool) -> Vec<Part> {
        let Some(flight) = self.flights.get_mut(&blocks.chunk) else {
            return Vec::new();
        };
        let parts = flight.extract(blocks.mask, wanted);
        for part in &parts {
            if part.urgency == Urgency::Prefetch && part.state.is_queued() {
                self.queued_prefetch -= part.count();
            }
            if part.state == State::Fetching {
                self.fetches.end(part.count());
            }
            if let Some(ask) = part.state.ask()
                && let Some(limit) = self.asks.get_mut(&ask.home)
            {
                limit.end(part.count());
            }
        }
        parts
    }

    /// Takes note of how long a read of the source took that a reader waited for.
    pub(super) fn on_source_read(&mut self, ns: u64) {
        self.source_ns = Some(match self.source_ns {
            Some(before) => before - before / SMOOTHING + ns / SMOOTHING,
            None => ns,
        });
    }

    /// Judges the answer of a member for a part that is taken out of its flight: whether it came
    /// late. Answers to the prefetch may wait behind others.
    pub(super) fn on_answer_for(&self, effects: &mut Effects, part: &Part, from: MemberId) {
        let settings = &effects.settings;
        let (ask, allowed_ns) = match part.state {
            State::Asked { ask } if ask.home == from => (ask, settings.answer_ns),
            State::Coming { ask, holder, .. } if holder == from => (ask, settings.delivery_ns),
            _ => return,
        };
        let (Urgency::Demand, Some(source_ns)) = (part.urgency, self.source_ns) else {
            return;
        };
        let left_ns = ask.deadline.0.saturating_sub(effects.now.0);
        let took_ns = allowed_ns.saturating_sub(left_ns);
        let late = took_ns > (allowed_ns / settings.late).max(source_ns * settings.late);
        effects.counters.late_answers += u64::from(late);
        effects
            .peers
            .on_timed_answer(from, late, effects.now, settings);
    }

    /// After the flight of a chunk has changed: sets its deadline, or removes it.
    pub(super) fn update_flight(&mut self, chunk: ChunkKey) {
        if let Some(flight) = self.flights.get_mut(&chunk) {
            let deadline = flight.deadline();
            self.timers.set(chunk, &mut flight.timer, deadline);
            if flight.parts.is_empty() {
                self.flights.remove(&chunk);
            }
        }
    }
}

fn limit_of<'a>(
    asks: &'a mut BTreeMap<MemberId, Limit>,
    home: MemberId,
    settings: &Settings,
) -> &'a mut Limit {
    asks.entry(home)
        .or_insert_with(|| Limit::new(settings.peer_blocks_max, settings.prefetch_percent))
}
