//! Threshold: the kernel's own page migration on interrupts, as IRIX has it on the Origin2000.
//! Hardware counts accesses by page and node, and interrupts when a remote node leads the home by
//! more than a threshold. The handler migrates the page unless one of its filters prevents it.
//!
//! Source: Nikolopoulos et al., ICS 2000, section 2.2, and the manual pages that it cites (IRIX
//! 6.5: `migration(5)`, `sn(1)`). Readings chosen:
//!
//! - *The threshold* is half of what an 11-bit counter holds. Counters saturate.
//! - *After an interrupt* the page's counters start again at zero, whether it migrates or not: the
//!   next interrupt takes as many accesses.
//! - *Dampening*: a page migrates after this many interrupts in a row by the same node; `sn(1)`
//!   gives 4 as the maximum.
//! - *Freezing*: after this many migrations, a page does not migrate until `melt_ms` have passed.
//!   The paper and the manual pages give no numbers for it: 4 migrations and 1 s are ours; so are
//!   the cost of an interrupt and a reserve of 0.
//! - *Aging* halves a page's counters. A walk over all pages, one every 10 ms, ages and melts them.
//! - *Memory pressure*: no page goes to a node whose free frames are less than the share `reserve`
//!   of its frames.
//! - *The gate* (cache-aware thesis, section 6.1, which proposes and does not build it): with
//!   `gate=1` a page migrates only if the initial placement does not expect its region to stay in
//!   the processors' caches. `cache-aware` is the placement that does so. The thesis would ask on a
//!   TLB miss, without counters; a low `threshold` comes nearest to that.
//! - An interrupt costs `interrupt_ns`, paid by the thread whose access caused it (on the Origin by
//!   a processor of the home). A step of the walk costs nothing.

use super::counters::Counters;
use super::entry::{Build, EpochNeeds, INITIAL, PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Region, RegionTier};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs, Param, Values};
use crate::ids::{Block, Node};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "threshold",
    summary: "moves when a remote node leads the home by a threshold (the kernel's, IRIX)",
    source: "IRIX 6.5 on the Origin2000; Nikolopoulos et al., ICS 2000, section 2.2",
    params: PARAMS,
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::ByName,
    build: Build::Memory(&build),
};

const PARAMS: &[Param] = &[
    INITIAL,
    Param::count(
        "threshold",
        "lead of a remote node, in accesses, that interrupts",
        1024,
        0..=1 << 31,
    ),
    Param::count(
        "saturation",
        "the most that a counter holds",
        2047,
        1..=1 << 31,
    ),
    Param::count(
        "dampening",
        "interrupts in a row by one node before the page migrates",
        3,
        1..=1 << 20,
    ),
    Param::count(
        "freeze",
        "migrations after which a page is frozen; 0: never",
        4,
        0..=1 << 20,
    ),
    Param::real(
        "melt_ms",
        "time after which a frozen page may migrate again",
        1000.0,
        0.0..=1e9,
    ),
    Param::real(
        "walk_ms",
        "time between two pages of the periodic walk; 0: no aging, no melting",
        10.0,
        0.0..=1e9,
    ),
    Param::real(
        "reserve",
        "share of a node's frames that migrations leave free",
        0.0,
        0.0..=1.0,
    ),
    Param::count("interrupt_ns", "what an interrupt costs", 5000, 0..=1 << 30),
    Param::switch(
        "gate",
        "1: only pages of regions that the initial placement expects to miss the caches migrate",
        false,
    ),
];

/// Builds the policy.
fn build(settings: &PlacementSettings<'_>, values: &Values) -> Box<dyn MemoryPlacement> {
    Box::new(Threshold {
        initial: settings.initial(values, 0),
        threshold: values.count(1),
        saturation: values.count(2) as u32,
        dampening: values.count(3) as u32,
        freeze: values.count(4) as u32,
        melt_ns: (values.real(5) * 1e6) as u64,
        walk_ns: (values.real(6) * 1e6) as u64,
        reserve: values.real(7),
        interrupt_ns: values.count(8),
        gate: values.count(9) == 1,
        counters: Counters::new(settings.topology.nodes(), settings.blocks),
        pages: vec![CountedPage::default(); settings.blocks as usize],
        walk: 0,
        next_walk_ns: 0,
        overhead_ns: 0,
        statistics: ThresholdStatistics::default(),
    })
}

struct Threshold {
    initial: Box<dyn MemoryPlacement>,
    threshold: u64,
    saturation: u32,
    dampening: u32,
    freeze: u32,
    melt_ns: u64,
    /// 0: no walk.
    walk_ns: u64,
    reserve: f64,
    interrupt_ns: u64,
    gate: bool,
    counters: Counters,
    pages: Vec<CountedPage>,
    /// The page that the walk visits next, and when.
    walk: usize,
    next_walk_ns: u64,
    overhead_ns: u64,
    statistics: ThresholdStatistics,
}

#[derive(Clone, Copy, Default)]
struct CountedPage {
    /// The node of the last interrupt, and how many in a row it made; 0 before the first.
    node: Node,
    interrupts: u32,
    migrations: u32,
    /// When it migrated last.
    migrated_ns: u64,
}

#[derive(Default)]
struct ThresholdStatistics {
    interrupts: u64,
    candidates: u64,
    migrated: u64,
    dampened: u64,
    frozen: u64,
    pressed: u64,
    gated: u64,
    melted: u64,
}

impl Threshold {
    /// A remote node leads: returns whether the page migrates there.
    #[cold]
    fn interrupt(&mut self, access: &Access, nodes: &Nodes) -> bool {
        let (block, by) = (access.block, access.node);
        let cached = || self.initial.region_tier(access.object) == Some(RegionTier::Remote);
        let gated = self.gate && cached();
        self.overhead_ns += self.interrupt_ns;
        self.counters.reset(block);
        self.statistics.interrupts += 1;
        let page = &mut self.pages[block.index()];
        // The first interrupt since the page was placed, or since it migrated.
        self.statistics.candidates += u64::from(page.interrupts == 0);
        page.interrupts = if page.interrupts > 0 && page.node == by {
            page.interrupts + 1
        } else {
            1
        };
        page.node = by;
        let leaves = self.reserve * f64::from(nodes.capacity(by));
        if gated {
            self.statistics.gated += 1;
            false
        } else if page.interrupts < self.dampening {
            self.statistics.dampened += 1;
            false
        } else if self.freeze > 0 && page.migrations >= self.freeze {
            self.statistics.frozen += 1;
            false
        } else if nodes.free(by) == 0 || f64::from(nodes.free(by)) <= leaves {
            self.statistics.pressed += 1;
            false
        } else {
            true
        }
    }

    /// Ages and melts as many pages as are due, each at most once.
    #[cold]
    fn walk(&mut self, now_ns: u64) {
        let due = (now_ns - self.next_walk_ns) / self.walk_ns + 1;
        self.next_walk_ns += due * self.walk_ns;
        for _ in 0..due.min(self.pages.len() as u64) {
            let counts = self.counters.row_mut(Block(self.walk as u32));
            counts.iter_mut().for_each(|count| *count /= 2);
            let page = &mut self.pages[self.walk];
            let frozen = self.freeze > 0 && page.migrations >= self.freeze;
            if frozen && now_ns - page.migrated_ns >= self.melt_ns {
                page.migrations = 0;
                self.statistics.melted += 1;
            }
            self.walk = (self.walk + 1) % self.pages.len();
        }
    }
}

impl Placement for Threshold {
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.initial.place(access, nodes)
    }

    #[inline]
    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.initial.on_access(access, from, nodes, out);
        let now_ns = nodes.now_ns();
        if self.walk_ns > 0 && now_ns >= self.next_walk_ns {
            self.walk(now_ns);
        }
        let Access {
            block, node, count, ..
        } = *access;
        let counts = self.counters.row_mut(block);
        let counter = &mut counts[node.index()];
        *counter = counter.saturating_add(count).min(self.saturation);
        let (Some(home), remote) = (nodes.home(block), *counter) else {
            return;
        };
        let ahead = u64::from(remote) > u64::from(counts[home.index()]) + self.threshold;
        if node != home && ahead && self.interrupt(access, nodes) {
            out.push(Action::Migrate { block, to: node });
        }
    }

    fn on_removed(&mut self, block: Block, at: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.counters.reset(block);
        self.pages[block.index()] = CountedPage::default();
        self.initial.on_removed(block, at, nodes, out);
    }

    fn on_outcomes(&mut self, outcomes: &[ActionOutcome], nodes: &Nodes) {
        for outcome in outcomes.iter().filter(|outcome| outcome.done) {
            if let Action::Migrate { block, .. } = outcome.action {
                let page = &mut self.pages[block.index()];
                page.interrupts = 0;
                page.migrations += 1;
                page.migrated_ns = nodes.now_ns();
                self.statistics.migrated += 1;
            }
        }
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let of = &self.statistics;
        vec![
            ("interrupts", of.interrupts),
            ("candidates", of.candidates),
            ("migrated", of.migrated),
            ("dampened", of.dampened),
            ("frozen", of.frozen),
            ("pressed", of.pressed),
            ("gated", of.gated),
            ("melted", of.melted),
        ]
    }

    fn check(&self, nodes: &Nodes) {
        self.initial.check(nodes);
        for (number, page) in self.pages.iter().enumerate() {
            let block = Block(number as u32);
            let full = self.counters.of(block).iter().max();
            assert!(full.is_none_or(|&most| most <= self.saturation));
            assert!(
                self.freeze == 0 || page.migrations <= self.freeze,
                "{block:?} moved while frozen"
            );
        }
    }
}

impl MemoryPlacement for Threshold {
    fn on_region_allocated(&mut self, region: &Region) {
        self.initial.on_region_allocated(region);
    }

    fn take_overhead_ns(&mut self) -> u64 {
        std::mem::take(&mut self.overhead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Object, Process};
    use crate::placement::testing::World;

    /// Pages 0 to 2 on node 0 of 4.
    fn world(params: &str) -> World {
        let mut world = World::origin(&format!("threshold{{{params}}}"), 4, 3);
        world.place(0, &[(0, 0), (1, 0), (2, 0)]);
        world
    }

    /// 100 local accesses: a remote node must be ahead by more than 1024, which 1125 are.
    #[test]
    fn interrupts_beyond_the_threshold() {
        let mut world = world("dampening=1");
        world.access(0, 0, 0, 100);
        assert_eq!(world.access(1, 1, 0, 1124), 0);
        assert_eq!(world.policy.take_overhead_ns(), 0);
        assert_eq!(world.access(1, 1, 0, 1), 1);
        assert_eq!(world.policy.take_overhead_ns(), 5000);
        assert_eq!(world.policy.take_overhead_ns(), 0, "once");
        assert_eq!(
            (world.statistic("candidates"), world.statistic("migrated")),
            (1, 1)
        );
    }

    /// A home whose counter is full at 2047 cannot be exceeded.
    #[test]
    fn counters_saturate() {
        let mut world = world("dampening=1");
        world.access(0, 0, 0, 1 << 20);
        assert_eq!(world.access(1, 1, 0, 1 << 20), 0);
        assert_eq!(world.statistic("interrupts"), 0);
    }

    /// Three interrupts in a row; one by another node starts the count anew.
    #[test]
    fn dampened() {
        let mut world = world("");
        for (node, home) in [(1, 0), (1, 0), (2, 0), (1, 0), (1, 0), (1, 1)] {
            assert_eq!(world.access(u32::from(node), node, 0, 1025), home);
        }
        assert_eq!(world.statistic("dampened"), 5);
        assert_eq!(
            world.statistic("candidates"),
            1,
            "one page, however many interrupts"
        );
    }

    /// Two migrations and no more, until the walk (a page every 10 ms, three pages) comes by 50 ms
    /// after the last.
    #[test]
    fn frozen_and_melted() {
        let mut world = world("dampening=1,freeze=2,melt_ms=50");
        assert_eq!(world.access(1, 1, 0, 1025), 1);
        assert_eq!(world.access(2, 2, 0, 1025), 2);
        assert_eq!(world.access(1, 1, 0, 1025), 2, "frozen");
        world.nodes.set_now_ns(49_000_000);
        assert_eq!(world.access(1, 1, 0, 1025), 2, "the walk came by too early");
        world.nodes.set_now_ns(80_000_000);
        assert_eq!(world.access(1, 1, 0, 1025), 1);
        assert_eq!(
            (world.statistic("frozen"), world.statistic("melted")),
            (2, 1)
        );
    }

    /// The walk visits page 0 at 0 ms, 1 at 10 ms, 2 at 20 ms, 0 again at 30 ms: 1000 accesses of
    /// page 0 are 500 then.
    #[test]
    fn aged() {
        let mut world = world("dampening=1");
        world.access(0, 1, 0, 1000);
        world.nodes.set_now_ns(29_999_999);
        world.access(0, 1, 1, 1);
        assert_eq!(world.access(0, 1, 0, 24), 0, "1024");
        world.nodes.set_now_ns(30_000_000);
        assert_eq!(world.access(0, 1, 0, 512), 0, "512 + 512");
        assert_eq!(world.access(0, 1, 0, 1), 1);
    }

    /// A region that faults in sequence stays where it is; one that does not may migrate.
    #[test]
    fn gated_by_the_expected_tier() {
        let spec = "threshold{initial=cache-aware,dampening=1,gate=1}";
        let mut world = World::origin(spec, 4, 600);
        for object in [0, 1] {
            world.policy.on_region_allocated(&Region {
                object: Object(object),
                owner: Process(0),
                bytes: 300 * (16 << 10),
                expected_tier: None,
                whole: false,
            });
        }
        let access = |object: u32, index: u32, node: u16, count: u32| Access {
            object: Object(object),
            index,
            node: Node(node),
            count,
            ..Access::bare(0, Block(object * 300 + index))
        };
        for fault in 0..10 {
            world.make(&access(0, fault, 0, 1));
            world.make(&access(1, fault * 7, 0, 1));
        }
        assert_eq!(world.make(&access(0, 0, 1, 1025)), 0, "gated");
        assert_eq!(world.make(&access(1, 0, 1, 1025)), 1);
        assert_eq!(world.statistic("gated"), 1);
    }

    #[test]
    fn memory_pressure() {
        let mut world = world("dampening=1,reserve=1");
        assert_eq!(world.access(1, 1, 0, 5000), 0);
        assert_eq!(world.statistic("pressed"), 1);
    }
}
