//! Which pages are armed next, and when, where the agent arms them.
//!
//! A *block* of pages is armed at a time, since a call interrupts the other CPUs that run the
//! program, which costs more than the pages in it (in a virtual machine of two CPUs up to 24 us,
//! 2026-11). A block has so many pages that the call costs no more than their samples. Blocks are
//! random, and so are the times between batches of them, exponentially distributed, so that no
//! iteration can fall into step (Wolff, "Poisson arrivals see time averages", 1982).
//!
//! The budget is a share of one CPU. The agent's work on memory is paid from it, as measured, and
//! what the program loses by faults and interrupts, as far as that is known. What is not spent is
//! saved for up to a second. When something is new (a region, a second user of it, threads that
//! moved), twice the budget is spent; while nothing comes of the samples, less and less of it.

use std::collections::BTreeMap;

use hither_core::Random;

use super::super::budget::{ARMED_SAMPLE_NS, FAULT_NS, SAVED_NS};

/// The least and the most pages of a block: a cell, and a huge page.
const BLOCK_PAGES_MIN: u32 = 16;
const BLOCK_PAGES_MAX: u32 = 512;

/// What a sample of a block counts as. Its pages are armed together, and most often one thread
/// touches them all: the samples of a cell's 16 pages count as one.
pub(super) const SAMPLE_WEIGHT: f32 = 1.0 / 16.0;

/// Mean time between two batches at the full rate: the agent wakes up for each, which takes some
/// 0.1 ms. At a lower rate it is as much longer.
const BATCH_NS: f64 = 50e6;

/// The most blocks of a batch, and of the first ones, which show what arming costs here.
const BATCH_BLOCKS_MAX: u64 = 256;
const TRIAL_BLOCKS: u64 = 4;

/// A batch takes at most this part of what was saved.
const SAVED_DIVISOR: f64 = 8.0;

/// How often each page is armed faster when something is new: to see it, and to confirm that.
const EAGER_ROUNDS: u64 = 2;

/// How much of the budget may be spent then.
const EAGER_SHARES: f64 = 2.0;

/// How often the rate is halved at most, once with each look that led to nothing: to 1/64, some
/// hundred pages a second, which still show within tens of seconds that much became remote.
const HALVINGS_MAX: u32 = 6;

/// How often it is tried to pick a block that is not armed.
const PICKS_PER_BLOCK: u64 = 4;

/// The cost of arming a block, until it was measured: a program on one CPU alone. Then it is a
/// moving average over so many blocks.
const ARM_NS: u64 = 2_000;
const ARM_COST_BLOCKS: u64 = 16;

/// A block to be armed: the first page within a region, by the region's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) key: u32,
    pub(super) first: u32,
    pub(super) pages: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Arming {
    random: Random,
    /// The share of one CPU that may be taken.
    share: f64,
    /// Moving average of the time that arming a block takes.
    arm_ns: u64,
    /// It was measured.
    measured: bool,
    /// Pages that are to be armed faster.
    eager: u64,
    /// What was saved; less than nothing where samples came that were not expected.
    saved_ns: f64,
    /// The part of it that the next batch may take.
    credit_ns: f64,
    filled_ns: u64,
    halvings: u32,
    /// Pages of the regions, by number.
    regions: BTreeMap<u32, u32>,
    /// The number of pages of all regions before a region, and its number; empty until they are
    /// numbered.
    order: Vec<(u64, u32)>,
    pages: u64,
    due_ns: Option<u64>,
}

impl Arming {
    /// Nothing is armed yet. Equal seeds and calls give equal picks.
    pub(super) fn new(seed: u64, share: f64) -> Arming {
        Arming {
            random: Random::new(seed),
            arm_ns: ARM_NS,
            measured: false,
            eager: 0,
            saved_ns: SAVED_NS * share,
            credit_ns: 0.0,
            filled_ns: 0,
            halvings: 0,
            regions: BTreeMap::new(),
            order: Vec::new(),
            pages: 0,
            due_ns: None,
            share,
        }
    }

    /// Begins to arm pages of a region.
    pub(super) fn begin(&mut self, now_ns: u64, key: u32, pages: u32) {
        self.end(key);
        self.regions.insert(key, pages);
        self.pages += u64::from(pages);
        self.hurry(key);
        if self.due_ns.is_none() {
            self.filled_ns = self.filled_ns.max(now_ns);
            self.due_ns = Some(now_ns + self.pause_ns());
        }
    }

    /// Stops arming pages of a region.
    pub(super) fn end(&mut self, key: u32) {
        self.order.clear();
        let pages = self.regions.remove(&key).unwrap_or(0);
        self.pages -= u64::from(pages);
        self.eager = self.eager.min(self.pages * EAGER_ROUNDS);
        if self.regions.is_empty() {
            self.due_ns = None;
        }
    }

    /// Numbers the pages, if regions have come or gone: many may do so between two batches.
    fn number_pages(&mut self) {
        if !self.order.is_empty() {
            return;
        }
        let mut before = 0;
        for (&key, &pages) in &self.regions {
            self.order.push((before, key));
            before += u64::from(pages);
        }
    }

    /// What was learnt of a region does not hold any more.
    pub(super) fn hurry(&mut self, key: u32) {
        if let Some(&pages) = self.regions.get(&key) {
            let eager = self.eager + u64::from(pages) * EAGER_ROUNDS;
            self.eager = eager.min(self.pages * EAGER_ROUNDS);
        }
        self.wake();
    }

    /// The full rate again, from the last batch on.
    pub(super) fn wake(&mut self) {
        if self.halvings > 0 {
            self.halvings = 0;
            let due_ns = self.filled_ns + self.pause_ns();
            self.due_ns = self.due_ns.map(|_| due_ns);
        }
    }

    /// A look at the samples has led to something, or not.
    pub(super) fn policy_asked(&mut self, useful: bool) {
        if useful {
            self.wake()
        } else {
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX)
        }
    }

    /// When to call [`Arming::due`].
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Adds the blocks to arm now; none before a batch is due, and none that is `armed` still, as
    /// what is only read is.
    pub(super) fn due(&mut self, now_ns: u64, armed: impl Fn(&Pick) -> bool, out: &mut Vec<Pick>) {
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let share = match self.eager {
            0 => self.share,
            _ => self.share * EAGER_SHARES,
        };
        let earned_ns = now_ns.saturating_sub(self.filled_ns) as f64 * share;
        let most_ns = SAVED_NS * self.share;
        self.filled_ns = now_ns;
        self.saved_ns = (self.saved_ns + earned_ns).min(most_ns);
        self.credit_ns += earned_ns / f64::from(1 << self.halvings);
        if self.eager > 0 {
            self.credit_ns = self.credit_ns.max(self.saved_ns / SAVED_DIVISOR);
        }
        self.credit_ns = self.credit_ns.min(self.saved_ns / SAVED_DIVISOR).max(0.0);
        let blocks = (self.credit_ns / self.block_ns()) as u64;
        let all = self.pages.div_ceil(u64::from(self.block_pages()));
        let most = if self.measured {
            BATCH_BLOCKS_MAX
        } else {
            TRIAL_BLOCKS
        };
        let blocks = blocks.min(most).min(all);
        self.number_pages();
        let before = out.len();
        for _ in 0..blocks * PICKS_PER_BLOCK {
            let pick = self.pick();
            if !armed(&pick) {
                out.push(pick);
            }
            if out.len() - before == blocks as usize {
                break;
            }
        }
        let picked = (out.len() - before) as u64;
        self.credit_ns -= picked as f64 * self.block_ns();
        let pages = blocks * u64::from(self.block_pages());
        self.eager = self.eager.saturating_sub(pages);
        self.due_ns = Some(now_ns + self.pause_ns());
    }

    /// Takes down that arming this many blocks took this long, and that all of the agent's work
    /// since the last ones took `agent_ns`. The CPUs that arming interrupts lose about as much as
    /// it takes, together.
    pub(super) fn took(&mut self, blocks: u32, took_ns: u64, agent_ns: u64) {
        let weight = if std::mem::replace(&mut self.measured, true) {
            u64::from(blocks).min(ARM_COST_BLOCKS)
        } else {
            ARM_COST_BLOCKS
        };
        let block_ns = took_ns / u64::from(blocks.max(1));
        let before_ns = self.arm_ns * (ARM_COST_BLOCKS - weight);
        self.arm_ns = (before_ns + block_ns * weight) / ARM_COST_BLOCKS;
        // What was spent while nothing was armed is forgiven beyond what could be saved.
        let least_ns = -SAVED_NS * self.share;
        self.saved_ns = (self.saved_ns - (agent_ns + took_ns) as f64).max(least_ns);
    }

    /// So many pages were touched: pays the program's part. The agent's is measured.
    pub(super) fn sampled(&mut self, pages: u32) {
        self.saved_ns -= (u64::from(pages) * FAULT_NS) as f64;
    }

    /// The rate now, in armed pages a second.
    pub(super) fn rate(&self) -> u64 {
        let blocks = 1e9 * self.share / self.block_ns();
        (blocks * f64::from(self.block_pages())) as u64 >> self.halvings
    }

    /// What a block and its samples cost.
    fn block_ns(&self) -> f64 {
        (2 * self.arm_ns + u64::from(self.block_pages()) * ARMED_SAMPLE_NS) as f64
    }

    /// The pages of a block.
    fn block_pages(&self) -> u32 {
        let pages = 2 * self.arm_ns / ARMED_SAMPLE_NS;
        let pages = pages.min(u64::from(BLOCK_PAGES_MAX)) as u32;
        pages.next_power_of_two().max(BLOCK_PAGES_MIN)
    }

    /// Time to the next batch, at most ten times the mean.
    fn pause_ns(&mut self) -> u64 {
        let part = -(1.0 - self.random.unit()).ln();
        let mean_ns = BATCH_NS * f64::from(1 << self.halvings);
        (mean_ns * part.min(10.0)) as u64 + 1
    }

    fn pick(&mut self) -> Pick {
        let page = self.random.below(self.pages);
        let after = self.order.partition_point(|&(before, _)| before <= page);
        let (before, key) = self.order[after - 1];
        let block_pages = self.block_pages();
        let first = (page - before) as u32 / block_pages * block_pages;
        Pick {
            key,
            first,
            pages: block_pages.min(self.regions[&key] - first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn arming() -> Arming {
        Arming::new(1, 0.01)
    }

    /// The picks from `from_ns` on, for so long, each sampled whole.
    fn picks(arming: &mut Arming, from_ns: u64, for_ns: u64) -> Vec<Pick> {
        let mut picks = Vec::new();
        let mut now_ns = from_ns;
        while let Some(due_ns) = arming.due_ns().filter(|&due| due < from_ns + for_ns) {
            now_ns = now_ns.max(due_ns);
            let before = picks.len();
            arming.due(now_ns, |_| false, &mut picks);
            for pick in &picks[before..] {
                arming.took(1, 1_250, 1_250 + u64::from(pick.pages) * 500);
                arming.sampled(pick.pages);
            }
        }
        picks
    }

    #[test]
    fn keeps_to_the_budget_and_covers_all_cells() {
        let mut arming = arming();
        assert_eq!(arming.due_ns(), None);
        arming.begin(0, 3, 1000);
        arming.begin(0, 9, 40);
        let all = picks(&mut arming, 0, 20 * SECOND);
        // A block costs 31 us of 10 ms a second. The first ones come out of what was saved.
        assert!((5_800..=7_200).contains(&all.len()), "{}", all.len());
        for block in 0..63 {
            let of = |pick: &&Pick| pick.key == 3 && pick.first / 16 == block;
            assert!(all.iter().filter(of).count() > 20, "block {block}");
        }
        let ends = |pick: &Pick| pick.first + pick.pages <= [1000, 40][usize::from(pick.key == 9)];
        assert!(all.iter().all(ends));
        arming.end(3);
        arming.end(9);
        assert_eq!(arming.due_ns(), None);
    }

    #[test]
    fn slows_down_while_nothing_comes_of_it() {
        let mut arming = arming();
        arming.begin(0, 3, 1000);
        picks(&mut arming, 0, 20 * SECOND);
        let full = picks(&mut arming, 20 * SECOND, 20 * SECOND).len();
        (0..100).for_each(|_| arming.policy_asked(false));
        // Batches are seldom then: twenty times as long, for a rate that does not go by chance.
        let slow = picks(&mut arming, 40 * SECOND, 400 * SECOND).len() / 20;
        assert!((full / 100..full / 40).contains(&slow), "{slow} of {full}");
        // What was saved meanwhile goes fast once something is new.
        arming.hurry(3);
        let eager = picks(&mut arming, 440 * SECOND, SECOND / 2).len();
        assert!(eager > full / 60, "{eager} of {full}");
        arming.policy_asked(true);
        let again = picks(&mut arming, 441 * SECOND, 20 * SECOND).len();
        assert!(again > full / 2, "{again} of {full}");
    }

    #[test]
    fn waiting_for_other_cpus_counts() {
        let mut arming = arming();
        arming.begin(0, 3, 1000);
        let rate = arming.rate();
        (0..100).for_each(|_| arming.took(16, 16 * 100_000, 0));
        assert_eq!(arming.block_pages(), 128);
        assert!((rate / 3..rate).contains(&arming.rate()));
        (0..100).for_each(|_| arming.took(16, 16 * 10_000_000, 0));
        assert_eq!(arming.block_pages(), BLOCK_PAGES_MAX);
        assert!(arming.rate() < rate / 10);
    }
}
