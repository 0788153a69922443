//! The simulated cluster: nodes, the connections between them, a source, and readers. All that
//! happens is an event of one queue, so that a seed gives the same run each time.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::Random;
use hither_node::key::{BlockKey, FileKey};
use hither_node::protocol::{Blocks, Input, MemberId, Time, View};

use crate::liars::Cast;
use crate::network::{Link, Packet};
use crate::node::Node;
use crate::scenario::{MS, Scenario};

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A packet arrives, if its connection still stands.
    Packet {
        from: usize,
        connection: u64,
        packet: Packet,
    },
    /// The runtime has something for the protocol.
    Input(Input),
    /// A read of the source ends.
    Fetched {
        blocks: Blocks,
        keeper: Option<MemberId>,
        /// How it ends, but for an outage and for room.
        ends: FetchEnd,
    },
    /// The deadline of the protocol, unless a later step replaced it.
    Timer { number: u64 },
    /// A reader wants something.
    Read,
    /// Something goes wrong.
    Fault,
    /// It is put right.
    Repair(Repair),
    /// A node says what is not so.
    Lie,
}

/// How a read of the source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchEnd {
    Given,
    Fails,
    /// It is not begun.
    GivenUp,
}

/// How a fault ends.
#[derive(Clone, Debug)]
pub(crate) enum Repair {
    /// A node goes on.
    Resume,
    /// A node starts again.
    Restart,
    /// A node without a lease is removed from the membership.
    Expel,
    /// A node gets its lease back.
    Rejoin,
    /// Packets from one node to another get through again.
    Unblock { from: usize },
}

/// What a run may break on purpose, to see that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Homes never let anybody wait: each requester is granted to read from the source.
    NobodyWaits,
    /// Deadlines pass unnoticed.
    NoTimers,
    /// Holders answer with the blocks of another index.
    WrongBlocks,
    /// Fetchers do not say that they failed, and the grant does not run out.
    SilentReports,
    /// Nodes take each block that comes to them.
    TakesAnything,
    /// Nodes have no lists of readers.
    NoLists,
    /// Who has left is a member still.
    HearsStrangers,
}

/// See the module.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) random: Random,
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: BTreeMap<(usize, usize), Link>,
    /// What each link takes longer than others.
    pub(crate) extra_ns: BTreeMap<(usize, usize), u64>,
    pub(crate) view: View,
    pub(crate) outage_until: u64,
    /// Whether faults happen now.
    pub(crate) disturbed: bool,
    /// Reads of each block that gave it.
    pub(crate) fetched: BTreeMap<BlockKey, u64>,
    /// Reads of each block that were started.
    pub(crate) fetch_starts: BTreeMap<BlockKey, u64>,
    /// How often each block was wanted that was not in flight at its node.
    pub(crate) wants: BTreeMap<BlockKey, u64>,
    /// How often each block left a store.
    pub(crate) evicted: BTreeMap<BlockKey, u64>,
    pub(crate) answered: u64,
    /// How many have waited so far: their numbers.
    pub(crate) waiters: u64,
    pub(crate) reads: u64,
    pub(crate) wait_longest: u64,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) log: bool,
    /// What is read.
    pub(crate) files: Vec<FileKey>,
    /// Who lies, and who may have which file. `None`: nobody lies, and all may have all.
    pub(crate) cast: Option<Cast>,
    /// Pairs of nodes of which the first one is not let in by the second one.
    pub(crate) refused: BTreeSet<(usize, usize)>,
    events: BTreeMap<(u64, u64), (usize, u32, Event)>,
    sequence: u64,
    /// Events of nodes that are stopped.
    held_back: BTreeMap<usize, Vec<(u32, Event)>>,
}

/// The protocol walks its invariants after each so many steps.
const CHECK_EVERY: u64 = 8;

/// The generation of events that outlive a crash.
const ANY: u32 = u32::MAX;

impl World {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, log: bool) -> World {
        let mut random = Random::new(seed);
        let scenario = Scenario::new(&mut random);
        World::with(scenario, random, None, sabotage, log)
    }

    pub(crate) fn with(
        scenario: Scenario,
        random: Random,
        cast: Option<Cast>,
        sabotage: Option<Sabotage>,
        log: bool,
    ) -> World {
        let nodes = (0..scenario.nodes).map(|number| Node::new(number, scenario.store_blocks));
        let mut nodes: Vec<Node> = nodes.collect();
        let mut members: Vec<MemberId> = nodes.iter().map(|node| node.member).collect();
        let mut files: Vec<FileKey> = (0..3).map(FileKey).collect();
        if let Some(cast) = &cast {
            files = (0..cast.lists.len()).map(Cast::file).collect();
            cast.assign(&mut nodes, sabotage);
            if sabotage != Some(Sabotage::HearsStrangers) {
                members.retain(|&member| member != nodes[cast.retired].member);
            }
        }
        let mut world = World {
            view: View::new(1, members),
            random,
            now: 0,
            nodes,
            links: BTreeMap::new(),
            extra_ns: BTreeMap::new(),
            outage_until: 0,
            disturbed: scenario.faults.is_some(),
            scenario,
            fetched: BTreeMap::new(),
            fetch_starts: BTreeMap::new(),
            wants: BTreeMap::new(),
            evicted: BTreeMap::new(),
            answered: 0,
            waiters: 0,
            reads: 0,
            wait_longest: 0,
            sabotage,
            log,
            files,
            cast,
            refused: BTreeSet::new(),
            events: BTreeMap::new(),
            sequence: 0,
            held_back: BTreeMap::new(),
        };
        world.log(|world| format!("{:#?}", world.scenario));
        for node in 0..world.nodes.len() {
            if world.nodes[node].lies {
                world.schedule(0, node, Event::Lie);
            } else {
                world.schedule(0, node, Event::Read);
            }
            if !world.is_retired(node) {
                world.nodes[node].start(&world.scenario);
                let view = world.view.clone();
                world.step(node, Input::ViewChanged(view));
            }
        }
        if world.disturbed {
            world.schedule(0, 0, Event::Fault);
        }
        world
    }

    pub(crate) fn log(&self, line: impl Fn(&World) -> String) {
        if self.log {
            println!("{:>10.3} {}", self.now as f64 / 1e6, line(self));
        }
    }

    pub(crate) fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.random.below(high - low + 1)
    }

    /// About `mean`.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        self.between((mean / 4, mean * 7 / 4))
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// Lets an event happen to a node, unless it crashes before.
    pub(crate) fn schedule(&mut self, after_ns: u64, node: usize, event: Event) {
        let generation = match event {
            Event::Read | Event::Lie | Event::Fault | Event::Repair(_) => ANY,
            _ => self.nodes[node].generation,
        };
        self.sequence += 1;
        let at = (self.now + after_ns, self.sequence);
        self.events.insert(at, (node, generation, event));
    }

    /// Lets happen what happens until `end`.
    pub(crate) fn run_until(&mut self, end: u64) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((time, _), (node, generation, event)) = entry.remove_entry();
            self.now = time;
            self.happen(node, generation, event);
        }
        self.now = end;
    }

    fn happen(&mut self, node: usize, generation: u32, event: Event) {
        if generation != ANY && generation != self.nodes[node].generation {
            return;
        }
        let is_repair = matches!(event, Event::Fault | Event::Repair(_));
        if self.nodes[node].stopped && !is_repair {
            let held_back = self.held_back.entry(node).or_default();
            held_back.push((generation, event));
            return;
        }
        match event {
            Event::Packet {
                from,
                connection,
                packet,
            } => {
                if connection == self.link(from, node).connection || self.is_reordering() {
                    self.arrive(from, node, packet);
                }
            }
            Event::Input(input) => self.step(node, input),
            Event::Fetched {
                blocks,
                keeper,
                ends,
            } => self.end_fetch(node, blocks, keeper, ends),
            Event::Timer { number } => {
                if number == self.nodes[node].timer && self.sabotage != Some(Sabotage::NoTimers) {
                    self.step(node, Input::Timer);
                }
            }
            Event::Read => self.start_reading(node),
            Event::Fault => self.start_fault(),
            Event::Repair(repair) => self.repair(node, repair),
            Event::Lie => self.lie(node),
        }
    }

    /// A stopped node takes in what came meanwhile.
    pub(crate) fn resume(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        if !std::mem::take(&mut state.stopped) {
            return;
        }
        state.stopped_ns += self.now - state.stopped_at;
        // Its timer may come before or after what lies in its queues.
        if self.random.below(2) == 0 {
            self.step(node, Input::Timer);
        }
        for (generation, event) in self.held_back.remove(&node).unwrap_or_default() {
            self.happen(node, generation, event);
        }
        self.step(node, Input::Timer);
    }

    /// The protocol of a node takes an input, and what it asks for is done.
    pub(crate) fn step(&mut self, number: usize, input: Input) {
        self.log(|world| format!("{number} <- {input:?} ({})", world.nodes[number].generation));
        let node = &mut self.nodes[number];
        let Some(protocol) = &mut node.protocol else {
            return;
        };
        let now = Time(self.now + node.clock_ahead);
        let is_view = matches!(input, Input::ViewChanged(_));
        let mut out = Vec::new();
        protocol.step(now, input, &mut out);
        if node.timer.is_multiple_of(CHECK_EVERY) {
            protocol.check();
        }
        node.timer += 1;
        let timer = node.timer;
        let deadline = protocol.next_deadline();
        if let Some(deadline) = deadline {
            let after = deadline.0.saturating_sub(now.0);
            // Timers are late.
            let late = self.random.below(MS);
            self.schedule(after + late, number, Event::Timer { number: timer });
        }
        for output in out {
            self.log(|_| format!("{number} -> {output:?}"));
            self.perform(number, output);
        }
        if is_view {
            self.let_in(number);
        }
    }
}
