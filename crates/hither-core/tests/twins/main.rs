//! Every policy and classifier against a naive twin: the same rules in the fewest words, without
//! any clever structure, over a thousand random traces. Twins agree on every hit and on every
//! evicted block; invariants are walked after every access; no policy beats the optimum.
//!
//! A failure shows the seed of its trace in the captured output.

mod classifiers;
mod clock_pro;
mod density;
mod experts;
mod frequency;
mod history;
mod lirs;
mod majority;
mod partition;
mod plain;
mod queues;
mod regions;
mod segments;
mod sieve;
mod sized;
mod traces;
mod upm;
mod values;

use frequency::{NaiveLfu, NaiveTinyLfu};
use hither_core::registry::{self, ReplacementSettings};
use hither_core::{Access, AccessResult, Block, Residency, Spec};
use partition::NaivePartition;
use plain::{NaiveArc, NaiveList, NaiveOpt};
use queues::{NaiveClock, NaiveRandom, NaiveS3Fifo, NaiveTwoQ, S3_FIFO, S3FifoRules};
use segments::NaiveSlru;
use traces::Random;
use values::{NaiveAging, NaiveHyperbolic, NaiveLfuDaByAge};

const TRACES: u64 = 1000;

/// A cache in the fewest words.
pub(crate) trait Twin {
    /// Whether the block was in, and the block that had to go.
    fn access(&mut self, access: &Access) -> (bool, Option<Block>);
    fn remove(&mut self, block: Block);
}

/// `part` of `capacity`, but at least one.
pub(crate) fn share(capacity: usize, part: f64) -> usize {
    ((capacity as f64 * part) as usize).max(1)
}

/// The policies that a trace is run through, each with its twin if there is one for these
/// parameters.
fn contestants(capacity: u32, random: &mut Random) -> Vec<(Spec, Option<Box<dyn Twin>>)> {
    let size = capacity as usize;
    let mut list: Vec<(Spec, Option<Box<dyn Twin>>)> = vec![
        (
            spec("lru"),
            Some(Box::new(NaiveList::new(size, true, true))),
        ),
        (
            spec("fifo"),
            Some(Box::new(NaiveList::new(size, false, true))),
        ),
        (
            spec("mru"),
            Some(Box::new(NaiveList::new(size, true, false))),
        ),
        (spec("arc"), Some(Box::new(NaiveArc::new(size)))),
        (spec("opt"), Some(Box::new(NaiveOpt::new(size)))),
        (spec("sieve"), Some(Box::new(sieve::NaiveSieve::new(size)))),
        (spec("lfu"), Some(Box::new(NaiveLfu::new(size)))),
    ];
    list.extend(parametrised(size, random));
    list.extend(history::contestants(size, random));
    list.extend(regions::contestants(size, random));
    let sample = 1 + random.below(4);
    let threshold = 1 + random.below(12);
    let entries = 1 + random.below(40);
    let sites = 1 + random.below(6);
    let window = 2 + random.below(30);
    let sublists = 2 + random.below(4);
    let rules = partition::rules(random);
    let counters = ["weighted", "samples", "literal"][random.below(3) as usize];
    let new_blocks = ["most", "all"][random.below(2) as usize];
    let ages = ["any", "own"][random.below(2) as usize];
    let dear = format!("window={window},sublists={sublists}");
    let bounds = format!("sample={sample},entries={entries},sites={sites}");
    for text in [
        format!("pcc{{threshold={threshold},{bounds},counters={counters},{rules}}}"),
        format!("pcc{{threshold={threshold},{bounds},as=paper}}"),
        format!("pcc{{sample=1,threshold={threshold},{rules}}}"),
        format!("ubm{{threshold={threshold},{rules}}}"),
        format!("ubm{{threshold={threshold},as=paper}}"),
        format!("dear{{{dear},new_blocks={new_blocks},ages={ages},{rules}}}"),
        format!("dear{{{dear},as=paper}}"),
    ] {
        let spec = spec(&text);
        let twin = NaivePartition::new(size, classifiers::naive(&spec), &spec);
        list.push((spec, Some(Box::new(twin))));
    }
    let others: Vec<&str> = registry::replacement_policies()
        .iter()
        .filter(|entry| entry.needs.nothing())
        .map(|entry| entry.name)
        .collect();
    let other = others[random.below(others.len() as u64) as usize];
    list.push((
        spec(&format!(
            "pcc{{sample={sample},threshold={threshold},other={other}}}"
        )),
        None,
    ));
    list.push((spec(&format!("ubm{{other={other}}}")), None));
    list.extend(web(size, random));
    list
}

/// Those that have parameters, with drawn ones and with the defaults.
fn parametrised(size: usize, random: &mut Random) -> Vec<(Spec, Option<Box<dyn Twin>>)> {
    let share = [0.0, 0.01, 0.1, 0.3, 0.8, 1.0][random.below(6) as usize];
    let ghosts = [0.0, 0.2, 1.0, 2.5][random.below(4) as usize];
    let (count, seed) = (1 + random.below(4), random.below(1 << 20));
    let bits = count - 1;
    let (clock, rand) = (
        |bits| Some(Box::new(NaiveClock::new(size, bits)) as Box<dyn Twin>),
        Some(Box::new(NaiveRandom::new(size, seed)) as Box<dyn Twin>),
    );
    let s3 = |small, ghost, rules| {
        Some(Box::new(NaiveS3Fifo::new(size, small, ghost, rules)) as Box<dyn Twin>)
    };
    let drawn = S3FifoRules {
        threshold: count,
        rounds: 1 + random.below(4),
        window: [0.0, 0.5, 1.0][random.below(3) as usize],
        history: [0.0, 0.1, 1.0][random.below(3) as usize],
    };
    let (rounds, window, history) = (drawn.rounds, drawn.window, drawn.history);
    let two_q = |kin, kout| Some(Box::new(NaiveTwoQ::new(size, kin, kout)) as Box<dyn Twin>);
    let tiny = |window, protected, sample| {
        Some(Box::new(NaiveTinyLfu::new(size, window, protected, sample)) as Box<dyn Twin>)
    };
    vec![
        (spec(&format!("clock{{bits={bits}}}")), clock(bits)),
        (spec("clock"), clock(1)),
        (spec(&format!("random{{seed={seed}}}")), rand),
        (
            spec(&format!(
                "s3-fifo{{small={share},ghost={ghosts},threshold={count},rounds={rounds},\
                 window={window},history={history}}}"
            )),
            s3(share, ghosts, drawn),
        ),
        (spec("s3-fifo"), s3(0.1, 0.9, S3_FIFO)),
        (
            spec(&format!("2q{{in={share},out={ghosts}}}")),
            two_q(share, ghosts),
        ),
        (spec("2q"), two_q(0.25, 0.5)),
        (
            spec(&format!(
                "w-tinylfu{{window={share},protected={share},sample={count}}}"
            )),
            tiny(share, share, count),
        ),
        (spec("w-tinylfu"), tiny(0.01, 0.8, 10)),
        (
            spec(&format!(
                "w-tinylfu{{window={share},sample={count},climb=1}}"
            )),
            Some(Box::new(
                NaiveTinyLfu::new(size, share, 0.8, count).climbing(),
            )),
        ),
    ]
}

/// Those of caches of objects, which are also run here, over blocks of one size.
fn web(size: usize, random: &mut Random) -> Vec<(Spec, Option<Box<dyn Twin>>)> {
    let (segments, lowest) = (1 + random.below(5), random.below(2) == 1);
    let newcomers = ["room", "lowest"][usize::from(lowest)];
    let (samples, seed) = (1 + random.below(20), random.below(1 << 20));
    let cold = [0.0, 0.1, 0.5, 1.0][random.below(4) as usize];
    let rate = [0.0, 0.45, 5.0][random.below(3) as usize];
    let (period, ages) = (1 + random.below(40), 2 + random.below(40));
    let lhd = density::NaiveLhd::new(size, samples, period, ages as usize, seed);
    let lhd_text = format!("samples={samples},period={period},ages={ages},seed={seed}");
    let slru = |segments, lowest| Box::new(NaiveSlru::new(size, segments, lowest)) as Box<dyn Twin>;
    let hyperbolic =
        |samples, seed| Box::new(NaiveHyperbolic::new(size, samples, seed)) as Box<dyn Twin>;
    vec![
        (spec("slru"), Some(slru(4, false))),
        (
            spec(&format!(
                "slru{{segments={segments},newcomers={newcomers}}}"
            )),
            Some(slru(segments as usize, lowest)),
        ),
        (
            spec("gdsf"),
            Some(Box::new(NaiveAging::new(size, |access| {
                f64::from(access.cost) * 1e6 / access.bytes as f64
            }))),
        ),
        (
            spec("lfu-da"),
            Some(Box::new(NaiveAging::new(size, |_| 1.0))),
        ),
        (
            spec("lfu-da{hits=age}"),
            Some(Box::new(NaiveLfuDaByAge::new(size))),
        ),
        (spec(&format!("lhd{{{lhd_text}}}")), Some(Box::new(lhd))),
        (
            spec(&format!("lecar{{rate={rate},seed={seed}}}")),
            Some(Box::new(experts::NaiveLeCaR::new(size, rate, seed))),
        ),
        (
            spec(&format!("clock-pro{{cold={cold}}}")),
            Some(Box::new(clock_pro::NaiveClockPro::new(size, cold))),
        ),
        // All blocks cost the same.
        (
            spec("camp"),
            Some(Box::new(NaiveList::new(size, true, true))),
        ),
        (spec("hyperbolic"), Some(hyperbolic(64, 1))),
        (
            spec(&format!("hyperbolic{{samples={samples},seed={seed}}}")),
            Some(hyperbolic(samples, seed)),
        ),
    ]
}

fn spec(text: &str) -> Spec {
    text.parse().expect("a valid policy")
}

#[test]
fn a_thousand_random_traces() {
    for seed in 1..=TRACES {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let trace = traces::mixture(&mut random);
        let capacity = 1 + random.below(if seed % 3 == 0 { 4 } else { 60 }) as u32;
        // With removals the optimum is none: it does not know of them.
        let removals = seed % 2 == 0;
        let mut hits = Vec::new();
        for (spec, mut twin) in contestants(capacity, &mut random) {
            println!("  {spec}, {capacity} blocks");
            let mut policy = spec.build(&ReplacementSettings::new(capacity));
            let mut cache = Residency::new(capacity, 0);
            let mut removing = Random::new(seed);
            let exact = spec.entry().name != "opt";
            for access in &trace {
                if removals && removing.below(20) == 0 {
                    let block = Block(removing.below(80) as u32);
                    cache.remove(policy.as_mut(), block);
                    policy.check(cache.len());
                    twin.iter_mut().for_each(|twin| twin.remove(block));
                }
                let served = cache.access(policy.as_mut(), access);
                policy.check(cache.len());
                cache.check();
                if let Some(twin) = &mut twin {
                    let (hit, evicted) = twin.access(access);
                    assert_eq!(served == AccessResult::Hit, hit, "tick {}", access.tick);
                    if let AccessResult::Miss { evicted: ours } = served {
                        assert!(
                            !exact || ours == evicted,
                            "tick {}: {ours:?}, {evicted:?}",
                            access.tick
                        );
                    }
                }
            }
            assert_eq!(cache.hits() + cache.misses(), trace.len() as u64);
            hits.push((cache.hits(), spec));
        }
        let bound = hits
            .iter()
            .find(|(_, spec)| spec.entry().name == "opt")
            .expect("opt runs")
            .0;
        for (hits, spec) in hits {
            assert!(
                removals || hits <= bound,
                "{spec} has {hits} hits, the optimum {bound}"
            );
        }
    }
}

#[test]
fn every_policy_has_a_twin() {
    let with: Vec<&str> = contestants(1, &mut Random::new(1))
        .iter()
        .filter(|(_, twin)| twin.is_some())
        .map(|(spec, _)| spec.entry().name)
        .collect();
    for entry in registry::replacement_policies() {
        assert!(with.contains(&entry.name), "{} has none", entry.name);
    }
}
