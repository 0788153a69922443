//! What the protocol takes in and gives out.

use super::message::{Blocks, Frames, Keep, Message, ReadEntry, Request, RequestId, Urgency};
use super::view::{MemberId, View};
use super::waiters::{Token, Waiters};
use crate::key::ChunkKey;

/// Nanoseconds of the node's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time `ns` later.
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

/// How a read of the source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchResult {
    /// The store has the blocks.
    Kept,
    /// They were sent to the member that keeps them.
    Sent,
    /// The readers have the blocks, the store has not: they may not be kept, or found no room.
    NotKept,
    /// The source did not give the blocks. The error stays with the runtime.
    Failed,
    /// It was not begun: nobody waited for these blocks of the prefetch when its turn came.
    GivenUp,
}

/// How a read of the local disk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskResult {
    /// The blocks were read.
    Read,
    /// The disk does not have them after all.
    Missing,
    /// Nobody waited for these blocks of the prefetch, and memory is short.
    GivenUp,
}

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A reader or the prefetch wants blocks that the memory does not have.
    ///
    /// The memory is to be asked when the input is given, not earlier: whatever came in between
    /// would be taken for dropped and fetched again.
    Want {
        /// What it wants.
        blocks: Blocks,
        /// Whether a reader waits.
        urgency: Urgency,
        /// What they are blocks of: comes back with what is to be done for them.
        file: Token,
        /// Who waits for them: comes back once for each block. The prefetch may have none.
        waiter: Option<Token>,
        /// Which of them are on the local disk.
        on_disk: u64,
    },
    /// The prefetch no longer wants these blocks. Blocks that readers wait for stay wanted.
    Cancel(Blocks),
    /// A message came.
    Message {
        /// The sender.
        from: MemberId,
        /// The epoch of the sender's view.
        epoch: u64,
        /// What it says.
        message: Message,
    },
    /// A read of the source that [`Output::Fetch`] asked for has ended for these blocks, which may
    /// be some of those asked for.
    FetchEnded {
        /// The blocks.
        blocks: Blocks,
        /// How it ended.
        result: FetchResult,
    },
    /// A read of the local disk has ended for these blocks: one that [`Output::ReadDisk`] asked
    /// for, or one for another node, of which only [`DiskResult::Read`] is told.
    DiskRead {
        /// The blocks.
        blocks: Blocks,
        /// How it ended.
        result: DiskResult,
    },
    /// Data came from another node, and is what it should be.
    Arrived {
        /// The blocks.
        blocks: Blocks,
        /// The sender.
        from: MemberId,
        /// Whether the store has them now.
        kept: bool,
        /// Whether they were wanted here. Those that were not are sent to be kept.
        wanted: bool,
    },
    /// Data came that was to be kept here and was not expected
    /// ([`Protocol::expects`](super::Protocol::expects)): it was dropped. It may have been
    /// announced, and have overtaken that.
    Unexpected(Blocks),
    /// Data came that was expected, and is not what it should be: it was dropped.
    Wrong {
        /// The request upon which it was sent.
        request: RequestId,
        /// The blocks.
        blocks: Blocks,
        /// The sender.
        from: MemberId,
    },
    /// The store did not have these blocks of an [`Output::Provide`].
    Missing {
        /// The member that asked to provide them.
        home: MemberId,
        /// Whose request it is.
        request: Request,
        /// What is not there.
        blocks: Blocks,
    },
    /// The store holds these blocks without having been told to: it was reopened.
    Held(Blocks),
    /// The store no longer holds these blocks.
    Dropped(Blocks),
    /// These blocks leave the store, to make room for one that came from the source, or that has
    /// moved here ([`Keep::Moved`]). The runtime has their bytes for a moment, in case that an
    /// [`Output::Forward`] follows. Otherwise as [`Input::Dropped`], which is also for what a copy
    /// or a victim of another member pushes out: to forward that would begin a chain without end.
    Victims {
        /// What leaves.
        blocks: Blocks,
        /// The member from which the other block has moved here; `None`: it came from the source.
        from: Option<MemberId>,
    },
    /// How full the memory is, and what readers here have read from it since the last time.
    Usage {
        /// The memory.
        frames: Frames,
        /// The reads.
        reads: Vec<ReadEntry>,
    },
    /// The membership changed.
    ViewChanged(View),
    /// The node has lost its lease: it serves nobody and asks nobody until it has rejoined.
    Isolated,
    /// The node has a lease again. A new view follows, if there is one.
    Rejoined,
    /// The connection to a member broke; what was sent last may be lost.
    PeerDown(MemberId),
    /// There is a connection to a member again.
    PeerUp(MemberId),
    /// The deadline that the protocol named has come.
    Timer,
}

/// What the runtime is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a message.
    Send {
        /// The receiver, never this node itself.
        to: MemberId,
        /// The epoch of this node's view.
        epoch: u64,
        /// What to say.
        message: Message,
    },
    /// Read these blocks from the source, keep them or send them to the `keeper`, and report by
    /// [`Input::FetchEnded`], in any number of parts, whatever happens.
    Fetch {
        /// What to read.
        blocks: Blocks,
        /// Who keeps them; `None`: this node.
        keeper: Option<MemberId>,
        /// Whether a reader waits.
        urgency: Urgency,
        /// What they are blocks of.
        file: Token,
    },
    /// Read these blocks from the local disk, and report by [`Input::DiskRead`], in any number of
    /// parts, whatever happens.
    ReadDisk(Blocks),
    /// Readers wait by now for blocks that are being fetched as a prefetch.
    Hurry(Blocks),
    /// Look these blocks up in the store and send them to `request.member`. Report those that are
    /// not there by [`Input::Missing`].
    Provide {
        /// The member that asked to provide them.
        home: MemberId,
        /// Whose request it is.
        request: Request,
        /// What to send.
        blocks: Blocks,
        /// Whether the receiver is to keep them.
        keep: Keep,
    },
    /// Send these blocks of the store, or those that have just left it, to a member that is to keep
    /// them. Report those that are nowhere by [`Input::Dropped`].
    Forward {
        /// What to send.
        blocks: Blocks,
        /// The receiver.
        to: MemberId,
        /// How it is to keep them.
        keep: Keep,
    },
    /// Drop these blocks from the store, unless they are pinned there, and report by
    /// [`Input::Dropped`].
    Drop(Blocks),
    /// The blocks of the input are for those who wait for them.
    Ready {
        /// The chunk.
        chunk: ChunkKey,
        /// Who waits for which.
        waiters: Waiters,
    },
    /// The source did not give the blocks of the input: those who wait cannot have them.
    Fail {
        /// The chunk.
        chunk: ChunkKey,
        /// Who waits for which.
        waiters: Waiters,
    },
    /// These blocks of the prefetch were given up, since there is too much to do, or nobody waits.
    Shed {
        /// The blocks.
        blocks: Blocks,
        /// What they are blocks of.
        file: Token,
        /// Who watches them: it hears no more of them.
        waiters: Waiters,
    },
    /// A member is suspected from now on: for the log, there is nothing to do.
    Suspected(MemberId),
    /// It is no longer.
    Trusted(MemberId),
}
