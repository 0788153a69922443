//! The one place for system calls and shared memory.
//!
//! [`record`] is the wire format between a recorded program and the agent, [`ring`] the single-producer,
//! single-consumer queue that carries it, [`session`] the shared segment that holds one ring a thread.
#![allow(unsafe_code)]

pub mod record;
