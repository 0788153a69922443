//! What a sample says of a page that several nodes use in turn.
//!
//! The kernel's scanner runs where a thread comes back to its program, so often at barriers, and
//! what touches a page next is the sample: it tells the phase that begins there as often as it
//! begins, however long it lasts. nas (in the lab) uses an array from one node for 66 of 86 ms and
//! from another for 20; whole passes of the scanner saw the one alone, or the other. So phases are
//! estimated apart ([`StratifiedSamples`](super::stratified::StratifiedSamples)), and have here the part of a region's use
//! that is theirs by time and distance, among those in which the region was sampled at all.
//!
//! A phase whose pages are far takes longer for as many accesses, and what is placed well for one
//! phase is often placed badly for another. What a program that waits for memory does in a phase is
//! so its time over how far its samples are on the average, and of this each phase has its part.
//!
//! Reading: a phase is what lies between two of a program's constructs (its master's parallel
//! regions and barriers), and is known by the first. A page that is used in it is taken to be used
//! for all of it.

use hither_sys::record::ConstructKind;

/// Phases that are told from each other; further ones are taken together and count as they come.
const PHASES_MAX: usize = 64;

/// A phase with a smaller part of a region's samples has them by chance: threads pass a barrier one
/// after the other.
const STRAY: u64 = 64;

/// Phases of a program and the time that it spends in each.
#[derive(Debug)]
pub(crate) struct Phases {
    /// What they begin with.
    begins: Vec<(ConstructKind, u64)>,
    /// In the same order, the first being what is in none.
    time_ns: Vec<u64>,
    /// The latencies of its samples, and how many these are.
    far: Vec<(u64, u64)>,
    current: u8,
    since_ns: u64,
}

impl Phases {
    pub(crate) fn new() -> Phases {
        Phases {
            begins: Vec::new(),
            time_ns: vec![0],
            far: vec![(0, 0)],
            current: 0,
            since_ns: 0,
        }
    }

    /// The program's master met a construct.
    pub(crate) fn construct(&mut self, now_ns: u64, kind: ConstructKind, signature: u64) {
        match kind {
            ConstructKind::ParallelBegin | ConstructKind::ParallelEnd | ConstructKind::Barrier => {}
            ConstructKind::Iteration | ConstructKind::Hidden => return,
        }
        if self.current > 0 {
            self.time_ns[usize::from(self.current)] += now_ns.saturating_sub(self.since_ns);
        }
        self.since_ns = now_ns;
        let known = self
            .begins
            .iter()
            .position(|&begin| begin == (kind, signature));
        self.current = match known {
            Some(at) => at as u8 + 1,
            None if self.begins.len() < PHASES_MAX => {
                self.begins.push((kind, signature));
                self.time_ns.push(0);
                self.far.push((0, 0));
                self.begins.len() as u8
            }
            None => 0,
        };
    }

    /// The one that goes on now; 0 is none.
    pub(crate) fn current(&self) -> u8 {
        self.current
    }

    /// In the one that goes on now a page was touched that is so far.
    pub(crate) fn touched(&mut self, latency_ns: u32) {
        let far = &mut self.far[usize::from(self.current)];
        far.0 += u64::from(latency_ns);
        far.1 += 1;
    }

    /// What was seen so far counts half.
    pub(crate) fn age(&mut self) {
        self.time_ns.iter_mut().for_each(|ns| *ns /= 2);
        self.far
            .iter_mut()
            .for_each(|far| *far = (far.0 / 2, far.1 / 2));
    }

    /// How far all samples are on the average; nothing where there are none.
    fn mean_ns(&self) -> Option<f64> {
        let far = self.far.iter();
        let (ns, samples) = far.fold((0, 0), |all, far| (all.0 + far.0, all.1 + far.1));
        (ns > 0 && samples > 0).then(|| ns as f64 / samples as f64)
    }

    /// What is done in a phase, in accesses as far as all are on the average. What few samples
    /// leave open: as if there were so many more of the average.
    fn done(&self, phase: usize, mean_ns: Option<f64>) -> f64 {
        const OPEN: f64 = 16.0;
        let time_ns = self.time_ns[phase] as f64;
        let Some(mean_ns) = mean_ns else {
            return time_ns;
        };
        let (ns, samples) = self.far[phase];
        let far = (ns as f64 / mean_ns + OPEN) / (samples as f64 + OPEN);
        time_ns / far
    }

    /// The part of the time that the phases have in which a region with so many samples of each has
    /// any but by chance; all of it where it is not known.
    pub(crate) fn covered(&self, samples: &[u64]) -> f64 {
        let all: u64 = samples.iter().sum();
        let time = self.time_ns.iter().sum::<u64>();
        let phases = samples.iter().zip(&self.time_ns);
        let seen = phases.filter(|&(&of, _)| of > 0 && of * STRAY >= all);
        match time {
            0 => 1.0,
            _ => seen.map(|(_, &ns)| ns).sum::<u64>() as f64 / time as f64,
        }
    }

    /// The part of a region's use that each phase has, where the region has so many samples of
    /// each: those that have time have what is theirs together by what is done in them, and the
    /// others as they come. Nothing where fewer than two have.
    pub(crate) fn parts(&self, samples: &[u64]) -> Option<Vec<f64>> {
        let all: u64 = samples.iter().sum();
        let phases = || samples.iter().copied().zip(0..self.time_ns.len());
        let counts =
            |&(of, phase): &(u64, usize)| self.time_ns[phase] > 0 && of > 0 && of * STRAY >= all;
        let known = || phases().filter(counts);
        let mean_ns = self.mean_ns();
        if known().count() < 2 {
            return None;
        }
        let (sampled, done) = known().fold((0, 0.0), |(sampled, done), (of, phase)| {
            (sampled + of, done + self.done(phase, mean_ns))
        });
        let part = |of: (u64, usize)| {
            let sampled = sampled as f64 / all as f64;
            match counts(&of) {
                true => self.done(of.1, mean_ns) / done * sampled,
                false => of.0 as f64 / all as f64,
            }
        };
        Some(phases().map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that goes through a parallel region with a barrier in it, twice.
    fn phases() -> Phases {
        let mut phases = Phases::new();
        for round in 0..2 {
            let now_ns = round * 100;
            phases.construct(now_ns, ConstructKind::ParallelBegin, 1);
            phases.construct(now_ns + 60, ConstructKind::Barrier, 1);
            phases.construct(now_ns + 80, ConstructKind::ParallelEnd, 1);
        }
        phases.construct(200, ConstructKind::ParallelBegin, 1);
        phases
    }

    #[test]
    fn phases_have_their_time() {
        let phases = phases();
        assert_eq!(phases.current(), 1);
        // Three fifths, a fifth and a fifth of the time; of none before the first nothing is known.
        let near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-9;
        let parts = phases.parts(&[0, 100, 100, 200]).expect("several phases");
        assert!(
            parts.iter().zip([0.0, 0.6, 0.2, 0.2]).all(near),
            "{parts:?}"
        );
        let parts = phases.parts(&[100, 100, 100, 100]).expect("several phases");
        assert!(
            parts.iter().zip([0.25, 0.45, 0.15, 0.15]).all(near),
            "{parts:?}"
        );
    }

    /// A fifth of the time goes to as many accesses as three fifths, if these are three times as
    /// far.
    #[test]
    fn what_is_far_takes_longer() {
        let mut phases = phases();
        (0..100_000).for_each(|_| phases.touched(300));
        phases.construct(260, ConstructKind::Barrier, 1);
        (0..100_000).for_each(|_| phases.touched(100));
        phases.construct(280, ConstructKind::ParallelEnd, 1);
        let parts = phases.parts(&[0, 100, 100]).expect("several phases");
        assert!((parts[1] - 0.5).abs() < 1e-3, "{parts:?}");
        // Few say little, and half of them less.
        let mut few = self::phases();
        few.touched(300);
        for _ in 0..4 {
            few.age();
            let parts = few.parts(&[0, 100, 100]);
            assert!(parts.is_none_or(|parts| (parts[1] - 0.75).abs() < 0.1));
        }
    }

    #[test]
    fn what_is_seen_in_one_phase_is_not_told_apart() {
        let phases = phases();
        assert_eq!(phases.parts(&[]), None);
        assert_eq!(phases.parts(&[5, 100]), None);
        // One of a hundred is there by chance.
        assert_eq!(phases.parts(&[0, 100, 1, 1]), None);
        // Nothing is known of the time in none.
        assert_eq!(phases.parts(&[100, 100]), None);
        assert_eq!(Phases::new().parts(&[100]), None);
    }

    #[test]
    fn the_time_of_what_was_seen_is_a_part_of_all() {
        let phases = phases();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(phases.covered(&[0, 0, 100]), 0.2));
        assert!(near(phases.covered(&[0, 1, 100]), 0.2), "by chance");
        assert!(near(phases.covered(&[0, 50, 100]), 0.8));
        assert!(near(phases.covered(&[]), 0.0));
        assert!(near(Phases::new().covered(&[100]), 1.0));
    }

    #[test]
    fn more_phases_than_are_kept_are_none() {
        let mut phases = Phases::new();
        for signature in 0..1000 {
            phases.construct(signature, ConstructKind::Barrier, signature);
        }
        assert_eq!(phases.current(), 0);
        phases.construct(1000, ConstructKind::Barrier, 3);
        assert_eq!(phases.current(), 4);
        // What follows another one of none is not its time.
        phases.construct(1001, ConstructKind::Iteration, 5);
        assert_eq!(phases.current(), 4);
    }
}
