//! Why a call to etcd fails, and why a cluster cannot be joined.

use crate::tls::TlsError;
use crate::view::ViewError;

/// Why a cluster cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The configuration names no endpoint.
    #[error("no endpoint of etcd is given")]
    NoEndpoint,
    /// An endpoint is not usable.
    #[error("etcd's endpoint {endpoint:?}: {what}")]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The HTTP client cannot be made.
    #[error("no HTTP client: {0}")]
    Client(String),
    /// A certificate or key is not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// This node's name or address cannot be a member's.
    #[error(transparent)]
    Member(#[from] ViewError),
    /// No endpoint answers.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// etcd refuses a request.
    #[error("etcd: {0}")]
    Refused(String),
    /// A node of this name is running.
    #[error("another node called {name:?} is running, at {address}")]
    NameTaken {
        /// The name.
        name: String,
        /// The other node's address.
        address: String,
    },
}

impl From<CallError> for EtcdError {
    fn from(error: CallError) -> EtcdError {
        match error {
            CallError::Unreachable(why) => EtcdError::Unreachable(why),
            CallError::Answer { message, .. } => EtcdError::Refused(message),
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum CallError {
    /// No endpoint answered.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// etcd answered with an error.
    #[error("etcd: {message}")]
    Answer {
        /// gRPC's code.
        code: i64,
        /// What etcd said.
        message: String,
    },
}
