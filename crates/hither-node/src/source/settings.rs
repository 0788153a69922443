//! How a source is used: limits, timeouts, retries, and the options of its kind.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSettings {
    /// Requests in flight at once. Further ones wait.
    pub requests_max: usize,
    /// How long one attempt may take until the answer starts.
    pub attempt_timeout: Duration,
    /// How long an answer may pause before the attempt counts as failed.
    pub stall_timeout: Duration,
    /// How long a request may go on without a byte of progress, over all its attempts. An attempt
    /// that runs when it ends is cut short.
    pub deadline: Duration,
    /// The pause before the first retry. Each further pause is up to twice as long.
    pub backoff_min: Duration,
    /// The longest pause between two attempts, unless the source asks for a longer one.
    pub backoff_max: Duration,
    /// The age below which a file's time stamps may hide a second change. Twice the coarsest clock
    /// in use (1 s), so clocks of a file system and its reader may differ by 1 s.
    pub settling: Duration,
    /// Where what is written to a bucket waits until it is sent.
    pub writes: WriteSettings,
    /// Options of the kind of source, such as `region`, `endpoint` or `allow_http`. They override
    /// the environment.
    pub options: BTreeMap<String, String>,
}

impl Default for SourceSettings {
    fn default() -> SourceSettings {
        SourceSettings {
            requests_max: 32,
            attempt_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            settling: Duration::from_secs(2),
            writes: WriteSettings::default(),
            options: BTreeMap::new(),
        }
    }
}

/// Room for what is written to a bucket, over all its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteSettings {
    /// Memory for it, but at least a part. What finds none free waits in files.
    pub memory_bytes: u64,
    /// The length of the first parts of an object. S3 takes no smaller ones than 5 MiB.
    pub part_bytes: u64,
    /// The folder of these files. Without one, or where it cannot be used: that of temporary files.
    pub folder: Option<PathBuf>,
}

impl Default for WriteSettings {
    fn default() -> WriteSettings {
        WriteSettings {
            memory_bytes: 256 << 20,
            part_bytes: 8 << 20,
            folder: None,
        }
    }
}

/// The largest part of a file that is read by one request: 8 MiB. Larger ranges are split.
pub(super) const PIECE_BYTES: u64 = 8 << 20;
