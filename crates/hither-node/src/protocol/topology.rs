//! The topology over the members of the view, by configured or measured distances.
//!
//! It is built anew when the view or a distance changes, and has another generation then. A
//! placement loses its counters with each generation, so news of round trips are gathered for a
//! window (so many turns of pings), and none is used before all of them are known: until then, all
//! members are equally far. Members that do not tell theirs are waited for [`PATIENCE_WINDOWS`];
//! from then on, what nobody knows is the middle one of the known distances.

use std::collections::BTreeSet;
use std::sync::Arc;

use hither_core::Topology;

use super::effects::Effects;
use super::message::{Message, ROUND_TRIPS_MAX, RoundTrip};
use super::round_trips::{RoundTrips, WINDOW, class_ns};
use super::view::MemberId;
use crate::distances::Distances;

/// Windows without news after which what is known is used.
const PATIENCE_WINDOWS: u64 = 4;

/// Windows after which all members are told the same again, since messages may be lost.
const REPEAT_WINDOWS: u64 = 12;

/// The topology over the members of a cluster, and where it is from.
#[derive(Clone, Debug)]
pub struct TopologyState {
    /// Where the distances are from.
    pub distances: Distances,
    /// Whether they are known, as far as members tell them.
    pub is_known: bool,
    /// Changes with the topology, and with the members.
    pub generation: u64,
    /// The members, in the order of the topology's nodes.
    pub members: Vec<MemberId>,
    /// `None` where there are no members, or too many for one.
    pub topology: Option<Arc<Topology>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct MemberTopology {
    topology: Option<Arc<Topology>>,
    /// The members that it is over.
    members: Vec<MemberId>,
    generation: u64,
    round_trips: RoundTrips,
    /// Members that do not have the latest round trips of this one.
    untold: BTreeSet<MemberId>,
    /// Turns of pings so far: in each, all members are pinged once.
    turns: u64,
    /// Whether measured distances are used.
    uses_measured: bool,
    /// The turn of the first news that the topology does not have yet.
    stale_since: Option<u64>,
}

impl MemberTopology {
    pub(super) fn new(me: MemberId) -> MemberTopology {
        MemberTopology {
            topology: None,
            members: Vec::new(),
            generation: 0,
            round_trips: RoundTrips::new(me),
            untold: BTreeSet::new(),
            turns: 0,
            uses_measured: false,
            stale_since: None,
        }
    }

    pub(super) fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.as_ref()
    }

    pub(super) fn state(&self, effects: &Effects) -> TopologyState {
        TopologyState {
            distances: effects.settings.distances.clone(),
            is_known: self.uses_measured || !is_measured(effects),
            generation: self.generation,
            members: self.members.clone(),
            topology: self.topology.clone(),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Follows the view. Members that are `gone` are not coming back.
    pub(super) fn on_view(&mut self, effects: &Effects, gone: &[MemberId]) {
        for &member in gone {
            self.round_trips.forget(member);
        }
        self.untold
            .retain(|&member| effects.peers.view().contains(member));
        self.build(effects);
    }

    /// Takes the time that a member took to answer a ping.
    pub(super) fn on_round_trip(&mut self, effects: &Effects, member: MemberId, ns: u64) {
        if is_measured(effects) && self.round_trips.add(member, ns) {
            self.stale_since.get_or_insert(self.turns);
            self.untold = effects.peers.others().collect();
        }
    }

    /// Takes what another member has measured.
    pub(super) fn on_row(&mut self, effects: &Effects, from: MemberId, row: &[RoundTrip]) {
        let is_of_use = is_measured(effects) && effects.peers.view().contains(from);
        if is_of_use && self.round_trips.set(from, row) {
            self.stale_since.get_or_insert(self.turns);
        }
    }

    /// A member may not know anything yet.
    pub(super) fn on_new(&mut self, effects: &Effects, member: MemberId) {
        if effects.peers.view().contains(member) {
            self.untold.insert(member);
        }
    }

    /// Tells others what has changed, as many as a round pings. Each round of pings is one of
    /// these. At the end of a turn, uses what has changed, if it is time.
    pub(super) fn on_round(&mut self, effects: &mut Effects, ends_turn: bool) {
        if !is_measured(effects) {
            return;
        }
        let window = WINDOW as u64;
        self.turns += u64::from(ends_turn);
        if ends_turn && self.turns.is_multiple_of(REPEAT_WINDOWS * window) {
            self.untold = effects.peers.others().collect();
        }
        if !self.untold.is_empty() && self.members.len() <= ROUND_TRIPS_MAX {
            self.tell(effects);
        }
        let is_due = if self.uses_measured {
            self.stale_since
                .is_some_and(|since| self.turns >= since + window)
        } else {
            self.stale_since.is_some() || self.is_late()
        };
        if ends_turn && is_due {
            self.build(effects);
        }
    }

    fn tell(&mut self, effects: &mut Effects) {
        let row = self.round_trips.own(&self.members);
        if row.is_empty() {
            return;
        }
        for _ in 0..effects.settings.pings_max.max(1) {
            let Some(member) = self.untold.pop_first() else {
                break;
            };
            effects.send(member, Message::RoundTrips(row.clone()));
        }
    }

    fn build(&mut self, effects: &Effects) {
        let members = &effects.peers.view().members;
        let distances = &effects.settings.distances;
        let mut topology = distances.topology(members);
        if is_measured(effects) && topology.is_some() {
            self.stale_since = None;
            if let Some(measured) = self.measured(members) {
                topology = Some(Arc::new(measured.named(distances.name())));
            }
        }
        if topology != self.topology || *members != self.members {
            self.generation += 1;
            self.topology = topology;
            self.members.clone_from(members);
        }
    }

    /// The topology by round trips, unless they are all alike, or not known yet.
    fn measured(&mut self, members: &[MemberId]) -> Option<Topology> {
        let (classes, told) = self.round_trips.classes(members);
        let mut known: Vec<u8> = classes.iter().copied().flatten().collect();
        let nodes = members.len();
        let is_whole = told == nodes * (nodes - 1);
        self.uses_measured |= nodes > 1 && (is_whole || self.is_late());
        known.sort_unstable();
        let (first, last) = (known.first()?, known.last()?);
        if !self.uses_measured || first == last {
            return None;
        }
        let middle = known[known.len() / 2];
        let latency_ns = classes.iter().enumerate().map(|(at, class)| {
            let is_itself = at % (nodes + 1) == 0;
            let ns = class_ns(class.unwrap_or(middle));
            if is_itself {
                0
            } else {
                u32::try_from(ns).unwrap_or(u32::MAX)
            }
        });
        let latency_ns: Vec<u32> = latency_ns.collect();
        Topology::from_matrix("", &latency_ns).ok()
    }

    /// Whether members that have told nothing are no longer waited for.
    fn is_late(&self) -> bool {
        self.turns >= PATIENCE_WINDOWS * WINDOW as u64
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self, effects: &Effects) {
        assert_eq!(self.members, effects.peers.view().members);
        let view = effects.peers.view();
        assert!(self.untold.iter().all(|&member| view.contains(member)));
        if let Some(topology) = &self.topology {
            assert_eq!(topology.nodes(), self.members.len());
        }
    }
}

fn is_measured(effects: &Effects) -> bool {
    effects.settings.distances == Distances::Measured
}

#[cfg(test)]
mod tests;
