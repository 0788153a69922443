//! The cryptography: ring's. It is named wherever a configuration is built, so a program that has
//! another default provider, or none, works as well.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite;

use super::error::TlsError;

/// ring, with the fastest suite on common processors first.
pub(super) fn for_the_mesh() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls::crypto::ring::default_provider()
    })
}

/// ring, for services that may not speak TLS 1.3.
pub(super) fn for_all_versions() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A number that nobody can guess.
///
/// # Errors
/// The system has no random numbers.
pub fn secret() -> Result<u128, TlsError> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| TlsError::NoRandom)?;
    Ok(u128::from_le_bytes(bytes))
}
