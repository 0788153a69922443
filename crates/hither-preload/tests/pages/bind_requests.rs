//! Bind requests and sites with a policy, seen from outside: by the policies in the program's
//! /proc/self/numa_maps. Node 0 is there on every machine whose kernel knows of nodes at all.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hither_ids::{Address, Pid};
use hither_kernel::memory_policy::{Bind, BindMode};
use hither_session::record::{OWN_POLICY, Record, RegionKind};
use hither_session::session::Session;

use super::MIB;
use crate::support::{
    compile, detached, name_of_filtered_agent, pages_library, placed, regions_session,
    sampled_session,
};
use hither_testing::skip::skip_on_this_machine;

/// A program that does as it is told, and the session that it is in.
struct Puppet {
    session: Session,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    seen: Vec<Record<'static>>,
}

impl Puppet {
    fn start(session: Session, program: &Path, arguments: &[&OsStr]) -> Self {
        let mut command: Command = placed(&session, program);
        command.args(arguments);
        Puppet::of(session, command)
    }

    fn of(session: Session, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("spawned");
        Puppet {
            session,
            stdin: child.stdin.take().expect("piped"),
            stdout: BufReader::new(child.stdout.take().expect("piped")),
            child,
            seen: Vec::new(),
        }
    }

    /// Gives a command; the range that the program has, and its policy.
    fn tell(&mut self, command: &str) -> (u64, u64, String) {
        writeln!(self.stdin, "{command}").expect("written");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("read");
        let words: Vec<_> = line.split_whitespace().collect();
        let [start, length, policy] = words[..] else {
            panic!("{command}: it said {line:?}");
        };
        let number = |word: &str| word.parse().expect("a number");
        (number(start), number(length), policy.to_owned())
    }

    /// What became of orders and sites so far; waits for the first.
    fn bounds(&mut self) -> Vec<(u64, u64, Bind, u32, bool)> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = &mut self.seen;
            self.session.drain(|_, record| {
                let record = detached(record);
                seen.extend(record.filter(|record| matches!(record, Record::Bound { .. })));
            });
            if !self.seen.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "nothing was bound");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut self.seen)
            .into_iter()
            .map(|record| match record {
                Record::Bound {
                    start,
                    length,
                    bind,
                    error,
                    site,
                    ..
                } => (start.0, length, bind, error, site),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// The regions that have begun and those that have ended since the last time: whether it began,
    /// start and length.
    fn regions(&mut self) -> Vec<(bool, u64, u64)> {
        let mut found = Vec::new();
        self.session.drain(|_, record| match record {
            Record::Region { start, length, .. } => found.push((true, start.0, length)),
            Record::RegionEnd { start, length, .. } => found.push((false, start.0, length)),
            _ => {}
        });
        found
    }

    fn post(&mut self, start: u64, length: u64, bind: Bind) {
        let pid = self.child.id();
        let mut requests = self.session.bind_requests().expect("regions are tracked");
        requests
            .post(Pid(pid), Address(start), length, bind)
            .expect("room");
    }

    fn finish(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().expect("waited").success());
    }
}

const NODE_0: Bind = Bind {
    mode: BindMode::Preferred,
    nodes: 1,
};

/// The kernel shows a preference for the only node there is by this name.
fn is_preferred(policy: &str) -> bool {
    policy.starts_with("prefer") && policy.ends_with(":0")
}

fn knows_nodes() -> bool {
    let knows = Path::new("/proc/self/numa_maps").exists();
    if !knows {
        skip_on_this_machine("a kernel without NUMA");
    }
    knows
}

#[test]
fn an_order_is_carried_out_at_the_next_call_and_gone_with_its_region() {
    if !knows_nodes() {
        return;
    }
    for heap in [false, true] {
        let arguments: &[&OsStr] = if heap { &[OsStr::new("heap")] } else { &[] };
        let program = compile("bind_requests.c", &["-O1"]);
        let mut puppet = Puppet::start(regions_session(MIB), &program, arguments);
        let (start, length, policy) = puppet.tell("allocate");
        assert_eq!(policy, "default");
        puppet.post(start, length, NODE_0);
        assert!(is_preferred(&puppet.tell("call").2));
        assert_eq!(puppet.bounds(), [(start, length, NODE_0, 0, false)]);
        puppet.tell("touch");
        // What moves takes its policy along.
        let (start, length, policy) = puppet.tell("grow");
        assert!(is_preferred(&policy), "{policy}");
        assert_eq!(puppet.bounds(), [(start, length, NODE_0, 0, true)]);
        // An order back, and there again; for part of the region.
        let default = Bind {
            mode: BindMode::Default,
            nodes: 0,
        };
        puppet.post(start, length, default);
        assert_eq!(puppet.tell("call").2, "default");
        puppet.post(start + length / 4, length / 2, NODE_0);
        assert!(is_preferred(&puppet.tell("call").2));
        let bound: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
        assert_eq!(bound, [0, 0]);
        let (_, _, policy) = puppet.tell("free");
        if heap {
            assert_eq!(policy, "default", "it stays mapped");
        }
        // Too late.
        puppet.post(start, length, NODE_0);
        assert!(!is_preferred(&puppet.tell("call").2));
        let bounds = puppet.bounds();
        assert_eq!(
            bounds,
            [(start, length, NODE_0, libc::ENOENT as u32, false)]
        );
        puppet.finish();
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_and_harmless() {
    let program = compile("bind_requests.c", &["-O1"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    let (start, length, before) = puppet.tell("allocate");
    let gone = libc::ENOENT as u32;
    let ranges = [
        (start - 4096, length),
        (start, length + 4096),
        (start, 0),
        (start, u64::MAX),
        (0, u64::MAX),
        (u64::MAX, u64::MAX),
        (4096, 4096),
    ];
    for (start, length) in ranges {
        puppet.post(start, length, NODE_0);
    }
    let (_, _, after) = puppet.tell("call");
    assert_eq!(after, before);
    let errors: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
    assert_eq!(errors, vec![gone; ranges.len()]);
    // No such node.
    puppet.post(
        start,
        length,
        Bind {
            nodes: 1 << 63,
            ..NODE_0
        },
    );
    puppet.tell("call");
    assert_eq!(puppet.bounds()[0].3, libc::EINVAL as u32);
    puppet.finish();
}

#[test]
fn a_known_site_is_bound_before_it_is_touched() {
    if !knows_nodes() {
        return;
    }
    let program = compile("bind_requests.c", &["-O1"]);
    let mut session = regions_session(MIB);
    let mut first = Puppet::start(session, &program, &[]);
    first.tell("allocate");
    let mut signature = 0;
    first.session.drain(|_, record| {
        if let Record::Region {
            signature: found, ..
        } = record
        {
            signature = found;
        }
    });
    assert_ne!(signature, 0);
    first.finish();

    session = regions_session(MIB);
    let mut requests = session.bind_requests().expect("regions are tracked");
    requests.set_site(signature, Some(NODE_0)).expect("room");
    let mut again = Puppet::start(session, &program, &[]);
    let (start, length, policy) = again.tell("allocate");
    assert!(is_preferred(&policy), "{policy}");
    assert_eq!(again.bounds(), [(start, length, NODE_0, 0, true)]);
    // Not known any more.
    let mut requests = again.session.bind_requests().expect("regions are tracked");
    requests.set_site(signature, None).expect("room");
    assert_eq!(again.tell("allocate").2, "default");
    again.finish();
}

#[test]
fn what_the_program_has_bound_itself_is_left_alone() {
    if !knows_nodes() {
        return;
    }
    let program = compile("bind_requests.c", &["-O1"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    let (start, length, _) = puppet.tell("allocate");
    assert!(is_preferred(&puppet.tell("bind").2));
    let told = puppet.bounds();
    assert_eq!(told.len(), 1);
    let (from, bytes, _, error, _) = told[0];
    assert_eq!(error, OWN_POLICY, "told without being asked");
    assert!(from >= start && bytes <= length);
    // An order that came too late to know.
    let interleave = Bind {
        mode: BindMode::Interleave,
        nodes: 1,
    };
    puppet.post(start, length, interleave);
    assert!(is_preferred(&puppet.tell("call").2));
    assert_eq!(puppet.bounds()[0].3, OWN_POLICY);
    puppet.finish();
}

#[test]
fn what_we_had_bound_is_the_programs_once_it_binds_it() {
    if !knows_nodes() {
        return;
    }
    let ours = Bind {
        mode: BindMode::Interleave,
        nodes: 1,
    };
    for heap in [false, true] {
        let arguments: &[&OsStr] = if heap { &[OsStr::new("heap")] } else { &[] };
        let program = compile("bind_requests.c", &["-O1"]);
        let mut puppet = Puppet::start(regions_session(MIB), &program, arguments);
        let (start, length, _) = puppet.tell("allocate");
        puppet.post(start, length, ours);
        assert!(puppet.tell("call").2.starts_with("interleave"));
        assert_eq!(puppet.bounds(), [(start, length, ours, 0, false)]);
        // One that waits, and one that came too late to know.
        puppet.post(start, length, ours);
        assert!(is_preferred(&puppet.tell("bind").2));
        puppet.post(start, length / 2, ours);
        assert!(is_preferred(&puppet.tell("call").2));
        let errors: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
        assert_eq!(errors, [OWN_POLICY; 3]);
        // It stays where it is, and so does its policy.
        let (start, length, policy) = puppet.tell("shrink");
        assert!(is_preferred(&policy), "{policy}");
        let told = puppet.bounds();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].0, told[0].1, told[0].3),
            (start, length, OWN_POLICY)
        );
        puppet.tell("touch");
        let (start, length, policy) = puppet.tell("grow");
        assert!(!policy.starts_with("interleave"), "{policy}");
        puppet.post(start, length, ours);
        assert_eq!(puppet.tell("call").2, policy);
        let errors: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
        assert_eq!(errors, [OWN_POLICY; 2]);
        // It gives that back.
        puppet.tell("unbind");
        puppet.post(start, length, ours);
        assert!(puppet.tell("call").2.starts_with("interleave"));
        assert_eq!(puppet.bounds(), [(start, length, ours, 0, false)]);
        puppet.finish();
    }
}

#[test]
fn the_rest_of_what_the_program_binds_in_part_is_no_longer_bound() {
    if !knows_nodes() {
        return;
    }
    let program = compile("moves.c", &["-O1", "-pthread"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    let (start, length, _) = puppet.tell("map");
    puppet.tell("wall");
    puppet.tell("fill");
    bind_in_parts(&mut puppet, (start, length));
    let (_, _, pieces) = puppet.tell("bind half");
    assert_eq!(pieces, "2");
    puppet.finish();
}

#[test]
fn what_the_program_has_given_back_is_as_new() {
    if !knows_nodes() {
        return;
    }
    let program = compile("bind_requests.c", &["-O1"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    let (start, length, _) = puppet.tell("allocate");
    assert!(is_preferred(&puppet.tell("bind").2));
    assert_eq!(puppet.regions(), [(true, start, length)]);
    assert_eq!(puppet.tell("unbind most").2, "default");
    assert_eq!(puppet.regions(), [], "its last page is bound");
    let as_new = [(false, start, length), (true, start, length)];
    puppet.tell("unbind");
    assert_eq!(puppet.regions(), as_new);
    puppet.tell("unbind most");
    assert_eq!(puppet.regions(), as_new);
    puppet.post(start, length, NODE_0);
    assert!(is_preferred(&puppet.tell("call").2));
    assert_eq!(puppet.bounds()[0].3, 0);
    puppet.finish();
}

/// Orders for every other 256 KiB of a region.
fn bind_in_parts(puppet: &mut Puppet, (start, length): (u64, u64)) {
    let part = 256 << 10;
    for at in (start..start + length).step_by(2 * part as usize) {
        puppet.post(at, part, NODE_0);
    }
    let pieces: u64 = puppet.tell("call").2.parse().expect("a number");
    assert!(pieces >= length / part, "{pieces}");
    let errors: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
    assert_eq!(errors, vec![0; (length / part / 2) as usize]);
}

/// To the kernel each part is a mapping, and it moves one at a time.
#[test]
fn what_was_bound_in_parts_is_moved_as_if_it_were_not() {
    if !knows_nodes() {
        return;
    }
    let program = compile("moves.c", &["-O1", "-pthread"]);
    // Mappings that are split before anything is in them are not joined again.
    for touched in [true, false] {
        for moves in [
            &["grow"][..],
            &["wall", "grow", "grow"],
            &["in vain", "grow"],
            &["shrink", "grow"],
            &["to 8"],
            &["to 32", "grow"],
            &["to 4", "grow"],
            &["leave"],
            &["crowd", "wall", "grow", "shrink", "grow", "to 8", "to 32"],
            &["child wall", "grow"],
            &[
                "child grow",
                "child to 4",
                "child leave",
                "child in vain",
                "verify",
            ],
        ] {
            let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
            let (start, length, _) = puppet.tell("map");
            if touched {
                puppet.tell("fill");
            }
            bind_in_parts(&mut puppet, (start, length));
            puppet.tell("fill");
            for command in moves {
                println!("{touched} {moves:?}: {command}");
                puppet.tell(command);
                puppet.tell("verify");
            }
            puppet.finish();
        }
    }
}

/// So many mappings may a process have, and the program needs some itself.
#[test]
fn so_many_parts_are_bound_and_no_more() {
    const PAGE: u64 = 4096;
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("read");
    let most: u64 = most.trim().parse().expect("a number");
    if !knows_nodes() || most > 100_000 {
        skip_on_this_machine("no nodes, or room for too many mappings");
        return;
    }
    let program = compile("moves.c", &["-O1", "-pthread"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    let (start, _, _) = puppet.tell("map much");
    let mut bind = |pages: &mut dyn Iterator<Item = u64>| {
        for page in pages {
            puppet.post(start + page * PAGE, PAGE, NODE_0);
        }
        let pieces: u64 = puppet.tell("call").2.parse().expect("a number");
        let errors: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
        (errors, pieces)
    };
    // The same ones again and again.
    for _ in 0..=most / 4 / 1000 + 1 {
        let (errors, pieces) = bind(&mut (0..1000).map(|part| part % 10 * 2));
        assert_eq!(errors, [0; 1000]);
        assert!(pieces <= 21, "{pieces}");
    }
    let mut bound = 0;
    let mut refused = 0;
    let mut mappings = 0;
    for parts in 0..=most / 4 / 1000 + 1 {
        let (errors, pieces) = bind(&mut (1000 * parts..1000 * (parts + 1)).map(|part| part * 2));
        let not = errors.iter().filter(|&&error| error == libc::ENOMEM as u32);
        let not = not.count();
        assert!(errors.iter().all(|&error| error == 0 || not > 0));
        bound += errors.len() - not;
        refused += not;
        mappings = pieces;
    }
    assert!(
        refused > 0 && bound > most as usize / 10,
        "{bound}, {refused}"
    );
    assert!(mappings <= most / 2 + 1, "{mappings}");
    puppet.finish();
}

/// Another allocator's mapping is bound as a whole; what it gives out of it is a region with a
/// policy of its own.
#[test]
fn what_is_given_out_of_a_bound_mapping_is_not_taken_for_the_programs() {
    if !knows_nodes() {
        return;
    }
    let allocator = compile("allocator.c", &["-O1", "-shared", "-fPIC"]);
    let program = compile("bind_requests.c", &["-O1"]);
    let start = |session: Session| {
        let libraries = [pages_library(), &*allocator].map(|path| path.to_str().expect("text"));
        let mut command = placed(&session, &program);
        command.env("LD_PRELOAD", libraries.join(":"));
        Puppet::of(session, command)
    };
    let mut first = start(regions_session(MIB));
    let (_, least, _) = first.tell("allocate");
    let mut mapped = None;
    first.session.drain(|_, record| match record {
        Record::Region {
            length,
            signature,
            kind: RegionKind::Map,
            ..
        } if length > least => mapped = Some(signature),
        _ => {}
    });
    first.finish();
    let mut session = regions_session(MIB);
    let mut requests = session.bind_requests().expect("regions are tracked");
    let site = mapped.expect("its mapping");
    requests.set_site(site, Some(NODE_0)).expect("room");
    let mut again = start(session);
    let (start, length, policy) = again.tell("allocate");
    assert_eq!(policy, "default");
    let ours = Bind {
        mode: BindMode::Interleave,
        nodes: 1,
    };
    again.post(start, length, ours);
    assert!(again.tell("call").2.starts_with("interleave"));
    let bounds = again.bounds();
    assert!(
        bounds.contains(&(start, length, ours, 0, false)),
        "{bounds:?}"
    );
    assert!(bounds.iter().all(|bound| bound.3 == 0), "{bounds:?}");
    again.finish();
}

#[test]
fn what_moves_is_bound_as_it_was_and_may_be_bound_again() {
    if !knows_nodes() {
        return;
    }
    let program = compile("moves.c", &["-O1", "-pthread"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    let (start, length, _) = puppet.tell("map");
    puppet.tell("fill");
    let policy = Bind {
        mode: BindMode::Preferred,
        nodes: 1,
    };
    puppet.post(start, length, policy);
    puppet.tell("call");
    assert_eq!(puppet.bounds()[0].3, 0);
    let (start, length, _) = puppet.tell("grow");
    assert_eq!(puppet.bounds(), [(start, length, policy, 0, true)]);
    puppet.post(start, length, policy);
    puppet.tell("call");
    assert_eq!(puppet.bounds(), [(start, length, policy, 0, false)]);
    puppet.finish();
}

#[test]
fn what_a_thread_allocates_on_all_nodes_in_turn_may_be_bound() {
    if !knows_nodes() {
        return;
    }
    let program = compile("bind_requests.c", &["-O1"]);
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    puppet.tell("interleave");
    let (start, length, _) = puppet.tell("allocate");
    puppet.post(start, length, NODE_0);
    assert!(is_preferred(&puppet.tell("call").2));
    assert_eq!(puppet.bounds(), [(start, length, NODE_0, 0, false)]);
    puppet.finish();
}

#[test]
fn what_a_thread_with_a_policy_allocates_is_left_alone() {
    let program = compile("bind_requests.c", &["-O1"]);
    if !knows_nodes() {
        return;
    }
    let mut puppet = Puppet::start(regions_session(MIB), &program, &[]);
    puppet.tell("prefer");
    let (start, length, _) = puppet.tell("allocate");
    let told = puppet.bounds();
    let (from, bytes, bind, error, _) = told[0];
    assert_eq!((from, bytes, error), (start, length, OWN_POLICY));
    assert_eq!(bind.mode, BindMode::Default, "nothing was asked for");
    puppet.finish();
}

#[test]
fn a_program_that_may_not_bind_says_so_once_tried_and_tries_no_more() {
    let program = compile("bind_requests.c", &["-O1"]);
    let forbid = compile("forbid.c", &["-O1", "-static"]);
    let session = sampled_session(MIB);
    let mut command = placed(&session, &forbid);
    command
        .args([OsStr::new("refuse"), program.as_os_str()])
        .env("HITHER_SESSION", name_of_filtered_agent(&session));
    let mut puppet = Puppet::of(session, command);
    let (start, length, before) = puppet.tell("allocate");
    for _ in 0..3 {
        puppet.post(start, length, NODE_0);
        assert_eq!(puppet.tell("call").2, before);
        let errors: Vec<_> = puppet.bounds().iter().map(|bound| bound.3).collect();
        assert_eq!(errors, [libc::EPERM as u32]);
    }
    puppet.finish();
}

#[test]
fn whatever_is_in_the_segment_the_program_runs_on() {
    let program = compile("storm.c", &["-O2"]);
    let session = regions_session(64 << 10);
    let plain = Command::new(&program)
        .args(["2", "1000"])
        .output()
        .expect("runs");
    let child = placed(&session, &program)
        .args(["2", "1000"])
        .spawn()
        .expect("spawned");
    let mut scribble = Command::new(compile("scribble.c", &["-O2"]))
        .args([session.name(), "0"])
        .spawn()
        .expect("spawned");
    let output = child.wait_with_output().expect("waited");
    scribble.kill().expect("killed");
    scribble.wait().expect("waited");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, plain.stdout);
}
