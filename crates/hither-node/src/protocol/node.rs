//! The protocol: passes inputs to the roles of a node until nothing is left to do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hither_core::Topology;
use hither_core::placement::AccessesWanted;

use super::clock::Clock;
use super::effects::Effects;
use super::event::{DiskResult, Input, Output, Time};
use super::expected::Expected;
use super::holdings::Holdings;
use super::home::Home;
use super::message::{
    Blocks, Frames, Keep, Message, READ_ENTRIES_MAX, ReadEntry, Request, RequestId, Urgency,
};
use super::peers::{Change, Incarnation, PeerState, Peers};
use super::placer::{Placer, PlacerSettings};
use super::requester::{Requester, Wanted};
use super::settings::{Counters, Settings};
use super::topology::{MemberTopology, TopologyState};
use super::view::{MemberId, View};
use super::waiters::Token;
use crate::key::BlockKey;
use crate::readers::Readers;

/// The protocol of a node: see the [module](super).
pub struct Protocol {
    effects: Effects,
    clock: Clock,
    /// In the protocol's time.
    deadline: Option<Time>,
    requester: Requester,
    home: Home,
    holdings: Holdings,
    expected: Expected,
    /// This node's memory.
    frames: Frames,
    /// The generation of the topology that blocks are placed by.
    placed_by: u64,
    topology: MemberTopology,
}

impl Protocol {
    /// The protocol of the member `me`, which knows no view yet: until one comes, it reads all from
    /// the source.
    pub fn new(me: MemberId, settings: Settings) -> Protocol {
        Protocol {
            clock: Clock::default(),
            deadline: None,
            requester: Requester::new(&settings),
            home: Home::new(settings.directory_chunks_max),
            holdings: Holdings::default(),
            expected: Expected::new(settings.hint_chunks_max),
            frames: Frames::default(),
            placed_by: 0,
            topology: MemberTopology::new(me),
            effects: Effects {
                now: Time::default(),
                me,
                settings,
                peers: Peers::new(me),
                counters: Counters::default(),
                out: Vec::new(),
                loopback: VecDeque::new(),
                rejoins: 0,
            },
        }
    }

    /// Takes an input at `now`, by the node's monotonic clock, and appends what is to be done to
    /// `out`, in order.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        let stall_ns = self.effects.settings.stall_ns;
        let (now, stalled_ns) = self.clock.advance(now, self.deadline, stall_ns);
        self.effects.now = now;
        self.effects.counters.stalled_ns += stalled_ns;
        if let Some(placer) = &mut self.home.placer {
            placer.set_now(now);
        }
        std::mem::swap(&mut self.effects.out, out);
        self.handle(input);
        while self.proceed() {}
        std::mem::swap(&mut self.effects.out, out);
        let deadlines = [
            self.effects.peers.next_ping(),
            self.requester.deadline(),
            self.home.deadline(),
            self.holdings.deadline(),
        ];
        self.deadline = deadlines.into_iter().flatten().min();
    }

    /// When the protocol needs an input at the latest, by the node's clock: [`Input::Timer`], if
    /// there is no other.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadline.map(|deadline| self.clock.clock_at(deadline))
    }

    fn handle(&mut self, input: Input) {
        let effects = &mut self.effects;
        match input {
            Input::Want {
                blocks,
                urgency,
                file,
                waiter,
                on_disk,
            } => {
                // What is wanted is not there, so it was dropped.
                let gone = blocks.with_mask(blocks.mask & !on_disk);
                self.holdings.remove(effects, gone);
                let wanted = Wanted {
                    blocks,
                    urgency,
                    file,
                    on_disk,
                };
                self.requester.want(effects, wanted, waiter);
            }
            Input::Cancel(blocks) => self.requester.cancel(effects, blocks),
            Input::Message {
                from,
                epoch,
                mut message,
            } => {
                // Whatever the sender knows, this node goes by its own view.
                if !effects.peers.view().contains(from) {
                    effects.counters.strangers += 1;
                    return;
                }
                let own_epoch = effects.peers.view().epoch;
                effects.counters.other_epoch_messages += u64::from(epoch != own_epoch);
                if effects.peers.is_isolated() {
                    self.refuse(from, message);
                } else if is_forbidden(&effects.settings.readers, from, &mut message) {
                    effects.counters.forbidden += 1;
                    self.refuse(from, message);
                } else {
                    self.on_message(from, epoch, message);
                }
            }
            Input::FetchEnded { blocks, result } => {
                let holdings = &mut self.holdings;
                self.requester
                    .on_fetch_ended(effects, holdings, blocks, result);
            }
            Input::DiskRead { blocks, result } => {
                if result == DiskResult::Missing {
                    self.holdings.remove(effects, blocks);
                }
                self.requester.on_disk_read(effects, blocks, result);
            }
            Input::Arrived {
                blocks,
                from,
                kept,
                wanted,
            } => {
                self.expected.remove(blocks, from);
                self.requester.on_arrived(effects, blocks, from);
                if kept {
                    self.holdings.add(effects, blocks);
                } else if !wanted {
                    effects.not_fetched(blocks, false);
                }
            }
            Input::Unexpected(blocks) => {
                // What is on its way here, or here, is not given up by this.
                let here = self.holdings.held(blocks) | self.requester.coming(blocks);
                let blocks = blocks.with_mask(blocks.mask & !here);
                if blocks.mask != 0 {
                    effects.not_fetched(blocks, false);
                }
            }
            Input::Wrong {
                request,
                blocks,
                from,
            } => {
                self.expected.remove(blocks, from);
                self.requester.on_refused(effects, from, request, blocks);
            }
            Input::Missing {
                home,
                request,
                blocks,
            } => {
                self.holdings.remove(effects, blocks);
                if !effects.peers.is_isolated() {
                    effects.send(home, Message::Gone { request, blocks });
                }
            }
            Input::Held(blocks) => self.holdings.add_silently(effects, blocks),
            Input::Dropped(blocks) => self.holdings.remove(effects, blocks),
            Input::Victims { blocks, from } => {
                if let Some(home) = self.holdings.give_up(effects, blocks) {
                    effects.send(home, Message::Victims { blocks, from });
                }
            }
            Input::Usage { frames, reads } => self.on_usage(frames, reads),
            Input::ViewChanged(view) => self.on_view_changed(view),
            Input::Isolated => self.on_isolated(),
            Input::Rejoined => {
                effects.rejoins += 1;
                effects.peers.set_isolated(false, effects.now);
                self.holdings.sweep(effects);
                self.requester.on_homes_changed(effects, false);
            }
            Input::PeerDown(member) => effects.peers.set_connected(member, false),
            Input::PeerUp(member) => effects.peers.set_connected(member, true),
            Input::Timer => {}
        }
    }

    /// Does one of the things that are left to do. Returns whether there was one.
    fn proceed(&mut self) -> bool {
        if self.placed_by != self.topology.generation() {
            self.start_placer();
            return true;
        }
        let effects = &mut self.effects;
        if let Some(message) = effects.loopback.pop_front() {
            let (me, epoch) = (effects.me, effects.peers.view().epoch);
            self.on_message(me, epoch, message);
            return true;
        }
        let changes = effects.peers.changes(effects.now, &effects.settings);
        if !changes.is_empty() {
            self.on_changes(&changes);
            return true;
        }
        if let Some(round) = effects.peers.next_round(effects.now, &effects.settings) {
            let (frames, ends_turn) = (self.frames, round.ends_turn);
            for (member, round) in round.pings {
                effects.send(member, Message::Ping { round, frames });
            }
            self.topology.on_round(effects, ends_turn);
            return true;
        }
        if self
            .holdings
            .deadline()
            .is_some_and(|time| time <= effects.now)
        {
            self.holdings.on_timer(effects);
            return true;
        }
        self.home.on_timer(effects)
            || self.requester.on_timer(effects)
            || self.requester.start_queued(effects)
    }

    fn on_message(&mut self, from: MemberId, epoch: u64, message: Message) {
        let Protocol {
            effects,
            requester,
            home,
            holdings,
            ..
        } = self;
        match message {
            Message::Want {
                id,
                blocks,
                urgency,
                rank,
                avoid,
            } => {
                let request = Request {
                    member: from,
                    id,
                    urgency,
                };
                self.on_want(epoch, request, blocks, rank, avoid);
            }
            Message::Raise(blocks) => home.on_raise(effects, from, blocks),
            Message::Withdraw { id, blocks } => home.on_withdraw(effects, from, id, blocks),
            Message::Pending { id, blocks } => requester.on_pending(effects, from, id, blocks),
            Message::Grant { id, blocks, keeper } => {
                requester.on_grant(effects, holdings, from, id, blocks, keeper);
            }
            Message::At {
                id,
                blocks,
                holder,
                copies,
            } => requester.on_at(effects, from, id, blocks, holder, copies),
            Message::Deliver {
                request,
                blocks,
                keep,
            } => self.on_deliver(from, request, blocks, keep),
            Message::Send { blocks, to, keep } => {
                if to != effects.me {
                    requester.hints.add(blocks, to);
                    effects.out.push(Output::Forward { blocks, to, keep });
                }
            }
            Message::Expect {
                blocks,
                from: sender,
            } => {
                if effects.is_home(from, blocks) {
                    let until = effects.now.after(effects.settings.grant_ns);
                    self.expected.add(blocks, sender, until, effects.now);
                }
            }
            Message::Drop(blocks) => {
                if effects.is_home(from, blocks) {
                    effects.out.push(Output::Drop(blocks));
                }
            }
            Message::Reads(entries) => {
                for entry in &entries {
                    home.on_reads(effects, from, entry);
                }
            }
            Message::Victims {
                blocks,
                from: moved_from,
            } => home.on_victims(effects, from, blocks, moved_from),
            Message::Gone { request, blocks } => home.on_gone(effects, from, request, blocks),
            Message::AskHome { id, blocks } => requester.on_ask_home(effects, from, id, blocks),
            Message::Refused { id, blocks } => requester.on_refused(effects, from, id, blocks),
            Message::Fetching { blocks, urgency } => {
                home.on_fetching(effects, from, blocks, urgency);
            }
            Message::Hurry(blocks) => requester.on_hurry(effects, blocks),
            Message::NotFetched { blocks, tried } => {
                home.on_not_fetched(effects, from, blocks, tried);
            }
            Message::Report {
                incarnation,
                entries,
            } => {
                self.on_incarnation(from, incarnation);
                for entry in entries {
                    self.home.on_report(&mut self.effects, from, entry);
                }
            }
            Message::Ping { round, frames } => {
                home.on_frames(from, frames);
                let incarnation = effects.incarnation();
                effects.send(from, Message::Pong { round, incarnation });
            }
            Message::Pong { round, incarnation } => {
                let Effects {
                    now,
                    peers,
                    settings,
                    ..
                } = effects;
                if let Some(ns) = peers.on_pong(from, round, *now, settings) {
                    self.topology.on_round_trip(effects, from, ns);
                }
                self.on_incarnation(from, incarnation);
            }
            Message::RoundTrips(row) => self.topology.on_row(effects, from, &row),
        }
    }

    fn on_want(
        &mut self,
        epoch: u64,
        request: Request,
        blocks: Blocks,
        rank: u8,
        avoid: Option<MemberId>,
    ) {
        let effects = &mut self.effects;
        if effects.peers.acts_as_home(blocks.chunk, epoch, rank) {
            self.home.on_want(effects, request, blocks, avoid);
        } else {
            effects.counters.not_home += 1;
            let id = request.id;
            effects.send(request.member, Message::AskHome { id, blocks });
        }
    }

    fn on_deliver(&mut self, from: MemberId, request: Request, blocks: Blocks, keep: Keep) {
        let effects = &mut self.effects;
        if request.member == effects.me {
            return;
        }
        // Who asks directly has not asked the home. It is told if this node has nothing.
        let home = if from == request.member {
            effects.peers.home(blocks.chunk).map_or(from, |it| it.0)
        } else {
            from
        };
        let held = blocks.with_mask(self.holdings.held(blocks));
        let gone = blocks.with_mask(blocks.mask & !held.mask);
        if gone.mask != 0 {
            let blocks = gone;
            effects.send(home, Message::Gone { request, blocks });
        }
        if held.mask != 0 {
            effects.counters.provided_blocks += u64::from(held.mask.count_ones());
            effects.out.push(Output::Provide {
                home,
                request,
                blocks: held,
                keep,
            });
        }
    }

    /// Says to who would wait that it gets nothing here: from an isolated node, or at all.
    fn refuse(&mut self, from: MemberId, message: Message) {
        let (requester, id, blocks) = match message {
            Message::Want { id, blocks, .. } => (from, id, blocks),
            Message::Deliver {
                request, blocks, ..
            }
            | Message::Gone { request, blocks } => (request.member, request.id, blocks),
            _ => return,
        };
        self.effects
            .send(requester, Message::Refused { id, blocks });
    }

    /// What a member was told, and what it has said, is void once it has restarted.
    fn on_incarnation(&mut self, from: MemberId, incarnation: u64) {
        let effects = &mut self.effects;
        match effects.peers.on_incarnation(from, incarnation) {
            Incarnation::Known => {}
            Incarnation::First => {
                self.holdings.forget_home(effects, from);
                self.topology.on_new(effects, from);
            }
            Incarnation::Changed => {
                self.topology.on_new(effects, from);
                self.home.on_lost(effects, from);
                self.home.forget_holder(effects, from);
                self.holdings.forget_home(effects, from);
                self.requester.on_lost(effects, from);
            }
        }
    }

    fn on_view_changed(&mut self, view: View) {
        let effects = &mut self.effects;
        if view.epoch <= effects.peers.view().epoch {
            return;
        }
        let left = effects.peers.set_view(view, effects.now);
        self.home.on_view_changed(effects);
        for member in left {
            self.home.on_lost(effects, member);
            self.holdings.forget_home(effects, member);
            self.requester.on_lost(effects, member);
        }
        let gone_ns = effects.settings.gone_ns;
        let gone = effects.peers.gone_for_good(effects.now, gone_ns);
        for &member in &gone {
            self.home.forget_holder(effects, member);
        }
        self.topology.on_view(effects, &gone);
        self.holdings.sweep(effects);
        self.requester.on_homes_changed(effects, true);
    }

    /// Starts to place blocks anew, on the members of the topology.
    fn start_placer(&mut self) {
        self.placed_by = self.topology.generation();
        let TopologyState {
            members, topology, ..
        } = self.topology.state(&self.effects);
        let Effects {
            me, settings, now, ..
        } = &self.effects;
        // Who is alone has nothing to decide.
        let topology = topology.filter(|_| members.len() > 1);
        let placer = topology.and_then(|topology| {
            Placer::new(PlacerSettings {
                policy: settings.placement,
                topology,
                members,
                me: *me,
                chunks_max: settings.directory_chunks_max,
                order_ns: settings.order_ns,
                logs: settings.logs_placement,
            })
        });
        self.home.set_placer(placer);
        if let Some(placer) = &mut self.home.placer {
            placer.set_now(*now);
            placer.set_frames(*me, self.frames);
        }
    }

    fn on_usage(&mut self, frames: Frames, reads: Vec<ReadEntry>) {
        self.frames = frames;
        let effects = &mut self.effects;
        self.home.on_frames(effects.me, frames);
        let mut by_home: BTreeMap<MemberId, Vec<ReadEntry>> = BTreeMap::new();
        let counts = self.counts_reads();
        let unseen = self.requester.take_reads().filter(|_| counts);
        let effects = &mut self.effects;
        for entry in reads.into_iter().chain(unseen) {
            if let Some((home, _)) = effects.peers.home(entry.blocks.chunk) {
                by_home.entry(home).or_default().push(entry);
            }
        }
        for (home, mut entries) in by_home {
            while !entries.is_empty() {
                let rest = entries.split_off(entries.len().min(READ_ENTRIES_MAX));
                effects.send(home, Message::Reads(entries));
                entries = rest;
            }
        }
    }

    /// The lines of the placement's log since the last call: see
    /// [`replay`](hither_core::placement::replay).
    pub fn take_placement_log(&mut self) -> Vec<String> {
        let placer = self.home.placer.as_mut();
        placer.map(Placer::take_log).unwrap_or_default()
    }

    /// Whether data of these blocks, which came from a member upon the request `id`, is what this
    /// node waits for, or is to keep. Anything else is to be dropped: it could have any bytes.
    pub fn expects(&mut self, from: MemberId, id: RequestId, blocks: Blocks) -> bool {
        let Protocol {
            effects,
            requester,
            expected,
            ..
        } = self;
        let is_expected =
            || requester.expects(blocks, id) || expected.has(blocks, from, effects.now);
        let is_member = effects.peers.view().contains(from) && !effects.peers.is_isolated();
        let readers = &effects.settings.readers;
        let may = is_member && readers.may_have(from, blocks.chunk.file);
        let expects = may && is_expected();
        effects.counters.unexpected_blocks += u64::from(!expects);
        expects
    }

    /// What a block is of and how urgent it is, if it is on its way to this node.
    pub fn wanted(&self, block: &BlockKey) -> Option<(&Token, Urgency)> {
        self.requester.wanted(block)
    }

    /// Whether somebody waits for one of these blocks that are on their way to this node, here or
    /// on another one.
    pub fn is_urgent(&self, blocks: Blocks) -> bool {
        self.requester.is_urgent(blocks)
    }

    /// Those of `blocks` that are on their way to this node.
    pub fn in_flight(&self, blocks: Blocks) -> u64 {
        self.requester.in_flight(blocks)
    }

    /// Whether this node is to say what its readers read from its own copies.
    pub fn counts_reads(&self) -> bool {
        let placer = self.home.placer.as_ref();
        placer.is_some_and(|placer| placer.accesses_wanted() == AccessesWanted::All)
    }

    /// Whether blocks that are evicted are to be given as [`Input::Victims`].
    pub fn forwards(&self) -> bool {
        self.home.placer.as_ref().is_some_and(Placer::forwards)
    }

    fn on_isolated(&mut self) {
        let effects = &mut self.effects;
        effects.peers.set_isolated(true, effects.now);
        self.home.on_isolated(effects);
        self.holdings.forget_homes();
        self.requester.on_isolated(effects);
        self.start_placer();
    }

    fn on_changes(&mut self, changes: &[Change]) {
        let effects = &mut self.effects;
        for &change in changes {
            match change {
                Change::Lost(member) => {
                    effects.counters.suspicions += 1;
                    effects.out.push(Output::Suspected(member));
                    self.home.on_lost(effects, member);
                    // What was sent last may be lost.
                    self.holdings.forget_home(effects, member);
                    self.requester.on_lost(effects, member);
                }
                Change::Back(member) => effects.out.push(Output::Trusted(member)),
            }
        }
        self.holdings.sweep(effects);
        self.requester.on_homes_changed(effects, false);
    }

    /// The view that the protocol goes by.
    pub fn view(&self) -> &View {
        self.effects.peers.view()
    }

    /// Whether a member of the view is suspected.
    pub fn suspects(&self, member: MemberId) -> bool {
        self.effects.peers.is_suspected(member)
    }

    /// What is known of each other member of the view.
    pub fn peers(&self) -> Vec<PeerState> {
        self.effects.peers.states()
    }

    /// The topology over the members of the view, in their order; `None` where there are no
    /// members, or too many for one.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.topology()
    }

    /// Changes with the topology, and with the members that it is over.
    pub fn topology_generation(&self) -> u64 {
        self.topology.generation()
    }

    /// The topology, and where it is from.
    pub fn topology_state(&self) -> TopologyState {
        self.topology.state(&self.effects)
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    /// Blocks that local readers or the prefetch are waiting for.
    pub fn blocks_in_flight(&self) -> usize {
        self.requester.block_count()
    }

    /// Chunks in this node's part of the directory.
    pub fn directory_chunks(&self) -> usize {
        self.home.directory.len()
    }

    /// Reads and requests in this node's part of the directory, counted by chunks.
    pub fn busy_chunks(&self) -> usize {
        self.home.directory.busy_chunks().len()
    }

    /// Chunks of which this node holds blocks.
    pub fn held_chunks(&self) -> usize {
        self.holdings.chunk_count()
    }

    /// Walks every invariant and panics on a broken one.
    pub fn check(&self) {
        self.effects.peers.check();
        assert!(self.effects.loopback.is_empty());
        assert!(self.effects.out.is_empty());
        self.requester.check();
        self.expected.check();
        self.home.directory.check();
        if let Some(placer) = &self.home.placer {
            placer.check();
        }
        self.holdings.check(&self.effects);
        self.topology.check(&self.effects);
        if self.effects.peers.is_isolated() {
            assert_eq!(self.home.directory.len(), 0);
        }
        if let Some(deadline) = self.deadline {
            assert!(deadline > self.effects.now, "what is due was done");
        }
    }
}

/// Whether a message is about blocks of a volume that are not for who would get them, or for who
/// says that it has them or reads them. Of a list, what is not forbidden is left.
fn is_forbidden(readers: &Readers, from: MemberId, message: &mut Message) -> bool {
    let may = |member, blocks: &Blocks| readers.may_have(member, blocks.chunk.file);
    match message {
        Message::Want { blocks, .. }
        | Message::Fetching { blocks, .. }
        | Message::Victims { blocks, .. }
        | Message::Drop(blocks) => !may(from, blocks),
        Message::Gone { request, blocks } => !may(from, blocks) || !may(request.member, blocks),
        Message::Deliver {
            request, blocks, ..
        } => !may(request.member, blocks),
        Message::Send { blocks, to, .. } => !may(*to, blocks),
        Message::Expect {
            blocks,
            from: sender,
        } => !may(*sender, blocks),
        Message::Report { entries, .. } => {
            let all = entries.len();
            entries.retain(|entry| readers.may_have(from, entry.chunk.file));
            all > 0 && entries.is_empty()
        }
        Message::Reads(entries) => {
            entries.retain(|entry| may(from, &entry.blocks));
            entries.is_empty()
        }
        _ => false,
    }
}
