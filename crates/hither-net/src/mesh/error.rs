//! What can go wrong in a mesh: at its start, when sending, and with one connection.

use std::io;
use std::net::SocketAddr;

use crate::frame::PROTOCOL;
use crate::tls::{TlsError, describe_handshake_error};
use crate::view::ViewError;

/// Why a mesh cannot start.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// The node's name cannot be a member's.
    #[error(transparent)]
    Name(#[from] ViewError),
    /// The certificate is not this node's, or TLS is off where it may not be.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The cluster's name is empty or too long.
    #[error("{0:?} cannot be a cluster's name: 1 to 200 bytes")]
    Cluster(String),
    /// Another program listens there.
    #[error("port {} of {} is in use", .0.port(), .0.ip())]
    PortInUse(SocketAddr),
    /// The address is of no interface of this machine.
    #[error("{0} is not an address of this machine")]
    NotOurAddress(SocketAddr),
    /// Listening failed otherwise.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The view has no such member.
    #[error("no such member")]
    UnknownMember,
    /// There is no connection to the member at the moment.
    #[error("not connected")]
    NotConnected,
    /// The member takes frames more slowly than they are sent, and its queue is full.
    #[error("the queue is full")]
    Full,
}

/// Why a connection failed or ended. A log line puts the other side's name before the text; what a
/// node refuses another one for is also sent to that one, so these texts name both.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("cannot be reached: {0}")]
    Connect(io::Error),
    #[error("has no loopback address, and TLS is off")]
    NotLoopback,
    #[error("{0}")]
    Handshake(String),
    #[error("no answer in time")]
    Timeout,
    #[error("it does not speak this protocol")]
    Magic,
    #[error("it runs protocol {0}, this node {PROTOCOL}")]
    Protocol(u8),
    #[error("node {0} is of cluster {1:?}, node {2} of cluster {3:?}")]
    Cluster(String, String, String, String),
    #[error("a node calls itself {claimed:?}, its certificate is for {names}")]
    Certificate { claimed: String, names: String },
    #[error("the node there is {0:?}")]
    OtherMember(String),
    #[error("two nodes are called {0:?}")]
    OwnName(String),
    #[error("two nodes are called {1:?}: the one at {0} came later")]
    NameTaken(SocketAddr, String),
    #[error("node {0} is no member for node {1}, whose view is of epoch {2}")]
    NotMember(String, String, u64),
    #[error("it refuses this node: {0}")]
    Refused(String),
    #[error("its hello is not understood: {0}")]
    Hello(&'static str),
    #[error("it sent {0}")]
    Frame(#[from] crate::frame::FrameError),
    #[error("it closed the connection")]
    Closed,
    #[error("it is no member any more")]
    Left,
    #[error("it has restarted")]
    Restarted,
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

impl LinkError {
    /// How often in a row it is no reason for a warning. A newcomer is refused by members that have
    /// not read of it yet, which takes them some ten milliseconds.
    pub(crate) fn expected_times(&self) -> u32 {
        match self {
            LinkError::NotMember(..) | LinkError::Refused(_) => 2,
            _ => 0,
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        if error
            .get_ref()
            .is_some_and(|inner| inner.is::<rustls::Error>())
        {
            return LinkError::Handshake(describe_handshake_error(&error));
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => LinkError::Closed,
            _ => LinkError::Io(error),
        }
    }
}
