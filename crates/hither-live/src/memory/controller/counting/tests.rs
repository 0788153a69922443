//! Tests the controller with upm and simulated programs on four nodes: threads that touch pages,
//! and a kernel that arms, looks up and moves them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::*;
use crate::controller::Controller;
use crate::memory::controller::{KnownSiteTier, MemoryConfig, SampleSource, SavedPlacement};
use crate::memory::event::{Input, Migrate, TimedInput};
use crate::numa::host::{MeasuredCosts, NodeConfig};
use crate::numa::ranges::addresses;
use crate::numa::ranges::{LocatedRun, MoveResult, RefusalReason, RefusedRun};
use hither_core::placement::RegionTier;

mod sources;

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;
/// Pages of the region: four quarters of sixteen windows.
const PAGES: u64 = 1024;
/// The page where it begins.
const START: u64 = 5000;
const PID: u32 = 7;

/// A simulated machine with a program.
struct Rig {
    controller: PlacementController,
    now_ns: u64,
    /// The nodes of pages that were touched.
    at: BTreeMap<u64, u32>,
    armed: BTreeSet<u64>,
    /// Threads: their nodes, and the pages that they use in each iteration.
    threads: Vec<(u32, Range<u64>)>,
    /// Why the kernel refuses to move the second half of each batch; `true`: all of it.
    refusal: Option<(RefusalReason, bool)>,
    /// Migrations since they were last taken.
    migrations: Vec<Migrate>,
    judged: Vec<Judged>,
    others: Vec<Decision>,
    /// The time that moving a page takes.
    page_ns: u64,
    arms: usize,
    /// How many pages were looked up.
    asked: u64,
    /// The kernel's scanner runs; and the nodes of pages with a memory policy.
    scans: bool,
    hints: BTreeMap<u64, u32>,
}

fn config(policy: &str) -> MemoryConfig {
    let node = |node| NodeConfig {
        node,
        cpus: vec![node],
        frames: 100_000,
        distances: (0..4).map(|to| if to == node { 10 } else { 20 }).collect(),
    };
    MemoryConfig {
        policy: policy.to_owned(),
        page_bytes: PAGE,
        huge_page_bytes: None,
        dry_run: false,
        source: SampleSource::Armed,
        cpu_permille: 10,
        nodes: (0..4).map(node).collect(),
        measured: MeasuredCosts::default(),
        sites: Vec::new(),
        placed: Vec::new(),
    }
}

fn quarter(number: u64) -> Range<u64> {
    let quarter = PAGES / 4;
    START + number * quarter..START + (number + 1) * quarter
}

impl Rig {
    /// Four threads on their nodes, each with a quarter of a region that is on node 0.
    fn new(config: &MemoryConfig) -> Rig {
        let mut rig = Rig {
            controller: PlacementController::new(config).expect("a sound configuration"),
            now_ns: 0,
            at: (START..START + PAGES).map(|page| (page, 0)).collect(),
            armed: BTreeSet::new(),
            threads: (0..4).map(|at| (at, quarter(u64::from(at)))).collect(),
            refusal: None,
            migrations: Vec::new(),
            judged: Vec::new(),
            others: Vec::new(),
            arms: 0,
            page_ns: 400,
            asked: 0,
            scans: config.source == SampleSource::Hints,
            hints: BTreeMap::new(),
        };
        rig.region(START, PAGES, 11);
        rig
    }

    fn region(&mut self, start: u64, pages: u64, signature: u64) {
        self.input(Input::Region {
            pid: PID,
            tid: PID,
            start: start * PAGE,
            length: pages * PAGE,
            signature,
            cpu: 0,
        });
    }

    /// Gives an input to the controller, and carries out its decisions and what follows from them.
    fn input(&mut self, input: Input) {
        let mut inputs = std::collections::VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.now_ns += 1000;
            let mut decisions = Vec::new();
            let at = TimedInput {
                time_ns: self.now_ns,
                input,
            };
            self.controller.step(&at, &mut decisions);
            for decision in decisions {
                inputs.extend(self.carry_out(decision));
            }
        }
    }

    fn carry_out(&mut self, decision: Decision) -> Option<Input> {
        let pages = |ranges: &[PageRange]| -> Vec<u64> {
            let addresses = addresses(ranges, PAGE);
            addresses.map(|address| address / PAGE).collect()
        };
        match decision {
            Decision::Arm { ranges, .. } => {
                let touched = pages(&ranges).into_iter();
                self.armed
                    .extend(touched.filter(|page| self.at.contains_key(page)));
                self.arms += 1;
                None
            }
            Decision::Locate { job, ranges, .. } => {
                self.asked += pages(&ranges).len() as u64;
                let pages = (0..).zip(pages(&ranges));
                let found = pages.filter_map(|(first, page)| {
                    Some(LocatedRun {
                        first,
                        pages: 1,
                        node: *self.at.get(&page)?,
                    })
                });
                Some(Input::Located {
                    job,
                    found: found.collect(),
                })
            }
            Decision::Migrate(migrate) => {
                let pages = pages(&migrate.ranges);
                assert_eq!(pages.len(), migrate.pages as usize);
                let moved = match self.refusal {
                    None => pages.len(),
                    Some((_, true)) => 0,
                    Some((_, false)) => pages.len() / 2,
                };
                for page in &pages[..moved] {
                    self.at.insert(*page, migrate.to);
                }
                let refused = self.refusal.map(|(why, _)| RefusedRun {
                    first: moved as u32,
                    pages: (pages.len() - moved) as u32,
                    why,
                });
                let job = migrate.job;
                self.migrations.push(migrate);
                Some(Input::Moved(MoveResult {
                    job,
                    moved: moved as u32,
                    refused: refused.into_iter().collect(),
                    took_ns: self.page_ns * moved as u64,
                    ..MoveResult::default()
                }))
            }
            Decision::Judged(judged) => {
                self.judged.push(judged);
                None
            }
            Decision::Hint {
                pid,
                start,
                length,
                node,
            } => {
                for page in start / PAGE..(start + length) / PAGE {
                    match node {
                        Some(node) => self.hints.insert(page, node),
                        None => self.hints.remove(&page),
                    };
                }
                Some(Input::Bound {
                    pid,
                    start,
                    length,
                    nodes: node.map_or(0, |node| 1 << node),
                    error: 0,
                    site: false,
                    hint: node.is_some(),
                })
            }
            other => {
                self.others.push(other);
                None
            }
        }
    }

    /// An iteration of half a second in which each thread uses its pages. The program reports its
    /// end.
    fn iteration(&mut self) {
        self.half_second();
        self.input(Input::Construct {
            pid: PID,
            tid: PID,
            cpu: self.threads[0].0,
            kind: ConstructKind::Iteration,
            signature: 1,
            threads: self.threads.len() as u16,
        });
    }

    fn half_second(&mut self) {
        // The kernel's scanner takes the rights off all pages that exist.
        self.armed.extend(self.at.keys().filter(|_| self.scans));
        for (tid, (cpu, _)) in (PID..).zip(self.threads.clone()) {
            self.input(Input::Thread { pid: PID, tid, cpu });
        }
        self.controller.check();
        let mut threads: Vec<_> = (PID..).zip(self.threads.clone()).collect();
        for _ in 0..100 {
            self.now_ns += 5 * MS;
            self.input(Input::Tick);
            // Of pages that several threads use, each thread is the first to touch some.
            threads.rotate_left(1);
            for (tid, (cpu, pages)) in threads.clone() {
                let touched: Vec<u64> = self.armed.range(pages).copied().collect();
                for page in touched {
                    self.armed.remove(&page);
                    self.input(Input::Fault {
                        pid: PID,
                        tid,
                        cpu,
                        address: page * PAGE + 64,
                    });
                }
            }
        }
    }

    /// The number of pages of each quarter on each node.
    fn on(&self, number: u64) -> [usize; 4] {
        let mut on = [0; 4];
        for (_, &node) in self.at.range(quarter(number)) {
            on[node as usize] += 1;
        }
        on
    }

    /// Pages that were to be moved since this was last called.
    fn moved(&mut self) -> u32 {
        self.migrations.drain(..).map(|migrate| migrate.pages).sum()
    }
}

#[test]
fn from_one_node_to_where_they_are_used_and_no_further() {
    let mut rig = Rig::new(&config("upm"));
    rig.iteration();
    rig.iteration();
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
    let migrations = std::mem::take(&mut rig.migrations);
    assert_eq!(migrations.len(), 3, "one batch a node");
    for migrate in &migrations {
        assert_eq!((migrate.signature, migrate.pages), (11, 256));
        assert!(migrate.samples > 0 && migrate.from_there > 0);
        assert!(migrate.there > migrate.here, "{migrate:?}");
        assert_eq!(migrate.cost_ns, 256_000);
        // 256 pages, 64 lines each, of up to 70 ns.
        assert!(
            (100_000..1_200_000).contains(&migrate.gain_ns),
            "{migrate:?}"
        );
    }
    (0..20).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0, "nothing to and fro");
    let summary = rig.controller.summary();
    assert_eq!((summary.migrated, summary.counted), (768, 1));
    let before = summary.before.share().expect("samples");
    assert!((0.15..0.35).contains(&before), "a quarter: {before}");
    assert_eq!(summary.after.share(), Some(1.0));
    assert_eq!(
        rig.judged.last().expect("judged").local,
        rig.judged.last().expect("judged").samples
    );
}

/// One thread fills the region for a while, then all use their parts of it.
#[test]
fn what_was_seen_while_one_thread_was_alone_holds_nothing_up() {
    let mut rig = Rig::new(&config("upm"));
    let threads = std::mem::replace(&mut rig.threads, vec![(0, START..START + PAGES)]);
    (0..20).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0);
    rig.threads = threads;
    (0..3).for_each(|_| rig.iteration());
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
}

/// LLVM's OpenMP runtime reports threads when they begin, before they are bound to their CPUs.
#[test]
fn what_threads_use_is_known_though_they_began_elsewhere() {
    let mut rig = Rig::new(&config("upm"));
    for (tid, cpu) in (PID..).zip([1, 3, 3, 1]) {
        rig.input(Input::Thread { pid: PID, tid, cpu });
    }
    rig.iteration();
    rig.iteration();
    assert!(rig.judged[0].pages > 0, "{:?}", rig.judged);
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
}

/// A move that costs more than one iteration saves is made once it would have paid.
#[test]
fn dear_moves_are_made_after_some_iterations() {
    let mut rig = Rig::new(&config("upm"));
    rig.page_ns = 150_000;
    // The first two quarters move, at the assumed cost.
    let threads = rig.threads.clone();
    rig.threads.truncate(2);
    (0..3).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 256);
    rig.threads = threads;
    rig.iteration();
    assert_eq!(
        rig.moved(),
        0,
        "150 us a page against some 10 us an iteration"
    );
    (0..40).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 512);
}

#[test]
fn pages_follow_threads_that_swap() {
    let mut rig = Rig::new(&config("upm"));
    (0..4).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 768);
    // Pages of the second quarter came from node 0, so that the competitive criterion would have
    // them stay for good.
    (rig.threads[0].0, rig.threads[1].0) = (1, 0);
    (0..8).for_each(|_| rig.iteration());
    assert_eq!([rig.on(0)[1], rig.on(1)[0]], [256, 256]);
    assert_eq!(
        [rig.on(2)[2], rig.on(3)[3]],
        [256, 256],
        "the others stayed"
    );
    rig.migrations.clear();
    (0..10).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0);
}

#[test]
fn where_nothing_is_to_be_gained_nothing_moves_and_looking_costs_less_and_less() {
    let mut rig = Rig::new(&config("upm"));
    rig.threads = vec![(0, START..START + PAGES)];
    rig.iteration();
    // All samples are local at the first judgement.
    let full = 2 * rig.judged[0].rate;
    (0..60).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0);
    assert_eq!(rig.judged.last().expect("judged").rate, full / 64);
    // A thread that has moved changes that.
    rig.threads[0].0 = 1;
    rig.iteration();
    assert_eq!(rig.judged.last().expect("judged").rate, full);
}

#[test]
fn a_page_that_all_use_alike_stays() {
    let mut rig = Rig::new(&config("upm"));
    rig.threads = (0..4).map(|at| (at, START..START + PAGES)).collect();
    (0..20).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0);
}

#[test]
fn a_program_without_iterations_is_judged_by_periods() {
    let mut rig = Rig::new(&config("upm"));
    (0..8).for_each(|_| rig.half_second());
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
    assert!(
        rig.judged
            .iter()
            .all(|judged| judged.ended == Ended::Period)
    );
    assert_eq!(rig.moved(), 768);
}

/// A program's iterations end, or take long; then another thread has some.
#[test]
fn a_program_whose_iterations_stop_is_judged_by_periods() {
    let mut rig = Rig::new(&config("upm"));
    (0..4).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 768);
    rig.judged.clear();
    (rig.threads[0].0, rig.threads[1].0) = (1, 0);
    (0..18).for_each(|_| rig.half_second());
    assert!(rig.judged.is_empty(), "the next iteration is waited for");
    (0..12).for_each(|_| rig.half_second());
    assert!(!rig.judged.is_empty());
    assert!(rig.judged.iter().all(|of| of.ended == Ended::Period));
    assert_eq!([rig.on(0)[1], rig.on(1)[0]], [256, 256]);
    rig.judged.clear();
    for _ in 0..4 {
        rig.half_second();
        rig.input(Input::Construct {
            pid: PID,
            tid: PID + 2,
            cpu: 2,
            kind: ConstructKind::Iteration,
            signature: 1,
            threads: 4,
        });
    }
    assert!(rig.judged.iter().any(|of| of.ended == Ended::Iteration));
}

#[test]
fn the_policy_s_own_periods_look_at_some_pages_each_time() {
    let mut rig = Rig::new(&config("upm{period_ms=200,visit=128}"));
    rig.half_second();
    rig.half_second();
    let moved = rig.moved();
    assert!((1..768).contains(&moved), "{moved}");
    assert!(rig.judged.iter().all(|judged| judged.pid.is_none()));
    (0..10).for_each(|_| rig.half_second());
    assert_eq!(rig.on(3)[3], 256);
}

#[test]
fn a_process_whose_pages_nobody_may_move_is_given_up() {
    for why in [RefusalReason::NotPermitted, RefusalReason::NoProcess] {
        let mut rig = Rig::new(&config("upm"));
        rig.refusal = Some((why, true));
        (0..6).for_each(|_| rig.iteration());
        assert_eq!(rig.on(3), [256, 0, 0, 0], "{why:?}");
        let summary = rig.controller.summary();
        assert_eq!((summary.migrated, summary.stopped), (0, 1), "{why:?}");
        assert!(summary.pages_refused > 0);
        assert!(
            rig.others
                .iter()
                .any(|decision| matches!(decision, Decision::Sample { on: false, .. }))
        );
        let arms = rig.arms;
        rig.iteration();
        assert_eq!(rig.arms, arms, "{why:?}: nothing is armed any more");
    }
}

#[test]
fn whatever_does_not_move_is_tried_again_ever_more_seldom() {
    for why in [
        RefusalReason::Busy,
        RefusalReason::Shared,
        RefusalReason::NoRoom,
        RefusalReason::NodeNotAllowed,
        RefusalReason::Absent,
        RefusalReason::Untried,
        RefusalReason::Error(libc::EIO),
    ] {
        let mut rig = Rig::new(&config("upm"));
        rig.refusal = Some((why, true));
        (0..60).for_each(|_| rig.iteration());
        assert_eq!(rig.on(3), [256, 0, 0, 0], "{why:?}");
        let summary = rig.controller.summary();
        assert_eq!((summary.migrated, summary.stopped), (0, 0), "{why:?}");
        let judged = rig.judged.len();
        assert!((4..40).contains(&judged), "{why:?}: {judged} times in 30 s");
        // The refusal was temporary.
        rig.refusal = None;
        (0..14).for_each(|_| rig.iteration());
        assert_eq!(rig.on(3), [0, 0, 0, 256], "{why:?}");
    }
}

#[test]
fn what_was_refused_once_is_asked_for_again() {
    let mut rig = Rig::new(&config("upm"));
    rig.refusal = Some((RefusalReason::Busy, false));
    rig.iteration();
    assert_eq!(rig.on(3), [128, 0, 0, 128]);
    rig.refusal = None;
    rig.iteration();
    assert_eq!(rig.on(3), [0, 0, 0, 256]);
    assert_eq!(rig.controller.summary().stopped, 0);
}

#[test]
fn pages_that_cannot_be_armed_are_left_and_a_process_of_which_none_can() {
    let mut rig = Rig::new(&config("upm"));
    rig.half_second();
    let unarmed = |for_good| Input::Unarmed {
        pid: PID,
        start: START * PAGE,
        pages: 10,
        why: "busy".to_owned(),
        for_good,
    };
    rig.input(unarmed(false));
    assert_eq!(rig.controller.summary().stopped, 0);
    rig.input(unarmed(true));
    let arms = rig.arms;
    rig.half_second();
    assert_eq!((rig.arms, rig.controller.summary().stopped), (arms, 1));
    assert_eq!(rig.controller.summary().unarmed, 20);
}

#[test]
fn a_region_that_cannot_be_sampled_now_is_tried_again() {
    let mut rig = Rig::new(&config("upm"));
    rig.input(Input::Unarmed {
        pid: PID,
        start: START * PAGE,
        pages: PAGES as u32,
        why: "huge pages".to_owned(),
        for_good: false,
    });
    rig.others.clear();
    rig.half_second();
    assert_eq!(rig.arms, 0);
    (0..12).for_each(|_| rig.half_second());
    let begun = |decision: &&Decision| matches!(decision, Decision::Sample { on: true, .. });
    assert_eq!(rig.others.iter().filter(begun).count(), 1);
    assert!(rig.arms > 0);
}

#[test]
fn what_the_program_has_bound_itself_is_neither_sampled_nor_moved() {
    let mut rig = Rig::new(&config("upm"));
    rig.half_second();
    rig.input(Input::Bound {
        pid: PID,
        start: quarter(1).start * PAGE,
        length: PAGE,
        nodes: 0,
        error: hither_sys::record::OWN_POLICY,
        site: false,
        hint: false,
    });
    let arms = rig.arms;
    rig.migrations.clear();
    (0..3).for_each(|_| rig.iteration());
    assert_eq!((rig.arms, rig.moved()), (arms, 0));
    assert_eq!(rig.controller.summary().own, 1);
}

#[test]
fn a_full_node_takes_no_more() {
    let mut rig = Rig::new(&config("upm"));
    rig.input(Input::Usage {
        used: vec![2000, 100_000, 99_900, 2000],
    });
    (0..3).for_each(|_| rig.iteration());
    assert_eq!(rig.on(1), [256, 0, 0, 0]);
    assert_eq!(rig.on(2)[2], 100);
    assert_eq!(rig.on(3)[3], 256);
}

#[test]
fn a_region_that_ends_while_its_pages_move() {
    let mut rig = Rig::new(&config("upm"));
    let construct = || Input::Construct {
        pid: PID,
        tid: PID,
        cpu: 0,
        kind: ConstructKind::Iteration,
        signature: 1,
        threads: 4,
    };
    rig.input(construct());
    rig.half_second();
    let mut decisions = Vec::new();
    let mut input = |controller: &mut PlacementController, input| {
        let time_ns = rig.now_ns + MS;
        controller.step(&TimedInput { time_ns, input }, &mut decisions);
        controller.check();
    };
    input(&mut rig.controller, construct());
    input(
        &mut rig.controller,
        Input::RegionEnd {
            pid: PID,
            start: START * PAGE,
            length: PAGES * PAGE,
        },
    );
    // While outcomes are missing, nothing is judged.
    input(&mut rig.controller, construct());
    for job in 0..10_000 {
        let moved = MoveResult {
            job,
            moved: 256,
            ..MoveResult::default()
        };
        input(&mut rig.controller, Input::Moved(moved));
    }
    input(&mut rig.controller, construct());
    assert_eq!(rig.controller.summary().migrated, 0);
    let migrations = decisions.iter();
    let migrations = migrations.filter(|decision| matches!(decision, Decision::Migrate(_)));
    assert_eq!(migrations.count(), 3);
}

#[test]
fn a_dry_run_decides_once() {
    let mut config = config("upm");
    config.dry_run = true;
    let mut rig = Rig::new(&config);
    rig.refusal = Some((RefusalReason::Untried, true));
    let mut asked = 0;
    for _ in 0..6 {
        rig.iteration();
        asked += rig.moved();
    }
    assert_eq!(asked, 768);
}

/// Regions that are streamed are far and not sampled, others are near and sampled; known sites
/// decide it at once.
#[test]
fn with_cache_aware_near_regions_are_counted_and_far_ones_are_not() {
    let mut config = config("cache-aware{region=4096,limit=1},upm");
    for (signature, tier) in [(11, RegionTier::Local), (12, RegionTier::Remote)] {
        config.sites.push(KnownSiteTier { signature, tier });
    }
    let mut rig = Rig::new(&config);
    rig.region(20_000, 100, 12);
    rig.region(30_000, 100, 13);
    let summary = rig.controller.summary();
    assert_eq!((summary.near, summary.far, summary.counted), (1, 1, 1));
    // The third region is watched until its tier is known.
    for page in 0..10 {
        let address = (30_000 + page * 37 % 100) * PAGE;
        rig.input(Input::Fault {
            pid: PID,
            tid: PID,
            cpu: 0,
            address,
        });
    }
    let summary = rig.controller.summary();
    assert_eq!((summary.near, summary.counted), (2, 2));
    (0..6).for_each(|_| rig.iteration());
    assert_eq!(rig.on(3)[3], 256);
}

#[test]
fn the_next_run_begins_where_this_one_ended() {
    let mut rig = Rig::new(&config("upm"));
    (0..3).for_each(|_| rig.iteration());
    let placed = rig.controller.saved_placements();
    let on = |node| (256, Some(node));
    assert_eq!(
        placed,
        [SavedPlacement {
            signature: 11,
            thread: 0,
            nth: 0,
            pages: 1024,
            runs: vec![on(0), on(1), on(2), on(3)],
        }]
    );
    let again = MemoryConfig {
        placed: placed.clone(),
        ..config("upm")
    };
    let mut rig = Rig::new(&again);
    let bound: Vec<(u64, u64)> = rig
        .others
        .iter()
        .filter_map(|decision| match decision {
            Decision::Bind { start, nodes, .. } => Some((start / PAGE - START, *nodes)),
            _ => None,
        })
        .collect();
    assert_eq!(bound, [(0, 1), (256, 2), (512, 4), (768, 8)]);
    assert_eq!(rig.controller.summary().applied, 1);
    assert_eq!(
        rig.controller.saved_placements(),
        placed,
        "and is not forgotten"
    );
    // A second region of the site, and one of another size, are not the saved one.
    rig.others.clear();
    rig.region(50_000, PAGES, 11);
    assert!(
        !rig.others
            .iter()
            .any(|decision| matches!(decision, Decision::Bind { .. }))
    );
    let mut config = again;
    config.placed[0].pages = 1000;
    assert_eq!(Rig::new(&config).controller.summary().applied, 0);
}

/// A reservation of which only half of a window exists: other windows are never looked up, and that
/// one at growing intervals.
#[test]
fn what_is_not_used_is_not_asked_about() {
    let mut rig = Rig::new(&config("upm"));
    rig.at.retain(|&page, _| page < START + 8);
    (0..20).for_each(|_| rig.half_second());
    let window = u64::from(window_pages(PAGES as u32));
    let times = rig.asked / window;
    assert!((4..10).contains(&times), "{times} times in 10 s");
}
