//! The cryptography: ring's. It is named wherever a configuration is built, so a program that has
//! another default provider, or none, works as well.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite;

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
