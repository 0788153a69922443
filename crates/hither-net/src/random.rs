//! Random numbers for what needs no secrecy: instances and jitter.

use std::hash::{BuildHasher, RandomState};

/// A random number: std seeds its hashers from the system's generator.
pub fn random() -> u64 {
    RandomState::new().hash_one(0_u64)
}
