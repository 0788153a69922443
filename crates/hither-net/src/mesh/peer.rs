//! What a node knows of one other member: its address, both connections, and counters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::LinkError;
use super::outbox::Outbox;
use crate::view::MemberId;

/// What a node does with what arrives. The methods are called on the tasks that read connections:
/// they must not block, and of the mesh they may call nothing but
/// [`Mesh::send`](super::Mesh::send).
pub trait Handler: Send + Sync + 'static {
    /// A frame has arrived of a member of the view.
    fn on_frame(&self, from: MemberId, frame: crate::frame::Frame);
    /// Both connections with a member are up: what is sent arrives, and so do answers.
    fn on_connected(&self, member: MemberId);
    /// One of the connections was lost: what was asked of the member may stay without an answer.
    fn on_disconnected(&self, member: MemberId);
}

/// Another member.
pub(crate) struct Peer {
    pub(crate) id: MemberId,
    pub(crate) name: String,
    pub(crate) counters: Counters,
    pub(crate) outbox: Outbox,
    /// Whether the member is in the view.
    pub(crate) in_view: AtomicBool,
    /// Ends the wait before the next attempt to connect, or a connection to an earlier instance.
    pub(crate) redial: Notify,
    /// Held by the task that dials, so that a new one begins when the last one has ended.
    pub(crate) dialling: tokio::sync::Mutex<()>,
    pub(crate) state: Mutex<PeerState>,
}

#[derive(Default)]
pub(crate) struct PeerState {
    /// The address that is dialled, and what ends the task that does.
    pub(crate) dialled: Option<(String, Arc<Notify>)>,
    pub(crate) inbound: Option<Inbound>,
    /// Instances whose connection was replaced by that of another one, the last few.
    superseded: Vec<u64>,
    /// The member has got the welcome on the connection on which it sends.
    inbound_up: bool,
    /// The instance that this node's own connection leads to, while it is up.
    outbound: Option<u64>,
    announced: bool,
}

/// The connection on which the member sends.
#[derive(Clone)]
pub(crate) struct Inbound {
    pub(crate) instance: u64,
    pub(crate) address: SocketAddr,
    /// Ends the task that reads it.
    pub(crate) close: Arc<Notify>,
}

/// How many superseded instances are remembered.
const SUPERSEDED_MAX: usize = 8;

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) sent_frames: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) received_frames: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) failed_connects: AtomicU64,
}

/// The counters of one member, since it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// The member's name.
    pub name: String,
    /// Whether both connections are up.
    pub connected: bool,
    /// Bytes of the frames that were queued for it, headers included.
    pub sent_bytes: u64,
    /// Frames that were queued for it.
    pub sent_frames: u64,
    /// Bytes of the frames that came from it, headers included.
    pub received_bytes: u64,
    /// Frames that came from it.
    pub received_frames: u64,
    /// Frames that were refused since the queue was full.
    pub full: u64,
    /// Connections to it that were made: all but the first are reconnects.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
    /// Bytes that are queued for it now.
    pub queued_bytes: usize,
}

impl Peer {
    pub(crate) fn new(name: String, queue_bytes_max: usize) -> Peer {
        Peer {
            id: MemberId::of(&name),
            name,
            counters: Counters::default(),
            outbox: Outbox::new(queue_bytes_max),
            in_view: AtomicBool::new(false),
            redial: Notify::new(),
            dialling: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Notes which instance this node's own connection leads to, or that it is gone. The handler is
    /// told under the lock, so that it sees the changes in their order.
    pub(crate) fn set_outbound(&self, instance: Option<u64>, handler: &dyn Handler) {
        let mut state = self.state.lock();
        state.outbound = instance;
        state.announce(self.id, handler);
    }

    /// Notes a connection of the member. One that is there is replaced and closed: the member has
    /// restarted, or two nodes have its name. In the second case the replaced one comes back and is
    /// refused as long as the later one is connected.
    pub(crate) fn set_inbound(
        &self,
        inbound: Inbound,
        handler: &dyn Handler,
    ) -> Result<(), LinkError> {
        let mut state = self.state.lock();
        if let Some(old) = state.inbound.take() {
            if old.instance != inbound.instance {
                if state.superseded.contains(&inbound.instance) {
                    let error = LinkError::NameTaken(old.address, self.name.clone());
                    state.inbound = Some(old);
                    return Err(error);
                }
                if state.superseded.len() == SUPERSEDED_MAX {
                    state.superseded.remove(0);
                }
                state.superseded.push(old.instance);
            }
            old.close.notify_one();
            state.inbound_up = false;
            state.announce(self.id, handler);
        }
        state.inbound = Some(inbound);
        Ok(())
    }

    /// Notes that the member has got the welcome on `inbound`: its own queue is open. This node
    /// connects in turn, at once: also if it believes to be connected to an earlier instance.
    pub(crate) fn confirm_inbound(&self, inbound: &Inbound, handler: &dyn Handler) {
        let mut state = self.state.lock();
        if !state.is_inbound(&inbound.close) {
            return;
        }
        state.inbound_up = true;
        if state.outbound != Some(inbound.instance) {
            self.redial.notify_one();
        }
        state.announce(self.id, handler);
    }

    /// Whether this node's own connection leads to another instance than that which sends.
    pub(crate) fn leads_elsewhere(&self) -> bool {
        let state = self.state.lock();
        let sender = state.inbound.as_ref().map(|inbound| inbound.instance);
        sender.is_some() && sender != state.outbound
    }

    /// Notes that the connection that `close` ends is gone.
    pub(crate) fn clear_inbound(&self, close: &Arc<Notify>, handler: &dyn Handler) {
        let mut state = self.state.lock();
        if state.is_inbound(close) {
            state.inbound = None;
            state.inbound_up = false;
            state.announce(self.id, handler);
        }
    }

    /// Whether nothing is known of the member that must be kept. Does not wait for the state: who
    /// holds it may be in the handler, which may wait for the list of members to send.
    pub(crate) fn is_unused(&self) -> bool {
        let Some(state) = self.state.try_lock() else {
            return false;
        };
        !self.in_view.load(Ordering::Acquire) && state.inbound.is_none() && state.dialled.is_none()
    }

    pub(crate) fn stats(&self) -> PeerStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        PeerStats {
            name: self.name.clone(),
            connected: self.state.lock().announced,
            sent_bytes: count(&counters.sent_bytes),
            sent_frames: count(&counters.sent_frames),
            received_bytes: count(&counters.received_bytes),
            received_frames: count(&counters.received_frames),
            full: count(&counters.full),
            connects: count(&counters.connects),
            failed_connects: count(&counters.failed_connects),
            queued_bytes: self.outbox.queued_bytes(),
        }
    }
}

impl PeerState {
    /// Whether the connection on which the member sends is the one that `close` ends.
    fn is_inbound(&self, close: &Arc<Notify>) -> bool {
        let same = |inbound: &Inbound| Arc::ptr_eq(&inbound.close, close);
        self.inbound.as_ref().is_some_and(same)
    }

    fn announce(&mut self, id: MemberId, handler: &dyn Handler) {
        let connected = self.outbound.is_some() && self.inbound_up;
        if connected == self.announced {
            return;
        }
        self.announced = connected;
        if connected {
            handler.on_connected(id);
        } else {
            handler.on_disconnected(id);
        }
    }
}
