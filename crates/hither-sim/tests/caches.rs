//! The engine from outside: counts, determinism over threads, errors, progress and cancellation.

use hither_core::registry::Needs;
use hither_core::{Access, Block, Site, Spec};
use hither_sim::references::InMemory;
use hither_sim::{CacheConfiguration, CacheOptions, Error, Segment, misses_by_site, run};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn looping(blocks: u32, references: u64) -> InMemory {
    let accesses = (0..references)
        .map(|tick| Access::bare(tick, Block((tick % u64::from(blocks)) as u32)))
        .collect();
    InMemory::new(accesses, Needs::default())
}

fn configurations(specs: &str, sizes: &[u32]) -> Vec<CacheConfiguration> {
    let specs = <Spec>::parse_list(specs).expect("valid policies");
    specs
        .iter()
        .flat_map(|&spec| {
            sizes
                .iter()
                .map(move |&cache_blocks| CacheConfiguration { spec, cache_blocks })
        })
        .collect()
}

#[test]
fn a_loop_larger_than_the_cache() {
    let trace = looping(100, 100_000);
    let outcomes = run(
        &trace,
        &configurations("lru,mru,opt", &[50, 100]),
        &CacheOptions::default(),
    )
    .expect("nothing is lacking");
    let hits: Vec<u64> = outcomes.iter().map(|outcome| outcome.hits).collect();
    // LRU has no hits. The optimum keeps 49 of 99 others over each round.
    assert_eq!(hits[0], 0);
    assert_eq!(hits[1], 99_900);
    assert_eq!(hits[3], 99_900);
    assert_eq!(hits[5], 99_900);
    assert_eq!(hits[4], hits[2], "MRU is the optimum for a loop");
    assert!((0.48..0.51).contains(&outcomes[4].hit_ratio));
    for outcome in &outcomes {
        assert_eq!(outcome.hits + outcome.misses, outcome.accesses);
        assert_eq!(outcome.accesses, 100_000);
    }
}

#[test]
fn the_json_of_a_result() {
    let outcomes = run(
        &looping(3, 6),
        &configurations("lru", &[3]),
        &CacheOptions::default(),
    );
    let json = serde_json::to_string(&outcomes.expect("lru needs nothing")[0]).expect("plain data");
    assert_eq!(
        json,
        concat!(
            r#"{"policy":"lru","params":{},"cache_blocks":3,"accesses":6,"hits":3,"misses":3,"#,
            r#""hit_ratio":0.5,"classes":{}}"#
        )
    );
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let trace = looping(977, 60_000);
    let configurations = configurations("lru,fifo,mru,arc,opt", &[1, 10, 500]);
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        pool.install(|| run(&trace, &configurations, &CacheOptions::default()).expect("it runs"))
    };
    let alone = on(1);
    assert_eq!(alone, on(2));
    assert_eq!(alone, on(7));
}

#[test]
fn empty_traces_are_fine_and_empty_caches_are_not() {
    let empty = InMemory::new(Vec::new(), Needs::default());
    let outcomes = run(
        &empty,
        &configurations("lru,opt,arc", &[5]),
        &CacheOptions::default(),
    );
    assert!(
        outcomes
            .expect("an empty trace")
            .iter()
            .all(|outcome| outcome.accesses == 0)
    );
    let refused = run(
        &empty,
        &configurations("lru", &[0]),
        &CacheOptions::default(),
    );
    assert!(matches!(refused, Err(Error::NoRoom { policy: "lru" })));
}

#[test]
fn progress_and_cancelling() {
    let trace = looping(10, 50_000);
    let seen = AtomicU64::new(0);
    let cancel = AtomicBool::new(false);
    let options = CacheOptions {
        progress: Some(&|done| {
            seen.store(done, Ordering::Relaxed);
            cancel.store(done > 20_000, Ordering::Relaxed);
        }),
        cancel: Some(&cancel),
        ..CacheOptions::default()
    };
    assert!(matches!(
        run(&trace, &configurations("lru", &[5]), &options),
        Err(Error::Cancelled)
    ));
    assert!((20_000..50_000).contains(&seen.load(Ordering::Relaxed)));
}

#[test]
fn a_policy_whose_needs_the_trace_lacks_is_refused() {
    let trace = looping(10, 100);
    let refused = |policy: &str| {
        run(
            &trace,
            &configurations(policy, &[5]),
            &CacheOptions::default(),
        )
        .expect_err("a trace of bare blocks lacks it")
        .to_string()
    };
    assert_eq!(
        refused("lru,pcc"),
        "policy `pcc` needs call sites, which this trace does not have; `hither record` makes \
         traces that have them, \
         and `ubm` does without"
    );
    assert!(refused("ubm").contains("needs files and positions in them"));
    assert!(refused("dear").contains("needs processes"));
}

#[test]
fn classes_are_counted_and_parameters_written_out() {
    let accesses = (0..3000)
        .map(|tick| Access::bare(tick, Block((tick % 100) as u32)))
        .collect();
    let knows = Needs {
        objects: true,
        ..Needs::default()
    };
    let trace = InMemory::new(accesses, knows);
    let outcomes = run(
        &trace,
        &configurations("ubm", &[50]),
        &CacheOptions::default(),
    );
    let outcome = &outcomes.expect("ubm needs objects only")[0];
    let json = serde_json::to_value(outcome).expect("plain data");
    assert_eq!(
        json["params"],
        serde_json::json!({
            "threshold": 3, "expire": 2.0, "steady": 1, "periods": "power",
            "period_of": "stream", "gain": "segments", "sequential": "keep",
            "mapped": "classified", "other": "lru", "as": "hither",
        })
    );
    assert_eq!(
        json["classes"],
        serde_json::json!({"sequential": 98, "looping": 2900, "other": 2})
    );
    // Each round but the first keeps all but one of its 50 blocks.
    assert!(outcome.hits >= 29 * 49, "{}", outcome.hits);
}

/// Hits by segment equal the total hits at the end of each segment, for caches and all kinds of
/// stacks, and counting them changes no other result.
#[test]
fn hits_by_stretch_add_up() {
    let blocks = |tick: u64| if tick < 20_000 { tick % 700 } else { tick % 90 };
    let accesses = (0..50_021).map(|tick| Access::bare(tick, Block(blocks(tick) as u32)));
    let accesses: Vec<Access> = accesses.collect();
    let whole = InMemory::new(accesses.clone(), Needs::default());
    // Five sizes of lru and twelve of opt use a stack; two of opt and one of arc do not.
    for (specs, sizes) in [
        ("lru", &[10, 50, 100, 500, 800][..]),
        ("lru,arc,opt", &[80, 600]),
        ("opt", &[1, 2, 3, 5, 8, 13, 50, 80, 100, 200, 500, 900]),
    ] {
        let configurations = configurations(specs, sizes);
        let options = CacheOptions {
            segments: 7,
            ..CacheOptions::default()
        };
        let outcomes = run(&whole, &configurations, &options).expect("nothing is lacking");
        let plain = run(&whole, &configurations, &CacheOptions::default()).expect("the same");
        for (outcome, plain) in outcomes.iter().zip(&plain) {
            assert_eq!((outcome.hits, outcome.misses), (plain.hits, plain.misses));
            assert_eq!((outcome.segments.len(), plain.segments.len()), (7, 0));
            let sum = |of: fn(&Segment) -> u64| outcome.segments.iter().map(of).sum::<u64>();
            assert_eq!(sum(|stretch| stretch.accesses), 50_021);
            assert_eq!(sum(|stretch| stretch.hits), outcome.hits);
        }
        // The first three on their own.
        let first = InMemory::new(accesses[..50_021 * 3 / 7].to_vec(), Needs::default());
        let first = run(&first, &configurations, &CacheOptions::default()).expect("the same");
        for (outcome, first) in outcomes.iter().zip(&first) {
            let hits: u64 = outcome.segments[..3]
                .iter()
                .map(|stretch| stretch.hits)
                .sum();
            assert_eq!(hits, first.hits, "{}", outcome.spec);
        }
    }
    let short = run(
        &looping(2, 3),
        &configurations("lru", &[2]),
        &CacheOptions {
            segments: 16,
            ..CacheOptions::default()
        },
    );
    let short = &short.expect("nothing is lacking")[0].segments;
    assert_eq!(
        short
            .iter()
            .map(|stretch| (stretch.accesses, stretch.hits))
            .collect::<Vec<_>>(),
        [(1, 0), (1, 0), (1, 1)]
    );
}

/// The misses of all call sites are those of the cache; each is counted where it was made.
#[test]
fn misses_are_counted_by_call_site() {
    // Site 2 reads a few blocks again and again, site 0 scans between.
    let accesses = (0..10_000u32).map(|tick| {
        let (site, block) = match tick % 4 {
            0 => (0, 100 + tick),
            _ => (2, tick % 7),
        };
        Access {
            site: Site(site),
            ..Access::bare(tick.into(), Block(block))
        }
    });
    let knows = Needs {
        sites: true,
        objects: true,
        ..Needs::default()
    };
    let trace = InMemory::new(accesses.collect(), knows);
    for cache in configurations("lru,arc,pcc,opt", &[5, 50]) {
        let options = CacheOptions::default();
        let misses = misses_by_site(&trace, cache, &options).expect("nothing is lacking");
        let outcome = &run(&trace, &[cache], &options).expect("nothing is lacking")[0];
        assert_eq!(misses.iter().sum::<u64>(), outcome.misses, "{}", cache.spec);
        assert_eq!(
            (misses.len(), misses[0], misses[1]),
            (3, 2500, 0),
            "{}",
            cache.spec
        );
        assert!(
            cache.cache_blocks == 5 || misses[2] <= 14,
            "{}: {misses:?}",
            cache.spec
        );
    }
}
