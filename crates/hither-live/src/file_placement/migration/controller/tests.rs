//! Tests decisions in small runs.

use hither_ids::{FileKey, KernelNode};
use hither_kernel::machine::NodeMemory;
use serde_json::{Value, json};

use super::*;
use crate::controller::orders;
use crate::decision_log::{DecisionLog, LogFile};

const PAGE: u64 = 4096;
const BLOCK: u64 = PAGE * BLOCK_PAGES as u64;
const FILE: u64 = 0xf;

/// Nodes 0 and 2, with CPUs 0 and 1 and with CPU 2. Moving a block costs 8 us, a remote load 140
/// ns.
fn config(dry_run: bool) -> FileMigrationConfig {
    let node = |node, cpus: &[u32]| NodeMemory {
        node,
        cpus: cpus.to_vec(),
        bytes: 1 << 30,
        free_bytes: 1 << 30,
        distances: match node {
            KernelNode(0) => vec![10, 20],
            _ => vec![20, 10],
        },
        ..NodeMemory::default()
    };
    let nodes = [node(KernelNode(0), &[0, 1]), node(KernelNode(2), &[2])];
    FileMigrationConfig {
        dry_run,
        ..FileMigrationConfig::new("upm".parse().expect("a policy"), BLOCK, &nodes, None)
    }
}

struct Run {
    controller: FileMigrationController,
    time_ns: u64,
}

impl Run {
    fn new(dry_run: bool) -> Run {
        Run {
            controller: FileMigrationController::new(&config(dry_run)).expect("a controller"),
            time_ns: 0,
        }
    }

    fn input(&mut self, input: Input) -> Vec<Order> {
        self.time_ns += 1000;
        let mut out = Vec::new();
        let time_ns = self.time_ns;
        self.controller
            .step(&TimedInput { time_ns, input }, &mut out);
        orders(out)
    }

    /// Reads whole blocks from the `first` on, several times.
    fn read(&mut self, cpu: u32, first: u64, blocks: u64, times: u32) {
        for _ in 0..times {
            let decided = self.input(Input::Access {
                file: FileKey(FILE),
                offset: first * BLOCK,
                length: blocks * BLOCK,
                thread: cpu,
                cpu,
                write: false,
            });
            assert_eq!(decided, []);
        }
    }

    fn tick(&mut self) -> Vec<Order> {
        self.time_ns += 100_000_000;
        self.input(Input::Tick)
    }

    /// Answers a look-up: all pages are on a node, by the kernel's number.
    fn locate(&mut self, decided: &[Order], node: KernelNode) {
        let [Order::Locate { job, ranges, .. }] = decided else {
            panic!("{decided:?}");
        };
        let pages = ranges.iter().map(|range| range.pages).sum();
        let found = vec![LocatedRun {
            first: 0,
            pages,
            node,
        }];
        assert_eq!(self.input(Input::Located { job: *job, found }), []);
    }

    fn moved(&mut self, job: u64, refused: Vec<crate::numa::ranges::RefusedRun>) {
        let moved = MoveResult {
            job,
            refused,
            ..MoveResult::default()
        };
        assert_eq!(self.input(Input::Moved(moved)), []);
    }
}

fn pages(first: u64, blocks: u32) -> Vec<FilePages> {
    vec![FilePages {
        start: first * BLOCK,
        pages: blocks * BLOCK_PAGES,
    }]
}

#[test]
fn what_one_other_node_reads_follows_it() {
    let mut run = Run::new(false);
    run.read(2, 3, 4, 1);
    assert_eq!(run.tick(), [], "once read is not worth a move");
    run.read(2, 3, 4, 1);
    let asked = run.tick();
    assert_eq!(
        asked,
        [Order::Locate {
            job: 0,
            file: FileKey(FILE),
            ranges: pages(3, 4)
        }]
    );
    assert_eq!(run.tick(), [], "not twice");
    run.locate(&asked, KernelNode(0));
    run.read(2, 3, 4, 1);
    let decided = run.tick();
    let [
        Order::Move {
            job,
            to,
            ranges,
            here,
            there,
            ..
        },
    ] = &decided[..]
    else {
        panic!("{decided:?}");
    };
    assert_eq!((*to, ranges), (KernelNode(2), &pages(3, 4)));
    assert_eq!((*here, *there), (0, 4 * 3 * BLOCK / ACCESS_BYTES));
    run.moved(*job, Vec::new());
    // The block is there now.
    run.read(2, 3, 4, 5);
    assert_eq!(run.tick(), []);
    let summary = run.controller.summary();
    let read = 4 * BLOCK / ACCESS_BYTES;
    assert_eq!((summary.accesses, summary.local), (6 * read, 5 * read));
    assert_eq!((summary.files, summary.wanted), (1, 4));
}

#[test]
fn what_is_read_where_it_is_or_from_everywhere_stays() {
    let mut run = Run::new(false);
    run.read(0, 0, 1, 4);
    run.read(0, 1, 1, 4);
    run.read(2, 1, 1, 4);
    let asked = run.tick();
    run.locate(&asked, KernelNode(0));
    for _ in 0..10 {
        run.read(0, 0, 2, 2);
        run.read(2, 1, 1, 2);
        assert_eq!(run.tick(), []);
    }
}

#[test]
fn a_block_that_would_go_back_stays() {
    let mut run = Run::new(false);
    run.read(2, 0, 1, 4);
    let asked = run.tick();
    run.locate(&asked, KernelNode(0));
    run.read(2, 0, 1, 4);
    let decided = run.tick();
    assert!(
        matches!(
            decided[..],
            [Order::Move {
                job: 1,
                to: KernelNode(2),
                ..
            }]
        ),
        "{decided:?}"
    );
    run.moved(1, Vec::new());
    for _ in 0..20 {
        run.read(0, 0, 1, 10);
        assert_eq!(run.tick(), [], "back and forth costs more than it brings");
    }
}

#[test]
fn what_was_refused_may_be_asked_for_again_and_what_has_left_is_looked_for() {
    let mut run = Run::new(false);
    run.read(2, 0, 2, 4);
    let asked = run.tick();
    run.locate(&asked, KernelNode(0));
    run.read(2, 0, 2, 4);
    let decided = run.tick();
    assert!(
        matches!(decided[..], [Order::Move { job: 1, .. }]),
        "{decided:?}"
    );
    let refused = |first, why| crate::numa::ranges::RefusedRun {
        first,
        pages: BLOCK_PAGES,
        why,
    };
    run.moved(
        1,
        vec![
            refused(0, RefusalReason::Busy),
            refused(BLOCK_PAGES, RefusalReason::Absent),
        ],
    );
    run.read(2, 0, 2, 4);
    let decided = run.tick();
    let located = Order::Locate {
        job: 2,
        file: FileKey(FILE),
        ranges: pages(1, 1),
    };
    assert_eq!(decided[0], located);
    assert!(
        matches!(&decided[1..], [Order::Move { job: 3, ranges, .. }] if *ranges == pages(0, 1)),
        "{decided:?}"
    );
}

#[test]
fn the_last_block_of_a_file_need_not_be_whole() {
    let mut run = Run::new(false);
    run.read(2, 0, 1, 4);
    let asked = run.tick();
    run.locate(&asked, KernelNode(0));
    run.read(2, 0, 1, 4);
    assert_eq!(run.tick().len(), 1);
    let refused = crate::numa::ranges::RefusedRun {
        first: 1,
        pages: BLOCK_PAGES - 1,
        why: RefusalReason::Absent,
    };
    run.moved(1, vec![refused]);
    run.read(2, 0, 1, 4);
    assert_eq!(run.tick(), []);
    let summary = run.controller.summary();
    assert_eq!(summary.local, 4 * BLOCK / ACCESS_BYTES);
}

#[test]
fn a_file_that_cannot_be_got_at_is_left_alone() {
    let mut run = Run::new(false);
    for for_good in [false, true] {
        run.read(2, 0, 1, 4);
        let decided = run.tick();
        let [Order::Locate { job, .. }] = decided[..] else {
            panic!("{decided:?}");
        };
        assert_eq!(run.input(Input::Unreachable { job, for_good }), []);
    }
    run.read(2, 0, 1, 4);
    assert_eq!(run.tick(), []);
}

#[test]
fn after_a_while_it_is_looked_again_where_blocks_are() {
    let mut run = Run::new(false);
    run.read(0, 0, 1, 4);
    let asked = run.tick();
    run.locate(&asked, KernelNode(0));
    run.time_ns += HISTORY_NS;
    assert_eq!(run.tick(), []);
    run.read(0, 0, 1, 4);
    let asked = run.tick();
    // The kernel has moved it elsewhere meanwhile.
    run.locate(&asked, KernelNode(2));
    run.read(0, 0, 1, 4);
    let decided = run.tick();
    assert!(
        matches!(
            decided[..],
            [Order::Move {
                to: KernelNode(0),
                ..
            }]
        ),
        "{decided:?}"
    );
}

#[test]
fn a_dry_run_decides_as_if_it_were_done() {
    let mut run = Run::new(true);
    run.read(2, 0, 8, 4);
    let asked = run.tick();
    run.locate(&asked, KernelNode(0));
    run.read(2, 0, 8, 4);
    assert_eq!(run.tick().len(), 1);
    run.read(2, 0, 8, 1);
    assert_eq!(run.tick(), []);
    let summary = run.controller.summary();
    assert_eq!((summary.wanted, summary.moved), (8, 0));
    assert_eq!(summary.local, 8 * BLOCK / ACCESS_BYTES);
}

#[test]
fn a_log_begins_with_the_configuration_and_replays() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log.jsonl");
    let file = LogFile::create(&path, false).expect("created");
    let log = DecisionLog::<FileMigrationController>::begin(&file, &config(true));
    log.finish(&json!({})).expect("written");
    let text = std::fs::read_to_string(&path).expect("read");
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let keys = first.as_object().expect("an object").keys();
    assert_eq!(
        keys.collect::<Vec<_>>(),
        [
            "dry_run",
            "hither_file_migration",
            "measured",
            "nodes",
            "page_bytes",
            "policy"
        ]
    );
    assert_eq!(crate::file_placement::replay(&path).expect("a log"), Ok(0));
}
