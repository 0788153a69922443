//! Agent and programs of a session, in one process.

use hither_ids::{Address, FileKey, Pid, Tid};

use super::*;
use crate::program_session::{ProgramSession, Pushed};

fn session(rings: usize, ring_bytes: usize) -> Session {
    Session::create(SessionOptions {
        rings,
        ring_bytes,
        frames_max: 16,
        ..SessionOptions::default()
    })
    .expect("a session")
}

fn attach(session: &Session) -> Option<ProgramSession> {
    ProgramSession::open(session.name().as_bytes())
}

fn exec(pid: u32) -> Record<'static> {
    Record::Exec {
        pid: Pid(pid),
        time_ns: 1,
        path: b"/bin/true",
        hidden: false,
    }
}

fn drained(session: &mut Session) -> Vec<(RingInfo, u32)> {
    let mut seen = Vec::new();
    session.drain(|info, record| match record {
        Record::Exec { pid, .. } => seen.push((*info, pid.0)),
        other => panic!("unexpected {other:?}"),
    });
    seen
}

#[test]
fn records_arrive_with_their_owner() {
    let mut session = session(4, CHUNK_BYTES);
    let attached = attach(&session).expect("attached");
    assert_eq!(attached.frames_max(), 16);
    let mut one = attached
        .claim(Pid(10), Tid(11), PidNamespace::OWN)
        .expect("a ring");
    let mut two = attached
        .claim(Pid(10), Tid(12), PidNamespace::OWN)
        .expect("a ring");
    assert_eq!(attached.push_record(&mut one, &exec(1)), Pushed::Taken);
    assert_eq!(attached.push_record(&mut two, &exec(2)), Pushed::Taken);
    let seen = drained(&mut session);
    assert_eq!(
        seen.iter()
            .map(|(info, pid)| (info.pid, info.tid, *pid))
            .collect::<Vec<_>>(),
        [(Pid(10), Tid(11), 1), (Pid(10), Tid(12), 2)]
    );
    assert!(drained(&mut session).is_empty());
}

#[test]
fn released_rings_are_emptied_and_used_again() {
    let mut session = session(1, CHUNK_BYTES);
    let attached = attach(&session).expect("attached");
    for round in 0..5 {
        let mut producer = attached
            .claim(Pid(1), Tid(round + 1), PidNamespace::OWN)
            .expect("the only ring");
        assert!(
            attached.claim(Pid(1), Tid(99), PidNamespace::OWN).is_none(),
            "no second ring"
        );
        attached.push_record(&mut producer, &exec(round));
        attached.release(producer);
        let seen = drained(&mut session);
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].0.generation, seen[0].0.tid, seen[0].1),
            (u64::from(round), Tid(round + 1), round)
        );
    }
}

#[test]
fn a_full_ring_counts_what_it_drops() {
    let mut session = session(1, CHUNK_BYTES);
    let attached = attach(&session).expect("attached");
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    let access = Record::Access {
        op: crate::record::Op::Read,
        flags: 0,
        cpu: 0,
        time_ns: 0,
        signature: 0,
        object: FileKey(0),
        offset: 0,
        length: 10,
    };
    let taken = (0..1000)
        .filter(|_| attached.push_record(&mut producer, &access) == Pushed::Taken)
        .count();
    assert_eq!(taken, 340);
    let lost = session.lost();
    assert_eq!(
        (lost.events, lost.bytes),
        (1000 - taken as u64, 10 * (1000 - taken as u64))
    );
    attached.count_no_ring(9);
    attached.count_nested(&producer);
    attached.release(producer);
    assert_eq!(session.drain(|_, _| ()), taken);
    let after = Lost {
        no_ring: 1,
        no_ring_bytes: 9,
        nested: 1,
        ..lost
    };
    assert_eq!(session.lost(), after, "losses outlive the owner");
}

#[test]
fn ten_thousand_threads_lose_nothing() {
    const THREADS: u32 = 10_000;
    let mut session = Session::create(SessionOptions::default()).expect("a session");
    let attached = attach(&session).expect("attached");
    let mut producers: Vec<_> = (1..=THREADS)
        .map(|tid| {
            attached
                .claim(Pid(1), Tid(tid), PidNamespace::OWN)
                .expect("a ring")
        })
        .collect();
    for value in 0..3 {
        for producer in &mut producers {
            assert_eq!(attached.push_record(producer, &exec(value)), Pushed::Taken);
        }
    }
    let seen = drained(&mut session);
    let threads: Vec<u32> = seen.iter().step_by(3).map(|(info, _)| info.tid.0).collect();
    assert_eq!(threads, (1..=THREADS).collect::<Vec<_>>());
    assert_eq!(seen.len(), 3 * THREADS as usize);
    assert_eq!(session.lost(), Lost::default());
    // The first free ones are used again, so that the agent has few to look at.
    producers
        .drain(7..9)
        .for_each(|producer| attached.release(producer));
    session.drain(|_, _| ());
    let again = [1, 2, 3].map(|tid| {
        attached
            .claim(Pid(2), Tid(tid), PidNamespace::OWN)
            .expect("a ring")
    });
    assert_eq!(
        format!("{:?}", again.map(|producer| producer.index())),
        "[7, 8, 10000]"
    );
}

/// A program's address space is its own, but for what it uses of the pool.
#[test]
fn parts_of_the_pool_are_attached_as_they_are_wanted() {
    const RECORDS: u32 = (20 << 20) / 40;
    let mut session = session(1, 64 << 20);
    let id = session.id;
    let attached_parts = || shared_memory::status(id).expect("a status").attached;
    let alone = attached_parts();
    let attached = attach(&session).expect("attached");
    assert_eq!(attached_parts(), alone + 1, "with one part of the pool");
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    for value in 0..RECORDS {
        let pushed = attached.push_record(&mut producer, &exec(value));
        assert_eq!(pushed, Pushed::Taken);
        if value == 0 {
            assert_eq!(attached_parts(), alone + 1, "which the first record is in");
        }
    }
    assert_eq!(attached_parts(), alone + 2, "and another one");
    let values: Vec<u32> = drained(&mut session).iter().map(|seen| seen.1).collect();
    assert_eq!(values, (0..RECORDS).collect::<Vec<_>>());
    drop(attached);
    assert_eq!(attached_parts(), alone);
}

#[test]
fn a_burst_waits_for_the_agent_and_its_memory_goes_back() {
    const ACCESSES: u32 = 300_000;
    let mut session = session(1, 64 << 20);
    let attached = attach(&session).expect("attached");
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    for value in 0..ACCESSES {
        let pushed = attached.push_record(&mut producer, &exec(value));
        assert_eq!(pushed, Pushed::Taken);
    }
    let values: Vec<u32> = drained(&mut session).iter().map(|seen| seen.1).collect();
    assert_eq!(values, (0..ACCESSES).collect::<Vec<_>>());
    assert_eq!(session.lost(), Lost::default());
    let warm = |session: &Session| session.segment.chunks().warm();
    assert!(warm(&session) > 500, "{}", warm(&session));
    // The owner is no thread of this machine, so it is not reaped here.
    session.give_memory_back();
    session.drain(|_, _| ());
    session.give_memory_back();
    assert_eq!(warm(&session), WARM_CHUNKS);
    assert_eq!(attached.push_record(&mut producer, &exec(1)), Pushed::Taken);
    assert_eq!(drained(&mut session).len(), 1);
}

#[test]
fn a_ring_is_drained_as_far_as_wanted() {
    let mut session = session(2, 1 << 20);
    let attached = attach(&session).expect("attached");
    for tid in 1..=2 {
        let mut producer = attached
            .claim(Pid(1), Tid(tid), PidNamespace::OWN)
            .expect("a ring");
        for value in 0..1000 {
            attached.push_record(&mut producer, &exec(value));
        }
        attached.release(producer);
    }
    let mut seen = Vec::new();
    let mut take = |info: &RingInfo, record: Record<'_>| {
        let Record::Exec { pid, .. } = record else {
            panic!("unexpected {record:?}")
        };
        seen.push((info.tid.0, pid.0));
        pid.0 % 600 != 599
    };
    assert_eq!(session.drain_while(&mut take), 1200);
    assert_eq!(session.drain_while(&mut take), 800);
    assert_eq!(session.drain_while(&mut take), 0);
    seen.sort_unstable();
    let all = (1..=2).flat_map(|tid| (0..1000).map(move |value| (tid, value)));
    assert_eq!(seen, all.collect::<Vec<_>>());
    assert!(
        attached.claim(Pid(1), Tid(3), PidNamespace::OWN).is_some(),
        "they are free"
    );
}

#[test]
fn all_threads_together_take_no_more_than_the_pool() {
    let mut session = Session::create(SessionOptions {
        rings: 100,
        ring_bytes: 10 * CHUNK_BYTES,
        pool_bytes: 64 * CHUNK_BYTES,
        ..SessionOptions::default()
    })
    .expect("a session");
    let attached = attach(&session).expect("attached");
    let push_all = |tid| {
        let mut producer = attached
            .claim(Pid(1), Tid(tid), PidNamespace::OWN)
            .expect("a ring");
        let push = |_: &u32| attached.push_record(&mut producer, &exec(tid)) == Pushed::Taken;
        (0..10_000).filter(push).count()
    };
    let taken: Vec<usize> = (1..=8).map(push_all).collect();
    // An exec takes 5 words.
    let of_chunk = 2045 / 5;
    assert!(
        taken[..6].iter().all(|&of| of == 10 * of_chunk),
        "{taken:?}"
    );
    assert_eq!(taken[6..], [4 * of_chunk, 0]);
    assert_eq!(session.drain(|_, _| ()), 64 * of_chunk);
    assert_eq!(push_all(9), 10 * of_chunk, "there is room again");
}

#[test]
fn a_broken_ring_is_given_up_and_its_thread_gets_another() {
    let mut session = session(2, 1 << 20);
    let attached = attach(&session).expect("attached");
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    for value in 0..1000 {
        attached.push_record(&mut producer, &exec(value));
    }
    let chunks = session.segment.chunks();
    let link = chunks.link(crate::chunks::Chunk::of(1)).expect("a link");
    link.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(drained(&mut session).len(), 2045 / 5);
    assert_eq!(session.lost().damaged, 1);
    let pushed = attached.push_record(&mut producer, &exec(1));
    assert_eq!(pushed, Pushed::NoRing);
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    assert_eq!(attached.push_record(&mut producer, &exec(1)), Pushed::Taken);
    assert_eq!(drained(&mut session)[0].0.generation, 1);
}

#[test]
fn what_a_program_writes_over_is_refused_and_counted() {
    let mut session = session(1, CHUNK_BYTES);
    let attached = attach(&session).expect("attached");
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    let access = |time_ns, length| Record::Access {
        op: crate::record::Op::Read,
        flags: 0,
        cpu: 0,
        time_ns,
        signature: 0,
        object: FileKey(0),
        offset: 0,
        length,
    };
    for record in [
        access(1, 10),
        access(1, u64::MAX),
        access(u64::MAX, 10),
        access(monotonic_ns(), 20),
    ] {
        assert_eq!(attached.push_record(&mut producer, &record), Pushed::Taken);
    }
    let mut bytes = 0;
    session.drain(|_, record| {
        if let Record::Access { length, .. } = record {
            bytes += length;
        }
    });
    assert_eq!((bytes, session.lost().damaged), (30, 2));
    let control = session.ring(0).expect("a ring").control;
    let [lost_events, lost_bytes] = control.lost();
    lost_events.store(1, Ordering::Relaxed);
    lost_bytes.store(u64::MAX, Ordering::Relaxed);
    let lost = session.lost();
    assert_eq!((lost.events, lost.bytes, lost.damaged), (0, 0, 3));
    lost_bytes.store(5, Ordering::Relaxed);
    let header = session.segment.header();
    header.no_ring.store(u64::MAX, Ordering::Relaxed);
    let lost = session.lost();
    assert_eq!((lost.events, lost.bytes, lost.no_ring), (1, 5, 0));
    assert_eq!((lost.unrecorded(), lost.damaged), (1, 3));
}

#[test]
fn rings_of_the_dead_are_reaped_and_theirs_alone() {
    let mut session = session(8, 1 << 20);
    let attached = attach(&session).expect("attached");
    let (pid, tid) = (Pid::own(), hither_kernel::syscalls::tid());
    let mut old_image = attached.claim(pid, tid, PidNamespace::OWN).expect("a ring");
    let mut alive = attached.claim(pid, tid, PidNamespace::OWN).expect("a ring");
    let mut dead = attached
        .claim(pid, Tid(0x3f_ffff), PidNamespace::OWN)
        .expect("a ring");
    for value in 0..10_000 {
        attached.push_record(&mut dead, &exec(value));
    }
    attached.push_record(&mut old_image, &exec(7));
    attached.push_record(&mut alive, &exec(8));
    assert_eq!(session.reap(|_, _| ()), 10_001);
    assert_eq!(
        attached.push_record(&mut dead, &exec(1)),
        Pushed::NoRing,
        "it was given away"
    );
    assert_eq!(
        attached.push_record(&mut old_image, &exec(1)),
        Pushed::NoRing
    );
    assert_eq!(attached.push_record(&mut alive, &exec(9)), Pushed::Taken);
    assert_eq!(
        drained(&mut session)
            .iter()
            .map(|(_, pid)| *pid)
            .collect::<Vec<_>>(),
        [8, 9]
    );
}

#[test]
fn many_rings_of_the_dead_are_reaped_in_turns() {
    let mut session = session(1 << 14, 1 << 20);
    let attached = attach(&session).expect("attached");
    let threads = 0x3fff_0000..0x3fff_0000 + LOOKUPS_MAX as u32 + 100;
    for tid in std::iter::once(hither_kernel::syscalls::tid().0).chain(threads) {
        let mut producer = attached
            .claim(Pid::own(), Tid(tid), PidNamespace::OWN)
            .expect("a ring");
        attached.push_record(&mut producer, &exec(tid));
    }
    let reaped = [(); 3].map(|()| session.reap(|_, _| ()));
    assert_eq!(reaped, [LOOKUPS_MAX - 1, 101, 0], "one thread is alive");
}

#[test]
fn closed_or_missing_sessions_are_refused() {
    let mut session = session(1, CHUNK_BYTES);
    let attached = attach(&session).expect("attached");
    assert!(attached.recording());
    session.close();
    assert!(!attached.recording());
    assert!(attach(&session).is_none(), "closed");
    let closed = session.name().to_owned();
    drop(session);
    assert!(ProgramSession::open(closed.as_bytes()).is_none(), "gone");
}

#[test]
fn only_the_session_of_that_name_is_attached() {
    let session = session(1, CHUNK_BYTES);
    let name = SessionName::parse(session.name().as_bytes()).expect("a name");
    let open = |name: SessionName| ProgramSession::open(name.to_string().as_bytes());
    assert!(open(name).is_some());
    let nonce = name.nonce ^ 1;
    assert!(open(SessionName { nonce, ..name }).is_none(), "another one");
    let (id, base) = shared_memory::create(1 << 20).expect("a segment");
    assert!(
        open(SessionName { id, ..name }).is_none(),
        "somebody else's"
    );
    // SAFETY: attached there.
    unsafe { shared_memory::keep(base, 1 << 20, 0..0) };
    session.segment.header().magic.store(1, Ordering::Relaxed);
    assert!(open(name).is_none(), "another version's");
}

#[test]
fn a_segment_claims_no_more_than_it_has() {
    let session = session(1, CHUNK_BYTES);
    let header = session.segment.header();
    header.rings.store(1 << 12, Ordering::Relaxed);
    assert!(attach(&session).is_none());
    header.rings.store(1, Ordering::Relaxed);
    assert!(attach(&session).is_some());
}

#[test]
fn what_is_wanted_reaches_the_program() {
    let plain = session(1, CHUNK_BYTES);
    let attached = attach(&plain).expect("attached");
    assert_eq!((attached.region_min(), attached.files()), (0, true));
    assert!(attached.bind_requests().is_none(), "no regions, no orders");
    assert!(!attached.is_unrecorded(FileKey(0xabc0)));
    plain.stop_recording_file(FileKey(0xabc0));
    assert!(attached.is_unrecorded(FileKey(0xabc0)) && !attached.is_unrecorded(FileKey(0xabc4)));
    let mut session = Session::create(SessionOptions {
        files: false,
        region_min: 1 << 20,
        ..SessionOptions::default()
    })
    .expect("a session");
    let attached = attach(&session).expect("attached");
    assert_eq!((attached.region_min(), attached.files()), (1 << 20, false));
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    let region = Record::Region {
        start: Address(1),
        length: 2,
        signature: 3,
        time_ns: 4,
        cpu: 5,
        kind: crate::record::RegionKind::Malloc,
    };
    assert_eq!(attached.push_record(&mut producer, &region), Pushed::Taken);
    attached.count_untracked();
    let mut seen = 0;
    session.drain(|_, record| {
        assert_eq!(record, region);
        seen += 1;
    });
    assert_eq!((seen, session.lost().regions), (1, 1));
    assert!(attached.bind_requests().is_some());
    // Of another pid namespace, where this process's number is another's.
    let header = session.segment.header();
    header.agent.store(0, Ordering::Relaxed);
    let attached = attach(&session).expect("attached");
    assert!(attached.pid_namespace().is_own(), "by its inode");
    header.pid_namespace.fetch_add(1, Ordering::Relaxed);
    let attached = attach(&session).expect("attached");
    assert!(!attached.pid_namespace().is_own());
    assert!(attached.bind_requests().is_none());
}

#[test]
fn options_out_of_range_are_refused() {
    let good = SessionOptions::default();
    for bad in [
        SessionOptions { rings: 0, ..good },
        SessionOptions {
            ring_bytes: 5000,
            ..good
        },
        SessionOptions {
            frames_max: 65,
            ..good
        },
        SessionOptions {
            block_bytes: 5000,
            ..good
        },
        SessionOptions {
            readahead: true,
            ..good
        },
        SessionOptions {
            region_min: 4095,
            ..good
        },
    ] {
        assert_eq!(
            Session::create(bad).expect_err("refused").kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
