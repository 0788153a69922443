//! Where the bytes of a read came from.

use hither_net::view::MemberId;

/// Where a block came from that a reader waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This node's memory: it arrived while the reader asked.
    Memory,
    /// This node's disk.
    Disk,
    /// Another member's memory, or its disk.
    Member(MemberId),
    /// The source.
    Source,
}
