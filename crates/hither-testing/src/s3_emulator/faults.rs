//! What goes wrong: at random by a seed, or as a test lists it.

use std::collections::VecDeque;
use std::time::Duration;

/// One failure of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error of this status, with `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// The connection is closed without an answer.
    Reset,
    /// The same, after what was asked for was done.
    LostAnswer,
    /// The body ends after so many bytes, and the connection with it.
    Truncate(u64),
    /// The body stops after so many bytes, and the connection stays.
    Stall(u64),
    /// What was asked for is done, and then another client stores this object.
    ThenPut(&'static str, &'static [u8]),
    /// Uploads that are not completed are aborted first.
    AbortUploads,
    /// The object is rewritten, with as many bytes, before it is answered.
    Change,
    /// The request is answered well.
    None,
}

/// How requests go wrong. Shares are from 0 to 1 and exclude each other.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Before the first byte of each answer.
    pub latency: Duration,
    /// Of each connection.
    pub bytes_per_second: Option<u64>,
    /// Answered with `error_status`.
    pub error_share: f64,
    /// The status of such an answer.
    pub error_status: u16,
    /// Its header `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// The connection is reset in the middle of the body.
    pub reset_share: f64,
    /// The body ends early.
    pub truncate_share: f64,
    /// The body stops, and the connection stays open.
    pub stall_share: f64,
    /// Answers whole objects (200) to requests for ranges.
    pub ignore_range: bool,
    /// Answers whatever `If-Match` says.
    pub ignore_conditions: bool,
    /// Gives no etags.
    pub no_etag: bool,
    /// Gives no `Last-Modified`.
    pub no_last_modified: bool,
    /// Of the random choices.
    pub seed: u64,
    /// What happens to the next requests, before any of the above.
    pub next: VecDeque<Fault>,
}

impl Faults {
    /// What happens to this request.
    pub(super) fn draw(&mut self) -> (Faults, Option<Fault>) {
        let mut fault = self.next.pop_front();
        if fault.is_none() {
            let drawn = self.random();
            // Within a first part of the body, so that small objects are cut as well.
            let cut = self.random_below(100_000);
            let choices = [
                (
                    self.error_share,
                    Fault::Status(self.error_status, self.retry_after),
                ),
                (self.reset_share, Fault::Reset),
                (self.truncate_share, Fault::Truncate(cut)),
                (self.stall_share, Fault::Stall(cut)),
            ];
            let mut from = 0.0;
            fault = choices.into_iter().find_map(|(share, fault)| {
                from += share;
                (drawn < from).then_some(fault)
            });
        }
        let settings = Faults {
            next: VecDeque::new(),
            ..self.clone()
        };
        (settings, fault.filter(|fault| *fault != Fault::None))
    }

    /// From 0 to 1 (splitmix64).
    fn random(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        (self.random() * bound as f64) as u64
    }
}
