//! A trace, the library and the controllers make the same references of the same requests.

use std::collections::BTreeMap;

use hither_core::references::{BlockSize, Reported};
use hither_core::registry::Needs;
use hither_ids::FileKey;
use hither_trace::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
use hither_trace::{LoadOptions, TraceBuilder};
use proptest::prelude::*;

use super::tests::config;
use super::*;
use crate::references::References;

/// A request of a thread on a file, as a program makes it.
#[derive(Clone, Copy, Debug)]
struct Made {
    file: u64,
    thread: u32,
    request: Request<Op>,
}

/// Requests that often go on where others ended: small and large, backwards, again, overlapping.
fn requests(block_bytes: u64) -> impl Strategy<Value = Vec<Made>> {
    let step = (
        0..3_u64,
        0..3_u32,
        0..6_u8,
        0..2 * block_bytes,
        1..=2 * block_bytes,
    );
    let write = proptest::bool::weighted(0.2);
    prop::collection::vec((step, write), 1..200).prop_map(move |steps| {
        let mut ends = BTreeMap::new();
        let made = steps
            .into_iter()
            .map(|((file, thread, way, far, length), write)| {
                let end: &mut u64 = ends.entry(file).or_insert(0);
                let offset = match way {
                    0 => far * 3,
                    1 => end.saturating_sub(far),
                    2 => *end + far / 8,
                    _ => *end,
                };
                let length = if way < 4 { length.div_ceil(16) } else { length };
                *end = offset + length;
                let op = if write { Op::Write } else { Op::Read };
                let request = Request { op, offset, length };
                Made {
                    file,
                    thread,
                    request,
                }
            });
        made.collect()
    })
}

/// The blocks that a trace of these requests refers to: file and index, in order.
fn of_trace(made: &[Made], block_bytes: u32) -> Vec<BlockPosition> {
    let options = LoadOptions {
        block_bytes,
        ..LoadOptions::default()
    };
    let mut builder = TraceBuilder::new("made up", &options).unwrap();
    let objects = vec![ObjectRow::default(); 3];
    builder.describe(objects, vec![SiteRow::default()], Meta::default());
    let process = builder.add_process(ProcessRow::default());
    let threads = [(); 3].map(|()| {
        builder.add_thread(ThreadRow {
            process,
            ..ThreadRow::default()
        })
    });
    for (
        &Made {
            file,
            thread,
            request,
        },
        time_ns,
    ) in made.iter().zip(0..)
    {
        let row = AccessRow {
            time_ns,
            object: file as u32,
            thread: threads[thread as usize],
            process,
            op: if request.op == Op::Write {
                RowOp::Write
            } else {
                RowOp::Read
            },
            offset: request.offset,
            length: request.length,
            count: 1,
            ..AccessRow::default()
        };
        builder.request(&row).unwrap();
    }
    let trace = builder.finish().unwrap();
    let position = |access: &Access| BlockPosition {
        file: access.object.0,
        index: access.index,
    };
    let mut referenced = Vec::new();
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    trace
        .for_each_batch(64, needs, |batch| {
            referenced.extend(batch.iter().map(position));
        })
        .unwrap();
    referenced
}

/// What the library reports of requests.
fn reported(made: &[Made], block_bits: u32) -> Vec<Made> {
    let mut threads = [Reported::nothing(Op::Read); 3];
    let mut out = Vec::new();
    for &made in made {
        let Made {
            file,
            thread,
            request,
        } = made;
        let size = BlockSize::of_bits(block_bits);
        let report = threads[thread as usize].report(file, request, size);
        out.extend(report.before.map(|(file, request)| Made {
            file,
            thread,
            request,
        }));
        if report.is_reported {
            out.push(made);
        }
    }
    out
}

proptest! {
    /// Invariant 1: what was simulated is what runs. A trace, the library and the controllers make
    /// the same references of the same requests, in the same order.
    #[test]
    fn all_make_the_same_references(made in requests(BLOCK_BYTES)) {
        let expected = of_trace(&made, BLOCK_BYTES as u32);
        let mut references = References::new(BLOCK_BYTES as u32);
        let mut controller = PageCacheController::new(&config("lru", 1 << 20)).unwrap();
        let (mut counted, mut out) = (Vec::new(), Vec::new());
        let files = [0, 1, 2].map(|file| references.file(FileKey(file)));
        for Made { file, thread, request } in reported(&made, BLOCK_BYTES.ilog2()) {
            let number = files[file as usize];
            let indices = references.of_request(number, thread, request).collect::<Vec<u32>>();
            let before = controller.tick;
            let input = Input::Access {
                file: FileKey(file),
                offset: request.offset,
                length: request.length,
                signature: 1,
                process: 0,
                thread,
                write: request.op == Op::Write,
            };
            controller.step(&TimedInput { time_ns: 0, input }, &mut out);
            prop_assert_eq!(controller.tick - before, indices.len() as u64);
            if let Some(&last) = indices.last() {
                let latest = controller.latest.iter().max_by_key(|access| access.tick);
                prop_assert_eq!(latest.map(|access| access.index), Some(last));
            }
            let file = file as u32;
            counted.extend(indices.into_iter().map(|index| BlockPosition { file, index }));
        }
        prop_assert_eq!(counted, expected);
    }

    /// So does a mechanism with larger blocks than the library goes by.
    #[test]
    fn in_larger_blocks_they_are_the_same_too(made in requests(BLOCK_BYTES)) {
        let block_bytes = 4 * BLOCK_BYTES as u32;
        let mut references = References::new(block_bytes);
        let files = [0, 1, 2].map(|file| references.file(FileKey(file)));
        let mut counted = Vec::new();
        for Made { file, thread, request } in reported(&made, BLOCK_BYTES.ilog2()) {
            let indices = references.of_request(files[file as usize], thread, request);
            counted.extend(indices.map(|index| BlockPosition { file: file as u32, index }));
        }
        prop_assert_eq!(counted, of_trace(&made, block_bytes));
    }
}
