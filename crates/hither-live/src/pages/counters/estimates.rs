//! Counts that are surely not too bad for staying: from samples to what a placement policy can take for the truth.
//!
//! A policy compares what the home of a page has of its accesses with what each other node has, one by one. So what has to be
//! sure is how the two compare: of the samples that are of one or the other, those of the other are a share of which there is a
//! lower bound. The home is given what its samples say, in accesses, and each other node as many more (or fewer) as it has at least.
//! A criterion that grows with that difference, as UPM's does (ICS 2000, equation 1: more contenders among the others make
//! it grow, too), then fires only if it would on the true shares, but for the chance that a bound is wrong. The policy need not
//! know of sampling. (Bounds of the two nodes' shares of all samples, apart from each other, are as good on two nodes; on four, for shares
//! of 2:8:1:1 and 1:3:1:1, they need a quarter to nearly a half more samples until they no longer overlap.)
//!
//! Readings: an iteration's accesses of one window are taken to be as many as the caller says; its samples tell of
//! shares only. The samples of a window's pages with the same home are taken together unless two halves of it are surely
//! used by different nodes. They age by periods, each of which halves the older ones.
//! Where a program's phases are told apart, the estimate is a stratified one ([`Strata`]); what was not seen then is taken for the home's.

use std::ops::Range;

use hither_core::placement::Counters;
use hither_core::{Block, Node};
use rustc_hash::FxHashMap;

use super::Phases;
use super::bounds::bounds;
use super::strata::{Samples, Shares, Strata};

/// A sample in units of what is kept: it can be halved three times before it is nothing.
const UNIT: u16 = 8;

/// A page's samples of one node stop counting here: 1000.
const FULL: u16 = 1000 * UNIT;

/// A pass of the kernel's scanner touches all pages of a window, and those of one home and user are few where many nodes share it. So windows are as many times wider then; what
/// surely differs within one is taken apart.
const WIDER: u32 = 2;

/// Samples by page and node.
#[derive(Debug)]
pub(crate) struct Estimates {
    nodes: usize,
    /// `ln(1 / alpha)` for one node's share.
    level: f64,
    /// What the samples of pages with one home count as, where one follows from the other; else each counts.
    at_once: Option<u32>,
    /// By block and node.
    samples: Vec<u16>,
    /// Regions by their first block.
    regions: std::collections::BTreeMap<u32, Region>,
    /// Windows with samples, by their first block.
    windows: std::collections::BTreeMap<u32, Window>,
    known: Known,
    /// Scratch: the pages of a window with their homes, and what is made of them.
    pages: Vec<(Node, Block)>,
    strata: Strata,
    rows: Rows,
}

/// By node each.
#[derive(Debug)]
struct Rows {
    row: Vec<u32>,
    hits: Vec<u32>,
    left: Vec<u32>,
    right: Vec<u32>,
    samples: Vec<f64>,
    shares: Shares,
}

#[derive(Clone, Debug)]
struct Region {
    pages: u32,
    window_pages: u32,
    /// Its samples by phase, older ones counting less.
    phases: Vec<u64>,
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
    /// What would be, if each page were with whoever comes next, as it is where the kernel moves them: the more nodes use pages, the less.
    pub(crate) by_chance: f64,
    /// What would be, if what has one home by now were where most of its use is.
    pub(crate) best: f64,
    /// The part of the program's time in which it was seen.
    pub(crate) of_time: f64,
}

impl Estimates {
    /// No samples. `confidence`: the chance that all bounds of a page hold, for ever. `at_once`: pages are armed together, so that
    /// the touches which follow are not independent: a sample of each page of a group counts as so many at the most.
    pub(crate) fn new(nodes: usize, confidence: f64, at_once: Option<u32>) -> Estimates {
        let alpha = (1.0 - confidence).clamp(1e-12, 0.5) / nodes as f64;
        Estimates {
            nodes,
            level: -alpha.ln(),
            at_once,
            samples: Vec::new(),
            regions: std::collections::BTreeMap::new(),
            windows: std::collections::BTreeMap::new(),
            known: Known::default(),
            pages: Vec::new(),
            strata: Strata::default(),
            rows: Rows {
                row: vec![0; nodes],
                hits: vec![0; nodes],
                left: vec![0; nodes],
                right: vec![0; nodes],
                samples: vec![0.0; nodes],
                shares: Shares::default(),
            },
        }
    }

    /// A region has these blocks, from its first page on.
    pub(crate) fn begin(&mut self, blocks: Range<u32>) {
        self.end(blocks.clone());
        let length = self.samples.len().max(blocks.end as usize * self.nodes);
        self.samples.resize(length, 0);
        let pages = blocks.end - blocks.start;
        let region = Region {
            pages,
            window_pages: super::window_pages(pages)
                * if self.at_once.is_some() { WIDER } else { 1 },
            phases: Vec::new(),
        };
        self.regions.insert(blocks.start, region);
    }

    /// A region with these blocks is no more, nor are its samples.
    pub(crate) fn end(&mut self, blocks: Range<u32>) {
        self.regions.remove(&blocks.start);
        self.forget(blocks);
    }

    /// What was seen of these pages says nothing any more: freed, or used for something else.
    pub(crate) fn forget(&mut self, blocks: Range<u32>) {
        let of = |block: u32| (block as usize * self.nodes).min(self.samples.len());
        let range = of(blocks.start)..of(blocks.end.max(blocks.start));
        self.samples[range].fill(0);
        let windows = self.windows.range(blocks.clone());
        let whole: Vec<u32> = windows
            .filter(|(first, window)| **first + window.pages <= blocks.end)
            .map(|(first, _)| *first)
            .collect();
        for first in whole {
            self.windows.remove(&first);
        }
        if let Some(region) = self.regions.get_mut(&blocks.start)
            && region.pages <= blocks.end - blocks.start
        {
            region.phases.clear();
        }
    }

    /// A page was touched from `node` in a phase of the program (of its [`Phases`]) after it had been armed. False if it is of no region.
    pub(crate) fn sampled(&mut self, block: Block, node: Node, phase: u8) -> bool {
        let Some((&start, region)) = self.regions.range_mut(..=block.0).next_back() else {
            return false;
        };
        let at = block.0 - start;
        if at >= region.pages || node.index() >= self.nodes {
            return false;
        }
        let phases = region.phases.len().max(usize::from(phase) + 1);
        region.phases.resize(phases, 0);
        region.phases[usize::from(phase)] += u64::from(UNIT);
        let first = at - at % region.window_pages;
        let window = self.windows.entry(start + first).or_insert(Window {
            pages: region.window_pages.min(region.pages - first),
            new: true,
            seen: Vec::new(),
        });
        window.sampled(phase, node);
        let sample = &mut self.samples[block.index() * self.nodes + node.index()];
        *sample = (*sample + UNIT).min(FULL);
        true
    }

    /// Threads moved, each node's together: what was seen from a node was seen from the one that `to` has for it.
    pub(crate) fn follow(&mut self, to: &[Node]) {
        for (&first, window) in &mut self.windows {
            window.new = true;
            for (_, node, _) in &mut window.seen {
                *node = to[node.index()];
            }
            for block in first..first + window.pages {
                let from = block as usize * self.nodes;
                let row = &mut self.samples[from..from + self.nodes];
                let moved = &mut self.rows.row;
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

    /// Threads moved, and scattered: what was seen so far tells where they were. Kept at half its weight, it held back for some ten
    /// iterations the pages that were to follow.
    pub(crate) fn restart(&mut self) {
        for (&first, window) in &self.windows {
            let from = first as usize * self.nodes;
            self.samples[from..from + window.pages as usize * self.nodes].fill(0);
        }
        self.windows.clear();
        let regions = self.regions.values_mut();
        regions.for_each(|region| region.phases.clear());
    }

    /// So much time has passed that the program may do something else: what was seen so far counts half.
    pub(crate) fn phase_ended(&mut self) {
        let (nodes, samples) = (self.nodes, &mut self.samples);
        self.windows.retain(|&first, window| {
            let from = first as usize * nodes;
            let mut any = false;
            for sample in &mut samples[from..from + window.pages as usize * nodes] {
                *sample /= 2;
                any |= *sample > 0;
            }
            window.new |= any;
            window.seen.retain_mut(|(_, _, units)| {
                *units /= 2;
                *units > 0
            });
            any
        });
        let phases = self.regions.values_mut().flat_map(|of| &mut of.phases);
        phases.for_each(|units| *units /= 2);
    }

    /// What was counted of a page led to something that may have to be done again.
    pub(crate) fn again(&mut self, block: Block) {
        let window = self.windows.range_mut(..=block.0).next_back();
        if let Some((&first, window)) = window
            && block.0 - first < window.pages
        {
            window.new = true;
        }
    }

    /// Adds the counts of each page that lies in a window with new samples, or one of which another node surely had more when it was counted last, and has a home; and says
    /// whether there are any of the latter. `accesses`: what an iteration makes of
    /// them a page, in the unit of the policy's latencies: those that memory answers.
    pub(crate) fn counts(
        &mut self,
        home: &dyn Fn(Block) -> Option<Node>,
        accesses: u32,
        phases: &Phases,
        into: &mut Counters,
    ) -> bool {
        let mut open = false;
        let mut regions = self.regions.iter();
        let mut until = 0;
        for (&first, window) in &mut self.windows {
            // Both go from block to block.
            while first >= until
                && let Some((&start, region)) = regions.next()
            {
                until = start + region.pages;
                if first < until {
                    self.strata.region(&region.phases, phases);
                }
            }
            if !std::mem::take(&mut window.new) {
                continue;
            }
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
                samples: &self.samples,
                strata: &self.strata,
                known: &mut self.known,
                accesses: f64::from(accesses),
                rows: &mut self.rows,
                into,
            };
            for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                window.new |= judge.pages(alike);
            }
            open |= window.new;
        }
        open
    }

    /// How the region that begins with this block lies, as far as it was seen. Nothing where it was not.
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
            let window = self.windows.get(&first);
            let of_window = window.map_or(&[][..], |window| &window.seen);
            self.strata.window(of_window, self.nodes);
            for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                let Rows {
                    samples, shares, ..
                } = &mut self.rows;
                let pages = alike.len() as f64;
                gather(&self.samples, alike, samples);
                let of = Samples {
                    of_nodes: samples,
                    pages: alike.len(),
                    worth: 1.0,
                };
                self.strata.shares(of, shares);
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
        let of = |block: u32| (block as usize * self.nodes).min(self.samples.len());
        let samples = &self.samples[of(blocks.start)..of(blocks.end.max(blocks.start))];
        let units: u64 = samples.iter().map(|&units| u64::from(units)).sum();
        units as f64 / f64::from(UNIT)
    }
}

/// Puts down the samples of pages by node, and says how many of the pages have any.
fn gather(samples: &[u16], pages: &[(Node, Block)], into: &mut [f64]) -> usize {
    into.fill(0.0);
    let mut sampled = 0;
    for &(_, block) in pages {
        let row = &samples[block.index() * into.len()..][..into.len()];
        sampled += usize::from(row.iter().any(|&units| units > 0));
        for (&units, into) in row.iter().zip(into.iter_mut()) {
            *into += f64::from(units) / f64::from(UNIT);
        }
    }
    sampled
}

/// Bounds that were worked out before, by hits and samples: there are far fewer than windows.
type Known = FxHashMap<(u32, u32), (f64, f64)>;

/// More of them are not kept.
const KNOWN_MAX: usize = 1 << 16;

struct Judge<'a> {
    nodes: usize,
    level: f64,
    at_once: Option<u32>,
    samples: &'a [u16],
    strata: &'a Strata,
    known: &'a mut Known,
    accesses: f64,
    rows: &'a mut Rows,
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

    /// Puts down as how many samples of each node those of these pages, which have one home, count. Returns their sum.
    fn hits(&mut self, pages: &[(Node, Block)], into: &mut [u32]) -> u32 {
        into.fill(0);
        let Rows {
            samples, shares, ..
        } = &mut *self.rows;
        let sampled = gather(self.samples, pages, samples);
        if sampled == 0 {
            return 0;
        }
        // Of pages that were touched in one pass a sample each counts as so many.
        let worth = self.at_once.map_or(1.0, |at_once| {
            f64::min(f64::from(at_once) / sampled as f64, 1.0)
        });
        let of = Samples {
            of_nodes: samples,
            pages: pages.len(),
            worth,
        };
        self.strata.shares(of, shares);
        shares.of_nodes[pages[0].0.index()] += shares.missed;
        let each = shares.samples * f64::from(UNIT) / (shares.seen + shares.missed);
        for (share, hits) in shares.of_nodes.iter().zip(into.iter_mut()) {
            *hits = (share * each).round() as u32;
        }
        into.iter().sum()
    }

    /// Counts pages of one home that lie in one window. Says whether another node surely has more of any.
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
        self.rows.hits = hits;
        if samples == 0 {
            return false;
        }
        for &(_, block) in pages {
            self.into.add_row(block, &self.rows.row);
        }
        let row = &self.rows.row;
        row.iter().any(|&count| count > row[home.index()])
    }

    /// Whether two parts of a window are surely used by different nodes.
    fn differ(&mut self, left: &[(Node, Block)], right: &[(Node, Block)]) -> bool {
        let mut of = (
            std::mem::take(&mut self.rows.left),
            std::mem::take(&mut self.rows.right),
        );
        let samples = (self.hits(left, &mut of.0), self.hits(right, &mut of.1));
        let differ = samples.0 > 0
            && samples.1 > 0
            && of.0.iter().zip(&of.1).any(|(&of_left, &of_right)| {
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
