//! Which pages are armed next, and when.
//!
//! Sampling goes in rounds. In a round each window of each region gets one armed page, at random
//! within the window; the order of the windows is random too, and new in each round. So all windows
//! have equally many samples, give or take one, and the arms of a round are independent. Arms come
//! in small batches at exponentially distributed distances, with which no iteration can fall into
//! step (Wolff, "Poisson arrivals see time averages", 1982).
//!
//! The budget is a share of the CPUs. While sampling changes nothing, its rate is halved again and
//! again. The first samples of a region are worth the most, so its first rounds go faster; they
//! draw on a reserve, which a program that allocates all the time uses up.

use std::collections::BTreeMap;

use hither_core::Random;

use super::windows::window_pages;

/// Pages armed at once: enough to be worth a wakeup of the agent.
const BATCH_PAGES: u32 = 64;

/// Budget that was not used for longer than this is lost, so that no rush of arms follows a pause.
const UNUSED_BUDGET_NS_MAX: u64 = 100_000_000;

/// Iterations (or periods) in a row without use after which the rate is halved.
const QUIET_PERIODS_PER_HALVING: u32 = 4;

/// How often the rate is halved at most: six times, to 1/64, which is a hundred samples a second
/// and CPU. That is enough to notice when an eighth of a program's accesses become remote; the rate
/// is then restored.
const HALVINGS_MAX: u32 = 6;

/// The rounds of a new region that go faster: with this many samples a window that one node uses
/// alone is decided.
const FAST_ROUNDS: u64 = 16;

/// How many times faster they go.
const FAST_RATE_FACTOR: u64 = 8;

/// The reserve for fast rounds holds at most the budget of this time.
const RESERVE_SPAN_NS: f64 = 2e9;

/// The reserve regains one sample for every fourth that is armed at the usual rate.
const USUAL_ARMS_PER_REFILL: u64 = 4;

/// The cost of arming while the program runs is a moving average over this many pages.
const ARM_COST_PAGES: u64 = 256;

/// What sampling may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SamplingBudget {
    /// The share of one CPU; 1 is a whole one.
    pub(crate) share: f64,
    /// Cost of a sample, arming included, while the program runs on no other CPU.
    pub(crate) sample_ns: u64,
}

/// The most CPUs that a budget counts: with more, the agent's one thread would be busy all the
/// time.
pub(crate) const CPUS_MAX: usize = 16;

/// Default budget, in thousandths of the CPUs.
pub(crate) const PERMILLE: u32 = 10;

impl SamplingBudget {
    /// A budget of `permille` thousandths of the CPUs. Arming a page takes 1.0 to 1.2 us, touching
    /// it 0.8 us, and perf's sample of it up to 0.5 us (2 cores, Linux 6.18, 2026-11).
    pub(crate) fn of(cpus: usize, permille: u32) -> SamplingBudget {
        let cpus = cpus.clamp(1, CPUS_MAX);
        SamplingBudget {
            share: f64::from(permille) / 1000.0 * cpus as f64,
            sample_ns: 2_500,
        }
    }

    /// The number of samples that it pays for.
    pub(crate) fn samples_a_second(&self) -> u64 {
        (self.share * 1e9 / self.sample_ns.max(1) as f64) as u64
    }

    /// The same budget, with the measured cost of a sample where there is one.
    pub(crate) fn costing(self, sample_ns: Option<u64>) -> SamplingBudget {
        let sample_ns = sample_ns.unwrap_or(self.sample_ns);
        SamplingBudget { sample_ns, ..self }
    }
}

/// A page to be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    /// The region's number.
    pub(crate) key: u32,
    /// The page's number within it.
    pub(crate) page: u32,
}

/// A region that is sampled.
#[derive(Clone, Copy, Debug)]
struct SampledRegion {
    pages: u32,
    window_pages: u32,
}

impl SampledRegion {
    fn windows(self) -> u64 {
        u64::from(self.pages.div_ceil(self.window_pages))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Plan {
    random: Random,
    budget: SamplingBudget,
    /// Moving average of the time that arming a page takes.
    arm_ns: u64,
    /// How often the rate is halved now.
    halvings: u32,
    /// Periods without use since the last change of the rate.
    quiet_periods: u32,
    /// Arms of fast rounds that are still to come, as far as the reserve lasts.
    fast_arms: u64,
    reserve_ns: u64,
    /// Arms at the usual rate so far.
    usual_arms: u64,
    regions: BTreeMap<u32, SampledRegion>,
    windows: u64,
    /// By region: the number of windows of all regions before it, and its key. Made anew for each
    /// round.
    order: Vec<(u64, u32)>,
    round: RandomOrder,
    /// When the next batch is due; none while there is nothing to arm.
    due_ns: Option<u64>,
}

/// A walk through all numbers below `count` in an order that looks random: by steps that have no
/// common divisor with `count`.
#[derive(Clone, Copy, Debug, Default)]
struct RandomOrder {
    count: u64,
    at: u64,
    step: u64,
    left: u64,
}

impl Plan {
    /// A plan that samples nothing yet. Equal seeds and calls give equal plans.
    pub(crate) fn new(seed: u64, budget: SamplingBudget) -> Plan {
        Plan {
            random: Random::new(seed),
            budget,
            arm_ns: 0,
            halvings: 0,
            quiet_periods: 0,
            fast_arms: 0,
            reserve_ns: (budget.share * RESERVE_SPAN_NS) as u64,
            usual_arms: 0,
            regions: BTreeMap::new(),
            windows: 0,
            order: Vec::new(),
            round: RandomOrder::default(),
            due_ns: None,
        }
    }

    /// Starts to sample a region.
    pub(crate) fn begin(&mut self, now_ns: u64, key: u32, pages: u32) {
        self.end(key);
        let region = SampledRegion {
            pages,
            window_pages: window_pages(pages),
        };
        if region.windows() > 0 {
            self.regions.insert(key, region);
            self.windows += region.windows();
            self.hurry(key);
            self.round.left = 0;
            if self.due_ns.is_none() {
                self.due_ns = Some(now_ns + self.pause_ns());
            }
        }
    }

    /// Repeats a region's fast rounds, because what was learnt of it does not hold any more.
    pub(crate) fn hurry(&mut self, key: u32) {
        let windows = self.regions.get(&key).map_or(0, |region| region.windows());
        self.fast_arms = (self.fast_arms + windows * FAST_ROUNDS).min(self.windows * FAST_ROUNDS);
    }

    /// Stops sampling a region.
    pub(crate) fn end(&mut self, key: u32) {
        if let Some(region) = self.regions.remove(&key) {
            self.windows -= region.windows();
            self.fast_arms = self.fast_arms.min(self.windows * FAST_ROUNDS);
            self.round.left = 0;
            if self.regions.is_empty() {
                self.due_ns = None;
            }
        }
    }

    /// When to call [`Plan::due`].
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Adds the pages to arm now; none before a batch is due.
    pub(crate) fn due(&mut self, now_ns: u64, out: &mut Vec<Pick>) {
        while let Some(due_ns) = self.due_ns.filter(|&due_ns| due_ns <= now_ns) {
            // A batch has at most one page of each window, so none is armed twice at once.
            for _ in 0..self.batch() {
                let window = self.next_window();
                out.extend(self.pick(window));
                self.spend();
            }
            let from_ns = due_ns.max(now_ns.saturating_sub(UNUSED_BUDGET_NS_MAX));
            self.due_ns = Some(from_ns + self.pause_ns());
        }
    }

    /// Whether the samples since the last call have led to a change. Called at the end of each
    /// iteration or period.
    pub(crate) fn useful(&mut self, useful: bool) {
        self.quiet_periods += 1;
        if useful {
            self.wake();
        } else if self.quiet_periods == QUIET_PERIODS_PER_HALVING {
            self.calm();
        }
    }

    /// Halves the rate at once, because it is certain that nothing is left to learn.
    pub(crate) fn calm(&mut self) {
        self.quiet_periods = 0;
        self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
    }

    /// Restores the full rate: threads moved, or the program went on to something else.
    pub(crate) fn wake(&mut self) {
        (self.halvings, self.quiet_periods) = (0, 0);
    }

    /// The rate now, in armed pages a second.
    pub(crate) fn rate(&self) -> u64 {
        1_000_000_000 / self.distance_ns()
    }

    /// Stretches a time in the proportion in which the rate is lowered.
    pub(crate) fn slowed(&self, time_ns: u64) -> u64 {
        time_ns << self.halvings
    }

    /// Records that arming this many pages took this long.
    pub(crate) fn took(&mut self, pages: u32, took_ns: u64) {
        let weight = u64::from(pages).min(ARM_COST_PAGES);
        let page_ns = took_ns / u64::from(pages.max(1));
        self.arm_ns = (self.arm_ns * (ARM_COST_PAGES - weight) + page_ns * weight) / ARM_COST_PAGES;
    }

    /// What a sample costs. Arming alone takes half of a sample's cost. Anything beyond that is
    /// waiting for the CPUs that the program runs on, which are interrupted to flush their
    /// translations, and lose about as much together. (A virtual machine of two CPUs: 24 us of the
    /// agent, 11 us of the program, 2026-11.)
    fn sample_ns(&self) -> u64 {
        let alone_ns = self.budget.sample_ns.max(1);
        alone_ns + 2 * self.arm_ns.saturating_sub(alone_ns / 2)
    }

    fn is_fast(&self) -> bool {
        self.fast_arms > 0 && self.reserve_ns > self.sample_ns()
    }

    /// Mean time between two arms.
    fn distance_ns(&self) -> u64 {
        let every_ns = (self.sample_ns() as f64 / self.budget.share.max(1e-9)) as u64;
        match self.is_fast() {
            true => (every_ns / FAST_RATE_FACTOR).max(1),
            false => every_ns.max(1) << self.halvings,
        }
    }

    /// Pays for one armed page.
    fn spend(&mut self) {
        let sample_ns = self.sample_ns();
        if self.is_fast() {
            self.reserve_ns -= sample_ns;
        } else {
            self.usual_arms += 1;
            if self.usual_arms.is_multiple_of(USUAL_ARMS_PER_REFILL) {
                let most_ns = (self.budget.share * RESERVE_SPAN_NS) as u64;
                self.reserve_ns = (self.reserve_ns + sample_ns).min(most_ns);
            }
        }
        self.fast_arms = self.fast_arms.saturating_sub(1);
    }

    fn batch(&self) -> u32 {
        BATCH_PAGES.min(self.windows as u32)
    }

    /// Time to the next batch: exponentially distributed, with the mean that the budget allows, and
    /// at most ten times that mean.
    fn pause_ns(&mut self) -> u64 {
        let mean_ns = self.distance_ns() * u64::from(self.batch());
        let part = -(1.0 - self.random.unit()).ln();
        (mean_ns as f64 * part.min(10.0)) as u64 + 1
    }

    fn next_window(&mut self) -> u64 {
        if self.round.left == 0 {
            self.round = RandomOrder::new(self.windows, &mut self.random);
            self.order.clear();
            let mut before = 0;
            for (&key, region) in &self.regions {
                self.order.push((before, key));
                before += region.windows();
            }
        }
        self.round.next()
    }

    /// A random page of a window; windows are numbered through all regions.
    fn pick(&mut self, window: u64) -> Option<Pick> {
        let after = self.order.partition_point(|&(before, _)| before <= window);
        let &(before, key) = self.order.get(after.checked_sub(1)?)?;
        let region = self.regions.get(&key)?;
        let first = (window - before) as u32 * region.window_pages;
        let pages = region.window_pages.min(region.pages.checked_sub(first)?);
        let page = first + self.random.below(u64::from(pages)) as u32;
        Some(Pick { key, page })
    }
}

impl RandomOrder {
    fn new(count: u64, random: &mut Random) -> RandomOrder {
        let mut step = 1 + random.below(count);
        while !coprime(step, count) {
            step += 1;
        }
        RandomOrder {
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
    const BUDGET: SamplingBudget = SamplingBudget {
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
        let most = 40 * 5_000 + 10_000 + 40 * 5_000 / USUAL_ARMS_PER_REFILL;
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
