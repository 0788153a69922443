//! All members of a cluster find the same distances, and keep them.

use std::collections::BTreeMap;

use hither_core::{Node, Random};

use super::super::event::{Input, Output, Time};
use super::super::node::Protocol;
use super::super::settings::Settings;
use super::super::view::View;
use super::*;

const MS: u64 = 1_000_000;

/// Protocols that answer each other's pings after given times.
struct Cluster {
    protocols: BTreeMap<MemberId, Protocol>,
    distances: Distances,
    epoch: u64,
    now: u64,
    /// Messages with round trips so far.
    told: usize,
}

impl Cluster {
    fn new(members: &[u64]) -> Cluster {
        Cluster::with_distances(members, Distances::Measured)
    }

    fn with_distances(members: &[u64], distances: Distances) -> Cluster {
        let mut cluster = Cluster {
            protocols: BTreeMap::new(),
            distances,
            epoch: 0,
            now: 0,
            told: 0,
        };
        cluster.set_members(members);
        cluster
    }

    /// Members that are new start, and those that are left out end.
    fn set_members(&mut self, members: &[u64]) {
        let members: Vec<MemberId> = members.iter().copied().map(MemberId).collect();
        self.epoch += 1;
        self.protocols.retain(|member, _| members.contains(member));
        for &member in &members {
            let settings = Settings {
                distances: self.distances.clone(),
                ..Settings::default()
            };
            let new = || Protocol::new(member, settings);
            self.protocols.entry(member).or_insert_with(new);
        }
        self.set_view(members);
    }

    /// All protocols that there are take another view.
    fn set_view(&mut self, members: Vec<MemberId>) {
        let view = View::new(self.epoch, members);
        let members: Vec<MemberId> = self.protocols.keys().copied().collect();
        for member in members {
            self.step(member, self.now, Input::ViewChanged(view.clone()));
        }
    }

    fn step(&mut self, member: MemberId, now: u64, input: Input) -> Vec<(MemberId, Message)> {
        let mut out = Vec::new();
        let protocol = self.protocols.get_mut(&member).unwrap();
        protocol.step(Time(now), input, &mut out);
        protocol.check();
        let sent = out.into_iter().filter_map(|output| match output {
            Output::Send { to, message, .. } => Some((to, message)),
            _ => None,
        });
        sent.collect()
    }

    /// Rounds of pings. `round_trip_ns` says how long each takes, or that it is lost.
    fn rounds(&mut self, rounds: u64, mut round_trip_ns: impl FnMut(u64, u64) -> Option<u64>) {
        for _ in 0..rounds {
            self.now += Settings::default().ping_ns;
            let members: Vec<MemberId> = self.protocols.keys().copied().collect();
            let mut rows = Vec::new();
            for &member in &members {
                let mut pongs = Vec::new();
                for (to, message) in self.step(member, self.now, Input::Timer) {
                    match message {
                        Message::Ping { round, .. } if self.protocols.contains_key(&to) => {
                            let after = round_trip_ns(member.0, to.0);
                            pongs.extend(after.map(|after| (after, to, round)));
                        }
                        Message::RoundTrips(_) => rows.push((member, to, message)),
                        _ => {}
                    }
                }
                pongs.sort_unstable();
                for (after, from, round) in pongs {
                    let incarnation = 0;
                    self.receive(member, after, from, Message::Pong { round, incarnation });
                }
            }
            self.told += rows.len();
            for (from, to, message) in rows {
                if self.protocols.contains_key(&to) {
                    self.receive(to, 249 * MS, from, message);
                }
            }
        }
    }

    fn receive(&mut self, member: MemberId, after: u64, from: MemberId, message: Message) {
        let epoch = self.epoch;
        let input = Input::Message {
            from,
            epoch,
            message,
        };
        self.step(member, self.now + after, input);
    }

    /// The topology, which is the same for all.
    fn topology(&self) -> Topology {
        let mut protocols = self.protocols.values();
        let topology = protocols.next().unwrap().topology().unwrap();
        assert!(protocols.all(|protocol| protocol.topology().unwrap() == topology));
        Topology::clone(topology)
    }

    fn generations(&self) -> Vec<u64> {
        let protocols = self.protocols.values();
        protocols.map(Protocol::topology_generation).collect()
    }
}

/// Two racks: members 1 and 2, and the others.
fn racks(one: u64, other: u64) -> u64 {
    if (one < 3) == (other < 3) { MS / 4 } else { MS }
}

fn exact(one: u64, other: u64) -> Option<u64> {
    Some(racks(one, other))
}

fn hops(topology: &Topology) -> Vec<u32> {
    let pairs = topology
        .all()
        .flat_map(|from| topology.all().map(move |to| (from, to)));
    pairs.map(|(from, to)| topology.hops(from, to)).collect()
}

const RACKS: [u32; 16] = [0, 1, 2, 2, 1, 0, 2, 2, 2, 2, 0, 1, 2, 2, 1, 0];

#[test]
fn all_are_equally_far_until_all_is_known() {
    let mut cluster = Cluster::new(&[1, 2, 3, 4]);
    cluster.rounds(20, exact);
    assert_eq!(cluster.topology().kind(), "uniform");
    assert_eq!(cluster.generations(), [1; 4]);
    cluster.rounds(2, exact);
    assert_eq!(hops(&cluster.topology()), RACKS);
    assert_eq!(cluster.topology().name(), "measured");
    assert_eq!(cluster.generations(), [2; 4]);
    // What does not change is told again only at long intervals.
    assert_eq!(cluster.told, 12);
    cluster.rounds(240, exact);
    assert_eq!(cluster.told, 24);
    assert_eq!(cluster.generations(), [2; 4]);
}

#[test]
fn members_that_are_equally_far_need_no_other_topology() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.rounds(100, |_, _| Some(MS));
    assert_eq!(cluster.topology().kind(), "uniform");
    assert_eq!(cluster.generations(), [1; 3]);
}

#[test]
fn jitter_changes_nothing() {
    let mut random = Random::new(1);
    let mut cluster = Cluster::new(&[1, 2, 3, 4]);
    let mut jitter = |one, other| Some(racks(one, other) * (70 + random.below(61)) / 100);
    cluster.rounds(30, &mut jitter);
    let generations = cluster.generations();
    assert_ne!(generations, [1; 4]);
    cluster.rounds(2_000, &mut jitter);
    assert_eq!(cluster.generations(), generations);
}

#[test]
fn a_real_change_shows_after_some_windows() {
    let mut cluster = Cluster::new(&[1, 2, 3, 4]);
    cluster.rounds(30, exact);
    let moved = |one: u64, other: u64| {
        if one == 2 || other == 2 {
            Some(2 * MS)
        } else {
            exact(one, other)
        }
    };
    cluster.rounds(40, moved);
    assert_eq!(hops(&cluster.topology()), RACKS);
    cluster.rounds(60, moved);
    let topology = cluster.topology();
    assert_eq!(topology.hops(Node(0), Node(1)), 3);
    assert_eq!(topology.hops(Node(0), Node(2)), 2);
    assert_eq!(topology.hops(Node(2), Node(3)), 1);
    // All changes came together.
    assert_eq!(cluster.generations(), [3; 4]);
}

#[test]
fn lost_pings_cost_time_alone() {
    let mut random = Random::new(2);
    let mut cluster = Cluster::new(&[1, 2, 3, 4]);
    cluster.rounds(400, |one, other| match random.below(10) {
        0..6 => None,
        _ => exact(one, other),
    });
    assert_eq!(hops(&cluster.topology()), RACKS);
}

#[test]
fn a_silent_member_is_waited_for_and_then_in_the_middle() {
    let mut cluster = Cluster::new(&[1, 2, 3, 4]);
    cluster.protocols.remove(&MemberId(4));
    cluster.rounds(75, exact);
    assert_eq!(cluster.topology().kind(), "uniform");
    cluster.rounds(10, exact);
    let expected = [0, 1, 2, 2, 1, 0, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0];
    assert_eq!(hops(&cluster.topology()), expected);
}

#[test]
fn members_come_and_go() {
    let mut cluster = Cluster::new(&[1, 2, 3]);
    cluster.rounds(30, exact);
    assert_eq!(hops(&cluster.topology()), [0, 1, 2, 1, 0, 2, 2, 2, 0]);
    cluster.set_members(&[1, 2, 3, 4]);
    let first = cluster.protocols[&MemberId(1)].topology().unwrap();
    let before = [0, 1, 2, 2, 1, 0, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0];
    assert_eq!(hops(first), before, "the new member is in the middle");
    cluster.rounds(80, exact);
    assert_eq!(hops(&cluster.topology()), RACKS);
    // A view without a member, and with it again: nothing is measured anew.
    cluster.epoch += 1;
    cluster.set_view([1, 2, 4].map(MemberId).to_vec());
    assert_eq!(cluster.topology().nodes(), 3);
    cluster.epoch += 1;
    cluster.set_view([1, 2, 3, 4].map(MemberId).to_vec());
    assert_eq!(hops(&cluster.topology()), RACKS);
}

#[test]
fn configured_distances_hold() {
    let hops_of = |text: &str| toml::from_str(text).unwrap();
    let members: Vec<MemberId> = ["a", "b", "c"].map(MemberId::of).to_vec();
    let file = hops_of("places = { a = \"1\", b = \"1\", c = \"2\" }");
    let distances = Distances::new(file, None).unwrap();
    let expected = distances.topology(&View::new(1, members.clone()).members);
    let numbers: Vec<u64> = members.iter().map(|member| member.0).collect();
    let mut cluster = Cluster::with_distances(&numbers, distances);
    cluster.rounds(100, |_, _| Some(MS));
    assert_eq!(Some(Arc::new(cluster.topology())), expected);
    assert_eq!((cluster.told, cluster.generations()), (0, vec![1; 3]));
}

#[test]
fn there_is_no_topology_of_too_many_members() {
    let mut protocol = Protocol::new(MemberId(1), Settings::default());
    assert_eq!(protocol.topology(), None);
    for (epoch, members) in [(1, 1_024), (2, 1_025), (3, 3)] {
        let view = View::new(epoch, (1..=members).map(MemberId).collect());
        protocol.step(Time(epoch), Input::ViewChanged(view), &mut Vec::new());
        protocol.check();
        let nodes = protocol.topology().map(|topology| topology.nodes() as u64);
        assert_eq!(nodes, (members <= 1_024).then_some(members));
        assert_eq!(protocol.topology_generation(), epoch);
    }
}
