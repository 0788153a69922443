//! AutoNUMA: Linux's NUMA balancing of memory. A scanner unmaps a stretch of pages; the next access
//! to each of them faults, and the fault tells which thread uses the page from which node. A page
//! moves to the faulting node at the second fault in a row from there.
//!
//! Source: Linux 6.1, `kernel/sched/fair.c` (`task_numa_work`, `should_numa_migrate_memory`,
//! `update_task_scan_period`), followed closely:
//!
//! - *Scanning*: each scan period, `scan_mb` of a process's pages are unmapped, the first time
//!   after `delay_ms`. The period is between `min_ms` and `max_ms`, each divided by the number of
//!   such stretches in the process's memory, and not below `min_ms` / 10 (2560 MB/s); it starts at
//!   the lower bound. For a process with one thread, pages that are on the thread's node already
//!   are skipped (`change_pte_range`).
//! - *Adapting*: after a pass over all pages, faults by threads that also made the page's last
//!   fault count as *private*, others as *shared*. Faults on the page's node count as *local*; so
//!   do shared faults between two *active* nodes, if there are several of these: nodes with more
//!   than a third as many faults by CPU as the node with the most. If 70 % or more are private, or
//!   otherwise local, the period grows by a tenth for each 10 % above 70 (at least one tenth); if
//!   not, it shrinks by a tenth for each 10 % below. It doubles if there were neither local nor
//!   shared faults, or if a migration was refused for lack of frames or by the rate limit; the next
//!   scan is then one such period away.
//! - *Two stages*: a page migrates if its last fault was on the faulting node too. During the first
//!   four passes it also migrates on its first fault ever, or if the same thread made the last one.
//!   Private faults always migrate. For shared faults the process's faults by node decide: the page
//!   migrates if the faulting node has over three times the faults of the page's node, or if its
//!   faults by memory, compared with faults by CPU, are less than three quarters of those of the
//!   page's node. A fault counts for the node that has the page afterwards; faults by node halve
//!   with each pass.
//! - *Rate limit*: none since kernel 4.20. Older kernels limited the MB that migrate to a node in
//!   windows of 100 ms (`rate_mb`).
//!
//! Departures from the kernel:
//!
//! - Threads are not moved to their memory (a simulated thread stays where it runs). There are no
//!   memory tiers, no huge pages, and no mappings to skip.
//! - The kernel keeps periods and faults by thread, and multiplies the period by the threads of the
//!   group and the share of shared faults to compensate. Here they are kept by process, and all its
//!   threads form one group.
//! - When it doubles a period, the kernel does not clear the faults that caused it, so that one
//!   refused migration slows its thread down to the longest period for good. Here the faults of a
//!   pass count for that pass.
//! - Pages are scanned in order of first touch, which is the order of addresses in most programs.
//! - Faults by CPU are not weighted by run time.
//! - The bound of 2560 MB/s holds for the default of `min_ms` and scales with it. Times are the
//!   program's; a modelled run of seconds needs shorter ones (`delay_ms`, `min_ms`, `max_ms`) for
//!   as many scans.
//!
//! A hint fault costs its thread `fault_ns`, and scanning costs `scan_ns` a page.

use super::entry::{Build, EpochNeeds, INITIAL, PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Region};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs, Param, Values};
use crate::ids::{Block, Node, Process, Thread};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "autonuma",
    summary: "moves a page after two hint faults in a row from one node (the kernel's, Linux)",
    source: "Linux 6.1, kernel/sched/fair.c",
    params: PARAMS,
    needs: Needs {
        processes: true,
        ..Needs::NOTHING
    },
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::ByName,
    build: Build::Memory(&build),
};

const fn cost(name: &'static str, doc: &'static str, default: u64) -> Param {
    Param::count(name, doc, default, 0..=1 << 30)
}

/// The defaults of times and sizes are the kernel's; those of costs were measured on a current
/// server (2026-11: 1.3 us a sampled fault).
const PARAMS: &[Param] = &[
    INITIAL,
    Param::real("delay_ms", "time before the first scan", 1000.0, 0.0..=1e9),
    Param::real(
        "min_ms",
        "lower bound of the time in which all pages are scanned",
        1000.0,
        0.001..=1e9,
    ),
    Param::real("max_ms", "upper bound of that time", 60_000.0, 0.001..=1e9),
    Param::real("scan_mb", "memory scanned each time", 256.0, 0.001..=1e9),
    Param::real(
        "rate_mb",
        "most MB/s that migrate to a node (1280 in Linux before 4.20); 0: no limit",
        0.0,
        0.0..=1e9,
    ),
    cost("fault_ns", "what a hint fault costs", 1300),
    cost("scan_ns", "what scanning a page costs", 30),
];

/// Passes of the scanner in which a page migrates on its first fault, or if the same thread made
/// its last one.
const EARLY_PASSES: u32 = 4;

/// Slots that the scan period, and the faults of a pass, are divided into (NUMA_PERIOD_SLOTS).
const SLOTS: u64 = 10;

/// With more private or local slots than this, scanning slows down (NUMA_PERIOD_THRESHOLD).
const SLOWDOWN_SLOTS: u64 = 7;

/// The highest scan rate (MAX_SCAN_WINDOW).
const SCAN_MB_PER_SECOND_MAX: f64 = 2560.0;

/// A node is active with more than a third of the faults of the node with the most, and shared
/// pages move to a node with more than three times the faults (ACTIVE_NODE_FRACTION).
const ACTIVE_NODE_DIVISOR: u64 = 3;

/// The window of the rate limit.
const RATE_WINDOW_NS: u64 = 100_000_000;

/// Builds the policy.
fn build(settings: &PlacementSettings<'_>, values: &Values) -> Box<dyn MemoryPlacement> {
    let pages = |mb: f64| mb * f64::from(1 << 20) / f64::from(settings.block_bytes.max(1));
    let ns = |index: usize| (values.real(index) * 1e6) as u64;
    let min_ns = ns(2).max(1);
    let windows = (SCAN_MB_PER_SECOND_MAX / values.real(4)).max(1.0);
    Box::new(AutoNuma {
        initial: settings.initial(values, 0),
        config: AutoNumaConfig {
            delay_ns: ns(1),
            min_ns,
            max_ns: ns(3),
            floor_ns: ((min_ns as f64 / windows) as u64).max(1),
            scan_pages: (pages(values.real(4)) as usize).max(1),
            rate_pages: match values.real(5) {
                0.0 => u64::MAX,
                mb => (pages(mb) * RATE_WINDOW_NS as f64 / 1e9) as u64,
            },
            fault_ns: values.count(6),
            scan_ns: values.count(7),
        },
        nodes: settings.topology.nodes(),
        pages: vec![HintedPage::default(); settings.blocks as usize],
        programs: Vec::new(),
        windows: vec![RateWindow::default(); settings.topology.nodes()],
        asked: None,
        overhead_ns: 0,
        statistics: AutoNumaStatistics::default(),
    })
}

struct AutoNumaConfig {
    delay_ns: u64,
    min_ns: u64,
    max_ns: u64,
    floor_ns: u64,
    scan_pages: usize,
    rate_pages: u64,
    fault_ns: u64,
    scan_ns: u64,
}

struct AutoNuma {
    initial: Box<dyn MemoryPlacement>,
    config: AutoNumaConfig,
    nodes: usize,
    pages: Vec<HintedPage>,
    /// By process.
    programs: Vec<ScannedProgram>,
    /// By node: what migrated to it in the current window.
    windows: Vec<RateWindow>,
    /// The fault whose page has been asked to migrate.
    asked: Option<(Block, Fault)>,
    overhead_ns: u64,
    statistics: AutoNumaStatistics,
}

#[derive(Clone, Copy, Default)]
struct HintedPage {
    /// Whether the next access faults.
    hinted: bool,
    placed: bool,
    /// The thread and node of the last fault (`last_cpupid`).
    last: Option<(Thread, Node)>,
}

/// A hint fault.
#[derive(Clone, Copy)]
struct Fault {
    process: Process,
    private: bool,
    /// The page's node, and the thread's.
    from: Node,
    to: Node,
}

/// The memory of one process.
struct ScannedProgram {
    threads: Threads,
    pages: Vec<Block>,
    /// The page at which the next scan begins.
    cursor: usize,
    passes: u32,
    period_ns: u64,
    /// `u64::MAX` before the first page.
    next_scan_ns: u64,
    /// Faults of this pass: local, remote, private, shared; migrations refused.
    local: u64,
    remote: u64,
    private: u64,
    shared: u64,
    refused: bool,
    /// Faults by node of the page and of the thread: those of earlier passes, halved with each, and
    /// those of this pass.
    by_memory: Vec<[u64; 2]>,
    by_cpu: Vec<[u64; 2]>,
}

/// The threads of a process that have made accesses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Threads {
    None,
    One(Thread),
    Several,
}

#[derive(Clone, Copy, Default)]
struct RateWindow {
    since_ns: u64,
    pages: u64,
}

#[derive(Default)]
struct AutoNumaStatistics {
    scanned: u64,
    faults: u64,
    candidates: u64,
    filtered: u64,
    limited: u64,
    migrated: u64,
    passes: u64,
}

impl ScannedProgram {
    fn new(nodes: usize) -> ScannedProgram {
        ScannedProgram {
            threads: Threads::None,
            pages: Vec::new(),
            cursor: 0,
            passes: 0,
            period_ns: 0,
            next_scan_ns: u64::MAX,
            local: 0,
            remote: 0,
            private: 0,
            shared: 0,
            refused: false,
            by_memory: vec![[0; 2]; nodes],
            by_cpu: vec![[0; 2]; nodes],
        }
    }

    /// The bounds of the scan period (`task_scan_min`, `task_scan_max`).
    fn bounds_ns(&self, config: &AutoNumaConfig) -> (u64, u64) {
        let stretches = self.pages.len().div_ceil(config.scan_pages).max(1) as u64;
        let min_ns = (config.min_ns / stretches).max(config.floor_ns);
        (min_ns, (config.max_ns / stretches).max(min_ns))
    }

    #[inline]
    fn seen(&mut self, thread: Thread) {
        if self.threads != Threads::Several && self.threads != Threads::One(thread) {
            self.threads = match self.threads {
                Threads::None => Threads::One(thread),
                Threads::One(_) | Threads::Several => Threads::Several,
            };
        }
    }

    /// Counts a fault whose page is at that node now (`task_numa_fault`).
    fn count(&mut self, fault: Fault, now_at: Node) {
        let most = self.by_cpu.iter().map(|faults| faults[0]).max();
        let active = |faults: &[u64; 2]| faults[0] * ACTIVE_NODE_DIVISOR > most.unwrap_or(0);
        let among = |node: Node| active(&self.by_cpu[node.index()]);
        let several = self.by_cpu.iter().filter(|faults| active(faults)).count() > 1;
        let settled = !fault.private && several && among(fault.to) && among(now_at);
        let local = fault.from == fault.to || settled;
        *(if local {
            &mut self.local
        } else {
            &mut self.remote
        }) += 1;
        *(if fault.private {
            &mut self.private
        } else {
            &mut self.shared
        }) += 1;
        self.by_memory[now_at.index()][1] += 1;
        self.by_cpu[fault.to.index()][1] += 1;
    }

    /// Ages the faults by node and adapts the period to those of a pass (`task_numa_placement`,
    /// `update_task_scan_period`).
    fn pass_ended(&mut self, config: &AutoNumaConfig, now_ns: u64) {
        self.passes += 1;
        for faults in self.by_memory.iter_mut().chain(&mut self.by_cpu) {
            *faults = [faults[0] - faults[0] / 2 + faults[1], 0];
        }
        let (min_ns, max_ns) = self.bounds_ns(config);
        if self.local + self.shared == 0 || self.refused {
            self.period_ns = (self.period_ns * 2).min(max_ns);
            self.next_scan_ns = now_ns + self.period_ns;
        } else {
            let slot_ns = self.period_ns.div_ceil(SLOTS);
            let private = self.private * SLOTS / (self.private + self.shared);
            let local = self.local * SLOTS / (self.local + self.remote);
            let next_ns = if private >= SLOWDOWN_SLOTS {
                self.period_ns + (private - SLOWDOWN_SLOTS).max(1) * slot_ns
            } else if local >= SLOWDOWN_SLOTS {
                self.period_ns + (local - SLOWDOWN_SLOTS).max(1) * slot_ns
            } else {
                let least = SLOWDOWN_SLOTS - local.max(private);
                self.period_ns.saturating_sub(least * slot_ns)
            };
            self.period_ns = next_ns.clamp(min_ns, max_ns);
        }
        (self.local, self.remote, self.private, self.shared) = (0, 0, 0, 0);
        self.refused = false;
    }

    /// `should_numa_migrate_memory`.
    fn should_migrate(
        &self,
        last: Option<(Thread, Node)>,
        thread: Thread,
        from: Node,
        to: Node,
    ) -> bool {
        let private = last.is_some_and(|(last, _)| last == thread);
        if self.passes <= EARLY_PASSES && (last.is_none() || private) {
            return true;
        }
        if last.is_some_and(|(_, node)| node != to) {
            return false;
        }
        let (cpu_to, cpu_from) = (self.by_cpu[to.index()][0], self.by_cpu[from.index()][0]);
        let (memory_to, memory_from) = (
            self.by_memory[to.index()][0],
            self.by_memory[from.index()][0],
        );
        private
            || cpu_to > cpu_from * ACTIVE_NODE_DIVISOR
            || cpu_to * memory_from * 3 > cpu_from * memory_to * 4
    }
}

impl AutoNuma {
    fn program(&mut self, process: Process) -> &mut ScannedProgram {
        while self.programs.len() <= process.index() {
            self.programs.push(ScannedProgram::new(self.nodes));
        }
        &mut self.programs[process.index()]
    }

    /// Unmaps the next stretch, while a thread on `node` runs.
    #[cold]
    fn scan(&mut self, process: Process, node: Node, nodes: &Nodes) {
        let (config, now_ns) = (&self.config, nodes.now_ns());
        let program = &mut self.programs[process.index()];
        if program.period_ns == 0 {
            program.period_ns = program.bounds_ns(config).0;
        }
        program.next_scan_ns = now_ns + program.period_ns;
        let left = &program.pages[program.cursor..];
        let scanned = left.len().min(config.scan_pages);
        let alone = program.threads != Threads::Several;
        for &block in &left[..scanned] {
            let passed_over = alone && nodes.home(block) == Some(node);
            self.pages[block.index()].hinted |= !passed_over;
        }
        self.overhead_ns += scanned as u64 * config.scan_ns;
        self.statistics.scanned += scanned as u64;
        program.cursor += scanned;
        if program.cursor == program.pages.len() {
            program.cursor = 0;
            program.pass_ended(config, now_ns);
            self.statistics.passes += 1;
        }
    }

    /// Handles the fault of a page: it migrates to the thread's node or stays.
    #[cold]
    fn fault(&mut self, access: &Access, from: Node, now_ns: u64, out: &mut Vec<Action>) {
        let (block, thread, to) = (access.block, access.thread, access.node);
        self.overhead_ns += self.config.fault_ns;
        self.statistics.faults += 1;
        let page = &mut self.pages[block.index()];
        page.hinted = false;
        let last = page.last.replace((thread, to));
        let fault = Fault {
            process: access.process,
            private: last.is_none_or(|(last, _)| last == thread),
            from,
            to,
        };
        let program = &mut self.programs[access.process.index()];
        let wanted = program.should_migrate(last, thread, from, to);
        if from == to {
            return program.count(fault, from);
        }
        self.statistics.candidates += 1;
        if !wanted {
            self.statistics.filtered += 1;
            return program.count(fault, from);
        }
        let window = &mut self.windows[to.index()];
        if now_ns - window.since_ns >= RATE_WINDOW_NS {
            *window = RateWindow {
                since_ns: now_ns,
                pages: 0,
            };
        }
        window.pages += 1;
        if window.pages > self.config.rate_pages {
            self.statistics.limited += 1;
            program.refused = true;
            return program.count(fault, from);
        }
        self.asked = Some((block, fault));
        out.push(Action::Migrate { block, to });
    }
}

impl Placement for AutoNuma {
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        let delay_ns = self.config.delay_ns;
        let page = &mut self.pages[access.block.index()];
        let placed = std::mem::replace(&mut page.placed, true);
        let program = self.program(access.process);
        if !placed {
            program.pages.push(access.block);
        }
        if program.next_scan_ns == u64::MAX {
            program.next_scan_ns = nodes.now_ns() + delay_ns;
        }
        program.seen(access.thread);
        self.initial.place(access, nodes)
    }

    #[inline]
    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.initial.on_access(access, from, nodes, out);
        let now_ns = nodes.now_ns();
        let program = self.program(access.process);
        program.seen(access.thread);
        if now_ns >= program.next_scan_ns {
            self.scan(access.process, access.node, nodes);
        }
        if self.pages[access.block.index()].hinted {
            let home = nodes.home(access.block).unwrap_or(from);
            self.fault(access, home, now_ns, out);
        }
    }

    fn on_removed(&mut self, block: Block, at: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        let page = &mut self.pages[block.index()];
        (page.hinted, page.last) = (false, None);
        self.initial.on_removed(block, at, nodes, out);
    }

    fn on_outcomes(&mut self, outcomes: &[ActionOutcome], _: &Nodes) {
        let Some((block, fault)) = self.asked.take() else {
            return;
        };
        let to = fault.to;
        let asked = Action::Migrate { block, to };
        let done = outcomes
            .iter()
            .any(|outcome| outcome.action == asked && outcome.done);
        let program = &mut self.programs[fault.process.index()];
        program.refused |= !done;
        program.count(fault, if done { to } else { fault.from });
        self.statistics.migrated += u64::from(done);
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let of = &self.statistics;
        vec![
            ("scanned", of.scanned),
            ("passes", of.passes),
            ("hint_faults", of.faults),
            ("candidates", of.candidates),
            ("filtered", of.filtered),
            ("rate_limited", of.limited),
            ("migrated", of.migrated),
        ]
    }

    fn check(&self, nodes: &Nodes) {
        self.initial.check(nodes);
        for program in &self.programs {
            assert!(program.cursor <= program.pages.len());
        }
        let scanned = self.pages.iter().filter(|page| page.hinted);
        assert!(
            scanned.clone().all(|page| page.placed),
            "scanned before it was there"
        );
    }
}

impl MemoryPlacement for AutoNuma {
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
    use crate::placement::testing::World;

    /// Pages 0 to 3 (16 KiB) on node 0 of 4, scanned 2 at a time from 10 ms on, a pass in 10 ms or
    /// more.
    fn world(params: &str) -> World {
        let scan_mb = 2.0 / 64.0;
        let policy =
            format!("autonuma{{delay_ms=10,min_ms=10,max_ms=80,scan_mb={scan_mb},{params}}}");
        let mut world = World::origin(&policy, 4, 4);
        world.place(0, &[(0, 0), (1, 0), (2, 0), (3, 0)]);
        world
    }

    fn at_ms(world: &mut World, ms: u64) {
        world.nodes.set_now_ns(ms * 1_000_000);
    }

    /// Two pages are hinted at 10 ms; each faults once. The first fault of a page migrates at once.
    #[test]
    fn scanned_pages_fault_once() {
        let mut world = world("rate_mb=0");
        assert_eq!(world.access(1, 1, 0, 5), 0, "not scanned yet");
        at_ms(&mut world, 10);
        assert_eq!(world.access(1, 1, 0, 5), 1);
        assert_eq!(world.policy.take_overhead_ns(), 1300 + 2 * 30);
        assert_eq!(world.access(2, 2, 0, 5), 1, "its translation is back");
        assert_eq!(world.access(2, 2, 3, 5), 0, "beyond the stretch");
        assert_eq!(world.policy.take_overhead_ns(), 0);
        assert_eq!(world.statistic("hint_faults"), 1);
    }

    fn program(passes: u32) -> ScannedProgram {
        let mut program = ScannedProgram::new(3);
        program.passes = passes;
        program
    }

    #[test]
    fn two_stages() {
        let (thread, from, to) = (Thread(7), Node(0), Node(1));
        let should = |program: &ScannedProgram, last: Option<(u32, u16)>| {
            let last = last.map(|(thread, node)| (Thread(thread), Node(node)));
            program.should_migrate(last, thread, from, to)
        };
        let early = program(4);
        assert!(should(&early, None));
        assert!(
            should(&early, Some((7, 2))),
            "private, although from another node"
        );
        assert!(!should(&early, Some((8, 2))));
        let late = program(5);
        assert!(
            !should(&late, Some((7, 2))),
            "private, but it ran elsewhere"
        );
        assert!(should(&late, Some((7, 1))));
        assert!(!should(&late, Some((8, 2))), "the first fault from node 1");
        // The second from node 1, shared: up to the faults by node.
        let mut group = program(5);
        let mut shared = |cpu: [u64; 2], memory: [u64; 2]| {
            (group.by_cpu[0][0], group.by_cpu[1][0]) = (cpu[0], cpu[1]);
            (group.by_memory[0][0], group.by_memory[1][0]) = (memory[0], memory[1]);
            should(&group, Some((8, 1)))
        };
        assert!(shared([10, 31], [0, 0]), "over three times as busy");
        assert!(!shared([10, 30], [0, 0]));
        assert!(shared([10, 10], [41, 30]), "10 * 41 * 3 > 10 * 30 * 4");
        assert!(!shared([10, 10], [40, 30]));
    }

    /// Four pages in stretches of 2: between 10 / 2 and 80 / 2 ms.
    #[test]
    fn periods_adapt() {
        let config = AutoNumaConfig {
            delay_ns: 0,
            min_ns: 10_000,
            max_ns: 80_000,
            floor_ns: 1,
            scan_pages: 2,
            rate_pages: 0,
            fault_ns: 0,
            scan_ns: 0,
        };
        let after = |period_ns: u64, [local, remote, private, shared]: [u64; 4]| {
            let mut program = program(0);
            program.pages = vec![Block(0); 4];
            program.period_ns = period_ns;
            (program.local, program.remote) = (local, remote);
            (program.private, program.shared) = (private, shared);
            program.pass_ended(&config, 0);
            program.period_ns
        };
        assert_eq!(
            after(10_000, [0, 10, 9, 0]),
            20_000,
            "nothing local, nothing shared"
        );
        assert_eq!(after(30_000, [0, 0, 0, 0]), 40_000, "at most");
        assert_eq!(
            after(10_000, [5, 5, 10, 0]),
            13_000,
            "3 slots of 1000 above 7"
        );
        assert_eq!(after(10_000, [7, 3, 0, 10]), 11_000, "1 slot at least");
        assert_eq!(after(10_000, [2, 8, 3, 7]), 6_000, "4 slots below 7");
        assert_eq!(
            after(10_000, [0, 10, 0, 10]),
            5_000,
            "7 slots, but not below the least"
        );
    }

    /// Nodes 0 and 1 are active (10 * 3 > 20), node 2 is not (6 * 3 < 20). Faults count for the
    /// node the page is in then.
    #[test]
    fn faults_are_local_between_active_nodes() {
        let mut program = program(0);
        program.by_cpu = vec![[20, 0], [10, 0], [6, 0]];
        let mut fault = |private, from, to, now_at| {
            let fault = Fault {
                process: Process(0),
                private,
                from: Node(from),
                to: Node(to),
            };
            let before = program.local;
            program.count(fault, Node(now_at));
            program.local > before
        };
        assert!(fault(true, 2, 2, 2));
        assert!(!fault(true, 0, 1, 0), "private");
        assert!(fault(false, 0, 1, 0));
        assert!(!fault(false, 2, 1, 2), "its memory is in no active node");
        assert!(fault(false, 2, 1, 1), "but now it is");
        assert!(!fault(false, 0, 2, 0), "its thread runs on none");
        assert_eq!((program.local, program.remote), (3, 3));
        assert_eq!((program.private, program.shared), (2, 4));
        assert_eq!(program.by_memory, [[0, 3], [0, 1], [0, 2]]);
        assert_eq!(
            program.by_cpu.iter().map(|faults| faults[1]).sum::<u64>(),
            6
        );
        program.by_cpu = vec![[20, 0], [6, 0], [0, 0]];
        program.count(
            Fault {
                process: Process(0),
                private: false,
                from: Node(0),
                to: Node(1),
            },
            Node(0),
        );
        assert_eq!(program.local, 3, "one active node is not several");
    }

    /// Faults by node halve, rounded up, and the pass's are added: 5 become 3, and 7 more are 10.
    #[test]
    fn faults_age() {
        let mut program = program(0);
        let config = AutoNumaConfig {
            delay_ns: 0,
            min_ns: 10,
            max_ns: 80,
            floor_ns: 1,
            scan_pages: 2,
            rate_pages: 0,
            fault_ns: 0,
            scan_ns: 0,
        };
        program.by_memory[1] = [5, 7];
        program.period_ns = 10;
        program.pass_ended(&config, 1000);
        assert_eq!(program.by_memory[1], [10, 0]);
        assert_eq!(
            (program.period_ns, program.next_scan_ns),
            (20, 1020),
            "no faults: it doubled, from now on"
        );
    }

    /// A single thread's own pages are not hinted, those elsewhere are.
    #[test]
    fn one_thread_and_its_node() {
        let mut world = World::origin("autonuma{delay_ms=10,min_ms=10,scan_mb=1}", 4, 4);
        world.place(0, &[(0, 0), (1, 1)]);
        at_ms(&mut world, 10);
        assert_eq!(world.access(0, 0, 0, 1), 0);
        assert_eq!(world.statistic("hint_faults"), 0);
        assert_eq!(world.access(0, 0, 1, 1), 0, "from node 1");
        assert_eq!(world.statistic("hint_faults"), 1);
        world.access(1, 0, 0, 1);
        at_ms(&mut world, 60);
        world.access(0, 0, 0, 1);
        assert_eq!(world.statistic("hint_faults"), 2, "there are two by now");
    }

    /// One page (16 KiB) in 100 ms: 0.16 MiB/s.
    #[test]
    fn rate_limited() {
        let mut world = world("rate_mb=0.16");
        at_ms(&mut world, 10);
        assert_eq!(world.access(1, 1, 0, 1), 1);
        assert_eq!(world.access(1, 1, 1, 1), 0);
        assert_eq!(world.statistic("rate_limited"), 1);
        assert_eq!(
            world.access(1, 1, 1, 1),
            0,
            "no further fault until it is scanned again"
        );
        for ms in [110, 120, 130] {
            at_ms(&mut world, ms);
            world.access(1, 1, 3, 1);
        }
        at_ms(&mut world, 230);
        assert_eq!(world.access(1, 1, 1, 1), 1);
    }

    /// Shared by two nodes in turn, a page stays where it is.
    #[test]
    fn shared_pages_stay() {
        let mut world = world("rate_mb=0");
        let mut homes = Vec::new();
        for pass in 0..12 {
            at_ms(&mut world, 10 + 100 * pass);
            let node = 1 + (pass % 2) as u16;
            homes.push(world.access(u32::from(node), node, 0, 1));
            at_ms(&mut world, 60 + 100 * pass);
            world.access(3, 3, 3, 1);
        }
        assert_eq!(homes, [1; 12], "moved by its first fault, then filtered");
        assert_eq!(world.statistic("migrated"), 2, "and page 3");
    }
}
