//! Puts a version in its place, and proves that it is there.
//!
//! An answer may be late or lost, and what comes back from the next attempt may then be about the
//! attempt before, or about another writer: that the object exists, that it changed, that the
//! upload is unknown. So each write has a mark, a random number that its object carries as user
//! metadata. Whatever the source answers, the object is this write's if it has its mark, and
//! nothing else proves that: not its length, nor that its bytes are the same. Where that cannot be
//! shown, the write fails.

use std::future::Future;
use std::time::Duration;

use hither_net::random::random;
use object_store::PutResult;
use object_store::path::Path;
use tokio::time::timeout;

use super::super::write::Replace;
use super::super::{SourceError, SourcePath};
use super::attempts::{Attempts, Failure};
use super::conditions::Condition;
use super::store::Store;
use super::versions::{Head, version};

/// The mark of a new write.
pub(super) fn new_mark() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// A version that is to take its place.
pub(super) struct Commit<'a> {
    pub store: &'a Store,
    pub path: &'a SourcePath,
    pub key: &'a Path,
    pub mark: &'a str,
    pub replace: &'a Replace,
    /// How much longer than another request it may take.
    pub more: Duration,
    /// It is completed of parts: what the source does not find is the upload.
    pub in_parts: bool,
}

/// A version is in its place.
pub(super) enum Committed {
    /// The source said so.
    Answered(PutResult),
    /// It was found there.
    Found(Head),
}

impl Commit<'_> {
    /// Sends until the version is in its place, or is known not to be, or may be.
    pub(super) async fn run<Sent>(
        &self,
        send: impl Fn(Condition) -> Sent,
    ) -> Result<Committed, SourceError>
    where
        Sent: Future<Output = object_store::Result<PutResult>>,
    {
        let store = self.store;
        let mut attempts = Attempts::new(self.path, &store.settings, &store.counters);
        attempts.excuse(self.more);
        let (mut was_sent, mut was_refused) = (false, false);
        loop {
            let known = match (was_sent || self.in_parts, self.replace) {
                // Whoever replaces anything has mostly found nothing.
                (false, Replace::Nothing | Replace::Any) if store.conditions.are_known() => {
                    Some(Condition::Nothing)
                }
                (false, Replace::Version(version)) => store.conditions.version(version),
                _ => None,
            };
            let condition = match known {
                Some(condition) => condition,
                None => {
                    let there = store.head_if_there(self.path, self.key).await?;
                    match there {
                        Some(head) if was_sent && self.is_ours(&head) => {
                            return Ok(Committed::Found(head));
                        }
                        there => {
                            allow(self.path, self.replace, there.as_ref())?;
                            store.conditions.unchanged(there.as_ref())
                        }
                    }
                }
            };
            let sent = send(condition.clone());
            let unanswered = match store.attempt(&mut attempts, self.more, sent).await {
                Ok(result) => return Ok(Committed::Answered(result)),
                Err(unanswered) => unanswered,
            };
            if store.conditions.were_unknown(&unanswered) {
                continue;
            }
            was_sent = true;
            let failure = match unanswered.failure(self.path) {
                Failure::Final(SourceError::Changed(_) | SourceError::InTheWay { .. }) => {
                    if !std::mem::replace(&mut was_refused, true) {
                        continue; // What is there says why.
                    }
                    Failure::transient("the object changes all the time")
                }
                Failure::Final(SourceError::NotFound(path)) if self.in_parts => {
                    let there = store.head_if_there(&path, self.key).await?;
                    let is_gone = there.is_none() && matches!(condition, Condition::Same(_));
                    match there {
                        Some(head) if self.is_ours(&head) => return Ok(Committed::Found(head)),
                        there => allow(&path, self.replace, there.as_ref())?,
                    }
                    if !is_gone {
                        let reason = "the source forgot the parts of the object".into();
                        return Err(SourceError::Failed { path, reason });
                    }
                    Failure::transient("the object was removed")
                }
                failure => failure,
            };
            let is_over = matches!(failure, Failure::Transient { .. });
            if let Err(error) = attempts.pause(failure).await {
                // The time is over. A last look costs one request.
                let look = store.head(self.path, self.key);
                return match timeout(store.settings.attempt_timeout, look).await {
                    Ok(Ok(head)) if is_over && self.is_ours(&head) => Ok(Committed::Found(head)),
                    _ => Err(error),
                };
            }
        }
    }

    fn is_ours(&self, head: &Head) -> bool {
        head.mark.as_deref() == Some(self.mark)
    }
}

/// Whether `replace` allows what is there.
pub(super) fn allow(
    path: &SourcePath,
    replace: &Replace,
    there: Option<&Head>,
) -> Result<(), SourceError> {
    match (replace, there) {
        (Replace::Nothing, Some(_)) => Err(in_the_way(path, "it exists")),
        (Replace::Existing, None) => Err(SourceError::Changed(path.clone())),
        (Replace::Version(wanted), there)
            if there.and_then(|head| version(&head.meta)).as_ref() != Some(wanted) =>
        {
            Err(SourceError::Changed(path.clone()))
        }
        _ => Ok(()),
    }
}

pub(super) fn in_the_way(path: &SourcePath, reason: &str) -> SourceError {
    SourceError::InTheWay {
        path: path.clone(),
        reason: reason.into(),
    }
}
