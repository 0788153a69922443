//! What is tried out, and how it is shown. Each answer is that of the code that a run asks.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

use hither_analysis::format::{bytes, count, counted, printable};
use hither_kernel::mapped_files::MappedProcess;
use hither_kernel::{page_cache, samplers, this_process};
use hither_kernel_events::{Kind, Probe, Source};
use hither_live::memory::capabilities::{Capabilities, CounterProbe};
use hither_live::observe::{RecordOptions, Recorder, TraceOptions};
use hither_live::{Beside, SessionOptions, replication};
use hither_session::memory_limits;
use serde_json::json;

use crate::command::run::machine::MachineState;
use crate::preload;

/// Something that was tried out.
pub(super) struct Check {
    part: &'static str,
    name: &'static str,
    /// Whether hither is of no use without it.
    pub(super) needed: bool,
    /// What there is, or why it is missing.
    pub(super) answer: Result<String, String>,
    /// What does not work without it.
    lost: &'static str,
    /// How to get it.
    remedy: &'static str,
}

/// The parts, by what they are for.
const RECORDING: &str = "Recording and runs";
const PAGE_CACHE: &str = "Page cache (run --page-cache, --no-cache)";
const NODES: &str = "Memory nodes (run --memory, --replicas, --file-placement)";
const MOUNTS: &str = "Mounts (mount, node)";

/// All checks, in the order in which they are shown. `survey` is of this machine's memory.
pub(super) fn all(survey: Result<&Capabilities, &io::Error>) -> Vec<Check> {
    let mut checks = of_recording();
    checks.extend(of_page_cache());
    match survey {
        Ok(survey) => checks.extend(of_memory(survey)),
        Err(error) => checks.push(Check {
            part: NODES,
            name: "nodes",
            needed: false,
            answer: Err(format!("/sys/devices/system/node: {error}")),
            lost: "nothing is placed",
            remedy: "in a container, mount /sys",
        }),
    }
    let obstacles: Vec<&str> = replication::obstacles().collect();
    checks.push(Check {
        part: NODES,
        name: "replicas",
        needed: false,
        answer: match &obstacles[..] {
            [] => Ok("on ext4, xfs, btrfs and tmpfs".to_owned()),
            obstacles => Err(obstacles.join("; ")),
        },
        lost: "--replicas copies nothing",
        remedy: "sysctl fs.lease-break-time=45; in a container, allow process_vm_writev",
    });
    checks.push(Check {
        part: MOUNTS,
        name: "FUSE",
        needed: false,
        answer: match mount_obstacle() {
            None => Ok("can be mounted".to_owned()),
            Some(obstacle) => Err(obstacle),
        },
        lost: "`mount` does not work, and `node` only serves other members",
        remedy: "modprobe fuse; install fuse3; chmod 666 /dev/fuse; in a container, pass it on",
    });
    checks
}

#[cfg(feature = "cluster")]
use hither_mount::obstacle as mount_obstacle;

#[cfg(not(feature = "cluster"))]
fn mount_obstacle() -> Option<String> {
    Some(crate::left_out::MESSAGE.to_owned())
}

fn of_recording() -> Vec<Check> {
    let check = |name, needed, answer, lost, remedy| Check {
        part: RECORDING,
        name,
        needed,
        answer,
        lost,
        remedy,
    };
    let told = |works: bool, yes: &str, no: &str| {
        if works {
            Ok(yes.to_owned())
        } else {
            Err(no.to_owned())
        }
    };
    let here = 0_u64;
    vec![
        check(
            "recording",
            true,
            trial(),
            "`record`, `run` and `advise -- CMD` see nothing; traces and mounts work",
            "look for the message in docs/troubleshooting.md",
        ),
        check(
            "limits",
            true,
            told(
                memory_limits::leave_room(),
                "ulimit -v and -d leave room",
                "ulimit -v or -d leaves too little for the recorder's library",
            ),
            "programs are left alone",
            "ulimit -v unlimited, ulimit -d unlimited; at least 512 MiB and 128 MiB",
        ),
        check(
            "call stacks",
            false,
            told(
                this_process::copy_memory((&raw const here) as u64, &mut [0]),
                "whole ones",
                "process_vm_readv is refused",
            ),
            "all call sites are one frame deep, and policies tell fewer apart",
            "in a container, allow process_vm_readv",
        ),
        check(
            "totals",
            false,
            told(
                fs::read_to_string("/proc/self/io").is_ok(),
                "the kernel says how much programs read",
                "/proc/self/io is missing",
            ),
            "nobody knows how much was not seen, so `advise` gives no verdict",
            "a kernel with CONFIG_TASK_IO_ACCOUNTING, and a /proc that shows it",
        ),
        check(
            "kernel events",
            false,
            kernel_events(&Probe::run()),
            "`record` and `advise` see no programs that run already (--pid, --unit, --all)",
            "run as root, or give CAP_BPF and CAP_PERFMON; Linux 5.15 with BTF",
        ),
    ]
}

/// Which events of the page cache are seen, and by which of the kernel's sources.
fn kernel_events(probe: &Probe) -> Result<String, String> {
    if !probe.is_possible() {
        let obstacles = probe.obstacles.iter().map(ToString::to_string);
        let findings = probe.findings.iter().map(ToString::to_string);
        return Err(obstacles.chain(findings).collect::<Vec<_>>().join("; "));
    }
    let mut parts = Vec::new();
    for source in Source::ALL {
        let has = |kind: &Kind| probe.sources(*kind).any(|of| of == source);
        let kinds: Vec<_> = Kind::all().filter(has).map(Kind::name).collect();
        if !kinds.is_empty() {
            parts.push(format!("by {source}: {}", kinds.join(", ")));
        }
    }
    let unseen: Vec<_> = Kind::all()
        .filter(|kind| probe.source(*kind).is_none())
        .map(Kind::name)
        .collect();
    if !unseen.is_empty() {
        parts.push(format!("not seen: {}", unseen.join(", ")));
    }
    Ok(parts.join("; "))
}

/// Records a small program.
fn trial() -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| printable(&error.to_string()).into_owned();
    let folder = tempfile::tempdir().map_err(|error| text(&error))?;
    let command = ["sh", "-c", "cat /proc/self/exe > /dev/null"];
    let options = RecordOptions {
        command: command.map(OsString::from).into(),
        preload: Some(preload::library().map_err(|error| text(&format!("{error:#}")))?),
        beside: Beside::No,
        session: SessionOptions::default(),
        trace: TraceOptions {
            output: folder.path().join("trial.hither"),
            force: false,
            mapped: false,
            arguments: false,
            hash_names: false,
        },
    };
    let recorded = Recorder::new(options).run().map_err(|error| text(&error))?;
    let missed = recorded.losses.not_recorded.first();
    match (recorded.summary.bytes_read, missed) {
        (1.., _) => Ok(format!(
            "a trial has seen {}",
            counted(recorded.summary.accesses, "access")
        )),
        (0, Some(program)) => Err(text(&format!("{}: {}", program.path, program.reason))),
        (0, None) => Err("nothing was seen of a small program".to_owned()),
    }
}

fn of_page_cache() -> Vec<Check> {
    let check = |name, answer, lost, remedy| Check {
        part: PAGE_CACHE,
        name,
        needed: false,
        answer,
        lost,
        remedy,
    };
    let limit = MachineState::of_this_machine(&[]).limit;
    let cachestat = tempfile::tempfile().map_err(|error| error.to_string());
    let cachestat =
        cachestat.and_then(|file| page_cache::cachestat(&file).map_err(|error| error.to_string()));
    vec![
        check(
            "memory limit",
            limit.map_or_else(
                || Err("no memory cgroup sets one that is seen here".to_owned()),
                |limit| {
                    let (all, files) = (bytes(limit.bytes), bytes(limit.files_bytes));
                    Ok(format!("{all}, which leaves {files} for files"))
                },
            ),
            "--page-cache needs --cache, and `run` does not switch it on by itself",
            "--cache SIZE; systemd-run --user --scope -p MemoryMax=1G hither run -- CMD",
        ),
        check(
            "cachestat",
            cachestat.map(|()| "the kernel says what is cached".to_owned()),
            "--cache and --no-cache cannot tell what others have cached",
            "Linux 6.5; in a container, allow cachestat",
        ),
        check(
            "mapped files",
            drops_mapped(),
            "mapped files are not steered; `record --mapped` sees first touches alone",
            "run as root, or give CAP_SYS_NICE",
        ),
    ]
}

/// Whether pages can be dropped that another program has mapped: a child here.
fn drops_mapped() -> Result<String, String> {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("cat: {error}"))?;
    let opened = MappedProcess::open(hither_ids::Pid::of(&child));
    drop(child.stdin.take());
    let _ = child.wait();
    match opened {
        Ok(_) => Ok("those that programs read in order are steered".to_owned()),
        Err(error) => Err(format!("process_madvise: {error}")),
    }
}

fn of_memory(survey: &Capabilities) -> Vec<Check> {
    let check = |name, answer, lost, remedy| Check {
        part: NODES,
        name,
        needed: false,
        answer,
        lost,
        remedy,
    };
    let nodes = survey.nodes.len();
    let faults = survey.faults.as_ref().map(|faults| {
        let kernels = if faults.in_system_calls {
            ""
        } else {
            ", but not inside system calls (kernel.perf_event_paranoid is above 1)"
        };
        let switches = if faults.of_all_programs {
            ""
        } else {
            "; cheaper with CAP_PERFMON"
        };
        format!("watched{kernels}{switches}")
    });
    let mut checks = vec![
        check(
            "nodes",
            match nodes {
                0 | 1 => Err("one memory node".to_owned()),
                nodes => Ok(format!("{nodes} memory nodes")),
            },
            "there is nowhere to place pages: these switches change nothing",
            "none; it is for machines with several",
        ),
        check(
            "page faults",
            faults.map_err(ToString::to_string),
            "--memory and `record --mapped` see nothing; mapped files are not steered",
            "sysctl kernel.perf_event_paranoid=2; in a container, allow perf_event_open",
        ),
        check(
            "moving pages",
            match &survey.moving {
                Ok(()) => Ok("by move_pages".to_owned()),
                Err(error) => Err(error.to_string()),
            },
            "--memory and --file-placement=upm move nothing",
            "in a container, allow move_pages and mbind",
        ),
    ];
    checks.extend(survey.counters.iter().map(|counter| {
        let remedy = match counter.name {
            name if samplers::is_of_balancing(name) => "sysctl kernel.numa_balancing=1",
            name if samplers::sees_writes_alone(name) => {
                "Linux 6.7; in a container, allow userfaultfd"
            }
            _ => "a processor that samples accesses, and a hypervisor that shows it",
        };
        check(
            counter.name,
            counts(survey, counter),
            "another way counts accesses; with none, --memory=majority moves nothing",
            remedy,
        )
    }));
    checks
}

/// What a way to count accesses can do.
fn counts(survey: &Capabilities, counter: &CounterProbe) -> Result<String, String> {
    let counting = counter.answer.as_ref().map_err(ToString::to_string)?;
    let sees = if counting.sees_reads {
        "reads and writes"
    } else {
        "writes only, and not on huge pages"
    };
    Ok(match counting.cost {
        Some(cost) => format!("{sees}; {} samples a second", count(survey.rate(cost))),
        None => sees.to_owned(),
    })
}

impl Check {
    /// Everything about it.
    pub(super) fn document(&self) -> serde_json::Value {
        json!({
            "part": self.part,
            "name": self.name,
            "needed": self.needed,
            "works": self.answer.is_ok(),
            "detail": self.answer.as_ref().unwrap_or_else(|reason| reason),
            "lost_without": self.lost,
            "remedy": self.remedy,
        })
    }
}

/// All of them, by part. What is missing has two more lines: what is lost, and how to get it.
pub(super) fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_to(&mut text, checks);
    text
}

fn write_to(out: &mut String, checks: &[Check]) -> std::fmt::Result {
    let mut part = "";
    for check in checks {
        if check.part != part {
            let gap = if part.is_empty() { "" } else { "\n" };
            part = check.part;
            writeln!(out, "{gap}{part}")?;
        }
        let name = check.name;
        match &check.answer {
            Ok(detail) => writeln!(out, "  yes  {name:<13}  {detail}")?,
            Err(reason) => writeln!(
                out,
                "  no   {name:<13}  {reason}\n{:7}without it: {}\n{:7}to get it: {}",
                "", check.lost, "", check.remedy
            )?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hither_live::memory::capabilities::{
        CountingCapability, MoveError, SamplingCost, SamplingError, WatchError, WatchedFaults,
    };
    use hither_live::numa::topology::NodeMemory;
    use insta::assert_snapshot;

    use super::*;

    fn survey() -> Capabilities {
        let cost = SamplingCost {
            arm_ns: 1400,
            touch_ns: 700,
        };
        let counting = CountingCapability {
            sees_reads: false,
            cost: Some(cost),
        };
        let counter = |name, answer| CounterProbe { name, answer };
        Capabilities {
            nodes: vec![NodeMemory::default(), NodeMemory::default()],
            huge_page_bytes: None,
            faults: Ok(WatchedFaults {
                in_system_calls: true,
                of_all_programs: true,
            }),
            moving: Ok(()),
            counters: vec![
                counter("hardware", Err(SamplingError::NoHardware)),
                counter("write-protect", Ok(counting)),
            ],
            budget: 0.01,
        }
    }

    #[test]
    fn what_works_is_one_line() {
        assert_snapshot!(text(&of_memory(&survey())), @"
        Memory nodes (run --memory, --replicas, --file-placement)
          yes  nodes          2 memory nodes
          yes  page faults    watched
          yes  moving pages   by move_pages
          no   hardware       the processor does not have it, or a hypervisor hides it
               without it: another way counts accesses; with none, --memory=majority moves nothing
               to get it: a processor that samples accesses, and a hypervisor that shows it
          yes  write-protect  writes only, and not on huge pages; 4,761 samples a second
        ");
    }

    #[test]
    fn what_is_missing_says_what_is_lost_and_how_to_get_it() {
        let mut survey = survey();
        survey.nodes.truncate(1);
        survey.faults = Err(WatchError::NoPerf);
        survey.moving = Err(MoveError::NoCall);
        survey.counters[1].answer = Err(SamplingError::NoCall);
        assert_snapshot!(text(&of_memory(&survey)), @"
        Memory nodes (run --memory, --replicas, --file-placement)
          no   nodes          one memory node
               without it: there is nowhere to place pages: these switches change nothing
               to get it: none; it is for machines with several
          no   page faults    this kernel has no perf events, or hides them
               without it: --memory and `record --mapped` see nothing; mapped files are not steered
               to get it: sysctl kernel.perf_event_paranoid=2; in a container, allow perf_event_open
          no   moving pages   this kernel does not have it, or a container hides it
               without it: --memory and --file-placement=upm move nothing
               to get it: in a container, allow move_pages and mbind
          no   hardware       the processor does not have it, or a hypervisor hides it
               without it: another way counts accesses; with none, --memory=majority moves nothing
               to get it: a processor that samples accesses, and a hypervisor that shows it
          no   write-protect  this kernel does not have it, or hides it
               without it: another way counts accesses; with none, --memory=majority moves nothing
               to get it: Linux 6.7; in a container, allow userfaultfd
        ");
    }

    #[test]
    fn without_privileges() {
        let mut survey = survey();
        survey.faults = Ok(WatchedFaults {
            in_system_calls: false,
            of_all_programs: false,
        });
        assert_eq!(
            of_memory(&survey)[1].answer.as_deref(),
            Ok(
                "watched, but not inside system calls (kernel.perf_event_paranoid is above 1); \
                cheaper with CAP_PERFMON"
            )
        );
    }
}
