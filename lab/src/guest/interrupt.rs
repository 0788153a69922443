//! SIGINT and SIGTERM: noted, so that QEMU is killed and half-written files are removed on the way out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, ensure};

static NOTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Fails once a signal has arrived. The first call installs the handlers: until then the signals keep their default meaning.
pub(super) fn check() -> Result<()> {
    let noted = NOTED.get_or_init(|| {
        let noted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second signal ends the process at once. Registration fails for signals that may not be caught, which these may.
            let _ = signal_hook::flag::register_conditional_default(signal, noted.clone());
            let _ = signal_hook::flag::register(signal, noted.clone());
        }
        noted
    });
    ensure!(!noted.load(Ordering::Relaxed), "interrupted");
    Ok(())
}
