//! What the agent and the programs that it started share, in memory that both map.
//!
//! - [`record`]: the wire format of an event;
//! - [`call_stack`]: what makes the signature of a call site;
//! - `ring`: the single-producer, single-consumer queue that carries events, one a thread;
//! - [`session`]: the shared segment that holds the rings, as the agent sees it, and
//!   [`program_session`]: the same segment as a recorded program sees it;
//! - [`preload`]: how programs are told of the library that they load; [`memory_limits`]: whether a
//!   process has room for it;
//! - [`bind_requests`]: the other direction, memory policies that the agent asks programs to set;
//! - `userfaultfd_offers`: descriptors that programs hand to the agent;
//! - [`replica`]: copies of files' blocks in shared memory. The agent fills them and programs read
//!   them, for as long as the [`lease_process`] holds a lease on the file.
#![allow(unsafe_code)]

mod arch;
pub mod bind_requests;
pub mod call_stack;
mod chunks;
mod epilogue;
pub mod lease_process;
pub mod memory_limits;
mod plausible;
mod pool_parts;
pub mod preload;
pub mod program_session;
pub mod record;
pub mod replica;
mod ring;
mod segment;
pub mod session;
mod session_name;
pub mod userfaultfd_offers;
