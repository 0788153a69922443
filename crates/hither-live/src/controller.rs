//! What decides for a running program.
//!
//! A controller never touches the world: it sees inputs and answers with decisions. Equal inputs
//! give equal decisions, so that the log of a run can be replayed ([`crate::decision_log`]).

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// An input of a controller, and when it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimedInput<I> {
    /// CLOCK_MONOTONIC in nanoseconds, less the start of the run.
    pub(crate) time_ns: u64,
    #[serde(flatten)]
    pub(crate) input: I,
}

/// What decides for a running program.
pub(crate) trait Controller: Sized + Send {
    /// Whose lines these are, where a log has those of several controllers.
    const NAME: &'static str;
    /// The key of a log's first line, which names the kind of run, and the version of the lines.
    const FORMAT: (&'static str, u32);
    /// What it starts from.
    type Config: Serialize + DeserializeOwned;
    /// An input; an object with the key `input`.
    type Input: Serialize + DeserializeOwned + Send;
    /// A decision; an object with the key `decision`.
    type Decision: Serialize + DeserializeOwned + PartialEq + Debug + Send;

    /// A controller at its start.
    fn new(config: &Self::Config) -> Result<Self>;

    /// Takes an input in, and adds what it decides.
    fn step(&mut self, at: &TimedInput<Self::Input>, decisions: &mut Vec<Self::Decision>);

    /// When it must be stepped even if nothing happens until then.
    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }
}
