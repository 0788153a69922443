//! Removes objects, and moves them: a bucket copies and removes, and for a moment both names are
//! there.
//!
//! What is removed is the version that was looked at, or copied: another one that has come
//! meanwhile stays. Where the bucket does not remove under a condition, it is looked at right
//! before, and between the look and the removal another writer may come in.

use std::time::Duration;

use object_store::path::Path;

use super::super::{SourceError, SourcePath};
use super::attempts::{Attempts, Failure};
use super::commit::in_the_way;
use super::store::Store;
use super::upload::sending_time;
use super::versions::{Head, version};

/// What has become of a version that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    /// It is gone.
    Gone,
    /// Another one is there.
    Replaced,
}

/// Whether both are of one version.
fn is_same(one: &Head, other: &Head) -> bool {
    version(&one.meta) == version(&other.meta) && one.meta.size == other.meta.size
}

impl Store {
    /// Removes the version `there`, which was there a moment ago.
    pub(super) async fn remove_version(
        &self,
        path: &SourcePath,
        key: &Path,
        there: &Head,
    ) -> Result<Removed, SourceError> {
        let mut attempts = Attempts::new(path, &self.settings, &self.counters);
        loop {
            let condition = self.conditions.unchanged(Some(there));
            let removed = self.delete_if(key, condition);
            let removed = self.attempt(&mut attempts, Duration::ZERO, removed).await;
            let Err(unanswered) = removed else {
                return Ok(Removed::Gone);
            };
            if self.conditions.were_unknown(&unanswered) {
                continue;
            }
            match unanswered.failure(path) {
                Failure::Final(SourceError::NotFound(_)) => return Ok(Removed::Gone),
                Failure::Final(SourceError::Changed(_) | SourceError::InTheWay { .. }) => {
                    attempts
                        .pause(Failure::transient("the object changes"))
                        .await?;
                }
                failure => attempts.pause(failure).await?,
            }
            // The answer may be lost, and another version may have come since.
            match self.head_if_there(path, key).await? {
                None => return Ok(Removed::Gone),
                Some(now) if !is_same(&now, there) => return Ok(Removed::Replaced),
                Some(_) => {}
            }
        }
    }
}

/// An object that is to be moved.
pub(super) struct Moving<'a> {
    pub store: &'a Store,
    pub from: (&'a SourcePath, &'a Path),
    pub to: (&'a SourcePath, &'a Path),
    /// The version that is moved.
    pub file: &'a Head,
    /// Whether what is at `to` is replaced.
    pub replace: bool,
}

impl Moving<'_> {
    /// Copies it, and removes what was copied.
    pub(super) async fn run(&self) -> Result<(), SourceError> {
        let (path, key) = self.from;
        self.copy().await?;
        match self.store.head_if_there(path, key).await? {
            None => return Ok(()),
            Some(now) if !is_same(&now, self.file) => return Err(self.replaced()),
            Some(_) => {}
        }
        match self.store.remove_version(path, key, self.file).await? {
            Removed::Gone => Ok(()),
            Removed::Replaced => Err(self.replaced()),
        }
    }

    /// Another version was stored under the old name meanwhile. Both are kept. Not as a version
    /// that changed: the kernel would begin anew, and that would replace what was copied.
    fn replaced(&self) -> SourceError {
        let (path, to) = (self.from.0, self.to.0);
        tracing::warn!("{path} was replaced while it was moved to {to}: both versions are kept");
        SourceError::Refused {
            path: path.clone(),
            code: rustix::io::Errno::BUSY.raw_os_error(),
        }
    }

    async fn copy(&self) -> Result<(), SourceError> {
        let (store, (to, new)) = (self.store, self.to);
        // The bucket copies before it answers.
        let more = sending_time(self.file.meta.size) / 16;
        let mut attempts = Attempts::new(to, &store.settings, &store.counters);
        attempts.excuse(more);
        let source = store.conditions.unchanged(Some(self.file));
        let mut was_sent = false;
        loop {
            let there = store.head_if_there(to, new).await?;
            if let (false, Some(there)) = (self.replace, &there) {
                return if was_sent && self.is_copy(there) {
                    Ok(())
                } else {
                    Err(in_the_way(to, "it exists"))
                };
            }
            let target = store.conditions.unchanged(there.as_ref());
            let copied = store.copy_if(self.from.1, new, source.clone(), target);
            let Err(unanswered) = store.attempt(&mut attempts, more, copied).await else {
                return Ok(());
            };
            if store.conditions.were_unknown(&unanswered) {
                continue;
            }
            was_sent = true;
            match unanswered.failure(to) {
                Failure::Final(
                    SourceError::NotFound(_)
                    | SourceError::Changed(_)
                    | SourceError::InTheWay { .. },
                ) => {
                    let now = store.head(self.from.0, self.from.1).await?;
                    if !is_same(&now, self.file) {
                        return Err(self.replaced());
                    }
                    let changes = Failure::transient("the object changes all the time");
                    attempts.pause(changes).await?;
                }
                failure => attempts.pause(failure).await?,
            }
        }
    }

    /// Whether an object is what an earlier attempt has copied: the mark is copied too. The same
    /// bytes may be another writer's.
    fn is_copy(&self, there: &Head) -> bool {
        self.file.mark.is_some() && there.mark == self.file.mark
    }
}
