//! Many sizes of LRU and OPT in one pass, against one cache per size: nanoseconds per reference on
//! one core.
//!
//! `cargo test --benches` runs each case once on a small trace. `cargo bench` uses a zipf trace of
//! 10 million references to about a million blocks, which exceeds the processor's caches as real
//! traces do, and a loop of the same size.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hither_core::registry::{Needs, ReplacementSettings};
use hither_core::{Access, Block, Residency, Spec};
use hither_sim::References;
use hither_sim::Stack;
use hither_sim::curve::{Spacing, sizes};
use hither_sim::references::InMemory;

/// References and blocks.
fn scale() -> (u32, u32) {
    let measured = std::env::args().any(|argument| argument == "--bench");
    if measured {
        (10_000_000, 1 << 20)
    } else {
        (20_000, 1 << 11)
    }
}

/// Zipf ranks with exponent 1, by the inverse of the distribution function, with ranks scattered
/// over the numbers.
fn zipf(references: u32, blocks: u32) -> InMemory {
    let mut state = 1u64;
    let stream = (0..references).map(|_| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        let rank = f64::from(blocks).powf(uniform) as u32;
        rank.wrapping_mul(2_654_435_761) & (blocks - 1)
    });
    dense(stream, blocks)
}

fn dense(stream: impl Iterator<Item = u32>, blocks: u32) -> InMemory {
    let (mut number, mut seen) = (vec![u32::MAX; blocks as usize], 0);
    let accesses = (0..)
        .zip(stream)
        .map(|(tick, block)| {
            let number = &mut number[block as usize];
            if *number == u32::MAX {
                *number = seen;
                seen += 1;
            }
            Access::bare(tick, Block(*number))
        })
        .collect();
    InMemory::new(accesses, Needs::NOTHING)
}

fn stacks(criterion: &mut Criterion) {
    let (references, blocks) = scale();
    for (name, trace) in [
        ("zipf", zipf(references, blocks)),
        (
            "loop",
            dense((0..references).map(|tick| tick % blocks), blocks),
        ),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(references.into()));
        group.sample_size(10);
        for policy in ["lru", "opt"] {
            group.bench_function(format!("{policy} of a tenth"), |bencher| {
                let spec: Spec = policy.parse().expect("a policy");
                let capacity = trace.blocks() / 10;
                bencher.iter(|| {
                    let mut policy = spec.build(&ReplacementSettings::new(capacity));
                    let mut cache = Residency::new(capacity, trace.blocks() as usize);
                    for batch in trace.accesses().chunks(8192) {
                        policy.drive(&mut cache, batch);
                    }
                    cache.hits()
                });
            });
            for points in [8, 64, 1000] {
                let sizes = sizes(trace.blocks(), points, Spacing::Log);
                group.bench_function(format!("{policy} of {points} sizes"), |bencher| {
                    bencher.iter(|| {
                        let mut stack = match policy {
                            "lru" => Stack::lru(&sizes, trace.blocks()),
                            _ => Stack::opt(&sizes, trace.blocks()),
                        };
                        for batch in trace.accesses().chunks(8192) {
                            stack.drive(batch);
                        }
                        stack.curve().hits(sizes[0])
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, stacks);
criterion_main!(benches);
