//! Tests the controller with simulated programs. There are two nodes unless a test says otherwise:
//! node 0 with CPUs 0 and 1, node 1 with CPU 2.

use hither_core::Node;
use hither_core::placement::{RegionTier, SiteTier};
use hither_ids::{Address, KernelNode, Pid, Tid};

use super::super::config::{MemoryConfig, SampleSource};
use super::super::event::{Decision, Input, Note, Order, TimedInput};
use super::*;
use crate::controller::Controller;
use crate::numa::host::{MeasuredCosts, NodeConfig};
use crate::numa::ranges::MoveResult;

mod life;

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;

/// A controller, the time, and its decisions since they were last taken.
struct World {
    controller: PlacementController,
    now_ns: u64,
    decisions: Vec<Decision>,
}

fn node(node: KernelNode, cpus: &[u32], frames: u32) -> NodeConfig {
    NodeConfig {
        node,
        cpus: cpus.to_vec(),
        frames,
        distances: Vec::new(),
    }
}

fn config(nodes: Vec<NodeConfig>) -> MemoryConfig {
    MemoryConfig {
        policy: "cache-aware{region=4096}".parse().expect("a policy"),
        page_bytes: PAGE,
        huge_page_bytes: None,
        dry_run: false,
        source: SampleSource::Armed,
        cpu_permille: 10,
        nodes,
        measured: MeasuredCosts::default(),
        sites: Vec::new(),
        far_nodes: 0,
        placed: Vec::new(),
    }
}

fn two_nodes() -> MemoryConfig {
    config(vec![
        node(KernelNode(0), &[0, 1], 100_000),
        node(KernelNode(1), &[2], 100_000),
    ])
}

impl World {
    fn new(config: &MemoryConfig) -> World {
        World {
            controller: PlacementController::new(config).expect("a sound configuration"),
            now_ns: 0,
            decisions: Vec::new(),
        }
    }

    fn two_nodes() -> World {
        World::new(&two_nodes())
    }

    fn input(&mut self, input: Input) {
        self.now_ns += 1000;
        let at = TimedInput {
            time_ns: self.now_ns,
            input,
        };
        self.controller.step(&at, &mut self.decisions);
        self.controller.check();
    }

    fn after(&mut self, time_ns: u64) {
        self.now_ns += time_ns;
        self.input(Input::Tick);
    }

    /// CPU 0 allocates a region that starts at page `start` of the address space.
    fn region(&mut self, pid: u32, start: u64, pages: u64, signature: u64) {
        self.input(Input::Region {
            pid: Pid(pid),
            tid: Tid(pid),
            start: Address(start * PAGE),
            length: pages * PAGE,
            signature,
            cpu: 0,
        });
    }

    fn ends(&mut self, pid: u32, start: u64, pages: u64) {
        self.input(Input::RegionEnd {
            pid: Pid(pid),
            start: Address(start * PAGE),
            length: pages * PAGE,
        });
    }

    fn touches(&mut self, pid: u32, cpu: u32, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.input(Input::Fault {
                pid: Pid(pid),
                tid: Tid(pid),
                cpu,
                address: Address(page * PAGE + 8),
            });
        }
    }

    fn bound(&mut self, pid: u32, start: u64, pages: u64, nodes: u64, error: i32, site: bool) {
        self.input(Input::Bound {
            pid: Pid(pid),
            start: Address(start * PAGE),
            length: pages * PAGE,
            nodes,
            error: error as u32,
            site,
        });
    }

    fn whole(&self, signature: u64) -> bool {
        let sites = self.controller.sites();
        sites
            .iter()
            .any(|site| site.signature == signature && site.whole)
    }

    /// Takes the decisions, in short. Pages are those of the address space.
    fn decided(&mut self) -> Vec<String> {
        let short = |decision| match decision {
            Decision::Order(Order::Watch { on }) => format!("watch {on}"),
            Decision::Note(Note::Settled(settled)) => format!(
                "{:?} pid {} page {} after {}{}, {} away on {:b}",
                settled.tier,
                settled.pid,
                settled.start.0 / PAGE,
                settled.faults,
                if settled.known { " known" } else { "" },
                settled.away,
                settled.nodes
            ),
            Decision::Order(Order::Bind {
                pid,
                start,
                length,
                nodes,
            }) => format!(
                "bind pid {pid} {}+{} to {nodes:b}",
                start.0 / PAGE,
                length / PAGE
            ),
            Decision::Order(Order::Site { signature, nodes }) => {
                format!("site {signature} to {nodes:b}")
            }
            Decision::Order(Order::Move {
                job,
                pid,
                start,
                pages,
                nodes,
            }) => format!(
                "move {job} pid {pid} {}+{pages} to {nodes:b}",
                start.0 / PAGE
            ),
            Decision::Note(Note::Unfollowed { pid, .. }) => format!("unfollowed pid {pid}"),
            other => format!("{other:?}"),
        };
        self.decisions.drain(..).map(short).collect()
    }

    fn used(&self, node: u16) -> u32 {
        self.controller.host.used_frames(Node(node))
    }
}

#[test]
fn a_streamed_region_goes_far_and_a_random_one_stays() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 1000, 11);
    world.region(7, Address(5000).0, 1000, 12);
    world.touches(7, 0, 1000..1004);
    assert_eq!(world.decided(), [""; 0]);
    world.touches(7, 0, [1004]);
    // The page of the fault that completes the sequence is far already; the four before it stay.
    assert_eq!(
        world.decided(),
        [
            "site 11 to 10",
            "Remote pid 7 page 1000 after 5, 996 away on 10",
            "bind pid 7 1004+996 to 10"
        ]
    );
    world.touches(7, 0, (0..10).map(|touch| 5000 + touch * 37));
    assert_eq!(
        world.decided(),
        ["Local pid 7 page 5000 after 10, 0 away on 1"]
    );
    assert_eq!((world.used(0), world.used(1)), (14, 996));
    // Later faults change nothing.
    world.touches(7, 0, (1005..1100).chain(5900..5999));
    assert_eq!(world.decided(), [""; 0]);
    assert_eq!(world.controller.summary().faults, 15);
}

#[test]
fn far_is_away_from_who_touches_it() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 100, 11);
    world.touches(7, 2, 1000..1005);
    let decided = world.decided();
    assert_eq!(decided[1], "bind pid 7 1004+50 to 1");
    world.ends(7, Address(1000).0, 100);
    world.region(7, Address(2000).0, 100, 12);
    world.touches(7, 0, 2000..2005);
    assert_eq!(world.decided()[1], "bind pid 7 2004+50 to 10");
}

#[test]
fn nodes_go_by_the_kernel_s_numbers() {
    let mut world = World::new(&config(vec![
        node(KernelNode(3), &[4], 100_000),
        node(KernelNode(9), &[], 100_000),
    ]));
    world.region(7, Address(1000).0, 100, 11);
    world.touches(7, 4, 1000..1005);
    let far = 1_u64 << 9;
    assert_eq!(world.decided()[1], format!("bind pid 7 1004+50 to {far:b}"));
}

#[test]
fn no_more_than_half_of_a_program_goes_far() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 600, 1);
    world.region(7, Address(2000).0, 400, 2);
    world.touches(7, 0, 1000..1005);
    assert_eq!(
        world.decided(),
        [
            "Remote pid 7 page 1000 after 5, 500 away on 10",
            "bind pid 7 1004+500 to 10"
        ],
        "nor is the site bound: the rest of it was near"
    );
    world.touches(7, 0, 2000..2005);
    assert_eq!(
        world.decided(),
        ["Remote pid 7 page 2000 after 5, 0 away on 1"]
    );
}

#[test]
fn of_a_program_that_grows_more_may_be_far() {
    let mut config = two_nodes();
    config.sites.push(known(5, RegionTier::Remote));
    let mut world = World::new(&config);
    // The site is known to be a stream, and the region is all that the program has so far.
    world.region(7, Address(1000).0, 600, 5);
    assert_eq!(world.decided()[1], "bind pid 7 1000+300 to 10");
    world.region(7, Address(2000).0, 200, 6);
    assert_eq!(world.decided(), ["bind pid 7 1300+100 to 10"]);
    world.ends(7, Address(1450).0, 10);
    world.region(7, Address(3000).0, 5000, 7);
    assert_eq!(
        world.decided(),
        ["bind pid 7 1400+50 to 10", "bind pid 7 1460+140 to 10"]
    );
    assert_eq!((world.used(0), world.used(1)), (0, 590));
    assert_eq!(world.controller.summary().pages_away, 590);
    assert!(world.controller.limited.is_empty());
    // Once it is gone, the policy is not asked about it any more.
    world.region(7, Address(9000).0, 20_000, 5);
    world.ends(7, Address(9000).0, 20_000);
    world.decided();
    world.region(7, Address(9000).0, 90_000, 6);
    assert_eq!(world.decided(), [""; 0]);
}

#[test]
fn a_full_near_node_leaves_the_rest_to_the_other() {
    let mut world = World::new(&config(vec![
        node(KernelNode(0), &[0], 1000),
        node(KernelNode(1), &[2], 1000),
    ]));
    world.input(Input::Usage {
        used: vec![1000, 100],
    });
    world.region(7, Address(100).0, 500, 1);
    world.touches(7, 0, [300, 200, 400]);
    // The kernel had no frame there either, so that these pages are in place.
    assert_eq!(world.decided(), [""; 0]);
    assert_eq!((world.used(0), world.used(1)), (1000, 103));
    world.input(Input::Usage {
        used: vec![500, 103],
    });
    world.touches(7, 0, [210]);
    assert_eq!(world.decided(), [""; 0]);
    assert_eq!((world.used(0), world.used(1)), (501, 103));
}

#[test]
fn a_far_node_above_the_threshold_takes_no_more() {
    let mut world = World::new(&config(vec![
        node(KernelNode(0), &[0], 10_000),
        node(KernelNode(1), &[2], 1000),
    ]));
    world.input(Input::Usage { used: vec![0, 600] });
    world.region(7, Address(1000).0, 900, 1);
    world.touches(7, 0, 1000..1005);
    // 0.8 of its frames, and the page that exceeds that.
    assert_eq!(world.decided()[1], "bind pid 7 1004+201 to 10");
}

#[test]
fn settings_that_no_machine_has_are_refused() {
    let refused = |change: fn(&mut MemoryConfig)| {
        let mut config = two_nodes();
        change(&mut config);
        PlacementController::new(&config)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(refused(|_| {}), None);
    for (change, what) in [
        (
            (|of| of.page_bytes = 0) as fn(&mut MemoryConfig),
            "page_bytes",
        ),
        (|of| of.page_bytes = 5000, "page_bytes"),
        (|of| of.huge_page_bytes = Some(0), "huge_page_bytes"),
        (|of| of.huge_page_bytes = Some(2048), "huge_page_bytes"),
        (|of| of.measured.latency_ns = vec![100; 3], "latency_ns"),
        (|of| of.nodes[0].cpus = vec![u32::MAX], "CPU"),
        (|of| of.cpu_permille = 1001, "cpu_permille"),
    ] {
        let why = refused(change).expect(what);
        assert!(why.contains(what), "{why}");
    }
}

/// What an earlier run has found out of a site.
fn known(signature: u64, tier: RegionTier) -> SiteTier {
    SiteTier {
        signature,
        tier,
        whole: false,
    }
}

#[test]
fn a_site_that_was_far_as_a_whole_is_not_limited() {
    let mut config = two_nodes();
    config.far_nodes = 1 << 1;
    let whole = true;
    let stream = known(5, RegionTier::Remote);
    config.sites.push(SiteTier { whole, ..stream });
    let mut world = World::new(&config);
    // All that the program has so far. It has bound it itself.
    world.region(7, Address(1000).0, 600, 5);
    world.bound(7, Address(1000).0, 600, 2, 0, true);
    assert_eq!(world.decided()[1..], ["bind pid 7 1000+600 to 10"]);
    assert!(world.whole(5));
    // There is no room for all of a second one: its site's policy is undone where it stays near.
    world.input(Input::Usage {
        used: vec![0, 90_000],
    });
    world.region(7, Address(2000).0, 3000, 5);
    let decided = world.decided();
    assert_eq!(decided[0], "site 5 to 0");
    assert!(!world.whole(5));
}

#[test]
fn a_site_is_whole_when_the_last_pages_have_left() {
    let mut config = two_nodes();
    config.sites.push(known(5, RegionTier::Remote));
    let mut world = World::new(&config);
    world.region(7, Address(1000).0, 600, 5);
    assert!(!world.whole(5), "half of it is near");
    world.region(7, Address(3000).0, 600, 6);
    assert!(world.whole(5));
    world.region(7, Address(5000).0, 600, 5);
    world.ends(7, Address(5000).0, 600);
    assert!(!world.whole(5), "half of the second one was near");
}

#[test]
fn a_known_site_needs_no_faults() {
    let mut config = two_nodes();
    config.sites.push(known(5, RegionTier::Remote));
    config.policy = "cache-aware{region=4096,limit=1}"
        .parse()
        .expect("a policy");
    let mut world = World::new(&config);
    world.region(7, Address(1000).0, 100, 5);
    assert_eq!(
        world.decided(),
        [
            "site 5 to 10",
            "Remote pid 7 page 1000 after 0 known, 100 away on 10",
            "bind pid 7 1000+100 to 10"
        ]
    );
    // From now on the program binds the site's regions itself. It may have missed that it should.
    world.region(7, Address(2000).0, 100, 5);
    assert_eq!(
        world.decided(),
        [
            "Remote pid 7 page 2000 after 0 known, 100 away on 10",
            "bind pid 7 2000+100 to 10"
        ]
    );
    let learnt = world.controller.sites();
    let learnt: Vec<_> = learnt.iter().map(|of| (of.signature, of.tier)).collect();
    assert_eq!(learnt, [(5, RegionTier::Remote)]);
    assert_eq!(world.controller.summary().known, 2);
}

#[test]
fn a_site_s_policy_is_undone_where_the_policy_wants_it_no_longer() {
    let mut config = two_nodes();
    config.sites.push(known(5, RegionTier::Remote));
    let mut world = World::new(&config);
    world.region(7, Address(5000).0, 100, 6);
    world.region(7, Address(1000).0, 100, 5);
    assert_eq!(world.decided()[0], "site 5 to 10");
    // Half of the program may be far now.
    world.region(7, Address(2000).0, 100, 5);
    assert_eq!(
        world.decided(),
        [
            "site 5 to 0",
            "Remote pid 7 page 2000 after 0 known, 50 away on 10",
            "bind pid 7 2050+50 to 0",
            "bind pid 7 2000+50 to 10"
        ],
    );
}

/// Nothing has shown that moving them would pay.
#[test]
fn what_a_first_run_has_touched_stays() {
    for error in [0, libc::EPERM, libc::ENOMEM] {
        let mut world = World::two_nodes();
        world.region(7, Address(1000).0, 100, 0);
        world.touches(7, 0, 1000..1005);
        world.decided();
        world.bound(7, Address(1004).0, 50, 2, error, false);
        world.after(10_000 * MS);
        assert_eq!(world.decided(), ["watch false"]);
        let summary = world.controller.summary();
        let refused = u64::from(error != 0);
        assert_eq!(
            (summary.ranges_bound, summary.ranges_refused),
            (1 - refused, refused)
        );
        assert_eq!(world.controller.next_deadline_ns(), None, "nothing to do");
    }
}

#[test]
fn what_an_earlier_run_has_shown_is_moved_once_it_is_bound() {
    let mut config = two_nodes();
    config.policy = "cache-aware{region=4096,limit=1}"
        .parse()
        .expect("a policy");
    config.sites.push(known(5, RegionTier::Remote));
    let mut world = World::new(&config);
    world.region(7, Address(1000).0, 100, 5);
    world.decided();
    world.bound(7, Address(1000).0, 100, 2, libc::EPERM, false);
    assert_eq!(world.decided(), [""; 0], "it would come back");
    world.bound(7, Address(1000).0, 100, 2, 0, false);
    assert_eq!(world.decided(), ["move 0 pid 7 1000+100 to 10"]);
    world.input(Input::Moved(MoveResult {
        job: 0,
        moved: 1,
        absent: 99,
        ..MoveResult::default()
    }));
    assert_eq!(world.decided(), [""; 0], "nothing is near");
    assert_eq!(world.controller.summary().pages_moved, 1);
    // The next one is bound when it is allocated.
    world.region(7, Address(2000).0, 100, 5);
    world.decided();
    world.bound(7, Address(2000).0, 100, 2, 0, true);
    assert_eq!(world.decided(), [""; 0]);
}

/// What this run has learnt of a site shows where untouched pages go, and no more.
#[test]
fn a_site_of_this_run_moves_nothing() {
    let mut config = two_nodes();
    config.policy = "cache-aware{region=4096,limit=1}"
        .parse()
        .expect("a policy");
    let mut world = World::new(&config);
    world.region(7, Address(1000).0, 100, 5);
    world.touches(7, 0, 1000..1005);
    world.region(7, Address(2000).0, 100, 5);
    world.decided();
    world.bound(7, Address(2000).0, 100, 2, 0, false);
    assert_eq!(world.decided(), [""; 0]);
    assert_eq!(world.controller.summary().known, 1);
}

/// The region that a request was for is gone, and another one is in its place.
#[test]
fn a_request_that_comes_too_late_is_taken_back() {
    let mut config = two_nodes();
    config.policy = "cache-aware{region=4096,limit=1}"
        .parse()
        .expect("a policy");
    for (signature, tier) in [(5, RegionTier::Remote), (6, RegionTier::Local)] {
        config.sites.push(known(signature, tier));
    }
    let mut world = World::new(&config);
    world.region(7, Address(1000).0, 100, 5);
    world.ends(7, Address(1000).0, 100);
    world.region(7, Address(1000).0, 50, 6);
    world.region(7, Address(1050).0, 100, 6);
    world.decided();
    world.bound(7, Address(1000).0, 100, 2, 0, false);
    assert_eq!(world.decided(), ["bind pid 7 1000+50 to 0"]);
    world.bound(7, Address(1000).0, 50, 0, 0, false);
    assert_eq!(world.decided(), [""; 0]);
}

/// What could not be bound is where it was touched.
#[test]
fn a_refused_request_leaves_the_pages_near() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 100, 0);
    world.touches(7, 0, 1000..1005);
    assert_eq!((world.used(0), world.used(1)), (50, 50));
    world.bound(7, Address(1004).0, 50, 2, libc::EPERM, false);
    assert_eq!((world.used(0), world.used(1)), (100, 0));
}

#[test]
fn what_the_program_has_bound_itself_is_not_moved() {
    let own = hither_session::record::OWN_POLICY as i32;
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 100, 0);
    world.region(7, Address(2000).0, 100, 0);
    world.touches(7, 0, 1000..1005);
    // One request is refused, and the other region was bound by the program before it was settled.
    world.bound(7, Address(1004).0, 50, 2, own, false);
    world.bound(7, Address(1990).0, 20, 0, own, false);
    world.decided();
    world.touches(7, 0, 2000..2010);
    world.after(5_000 * MS);
    assert_eq!(world.decided(), ["watch false"]);
    assert_eq!(world.controller.summary().own, 2);
    world.ends(7, Address(1000).0, 2000);
}

#[test]
fn a_stream_of_huge_pages_is_one() {
    let huge = two_nodes();
    let huge = MemoryConfig {
        huge_page_bytes: Some(512 * PAGE),
        ..huge
    };
    // The first fault is in the middle of a huge page; then there is one fault in each.
    let faults = [1000, 1024, 1536, 2048, 2560];
    let mut world = World::new(&huge);
    world.region(7, Address(1000).0, 8000, 1);
    world.touches(7, 0, faults);
    assert!(world.decided()[0].contains("Remote"));
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 8000, 1);
    world.touches(7, 0, faults);
    assert_eq!(world.decided(), [""; 0], "with small pages it is none");
    // Small pages although huge ones are enabled: one fault is needed to find out.
    let mut world = World::new(&huge);
    world.region(7, Address(1100).0, 8000, 1);
    world.touches(7, 0, 1700..1705);
    assert_eq!(world.decided(), [""; 0]);
    world.touches(7, 0, [1705]);
    assert!(world.decided()[0].contains("Remote"));
}

#[test]
fn equal_far_nodes_take_pages_in_turn() {
    let nodes = vec![
        node(KernelNode(0), &[0], 9000),
        node(KernelNode(1), &[], 9000),
        node(KernelNode(2), &[], 9000),
    ];
    let mut world = World::new(&config(nodes));
    world.region(7, Address(1000).0, 2000, 1);
    world.touches(7, 0, 1000..1005);
    assert_eq!(world.decided()[1], "bind pid 7 1004+1000 to 110");
}

#[test]
fn what_found_no_room_near_comes_back_when_far_pages_have_left() {
    let mut config = two_nodes();
    for (signature, tier) in [(5, RegionTier::Remote), (6, RegionTier::Local)] {
        config.sites.push(known(signature, tier));
    }
    let mut world = World::new(&config);
    world.region(7, Address(1000).0, 100, 5);
    world.region(7, Address(2000).0, 100, 6);
    world.region(7, Address(3000).0, 100, 9);
    world.decided();
    // Half of it, and as much once the program had more.
    world.bound(7, Address(1000).0, 50, 2, 0, false);
    world.bound(7, Address(1050).0, 50, 2, 0, false);
    let moves = [
        "move 0 pid 7 1000+50 to 10",
        "move 1 pid 7 1050+50 to 10",
        "move 2 pid 7 2000+100 to 1",
    ];
    assert_eq!(world.decided(), moves[..2]);
    let mut moved = |job, moved| {
        world.input(Input::Moved(MoveResult {
            job,
            moved,
            absent: 50 - moved,
            ..MoveResult::default()
        }));
        world.decided()
    };
    assert_eq!(moved(0, 50), [""; 0], "more is to leave");
    assert_eq!(moved(1, 50), moves[2..]);
    assert_eq!(moved(2, 10), [""; 0], "once");
}
