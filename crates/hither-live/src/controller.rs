//! The interface of a controller, the part of a mechanism that decides.
//!
//! A controller never touches the world: it takes inputs and gives decisions. Equal inputs give
//! equal decisions, so that the log of a run can be replayed ([`crate::decision_log`]).

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Result;

/// An input of a controller, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TimedInput<I> {
    /// CLOCK_MONOTONIC in nanoseconds, minus its value at the start of the run.
    pub(crate) time_ns: u64,
    #[serde(flatten)]
    pub(crate) input: I,
}

/// A decision: an order to the actuator, or a note for who reads the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Decision<O, N> {
    Order(O),
    Note(N),
}

/// The decisions of a controller.
pub(crate) type DecisionOf<C> = Decision<<C as Controller>::Order, <C as Controller>::Note>;

/// The note of a controller that makes none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum NoNote {}

/// The orders among decisions.
#[cfg(test)]
pub(crate) fn orders<O, N>(decisions: Vec<Decision<O, N>>) -> Vec<O> {
    let order = |decision| match decision {
        Decision::Order(order) => Some(order),
        Decision::Note(_) => None,
    };
    decisions.into_iter().filter_map(order).collect()
}

/// The part of a mechanism that decides.
pub(crate) trait Controller: Sized + Send {
    /// The name that marks its lines in a log of several controllers.
    const NAME: &'static str;
    /// The key of its first line in a log, and the version of the lines.
    const FORMAT: (&'static str, u32);
    /// What a controller starts from.
    type Config: Serialize + DeserializeOwned + Send;
    /// An input; an object with the key `input`.
    type Input: Serialize + DeserializeOwned + Send;
    /// What is to be done; an object with the key `order`.
    type Order: Serialize + Debug + Send;
    /// What is worth knowing, and nothing to do; an object with the key `note`.
    type Note: Serialize + Debug + Send;

    /// A controller at the start of a run.
    fn new(config: &Self::Config) -> Result<Self>;

    /// Takes in an input, and adds decisions.
    fn step(&mut self, at: &TimedInput<Self::Input>, decisions: &mut Vec<DecisionOf<Self>>);

    /// When it has to get an input at the latest, even if nothing happens.
    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }
}
