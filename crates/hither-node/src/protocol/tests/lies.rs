//! Members that say what is not so, and volumes that are not for all.

use super::*;
use crate::key::VolumeKey;
use crate::readers::Readers;

/// Members by their names, of which those of `lists` know that only `a` and `b` may have the
/// volume.
fn named(names: &[&str], lists: &[&str], placement: &str) -> Cluster {
    let readers = ["a", "b"].map(str::to_owned).to_vec();
    let readers = Readers::new(&BTreeMap::from([("secret".to_owned(), readers)]));
    let lists: Vec<MemberId> = lists.iter().map(|name| MemberId::of(name)).collect();
    let members = names.iter().map(|name| MemberId::of(name)).collect();
    Cluster::of(members, |member| Settings {
        readers: if lists.contains(&member) {
            readers.clone()
        } else {
            Readers::default()
        },
        placement: placement.parse().unwrap(),
        secret: u128::from(member.0),
        ..Settings::default()
    })
}

/// A block of the volume whose home is this member.
fn secret(cluster: &Cluster, home: MemberId) -> Blocks {
    let VolumeKey(volume) = VolumeKey::new("secret");
    let view = cluster.protocols.values().next().unwrap().view();
    let chunks = (0..).map(|number| ChunkKey {
        file: FileKey(u128::from(volume) << 96 | 1),
        number,
    });
    let mut chunks = chunks.filter(|&chunk| view.home(chunk, |_| false) == Some(home));
    Blocks::new(chunks.next().unwrap(), 1)
}

fn message(from: MemberId, message: Message) -> Input {
    Input::Message {
        from,
        epoch: 1,
        message,
    }
}

fn want_of(blocks: Blocks) -> Input {
    want(blocks, Demand, &token())
}

/// The number of the request that a member makes for blocks, before the home has heard of it.
fn request(cluster: &mut Cluster, member: MemberId, blocks: Blocks) -> RequestId {
    cluster.input(member, want_of(blocks));
    let asked = cluster.messages.iter().rev().find_map(|it| match it.3 {
        Message::Want { id, .. } => Some(id),
        _ => None,
    });
    asked.expect("it asks the home")
}

fn expects(
    cluster: &mut Cluster,
    member: MemberId,
    from: MemberId,
    id: RequestId,
    of: Blocks,
) -> bool {
    cluster
        .protocols
        .get_mut(&member)
        .unwrap()
        .expects(from, id, of)
}

fn fetches(told: &[(MemberId, Output)], member: MemberId) -> Vec<Option<MemberId>> {
    let fetches = told.iter().filter_map(|(by, output)| match output {
        Output::Fetch { keeper, .. } if *by == member => Some(*keeper),
        _ => None,
    });
    fetches.collect()
}

#[test]
fn nobody_is_heard_who_is_not_in_the_view() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let (home, reader) = (cluster.home(), cluster.others()[0]);
    let stranger = MemberId(9);
    let id = request(&mut cluster, reader, blocks(1));
    cluster.messages.clear();
    let says = [
        Message::Ping {
            round: 1,
            frames: Frames::default(),
        },
        Message::Want {
            id,
            blocks: blocks(1),
            urgency: Demand,
            rank: 0,
            avoid: None,
        },
        Message::Grant {
            id,
            blocks: blocks(1),
            keeper: stranger,
        },
    ];
    for said in says {
        for member in [home, reader] {
            let input = Input::Message {
                from: stranger,
                epoch: u64::MAX,
                message: said.clone(),
            };
            cluster.input(member, input);
        }
    }
    assert_eq!((cluster.messages.len(), &cluster.told[..]), (0, &[][..]));
    assert!(!expects(&mut cluster, reader, stranger, id, blocks(1)));
    assert_eq!(cluster.protocols[&home].counters().strangers, 3);
}

#[test]
fn only_the_home_that_was_asked_grants_and_only_what_it_was_asked() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let home = cluster.home();
    let [reader, liar] = cluster.others()[..] else {
        panic!();
    };
    let id = request(&mut cluster, reader, blocks(0b11));
    cluster.messages.clear();
    let grant = |id, mask| Message::Grant {
        id,
        blocks: blocks(mask),
        keeper: reader,
    };
    cluster.input(reader, message(liar, grant(id, 0b11)));
    cluster.input(reader, message(home, grant(RequestId(id.0 + 1), 0b11)));
    assert_eq!(cluster.told, []);
    cluster.input(reader, message(home, grant(id, 0b01)));
    assert_eq!(cluster.told, [(reader, fetch(0b01, Demand))]);
}

#[test]
fn numbers_of_requests_follow_from_the_secret_alone() {
    let mut ids = Vec::new();
    for secret in [1, 1, 2] {
        let settings = Settings {
            secret,
            ..Settings::default()
        };
        let mut cluster = Cluster::new(3, &settings);
        let reader = cluster.others()[0];
        ids.push(request(&mut cluster, reader, blocks(1)));
        ids.push(request(&mut cluster, reader, blocks(2)));
    }
    assert_eq!(ids[..2], ids[2..4]);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| id.0 > u64::from(u16::MAX)), "{ids:?}");
}

#[test]
fn a_block_is_taken_upon_the_request_that_asked_for_it() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let [holder, reader, liar] = cluster.others()[..] else {
        panic!();
    };
    cluster.want(holder, 0b11, Demand);
    cluster.fetched(holder, 0b11);
    let id = request(&mut cluster, reader, blocks(0b11));
    let other = request(&mut cluster, reader, blocks(0b100));
    // Before and after the home has said who holds it.
    for _ in 0..2 {
        for guessed in [RequestId(0), RequestId(id.0 + 1), other] {
            assert!(!expects(&mut cluster, reader, liar, guessed, blocks(1)));
        }
        assert!(!expects(&mut cluster, reader, holder, id, blocks(0b100)));
        assert!(expects(&mut cluster, reader, holder, id, blocks(0b11)));
        cluster.deliver_all();
    }
    let arrived = Input::Arrived {
        blocks: blocks(0b01),
        from: holder,
        kept: true,
        wanted: true,
    };
    cluster.run(reader, arrived);
    assert!(
        !expects(&mut cluster, reader, holder, id, blocks(0b01)),
        "it comes twice"
    );
    assert!(expects(&mut cluster, reader, holder, id, blocks(0b10)));
    // What is read from the source is not awaited of others any more.
    cluster.pass(2 * SECOND);
    assert!(!expects(&mut cluster, reader, holder, id, blocks(0b10)));
    assert_eq!(cluster.protocols[&reader].counters().unexpected_blocks, 10);
}

/// A holder that has nothing passes a request back, and the block of the next one may come before
/// the home's word about it.
#[test]
fn a_block_may_overtake_the_word_that_another_member_holds_it() {
    let mut cluster = Cluster::new(4, &Settings::default());
    let [first, second, reader] = cluster.others()[..] else {
        panic!();
    };
    let home = cluster.home();
    let id = request(&mut cluster, reader, blocks(1));
    cluster.messages.clear();
    let at = Message::At {
        id,
        blocks: blocks(1),
        holder: first,
        copies: Vec::new(),
    };
    cluster.input(reader, message(home, at));
    assert!(expects(&mut cluster, reader, second, id, blocks(1)));
}

#[test]
fn what_its_home_has_not_announced_is_not_kept() {
    let mut cluster = Cluster::new(3, &Settings::default());
    let home = cluster.home();
    let [keeper, liar] = cluster.others()[..] else {
        panic!();
    };
    let none = RequestId(0);
    let announce = |from| {
        let blocks = blocks(0b11);
        message(from, Message::Expect { blocks, from: liar })
    };
    cluster.run(keeper, announce(liar));
    assert!(!expects(&mut cluster, keeper, liar, none, blocks(1)));
    cluster.run(keeper, message(liar, Message::Drop(blocks(1))));
    assert_eq!(cluster.told, []);
    cluster.run(keeper, announce(home));
    assert!(expects(&mut cluster, keeper, liar, none, blocks(1)));
    assert!(!expects(&mut cluster, keeper, home, none, blocks(1)));
    // The home hears what has come of it.
    cluster.input(keeper, Input::Unexpected(blocks(0b100)));
    let not_fetched = Message::NotFetched {
        blocks: blocks(0b100),
        tried: false,
    };
    assert_eq!(
        cluster.messages.pop_front(),
        Some((keeper, home, 1, not_fetched))
    );
    let drops = cluster.run(keeper, message(home, Message::Drop(blocks(1))));
    assert_eq!(drops, [(keeper, Output::Drop(blocks(1)))]);
}

/// Two honest nodes, of which only the reader has the list.
#[test]
fn a_keeper_that_may_not_have_a_volume_is_passed_over() {
    let mut cluster = named(&["a", "c"], &["a"], "rendezvous");
    let [reader, other] = ["a", "c"].map(MemberId::of);
    for home in [reader, other] {
        for number in 0..20 {
            let mut wanted = secret(&cluster, home);
            wanted.mask <<= number;
            let told = cluster.run(reader, want_of(wanted));
            assert_eq!(fetches(&told, reader), [None], "{number}");
            let result = FetchResult::Kept;
            let ended = Input::FetchEnded {
                blocks: wanted,
                result,
            };
            cluster.run(reader, ended);
        }
    }
    // Nor does it go there by any order.
    let held = secret(&cluster, other);
    let request = Request {
        member: other,
        id: RequestId(7),
        urgency: Demand,
    };
    let orders = [
        Message::Deliver {
            request,
            blocks: held,
            keep: Keep::No,
        },
        Message::Send {
            blocks: held,
            to: other,
            keep: Keep::Copy,
        },
        Message::Gone {
            request,
            blocks: held,
        },
    ];
    for order in orders {
        assert_eq!(cluster.run(reader, message(other, order)), []);
    }
}

#[test]
fn a_member_that_may_not_have_a_volume_is_asked_for_nothing_of_it() {
    let names = ["a", "b", "c"];
    let mut cluster = named(&names, &["a", "b"], "first-and-forever");
    let [reader, home, liar] = names.map(MemberId::of);
    let wanted = secret(&cluster, home);
    // It says that it holds the block, or reads it.
    let entries = vec![ReportEntry {
        chunk: wanted.chunk,
        held: 1,
        dropped: 0,
    }];
    let incarnation = 0;
    let report = Message::Report {
        incarnation,
        entries,
    };
    let urgency = Demand;
    let fetching = Message::Fetching {
        blocks: wanted,
        urgency,
    };
    for claim in [report, fetching] {
        cluster.run(home, message(liar, claim));
    }
    let told = cluster.run(reader, want_of(wanted));
    assert_eq!(fetches(&told, reader), [None]);

    // As home, it names itself.
    let wanted = secret(&cluster, liar);
    let id = request(&mut cluster, reader, wanted);
    cluster.messages.clear();
    assert!(!expects(&mut cluster, reader, liar, id, wanted));
    let at = Message::At {
        id,
        blocks: wanted,
        holder: liar,
        copies: vec![Copies {
            member: liar,
            mask: u64::MAX,
        }],
    };
    let told = cluster.run(reader, message(liar, at));
    assert_eq!(fetches(&told, reader), [None]);
    let announce = Message::Expect {
        blocks: wanted,
        from: liar,
    };
    cluster.run(reader, message(liar, announce));
    assert!(!expects(&mut cluster, reader, liar, RequestId(0), wanted));
    // It is not remembered as a holder either.
    let mut more = wanted;
    more.mask = 0b10;
    cluster.input(reader, want_of(more));
    let asked = |it: &(MemberId, MemberId, u64, Message)| matches!(it.3, Message::Deliver { .. });
    assert!(!cluster.messages.iter().any(asked));
}
