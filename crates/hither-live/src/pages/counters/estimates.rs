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
//! used by different nodes. Samples of a program's phases count as [`Phases`] says, window by window, by who was seen in each. They age by
//! periods, each of which halves the older ones.

use std::ops::Range;

use hither_core::placement::Counters;
use hither_core::{Block, Node};
use rustc_hash::FxHashMap;

use super::Phases;
use super::bounds::bounds;

/// A sample in units of what is kept: it can be halved three times before it is nothing.
const UNIT: u16 = 8;

/// A page's samples of one node stop counting here: 1000.
const FULL: u16 = 1000 * UNIT;

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
    /// Scratch: the pages of a window with their homes, and one row.
    pages: Vec<(Node, Block)>,
    row: Vec<u32>,
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

    /// What samples count as, node by node, where those of each phase count as much; all alike where that is empty.
    fn worth(&self, phases: &[f64], into: &mut [f64]) {
        if phases.is_empty() {
            return into.fill(1.0);
        }
        for (node, worth) in (0..).map(Node).zip(into.iter_mut()) {
            let of_node = self.seen.iter().filter(|of| of.1 == node);
            let (counted, units) =
                of_node.fold((0.0, 0.0), |(counted, all), &(phase, _, units)| {
                    let worth = phases.get(usize::from(phase)).copied().unwrap_or(1.0);
                    let units = f64::from(units);
                    (counted + worth * units, all + units)
                });
            *worth = if units > 0.0 { counted / units } else { 1.0 };
        }
    }
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
            row: vec![0; nodes],
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
            window_pages: super::window_pages(pages),
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
                self.row.fill(0);
                for (&samples, to) in row.iter().zip(to) {
                    self.row[to.index()] += u32::from(samples);
                }
                for (samples, &moved) in row.iter_mut().zip(&self.row) {
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

    /// Adds the counts of each page that lies in a window with new samples and has a home. `accesses`: what an iteration makes of
    /// them a page, in the unit of the policy's latencies: those that memory answers.
    pub(crate) fn counts(
        &mut self,
        home: &dyn Fn(Block) -> Option<Node>,
        accesses: u32,
        phases: &Phases,
        into: &mut Counters,
    ) {
        let mut regions = self.regions.iter();
        let (mut until, mut of_phases) = (0, None);
        let mut of_nodes = vec![1.0; self.nodes];
        for (&first, window) in &mut self.windows {
            // Both go from block to block.
            while first >= until
                && let Some((&start, region)) = regions.next()
            {
                until = start + region.pages;
                of_phases = (first < until)
                    .then(|| phases.worth(&region.phases))
                    .flatten();
            }
            if !std::mem::take(&mut window.new) {
                continue;
            }
            window.worth(of_phases.as_deref().unwrap_or_default(), &mut of_nodes);
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
                of_nodes: &of_nodes,
                known: &mut self.known,
                accesses: f64::from(accesses),
                row: &mut self.row,
                into,
            };
            for alike in self.pages.chunk_by(|a, b| a.0 == b.0) {
                judge.pages(alike);
            }
        }
    }

    /// Of what was seen of the region that begins with this block, the part that is local where its pages are now, and the part of the
    /// program's time in which it was seen. Nothing where nothing was.
    pub(crate) fn local(
        &self,
        start: u32,
        home: &dyn Fn(Block) -> Option<Node>,
        phases: &Phases,
    ) -> Option<(f64, f64)> {
        let region = self.regions.get(&start)?;
        let of_phases = phases.worth(&region.phases);
        let mut of_nodes = vec![1.0; self.nodes];
        let (mut local, mut all) = (0.0, 0.0);
        for (&first, window) in self.windows.range(start..start + region.pages) {
            window.worth(of_phases.as_deref().unwrap_or_default(), &mut of_nodes);
            for block in (first..first + window.pages).map(Block) {
                let Some(home) = home(block) else { continue };
                let row = &self.samples[block.index() * self.nodes..][..self.nodes];
                for (node, (&units, worth)) in row.iter().zip(&of_nodes).enumerate() {
                    let units = f64::from(units) * worth;
                    all += units;
                    local += if node == home.index() { units } else { 0.0 };
                }
            }
        }
        (all > 0.0).then(|| (local / all, phases.covered(&region.phases)))
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

/// Bounds that were worked out before, by hits and samples: there are far fewer than windows.
type Known = FxHashMap<(u32, u32), (f64, f64)>;

/// More of them are not kept.
const KNOWN_MAX: usize = 1 << 16;

/// A part of what there is.
#[derive(Clone, Copy, Debug)]
struct Worth {
    part: u64,
    of: u64,
}

struct Judge<'a> {
    nodes: usize,
    level: f64,
    at_once: Option<u32>,
    samples: &'a [u16],
    /// What they count as.
    of_nodes: &'a [f64],
    known: &'a mut Known,
    accesses: f64,
    row: &'a mut [u32],
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

    /// What samples of these pages count as.
    fn worth(&self, pages: &[(Node, Block)]) -> Worth {
        let Some(at_once) = self.at_once else {
            return Worth { part: 1, of: 1 };
        };
        let first = |block: Block| block.index() * self.nodes;
        let row = |block: Block| &self.samples[first(block)..first(block) + self.nodes];
        let sampled = |&&(_, block): &&(Node, Block)| row(block).iter().any(|&units| units > 0);
        let sampled = pages.iter().filter(sampled).count().max(1) as u64;
        Worth {
            part: sampled.min(u64::from(at_once)),
            of: sampled,
        }
    }

    fn sum(&self, pages: &[(Node, Block)], worth: Worth, node: usize) -> u32 {
        let of = |block: Block| u64::from(self.samples[block.index() * self.nodes + node]);
        let units: u64 = pages.iter().map(|&(_, block)| of(block)).sum();
        ((units as f64 * self.of_nodes[node]) as u64 * worth.part / worth.of) as u32
    }

    fn all(&self, pages: &[(Node, Block)], worth: Worth) -> u32 {
        (0..self.nodes)
            .map(|node| self.sum(pages, worth, node))
            .sum()
    }

    /// Counts pages of one home that lie in one window.
    fn pages(&mut self, pages: &[(Node, Block)]) {
        let Some(&(home, _)) = pages.first() else {
            return;
        };
        let worth = self.worth(pages);
        let samples = self.all(pages, worth);
        if samples == 0 {
            return;
        }
        let (left, right) = pages.split_at(pages.len() / 2);
        if self.differ(left, right) {
            self.pages(left);
            self.pages(right);
            return;
        }
        let of_home = self.sum(pages, worth, home.index());
        let in_accesses = self.accesses / f64::from(samples);
        for node in 0..self.nodes {
            let hits = self.sum(pages, worth, node);
            self.row[node] = match hits {
                _ if node == home.index() => (f64::from(of_home) * in_accesses).ceil() as u32,
                // A node that was never seen surely has nothing, and is looked up for nothing.
                0 => 0,
                _ => {
                    let both = of_home + hits;
                    let more = (2.0 * self.bounds(hits, both).0 - 1.0) * f64::from(both);
                    ((f64::from(of_home) + more) * in_accesses).max(0.0) as u32
                }
            };
        }
        for &(_, block) in pages {
            self.into.add_row(block, self.row);
        }
    }

    /// Whether two parts of a window are surely used by different nodes.
    fn differ(&mut self, left: &[(Node, Block)], right: &[(Node, Block)]) -> bool {
        let (worth_left, worth_right) = (self.worth(left), self.worth(right));
        let of_left = self.all(left, worth_left);
        let of_right = self.all(right, worth_right);
        if of_left == 0 || of_right == 0 {
            return false;
        }
        (0..self.nodes).any(|node| {
            let hits_left = self.sum(left, worth_left, node);
            let hits_right = self.sum(right, worth_right, node);
            let (low_left, high_left) = self.bounds(hits_left, of_left);
            let (low_right, high_right) = self.bounds(hits_right, of_right);
            low_left > high_right || low_right > high_left
        })
    }
}

#[cfg(test)]
mod tests;
