//! What the tests of every crate use: how a test says that it cannot run here ([`skip`]), what it
//! needs of the machine ([`needs`]), a memory cgroup ([`memory_group`]), and an S3 server that
//! fails on request (`s3_emulator`, with the feature `s3-emulator`).
#![forbid(unsafe_code)]

pub mod memory_group;
pub mod needs;
#[cfg(feature = "s3-emulator")]
pub mod s3_emulator;
pub mod skip;
