//! Who waits for blocks gets each of them once, from wherever it comes.

use super::*;

fn ended(mask: u64, result: FetchResult) -> Input {
    let blocks = blocks(mask);
    Input::FetchEnded { blocks, result }
}

fn disk_read(mask: u64, result: DiskResult) -> Input {
    let blocks = blocks(mask);
    Input::DiskRead { blocks, result }
}

/// A node that is alone.
fn alone() -> (Cluster, MemberId) {
    (Cluster::new(1, &Settings::default()), MemberId(1))
}

#[test]
fn each_waits_for_its_own_blocks() {
    let (mut cluster, me) = alone();
    let [one, other] = [1, 2].map(Token::new);
    let told = cluster.run(me, want(blocks(0b011), Demand, &one));
    assert_eq!(told, [(me, fetch(0b011, Demand))]);
    let told = cluster.run(me, want(blocks(0b110), Demand, &other));
    assert_eq!(told, [(me, fetch(0b100, Demand))]);
    let told = cluster.run(me, ended(0b010, FetchResult::NotKept));
    let both = ready(&[(&one, 0b010), (&other, 0b010)]);
    assert_eq!(told[0], (me, both));
    let told = cluster.run(me, ended(0b001, FetchResult::Kept));
    assert_eq!(told[0], (me, ready(&[(&one, 0b001)])));
    let told = cluster.run(me, ended(0b100, FetchResult::Failed));
    let failed = Output::Fail {
        chunk: CHUNK,
        waiters: waiting(&[(&other, 0b100)]),
    };
    assert_eq!(told[0], (me, failed));
    assert_eq!(cluster.protocols[&me].blocks_in_flight(), 0);
}

#[test]
fn a_read_that_is_overtaken_has_something_for_those_who_came_after() {
    let mut cluster = Cluster::new(2, &Settings::default());
    let (other, me) = (cluster.home(), cluster.others()[0]);
    let [one, late] = [1, 2].map(Token::new);
    cluster.run(me, want(blocks(1), Demand, &one));
    let arrived = Input::Arrived {
        blocks: blocks(1),
        from: other,
        kept: false,
        wanted: true,
    };
    let told = cluster.run(me, arrived.clone());
    assert_eq!(told, [(me, ready(&[(&one, 1)]))]);
    assert_eq!(cluster.run(me, arrived), [], "it is given once");
    assert_eq!(cluster.run(me, want(blocks(1), Demand, &late)), []);
    let told = cluster.run(me, ended(1, FetchResult::Kept));
    assert_eq!(told, [(me, ready(&[(&late, 1)]))]);
}

#[test]
fn the_disk_is_read_before_anybody_else_is_asked() {
    let (mut cluster, me) = alone();
    let reader = Token::new(1);
    cluster.run(me, Input::Held(blocks(0b0111)));
    let mut input = want(blocks(0b1111), Demand, &reader);
    if let Input::Want { on_disk, .. } = &mut input {
        *on_disk = 0b0111;
    }
    let told = cluster.run(me, input);
    let read = |mask| Output::ReadDisk(blocks(mask));
    assert_eq!(told, [(me, read(0b0111)), (me, fetch(0b1000, Demand))]);
    let told = cluster.run(me, disk_read(0b0001, DiskResult::Read));
    assert_eq!(told, [(me, ready(&[(&reader, 0b0001)]))]);
    let told = cluster.run(me, disk_read(0b0010, DiskResult::Missing));
    assert_eq!(told, [(me, fetch(0b0010, Demand))]);
    // A reader waits: it is not given up.
    let told = cluster.run(me, disk_read(0b0100, DiskResult::GivenUp));
    assert_eq!(told, [(me, read(0b0100))]);
    let told = cluster.run(me, disk_read(0b0100, DiskResult::Read));
    assert_eq!(told, [(me, ready(&[(&reader, 0b0100)]))]);
    assert_eq!(cluster.protocols[&me].blocks_in_flight(), 2);
    assert_eq!(cluster.protocols[&me].held_chunks(), 1);
}

#[test]
fn the_prefetch_is_given_up_unless_somebody_waits_by_then() {
    let (mut cluster, me) = alone();
    cluster.want(me, 0b11, Prefetch);
    let told = cluster.want(me, 0b10, Demand);
    assert_eq!(told, [(me, Output::Hurry(blocks(0b10)))]);
    let told = cluster.run(me, ended(0b11, FetchResult::GivenUp));
    assert!(told.contains(&(me, shed(0b01))), "{told:?}");
    assert!(told.contains(&(me, fetch(0b10, Demand))), "{told:?}");
    assert_eq!(cluster.protocols[&me].blocks_in_flight(), 1);
}
