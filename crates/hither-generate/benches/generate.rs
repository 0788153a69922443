//! The speed of programs over memory: modelled loads and stores, including the trace in memory.
//!
//! 2026-11, at their default sizes, on one core of a shared machine: 64 million accesses a second
//! (`cfd`, of which one in 13 misses) to 161 million (`matmul`). Here they are tiny, so that this
//! runs wherever tests do.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hither_generate::{MixOptions, ProgramMix};
use hither_trace::LoadOptions;

/// Each with its loads and stores.
const PROGRAMS: [(&str, u64); 2] = [
    ("cfd{points=16,iterations=2}", 1_649_024),
    ("matmul{rows=96,iterations=2}", 1_410_048),
];

fn programs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generate");
    group.sample_size(10);
    for (spec, accesses) in PROGRAMS {
        let conditions = MixOptions {
            threads: Some(8),
            seed: 1,
            ..MixOptions::default()
        };
        let mix = ProgramMix::new(&[spec.parse().unwrap()], conditions);
        group.throughput(Throughput::Elements(accesses));
        group.bench_function(spec, |bencher| {
            bencher.iter(|| {
                let trace = mix.trace(Path::new(spec), &LoadOptions::default(), |_| {});
                black_box(trace.unwrap().references())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, programs);
criterion_main!(benches);
