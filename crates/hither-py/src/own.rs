//! Policies that are written in Python: each is an entry like those of the registries, so what
//! takes a built-in policy takes them too.
//!
//! A run with such policies is on one thread, which holds the interpreter
//! ([`work::run_holding`](crate::work::run_holding)): giving it back around each call costs more
//! than the call. The interpreter still lets its other threads run every few milliseconds, in the
//! policy's code.
//!
//! The traits of policies have no errors. What a policy raises ends the run
//! ([`Work::fail`](crate::work::Work::fail)), and until then the policy answers something valid
//! without calling Python.

mod object;
mod placement;
mod replacement;

pub(crate) use placement::{Nodes, placement};
pub(crate) use replacement::replacement;
