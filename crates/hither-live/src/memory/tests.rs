//! Logs of simulated programs replay to the same decisions, and a changed log does not.

use hither_ids::{Address, KernelNode, Pid, Tid};
use hither_trace::schema::SiteRow;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::config::{MemoryConfig, SampleSource};
use super::event::{Input, MappedRange, TimedInput, TouchedPage};
use super::*;
use crate::controller::Controller;
use crate::decision_log::{DecisionLog, LogFile};
use crate::numa::host::{MeasuredCosts, NodeConfig};
use crate::numa::ranges::{MoveResult, RefusalReason, RefusedRun};
use hither_core::placement::{RegionTier, SavedPlacement, SiteTier};
use hither_kernel::writable_memory::MemoryKind;
use hither_session::record::ConstructKind;
use hither_testing::skip::skip;

const PAGE: u64 = 4096;

fn config(dry_run: bool) -> MemoryConfig {
    let node = |node, cpus: &[u32]| NodeConfig {
        node,
        cpus: cpus.to_vec(),
        frames: 3000,
        distances: vec![10, 20, 30],
    };
    MemoryConfig {
        policy: "cache-aware{region=8192}".parse().expect("a policy"),
        page_bytes: PAGE,
        huge_page_bytes: Some(512 * PAGE),
        dry_run,
        source: SampleSource::Armed,
        cpu_permille: 10,
        nodes: vec![
            node(KernelNode(0), &[0, 1]),
            node(KernelNode(2), &[2]),
            node(KernelNode(3), &[]),
        ],
        measured: MeasuredCosts {
            latency_ns: vec![80, 140, 300, 141, 82, 310, 160, 160, 80],
            migration_ns: Some(700),
        },
        sites: vec![SiteTier {
            signature: 3,
            tier: RegionTier::Remote,
            whole: true,
        }],
        far_nodes: 1 << 3,
        placed: vec![SavedPlacement {
            signature: 4,
            thread: 0,
            nth: 1,
            pages: 500,
            runs: vec![(100, None), (200, Some(2)), (200, Some(0))],
        }],
    }
}

/// Any input, sensible or not: few processes and addresses, so that inputs affect each other.
fn input() -> impl Strategy<Value = Input> {
    let pid = || (1..4_u32).prop_map(Pid);
    let tid = || (1..3_u32).prop_map(Tid);
    let start = || (0..64_u64).prop_map(|page| Address(page * 16 * PAGE + page % 3));
    let length = || (0..2000_u64).prop_map(|pages| pages * PAGE + pages % 5);
    let refused = (
        0..50_u32,
        1..50_u32,
        prop_oneof![
            Just(RefusalReason::Busy),
            Just(RefusalReason::Shared),
            Just(RefusalReason::NoProcess),
            Just(RefusalReason::Error(5))
        ],
    );
    let refused = refused.prop_map(|(first, pages, why)| RefusedRun { first, pages, why });
    prop_oneof![
        1 => pid().prop_map(|pid| Input::Started { pid }),
        1 => pid().prop_map(|pid| Input::Ended { pid }),
        6 => (pid(), start(), length(), 0..6_u64, 0..5_u32).prop_map(
            |(pid, start, length, signature, cpu)| {
                Input::Region { pid, tid: pid.first_thread(), start, length, signature, cpu }
            }
        ),
        4 => (pid(), start(), length())
            .prop_map(|(pid, start, length)| Input::RegionEnd { pid, start, length }),
        20 => (pid(), tid(), 0..4_u32, 0..3000_u64).prop_map(|(pid, tid, cpu, page)| {
            Input::Fault { pid, tid, cpu, address: Address(page * PAGE) + 1 }
        }),
        8 => (pid(), tid(), 0..4_u32, 0..3000_u64).prop_map(|(pid, tid, cpu, page)| {
            let home = (page % 5 < 4).then_some(KernelNode(page as u32 % 4));
            Input::Sample { pid, tid, cpu, address: Address(page * PAGE) + 8, home }
        }),
        8 => (pid(), tid(), 0..3000_u64).prop_map(|(pid, tid, page)| {
            let home = (page % 5 < 4).then_some(KernelNode(page as u32 % 4));
            let address = Address(page * PAGE + 1);
            Input::Located { page: TouchedPage { pid, tid, address }, home }
        }),
        2 => (pid(), prop::bool::weighted(0.1), prop::collection::vec((start(), length()), 0..4))
            .prop_map(|(pid, own, ranges)| {
            let mut ranges: Vec<_> = ranges
                .into_iter()
                .map(|(start, length)| MappedRange { start, length, kind: MemoryKind::Heap })
                .collect();
            ranges.sort_by_key(|range| range.start);
            Input::Memory { pid, own, ranges }
        }),
        3 => (pid(), start(), length(), 0..16_u64, prop_oneof![Just(0_u32), Just(22)],
            any::<bool>())
            .prop_map(|(pid, start, length, nodes, error, site)| {
                Input::Bound { pid, start, length, nodes, error, site }
            }),
        4 => (0..30_u64, 0..50_u32, 0..3_u32, prop::collection::vec(refused, 0..3)).prop_map(
            |(job, moved, absent, refused)| {
                let (there, took_ns, huge) = (0, 1000, 0);
                Input::Moved(MoveResult { job, moved, absent, there, huge, refused, took_ns })
            }
        ),
        6 => (pid(), tid(), 0..4_u32, 0..4_u64, 0..5_u16).prop_map(|(pid, tid, cpu, signature,
            threads)| {
            let kind = ConstructKind::Barrier;
            Input::Construct { pid, tid, cpu, kind, signature, threads }
        }),
        2 => (pid(), tid(), 0..4_u32).prop_map(|(pid, tid, cpu)| Input::Thread { pid, tid,
            cpu }),
        1 => (pid(), start(), 0..40_u32, prop::bool::weighted(0.1)).prop_map(|(pid, start, pages,
            for_good)| {
            Input::Unarmed { pid, start, pages, why: "busy".to_owned(), for_good }
        }),
        2 => prop::collection::vec(0..4000_u32, 3).prop_map(|used| Input::Usage { used }),
        1 => Just(Input::Tick),
        1 => Just(Input::FaultsLost),
        1 => (1..9_u32, 0..1_000_000_u64).prop_map(|(blocks, took_ns)| Input::Armed {
            blocks, took_ns, agent_ns: 3 * took_ns
        }),
    ]
}

/// Inputs in order of time, some of them repeated page by page, as by a stream.
fn events() -> impl Strategy<Value = Vec<TimedInput>> {
    let streamed = prop_oneof![9 => Just(1_u64), 1 => Just(8)];
    let step = (input(), streamed, 0..80_000_000_u64);
    prop::collection::vec(step, 1..120).prop_map(|steps| {
        let mut time_ns = 0;
        let mut events = Vec::new();
        for (input, times, later_ns) in steps {
            for time in 0..times {
                time_ns += later_ns / times;
                let input = match input.clone() {
                    Input::Fault {
                        pid,
                        tid,
                        cpu,
                        address,
                    } => {
                        let address = address + time * PAGE;
                        Input::Fault {
                            pid,
                            tid,
                            cpu,
                            address,
                        }
                    }
                    input => input,
                };
                events.push(TimedInput { time_ns, input });
            }
        }
        events
    })
}

/// Writes the log of a controller with these inputs, and returns the number of decisions. Panics if
/// an invariant of the controller breaks.
fn logged(path: &Path, config: &MemoryConfig, events: &[TimedInput]) -> usize {
    let log = DecisionLog::<PlacementController>::begin(
        &LogFile::create(path, false).expect("created"),
        config,
    );
    let mut controller = PlacementController::new(config).expect("a sound configuration");
    let mut decisions = 0;
    for at in events {
        log.input(at);
        let mut out = Vec::new();
        controller.step(at, &mut out);
        controller.check();
        out.iter().for_each(|decision| log.decision(decision));
        decisions += out.len();
    }
    log.site(&SiteRow::unknown());
    log.finish(&json!({ "regions": 1 })).expect("written");
    decisions
}

/// Policies that act when a page is first touched, when it is used, and on both.
const POLICIES: &[&str] = &[
    "cache-aware{region=8192}",
    "upm",
    "majority",
    "cache-aware{region=8192},upm",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_replays_to_the_same_decisions(
        events in events(),
        dry_run in any::<bool>(),
        source in prop::sample::select(&[SampleSource::Armed, SampleSource::Hints,
            SampleSource::Processor]),
        policy in prop::sample::select(POLICIES),
    ) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("log.jsonl");
        let decisions = logged(&path, &MemoryConfig { policy: policy.parse().expect("a policy"),
            source, ..config(dry_run) }, &events);
        prop_assert_eq!(replay(&path).expect("a sound log"), Ok(decisions));
    }
}

fn streamed() -> Vec<TimedInput> {
    let region = Input::Region {
        pid: Pid(1),
        tid: Tid(1),
        start: Address(0),
        length: 100 * PAGE,
        signature: 1,
        cpu: 0,
    };
    let fault = |page| Input::Fault {
        pid: Pid(1),
        tid: Tid(1),
        cpu: 0,
        address: Address(page * PAGE),
    };
    let inputs = std::iter::once(region).chain((0..6).map(fault));
    let at = |(time_ns, input)| TimedInput { time_ns, input };
    (0..).zip(inputs).map(at).collect()
}

#[test]
fn a_log_begins_with_the_configuration() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log.jsonl");
    logged(&path, &config(false), &[]);
    let text = std::fs::read_to_string(&path).expect("read");
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let keys = first.as_object().expect("an object").keys();
    assert_eq!(
        keys.collect::<Vec<_>>(),
        [
            "cpu_permille",
            "dry_run",
            "far_nodes",
            "hither_memory",
            "huge_page_bytes",
            "measured",
            "nodes",
            "page_bytes",
            "placed",
            "policy",
            "sites",
            "source"
        ]
    );
    assert_eq!(first["hither_memory"], 6);
}

#[test]
fn a_log_that_was_changed_is_found_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log.jsonl");
    let decisions = logged(&path, &config(false), &streamed());
    assert_eq!(decisions, 2);
    let text = std::fs::read_to_string(&path).expect("read");
    let replayed = |text: &str| {
        std::fs::write(&path, text).expect("written");
        replay(&path)
    };
    let changed = replayed(&text.replace(
        "\"class\":\"remote\",\"from\"",
        "\"class\":\"local\",\"from\"",
    ));
    let mismatch = changed.expect("a log").expect_err("another tier");
    assert!(mismatch.logged.contains("local"), "{mismatch:?}");
    assert!(mismatch.decided.contains("Remote"), "{mismatch:?}");
    let lines: Vec<&str> = text.lines().collect();
    let without = |number: usize| {
        let mut lines = lines.clone();
        lines.remove(number);
        lines.join("\n")
    };
    let decision = lines
        .iter()
        .position(|line| line.contains("\"bind\""))
        .expect("one");
    assert!(replayed(&without(decision)).expect("a log").is_err());
    assert!(
        replayed(&without(0))
            .unwrap_err()
            .to_string()
            .contains(":1: ")
    );
    assert!(replayed("junk\n").is_err());
    let newer = text.replace("\"hither_memory\":6", "\"hither_memory\":7");
    assert!(
        replayed(&newer)
            .unwrap_err()
            .to_string()
            .contains("format 7")
    );
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing_and_says_so() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        skip("no /dev/full");
        return;
    }
    let log = DecisionLog::<PlacementController>::begin(
        &LogFile::create(full, false).expect("it can be opened"),
        &config(true),
    );
    let mut controller = PlacementController::new(&config(true)).expect("a sound configuration");
    for at in streamed() {
        log.input(&at);
        controller.step(&at, &mut Vec::new());
    }
    let error = log.finish(&json!({})).expect_err("it is full");
    assert!(error.to_string().contains("/dev/full"), "{error}");
    assert_eq!(controller.summary().far, 1);
}
