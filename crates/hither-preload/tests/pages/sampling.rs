//! Memory that is sampled from outside: how the descriptor gets to the agent, and that the program
//! behaves the same.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use hither_ids::{Address, Pid, Tid};
use hither_kernel::page_faults::{Fault, PageFaults, PerfRings};
use hither_kernel::page_sampling::{PageSampler, SamplingError};
use hither_kernel::userfaultfd::WriteProtectSampler;
use hither_session::session::Session;

use super::MIB;
use crate::support::{compile, placed, sampled_session};
use hither_testing::skip::skip_on_this_machine;

const PAGE: u64 = 4096;

/// A program that does as it is told, and the agent that samples it.
struct Puppet {
    session: Session,
    arm: WriteProtectSampler,
    /// None where they cannot be watched.
    faults: Option<PerfRings>,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// What it says.
struct Said {
    start: u64,
    length: u64,
    userfaultfds: u64,
    result: i64,
}

impl Puppet {
    /// `None` where the kernel cannot do it.
    fn start() -> Option<Puppet> {
        let arm = match WriteProtectSampler::tried() {
            Ok(arm) => arm,
            Err(reason) => {
                skip_on_this_machine(reason);
                return None;
            }
        };
        let session = sampled_session(MIB);
        let program = compile("sampled.c", &["-O1"]);
        let faults = PerfRings::open()
            .inspect_err(|reason| println!("faults are not looked at: {reason}"))
            .ok();
        let mut child = placed(&session, &program)
            .stdin(Stdio::piped())
            .spawn()
            .expect("spawned");
        Some(Puppet {
            session,
            arm,
            faults,
            stdin: child.stdin.take().expect("piped"),
            stdout: BufReader::new(child.stdout.take().expect("piped")),
            child,
        })
    }

    fn tell(&mut self, command: &str) -> Said {
        writeln!(self.stdin, "{command}").expect("written");
        self.said(command)
    }

    fn said(&mut self, command: &str) -> Said {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("read");
        let numbers: Vec<i64> = line
            .split_whitespace()
            .map(|word| word.parse().expect("a number"))
            .collect();
        let [start, length, userfaultfds, result] = numbers[..] else {
            panic!("{command}: it said {line:?}");
        };
        Said {
            start: start as u64,
            length: length as u64,
            userfaultfds: userfaultfds as u64,
            result,
        }
    }

    /// Takes what is on offer.
    fn take(&mut self) -> Vec<Result<(), SamplingError>> {
        let arm = &mut self.arm;
        let mut taken = Vec::new();
        self.session.offers(|offer| taken.push(arm.offered(offer)));
        taken
    }

    /// A region that was written to once and is sampled: the whole pages in it.
    fn sampled() -> Option<(Puppet, u64, u64)> {
        let mut puppet = Puppet::start()?;
        let said = puppet.tell("allocate");
        assert_eq!(said.userfaultfds, 1, "on offer");
        puppet.tell("first");
        assert_eq!(puppet.take(), [Ok(())]);
        assert_eq!(puppet.tell("call").userfaultfds, 0, "closed again");
        assert!(puppet.take().is_empty(), "one offer a process");
        let start = said.start.next_multiple_of(PAGE);
        let length = (said.start + said.length - start) / PAGE * PAGE;
        let pid = puppet.child.id();
        assert_eq!(puppet.arm.begin(Pid(pid), Address(start), length), Ok(()));
        Some((puppet, start, length))
    }

    fn arm(&mut self, start: u64, length: u64) -> Result<(), SamplingError> {
        self.arm.arm(Pid(self.child.id()), Address(start), length)
    }

    /// What perf has seen of a range since the last time.
    fn seen(&mut self, start: u64, length: u64) -> Option<Vec<Fault>> {
        let pid = self.child.id();
        let mut seen = Vec::new();
        self.faults.as_mut()?.drain(&mut |fault| {
            if fault.pid == Pid(pid) && (start..start + length).contains(&fault.address.0) {
                seen.push(fault);
            }
        });
        Some(seen)
    }

    fn finish(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().expect("waited").success());
    }
}

#[test]
fn armed_pages_fault_once_and_the_agent_s_end_undoes_all() {
    let Some((mut puppet, start, length)) = Puppet::sampled() else {
        return;
    };
    let quiet = puppet.tell("write").result;
    puppet.seen(start, length);
    assert_eq!(puppet.arm(start + 10 * PAGE, 100 * PAGE), Ok(()));
    let armed = puppet.tell("write").result;
    assert!((100..110 + quiet).contains(&armed), "{armed}, {quiet}");
    if let Some(seen) = puppet.seen(start, length) {
        let mut pages: Vec<u64> = seen
            .iter()
            .map(|fault| (fault.address - Address(start)) / PAGE)
            .collect();
        pages.sort_unstable();
        assert!(pages.iter().copied().eq(10..110), "each once: {pages:?}");
        let by_main = |fault: &Fault| fault.tid == Tid(puppet.child.id());
        assert!(seen.iter().all(by_main), "{seen:?}");
    }
    assert_eq!(puppet.arm(start, length), Ok(()));
    assert_eq!(puppet.tell("read").result, 1, "read(2) succeeds");
    assert_eq!(puppet.arm(start, length), Ok(()));
    // As when it is killed: its descriptors are closed.
    puppet.arm.ended(Pid(puppet.child.id()));
    let after = puppet.tell("write").result;
    assert!(after < 50, "{after} faults, {quiet} before");
    assert_eq!(puppet.arm(start, PAGE), Err(SamplingError::NotOffered));
    let pages = puppet.tell("sum").result;
    assert_eq!(pages as u64, length / PAGE + 1, "read, then written once");
    puppet.finish();
}

#[test]
fn a_program_offers_its_memory_when_it_starts_a_thread() {
    let Some(mut puppet) = Puppet::start() else {
        return;
    };
    assert_eq!(puppet.tell("thread").userfaultfds, 1, "on offer");
    assert_eq!(puppet.tell("thread").userfaultfds, 1, "still");
    assert_eq!(puppet.take(), [Ok(())]);
    assert_eq!(puppet.tell("thread").userfaultfds, 0, "closed again");
    assert!(puppet.take().is_empty(), "one offer a process");
    puppet.finish();
}

#[test]
fn a_program_that_only_waits_for_input_offers_its_memory_when_it_is_older() {
    for call in [
        "poll",
        "select",
        "epoll",
        "ppoll",
        "pselect",
        "epoll_pwait",
        "recv",
        "recvfrom",
        "recvmsg",
    ] {
        let Some(mut puppet) = Puppet::start() else {
            return;
        };
        puppet.tell(call);
        std::thread::sleep(std::time::Duration::from_millis(150));
        assert_eq!(puppet.tell(call).userfaultfds, 1, "{call}: on offer");
        assert_eq!(puppet.take(), [Ok(())], "{call}");
        assert_eq!(puppet.tell(call).userfaultfds, 0, "{call}: closed again");
        puppet.finish();
    }
}

#[test]
fn forks_moves_and_frees_of_armed_memory_do_no_harm() {
    let Some((mut puppet, start, length)) = Puppet::sampled() else {
        return;
    };
    let pid = puppet.child.id();
    assert_eq!(puppet.arm(start, length), Ok(()));
    // The child offers a descriptor of its own memory, and nobody takes it before it ends.
    assert_eq!(puppet.tell("fork").result, 1 << 8);
    for refused in puppet.take() {
        assert_eq!(refused, Err(SamplingError::NoProcess));
    }
    assert_eq!(puppet.arm(start, length), Ok(()));
    let said = puppet.tell("move");
    assert_eq!(said.result, 1);
    if said.start.next_multiple_of(PAGE) != start {
        assert!(puppet.arm(start, length).is_err() || said.start < start + length);
    }
    assert_eq!(puppet.arm.end(Pid(pid), Address(start), length), Ok(()));
    puppet.tell("free");
    assert_eq!(puppet.arm.end(Pid(pid), Address(start), length), Ok(()));
    assert!(
        puppet.arm.begin(Pid(pid), Address(start), length).is_err(),
        "it is gone"
    );
    puppet.finish();
}

#[test]
fn a_program_with_a_userfaultfd_of_its_own_is_left_alone() {
    let Some((mut puppet, start, length)) = Puppet::sampled() else {
        return;
    };
    assert_eq!(puppet.arm(start, length), Ok(()));
    writeln!(puppet.stdin, "own").expect("written");
    let mut taken = Vec::new();
    while taken.is_empty() {
        taken = puppet.take();
    }
    assert_eq!(taken, [Err(SamplingError::InUse)]);
    let tries = puppet.said("own").result;
    assert!(tries >= 0, "it could register: {tries}");
    assert_eq!(puppet.arm(start, length), Err(SamplingError::NotOffered));
    puppet.finish();
}

#[test]
fn a_program_waits_once_for_an_agent_that_was_killed() {
    let Some(mut puppet) = Puppet::start() else {
        return;
    };
    puppet.tell("allocate");
    // The agent takes nothing any more, and has not said that it ends.
    for (command, waits) in [("ask", 100), ("ask", 0), ("ask in a child", 100)] {
        let ms = puppet.tell(command).result;
        assert!((waits..waits + 700).contains(&ms), "{command}: {ms} ms");
    }
    // What was on offer first, and that the parent and the child have one of their own.
    assert_eq!(puppet.take().len(), 3);
    puppet.finish();
}
