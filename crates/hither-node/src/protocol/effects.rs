//! What all roles of a node share while an input is handled: time, settings, the other members, and
//! where messages and instructions go.

use std::collections::VecDeque;

use super::event::{Output, Time};
use super::message::{Blocks, Message, Urgency};
use super::peers::Peers;
use super::settings::{Counters, Settings};
use super::view::MemberId;

/// See the module.
#[derive(Debug)]
pub(super) struct Effects {
    pub(super) now: Time,
    pub(super) me: MemberId,
    pub(super) settings: Settings,
    pub(super) peers: Peers,
    pub(super) counters: Counters,
    pub(super) out: Vec<Output>,
    /// Messages from this node to itself, in order. They are handled within the same step.
    pub(super) loopback: VecDeque<Message>,
    /// How often this node has lost its directory since it started, by isolation.
    pub(super) rejoins: u32,
}

impl Effects {
    /// Sends a message to a member, which may be this node.
    pub(super) fn send(&mut self, to: MemberId, message: Message) {
        if to == self.me {
            self.loopback.push_back(message);
        } else {
            let epoch = self.peers.view().epoch;
            self.out.push(Output::Send { to, epoch, message });
        }
    }

    /// Whether `member` is the home of a chunk, which orders what becomes of its copies. This node
    /// may act as it without being it.
    pub(super) fn is_home(&self, member: MemberId, blocks: Blocks) -> bool {
        let home = self.peers.home(blocks.chunk);
        member == self.me || home.is_some_and(|(home, _)| home == member)
    }

    /// Whether blocks may go to a member and come from it: one that takes part, and may have them.
    pub(super) fn may_have(&self, member: MemberId, blocks: Blocks) -> bool {
        let readers = &self.settings.readers;
        self.peers.is_usable(member) && readers.may_have(member, blocks.chunk.file)
    }

    /// Changes whenever this node forgets what others told it.
    pub(super) fn incarnation(&self) -> u64 {
        u64::from(self.settings.incarnation) << 32 | u64::from(self.rejoins)
    }

    /// Tells the home of a chunk that this node does not read these blocks from the source.
    pub(super) fn not_fetched(&mut self, blocks: Blocks, tried: bool) {
        if let Some((home, _)) = self.peers.home(blocks.chunk) {
            self.send(home, Message::NotFetched { blocks, tried });
        }
    }

    /// Tells the home of a chunk that this node reads these blocks from the source.
    pub(super) fn fetching(&mut self, blocks: Blocks, urgency: Urgency) {
        if let Some((home, _)) = self.peers.home(blocks.chunk) {
            self.send(home, Message::Fetching { blocks, urgency });
        }
    }
}
