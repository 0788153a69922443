//! Random sequences of writes, removals and renames to a bucket that fails in every way, against a
//! reference: no write that was acknowledged is lost, and no version of anybody is replaced or
//! removed but one that the operation was meant to replace.
//!
//! `HITHER_WRITE_SEQUENCES` says how many sequences there are, and `HITHER_SEED` the first one's
//! seed. A sequence that fails prints its own, with which it can be run alone.

mod bucket;
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::client::HttpClient;
use object_store::path::Path;
use parking_lot::Mutex;

use self::bucket::{Bucket, Conditions, Manner, State, Stored};
use self::random::Random;
use super::super::counters::SourceCounters;
use super::super::settings::{SourceSettings, WriteSettings};
use super::super::write::{Replace, WritableSource};
use super::super::{Source, SourceError, SourcePath};
use super::opening::s3_store;
use super::source::ObjectSource;
use super::transport::Transport;
use super::versions::strong_etag;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// Longer objects are stored in parts.
const PART_BYTES: usize = 48;

/// What was asked of the source.
#[derive(Clone, Debug)]
enum Operation {
    Write {
        key: &'static str,
        replace: Replace,
        bytes: Bytes,
    },
    Remove {
        key: &'static str,
    },
    Rename {
        from: &'static str,
        to: &'static str,
        replace: bool,
    },
}

/// What has come of it.
#[derive(Debug)]
struct Done {
    operation: Operation,
    began: u64,
    ended: u64,
    result: Result<(), SourceError>,
}

impl Done {
    /// Whether it may have been carried out only in part, or later.
    fn is_open(&self) -> bool {
        matches!(
            self.result,
            Err(SourceError::Failed { .. } | SourceError::Refused { .. })
        )
    }

    /// Whether its change at `step` may replace or remove `before`, whose bytes the key had at
    /// `since` for the first time. The same bytes have the same etag: no condition tells a version
    /// from an earlier one that was the same.
    fn may_end(&self, step: u64, before: &Stored, since: u64) -> bool {
        // What has come after it has ended was nothing that it could mean.
        let is_back = since < before.step && since <= self.ended;
        let is_late = step > self.ended && !self.is_open() && !is_back;
        let is_seen = since <= self.ended && !is_late;
        let is_meant = match &self.operation {
            Operation::Write { replace, .. } => match replace {
                Replace::Any | Replace::Existing => true,
                Replace::Nothing => false,
                Replace::Version(version) => strong_etag(version) == Some(&before.etag),
            },
            Operation::Remove { .. } => true,
            Operation::Rename { .. } => true,
        };
        is_seen && is_meant
    }
}

/// A source of the bucket.
fn source(bucket: &Bucket) -> ObjectSource {
    let settings = SourceSettings {
        deadline: Duration::from_secs(30),
        writes: WriteSettings {
            memory_bytes: 1 << 20,
            part_bytes: PART_BYTES as u64,
            folder: None,
        },
        ..SourceSettings::default()
    };
    let builder = AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_endpoint("http://bucket.invalid")
        .with_allow_http(true)
        .with_skip_signature(true);
    let counters = Arc::new(SourceCounters::default());
    let transport = Transport::over(HttpClient::new(bucket.clone()), &counters);
    let store = s3_store(builder, &transport, Path::default(), &settings, counters);
    ObjectSource(Arc::new(store.unwrap()))
}

fn path(key: &str) -> SourcePath {
    SourcePath::new(key.as_bytes()).unwrap()
}

async fn run(source: &ObjectSource, operation: &Operation) -> Result<(), SourceError> {
    match operation {
        Operation::Write {
            key,
            replace,
            bytes,
        } => {
            let mut upload = source.create(&path(key), replace.clone(), 0).await?;
            for chunk in bytes.chunks(31) {
                upload.write(Bytes::copy_from_slice(chunk)).await?;
            }
            upload.finish().await.map(drop)
        }
        Operation::Remove { key } => source.remove(&path(key)).await,
        Operation::Rename { from, to, replace } => {
            source.rename(&path(from), &path(to), *replace).await
        }
    }
}

async fn draw(
    random: &mut Random,
    source: &ObjectSource,
    manner: &Manner,
    number: u64,
) -> Operation {
    let mut key = || KEYS[random.below(3) as usize];
    let (key, to) = (key(), key());
    match random.below(10) {
        0 => Operation::Remove { key },
        1 | 2 if to != key => Operation::Rename {
            from: key,
            to,
            replace: random.below(2) == 0,
        },
        _ => {
            let replace = match random.below(4) {
                0 => Replace::Any,
                1 => Replace::Nothing,
                2 => Replace::Existing,
                _ => match source.stat(&path(key)).await {
                    Ok(entry) => Replace::Version(entry.version().unwrap().clone()),
                    Err(_) => Replace::Nothing,
                },
            };
            let length = [20, PART_BYTES, 130][random.below(3) as usize];
            let bytes = if manner.empty {
                Bytes::new()
            } else {
                let mut bytes = format!("operation {number} ").into_bytes();
                bytes.resize(length, b'.');
                bytes.into()
            };
            Operation::Write {
                key,
                replace,
                bytes,
            }
        }
    }
}

fn draw_manner(random: &mut Random) -> Manner {
    let conditions = match random.below(5) {
        0 => Conditions::Refused,
        1 => Conditions::Ignored,
        _ => Conditions::Kept,
    };
    let empty = random.below(8) == 0;
    Manner {
        conditions,
        keeps_marks: random.below(8) != 0,
        claims_marks: false,
        faults: [0, 50, 200, 400][random.below(4) as usize],
        // Without conditions, nothing stops a request that arrives late. Nor do they where the
        // same bytes come back, which have the same etag.
        late: conditions == Conditions::Kept && !empty,
        others: [0, 30, 100, 250][random.below(4) as usize],
        empty,
    }
}

/// What has come of all operations.
type Tally = BTreeMap<&'static str, u64>;

fn name_of(result: &Result<(), SourceError>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(SourceError::Changed(_)) => "changed",
        Err(SourceError::Failed { .. }) => "failed",
        Err(SourceError::InTheWay { .. }) => "in the way",
        Err(SourceError::NotFound(_)) => "not found",
        Err(SourceError::Refused { .. }) => "replaced meanwhile",
        Err(_) => "refused",
    }
}

/// Runs a sequence. An error is what went wrong.
async fn sequence(
    seed: u64,
    tally: &mut Tally,
    manner: impl Fn(&mut Random) -> Manner,
) -> Result<(), String> {
    let mut random = Random(seed);
    let manner = manner(&mut random);
    let state = Arc::new(Mutex::new(State::new(random.next(), manner, &KEYS)));
    let source = source(&Bucket(Arc::clone(&state)));
    let mut all = BTreeMap::new();
    for number in 1..=3 + random.below(8) {
        state.lock().others();
        state.lock().operation = 0;
        let operation = draw(&mut random, &source, &manner, number).await;
        let began = {
            let mut state = state.lock();
            state.operation = number;
            state.step
        };
        let result = run(&source, &operation).await;
        let ended = state.lock().step;
        *tally.entry(name_of(&result)).or_default() += 1;
        let done = Done {
            operation,
            began,
            ended,
            result,
        };
        all.insert(number, done);
    }
    state.lock().end();
    let state = state.lock();
    check(&all, &state)
        .map_err(|wrong| format!("{wrong}\n{manner:#?}\n{all:#?}\n{:#?}", state.changes))
}

fn check(all: &BTreeMap<u64, Done>, state: &State) -> Result<(), String> {
    for (number, done) in all {
        if done.result.is_err() {
            continue;
        }
        let during = |step| done.began <= step && step <= done.ended;
        let mine = state.changes.iter().filter(|it| it.by == Some(*number));
        let mut mine = mine.filter(|it| during(it.step));
        let is_done = match &done.operation {
            Operation::Write { key, bytes, .. } => mine.any(|it| {
                it.key == *key && it.after.as_ref().is_some_and(|after| after.bytes == *bytes)
            }),
            Operation::Rename { to, .. } => mine.any(|it| it.key == *to && it.after.is_some()),
            Operation::Remove { .. } => true,
        };
        if !is_done {
            return Err(format!("operation {number} was acknowledged and not done"));
        }
    }
    for change in &state.changes {
        let (Some(by), Some(before)) = (change.by, &change.before) else {
            continue;
        };
        // What was never acknowledged may be lost.
        let is_acknowledged = match before.by {
            Some(writer) => all.get(&writer).is_some_and(|done| done.result.is_ok()),
            None => true,
        };
        let done = &all[&by];
        let is_copied = |to: &str| {
            let mut copies = state.changes.iter().filter(|it| it.by == Some(by));
            copies.any(|it| {
                let after = it.after.as_ref();
                it.key == to && after.is_some_and(|after| after.bytes == before.bytes)
            })
        };
        let is_kept = match &done.operation {
            Operation::Rename { from, to, .. } if change.key == *from => is_copied(to),
            Operation::Rename { replace, .. } => {
                // A copy that comes twice replaces itself.
                *replace || before.by == Some(by)
            }
            _ => true,
        };
        let mut same = state.changes.iter().filter(|it| {
            let after = it.after.as_ref();
            it.key == change.key && after.is_some_and(|after| after.etag == before.etag)
        });
        let since = same.next().map_or(before.step, |it| it.step);
        if is_acknowledged && !(done.may_end(change.step, before, since) && is_kept) {
            return Err(format!("operation {by} must not have done {change:#?}"));
        }
    }
    Ok(())
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn no_acknowledged_write_is_lost_or_silently_replaced() {
    let sequences = number("HITHER_WRITE_SEQUENCES").unwrap_or(20_000);
    let first = number("HITHER_SEED").unwrap_or_else(hither_net::random::random);
    println!("HITHER_SEED={first}, {sequences} sequences");
    let (runtime, mut tally) = (runtime(), Tally::new());
    for count in 0..sequences {
        let seed = first.wrapping_add(count);
        if let Err(wrong) = runtime.block_on(sequence(seed, &mut tally, draw_manner)) {
            panic!("HITHER_SEED={seed} HITHER_WRITE_SEQUENCES=1: {wrong}");
        }
    }
    println!("{tally:?}");
    // All that may come of an operation has come of some.
    let all = [
        "changed",
        "done",
        "failed",
        "in the way",
        "not found",
        "replaced meanwhile",
    ];
    assert!(sequences < 1000 || tally.keys().eq(&all), "{tally:?}");
}

/// What the model finds in a bucket of this manner.
fn finds(manner: Manner) -> bool {
    let (runtime, mut tally) = (runtime(), Tally::new());
    let mut run = |seed| runtime.block_on(sequence(seed, &mut tally, |_| manner));
    (0..2000).any(|seed| run(seed).is_err())
}

const HOSTILE: Manner = Manner {
    conditions: Conditions::Kept,
    keeps_marks: true,
    claims_marks: false,
    faults: 200,
    late: true,
    others: 100,
    empty: false,
};

#[test]
fn without_proof_and_without_conditions_the_model_finds_what_is_lost() {
    assert!(!finds(HOSTILE));
    assert!(
        finds(Manner {
            claims_marks: true,
            ..HOSTILE
        }),
        "no proof"
    );
    assert!(
        finds(Manner {
            conditions: Conditions::Ignored,
            ..HOSTILE
        }),
        "no conditions"
    );
}
