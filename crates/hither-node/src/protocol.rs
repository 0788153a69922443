//! The protocol of a cluster's node: where to get a block, and who reads it from the source.
//!
//! A node has three roles. As a *requester* it gets the blocks that its readers want and its store
//! has not. As a *home* it keeps the directory of the chunks whose home it is by rendezvous
//! hashing: who holds which blocks, who reads them from the source, who waits for them. As a
//! *holder* it serves what its store has.
//!
//! A block travels in three hops: the requester asks the home ([`Message::Want`]), the home tells a
//! holder to deliver ([`Message::Deliver`]), the holder sends the data to the requester. Where
//! nobody holds the block, the home grants the first requester to read it from the source
//! ([`Message::Grant`]) and lets the others wait ([`Message::Pending`]).
//!
//! Where copies are kept is decided by the home, by a placement of the core (`placer`): who keeps
//! what is read from the source, whether a block moves or is copied when it is read
//! ([`Message::Send`], [`Message::Drop`]), and who takes it when it is evicted
//! ([`Message::Victims`]). None of these messages is on the way of a reader's block. Holders report
//! what their own readers have read ([`Message::Reads`]), from time to time.
//!
//! Members may lie, or may have been members once. So nothing is heard of who is not in the view;
//! an answer counts if it names the number of a request that only who was asked can know; and a
//! block is taken of a member that was asked for it ([`Protocol::expects`]), or that the home of
//! its chunk has announced ([`Message::Expect`]), if that one may have the volume.
//!
//! Blocks on their way are in one table, the requester's, with who waits for them: [`Token`]s that
//! mean nothing here and come back with the blocks. So a reader waits for its disk as for a member.
//!
//! The protocol is pure: time and events come in, instructions go out, equal inputs give equal
//! outputs. It carries no data. A block of one key never changes, so nothing that is decided here
//! can make a read wrong; a lost message or an outdated directory costs time, or one more read of
//! the source. No answer within a deadline is never an error: the requester reads from the source.

mod answers;
mod clock;
mod directory;
mod effects;
pub mod event;
mod expected;
mod flight;
mod hints;
mod holdings;
mod home;
mod limits;
pub mod message;
mod node;
mod peers;
mod placer;
mod recovery;
mod requester;
mod round_trips;
mod serve;
pub mod settings;
mod timers;
mod topology;
pub mod view;
mod waiters;
pub mod wire;

#[cfg(test)]
mod tests;

pub use event::{DiskResult, FetchResult, Input, Output, Time};
pub use message::{
    Blocks, Copies, Frames, Keep, Message, ReadEntry, ReportEntry, Request, RequestId, RoundTrip,
    Urgency,
};
pub use node::Protocol;
pub use peers::PeerState;
pub use settings::{Counters, Settings};
pub use topology::TopologyState;
pub use view::{MemberId, View};
pub use waiters::{Token, Waiters};
