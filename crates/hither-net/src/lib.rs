//! Messages between the machines of a cluster: frames, TLS, membership.
#![forbid(unsafe_code)]

pub mod frame;
pub mod membership;
pub mod mesh;
pub mod random;
pub mod tls;
pub mod view;

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
