//! Errors of topologies.

use super::shape::NODES_MAX;

/// Why a text or a matrix is not a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Neither a shape nor a preset.
    #[error("unknown topology `{text}`{hint}; write {known}")]
    Unknown {
        /// What was written.
        text: String,
        /// ` (did you mean ...?)`, or nothing.
        hint: String,
        /// What may be written.
        known: String,
    },
    /// The lengths do not make a shape.
    #[error("`{text}`: {problem}; write for example `{example}` ({means})")]
    Lengths {
        /// What was written.
        text: String,
        /// What is wrong with it.
        problem: String,
        /// A correct example.
        example: &'static str,
        /// What the example means.
        means: &'static str,
    },
    /// More than [`NODES_MAX`] nodes.
    #[error("`{0}` has more than {NODES_MAX} nodes")]
    TooMany(String),
    /// A matrix has as many rows as columns, and at least one.
    #[error("a matrix of {0} latencies is not square")]
    NotSquare(usize),
    /// A remote latency is not above the local one.
    #[error("from node {from}, node {to} is as near as node {from} itself, or nearer")]
    NearerThanItself {
        /// The node of the row.
        from: usize,
        /// The node of the column.
        to: usize,
    },
}
