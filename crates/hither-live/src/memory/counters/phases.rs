//! How much of a region's use belongs to which phase of the program.
//!
//! The kernel's scanner runs where a thread returns to user space, so often at barriers. The sample
//! is whatever touches a page next: a phase that begins at a barrier is seen as often as it begins,
//! however long it lasts. nas (in the lab) uses an array from one node for 66 of 86 ms and from
//! another for 20; whole passes of the scanner saw only the one, or only the other. So each phase
//! is estimated on its own ([`StratifiedSamples`](super::stratified::StratifiedSamples)) and counts
//! by the share of the region's use that this module gives it. Only phases in which the region was
//! sampled at all have a share.
//!
//! Time alone is no measure of use. A phase whose pages are remote takes longer for as many
//! accesses, and what is placed well for one phase is often placed badly for another. So the work
//! of a phase is its time, divided by the mean latency of its samples; shares are of that work.
//!
//! Reading: a phase is what lies between two constructs of a program (the parallel regions and
//! barriers of its master thread), and is identified by the first. A page that is used in a phase
//! is taken to be used for all of it.

use hither_sys::record::ConstructKind;

/// The most phases that are told apart. Any further ones share the number 0 and count by their
/// samples.
const PHASES_MAX: usize = 64;

/// A phase counts for a region only if it has at least 1/64 of the region's samples. Fewer are
/// there by chance: threads pass a barrier one after the other.
const PHASE_SAMPLES_DIVISOR: u64 = 64;

/// Shrinks the mean latency of a phase towards that of all phases, as if the phase had this many
/// more samples of that mean.
const PRIOR_SAMPLES: f64 = 16.0;

/// The phases of a program, and the time that it spends in each.
#[derive(Debug)]
pub(crate) struct Phases {
    /// The construct that each begins with.
    begins: Vec<(ConstructKind, u64)>,
    /// By phase; the first is for what is in no phase.
    time_ns: Vec<u64>,
    /// By phase: the sum of its samples' latencies, and how many samples there are.
    latencies: Vec<(u64, u64)>,
    current: u8,
    since_ns: u64,
}

impl Phases {
    pub(crate) fn new() -> Phases {
        Phases {
            begins: Vec::new(),
            time_ns: vec![0],
            latencies: vec![(0, 0)],
            current: 0,
            since_ns: 0,
        }
    }

    /// The program's master thread has reached a construct.
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
                self.latencies.push((0, 0));
                self.begins.len() as u8
            }
            None => 0,
        };
    }

    /// The phase that the program is in; 0 is none.
    pub(crate) fn current(&self) -> u8 {
        self.current
    }

    /// A page with this latency was touched in the current phase.
    pub(crate) fn record_latency(&mut self, latency_ns: u32) {
        let latencies = &mut self.latencies[usize::from(self.current)];
        latencies.0 += u64::from(latency_ns);
        latencies.1 += 1;
    }

    /// Halves the weight of what was seen so far.
    pub(crate) fn age(&mut self) {
        self.time_ns.iter_mut().for_each(|ns| *ns /= 2);
        for (ns, samples) in &mut self.latencies {
            (*ns, *samples) = (*ns / 2, *samples / 2);
        }
    }

    /// The mean latency of all samples; none where there are no samples.
    fn mean_ns(&self) -> Option<f64> {
        let add = |all: (u64, u64), of: &(u64, u64)| (all.0 + of.0, all.1 + of.1);
        let (ns, samples) = self.latencies.iter().fold((0, 0), add);
        (ns > 0 && samples > 0).then(|| ns as f64 / samples as f64)
    }

    /// The work that is done in a phase: its time, divided by how its latency compares with the
    /// mean of all.
    fn work(&self, phase: usize, mean_ns: Option<f64>) -> f64 {
        let time_ns = self.time_ns[phase] as f64;
        let Some(mean_ns) = mean_ns else {
            return time_ns;
        };
        let (ns, samples) = self.latencies[phase];
        let relative = (ns as f64 / mean_ns + PRIOR_SAMPLES) / (samples as f64 + PRIOR_SAMPLES);
        time_ns / relative
    }

    /// The share of the program's time that goes to phases in which a region was seen, given the
    /// region's samples of each phase. 1 where no time is known.
    pub(crate) fn time_share(&self, samples: &[u64]) -> f64 {
        let all: u64 = samples.iter().sum();
        let time = self.time_ns.iter().sum::<u64>();
        let phases = samples.iter().zip(&self.time_ns);
        let seen = phases.filter(|&(&of, _)| of > 0 && of * PHASE_SAMPLES_DIVISOR >= all);
        match time {
            0 => 1.0,
            _ => seen.map(|(_, &ns)| ns).sum::<u64>() as f64 / time as f64,
        }
    }

    /// Each phase's share of a region's use, given the region's samples of each phase. Phases whose
    /// time is known share the use that their samples have together by their work; the others count
    /// by their samples. None where fewer than two phases have known time.
    pub(crate) fn use_shares(&self, samples: &[u64]) -> Option<Vec<f64>> {
        let all: u64 = samples.iter().sum();
        let phases = || samples.iter().copied().zip(0..self.time_ns.len());
        let counts = |&(of, phase): &(u64, usize)| {
            self.time_ns[phase] > 0 && of > 0 && of * PHASE_SAMPLES_DIVISOR >= all
        };
        let timed = || phases().filter(counts);
        let mean_ns = self.mean_ns();
        if timed().count() < 2 {
            return None;
        }
        let (sampled, work) = timed().fold((0, 0.0), |(sampled, work), (of, phase)| {
            (sampled + of, work + self.work(phase, mean_ns))
        });
        let share = |of: (u64, usize)| {
            let sampled = sampled as f64 / all as f64;
            match counts(&of) {
                true => self.work(of.1, mean_ns) / work * sampled,
                false => of.0 as f64 / all as f64,
            }
        };
        Some(phases().map(share).collect())
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
        // Three fifths, a fifth and a fifth of the time; the time before the first is not known.
        let near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-9;
        let parts = phases
            .use_shares(&[0, 100, 100, 200])
            .expect("several phases");
        assert!(
            parts.iter().zip([0.0, 0.6, 0.2, 0.2]).all(near),
            "{parts:?}"
        );
        let parts = phases
            .use_shares(&[100, 100, 100, 100])
            .expect("several phases");
        assert!(
            parts.iter().zip([0.25, 0.45, 0.15, 0.15]).all(near),
            "{parts:?}"
        );
    }

    /// A fifth of the time does as much work as three fifths, if these have three times the
    /// latency.
    #[test]
    fn what_is_far_takes_longer() {
        let mut phases = phases();
        (0..100_000).for_each(|_| phases.record_latency(300));
        phases.construct(260, ConstructKind::Barrier, 1);
        (0..100_000).for_each(|_| phases.record_latency(100));
        phases.construct(280, ConstructKind::ParallelEnd, 1);
        let parts = phases.use_shares(&[0, 100, 100]).expect("several phases");
        assert!((parts[1] - 0.5).abs() < 1e-3, "{parts:?}");
        // Few samples say little, and half of them less.
        let mut few = self::phases();
        few.record_latency(300);
        for _ in 0..4 {
            few.age();
            let parts = few.use_shares(&[0, 100, 100]);
            assert!(parts.is_none_or(|parts| (parts[1] - 0.75).abs() < 0.1));
        }
    }

    #[test]
    fn what_is_seen_in_one_phase_is_not_told_apart() {
        let phases = phases();
        assert_eq!(phases.use_shares(&[]), None);
        assert_eq!(phases.use_shares(&[5, 100]), None);
        // One of a hundred is there by chance.
        assert_eq!(phases.use_shares(&[0, 100, 1, 1]), None);
        // Nothing is known of the time in none.
        assert_eq!(phases.use_shares(&[100, 100]), None);
        assert_eq!(Phases::new().use_shares(&[100]), None);
    }

    #[test]
    fn the_time_of_what_was_seen_is_a_part_of_all() {
        let phases = phases();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(phases.time_share(&[0, 0, 100]), 0.2));
        assert!(near(phases.time_share(&[0, 1, 100]), 0.2), "by chance");
        assert!(near(phases.time_share(&[0, 50, 100]), 0.8));
        assert!(near(phases.time_share(&[]), 0.0));
        assert!(near(Phases::new().time_share(&[100]), 1.0));
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
