//! The blocks of one chunk that a node is getting for its readers, with who waits for them: the one
//! table of what is in flight.

use super::event::Time;
use super::message::{RequestId, Urgency};
use super::view::MemberId;
use super::waiters::{Token, Waiters};

/// How far the blocks of a part have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits until fewer blocks are asked for at the home.
    AskQueued { home: MemberId },
    /// Asked for at the home.
    Asked { ask: Ask },
    /// Another node reads them from the source; the home will see to them.
    Pending { ask: Ask },
    /// A holder was told to deliver them: by the home, or by this node itself, so that the home
    /// has not seen the read.
    Coming {
        ask: Ask,
        holder: MemberId,
        is_seen: bool,
    },
    /// Waits until fewer blocks are being read from the source.
    FetchQueued,
    /// Being read from the source.
    Fetching,
    /// Being read from this node's disk: nobody else is asked.
    OnDisk,
}

/// A request to a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) home: MemberId,
    pub(super) id: RequestId,
    pub(super) deadline: Time,
}

impl State {
    /// The request to a home, where there is one.
    pub(super) fn ask(&self) -> Option<Ask> {
        match *self {
            State::Asked { ask } | State::Pending { ask } | State::Coming { ask, .. } => Some(ask),
            State::AskQueued { .. } | State::FetchQueued | State::Fetching | State::OnDisk => None,
        }
    }

    /// Whether `from` may say what becomes of the request: the home that was asked. A holder that
    /// was asked directly may have passed it on to another one.
    pub(super) fn is_for(&self, from: MemberId) -> bool {
        match *self {
            State::Coming { is_seen: false, .. } => true,
            _ => self.ask().is_some_and(|ask| ask.home == from),
        }
    }

    /// Whether `id` is the number of the request.
    pub(super) fn is_asked(&self, id: RequestId) -> bool {
        self.ask().is_some_and(|ask| ask.id == id)
    }

    /// Whether the blocks are on their way from the source, or next in line for it.
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self, State::FetchQueued | State::Fetching)
    }

    /// Whether the runtime reads the blocks, and reports how that ends.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, State::Fetching | State::OnDisk)
    }

    /// Whether the blocks stand in a queue.
    pub(super) fn is_queued(&self) -> bool {
        matches!(self, State::AskQueued { .. } | State::FetchQueued)
    }
}

/// Blocks that have come equally far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) mask: u64,
    pub(super) urgency: Urgency,
    /// When the blocks were first wanted; once they are being read from the source, since when.
    pub(super) started: Time,
    /// How often they were asked for again, since a home or holder was lost.
    pub(super) retries: u8,
    /// Who keeps them once they are read from the source; `None`: this node.
    pub(super) keeper: Option<MemberId>,
    /// What they are blocks of.
    pub(super) file: Token,
    pub(super) state: State,
}

impl Part {
    pub(super) fn count(&self) -> u32 {
        self.mask.count_ones()
    }

    /// The same for the blocks of `mask` only.
    pub(super) fn only(&self, mask: u64) -> Part {
        Part {
            mask: self.mask & mask,
            ..self.clone()
        }
    }

    /// The same in another state.
    pub(super) fn into_state(self, state: State) -> Part {
        Part { state, ..self }
    }
}

/// The parts of a chunk that are in flight; no block is in two of them.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) parts: Vec<Part>,
    /// Who waits for which of their blocks. Nobody does any more for those of a part that came by
    /// another way first.
    pub(super) waiters: Waiters,
    /// The deadline that was set for the chunk.
    pub(super) timer: Option<Time>,
}

impl Flight {
    /// The blocks in flight.
    pub(super) fn mask(&self) -> u64 {
        self.parts.iter().fold(0, |mask, part| mask | part.mask)
    }

    /// Takes the blocks of `mask` out of those parts that `wanted` names, splitting parts where
    /// need be.
    pub(super) fn extract(&mut self, mask: u64, wanted: impl Fn(&Part) -> bool) -> Vec<Part> {
        let mut extracted = Vec::new();
        self.parts.retain_mut(|part| {
            if part.mask & mask != 0 && wanted(part) {
                extracted.push(part.only(mask));
                *part = part.only(!mask);
            }
            part.mask != 0
        });
        extracted
    }

    /// The first deadline of a part.
    pub(super) fn deadline(&self) -> Option<Time> {
        let asks = self.parts.iter().filter_map(|part| part.state.ask());
        asks.map(|ask| ask.deadline).min()
    }
}
