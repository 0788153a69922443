//! Tests with simulated programs, through the controller: what is sampled, what moves, and what is
//! left alone. There are four nodes, each with the CPU of its own number.

use hither_core::Random;
use hither_ids::{Address, KernelNode, Pid, Tid};
use hither_kernel::writable_memory::MemoryKind;
use hither_session::record::{ConstructKind, OWN_POLICY};

use super::super::config::{MemoryConfig, SampleSource};
use super::super::controller::{MemorySummary, PlacementController};
use super::super::event::{
    Decision, Input, MappedRange, Migrate, Note, Order, TimedInput, TouchedPage,
};
use crate::controller::Controller;
use crate::numa::host::{MeasuredCosts, NodeConfig};
use crate::numa::ranges::{MoveResult, RefusalReason, RefusedRun};

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;
const PID: u32 = 7;

/// A controller, and where its program's pages are: those of the address space from 0 on.
struct World {
    controller: PlacementController,
    now_ns: u64,
    homes: Vec<KernelNode>,
    decisions: Vec<Decision>,
    /// Moves that no result was given of.
    moves: Vec<Migrate>,
}

impl World {
    fn new(policy: &str, source: SampleSource) -> World {
        let node = |node| NodeConfig {
            node: KernelNode(node),
            cpus: vec![node],
            frames: 100_000,
            distances: Vec::new(),
        };
        let config = MemoryConfig {
            policy: policy.parse().expect("a policy"),
            page_bytes: PAGE,
            huge_page_bytes: None,
            dry_run: false,
            source,
            cpu_permille: 10,
            nodes: (0..4).map(node).collect(),
            measured: MeasuredCosts::default(),
            sites: Vec::new(),
            far_nodes: 0,
            placed: Vec::new(),
        };
        World {
            controller: PlacementController::new(&config).expect("a sound configuration"),
            now_ns: 0,
            homes: vec![KernelNode(0); 1 << 16],
            decisions: Vec::new(),
            moves: Vec::new(),
        }
    }

    fn majority() -> World {
        World::new("majority", SampleSource::Processor)
    }

    fn input(&mut self, input: Input) {
        self.now_ns += 1000;
        let at = TimedInput {
            time_ns: self.now_ns,
            input,
        };
        self.controller.step(&at, &mut self.decisions);
        self.controller.check();
        for decision in &self.decisions {
            if let Decision::Order(Order::Migrate(migrate)) = decision {
                self.moves.push(migrate.clone());
            }
        }
        self.decisions.retain(|decision| {
            !matches!(
                decision,
                Decision::Order(Order::Migrate(_)) | Decision::Note(Note::Judged(_))
            )
        });
    }

    fn after(&mut self, time_ns: u64) {
        self.now_ns += time_ns;
        self.input(Input::Tick);
    }

    fn region(&mut self, start: u64, pages: u64, signature: u64) {
        self.input(Input::Region {
            pid: Pid(PID),
            tid: Tid(PID),
            start: Address(start * PAGE),
            length: pages * PAGE,
            signature,
            cpu: 0,
        });
    }

    /// The thread on each CPU uses pages of its quarter of these, so many of them in turn.
    fn quarters_used(&mut self, start: u64, pages: u64, times: u64) {
        for time in 0..times {
            for cpu in 0..4 {
                let quarter = pages / 4;
                let page = start + cpu * quarter + (self.now_ns / 1000 + time) * 37 % quarter;
                self.used(100 + cpu as u32, cpu as u32, page);
            }
        }
    }

    /// A thread on a CPU uses a page.
    fn used(&mut self, tid: u32, cpu: u32, page: u64) {
        let home = self.homes[page as usize];
        self.input(Input::Sample {
            pid: Pid(PID),
            tid: Tid(tid),
            cpu,
            address: Address(page * PAGE + 8),
            home: Some(home),
        });
    }

    /// All moves are carried out. How many pages moved.
    fn carry_out(&mut self) -> u32 {
        let mut all = 0;
        for migrate in std::mem::take(&mut self.moves) {
            for range in &migrate.ranges {
                let first = (range.start.0 / PAGE) as usize;
                self.homes[first..first + range.pages as usize].fill(migrate.to);
            }
            all += migrate.pages;
            self.input(Input::Moved(MoveResult {
                job: migrate.job,
                moved: migrate.pages,
                took_ns: u64::from(migrate.pages) * 1000,
                ..MoveResult::default()
            }));
        }
        all
    }

    fn summary(&self) -> MemorySummary {
        self.controller.summary()
    }

    /// The homes of so many pages, each run once.
    fn homes(&self, start: usize, pages: usize) -> Vec<KernelNode> {
        let mut homes = self.homes[start..start + pages].to_vec();
        homes.dedup();
        homes
    }
}

/// One thread has filled the region, and four use a quarter each.
#[test]
fn pages_go_to_their_users() {
    let mut world = World::majority();
    world.region(1000, 4096, 5);
    for page in 0..64 {
        world.used(100, 0, 1000 + page * 64);
    }
    world.after(200 * MS);
    assert_eq!(world.moves, []);
    let mut moved = 0;
    for _ in 0..40 {
        world.quarters_used(1000, 4096, 16);
        world.after(100 * MS);
        moved += world.carry_out();
    }
    // But for a few cells that had no samples of their own when those around them were judged.
    let wrong =
        (0..4096).filter(|page| world.homes[1000 + page] != KernelNode(*page as u32 / 1024));
    assert!(wrong.count() <= 64);
    let summary = world.summary();
    assert!((3000..3584).contains(&moved), "{moved}");
    assert_eq!(summary.migrated, u64::from(moved));
    assert!(summary.before.share() < Some(0.6) && summary.after.share() > Some(0.9));
    // What is known for the next run.
    let saved = world.controller.saved_placements();
    assert_eq!(saved.len(), 1);
    assert_eq!(saved[0].signature, 5);
    let last = saved[0].runs.last().expect("a run");
    assert_eq!(last.1, Some(3));
    assert_eq!(saved[0].runs.iter().map(|run| run.0).sum::<u32>(), 4096);
}

/// All nodes use all of it alike, at random: from one node it is spread, and where it is spread it
/// stays.
#[test]
fn what_all_use_is_spread_once() {
    let on = |world: &World, node| {
        let homes = world.homes[..4096].iter();
        homes.filter(|&&home| home == node).count()
    };
    for samples_a_look in [16, 64, 256] {
        for spread in [false, true] {
            let mut world = World::majority();
            if spread {
                (0..4096).for_each(|page| world.homes[page] = KernelNode(page as u32 / 1024));
            }
            world.region(0, 4096, 5);
            let mut random = Random::new(1);
            let mut moved = 0;
            for _ in 0..200 {
                for _ in 0..samples_a_look {
                    let cpu = random.below(4) as u32;
                    world.used(100 + cpu, cpu, random.below(4096));
                }
                world.after(100 * MS);
                moved += world.carry_out();
            }
            let most = (0..4).map(|node| on(&world, KernelNode(node))).max();
            let most = most.expect("four nodes");
            let moved_most = if spread { 1024 } else { 4096 };
            assert!(moved <= moved_most, "{samples_a_look}: {moved} moved");
            assert!(most <= 2048, "{samples_a_look}: {most} on one node");
        }
    }
}

#[test]
fn samples_end_where_threads_move() {
    let mut world = World::majority();
    world.region(0, 64, 5);
    let used = |world: &mut World, cpu: u32| {
        (0..64).for_each(|page| world.used(100, cpu, page));
        world.after(100 * MS);
        world.after(100 * MS);
    };
    (0..2).for_each(|_| used(&mut world, 0));
    assert_eq!(world.moves, []);
    // The only thread moves to node 3: samples from node 0 would hold the pages there for long.
    let moved = |world: &mut World| {
        used(world, 3);
        world.carry_out()
    };
    assert_eq!((0..4).map(|_| moved(&mut world)).sum::<u32>(), 64);
    assert_eq!(world.homes(0, 64), [KernelNode(3)]);
}

/// A batch that could not move is reported to the policy. A process that forbids it is left alone.
#[test]
fn refused_moves() {
    let mut world = World::majority();
    world.region(0, 64, 5);
    let used = |world: &mut World| {
        for _ in 0..2 {
            (0..64).for_each(|page| world.used(100, 0, page));
            (0..192).for_each(|page| world.used(101, 1, page % 64));
            world.after(100 * MS);
        }
    };
    let refuse = |world: &mut World, why| {
        let migrate = world.moves.remove(0);
        let run = RefusedRun {
            first: 0,
            pages: migrate.pages,
            why,
        };
        world.input(Input::Moved(MoveResult {
            job: migrate.job,
            refused: vec![run],
            ..MoveResult::default()
        }));
    };
    used(&mut world);
    assert_eq!(world.moves.len(), 1);
    refuse(&mut world, RefusalReason::Busy);
    assert_eq!(world.summary().migrated, 0);
    used(&mut world);
    used(&mut world);
    assert_eq!(world.moves.len(), 1, "again, after a pause");
    refuse(&mut world, RefusalReason::NotPermitted);
    assert_eq!(world.summary().stopped, 1);
    let samples = world.summary().sampled.samples;
    used(&mut world);
    assert_eq!(world.moves, []);
    assert_eq!(world.summary().sampled.samples, samples);
}

/// Where the agent arms pages, a region is registered for it, and a fault on an armed page is a
/// sample.
#[test]
fn pages_are_armed() {
    let mut world = World::new("upm", SampleSource::Armed);
    world.region(100, 256, 5);
    let sample = |on| {
        Decision::Order(Order::Sample {
            pid: Pid(PID),
            start: Address(100 * PAGE),
            length: 256 * PAGE,
            on,
        })
    };
    assert_eq!(world.decisions, [sample(true)]);
    world.decisions.clear();
    world.after(100 * MS);
    let [
        Decision::Order(Order::Arm {
            pid: Pid(PID),
            ranges,
        }),
    ] = &world.decisions[..]
    else {
        panic!("{:?}", world.decisions);
    };
    let page = ranges[0].start.0 / PAGE;
    world.decisions.clear();
    let touched = |page| TouchedPage {
        pid: Pid(PID),
        tid: Tid(100),
        address: Address(page * PAGE + 5),
    };
    let mut fault = |page| {
        let TouchedPage { pid, tid, address } = touched(page);
        let cpu = 1;
        world.input(Input::Fault {
            pid,
            tid,
            cpu,
            address,
        });
        std::mem::take(&mut world.decisions)
    };
    let locate = Decision::Order(Order::Locate(touched(page)));
    assert_eq!(fault(page), [locate]);
    assert_eq!(fault(page), [], "it is not armed any more");
    assert_eq!(fault(page + 1), [], "what a thread touches together");
    for sampled in [1, 1] {
        world.input(Input::Located {
            page: touched(page),
            home: Some(KernelNode(0)),
        });
        assert_eq!(world.summary().sampled.samples, sampled);
    }
    world.decisions.clear();
    // Pages on huge pages, which are not split: tried again later.
    world.input(Input::Unarmed {
        pid: Pid(PID),
        start: Address(100 * PAGE),
        pages: 256,
        why: "huge pages".to_owned(),
        for_good: false,
    });
    world.after(3000 * MS);
    assert!(
        world
            .decisions
            .iter()
            .all(|of| !matches!(of, Decision::Order(Order::Arm { .. })))
    );
    world.after(3000 * MS);
    assert!(world.decisions.contains(&sample(true)));
    // In the same step: no other may follow.
    assert!(
        world
            .decisions
            .contains(&Decision::Order(Order::Watch { on: true }))
    );
    world.decisions.clear();
    world.input(Input::RegionEnd {
        pid: Pid(PID),
        start: Address(100 * PAGE),
        length: 256 * PAGE,
    });
    assert!(world.decisions.contains(&sample(false)));
}

/// A program with iterations is looked at when one ends, and not in between.
#[test]
fn iterations_are_waited_for() {
    let mut world = World::majority();
    world.region(0, 4096, 5);
    let construct = |world: &mut World, signature| {
        world.input(Input::Construct {
            pid: Pid(PID),
            tid: Tid(100),
            cpu: 0,
            kind: ConstructKind::Barrier,
            signature,
            threads: 4,
        });
    };
    for _ in 0..40 {
        (1..=3).for_each(|signature| construct(&mut world, signature));
    }
    world.quarters_used(0, 4096, 64);
    world.after(150 * MS);
    assert_eq!(world.summary().judged, 0);
    (1..=3).for_each(|signature| construct(&mut world, signature));
    assert_eq!(world.summary().judged, 1);
}

fn mapped(start: u64, pages: u64, kind: MemoryKind) -> MappedRange {
    MappedRange {
        start: Address(start * PAGE),
        length: pages * PAGE,
        kind,
    }
}

/// Memory that no allocation has reported is found in the kernel's list, and moves as well.
#[test]
fn all_memory_is_covered() {
    let mut world = World::majority();
    world.region(2000, 100, 5);
    let memory = |world: &mut World, ranges: &[MappedRange]| {
        world.input(Input::Memory {
            pid: Pid(PID),
            own: false,
            ranges: ranges.to_vec(),
        });
        let summary = world.summary();
        (summary.regions, summary.mapped)
    };
    let small = mapped(500, 3, MemoryKind::Static);
    let data = mapped(600, 64, MemoryKind::Static);
    let heap = |pages| mapped(1000, pages, MemoryKind::Heap);
    let around = mapped(1980, 200, MemoryKind::Anonymous);
    // What is before the known region and behind it, and not what is small.
    assert_eq!(
        memory(&mut world, &[small, data, heap(320), around]),
        (5, 4)
    );
    assert_eq!(
        memory(&mut world, &[small, data, heap(330), around]),
        (5, 4)
    );
    assert_eq!(
        memory(&mut world, &[small, data, heap(400), around]),
        (6, 5)
    );
    for _ in 0..4 {
        for page in (600..664).chain(1330..1390) {
            world.used(101, 1, page);
        }
        world.after(100 * MS);
        world.carry_out();
    }
    assert_eq!(
        (world.homes[663], world.homes[1385], world.homes[1000]),
        (KernelNode(1), KernelNode(1), KernelNode(0))
    );
    // What is no longer listed is gone, but for what hooks have reported.
    memory(&mut world, &[heap(200)]);
    let (count, left) = world.controller.largest(8);
    let pages: Vec<u64> = left.iter().map(|region| region.bytes / PAGE).collect();
    assert_eq!((count, pages), (2, vec![200, 100]));
}

#[test]
fn what_a_program_has_placed_itself_is_left_alone() {
    let mut world = World::majority();
    world.input(Input::Bound {
        pid: Pid(PID),
        start: Address(700 * PAGE),
        length: 100 * PAGE,
        nodes: 0,
        error: OWN_POLICY,
        site: false,
    });
    let memory = |world: &mut World, own| {
        world.input(Input::Memory {
            pid: Pid(PID),
            own,
            ranges: vec![
                mapped(600, 64, MemoryKind::Heap),
                mapped(720, 64, MemoryKind::Anonymous),
            ],
        });
        world.summary()
    };
    assert_eq!(memory(&mut world, true).own_processes, 1);
    assert_eq!(world.summary().regions, 0);
    assert_eq!(memory(&mut world, false).regions, 1);
}

/// The kernel moves pages at its hint faults, so where they are then says nothing about the access.
#[test]
fn of_hint_faults_no_local_share_is_said() {
    let mut world = World::new("majority", SampleSource::Hints);
    world.region(0, 1024, 5);
    world.quarters_used(0, 1024, 16);
    let sampled = world.summary().sampled;
    assert_eq!((sampled.samples, sampled.share()), (64, None));
}
