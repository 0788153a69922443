//! Rounds of pings in clusters that are larger than what a round pings.

use std::collections::BTreeMap;

use super::*;

/// Ten other members for each.
fn settings() -> Settings {
    Settings {
        pings_max: 4,
        ..Settings::default()
    }
}

/// Whom a member of a cluster of eleven pings in its next rounds. Nobody answers but `answers`.
fn rounds(protocol: &mut Protocol, count: usize, answers: impl Fn(u64) -> bool) -> Vec<Vec<u64>> {
    let mut rounds = Vec::new();
    for _ in 0..count {
        let now = protocol.next_deadline().unwrap();
        let mut out = Vec::new();
        protocol.step(now, Input::Timer, &mut out);
        let mut pinged = Vec::new();
        for output in out {
            let Output::Send { to, message, .. } = output else {
                continue;
            };
            let Message::Ping { round, .. } = message else {
                panic!("{message:?}");
            };
            pinged.push(to.0);
            let pong = Message::Pong {
                round,
                incarnation: 0,
            };
            let input = Input::Message {
                from: to,
                epoch: 1,
                message: pong,
            };
            if answers(to.0) {
                protocol.step(now.after(1), input, &mut Vec::new());
            }
        }
        protocol.check();
        rounds.push(pinged);
    }
    rounds
}

fn protocol() -> Protocol {
    let mut protocol = Protocol::new(MemberId(0), settings());
    let view = View::new(1, (0..11).map(MemberId).collect());
    let mut out = Vec::new();
    protocol.step(Time(SECOND), Input::ViewChanged(view), &mut out);
    let pings = out.iter().filter(|output| {
        let Output::Send { message, .. } = output else {
            return false;
        };
        matches!(message, Message::Ping { .. })
    });
    assert_eq!(pings.count(), 4);
    for member in 1..=4 {
        let pong = Message::Pong {
            round: 1,
            incarnation: 0,
        };
        let input = Input::Message {
            from: MemberId(member),
            epoch: 1,
            message: pong,
        };
        protocol.step(Time(SECOND), input, &mut Vec::new());
    }
    protocol
}

#[test]
fn all_are_pinged_in_turn() {
    let mut protocol = protocol();
    let rounds = rounds(&mut protocol, 5, |_| true);
    let expected: [&[u64]; 5] = [
        &[5, 6, 7, 8],
        &[9, 10],
        &[1, 2, 3, 4],
        &[5, 6, 7, 8],
        &[9, 10],
    ];
    assert_eq!(rounds, expected);
}

#[test]
fn who_does_not_answer_is_pinged_before_its_turn() {
    let mut protocol = protocol();
    let silent = MemberId(6);
    let first = rounds(&mut protocol, 4, |member| member != 6);
    let expected: [&[u64]; 4] = [&[5, 6, 7, 8], &[6, 9, 10], &[1, 2, 3, 6], &[4, 5, 6]];
    assert_eq!(first, expected);
    assert!(!protocol.suspects(silent));
    rounds(&mut protocol, 1, |member| member != 6);
    assert!(protocol.suspects(silent), "four pings were not answered");
    assert_eq!(protocol.counters().suspicions, 1);
    // It is asked on, and is back with its first answer.
    let back = rounds(&mut protocol, 1, |_| true);
    assert!(back[0].contains(&6));
    assert!(!protocol.suspects(silent));
}

#[test]
fn many_silent_members_leave_the_others_their_turn() {
    let mut protocol = protocol();
    let rounds = rounds(&mut protocol, 12, |member| member > 8);
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for &member in rounds.iter().flatten() {
        *times.entry(member).or_default() += 1;
    }
    assert!(rounds.iter().all(|round| round.len() <= 4));
    assert!((1..=10).all(|member| times[&member] >= 2), "{times:?}");
    assert!(!protocol.suspects(MemberId(9)) && !protocol.suspects(MemberId(10)));
    assert!(protocol.suspects(MemberId(5)) && protocol.suspects(MemberId(6)));
}

#[test]
fn a_late_request_has_a_member_pinged_at_once() {
    let mut cluster = Cluster::new(60, &settings());
    let (home, [reader, other]) = (cluster.home(), [0, 1].map(|at| cluster.others()[at]));
    assert!(
        home > MemberId(40),
        "its turn comes in the tenth round or later"
    );
    cluster.silent = Some(home);
    cluster.want(reader, 1, Demand);
    // The request is given up after half a second. Four pings without an answer follow.
    cluster.pass(2 * SECOND);
    assert!(cluster.protocols[&reader].suspects(home));
    assert!(!cluster.protocols[&other].suspects(home));
}
