//! Which pages are armed next, and when.
//!
//! Regions go in rounds: each window of each gets one armed page a round, at random within the
//! window, the windows in an order that is drawn anew each round. So all windows have as many
//! samples, give or take one, and no two arms of a round have to do with one another. Arms come in
//! small batches at times whose distances are exponentially distributed, which no iteration can
//! fall into step with (Wolff, "Poisson arrivals see time averages", 1982).
//!
//! The budget is part of the CPUs. Where sampling changes nothing any more, it is spent ever more
//! sparingly. What is learnt of a region at first is worth the most, so its first rounds go faster,
//! out of a reserve that a program which allocates all the time uses up.

use std::collections::BTreeMap;

use hither_core::Random;

/// Pages armed at once: what a wakeup of the agent is worth.
const BATCH: u32 = 64;

/// A budget that was not used for so long is lost: arms do not come in a rush after a pause.
const SAVED_NS: u64 = 100_000_000;

/// Iterations (or periods) in a row without use after which the rate is halved.
const QUIET: u32 = 4;

/// The rate is halved so often at the most: to a sixty-fourth, a hundred samples a second and CPU.
/// They tell as surely as more do when an eighth of a program's accesses become remote, and then
/// the rate is what it was.
const HALVED_MAX: u32 = 6;

/// Rounds of a new region that go faster, and how much: after so many samples a window that one
/// node uses alone is decided on.
const EAGER_ROUNDS: u64 = 16;
const EAGER: u64 = 8;

/// The reserve for them holds what may be spent in two seconds. A sample comes back for every
/// fourth that is armed at the usual rate.
const RESERVE_NS: f64 = 2e9;
const REFILL: u64 = 4;

/// What arming takes while the program runs is known from so many times the last page's.
const REMEMBERED: u64 = 256;

/// What may be spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Budget {
    /// Part of one CPU.
    pub(crate) share: f64,
    /// What a sample costs, arming included, while the program runs on no other CPU.
    pub(crate) sample_ns: u64,
}

/// Of more CPUs the agent, which is one thread, would be kept busy.
pub(crate) const CPUS_MAX: usize = 16;

/// Thousandths of the CPUs where nothing else is asked for.
pub(crate) const PERMILLE: u32 = 10;

impl Budget {
    /// So many thousandths of the CPUs. A page takes 1.0 to 1.2 us to arm, 0.8 us to be touched,
    /// and perf up to 0.5 us to see it (2 cores, Linux 6.18, 2026-11).
    pub(crate) fn of(cpus: usize, permille: u32) -> Budget {
        let cpus = cpus.clamp(1, CPUS_MAX);
        Budget {
            share: f64::from(permille) / 1000.0 * cpus as f64,
            sample_ns: 2_500,
        }
    }

    /// Samples that it pays for.
    pub(crate) fn samples_a_second(&self) -> u64 {
        (self.share * 1e9 / self.sample_ns.max(1) as f64) as u64
    }

    /// The same where a sample was measured to cost something else.
    pub(crate) fn costing(self, sample_ns: Option<u64>) -> Budget {
        let sample_ns = sample_ns.unwrap_or(self.sample_ns);
        Budget { sample_ns, ..self }
    }
}

/// A page to be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    /// The region's number.
    pub(crate) key: u32,
    /// The page's within it.
    pub(crate) page: u32,
}

/// A region that is sampled.
#[derive(Clone, Copy, Debug)]
struct Target {
    pages: u32,
    window_pages: u32,
}

impl Target {
    fn windows(self) -> u64 {
        u64::from(self.pages.div_ceil(self.window_pages))
    }
}

/// What is armed when.
#[derive(Debug)]
pub(crate) struct Plan {
    random: Random,
    budget: Budget,
    /// What arming a page has taken of late.
    arm_ns: u64,
    halved: u32,
    quiet: u32,
    /// Arms that are still to go faster, if the reserve has them.
    eager: u64,
    reserve_ns: u64,
    /// Arms at the usual rate.
    usual: u64,
    targets: BTreeMap<u32, Target>,
    windows: u64,
    /// How many windows regions before each have, and its number: made anew with a round.
    order: Vec<(u64, u32)>,
    round: Round,
    /// When the next batch is due; nothing while there is nothing to arm.
    due_ns: Option<u64>,
}

/// A walk through all numbers below `count` in an order that looks random: steps of a number
/// without a common divisor.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    count: u64,
    at: u64,
    step: u64,
    left: u64,
}

impl Plan {
    /// Nothing is sampled yet. Equal seeds and calls give equal plans.
    pub(crate) fn new(seed: u64, budget: Budget) -> Plan {
        Plan {
            random: Random::new(seed),
            budget,
            arm_ns: 0,
            halved: 0,
            quiet: 0,
            eager: 0,
            reserve_ns: (budget.share * RESERVE_NS) as u64,
            usual: 0,
            targets: BTreeMap::new(),
            windows: 0,
            order: Vec::new(),
            round: Round::default(),
            due_ns: None,
        }
    }

    /// A region is to be sampled, from now on.
    pub(crate) fn begin(&mut self, now_ns: u64, key: u32, pages: u32) {
        self.end(key);
        let target = Target {
            pages,
            window_pages: super::window_pages(pages),
        };
        if target.windows() > 0 {
            self.targets.insert(key, target);
            self.windows += target.windows();
            self.hurry(key);
            self.round.left = 0;
            if self.due_ns.is_none() {
                self.due_ns = Some(now_ns + self.pause_ns());
            }
        }
    }

    /// All is to be learnt of a region once more: its next rounds go as fast as the first.
    pub(crate) fn hurry(&mut self, key: u32) {
        let windows = self.targets.get(&key).map_or(0, |target| target.windows());
        self.eager = (self.eager + windows * EAGER_ROUNDS).min(self.windows * EAGER_ROUNDS);
    }

    /// A region is not sampled any more.
    pub(crate) fn end(&mut self, key: u32) {
        if let Some(target) = self.targets.remove(&key) {
            self.windows -= target.windows();
            self.eager = self.eager.min(self.windows * EAGER_ROUNDS);
            self.round.left = 0;
            if self.targets.is_empty() {
                self.due_ns = None;
            }
        }
    }

    /// When to ask [`Plan::due`].
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// What to arm now: nothing before it is due.
    pub(crate) fn due(&mut self, now_ns: u64, out: &mut Vec<Pick>) {
        while let Some(due_ns) = self.due_ns.filter(|&due_ns| due_ns <= now_ns) {
            // Fewer windows than a batch: none is armed twice at once.
            for _ in 0..self.batch() {
                let window = self.next_window();
                out.extend(self.pick(window));
                self.spend();
            }
            let from_ns = due_ns.max(now_ns.saturating_sub(SAVED_NS));
            self.due_ns = Some(from_ns + self.pause_ns());
        }
    }

    /// Whether what was seen since the last time has led to anything: asked at the end of each
    /// iteration or period.
    pub(crate) fn useful(&mut self, useful: bool) {
        self.quiet += 1;
        if useful {
            self.wake();
        } else if self.quiet == QUIET {
            self.calm();
        }
    }

    /// There is nothing to be learnt, for sure: the rate is halved at once.
    pub(crate) fn calm(&mut self) {
        self.quiet = 0;
        self.halved = (self.halved + 1).min(HALVED_MAX);
    }

    /// Threads moved, or the program went on to something else: back to the full rate.
    pub(crate) fn wake(&mut self) {
        (self.halved, self.quiet) = (0, 0);
    }

    /// Armed pages a second that are allowed now.
    pub(crate) fn rate(&self) -> u64 {
        1_000_000_000 / self.distance_ns()
    }

    /// A time as many times longer as the rate is lower than it may be.
    pub(crate) fn slowed(&self, time_ns: u64) -> u64 {
        time_ns << self.halved
    }

    /// Arming so many pages has taken so long.
    pub(crate) fn took(&mut self, pages: u32, took_ns: u64) {
        let weight = u64::from(pages).min(REMEMBERED);
        let page_ns = took_ns / u64::from(pages.max(1));
        self.arm_ns = (self.arm_ns * (REMEMBERED - weight) + page_ns * weight) / REMEMBERED;
    }

    /// What a sample costs. What arming takes longer than half of a sample, as it does alone, is
    /// the wait for interrupts of the other CPUs that the program runs on, to flush their
    /// translations, which lose about as much together. (A virtual machine of two CPUs: 24 us of
    /// the agent, 11 us of the program, 2026-11.)
    fn sample_ns(&self) -> u64 {
        let alone_ns = self.budget.sample_ns.max(1);
        alone_ns + 2 * self.arm_ns.saturating_sub(alone_ns / 2)
    }

    fn is_eager(&self) -> bool {
        self.eager > 0 && self.reserve_ns > self.sample_ns()
    }

    /// Mean time between two arms.
    fn distance_ns(&self) -> u64 {
        let every_ns = (self.sample_ns() as f64 / self.budget.share.max(1e-9)) as u64;
        match self.is_eager() {
            true => (every_ns / EAGER).max(1),
            false => every_ns.max(1) << self.halved,
        }
    }

    /// A page is armed.
    fn spend(&mut self) {
        let sample_ns = self.sample_ns();
        if self.is_eager() {
            self.reserve_ns -= sample_ns;
        } else {
            self.usual += 1;
            if self.usual.is_multiple_of(REFILL) {
                let most_ns = (self.budget.share * RESERVE_NS) as u64;
                self.reserve_ns = (self.reserve_ns + sample_ns).min(most_ns);
            }
        }
        self.eager = self.eager.saturating_sub(1);
    }

    fn batch(&self) -> u32 {
        BATCH.min(self.windows as u32)
    }

    /// Time to the next batch: exponentially distributed with the mean that the budget allows, and
    /// never over ten times it.
    fn pause_ns(&mut self) -> u64 {
        let mean_ns = self.distance_ns() * u64::from(self.batch());
        let part = -(1.0 - self.random.unit()).ln();
        (mean_ns as f64 * part.min(10.0)) as u64 + 1
    }

    fn next_window(&mut self) -> u64 {
        if self.round.left == 0 {
            self.round = Round::new(self.windows, &mut self.random);
            self.order.clear();
            let mut before = 0;
            for (&key, target) in &self.targets {
                self.order.push((before, key));
                before += target.windows();
            }
        }
        self.round.next()
    }

    /// A page of a window, which is counted through all regions.
    fn pick(&mut self, window: u64) -> Option<Pick> {
        let after = self.order.partition_point(|&(before, _)| before <= window);
        let &(before, key) = self.order.get(after.checked_sub(1)?)?;
        let target = self.targets.get(&key)?;
        let first = (window - before) as u32 * target.window_pages;
        let pages = target.window_pages.min(target.pages.checked_sub(first)?);
        let page = first + self.random.below(u64::from(pages)) as u32;
        Some(Pick { key, page })
    }
}

impl Round {
    fn new(count: u64, random: &mut Random) -> Round {
        let mut step = 1 + random.below(count);
        while !coprime(step, count) {
            step += 1;
        }
        Round {
            count,
            at: random.below(count),
            step: step % count,
            left: count,
        }
    }

    fn next(&mut self) -> u64 {
        self.left -= 1;
        self.at = (self.at + self.step) % self.count;
        self.at
    }
}

fn coprime(mut a: u64, mut b: u64) -> bool {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BUDGET: Budget = Budget {
        share: 0.01,
        sample_ns: 2_000,
    };

    fn picks(plan: &mut Plan, from_ns: u64, to_ns: u64) -> Vec<Pick> {
        let mut out = Vec::new();
        for now_ns in (from_ns..to_ns).step_by(1_000_000) {
            plan.due(now_ns, &mut out);
        }
        out
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        for seed in 0..20 {
            let mut plan = Plan::new(seed, BUDGET);
            assert_eq!((plan.due_ns(), plan.rate()), (None, 5_000));
            plan.begin(0, 7, 1 << 18);
            picks(&mut plan, 0, SECOND);
            assert_eq!(plan.rate(), 5_000, "its first rounds are over");
            let armed = picks(&mut plan, SECOND, 11 * SECOND).len();
            // 50 000 in batches of 16 at exponential distances: the standard deviation is 900.
            assert!((46_000..54_000).contains(&armed), "{armed}");
            plan.end(7);
            assert_eq!(plan.due_ns(), None);
        }
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut plan = Plan::new(1, BUDGET);
        plan.begin(0, 0, 1 << 20);
        let mut out = Vec::new();
        plan.due(3600 * SECOND, &mut out);
        // A tenth of a second at the rate of first rounds is 4000.
        assert!(out.len() < 8_000, "{}", out.len());
    }

    #[test]
    fn first_rounds_go_faster_while_the_reserve_lasts() {
        let mut plan = Plan::new(1, BUDGET);
        plan.begin(0, 0, 1024);
        assert_eq!(plan.rate(), 40_000);
        let armed = picks(&mut plan, 0, SECOND / 5).len();
        // 16 rounds of 64 windows in 26 ms, and the rest of a fifth of a second as usual.
        assert!((1_500..2_500).contains(&armed), "{armed}");
        assert_eq!(plan.rate(), 5_000);
        // A region that is gone before its time leaves nothing to hurry for.
        plan.begin(SECOND, 1, 1024);
        plan.end(1);
        plan.end(0);
        plan.begin(SECOND, 2, 16);
        let armed = picks(&mut plan, SECOND, 2 * SECOND).len();
        assert!((4_000..6_000).contains(&armed), "{armed}");
        // One region after the other is faster only until the reserve is used up.
        let mut all = 0;
        for (second, key) in (2..42).zip(3..) {
            plan.begin(second * SECOND, key, 1 << 18);
            all += picks(&mut plan, second * SECOND, (second + 1) * SECOND).len() as u64;
        }
        let most = 40 * 5_000 + 10_000 + 40 * 5_000 / REFILL;
        assert!((200_000..most + 10_000).contains(&all), "{all} of {most}");
    }

    #[test]
    fn what_arming_takes_is_paid_for() {
        let mut plan = Plan::new(1, BUDGET);
        plan.begin(0, 7, 1 << 18);
        picks(&mut plan, 0, SECOND);
        // As long as was measured: half of a sample's 2 us.
        (0..100).for_each(|_| plan.took(64, 64 * 1_000));
        assert_eq!(plan.rate(), 5_000);
        (0..100).for_each(|_| plan.took(64, 64 * 25_000));
        assert!((198..202).contains(&plan.rate()), "{}", plan.rate());
        let armed = picks(&mut plan, SECOND, 21 * SECOND).len();
        assert!((3_000..5_000).contains(&armed), "{armed}");
        plan.took(0, 1_000);
        plan.took(1 << 20, 0);
        assert_eq!(plan.rate(), 5_000);
    }

    #[test]
    fn every_window_has_its_turn_each_round() {
        let mut plan = Plan::new(3, BUDGET);
        plan.begin(0, 1, 100);
        plan.begin(0, 2, 37);
        // 7 windows of 16 pages and 3.
        let mut out = Vec::new();
        let mut now_ns = 0;
        while out.len() < 1_000 {
            now_ns += 100_000;
            plan.due(now_ns, &mut out);
        }
        let mut pages = std::collections::BTreeSet::new();
        for round in out.chunks_exact(10) {
            let mut windows: Vec<(u32, u32)> = round
                .iter()
                .map(|pick| (pick.key, pick.page / 16))
                .collect();
            windows.sort_unstable();
            let expected = (0..7).map(|w| (1, w)).chain((0..3).map(|w| (2, w)));
            assert!(windows.into_iter().eq(expected));
            pages.extend(round.iter().map(|pick| (pick.key, pick.page)));
        }
        assert!(
            pages
                .iter()
                .all(|&(key, page)| page < [0, 100, 37][key as usize])
        );
        assert!(pages.len() > 120, "nearly all pages have had their turn");
    }

    #[test]
    fn equal_seeds_give_equal_plans() {
        let run = |seed| {
            let mut plan = Plan::new(seed, BUDGET);
            plan.begin(5, 1, 1000);
            picks(&mut plan, 0, SECOND)
        };
        assert_eq!(run(9), run(9));
        assert_ne!(run(9), run(10));
    }

    #[test]
    fn what_leads_to_nothing_is_done_more_seldom() {
        let mut plan = Plan::new(1, BUDGET);
        (0..3).for_each(|_| plan.useful(false));
        assert_eq!(plan.rate(), 5_000);
        plan.useful(false);
        assert_eq!(plan.rate(), 2_500);
        (0..100).for_each(|_| plan.useful(false));
        assert_eq!(plan.rate(), 78);
        plan.useful(true);
        assert_eq!(plan.rate(), 5_000);
        plan.calm();
        assert_eq!(plan.rate(), 2_500);
        plan.wake();
        (0..4).for_each(|_| plan.useful(false));
        plan.wake();
        assert_eq!(plan.rate(), 5_000);
    }
}
