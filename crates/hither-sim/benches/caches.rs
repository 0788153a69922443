//! References per second and policy in the engine's inner loop: a batch at a time, one cache, one
//! core.
//!
//! The trace has four loops of a thousand blocks, each with its own site and file, and a favoured
//! set between them: hits and misses, all three classes, and more blocks than the first-level cache
//! holds. `cargo test --benches` runs each case once.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hither_core::registry::{self, Needs, ReplacementSettings};
use hither_core::{Access, Block, Object, Process, Residency, Site, Spec};
use hither_sim::References;
use hither_sim::references::InMemory;

const REFERENCES: u64 = 200_000;
const CAPACITY: u32 = 1500;

fn trace() -> InMemory {
    let mut at = [0u32; 4];
    let mut state = 1u64;
    let accesses = (0..REFERENCES)
        .map(|tick| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let random = (state >> 33) as u32;
            let stream = (tick / 32 % 5) as u32;
            let index = match at.get_mut(stream as usize) {
                Some(at) => {
                    *at = (*at + 1) % 1000;
                    *at
                }
                None => random % 1000 * (random / 1000 % 1000) / 1000,
            };
            Access {
                object: Object(stream),
                index,
                site: Site(stream + 1),
                process: Process(stream),
                ..Access::bare(tick, Block(stream * 1000 + index))
            }
        })
        .collect();
    let all = Needs::ALL;
    InMemory::new(accesses, all)
}

fn policies(criterion: &mut Criterion) {
    let trace = trace();
    let mut group = criterion.benchmark_group("caches");
    group.throughput(Throughput::Elements(REFERENCES));
    group.sample_size(20);
    for entry in registry::replacement_policies() {
        group.bench_function(entry.name, |bencher| {
            bencher.iter(|| {
                let mut policy = Spec::defaults(entry).build(&ReplacementSettings::new(CAPACITY));
                let mut cache = Residency::new(CAPACITY, trace.blocks() as usize);
                for batch in trace.accesses().chunks(8192) {
                    policy.drive(&mut cache, batch);
                }
                cache.hits()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, policies);
criterion_main!(benches);
