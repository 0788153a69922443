//! A node's certificate and key, and the TLS configurations made of them.
//!
//! All that can be wrong with the files is found when they are loaded, not at the first connection:
//! a file that is missing or holds something else, a key of another certificate, a certificate that
//! has expired, is of another authority or has no name in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use super::error::{TlsError, describe_certificate};
use super::provider;
use crate::view::check_name;

/// The files that a node's identity is loaded from, all in PEM form.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityFiles {
    /// The node's certificate, followed by intermediate certificates if there are any.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authority's certificate, or several.
    pub authority: PathBuf,
}

/// A node's certificate and key, and the authority that it trusts.
#[derive(Clone)]
pub struct Identity {
    names: Vec<String>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Identity({})", self.names.join(", "))
    }
}

impl Identity {
    /// Loads and checks a node's identity.
    pub fn load(files: &IdentityFiles) -> Result<Identity, TlsError> {
        let provider = provider::for_the_mesh();
        let chain = certificates(&files.certificate)?;
        let key = provider
            .key_provider
            .load_private_key(private_key(&files.key)?);
        let key = key.map_err(|_| TlsError::Content {
            path: files.key.clone(),
            what: "a kind of private key that is not supported".to_owned(),
        })?;
        let roots = Arc::new(roots(&files.authority)?);
        check_validity(&files.certificate, &chain[0])?;
        let names = member_names(&chain[0]);
        let Some(first_name) = names.first() else {
            return Err(TlsError::Content {
                path: files.certificate.clone(),
                what: "the certificate names no member (a DNS name among its alternative names)"
                    .to_owned(),
            });
        };
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|_| TlsError::KeyMismatch {
            key: files.key.clone(),
            certificate: files.certificate.clone(),
        })?;
        let server_verifier =
            WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
                .build()
                .map_err(|error| TlsError::Content {
                    path: files.authority.clone(),
                    what: error.to_string(),
                })?;
        check_trusted(files, &certified, first_name, &*server_verifier)?;
        let client_verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| TlsError::Content {
                path: files.authority.clone(),
                what: error.to_string(),
            })?;

        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has TLS 1.3")
            .with_webpki_verifier(server_verifier)
            .with_client_cert_resolver(resolver.clone());
        // Connections are few and live long: nothing is gained by resuming one.
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has TLS 1.3")
            .with_client_cert_verifier(client_verifier)
            .with_cert_resolver(resolver);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Identity {
            names,
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// The member names in the certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Checks that the certificate is for the member called `name`.
    pub fn check_is(&self, name: &str) -> Result<(), TlsError> {
        if self.names.iter().any(|own| own == name) {
            return Ok(());
        }
        Err(TlsError::Name {
            name: name.to_owned(),
            names: self.names.clone(),
        })
    }

    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }
}

/// The names in a certificate that can be a member's: its DNS alternative names but wildcards.
pub(crate) fn member_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let dns_name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) if check_name(name).is_ok() => Some((*name).to_owned()),
        _ => None,
    };
    names
        .value
        .general_names
        .iter()
        .filter_map(dns_name)
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

/// The private key in a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| TlsError::Content {
        path: path.to_owned(),
        what: "no private key in PEM form".to_owned(),
    })
}

/// The authorities in a file: at least one.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Content {
            path: path.to_owned(),
            what: format!("not an authority's certificate: {error}"),
        })?;
    }
    Ok(roots)
}

/// The certificates in a file: at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::Content {
            path: path.to_owned(),
            what: "no certificate in PEM form".to_owned(),
        }),
    }
}

fn check_validity(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
    let content = |what: String| TlsError::Content {
        path: path.to_owned(),
        what,
    };
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| content(format!("the certificate is damaged: {error}")))?;
    let now = ASN1Time::now();
    if now > parsed.validity().not_after {
        let when = parsed.validity().not_after;
        return Err(content(format!("the certificate expired on {when}")));
    }
    if now < parsed.validity().not_before {
        let when = parsed.validity().not_before;
        return Err(content(format!(
            "the certificate is not valid before {when}"
        )));
    }
    Ok(())
}

/// When a certificate ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// The time.
    pub at: SystemTime,
    /// The same, for people.
    pub text: String,
}

impl CertificateEnd {
    /// When the first certificate in the file at `path` ends.
    pub fn of(path: &Path) -> Result<CertificateEnd, TlsError> {
        let chain = certificates(path)?;
        let (_, parsed) =
            X509Certificate::from_der(&chain[0]).map_err(|error| TlsError::Content {
                path: path.to_owned(),
                what: format!("the certificate is damaged: {error}"),
            })?;
        let end = parsed.validity().not_after;
        let since_epoch = u64::try_from(end.timestamp()).unwrap_or(0);
        Ok(CertificateEnd {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch),
            text: end.to_string(),
        })
    }

    /// How long it is still valid: nothing once it has ended.
    pub fn left(&self) -> Duration {
        let left = self.at.duration_since(SystemTime::now());
        left.unwrap_or_default()
    }
}

/// Checks that the other nodes, which trust the same authority, will accept the certificate.
fn check_trusted(
    files: &IdentityFiles,
    certified: &CertifiedKey,
    name: &str,
    verifier: &dyn ServerCertVerifier,
) -> Result<(), TlsError> {
    let untrusted = |what: String| TlsError::Untrusted {
        certificate: files.certificate.clone(),
        authority: files.authority.clone(),
        what,
    };
    let server_name =
        ServerName::try_from(name).map_err(|error| untrusted(format!("{name}: {error}")))?;
    let (own, intermediates) = certified.cert.split_first().expect("checked: not empty");
    let verified =
        verifier.verify_server_cert(own, intermediates, &server_name, &[], UnixTime::now());
    match verified {
        Ok(_) => Ok(()),
        Err(rustls::Error::InvalidCertificate(why)) => Err(untrusted(describe_certificate(&why))),
        Err(other) => Err(untrusted(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Authority;

    #[test]
    fn what_is_wrong_with_the_files_is_said_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = Authority::create(&path("one"), "test").unwrap();
        let other = Authority::create(&path("other"), "test").unwrap();
        let issue = |authority: &Authority, name: &str, validity| {
            authority.issue(name, folder.path(), validity).unwrap()
        };
        let sound = issue(&authority, "a", Authority::NODE_VALIDITY);
        let second = issue(&authority, "b", Authority::NODE_VALIDITY);
        let expired = issue(&authority, "expired", Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1100));
        fs::write(path("text"), "hello").unwrap();

        assert_eq!(Identity::load(&sound).unwrap().names(), ["a"]);
        let left = CertificateEnd::of(&sound.certificate).unwrap().left();
        let gone = Authority::NODE_VALIDITY - left;
        assert!(gone < Duration::from_secs(600), "{gone:?}");
        let ended = CertificateEnd::of(&expired.certificate).unwrap();
        assert_eq!(ended.left(), Duration::ZERO);
        let with = |change: &dyn Fn(&mut IdentityFiles)| {
            let mut files = sound.clone();
            change(&mut files);
            let error = Identity::load(&files).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
            error.replace(&format!("{}/", folder.path().display()), "")
        };
        assert_eq!(
            with(&|files| files.certificate = path("none.pem")),
            "none.pem: No such file or directory (os error 2)"
        );
        assert_eq!(
            with(&|files| files.certificate = path("text")),
            "text: no certificate in PEM form"
        );
        assert_eq!(
            with(&|files| files.key = path("text")),
            "text: no private key in PEM form"
        );
        assert_eq!(
            with(&|files| files.authority = path("text")),
            "text: no certificate in PEM form"
        );
        assert_eq!(
            with(&|files| files.key = second.key.clone()),
            "b.key is not the key of the certificate a.pem"
        );
        let error = with(&|files| *files = expired.clone());
        assert!(
            error.starts_with("expired.pem: the certificate expired on "),
            "{error}"
        );
        assert_eq!(
            with(&|files| files.authority = other.certificate_path()),
            "a.pem: it is of another authority (authority: other/ca.pem)"
        );
        assert_eq!(
            with(&|files| {
                files.certificate = path("one/ca.pem");
                files.key = path("one/ca.key");
            }),
            "one/ca.pem: the certificate names no member (a DNS name among its alternative names)"
        );
        let error = Identity::load(&sound).unwrap().check_is("c").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the certificate is for a, not for this node, \"c\""
        );
    }
}
