//! Numbers in arguments and plans, and the clock.

use anyhow::{Context, Result};

/// A number, or an error that shows what it was to be.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().with_context(|| format!("{text:?}"))
}

/// The clock of all processes of this machine, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
