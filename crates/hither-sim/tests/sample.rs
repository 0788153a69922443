//! Simulation of samples: close to the whole trace, with a correct error.

use std::path::Path;

use hither_generate::Workload;
use hither_sim::{CacheConfiguration, CacheOptions, CacheOutcome, run};
use hither_trace::{LoadOptions, Sample, Trace, TraceBuilder};

/// 400,000 references to about 40,000 blocks, some much more popular than others, with occasional
/// scans.
fn trace(sample: Sample) -> Trace {
    let options = LoadOptions {
        sample,
        ..LoadOptions::DEFAULT
    };
    let mut builder = TraceBuilder::new("made up", &options).unwrap();
    let mut state = 11u64;
    for tick in 0..400_000u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 33) as f64 / 2f64.powi(31);
        let block = match tick % 50_000 {
            0..5000 => 100_000 + tick % 50_000,
            _ => (40_000f64.powf(uniform)) as u64,
        };
        builder.block(block).unwrap();
    }
    builder.finish().unwrap()
}

fn simulate(trace: &Trace) -> Vec<CacheOutcome> {
    let configurations: Vec<CacheConfiguration> = ["lru", "s3-fifo", "arc", "lfu", "opt"]
        .iter()
        .flat_map(|policy| {
            [2000, 8000].map(|cache_blocks| CacheConfiguration {
                spec: policy.parse().unwrap(),
                cache_blocks,
            })
        })
        .collect();
    run(trace, &configurations, &CacheOptions::default()).unwrap()
}

#[test]
fn an_estimate_is_as_close_as_it_says() {
    let exact = simulate(&trace(Sample::All));
    let (mut far, mut all) = (0, 0);
    for sample in [
        Sample::Rate(0.1),
        Sample::Rate(0.25),
        Sample::Blocks(4000),
        Sample::Blocks(12_000),
    ] {
        for (estimated, exact) in simulate(&trace(sample)).iter().zip(&exact) {
            let estimate = estimated.estimate.expect("it was a sample");
            assert_eq!(estimate.refused, None, "{}", estimated.spec.entry().name);
            let error = estimate.standard_error.expect("the cache is large enough");
            let distance = (estimated.hit_ratio - exact.hit_ratio).abs();
            assert_eq!(estimated.accesses, 400_000);
            assert_eq!(estimated.cache_blocks, exact.cache_blocks);
            assert_eq!(estimated.hits + estimated.misses, 400_000);
            assert!(
                distance < 0.03,
                "{sample:?} {}: {distance}",
                estimated.spec.entry().name
            );
            all += 1;
            far += u32::from(distance > 3.0 * error);
        }
    }
    // The estimates of one sample are not independent, and eight parts give a rough error, so most
    // must be within three errors.
    assert!(far * 10 <= all, "{far} of {all} are three errors away");
}

#[test]
fn a_sample_of_everything_is_the_whole() {
    let exact = simulate(&trace(Sample::All));
    for (sampled, exact) in simulate(&trace(Sample::Blocks(1_000_000)))
        .iter()
        .zip(&exact)
    {
        let estimate = sampled.estimate.unwrap();
        assert_eq!(sampled.misses, exact.misses);
        assert_eq!(estimate.rate, 1.0);
        assert_eq!(estimate.standard_error, Some(0.0));
    }
}

/// A working set that moves: which blocks SIEVE keeps depends on accidents and on the cache's size.
fn shifting(sample: Sample) -> Trace {
    let options = LoadOptions {
        sample,
        ..LoadOptions::DEFAULT
    };
    let part = "shifting{blocks=5000,phase=25000}".parse().unwrap();
    Workload::new(&[part], 2)
        .trace(250_000, Path::new("made up"), &options, |_| {})
        .unwrap()
}

#[test]
fn what_does_not_scale_is_refused_and_what_does_is_not() {
    let configurations =
        ["sieve", "lru", "clock", "arc", "s3-fifo"].map(|policy| CacheConfiguration {
            spec: policy.parse().unwrap(),
            cache_blocks: 5493,
        });
    let simulate =
        |sample: Sample| run(&shifting(sample), &configurations, &CacheOptions::default()).unwrap();
    let exact = simulate(Sample::All);
    for sample in [
        Sample::Blocks(3000),
        Sample::Blocks(5000),
        Sample::Rate(0.25),
    ] {
        for (estimated, exact) in simulate(sample).iter().zip(&exact) {
            let estimate = estimated.estimate.expect("it was a sample");
            let policy = estimated.spec.entry().name;
            assert_eq!(
                estimated.is_refused(),
                policy == "sieve",
                "{sample:?} {policy}"
            );
            assert_eq!(estimate.standard_error.is_none(), estimated.is_refused());
            if let Some([low, high]) = estimate.interval {
                assert!(
                    (low..=high).contains(&exact.hit_ratio),
                    "{sample:?} {policy}: {} is not in {low} to {high}",
                    exact.hit_ratio
                );
            }
        }
    }
}

#[test]
fn policies_that_look_at_files_or_sites_are_refused() {
    let refused = |policy: &str| {
        let configuration = CacheConfiguration {
            spec: policy.parse().unwrap(),
            cache_blocks: 100,
        };
        let trace = trace(Sample::Rate(0.5));
        run(&trace, &[configuration], &CacheOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused("ubm"),
        "policy `ubm` needs all blocks in their order, which this trace does not have, being a \
         sample"
    );
    assert!(refused("dear").contains("being a sample"));
}
