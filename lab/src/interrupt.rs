//! SIGINT, SIGTERM and SIGHUP set a flag, so that QEMU is killed and half-written files are removed
//! before the lab ends.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;

static NOTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The error that ends the lab after a signal.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Installs the handlers.
pub(crate) fn note() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let noted = NOTED.get_or_init(Arc::default);
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // A second signal ends the process at once. Registration fails only for signals that must
        // not be caught.
        let _ = signal_hook::flag::register_conditional_default(signal, noted.clone());
        let _ = signal_hook::flag::register(signal, noted.clone());
    }
}

/// Fails once a signal has arrived.
pub(crate) fn check() -> Result<()> {
    match NOTED.get() {
        Some(noted) if noted.load(Ordering::Relaxed) => Err(Interrupted.into()),
        _ => Ok(()),
    }
}
