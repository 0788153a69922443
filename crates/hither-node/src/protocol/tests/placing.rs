//! Where copies go, by one placement or another.

use super::*;

fn cluster(placement: &str, count: u64) -> Cluster {
    let placement = placement.parse().unwrap();
    let settings = Settings {
        placement,
        ..Settings::default()
    };
    let mut cluster = Cluster::new(count, &settings);
    for member in (1..=count).map(MemberId) {
        let frames = Frames { all: 10, free: 10 };
        let reads = Vec::new();
        cluster.run(member, Input::Usage { frames, reads });
    }
    cluster
}

/// A member gets a block that it wants from the one that provides it.
fn deliver(cluster: &mut Cluster, told: &[(MemberId, Output)]) -> (MemberId, Keep) {
    let [
        (
            from,
            Output::Provide {
                request,
                blocks,
                keep,
                ..
            },
        ),
    ] = told
    else {
        panic!("{told:?}");
    };
    let arrived = Input::Arrived {
        blocks: *blocks,
        from: *from,
        kept: *keep != Keep::No,
        wanted: true,
    };
    cluster.input(request.member, arrived);
    (*from, *keep)
}

#[test]
fn a_block_moves_to_its_reader_and_only_then_leaves_the_other() {
    let mut cluster = cluster("always-migrate", 4);
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 1, Demand);
    cluster.fetched(first, 1);
    let told = cluster.want(second, 1, Demand);
    assert_eq!(deliver(&mut cluster, &told), (first, Keep::Moved));
    cluster.deliver_all();
    let told = std::mem::take(&mut cluster.told);
    let dropped = (first, Output::Drop(blocks(1)));
    assert!(told.contains(&dropped), "{told:?}");
    cluster.run(first, Input::Dropped(blocks(1)));
    let told = cluster.want(third, 1, Demand);
    assert_eq!(deliver(&mut cluster, &told), (second, Keep::Moved));
}

#[test]
fn a_hash_names_who_keeps_a_block_and_all_wait_for_that_one() {
    let mut cluster = cluster("rendezvous", 4);
    let (home, others) = (cluster.home(), cluster.others());
    let told = cluster.want(others[0], 1, Demand);
    let fetch = Output::Fetch {
        blocks: blocks(1),
        keeper: Some(home),
        urgency: Demand,
        file: token(),
    };
    assert_eq!(told, [(others[0], fetch)]);
    assert_eq!(cluster.want(others[1], 1, Demand), []);
    let (sent, result) = (blocks(1), FetchResult::Sent);
    let ended = Input::FetchEnded {
        blocks: sent,
        result,
    };
    let told = cluster.run(others[0], ended);
    assert_eq!(told, [(others[0], ready(&[(&token(), 1)]))]);
    let arrived = Input::Arrived {
        blocks: sent,
        from: others[0],
        kept: true,
        wanted: false,
    };
    let told = cluster.run(home, arrived);
    assert_eq!(deliver(&mut cluster, &told), (home, Keep::No));
}

#[test]
fn if_the_named_one_does_not_keep_it_the_next_one_reads_the_source() {
    let mut cluster = cluster("rendezvous", 4);
    let (home, others) = (cluster.home(), cluster.others());
    cluster.want(others[0], 1, Demand);
    cluster.want(others[1], 1, Demand);
    let arrived = Input::Arrived {
        blocks: blocks(1),
        from: others[0],
        kept: false,
        wanted: false,
    };
    let told = cluster.run(home, arrived);
    let fetch = Output::Fetch {
        blocks: blocks(1),
        keeper: Some(home),
        urgency: Demand,
        file: token(),
    };
    assert_eq!(told, [(others[1], fetch)]);
}

#[test]
fn a_last_copy_goes_to_who_has_left_a_frame() {
    let mut cluster = cluster("one-step", 4);
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    assert!(cluster.protocols[&first].forwards());
    cluster.want(first, 1, Demand);
    cluster.fetched(first, 1);
    let victims = Input::Victims {
        blocks: blocks(1),
        from: Some(third),
    };
    let forward = Output::Forward {
        blocks: blocks(1),
        to: third,
        keep: Keep::Copy,
    };
    assert_eq!(cluster.run(first, victims), [(first, forward)]);
    let arrived = Input::Arrived {
        blocks: blocks(1),
        from: first,
        kept: true,
        wanted: false,
    };
    assert_eq!(cluster.run(third, arrived), []);
    let told = cluster.want(second, 1, Demand);
    assert_eq!(deliver(&mut cluster, &told).0, third);
    let home = cluster.home();
    let counters = cluster.protocols[&home].counters();
    assert_eq!((counters.victim_blocks, counters.forwarded_blocks), (1, 1));
}

#[test]
fn reads_from_own_copies_are_reported_and_count() {
    let mut cluster = cluster("post-office{trigger=4}", 4);
    let [first, second, _] = cluster.others()[..] else {
        panic!();
    };
    assert!(cluster.protocols[&first].counts_reads());
    cluster.want(first, 1, Demand);
    cluster.fetched(first, 1);
    // With the read by which it came, three of the first and two of the second: it stays.
    let reads = vec![ReadEntry {
        blocks: blocks(1),
        counts: vec![2],
    }];
    let frames = Frames { all: 10, free: 10 };
    cluster.run(first, Input::Usage { frames, reads });
    // All but the first read of the second node are told later.
    let read = |cluster: &mut Cluster, count| {
        for _ in 0..count {
            let told = cluster.want(second, 1, Demand);
            assert_eq!(deliver(cluster, &told), (first, Keep::No));
            cluster.deliver_all();
            cluster.told.clear();
        }
        let reads = Vec::new();
        cluster.run(second, Input::Usage { frames, reads })
    };
    assert_eq!(read(&mut cluster, 2), []);
    // Three of four are of the second: it moves.
    let (blocks, keep) = (blocks(1), Keep::Moved);
    let forward = Output::Forward {
        blocks,
        to: second,
        keep,
    };
    assert_eq!(read(&mut cluster, 3), [(first, forward)]);
}

#[test]
fn a_reader_remembers_who_holds_blocks_of_a_chunk() {
    let mut cluster = cluster("first-and-forever", 4);
    let home = cluster.home();
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 0b11, Demand);
    cluster.fetched(first, 0b11);
    cluster.want(third, 0b100, Demand);
    cluster.fetched(third, 0b100);
    let directed = |cluster: &Cluster| cluster.protocols[&home].counters().directed_blocks;
    let told = cluster.want(second, 0b1, Demand);
    assert_eq!(deliver(&mut cluster, &told).0, first);
    assert_eq!(directed(&cluster), 1);
    // The home has said who holds the other blocks.
    cluster.told.clear();
    let told = cluster.want(second, 0b110, Demand);
    let from: Vec<MemberId> = told.iter().map(|it| it.0).collect();
    assert_eq!(from, [first, third]);
    for provide in told.chunks(1) {
        deliver(&mut cluster, provide);
    }
    assert_eq!(directed(&cluster), 1);
    assert_eq!(cluster.protocols[&second].counters().hinted_blocks, 2);
}

#[test]
fn two_holders_of_one_request_are_both_remembered() {
    let mut cluster = cluster("first-and-forever", 4);
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    for (member, mask) in [(first, 0b0011), (third, 0b1100)] {
        cluster.want(member, mask, Demand);
        cluster.fetched(member, mask);
    }
    // Each of these two answers of the home says who holds what.
    for mask in [0b0101, 0b1010] {
        let told = cluster.want(second, mask, Demand);
        assert_eq!(told.len(), 2, "{told:?}");
        for provide in told.chunks(1) {
            deliver(&mut cluster, provide);
        }
        cluster.told.clear();
    }
    assert_eq!(cluster.protocols[&second].counters().hinted_blocks, 2);
}

#[test]
fn who_is_asked_directly_in_vain_passes_the_request_on() {
    let mut cluster = cluster("first-and-forever", 4);
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 0b11, Demand);
    cluster.fetched(first, 0b11);
    let told = cluster.want(second, 0b1, Demand);
    deliver(&mut cluster, &told);
    // Dropped, and read again by another node.
    cluster.run(first, Input::Dropped(blocks(0b11)));
    cluster.pass(SECOND / 10);
    cluster.want(third, 0b10, Demand);
    cluster.fetched(third, 0b10);
    let told = cluster.want(second, 0b10, Demand);
    assert_eq!(deliver(&mut cluster, &told).0, third);
    cluster.told.clear();
    // The other one is nowhere.
    let told = cluster.want(second, 0b1, Demand);
    assert_eq!(told, [(second, fetch(0b1, Demand))]);
}

#[test]
fn a_placement_that_acts_on_each_read_hears_of_each() {
    let mut cluster = cluster("always-migrate", 4);
    let [first, second, _] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 0b11, Demand);
    cluster.fetched(first, 0b11);
    for mask in [0b1, 0b10] {
        let told = cluster.want(second, mask, Demand);
        assert_eq!(deliver(&mut cluster, &told), (first, Keep::Moved));
        cluster.deliver_all();
        cluster.told.clear();
    }
    assert_eq!(cluster.protocols[&second].counters().hinted_blocks, 0);
}

#[test]
fn an_order_that_nobody_confirms_is_given_up() {
    let mut cluster = cluster("always-migrate", 4);
    let [first, second, third] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(first, 1, Demand);
    cluster.fetched(first, 1);
    let lost = cluster.want(second, 1, Demand);
    assert!(matches!(
        lost[..],
        [(
            _,
            Output::Provide {
                keep: Keep::Moved,
                ..
            }
        )]
    ));
    let told = cluster.want(third, 1, Demand);
    assert_eq!(
        deliver(&mut cluster, &told),
        (first, Keep::No),
        "one at a time"
    );
    cluster.pass(3 * SECOND);
    cluster.input(first, Input::Held(blocks(1)));
    cluster.deliver_all();
    cluster.told.clear();
    let told = cluster.want(third, 1, Demand);
    assert_eq!(deliver(&mut cluster, &told), (first, Keep::Moved));
}
