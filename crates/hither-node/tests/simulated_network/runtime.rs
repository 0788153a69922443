//! What the runtime around a protocol does: it carries out what the protocol asks for, and checks
//! on the way that it makes sense.

use hither_node::key::{BlockKey, ChunkKey};
use hither_node::protocol::{
    Blocks, FetchResult, Input, Keep, MemberId, Message, Output, Protocol, ReadEntry, Urgency,
    Waiters, wire,
};

use crate::network::Packet;
use crate::node::content;
use crate::scenario::MS;
use crate::world::{Event, FetchEnd, Sabotage, World};

impl World {
    /// Does what the protocol of a node asks for.
    pub(crate) fn perform(&mut self, number: usize, output: Output) {
        match output {
            Output::Send { to, epoch, message } => {
                let to = self.number_of(to);
                assert_ne!(to, number, "a message to oneself");
                let message = match message {
                    Message::Pending { id, blocks }
                        if self.sabotage == Some(Sabotage::NobodyWaits) =>
                    {
                        let keeper = self.nodes[to].member;
                        Message::Grant { id, blocks, keeper }
                    }
                    Message::NotFetched { .. } | Message::Report { .. }
                        if self.sabotage == Some(Sabotage::SilentReports) =>
                    {
                        return;
                    }
                    message => message,
                };
                self.note_asked(&message, to);
                let mut bytes = Vec::new();
                wire::encode(&message, &mut bytes);
                self.send(number, to, Packet::Message { epoch, bytes });
            }
            Output::Fetch {
                blocks,
                keeper,
                urgency,
                file,
            } => {
                assert_eq!(file.get::<ChunkKey>(), &blocks.chunk, "the file of others");
                self.start_fetch(number, blocks, keeper, urgency);
            }
            Output::ReadDisk(_) => unreachable!("there is no disk"),
            Output::Hurry(blocks) => {
                let node = &self.nodes[number];
                let mut blocks = blocks.chunk.blocks(blocks.mask);
                assert!(blocks.all(|block| node.fetching.contains(&block)));
            }
            Output::Provide {
                home,
                request,
                blocks,
                keep,
            } => {
                let store = &self.nodes[number].store;
                let held = blocks.with_mask(store.present(blocks));
                if held.mask != 0 {
                    let contents = held.chunk.blocks(held.mask);
                    let mut contents: Vec<u64> =
                        contents.map(|block| store.get(block).unwrap()).collect();
                    if self.sabotage == Some(Sabotage::WrongBlocks) {
                        contents[0] ^= 1;
                    }
                    let packet = Packet::Data {
                        blocks: held,
                        contents,
                        keep,
                        request: Some(request.id),
                    };
                    self.send_data(number, request.member, packet);
                }
                let blocks = blocks.with_mask(blocks.mask & !held.mask);
                if blocks.mask != 0 {
                    let input = Input::Missing {
                        home,
                        request,
                        blocks,
                    };
                    self.schedule(0, number, Event::Input(input));
                }
            }
            Output::Forward { blocks, to, keep } => self.forward(number, blocks, to, keep),
            Output::Drop(blocks) => {
                for block in blocks.chunk.blocks(blocks.mask) {
                    self.nodes[number].store.remove(block);
                    self.count_lost(block);
                }
                self.step(number, Input::Dropped(blocks));
            }
            Output::Ready { chunk, waiters } => self.on_ready(number, chunk, &waiters),
            Output::Fail { chunk, waiters } => self.on_fail(number, chunk, &waiters),
            Output::Shed {
                blocks, waiters, ..
            } => {
                self.hand_back(number, blocks, &waiters);
                let node = &mut self.nodes[number];
                for read in &node.reads {
                    let shed = read.chunk == blocks.chunk && read.mask & blocks.mask != 0;
                    assert!(!shed, "a block was shed that a reader waits for");
                }
                // What came from a member before the source's turn was answered then.
                for block in blocks.chunk.blocks(blocks.mask) {
                    let owed = node.wanted.remove(&block) | node.cancelled.remove(&block);
                    assert_eq!(owed, waiters.mask() & block.in_chunk().1 != 0);
                }
            }
            Output::Suspected(_) | Output::Trusted(_) => {}
        }
    }

    /// Sends data, which is for the receiver.
    fn send_data(&mut self, from: usize, to: MemberId, packet: Packet) {
        let to = self.number_of(to);
        assert_ne!(to, from, "data to oneself");
        if let Packet::Data {
            blocks, contents, ..
        } = &packet
        {
            let may = self.nodes[from].lies || self.may_have(to, blocks.chunk);
            assert!(
                may || self.is_fooled(from, *blocks, contents),
                "{from} sends {blocks:?} to {to}, which may not have it"
            );
        }
        self.send(from, to, packet);
    }

    /// The runtime reads from the source, in parts that end at different times.
    fn start_fetch(
        &mut self,
        number: usize,
        blocks: Blocks,
        keeper: Option<MemberId>,
        urgency: Urgency,
    ) {
        for block in blocks.chunk.blocks(blocks.mask) {
            let first = self.nodes[number].fetching.insert(block);
            assert!(first, "{block:?} is read twice at once by one node");
            *self.fetch_starts.entry(block).or_default() += 1;
        }
        let mut rest = blocks.mask;
        while rest != 0 {
            let part = match self.random.below(3) {
                0 => rest & self.random.bits(),
                _ => rest,
            };
            rest &= !part;
            if part == 0 {
                continue;
            }
            let errors = match self.scenario.faults {
                Some(faults) if self.disturbed => faults.errors_percent,
                _ => 0,
            };
            let ends = if urgency == Urgency::Prefetch && self.percent(10) {
                FetchEnd::GivenUp
            } else if self.percent(errors) {
                FetchEnd::Fails
            } else {
                FetchEnd::Given
            };
            let after = self.between(self.scenario.source_ns);
            let blocks = blocks.with_mask(part);
            let fetched = Event::Fetched {
                blocks,
                keeper,
                ends,
            };
            self.schedule(after, number, fetched);
        }
    }

    /// Whoever waits for blocks is handed back with them: all of them, and once.
    fn hand_back(&mut self, number: usize, blocks: Blocks, waiters: &Waiters) {
        for block in blocks.chunk.blocks(blocks.mask) {
            let bit = block.in_chunk().1;
            let found = waiters.iter().filter(|(_, mask)| mask & bit != 0);
            let mut found: Vec<u64> = found.map(|(waiter, _)| *waiter.get()).collect();
            let node = &mut self.nodes[number];
            let known = node.waiters.remove(&block).unwrap_or_default();
            found.retain(|waiter| !known.cancelled.contains(waiter));
            assert!(
                known.owed.iter().eq(&found),
                "{block:?} is for {:?}, not {found:?}",
                known.owed
            );
        }
    }

    fn on_ready(&mut self, number: usize, chunk: ChunkKey, waiters: &Waiters) {
        let blocks = Blocks::new(chunk, waiters.mask());
        assert_ne!(blocks.mask, 0);
        self.hand_back(number, blocks, waiters);
        let node = &mut self.nodes[number];
        for block in blocks.chunk.blocks(blocks.mask) {
            let found = node.buffers.remove(&block).or(node.store.get(block));
            assert_eq!(found, Some(content(block)), "{block:?} has other bytes");
            let owed = node.wanted.remove(&block) | node.cancelled.remove(&block);
            assert!(owed, "{block:?} is answered twice");
        }
        self.answer(number, blocks);
    }

    fn on_fail(&mut self, number: usize, chunk: ChunkKey, waiters: &Waiters) {
        let blocks = Blocks::new(chunk, waiters.mask());
        assert_ne!(blocks.mask, 0);
        self.hand_back(number, blocks, waiters);
        let node = &mut self.nodes[number];
        for block in blocks.chunk.blocks(blocks.mask) {
            let owed = node.wanted.remove(&block) | node.cancelled.remove(&block);
            assert!(owed, "{block:?} is answered twice");
            let failed = node.failures.get(&block).copied();
            for read in &node.reads {
                if read.chunk == blocks.chunk && read.mask & block.in_chunk().1 != 0 {
                    let since = failed.is_some_and(|failed| failed >= read.started);
                    assert!(since, "{block:?} fails although the source did not");
                }
            }
        }
        self.answer(number, blocks);
    }

    /// Readers go on once they have all their blocks.
    fn answer(&mut self, number: usize, blocks: Blocks) {
        let wait_max = self.scenario.wait_max_ns();
        let node = &mut self.nodes[number];
        for read in &mut node.reads {
            if read.chunk == blocks.chunk {
                read.mask &= !blocks.mask;
            }
            if read.mask == 0 {
                let stopped = node.stopped_ns - read.stopped_ns;
                let waited = self.now - read.started - stopped.min(self.now - read.started);
                assert!(waited <= wait_max, "a reader waited for {} ms", waited / MS);
                self.wait_longest = self.wait_longest.max(waited);
                self.answered += 1;
            }
        }
        node.reads.retain(|read| read.mask != 0);
    }

    /// Blocks came from the source, or did not.
    pub(crate) fn end_fetch(
        &mut self,
        number: usize,
        blocks: Blocks,
        keeper: Option<MemberId>,
        ends: FetchEnd,
    ) {
        if ends == FetchEnd::GivenUp {
            for block in blocks.chunk.blocks(blocks.mask) {
                assert!(self.nodes[number].fetching.remove(&block));
                *self.fetch_starts.entry(block).or_default() -= 1;
            }
            let result = FetchResult::GivenUp;
            return self.step(number, Input::FetchEnded { blocks, result });
        }
        let fails = ends == FetchEnd::Fails || self.now < self.outage_until;
        let not_kept = self
            .scenario
            .faults
            .map_or(0, |faults| faults.not_kept_percent);
        let kept = !self.percent(not_kept);
        let mut dropped = Vec::new();
        let node = &mut self.nodes[number];
        for block in blocks.chunk.blocks(blocks.mask) {
            assert!(node.fetching.remove(&block));
            if fails {
                node.failures.insert(block, self.now);
                continue;
            }
            *self.fetched.entry(block).or_default() += 1;
            node.buffers.insert(block, content(block));
            if kept && keeper.is_none() {
                dropped.extend(node.store.insert(block, content(block), &mut self.random));
            } else {
                *self.evicted.entry(block).or_default() += 1;
            }
        }
        let result = match (fails, kept) {
            (true, _) => FetchResult::Failed,
            (false, true) if keeper.is_some() => FetchResult::Sent,
            (false, true) => FetchResult::Kept,
            (false, false) => FetchResult::NotKept,
        };
        if let (FetchResult::Sent, Some(keeper)) = (result, keeper) {
            let contents = blocks.chunk.blocks(blocks.mask).map(content).collect();
            let packet = Packet::Data {
                blocks,
                contents,
                keep: Keep::Copy,
                request: None,
            };
            self.send_data(number, keeper, packet);
        }
        self.step(number, Input::FetchEnded { blocks, result });
        for victim in dropped {
            self.give_up(number, Some(victim), None);
        }
    }

    /// The store of a node had no room for a block, since a copy came from a member.
    pub(crate) fn let_go(&mut self, number: usize, victim: Option<(BlockKey, u64)>) {
        if let Some((block, _)) = victim {
            self.count_lost(block);
            let (chunk, mask) = block.in_chunk();
            self.step(number, Input::Dropped(Blocks::new(chunk, mask)));
        }
    }

    /// The same, since one has moved here from a member, or came from the source.
    pub(crate) fn give_up(
        &mut self,
        number: usize,
        victim: Option<(BlockKey, u64)>,
        from: Option<MemberId>,
    ) {
        let Some((block, bytes)) = victim else {
            return;
        };
        self.count_lost(block);
        let (chunk, mask) = block.in_chunk();
        let blocks = Blocks::new(chunk, mask);
        let node = &mut self.nodes[number];
        let protocol = node.protocol.as_ref();
        // Small blocks are not kept for anybody.
        let input = if protocol.is_some_and(Protocol::forwards) && self.random.below(8) > 0 {
            node.victims.insert(block, bytes);
            Input::Victims { blocks, from }
        } else {
            Input::Dropped(blocks)
        };
        self.step(number, input);
    }

    /// A copy is gone: whether it was the last is not looked into.
    fn count_lost(&mut self, block: BlockKey) {
        *self.evicted.entry(block).or_default() += 1;
    }

    /// A node is to send blocks to one that keeps them.
    fn forward(&mut self, number: usize, blocks: Blocks, to: MemberId, keep: Keep) {
        for block in blocks.chunk.blocks(blocks.mask) {
            let node = &mut self.nodes[number];
            let found = node.victims.remove(&block).or(node.store.get(block));
            let (chunk, mask) = block.in_chunk();
            let blocks = Blocks::new(chunk, mask);
            match found {
                Some(content) => {
                    let contents = vec![content];
                    let packet = Packet::Data {
                        blocks,
                        contents,
                        keep,
                        request: None,
                    };
                    self.send_data(number, to, packet);
                }
                None => self.step(number, Input::Dropped(blocks)),
            }
        }
    }

    /// A node says how full its store is, and what was read there.
    pub(crate) fn report_usage(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let frames = node.store.frames();
        let reads = std::mem::take(&mut node.local_reads);
        let counts = node.protocol.as_ref().is_some_and(Protocol::counts_reads);
        let entry = |(chunk, mask): (ChunkKey, u64)| ReadEntry {
            blocks: Blocks::new(chunk, mask),
            counts: vec![2; mask.count_ones() as usize],
        };
        let reads = reads.into_iter().filter(|_| counts).map(entry).collect();
        node.victims.clear();
        self.step(number, Input::Usage { frames, reads });
    }
}
