//! Who uses pages, where a program has phases: a stratified estimate.
//!
//! Who has how much of a phase is taken from the phase's samples alone, and the phases are added up
//! by the part of the use that each has ([`Phases`]): the scanner comes by in some phases more
//! often than in others. Such an estimate is the better, the purer the phases are (Cochran,
//! *Sampling Techniques*, chapter 5): it is taken for as good as so many samples as would have its
//! variance without phases.
//!
//! Readings: what a phase's samples say holds for the pages that they are of, since a pass may
//! begin when most threads are through with a phase, and sees what the last ones still have to do.
//! A phase that a page may be used in, and was not seen in, is less likely the more passes have
//! missed it. Of pages it is known how often each node was seen, and of their window in which
//! phases each node was: its samples of a page are taken to be of these in proportion.

use hither_core::Node;

use super::Phases;

/// What a node is to a page: its home, who mainly uses what is beside it, or one of the others.
pub(super) const HOME: usize = 0;
pub(super) const MAIN: usize = 1;
const OTHERS: usize = 2;
pub(super) const ROLES: usize = 3;

/// A region's phases, and how the samples of one of its windows fall into them.
#[derive(Debug, Default)]
pub(super) struct StratifiedSamples {
    nodes: usize,
    /// Those of the region that have a part in it, and which of them each phase is.
    phases: Vec<Stratum>,
    of_phase: Vec<Option<usize>>,
    /// A bit of each phase that a stratum is.
    masks: Vec<u64>,
    /// By these and node, the part of the node's samples in the window that are of the phase.
    parts: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Stratum {
    /// Of the region's use.
    part: f64,
    /// Of its samples.
    sampled: f64,
}

/// The bit that a phase has in a page's: the last ones have one together.
pub(super) fn phase_bit(phase: usize) -> u64 {
    1 << phase.min(63)
}

/// Samples of some pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'a> {
    /// By node.
    pub(super) of_nodes: &'a [f64],
    /// How many of the pages each stratum has samples of.
    pub(super) covered: &'a [u32],
    pub(super) pages: usize,
    /// What one counts as: less than 1, where they follow from each other.
    pub(super) worth: f64,
}

/// Who uses these pages.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Each node's part of their use, or each role's.
    pub(super) of_nodes: Vec<f64>,
    /// The part of their use that was seen: the sum of the nodes'.
    pub(super) seen: f64,
    /// The part that nobody is known to have.
    pub(super) missed: f64,
    /// As good as so many samples.
    pub(super) samples: f64,
    mixed: Vec<f64>,
}

impl Shares {
    /// The part of their use that was not seen.
    pub(super) fn open(&self) -> f64 {
        (1.0 - self.seen).max(0.0)
    }
}

impl StratifiedSamples {
    /// Of a region with so many samples in each phase.
    pub(super) fn region(&mut self, sampled: &[u64], phases: &Phases) {
        let all: u64 = sampled.iter().sum();
        self.phases.clear();
        self.of_phase.clear();
        self.masks.clear();
        let Some(parts) = phases.parts(sampled) else {
            self.masks.push(u64::MAX);
            return self.phases.push(Stratum {
                part: 1.0,
                sampled: 1.0,
            });
        };
        for (phase, (part, &of)) in parts.into_iter().zip(sampled).enumerate() {
            let has_part = part > 0.0;
            self.of_phase.push(has_part.then_some(self.phases.len()));
            if has_part {
                self.masks.push(phase_bit(phase));
                self.phases.push(Stratum {
                    part,
                    sampled: of as f64 / all as f64,
                });
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
            if let Some(&Some(stratum)) = self.of_phase.get(usize::from(phase)) {
                self.parts[stratum * nodes + node.index()] += f64::from(samples);
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
        let of = |phase: usize, node: usize| {
            self.parts[phase * self.nodes + node] * samples.of_nodes[node]
        };
        let covered = |phase: usize| match self.phases.len() {
            1 => 1.0,
            _ => f64::from(samples.covered[phase]) / samples.pages as f64,
        };
        let weighed = (covered, samples.worth);
        self.add_up(self.nodes, of, samples.pages, weighed, into);
    }

    /// Counts of how many pages each stratum has samples, of one more that was seen in these
    /// phases.
    pub(super) fn cover(&self, seen_in: u64, into: &mut [u32]) {
        for (mask, covered) in self.masks.iter().zip(into) {
            *covered += u32::from(seen_in & mask != 0);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.phases.len()
    }

    /// What a page of the window, which was seen in these phases, has of samples of its home, of
    /// `main` and of all others: by stratum and role.
    pub(super) fn cast(
        &self,
        (of_nodes, seen_in): (&[f64], u64),
        home: Node,
        main: Node,
        into: &mut Vec<f64>,
    ) {
        into.clear();
        into.resize(self.phases.len() * ROLES, 0.0);
        let strata = || self.masks.iter().enumerate();
        let of_page = || strata().filter(|&(_, mask)| seen_in & mask != 0);
        for (node, &samples) in of_nodes.iter().enumerate().filter(|&(_, &of)| of > 0.0) {
            let role = match node {
                _ if node == home.index() => HOME,
                _ if node == main.index() => MAIN,
                _ => OTHERS,
            };
            let part = |stratum: usize| self.parts[stratum * self.nodes + node];
            let all: f64 = of_page().map(|(stratum, _)| part(stratum)).sum();
            for (stratum, _) in of_page().filter(|_| all > 0.0) {
                into[stratum * ROLES + role] += samples * part(stratum) / all;
            }
        }
    }

    /// Who uses pages that are taken to be alike, by role.
    pub(super) fn of_roles(&self, samples: &[f64], pages: usize, into: &mut Shares) {
        let of =
            |phase: usize, role: usize| samples.get(phase * ROLES + role).copied().unwrap_or(0.0);
        self.add_up(ROLES, of, pages, (|_| 1.0, 1.0), into);
    }

    /// Adds the phases up: `of` has the samples of each phase and party, `covered` the part of the
    /// pages that a phase has any of.
    fn add_up(
        &self,
        parties: usize,
        of: impl Fn(usize, usize) -> f64,
        pages: usize,
        (covered, worth): (impl Fn(usize) -> f64, f64),
        into: &mut Shares,
    ) {
        let of_phase = |phase: usize| -> f64 { (0..parties).map(|party| of(phase, party)).sum() };
        let all: f64 = (0..self.phases.len()).map(of_phase).sum();
        let passes = all / pages as f64;
        for of in [&mut into.of_nodes, &mut into.mixed] {
            of.clear();
            of.resize(parties, 0.0);
        }
        (into.seen, into.missed) = (0.0, 0.0);
        let mut variance = 0.0;
        for (phase, stratum) in self.phases.iter().enumerate() {
            let all = of_phase(phase);
            let covered = covered(phase);
            if all <= 0.0 {
                into.missed += stratum.missed(passes);
                continue;
            }
            if covered < 1.0 {
                into.missed += stratum.missed(passes) * (1.0 - covered);
            }
            let part = stratum.part * covered;
            into.seen += part;
            // What few samples leave open: as if one more had been everybody's.
            let counted = all * worth;
            let mut pure = 0.0;
            for party in 0..parties {
                into.of_nodes[party] += part * of(phase, party) / all;
                let open = 1.0 / parties as f64;
                let share = (of(phase, party) * worth + open) / (counted + 1.0);
                into.mixed[party] += part * share;
                pure += share * share;
            }
            variance += part * part * (1.0 - pure) / counted;
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
    /// What is to be taken for used in a phase that so many passes have not seen: its part by the
    /// chance that they would have missed it.
    fn missed(self, passes: f64) -> f64 {
        self.part * (1.0 - self.sampled).powf(passes)
    }
}
