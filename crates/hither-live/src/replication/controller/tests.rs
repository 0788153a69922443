//! Decisions over small runs, and random ones whose invariants are walked.

use std::fs;

use hither_ids::FileKey;
use serde_json::json;

use super::super::replay;
use super::*;
use crate::controller::orders;
use crate::decision_log::{DecisionLog, LogFile};

const FILE: u64 = 0xf;

fn config() -> ReplicationConfig {
    ReplicationConfig {
        policy: "dual-layer".parse().expect("a policy"),
        nodes: 2,
        all: false,
        replicas_max: 4,
        block_bytes: BLOCK_BYTES,
        dry_run: false,
    }
}

struct Run {
    controller: ReplicationController,
    time_ns: u64,
}

impl Run {
    fn new(config: &ReplicationConfig) -> Run {
        Run {
            controller: ReplicationController::new(config).expect("a controller"),
            time_ns: 0,
        }
    }

    fn input(&mut self, input: Input) -> Vec<Order> {
        self.time_ns += 1000;
        let at = TimedInput {
            time_ns: self.time_ns,
            input,
        };
        let mut out = Vec::new();
        self.controller.step(&at, &mut out);
        self.controller.check();
        orders(out)
    }

    fn read(&mut self, node: u8, index: u64) -> Vec<Order> {
        self.input(access(FILE, node, index, false))
    }

    /// Reads until a lease is requested, and grants it.
    fn hold(&mut self) {
        assert_eq!(self.read(0, 0), []);
        assert_eq!(self.read(1, 0), []);
        assert_eq!(
            self.read(1, 0),
            [Order::Hold {
                file: FileKey(FILE)
            }]
        );
        assert_eq!(
            self.input(Input::Held {
                file: FileKey(FILE)
            }),
            []
        );
    }

    fn replicated(&mut self, index: u32, node: u8, done: bool) -> Vec<Order> {
        self.input(Input::Replicated {
            file: FileKey(FILE),
            index,
            node,
            done,
        })
    }

    fn wait(&mut self, ns: u64) {
        self.time_ns += ns;
    }
}

fn access(file: u64, node: u8, index: u64, write: bool) -> Input {
    Input::Access {
        file: FileKey(file),
        offset: index * BLOCK_BYTES,
        length: 100,
        process: 0,
        thread: u32::from(node),
        node,
        write,
        count: 1,
    }
}

fn replicate(index: u32, node: u8) -> Order {
    Order::Replicate {
        file: FileKey(FILE),
        index,
        node,
    }
}

fn dropped(index: u32, node: u8) -> Order {
    Order::Drop {
        file: FileKey(FILE),
        index,
        node,
    }
}

#[test]
fn the_second_remote_read_makes_a_replica_once_there_is_a_lease() {
    let mut run = Run::new(&config());
    run.hold();
    assert_eq!(run.read(1, 0), [replicate(0, 1)]);
    assert_eq!(run.read(1, 0), [], "it is on its way");
    assert_eq!(run.replicated(0, 1, true), []);
    assert_eq!(run.read(1, 0), []);
    let summary = run.controller.summary();
    assert_eq!(
        (summary.made, summary.replicas[1], summary.local),
        (1, 1, 1)
    );
    assert_eq!(run.read(1, 1), [], "here it is at home");
    assert_eq!(run.read(0, 1), []);
    assert_eq!(run.read(0, 1), [replicate(1, 0)]);
    assert_eq!(run.replicated(1, 0, false), []);
    assert_eq!(run.read(0, 1), [replicate(1, 0)], "asked for again");
}

#[test]
fn all_is_far_where_that_is_wanted() {
    let mut run = Run::new(&ReplicationConfig {
        nodes: 1,
        all: true,
        ..config()
    });
    assert_eq!(run.read(0, 0), []);
    assert_eq!(run.read(0, 0), []);
    assert_eq!(
        run.read(0, 0),
        [Order::Hold {
            file: FileKey(FILE)
        }]
    );
    run.input(Input::Held {
        file: FileKey(FILE),
    });
    assert_eq!(run.read(0, 0), [replicate(0, 0)]);
}

#[test]
fn a_writer_ends_it_for_a_while_and_twice_as_long_the_next_time() {
    let mut run = Run::new(&config());
    run.hold();
    run.read(1, 0);
    run.replicated(0, 1, true);
    assert_eq!(
        run.input(Input::Ended {
            file: FileKey(FILE)
        }),
        []
    );
    let alone = |run: &mut Run, ns: u64| {
        run.wait(ns - 1_000_000);
        run.read(1, 0);
        assert_eq!(run.read(1, 0), [], "too soon");
        run.wait(1_000_000);
        assert_eq!(
            run.read(1, 0),
            [Order::Hold {
                file: FileKey(FILE)
            }]
        );
        run.input(Input::Held {
            file: FileKey(FILE),
        });
    };
    alone(&mut run, WRITE_PAUSE_NS);
    assert_eq!(run.read(1, 0), [replicate(0, 1)]);
    run.input(Input::Ended {
        file: FileKey(FILE),
    });
    assert_eq!(run.replicated(0, 1, true), [dropped(0, 1)], "too late");
    alone(&mut run, 2 * WRITE_PAUSE_NS);
    run.wait(2 * WRITE_FREE_NS_MIN);
    run.input(Input::Ended {
        file: FileKey(FILE),
    });
    alone(&mut run, WRITE_PAUSE_NS);
    assert_eq!(run.controller.summary().ended, 3);
}

#[test]
fn what_cannot_be_leased_is_left_alone() {
    let mut run = Run::new(&config());
    run.read(0, 0);
    run.read(1, 0);
    assert_eq!(
        run.read(1, 0),
        [Order::Hold {
            file: FileKey(FILE)
        }]
    );
    run.input(Input::NotHeld {
        file: FileKey(FILE),
        later: false,
    });
    run.wait(1 << 40);
    assert_eq!(run.read(1, 0), []);
}

#[test]
fn a_full_node_gives_replicas_up_and_an_unused_file_its_lease() {
    let mut run = Run::new(&config());
    run.hold();
    for index in 0..4 {
        for node in [0, 1, 1] {
            run.read(node, index);
        }
        run.replicated(index as u32, 1, true);
    }
    run.read(0, 9);
    run.read(1, 9);
    let decided = run.read(1, 9);
    assert!(matches!(
        decided[..],
        [Order::Drop { .. }, Order::Replicate { index: 9, .. }]
    ));
    assert_eq!(run.controller.summary().reclaimed, 1);
    run.replicated(9, 1, true);
    let all = Input::Absent {
        file: FileKey(FILE),
        offset: 0,
        length: 20 * BLOCK_BYTES,
    };
    assert_eq!(run.input(all).len(), 4, "replicas go with their originals");
    assert_eq!(run.input(Input::Tick { idle: true }), []);
    run.wait(UNUSED_LEASE_NS_MAX);
    assert_eq!(
        run.input(Input::Tick { idle: true }),
        [Order::Release {
            file: FileKey(FILE)
        }]
    );
    run.input(Input::Ended {
        file: FileKey(FILE),
    });
}

#[test]
fn where_memory_is_tight_none_is_made_and_some_go() {
    let mut run = Run::new(&config());
    run.hold();
    run.read(1, 0);
    run.replicated(0, 1, true);
    run.wait(2_000_000_000);
    assert_eq!(run.input(Input::Memory { free_ppm: 0 }), [dropped(0, 1)]);
    run.read(0, 1);
    run.read(1, 1);
    assert_eq!(run.read(1, 1), []);
    run.wait(2_000_000_000);
    run.input(Input::Memory { free_ppm: 10_000 });
    assert_eq!(run.read(1, 1), [], "less than the policy's part is free");
    run.wait(2_000_000_000);
    run.input(Input::Memory { free_ppm: 500_000 });
    assert_eq!(run.read(1, 1), [replicate(1, 1)]);
}

#[test]
fn where_next_to_none_is_free_half_of_them_go() {
    let mut run = Run::new(&ReplicationConfig {
        replicas_max: 16,
        ..config()
    });
    run.hold();
    for index in 1..9 {
        run.read(0, index);
        run.read(1, index);
        run.read(1, index);
        run.replicated(index as u32, 1, true);
    }
    let made: u64 = run.controller.summary().replicas.iter().sum();
    assert_eq!(made, 8);
    run.wait(2_000_000_000);
    for left in [made / 2, made / 4] {
        run.input(Input::Short);
        assert_eq!(run.controller.summary().replicas.iter().sum::<u64>(), left);
        assert!(run.controller.summary().tight);
    }
    // Memory that is in use as cache is available.
    run.input(Input::Memory { free_ppm: 10_000 });
    let summary = run.controller.summary();
    assert_eq!(summary.replicas.iter().sum::<u64>(), made / 4);
    assert!(!summary.tight);
}

#[test]
fn what_is_put_off_is_made_while_programs_are_idle() {
    let mut run = Run::new(&ReplicationConfig {
        policy: "dual-layer{delay_us=1000}".parse().expect("a policy"),
        ..config()
    });
    for index in 0..3 {
        for node in [0, 1, 1] {
            assert_eq!(run.read(node, index), []);
        }
    }
    run.wait(2_000_000);
    let asked = run.input(Input::Tick { idle: true });
    assert_eq!(
        asked,
        [Order::Hold {
            file: FileKey(FILE)
        }]
    );
    run.input(Input::Held {
        file: FileKey(FILE),
    });
    for index in 0..3 {
        run.read(1, index);
    }
    run.wait(2_000_000);
    let made = run.input(Input::Tick { idle: true });
    assert!(made.contains(&replicate(1, 1)), "{made:?}");
}

#[test]
fn a_pass_over_a_block_is_one_reference_and_reading_it_again_another() {
    let mut run = Run::new(&config());
    let mut read = |offset, length| {
        let input = Input::Access {
            file: FileKey(FILE),
            offset,
            length,
            process: 0,
            thread: 0,
            node: 0,
            write: false,
            count: 1,
        };
        run.input(input);
        run.controller.summary().references
    };
    assert_eq!(read(0, 4096), 1);
    assert_eq!(read(4096, 4096), 1);
    assert_eq!(read(8192, 2 * BLOCK_BYTES), 3);
    assert_eq!(read(8192, 100), 4);
    assert_eq!(read(8192, 100), 5);
    assert_eq!(read(0, 0), 5);
}

#[test]
fn random_runs_keep_the_books() {
    let mut random = 1_u64;
    let mut below = |end: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % end
    };
    for policy in ["dual-layer", "dual-layer{delay_us=5,switch=1,ratio=1}"] {
        let mut run = Run::new(&ReplicationConfig {
            policy: policy.parse().expect("a policy"),
            ..config()
        });
        let mut waiting: Vec<Order> = Vec::new();
        for _ in 0..6000 {
            let file = below(3);
            let node = below(2) as u8;
            let decided = match below(40) {
                0 => run.input(Input::Ended {
                    file: FileKey(file),
                }),
                1 => run.input(Input::Absent {
                    file: FileKey(file),
                    offset: below(8) * BLOCK_BYTES,
                    length: BLOCK_BYTES,
                }),
                2 => run.input(Input::Memory {
                    free_ppm: below(3) as u32 * 400_000,
                }),
                3 => run.input(Input::Tick {
                    idle: below(2) == 0,
                }),
                4 => run.input(access(file, node, below(8), true)),
                5..15 if !waiting.is_empty() => {
                    let decision = waiting.remove(below(waiting.len() as u64) as usize);
                    match decision {
                        Order::Hold { file } if below(4) > 0 => run.input(Input::Held { file }),
                        Order::Hold { file } => run.input(Input::NotHeld { file, later: true }),
                        Order::Replicate { file, index, node } => run.input(Input::Replicated {
                            file,
                            index,
                            node,
                            done: below(4) > 0,
                        }),
                        Order::Release { file } => run.input(Input::Ended { file }),
                        Order::Drop { .. } | Order::FindAbsent { .. } => Vec::new(),
                    }
                }
                _ => run.input(access(file, node, below(8), false)),
            };
            run.wait(below(3) * 20_000_000);
            waiting.extend(decided);
        }
        let summary = run.controller.summary();
        assert!(
            summary.made > 50 && summary.ended > 10,
            "{policy}: {summary:?}"
        );
    }
}

#[test]
fn a_log_of_another_version_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log.jsonl");
    let log = DecisionLog::<ReplicationController>::begin(
        &LogFile::create(&path, false).expect("it can be made"),
        &config(),
    );
    log.finish(&json!({})).expect("written");
    assert_eq!(replay(&path).expect("a sound log"), Ok(0));
    let text = fs::read_to_string(&path).expect("read");
    // The placement knows nothing of memory pressure.
    let older = text.replace(r#""hither_replicas":3"#, r#""hither_replicas":2"#);
    fs::write(&path, older).expect("written");
    let error = replay(&path).expect_err("it is refused").to_string();
    assert!(
        error.ends_with(":1: format 2, and this version reads 3"),
        "{error}"
    );
}
