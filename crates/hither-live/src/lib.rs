//! The agent: records unmodified programs, and while they run places their memory and manages what
//! the page cache keeps of their files.
//!
//! [`observe`] records a program into a trace. [`symbolise`] names its call sites. [`iterations`]
//! finds where its iterations end. Each mechanism that acts on a running program has a folder:
//!
//! - [`page_cache`] runs a replacement policy, and has the kernel drop what the policy evicts;
//! - [`replication`] copies file blocks to the nodes that read them;
//! - [`file_placement`] chooses the nodes of file pages: as they are read in, or by moving them;
//! - [`memory`] runs a placement policy for a program's memory, and has pages bound and moved.
//!
//! The mechanisms do not import each other. [`numa`] has what those that move pages share, and
//! [`status`] what a run publishes about itself. The agent is the parent of the program's process
//! tree and never makes it wait: if the agent dies, or cannot keep up, the program runs on as if
//! hither were not there.
#![forbid(unsafe_code)]

mod attach;
mod controller;
mod decision_log;
mod error;
mod event_loop;
mod event_source;
mod file_filter;
pub mod file_placement;
mod horizon;
pub mod iterations;
mod kernel_source;
mod launch;
mod mechanism;
pub mod memory;
pub mod numa;
pub mod observe;
pub mod page_cache;
mod polling;
mod program_files;
mod references;
pub mod replication;
mod run;
pub mod status;
pub mod symbolise;
mod system;

pub use attach::{AttachOptions, attach, memory_group};
pub use decision_log::Mismatch;
pub use error::{Conflict, Error, Result};
pub use file_filter::{FileFilter, FileGlob};
pub use hither_kernel::process::outlive_file_size_limit;
pub use hither_session::session::{Lost, SessionOptions};
pub use launch::{has_one_node, run_uninstrumented};
pub use run::{Beside, Mechanisms, RunOptions, RunReport, run, run_on};
pub use system::System;
