//! Shuffled epochs: a program reads each record once an epoch, in another order each time. What it
//! has not read yet in this epoch comes before the rest, so the optimum keeps that. From the second
//! epoch on, the optimum misses as many blocks as do not fit.

use hither_core::classify::{Classifier, SiteCounters, SiteRecord, pcc};
use hither_core::random::mix;
use hither_core::registry::ReplacementSettings;
use hither_core::{Access, Block, Residency, Site, Spec};

const SITE: Site = Site(1);

fn epochs(epochs: u64, records: u32, blocks_a_record: u32) -> Vec<Access> {
    let mut order: Vec<u32> = (0..records).collect();
    let mut trace = Vec::new();
    for epoch in 0..epochs {
        order.sort_by_key(|&record| mix(epoch << 32 | u64::from(record)));
        for record in &order {
            for block in record * blocks_a_record..(record + 1) * blocks_a_record {
                trace.push(Access {
                    site: SITE,
                    ..Access::bare(trace.len() as u64, Block(block))
                });
            }
        }
    }
    trace
}

fn pcc(sites: &[SiteRecord]) -> pcc::Pcc {
    let config = pcc::Config {
        threshold: 100,
        sample: 20,
        entries_max: 1 << 16,
        sites_max: 1 << 12,
        counters: pcc::Counters::Weighted,
    };
    pcc::Pcc::new(config, sites)
}

fn steady_period(trace: &[Access]) -> u64 {
    let mut pcc = pcc(&[]);
    for access in trace {
        pcc.classify(access);
    }
    pcc.sites().expect("pcc knows sites")[0].steady_period
}

#[test]
fn pcc_misses_what_does_not_fit() {
    let spec: Spec = "pcc".parse().expect("valid");
    for (records, blocks_a_record) in [(1000, 1), (2000, 1), (100, 8), (600, 8)] {
        let trace = epochs(6, records, blocks_a_record);
        let blocks = records * blocks_a_record;
        for capacity in [blocks / 10, blocks / 4, blocks / 2, blocks * 4 / 5] {
            let mut policy = spec.build(&ReplacementSettings::new(capacity));
            let mut cache = Residency::new(capacity, blocks as usize);
            policy.drive(&mut cache, &trace);
            let optimum = u64::from(blocks + 5 * (blocks - capacity));
            assert!(
                cache.misses() <= optimum + optimum / 50,
                "{records} records of {blocks_a_record}, {capacity} blocks: {} misses, {optimum}",
                cache.misses()
            );
        }
    }
}

#[test]
fn epochs_and_loops_are_steady_and_random_references_are_not() {
    let period = steady_period(&epochs(6, 1000, 1));
    assert!((900..1100).contains(&period), "{period}");
    let read = |block: fn(u64) -> u64| -> Vec<Access> {
        (0..10_000)
            .map(|tick| Access::bare(tick, Block(block(tick) as u32)))
            .collect()
    };
    assert_eq!(steady_period(&read(|tick| tick % 1000)), 1000);
    assert_eq!(steady_period(&read(|tick| mix(tick) % 1000)), 0);
}

#[test]
fn a_classifier_that_starts_trained_knows_the_steady_period() {
    let record = SiteRecord {
        site: SITE,
        counters: SiteCounters {
            sequential: 0,
            looping: 1000,
            period: 300,
        },
        steady_period: 1000,
    };
    let mut pcc = pcc(&[record]);
    assert_eq!(pcc.sites(), Some(vec![record]));
    // Blocks that return much sooner: no longer a steady site.
    for access in &epochs(40, 20, 1) {
        pcc.classify(access);
        pcc.check();
    }
    let sites = pcc.sites().expect("pcc knows sites");
    assert!(sites[0].steady_period < 100, "{:?}", sites[0]);
}
