//! Who uses pages, where a program has phases: a stratified estimate.
//!
//! Who has how much of a phase is taken from the phase's samples alone, and the phases are added up by the part of the use that each has ([`Phases`]):
//! the scanner comes by in some phases more often than in others. Such an estimate is the better, the purer the phases are (Cochran, *Sampling Techniques*, chapter 5):
//! it is taken for as good as so many samples as would have its variance without phases.
//!
//! Readings: a phase that the pages may be used in, and were not seen in, is less likely the more passes have missed it. Of pages it is known how often each node was
//! seen, and of their window in which phases each node was: its samples of a page are taken to be of these in proportion.

use hither_core::Node;

use super::Phases;

/// A region's phases, and how the samples of one of its windows fall into them.
#[derive(Debug, Default)]
pub(super) struct Strata {
    nodes: usize,
    /// Those of the region.
    phases: Vec<Stratum>,
    /// By phase and node, the part of the node's samples in the window that are of the phase.
    parts: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Stratum {
    /// Of the region's use.
    part: f64,
    /// Of its samples.
    sampled: f64,
}

/// Samples of some pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'a> {
    /// By node.
    pub(super) of_nodes: &'a [f64],
    pub(super) pages: usize,
    /// What one counts as: less than 1, where they follow from each other.
    pub(super) worth: f64,
}

/// Who uses these pages.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Each node's part of their use.
    pub(super) of_nodes: Vec<f64>,
    /// The part of their use that was seen: the sum of the nodes'.
    pub(super) seen: f64,
    /// The part that nobody is known to have.
    pub(super) missed: f64,
    /// As good as so many samples.
    pub(super) samples: f64,
    mixed: Vec<f64>,
}

impl Strata {
    /// Of a region with so many samples in each phase.
    pub(super) fn region(&mut self, sampled: &[u64], phases: &Phases) {
        let all: u64 = sampled.iter().sum();
        self.phases.clear();
        match phases.parts(sampled) {
            None => self.phases.push(Stratum {
                part: 1.0,
                sampled: 1.0,
            }),
            Some(parts) => {
                let strata = parts.into_iter().zip(sampled);
                self.phases.extend(strata.map(|(part, &of)| Stratum {
                    part,
                    sampled: of as f64 / all as f64,
                }));
            }
        }
    }

    /// Of one of its windows, with so many samples of a phase and node.
    pub(super) fn window(&mut self, seen: &[(u8, Node, u32)], nodes: usize) {
        self.nodes = nodes;
        self.parts.clear();
        if let [_] = self.phases[..] {
            return self.parts.resize(nodes, 1.0);
        }
        self.parts.resize(nodes * self.phases.len(), 0.0);
        for &(phase, node, samples) in seen {
            if let Some(part) = self
                .parts
                .get_mut(usize::from(phase) * nodes + node.index())
            {
                *part += f64::from(samples);
            }
        }
        for node in 0..nodes {
            let of_node = || (node..self.parts.len()).step_by(nodes);
            let all: f64 = of_node().map(|at| self.parts[at]).sum();
            if all > 0.0 {
                of_node().for_each(|at| self.parts[at] /= all);
            }
        }
    }

    /// Who uses pages of the window.
    pub(super) fn shares(&self, samples: Samples<'_>, into: &mut Shares) {
        let all: f64 = samples.of_nodes.iter().sum();
        let passes = all / samples.pages as f64;
        for of in [&mut into.of_nodes, &mut into.mixed] {
            of.clear();
            of.resize(self.nodes, 0.0);
        }
        (into.seen, into.missed) = (0.0, 0.0);
        let mut variance = 0.0;
        for (stratum, parts) in self.phases.iter().zip(self.parts.chunks_exact(self.nodes)) {
            let of_node = |node: usize| parts[node] * samples.of_nodes[node];
            let all: f64 = (0..self.nodes).map(of_node).sum();
            if all <= 0.0 {
                into.missed += stratum.missed(passes);
                continue;
            }
            into.seen += stratum.part;
            // What few samples leave open: as if one more had been everybody's.
            let counted = all * samples.worth;
            let mut pure = 0.0;
            for node in 0..self.nodes {
                into.of_nodes[node] += stratum.part * of_node(node) / all;
                let open = 1.0 / self.nodes as f64;
                let share = (of_node(node) * samples.worth + open) / (counted + 1.0);
                into.mixed[node] += stratum.part * share;
                pure += share * share;
            }
            variance += stratum.part * stratum.part * (1.0 - pure) / counted;
        }
        let pure: f64 = into.mixed.iter().map(|share| share * share).sum();
        // Phases without any time have no part.
        into.samples = match variance > 0.0 {
            true => (into.seen * into.seen - pure) / variance,
            false => 0.0,
        };
    }
}

impl Stratum {
    /// What is to be taken for used in a phase that so many passes have not seen: its part by the chance that they would have missed it.
    fn missed(self, passes: f64) -> f64 {
        self.part * (1.0 - self.sampled).powf(passes)
    }
}
