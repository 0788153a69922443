//! Drives the protocol: gives it inputs one at a time, with the time, and wakes it when it
//! wants to be woken.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hither_net::view::MemberId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::BlockKey;
use crate::peers::Peers;
use crate::protocol::{
    Blocks, Counters, Input, Output, PeerState, Protocol, RequestId, Settings, Time, Token,
    TopologyState, Urgency, View,
};

/// See the module.
pub(crate) struct Driver {
    protocol: Mutex<Protocol>,
    started: Instant,
    /// Says that the protocol's deadline has come nearer.
    nearer: Notify,
    /// Where lines of the placement's log go.
    placement_log: OnceLock<PlacementLog>,
}

/// Takes a line without its end, and does not wait.
pub(crate) type PlacementLog = Box<dyn Fn(String) + Send + Sync>;

/// What a node is called that has joined no others.
const ALONE: &str = "alone";

impl Driver {
    /// A driver of a node that is alone.
    pub(crate) fn new() -> Driver {
        let driver = Driver::with_protocol(Protocol::new(MemberId::of(ALONE), Settings::default()));
        let view = View::new(1, vec![MemberId::of(ALONE)]);
        let outputs = driver.step(|_| Some(Input::ViewChanged(view)), &Peers::default());
        debug_assert!(outputs.is_empty(), "a node that is alone has nothing to do");
        driver
    }

    fn with_protocol(protocol: Protocol) -> Driver {
        Driver {
            protocol: Mutex::new(protocol),
            started: Instant::now(),
            nearer: Notify::new(),
            placement_log: OnceLock::new(),
        }
    }

    /// The node joins others as `me`.
    pub(crate) fn join(&self, me: MemberId, settings: Settings) {
        *self.protocol.lock() = Protocol::new(me, settings);
    }

    /// Passes on the lines of the placement's log from now on. Before the node joins others.
    pub(crate) fn log_placement(&self, log: PlacementLog) {
        // The first one holds.
        let _ = self.placement_log.set(log);
    }

    /// Whether such lines are passed on.
    pub(crate) fn logs_placement(&self) -> bool {
        self.placement_log.get().is_some()
    }

    /// What the protocol has counted.
    pub(crate) fn counters(&self) -> Counters {
        *self.protocol.lock().counters()
    }

    /// Whether the protocol wants to hear of reads, and of victims.
    pub(crate) fn wishes(&self) -> (bool, bool) {
        let protocol = self.protocol.lock();
        (protocol.counts_reads(), protocol.forwards())
    }

    /// What the protocol knows of each other member.
    pub(crate) fn members(&self) -> Vec<PeerState> {
        self.protocol.lock().peers()
    }

    /// How far the members are from each other.
    pub(crate) fn topology(&self) -> TopologyState {
        self.protocol.lock().topology_state()
    }

    fn now(&self) -> Time {
        Time(self.started.elapsed().as_nanos() as u64)
    }

    /// One step of the protocol, by the input that `input` makes of what is so by then: no other
    /// step comes between. Its messages are sent before the next step, so that each member gets
    /// them in their order; all else is for the caller to do.
    pub(crate) fn step(
        &self,
        input: impl FnOnce(&Protocol) -> Option<Input>,
        peers: &Peers,
    ) -> Vec<Output> {
        let mut outputs = Vec::new();
        let mut protocol = self.protocol.lock();
        let Some(input) = input(&protocol) else {
            return outputs;
        };
        let before = protocol.next_deadline();
        protocol.step(self.now(), input, &mut outputs);
        outputs.retain(|output| match output {
            Output::Send { to, epoch, message } => {
                peers.send(*to, *epoch, message);
                false
            }
            _ => true,
        });
        let after = protocol.next_deadline();
        if let Some(log) = self.placement_log.get() {
            for line in protocol.take_placement_log() {
                log(line);
            }
        }
        drop(protocol);
        let is_nearer = after.is_some_and(|after| before.is_none_or(|before| after < before));
        if is_nearer {
            self.nearer.notify_one();
        }
        outputs
    }

    /// Whether a block that came from a member upon a request is expected here: see
    /// [`Protocol::expects`].
    pub(crate) fn expects(&self, from: MemberId, request: RequestId, blocks: Blocks) -> bool {
        self.protocol.lock().expects(from, request, blocks)
    }

    /// What a block is of and how urgent it is, if it is on its way here.
    pub(crate) fn wanted(&self, block: &BlockKey) -> Option<(Token, Urgency)> {
        let protocol = self.protocol.lock();
        let wanted = protocol.wanted(block);
        wanted.map(|(file, urgency)| (file.clone(), urgency))
    }

    /// Whether somebody waits for one of these blocks, here or on another node.
    pub(crate) fn is_urgent(&self, blocks: Blocks) -> bool {
        self.protocol.lock().is_urgent(blocks)
    }

    /// Blocks that are on their way here.
    pub(crate) fn blocks_in_flight(&self) -> usize {
        self.protocol.lock().blocks_in_flight()
    }

    /// How long the protocol needs no input; `None` if it needs one now.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let deadline = self.protocol.lock().next_deadline();
        let now = self.now();
        match deadline {
            Some(deadline) if deadline <= now => None,
            Some(deadline) => Some(Duration::from_nanos(deadline.0 - now.0)),
            None => Some(Duration::MAX),
        }
    }

    /// Waits until the protocol's deadline has come nearer.
    pub(crate) async fn nearer(&self) {
        self.nearer.notified().await;
    }
}
