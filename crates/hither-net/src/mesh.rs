//! A full mesh of members: each sends frames to each other one.
//!
//! For each ordered pair of members there is one connection, which the sender dials and on which
//! only it sends. So there is no rule for which of two connections is kept, and the reading side
//! needs no queue. A connection starts with TLS and a hello, in which both sides check that they
//! are who the other one expects, of one cluster and of one protocol.

mod accept;
mod dial;
mod error;
mod hello;
mod outbox;
mod peer;
mod read;
mod shared;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

pub use error::{MeshError, SendError};
pub use peer::{Handler, PeerStats};
pub use shared::{Limits, MeshConfig};

use crate::frame::{BODY_BYTES_MAX, EncodedFrame, HEADER_BYTES};
use crate::tls::Security;
use crate::view::{MemberId, View, check_name};
use shared::{DrainUntil, Guard, Shared};

/// Connections that the system keeps for the listener before they are accepted.
const BACKLOG: u32 = 1024;

/// This node's place in the mesh. Clones are the same mesh.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    local_address: SocketAddr,
    runtime: Handle,
    ending: watch::Sender<DrainUntil>,
    /// What new tasks hold, until the mesh ends.
    guard: Mutex<Option<Guard>>,
    /// Resolves when all tasks have ended.
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Mesh({})", self.inner.shared.config.me)
    }
}

impl Mesh {
    /// Starts to listen. Members are dialled once [`set_view`](Mesh::set_view) names them. Must be
    /// called within a tokio runtime; all other methods but `shutdown` may be called from anywhere.
    pub async fn start(
        mut config: MeshConfig,
        handler: Arc<dyn Handler>,
    ) -> Result<Mesh, MeshError> {
        check_name(&config.me)?;
        if !(1..=hello::CLUSTER_BYTES_MAX).contains(&config.cluster.len()) {
            return Err(MeshError::Cluster(config.cluster));
        }
        config.security.check_listen(config.listen)?;
        if let Security::Tls(identity) = &config.security {
            identity.check_is(&config.me)?;
        }
        // A queue that is too short for the longest frame would never take it.
        let longest = HEADER_BYTES + BODY_BYTES_MAX;
        config.limits.queue_bytes = config.limits.queue_bytes.max(longest);
        let (listener, local_address) =
            listen(config.listen).map_err(|error| listen_error(config.listen, error))?;
        let (ending, receiver) = watch::channel(None);
        let (alive, ended) = mpsc::channel(1);
        let guard = Guard {
            ending: receiver,
            _alive: alive,
        };
        let shared = Arc::new(Shared::new(config, handler));
        tokio::spawn(accept::listen(shared.clone(), listener, guard.clone()));
        Ok(Mesh {
            inner: Arc::new(Inner {
                shared,
                local_address,
                runtime: Handle::current(),
                ending,
                guard: Mutex::new(Some(guard)),
                ended: tokio::sync::Mutex::new(ended),
            }),
        })
    }

    /// The address that the mesh listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.inner.local_address
    }

    /// This node's id.
    pub fn me(&self) -> MemberId {
        MemberId::of(&self.inner.shared.config.me)
    }

    /// Connects to the members of `view` but this node, and closes the connections with all others:
    /// nothing is heard of a node that is not in the view. A view that is older than the last one
    /// is ignored.
    pub fn set_view(&self, view: &View) {
        let shared = &self.inner.shared;
        let guard = self.inner.guard.lock();
        let Some(guard) = guard.as_ref() else {
            return;
        };
        if shared.epoch.fetch_max(view.epoch(), Ordering::AcqRel) > view.epoch() {
            return;
        }
        for member in view
            .members()
            .iter()
            .filter(|member| member.name != shared.config.me)
        {
            let peer = shared.peer(&member.name);
            peer.in_view.store(true, Ordering::Release);
            let mut state = peer.state.lock();
            match &state.dialled {
                Some((address, _)) if *address == member.address => continue,
                Some((_, stop)) => stop.notify_one(),
                None => {}
            }
            let stop = Arc::new(Notify::new());
            state.dialled = Some((member.address.clone(), stop.clone()));
            drop(state);
            let dial = dial::keep_connected(
                shared.clone(),
                peer.clone(),
                member.address.clone(),
                stop,
                guard.clone(),
            );
            self.inner.runtime.spawn(dial);
        }
        let known: Vec<_> = shared.peers.read().values().cloned().collect();
        for peer in known.iter().filter(|peer| view.member(peer.id).is_none()) {
            peer.in_view.store(false, Ordering::Release);
            let mut state = peer.state.lock();
            if let Some((_, stop)) = state.dialled.take() {
                stop.notify_one();
            }
            if let Some(inbound) = &state.inbound {
                inbound.close.notify_one();
            }
            drop(state);
            shared.forget_unused(peer);
        }
    }

    /// Queues a frame for the member, and writes it if the connection is idle. Never waits. Frames
    /// to one member arrive in their order, or not at all: those that are queued when a connection
    /// breaks are lost.
    pub fn send(&self, to: MemberId, frame: EncodedFrame) -> Result<(), SendError> {
        let peer = self.inner.shared.peers.read().get(&to).cloned();
        let Some(peer) = peer.filter(|peer| peer.in_view.load(Ordering::Relaxed)) else {
            return Err(SendError::UnknownMember);
        };
        let bytes = frame.len() as u64;
        let counters = &peer.counters;
        match peer.outbox.send(frame) {
            Ok(()) => {
                counters.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
                counters.sent_frames.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                if error == SendError::Full {
                    counters.full.fetch_add(1, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// The counters of all members that are known, sorted by name.
    pub fn stats(&self) -> Vec<PeerStats> {
        let known: Vec<_> = self.inner.shared.peers.read().values().cloned().collect();
        let mut stats: Vec<_> = known.iter().map(|peer| peer.stats()).collect();
        stats.sort_by(|one, other| one.name.cmp(&other.name));
        stats
    }

    /// Takes no more frames, sends what is queued, for at most `drain`, and closes everything.
    pub async fn shutdown(&self, drain: Duration) {
        drop(self.inner.guard.lock().take());
        let until = Instant::now() + drain;
        self.inner.ending.send_if_modified(|ending| {
            let first = ending.is_none();
            ending.get_or_insert(until);
            first
        });
        // Nobody sends: this resolves when the last task has dropped its end.
        let _ = self.inner.ended.lock().await.recv().await;
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // So that a restarted node need not wait for the connections of its predecessor to be
    // forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let local_address = listener.local_addr()?;
    Ok((listener, local_address))
}

fn listen_error(address: SocketAddr, source: io::Error) -> MeshError {
    match source.kind() {
        io::ErrorKind::AddrInUse => MeshError::PortInUse(address),
        io::ErrorKind::AddrNotAvailable => MeshError::NotOurAddress(address),
        _ => MeshError::Listen { address, source },
    }
}
