//! A node that serves: what `hither mount` and `hither node` have in common. Both are turned into
//! [`settings`], the one from options and the other from a [`mod@file`], and run by [`running`].
//! A running node is asked by [`client`], and works on files by [`work`].
//!
//! [`metrics`] has the figures of nodes and of runs in Prometheus' text format. One HTTP server,
//! `http`, serves these and the control socket of a node.
#![forbid(unsafe_code)]

pub mod client;
mod clients;
mod control;
mod error;
pub mod file;
mod http;
pub mod log;
pub mod members;
pub mod metrics;
mod placement_log;
pub mod running;
mod served;
mod served_trace;
pub mod settings;
mod signals;
pub mod sockets;
pub mod status;
pub mod topology;
pub mod values;
pub mod warming;
pub mod work;

pub use error::Error;
