//! How long work tells its caller how far it is: the library calls, the caller draws.

use std::fmt;

/// Hears of long work, and of what a person should know besides the result.
pub trait Progress: Sync {
    /// Work begins. `what` names it in a word or two; `length` is its size in units of its own
    /// (references, mostly), where that is known. The work ends when the task is dropped.
    fn begin(&self, what: &'static str, length: Option<u64>) -> Box<dyn Task>;

    /// A remark about the result, in one sentence.
    fn note(&self, text: fmt::Arguments<'_>);
}

/// Work that has begun.
pub trait Task: Send + Sync {
    /// So many units are done.
    fn set_position(&self, position: u64);

    /// So many more units are done.
    fn advance(&self, units: u64);

    /// Says what is being worked on now.
    fn set_message(&self, text: String);

    /// What was done so far says nothing about how fast the rest will go.
    fn reset_rate(&self);
}

/// Shows nothing.
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
