//! What is said of what was seen.

use hither_trace::schema::NotRecorded;

use super::*;

/// Of a recording of one process.
fn coverage(recorded: u64, unseen: u64, mapped: u64, programs: &[&str]) -> Coverage {
    let seen = Seen {
        recorded_bytes: recorded,
        unseen_bytes: Some(unseen),
        mapped_bytes: mapped,
        mapped_files: u64::from(mapped > 0),
        ..Seen::default()
    };
    let not_recorded = programs.iter().map(|path| NotRecorded {
        path: (*path).to_owned(),
        reason: "statically linked".to_owned(),
        count: 1,
    });
    let losses = Losses {
        not_recorded: not_recorded.collect(),
        ..Losses::default()
    };
    Coverage::of_recording(&seen, &losses, 1, false)
}

#[test]
fn what_was_not_seen_is_said_and_little_is_not() {
    let mib = 1 << 20;
    let all = coverage(200 * mib, mib, mib, &[]);
    let said = "Seen: all 200.00 MiB that the program read of files.";
    assert_eq!(all.sentence(), said);
    assert_eq!((all.no_verdict(), all.doubt()), (None, None));
    let some = coverage(100 * mib, 0, 20 * mib, &[]);
    assert_eq!(
        some.words(),
        "100.00 MiB that the program read of files; not seen: what was touched of 20.00 MiB \
         in 1 mapped file"
    );
    assert!(some.doubt().is_some() && some.no_verdict().is_none());
    let little = coverage(mib, 450 * mib, 0, &["/bin/busybox"]);
    assert_eq!(
        little.words(),
        "1.00 MiB that the program read of files, 0.2 % or more; not seen: 450.00 MiB read \
         of files or pipes by calls that the recorder did not see (/bin/busybox: statically \
         linked)"
    );
    let told = little.no_verdict().expect("no verdict");
    assert!(
        told.contains("strace") && !told.contains("--maps"),
        "{told}"
    );
}

#[test]
fn unknown_call_sites_are_said_unless_they_are_few() {
    let of = |unknown_sites| {
        let seen = Seen {
            recorded_bytes: 1 << 20,
            unseen_bytes: Some(0),
            kernel_events: true,
            accesses: 200,
            unknown_sites,
            ..Seen::default()
        };
        Coverage::of_recording(&seen, &Losses::default(), 1, false).words()
    };
    let seen = "all 1.00 MiB read of the page cache, by the kernel's events";
    assert_eq!(of(2), seen);
    assert_eq!(
        of(24),
        format!(
            "{seen}; the call sites of 12.0 % of the accesses are not known, but for program and \
             file"
        )
    );
}

#[test]
fn a_kernel_without_events_of_touches_leaves_it_open_what_was_read() {
    let mut seen = Seen {
        recorded_bytes: 1 << 20,
        unseen_bytes: Some(0),
        kernel_events: true,
        ..Seen::default()
    };
    let of = |seen: &Seen| Coverage::of_recording(seen, &Losses::default(), 1, false);
    assert!(!of(&seen).is_open_ended());
    seen.touches_unseen = true;
    let coverage = of(&seen);
    assert!(coverage.is_open_ended());
    assert_eq!(
        coverage.words(),
        "1.00 MiB read of the page cache, by the kernel's events; not seen: touches of mapped \
         files, which this kernel does not report"
    );
}

#[test]
fn what_is_cached_of_mapped_files_is_told_and_proves_nothing() {
    let mut seen = Seen {
        recorded_bytes: 30 << 20,
        unseen_bytes: Some(0),
        mapped_files: 2,
        mapped_bytes: 900 << 20,
        mapped_cached_bytes: Some(10 << 20),
        ..Seen::default()
    };
    let of = |seen: &Seen| Coverage::of_recording(seen, &Losses::default(), 1, false);
    let told = of(&seen);
    let words = "what was touched of 900.00 MiB in 2 mapped files, of which 10.00 MiB are cached";
    assert!(told.words().contains(words), "{}", told.words());
    assert!(told.no_verdict().is_some());
    seen.mapped_cached_bytes = None;
    assert!(!of(&seen).words().contains("cached"));
}

#[test]
fn what_bypasses_the_page_cache_is_not_for_it_to_cache() {
    let mut seen = Seen {
        recorded_bytes: 100 << 20,
        direct_bytes: 20 << 20,
        unseen_bytes: Some(0),
        ..Seen::default()
    };
    let of = |seen: &Seen| Coverage::of_recording(seen, &Losses::default(), 1, false);
    let some = of(&seen);
    let words = "(20.00 MiB of it past the page cache, by O_DIRECT)";
    assert!(some.words().contains(words), "{}", some.words());
    assert!(
        some.doubt()
            .is_some_and(|doubt| doubt.starts_with("20.0 %"))
    );
    assert_eq!(some.no_verdict(), None);
    seen.direct_bytes = 60 << 20;
    let told = of(&seen).no_verdict().expect("no verdict");
    assert!(told.contains("60.00 MiB bypass the page cache"), "{told}");
}

#[test]
fn what_storage_delivered_beside_the_records_was_read_by_io_uring() {
    let mut seen = Seen {
        recorded_bytes: 10 << 20,
        unseen_bytes: Some(0),
        mapped_bytes: 2 << 20,
        mapped_files: 1,
        storage_bytes: Some(512 << 20),
        ..Seen::default()
    };
    let of = |seen: &Seen| Coverage::of_recording(seen, &Losses::default(), 1, false);
    assert_eq!(of(&seen).io_uring_bytes, 0, "readahead, perhaps");
    seen.io_uring_processes = 1;
    let by_ring = of(&seen);
    assert_eq!(by_ring.io_uring_bytes, 500 << 20);
    let words = "io_uring, up to 500.00 MiB from storage";
    assert!(by_ring.words().contains(words), "{}", by_ring.words());
    assert!(by_ring.no_verdict().is_some());
    seen.storage_bytes = Some(11 << 20);
    assert_eq!(of(&seen).no_verdict(), None);
}

#[test]
fn starts_of_programs_are_left_out_unless_one_was_not_recorded() {
    assert_eq!(
        coverage(0, 7000, 0, &[]).words(),
        "all; nothing was read of files"
    );
    let words = coverage(0, 7000, 0, &["/bin/busybox"]).words();
    assert!(words.contains("not seen: 6.84 KiB"), "{words}");
}

#[test]
fn what_is_lost_is_said_with_its_causes() {
    assert_eq!(lost(&Losses::default()), None);
    let mut losses = Losses {
        dropped_events: 1500,
        dropped_bytes: 2 << 20,
        ..Losses::default()
    };
    let of_another_version = lost(&losses).expect("some");
    assert_eq!(of_another_version, "1,500 accesses, which moved 2.00 MiB");
    losses.dropped_ring_full = 1500;
    assert_eq!(
        lost(&losses).expect("some"),
        "1,500 accesses, which moved 2.00 MiB: the recorder got too little CPU time to take \
         them in"
    );
    (losses.dropped_ring_full, losses.dropped_no_ring) = (1000, 500);
    assert_eq!(
        lost(&losses).expect("some"),
        "1,500 accesses, which moved 2.00 MiB: 1,000 since the recorder got too little CPU \
         time to take them in, 500 since there was no buffer or no memory for their threads"
    );
}

#[test]
fn the_lost_share_is_that_of_accesses_or_of_bytes_whichever_is_more() {
    let share = |events, bytes| {
        let losses = Losses {
            dropped_events: events,
            dropped_bytes: bytes,
            ..Losses::default()
        };
        lost_share(&losses, 999, 99)
    };
    assert_eq!([share(0, 0), share(1, 0), share(1, 1)], [0.0, 0.001, 0.01]);
}

#[test]
fn lost_writes_are_not_unseen_reads() {
    let seen = Seen {
        recorded_bytes: 1 << 20,
        unseen_bytes: Some(0),
        ..Seen::default()
    };
    let losses = Losses {
        dropped_bytes: 8 << 30,
        ..Losses::default()
    };
    let coverage = Coverage::of_recording(&seen, &losses, 1, false);
    assert_eq!(coverage.share, 1.0);
    assert_eq!(coverage.no_verdict(), None);
    assert!(
        coverage
            .words()
            .ends_with("lost accesses, which moved 8.00 GiB")
    );
}

#[test]
fn mappings_that_count_as_reads_are_seen() {
    let seen = Seen {
        unseen_bytes: Some(0),
        mapped_bytes: 64 << 20,
        mapped_files: 1,
        ..Seen::default()
    };
    let coverage = Coverage::of_recording(&seen, &Losses::default(), 1, true);
    assert_eq!(
        coverage.words(),
        "all 0 B that the program read of files, and 64.00 MiB in 1 mapped file, each mapping \
         taken for one read"
    );
    assert_eq!(coverage.no_verdict(), None);
}

#[test]
fn reads_by_io_uring_are_in_no_figure_and_a_doubt() {
    let mut ring = coverage(0, 0, 0, &[]);
    ring.io_uring_processes = 2;
    let words = ring.words();
    let ends = "files; not seen: what 2 processes may have read by io_uring";
    assert!(words.ends_with(ends), "{words}");
    let told = ring.no_verdict().expect("no verdict");
    assert!(told.contains("without io_uring"), "{told}");
    ring.recorded_bytes = 1 << 30;
    assert!(ring.no_verdict().is_none());
    let doubt = ring.doubt().expect("a doubt");
    assert!(doubt.starts_with("2 processes may have read"), "{doubt}");
}

#[test]
fn a_trace_that_was_cut_says_so_first_and_is_a_doubt() {
    let cut = |lost| Cut {
        time_ns: 1_500_000_000,
        reason: "the disk was full".to_owned(),
        ran_ns: Some(6_000_000_000),
        lost_accesses: Some(1234),
        lost_read_bytes: Some(lost),
    };
    let of = |recorded, lost| coverage(recorded, 0, 0, &[]).with_cut(Some(cut(lost)));
    let most = of(99 << 20, 1 << 20);
    let says = "cut after 1.50 s of 6.00 s, because the disk was full (1,234 later accesses \
                lost, which read 1.00 MiB)";
    let seen = "99.00 MiB that the program read of files until then";
    assert_eq!(most.words(), format!("{says}; {seen}"));
    assert_eq!(most.share, 0.99);
    let doubt = format!("the recording is {says}");
    assert_eq!(most.doubt(), Some(doubt));
    assert_eq!(most.no_verdict(), None);
    assert!(of(1 << 20, 99 << 20).no_verdict().is_some());
    assert!(of(0, 0).no_verdict().is_some(), "nothing is known");

    let killed = Cut {
        time_ns: 1_500_000_000,
        reason: "the recorder was killed".to_owned(),
        ..Cut::default()
    };
    let killed = coverage(1 << 20, 0, 0, &[]).with_cut(Some(killed));
    let says = "cut after 1.50 s, because the recorder was killed; ";
    assert!(killed.words().starts_with(says), "{}", killed.words());
    assert!(killed.doubt().is_some() && killed.no_verdict().is_none());
}

#[test]
fn touches_of_mapped_files_are_seen_and_said_to_be_sampled() {
    let mut seen = Seen {
        recorded_bytes: 1 << 20,
        unseen_bytes: Some(0),
        mapped_bytes: 64 << 20,
        mapped_files: 2,
        touches: Some(Touches {
            interval_ns: 100_000_000,
            ..Touches::default()
        }),
        ..Seen::default()
    };
    let of = |seen: &Seen| Coverage::of_recording(seen, &Losses::default(), 1, false);
    assert_eq!(
        of(&seen).words(),
        "all 1.00 MiB that the program read of files, and touches of 64.00 MiB in 2 mapped \
         files, sampled at least every 100 ms"
    );
    assert_eq!((of(&seen).no_verdict(), of(&seen).doubt()), (None, None));
    let first = |files| Touches {
        first_only_files: files,
        ..seen.touches.expect("recorded")
    };
    (seen.touches, seen.mapped_files) = (Some(first(1)), 2);
    let words = of(&seen).words();
    assert!(
        words.ends_with("of 1 of them only the first by each process"),
        "{words}"
    );
    seen.touches = seen.touches.map(|touches| Touches {
        first_only_files: 2,
        ..touches
    });
    let words = of(&seen).words();
    assert!(
        words.ends_with("mapped files, only the first by each process"),
        "{words}"
    );
    assert!(of(&seen).doubt().is_some());
    seen.touches = seen.touches.map(|touches| Touches {
        first_only_files: 0,
        unseen_files: 1,
        unseen_bytes: 60 << 20,
        ..touches
    });
    assert_eq!(
        of(&seen).words(),
        "1.00 MiB that the program read of files, and touches of 4.00 MiB in 1 mapped file, \
         sampled at least every 100 ms; not seen: what was touched of 60.00 MiB in 1 mapped \
         file"
    );
    let told = of(&seen).no_verdict().expect("no verdict");
    assert!(!told.contains("`record --mapped`"), "{told}");
    seen.touches = seen.touches.map(|touches| Touches {
        unseen_files: 2,
        unseen_bytes: 64 << 20,
        ..touches
    });
    let words = of(&seen).words();
    assert!(!words.contains("touches of"), "{words}");
    seen.touches = None;
    let told = of(&seen).no_verdict().expect("no verdict");
    assert!(told.contains("`record --mapped`"), "{told}");
}

#[test]
fn a_daemon_that_goes_on_is_said_and_a_doubt() {
    let mut daemon = coverage(0, 0, 0, &[]);
    daemon.left_running = 1;
    let words = daemon.words();
    let ends = "files; not seen: 1 process that went on when the program had ended";
    assert!(words.ends_with(ends), "{words}");
    assert!(daemon.no_verdict().is_some() && daemon.doubt().is_some());
    daemon.recorded_bytes = 1 << 30;
    assert!(daemon.no_verdict().is_none() && daemon.doubt().is_some());
}

#[test]
fn where_the_total_is_unknown_there_is_no_verdict() {
    let static_program = Losses {
        not_recorded: vec![NotRecorded {
            path: "/bin/restic".to_owned(),
            reason: "statically linked".to_owned(),
            count: 1,
        }],
        ..Losses::default()
    };
    let mut seen = Seen {
        recorded_bytes: 3000,
        ..Seen::default()
    };
    // The kernel did not count at all: whoever was recorded, others may have read more.
    for losses in [&Losses::default(), &static_program] {
        let blind = Coverage::of_recording(&seen, losses, 1, false);
        let words = blind.words();
        assert!(
            words.ends_with("does not say how much it read in all"),
            "{words}"
        );
        let told = blind.no_verdict().expect("no verdict");
        assert!(told.contains("is not known"), "{told}");
    }
    // It counted less than was recorded: what a static program read may be hidden there.
    seen.called_bytes = Some(2000);
    let hidden = Coverage::of_recording(&seen, &static_program, 1, false);
    assert!(hidden.no_verdict().is_some());
    let orphans = Coverage::of_recording(&seen, &Losses::default(), 1, false);
    assert!(orphans.no_verdict().is_none());
    assert!(orphans.doubt().is_some() && orphans.is_open_ended());
    // A trace that is cut has no count, and says itself that it is not whole.
    let cut = Cut {
        time_ns: 1,
        reason: "the recorder was killed".to_owned(),
        ran_ns: None,
        lost_accesses: None,
        lost_read_bytes: None,
    };
    let cut = Coverage::of_recording(&seen, &static_program, 1, false).with_cut(Some(cut));
    assert!(cut.doubt().is_some());
    assert!(
        !cut.no_verdict()
            .is_some_and(|told| told.contains("is not known"))
    );
}
