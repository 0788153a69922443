//! A node that serves: what `hither mount` and `hither node` have in common. Both are turned into
//! [`settings`], the one from options and the other from a [`mod@file`], and run by [`running`].

pub(crate) mod client;
mod clients;
mod control;
mod exposition;
pub(crate) mod file;
pub(crate) mod log;
pub(crate) mod members;
mod notify;
mod placement_log;
pub(crate) mod running;
mod served;
mod served_trace;
pub(crate) mod settings;
mod signals;
pub(crate) mod sockets;
pub(crate) mod status;
pub(crate) mod topology;
pub(crate) mod values;
pub(crate) mod warming;
pub(crate) mod work;
