//! From requests to references: the blocks, merged repeats, and the statistics.

use hither_trace::schema::{AccessRow, Meta, ObjectRow, RowOp, SiteRow, ThreadRow};
use hither_trace::{Error, LoadOptions, Result, Stats, Trace, TraceBuilder};

/// A trace of two objects, two sites and three threads; the last thread is of a second process.
fn build(rows: &[AccessRow], options: &LoadOptions) -> Result<Trace> {
    let mut builder = TraceBuilder::new("made up", options)?;
    let threads = (0..3)
        .map(|thread| ThreadRow {
            thread,
            process: thread / 2,
            tid: thread,
        })
        .collect();
    let site = SiteRow {
        signature: 1,
        ..SiteRow::default()
    };
    let meta = Meta {
        threads,
        ..Meta::default()
    };
    builder.describe(
        vec![ObjectRow::default(); 2],
        vec![SiteRow::unknown(), site],
        meta,
    );
    rows.iter().try_for_each(|row| builder.request(row))?;
    builder.finish()
}

fn read(offset: u64, length: u64) -> AccessRow {
    AccessRow {
        offset,
        length,
        ..AccessRow::default()
    }
}

/// The blocks referenced, as object and index.
fn blocks(trace: &Trace) -> Vec<(u32, u32)> {
    let place = |&block: &u32| {
        let block = hither_core::Block(block);
        (trace.object_of(block).0, trace.index_of(block))
    };
    trace.block_stream().unwrap().iter().map(place).collect()
}

fn check(rows: &[AccessRow], options: &LoadOptions, expected: &[u32]) -> Trace {
    let trace = build(rows, options).unwrap();
    assert_eq!(
        blocks(&trace)
            .iter()
            .map(|block| block.1)
            .collect::<Vec<_>>(),
        expected
    );
    trace
}

const KEEP: LoadOptions = LoadOptions {
    keep_repeats: true,
    ..LoadOptions::DEFAULT
};

#[test]
fn of_a_trace_without_rows_a_request_for_each_reference_remains() {
    let trace = build(&[read(100, 5000), read(6000, 10)], &LoadOptions::default()).unwrap();
    let mut requests = Vec::new();
    let each = |row: &AccessRow| requests.push((row.offset, row.length));
    trace.for_each_request(each).unwrap();
    assert_eq!(requests, [(0, 4096), (4096, 4096)]);
}

#[test]
fn a_request_covers_each_block_that_it_touches() {
    let default = LoadOptions::default();
    check(&[read(0, 1)], &default, &[0]);
    check(&[read(4095, 1)], &default, &[0]);
    check(&[read(4095, 2)], &default, &[0, 1]);
    check(&[read(4096, 8192)], &default, &[1, 2]);
    check(&[read(4096, 8193)], &default, &[1, 2, 3]);
    check(
        &[read(1000, 1000)],
        &LoadOptions {
            block_bytes: 512,
            ..default
        },
        &[1, 2, 3],
    );
}

#[test]
fn small_reads_in_a_row_reference_a_block_once() {
    let rows: Vec<AccessRow> = (0..100).map(|row| read(row * 100, 100)).collect();
    let trace = check(&rows, &LoadOptions::default(), &[0, 1, 2]);
    // Of 100 requests, two cross the edge of a block.
    assert_eq!(trace.counts().skipped.merged, 99);
    assert_eq!(trace.counts().total.sequential, 99);
    assert_eq!(build(&rows, &KEEP).unwrap().references(), 102);
    assert_eq!(build(&rows, &KEEP).unwrap().counts().skipped.merged, 0);
}

#[test]
fn lengths_of_requests_are_kept_if_asked_for() {
    let keep = LoadOptions {
        keep_lengths: true,
        ..LoadOptions::DEFAULT
    };
    // Four blocks; the second request goes on in the last of them and has two more.
    let rows = [read(0, 13_000), read(13_000, 8192), read(1 << 30, 1 << 21)];
    let left = check_lengths(&rows, &keep);
    assert_eq!(left[..6], [3, 2, 1, 0, 1, 0]);
    assert_eq!(
        left[6..],
        (0..512)
            .rev()
            .map(|after: u32| after.min(255) as u8)
            .collect::<Vec<_>>()
    );
    assert!(check_lengths(&rows, &LoadOptions::DEFAULT).is_empty());
    let sample = LoadOptions {
        sample: "50%".parse().unwrap(),
        ..keep
    };
    assert!(build(&rows, &sample).unwrap().blocks_left().is_empty());
}

/// The blocks that are left of each reference's request.
fn check_lengths(rows: &[AccessRow], options: &LoadOptions) -> Vec<u8> {
    let trace = build(rows, options).unwrap();
    let left = trace.blocks_left().to_vec();
    assert!(left.is_empty() || left.len() == trace.references());
    left
}

#[test]
fn only_the_same_thread_object_and_op_merge() {
    let again = |row: AccessRow| vec![read(0, 10), row];
    let default = LoadOptions::default();
    check(&again(read(4000, 10)), &default, &[0]);
    check(
        &again(AccessRow {
            site: 1,
            ..read(10, 10)
        }),
        &default,
        &[0],
    );
    check(
        &again(AccessRow {
            thread: 1,
            ..read(10, 10)
        }),
        &default,
        &[0, 0],
    );
    check(
        &again(AccessRow {
            op: RowOp::Write,
            ..read(10, 10)
        }),
        &default,
        &[0, 0],
    );
    let other = build(
        &again(AccessRow {
            object: 1,
            ..read(10, 10)
        }),
        &default,
    )
    .unwrap();
    assert_eq!(blocks(&other), [(0, 0), (1, 0)]);
    // In between, the thread read elsewhere in the file, or another thread read here.
    check(
        &[read(0, 10), read(8192, 10), read(10, 10)],
        &default,
        &[0, 2, 0],
    );
    check(
        &[
            read(0, 10),
            AccessRow {
                thread: 1,
                ..read(0, 10)
            },
            read(10, 10),
        ],
        &default,
        &[0, 0],
    );
    // Reading the same bytes again is another reference.
    check(&[read(0, 10), read(0, 10)], &default, &[0, 0]);
    // A request that ends with a block does not merge with one that begins the next.
    check(
        &[read(0, 4096), read(4096, 10), read(0, 4096)],
        &default,
        &[0, 1, 0],
    );
}

#[test]
fn a_count_stands_for_so_many_calls() {
    let small = AccessRow {
        count: 1000,
        ..read(0, 10)
    };
    let large = AccessRow {
        count: 2,
        ..read(0, 8192)
    };
    let trace = build(&[small], &LoadOptions::default()).unwrap();
    assert_eq!((trace.references(), trace.blocks()), (1000, 1));
    assert_eq!(
        (trace.counts().total.requests, trace.counts().skipped.merged),
        (1000, 0)
    );
    assert_eq!(trace.counts().total.read_bytes, 10_000);
    check(&[large], &LoadOptions::default(), &[0, 1, 0, 1]);
    check(
        &[read(0, 10), large],
        &LoadOptions::default(),
        &[0, 0, 1, 0, 1],
    );
    let most = AccessRow {
        count: u32::MAX,
        ..read(0, 10)
    };
    let most = [most, most];
    assert!(matches!(build(&most, &KEEP), Err(Error::Row { .. })));
}

#[test]
fn what_is_left_out_is_counted() {
    let rows = [
        AccessRow {
            op: RowOp::Map,
            ..read(0, 8192)
        },
        AccessRow {
            op: RowOp::Unmap,
            ..read(0, 8192)
        },
        AccessRow {
            op: RowOp::Truncate,
            ..read(10, 0)
        },
        AccessRow {
            in_kernel: true,
            ..read(4096, 10)
        },
        read(0, 0),
        AccessRow {
            op: RowOp::Map,
            ..read(0, u64::MAX)
        },
    ];
    let trace = check(&rows, &LoadOptions::default(), &[1]);
    let counts = trace.counts();
    assert_eq!((counts.maps, counts.unmaps, counts.truncates), (2, 1, 1));
    assert_eq!(
        (
            counts.skipped.maps,
            counts.skipped.empty,
            counts.skipped.in_kernel
        ),
        (2, 1, 0)
    );
    assert_eq!(
        (counts.total.requests, counts.total.in_kernel_bytes),
        (2, 10)
    );
    let options = LoadOptions {
        include_in_kernel: false,
        include_maps: true,
        ..LoadOptions::default()
    };
    let trace = check(&rows[..5], &options, &[0, 1]);
    assert_eq!(
        (
            trace.counts().skipped.maps,
            trace.counts().skipped.in_kernel
        ),
        (0, 1)
    );
}

#[test]
fn rows_that_cannot_be_are_refused_by_number() {
    let cases = [
        (
            AccessRow {
                object: 2,
                ..read(0, 1)
            },
            "object 2 of 2",
        ),
        (
            AccessRow {
                site: 2,
                ..read(0, 1)
            },
            "site 2 of 2",
        ),
        (
            AccessRow {
                thread: 3,
                ..read(0, 1)
            },
            "thread 3 of 3",
        ),
        (
            AccessRow {
                process: 1,
                ..read(0, 1)
            },
            "thread 0 is of process 0, not 1",
        ),
        (
            AccessRow {
                count: 0,
                ..read(0, 1)
            },
            "a count of 0",
        ),
        (
            read(0, 1 << 31),
            "a request of 2147483648 bytes, more than a call can move",
        ),
        (
            read((1 << 44) - 4096, 1),
            "bytes 17592186040320 + 1 lie beyond 2^32 - 1 blocks",
        ),
        (
            read(u64::MAX, 1),
            "bytes 18446744073709551615 + 1 lie beyond 2^32 - 1 blocks",
        ),
    ];
    for (row, problem) in cases {
        let error = build(&[read(0, 1), row], &LoadOptions::default())
            .unwrap_err()
            .to_string();
        assert_eq!(error, format!("made up: row 1: {problem}"));
    }
    assert!(build(&[read((1 << 44) - 4097, 1)], &LoadOptions::default()).is_ok());
    assert!(
        build(
            &[],
            &LoadOptions {
                block_bytes: 0,
                ..KEEP
            }
        )
        .is_err()
    );
}

#[test]
fn statistics_say_who_uses_what() {
    let rows = [
        AccessRow {
            site: 1,
            ..read(0, 8192)
        },
        AccessRow {
            site: 1,
            thread: 1,
            ..read(0, 4096)
        },
        AccessRow {
            thread: 2,
            process: 1,
            ..read(0, 4096)
        },
        AccessRow {
            site: 1,
            op: RowOp::Write,
            ..read(8192, 4096)
        },
        AccessRow {
            object: 1,
            thread: 1,
            ..read(0, 4096)
        },
        AccessRow {
            object: 1,
            thread: 2,
            process: 1,
            ..read(0, 4096)
        },
    ];
    let stats = Stats::of(&build(&rows, &LoadOptions::default()).unwrap()).unwrap();
    assert_eq!(
        (stats.references, stats.blocks, stats.footprint_bytes),
        (7, 4, 16384)
    );
    assert_eq!(
        (stats.objects, stats.sites, stats.threads, stats.processes),
        (2, 2, 3, 2)
    );
    assert_eq!(stats.sharing.threads.blocks, [2, 1, 1]);
    assert_eq!(stats.sharing.processes.blocks, [2, 2, 0]);
    // Blocks 0 1 0 0 2 3 3: distances 1, 0 and 0.
    assert_eq!(
        (stats.reuse.cold, stats.reuse.buckets.as_slice()),
        (4, [2, 1].as_slice())
    );
    let row = |row: &hither_trace::RankedRow| {
        (row.number, row.references, row.blocks, row.tally.requests)
    };
    assert_eq!(
        stats.by_site.iter().map(row).collect::<Vec<_>>(),
        [(1, 4, 3, 3), (0, 3, 2, 3)]
    );
    assert_eq!(
        stats.by_object.iter().map(row).collect::<Vec<_>>(),
        [(0, 5, 3, 4), (1, 2, 1, 2)]
    );
    let sites = stats.site_concentration;
    assert_eq!(
        (
            sites.for_50_percent,
            sites.for_90_percent,
            sites.for_99_percent
        ),
        (1, 2, 2)
    );
    assert_eq!(stats.counts.total.written_bytes, 4096);
    assert_eq!(stats.sequential_share, 1.0 / 6.0);
}

#[test]
fn statistics_of_nothing_are_nothing() {
    let stats = Stats::of(&build(&[], &LoadOptions::default()).unwrap()).unwrap();
    assert_eq!(
        (
            stats.references,
            stats.sequential_share,
            stats.by_site.len()
        ),
        (0, 0.0, 0)
    );
    assert_eq!(stats.site_concentration.for_99_percent, 0);
}
