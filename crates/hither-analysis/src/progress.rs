//! Progress of long work: the library reports it, the caller shows it.

use std::fmt;
use std::sync::atomic::AtomicBool;

/// Receives the progress of long work, and notes about the result.
pub trait Progress: Sync {
    /// Called when work begins. `what` names it in a word or two. `length` is its size, if known,
    /// in units of its own, mostly references. The work ends when the task is dropped.
    fn begin(&self, what: &'static str, length: Option<u64>) -> Box<dyn Task>;

    /// Called with a note about the result, in one sentence.
    fn note(&self, text: fmt::Arguments<'_>);

    /// What ends the work early with [`Error::Cancelled`](crate::Error::Cancelled), soon after it
    /// becomes true.
    fn cancelled(&self) -> Option<&AtomicBool> {
        None
    }
}

/// Work that has begun.
pub trait Task: Send + Sync {
    /// Sets the number of units that are done.
    fn set_position(&self, position: u64);

    /// Adds to the number of units that are done.
    fn advance(&self, units: u64);

    /// Sets the name of the current step.
    fn set_message(&self, text: String);

    /// Restarts the estimate of the remaining time, where the speed so far does not predict it.
    fn reset_rate(&self);
}

/// A [`Progress`] that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &'static str, _: Option<u64>) -> Box<dyn Task> {
        Box::new(Silent)
    }

    fn note(&self, _: fmt::Arguments<'_>) {}
}

impl Task for Silent {
    fn set_position(&self, _: u64) {}

    fn advance(&self, _: u64) {}

    fn set_message(&self, _: String) {}

    fn reset_rate(&self) {}
}
