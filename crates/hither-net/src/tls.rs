//! Who may talk to whom: mutual TLS 1.3 with one certificate authority a cluster.
//!
//! Each node has a certificate with its member name as a DNS name. Both sides of a connection show
//! theirs, and both check that it is signed by the cluster's authority. The authority is our own
//! ([`Authority`]) or that of the user's public key infrastructure; a node ([`Identity`]) sees no
//! difference.

mod authority;
mod error;
mod identity;
mod outside;
mod provider;

use std::net::SocketAddr;

pub use authority::Authority;
pub use error::TlsError;
pub(crate) use error::describe_handshake_error;
pub(crate) use identity::member_names;
pub use identity::{CertificateEnd, Identity, IdentityFiles};
pub use outside::ServiceFiles;
pub use provider::secret;

use crate::view::View;

/// How the connections between nodes are protected.
#[derive(Clone, Debug)]
pub enum Security {
    /// Not at all: only between processes of one machine.
    Off,
    /// By mutual TLS, with this node's certificate.
    Tls(Identity),
}

impl Security {
    /// Checks that a node may listen on `listen`: without TLS only on a loopback address.
    pub fn check_listen(&self, listen: SocketAddr) -> Result<(), TlsError> {
        match self {
            Security::Off if !listen.ip().is_loopback() => {
                Err(TlsError::NotLoopback(listen.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the members of `view` may be connected to: without TLS all must be on loopback
    /// addresses. A host name other than `localhost` counts as being elsewhere.
    pub fn check_view(&self, view: &View) -> Result<(), TlsError> {
        if matches!(self, Security::Tls(_)) {
            return Ok(());
        }
        for member in view.members() {
            let loopback = match member.address.parse::<SocketAddr>() {
                Ok(address) => address.ip().is_loopback(),
                Err(_) => member.address.starts_with("localhost:"),
            };
            if !loopback {
                return Err(TlsError::NotLoopback(member.address.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Member;

    #[test]
    fn without_tls_everything_is_on_loopback() {
        assert!(
            Security::Off
                .check_listen("127.0.0.1:1".parse().unwrap())
                .is_ok()
        );
        assert!(
            Security::Off
                .check_listen("[::1]:1".parse().unwrap())
                .is_ok()
        );
        let error = Security::Off
            .check_listen("0.0.0.0:1".parse().unwrap())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "0.0.0.0:1 is not a loopback address: without TLS nodes may only talk on one machine"
        );
        let view = |address: &str| {
            let member = Member {
                name: "a".to_owned(),
                address: address.to_owned(),
            };
            View::new(1, vec![member]).unwrap()
        };
        for address in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            assert!(
                Security::Off.check_view(&view(address)).is_ok(),
                "{address}"
            );
        }
        for address in ["10.0.0.1:1", "localhost.example.com:1", "a:1"] {
            assert!(
                Security::Off.check_view(&view(address)).is_err(),
                "{address}"
            );
        }
    }
}
