//! Classification by call site: two counters a site tell whether the blocks that it accesses
//! return.
//!
//! Source: Gniady, Butt and Hu, "Program-counter-based pattern classification in buffer caching",
//! OSDI 2004, sections 4.1 and 4.2. Without sampling (`sample=1`) this is figure 4 of the paper,
//! step for step; a test compares it with a literal transcript. Readings where the paper is open:
//! - *Counters under sampling.* Every T-th access of a site, starting with its first so that
//!   short-lived sites are sampled at all, enters its block into the block table. When a block in
//!   the table is accessed again, the entry is removed, as section 4.2 says. It does not say what
//!   the counters of figure 4, which has no sampling, mean then. Three readings ([`Counters`]), the
//!   same at T = 1:
//!   - *weighted*, the default. `Seq` counts each access. A block that returns stands for T: `Seq`
//!     of the site that entered it falls by T (not below 0), its `Loop` rises by T. So both mean
//!     the same as without sampling, and so does the threshold.
//!   - *samples*. Both count blocks of the table: an access that enters a block adds one to `Seq`,
//!     a return moves one from `Seq` to `Loop`. A site is sequential after T times as many
//!     accesses.
//!   - *literal*. Figure 4 as it is printed, over a sampled table: each access adds one to `Seq`, a
//!     return moves one. No more than one access in T returns, so from T = 2 on `Loop` never
//!     exceeds `Seq`, and no site ever loops. The authors find that 80 % of the references loop at
//!     T = 20, so this is not what they ran.
//! - *The average period* is exponential (`expAverage` in the figure), whose weight the paper does
//!   not give: 1/2 here; the first sample sets it.
//! - *The class* is that of the site that makes the access, after the counters are updated: looping
//!   if `Loop` exceeds `Seq`, otherwise sequential if `Seq` has reached the threshold, otherwise
//!   other. A new site's first access is other.
//! - *Bounds.* The paper bounds the block table by N entries a site, and evicts the least recently
//!   used site when the table is full. Here N bounds the whole table, which is what takes memory,
//!   and a second bound holds for the sites. If the current site is the only one, its own oldest
//!   entry makes room.
//!
//! Departure (`steady`): *steady* sites. Where a program reads each block once an epoch, in another
//! order each time, a block returns after up to two epochs. The exponential average of these times
//! is about half an epoch at the start of each epoch and one and a half at its end, with much
//! noise, so it does not tell how long to wait for a block. A site is steady if the standard
//! deviation of the times is at most half their mean: it is 0.41 of the mean in shuffled epochs, 0
//! in a loop, and 1 where references are independent. The `steady_period` is this mean. The times
//! are collected in rounds; a round ends when it is as long as its mean and has 16 samples. The
//! current round and the last one count, as soon as they have 16 samples together.

use super::{Class, Classification, Classifier, SiteCounters, SiteRecord, Stream, at};
use crate::access::Access;
use crate::ids::{Site, Tick};
use crate::list::{Links, List, NIL};

/// Fewer samples than these are often similar by chance.
const ROUND_SAMPLES_MIN: u64 = 16;

/// What the counters of a site count where its accesses are sampled. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// Accesses; a sampled block that returns stands for as many as were sampled for it.
    Weighted,
    /// Sampled accesses.
    Samples,
    /// Accesses in `Seq`, sampled blocks in `Loop`.
    Literal,
}

impl Counters {
    /// What is written for them, in the order of the variants.
    pub const NAMES: &[&str] = &["weighted", "samples", "literal"];

    /// The counters called `name`.
    pub fn named(name: &str) -> Option<Counters> {
        let all = [Counters::Weighted, Counters::Samples, Counters::Literal];
        let at = Counters::NAMES.iter().position(|known| *known == name)?;
        Some(all[at])
    }
}

/// The parameters of the classification.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// With this many blocks that did not return, a site is sequential (100 in the paper).
    pub threshold: u64,
    /// T: every T-th access of a site is sampled (20 in the paper).
    pub sample: u64,
    /// N: the most blocks in the block table.
    pub entries_max: usize,
    /// The most sites in the site table.
    pub sites_max: usize,
    /// What is counted where T is not 1.
    pub counters: Counters,
}

/// Times between an access to a block and the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Intervals {
    count: u64,
    sum: u64,
    squares: u128,
}

impl Intervals {
    fn repeated(interval: u64, count: u64) -> Self {
        Intervals {
            count,
            sum: count * interval,
            squares: u128::from(count) * u128::from(interval).pow(2),
        }
    }

    fn merged(self, other: Intervals) -> Self {
        Intervals {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    /// The mean, if the intervals are enough and the standard deviation is at most half of it; 0
    /// otherwise.
    fn steady_mean(self) -> u64 {
        // The squares of the mean and of the standard deviation, both times the squared count.
        let mean = u128::from(self.sum).pow(2);
        let deviation = u128::from(self.count) * self.squares - mean;
        if self.count >= ROUND_SAMPLES_MIN && 4 * deviation <= mean {
            self.sum / self.count
        } else {
            0
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SiteState {
    known: bool,
    counters: SiteCounters,
    steady_period: u64,
    last_round: Intervals,
    round: Intervals,
    /// When the current round had its first sample.
    round_start: Tick,
    /// Accesses until the next one is sampled.
    until_sample: u64,
    /// Its entries in the block table, the latest in front.
    tabled: List,
}

impl SiteState {
    /// A sampled block returned after this time.
    fn returned(&mut self, interval: u64, now: Tick) {
        self.counters.period = match self.counters.period {
            0 => interval,
            period => (period + interval) / 2,
        };
        if self.round.count == 0 {
            self.round_start = now;
        }
        self.round = self.round.merged(Intervals::repeated(interval, 1));
        let Intervals { count, sum, .. } = self.round;
        if count >= ROUND_SAMPLES_MIN && (now - self.round_start).saturating_mul(count) >= sum {
            self.last_round = std::mem::take(&mut self.round);
        }
        self.steady_period = self.last_round.merged(self.round).steady_mean();
    }

    fn stream(&self, id: u32) -> Stream {
        Stream {
            id,
            period: self.counters.period,
            steady_period: self.steady_period,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct HistoryEntry {
    block: u32,
    site: u32,
    time: Tick,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pcc {
    config: Config,
    /// The site table, by site.
    sites: Vec<SiteState>,
    site_links: Links,
    /// The known sites, the most recently used in front.
    recency: List,
    /// The block table: by block, the entry.
    entry_of: Vec<u32>,
    entries: Vec<HistoryEntry>,
    entry_links: Links,
    /// Unused entries.
    free: Vec<u32>,
}

impl Pcc {
    /// A classifier that starts with what is known of `sites`, as far as its table holds them.
    pub fn new(config: Config, sites: &[SiteRecord]) -> Self {
        let mut pcc = Pcc {
            config,
            sites: Vec::new(),
            site_links: Links::default(),
            recency: List::default(),
            entry_of: Vec::new(),
            entries: Vec::new(),
            entry_links: Links::default(),
            free: Vec::new(),
        };
        for record in sites.iter().take(config.sites_max) {
            let state = pcc.enter_site(record.site.0);
            state.counters = record.counters;
            if record.steady_period > 0 {
                state.steady_period = record.steady_period;
                state.last_round = Intervals::repeated(record.steady_period, ROUND_SAMPLES_MIN);
            }
        }
        pcc
    }

    /// Adds `site` to the site table, which has room.
    fn enter_site(&mut self, site: u32) -> &mut SiteState {
        self.site_links.cover(site);
        let state = at(&mut self.sites, site);
        *state = SiteState {
            known: true,
            ..SiteState::default()
        };
        self.recency.push_front(&mut self.site_links, site);
        state
    }

    /// Forgets the least recently used site and its blocks.
    fn evict_site(&mut self) {
        let Some(site) = self.recency.pop_back(&mut self.site_links) else {
            return;
        };
        while let Some(entry) = self.sites[site as usize].tabled.back() {
            self.forget_entry(entry);
        }
        self.sites[site as usize].known = false;
    }

    fn forget_entry(&mut self, entry: u32) {
        let HistoryEntry { block, site, .. } = self.entries[entry as usize];
        self.sites[site as usize]
            .tabled
            .remove(&mut self.entry_links, entry);
        self.entry_of[block as usize] = NIL;
        self.free.push(entry);
    }

    /// Enters a block into the block table, for the most recently used site.
    fn table(&mut self, block: u32, site: u32, time: Tick) {
        while self.entries.len() - self.free.len() >= self.config.entries_max {
            if self.recency.back() == Some(site) {
                let oldest = self.sites[site as usize].tabled.back();
                self.forget_entry(oldest.expect("a full table whose only site is this one"));
            } else {
                self.evict_site();
            }
        }
        let new = HistoryEntry { block, site, time };
        let entry = match self.free.pop() {
            Some(entry) => {
                self.entries[entry as usize] = new;
                entry
            }
            None => {
                self.entries.push(new);
                self.entry_links.cover(self.entries.len() as u32 - 1);
                self.entries.len() as u32 - 1
            }
        };
        self.entry_of[block as usize] = entry;
        self.sites[site as usize]
            .tabled
            .push_front(&mut self.entry_links, entry);
    }

    /// A block in the table is accessed again: updates the counters of its site, and removes the
    /// entry.
    fn recur(&mut self, entry: u32, now: Tick) -> Stream {
        let HistoryEntry { site, time, .. } = self.entries[entry as usize];
        self.forget_entry(entry);
        let state = &mut self.sites[site as usize];
        let SiteCounters {
            sequential,
            looping,
            ..
        } = &mut state.counters;
        let returned = match self.config.counters {
            Counters::Weighted => self.config.sample,
            Counters::Samples | Counters::Literal => 1,
        };
        *sequential = sequential.saturating_sub(returned);
        *looping += returned;
        state.returned(now - time, now);
        state.stream(site)
    }
}

/// The class of a call site with these counts (the paper's figure 4, lines 19 to 24).
pub fn class(sequential: u64, looping: u64, threshold: u64) -> Class {
    if looping > sequential {
        Class::Looping
    } else if sequential >= threshold {
        Class::Sequential
    } else {
        Class::Other
    }
}

impl Classifier for Pcc {
    fn classify(&mut self, access: &Access) -> Classification {
        let (site, block) = (access.site.0, access.block.0);
        let revised = match *at_or_nil(&mut self.entry_of, block) {
            NIL => None,
            entry => Some(self.recur(entry, access.tick)),
        };
        let class = if at(&mut self.sites, site).known {
            self.recency.touch(&mut self.site_links, site);
            let SiteState {
                counters,
                until_sample,
                ..
            } = &mut self.sites[site as usize];
            if self.config.counters != Counters::Samples || *until_sample == 0 {
                counters.sequential += 1;
            }
            class(counters.sequential, counters.looping, self.config.threshold)
        } else {
            if self.recency.len() >= self.config.sites_max {
                self.evict_site();
            }
            self.enter_site(site).counters.sequential = 1;
            Class::Other
        };
        if self.sites[site as usize].until_sample == 0 {
            self.table(block, site, access.tick);
            self.sites[site as usize].until_sample = self.config.sample;
        }
        let state = &mut self.sites[site as usize];
        state.until_sample -= 1;
        Classification {
            class,
            stream: state.stream(site),
            revised: revised.filter(|stream| stream.id != site),
        }
    }

    fn sites(&self) -> Option<Vec<SiteRecord>> {
        let known = self
            .sites
            .iter()
            .enumerate()
            .filter(|(_, state)| state.known);
        Some(
            known
                .map(|(site, state)| SiteRecord {
                    site: Site(site as u32),
                    counters: state.counters,
                    steady_period: state.steady_period,
                })
                .collect(),
        )
    }

    fn check(&self) {
        self.recency.check(&self.site_links);
        assert!(self.recency.len() <= self.config.sites_max);
        let known = self.sites.iter().filter(|state| state.known).count();
        assert_eq!(known, self.recency.len());
        let mut tabled = 0;
        for (site, state) in self.sites.iter().enumerate() {
            state.tabled.check(&self.entry_links);
            assert!(
                state.known || state.tabled.is_empty(),
                "site {site} is forgotten, its blocks are not"
            );
            tabled += state.tabled.len();
            for entry in state.tabled.iter(&self.entry_links) {
                let HistoryEntry {
                    block, site: of, ..
                } = self.entries[entry as usize];
                assert_eq!(of as usize, site);
                assert_eq!(self.entry_of[block as usize], entry);
            }
        }
        assert!(tabled <= self.config.entries_max);
        assert_eq!(tabled, self.entries.len() - self.free.len());
        assert_eq!(
            tabled,
            self.entry_of.iter().filter(|&&entry| entry != NIL).count()
        );
    }
}

/// As [`at`], for a table whose empty element is [`NIL`].
#[inline]
fn at_or_nil(table: &mut Vec<u32>, index: u32) -> &mut u32 {
    let index = index as usize;
    if index >= table.len() {
        table.resize(index + 1, NIL);
    }
    &mut table[index]
}
