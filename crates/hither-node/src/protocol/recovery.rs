//! The requester, when something is lost: deadlines, members that fail, other views, isolation. And
//! its queues, once there is room again.

use std::collections::BTreeSet;

use super::effects::Effects;
use super::event::Time;
use super::flight::{Flight, Part, State};
use super::message::{Blocks, Urgency};
use super::requester::Requester;
use super::view::MemberId;
use crate::key::ChunkKey;

impl Requester {
    /// The next deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.timers.first()
    }

    /// Handles the deadlines that have come. Returns whether there was one.
    pub(super) fn on_timer(&mut self, effects: &mut Effects) -> bool {
        let mut any = false;
        while let Some(chunk) = self.timers.due(effects.now) {
            any = true;
            let now = effects.now;
            for part in self.take_chunk(chunk, |part| {
                part.state.ask().is_some_and(|ask| ask.deadline <= now)
            }) {
                self.on_deadline(effects, chunk, part);
            }
            self.update_flight(chunk);
        }
        any
    }

    fn on_deadline(&mut self, effects: &mut Effects, chunk: ChunkKey, part: Part) {
        let blocks = u64::from(part.count());
        match part.state {
            State::Pending { .. } => {
                // The home answered before, so it knows better than a timeout whether to wait on.
                let patience = part.started.after(effects.settings.patience_ns);
                if effects.now < patience {
                    return self.ask(effects, chunk, part, None);
                }
                return self.lose_patience(effects, chunk, part);
            }
            State::Asked { ask } => {
                effects.counters.answer_timeout_blocks += blocks;
                no_answer(effects, ask.home);
            }
            State::Coming { holder, .. } => {
                effects.counters.delivery_timeout_blocks += blocks;
                no_answer(effects, holder);
            }
            State::AskQueued { .. } | State::FetchQueued | State::Fetching | State::OnDisk => {}
        }
        self.fetch(effects, chunk, part);
    }

    /// A member is suspected, or has restarted: what was asked of it is asked again elsewhere.
    pub(super) fn on_lost(&mut self, effects: &mut Effects, member: MemberId) {
        for chunk in self.chunks() {
            let parts = self.take_chunk(chunk, |part| match part.state {
                State::AskQueued { home } => home == member,
                State::Coming { ask, holder, .. } => ask.home == member || holder == member,
                _ => part.state.ask().is_some_and(|ask| ask.home == member),
            });
            for part in parts {
                let avoid = match part.state {
                    State::Coming { holder, .. } if holder == member => Some(member),
                    _ => None,
                };
                self.retry(effects, chunk, part, avoid);
            }
            self.update_flight(chunk);
        }
    }

    /// The homes of some chunks have changed. New homes are told what is being read from the
    /// source. After a change of the view, what was asked of a former home is asked again.
    pub(super) fn on_homes_changed(&mut self, effects: &mut Effects, view_changed: bool) {
        for chunk in self.chunks() {
            let Some((home, _)) = effects.peers.home(chunk) else {
                continue;
            };
            if view_changed {
                let parts = self.take_chunk(chunk, |part| match part.state {
                    State::AskQueued { home: former } => former != home,
                    State::Asked { ask } | State::Pending { ask } => ask.home != home,
                    _ => false,
                });
                for part in parts {
                    self.retry(effects, chunk, part, None);
                }
                self.update_flight(chunk);
            }
            let flight = self.flights.get(&chunk).into_iter();
            for part in flight.flat_map(|flight| &flight.parts) {
                if part.state.is_fetch() {
                    effects.fetching(Blocks::new(chunk, part.mask), part.urgency);
                }
            }
        }
    }

    /// There is nobody to ask any more: reads all from the source.
    pub(super) fn on_isolated(&mut self, effects: &mut Effects) {
        for chunk in self.chunks() {
            let asked = |part: &Part| !part.state.is_fetch() && !part.state.is_read();
            for part in self.take_chunk(chunk, asked) {
                self.fetch(effects, chunk, part);
            }
            self.update_flight(chunk);
        }
    }

    /// Starts what queues, as far as there is room. Returns whether anything was started.
    pub(super) fn start_queued(&mut self, effects: &mut Effects) -> bool {
        let mut any = false;
        while let Some((urgency, chunk)) = self.fetches.next() {
            let parts = self.take_chunk(chunk, |part| {
                part.state == State::FetchQueued && part.urgency == urgency
            });
            for part in parts {
                any = true;
                self.fetch(effects, chunk, part);
            }
            self.update_flight(chunk);
        }
        let queues = self.asks.iter().filter(|(_, limit)| limit.can_start());
        let homes: Vec<MemberId> = queues.map(|(&home, _)| home).collect();
        for home in homes {
            while let Some((urgency, chunk)) = self.next_ask(home) {
                let parts = self.take_chunk(chunk, |part| {
                    part.state == State::AskQueued { home } && part.urgency == urgency
                });
                for part in parts {
                    any = true;
                    self.ask(effects, chunk, part, None);
                }
                self.update_flight(chunk);
            }
        }
        self.asks.retain(|_, limit| !limit.is_idle());
        any
    }

    fn next_ask(&mut self, home: MemberId) -> Option<(Urgency, ChunkKey)> {
        self.asks.get_mut(&home)?.next()
    }

    fn take_chunk(&mut self, chunk: ChunkKey, wanted: impl Fn(&Part) -> bool) -> Vec<Part> {
        self.take(Blocks::new(chunk, u64::MAX), wanted)
    }

    fn chunks(&self) -> Vec<ChunkKey> {
        self.flights.keys().copied().collect()
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        self.hints.check();
        let (mut fetching, mut queued_prefetch) = (0, 0);
        let mut timed = BTreeSet::new();
        for (&chunk, flight) in &self.flights {
            assert!(!flight.parts.is_empty());
            let mut seen = 0;
            for part in &flight.parts {
                assert_ne!(part.mask, 0);
                assert_eq!(part.mask & seen, 0, "a block is in one part");
                seen |= part.mask;
                match part.state {
                    State::Fetching => fetching += part.count(),
                    State::FetchQueued => {
                        assert!(
                            !self.fetches.has_room(part.urgency),
                            "a slot is left unused"
                        );
                    }
                    State::AskQueued { home } => {
                        assert!(self.asks.contains_key(&home));
                    }
                    _ => {}
                }
                if part.state.is_queued() && part.urgency == Urgency::Prefetch {
                    queued_prefetch += part.count();
                }
            }
            assert_eq!(flight.waiters.mask() & !seen, 0, "they wait for what comes");
            assert_eq!(flight.timer, flight.deadline());
            timed.extend(flight.timer.map(|_| chunk));
        }
        assert!(
            timed
                .into_iter()
                .eq(self.timers.chunks().collect::<BTreeSet<_>>())
        );
        assert_eq!(self.fetches.in_flight(), fetching);
        assert_eq!(self.queued_prefetch, queued_prefetch);
        for (&home, limit) in &self.asks {
            let parts = self.flights.values().flat_map(|flight| &flight.parts);
            let asked = parts.filter(|part| part.state.ask().is_some_and(|ask| ask.home == home));
            assert_eq!(limit.in_flight(), asked.map(Part::count).sum::<u32>());
        }
    }

    /// Blocks in flight.
    pub(super) fn block_count(&self) -> usize {
        let masks = self.flights.values().map(Flight::mask);
        masks.map(|mask| mask.count_ones() as usize).sum()
    }
}

/// Takes note that `member` did not answer in time. This node itself always answers; what it is
/// late with is lost.
fn no_answer(effects: &mut Effects, member: MemberId) {
    let now = effects.now;
    effects.peers.on_no_answer(member, now, &effects.settings);
}
