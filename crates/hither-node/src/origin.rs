//! Where the bytes of a read came from.

use hither_net::view::MemberId;

/// Where a block came from that a reader waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This node's memory: it arrived while the reader asked.
    Memory,
    /// Another member's memory.
    Member(MemberId),
    /// The source.
    Source,
}
