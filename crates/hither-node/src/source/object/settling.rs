//! Whether a version is settled: whether a later change shows as another version.
//!
//! Versions are named by etags, and an etag may be no better than a time stamp: that of nginx is
//! the second of the last change, and the length. So what an etag looks like says nothing. A
//! version is settled if the server itself said, by its own clock, that its last change was long
//! ago when it answered: two times of one clock, and no request more. Where it says no times, or
//! they prove nothing, a version is settled once it was seen unchanged for as long by our own
//! monotonic clock. The clocks of this machine and of the server are never compared.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;
use twox_hash::XxHash3_64;

use super::super::Version;

/// Versions that are watched at most. One that is forgotten settles later.
const WATCHED_MAX: usize = 65_536;

/// How far the clock of a web server may be ahead of the one that stamps its files, which may be
/// that of a file server. A bucket has one clock.
pub(super) const FILE_CLOCK_LAG_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(super) struct Settling {
    /// By the server's clock.
    pub by_server: Duration,
    /// By ours.
    pub by_us: Duration,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// By the hash of the key: the hash of the version, and since when.
    versions: FxHashMap<u64, (u64, Instant)>,
    /// The keys, the oldest first.
    order: VecDeque<u64>,
}

impl Settling {
    /// Versions that were changed `by_server` ago by the server's clock are settled, or those that
    /// were seen unchanged for `by_us`.
    pub(super) fn new(by_server: Duration, by_us: Duration) -> Settling {
        Settling {
            by_server,
            by_us,
            watched: Mutex::default(),
        }
    }

    /// Whether `version` at `key` is settled, of which the server said at `answered` that it was
    /// changed at `modified`.
    pub(super) fn is_settled(
        &self,
        key: &str,
        version: &Version,
        modified: Option<SystemTime>,
        answered: Option<SystemTime>,
    ) -> bool {
        let age = modified.and_then(|modified| answered?.duration_since(modified).ok());
        if age.is_some_and(|age| age >= self.by_server) {
            return true;
        }
        let (key, version) = (
            XxHash3_64::oneshot(key.as_bytes()),
            XxHash3_64::oneshot(version.as_bytes()),
        );
        let now = Instant::now();
        let watched = &mut *self.watched.lock();
        if let Some((seen, since)) = watched.versions.get_mut(&key) {
            if *seen == version {
                return now.duration_since(*since) >= self.by_us;
            }
            (*seen, *since) = (version, now);
            return self.by_us.is_zero();
        }
        if watched.order.len() == WATCHED_MAX
            && let Some(oldest) = watched.order.pop_front()
        {
            watched.versions.remove(&oldest);
        }
        watched.versions.insert(key, (version, now));
        watched.order.push_back(key);
        self.by_us.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn two_times_of_the_server_or_our_own_clock() {
        let settling = Settling::new(Duration::from_secs(2), Duration::from_secs(2));
        let (one, other) = (Version::new(b"one"), Version::new(b"other"));
        let ask =
            |version, modified, answered| settling.is_settled("key", version, modified, answered);
        assert!(ask(&one, at(10), at(12)));
        assert!(!ask(&one, at(10), at(11)), "too young");
        // Whatever this machine's clock says; a time that is to come proves nothing.
        assert!(!ask(&one, at(90), at(12)));
        assert!(!ask(&one, None, at(90)));
        assert!(!ask(&one, at(10), None));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(ask(&one, at(90), at(12)), "seen for long enough");
        assert!(!ask(&other, at(90), at(12)));
        assert!(!ask(&one, at(90), at(12)), "it was another one meanwhile");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!ask(&one, at(90), at(12)));
        assert!(!settling.is_settled("other key", &one, None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_watched_is_bounded() {
        let settling = Settling::new(Duration::from_secs(2), Duration::from_secs(2));
        let version = Version::new(b"version");
        let ask = |number: usize| settling.is_settled(&number.to_string(), &version, None, None);
        (0..=WATCHED_MAX).for_each(|number| assert!(!ask(number)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(ask(WATCHED_MAX));
        assert!(ask(1));
        assert!(!ask(0), "it was forgotten");
        let watched = settling.watched.lock();
        assert_eq!(watched.versions.len(), WATCHED_MAX);
        assert_eq!(watched.order.len(), WATCHED_MAX);
    }
}
