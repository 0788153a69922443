//! Twins of the classifiers, and worked examples.

use crate::traces::{Random, mixture};
use hither_core::classify::dear::{self, Dear};
use hither_core::classify::{Class, Classification, Classifier, Stream, pcc, ubm::Ubm};
use hither_core::spec::Value;
use hither_core::{Access, Block, Object, Site, Spec, Tick};
use std::collections::BTreeMap;

const COUNTERS: [pcc::Counters; 3] = [
    pcc::Counters::Weighted,
    pcc::Counters::Samples,
    pcc::Counters::Literal,
];

/// The twin of the classifier that `spec` uses.
pub(crate) fn naive(spec: &Spec) -> Box<dyn Classifier> {
    let count = |name: &str| match spec.params().find(|(param, _)| param.name == name) {
        Some((_, Value::Count(value))) => value,
        other => panic!("{name} is {other:?}"),
    };
    let name = |name: &str| match spec.value(name) {
        Some(Value::Name(value)) => value,
        other => panic!("{name} is {other:?}"),
    };
    match spec.entry().name {
        "pcc" => Box::new(NaivePcc {
            threshold: count("threshold"),
            sample: count("sample"),
            entries_max: count("entries") as usize,
            sites_max: count("sites") as usize,
            counters: name("counters"),
            sites: Vec::new(),
            table: Vec::new(),
            accesses: BTreeMap::new(),
        }),
        "ubm" => Box::new(NaiveUbm {
            threshold: count("threshold") as usize,
            files: BTreeMap::new(),
        }),
        "dear" => Box::new(NaiveDear {
            window: count("window") as usize,
            sublists: count("sublists") as usize,
            all_new: name("new_blocks") == "all",
            own_ages: name("ages") == "own",
            history: Vec::new(),
            windows: BTreeMap::new(),
        }),
        other => panic!("{other} has no classifier"),
    }
}

struct NaiveSite {
    site: u32,
    seq: u64,
    looping: u64,
    period: u64,
    /// When sampled blocks returned, and after how long: in the last complete round and in the
    /// current one.
    complete: Vec<(Tick, u64)>,
    current: Vec<(Tick, u64)>,
}

impl NaiveSite {
    fn collect(&mut self, now: Tick, interval: u64) {
        self.current.push((now, interval));
        let mean = total(&self.current) as f64 / self.current.len() as f64;
        if self.current.len() >= 16 && (now - self.current[0].0) as f64 >= mean {
            self.complete = std::mem::take(&mut self.current);
        }
    }

    fn steady_period(&self) -> u64 {
        let both = [&self.complete[..], &self.current].concat();
        if both.len() < 16 {
            return 0;
        }
        let (n, sum) = (both.len() as i128, i128::from(total(&both)));
        // n times each one's distance from the mean, squared, and their mean, again n times.
        let spread: i128 = both
            .iter()
            .map(|&(_, interval)| (n * i128::from(interval) - sum).pow(2))
            .sum();
        if 4 * spread <= n * sum.pow(2) {
            (sum / n) as u64
        } else {
            0
        }
    }
}

fn total(returns: &[(Tick, u64)]) -> u64 {
    returns.iter().map(|&(_, interval)| interval).sum()
}

/// PCC with sampling and bounds. The most recently used site and the latest entry come last.
struct NaivePcc {
    threshold: u64,
    sample: u64,
    entries_max: usize,
    sites_max: usize,
    counters: &'static str,
    sites: Vec<NaiveSite>,
    table: Vec<(Block, u32, Tick)>,
    /// Accesses of each site since it was entered.
    accesses: BTreeMap<u32, u64>,
}

impl NaivePcc {
    fn evict_site(&mut self) {
        let site = self.sites.remove(0).site;
        self.table.retain(|&(_, of, _)| of != site);
        self.accesses.remove(&site);
    }
}

impl Classifier for NaivePcc {
    fn classify(&mut self, access: &Access) -> Classification {
        let (now, id) = (access.tick, access.site.0);
        let mut revised = None;
        if let Some(at) = self
            .table
            .iter()
            .position(|&(block, ..)| block == access.block)
        {
            let (_, of, time) = self.table.remove(at);
            let owner = self
                .sites
                .iter_mut()
                .find(|site| site.site == of)
                .expect("its site is known");
            let returned = if self.counters == "weighted" {
                self.sample
            } else {
                1
            };
            owner.seq = owner.seq.saturating_sub(returned);
            owner.looping += returned;
            owner.period = if owner.period == 0 {
                now - time
            } else {
                (owner.period + now - time) / 2
            };
            owner.collect(now, now - time);
            revised = (of != id).then_some(Stream {
                id: of,
                period: owner.period,
                steady_period: owner.steady_period(),
            });
        }
        let mut class = Class::Other;
        if let Some(at) = self.sites.iter().position(|site| site.site == id) {
            let mut site = self.sites.remove(at);
            if self.counters != "samples" || self.accesses[&id].is_multiple_of(self.sample) {
                site.seq += 1;
            }
            if site.looping > site.seq {
                class = Class::Looping;
            } else if site.seq >= self.threshold {
                class = Class::Sequential;
            }
            self.sites.push(site);
        } else {
            if self.sites.len() == self.sites_max {
                self.evict_site();
            }
            self.sites.push(NaiveSite {
                site: id,
                seq: 1,
                looping: 0,
                period: 0,
                complete: Vec::new(),
                current: Vec::new(),
            });
        }
        let accesses = self.accesses.entry(id).or_insert(0);
        *accesses += 1;
        if (*accesses - 1).is_multiple_of(self.sample) {
            while self.table.len() == self.entries_max {
                if self.sites.len() == 1 {
                    self.table.remove(0);
                } else {
                    self.evict_site();
                }
            }
            self.table.push((access.block, id, now));
        }
        let site = self.sites.last().expect("the current site");
        Classification {
            class,
            stream: Stream {
                id,
                period: site.period,
                steady_period: site.steady_period(),
            },
            revised,
        }
    }

    fn check(&self) {}
}

#[derive(Default)]
struct NaiveFile {
    /// References of the current run, each with its time, the same block again left out.
    run: Vec<(u32, Tick)>,
    /// The longest run from this start.
    known: Vec<u32>,
    looping: bool,
    period: u64,
}

struct NaiveUbm {
    threshold: usize,
    files: BTreeMap<u32, NaiveFile>,
}

impl Classifier for NaiveUbm {
    fn classify(&mut self, access: &Access) -> Classification {
        let file = self.files.entry(access.object.0).or_default();
        let index = access.index;
        let start = file.run.first().copied();
        let last = file.run.last().map(|&(last, _)| last);
        if last == Some(index) {
        } else if last.is_some_and(|last| last + 1 == index) {
            file.run.push((index, access.tick));
            if !file.known.contains(&index) {
                file.known.push(index);
                file.looping = false;
            }
        } else if file.known.len() >= self.threshold && file.known[0] == index {
            file.looping = true;
            file.period = access.tick - start.expect("a known run has started").1;
            file.run = vec![(index, access.tick)];
        } else {
            *file = NaiveFile {
                run: vec![(index, access.tick)],
                known: vec![index],
                ..NaiveFile::default()
            };
        }
        Classification {
            class: match (file.looping, file.run.len() >= self.threshold) {
                (true, _) => Class::Looping,
                (false, true) => Class::Sequential,
                (false, false) => Class::Other,
            },
            stream: Stream {
                id: access.object.0,
                period: file.period,
                steady_period: file.period,
            },
            revised: None,
        }
    }

    fn check(&self) {}
}

struct NaiveDear {
    window: usize,
    sublists: usize,
    all_new: bool,
    own_ages: bool,
    /// All references so far: when, to what, by which process.
    history: Vec<(Tick, Block, u32)>,
    /// Of each process: the current window, the class, the period.
    windows: BTreeMap<u32, (Vec<Tick>, Class, u64)>,
}

impl Classifier for NaiveDear {
    fn classify(&mut self, access: &Access) -> Classification {
        let process = access.process.0;
        self.history.push((access.tick, access.block, process));
        let (window, class, period) =
            self.windows
                .entry(process)
                .or_insert((Vec::new(), Class::Other, 0));
        window.push(access.tick);
        if window.len() == self.window {
            let start = window[0];
            let (mut fresh, mut pairs) = (0, Vec::new());
            for &tick in window.iter() {
                let at = self
                    .history
                    .iter()
                    .position(|&(time, ..)| time == tick)
                    .expect("it was made");
                let block = self.history[at].1;
                match self.history[..at]
                    .iter()
                    .rev()
                    .find(|&&(_, other, by)| other == block && (!self.own_ages || by == process))
                {
                    None => fresh += 1,
                    Some(&(last, ..)) if last < start => pairs.push((start - last, tick - start)),
                    Some(_) => {}
                }
            }
            pairs.sort();
            let n = pairs.len();
            let sequential = if self.all_new {
                n == 0 && fresh > 0
            } else {
                fresh > n
            };
            if sequential {
                *class = Class::Sequential;
            } else if n >= self.sublists {
                let means: Vec<f64> = (0..self.sublists)
                    .map(|k| {
                        let part = &pairs[k * n / self.sublists..(k + 1) * n / self.sublists];
                        part.iter().map(|pair| pair.1).sum::<u64>() as f64 / part.len() as f64
                    })
                    .collect();
                let falls = means.windows(2).all(|pair| pair[0] > pair[1]);
                *class = if falls { Class::Looping } else { Class::Other };
                *period = pairs.iter().map(|pair| pair.0 + pair.1).sum::<u64>() / n as u64;
            } else if n > 0 {
                *class = Class::Other;
            }
            window.clear();
        }
        Classification {
            class: *class,
            stream: Stream {
                id: access.process.0,
                period: *period,
                steady_period: *period,
            },
            revised: None,
        }
    }

    fn check(&self) {}
}

#[test]
fn classifiers_equal_their_twins() {
    for seed in 1..=1000 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let trace = mixture(&mut random);
        let mut below = |bound| 1 + random.below(bound);
        let config = pcc::Config {
            threshold: below(12),
            sample: below(4),
            entries_max: below(40) as usize,
            sites_max: below(6) as usize,
            counters: COUNTERS[below(3) as usize - 1],
        };
        let dear = dear::Config {
            window: 1 + below(30),
            sublists: 1 + below(4) as usize,
            all_new: below(2) == 2,
            own_ages: below(2) == 2,
        };
        let run = below(6);
        let pairs: [(Box<dyn Classifier>, String); 3] = [
            (
                Box::new(pcc::Pcc::new(config, &[])),
                format!(
                    "pcc{{threshold={},sample={},entries={},sites={},counters={}}}",
                    config.threshold,
                    config.sample,
                    config.entries_max,
                    config.sites_max,
                    pcc::Counters::NAMES[config.counters as usize],
                ),
            ),
            (
                Box::new(Ubm::new(run as u32)),
                format!("ubm{{threshold={run}}}"),
            ),
            (
                Box::new(Dear::new(dear)),
                format!(
                    "dear{{window={},sublists={},new_blocks={},ages={}}}",
                    dear.window,
                    dear.sublists,
                    if dear.all_new { "all" } else { "most" },
                    if dear.own_ages { "own" } else { "any" },
                ),
            ),
        ];
        for (mut ours, text) in pairs {
            println!("  {text}");
            let mut twin = naive(&text.parse().expect("a valid policy"));
            for access in &trace {
                assert_eq!(
                    ours.classify(access),
                    twin.classify(access),
                    "tick {}",
                    access.tick
                );
                ours.check();
            }
        }
    }
}

/// Figure 4 of the PCC paper, line by line, over a block table without bounds. As section 4.2 says,
/// every T-th access of a PC is recorded in the table, and a block that is accessed again is
/// discarded from it after the update. With T = 1 that is the figure itself.
struct Figure4 {
    threshold: u64,
    sample: u64,
    /// Block: last PC, time.
    blocks: BTreeMap<Block, (Site, Tick)>,
    /// PC: Seq, Loop, Period.
    pcs: BTreeMap<Site, (u64, u64, u64)>,
    /// PC: its accesses.
    accesses: BTreeMap<Site, u64>,
}

impl Figure4 {
    fn new(threshold: u64, sample: u64) -> Self {
        Figure4 {
            threshold,
            sample,
            blocks: BTreeMap::new(),
            pcs: BTreeMap::new(),
            accesses: BTreeMap::new(),
        }
    }

    fn pcc(&mut self, pc: Site, block: Block, time: Tick) -> (Class, u64) {
        if let Some((last_pc, last_time)) = self.blocks.remove(&block) {
            let (seq, looping, period) = self.pcs.get_mut(&last_pc).expect("line 3: it must exist");
            *seq -= 1;
            *looping += 1;
            let sample = time - last_time;
            *period = if *period == 0 {
                sample
            } else {
                (*period + sample) / 2
            };
        }
        let result = match self.pcs.get_mut(&pc) {
            None => {
                self.pcs.insert(pc, (1, 0, 0));
                (Class::Other, 0)
            }
            Some((seq, looping, period)) => {
                *seq += 1;
                let class = if *looping > *seq {
                    Class::Looping
                } else if *seq >= self.threshold {
                    Class::Sequential
                } else {
                    Class::Other
                };
                (class, *period)
            }
        };
        let accesses = self.accesses.entry(pc).or_insert(0);
        if accesses.is_multiple_of(self.sample) {
            self.blocks.insert(block, (pc, time));
        }
        *accesses += 1;
        result
    }
}

/// Paper mode without sampling, by each reading of the counters, and the literal one with sampling.
#[test]
fn pcc_is_figure_4() {
    for seed in 1..=1000 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let trace = mixture(&mut random);
        let (threshold, sample) = (1 + random.below(20), 1 + random.below(4));
        let mut runs = vec![(sample, pcc::Counters::Literal)];
        runs.extend(COUNTERS.map(|counters| (1, counters)));
        for (sample, counters) in runs {
            let mut figure = Figure4::new(threshold, sample);
            let mut ours = unbounded(threshold, sample, counters);
            for access in &trace {
                let verdict = ours.classify(access);
                let expected = figure.pcc(access.site, access.block, access.tick);
                assert_eq!(
                    (verdict.class, verdict.stream.period),
                    expected,
                    "tick {}",
                    access.tick
                );
            }
        }
    }
}

/// The literal reading of figure 4 under sampling finds no loop, in traces that are nothing else.
#[test]
fn figure_4_finds_no_loop_under_sampling() {
    let accesses = |rounds: u64| {
        (0..100 * rounds).map(|tick| Access {
            site: Site(1),
            ..Access::bare(tick, Block((tick % 100) as u32))
        })
    };
    for sample in [2, 20] {
        for (counters, loops) in COUNTERS.into_iter().zip([true, true, false]) {
            let mut pcc = unbounded(10, sample, counters);
            let letters = letters(&mut pcc, accesses(20));
            assert_eq!(letters.contains('l'), loops, "{sample}, {counters:?}");
            assert_eq!(letters.ends_with('l'), loops, "{sample}, {counters:?}");
        }
    }
}

fn unbounded(threshold: u64, sample: u64, counters: pcc::Counters) -> pcc::Pcc {
    let config = pcc::Config {
        threshold,
        sample,
        entries_max: 1 << 20,
        sites_max: 1 << 20,
        counters,
    };
    pcc::Pcc::new(config, &[])
}

/// A letter an access: s, l or o.
fn letters(classifier: &mut dyn Classifier, accesses: impl IntoIterator<Item = Access>) -> String {
    accesses
        .into_iter()
        .map(|access| match classifier.classify(&access).class {
            Class::Sequential => 's',
            Class::Looping => 'l',
            Class::Other => 'o',
        })
        .collect()
}

/// Figure 5 of the PCC paper: threshold 3; PC1 reads a file twice, PC2 another one once in between,
/// PC3 then reads the first file.
#[test]
fn pcc_figure_5() {
    let mut tick = 0;
    let mut read = |site: u32, blocks: std::ops::Range<u32>| -> Vec<Access> {
        blocks
            .map(|block| {
                tick += 1;
                Access {
                    site: Site(site),
                    ..Access::bare(tick - 1, Block(block))
                }
            })
            .collect()
    };
    let mut pcc = unbounded(3, 1, pcc::Counters::Weighted);
    // The first two are other, as the third reaches the threshold.
    assert_eq!(letters(&mut pcc, read(1, 0..8)), "oossssss");
    assert_eq!(letters(&mut pcc, read(2, 100..106)), "oossss");
    // Each return moves one block from Seq to Loop and adds the access itself to Seq, which so
    // stays at 8: the ninth return, in the round after, is the first to tip it. From there PC1
    // loops for good, also over new files.
    assert_eq!(letters(&mut pcc, read(1, 0..8)), "ssssssss");
    assert_eq!(letters(&mut pcc, read(1, 0..8)), "llllllll");
    assert_eq!(letters(&mut pcc, read(1, 200..203)), "lll");
    // PC3 is new; the blocks that it takes over were PC1's, whose class remains.
    assert_eq!(letters(&mut pcc, read(3, 0..8)), "oossssss");
    assert_eq!(letters(&mut pcc, read(1, 300..302)), "ll");
    let period = pcc.sites().expect("pcc knows sites")[0].counters.period;
    assert!((8..=14).contains(&period), "{period}");
}

/// Hand-worked: UBM on one file with threshold 3.
#[test]
fn ubm_by_hand() {
    let mut ubm = Ubm::new(3);
    let mut tick = 0;
    let mut read = |indices: &[u32]| {
        let accesses: Vec<Access> = indices
            .iter()
            .map(|&index| {
                tick += 1;
                Access {
                    object: Object(4),
                    index,
                    ..Access::bare(tick - 1, Block(index))
                }
            })
            .collect();
        letters(&mut ubm, accesses)
    };
    assert_eq!(read(&[0, 1, 2, 3]), "ooss");
    assert_eq!(
        read(&[0, 1, 1, 2, 3]),
        "lllll",
        "the second round; the same block again changes nothing"
    );
    assert_eq!(read(&[0, 1]), "ll");
    assert_eq!(read(&[0, 1, 2, 3]), "llll", "a round cut short is a round");
    assert_eq!(read(&[4, 5]), "ss", "beyond what was seen");
    assert_eq!(read(&[0, 1, 2, 3, 4, 5]), "llllll");
    assert_eq!(read(&[9, 10, 11]), "oos", "a break");
    assert_eq!(read(&[0, 1]), "oo", "and the old loop is forgotten");
}
