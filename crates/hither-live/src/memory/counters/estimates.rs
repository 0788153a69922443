//! From samples to per-node access counts that a placement policy can treat as exact: conservative
//! counts, by which a page moves only if the lower confidence bound favours it.
//!
//! A policy compares the accesses of a page's home with those of each other node, one at a time. So
//! the comparison is what has to be certain: of the samples that belong to one of the two nodes,
//! the other node has a share, and that share has a lower confidence bound. The home is given what
//! its samples say, in accesses. Each other node is given that plus the least difference that the
//! bound allows, which may be negative. A criterion that grows with that difference, as UPM's does
//! (ICS 2000, equation 1: more contenders among the others make it grow, too), then fires only if
//! it would on the true shares, unless a bound is wrong. The policy need not know of sampling.
//! (Separate bounds of the two nodes' shares of all samples are as good on two nodes. On four
//! nodes, for shares of 2:8:1:1 and 1:3:1:1, they need a quarter to nearly a half more samples
//! until they no longer overlap.)
//!
//! Readings:
//! - The caller says how many accesses an iteration makes; samples tell only how they are shared.
//! - The samples of pages in one window with the same home are pooled, unless two halves of the
//!   pages are certainly used by different nodes.
//! - Samples age by periods, each of which halves the older ones.
//! - The kernel moves a page to a node that came twice, so a window that one node mainly uses may
//!   have a few pages on each of many homes, none with enough samples. Such *misplaced* pages are
//!   pooled over all windows of the region that are counted, whatever their homes. If the main
//!   users of their windows certainly use them more than their homes do, each page counts for its
//!   window's main user, unless its own samples speak against that.
//! - Where a program's phases are told apart, the estimate is stratified ([`StratifiedSamples`]);
//!   use that was not seen then counts for the home.

use std::collections::BTreeMap;
use std::ops::Range;

use hither_core::placement::Counters;
use hither_core::{Block, Node};
use rustc_hash::FxHashMap;

use super::bounds::{bounds, may_be_equal};
use super::phases::Phases;
use super::stratified::{HOME, MAIN, ROLES, Samples, Shares, StratifiedSamples, phase_bit};
use super::windows::window_pages;

/// Units that are kept for a sample: it can be halved three times before it is gone.
const UNITS_PER_SAMPLE: u16 = 8;

/// A page's samples of one node stop counting at 1000.
const PAGE_UNITS_MAX: u16 = 1000 * UNITS_PER_SAMPLE;

/// How many times wider windows are where the kernel's scanner arms all pages of a window in one
/// pass: few of them have the same home and user where many nodes share it. What certainly differs
/// within a window is split.
const SCAN_WINDOW_FACTOR: u32 = 2;

/// Samples by page and node.
#[derive(Debug)]
pub(crate) struct Estimates {
    nodes: usize,
    /// `ln(1 / alpha)` for one node's share.
    level: f64,
    /// The most independent samples that one sample of each page of a group counts as, where pages
    /// are armed together; none where each sample counts.
    pass_samples_max: Option<u32>,
    /// Regions by their first block.
    regions: BTreeMap<u32, Region>,
    bounds_cache: BoundsCache,
    /// Scratch: the pages of a window with their homes, and what is computed of them.
    pages: Vec<(Node, Block)>,
    strata: StratifiedSamples,
    scratch: Scratch,
    misplaced: MisplacedPages,
}

/// The samples of each page of a region.
#[derive(Debug)]
struct PageSamples {
    /// The region's first block.
    first: u32,
    nodes: usize,
    /// By page and node.
    samples: Vec<u16>,
    /// By page, a bit for each phase in which it was seen.
    seen_in: Vec<u64>,
}

impl PageSamples {
    fn new(blocks: &Range<u32>, nodes: usize) -> PageSamples {
        PageSamples {
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

    /// Drops the samples of these pages of the region.
    fn forget(&mut self, blocks: Range<u32>) {
        let pages = self.page(Block(blocks.start))..self.page(Block(blocks.end));
        self.samples[pages.start * self.nodes..pages.end * self.nodes].fill(0);
        self.seen_in[pages].fill(0);
    }

    /// Adds up the samples of pages by node, and counts for each stratum how many of them have
    /// samples of it. Returns how many have any samples.
    fn gather(
        &self,
        pages: &[(Node, Block)],
        strata: &StratifiedSamples,
        scratch: &mut Scratch,
    ) -> usize {
        let Scratch {
            samples, covered, ..
        } = scratch;
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
            strata.count_coverage(seen_in, covered);
            for (&units, into) in self.samples(block).iter().zip(samples.iter_mut()) {
                *into += f64::from(units) / f64::from(UNITS_PER_SAMPLE);
            }
        }
        sampled
    }
}

/// Pages of a region that are not with the main user of their window, where it is not certain which
/// of the two uses them more.
#[derive(Debug, Default)]
struct MisplacedPages {
    /// Their samples by stratum and role, and their number.
    samples: Vec<f64>,
    pages: usize,
    /// Those whose own samples do not speak against the main user: page, home, main user and first
    /// block of the window.
    candidates: Vec<(Block, Node, Node, u32)>,
    /// Scratch: one page's samples by stratum and role.
    own: Vec<f64>,
}

/// Scratch: by node, or by stratum for `covered`.
#[derive(Debug)]
struct Scratch {
    row: Vec<u32>,
    hits: Vec<u32>,
    left: Vec<u32>,
    right: Vec<u32>,
    samples: Vec<f64>,
    covered: Vec<u32>,
    shares: Shares,
}

impl Scratch {
    /// Estimates who uses the pages that were gathered.
    fn shares(&mut self, strata: &StratifiedSamples, pages: usize, weight: f64) -> &mut Shares {
        let of = Samples {
            of_nodes: &self.samples,
            covered: &self.covered,
            pages,
            weight,
        };
        strata.shares(of, &mut self.shares);
        &mut self.shares
    }
}

#[derive(Debug)]
struct Region {
    pages: u32,
    window_pages: u32,
    /// Its samples by phase; older ones count less.
    phases: Vec<u64>,
    page_samples: PageSamples,
    /// Windows with samples, by their first block.
    windows: BTreeMap<u32, Window>,
}

/// The region of a block, with its first block.
fn region_of(regions: &mut BTreeMap<u32, Region>, block: Block) -> Option<(u32, &mut Region)> {
    let (&start, region) = regions.range_mut(..=block.0).next_back()?;
    (block.0 - start < region.pages).then_some((start, region))
}

#[derive(Clone, Debug)]
struct Window {
    pages: u32,
    /// To be counted again: it has samples that were not counted yet, or was asked for.
    pending: bool,
    /// Its samples by phase and node: a short list of those that occur.
    seen: Vec<(u8, Node, u32)>,
}

impl Window {
    fn sampled(&mut self, phase: u8, node: Node) {
        self.pending = true;
        let unit = u32::from(UNITS_PER_SAMPLE);
        let mut seen = self.seen.iter_mut();
        match seen.find(|of| (of.0, of.1) == (phase, node)) {
            Some((_, _, units)) => *units = units.saturating_add(unit),
            None => self.seen.push((phase, node, unit)),
        }
    }
}

/// How local the use of a region is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lies {
    /// The local share of the use that was seen.
    pub(crate) local: f64,
    /// The expected local share if each page were with whoever touches it next, as where the kernel
    /// moves pages: the more nodes use a page, the less.
    pub(crate) by_chance: f64,
    /// The local share if all pages of a window that share a home were on the node that uses them
    /// most.
    pub(crate) best: f64,
    /// The share of the program's time in which the region was seen.
    pub(crate) of_time: f64,
}

impl Estimates {
    /// No samples yet. `confidence` is the probability that all bounds of a page hold at all times.
    /// `pass_samples_max` is given where pages are armed together, so that the touches that follow
    /// depend on each other: then one sample of each page of a group counts as so many at most.
    pub(crate) fn new(nodes: usize, confidence: f64, pass_samples_max: Option<u32>) -> Estimates {
        let alpha = (1.0 - confidence).clamp(1e-12, 0.5) / nodes as f64;
        Estimates {
            nodes,
            level: -alpha.ln(),
            pass_samples_max,
            regions: BTreeMap::new(),
            bounds_cache: BoundsCache::default(),
            pages: Vec::new(),
            strata: StratifiedSamples::default(),
            misplaced: MisplacedPages::default(),
            scratch: Scratch {
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
        let factor = match self.pass_samples_max {
            Some(_) => SCAN_WINDOW_FACTOR,
            None => 1,
        };
        let region = Region {
            pages,
            window_pages: window_pages(pages) * factor,
            phases: Vec::new(),
            page_samples: PageSamples::new(&blocks, self.nodes),
            windows: BTreeMap::new(),
        };
        self.regions.insert(blocks.start, region);
    }

    /// The region with these blocks was freed: drops its samples.
    pub(crate) fn end(&mut self, blocks: Range<u32>) {
        self.regions.remove(&blocks.start);
    }

    /// Drops the samples of these pages of one region: they were freed, or are used for something
    /// else.
    pub(crate) fn forget(&mut self, blocks: Range<u32>) {
        let Some((start, region)) = region_of(&mut self.regions, Block(blocks.start)) else {
            return;
        };
        let blocks = blocks.start..blocks.end.min(start + region.pages);
        region.page_samples.forget(blocks.clone());
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

    /// An armed page was touched from `node`, in a phase of the program (see [`Phases`]). False if
    /// the page is of no region.
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
        region.phases[usize::from(phase)] += u64::from(UNITS_PER_SAMPLE);
        let first = at - at % region.window_pages;
        let window = region.windows.entry(start + first).or_insert(Window {
            pages: region.window_pages.min(region.pages - first),
            pending: true,
            seen: Vec::new(),
        });
        window.sampled(phase, node);
        region.page_samples.seen_in[at as usize] |= phase_bit(usize::from(phase));
        let units = &mut region.page_samples.samples_mut(block)[node.index()];
        *units = (*units + UNITS_PER_SAMPLE).min(PAGE_UNITS_MAX);
        true
    }

    /// All threads of a node moved to another one together: samples from a node now count for the
    /// node that `to` has for it.
    pub(crate) fn follow(&mut self, to: &[Node]) {
        let moved = &mut self.scratch.row;
        for region in self.regions.values_mut() {
            for (&first, window) in &mut region.windows {
                window.pending = true;
                for (_, node, _) in &mut window.seen {
                    *node = to[node.index()];
                }
                for block in first..first + window.pages {
                    let row = region.page_samples.samples_mut(Block(block));
                    moved.fill(0);
                    for (&samples, to) in row.iter().zip(to) {
                        moved[to.index()] += u32::from(samples);
                    }
                    for (samples, &moved) in row.iter_mut().zip(&*moved) {
                        *samples = moved.min(u32::from(PAGE_UNITS_MAX)) as u16;
                    }
                }
            }
        }
    }

    /// Threads of one node moved to different nodes: drops all samples, which only tell where the
    /// threads were. (Kept at half their weight, they held back the pages that should follow for
    /// some ten iterations.)
    pub(crate) fn restart(&mut self) {
        for region in self.regions.values_mut() {
            for (first, window) in std::mem::take(&mut region.windows) {
                region.page_samples.forget(first..first + window.pages);
            }
            region.phases.clear();
        }
    }

    /// So much time has passed that the program may do something else: halves the weight of all
    /// samples.
    pub(crate) fn phase_ended(&mut self) {
        for region in self.regions.values_mut() {
            let kept = &mut region.page_samples;
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
                window.pending |= any;
                any
            });
            region.phases.iter_mut().for_each(|units| *units /= 2);
        }
    }

    /// Has the window of a page counted again: the last count led to something that may have to be
    /// repeated.
    pub(crate) fn again(&mut self, block: Block) {
        if let Some((start, region)) = region_of(&mut self.regions, block) {
            let at = block.0 - start;
            let first = block.0 - at % region.window_pages;
            if let Some(window) = region.windows.get_mut(&first) {
                window.pending = true;
            }
        }
    }

    /// Adds the counts of each page that has a home and lies in a pending window: one with new
    /// samples, or one in which another node certainly had more of some page at the last count.
    /// Returns whether there are any of the latter. `accesses` is the number of accesses of a page
    /// in an iteration, in the unit of the policy's latencies: those that memory answers.
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
            let mut windows = windows.filter(|(_, window)| window.pending).peekable();
            if windows.peek().is_none() {
                continue;
            }
            self.strata.set_region(&region.phases, phases);
            self.misplaced.clear();
            for (&first, window) in windows {
                self.strata.set_window(&window.seen, self.nodes);
                self.pages.clear();
                let blocks = (first..first + window.pages).map(Block);
                self.pages
                    .extend(blocks.filter_map(|block| Some((home(block)?, block))));
                self.pages.sort_unstable();
                let mut counter = WindowCounter {
                    nodes: self.nodes,
                    level: self.level,
                    pass_samples_max: self.pass_samples_max,
                    page_samples: &region.page_samples,
                    strata: &self.strata,
                    bounds_cache: &mut self.bounds_cache,
                    accesses: f64::from(accesses),
                    scratch: &mut self.scratch,
                    misplaced: &mut self.misplaced,
                    window: first,
                    main: None,
                    into,
                };
                counter.main = counter.main_user(&self.pages);
                window.pending = false;
                for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                    window.pending |= counter.count_pages(alike);
                }
                open |= window.pending;
            }
            let misplaced = &self.misplaced;
            let counts = misplaced.counts(&self.strata, self.level, accesses, &mut self.scratch);
            if let Some((of_home, of_main)) = counts {
                for &(block, home, main, window) in &misplaced.candidates {
                    into.reset(block);
                    into.add(block, home, of_home);
                    into.add(block, main, of_main);
                    if let Some(window) = region.windows.get_mut(&window) {
                        window.pending = true;
                    }
                }
                open |= !misplaced.candidates.is_empty();
            }
        }
        open
    }

    /// How local the use of a region is, given its first block. None where nothing of it was seen.
    pub(crate) fn lies(
        &mut self,
        start: u32,
        home: &dyn Fn(Block) -> Option<Node>,
        phases: &Phases,
    ) -> Option<Lies> {
        let region = self.regions.get(&start)?;
        self.strata.set_region(&region.phases, phases);
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
            self.strata.set_window(of_window, self.nodes);
            for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                let pages = alike.len() as f64;
                region
                    .page_samples
                    .gather(alike, &self.strata, &mut self.scratch);
                let shares = self.scratch.shares(&self.strata, alike.len(), 1.0);
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
            of_time: phases.time_share(&region.phases) * seen / (seen + missed),
        })
    }

    #[cfg(test)]
    /// Samples of the pages of a range; older ones count less.
    pub(crate) fn samples(&self, blocks: Range<u32>) -> f64 {
        let rows = self.regions.values().flat_map(|region| {
            let first = region.page_samples.first;
            let all = (first..first + region.pages).map(Block);
            let asked = all.filter(|block| blocks.contains(&block.0));
            asked.flat_map(|block| region.page_samples.samples(block))
        });
        let units: u64 = rows.map(|&units| u64::from(units)).sum();
        units as f64 / f64::from(UNITS_PER_SAMPLE)
    }
}

/// The weight of a sample, where `sampled` pages of a group have samples.
fn sample_weight(pass_samples_max: Option<u32>, sampled: usize) -> f64 {
    pass_samples_max.map_or(1.0, |max| {
        f64::min(f64::from(max) / sampled.max(1) as f64, 1.0)
    })
}

impl MisplacedPages {
    fn clear(&mut self) {
        self.samples.clear();
        self.pages = 0;
        self.candidates.clear();
    }

    /// The counts of each candidate for its home and for its window's main user; none unless the
    /// main users certainly have more.
    fn counts(
        &self,
        strata: &StratifiedSamples,
        level: f64,
        accesses: u32,
        scratch: &mut Scratch,
    ) -> Option<(u32, u32)> {
        if self.candidates.is_empty() {
            return None;
        }
        let shares = &mut scratch.shares;
        strata.role_shares(&self.samples, self.pages, shares);
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

/// Bounds that were computed before, by hits and samples: there are far fewer of them than windows.
type BoundsCache = FxHashMap<(u32, u32), (f64, f64)>;

/// The cache is emptied when it has this many entries.
const BOUNDS_CACHE_ENTRIES_MAX: usize = 1 << 16;

/// Counts the pages of one window.
struct WindowCounter<'a> {
    nodes: usize,
    level: f64,
    pass_samples_max: Option<u32>,
    page_samples: &'a PageSamples,
    strata: &'a StratifiedSamples,
    bounds_cache: &'a mut BoundsCache,
    accesses: f64,
    scratch: &'a mut Scratch,
    misplaced: &'a mut MisplacedPages,
    /// The window's first block.
    window: u32,
    /// The node that uses most of it.
    main: Option<Node>,
    into: &'a mut Counters,
}

impl WindowCounter<'_> {
    fn bounds(&mut self, hits: u32, samples: u32) -> (f64, f64) {
        if self.bounds_cache.len() >= BOUNDS_CACHE_ENTRIES_MAX {
            self.bounds_cache.clear();
        }
        let unit = f64::from(UNITS_PER_SAMPLE);
        let compute = || {
            bounds(
                f64::from(hits) / unit,
                f64::from(samples) / unit,
                self.level,
            )
        };
        *self
            .bounds_cache
            .entry((hits, samples))
            .or_insert_with(compute)
    }

    /// Computes how many units of independent samples these pages, which have one home, have by
    /// node. Returns their sum.
    fn hits(&mut self, pages: &[(Node, Block)], into: &mut [u32]) -> u32 {
        into.fill(0);
        let sampled = self.page_samples.gather(pages, self.strata, self.scratch);
        if sampled == 0 {
            return 0;
        }
        let weight = sample_weight(self.pass_samples_max, sampled);
        let shares = self.scratch.shares(self.strata, pages.len(), weight);
        shares.of_nodes[pages[0].0.index()] += shares.missed;
        let each = shares.samples * f64::from(UNITS_PER_SAMPLE) / (shares.seen + shares.missed);
        for (share, hits) in shares.of_nodes.iter().zip(into.iter_mut()) {
            *hits = (share * each).round() as u32;
        }
        into.iter().sum()
    }

    /// The node that has more than half of the use of a window that was seen: with certainty, or
    /// with most of the window's pages.
    fn main_user(&mut self, pages: &[(Node, Block)]) -> Option<Node> {
        let sampled = self.page_samples.gather(pages, self.strata, self.scratch);
        let weight = sample_weight(self.pass_samples_max, sampled);
        let shares = self.scratch.shares(self.strata, pages.len(), weight);
        let part = |node: usize| shares.of_nodes[node] / shares.seen;
        let main = (0..self.nodes).find(|&node| part(node) > 0.5)?;
        let samples = shares.samples;
        let there = pages.iter().filter(|of| of.0.index() == main).count();
        let certain = || bounds(part(main) * samples, samples, self.level).0 > 0.5;
        (2 * there > pages.len() || certain()).then_some(Node(main as u16))
    }

    /// Adds pages of one home to the misplaced ones: it is not known whether their home uses them
    /// more, or the main user of the window.
    fn pool_misplaced(&mut self, pages: &[(Node, Block)], main: Node) {
        let is_sampled = |of: &&(Node, Block)| self.page_samples.seen_in(of.1) != 0;
        let sampled = pages.iter().filter(is_sampled).count();
        let weight = sample_weight(self.pass_samples_max, sampled);
        let misplaced = &mut *self.misplaced;
        misplaced.pages += pages.len();
        misplaced.samples.resize(self.strata.len() * ROLES, 0.0);
        for page in pages {
            let &(home, block) = page;
            let seen_in = self.page_samples.seen_in(block);
            if seen_in != 0 {
                self.page_samples
                    .gather(std::slice::from_ref(page), self.strata, self.scratch);
                let of_nodes = (&self.scratch.samples[..], seen_in);
                self.strata
                    .split_by_role(of_nodes, home, main, &mut misplaced.own);
                for (all, own) in misplaced.samples.iter_mut().zip(&misplaced.own) {
                    *all += own * weight;
                }
                let shares = &mut self.scratch.shares;
                self.strata.role_shares(&misplaced.own, 1, shares);
                if shares.of_nodes[MAIN] + shares.unseen() < shares.of_nodes[HOME] {
                    continue;
                }
            }
            misplaced.candidates.push((block, home, main, self.window));
        }
    }

    /// Counts pages of one home that lie in one window. Returns whether another node certainly has
    /// more of any.
    fn count_pages(&mut self, pages: &[(Node, Block)]) -> bool {
        let Some(&(home, _)) = pages.first() else {
            return false;
        };
        let (left, right) = pages.split_at(pages.len() / 2);
        if self.differ(left, right) {
            let open = self.count_pages(left);
            return self.count_pages(right) || open;
        }
        let mut hits = std::mem::take(&mut self.scratch.hits);
        let samples = self.hits(pages, &mut hits);
        let of_home = hits[home.index()];
        let in_accesses = self.accesses / f64::from(samples.max(1));
        for node in 0..self.nodes {
            self.scratch.row[node] = match hits[node] {
                _ if node == home.index() => (f64::from(of_home) * in_accesses).ceil() as u32,
                // A node that was never seen has nothing: no bounds to compute.
                0 => 0,
                hits => {
                    let both = of_home + hits;
                    let more = (2.0 * self.bounds(hits, both).0 - 1.0) * f64::from(both);
                    ((f64::from(of_home) + more) * in_accesses).max(0.0) as u32
                }
            };
        }
        let main = self.main.filter(|&main| main != home).filter(|&main| {
            // All samples of these pages may be of the phase that had the kernel move them there.
            let shares = &self.scratch.shares;
            let of_main = hits[main.index()];
            samples == 0
                || shares.of_nodes[home.index()] - shares.missed
                    <= shares.of_nodes[main.index()] + shares.unseen()
                || self.bounds(of_main, of_home + of_main).1 >= 0.5
        });
        self.scratch.hits = hits;
        let row = &self.scratch.row;
        let more = samples > 0 && row.iter().any(|&count| count > row[home.index()]);
        if samples > 0 {
            for &(_, block) in pages {
                self.into.add_row(block, row);
            }
        }
        if let Some(main) = main.filter(|_| !more) {
            self.pool_misplaced(pages, main);
        }
        more
    }

    /// Whether two parts of a window are certainly used by different nodes.
    fn differ(&mut self, left: &[(Node, Block)], right: &[(Node, Block)]) -> bool {
        let mut of = (
            std::mem::take(&mut self.scratch.left),
            std::mem::take(&mut self.scratch.right),
        );
        let samples = (self.hits(left, &mut of.0), self.hits(right, &mut of.1));
        let unit = f64::from(UNITS_PER_SAMPLE);
        let differ = samples.0 > 0
            && samples.1 > 0
            && of.0.iter().zip(&of.1).any(|(&of_left, &of_right)| {
                let whole =
                    |hits: u32, samples: u32| (f64::from(hits) / unit, f64::from(samples) / unit);
                let (left, right) = (whole(of_left, samples.0), whole(of_right, samples.1));
                // Most nodes use neither part, and most others are ruled out by the cheap test,
                // which computes no bounds.
                if of_left + of_right == 0 || may_be_equal(left, right, self.level) {
                    return false;
                }
                let (low_left, high_left) = self.bounds(of_left, samples.0);
                let (low_right, high_right) = self.bounds(of_right, samples.1);
                low_left > high_right || low_right > high_left
            });
        (self.scratch.left, self.scratch.right) = of;
        differ
    }
}

#[cfg(test)]
mod tests;
