//! What the protocols of a small cluster do in single cases, with messages that arrive at once.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::key::{ChunkKey, FileKey};

mod lies;
mod pings;
mod placing;
mod waiting;

const CHUNK: ChunkKey = ChunkKey {
    file: FileKey(1),
    number: 0,
};
const SECOND: u64 = 1_000_000_000;

fn blocks(mask: u64) -> Blocks {
    Blocks::new(CHUNK, mask)
}

/// The one token for all that need none of their own.
fn token() -> Token {
    thread_local!(static TOKEN: Token = Token::new(()));
    TOKEN.with(Token::clone)
}

/// Somebody wants blocks, none of which is on the disk, and waits for them.
fn want(blocks: Blocks, urgency: Urgency, waiter: &Token) -> Input {
    Input::Want {
        blocks,
        urgency,
        file: token(),
        waiter: Some(waiter.clone()),
        on_disk: 0,
    }
}

fn waiting(waiters: &[(&Token, u64)]) -> Waiters {
    let mut waiting = Waiters::default();
    for &(waiter, mask) in waiters {
        waiting.add(waiter.clone(), mask);
    }
    waiting
}

fn ready(waiters: &[(&Token, u64)]) -> Output {
    Output::Ready {
        chunk: CHUNK,
        waiters: waiting(waiters),
    }
}

/// Protocols, and the messages between them.
struct Cluster {
    now: Time,
    protocols: BTreeMap<MemberId, Protocol>,
    messages: VecDeque<(MemberId, MemberId, u64, Message)>,
    /// What the runtimes were told, apart from messages and pings.
    told: Vec<(MemberId, Output)>,
    /// A member that nothing comes from.
    silent: Option<MemberId>,
}

impl Cluster {
    fn new(count: u64, settings: &Settings) -> Cluster {
        let members = (1..=count).map(MemberId).collect();
        Cluster::of(members, |_| settings.clone())
    }

    fn of(members: Vec<MemberId>, settings: impl Fn(MemberId) -> Settings) -> Cluster {
        let mut cluster = Cluster {
            now: Time(SECOND),
            protocols: BTreeMap::new(),
            messages: VecDeque::new(),
            told: Vec::new(),
            silent: None,
        };
        for &member in &members {
            let protocol = Protocol::new(member, settings(member));
            cluster.protocols.insert(member, protocol);
        }
        for &member in &members {
            let view = View::new(1, members.clone());
            cluster.input(member, Input::ViewChanged(view));
        }
        cluster.deliver_all();
        cluster
    }

    fn home(&self) -> MemberId {
        let view = self.protocols.values().next().unwrap().view();
        view.home(CHUNK, |_| false).unwrap()
    }

    /// The members that are not the home of the chunk.
    fn others(&self) -> Vec<MemberId> {
        let home = self.home();
        let members = self.protocols.keys().copied();
        members.filter(|&member| member != home).collect()
    }

    fn input(&mut self, member: MemberId, input: Input) {
        let mut out = Vec::new();
        let protocol = self.protocols.get_mut(&member).unwrap();
        protocol.step(self.now, input, &mut out);
        protocol.check();
        for output in out {
            match output {
                Output::Send { to, epoch, message } => {
                    self.messages.push_back((member, to, epoch, message));
                }
                Output::Suspected(_) | Output::Trusted(_) => {}
                output => self.told.push((member, output)),
            }
        }
    }

    /// Gives these members a view of themselves.
    fn set_view(&mut self, epoch: u64, members: &[MemberId]) {
        for &member in members {
            let view = View::new(epoch, members.to_vec());
            self.input(member, Input::ViewChanged(view));
        }
        self.deliver_all();
    }

    /// Delivers all messages.
    fn deliver_all(&mut self) {
        while let Some((from, to, epoch, message)) = self.messages.pop_front() {
            if self.silent != Some(from) {
                let input = Input::Message {
                    from,
                    epoch,
                    message,
                };
                self.input(to, input);
            }
        }
    }

    /// Takes an input and delivers all messages that follow. Returns what runtimes are told.
    fn run(&mut self, member: MemberId, input: Input) -> Vec<(MemberId, Output)> {
        self.input(member, input);
        self.deliver_all();
        std::mem::take(&mut self.told)
    }

    fn want(&mut self, member: MemberId, mask: u64, urgency: Urgency) -> Vec<(MemberId, Output)> {
        self.run(member, want(blocks(mask), urgency, &token()))
    }

    fn fetched(&mut self, member: MemberId, mask: u64) -> Vec<(MemberId, Output)> {
        let (blocks, result) = (blocks(mask), FetchResult::Kept);
        self.run(member, Input::FetchEnded { blocks, result })
    }

    /// Lets time pass, each protocol being called when it asks to be.
    fn pass(&mut self, ns: u64) -> Vec<(MemberId, Output)> {
        let end = self.now.after(ns);
        loop {
            let deadlines = self.protocols.iter().filter_map(|(&member, protocol)| {
                let deadline = protocol.next_deadline()?;
                (deadline <= end).then_some((deadline, member))
            });
            let Some((deadline, member)) = deadlines.min() else {
                break;
            };
            self.now = self.now.max(deadline);
            self.input(member, Input::Timer);
            self.deliver_all();
        }
        self.now = end;
        std::mem::take(&mut self.told)
    }
}

fn fetch(mask: u64, urgency: Urgency) -> Output {
    let blocks = blocks(mask);
    Output::Fetch {
        blocks,
        keeper: None,
        urgency,
        file: token(),
    }
}

fn shed(mask: u64) -> Output {
    Output::Shed {
        blocks: blocks(mask),
        file: token(),
        waiters: waiting(&[(&token(), mask)]),
    }
}

use Urgency::{Demand, Prefetch};

#[test]
fn without_a_view_the_source_is_read() {
    let mut protocol = Protocol::new(MemberId(1), Settings::default());
    let mut out = Vec::new();
    let want = want(blocks(0b11), Demand, &token());
    protocol.step(Time(5), want, &mut out);
    assert_eq!(out, [fetch(0b11, Demand)]);
    out.clear();
    let ended = Input::FetchEnded {
        blocks: blocks(0b01),
        result: FetchResult::Kept,
    };
    protocol.step(Time(6), ended, &mut out);
    assert_eq!(out, [ready(&[(&token(), 0b01)])]);
    assert_eq!(protocol.blocks_in_flight(), 1);
}

#[test]
fn one_reads_the_source_and_the_others_wait_for_it() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    assert_eq!(
        cluster.want(first, 0b110, Demand),
        [(first, fetch(0b110, Demand))]
    );
    assert_eq!(
        cluster.want(second, 0b111, Demand),
        [(second, fetch(0b001, Demand))]
    );
    assert_eq!(cluster.want(third, 0b100, Demand), []);
    let told = cluster.fetched(first, 0b110);
    assert_eq!(told[0], (first, ready(&[(&token(), 0b110)])));
    let provided = |at: usize| match &told[at] {
        (
            member,
            Output::Provide {
                request, blocks, ..
            },
        ) => (*member, request.member, blocks.mask),
        other => panic!("{other:?}"),
    };
    assert_eq!(provided(1), (first, second, 0b110));
    assert_eq!(provided(2), (first, third, 0b100));
    let arrived = Input::Arrived {
        blocks: blocks(0b100),
        from: first,
        kept: false,
        wanted: true,
    };
    let told = cluster.run(third, arrived);
    assert_eq!(told, [(third, ready(&[(&token(), 0b100)]))]);
    assert_eq!(cluster.protocols[&third].held_chunks(), 0);
}

#[test]
fn a_holder_without_the_block_is_corrected() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [holder, reader] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(holder, 1, Demand);
    cluster.fetched(holder, 1);
    let told = cluster.want(reader, 1, Demand);
    let (_, Output::Provide { home, request, .. }) = told[0].clone() else {
        panic!("{told:?}");
    };
    let missing = Input::Missing {
        home,
        request,
        blocks: blocks(1),
    };
    assert_eq!(cluster.run(holder, missing), [(reader, fetch(1, Demand))]);
    assert_eq!(cluster.protocols[&home].counters().gone_blocks, 1);
}

#[test]
fn an_old_answer_takes_nothing_from_a_holder() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let home = cluster.home();
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 1, Demand);
    cluster.fetched(first, 1);
    // The first holder does not answer, so the second node reads the source; then it does.
    let told = cluster.want(second, 1, Demand);
    let (_, Output::Provide { request, .. }) = told[0].clone() else {
        panic!("{told:?}");
    };
    assert_eq!(cluster.pass(2 * SECOND), [(second, fetch(1, Demand))]);
    cluster.fetched(second, 1);
    let missing = Input::Missing {
        home,
        request,
        blocks: blocks(1),
    };
    assert_eq!(cluster.run(first, missing), []);
    let told = cluster.want(third, 1, Demand);
    assert!(matches!(told[..], [(member, Output::Provide { .. })] if member == second));
}

#[test]
fn the_home_hears_of_dropped_blocks() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [holder, reader] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(holder, 0b11, Demand);
    cluster.fetched(holder, 0b11);
    cluster.run(holder, Input::Dropped(blocks(0b01)));
    cluster.pass(SECOND / 10);
    let told = cluster.want(reader, 0b11, Demand);
    assert_eq!(told[1], (reader, fetch(0b01, Demand)));
    assert_eq!(cluster.protocols[&cluster.home()].counters().gone_blocks, 0);
}

#[test]
fn a_block_that_was_dropped_and_read_again_is_held() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [holder, reader] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(holder, 1, Demand);
    cluster.fetched(holder, 1);
    cluster.run(holder, Input::Dropped(blocks(1)));
    assert_eq!(
        cluster.want(holder, 1, Demand),
        [(holder, fetch(1, Demand))]
    );
    cluster.fetched(holder, 1);
    // The drop was not reported yet, and is not any more.
    cluster.pass(SECOND / 10);
    let told = cluster.want(reader, 1, Demand);
    assert!(matches!(told[..], [(member, Output::Provide { .. })] if member == holder));
}

#[test]
fn a_new_home_learns_who_reads_and_who_holds() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let home = cluster.home();
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.set_view(2, &[first, second, third]);
    cluster.want(first, 0b11, Demand);
    cluster.fetched(first, 0b01);
    cluster.set_view(3, &[home, first, second, third]);
    cluster.pass(SECOND / 10);
    // The new home has the first block delivered, and lets the reader wait for the second one.
    let told = cluster.want(second, 0b11, Demand);
    assert!(
        matches!(told[..], [(member, Output::Provide { blocks, .. })]
        if member == first && blocks.mask == 0b01)
    );
    let told = cluster.fetched(first, 0b10);
    assert!(matches!(told[1], (member, Output::Provide { .. }) if member == first));
}

#[test]
fn what_was_asked_of_a_former_home_is_asked_again() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let (home, others) = (cluster.home(), cluster.others());
    cluster.set_view(2, &others);
    let view = View::new(2, others.clone());
    let interim = view.home(CHUNK, |_| false).unwrap();
    let reader = others
        .into_iter()
        .find(|&member| member != interim)
        .unwrap();
    cluster.silent = Some(interim);
    assert_eq!(cluster.want(reader, 1, Demand), []);
    cluster.set_view(
        3,
        &[home, view.members[0], view.members[1], view.members[2]],
    );
    assert_eq!(cluster.told, [(reader, fetch(1, Demand))]);
}

#[test]
fn after_a_failure_all_who_wait_try() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    for member in [first, second, third] {
        cluster.want(member, 1, Demand);
    }
    let (blocks, result) = (blocks(1), FetchResult::Failed);
    let told = cluster.run(first, Input::FetchEnded { blocks, result });
    let failed = Output::Fail {
        chunk: CHUNK,
        waiters: waiting(&[(&token(), 1)]),
    };
    let expected = [
        (first, failed),
        (second, fetch(1, Demand)),
        (third, fetch(1, Demand)),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_reader_hurries_the_prefetch_of_another_node() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [first, second] = cluster.others()[..] else {
        panic!();
    };
    assert_eq!(
        cluster.want(first, 1, Prefetch),
        [(first, fetch(1, Prefetch))]
    );
    assert_eq!(cluster.want(second, 1, Prefetch), []);
    let told = cluster.want(second, 1, Demand);
    assert_eq!(told, [(first, Output::Hurry(blocks(1)))]);
    assert_eq!(cluster.want(second, 1, Demand), []);
}

#[test]
fn the_prefetch_is_shed_and_readers_go_first() {
    let settings = Settings {
        fetch_blocks_max: 2,
        prefetch_queue_blocks_max: 1,
        ..Settings::default()
    };
    let mut cluster = Cluster::new(1, &settings);
    let me = MemberId(1);
    assert_eq!(
        cluster.want(me, 0b1, Prefetch),
        [(me, fetch(0b1, Prefetch))]
    );
    assert_eq!(
        cluster.want(me, 0b10, Prefetch),
        [],
        "over its share of the limit"
    );
    let shed = shed(0b100);
    assert_eq!(cluster.want(me, 0b100, Prefetch), [(me, shed)]);
    assert_eq!(
        cluster.want(me, 0b1000, Demand),
        [(me, fetch(0b1000, Demand))]
    );
    assert_eq!(cluster.want(me, 0b10000, Demand), []);
    assert_eq!(
        cluster.fetched(me, 0b1)[1..],
        [(me, fetch(0b10000, Demand))]
    );
    assert_eq!(cluster.run(me, Input::Cancel(blocks(u64::MAX))), []);
    assert_eq!(cluster.protocols[&me].blocks_in_flight(), 2);
}

#[test]
fn an_isolated_node_serves_nobody_and_asks_nobody() {
    let mut cluster = Cluster::new(2, &Settings::default());
    let (home, other) = (cluster.home(), cluster.others()[0]);
    assert_eq!(cluster.run(home, Input::Isolated), []);
    assert_eq!(cluster.want(home, 1, Demand), [(home, fetch(1, Demand))]);
    cluster.fetched(home, 1);
    assert_eq!(cluster.want(other, 1, Demand), [(other, fetch(1, Demand))]);
    cluster.fetched(other, 1);
    cluster.run(home, Input::Rejoined);
    cluster.pass(SECOND);
    cluster.run(other, Input::Dropped(blocks(1)));
    let told = cluster.want(other, 1, Demand);
    assert!(
        matches!(told[..], [(_, Output::Provide { .. })]),
        "{told:?}"
    );
}

#[test]
fn what_was_asked_of_others_is_read_from_the_source_when_isolated() {
    let mut cluster = Cluster::new(2, &Settings::default());
    let (home, reader) = (cluster.home(), cluster.others()[0]);
    cluster.silent = Some(home);
    assert_eq!(cluster.want(reader, 0b11, Demand), []);
    assert_eq!(
        cluster.run(reader, Input::Isolated),
        [(reader, fetch(0b11, Demand))]
    );
}

#[test]
fn a_lost_home_is_replaced_at_once() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let (home, reader) = (cluster.home(), cluster.others()[0]);
    cluster.silent = Some(home);
    assert_eq!(cluster.want(reader, 1, Demand), []);
    let told = cluster.run(reader, Input::PeerDown(home));
    assert_eq!(told, [(reader, fetch(1, Demand))]);
    let counters = cluster.protocols[&reader].counters();
    assert_eq!((counters.retried_blocks, counters.granted_blocks), (1, 1));
}

#[test]
fn no_answer_leads_to_the_source_and_to_suspicion() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let (home, reader) = (cluster.home(), cluster.others()[0]);
    cluster.silent = Some(home);
    assert_eq!(cluster.want(reader, 1, Demand), []);
    assert_eq!(cluster.pass(SECOND / 2), [(reader, fetch(1, Demand))]);
    assert_eq!(
        cluster.protocols[&reader].counters().answer_timeout_blocks,
        1
    );
    cluster.pass(2 * SECOND);
    assert!(cluster.protocols[&reader].suspects(home));
    let late = Input::Message {
        from: home,
        epoch: 1,
        message: Message::Pong {
            round: 1,
            incarnation: 0,
        },
    };
    cluster.run(reader, late);
    assert!(
        cluster.protocols[&reader].suspects(home),
        "an old answer proves nothing"
    );
    // Another node is home meanwhile.
    assert_eq!(
        cluster.want(reader, 2, Demand),
        [(reader, fetch(2, Demand))]
    );
    cluster.silent = None;
    cluster.pass(SECOND);
    assert!(!cluster.protocols[&reader].suspects(home));
}

#[test]
fn a_holder_that_is_always_late_is_avoided_for_a_while() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [reader, holder] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(holder, 0xffff, Demand);
    cluster.fetched(holder, 0xffff);
    // The source takes 10 ms.
    let source_block = 1 << 63;
    cluster.want(reader, source_block, Demand);
    cluster.pass(SECOND / 100);
    cluster.fetched(reader, source_block);
    let mut read_late = |block: u32| {
        let told = cluster.want(reader, 1 << block, Demand);
        let is_asked = |(member, output): &(MemberId, Output)| {
            *member == holder && matches!(output, Output::Provide { .. })
        };
        let asked = told.iter().any(is_asked);
        cluster.pass(SECOND / 3);
        let blocks = blocks(1 << block);
        let arrived = Input::Arrived {
            blocks,
            from: holder,
            kept: false,
            wanted: true,
        };
        cluster.run(reader, arrived);
        (asked, cluster.protocols[&reader].suspects(holder))
    };
    for block in 0..7 {
        assert_eq!(read_late(block), (true, false), "{block}");
    }
    assert_eq!(read_late(7), (true, true));
    assert_eq!(cluster.protocols[&reader].counters().late_answers, 8);
    // Nobody else has the block, so the reader gets it from the source.
    let told = cluster.want(reader, 1 << 8, Demand);
    assert!(told.contains(&(reader, fetch(1 << 8, Demand))), "{told:?}");
    cluster.fetched(reader, 1 << 8);
    cluster.pass(6 * SECOND);
    assert!(!cluster.protocols[&reader].suspects(holder));
    let told = cluster.want(reader, 1 << 9, Demand);
    assert!(!told.contains(&(reader, fetch(1 << 9, Demand))), "{told:?}");
}

#[test]
fn a_node_that_was_stopped_suspects_nobody() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let (home, reader) = (cluster.home(), cluster.others()[0]);
    cluster.input(reader, want(blocks(1), Demand, &token()));
    // All stand still for a minute; the answer lies in a queue behind the timer.
    cluster.now = cluster.now.after(60 * SECOND);
    for member in [reader, home] {
        cluster.input(member, Input::Timer);
    }
    cluster.deliver_all();
    assert_eq!(
        std::mem::take(&mut cluster.told),
        [(reader, fetch(1, Demand))]
    );
    assert_eq!(cluster.pass(SECOND), []);
    for protocol in cluster.protocols.values() {
        assert_eq!(protocol.counters().suspicions, 0);
        assert_eq!(protocol.counters().answer_timeout_blocks, 0);
    }
    assert!(cluster.protocols[&reader].counters().stalled_ns > 50 * SECOND);
}

#[test]
fn an_outdated_grant_is_declined() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [first, second] = cluster.others()[..] else {
        panic!();
    };
    // The prefetch gives up while the grant is under way.
    cluster.input(first, want(blocks(1), Prefetch, &token()));
    cluster.input(first, Input::Cancel(blocks(1)));
    cluster.deliver_all();
    assert_eq!(std::mem::take(&mut cluster.told), []);
    assert_eq!(
        cluster.want(second, 1, Demand),
        [(second, fetch(1, Demand))]
    );
}

#[test]
fn a_lost_fetcher_is_replaced() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let home = cluster.home();
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    for member in [first, second, third] {
        cluster.want(member, 1, Demand);
    }
    let told = cluster.run(home, Input::PeerDown(first));
    assert_eq!(told, [(second, fetch(1, Demand))]);
    // Who still waits gets the block from the new one.
    let told = cluster.fetched(second, 1);
    assert!(matches!(&told[1], (member, Output::Provide { request, .. })
        if *member == second && request.member == third));
}

#[test]
fn a_grant_that_is_not_reported_runs_out() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let home = cluster.home();
    let [first, second] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 1, Demand);
    cluster.want(second, 1, Demand);
    assert_eq!(cluster.pass(9 * SECOND), []);
    assert_eq!(cluster.pass(2 * SECOND), [(second, fetch(1, Demand))]);
    assert_eq!(cluster.protocols[&home].counters().grant_timeout_blocks, 1);
}

#[test]
fn the_directory_and_its_waiters_are_bounded() {
    let settings = Settings {
        directory_chunks_max: 2,
        waiters_max: 1,
        ..Settings::default()
    };
    let mut cluster = Cluster::new(4, &settings);
    let home = cluster.home();
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 1, Demand);
    cluster.want(second, 1, Demand);
    assert_eq!(
        cluster.want(third, 1, Demand),
        [(third, fetch(1, Demand))],
        "too many wait"
    );
    assert_eq!(cluster.protocols[&home].counters().overflows, 1);
    for number in 1..50 {
        let chunk = ChunkKey { number, ..CHUNK };
        let (blocks, result) = (Blocks::new(chunk, 1), FetchResult::Kept);
        cluster.run(first, Input::FetchEnded { blocks, result });
    }
    let counters = cluster.protocols[&home].counters();
    assert_eq!(cluster.protocols[&home].directory_chunks(), 2);
    assert!(counters.evicted_entries > 0);
    assert_eq!(
        cluster.protocols[&home].busy_chunks(),
        1,
        "who waits is not forgotten"
    );
}

#[test]
fn a_node_that_is_not_home_says_so() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let [first, second] = cluster.others()[..] else {
        panic!();
    };
    let want = |rank| Message::Want {
        id: RequestId(1),
        blocks: blocks(1),
        urgency: Demand,
        rank,
        avoid: None,
    };
    let ask = |epoch, rank| Input::Message {
        from: first,
        epoch,
        message: want(rank),
    };
    let answer = |cluster: &mut Cluster, input| {
        cluster.input(second, input);
        cluster.messages.pop_front().unwrap().3
    };
    let refusal = Message::AskHome {
        id: RequestId(1),
        blocks: blocks(1),
    };
    assert_eq!(answer(&mut cluster, ask(1, 0)), refusal);
    // It stands in for members that the requester suspects, and trusts a later view.
    let grant = Message::Grant {
        id: RequestId(1),
        blocks: blocks(1),
        keeper: first,
    };
    assert_eq!(answer(&mut cluster, ask(1, 2)), grant);
    assert_eq!(answer(&mut cluster, ask(2, 0)), grant);
}
