//! Estimates who uses pages of a program with phases: a stratified estimate.
//!
//! Each phase is a stratum. A node's share of a phase comes from the samples of that phase alone,
//! and each phase counts by its share of the use ([`Phases`]), because the scanner runs in some
//! phases more often than in others. A stratified estimate is better, the purer the strata are
//! (Cochran, *Sampling Techniques*, chapter 5). It is taken to be weight as many samples as would
//! give its variance without phases.
//!
//! Readings. The samples of a phase speak only for the pages that they are of: a pass may begin
//! when most threads have left a phase, and then it sees what the last threads do. The more passes
//! have found no use of a page in a phase, the less likely is such use. For a page it is known how
//! often each node was seen, and for its window in which phases each node was seen: the page's
//! samples are split over phases in its window's proportions.

use hither_core::Node;

use super::phases::Phases;

/// A node's role for a page: its home, the main user of its window, or any other node.
pub(super) const HOME: usize = 0;
pub(super) const MAIN: usize = 1;
const OTHERS: usize = 2;
pub(super) const ROLES: usize = 3;

/// A region's phases, and how the samples of one of its windows are split over them.
#[derive(Debug, Default)]
pub(super) struct StratifiedSamples {
    nodes: usize,
    /// The phases that have a share of the region's use.
    strata: Vec<Stratum>,
    /// By phase, its index in `strata`.
    stratum_of_phase: Vec<Option<usize>>,
    /// By stratum, the bit of its phase.
    masks: Vec<u64>,
    /// By stratum and node: of the node's samples in the window, the share that is of the stratum.
    sample_shares: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Stratum {
    /// Its share of the region's use.
    of_use: f64,
    /// Its share of the region's samples.
    of_samples: f64,
}

/// The bit of a phase in a page's mask. Phases from 63 on share one bit.
pub(super) fn phase_bit(phase: usize) -> u64 {
    1 << phase.min(63)
}

/// Samples of some pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'a> {
    /// By node.
    pub(super) of_nodes: &'a [f64],
    /// By stratum, how many of the pages have samples of it.
    pub(super) covered: &'a [u32],
    pub(super) pages: usize,
    /// What a sample counts as: less than 1 where samples depend on each other.
    pub(super) weight: f64,
}

/// Who uses some pages.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// By node or by role: the share of the use.
    pub(super) of_nodes: Vec<f64>,
    /// The share of the use that was seen: the sum of `of_nodes`.
    pub(super) seen: f64,
    /// The share of the use that sampling is expected to have missed.
    pub(super) missed: f64,
    /// How many independent samples the estimate is weight.
    pub(super) samples: f64,
    smoothed: Vec<f64>,
}

impl Shares {
    /// The share of the use that was not seen.
    pub(super) fn unseen(&self) -> f64 {
        (1.0 - self.seen).max(0.0)
    }
}

impl StratifiedSamples {
    /// Sets the region, by its number of samples in each phase.
    pub(super) fn set_region(&mut self, sampled: &[u64], phases: &Phases) {
        let all: u64 = sampled.iter().sum();
        self.strata.clear();
        self.stratum_of_phase.clear();
        self.masks.clear();
        let Some(use_shares) = phases.use_shares(sampled) else {
            self.masks.push(u64::MAX);
            return self.strata.push(Stratum {
                of_use: 1.0,
                of_samples: 1.0,
            });
        };
        for (phase, (of_use, &samples)) in use_shares.into_iter().zip(sampled).enumerate() {
            let is_used = of_use > 0.0;
            self.stratum_of_phase
                .push(is_used.then_some(self.strata.len()));
            if is_used {
                self.masks.push(phase_bit(phase));
                self.strata.push(Stratum {
                    of_use,
                    of_samples: samples as f64 / all as f64,
                });
            }
        }
    }

    /// Sets one of the region's windows, by its samples of each phase and node.
    pub(super) fn set_window(&mut self, seen: &[(u8, Node, u32)], nodes: usize) {
        self.nodes = nodes;
        self.sample_shares.clear();
        if let [_] = self.strata[..] {
            return self.sample_shares.resize(nodes, 1.0);
        }
        self.sample_shares.resize(nodes * self.strata.len(), 0.0);
        for &(phase, node, samples) in seen {
            if let Some(&Some(stratum)) = self.stratum_of_phase.get(usize::from(phase)) {
                self.sample_shares[stratum * nodes + node.index()] += f64::from(samples);
            }
        }
        for node in 0..nodes {
            let of_node = || (node..self.sample_shares.len()).step_by(nodes);
            let all: f64 = of_node().map(|at| self.sample_shares[at]).sum();
            if all > 0.0 {
                of_node().for_each(|at| self.sample_shares[at] /= all);
            }
        }
    }

    /// Estimates who uses pages of the window.
    pub(super) fn shares(&self, samples: Samples<'_>, into: &mut Shares) {
        let of = |phase: usize, node: usize| {
            self.sample_shares[phase * self.nodes + node] * samples.of_nodes[node]
        };
        let covered = |phase: usize| match self.strata.len() {
            1 => 1.0,
            _ => f64::from(samples.covered[phase]) / samples.pages as f64,
        };
        let weighed = (covered, samples.weight);
        self.add_up(self.nodes, of, samples.pages, weighed, into);
    }

    /// Counts a page that was seen in these phases, for each stratum that has samples of it.
    pub(super) fn count_coverage(&self, seen_in: u64, into: &mut [u32]) {
        for (mask, covered) in self.masks.iter().zip(into) {
            *covered += u32::from(seen_in & mask != 0);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.strata.len()
    }

    /// Splits the samples of a page, which was seen in these phases, by stratum and by role: its
    /// home, `main` and all others.
    pub(super) fn split_by_role(
        &self,
        (of_nodes, seen_in): (&[f64], u64),
        home: Node,
        main: Node,
        into: &mut Vec<f64>,
    ) {
        into.clear();
        into.resize(self.strata.len() * ROLES, 0.0);
        let strata = || self.masks.iter().enumerate();
        let of_page = || strata().filter(|&(_, mask)| seen_in & mask != 0);
        for (node, &samples) in of_nodes.iter().enumerate().filter(|&(_, &of)| of > 0.0) {
            let role = match node {
                _ if node == home.index() => HOME,
                _ if node == main.index() => MAIN,
                _ => OTHERS,
            };
            let part = |stratum: usize| self.sample_shares[stratum * self.nodes + node];
            let all: f64 = of_page().map(|(stratum, _)| part(stratum)).sum();
            for (stratum, _) in of_page().filter(|_| all > 0.0) {
                into[stratum * ROLES + role] += samples * part(stratum) / all;
            }
        }
    }

    /// Estimates who uses pages that are taken to be alike, by role.
    pub(super) fn role_shares(&self, samples: &[f64], pages: usize, into: &mut Shares) {
        let of =
            |phase: usize, role: usize| samples.get(phase * ROLES + role).copied().unwrap_or(0.0);
        self.add_up(ROLES, of, pages, (|_| 1.0, 1.0), into);
    }

    /// Adds up the strata. `of` gives the samples of a stratum and a party, `covered` the share of
    /// the pages that have samples of a stratum.
    fn add_up(
        &self,
        parties: usize,
        of: impl Fn(usize, usize) -> f64,
        pages: usize,
        (covered, weight): (impl Fn(usize) -> f64, f64),
        into: &mut Shares,
    ) {
        let of_phase = |phase: usize| -> f64 { (0..parties).map(|party| of(phase, party)).sum() };
        let all: f64 = (0..self.strata.len()).map(of_phase).sum();
        let passes = all / pages as f64;
        for of in [&mut into.of_nodes, &mut into.smoothed] {
            of.clear();
            of.resize(parties, 0.0);
        }
        (into.seen, into.missed) = (0.0, 0.0);
        let mut variance = 0.0;
        for (phase, stratum) in self.strata.iter().enumerate() {
            let all = of_phase(phase);
            let covered = covered(phase);
            if all <= 0.0 {
                into.missed += stratum.missed(passes);
                continue;
            }
            if covered < 1.0 {
                into.missed += stratum.missed(passes) * (1.0 - covered);
            }
            let part = stratum.of_use * covered;
            into.seen += part;
            // Smoothing: as if there were one more sample, in equal shares of all parties.
            let counted = all * weight;
            let mut pure = 0.0;
            for party in 0..parties {
                into.of_nodes[party] += part * of(phase, party) / all;
                let open = 1.0 / parties as f64;
                let share = (of(phase, party) * weight + open) / (counted + 1.0);
                into.smoothed[party] += part * share;
                pure += share * share;
            }
            variance += part * part * (1.0 - pure) / counted;
        }
        let pure: f64 = into.smoothed.iter().map(|share| share * share).sum();
        // The variance is 0 where no stratum has samples.
        into.samples = match variance > 0.0 {
            true => (into.seen * into.seen - pure) / variance,
            false => 0.0,
        };
    }
}

impl Stratum {
    /// The expected share of the use in a phase that this many passes have not seen: its share of
    /// the use, times the probability that all of them missed it.
    fn missed(self, passes: f64) -> f64 {
        self.of_use * (1.0 - self.of_samples).powf(passes)
    }
}
