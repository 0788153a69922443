//! What can be wrong with certificates, keys and handshakes: one line each, with the file's name.

use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError};

/// Why a certificate, a key or a setting cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that would be written exists.
    #[error("{} exists already and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file holds something else than it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The certificate is of another key.
    #[error("{} is not the key of the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
    /// The certificate has another issuer than the authority, or is not fit for its use.
    #[error("{}: {what} (authority: {})", certificate.display(), authority.display())]
    Untrusted {
        /// The certificate's file.
        certificate: PathBuf,
        /// The file of the authority's certificate.
        authority: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The certificate is not this node's.
    #[error("the certificate is for {}, not for this node, {name:?}", names.join(", "))]
    Name {
        /// This node's name.
        name: String,
        /// The names in the certificate.
        names: Vec<String>,
    },
    /// TLS is off, and an address can be reached from elsewhere.
    #[error("{0} is not a loopback address: without TLS nodes may only talk on one machine")]
    NotLoopback(String),
    /// The system's generator gives no random numbers.
    #[error("the system gives no random numbers")]
    NoRandom,
    /// A certificate or key could not be made.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// The name cannot be a member's.
    #[error(transparent)]
    MemberName(#[from] crate::view::ViewError),
}

/// What a failed handshake means, in words that say which side to mend.
pub(crate) fn describe_handshake_error(error: &io::Error) -> String {
    let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "it closed the connection in the handshake".to_owned(),
            _ => error.to_string(),
        };
    };
    match tls {
        rustls::Error::InvalidCertificate(why) => {
            format!("its certificate is refused: {}", describe_certificate(why))
        }
        rustls::Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::DecryptError,
        ) => "it refuses this node's certificate: it is of another authority".to_owned(),
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "it refuses this node's certificate: it has expired by its clock".to_owned()
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it asks for a certificate".to_owned()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        other => other.to_string(),
    }
}

/// What is wrong with a certificate.
pub(crate) fn describe_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is of another authority".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet: compare the clocks".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            // webpki writes them as DnsName("b").
            let names: Vec<&str> = presented
                .iter()
                .map(|name| name.trim_start_matches("DnsName(").trim_end_matches(')'))
                .collect();
            format!("it is for {}, not for {expected:?}", names.join(", "))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage must allow both client and server".to_owned()
        }
        other => other.to_string(),
    }
}
