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

/// Number of a request. It is drawn from a secret of its member: only who was asked can name it,
/// and whoever that one has passed the request on to. So an answer that names it is one.
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

/// Whether who gets a block keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keep {
    /// No: a reader gets it.
    No,
    /// Yes: another copy, or a victim.
    Copy,
    /// Yes: it moves, and leaves a frame where it comes from.
    Moved,
}

impl Keep {
    /// All, by their numbers in frames and messages.
    pub const ALL: [Keep; 3] = [Keep::No, Keep::Copy, Keep::Moved];
}

/// Memory of a member, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// All of it that may be resident.
    pub all: u32,
    /// What is free of that.
    pub free: u32,
}

/// Reads that a home has not seen, of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEntry {
    /// The blocks, at least one.
    pub blocks: Blocks,
    /// How often each of them was read, in their order.
    pub counts: Vec<u8>,
}

/// How long a member takes to answer another one, in classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Who answers.
    pub member: MemberId,
    /// A higher class is a longer time.
    pub class: u8,
}

/// Blocks of a chunk that a member holds, as far as its home knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Who holds them.
    pub member: MemberId,
    /// Which blocks of the chunk.
    pub mask: u64,
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
    /// Home to requester: read these blocks from the source.
    Grant {
        /// Number of the request.
        id: RequestId,
        /// What to read.
        blocks: Blocks,
        /// Who is to keep them, and will report: the requester, or a member that it sends them to.
        keeper: MemberId,
    },
    /// Home to requester: `holder` was told to deliver these blocks.
    At {
        /// Number of the request.
        id: RequestId,
        /// The blocks that come.
        blocks: Blocks,
        /// Where they come from.
        holder: MemberId,
        /// Who may be asked directly for blocks of the chunk, the nearest first: at most
        /// [`COPIES_MAX`] members. It replaces what was said before.
        copies: Vec<Copies>,
    },
    /// Home to holder: send these blocks to the requester. A requester that remembers who holds
    /// what says so itself; if the holder has them no longer, the home hears of it and goes on.
    Deliver {
        /// Whose request it is.
        request: Request,
        /// What to send.
        blocks: Blocks,
        /// Whether the requester is to keep them.
        keep: Keep,
    },
    /// Home to holder: send these blocks, if you still have them, to a member that keeps them.
    Send {
        /// What to send.
        blocks: Blocks,
        /// Who gets them.
        to: MemberId,
        /// How.
        keep: Keep,
    },
    /// Home to the member that is to keep these blocks: `from` will send them to you. Blocks that
    /// were neither asked for nor announced so are not taken.
    Expect {
        /// What will come.
        blocks: Blocks,
        /// Who sends it.
        from: MemberId,
    },
    /// Home to holder: drop your copies of these blocks.
    Drop(Blocks),
    /// To home: what my readers have read from my copies, or from those of members that I asked
    /// directly.
    Reads(Vec<ReadEntry>),
    /// Holder to home: these blocks leave my memory. Their bytes are kept for a moment, in case
    /// that another member is to have them.
    Victims {
        /// What leaves.
        blocks: Blocks,
        /// The member from which the block has moved that they make room for, and where it has left
        /// a frame; `None`: it came from the source.
        from: Option<MemberId>,
    },
    /// Holder to home: I do not have these blocks, which I was to deliver.
    Gone {
        /// Whose request it is.
        request: Request,
        /// What is not there.
        blocks: Blocks,
    },
    /// To requester: ask the home of this chunk. I am not it; or I am, and was told in your stead
    /// of blocks that you hold, as far as I know.
    AskHome {
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
    /// To home: I do not read these blocks from the source any more, or was sent them, and do not
    /// hold them.
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
        /// The sender's memory.
        frames: Frames,
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

/// Members of one [`Message::At`] that may be asked directly, at most.
pub const COPIES_MAX: usize = 8;

/// Entries of one [`Message::Report`] at most.
pub const REPORT_ENTRIES_MAX: usize = 512;

/// Entries of one [`Message::Reads`] at most.
pub const READ_ENTRIES_MAX: usize = 512;
