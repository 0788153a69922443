//! What decides for a running program.
//!
//! A controller never touches the world: it sees inputs and answers with decisions. Equal inputs
//! give equal decisions, so that the log of a run can be replayed ([`crate::decision_log`]).

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Something that a controller hears of, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimedInput<I> {
    /// CLOCK_MONOTONIC in nanoseconds, less the start of the run.
    pub(crate) time_ns: u64,
    #[serde(flatten)]
    pub(crate) input: I,
}

/// What decides for a running program: a controller that the same inputs lead to the same decisions.
pub(crate) trait Controller: Sized {
    /// The header's key, which names the kind of run, and the version of the lines.
    const FORMAT: (&'static str, u32);
    /// What it starts from.
    type Config: Serialize + DeserializeOwned;
    /// What it hears; an object with the key `input`.
    type Input: Serialize + DeserializeOwned;
    /// What it decides; an object with the key `decision`.
    type Decision: Serialize + DeserializeOwned + PartialEq + Debug + Send;

    /// A controller at its start.
    fn new(config: &Self::Config) -> Result<Self>;

    /// Takes in what happened, and adds what is to be done.
    fn input(&mut self, at: &TimedInput<Self::Input>, out: &mut Vec<Self::Decision>);
}
