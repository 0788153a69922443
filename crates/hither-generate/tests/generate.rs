//! Generated traces: each pattern has its properties, parts keep their shares, and equal seeds give
//! equal bytes. Bounds of random quantities are four deviations or more, and seeds are fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hither_core::Access;
use hither_core::registry::Needs;
use hither_generate::{GENERATORS, GeneratorSpec, Workload};
use hither_trace::schema::{AccessRow, FILES, RowOp};
use hither_trace::{LoadOptions, Trace};

const BLOCK_BYTES: u64 = 4096;

fn workload(specs: &[&str], seed: u64) -> Workload {
    let specs: Vec<GeneratorSpec> = specs.iter().map(|text| text.parse().unwrap()).collect();
    Workload::new(&specs, seed)
}

fn rows(specs: &[&str], seed: u64, count: usize) -> Vec<AccessRow> {
    let mut rows = Vec::new();
    workload(specs, seed).fill(count, &mut rows);
    rows
}

/// The blocks of a single part.
fn blocks(spec: &str, count: usize) -> Vec<u64> {
    rows(&[spec], 1, count)
        .iter()
        .map(|row| row.offset / BLOCK_BYTES)
        .collect()
}

fn write(specs: &[&str], seed: u64, references: u64, folder: &Path) {
    let mut workload = workload(specs, seed);
    workload.write(references, folder, false, |_| {}).unwrap();
}

#[test]
fn a_scan_takes_each_block_once_in_order() {
    assert!(blocks("scan", 5000).into_iter().eq(0..5000));
}

#[test]
fn a_loop_has_its_period() {
    let found = blocks("loop{blocks=7}", 50);
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(tick, &block)| block == tick as u64 % 7)
    );
}

#[test]
fn a_loop_with_jitter_has_each_block_once_a_pass_and_near_its_place() {
    let found = blocks("loop{blocks=100,jitter=30}", 1000);
    let passes: Vec<&[u64]> = found.chunks(100).collect();
    for pass in &passes {
        assert!(
            pass.iter()
                .copied()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .eq(0..100)
        );
        for (stretch, blocks) in (0u64..).zip(pass.chunks(30)) {
            assert!(blocks.iter().all(|block| block / 30 == stretch));
        }
    }
    assert!(
        passes.windows(2).all(|pair| pair[0] != pair[1]),
        "the order changes"
    );
}

#[test]
fn nested_loops_go_over_the_inner_file_after_each_outer_block() {
    let rows = rows(&["nested{outer=2,inner=3,repeats=2}"], 1, 21);
    let found: Vec<(u32, u64)> = rows
        .iter()
        .map(|row| (row.object, row.offset / BLOCK_BYTES))
        .collect();
    let inner = [0, 1, 2, 0, 1, 2].map(|block| (1, block));
    let mut expected = Vec::new();
    for outer in [0, 1, 0] {
        expected.push((0, outer));
        expected.extend(inner);
    }
    assert_eq!(found, expected);
    assert!(rows.iter().all(|row| row.site == row.object + 1));
}

#[test]
fn the_most_popular_blocks_of_a_zipf_are_as_popular_as_the_law_says() {
    let references = 200_000;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let found = blocks("zipf{blocks=1000,skew=1.0}", references);
    for &block in &found {
        assert!(block < 1000);
        *counts.entry(block).or_default() += 1;
    }
    let mut by_count: Vec<(u64, u64)> = counts.into_iter().map(|(block, n)| (n, block)).collect();
    by_count.sort_by(|a, b| b.cmp(a));
    let harmonic: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank)).sum();
    for (rank, &(count, _)) in (1u32..).zip(&by_count[..10]) {
        let expected = references as f64 / f64::from(rank) / harmonic;
        let off = (count as f64 - expected).abs();
        assert!(
            off < 5.0 * expected.sqrt(),
            "rank {rank}: {count} for {expected}"
        );
    }
    // Popularity does not depend on position: the ten most popular are not the first ten, and not
    // in order.
    let popular: Vec<u64> = by_count[..10].iter().map(|&(_, block)| block).collect();
    assert!(!popular.is_sorted(), "{popular:?}");
    assert!(
        popular.iter().filter(|&&block| block >= 10).count() >= 7,
        "{popular:?}"
    );
}

#[test]
fn a_shifting_set_stays_for_a_phase_and_keeps_its_overlap() {
    let found = blocks("shifting{blocks=100,phase=2000,overlap=0.75}", 10_000);
    for (phase, blocks) in (0u64..).zip(found.chunks(2000)) {
        let distinct: BTreeSet<u64> = blocks.iter().copied().collect();
        let set = phase * 25..phase * 25 + 100;
        assert!(distinct.iter().all(|block| set.contains(block)), "{phase}");
        // The probability that 2000 draws miss one of them is 2e-9.
        assert_eq!(distinct.len(), 100, "{phase}");
    }
    let stays = blocks("shifting{blocks=50,phase=10,overlap=1}", 5000);
    assert!(stays.iter().all(|&block| block < 50));
}

#[test]
fn uniform_references_are_uniform() {
    let mut counts = [0i32; 20];
    for block in blocks("uniform{blocks=20}", 20_000) {
        counts[block as usize] += 1;
    }
    assert!(
        counts.iter().all(|count| (count - 1000).abs() < 160),
        "{counts:?}"
    );
}

#[test]
fn parts_have_their_shares_bursts_sites_files_and_processes() {
    let specs = [
        "loop{blocks=10,weight=1,burst=5}",
        "zipf{blocks=100,weight=3,burst=20}",
        "loop{blocks=30,weight=2,burst=1}",
    ];
    let references = 120_000;
    let rows = rows(&specs, 3, references);
    let share = |thread: u32| rows.iter().filter(|row| row.thread == thread).count() as f64;
    for (thread, weight) in [(0, 1.0), (1, 3.0), (2, 2.0)] {
        let expected = weight / 6.0 * references as f64;
        let off = (share(thread) / expected - 1.0).abs();
        assert!(
            off < 0.05,
            "part {thread}: {} for {expected}",
            share(thread)
        );
    }
    for row in &rows {
        assert_eq!((row.thread, row.object), (row.process, row.site - 1));
        assert_eq!(row.object, row.thread);
    }
    let turns: Vec<&[AccessRow]> = rows.chunk_by(|a, b| a.thread == b.thread).collect();
    let whole = |turn: &&[AccessRow]| {
        turn.len()
            .is_multiple_of([5, 20, 1][turn[0].thread as usize])
    };
    assert!(turns[..turns.len() - 1].iter().all(whole));

    let workload = workload(&specs, 3);
    let names = ["loop-1", "zipf", "loop-2"];
    let functions: Vec<String> = workload.sites()[1..]
        .iter()
        .map(|site| site.label())
        .collect();
    assert_eq!(functions, names);
    let files: Vec<String> = workload
        .objects()
        .iter()
        .map(|object| object.path_lossy().into_owned())
        .collect();
    assert_eq!(files, names);
}

#[test]
fn writes_have_their_share_and_change_no_block() {
    let (reads, mixed) = (
        rows(&["zipf{blocks=500}"], 9, 20_000),
        rows(&["zipf{blocks=500,writes=0.3}"], 9, 20_000),
    );
    assert!(reads.iter().all(|row| row.op == RowOp::Read));
    let writes = mixed.iter().filter(|row| row.op == RowOp::Write).count();
    assert!((5700..6300).contains(&writes), "{writes}");
    assert!(reads.iter().zip(&mixed).all(|(a, b)| a.offset == b.offset));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let folder = tempfile::tempdir().unwrap();
    let specs: Vec<&str> = GENERATORS.iter().map(|entry| entry.name).collect();
    let [one, same, other] = ["one", "same", "other"].map(|name| folder.path().join(name));
    write(&specs, 5, 50_000, &one);
    write(&specs, 5, 50_000, &same);
    write(&specs, 6, 50_000, &other);
    for file in FILES {
        let bytes = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
        assert_eq!(bytes(&one), bytes(&same), "{file}");
    }
    let accesses = |folder: &Path| std::fs::read(folder.join(FILES[0])).unwrap();
    assert_ne!(accesses(&one), accesses(&other));
}

#[test]
fn a_stream_does_not_depend_on_how_it_is_taken() {
    let specs = [
        "nested",
        "zipf{writes=0.5}",
        "shifting{phase=100}",
        "loop{jitter=9}",
    ];
    let whole = rows(&specs, 2, 10_000);
    let (mut workload, mut batch, mut parts) = (workload(&specs, 2), Vec::new(), Vec::new());
    for count in [1, 2, 997, 5000, 0, 4000] {
        workload.fill(count, &mut batch);
        parts.extend_from_slice(&batch);
    }
    assert_eq!(parts, whole);
}

#[test]
fn the_folder_holds_what_was_generated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.hither");
    let specs = ["zipf{blocks=1,weight=2}", "nested{outer=3,inner=4}"];
    write(&specs, 11, 70_000, &path);
    let generated = rows(&specs, 11, 70_000);
    let trace = Trace::load(&path, None, &LoadOptions::default()).unwrap();
    assert_eq!(
        trace.references(),
        70_000,
        "no reference is merged with the one before"
    );
    assert_eq!(trace.blocks(), 1 + 3 + 4);
    let mut tick = 0;
    let each = |batch: &[Access]| {
        for access in batch {
            let row = &generated[tick];
            assert_eq!(u64::from(access.index), row.offset / BLOCK_BYTES);
            assert_eq!((access.object.0, access.site.0), (row.object, row.site));
            assert_eq!(
                (access.thread.0, access.process.0),
                (row.thread, row.process)
            );
            tick += 1;
        }
    };
    trace.for_each_batch(1000, Needs::ALL, each).unwrap();
    assert_eq!(tick, 70_000);
    assert_eq!(
        trace.meta().started_unix_ns,
        0,
        "the time of making is nowhere"
    );
    let sizes: Vec<u64> = trace.objects().iter().map(|object| object.size).collect();
    assert_eq!(sizes, [1, 3, 4].map(|blocks| blocks * BLOCK_BYTES));
}

#[test]
fn the_trace_in_memory_is_that_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.hither");
    let specs = ["zipf{blocks=300}", "loop{blocks=90,writes=0.5}"];
    write(&specs, 4, 30_000, &path);
    let options = LoadOptions::default();
    let loaded = Trace::load(&path, None, &options).unwrap();
    let made = workload(&specs, 4)
        .trace(30_000, &path, &options, |_| {})
        .unwrap();
    let accesses = |trace: &Trace| {
        let mut all = Vec::new();
        let each = |batch: &[Access]| all.extend_from_slice(batch);
        trace.for_each_batch(1000, Needs::ALL, each).unwrap();
        all
    };
    assert_eq!(accesses(&made), accesses(&loaded));
}

#[test]
fn what_a_seed_gives_is_the_same_in_every_version() {
    let first = |spec: &str| blocks(spec, 8);
    assert_eq!(
        first("uniform"),
        [3941, 603, 2876, 7780, 7779, 9525, 7112, 3006]
    );
    assert_eq!(
        first("zipf"),
        [20748, 69143, 60209, 60209, 28126, 47773, 11207, 18133]
    );
    assert_eq!(
        first("zipf{skew=0.7,blocks=1000000}"),
        [387704, 83661, 285305, 821675, 835777, 17616, 307920, 31342]
    );
    assert_eq!(
        first("shifting{phase=4,skew=1.2}"),
        [46, 4188, 7849, 7849, 7108, 6540, 7631, 7108]
    );
    assert_eq!(first("loop{jitter=100}"), [60, 94, 71, 24, 25, 9, 33, 72]);
}
