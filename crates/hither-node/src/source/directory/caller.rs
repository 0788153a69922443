//! Runs blocking calls on threads of their own, a bounded number at once, and no longer than the
//! deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::super::write::Acting;
use super::super::{SourceError, SourcePath};
use super::tree::Tree;

/// The slowest file system that is waited for, in bytes a second.
const BANDWIDTH_MIN: u64 = 1 << 20;

/// Runs blocking calls.
#[derive(Clone)]
pub(super) struct Caller {
    pub tree: Arc<Tree>,
    pub deadline: Duration,
    pub threads: Arc<Semaphore>,
    /// For whom files are made and changed.
    pub acting: Arc<Acting>,
}

impl Caller {
    /// Runs `job`. If it fails for lack of time, it may still happen.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        path: &SourcePath,
        job: impl FnOnce(&Tree) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        self.long_call(path, 0, job).await
    }

    /// As [`call`](Caller::call), as the user for whom it is.
    pub(super) async fn call_acting<T: Send + 'static>(
        &self,
        path: &SourcePath,
        job: impl FnOnce(&Tree) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let (acting, denied) = (Arc::clone(&self.acting), path.clone());
        let job = move |tree: &Tree| {
            let done = acting.run(|| job(tree));
            done.unwrap_or_else(|error| {
                Err(SourceError::Denied {
                    path: denied,
                    reason: error.to_string(),
                })
            })
        };
        self.call(path, job).await
    }

    /// As [`call`](Caller::call), for a job that moves `bytes`.
    pub(super) async fn long_call<T: Send + 'static>(
        &self,
        path: &SourcePath,
        bytes: u64,
        job: impl FnOnce(&Tree) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let deadline = self.deadline + Duration::from_secs(bytes / BANDWIDTH_MIN);
        let counters = &self.tree.counters;
        let failed = |reason: String| SourceError::Failed {
            path: path.clone(),
            reason,
        };
        let run = async {
            let permit = Arc::clone(&self.threads).acquire_owned().await;
            let permit = permit.map_err(|_| failed("the source is closed".into()))?;
            counters.requests.add(1);
            let tree = Arc::clone(&self.tree);
            let job = tokio::task::spawn_blocking(move || {
                // Held by the thread: a call that hangs counts until it returns.
                let _permit = permit;
                job(&tree)
            });
            job.await
                .unwrap_or_else(|error| Err(failed(error.to_string())))
        };
        let done = match tokio::time::timeout(deadline, run).await {
            Ok(done) => done,
            Err(_) => Err(failed(format!(
                "the file system did not answer within {:?}",
                deadline
            ))),
        };
        if matches!(done, Err(SourceError::Failed { .. })) {
            counters.errors.add(1);
        }
        done
    }
}
