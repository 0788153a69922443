//! Messages survive the way over the wire, and hostile bytes do no harm.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn chunk() -> impl Strategy<Value = ChunkKey> {
    (any::<u128>(), 0..=u32::MAX / 64).prop_map(|(file, number)| ChunkKey {
        file: FileKey(file),
        number,
    })
}

fn blocks() -> impl Strategy<Value = Blocks> {
    (chunk(), 1..=u64::MAX).prop_map(|(chunk, mask)| Blocks::new(chunk, mask))
}

fn urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![Just(Urgency::Demand), Just(Urgency::Prefetch)]
}

fn request() -> impl Strategy<Value = Request> {
    (any::<u64>(), any::<u64>(), urgency()).prop_map(|(member, id, urgency)| Request {
        member: MemberId(member),
        id: RequestId(id),
        urgency,
    })
}

fn id() -> impl Strategy<Value = RequestId> {
    any::<u64>().prop_map(RequestId)
}

fn copies() -> impl Strategy<Value = Copies> {
    (any::<u64>(), any::<u64>()).prop_map(|(member, mask)| Copies {
        member: MemberId(member),
        mask,
    })
}

fn message() -> impl Strategy<Value = Message> {
    let avoid = proptest::option::of(any::<u64>().prop_map(MemberId));
    let entry =
        (chunk(), any::<u64>(), any::<u64>()).prop_map(|(chunk, held, dropped)| ReportEntry {
            chunk,
            held,
            dropped,
        });
    prop_oneof![
        (id(), blocks(), urgency(), any::<u8>(), avoid).prop_map(
            |(id, blocks, urgency, rank, avoid)| Message::Want {
                id,
                blocks,
                urgency,
                rank,
                avoid,
            }
        ),
        blocks().prop_map(Message::Raise),
        (id(), blocks()).prop_map(|(id, blocks)| Message::Withdraw { id, blocks }),
        (id(), blocks()).prop_map(|(id, blocks)| Message::Pending { id, blocks }),
        (id(), blocks(), any::<u64>()).prop_map(|(id, blocks, keeper)| Message::Grant {
            id,
            blocks,
            keeper: MemberId(keeper),
        }),
        (blocks(), any::<u64>()).prop_map(|(blocks, from)| Message::Expect {
            blocks,
            from: MemberId(from),
        }),
        (blocks(), any::<u64>(), keep()).prop_map(|(blocks, to, keep)| Message::Send {
            blocks,
            to: MemberId(to),
            keep,
        }),
        blocks().prop_map(Message::Drop),
        vec(reads(), 0..20).prop_map(Message::Reads),
        (blocks(), proptest::option::of(any::<u64>())).prop_map(|(blocks, from)| {
            let from = from.map(MemberId);
            Message::Victims { blocks, from }
        }),
        (id(), blocks(), any::<u64>(), vec(copies(), 0..=COPIES_MAX)).prop_map(
            |(id, blocks, holder, copies)| Message::At {
                id,
                blocks,
                holder: MemberId(holder),
                copies,
            }
        ),
        (request(), blocks(), keep()).prop_map(|(request, blocks, keep)| {
            Message::Deliver {
                request,
                blocks,
                keep,
            }
        }),
        (request(), blocks()).prop_map(|(request, blocks)| Message::Gone { request, blocks }),
        (id(), blocks()).prop_map(|(id, blocks)| Message::AskHome { id, blocks }),
        (id(), blocks()).prop_map(|(id, blocks)| Message::Refused { id, blocks }),
        (blocks(), urgency()).prop_map(|(blocks, urgency)| Message::Fetching { blocks, urgency }),
        blocks().prop_map(Message::Hurry),
        (blocks(), any::<bool>()).prop_map(|(blocks, tried)| Message::NotFetched { blocks, tried }),
        (any::<u64>(), vec(entry, 0..20)).prop_map(|(incarnation, entries)| Message::Report {
            incarnation,
            entries,
        }),
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(round, one, other)| {
            let (all, free) = (one.max(other), one.min(other));
            let frames = Frames { all, free };
            Message::Ping { round, frames }
        }),
        (any::<u64>(), any::<u64>())
            .prop_map(|(round, incarnation)| Message::Pong { round, incarnation }),
        btree_map(any::<u64>(), 0..=CLASS_MAX, 0..20).prop_map(|row| {
            let of = |(member, class)| RoundTrip {
                member: MemberId(member),
                class,
            };
            Message::RoundTrips(row.into_iter().map(of).collect())
        }),
    ]
}

fn keep() -> impl Strategy<Value = Keep> {
    (0..Keep::ALL.len()).prop_map(|at| Keep::ALL[at])
}

fn reads() -> impl Strategy<Value = ReadEntry> {
    (blocks(), any::<u8>()).prop_map(|(blocks, first)| {
        let counts = (0..blocks.mask.count_ones() as u8).map(|at| first.wrapping_add(at));
        let counts = counts.collect();
        ReadEntry { blocks, counts }
    })
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(message in message()) {
        prop_assert_eq!(decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn part_of_a_message_is_none(message in message(), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&message);
        prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(decode(&longer), Err(WireError::Long(1)));
    }

    #[test]
    fn damaged_bytes_decode_to_their_own_message(
        message in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encoded(&message);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(encoded(&message), bytes);
        }
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(encoded(&message), bytes);
        }
    }
}

#[test]
fn round_trips_are_in_order_and_of_known_classes() {
    let row = |members: [u8; 2], class: u8| {
        let entry = |member: u8| [&[member, 0, 0, 0, 0, 0, 0, 0][..], &[class]].concat();
        decode(&[vec![21, 2, 0], entry(members[0]), entry(members[1])].concat())
    };
    assert!(row([1, 2], CLASS_MAX).is_ok());
    for members in [[1, 1], [2, 1]] {
        let error = WireError::Range("the order of round trips");
        assert_eq!(row(members, 0), Err(error));
    }
    let error = WireError::Range("the class of a round trip");
    assert_eq!(row([1, 2], CLASS_MAX + 1), Err(error));
}

#[test]
fn a_huge_count_allocates_nothing() {
    let error = WireError::Range("the number of entries");
    let report = |count: [u8; 2]| decode(&[&[14, 0, 0, 0, 0, 0, 0, 0, 0][..], &count].concat());
    assert_eq!(report([0xff, 0xff]), Err(error));
    assert_eq!(report([0, 2]), Err(WireError::Short));
    let error = WireError::Range("the number of round trips");
    assert_eq!(decode(&[21, 0xff, 0xff]), Err(error));
    assert_eq!(decode(&[21, 0, 4]), Err(WireError::Short));
    assert_eq!(decode(&[]), Err(WireError::Short));
    assert_eq!(decode(&[0]), Err(WireError::Kind(0)));
}
