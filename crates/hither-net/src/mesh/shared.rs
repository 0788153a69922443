//! What all tasks of a mesh share.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::error::LinkError;
use super::hello::Hello;
use super::peer::{Handler, Peer};
use crate::random::random;
use crate::tls::Security;
use crate::view::MemberId;

/// What a mesh is started with.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// This node's member name.
    pub me: String,
    /// The cluster's name. Nodes of different clusters refuse each other.
    pub cluster: String,
    /// Where to listen.
    pub listen: SocketAddr,
    /// How connections are protected.
    pub security: Security,
    /// Bounds on memory and time.
    pub limits: Limits,
}

/// Bounds on memory and time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that may be queued for one member.
    pub queue_bytes: usize,
    /// How long a connection may take to be made, handshake and hello included.
    pub handshake: Duration,
    /// Connections from others that may be in their handshake. More are closed at once.
    pub handshakes_max: usize,
    /// The wait before the second attempt to connect. It doubles with each attempt.
    pub redial_min: Duration,
    /// The longest wait between two attempts to connect.
    pub redial_max: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            queue_bytes: 32 << 20,
            handshake: Duration::from_secs(5),
            handshakes_max: 64,
            redial_min: Duration::from_millis(50),
            redial_max: Duration::from_secs(2),
        }
    }
}

/// When the queues must be empty, once the mesh ends.
pub(crate) type DrainUntil = Option<Instant>;

/// What all tasks of a mesh share.
pub(crate) struct Shared {
    pub(crate) config: MeshConfig,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) epoch: AtomicU64,
    pub(crate) peers: RwLock<HashMap<MemberId, Arc<Peer>>>,
    instance: u64,
    logged: Mutex<Logged>,
}

/// What was logged. Strangers can cause lines, so there are not many.
struct Logged {
    /// The last texts, and how often each has come.
    texts: VecDeque<(String, u32)>,
    /// When the minute began in which lines are counted, and how many there were.
    since: Instant,
    lines: u32,
}

impl Logged {
    /// Whether one more line may be logged. Says so if it is the first one that may not.
    fn may_log(&mut self, now: Instant) -> bool {
        if now - self.since >= Duration::from_secs(60) {
            (self.since, self.lines) = (now, 0);
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines == LINES_PER_MINUTE_MAX + 1 {
            tracing::warn!("more than {LINES_PER_MINUTE_MAX} connections failed in a minute");
        }
        self.lines <= LINES_PER_MINUTE_MAX
    }
}

/// What a task holds while it runs: how it learns that the mesh ends, and how the mesh learns that
/// the task has ended.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) ending: watch::Receiver<DrainUntil>,
    pub(crate) _alive: mpsc::Sender<()>,
}

impl Guard {
    /// Resolves when the mesh ends, to the time until which queues may be emptied.
    pub(crate) async fn ended(&mut self) -> Instant {
        let until = self.ending.wait_for(Option::is_some).await;
        // An error means that the mesh was dropped without being shut down.
        until
            .ok()
            .and_then(|until| *until)
            .unwrap_or_else(Instant::now)
    }
}

/// Repeated texts that are remembered.
const LOGGED_MAX: usize = 64;

/// Lines about failures in a minute.
const LINES_PER_MINUTE_MAX: u32 = 100;

impl Shared {
    pub(crate) fn new(config: MeshConfig, handler: Arc<dyn Handler>) -> Shared {
        Shared {
            config,
            handler,
            epoch: AtomicU64::new(0),
            peers: RwLock::default(),
            instance: random(),
            logged: Mutex::new(Logged {
                texts: VecDeque::new(),
                since: Instant::now(),
                lines: 0,
            }),
        }
    }

    /// What this node says of itself.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            instance: self.instance,
            epoch: self.epoch.load(Ordering::Acquire),
            cluster: self.config.cluster.clone(),
            name: self.config.me.clone(),
        }
    }

    /// The member called `name`, which becomes known by this.
    pub(crate) fn peer(&self, name: &str) -> Arc<Peer> {
        let id = MemberId::of(name);
        if let Some(peer) = self.peers.read().get(&id) {
            return peer.clone();
        }
        let make = || Arc::new(Peer::new(name.to_owned(), self.config.limits.queue_bytes));
        self.peers.write().entry(id).or_insert_with(make).clone()
    }

    /// Whether the view has a member called `name`.
    pub(crate) fn peer_in_view(&self, name: &str) -> bool {
        let peers = self.peers.read();
        let peer = peers.get(&MemberId::of(name));
        peer.is_some_and(|peer| peer.in_view.load(Ordering::Acquire))
    }

    /// Forgets a member of which nothing must be kept.
    pub(crate) fn forget_unused(&self, peer: &Peer) {
        let mut peers = self.peers.write();
        if peer.is_unused() {
            peers.remove(&peer.id);
        }
    }

    /// Makes sure that `peer` was not forgotten meanwhile. False if another one took its place.
    pub(crate) fn keep(&self, peer: &Arc<Peer>) -> bool {
        let mut peers = self.peers.write();
        Arc::ptr_eq(peers.entry(peer.id).or_insert_with(|| peer.clone()), peer)
    }

    /// Logs what is wrong with a connection, once it has come more often than may be expected.
    pub(crate) fn warn(&self, subject: &str, error: &LinkError) {
        self.warn_after(error.expected_times(), format!("{subject}{error}"));
    }

    /// Logs a warning, unless it is one of the last that were logged: failures repeat with each
    /// attempt to connect.
    pub(crate) fn warn_once(&self, text: String) {
        self.warn_after(0, text);
    }

    /// The same when it comes for the first time after so many.
    fn warn_after(&self, expected_times: u32, text: String) {
        let mut logged = self.logged.lock();
        let at = logged.texts.iter().position(|(known, _)| *known == text);
        let at = at.unwrap_or_else(|| {
            if logged.texts.len() == LOGGED_MAX {
                logged.texts.pop_front();
            }
            logged.texts.push_back((text.clone(), 0));
            logged.texts.len() - 1
        });
        let times = logged.texts[at].1;
        let is_due = times == expected_times;
        if is_due && !logged.may_log(Instant::now()) {
            return;
        }
        logged.texts[at].1 = times.saturating_add(1);
        if is_due {
            tracing::warn!("{text}");
        } else if times < expected_times {
            tracing::debug!("{text}");
        }
    }

    /// Lets warnings that start with `subject` be logged again: what they said is over.
    pub(crate) fn forget_warnings(&self, subject: &str) {
        let texts = &mut self.logged.lock().texts;
        texts.retain(|(text, _)| !text.starts_with(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_cause_few_lines() {
        let start = Instant::now();
        let mut logged = Logged {
            texts: VecDeque::new(),
            since: start,
            lines: 0,
        };
        let mut lines = |after_s| {
            let now = start + Duration::from_secs(after_s);
            (0..1000).filter(|_| logged.may_log(now)).count()
        };
        assert_eq!(lines(1), LINES_PER_MINUTE_MAX as usize);
        assert_eq!(lines(59), 0);
        assert_eq!(lines(60), LINES_PER_MINUTE_MAX as usize);
    }
}
