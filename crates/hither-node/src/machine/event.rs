//! What the machine takes in and gives out.

use super::message::{Blocks, Frames, Keep, Message, ReadEntry, Request, RequestId, Urgency};
use super::view::{MemberId, View};
use crate::source::SourceError;

/// Nanoseconds of the node's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time `ns` later.
    pub fn after(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

/// Why the source did not give a block. The error itself stays with the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The file is gone.
    NotFound,
    /// The file has another version.
    Changed,
    /// The source refuses.
    Denied,
    /// No usable answer after all retries.
    Failed,
}

impl From<&SourceError> for Fault {
    fn from(error: &SourceError) -> Fault {
        match error {
            SourceError::NotFound(_) => Fault::NotFound,
            SourceError::Changed(_) => Fault::Changed,
            SourceError::Denied { .. } | SourceError::Refused { .. } => Fault::Denied,
            SourceError::Unsupported(_)
            | SourceError::InTheWay { .. }
            | SourceError::Full { .. }
            | SourceError::Failed { .. } => Fault::Failed,
        }
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
    /// The source did not give the blocks.
    Failed(Fault),
}

/// What happens to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Readers or the prefetch want blocks that the local store does not have.
    ///
    /// The store is to be asked when the input is given, not earlier: whatever came in between
    /// would be taken for dropped and fetched again.
    Want {
        /// What they want.
        blocks: Blocks,
        /// Whether a reader waits.
        urgency: Urgency,
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
    /// ([`Machine::expects`](super::Machine::expects)): it was dropped. It may have been announced,
    /// and have overtaken that.
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
    /// The deadline that the machine named has come.
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
    },
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
    /// Those who want these blocks locally have them now.
    Ready(Blocks),
    /// Those who want these blocks locally cannot have them.
    Fail {
        /// The blocks.
        blocks: Blocks,
        /// What the source said to this node.
        fault: Fault,
    },
    /// These blocks of the prefetch were given up, since there is too much to do.
    Shed(Blocks),
    /// A member is suspected from now on: for the log, there is nothing to do.
    Suspected(MemberId),
    /// It is no longer.
    Trusted(MemberId),
}
