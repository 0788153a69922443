//! Records that are made of events.

use super::*;

/// The bytes of an event of the kernel's side, about a regular file: its fixed part, and more.
fn bytes_of(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[8] = 7;
    bytes[46] = kind;
    [&bytes, rest].concat()
}

#[test]
fn nothing_is_recorded_of_a_file_that_is_not_wanted_however_often_it_is_named() {
    let mode = [[0; 8], u64::from(REGULAR_FILE).to_ne_bytes()].concat();
    let mut named_bytes = bytes_of(8, &[&mode[..], b"data\0"].concat());
    named_bytes[40] = 5;
    let file_named = Event::decode(&named_bytes).expect("an event");
    let read_bytes = bytes_of(Kind::Read as u8, &[0; 16]);
    let read = Event::decode(&read_bytes).expect("an event");
    let recorded = |glob: &str, events: &[Event<'_>]| {
        let wanted = FileFilter {
            globs: vec![glob.parse().expect("a glob")],
            ..FileFilter::default()
        };
        let (mut named, mut records) = (Named::new(None, false, wanted), 0);
        for event in events {
            named.take(event, &mut |_, _| records += 1);
        }
        (records, named.unnamed, named.to_exclude)
    };
    let What::File { file, .. } = file_named.what else {
        panic!("{file_named:?}");
    };
    let twice = [file_named, read, file_named];
    assert_eq!(recorded("/data", &twice), (0, 0, vec![file, file]));
    // Its names were lost.
    assert_eq!(recorded("/data", &[read]), (0, 1, Vec::new()));
    let (records, _, excluded) = recorded("**/data", &twice);
    // The process, the file and the read.
    assert_eq!((records, excluded), (3, Vec::new()));
}

#[test]
fn what_is_mapped_around_a_touch_is_no_touch() {
    assert_eq!(accesses(Kind::Dirty, false, 2..9), [(Op::Write, 2..9)]);
    let (fault, map) = ((Op::Fault, 2..3), (Op::Map, 2..9));
    let both = [fault.clone(), map.clone()];
    assert_eq!(accesses(Kind::Map, false, 2..9), both);
    assert_eq!(accesses(Kind::Map, true, 2..9), [map]);
    assert_eq!(accesses(Kind::Map, false, 2..3), [fault]);
    assert_eq!(accesses(Kind::Evict, false, 2..9), [(Op::Evict, 2..9)]);
}

#[test]
fn no_read_is_longer_than_a_call_can_be() {
    let most = PAGES_OF_A_READ_MAX;
    let parts = accesses(Kind::Read, false, 5..2 * most + 7);
    let ranges = [
        5..5 + most,
        5 + most..5 + 2 * most,
        5 + 2 * most..2 * most + 7,
    ];
    assert_eq!(parts, ranges.map(|range| (Op::Read, range)));
    assert_eq!(accesses(Kind::Read, false, 3..4), [(Op::Read, 3..4)]);
}
fn touch(
    time_ns: u64,
    thread: u32,
    kind: Kind,
    first_page: u64,
    same_fault: bool,
) -> Event<'static> {
    Event {
        time_ns,
        process: Pid::own(),
        thread: Tid(thread),
        own_numbers: None,
        cpu: 0,
        cgroup: 0,
        what: What::Pages {
            kind,
            file: File::default(),
            first_page,
            last_page: first_page + 9,
            same_fault,
            is_outside: false,
            is_in_call: false,
            stack: UserStack::Unknown,
        },
    }
}

#[test]
fn a_page_that_was_looked_up_was_touched_and_not_those_mapped_before() {
    let mut named = Named::new(None, false, FileFilter::default());
    let mut touched = |events: &[Event<'_>], until_ns: u64| {
        let mut found = Vec::new();
        let mut take = |ring: &RingInfo, record: Record<'_>| {
            if let Record::Access { op, offset, .. } = record
                && op == Op::Fault
            {
                found.push((ring.tid.0, offset / page_bytes()));
            }
        };
        for event in events {
            named.take(event, &mut take);
        }
        named.give_held(until_ns, &mut take);
        found
    };
    // Around page 15, which is not cached, some are mapped. Another thread is in between.
    let events = [
        touch(1, 1, Kind::Map, 10, false),
        touch(2, 2, Kind::Map, 50, false),
        touch(3, 1, Kind::Fault, 15, true),
        touch(4, 1, Kind::Map, 10, true),
    ];
    assert_eq!(touched(&events, 2), [(1, 15), (2, 50)]);
    // The next event of the thread, or time, says that it was one of those mapped.
    let events = [
        touch(5, 1, Kind::Map, 20, false),
        touch(6, 1, Kind::Map, 30, false),
        touch(7, 1, Kind::Fault, 45, false),
        touch(8, 1, Kind::Map, 60, false),
    ];
    assert_eq!(touched(&events, 7), [(1, 20), (1, 30), (1, 45)]);
    assert_eq!(touched(&[], 8), [(1, 60)]);
}
