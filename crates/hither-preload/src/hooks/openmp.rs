//! Parallel constructs: where regions of OpenMP begin and end, and where their teams pass a
//! barrier.
//!
//! The agent finds a program's iterations in the sequence of constructs, so only the master of an
//! outermost team records them. The other threads of a team record where they run: at their first
//! construct, and again at one on another node.
//!
//! gcc's calls are hooked ([`gomp`]); LLVM's runtime has an interface for tools ([`ompt`]). A
//! program compiled by gcc may run on LLVM's runtime, which then reports the region that our hook
//! is about to begin: [`construct::MASTER`] keeps it from being recorded twice. Without either
//! runtime nothing here is ever called.
//!
//! A program whose iterations are no loops over constructs can say itself where they end, by
//! `include/hither.h`.

mod construct;
mod gomp;
mod libraries;
mod ompt;
mod runtime;

use hither_session::record::ConstructKind;

use self::construct::{located, record};
use super::trampoline;
use crate::signature::Caller;

trampoline! {
    hither_iteration => iteration, 0;
}

unsafe extern "C-unwind" fn iteration(sp: *const u64, fp: u64) {
    if let Some(signature) = located(Caller { sp, fp }) {
        record(ConstructKind::Iteration, signature, 0);
    }
}

/// Looks the runtime up that the program was linked to, before it has threads.
pub(crate) fn prepare() {
    runtime::prepare();
}
