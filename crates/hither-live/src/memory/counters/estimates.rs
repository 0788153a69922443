//! Counts that are surely not too bad for staying: from samples to what a placement policy can take
//! for the truth.
//!
//! A policy compares what the home of a page has of its accesses with what each other node has, one
//! by one. So what has to be sure is how the two compare: of the samples that are of one or the
//! other, those of the other are a share of which there is a lower bound. The home is given what
//! its samples say, in accesses, and each other node as many more (or fewer) as it has at least. A
//! criterion that grows with that difference, as UPM's does (ICS 2000, equation 1: more contenders
//! among the others make it grow, too), then fires only if it would on the true shares, but for the
//! chance that a bound is wrong. The policy need not know of sampling. (Bounds of the two nodes'
//! shares of all samples, apart from each other, are as good on two nodes; on four, for shares of
//! 2:8:1:1 and 1:3:1:1, they need a quarter to nearly a half more samples until they no longer
//! overlap.)
//!
//! Readings: an iteration's accesses of one window are taken to be as many as the caller says; its
//! samples tell of shares only. The samples of a window's pages with the same home are taken
//! together unless two halves of it are surely used by different nodes. They age by periods, each
//! of which halves the older ones. A window that one node mainly uses may have a few pages of each
//! of many homes: the kernel moves pages to whoever came twice. None of them has samples enough. So
//! such *strangers* are taken together in all windows of the region that are counted, whatever
//! their homes are: if the main users of their windows surely have more of them than their homes
//! have, they have more of each that its own samples do not speak against. Where a program's phases
//! are told apart, the estimate is a stratified one ([`StratifiedSamples`]); what was not seen then
//! is taken for the home's.

use std::collections::BTreeMap;
use std::ops::Range;

use hither_core::placement::Counters;
use hither_core::{Block, Node};
use rustc_hash::FxHashMap;

use super::Phases;
use super::bounds::{bounds, may_be_one};
use super::stratified::{HOME, MAIN, ROLES, Samples, Shares, StratifiedSamples, phase_bit};

/// A sample in units of what is kept: it can be halved three times before it is nothing.
const UNIT: u16 = 8;

/// A page's samples of one node stop counting here: 1000.
const FULL: u16 = 1000 * UNIT;

/// A pass of the kernel's scanner touches all pages of a window, and those of one home and user are
/// few where many nodes share it. So windows are as many times wider then; what surely differs
/// within one is taken apart.
const WIDER: u32 = 2;

/// Samples by page and node.
#[derive(Debug)]
pub(crate) struct Estimates {
    nodes: usize,
    /// `ln(1 / alpha)` for one node's share.
    level: f64,
    /// What the samples of pages with one home count as, where one follows from the other; else
    /// each counts.
    at_once: Option<u32>,
    /// Regions by their first block.
    regions: BTreeMap<u32, Region>,
    known: Known,
    /// Scratch: the pages of a window with their homes, and what is made of them.
    pages: Vec<(Node, Block)>,
    strata: StratifiedSamples,
    rows: Rows,
    strangers: Strangers,
}

/// What is kept of each page of a region.
#[derive(Debug)]
struct Kept {
    /// The region's first block.
    first: u32,
    nodes: usize,
    /// By page and node.
    samples: Vec<u16>,
    /// By page, a bit for each phase that it was seen in.
    seen_in: Vec<u64>,
}

impl Kept {
    fn new(blocks: &Range<u32>, nodes: usize) -> Kept {
        Kept {
            first: blocks.start,
            nodes,
            samples: vec![0; blocks.len() * nodes],
            seen_in: vec![0; blocks.len()],
        }
    }

    fn page(&self, block: Block) -> usize {
        (block.0 - self.first) as usize
    }

    /// Samples of a page by node.
    fn samples(&self, block: Block) -> &[u16] {
        &self.samples[self.page(block) * self.nodes..][..self.nodes]
    }

    fn samples_mut(&mut self, block: Block) -> &mut [u16] {
        let from = self.page(block) * self.nodes;
        &mut self.samples[from..][..self.nodes]
    }

    fn seen_in(&self, block: Block) -> u64 {
        self.seen_in[self.page(block)]
    }

    /// What was seen of these pages of the region says nothing any more.
    fn forget(&mut self, blocks: Range<u32>) {
        let pages = self.page(Block(blocks.start))..self.page(Block(blocks.end));
        self.samples[pages.start * self.nodes..pages.end * self.nodes].fill(0);
        self.seen_in[pages].fill(0);
    }

    /// Puts down the samples of pages by node, and of how many each stratum has any, and says how
    /// many of the pages have any.
    fn gather(
        &self,
        pages: &[(Node, Block)],
        strata: &StratifiedSamples,
        rows: &mut Rows,
    ) -> usize {
        let Rows {
            samples, covered, ..
        } = rows;
        samples.fill(0.0);
        covered.clear();
        covered.resize(strata.len(), 0);
        let mut sampled = 0;
        for &(_, block) in pages {
            let seen_in = self.seen_in(block);
            if seen_in == 0 {
                continue;
            }
            sampled += 1;
            strata.cover(seen_in, covered);
            for (&units, into) in self.samples(block).iter().zip(samples.iter_mut()) {
                *into += f64::from(units) / f64::from(UNIT);
            }
        }
        sampled
    }
}

/// Pages of a region that lie elsewhere than their window's main user is, where it is open who has
/// more of them.
#[derive(Debug, Default)]
struct Strangers {
    /// Their samples by stratum and role, and how many they are.
    samples: Vec<f64>,
    pages: usize,
    /// Those whose own samples do not speak against the main user: page, home, main user and first
    /// block of the window.
    follow: Vec<(Block, Node, Node, u32)>,
    /// Scratch.
    own: Vec<f64>,
}

/// Scratch: by node, or by stratum what is covered.
#[derive(Debug)]
struct Rows {
    row: Vec<u32>,
    hits: Vec<u32>,
    left: Vec<u32>,
    right: Vec<u32>,
    samples: Vec<f64>,
    covered: Vec<u32>,
    shares: Shares,
}

impl Rows {
    /// Who uses the pages that were gathered.
    fn shares(&mut self, strata: &StratifiedSamples, pages: usize, worth: f64) -> &mut Shares {
        let of = Samples {
            of_nodes: &self.samples,
            covered: &self.covered,
            pages,
            worth,
        };
        strata.shares(of, &mut self.shares);
        &mut self.shares
    }
}

#[derive(Debug)]
struct Region {
    pages: u32,
    window_pages: u32,
    /// Its samples by phase, older ones counting less.
    phases: Vec<u64>,
    kept: Kept,
    /// Windows with samples, by their first block.
    windows: BTreeMap<u32, Window>,
}

/// The region of a block, with its first.
fn region_of(regions: &mut BTreeMap<u32, Region>, block: Block) -> Option<(u32, &mut Region)> {
    let (&start, region) = regions.range_mut(..=block.0).next_back()?;
    (block.0 - start < region.pages).then_some((start, region))
}

#[derive(Clone, Debug)]
struct Window {
    pages: u32,
    /// It has samples that were not counted yet, or something of it is asked about again.
    new: bool,
    /// Its samples by phase and node, of those there are: few.
    seen: Vec<(u8, Node, u32)>,
}

impl Window {
    fn sampled(&mut self, phase: u8, node: Node) {
        self.new = true;
        let known = self
            .seen
            .iter_mut()
            .find(|of| (of.0, of.1) == (phase, node));
        match known {
            Some((_, _, units)) => *units = units.saturating_add(u32::from(UNIT)),
            None => self.seen.push((phase, node, u32::from(UNIT))),
        }
    }
}

/// How a region lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lies {
    /// The part of its use, as far as that was seen, that is local.
    pub(crate) local: f64,
    /// What would be, if each page were with whoever comes next, as it is where the kernel moves
    /// them: the more nodes use pages, the less.
    pub(crate) by_chance: f64,
    /// What would be, if what has one home by now were where most of its use is.
    pub(crate) best: f64,
    /// The part of the program's time in which it was seen.
    pub(crate) of_time: f64,
}

impl Estimates {
    /// No samples. `confidence`: the chance that all bounds of a page hold, for ever. `at_once`:
    /// pages are armed together, so that the touches which follow are not independent: a sample of
    /// each page of a group counts as so many at the most.
    pub(crate) fn new(nodes: usize, confidence: f64, at_once: Option<u32>) -> Estimates {
        let alpha = (1.0 - confidence).clamp(1e-12, 0.5) / nodes as f64;
        Estimates {
            nodes,
            level: -alpha.ln(),
            at_once,
            regions: BTreeMap::new(),
            known: Known::default(),
            pages: Vec::new(),
            strata: StratifiedSamples::default(),
            strangers: Strangers::default(),
            rows: Rows {
                row: vec![0; nodes],
                hits: vec![0; nodes],
                left: vec![0; nodes],
                right: vec![0; nodes],
                samples: vec![0.0; nodes],
                covered: Vec::new(),
                shares: Shares::default(),
            },
        }
    }

    /// A region has these blocks, from its first page on.
    pub(crate) fn begin(&mut self, blocks: Range<u32>) {
        let pages = blocks.end - blocks.start;
        let region = Region {
            pages,
            window_pages: super::window_pages(pages)
                * if self.at_once.is_some() { WIDER } else { 1 },
            phases: Vec::new(),
            kept: Kept::new(&blocks, self.nodes),
            windows: BTreeMap::new(),
        };
        self.regions.insert(blocks.start, region);
    }

    /// A region with these blocks is no more, nor are its samples.
    pub(crate) fn end(&mut self, blocks: Range<u32>) {
        self.regions.remove(&blocks.start);
    }

    /// What was seen of these pages of one region says nothing any more: freed, or used for
    /// something else.
    pub(crate) fn forget(&mut self, blocks: Range<u32>) {
        let Some((start, region)) = region_of(&mut self.regions, Block(blocks.start)) else {
            return;
        };
        let blocks = blocks.start..blocks.end.min(start + region.pages);
        region.kept.forget(blocks.clone());
        let whole = |first: u32, window: &Window| {
            blocks.start <= first && first + window.pages <= blocks.end
        };
        region
            .windows
            .retain(|&first, window| !whole(first, window));
        if blocks.len() as u32 == region.pages {
            region.phases.clear();
        }
    }

    /// A page was touched from `node` in a phase of the program (of its [`Phases`]) after it had
    /// been armed. False if it is of no region.
    pub(crate) fn sampled(&mut self, block: Block, node: Node, phase: u8) -> bool {
        let Some((start, region)) = region_of(&mut self.regions, block) else {
            return false;
        };
        if node.index() >= self.nodes {
            return false;
        }
        let at = block.0 - start;
        let phases = region.phases.len().max(usize::from(phase) + 1);
        region.phases.resize(phases, 0);
        region.phases[usize::from(phase)] += u64::from(UNIT);
        let first = at - at % region.window_pages;
        let window = region.windows.entry(start + first).or_insert(Window {
            pages: region.window_pages.min(region.pages - first),
            new: true,
            seen: Vec::new(),
        });
        window.sampled(phase, node);
        region.kept.seen_in[at as usize] |= phase_bit(usize::from(phase));
        let sample = &mut region.kept.samples_mut(block)[node.index()];
        *sample = (*sample + UNIT).min(FULL);
        true
    }

    /// Threads moved, each node's together: what was seen from a node was seen from the one that
    /// `to` has for it.
    pub(crate) fn follow(&mut self, to: &[Node]) {
        let moved = &mut self.rows.row;
        for region in self.regions.values_mut() {
            for (&first, window) in &mut region.windows {
                window.new = true;
                for (_, node, _) in &mut window.seen {
                    *node = to[node.index()];
                }
                for block in first..first + window.pages {
                    let row = region.kept.samples_mut(Block(block));
                    moved.fill(0);
                    for (&samples, to) in row.iter().zip(to) {
                        moved[to.index()] += u32::from(samples);
                    }
                    for (samples, &moved) in row.iter_mut().zip(&*moved) {
                        *samples = moved.min(u32::from(FULL)) as u16;
                    }
                }
            }
        }
    }

    /// Threads moved, and scattered: what was seen so far tells where they were. Kept at half its
    /// weight, it held back for some ten iterations the pages that were to follow.
    pub(crate) fn restart(&mut self) {
        for region in self.regions.values_mut() {
            for (first, window) in std::mem::take(&mut region.windows) {
                region.kept.forget(first..first + window.pages);
            }
            region.phases.clear();
        }
    }

    /// So much time has passed that the program may do something else: what was seen so far counts
    /// half.
    pub(crate) fn phase_ended(&mut self) {
        for region in self.regions.values_mut() {
            let kept = &mut region.kept;
            region.windows.retain(|&first, window| {
                let from = kept.page(Block(first));
                let pages = from..from + window.pages as usize;
                let rows = kept.samples[from * kept.nodes..].chunks_exact_mut(kept.nodes);
                window.seen.retain_mut(|(_, _, units)| {
                    *units /= 2;
                    *units > 0
                });
                let phases = window.seen.iter().map(|of| phase_bit(usize::from(of.0)));
                let phases = phases.fold(0, |all, bit| all | bit);
                let mut any = false;
                for (row, seen_in) in rows.zip(&mut kept.seen_in[pages]) {
                    row.iter_mut().for_each(|units| *units /= 2);
                    let left = row.iter().any(|&units| units > 0);
                    *seen_in &= if left { phases } else { 0 };
                    any |= left;
                }
                window.new |= any;
                any
            });
            region.phases.iter_mut().for_each(|units| *units /= 2);
        }
    }

    /// What was counted of a page led to something that may have to be done again.
    pub(crate) fn again(&mut self, block: Block) {
        if let Some((start, region)) = region_of(&mut self.regions, block) {
            let at = block.0 - start;
            let first = block.0 - at % region.window_pages;
            if let Some(window) = region.windows.get_mut(&first) {
                window.new = true;
            }
        }
    }

    /// Adds the counts of each page that lies in a window with new samples, or one of which another
    /// node surely had more when it was counted last, and has a home; and says whether there are
    /// any of the latter. `accesses`: what an iteration makes of them a page, in the unit of the
    /// policy's latencies: those that memory answers.
    pub(crate) fn counts(
        &mut self,
        home: &dyn Fn(Block) -> Option<Node>,
        accesses: u32,
        phases: &Phases,
        into: &mut Counters,
    ) -> bool {
        let mut open = false;
        for region in self.regions.values_mut() {
            let windows = region.windows.iter_mut();
            let mut windows = windows.filter(|(_, window)| window.new).peekable();
            if windows.peek().is_none() {
                continue;
            }
            self.strata.region(&region.phases, phases);
            self.strangers.clear();
            for (&first, window) in windows {
                self.strata.window(&window.seen, self.nodes);
                self.pages.clear();
                let blocks = (first..first + window.pages).map(Block);
                self.pages
                    .extend(blocks.filter_map(|block| Some((home(block)?, block))));
                self.pages.sort_unstable();
                let mut judge = Judge {
                    nodes: self.nodes,
                    level: self.level,
                    at_once: self.at_once,
                    kept: &region.kept,
                    strata: &self.strata,
                    known: &mut self.known,
                    accesses: f64::from(accesses),
                    rows: &mut self.rows,
                    strangers: &mut self.strangers,
                    window: first,
                    main: None,
                    into,
                };
                judge.main = judge.main_user(&self.pages);
                window.new = false;
                for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                    window.new |= judge.pages(alike);
                }
                open |= window.new;
            }
            if let Some((of_home, of_main)) =
                self.strangers
                    .row(&self.strata, self.level, accesses, &mut self.rows)
            {
                for &(block, home, main, window) in &self.strangers.follow {
                    into.reset(block);
                    into.add(block, home, of_home);
                    into.add(block, main, of_main);
                    if let Some(window) = region.windows.get_mut(&window) {
                        window.new = true;
                    }
                }
                open |= !self.strangers.follow.is_empty();
            }
        }
        open
    }

    /// How the region that begins with this block lies, as far as it was seen. Nothing where it was
    /// not.
    pub(crate) fn lies(
        &mut self,
        start: u32,
        home: &dyn Fn(Block) -> Option<Node>,
        phases: &Phases,
    ) -> Option<Lies> {
        let region = self.regions.get(&start)?;
        self.strata.region(&region.phases, phases);
        let (mut local, mut by_chance, mut best, mut seen, mut missed) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let end = start + region.pages;
        for first in (start..end).step_by(region.window_pages as usize) {
            let blocks = (first..end.min(first + region.window_pages)).map(Block);
            self.pages.clear();
            self.pages
                .extend(blocks.filter_map(|block| Some((home(block)?, block))));
            self.pages.sort_unstable();
            let window = region.windows.get(&first);
            let of_window = window.map_or(&[][..], |window| &window.seen);
            self.strata.window(of_window, self.nodes);
            for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                let pages = alike.len() as f64;
                region.kept.gather(alike, &self.strata, &mut self.rows);
                let shares = self.rows.shares(&self.strata, alike.len(), 1.0);
                local += pages * shares.of_nodes[alike[0].0.index()];
                best += pages * shares.of_nodes.iter().copied().fold(0.0, f64::max);
                if shares.seen > 0.0 {
                    let squares: f64 = shares.of_nodes.iter().map(|share| share * share).sum();
                    by_chance += pages * squares / shares.seen;
                }
                seen += pages * shares.seen;
                missed += pages * shares.missed;
            }
        }
        (seen > 0.0).then(|| Lies {
            local: local / seen,
            by_chance: by_chance / seen,
            best: best / seen,
            of_time: phases.covered(&region.phases) * seen / (seen + missed),
        })
    }

    #[cfg(test)]
    /// Samples that pages of a range have, older ones counting less.
    pub(crate) fn samples(&self, blocks: Range<u32>) -> f64 {
        let rows = self.regions.values().flat_map(|region| {
            let all = (region.kept.first..region.kept.first + region.pages).map(Block);
            let asked = all.filter(|block| blocks.contains(&block.0));
            asked.flat_map(|block| region.kept.samples(block))
        });
        let units: u64 = rows.map(|&units| u64::from(units)).sum();
        units as f64 / f64::from(UNIT)
    }
}

/// What a sample of pages counts as, so many of which have any.
fn worth(at_once: Option<u32>, sampled: usize) -> f64 {
    at_once.map_or(1.0, |at_once| {
        f64::min(f64::from(at_once) / sampled.max(1) as f64, 1.0)
    })
}

impl Strangers {
    fn clear(&mut self) {
        self.samples.clear();
        self.pages = 0;
        self.follow.clear();
    }

    /// What each is counted for, home and main user, if the latter surely has more.
    fn row(
        &self,
        strata: &StratifiedSamples,
        level: f64,
        accesses: u32,
        rows: &mut Rows,
    ) -> Option<(u32, u32)> {
        if self.follow.is_empty() {
            return None;
        }
        let shares = &mut rows.shares;
        strata.of_roles(&self.samples, self.pages, shares);
        if shares.samples <= 0.0 {
            return None;
        }
        shares.of_nodes[HOME] += shares.missed;
        let each = shares.samples / (shares.seen + shares.missed);
        let (of_home, of_main) = (shares.of_nodes[HOME] * each, shares.of_nodes[MAIN] * each);
        let both = of_home + of_main;
        let more = (2.0 * bounds(of_main, both, level).0 - 1.0) * both;
        let in_accesses = f64::from(accesses) / shares.samples;
        (more > 0.0).then(|| {
            let count = |samples: f64| (samples * in_accesses) as u32;
            (count(of_home), count(of_home + more))
        })
    }
}

/// Bounds that were worked out before, by hits and samples: there are far fewer than windows.
type Known = FxHashMap<(u32, u32), (f64, f64)>;

/// More of them are not kept.
const KNOWN_MAX: usize = 1 << 16;

struct Judge<'a> {
    nodes: usize,
    level: f64,
    at_once: Option<u32>,
    kept: &'a Kept,
    strata: &'a StratifiedSamples,
    known: &'a mut Known,
    accesses: f64,
    rows: &'a mut Rows,
    strangers: &'a mut Strangers,
    /// The window's first block.
    window: u32,
    /// Who has most of it.
    main: Option<Node>,
    into: &'a mut Counters,
}

impl Judge<'_> {
    fn bounds(&mut self, hits: u32, samples: u32) -> (f64, f64) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let unit = f64::from(UNIT);
        let work_out = || {
            bounds(
                f64::from(hits) / unit,
                f64::from(samples) / unit,
                self.level,
            )
        };
        *self.known.entry((hits, samples)).or_insert_with(work_out)
    }

    /// Puts down as how many samples of each node those of these pages, which have one home, count.
    /// Returns their sum.
    fn hits(&mut self, pages: &[(Node, Block)], into: &mut [u32]) -> u32 {
        into.fill(0);
        let sampled = self.kept.gather(pages, self.strata, self.rows);
        if sampled == 0 {
            return 0;
        }
        // Of pages that were touched in one pass a sample each counts as so many.
        let worth = worth(self.at_once, sampled);
        let shares = self.rows.shares(self.strata, pages.len(), worth);
        shares.of_nodes[pages[0].0.index()] += shares.missed;
        let each = shares.samples * f64::from(UNIT) / (shares.seen + shares.missed);
        for (share, hits) in shares.of_nodes.iter().zip(into.iter_mut()) {
            *hits = (share * each).round() as u32;
        }
        into.iter().sum()
    }

    /// Who has more than half of the use of a window, as far as it was seen: surely, or most of its
    /// pages are there.
    fn main_user(&mut self, pages: &[(Node, Block)]) -> Option<Node> {
        let sampled = self.kept.gather(pages, self.strata, self.rows);
        let worth = worth(self.at_once, sampled);
        let shares = self.rows.shares(self.strata, pages.len(), worth);
        let part = |node: usize| shares.of_nodes[node] / shares.seen;
        let main = (0..self.nodes).find(|&node| part(node) > 0.5)?;
        let samples = shares.samples;
        let there = pages.iter().filter(|of| of.0.index() == main).count();
        let sure = || bounds(part(main) * samples, samples, self.level).0 > 0.5;
        (2 * there > pages.len() || sure()).then_some(Node(main as u16))
    }

    /// Pages of one home of which it is not known who has more, they or who mainly uses the window.
    fn strangers(&mut self, pages: &[(Node, Block)], main: Node) {
        let seen_in = |of: &&(Node, Block)| self.kept.seen_in(of.1) != 0;
        let worth = worth(self.at_once, pages.iter().filter(seen_in).count());
        let strangers = &mut *self.strangers;
        strangers.pages += pages.len();
        strangers.samples.resize(self.strata.len() * ROLES, 0.0);
        for page in pages {
            let &(home, block) = page;
            let seen_in = self.kept.seen_in(block);
            if seen_in != 0 {
                self.kept
                    .gather(std::slice::from_ref(page), self.strata, self.rows);
                let of_nodes = (&self.rows.samples[..], seen_in);
                self.strata.cast(of_nodes, home, main, &mut strangers.own);
                for (all, own) in strangers.samples.iter_mut().zip(&strangers.own) {
                    *all += own * worth;
                }
                let shares = &mut self.rows.shares;
                self.strata.of_roles(&strangers.own, 1, shares);
                if shares.of_nodes[MAIN] + shares.open() < shares.of_nodes[HOME] {
                    continue;
                }
            }
            strangers.follow.push((block, home, main, self.window));
        }
    }

    /// Counts pages of one home that lie in one window. Says whether another node surely has more
    /// of any.
    fn pages(&mut self, pages: &[(Node, Block)]) -> bool {
        let Some(&(home, _)) = pages.first() else {
            return false;
        };
        let (left, right) = pages.split_at(pages.len() / 2);
        if self.differ(left, right) {
            let open = self.pages(left);
            return self.pages(right) || open;
        }
        let mut hits = std::mem::take(&mut self.rows.hits);
        let samples = self.hits(pages, &mut hits);
        let of_home = hits[home.index()];
        let in_accesses = self.accesses / f64::from(samples.max(1));
        for node in 0..self.nodes {
            self.rows.row[node] = match hits[node] {
                _ if node == home.index() => (f64::from(of_home) * in_accesses).ceil() as u32,
                // A node that was never seen surely has nothing, and is looked up for nothing.
                0 => 0,
                hits => {
                    let both = of_home + hits;
                    let more = (2.0 * self.bounds(hits, both).0 - 1.0) * f64::from(both);
                    ((f64::from(of_home) + more) * in_accesses).max(0.0) as u32
                }
            };
        }
        let main = self.main.filter(|&main| main != home).filter(|&main| {
            // What was seen of them may all be of the phase that had the kernel move them there.
            let shares = &self.rows.shares;
            let of_main = hits[main.index()];
            samples == 0
                || shares.of_nodes[home.index()] - shares.missed
                    <= shares.of_nodes[main.index()] + shares.open()
                || self.bounds(of_main, of_home + of_main).1 >= 0.5
        });
        self.rows.hits = hits;
        let row = &self.rows.row;
        let more = samples > 0 && row.iter().any(|&count| count > row[home.index()]);
        if samples > 0 {
            for &(_, block) in pages {
                self.into.add_row(block, row);
            }
        }
        if let Some(main) = main.filter(|_| !more) {
            self.strangers(pages, main);
        }
        more
    }

    /// Whether two parts of a window are surely used by different nodes.
    fn differ(&mut self, left: &[(Node, Block)], right: &[(Node, Block)]) -> bool {
        let mut of = (
            std::mem::take(&mut self.rows.left),
            std::mem::take(&mut self.rows.right),
        );
        let samples = (self.hits(left, &mut of.0), self.hits(right, &mut of.1));
        let unit = f64::from(UNIT);
        let differ = samples.0 > 0
            && samples.1 > 0
            && of.0.iter().zip(&of.1).any(|(&of_left, &of_right)| {
                let told =
                    |hits: u32, samples: u32| (f64::from(hits) / unit, f64::from(samples) / unit);
                let (left, right) = (told(of_left, samples.0), told(of_right, samples.1));
                // Most are of neither, or may be told by two numbers rather than by two bounds of
                // each.
                if of_left + of_right == 0 || may_be_one(left, right, self.level) {
                    return false;
                }
                let (low_left, high_left) = self.bounds(of_left, samples.0);
                let (low_right, high_right) = self.bounds(of_right, samples.1);
                low_left > high_right || low_right > high_left
            });
        (self.rows.left, self.rows.right) = of;
        differ
    }
}

#[cfg(test)]
mod tests;
