//! Parallel constructs: where regions of OpenMP begin and end, and where their teams pass a
//! barrier.
//!
//! The agent finds a program's iterations in the sequence of these, so only the master of an
//! outermost team tells of them. The other threads of a team say where they run: at their first
//! construct, and later if they meet one on another node.
//!
//! gcc's calls are hooked ([`gomp`]); LLVM's runtime has an interface for tools ([`ompt`]). A
//! program compiled by gcc may run on LLVM's runtime, which then tells of the region that our hook
//! is about to begin: [`MASTER`] keeps that from being told twice. Where neither runtime is,
//! nothing here is ever called.
//!
//! A program whose iterations are no loops over constructs can tell where they end, by
//! `include/hither.h`.

mod construct;
mod gomp;
mod libraries;
mod ompt;
mod runtime;

use hither_sys::record::ConstructKind;

use self::construct::{located, record};
use super::trampoline;
use crate::signature::Caller;

trampoline! {
    hither_iteration => iteration, 0;
}

unsafe extern "C-unwind" fn iteration(sp: *const u64, rbp: u64) {
    if let Some(signature) = located(Caller { sp, rbp }) {
        record(ConstructKind::Iteration, signature, 0);
    }
}

/// Looks the runtime up that the program was linked to, before it has threads.
pub(crate) fn prepare() {
    runtime::prepare();
}
