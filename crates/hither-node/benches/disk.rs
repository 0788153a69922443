//! What the disk tier costs: a block written, a block read, a small file written, and a start with
//! many small files. Files lie in the system's temporary folder, and mostly in the page cache.
//!
//! `cargo test --benches` runs each case once.
#![allow(missing_docs)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hither_node::key::{BlockKey, FileKey};
use hither_node::store::disk::settings::DiskSettings;
use hither_node::store::disk::tier::DiskTier;

const BLOCK_BYTES: u32 = 128 << 10;
const SMALL_BYTES: usize = 4 << 10;

/// Small files that a start finds.
const FILES: u64 = 1_000;

/// Blocks that wait to be written, at most: a batch of them.
const WRITES_MAX: u64 = 1_000;

fn open(folder: &Path) -> DiskTier {
    let settings = DiskSettings {
        folder: folder.to_owned(),
        bytes_max: 512 << 20,
    };
    let tier = DiskTier::open(&settings, BLOCK_BYTES, WRITES_MAX as usize).unwrap();
    tier.start(Arc::new(|_| {})).unwrap();
    tier
}

/// Block `number` of one large file.
fn block(number: u64) -> BlockKey {
    BlockKey {
        file: FileKey(1),
        index: number as u32,
    }
}

/// The only block of small file `number`.
fn small(number: u64) -> BlockKey {
    let file = FileKey(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64);
    BlockKey { file, index: 0 }
}

fn disk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("disk");
    group.sample_size(10);
    let folder = tempfile::tempdir().unwrap();
    let tier = open(folder.path());
    let mut next = 0;
    let whole = Bytes::from(vec![7; BLOCK_BYTES as usize]);
    group.throughput(Throughput::Bytes(BLOCK_BYTES.into()));
    group.bench_function("write a block", |bencher| {
        bencher.iter(|| {
            tier.offer(block(next), whole.clone());
            tier.flush();
            next += 1;
        });
    });
    tier.offer(block(next), whole);
    tier.flush();
    let mut buffer = vec![0; BLOCK_BYTES as usize];
    group.bench_function("read a block", |bencher| {
        bencher.iter(|| {
            let located = tier.locate(std::iter::once(block(next)));
            assert_eq!(tier.read(&located, &mut [&mut buffer]), [true]);
            black_box(&buffer);
        });
    });
    let piece = Bytes::from(vec![7; SMALL_BYTES]);
    group.throughput(Throughput::Elements(1));
    group.bench_function("write a small file", |bencher| {
        bencher.iter(|| {
            tier.offer(small(next), piece.clone());
            tier.flush();
            next += 1;
        });
    });
    drop(tier);
    let folder = tempfile::tempdir().unwrap();
    let tier = open(folder.path());
    for number in 0..FILES {
        tier.offer(small(number), piece.clone());
        if number % WRITES_MAX == 0 {
            tier.flush();
        }
    }
    drop(tier);
    group.throughput(Throughput::Elements(FILES));
    group.bench_function("start with small files", |bencher| {
        let opened = || {
            let tier = open(folder.path());
            assert_eq!(tier.usage().blocks, FILES);
            tier
        };
        // What is returned is dropped, and so closed, outside of the measured time.
        bencher.iter_batched(|| (), |()| opened(), BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, disk);
criterion_main!(benches);
