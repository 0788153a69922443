//! What a cluster costs as it grows: messages when nothing is read, messages of a read, memory of a
//! block beside its bytes, and what moves when a member leaves or joins.
//!
//! All protocols of a cluster run in one process, on a network without faults that takes
//! [`LATENCY_NS`] for each message, before a source that takes [`SOURCE_NS`]. Nothing is evicted.
//! Messages are counted as they leave, with the bytes of their encoding and of a frame's header.
//! Memory is what the resident set grows by while blocks come in.
//!
//! `cargo bench -p hither-node --bench scale` runs all clusters, each in a process of its own, for
//! a few minutes; that of 1,024 nodes takes some 10 GB, mostly for distances, which each node has
//! for itself. `-- NODES` runs those of so many nodes. `cargo test --benches` runs tiny ones.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::process::Command;
use std::time::{Duration, Instant};

use hither_core::Random;
use hither_core::random::mix;
use hither_net::frame::HEADER_BYTES;
use hither_node::key::{CHUNK_BLOCKS, ChunkKey, FileKey, bits};
use hither_node::protocol::{
    Blocks, FetchResult, Frames, Input, Keep, MemberId, Message, Output, Protocol, ReadEntry,
    Settings, Time, Token, Urgency, View, wire,
};

const MS: u64 = 1_000_000;
const LATENCY_NS: u64 = MS / 10;
const SOURCE_NS: u64 = 5 * MS;
/// Between two reports of what readers read from their own node's copies.
const USAGE_NS: u64 = 100 * MS;
/// Between two reads of a node.
const READ_NS: u64 = 2 * MS;
/// Chunks of a cluster: 2^4 to 2^10 nodes have 2^-2 to 2^-8 of what a node has of 1,000 with 10^9
/// blocks, so tables that grow by factors of two are as full as there.
const CHUNKS: u32 = 62_500;
/// Chunks of a file.
const FILE_CHUNKS: u32 = 16;
/// Of the chunks, one in so many is read again.
const HOT: usize = 16;
/// Reads of each block of these.
const HOT_READS: usize = 16;
const HOT_READS_MAX: usize = 200_000;

/// Messages, and what is in them.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    messages: u64,
    bytes: u64,
    report_entries: u64,
    /// When the last report was sent.
    reported_at: u64,
}

impl Traffic {
    fn count(&mut self, message: &Message, now: u64, buffer: &mut Vec<u8>) {
        buffer.clear();
        wire::encode(message, buffer);
        self.messages += 1;
        self.bytes += (buffer.len() + HEADER_BYTES) as u64;
        if let Message::Report { entries, .. } = message {
            self.report_entries += entries.len() as u64;
            self.reported_at = now;
        }
    }
}

/// Who reads what first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// A reader reads whole chunks.
    Chunks,
    /// Each block is read by another node.
    Blocks,
}

/// Protocols, and what is on its way to them.
struct Cluster {
    members: Vec<MemberId>,
    numbers: HashMap<MemberId, usize>,
    protocols: Vec<Option<Protocol>>,
    settings: Settings,
    now: u64,
    /// What takes the latency, in order of its arrival.
    arrivals: VecDeque<(u64, usize, Input)>,
    /// Reads of the source, in order of their ends.
    fetches: VecDeque<(u64, usize, Blocks, Option<MemberId>)>,
    timers: BTreeSet<(Time, usize)>,
    deadlines: Vec<Option<Time>>,
    out: Vec<Output>,
    buffer: Vec<u8>,
    /// Pings, their answers, and round trips.
    background: Traffic,
    /// All other messages.
    foreground: Traffic,
    /// The first holder of each block.
    holders: Vec<u16>,
    /// Others that hold it.
    copies: HashMap<u32, Vec<u16>>,
    held: Vec<u32>,
    /// What readers have read from their own nodes' copies.
    local_reads: Vec<BTreeMap<u32, u8>>,
    usage_at: u64,
}

const NOBODY: u16 = u16::MAX;

fn key(chunk: u32) -> ChunkKey {
    let file = u64::from(chunk / FILE_CHUNKS);
    let hash = mix(file << 1 | 1);
    ChunkKey {
        file: FileKey(u128::from(hash) << 64 | u128::from(file)),
        number: chunk % FILE_CHUNKS,
    }
}

/// The numbers of blocks.
fn numbers(blocks: Blocks) -> impl Iterator<Item = u32> {
    let ChunkKey { file, number } = blocks.chunk;
    let first = (file.0 as u32 * FILE_CHUNKS + number) * CHUNK_BLOCKS;
    bits(blocks.mask).map(move |bit| first + bit)
}

impl Cluster {
    fn new(nodes: usize, chunks: u32, placement: &str) -> Cluster {
        let settings = Settings {
            placement: placement.parse().unwrap(),
            ..Settings::default()
        };
        let members = (0..nodes as u64).map(|number| MemberId(mix(number + 1)));
        let members: Vec<MemberId> = members.collect();
        let new = |&member: &MemberId| Some(Protocol::new(member, settings.clone()));
        let numbers = members.iter().enumerate();
        let mut cluster = Cluster {
            numbers: numbers.map(|(number, &member)| (member, number)).collect(),
            protocols: members.iter().map(new).collect(),
            settings,
            now: 0,
            arrivals: VecDeque::new(),
            fetches: VecDeque::new(),
            timers: BTreeSet::new(),
            deadlines: vec![None; nodes],
            out: Vec::new(),
            buffer: Vec::new(),
            background: Traffic::default(),
            foreground: Traffic::default(),
            holders: vec![NOBODY; (chunks * CHUNK_BLOCKS) as usize],
            copies: HashMap::new(),
            held: vec![0; nodes],
            local_reads: vec![BTreeMap::new(); nodes],
            usage_at: 0,
            members,
        };
        // As pings of real nodes, those of these begin at different times.
        let view = View::new(1, cluster.members.clone());
        for node in 0..nodes {
            cluster.run_until(node as u64 * cluster.settings.ping_ns / nodes as u64);
            cluster.step(node, Input::ViewChanged(view.clone()));
        }
        cluster
    }

    fn nodes(&self) -> usize {
        self.members.len()
    }

    fn run_until(&mut self, end: u64) {
        loop {
            let arrival = self.arrivals.front().map_or(u64::MAX, |it| it.0);
            let fetched = self.fetches.front().map_or(u64::MAX, |it| it.0);
            let timer = self.timers.first().map_or(u64::MAX, |it| it.0.0);
            let next = arrival.min(fetched).min(timer).min(self.usage_at);
            if next > end {
                break;
            }
            self.now = next;
            if next == arrival {
                let (_, node, input) = self.arrivals.pop_front().unwrap();
                self.arrive(node, input);
            } else if next == fetched {
                let (_, node, blocks, keeper) = self.fetches.pop_front().unwrap();
                self.end_fetch(node, blocks, keeper);
            } else if next == timer {
                let (_, node) = *self.timers.first().unwrap();
                self.step(node, Input::Timer);
            } else {
                self.usage_at = next + USAGE_NS;
                (0..self.nodes()).for_each(|node| self.tell_usage(node));
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, node: usize, input: Input) {
        if let Input::Arrived {
            blocks, kept: true, ..
        } = input
        {
            self.hold(node, blocks);
        }
        self.step(node, input);
    }

    fn end_fetch(&mut self, node: usize, blocks: Blocks, keeper: Option<MemberId>) {
        let mut result = FetchResult::Kept;
        if let Some(keeper) = keeper {
            result = FetchResult::Sent;
            self.send_data(node, keeper, blocks, (Keep::Copy, false));
        } else {
            self.hold(node, blocks);
        }
        self.step(node, Input::FetchEnded { blocks, result });
    }

    fn tell_usage(&mut self, node: usize) {
        let mut by_chunk: BTreeMap<u32, (u64, Vec<u8>)> = BTreeMap::new();
        for (block, count) in std::mem::take(&mut self.local_reads[node]) {
            let (mask, counts) = by_chunk.entry(block / CHUNK_BLOCKS).or_default();
            *mask |= 1 << (block % CHUNK_BLOCKS);
            counts.push(count);
        }
        let reads = by_chunk.into_iter().map(|(chunk, (mask, counts))| {
            let blocks = Blocks::new(key(chunk), mask);
            ReadEntry { blocks, counts }
        });
        let reads = reads.collect();
        let all = 2 * (self.holders.len() / self.nodes()) as u32;
        let free = all.saturating_sub(self.held[node]);
        let frames = Frames { all, free };
        self.step(node, Input::Usage { frames, reads });
    }

    fn step(&mut self, node: usize, input: Input) {
        let Some(protocol) = &mut self.protocols[node] else {
            return;
        };
        let mut out = std::mem::take(&mut self.out);
        protocol.step(Time(self.now), input, &mut out);
        let deadline = protocol.next_deadline();
        let before = std::mem::replace(&mut self.deadlines[node], deadline);
        if before != deadline {
            before.map(|time| self.timers.remove(&(time, node)));
            deadline.map(|time| self.timers.insert((time, node)));
        }
        for output in out.drain(..) {
            self.perform(node, output);
        }
        self.out = out;
    }

    fn perform(&mut self, node: usize, output: Output) {
        match output {
            Output::Send { to, epoch, message } => {
                let traffic = match message {
                    Message::Ping { .. } | Message::Pong { .. } | Message::RoundTrips(_) => {
                        &mut self.background
                    }
                    _ => &mut self.foreground,
                };
                traffic.count(&message, self.now, &mut self.buffer);
                let from = self.members[node];
                let input = Input::Message {
                    from,
                    epoch,
                    message,
                };
                let at = self.now + LATENCY_NS;
                self.arrivals.push_back((at, self.numbers[&to], input));
            }
            Output::Fetch { blocks, keeper, .. } => {
                let at = self.now + SOURCE_NS;
                self.fetches.push_back((at, node, blocks, keeper));
            }
            Output::Provide {
                request,
                blocks,
                keep,
                ..
            } => self.send_data(node, request.member, blocks, (keep, true)),
            Output::Forward { blocks, to, keep } => {
                self.send_data(node, to, blocks, (keep, false));
            }
            Output::Drop(blocks) => {
                self.drop_copies(node, blocks);
                // Not within the step that asks for it.
                let input = Input::Dropped(blocks);
                self.arrivals
                    .push_back((self.now + LATENCY_NS, node, input));
            }
            Output::Ready { .. } | Output::Hurry(_) | Output::Trusted(_) => {}
            output => panic!("without faults: {output:?}"),
        }
    }

    fn send_data(&mut self, from: usize, to: MemberId, blocks: Blocks, how: (Keep, bool)) {
        let input = Input::Arrived {
            blocks,
            from: self.members[from],
            kept: how.0 != Keep::No,
            wanted: how.1,
        };
        let at = self.now + LATENCY_NS;
        self.arrivals.push_back((at, self.numbers[&to], input));
    }
}

/// What is held where, and readers.
impl Cluster {
    fn holds(&self, node: usize, block: u32) -> bool {
        let node = node as u16;
        let copies = self.copies.get(&block);
        self.holders[block as usize] == node || copies.is_some_and(|it| it.contains(&node))
    }

    fn hold(&mut self, node: usize, blocks: Blocks) {
        for block in numbers(blocks) {
            if self.holds(node, block) {
                continue;
            }
            self.held[node] += 1;
            match &mut self.holders[block as usize] {
                first if *first == NOBODY => *first = node as u16,
                _ => self.copies.entry(block).or_default().push(node as u16),
            }
        }
    }

    fn drop_copies(&mut self, node: usize, blocks: Blocks) {
        for block in numbers(blocks) {
            if !self.holds(node, block) {
                continue;
            }
            self.held[node] -= 1;
            let copies = self.copies.entry(block).or_default();
            match copies.iter().position(|&it| usize::from(it) == node) {
                Some(at) => _ = copies.swap_remove(at),
                None => self.holders[block as usize] = copies.pop().unwrap_or(NOBODY),
            }
            if copies.is_empty() {
                self.copies.remove(&block);
            }
        }
    }

    fn want(&mut self, node: usize, blocks: Blocks) {
        let want = Input::Want {
            blocks,
            urgency: Urgency::Demand,
            file: Token::new(()),
            waiter: Some(Token::new(())),
            on_disk: 0,
        };
        self.step(node, want);
        self.run_until(self.now + READ_NS / self.nodes() as u64);
    }

    /// All blocks come from the source.
    fn fill(&mut self, layout: Layout, random: &mut Random) {
        for chunk in 0..self.holders.len() as u32 / CHUNK_BLOCKS {
            match layout {
                Layout::Chunks => {
                    let node = random.below(self.nodes() as u64) as usize;
                    self.want(node, Blocks::new(key(chunk), u64::MAX));
                }
                Layout::Blocks => {
                    for bit in 0..CHUNK_BLOCKS {
                        let node = random.below(self.nodes() as u64) as usize;
                        self.want(node, Blocks::new(key(chunk), 1 << bit));
                    }
                }
            }
        }
        self.run_until(self.now + 1_000 * MS);
    }

    /// Some blocks are read again and again, half of the reads by two nodes. Returns how many of
    /// the reads were remote.
    fn read_hot(&mut self, random: &mut Random) -> usize {
        let chunks = self.holders.len() / CHUNK_BLOCKS as usize;
        let reads = chunks.div_ceil(HOT) * CHUNK_BLOCKS as usize * HOT_READS;
        let reads = reads.min(HOT_READS_MAX);
        let hot = reads / (HOT_READS * CHUNK_BLOCKS as usize);
        let mut remote = 0;
        for _ in 0..reads {
            let chunk = random.below(hot as u64) as u32 * HOT as u32;
            let bit = random.below(u64::from(CHUNK_BLOCKS)) as u32;
            let node = match random.below(4) {
                one @ 0..2 => mix(u64::from(chunk) << 1 | one),
                _ => random.bits(),
            };
            let node = (node % self.nodes() as u64) as usize;
            let block = chunk * CHUNK_BLOCKS + bit;
            if self.holds(node, block) {
                if self.protocols[node].as_ref().unwrap().counts_reads() {
                    *self.local_reads[node].entry(block).or_default() += 1;
                }
            } else {
                remote += 1;
                self.want(node, Blocks::new(key(chunk), 1 << bit));
            }
        }
        self.run_until(self.now + 1_000 * MS);
        remote
    }

    /// All nodes get another view. Returns what follows, and the time that a node takes for it.
    fn change_view(&mut self, view: &View) -> (Traffic, Duration) {
        self.foreground = Traffic::default();
        let (began, started) = (self.now, Instant::now());
        for node in 0..self.nodes() {
            self.step(node, Input::ViewChanged(view.clone()));
        }
        let took = started.elapsed() / view.members.len() as u32;
        self.run_until(self.now + 5_000 * MS);
        let mut traffic = self.foreground;
        traffic.reported_at = traffic.reported_at.saturating_sub(began);
        (traffic, took)
    }

    fn homes(&self, view: &View) -> Vec<MemberId> {
        let chunks = 0..self.holders.len() as u32 / CHUNK_BLOCKS;
        chunks
            .map(|chunk| view.home(key(chunk), |_| false).unwrap())
            .collect()
    }
}

/// Memory of this process, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<f64>().unwrap() * 1024.0
}

/// A cluster that is measured.
#[derive(Clone, Copy)]
struct Case {
    nodes: usize,
    chunks: u32,
    placement: &'static str,
    layout: Layout,
}

const HEADER: &str = "\
| nodes | placement | read first in | idle, a node's second | miss | remote read | a block \
| a node | homes moved | leaves | joins | a node's view |
|---|---|---|---|---|---|---|---|---|---|---|---|";

fn measure(case: Case) {
    let Case { nodes, chunks, .. } = case;
    let mut random = Random::new(1);
    let nothing = resident();
    let mut cluster = Cluster::new(nodes, chunks, case.placement);
    cluster.run_until(1_000 * MS);
    cluster.background = Traffic::default();
    let seconds = 4;
    cluster.run_until(cluster.now + seconds * 1_000 * MS);
    let of = |traffic: Traffic, count: f64| {
        let (messages, bytes) = (traffic.messages as f64, traffic.bytes as f64);
        print!("{:.2} ({:.0} B) | ", messages / count, bytes / count);
    };
    print!("| {nodes} | {} | {:?} | ", case.placement, case.layout);
    of(cluster.background, (seconds * nodes as u64) as f64);

    let before = resident();
    let node_mb = (before - nothing) / 1e6 / nodes as f64;
    cluster.fill(case.layout, &mut random);
    let blocks = cluster.holders.len() as f64;
    let block_bytes = (resident() - before) / blocks;
    let misses = match case.layout {
        Layout::Chunks => f64::from(chunks),
        Layout::Blocks => blocks,
    };
    of(std::mem::take(&mut cluster.foreground), misses);
    let remote = cluster.read_hot(&mut random);
    of(std::mem::take(&mut cluster.foreground), remote as f64);
    print!("{block_bytes:.1} B | {node_mb:.1} MB | ");

    let all = View::new(3, cluster.members.clone());
    let fewer = View::new(2, cluster.members[1..].to_vec());
    let homes = [&all, &fewer].map(|view| cluster.homes(view));
    let pairs = homes[0].iter().zip(&homes[1]);
    let moved = pairs.filter(|(before, after)| before != after).count();
    print!("{:.2} % | ", 100.0 * moved as f64 / f64::from(chunks));
    cluster.protocols[0] = None;
    let timer = cluster.deadlines[0].take();
    timer.map(|time| cluster.timers.remove(&(time, 0)));
    let show = |traffic: Traffic| {
        let (messages, entries) = (traffic.messages, traffic.report_entries);
        let ms = traffic.reported_at / MS;
        print!("{entries} in {messages}, {ms} ms | ");
    };
    let (left, took) = cluster.change_view(&fewer);
    show(left);
    let settings = Settings {
        incarnation: 1,
        ..cluster.settings.clone()
    };
    cluster.protocols[0] = Some(Protocol::new(cluster.members[0], settings));
    show(cluster.change_view(&all).0);
    println!("{took:.1?} |");
}

fn cases(nodes: usize, chunks: u32) -> impl Iterator<Item = Case> {
    // There are more reads than with whole chunks, and more for a node to remember.
    let layouts = [(Layout::Chunks, chunks), (Layout::Blocks, chunks / 8)];
    let placements = ["first-and-forever", "cost-benefit"].into_iter();
    placements.flat_map(move |placement| {
        layouts.map(|(layout, chunks)| Case {
            nodes,
            chunks,
            placement,
            layout,
        })
    })
}

/// The argument that has a process measure one case: its number among all.
const ONE: &str = "--case=";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("{HEADER}");
        return cases(3, 64).chain(cases(70, 64)).for_each(measure);
    }
    let all = [16, 64, 256, 1_024].into_iter();
    let all: Vec<Case> = all.flat_map(|nodes| cases(nodes, CHUNKS)).collect();
    let one = arguments
        .iter()
        .find_map(|argument| argument.strip_prefix(ONE));
    if let Some(number) = one.and_then(|number| number.parse::<usize>().ok()) {
        return measure(all[number]);
    }
    let nodes = arguments
        .iter()
        .find_map(|argument| argument.parse::<usize>().ok());
    println!("{HEADER}");
    for (number, case) in all.iter().enumerate() {
        if nodes.is_none_or(|nodes| nodes == case.nodes) {
            let program = std::env::current_exe().unwrap();
            let mut command = Command::new(program);
            let status = command
                .args(["--bench", &format!("{ONE}{number}")])
                .status();
            assert!(status.unwrap().success());
        }
    }
}
