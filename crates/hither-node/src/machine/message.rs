//! What nodes say to each other. Messages name blocks and carry no data.

use hither_core::topology::NODES_MAX;

use super::view::MemberId;
use crate::key::ChunkKey;

/// Blocks of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The chunk.
    pub chunk: ChunkKey,
    /// Which of its blocks, bit 0 for the first.
    pub mask: u64,
}

impl Blocks {
    /// The blocks `mask` of `chunk`.
    pub fn new(chunk: ChunkKey, mask: u64) -> Blocks {
        Blocks { chunk, mask }
    }

    /// Other blocks of the same chunk.
    pub fn with_mask(self, mask: u64) -> Blocks {
        Blocks::new(self.chunk, mask)
    }
}

/// Whether a reader waits for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Nobody waits yet.
    Prefetch,
    /// A reader waits.
    Demand,
}

/// Number of a request, unique among those of its member, across restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request as others refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The member that wants the blocks.
    pub member: MemberId,
    /// Its number for the request.
    pub id: RequestId,
    /// Whether a reader waits for the blocks.
    pub urgency: Urgency,
}

/// A line of a report: what its sender holds by now, and what it no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportEntry {
    /// The chunk.
    pub chunk: ChunkKey,
    /// Blocks that the sender holds now.
    pub held: u64,
    /// Blocks that the sender no longer holds.
    pub dropped: u64,
}

/// How long a member takes to answer another one, in classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Who answers.
    pub member: MemberId,
    /// A higher class is a longer time.
    pub class: u8,
}

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Requester to home: I want these blocks.
    Want {
        /// Number of the request.
        id: RequestId,
        /// What is wanted.
        blocks: Blocks,
        /// Whether a reader waits.
        urgency: Urgency,
        /// How many members that come before the receiver as homes of the chunk the requester
        /// suspects.
        rank: u8,
        /// A holder that the requester cannot reach.
        avoid: Option<MemberId>,
    },
    /// Requester to home: a reader waits for these blocks by now.
    Raise(Blocks),
    /// Requester to home: these blocks are no longer wanted.
    Withdraw {
        /// Number of the request.
        id: RequestId,
        /// What is no longer wanted.
        blocks: Blocks,
    },
    /// Home to requester: another node reads these blocks from the source; wait for them.
    Pending {
        /// Number of the request.
        id: RequestId,
        /// The blocks to wait for.
        blocks: Blocks,
    },
    /// Home to requester: read these blocks from the source, and report.
    Grant(Blocks),
    /// Home to requester: `holder` was told to deliver these blocks.
    At {
        /// Number of the request.
        id: RequestId,
        /// The blocks that come.
        blocks: Blocks,
        /// Where they come from.
        holder: MemberId,
    },
    /// Home to holder: send these blocks to the requester.
    Deliver {
        /// Whose request it is.
        request: Request,
        /// What to send.
        blocks: Blocks,
        /// Whether the requester is to keep a copy.
        keep: bool,
    },
    /// Holder to home: I do not have these blocks, which I was to deliver.
    Gone {
        /// Whose request it is.
        request: Request,
        /// What is not there.
        blocks: Blocks,
    },
    /// To requester: I am not the home of this chunk.
    NotHome {
        /// Number of the request.
        id: RequestId,
        /// What was wanted.
        blocks: Blocks,
    },
    /// To requester: you will not get these blocks; read them from the source.
    Refused {
        /// Number of the request.
        id: RequestId,
        /// What was wanted.
        blocks: Blocks,
    },
    /// Requester to a new home: I am reading these blocks from the source.
    Fetching {
        /// What is being read.
        blocks: Blocks,
        /// Whether a reader waits.
        urgency: Urgency,
    },
    /// Home to the member that reads these blocks as a prefetch: a reader waits for them.
    Hurry(Blocks),
    /// To home: I do not read these blocks from the source any more, and do not hold them.
    NotFetched {
        /// What was not read, or not kept.
        blocks: Blocks,
        /// Whether reading them was tried.
        tried: bool,
    },
    /// Holder to home: what I hold, and what I no longer hold.
    Report {
        /// As in [`Message::Pong`]: what an earlier incarnation reported is void.
        incarnation: u64,
        /// At most [`REPORT_ENTRIES_MAX`] entries.
        entries: Vec<ReportEntry>,
    },
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        round: u64,
    },
    /// I am.
    Pong {
        /// As in the ping.
        round: u64,
        /// Changes when the sender has restarted, or has forgotten what it was told.
        incarnation: u64,
    },
    /// How long others take to answer the sender: at most [`ROUND_TRIPS_MAX`] members, in ascending
    /// order.
    RoundTrips(Vec<RoundTrip>),
}

/// Members of one [`Message::RoundTrips`] at most.
pub const ROUND_TRIPS_MAX: usize = NODES_MAX;

/// Entries of one [`Message::Report`] at most.
pub const REPORT_ENTRIES_MAX: usize = 512;
