//! The sources that stand in for each other see the same, and each says what it does not see.

#[path = "support/program.rs"]
mod program;
#[path = "support/report.rs"]
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hither_ids::Pid;
use hither_kernel_events::{Kind, Observer, Options, Probe, Scope, Source};
use hither_testing::skip::skip_on_this_machine;

use program::{Scratch, TestFile};
use report::{Report, by, inode, observe, sources};

/// All ways to read a file, in the order in which a program tries them.
const CALLS: &str = "read,pread,readv,preadv,preadv2,preadv2 at position,sendfile,\
                     sendfile at position,splice,splice at position";

#[test]
fn each_source_sees_the_pages_of_each_call() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    // Three pages, two bytes on an edge, and what goes beyond the end.
    let reads = [(4096, 3 * 4096), (10 * 4096 - 1, 2), (60 * 4096, 8 * 4096)];
    let once = [(1, 3), (9, 10), (60, 63)];
    for source in sources(Kind::Read) {
        for cached in [true, false] {
            let file = scratch.file(&format!("{source} {cached}"), 64, cached);
            let report = observe(scratch.start(CALLS, &file, &reads), by(source));
            let mut expected = BTreeMap::new();
            for (first, last) in once {
                (first..=last).for_each(|page| *expected.entry(page).or_insert(0) += 10);
            }
            let counts = report.counts(Kind::Read, &file);
            assert_eq!(counts, expected, "{source}, cached: {cached}");
            // Those of the read(2) family are one event each.
            let ranges = report.ranges(Kind::Read, &file);
            let of_calls: Vec<_> = once.iter().cycle().take(6 * 3).copied().collect();
            assert_eq!(ranges[..18], of_calls, "{source}, cached: {cached}");
        }
    }
}

#[test]
fn a_copy_in_the_kernel_and_a_long_sendfile_are_seen() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 100, true);
    let once: BTreeMap<u64, u32> = (10..60).map(|page| (page, 1)).collect();
    for source in sources(Kind::Read) {
        for mode in ["sendfile", "copy_file_range"] {
            let program = scratch.start(mode, &file, &[(10 * 4096, 50 * 4096)]);
            let report = observe(program, by(source));
            assert_eq!(report.counts(Kind::Read, &file), once, "{mode} {source}");
        }
    }
}

#[test]
fn what_does_not_come_from_the_page_cache_is_no_read() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 10, true);
    let of = |path: &str| TestFile {
        path: PathBuf::from(path),
    };
    let reads_of = |source, mode: &str, file: &TestFile| {
        let options = Options {
            kinds: vec![Kind::Read],
            ..by(source)
        };
        let program = scratch.start(mode, file, &[(4096, 4096)]);
        observe(program, options).pages.len()
    };
    let memory = Path::new("/dev/shm").join(format!("hither-events-{}", std::process::id()));
    fs::write(&memory, vec![7; 3 * 4096]).unwrap();
    let memory = TestFile { path: memory };
    for source in sources(Kind::Read) {
        assert_eq!(reads_of(source, "pread", &file), 1, "{source}");
        assert_eq!(reads_of(source, "pread", &memory), 0, "{source}");
        for made in ["/proc/kallsyms", "/sys/kernel/btf/vmlinux"] {
            let reads = reads_of(source, "pread", &of(made));
            assert_eq!(reads, 0, "{made} {source}");
        }
        assert_eq!(reads_of(source, "direct", &file), 0, "{source}");
        // Its number is that of readv(2) in the calls of 64 bits.
        assert_eq!(reads_of(source, "32 bits", &file), 0, "{source}");
    }
    fs::remove_file(&memory.path).unwrap();
}

#[test]
fn a_file_of_an_overlay_is_read_from_its_layer() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("lower/data", 10, true);
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
        let folder = scratch.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder.display().to_string()
    });
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mount = ["-t", "overlay", "overlay", "-o", &layers, &merged];
    let mounted = Command::new("mount").args(mount).status().unwrap();
    if !mounted.success() {
        skip_on_this_machine("overlayfs cannot be mounted");
        return;
    }
    let over = TestFile {
        path: Path::new(&merged).join("data"),
    };
    let seen = sources(Kind::Read).into_iter().map(|source| {
        let program = scratch.start("read,pread", &over, &[(4096, 4096)]);
        (source, observe(program, by(source)))
    });
    let seen: Vec<_> = seen.collect();
    let unmounted = Command::new("umount").arg(&merged).status().unwrap();
    assert!(unmounted.success());
    for (source, report) in seen {
        let ranges = report.ranges(Kind::Read, &file);
        assert_eq!(ranges, [(1, 1), (1, 1)], "{source}");
    }
}

#[test]
fn functions_see_the_touches_that_tracepoints_see() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let by_sources = sources(Kind::Fault);
    if by_sources.len() < 2 {
        skip_on_this_machine("faults have one source");
        return;
    }
    for cached in [true, false] {
        let file = scratch.file(&format!("{cached}"), 300, cached);
        let program = scratch.start("mmap", &file, &[(16 * 4096, 300 * 4096 - 16 * 4096)]);
        let scope = Scope::Processes(vec![Pid(program.id())]);
        let mut observers: Vec<_> = by_sources
            .iter()
            .map(|source| {
                let options = Options {
                    scope: scope.clone(),
                    kinds: vec![Kind::Fault, Kind::Map],
                    ..by(*source)
                };
                Observer::new(&options).unwrap()
            })
            .collect();
        program.run();
        let touches = observers.iter_mut().map(|observer| {
            let mut report = Report::of(observer);
            let inode = inode(&file.path);
            report.pages.retain(|event| event.file.inode == inode);
            report.pages
        });
        let touches: Vec<_> = touches.collect();
        assert!(!touches[0].is_empty());
        assert_eq!(touches[0], touches[1], "cached: {cached}");
    }
}

#[test]
fn the_best_source_is_taken_and_another_on_request() {
    let Some(_scratch) = Scratch::new() else {
        return;
    };
    let observer = |source| {
        Observer::new(&Options {
            scope: Scope::Processes(vec![Pid(1)]),
            source,
            ..Options::default()
        })
        .unwrap()
    };
    let best = observer(None);
    for kind in [Kind::Read, Kind::Fault, Kind::Map] {
        assert_eq!(best.source(kind), sources(kind).first().copied());
    }
    // Without reads, faults alone are refused where they have no source.
    let by_calls = observer(Some(Source::SystemCalls));
    assert_eq!(by_calls.source(Kind::Read), Some(Source::SystemCalls));
    assert_eq!(by_calls.source(Kind::Fault), None);
    assert_eq!(by_calls.source(Kind::Dirty), Some(Source::Tracepoint));
    let unseen: Vec<_> = by_calls.unseen().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(unseen, [Kind::Fault, Kind::Map]);
    let options = Options {
        kinds: vec![Kind::Fault],
        ..by(Source::SystemCalls)
    };
    assert!(Observer::new(&options).is_err());
}

#[test]
fn reads_without_a_source_are_an_error() {
    let Some(_scratch) = Scratch::new() else {
        return;
    };
    let probe = Probe::run();
    let is_there = probe.sources(Kind::Read).any(|of| of == Source::Function);
    if is_there {
        skip_on_this_machine("functions can be observed here");
        return;
    }
    let error = Observer::new(&by(Source::Function)).err().unwrap();
    let text = error.with_causes();
    assert!(text.contains("function filemap_read"), "{text}");
}

#[test]
fn the_probe_finds_what_works() {
    let Some(_scratch) = Scratch::new() else {
        return;
    };
    let probe = Probe::run();
    eprint!("{probe}");
    assert!(probe.is_possible(), "{probe}");
    // Without a tracepoint or a function, mapped files are not seen. All else is.
    let by_calls = [Some(Source::SystemCalls)];
    let is_seen = |kind| probe.source(kind).is_some();
    let only_calls = by_calls.contains(&probe.source(Kind::Read));
    for kind in Kind::all() {
        let is_touch = matches!(kind, Kind::Fault | Kind::Map);
        assert!(is_seen(kind) || is_touch && only_calls, "{kind:?}: {probe}");
    }
}
