//! The other members: who belongs to the view, who answers, and who is the home of a chunk.
//!
//! A member is suspected if it has not answered the last few pings, if the connection to it broke,
//! or if it left several requests in a row unanswered or was late with them. Of pings, only an
//! *answer* counts, not any message: where messages get through in one direction only, both sides
//! need to know. What counts are pings that this node has sent, so a node that was stopped suspects
//! nobody for it.
//!
//! A round pings a bounded number of members, the next ones in turn: in a cluster of 1,000, all
//! would be 8,000 messages a second for each. Who leaves a ping or a request unanswered is pinged
//! again in the next round, before its turn: so a silent member of a large cluster is suspected a
//! turn later than one of a small cluster, and no more than that.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::event::Time;
use super::settings::Settings;
use super::view::{MemberId, View};
use crate::key::ChunkKey;

/// What became of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is suspected.
    Lost(MemberId),
    /// It is no longer suspected.
    Back(MemberId),
}

/// What the incarnation that a member names says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incarnation {
    /// Nothing, or nothing new.
    Known,
    /// None was known before. What was said to the member may have been said to an earlier one.
    First,
    /// The member has restarted, or has forgotten what it was told.
    Changed,
}

#[derive(Debug)]
struct Peer {
    connected: bool,
    /// The number of the latest ping to it. It starts at that of the round when the member came, so
    /// no number is used twice, even if the member was there before.
    ping: u64,
    pinged_at: Time,
    /// The latest ping that it has answered.
    answered: u64,
    /// Whether nothing was heard of it since it was pinged or did not answer a request.
    silent: bool,
    incarnation: Option<u64>,
    /// Requests in a row that it has not answered.
    unanswered: u32,
    /// Late answers in a row.
    late: u32,
    avoid_until: Option<Time>,
    /// From the latest ping to its answer.
    round_trip_ns: Option<u64>,
}

/// A round of pings.
#[derive(Debug)]
pub(super) struct Round {
    /// Whom to ping, with the number of the ping.
    pub(super) pings: Vec<(MemberId, u64)>,
    /// Whether all members have had their turn.
    pub(super) ends_turn: bool,
}

/// What is known of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// The member.
    pub member: MemberId,
    /// Whether there is a connection to it.
    pub connected: bool,
    /// Whether it is suspected: nothing is asked of it then.
    pub suspected: bool,
    /// From the latest ping that it answered in time to the answer, in nanoseconds.
    pub round_trip_ns: Option<u64>,
}

/// A member that left. It may be back in the next view.
#[derive(Debug)]
struct Departed {
    at: Time,
    incarnation: Option<u64>,
}

/// The members and what is known of them.
#[derive(Debug)]
pub(super) struct Peers {
    me: MemberId,
    view: View,
    isolated: bool,
    /// All members of the view but this one.
    peers: BTreeMap<MemberId, Peer>,
    /// Members that left, and when.
    departed: BTreeMap<MemberId, Departed>,
    /// In ascending order.
    suspects: Vec<MemberId>,
    /// Rounds of pings so far.
    round: u64,
    /// The member that was pinged last in its turn.
    turn: Option<MemberId>,
    next_ping: Option<Time>,
    /// Whether `suspects` may be outdated.
    stale: bool,
}

impl Peers {
    pub(super) fn new(me: MemberId) -> Peers {
        Peers {
            me,
            view: View::default(),
            isolated: false,
            peers: BTreeMap::new(),
            departed: BTreeMap::new(),
            suspects: Vec::new(),
            round: 0,
            turn: None,
            next_ping: None,
            stale: false,
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn is_isolated(&self) -> bool {
        self.isolated
    }

    pub(super) fn set_isolated(&mut self, isolated: bool, now: Time) {
        self.isolated = isolated;
        self.next_ping = (!isolated && !self.peers.is_empty()).then_some(now);
        for peer in self.peers.values_mut() {
            peer.answered = peer.ping;
        }
        self.stale = true;
    }

    /// Replaces the view by a later one and returns the members that left it.
    pub(super) fn set_view(&mut self, view: View, now: Time) -> Vec<MemberId> {
        debug_assert!(view.epoch > self.view.epoch);
        let (peers, departed) = (&mut self.peers, &mut self.departed);
        let left = peers.extract_if(.., |&member, _| !view.contains(member));
        let left: Vec<MemberId> = left
            .map(|(member, Peer { incarnation, .. })| {
                let at = now;
                departed.insert(member, Departed { at, incarnation });
                member
            })
            .collect();
        self.suspects.retain(|&member| view.contains(member));
        for &member in view.members.iter().filter(|&&member| member != self.me) {
            let departed = departed.remove(&member);
            peers.entry(member).or_insert(Peer {
                connected: true,
                ping: self.round,
                pinged_at: now,
                answered: self.round,
                silent: false,
                incarnation: departed.and_then(|departed| departed.incarnation),
                unanswered: 0,
                late: 0,
                avoid_until: None,
                round_trip_ns: None,
            });
        }
        self.view = view;
        if self.peers.is_empty() || self.isolated {
            self.next_ping = None;
        } else {
            self.next_ping.get_or_insert(now);
        }
        left
    }

    /// The members that left more than `after_ns` ago and are not back. Each is named once.
    pub(super) fn gone_for_good(&mut self, now: Time, after_ns: u64) -> Vec<MemberId> {
        let late = |departed: &Departed| departed.at.after(after_ns) < now;
        let gone = self.departed.extract_if(.., |_, departed| late(departed));
        gone.map(|(member, _)| member).collect()
    }

    pub(super) fn is_suspected(&self, member: MemberId) -> bool {
        self.suspects.binary_search(&member).is_ok()
    }

    /// Whether `member` is this node, or an unsuspected member of the view.
    pub(super) fn is_usable(&self, member: MemberId) -> bool {
        member == self.me || (self.view.contains(member) && !self.is_suspected(member))
    }

    /// The home of `chunk`, and how many suspected members come before it. `None`: there is nobody
    /// to ask.
    pub(super) fn home(&self, chunk: ChunkKey) -> Option<(MemberId, u8)> {
        if self.isolated {
            return None;
        }
        let home = self.view.home(chunk, |member| self.is_suspected(member))?;
        if self.suspects.is_empty() {
            return Some((home, 0));
        }
        let (before, _) = self.before(home, chunk);
        Some((home, u8::try_from(before).unwrap_or(u8::MAX)))
    }

    /// How many members come before `member` as homes of `chunk`, and how many of these are
    /// unsuspected.
    fn before(&self, member: MemberId, chunk: ChunkKey) -> (usize, usize) {
        let mut weights = self.view.weights(chunk);
        let own = weights.find(|&(other, _)| other == member);
        let own = own.map_or(0, |(_, weight)| weight);
        let heavier = self.view.weights(chunk).filter(|&(_, weight)| weight > own);
        heavier.fold((0, 0), |(all, unsuspected), (other, _)| {
            (
                all + 1,
                unsuspected + usize::from(!self.is_suspected(other)),
            )
        })
    }

    /// Whether this node acts as the home of `chunk` for a requester with a view of `epoch` that
    /// suspects the first `rank` members. A requester with a later view knows better.
    pub(super) fn acts_as_home(&self, chunk: ChunkKey, epoch: u64, rank: u8) -> bool {
        if self.isolated {
            return false;
        }
        if epoch > self.view.epoch {
            return true;
        }
        if !self.view.contains(self.me) {
            return false;
        }
        let (before, unsuspected) = self.before(self.me, chunk);
        unsuspected == 0 || before <= usize::from(rank)
    }

    /// Starts a round of pings if it is time.
    pub(super) fn next_round(&mut self, now: Time, settings: &Settings) -> Option<Round> {
        if self.next_ping.is_none_or(|time| time > now) {
            return None;
        }
        self.next_ping = Some(now.after(settings.ping_ns));
        self.round += 1;
        self.stale = true;
        let (members, ends_turn) = self.whom_to_ping(settings.pings_max.max(1));
        let ping = |member| {
            let peer = self.peers.get_mut(&member)?;
            peer.ping += 1;
            (peer.pinged_at, peer.silent) = (now, true);
            Some((member, peer.ping))
        };
        let pings = members.into_iter().filter_map(ping).collect();
        Some(Round { pings, ends_turn })
    }

    /// The members of the next round, and whether it is the last one of a turn.
    fn whom_to_ping(&mut self, pings_max: usize) -> (Vec<MemberId>, bool) {
        let silent_max = if self.peers.len() > pings_max {
            pings_max / 2
        } else {
            0
        };
        let silent = self.peers.iter().filter(|(_, peer)| peer.silent);
        let silent = silent.map(|(&member, _)| member);
        let mut members: Vec<MemberId> = silent.take(silent_max).collect();
        let after = self.turn.map_or(Unbounded, Excluded);
        let rest = self.peers.range((after, Unbounded));
        let mut rest = rest.map(|(&member, _)| member);
        members.extend(rest.by_ref().take(pings_max - members.len()));
        let last = members.last().copied();
        let ends_turn = rest.next().is_none();
        self.turn = last.filter(|_| !ends_turn);
        members.sort_unstable();
        members.dedup();
        (members, ends_turn)
    }

    pub(super) fn next_ping(&self) -> Option<Time> {
        self.next_ping
    }

    /// All other members.
    pub(super) fn others(&self) -> impl Iterator<Item = MemberId> {
        self.peers.keys().copied()
    }

    /// Takes the answer of a member to a ping. Returns how long it took, if it was to the latest.
    pub(super) fn on_pong(
        &mut self,
        member: MemberId,
        ping: u64,
        now: Time,
        settings: &Settings,
    ) -> Option<u64> {
        let peer = self.peers.get_mut(&member)?;
        // An answer that is as old as a suspicion proves nothing.
        if ping > peer.ping || peer.ping - ping > settings.pings_missed_max {
            return None;
        }
        let is_latest = ping == peer.ping;
        let round_trip_ns = is_latest.then(|| now.0.saturating_sub(peer.pinged_at.0));
        peer.round_trip_ns = round_trip_ns.or(peer.round_trip_ns);
        self.stale |= !peer.connected || self.suspects.binary_search(&member).is_ok();
        peer.connected = true;
        peer.answered = peer.answered.max(ping);
        peer.silent = false;
        round_trip_ns
    }

    /// Takes note of a member's incarnation.
    pub(super) fn on_incarnation(&mut self, member: MemberId, incarnation: u64) -> Incarnation {
        let Some(peer) = self.peers.get_mut(&member) else {
            return Incarnation::Known;
        };
        match peer.incarnation.replace(incarnation) {
            None => Incarnation::First,
            Some(known) if known == incarnation => Incarnation::Known,
            Some(_) => Incarnation::Changed,
        }
    }

    pub(super) fn set_connected(&mut self, member: MemberId, connected: bool) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.connected = connected;
            if connected {
                peer.answered = peer.ping;
            }
            self.stale = true;
        }
    }

    /// Takes note that a member answered a request.
    pub(super) fn on_answer(&mut self, member: MemberId) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.unanswered = 0;
        }
    }

    /// Takes note of whether the answer of a member was late. It came, but one that is always late
    /// costs readers more than the source does.
    pub(super) fn on_timed_answer(
        &mut self,
        member: MemberId,
        late: bool,
        now: Time,
        settings: &Settings,
    ) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.late = if late { peer.late + 1 } else { 0 };
            if peer.late >= settings.late_max {
                peer.late = 0;
                peer.avoid_until = Some(now.after(settings.avoid_ns));
                self.stale = true;
            }
        }
    }

    /// Takes note that a member left a request unanswered.
    pub(super) fn on_no_answer(&mut self, member: MemberId, now: Time, settings: &Settings) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.unanswered += 1;
            peer.silent = true;
            if peer.unanswered >= settings.unanswered_max {
                peer.unanswered = 0;
                peer.avoid_until = Some(now.after(settings.avoid_ns));
                self.stale = true;
            }
        }
    }

    /// What is known of each other member of the view.
    pub(super) fn states(&self) -> Vec<PeerState> {
        let state = |(&member, peer): (&MemberId, &Peer)| PeerState {
            member,
            connected: peer.connected,
            suspected: self.is_suspected(member),
            round_trip_ns: peer.round_trip_ns,
        };
        self.peers.iter().map(state).collect()
    }

    /// What became of the members since the last call.
    pub(super) fn changes(&mut self, now: Time, settings: &Settings) -> Vec<Change> {
        if !std::mem::take(&mut self.stale) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let before = std::mem::take(&mut self.suspects);
        for (&member, peer) in &mut self.peers {
            peer.avoid_until = peer.avoid_until.filter(|&time| time > now);
            let silent = peer.ping - peer.answered > settings.pings_missed_max;
            if !peer.connected || silent || peer.avoid_until.is_some() {
                self.suspects.push(member);
            }
            let was = before.binary_search(&member).is_ok();
            match (was, self.suspects.last() == Some(&member)) {
                (false, true) => changes.push(Change::Lost(member)),
                (true, false) => changes.push(Change::Back(member)),
                _ => {}
            }
        }
        changes
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        assert!(self.view.members.is_sorted());
        assert!(self.suspects.is_sorted());
        assert!(!self.peers.contains_key(&self.me));
        let known = |member| self.peers.contains_key(member);
        assert!(self.suspects.iter().all(known));
        let others = self
            .view
            .members
            .iter()
            .filter(|&&member| member != self.me);
        assert!(self.peers.keys().eq(others));
        let pings = !self.isolated && !self.peers.is_empty();
        assert_eq!(self.next_ping.is_some(), pings);
        let mut numbers = self.peers.values().map(|peer| (peer.answered, peer.ping));
        assert!(numbers.all(|(answered, ping)| answered <= ping && ping <= self.round));
    }
}
