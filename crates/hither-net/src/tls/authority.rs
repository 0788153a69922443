//! A cluster's own certificate authority: a key and a certificate in a folder.
//!
//! The key signs the nodes' certificates and is needed for nothing else, so it can be kept off the
//! nodes. Keys are readable by their owner alone, and no file is ever overwritten: a new authority
//! in place of the old one would lock all nodes out.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::error::TlsError;
use super::identity::IdentityFiles;
use crate::view::check_name;

/// The file of the authority's certificate, which each node needs.
const CERTIFICATE_FILE: &str = "ca.pem";
/// The file of the authority's key, which no node needs.
const KEY_FILE: &str = "ca.key";
const AUTHORITY_DAYS: u64 = 3650;
/// How far back a new certificate's validity begins, for nodes whose clocks are late.
const BACKDATED: Duration = Duration::from_secs(3600);

/// A certificate authority.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Authority({})", self.folder.display())
    }
}

impl Authority {
    /// How long a node's certificate is valid unless the caller says otherwise.
    pub const NODE_VALIDITY: Duration = Duration::from_secs(825 * 86_400);

    /// Makes an authority for `cluster` in `folder`, which is created if it is not there:
    /// `ca.pem` and `ca.key`.
    pub fn create(folder: &Path, cluster: &str) -> Result<Authority, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("hither CA of {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, Duration::from_secs(AUTHORITY_DAYS * 86_400));
        let certificate = params.self_signed(&key)?;
        create_folder(folder)?;
        write_pair(
            (&folder.join(CERTIFICATE_FILE), &certificate.pem()),
            (&folder.join(KEY_FILE), &key.serialize_pem()),
        )?;
        Ok(Authority {
            folder: folder.to_owned(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Loads the authority that [`create`](Authority::create) made in `folder`.
    pub fn load(folder: &Path) -> Result<Authority, TlsError> {
        let path = folder.join(KEY_FILE);
        let key = KeyPair::from_pem(&read(&path)?).map_err(|_| TlsError::Content {
            path,
            what: "no private key in PEM form".to_owned(),
        })?;
        let path = folder.join(CERTIFICATE_FILE);
        let issuer =
            Issuer::from_ca_cert_pem(&read(&path)?, key).map_err(|_| TlsError::Content {
                path,
                what: "no certificate in PEM form".to_owned(),
            })?;
        Ok(Authority {
            folder: folder.to_owned(),
            issuer,
        })
    }

    /// The file of the authority's certificate.
    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join(CERTIFICATE_FILE)
    }

    /// Makes a key and a certificate for the member called `name` in `folder`, `NAME.pem` and
    /// `NAME.key`, valid from an hour ago to `validity` from now.
    pub fn issue(
        &self,
        name: &str,
        folder: &Path,
        validity: Duration,
    ) -> Result<IdentityFiles, TlsError> {
        check_name(name)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, validity);
        let certificate = params.signed_by(&key, &self.issuer)?;
        create_folder(folder)?;
        let files = IdentityFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
            authority: self.certificate_path(),
        };
        write_pair(
            (&files.certificate, &certificate.pem()),
            (&files.key, &key.serialize_pem()),
        )?;
        Ok(files)
    }
}

fn set_validity(params: &mut CertificateParams, validity: Duration) {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch.saturating_sub(BACKDATED);
    params.not_after = epoch + since_epoch + validity;
}

fn read(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

fn create_folder(folder: &Path) -> Result<(), TlsError> {
    fs::create_dir_all(folder).map_err(|source| TlsError::File {
        path: folder.to_owned(),
        source,
    })
}

/// Writes a certificate and its key, both or none.
fn write_pair(certificate: (&Path, &str), key: (&Path, &str)) -> Result<(), TlsError> {
    for (path, _) in [certificate, key] {
        if path.symlink_metadata().is_ok() {
            return Err(TlsError::Exists(path.to_owned()));
        }
    }
    write_new(key.0, key.1, 0o600)?;
    write_new(certificate.0, certificate.1, 0o644).inspect_err(|_| {
        let _ = fs::remove_file(key.0);
    })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
        });
    written.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => TlsError::Exists(path.to_owned()),
        _ => TlsError::File {
            path: path.to_owned(),
            source,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_private_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("authority");
        let authority = Authority::create(&folder, "test").unwrap();
        let nodes = folder.join("nodes");
        let files = authority
            .issue("a", &nodes, Authority::NODE_VALIDITY)
            .unwrap();
        for key in [&folder.join(KEY_FILE), &files.key] {
            assert_eq!(
                fs::metadata(key).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        let before = fs::read(folder.join(KEY_FILE)).unwrap();
        let error = Authority::create(&folder, "test").unwrap_err().to_string();
        assert!(
            error.ends_with("ca.pem exists already and is not overwritten"),
            "{error}"
        );
        assert_eq!(fs::read(folder.join(KEY_FILE)).unwrap(), before);

        // One that is loaded again issues certificates that are as good.
        let again = Authority::load(&folder).unwrap();
        let error = again
            .issue("a", &nodes, Authority::NODE_VALIDITY)
            .unwrap_err();
        assert!(matches!(error, TlsError::Exists(_)));
        let files = again.issue("b", &nodes, Authority::NODE_VALIDITY).unwrap();
        super::super::Identity::load(&files).unwrap();
    }

    #[test]
    fn a_name_must_be_fit_for_a_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "test").unwrap();
        let error = authority
            .issue("../a", folder.path(), Authority::NODE_VALIDITY)
            .unwrap_err();
        assert!(error.to_string().contains("cannot be a member's name"));
    }
}
