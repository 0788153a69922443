//! What a failed attempt means, and how long to wait before the next one.

use std::error::Error;
use std::time::Duration;

use hither_net::random::random;
use object_store::client::HttpError;
use tokio::time::Instant;

use super::super::counters::SourceCounters;
use super::super::name::without_secrets;
use super::super::settings::SourceSettings;
use super::super::{SourceError, SourcePath};
use super::transport::Refused;

/// A failed attempt.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt would fail as well.
    Final(SourceError),
    /// Another attempt may succeed.
    Transient {
        /// What went wrong.
        reason: String,
        /// How long the source wants to be left alone.
        retry_after: Option<Duration>,
    },
}

impl Failure {
    /// A failure for which the source asks no pause.
    pub(super) fn transient(reason: impl Into<String>) -> Failure {
        Failure::Transient {
            reason: reason.into(),
            retry_after: None,
        }
    }

    /// What an error of the client library means.
    pub(super) fn of(path: &SourcePath, error: &object_store::Error) -> Failure {
        use object_store::Error as E;
        let denied = |reason: String| {
            Failure::Final(SourceError::Denied {
                path: path.clone(),
                reason,
            })
        };
        if let Some(refused) = find::<Refused>(error) {
            return Failure::of_refusal(path, refused);
        }
        match error {
            E::NotFound { .. } => Failure::Final(SourceError::NotFound(path.clone())),
            E::AlreadyExists { .. } => Failure::Final(SourceError::InTheWay {
                path: path.clone(),
                reason: "it exists".into(),
            }),
            E::Precondition { .. } | E::NotModified { .. } => {
                Failure::Final(SourceError::Changed(path.clone()))
            }
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => denied(innermost(error)),
            _ if is_transient(error) => Failure::transient(innermost(error)),
            _ => Failure::Final(SourceError::Failed {
                path: path.clone(),
                reason: innermost(error),
            }),
        }
    }

    fn of_refusal(path: &SourcePath, refused: &Refused) -> Failure {
        let (path, reason) = (path.clone(), refused.to_string());
        match refused.status.as_u16() {
            404 => Failure::Final(SourceError::NotFound(path)),
            // The file is shorter than the version that is read.
            412 | 416 => Failure::Final(SourceError::Changed(path)),
            401 | 403 => Failure::Final(SourceError::Denied { path, reason }),
            501 | 505 => Failure::Final(SourceError::Failed { path, reason }),
            408 | 425 | 429 | 500.. => Failure::Transient {
                reason,
                retry_after: refused.retry_after,
            },
            _ => Failure::Final(SourceError::Failed { path, reason }),
        }
    }
}

/// An attempt without an answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The source refuses, or the connection broke.
    Error(object_store::Error),
    /// There was none in this time.
    Late(Duration),
}

impl Unanswered {
    /// What it means.
    pub(super) fn failure(&self, path: &SourcePath) -> Failure {
        match self {
            Unanswered::Error(error) => Failure::of(path, error),
            Unanswered::Late(limit) => Failure::transient(format!("no answer within {limit:?}")),
        }
    }
}

/// Whether the network failed, and may not do so next time. A certificate that is not trusted now
/// will not be in a moment.
fn is_transient(error: &object_store::Error) -> bool {
    let is_trusted = !innermost(error).starts_with("invalid peer certificate");
    is_trusted && find::<HttpError>(error).is_some()
}

/// The error of type `E` in the chain of causes.
pub(super) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        at = error.source();
    }
    None
}

/// The cause at the end of the chain: the others repeat it, with all of the URL.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    without_secrets(&at.to_string())
}

/// The attempts at one request.
pub(super) struct Attempts<'a> {
    path: &'a SourcePath,
    settings: &'a SourceSettings,
    counters: &'a SourceCounters,
    give_up: Instant,
    pause_max: Duration,
}

impl<'a> Attempts<'a> {
    /// Attempts from now on.
    pub(super) fn new(
        path: &'a SourcePath,
        settings: &'a SourceSettings,
        counters: &'a SourceCounters,
    ) -> Attempts<'a> {
        Attempts {
            path,
            settings,
            counters,
            give_up: Instant::now() + settings.deadline,
            pause_max: settings.backoff_min,
        }
    }

    /// What was received is progress: time and pauses start anew.
    pub(super) fn progress(&mut self) {
        self.give_up = Instant::now() + self.settings.deadline;
        self.pause_max = self.settings.backoff_min;
    }

    /// Time spent waiting for others is not the request's own.
    pub(super) fn excuse(&mut self, waited: Duration) {
        self.give_up += waited;
    }

    /// How long the next step of an attempt may take, of `timeout` at most.
    pub(super) fn time_left(&self, timeout: Duration) -> Duration {
        timeout.min(self.give_up.saturating_duration_since(Instant::now()))
    }

    /// Waits until the next attempt. An error if there is none.
    pub(super) async fn pause(&mut self, failure: Failure) -> Result<(), SourceError> {
        let (reason, retry_after) = match failure {
            Failure::Final(error) => {
                if matches!(error, SourceError::Failed { .. }) {
                    self.counters.errors.add(1);
                }
                return Err(error);
            }
            Failure::Transient {
                reason,
                retry_after,
            } => (reason, retry_after),
        };
        // Half of the pause is random, so that many readers do not come back at once.
        let half = self.pause_max / 2;
        let pause = half + half.mul_f64(random_share());
        let pause = pause.max(retry_after.unwrap_or_default());
        self.pause_max = (self.pause_max * 2).min(self.settings.backoff_max);
        let left = self.give_up.saturating_duration_since(Instant::now());
        if pause >= left {
            self.counters.errors.add(1);
            return Err(SourceError::Failed {
                path: self.path.clone(),
                reason,
            });
        }
        tracing::debug!("{}: {reason}: again in {pause:?}", self.path);
        self.counters.retries.add(1);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// A number from 0 to 1.
fn random_share() -> f64 {
    (random() >> 11) as f64 / (1u64 << 53) as f64
}
