//! Drives a placement policy by what a program does: inputs in, decisions out, and nothing else.
//!
//! A region is *watched* until the policy has a class for it. Each first fault that is seen is placed. Once it is settled
//! the policy is asked about all its other pages, in order, as if they were touched now from where the last one was:
//! so the policy's rules on full nodes and on how much of a program may be far hold for ranges as they do for
//! pages. Where the answer is another node, the program is ordered to bind the range, and what was touched before the
//! order took effect is moved: once when the program says that it has bound it, or, while it does not come to a
//! hooked call, again and again at doubling distances. Pages of a local region are left to the kernel, whose first choice is
//! the node that touches them as well, and which knows best what is full by then.
//!
//! Readings: a fault with huge pages brings in 2 MiB, so that a stream's faults are 512 pages apart. While no two faults
//! of a region fell into the same 2 MiB, it is numbered by these; a program that touches one small page in each of
//! five adjacent ones is taken for a stream. A forked child's copies are not regions: pages that are shared cannot be
//! moved anyway, and what the child writes it touches where its parent's order says.

mod model;
mod segments;
mod sites;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hither_core::placement::{self, Class, Region};
use hither_core::{Block, Node, Object, Process, Spec, Thread, Topology};
use hither_sys::machine::NodeMemory;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::model::{Model, Touch};
use self::segments::{Run, Runs};
use self::sites::Sites;
use super::event::{At, Decision, Input, Moved, Settled, Why};
use super::regions::{Cut, Ranges, Regions};
use super::watch::Watch;
use crate::error::{Error, Result};
use crate::machine;
use crate::observe::Numbers;

/// How long a program has to carry an order out before what it touched meanwhile is moved; doubled from time to time.
const WAIT_NS: u64 = 50_000_000;

/// How often pages that were busy are tried again once their range is bound.
const RETRIES: u32 = 4;

/// What the driver starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The policy, with its parameters.
    pub(crate) policy: String,
    pub(crate) page_bytes: u64,
    /// Where a fault may bring in so much.
    pub(crate) huge_page_bytes: Option<u64>,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    pub(crate) nodes: Vec<NodeConfig>,
    /// What is known of allocation sites.
    pub(crate) sites: Vec<KnownSite>,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeConfig {
    /// The kernel's number.
    pub(crate) node: u32,
    pub(crate) cpus: Vec<u32>,
    pub(crate) frames: u32,
    pub(crate) distances: Vec<u32>,
}

/// What an allocation site's regions were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSite {
    #[serde(with = "super::event::hex")]
    pub(crate) signature: u64,
    #[serde(with = "super::event::class")]
    pub(crate) class: Class,
}

impl Config {
    fn topology(&self) -> Result<Topology> {
        let node = |node: &NodeConfig| NodeMemory {
            node: node.node,
            cpus: node.cpus.clone(),
            bytes: u64::from(node.frames) * self.page_bytes,
            distances: node.distances.clone(),
            ..NodeMemory::default()
        };
        let nodes: Vec<NodeMemory> = self.nodes.iter().map(node).collect();
        machine::topology(&nodes).map_err(|source| Error::Nodes(source.to_string()))
    }

    fn policy(&self) -> Result<Spec<placement::Entry>> {
        let spec = self.policy.parse();
        spec.map_err(|error| Error::Log(format!("policy {:?}: {error}", self.policy)))
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Regions that were followed.
    pub regions: u64,
    /// Of these, decided to be far: their pages go to another node than the one that touches them.
    pub far: u64,
    /// Of these, decided to be near.
    pub near: u64,
    /// Of these, decided on by what was known of their allocation site, without watching.
    pub known: u64,
    /// Regions that were too large to be followed: more than the machine has.
    pub unfollowed: u64,
    /// First faults of regions that were seen.
    pub faults: u64,
    /// Pages that are wanted on another node than the one that touches them.
    pub pages_away: u64,
    /// Ranges that programs bound.
    pub ranges_bound: u64,
    /// Ranges that programs could not bind.
    pub ranges_refused: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Pages that could not be moved.
    pub pages_refused: u64,
}

/// What is known of a region.
#[derive(Debug)]
struct Tracked {
    pid: u32,
    process: Process,
    start: u64,
    pages: u32,
    /// The number of its first page.
    base: u32,
    /// Pages that it has still.
    left: u32,
    /// What it has no longer.
    cuts: Vec<Cut>,
    signature: u64,
    /// First faults that were seen.
    faults: u32,
    unit: Unit,
    /// Nothing while it is watched.
    class: Option<Class>,
    /// The node that it was settled from.
    from: Node,
    segments: Vec<Segment>,
}

/// What faults of a region are numbered by.
#[derive(Debug)]
enum Unit {
    /// Huge pages, each of which has seen one fault at most so far.
    Huge(Vec<u32>),
    Page,
}

/// A run of a region's pages that is wanted elsewhere.
#[derive(Debug)]
struct Segment {
    run: Run,
    state: State,
    wait_ns: u64,
    retries: u32,
    /// The timer that it waits for; others that were set for it count no longer.
    timer: u64,
}

/// How far the binding of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The program should have bound it when it allocated it.
    Site,
    /// It was ordered.
    Ordered,
    /// The program says that it is done; what it touched before is moved for the last time.
    Bound,
}

/// A segment of a region that may be gone by now.
#[derive(Clone, Copy, Debug)]
struct Key {
    object: Object,
    generation: u32,
    segment: usize,
}

/// Segments to be looked at, by time and number, since several may be due at once.
#[derive(Debug, Default)]
struct Timers {
    due: BTreeMap<(u64, u64), Key>,
    count: u64,
}

impl Timers {
    /// The number of no timer.
    const NONE: u64 = u64::MAX;

    /// Returns the timer's number.
    fn set(&mut self, due_ns: u64, key: Key) -> u64 {
        self.due.insert((due_ns, self.count), key);
        self.count += 1;
        self.count - 1
    }

    /// Takes the next that is due.
    fn due(&mut self, now_ns: u64) -> Option<(u64, Key)> {
        let entry = self.due.first_entry()?;
        let &(due_ns, timer) = entry.key();
        (due_ns <= now_ns).then(|| (timer, entry.remove()))
    }
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Driver {
    page_bytes: u64,
    huge_page_bytes: Option<u64>,
    dry_run: bool,
    /// A region of more pages is not followed.
    pages_max: u64,
    model: Model,
    regions: Regions,
    ranges: Ranges,
    /// By object.
    tracked: Vec<Option<Tracked>>,
    generations: Vec<u32>,
    unused: Vec<Object>,
    processes: FxHashMap<u32, Process>,
    process_count: u32,
    threads: Numbers<(u32, u32)>,
    sites: Sites,
    watch: Watch,
    timers: Timers,
    /// Moves under way, and whether their range was bound before they began.
    jobs: FxHashMap<u64, (Key, bool)>,
    job_count: u64,
    summary: Summary,
}

impl Driver {
    pub(crate) fn new(config: &Config) -> Result<Driver> {
        let frames = config.nodes.iter().map(|node| u64::from(node.frames));
        let known = config.sites.iter();
        Ok(Driver {
            page_bytes: config.page_bytes,
            huge_page_bytes: config.huge_page_bytes,
            dry_run: config.dry_run,
            pages_max: frames.sum::<u64>().min(1 << 31),
            model: Model::new(config)?,
            regions: Regions::new(config.page_bytes),
            ranges: Ranges::default(),
            tracked: Vec::new(),
            generations: Vec::new(),
            unused: Vec::new(),
            processes: FxHashMap::default(),
            process_count: 0,
            threads: Numbers::default(),
            sites: Sites::new(known.map(|site| (site.signature, site.class))),
            watch: Watch::new(),
            timers: Timers::default(),
            jobs: FxHashMap::default(),
            job_count: 0,
            summary: Summary::default(),
        })
    }

    /// What the run came to so far.
    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What is known of allocation sites.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (u64, Class)> + '_ {
        self.sites.known()
    }

    /// When it wants to hear of the time.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let timer = self.timers.due.keys().next().map(|&(due_ns, _)| due_ns);
        [timer, self.watch.due_ns()].into_iter().flatten().min()
    }

    /// Takes an input in and adds what follows from it to `out`.
    pub(crate) fn input(&mut self, at: &At, out: &mut Vec<Decision>) {
        let now_ns = at.time_ns;
        self.model.set_now_ns(now_ns);
        while let Some((timer, key)) = self.timers.due(now_ns) {
            let waits =
                |(region, number): (&mut Tracked, usize)| region.segments[number].timer == timer;
            if self.segment(key).is_some_and(waits) {
                self.due(key, now_ns, out);
            }
        }
        match &at.input {
            &Input::Started { pid } | &Input::Ended { pid } => {
                let cuts = self.regions.cut_all(pid);
                self.cut(&cuts);
                self.processes.remove(&pid);
            }
            &Input::Region {
                pid,
                start,
                length,
                signature,
                cpu,
            } => self.region(now_ns, (pid, start, length), signature, cpu, out),
            &Input::RegionEnd { pid, start, length } => {
                if let Some(pages) = self.regions.pages_within(start, length) {
                    let cuts = self.regions.cut(pid, pages, now_ns);
                    self.cut(&cuts);
                }
            }
            &Input::Fault {
                pid,
                tid,
                cpu,
                address,
            } => self.fault(now_ns, (pid, tid), cpu, address, out),
            &Input::Bound {
                pid,
                start,
                length,
                nodes,
                error,
                site,
            } => self.bound(now_ns, (pid, start, length), nodes, error, site, out),
            Input::Moved(moved) => self.moved(now_ns, moved),
            Input::Usage { used } => self.model.set_usage(used),
            Input::Tick => {}
        }
        if let Some(on) = self.watch.change(now_ns) {
            out.push(Decision::Watch { on });
        }
    }

    /// A region comes. What was there before is gone, even if nobody said so.
    fn region(
        &mut self,
        now_ns: u64,
        (pid, start, length): (u32, u64, u64),
        signature: u64,
        cpu: u32,
        out: &mut Vec<Decision>,
    ) {
        let Some(range) = self.regions.pages_within(start, length) else {
            return;
        };
        let cuts = self.regions.cut(pid, range, u64::MAX);
        self.cut(&cuts);
        let pages = (range.1 - range.0) / self.page_bytes;
        let base = match pages <= self.pages_max {
            true => self.ranges.take(pages as u32),
            false => None,
        };
        let Some(base) = base else {
            self.summary.unfollowed += 1;
            out.push(Decision::Unfollowed { pid, start, length });
            return;
        };
        let pages = pages as u32;
        self.model.grow(self.ranges.end());
        let object = self.unused.pop().unwrap_or_else(|| {
            self.tracked.push(None);
            self.generations.push(0);
            Object(self.tracked.len() as u32 - 1)
        });
        let process = *self.processes.entry(pid).or_insert_with(|| {
            self.process_count += 1;
            Process(self.process_count - 1)
        });
        self.regions.insert(pid, range, object, now_ns);
        let huge = self
            .huge_page_bytes
            .filter(|&huge| range.1 - range.0 > huge);
        self.tracked[object.index()] = Some(Tracked {
            pid,
            process,
            start: range.0,
            pages,
            base,
            left: pages,
            cuts: Vec::new(),
            signature,
            faults: 0,
            unit: huge.map_or(Unit::Page, |_| Unit::Huge(Vec::new())),
            class: None,
            from: Node(0),
            segments: Vec::new(),
        });
        // Its own size: of a mebibyte from malloc, whole pages are a little less, and it is to count as one.
        self.model.allocated(&Region {
            object,
            owner: process,
            bytes: length,
            known: self.sites.class(signature),
        });
        self.summary.regions += 1;
        if self.model.class(object).is_some() {
            self.summary.known += 1;
            let thread = Thread(self.threads.number((pid, pid)));
            self.settle(now_ns, object, self.model.node_of_cpu(cpu), thread, out);
        } else {
            self.watch.undecided(now_ns);
        }
    }

    /// Pages are gone; with the last of them their region.
    fn cut(&mut self, cuts: &[Cut]) {
        for &cut in cuts {
            let slot = &mut self.tracked[cut.object.index()];
            let region = slot.as_mut().expect("its pages were found");
            region.left -= cut.pages;
            region.cuts.push(cut);
            let first = region.base + cut.first;
            (first..first + cut.pages).for_each(|page| self.model.leave(Block(page)));
            if region.left == 0 {
                if region.class.is_none() {
                    self.watch.decided();
                }
                self.ranges.release(region.base, region.pages);
                *slot = None;
                self.generations[cut.object.index()] += 1;
                self.model.freed(cut.object);
                self.unused.push(cut.object);
            }
        }
    }

    /// A page was touched first.
    fn fault(
        &mut self,
        now_ns: u64,
        (pid, tid): (u32, u32),
        cpu: u32,
        address: u64,
        out: &mut Vec<Decision>,
    ) {
        let found = self.regions.find(pid, address).and_then(|(object, page)| {
            let region = self.tracked[object.index()].as_mut()?;
            let block = Block(region.base + page);
            let news = region.class.is_none() && self.model.home(block).is_none();
            news.then_some((object, region, page, block))
        });
        let Some((object, region, page, block)) = found else {
            self.watch.useless();
            return;
        };
        region.faults += 1;
        self.summary.faults += 1;
        let (node, pid) = (self.model.node_of_cpu(cpu), region.pid);
        let start = region.start + u64::from(page) * self.page_bytes;
        let thread = Thread(self.threads.number((pid, tid)));
        let placed = self.model.place(Touch {
            block,
            object,
            index: region.index(address, page, self.huge_page_bytes),
            process: region.process,
            thread,
            node,
        });
        if self.model.class(object).is_some() {
            self.watch.decided();
            self.settle(now_ns, object, node, thread, out);
        } else if let Some(to) = placed.filter(|&to| to != node) {
            out.push(Decision::Move {
                job: self.job_count,
                pid,
                start,
                pages: 1,
                nodes: self.model.bit(to),
            });
            self.job_count += 1;
        }
    }

    /// The policy has a class for the region.
    fn settle(
        &mut self,
        now_ns: u64,
        object: Object,
        from: Node,
        thread: Thread,
        out: &mut Vec<Decision>,
    ) {
        let region = self.tracked[object.index()].as_mut();
        let region = region.expect("the caller found it");
        let class = self.model.class(object).expect("the caller asked");
        region.class = Some(class);
        region.from = from;
        let here = self.model.bit(from);
        let runs = match class {
            Class::Local => Vec::new(),
            Class::Remote => wanted(&mut self.model, object, region, from, thread),
        };
        let (away, stays): (Vec<Run>, Vec<Run>) = runs
            .into_iter()
            .filter(|run| run.nodes != 0)
            .partition(|run| run.nodes != here);
        let pages_away: u32 = away.iter().map(|run| run.pages).sum();
        let nodes = away.iter().fold(0, |nodes, run| nodes | run.nodes);
        // What was touched before it was settled stays where it is, and is no sign of a change of mind.
        let alike = away.iter().all(|run| run.nodes == nodes)
            && nodes != 0
            && pages_away + region.faults >= region.left;
        let bound_before = self.sites.bound(region.signature);
        let target = alike.then_some(nodes);
        if let Some(bound) = self.sites.settled(region.signature, class, target) {
            out.push(Decision::Site {
                signature: region.signature,
                nodes: bound.unwrap_or(0),
            });
        }
        match class {
            Class::Local => self.summary.near += 1,
            Class::Remote => self.summary.far += 1,
        }
        self.summary.pages_away += u64::from(pages_away);
        out.push(Decision::Settled(Settled {
            pid: region.pid,
            start: region.start,
            length: u64::from(region.pages) * self.page_bytes,
            signature: region.signature,
            faults: region.faults,
            known: region.faults == 0,
            class,
            from: self.model.kernel_number(from),
            nodes: if nodes == 0 { here } else { nodes },
            away: pages_away,
        }));
        // A site's policy holds for all that is allocated there, also for what this time is not wanted there.
        let by_site = bound_before.filter(|_| region.faults == 0);
        for run in stays.iter().filter(|_| by_site.is_some()) {
            out.push(region.order(run, 0, self.page_bytes));
        }
        for run in away {
            let state = match by_site == Some(run.nodes) {
                true => State::Site,
                false => State::Ordered,
            };
            if state == State::Ordered {
                out.push(region.order(&run, run.nodes, self.page_bytes));
            }
            let key = Key {
                object,
                generation: self.generations[object.index()],
                segment: region.segments.len(),
            };
            let timer = match self.dry_run {
                true => Timers::NONE,
                false => self.timers.set(now_ns + WAIT_NS, key),
            };
            region.segments.push(Segment {
                run,
                state,
                wait_ns: WAIT_NS,
                retries: 0,
                timer,
            });
        }
    }

    fn segment(&mut self, key: Key) -> Option<(&mut Tracked, usize)> {
        let current = self.generations[key.object.index()] == key.generation;
        let region = self.tracked[key.object.index()].as_mut();
        region
            .filter(|_| current)
            .map(|region| (region, key.segment))
    }

    /// It is time to do something about a segment.
    fn due(&mut self, key: Key, now_ns: u64, out: &mut Vec<Decision>) {
        let page_bytes = self.page_bytes;
        let timer = self.timers.count;
        let Some((region, number)) = self.segment(key) else {
            return;
        };
        let Segment { run, state, .. } = region.segments[number];
        if state == State::Site {
            region.segments[number].state = State::Ordered;
            region.segments[number].timer = timer;
            out.push(region.order(&run, run.nodes, page_bytes));
            self.timers.set(now_ns + WAIT_NS, key);
            return;
        }
        let (pid, start) = (region.pid, region.address(run.first, page_bytes));
        let job = self.job_count;
        self.job_count += 1;
        self.jobs.insert(job, (key, state == State::Bound));
        out.push(Decision::Move {
            job,
            pid,
            start,
            pages: run.pages,
            nodes: run.nodes,
        });
    }

    /// A program has bound a range, or could not.
    fn bound(
        &mut self,
        now_ns: u64,
        (pid, start, length): (u32, u64, u64),
        nodes: u64,
        error: u32,
        site: bool,
        out: &mut Vec<Decision>,
    ) {
        match error {
            0 => self.summary.ranges_bound += 1,
            _ => self.summary.ranges_refused += 1,
        }
        let Some((start, end)) = self.regions.pages_within(start, length) else {
            return;
        };
        let Some((object, _)) = self.regions.find(pid, start).filter(|_| error == 0) else {
            return;
        };
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let generation = self.generations[object.index()];
        let mut again = Vec::new();
        for (number, segment) in region.segments.iter_mut().enumerate() {
            let first = region.start + u64::from(segment.run.first) * self.page_bytes;
            if segment.run.nodes == nodes && (start..end).contains(&first) {
                segment.state = State::Bound;
                segment.timer = Timers::NONE;
                // Bound by its site, nothing was touched before.
                again.extend((!site).then_some(Key {
                    object,
                    generation,
                    segment: number,
                }));
            }
        }
        for key in again {
            self.due(key, now_ns, out);
        }
    }

    /// A move has ended: whether there is more to do, and what is not where it was to be.
    fn moved(&mut self, now_ns: u64, moved: &Moved) {
        self.summary.pages_moved += u64::from(moved.moved);
        let refused = moved.refused.iter().map(|run| u64::from(run.pages));
        self.summary.pages_refused += refused.sum::<u64>();
        let Some((key, bound_before)) = self.jobs.remove(&moved.job) else {
            return;
        };
        let timer = self.timers.count;
        let Some((region, number)) = self.segment(key) else {
            return;
        };
        let (base, from) = (region.base, region.from);
        let segment = &mut region.segments[number];
        let Run { first, pages, .. } = segment.run;
        let why = |why: Why| moved.refused.iter().any(|run| run.why == why);
        let given_up = [Why::NotPermitted, Why::NoProcess, Why::NodeNotAllowed];
        let done = match bound_before || moved.absent == 0 {
            true => !why(Why::Busy) || segment.retries >= RETRIES,
            // Bound meanwhile: that move is on its way, and the last.
            false => segment.state == State::Bound,
        };
        if !done && !given_up.into_iter().any(why) {
            segment.retries += u32::from(why(Why::Busy));
            segment.timer = timer;
            let due_ns = now_ns + segment.wait_ns;
            segment.wait_ns *= 2;
            self.timers.set(due_ns, key);
        }
        for run in &moved.refused {
            let refused = run.first..run.first.saturating_add(run.pages).min(pages);
            refused.for_each(|page| self.model.stays(Block(base + first + page), from));
        }
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.regions.check();
        self.model.check();
        let live = self.tracked.iter().flatten();
        assert_eq!(live.count() + self.unused.len(), self.tracked.len());
        let pages = self.tracked.iter().flatten().map(|region| region.pages);
        assert!(pages.sum::<u32>() <= self.ranges.end());
    }
}

/// Has the policy place all pages of a region that are nowhere yet, and says where each is wanted.
fn wanted(
    model: &mut Model,
    object: Object,
    region: &Tracked,
    node: Node,
    thread: Thread,
) -> Vec<Run> {
    let mut runs = Runs::default();
    for index in 0..region.pages {
        let gone = |cut: &Cut| (cut.first..cut.first + cut.pages).contains(&index);
        let block = Block(region.base + index);
        let at = match model.home(block) {
            _ if region.cuts.iter().any(gone) => None,
            // What was placed near before it was settled stays.
            Some(home) => Some(home).filter(|&home| home != node),
            None => model.place(Touch {
                block,
                object,
                index,
                process: region.process,
                thread,
                node,
            }),
        };
        runs.push(at.map_or(0, |at| model.bit(at)));
    }
    runs.finish()
}

impl Tracked {
    fn address(&self, index: u32, page_bytes: u64) -> u64 {
        self.start + u64::from(index) * page_bytes
    }

    fn order(&self, run: &Run, nodes: u64, page_bytes: u64) -> Decision {
        Decision::Bind {
            pid: self.pid,
            start: self.address(run.first, page_bytes),
            length: u64::from(run.pages) * page_bytes,
            nodes,
        }
    }

    /// The number of a fault's page in the region, such that what is touched next to it has the next number.
    fn index(&mut self, address: u64, page: u32, huge_page_bytes: Option<u64>) -> u32 {
        let (Unit::Huge(seen), Some(huge)) = (&mut self.unit, huge_page_bytes) else {
            return page;
        };
        let number = (address / huge - self.start / huge) as u32;
        if seen.contains(&number) {
            self.unit = Unit::Page;
            return page;
        }
        seen.push(number);
        number
    }
}
