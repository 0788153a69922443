//! Large allocations under the preload library: what it records of them, and that programs behave
//! the same.

mod bind_requests;
mod programs;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hither_session::record::{Record, RegionKind};

use crate::support::{
    Recording, Run, check_same, compile, follow, pages_library, placed, regions_session,
};

const MIB: u64 = 1 << 20;

/// Runs a program whose regions are tracked from this size on.
fn track(region_min: u64, program: &Path, arguments: &[&str]) -> Run {
    let session = regions_session(region_min);
    let mut command = placed(&session, program);
    command.args(arguments);
    follow(session, command)
}

/// As [`track`], for programs that always say the same.
fn track_same(region_min: u64, program: &Path, arguments: &[&str]) -> Recording {
    let run = track(region_min, program, arguments);
    check_same(&run, std::process::Command::new(program).args(arguments));
    run.recording
}

fn said(run: &Run) -> Vec<Vec<String>> {
    assert!(run.output.status.success(), "{:?}", run.output);
    String::from_utf8_lossy(&run.output.stdout)
        .lines()
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect()
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Start, length, signature and kind of all regions that began.
fn begun(recording: &Recording) -> Vec<(u64, u64, u64, RegionKind)> {
    recording
        .regions
        .iter()
        .filter_map(|(_, _, record)| match *record {
            Record::Region {
                start,
                length,
                signature,
                kind,
                ..
            } => Some((start.0, length, signature, kind)),
            _ => None,
        })
        .collect()
}

/// Replays the regions of all processes by time: none begins where one is, and nothing ends that is
/// none. Returns those left.
fn replay(recording: &Recording) -> BTreeMap<(u32, u64), u64> {
    let mut events: Vec<_> = recording
        .regions
        .iter()
        .filter_map(|(pid, _, record)| match *record {
            Record::Region {
                start,
                length,
                time_ns,
                ..
            } => Some((time_ns, *pid, start.0, length, true)),
            Record::RegionEnd {
                start,
                length,
                time_ns,
            } => Some((time_ns, *pid, start.0, length, false)),
            _ => None,
        })
        .collect();
    events.sort_by_key(|event| event.0);
    let mut live: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for (_, pid, start, length, begins) in events {
        let end = start + length;
        let inside: Vec<(u64, u64)> = live
            .range((pid, 0)..(pid, end))
            .map(|(&(_, start), &end)| (start, end))
            .filter(|&(_, other)| other > start)
            .collect();
        if begins {
            assert!(inside.is_empty(), "{start:x}..{end:x} over {inside:x?}");
            live.insert((pid, start), end);
            continue;
        }
        let covered: u64 = inside
            .iter()
            .map(|&(from, to)| to.min(end) - from.max(start))
            .sum();
        assert_eq!(covered, length, "{start:x}..{end:x} ends {inside:x?}");
        for (from, to) in inside {
            live.remove(&(pid, from));
            if from < start {
                live.insert((pid, from), start);
            }
            if to > end {
                live.insert((pid, end), to);
            }
        }
    }
    live
}

#[test]
fn every_function_gives_a_region_with_its_site() {
    for flags in [&["-O0"][..], &["-O2", "-fno-builtin"]] {
        let program = compile("regions.c", flags);
        let run = track(MIB, &program, &[]);
        let expected: Vec<_> = said(&run)
            .iter()
            .map(|line| {
                let kind = match line[1].as_str() {
                    "map" => RegionKind::Map,
                    _ => RegionKind::Malloc,
                };
                (number(&line[2]), number(&line[3]), kind)
            })
            .collect();
        assert_eq!(expected.len(), 11);
        let begun = begun(&run.recording);
        let mut signatures = BTreeSet::new();
        for (start, length, kind) in &expected {
            let of: Vec<_> = begun
                .iter()
                .filter(|region| (region.0, region.1, region.3) == (*start, *length, *kind))
                .collect();
            // "kept" was resized in vain, and is announced again; reallocarray is, after its
            // realloc.
            let Some(region) = of.last() else {
                panic!("{start} {length} {kind:?}: {begun:?}")
            };
            assert!(
                signatures.insert(region.2),
                "each call is a site of its own"
            );
            let innermost = run.recording.sites[&region.2][0];
            assert_eq!(run.recording.modules[&innermost], program, "{flags:?}");
        }
        // Those that were freed at the end are known too, and what reallocarray's realloc had;
        // nothing else is.
        assert_eq!(begun.len(), expected.len() + 4, "{flags:?}: {begun:?}");
        assert_eq!(run.recording.lost, Default::default());
        replay(&run.recording);
        let again = track(MIB, &program, &[]).recording;
        let sites: BTreeSet<u64> = self::begun(&again).iter().map(|region| region.2).collect();
        assert!(signatures.is_subset(&sites), "the same in every run");
    }
}

#[test]
fn regions_end_when_and_where_they_do() {
    let program = compile("lives.c", &["-O1"]);
    for mode in [
        "free",
        "other-thread",
        "realloc",
        "unmap",
        "fixed",
        "mremap",
        "advise",
        "unseen",
    ] {
        let run = track(MIB, &program, &[mode]);
        let mut expected: Vec<(bool, u64, u64)> = said(&run)
            .iter()
            .map(|line| {
                let (sign, start) = line[0].split_at(1);
                (sign == "+", number(start), number(&line[1]))
            })
            .collect();
        let mut found: Vec<(bool, u64, u64)> = run
            .recording
            .regions
            .iter()
            .map(|(_, _, record)| match *record {
                Record::Region { start, length, .. } => (true, start.0, length),
                Record::RegionEnd { start, length, .. } => (false, start.0, length),
                other => panic!("{other:?}"),
            })
            .collect();
        // What ends at once, ends in any order; and threads have rings of their own.
        for events in [&mut expected, &mut found] {
            for ends in events.chunk_by_mut(|one, other| !one.0 && !other.0) {
                ends.sort_unstable();
            }
            if mode == "other-thread" {
                events.sort_unstable();
            }
        }
        assert_eq!(found, expected, "{mode}");
        replay(&run.recording);
        assert_eq!(run.recording.lost, Default::default(), "{mode}");
    }
}

#[test]
fn what_is_resized_keeps_the_site_of_its_first_allocation() {
    let program = compile("lives.c", &["-O1"]);
    for mode in ["realloc", "mremap"] {
        let recording = track(MIB, &program, &[mode]).recording;
        let sites: BTreeSet<u64> = begun(&recording).iter().map(|region| region.2).collect();
        // "mremap" makes two mappings.
        assert_eq!(sites.len(), if mode == "realloc" { 1 } else { 2 });
    }
}

#[test]
fn a_storm_of_everything_leaves_every_byte_in_place() {
    let program = compile("storm.c", &["-O2"]);
    let recording = track_same(64 << 10, &program, &["1", "2000"]);
    assert!(recording.regions.len() > 500);
    assert_eq!(recording.lost, Default::default());
    assert!(replay(&recording).is_empty(), "all were freed");
    let recording = track_same(64 << 10, &program, &["8", "400"]);
    assert_eq!(recording.lost, Default::default());
    assert!(replay(&recording).is_empty(), "all were freed");
}

#[test]
fn two_hundred_threads_allocate_and_free_each_others() {
    let program = compile("threads_regions.c", &["-O1"]);
    let recording = track_same(MIB, &program, &["200"]);
    assert_eq!(begun(&recording).len(), 2000);
    assert!(replay(&recording).is_empty());
    assert_eq!(recording.lost, Default::default());
    let threads: BTreeSet<u32> = recording.regions.iter().map(|region| region.1).collect();
    assert_eq!(threads.len(), 200);
}

#[test]
fn more_regions_than_there_is_room_for_are_counted_and_harmless() {
    let hoard = compile("hoard.c", &["-O1"]);
    let recording = track_same(4096, &hoard, &["5000"]);
    assert!(
        recording.lost.regions >= 5000 - 4096,
        "{:?}",
        recording.lost
    );
    // Its output's buffer is a page, too.
    assert!(replay(&recording).len() <= 1);
}

#[test]
fn children_announce_what_is_theirs() {
    let program = compile("heirs.c", &["-O1"]);
    for (mode, processes) in [("fork", 3), ("exec", 2), ("vfork", 2), ("spawn", 2)] {
        let run = track(MIB, &program, &[mode]);
        let expected: BTreeSet<(u32, u64, u64)> = said(&run)
            .iter()
            .map(|line| (number(&line[0]) as u32, number(&line[1]), number(&line[2])))
            .collect();
        assert_eq!(expected.len(), processes, "{mode}");
        let mut live = BTreeSet::new();
        for (pid, _, record) in &run.recording.regions {
            match *record {
                Record::Region { start, length, .. } => {
                    assert!(expected.contains(&(*pid, start.0, length)), "{mode}");
                    assert!(live.insert((*pid, start, length)), "{mode}: twice");
                }
                Record::RegionEnd { start, length, .. } => {
                    assert!(live.remove(&(*pid, start, length)), "{mode}: not its own");
                }
                other => panic!("{mode}: {other:?}"),
            }
        }
        assert_eq!(begun(&run.recording).len(), processes, "{mode}");
    }
}

#[test]
fn new_of_cpp_is_seen_with_its_site() {
    let program = compile("new.cc", &["-O1", "-std=c++17"]);
    let run = track(MIB, &program, &[]);
    let said = said(&run);
    let begun = begun(&run.recording);
    assert_eq!(begun.len(), 3, "{begun:?}");
    for (line, (start, length, signature, _)) in said.iter().zip(&begun) {
        // What new[] notes in front of its elements is part of the allocation.
        assert!(*start <= number(&line[0]));
        assert!(number(&line[0]) + number(&line[1]) <= start + length);
        let frames = &run.recording.sites[signature];
        let by_program = frames
            .chunks_exact(2)
            .any(|frame| run.recording.modules[&frame[0]] == program);
        assert!(by_program, "{frames:x?}");
    }
    assert_eq!(said[3], ["caught"]);
}

#[test]
fn a_program_with_its_own_malloc_keeps_it() {
    let linked = compile("allocator.c", &["-O1", "-fno-builtin", "-DMAIN"]);
    let recording = track_same(MIB, &linked, &[]);
    let kinds: Vec<_> = begun(&recording).iter().map(|region| region.3).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|&kind| kind == RegionKind::Map));

    // As a library in front of ours, and behind it.
    let library = compile("allocator.c", &["-O1", "-shared", "-fPIC"]);
    let program = compile("storm.c", &["-O2"]);
    for (in_front, threads) in [(true, "1"), (true, "2"), (false, "1"), (false, "2")] {
        let plain = std::process::Command::new(&program)
            .args([threads, "100"])
            .output()
            .expect("runs");
        let session = regions_session(64 << 10);
        let mut command = placed(&session, &program);
        let libraries = if in_front {
            [&*library, pages_library()]
        } else {
            [pages_library(), &*library]
        };
        let libraries = libraries.map(|path| path.to_str().expect("text")).join(":");
        // Its blocks know nothing of malloc_usable_size, which stays libc's.
        command.args([threads, "100"]).env("LD_PRELOAD", libraries);
        command.env("STORM_WITHOUT_USABLE", "1");
        let run = follow(session, command);
        assert_eq!(run.output.stdout, plain.stdout, "{:?}", run.output);
        if threads == "1" {
            // Two may be given parts of one mapping at once: then one of the parts may still be
            // taken for what is left of it.
            replay(&run.recording);
        }
        let kinds: BTreeSet<bool> = begun(&run.recording)
            .iter()
            .map(|region| region.3 == RegionKind::Malloc)
            .collect();
        assert!(kinds.contains(&false), "its mappings");
        // In front it has no reallocarray, which is then ours.
        assert!(in_front || kinds.contains(&true), "its blocks");
    }
}

/// A block of the program's own allocator, of which the library knows nothing.
#[test]
fn a_block_is_resized_while_another_thread_finds_the_functions() {
    let program = compile("finding.c", &["-O2", "-fno-builtin", "-rdynamic"]);
    assert_eq!(said(&track(64 << 10, &program, &[])), [["kept"]]);
}

#[test]
fn sanitized_programs_are_left_to_their_sanitizer() {
    let program = compile("sanitized.c", &["-O1", "-g", "-fsanitize=address"]);
    for wrong in [false, true] {
        let session = regions_session(MIB);
        let mut command = placed(&session, &program);
        command.env("ASAN_OPTIONS", "verify_asan_link_order=0");
        if wrong {
            command.arg("wrong");
        }
        let run = follow(session, command);
        let errors = String::from_utf8_lossy(&run.output.stderr).into_owned();
        if wrong {
            assert!(errors.contains("heap-buffer-overflow"), "{errors}");
            assert!(errors.contains("4194304-byte region"), "{errors}");
        } else {
            assert!(run.output.status.success(), "{:?}", run.output);
            assert_eq!(run.output.stdout, b"fine 0\n");
        }
        assert!(run.recording.regions.is_empty());
    }
}

#[test]
fn a_session_that_wants_no_regions_gets_none() {
    let program = compile("lives.c", &["-O1"]);
    let session = crate::support::session(1 << 20);
    let mut command = placed(&session, &program);
    command.arg("realloc");
    let run = follow(session, command);
    assert!(run.output.status.success());
    assert!(run.recording.regions.is_empty());
}

#[test]
fn without_a_session_the_library_does_nothing() {
    for (name, arguments) in [("storm.c", &["2", "300"][..]), ("lives.c", &["unmap"])] {
        let program = compile(name, &["-O2"]);
        let output = std::process::Command::new(&program)
            .args(arguments)
            .env("LD_PRELOAD", pages_library())
            .env_remove("HITHER_SESSION")
            .output()
            .expect("runs");
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty());
    }
}
