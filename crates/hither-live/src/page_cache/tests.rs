//! The log of a random program replays to the same decisions, and a changed log does not.

use hither_core::classify::SiteCounters;
use hither_core::site_profile::SiteProfile;
use hither_ids::{FileKey, Tid};
use proptest::prelude::*;
use serde_json::json;

use super::controller::{BLOCK_BYTES, EXTENT_BYTES, LimitConfig, PageCacheConfig};
use super::event::{CachedExtent, Input, TimedInput};
use super::*;
use crate::controller::Controller;
use crate::decision_log::{DecisionLog, LogFile};
use crate::program_files::CachedBefore;

fn config(policy: &str) -> PageCacheConfig {
    PageCacheConfig {
        policy: policy.parse().expect("a policy"),
        budget_bytes: 200 * BLOCK_BYTES,
        alone_bytes: 230 * BLOCK_BYTES,
        block_bytes: BLOCK_BYTES,
        dry_run: true,
        given: true,
        limit: None,
        always: false,
        spare_preexisting: true,
        sites: vec![SiteProfile {
            signature: 2,
            counters: SiteCounters {
                sequential: 0,
                looping: 400,
                period: 300,
            },
        }],
    }
}

/// Any input, sensible or not: few files and blocks, so that they collide.
fn input() -> impl Strategy<Value = Input> {
    let file = || (1..4_u64).prop_map(FileKey);
    let offset = || 0..5 * EXTENT_BYTES;
    let length = || 0..EXTENT_BYTES;
    prop_oneof![
        3 => (file(), offset(), any::<bool>(), prop::option::of((offset(), offset()))).prop_map(
            |(file, bytes, is_first, before)| {
                let cached_before = before.map(|(known_bytes, end)| {
                    let range = end / 3..end;
                    CachedBefore { known_bytes, ranges: vec![range] }
                });
                let readahead_bytes = EXTENT_BYTES / 4;
                Input::Opened { file, bytes, readahead_bytes, is_first, cached_before }
            }
        ),
        3 => (file(), prop::option::of(offset()), any::<bool>(), any::<bool>()).prop_map(
            |(file, cached_bytes, counts_reads, is_read)| Input::FileCounted { file, cached_bytes,
                counts_reads, read: is_read.then_some(0..BLOCK_BYTES) }
        ),
        1 => file().prop_map(|file| Input::Unreported { file }),
        2 => (file(), 0..60_u64).prop_map(|(file, extent)| Input::CachedAhead { file,
            offset: extent * EXTENT_BYTES, length: EXTENT_BYTES }),
        2 => any::<bool>().prop_map(|all| Input::CheckLimit { all }),
        40 => (file(), offset(), length(), 0..4_u64, 0..3_u32, prop::bool::weighted(0.05)).prop_map(
            |(file, offset, length, signature, thread, write)| {
                Input::Access { file, offset, length, signature, process: thread / 2, thread,
                    write }
            }
        ),
        1 => Just(Input::Mapped { file: FileKey(3) }),
        1 => file().prop_map(|file| Input::Watched { file, bytes: 3 * EXTENT_BYTES }),
        20 => (file(), offset(), 0..3_u32).prop_map(|(file, offset, thread)| Input::Touched { file,
            offset, thread: Tid(thread) }),
        1 => (file(), offset()).prop_map(|(file, bytes)| Input::Cut { file, bytes }),
        2 => (file(), offset(), length()).prop_map(|(file, offset, length)| Input::Preexisting {
            file, offset, length, cached_bytes: length / 2 }),
        5 => (file(), 0..5_u64, 1..4_u64, length(), any::<bool>()).prop_map(
            |(file, extent, more, bytes, goes_on)| {
                let offset = extent * EXTENT_BYTES;
                Input::ExtentsCounted { file, offset, end: offset + more * EXTENT_BYTES,
                    cached: vec![CachedExtent { offset, bytes }], questions: 50, goes_on }
            }
        ),
        5 => (file(), offset(), length()).prop_map(|(file, offset, bytes)| Input::Undropped {
            file, offset, bytes }),
        1 => Just(Input::Ended),
        2 => (file(), offset(), length()).prop_map(|(file, offset, length)| Input::Absent { file,
            offset, length }),
        1 => file().prop_map(|file| Input::Gone { file }),
        1 => (50..400_u64, 0..40_u64).prop_map(|(blocks, more)| Input::Budget {
            bytes: blocks * BLOCK_BYTES,
            alone_bytes: (blocks + more) * BLOCK_BYTES,
        }),
        5 => (0..60 * BLOCK_BYTES).prop_map(|bytes| Input::Stored { bytes,
            transferred_bytes: 3 * bytes }),
        1 => Just(Input::Unaccounted),
        2 => Just(Input::CheckResidency),
        20 => Just(Input::Tick),
    ]
}

/// Writes the log of a controller that gets these inputs, and returns the number of its decisions.
/// Panics where the controller's state is inconsistent.
fn logged(path: &Path, config: &PageCacheConfig, inputs: Vec<(Input, u64)>) -> usize {
    let log = DecisionLog::<PageCacheController>::begin(
        &LogFile::create(path, false).expect("created"),
        config,
    );
    let mut controller = PageCacheController::new(config).expect("a sound configuration");
    let (mut decisions, mut time_ns) = (0, 0);
    for (input, later_ns) in inputs {
        time_ns += later_ns;
        let at = TimedInput { time_ns, input };
        log.input(&at);
        let mut out = Vec::new();
        controller.step(&at, &mut out);
        controller.check();
        out.iter().for_each(|decision| log.decision(decision));
        decisions += out.len();
    }
    log.finish(&json!({ "files": 1 })).expect("written");
    decisions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_log_replays_to_the_same_decisions(
        inputs in prop::collection::vec((input(), 0..2_000_000_000_u64), 1..150),
        policy in prop::sample::select(&["pcc", "pcc{other=arc}", "ubm", "dear", "mru", "arc",
            "random"][..]),
        limit in prop::option::of((2..6_u64, any::<bool>())),
    ) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("log.jsonl");
        let limit = limit.map(|(extents, keeps)| LimitConfig {
            bytes: extents * EXTENT_BYTES,
            keeps,
            is_told: false,
            page_bytes: 4096,
        });
        let decisions = logged(&path, &PageCacheConfig { limit, ..config(policy) }, inputs);
        prop_assert_eq!(replay(&path).expect("a sound log"), Ok(decisions));
    }
}

fn passes() -> Vec<(Input, u64)> {
    let read = |block: u64| Input::Access {
        file: FileKey(1),
        offset: block * BLOCK_BYTES,
        length: BLOCK_BYTES,
        signature: 1,
        process: 0,
        thread: 0,
        write: false,
    };
    let blocks = (0..3).flat_map(|_| 0..600);
    let steps = blocks.flat_map(|block| [(read(block), 1), (Input::Tick, 1)]);
    steps.collect()
}

#[test]
fn a_log_that_was_changed_is_found_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log.jsonl");
    assert!(logged(&path, &config("mru"), passes()) > 2);
    let text = std::fs::read_to_string(&path).expect("read");
    let dropped = format!("\"length\":{EXTENT_BYTES}}}");
    assert!(text.contains(&dropped), "{text}");
    std::fs::write(&path, text.replacen(&dropped, "\"length\":1}", 1)).expect("written");
    let mismatch = replay(&path).expect("a sound log").expect_err("it differs");
    assert!(mismatch.logged.contains("\"length\":1}"), "{mismatch:?}");
    assert!(mismatch.decided.contains("Drop"), "{mismatch:?}");
    let last = text.rfind("{\"order\"").expect("an order");
    std::fs::write(&path, &text[..last]).expect("written");
    let mismatch = replay(&path)
        .expect("a sound log")
        .expect_err("it is cut off");
    assert_eq!(mismatch.logged, "the file ends");
    assert_eq!(mismatch.line, text[..last].lines().count() + 1);
}

#[test]
fn a_policy_that_needs_the_future_is_refused() {
    let refused = PageCacheController::new(&config("opt"))
        .err()
        .expect("an error");
    assert!(refused.to_string().contains("opt: it needs the future"));
}
