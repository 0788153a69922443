//! The requester, when it is answered: by a home, by data from a holder, by the source.

use super::effects::Effects;
use super::event::{DiskResult, FetchResult, Output, Time};
use super::flight::{Ask, Part, State};
use super::holdings::Holdings;
use super::message::{Blocks, Copies, Message, RequestId, Urgency};
use super::requester::Requester;
use super::view::MemberId;
use crate::key::ChunkKey;

impl Requester {
    /// A reader waits for blocks that the home knows to be fetched here as a prefetch.
    pub(super) fn on_hurry(&mut self, effects: &mut Effects, blocks: Blocks) {
        self.raise(effects, blocks, |part| part.state.is_fetch());
        self.update_flight(blocks.chunk);
    }

    /// The home told this node to read blocks from the source.
    pub(super) fn on_grant(
        &mut self,
        effects: &mut Effects,
        holdings: &Holdings,
        from: MemberId,
        id: RequestId,
        blocks: Blocks,
        keeper: MemberId,
    ) {
        effects.peers.on_answer(from);
        // What a keeper may not have is kept here: the list of the home may be another one.
        let keeper = Some(keeper).filter(|&it| it != effects.me && effects.may_have(it, blocks));
        let mut taken = 0;
        for mut part in self.take_answered(id, from, blocks) {
            self.on_answer_for(effects, &part, from);
            taken |= part.mask;
            part.keeper = keeper;
            effects.counters.granted_blocks += u64::from(part.count());
            self.fetch(effects, blocks.chunk, part);
        }
        if taken != 0 {
            let taken = blocks.with_mask(taken);
            self.hints.forget(taken);
            if let Some(keeper) = keeper {
                self.hints.add(taken, keeper);
            }
        }
        let held = holdings.held(blocks) & !self.coming(blocks);
        if held != 0 {
            holdings.repeat(effects, blocks.with_mask(held), from);
        }
        // An outdated grant: somebody else may have it. The home will be asked again for what was
        // asked of it again, and what is being read is on its way.
        let flight = self.flights.get(&blocks.chunk);
        let parts = flight.into_iter().flat_map(|flight| &flight.parts);
        let goes_on = parts.filter(|part| part.state.is_fetch() || part.state.is_for(from));
        let goes_on = goes_on.fold(0, |mask, part| mask | part.mask);
        let declined = blocks.mask & !(taken | goes_on | held);
        if declined != 0 {
            let blocks = blocks.with_mask(declined);
            let tried = false;
            effects.send(from, Message::NotFetched { blocks, tried });
        }
        self.update_flight(blocks.chunk);
    }

    /// The home told this node to wait.
    pub(super) fn on_pending(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        id: RequestId,
        blocks: Blocks,
    ) {
        effects.peers.on_answer(from);
        for part in self.take_answered(id, from, blocks) {
            self.on_answer_for(effects, &part, from);
            let deadline = effects.now.after(effects.settings.pending_ns);
            self.wait(effects, blocks.chunk, part, deadline, |ask| {
                State::Pending { ask }
            });
        }
        self.update_flight(blocks.chunk);
    }

    /// The home told `holder` to deliver.
    pub(super) fn on_at(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        id: RequestId,
        blocks: Blocks,
        holder: MemberId,
        copies: Vec<Copies>,
    ) {
        effects.peers.on_answer(from);
        let parts = self.take_answered(id, from, blocks);
        if !parts.is_empty() {
            self.hints.learn(blocks.chunk, copies);
        }
        let readers = &effects.settings.readers;
        let may_have = readers.may_have(holder, blocks.chunk.file);
        for part in parts {
            self.on_answer_for(effects, &part, from);
            if !may_have {
                effects.counters.refused_blocks += u64::from(part.count());
                self.fetch(effects, blocks.chunk, part);
                continue;
            }
            if effects.peers.is_suspected(holder) {
                self.retry(effects, blocks.chunk, part, Some(holder));
                continue;
            }
            let deadline = effects.now.after(effects.settings.delivery_ns);
            self.wait(effects, blocks.chunk, part, deadline, |ask| State::Coming {
                ask,
                holder,
                is_seen: true,
            });
        }
        self.update_flight(blocks.chunk);
    }

    /// Goes on waiting until `deadline`, but not beyond the patience.
    fn wait(
        &mut self,
        effects: &mut Effects,
        chunk: ChunkKey,
        part: Part,
        deadline: Time,
        state: impl Fn(Ask) -> State,
    ) {
        let patience = part.started.after(effects.settings.patience_ns);
        match part.state.ask() {
            Some(ask) if effects.now < patience => {
                let deadline = deadline.min(patience);
                self.put(chunk, part.into_state(state(Ask { deadline, ..ask })));
            }
            _ => self.lose_patience(effects, chunk, part),
        }
    }

    /// A node sends this one to the home. Asks the home that it has not asked yet, or that of a
    /// view that may have come since; otherwise reads from the source.
    pub(super) fn on_ask_home(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        id: RequestId,
        blocks: Blocks,
    ) {
        effects.peers.on_answer(from);
        for part in self.take_request(id, blocks) {
            match effects.peers.home(blocks.chunk) {
                Some(_) if matches!(part.state, State::Coming { is_seen: false, .. }) => {
                    self.hints.forget(blocks);
                    self.ask(effects, blocks.chunk, part, None);
                }
                Some((home, _)) if home != from => {
                    self.retry(effects, blocks.chunk, part, None);
                }
                _ => {
                    effects.counters.refused_blocks += u64::from(part.count());
                    self.fetch(effects, blocks.chunk, part);
                }
            }
        }
        self.update_flight(blocks.chunk);
    }

    /// A node refuses: reads from the source.
    pub(super) fn on_refused(
        &mut self,
        effects: &mut Effects,
        from: MemberId,
        id: RequestId,
        blocks: Blocks,
    ) {
        effects.peers.on_answer(from);
        for part in self.take_request(id, blocks) {
            effects.counters.refused_blocks += u64::from(part.count());
            self.fetch(effects, blocks.chunk, part);
        }
        self.update_flight(blocks.chunk);
    }

    /// Data came that was expected.
    pub(super) fn on_arrived(&mut self, effects: &mut Effects, blocks: Blocks, from: MemberId) {
        effects.peers.on_answer(from);
        effects.counters.arrived_blocks += u64::from(blocks.mask.count_ones());
        // A read that has begun goes on, for nobody.
        for part in self.take(blocks, |part| !part.state.is_read()) {
            self.on_answer_for(effects, &part, from);
            if let State::Coming { is_seen: false, .. } = part.state
                && part.urgency == Urgency::Demand
            {
                self.on_unseen_read(blocks.with_mask(part.mask));
            }
            if part.state == State::FetchQueued {
                effects.not_fetched(blocks.with_mask(part.mask), false);
            }
        }
        self.give(effects, blocks);
        self.update_flight(blocks.chunk);
    }

    /// A read of the local disk ended.
    pub(super) fn on_disk_read(
        &mut self,
        effects: &mut Effects,
        blocks: Blocks,
        result: DiskResult,
    ) {
        let chunk = blocks.chunk;
        for mut part in self.take(blocks, |part| part.state == State::OnDisk) {
            match (result, part.urgency) {
                (DiskResult::Read, _) => {}
                (DiskResult::Missing, _) => {
                    effects.counters.wanted_blocks += u64::from(part.count());
                    part.started = effects.now;
                    self.ask(effects, chunk, part, None);
                }
                (DiskResult::GivenUp, Urgency::Prefetch) => self.shed(effects, chunk, part),
                // Somebody waits by now.
                (DiskResult::GivenUp, Urgency::Demand) => self.read_disk(effects, chunk, part),
            }
        }
        if result == DiskResult::Read {
            self.give(effects, blocks);
        }
        self.update_flight(chunk);
    }

    /// A read of the source ended.
    pub(super) fn on_fetch_ended(
        &mut self,
        effects: &mut Effects,
        holdings: &mut Holdings,
        blocks: Blocks,
        result: FetchResult,
    ) {
        let chunk = blocks.chunk;
        for part in self.take(blocks, |part| part.state == State::Fetching) {
            match (result, part.urgency) {
                (FetchResult::Failed, _) => {}
                (FetchResult::GivenUp, Urgency::Prefetch) => {
                    effects.not_fetched(blocks.with_mask(part.mask), false);
                    self.shed(effects, chunk, part);
                }
                // Somebody waits by now.
                (FetchResult::GivenUp, Urgency::Demand) => self.fetch(effects, chunk, part),
                (_, Urgency::Demand) => {
                    self.on_source_read(effects.now.0.saturating_sub(part.started.0));
                }
                (_, Urgency::Prefetch) => {}
            }
        }
        match result {
            FetchResult::Kept | FetchResult::Sent | FetchResult::NotKept => {
                self.give(effects, blocks);
            }
            FetchResult::Failed => {
                // None is left to answer where data from another node came first.
                let waiters = self.take_waiters(blocks);
                if waiters.mask() != 0 {
                    effects.out.push(Output::Fail { chunk, waiters });
                }
            }
            FetchResult::GivenUp => {}
        }
        match result {
            FetchResult::Kept => holdings.add(effects, blocks),
            // The keeper reports.
            FetchResult::Sent | FetchResult::GivenUp => {}
            FetchResult::NotKept => effects.not_fetched(blocks, true),
            FetchResult::Failed => {
                effects.counters.failed_blocks += u64::from(blocks.mask.count_ones());
                effects.not_fetched(blocks, true);
            }
        }
        self.update_flight(blocks.chunk);
    }

    /// Takes what a home answers a request for.
    fn take_answered(&mut self, id: RequestId, from: MemberId, blocks: Blocks) -> Vec<Part> {
        self.take(blocks, |part| {
            part.state.is_asked(id) && part.state.is_for(from)
        })
    }

    /// Takes what a request is for that comes to nothing, as any member may say that the request
    /// was passed on to.
    fn take_request(&mut self, id: RequestId, blocks: Blocks) -> Vec<Part> {
        self.take(blocks, |part| part.state.is_asked(id))
    }
}
