//! Static programs access known pages, and the events that come of it are compared with them.

#[path = "support/program.rs"]
mod program;
#[path = "support/report.rs"]
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hither_ids::Pid;
use hither_kernel_events::event::{Device, What};
use hither_kernel_events::stack::{Check, STACK_BYTES_MAX, StackPlace};
use hither_kernel_events::{
    Cgroup, Kind, KnownStack, Mounts, Observer, Options, Sampling, Scope, Source, UserStack,
};
use hither_testing::skip::skip_on_this_machine;

use program::{Scratch, TestFile};
use report::{Pages, Report, by, inode, observe, sources};

#[test]
fn a_request_is_reported_once_with_the_pages_that_it_reads() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 600, true);
    // A page three times, two pages by their edge, more than the kernel does in one batch, and more
    // than the file has.
    let reads = [
        (20480, 4096),
        (20480, 4096),
        (20480, 4096),
        (8191, 2),
        (0, 1 << 20),
        (2_400_000, 1 << 20),
    ];
    let expected = [(5, 5), (5, 5), (5, 5), (1, 2), (0, 255), (585, 599)];
    for source in sources(Kind::Read) {
        let report = observe(scratch.start("pread", &file, &reads), by(source));
        assert_eq!(report.ranges(Kind::Read, &file), expected, "{source}");
        // The same requests of what is not cached.
        for mode in ["pread", "read"] {
            let file = scratch.file(&format!("{mode} {source}"), 600, false);
            let report = observe(scratch.start(mode, &file, &reads), by(source));
            assert_eq!(
                report.ranges(Kind::Read, &file),
                expected,
                "{mode} {source}"
            );
        }
    }
}

#[test]
fn the_rest_of_a_file_twice_is_two_requests() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 8, true);
    let reads = [(0, 32768), (4096, 28672), (28672, 4096)];
    for source in sources(Kind::Read) {
        let report = observe(scratch.start("pread", &file, &reads), by(source));
        let ranges = report.ranges(Kind::Read, &file);
        assert_eq!(ranges, [(0, 7), (1, 7), (7, 7)], "{source}");
    }
}

#[test]
fn events_have_the_user_stack_where_it_is_asked_for() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 1, true);
    let stack = |stack_bytes, mode| {
        let program = scratch.start(mode, &file, &[(0, 4096)]);
        let options = Options {
            stack_bytes,
            ..Options::default()
        };
        let report = observe(program, options);
        let all = report.pages.iter();
        let events: Vec<&Pages> = all
            .filter(|event| event.file.inode == inode(&file.path))
            .collect();
        assert_eq!(events.len(), 1);
        events[0].stack
    };
    assert_eq!(stack(0, "pread"), None);
    assert_eq!(stack(256, "pread"), Some((true, 256)));
    // It ends where the stack does.
    let (in_call, bytes) = stack(STACK_BYTES_MAX, "mmap").unwrap();
    assert!(!in_call && (256..=STACK_BYTES_MAX.into()).contains(&bytes));
}

#[test]
fn a_stack_that_is_known_comes_by_its_name() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 1, true);
    let program = scratch.start("time", &file, &[(0, 200_000)]);
    let mut observer = Observer::new(&Options {
        scope: Scope::Processes(vec![Pid(program.id())]),
        kinds: vec![Kind::Read],
        stack_bytes: 256,
        ..Options::default()
    });
    let observer = observer.as_mut().unwrap();
    let ended = AtomicBool::new(false);
    let (mut copied, mut named) = (Vec::new(), 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            program.run();
            ended.store(true, Ordering::Release);
        });
        let mut is_last = false;
        while !is_last {
            is_last = ended.load(Ordering::Acquire);
            let mut new = Vec::new();
            observer.drain(u64::MAX, &mut |event| match event.what {
                What::Pages {
                    stack: UserStack::Copied(stack),
                    ..
                } => new.push(KnownStack {
                    place: StackPlace {
                        process: event.process,
                        ip: stack.ip,
                        sp: stack.sp,
                        way: 3,
                    },
                    bp: Some(stack.bp),
                    link: stack.link,
                    checks: [0, 8, 248]
                        .map(|distance| Check {
                            distance,
                            value: stack.word_at(stack.sp + u64::from(distance)).unwrap(),
                        })
                        .into(),
                    signature: 77,
                }),
                What::Pages {
                    stack: UserStack::Known(signature),
                    ..
                } => {
                    assert_eq!(signature, 77);
                    named += 1;
                }
                _ => {}
            });
            // One of another stack, which is to be found in another way.
            if let (true, Some(first)) = (copied.is_empty(), new.first()) {
                let mut other = first.clone();
                other.place.way = 0;
                other.checks[2].value += 1;
                other.signature = 78;
                observer.know_stack(&other).unwrap();
                observer.know_stack(first).unwrap();
            }
            copied.append(&mut new);
        }
    });
    assert!(named > 100_000, "{named} of 200,000 are named");
    assert_eq!(observer.lost().events(), 0);
}

#[test]
fn touches_of_mapped_pages_that_fault_are_seen() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let touched = sources(Kind::Fault);
    if touched.is_empty() {
        skip_on_this_machine("no source of faults works here");
    }
    for source in touched {
        touches_are_seen_by(source, &scratch);
    }
}

fn touches_are_seen_by(source: Source, scratch: &Scratch) {
    let file = scratch.file("cached", 128, true);
    let program = scratch.start("mmap", &file, &[(16 * 4096, 64 * 4096)]);
    let report = observe(program, by(source));
    // All are cached: mapped around the first touch, and not touched again. A page that somebody
    // has locked meanwhile faults on its own.
    let mut seen = report.counts(Kind::Map, &file);
    for (page, count) in report.counts(Kind::Fault, &file) {
        assert_eq!(count, 1);
        seen.insert(page, 1);
    }
    assert!((16..80).all(|page| seen.contains_key(&page)), "{seen:?}");
    let ranges = report.ranges(Kind::Map, &file);
    assert!(
        ranges.iter().all(|(first, last)| last - first < 16),
        "{ranges:?}"
    );

    let file = scratch.file(&format!("not cached {source}"), 128, false);
    let program = scratch.start("mmap", &file, &[(0, 128 * 4096)]);
    let report = observe(program, by(source));
    let inode = inode(&file.path);
    let first = report
        .pages
        .iter()
        .position(|event| event.file.inode == inode && event.kind == Kind::Fault);
    let faults = report.counts(Kind::Fault, &file);
    let mapped = report.counts(Kind::Map, &file);
    // The first was read from the disk. That is one fault, though the kernel begins anew.
    assert_eq!(faults.get(&0), Some(&1), "{faults:?}");
    let anew = &report.pages[first.unwrap()..];
    let mut anew = anew
        .iter()
        .filter(|event| matches!(event.kind, Kind::Fault | Kind::Map));
    let (fault, next) = (anew.next().unwrap(), anew.next().unwrap());
    assert!(!fault.same_fault, "{fault:?}");
    // What had come in with it was mapped then.
    assert!(next.same_fault || next.first_page > 0, "{next:?}");
    let is_seen = |page: &u64| faults.contains_key(page) || mapped.contains_key(page);
    assert!((0..128).all(|page| is_seen(&page)), "{faults:?} {mapped:?}");
    assert!(faults.values().all(|count| *count == 1), "{faults:?}");
}

#[test]
fn children_are_followed_and_others_are_not() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 100, true);
    let program = scratch.start("fork", &file, &[(0, 4096), (8192, 4096)]);
    let other = scratch.start("pread", &file, &[(4096, 4096)]);
    let id = program.id();
    let mut observer = Observer::new(&Options {
        scope: Scope::Processes(vec![Pid(id)]),
        ..Options::default()
    })
    .unwrap();
    other.run();
    program.run();
    let report = Report::of(&mut observer);
    assert_eq!(report.ranges(Kind::Read, &file), [(0, 0), (2, 2)]);
    let [(first, child), (second, grandchild)] = report.forks[..] else {
        panic!("{:?}", report.forks);
    };
    assert_eq!((first, second), (id, child));
    let reads = report.of_file(Kind::Read, &file);
    assert!(reads.iter().all(|event| event.process == grandchild));
    assert_eq!(report.exits, [grandchild, child, id]);
}

#[test]
fn children_that_are_there_already_are_followed() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 10, true);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "\"$@\"; exit $?", "sh"])
        .arg(&scratch.program);
    let program = scratch.start_by(shell, "pread", &file, &[(4096, 4096)]);
    let id = program.id();
    let report = observe(program, Options::default());
    assert_eq!(report.ranges(Kind::Read, &file), [(1, 1)]);
    assert_ne!(report.of_file(Kind::Read, &file)[0].process, id);
}

#[test]
fn the_first_write_to_a_clean_page_is_seen() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 100, true);
    let writes = [(4096, 4096), (4096, 100), (5000, 8)];
    let report = observe(scratch.start("pwrite", &file, &writes), Options::default());
    // The folio may have more pages than were written.
    assert_eq!(report.counts(Kind::Dirty, &file).get(&1), Some(&1));
    assert!(report.of_file(Kind::Read, &file).is_empty());
}

#[test]
fn what_comes_into_the_page_cache_and_leaves_it_is_seen_whoever_does_it() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 600, false);
    let program = scratch.start("each", &file, &[(0, 300 * 4096)]);
    let other = scratch.start("drop", &file, &[(0, 0)]);
    let mut observer = Observer::new(&Options {
        scope: Scope::Processes(vec![Pid(program.id())]),
        ..Options::default()
    })
    .unwrap();
    program.run();
    let read = Report::of(&mut observer);
    other.run();
    let dropped = Report::of(&mut observer);
    let inserted = read.counts(Kind::Insert, &file);
    assert!(inserted.len() >= 300);
    assert!(
        inserted
            .iter()
            .all(|(page, count)| *page < 600 && *count == 1)
    );
    assert_eq!(dropped.counts(Kind::Evict, &file), inserted);
    assert!(dropped.of_file(Kind::Insert, &file).is_empty());
    assert_eq!(observer.lost().events(), 0);
}

#[test]
fn what_others_use_of_the_same_files_is_seen_on_request() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 20, true);
    let unused = scratch.file("unused", 20, true);
    for others in [false, true] {
        let program = scratch.start("pread", &file, &[(0, 4096)]);
        let other = scratch.start("pread", &file, &[(8192, 4096)]);
        let mapping = scratch.start("mmap", &file, &[(40960, 1)]);
        let elsewhere = scratch.start("pread", &unused, &[(0, 4096)]);
        let options = Options {
            scope: Scope::Processes(vec![Pid(program.id())]),
            others,
            ..Options::default()
        };
        let mut observer = Observer::new(&options).unwrap();
        let before = scratch.start("pread", &file, &[(4096, 4096)]);
        before.run();
        program.run();
        other.run();
        mapping.run();
        elsewhere.run();
        let report = Report::of(&mut observer);
        let reads = report.of_file(Kind::Read, &file).into_iter();
        let reads: Vec<_> = reads
            .map(|read| (read.first_page, read.is_outside))
            .collect();
        // What comes before the program's own use is cached by then.
        let expected = [(0, false), (2, true)];
        assert_eq!(reads, expected[..if others { 2 } else { 1 }]);
        let mapped = report.of_file(Kind::Map, &file);
        assert_eq!(mapped.len(), usize::from(others));
        assert!(mapped.iter().all(|of| of.is_outside && of.last_page >= 10));
        assert_eq!(report.of_file(Kind::Read, &unused), Vec::<&Pages>::new());
    }
}

#[test]
fn nothing_is_reported_of_an_excluded_file() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let unwanted = scratch.file("unwanted", 20, true);
    let wanted = scratch.file("wanted", 20, true);
    for (source, excludes) in sources(Kind::Read)
        .into_iter()
        .flat_map(|source| [(source, true), (source, false)])
    {
        let start = |file| scratch.start("pread", file, &[(0, 4096)]);
        let first = [start(&unwanted), start(&wanted)];
        let more = [start(&unwanted), start(&wanted)];
        let all = first.iter().chain(&more);
        let others = [start(&unwanted), start(&wanted)];
        let dropping = scratch.start("drop", &unwanted, &[(0, 0)]);
        let mut observer = Observer::new(&Options {
            scope: Scope::Processes(all.map(|program| Pid(program.id())).collect()),
            excludes,
            others: true,
            ..by(source)
        })
        .unwrap();
        first.into_iter().for_each(|program| drop(program.run()));
        let report = Report::of(&mut observer);
        let seen = report.of_file(Kind::Read, &unwanted);
        assert_eq!(seen.len(), 1, "{source}");
        observer.exclude(seen[0].file).unwrap();
        more.into_iter().for_each(|program| drop(program.run()));
        others.into_iter().for_each(|program| drop(program.run()));
        dropping.run();
        let report = Report::of(&mut observer);
        let events = |file: &TestFile| {
            let is_of = |event: &&Pages| event.file.inode == inode(&file.path);
            report.pages.iter().filter(is_of).count()
        };
        // System calls do not say what others read.
        let wanted_events = if source == Source::SystemCalls { 1 } else { 2 };
        assert_eq!(events(&wanted), wanted_events, "{source}");
        assert_eq!(events(&unwanted) > 0, !excludes, "{source}");
        let named = report.files.iter();
        let named = named.filter(|(of, _, _)| of.inode == inode(&unwanted.path));
        assert_eq!(named.count(), 0);
        scratch.file("unwanted", 20, true);
    }
}

#[test]
fn what_the_observing_process_starts_is_followed_and_a_pause_reports_nothing() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 20, true);
    let other = scratch.start("pread", &file, &[(0, 4096)]);
    let options = Options {
        scope: Scope::Started,
        ..Options::default()
    };
    let mut observer = Observer::new(&options).unwrap();
    let started = |page: u64| scratch.start("pread", &file, &[(4096 * page, 4096)]);
    other.run();
    started(1).run();
    observer.pause(true).unwrap();
    let in_pause = started(2);
    started(3).run();
    observer.pause(false).unwrap();
    observer.pause(false).unwrap();
    in_pause.run();
    let report = Report::of(&mut observer);
    assert_eq!(report.ranges(Kind::Read, &file), [(1, 1), (2, 2)]);
}

#[test]
fn a_file_is_named_before_its_first_event() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("some/folders/deep/a name", 3, true);
    for source in sources(Kind::Read) {
        let program = scratch.start("each", &file, &[(0, 3 * 4096)]);
        let report = observe(program, by(source));
        let named: Vec<_> = report
            .files
            .iter()
            .filter(|(of, _, _)| of.inode == inode(&file.path))
            .collect();
        let [(of, size, path)] = &named[..] else {
            panic!("{named:?}");
        };
        assert_eq!(report.of_file(Kind::Read, &file)[0].file, *of);
        assert_eq!(*size, 3 * 4096);
        let path = path.as_ref().unwrap();
        let found = Mounts::read().unwrap().path(of.device, path);
        assert_eq!(found.as_deref(), Some(&*file.path));
    }
}

#[test]
fn all_events_of_sampled_pages_are_seen_and_none_of_others() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 600, true);
    let whole = (0, 600 * 4096);
    let sampling = Sampling::one_in(4);
    for source in sources(Kind::Read) {
        let program = scratch.start("each", &file, &[whole, whole]);
        let options = Options {
            sampling,
            ..by(source)
        };
        let report = observe(program, options);
        let of = report.of_file(Kind::Read, &file)[0].file;
        let sampled = (0..600).filter(|page| sampling.has(of, *page));
        let twice: BTreeMap<_, _> = sampled.map(|page| (page, 2)).collect();
        assert!((90..210).contains(&twice.len()), "{}", twice.len());
        assert_eq!(report.counts(Kind::Read, &file), twice);
    }
}

#[test]
fn only_files_of_the_devices_are_seen() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 2, true);
    for source in sources(Kind::Read) {
        let read = |devices: Vec<Device>| {
            let program = scratch.start("pread", &file, &[(0, 4096)]);
            let options = Options {
                devices,
                ..by(source)
            };
            observe(program, options)
        };
        let report = read(Vec::new());
        let device = report.of_file(Kind::Read, &file)[0].file.device;
        assert_eq!(read(vec![device]).ranges(Kind::Read, &file), [(0, 0)]);
        assert!(read(vec![Device::new(4095, 1)]).pages.is_empty());
    }
}

#[test]
fn everybody_but_the_observer_is_seen() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 10, true);
    let program = scratch.start("pread", &file, &[(4096, 4096)]);
    let id = program.id();
    let mut observer = Observer::new(&Options {
        kinds: vec![Kind::Read],
        ..Options::default()
    })
    .unwrap();
    fs::read(&file.path).unwrap();
    program.run();
    let report = Report::of(&mut observer);
    assert_eq!(report.ranges(Kind::Read, &file), [(1, 1)]);
    assert_eq!(report.of_file(Kind::Read, &file)[0].process, id);
    // Once it is closed, what was seen before is still there, and nothing new.
    scratch.start("pread", &file, &[(8192, 4096)]).run();
    observer.close();
    scratch.start("pread", &file, &[(0, 4096)]).run();
    let report = Report::of(&mut observer);
    assert_eq!(report.ranges(Kind::Read, &file), [(2, 2)]);
}

#[test]
fn the_processes_of_a_cgroup_and_those_below_are_seen() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let mut tried = 0;
    for root in [
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup",
    ] {
        if !Path::new(root).join("cgroup.procs").exists() {
            continue;
        }
        tried += 1;
        let unit = format!("hither-events-{}", std::process::id());
        let group = Path::new(root).join(format!("{unit}.service"));
        let below = group.join("below");
        fs::create_dir_all(&below).unwrap();
        let file = scratch.file("data", 10, true);
        let programs = [&group, &below].map(|group| {
            let program = scratch.start("pread", &file, &[(4096, 4096)]);
            fs::write(group.join("cgroup.procs"), program.id().to_string()).unwrap();
            program
        });
        let other = scratch.start("pread", &file, &[(0, 4096)]);
        let cgroup = Cgroup::at(&group).unwrap();
        assert_eq!(Cgroup::of_unit(&unit).unwrap(), cgroup);
        assert!(Cgroup::of_unit("hither-events-of-nobody").is_err());
        let mut observer = Observer::new(&Options {
            scope: Scope::Cgroup(cgroup),
            ..Options::default()
        })
        .unwrap();
        let ids = [programs[0].id(), programs[1].id()];
        other.run();
        programs.into_iter().for_each(|program| drop(program.run()));
        let mut cgroups = Vec::new();
        let mut processes = Vec::new();
        observer.drain(u64::MAX, &mut |event| {
            if matches!(event.what, What::Pages { kind: Kind::Read, file: of, .. }
                if of.inode == inode(&file.path))
            {
                processes.push(event.process.0);
                cgroups.push(event.cgroup);
            }
        });
        assert_eq!(processes, ids, "{root}");
        let inodes = [&group, &below].map(|group| inode(group));
        assert_eq!(cgroups, inodes, "{root}");
        fs::remove_dir(&below).unwrap();
        fs::remove_dir(&group).unwrap();
    }
    if tried == 0 {
        skip_on_this_machine("no hierarchy of cgroups that can be observed");
    }
    assert!(Cgroup::at(scratch.folder.path()).is_err());
}

#[test]
fn what_finds_the_ring_full_is_counted() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 600, true);
    let program = scratch.start("each", &file, &[(0, 600 * 4096)]);
    let mut observer = Observer::new(&Options {
        scope: Scope::Processes(vec![Pid(program.id())]),
        kinds: vec![Kind::Read],
        ring_bytes: 4096,
        ..Options::default()
    })
    .unwrap();
    program.run();
    let seen = Report::of(&mut observer).ranges(Kind::Read, &file).len();
    let lost = observer.lost();
    assert!(seen > 0 && seen < 60, "{seen}");
    assert_eq!(lost.pages[0], (Kind::Read, 600 - seen as u64));
    assert_eq!(lost.processes, 1, "its end");
}

#[test]
fn two_observers_see_the_same() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 3, true);
    let program = scratch.start("pread", &file, &[(4096, 4096)]);
    let options = Options {
        scope: Scope::Processes(vec![Pid(program.id())]),
        ..Options::default()
    };
    let mut observers = [(); 2].map(|()| Observer::new(&options).unwrap());
    program.run();
    for observer in &mut observers {
        assert_eq!(Report::of(observer).ranges(Kind::Read, &file), [(1, 1)]);
    }
}
