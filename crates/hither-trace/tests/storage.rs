//! Results do not depend on where references are stored, and a sample has all references to some of
//! the blocks.

use std::collections::BTreeMap;

use hither_core::Access;
use hither_core::registry::Needs;
use hither_trace::{LoadOptions, Sample, Trace, TraceBuilder};

/// 60,000 references to some 5,000 blocks, low numbers more often.
fn trace(options: LoadOptions) -> Trace {
    let mut builder = TraceBuilder::new("made up", &options).unwrap();
    let mut state = 5u64;
    for _ in 0..60_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (a, b) = ((state >> 33) % 5000, (state >> 20) % 5000);
        builder.block(a * b / 5000).unwrap();
    }
    builder.finish().unwrap()
}

fn accesses(trace: &Trace) -> Vec<Access> {
    let mut all = Vec::new();
    trace.fill(0, usize::MAX, Needs::ALL, &mut all).unwrap();
    all
}

/// The references by the position of their block in the device, which sampling does not change.
fn by_index(trace: &Trace) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for access in accesses(trace) {
        *counts.entry(access.index).or_default() += 1;
    }
    counts
}

#[test]
fn a_trace_on_disk_reads_like_one_in_memory() {
    let whole = trace(LoadOptions::DEFAULT);
    let expected = accesses(&whole);
    for memory_bytes in [0, 70_000] {
        let spilled = trace(LoadOptions {
            memory_bytes,
            ..LoadOptions::DEFAULT
        });
        assert!(accesses(&spilled) == expected, "{memory_bytes} bytes");
        let mut part = Vec::new();
        for start in [0, 8191, 8192, 20_000, 59_999, 60_000] {
            spilled.fill(start, 9000, Needs::ALL, &mut part).unwrap();
            let end = (start + 9000).min(expected.len());
            assert!(part == expected[start..end], "from {start}");
        }
    }
}

#[test]
fn a_sample_holds_all_references_to_some_of_the_blocks() {
    let whole = by_index(&trace(LoadOptions::DEFAULT));
    let sample = |sample| {
        trace(LoadOptions {
            sample,
            ..LoadOptions::DEFAULT
        })
    };
    let rate = sample(Sample::Rate(0.1));
    let sampled = rate.sampled().expect("it is a sample");
    assert_eq!(sampled.references, 60_000);
    assert!((sampled.rate - 0.1).abs() < 1e-9);
    let share = rate.blocks() as f64 / whole.len() as f64;
    assert!((0.08..0.12).contains(&share), "{share}");
    for (index, count) in by_index(&rate) {
        assert_eq!(whole[&index], count, "block {index}");
    }

    let fixed = sample(Sample::Blocks(300));
    assert!((290..=300).contains(&fixed.blocks()), "{}", fixed.blocks());
    let rate = fixed.sampled().expect("it is a sample").rate;
    let same = sample(Sample::Rate(rate));
    assert!(accesses(&fixed) == accesses(&same), "at rate {rate}");

    let all = sample(Sample::Blocks(100_000));
    assert!(accesses(&all) == accesses(&trace(LoadOptions::DEFAULT)));
}
