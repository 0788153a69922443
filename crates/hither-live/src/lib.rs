//! The agent: records unmodified programs, places the memory of running ones, and steers what is
//! cached of their files.
//!
//! [`observe`] starts a program under the recorder and turns what it sends into a trace;
//! [`symbolise`] puts names to its call sites; [`iterations`] finds where a program's iterations
//! end. [`pages`] drives a placement policy by what a program allocates and touches, and has its
//! pages bound and moved; [`files`] drives a replacement policy by what it reads, and has the page
//! cache drop what that evicts; [`replicas`] copies it to where it is read, [`file_pages`] says
//! where it comes into memory, and [`following`] moves what is there to whoever reads it.
//! [`status`] is what a run says of itself meanwhile. The agent is the parent of the program's
//! process tree and never in its way: if the agent dies, or cannot keep up, the program goes on as
//! if hither were not there.
#![forbid(unsafe_code)]

mod agent;
mod error;
pub mod file_pages;
pub mod files;
pub mod following;
pub mod iterations;
mod launch;
mod log;
pub mod machine;
pub mod observe;
mod pace;
pub mod pages;
mod reach;
mod references;
pub mod replicas;
#[cfg(test)]
#[path = "../../../testing/skip.rs"]
mod skip;
pub mod status;
pub mod symbolise;

pub use agent::RunOptions;
pub use error::{Error, Result};
pub use hither_sys::process::outlive_file_size_limit;
pub use hither_sys::session::SessionOptions;
pub use launch::{has_one_node, run_plainly};
pub use log::Mismatch;
