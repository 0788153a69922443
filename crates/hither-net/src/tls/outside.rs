//! TLS to services outside the mesh, such as etcd: the server's certificate is checked by its host
//! name, and a certificate of our own is shown if there is one.

use std::path::{Path, PathBuf};

use rustls::{ClientConfig, RootCertStore};

use super::error::TlsError;
use super::identity::{certificates, private_key, roots};
use super::provider;

/// The files for connections to a service, all in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFiles {
    /// The certificate of the authority that signed the service's, or several.
    pub authority: PathBuf,
    /// The certificate and the key to show to the service.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ServiceFiles {
    /// The configuration where there are no files: it trusts nobody.
    pub(crate) fn load_none() -> ClientConfig {
        ClientConfig::builder_with_provider(provider::for_all_versions())
            .with_safe_default_protocol_versions()
            .expect("ring has all versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth()
    }

    /// Loads the files.
    pub(crate) fn load(&self) -> Result<ClientConfig, TlsError> {
        let config = ClientConfig::builder_with_provider(provider::for_all_versions())
            .with_safe_default_protocol_versions()
            .expect("ring has all versions")
            .with_root_certificates(roots(&self.authority)?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };
        let chain = certificates(certificate)?;
        let loaded = private_key(key)?;
        config
            .with_client_auth_cert(chain, loaded)
            .map_err(|error| mismatch(error, certificate, key))
    }
}

fn mismatch(error: rustls::Error, certificate: &Path, key: &Path) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch {
            key: key.to_owned(),
            certificate: certificate.to_owned(),
        },
        other => TlsError::Content {
            path: certificate.to_owned(),
            what: other.to_string(),
        },
    }
}
