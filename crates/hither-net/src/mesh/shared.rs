//! What all tasks of a mesh share.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

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
    logged: Mutex<VecDeque<String>>,
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

impl Shared {
    pub(crate) fn new(config: MeshConfig, handler: Arc<dyn Handler>) -> Shared {
        Shared {
            config,
            handler,
            epoch: AtomicU64::new(0),
            peers: RwLock::default(),
            instance: random(),
            logged: Mutex::default(),
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

    /// Logs a warning, unless it is one of the last that were logged: failures repeat with each
    /// attempt to connect.
    pub(crate) fn warn_once(&self, text: String) {
        let mut logged = self.logged.lock();
        if logged.contains(&text) {
            return;
        }
        tracing::warn!("{text}");
        if logged.len() == LOGGED_MAX {
            logged.pop_front();
        }
        logged.push_back(text);
    }

    /// Lets warnings that start with `subject` be logged again: what they said is over.
    pub(crate) fn forget_warnings(&self, subject: &str) {
        self.logged.lock().retain(|text| !text.starts_with(subject));
    }
}
