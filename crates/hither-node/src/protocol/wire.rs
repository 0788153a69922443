//! Messages as bytes: a kind, then fixed fields in little-endian order.
//!
//! Decoding takes any bytes: it neither panics nor allocates more than the largest message takes,
//! and it takes exactly what encoding gives, so that equal messages are equal bytes.

use super::message::{
    Blocks, COPIES_MAX, Copies, Frames, Keep, Message, READ_ENTRIES_MAX, REPORT_ENTRIES_MAX,
    ROUND_TRIPS_MAX, ReadEntry, ReportEntry, Request, RequestId, RoundTrip, Urgency,
};
use super::round_trips::CLASS_MAX;
use super::view::MemberId;
use crate::key::{ChunkKey, FileKey};

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end within a field.
    #[error("the message is cut short")]
    Short,
    /// More bytes than the message has.
    #[error("{0} bytes after the end of the message")]
    Long(usize),
    /// A kind that this version does not know.
    #[error("message kind {0} is unknown")]
    Kind(u8),
    /// A field has a value that it cannot have.
    #[error("{0} is out of range")]
    Range(&'static str),
}

/// Appends the bytes of `message` to `out`.
///
/// # Panics
/// If a report has more entries than [`REPORT_ENTRIES_MAX`], reads have more than
/// [`READ_ENTRIES_MAX`], there are more copies than [`COPIES_MAX`], or more round trips than
/// [`ROUND_TRIPS_MAX`].
pub fn encode(message: &Message, out: &mut Vec<u8>) {
    let mut to = Writer(out);
    to.byte(kind(message));
    match message {
        Message::Want {
            id,
            blocks,
            urgency,
            rank,
            avoid,
        } => {
            to.word(id.0);
            to.blocks(*blocks);
            to.urgency(*urgency);
            to.byte(*rank);
            to.optional_member(*avoid);
        }
        Message::Raise(blocks) | Message::Hurry(blocks) | Message::Drop(blocks) => {
            to.blocks(*blocks);
        }
        Message::Grant { id, blocks, keeper } => {
            to.word(id.0);
            to.blocks(*blocks);
            to.word(keeper.0);
        }
        Message::Expect { blocks, from } => {
            to.blocks(*blocks);
            to.word(from.0);
        }
        Message::Withdraw { id, blocks }
        | Message::Pending { id, blocks }
        | Message::AskHome { id, blocks }
        | Message::Refused { id, blocks } => {
            to.word(id.0);
            to.blocks(*blocks);
        }
        Message::At {
            id,
            blocks,
            holder,
            copies,
        } => {
            assert!(copies.len() <= COPIES_MAX, "{} copies", copies.len());
            to.word(id.0);
            to.blocks(*blocks);
            to.word(holder.0);
            to.byte(copies.len() as u8);
            for copy in copies {
                to.word(copy.member.0);
                to.word(copy.mask);
            }
        }
        Message::Deliver {
            request,
            blocks,
            keep,
        } => {
            to.request(*request);
            to.blocks(*blocks);
            to.keep(*keep);
        }
        Message::Send {
            blocks,
            to: member,
            keep,
        } => {
            to.blocks(*blocks);
            to.word(member.0);
            to.keep(*keep);
        }
        Message::Reads(entries) => {
            assert!(
                entries.len() <= READ_ENTRIES_MAX,
                "reads are sent in batches"
            );
            to.bytes(&(entries.len() as u16).to_le_bytes());
            for entry in entries {
                to.blocks(entry.blocks);
                to.bytes(&entry.counts);
            }
        }
        Message::Victims { blocks, from } => {
            to.blocks(*blocks);
            to.optional_member(*from);
        }
        Message::Gone { request, blocks } => {
            to.request(*request);
            to.blocks(*blocks);
        }
        Message::Fetching { blocks, urgency } => {
            to.blocks(*blocks);
            to.urgency(*urgency);
        }
        Message::NotFetched { blocks, tried } => {
            to.blocks(*blocks);
            to.byte(u8::from(*tried));
        }
        Message::Report {
            incarnation,
            entries,
        } => {
            to.word(*incarnation);
            assert!(
                entries.len() <= REPORT_ENTRIES_MAX,
                "reports are sent in batches"
            );
            to.bytes(&(entries.len() as u16).to_le_bytes());
            for entry in entries {
                to.chunk(entry.chunk);
                to.word(entry.held);
                to.word(entry.dropped);
            }
        }
        Message::Ping { round, frames } => {
            to.word(*round);
            to.bytes(&frames.all.to_le_bytes());
            to.bytes(&frames.free.to_le_bytes());
        }
        Message::Pong { round, incarnation } => {
            to.word(*round);
            to.word(*incarnation);
        }
        Message::RoundTrips(row) => to.round_trips(row),
    }
}

/// The message whose bytes are `bytes`.
pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
    let mut from = Reader(bytes);
    let message = match from.byte()? {
        1 => Message::Want {
            id: from.id()?,
            blocks: from.blocks()?,
            urgency: from.urgency()?,
            rank: from.byte()?,
            avoid: from.optional_member()?,
        },
        2 => Message::Raise(from.blocks()?),
        3 => Message::Withdraw {
            id: from.id()?,
            blocks: from.blocks()?,
        },
        4 => Message::Pending {
            id: from.id()?,
            blocks: from.blocks()?,
        },
        5 => Message::Grant {
            id: from.id()?,
            blocks: from.blocks()?,
            keeper: from.member()?,
        },
        6 => Message::At {
            id: from.id()?,
            blocks: from.blocks()?,
            holder: from.member()?,
            copies: from.copies()?,
        },
        7 => Message::Deliver {
            request: from.request()?,
            blocks: from.blocks()?,
            keep: from.keep()?,
        },
        8 => Message::Gone {
            request: from.request()?,
            blocks: from.blocks()?,
        },
        9 => Message::AskHome {
            id: from.id()?,
            blocks: from.blocks()?,
        },
        10 => Message::Refused {
            id: from.id()?,
            blocks: from.blocks()?,
        },
        11 => Message::Fetching {
            blocks: from.blocks()?,
            urgency: from.urgency()?,
        },
        12 => Message::Hurry(from.blocks()?),
        13 => Message::NotFetched {
            blocks: from.blocks()?,
            tried: from.flag()?,
        },
        14 => Message::Report {
            incarnation: from.word()?,
            entries: from.entries()?,
        },
        15 => Message::Ping {
            round: from.word()?,
            frames: from.frames()?,
        },
        16 => Message::Pong {
            round: from.word()?,
            incarnation: from.word()?,
        },
        17 => Message::Send {
            blocks: from.blocks()?,
            to: from.member()?,
            keep: from.keep()?,
        },
        18 => Message::Drop(from.blocks()?),
        19 => Message::Reads(from.reads()?),
        20 => Message::Victims {
            blocks: from.blocks()?,
            from: from.optional_member()?,
        },
        21 => Message::RoundTrips(from.round_trips()?),
        22 => Message::Expect {
            blocks: from.blocks()?,
            from: from.member()?,
        },
        kind => return Err(WireError::Kind(kind)),
    };
    match from.0.len() {
        0 => Ok(message),
        rest => Err(WireError::Long(rest)),
    }
}

fn kind(message: &Message) -> u8 {
    match message {
        Message::Want { .. } => 1,
        Message::Raise(_) => 2,
        Message::Withdraw { .. } => 3,
        Message::Pending { .. } => 4,
        Message::Grant { .. } => 5,
        Message::At { .. } => 6,
        Message::Deliver { .. } => 7,
        Message::Gone { .. } => 8,
        Message::AskHome { .. } => 9,
        Message::Refused { .. } => 10,
        Message::Fetching { .. } => 11,
        Message::Hurry(_) => 12,
        Message::NotFetched { .. } => 13,
        Message::Report { .. } => 14,
        Message::Ping { .. } => 15,
        Message::Pong { .. } => 16,
        Message::Send { .. } => 17,
        Message::Drop(_) => 18,
        Message::Reads(_) => 19,
        Message::Victims { .. } => 20,
        Message::RoundTrips(_) => 21,
        Message::Expect { .. } => 22,
    }
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn word(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    fn keep(&mut self, keep: Keep) {
        self.byte(keep as u8);
    }

    fn optional_member(&mut self, member: Option<MemberId>) {
        self.byte(u8::from(member.is_some()));
        if let Some(member) = member {
            self.word(member.0);
        }
    }

    fn urgency(&mut self, urgency: Urgency) {
        self.byte(u8::from(urgency == Urgency::Demand));
    }

    fn chunk(&mut self, chunk: ChunkKey) {
        self.bytes(&chunk.file.0.to_le_bytes());
        self.bytes(&chunk.number.to_le_bytes());
    }

    fn blocks(&mut self, blocks: Blocks) {
        self.chunk(blocks.chunk);
        self.word(blocks.mask);
    }

    fn request(&mut self, request: Request) {
        self.word(request.member.0);
        self.word(request.id.0);
        self.urgency(request.urgency);
    }

    fn round_trips(&mut self, row: &[RoundTrip]) {
        assert!(
            row.len() <= ROUND_TRIPS_MAX,
            "there is no topology of so many members"
        );
        self.bytes(&(row.len() as u16).to_le_bytes());
        for round_trip in row {
            self.word(round_trip.member.0);
            self.byte(round_trip.class);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn word(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn id(&mut self) -> Result<RequestId, WireError> {
        Ok(RequestId(self.word()?))
    }

    fn member(&mut self) -> Result<MemberId, WireError> {
        Ok(MemberId(self.word()?))
    }

    fn optional_member(&mut self) -> Result<Option<MemberId>, WireError> {
        let is_there = self.flag()?;
        is_there.then(|| self.member()).transpose()
    }

    fn keep(&mut self) -> Result<Keep, WireError> {
        let keep = Keep::ALL.get(usize::from(self.byte()?)).copied();
        keep.ok_or(WireError::Range("whether to keep a block"))
    }

    fn copies(&mut self) -> Result<Vec<Copies>, WireError> {
        let count = usize::from(self.byte()?);
        if count > COPIES_MAX {
            return Err(WireError::Range("the number of copies"));
        }
        let mut copies = Vec::with_capacity(count);
        for _ in 0..count {
            copies.push(Copies {
                member: self.member()?,
                mask: self.word()?,
            });
        }
        Ok(copies)
    }

    /// No more frames are free than there are.
    fn frames(&mut self) -> Result<Frames, WireError> {
        let all = u32::from_le_bytes(self.array()?);
        let free = u32::from_le_bytes(self.array()?);
        if free <= all {
            Ok(Frames { all, free })
        } else {
            Err(WireError::Range("free frames"))
        }
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Range("a flag")),
        }
    }

    fn urgency(&mut self) -> Result<Urgency, WireError> {
        let demand = self.flag()?;
        Ok(if demand {
            Urgency::Demand
        } else {
            Urgency::Prefetch
        })
    }

    /// A chunk whose blocks all have a number.
    fn chunk(&mut self) -> Result<ChunkKey, WireError> {
        let file = FileKey(u128::from_le_bytes(self.array()?));
        let number = u32::from_le_bytes(self.array()?);
        if number > u32::MAX / u64::BITS {
            return Err(WireError::Range("a chunk's number"));
        }
        Ok(ChunkKey { file, number })
    }

    /// At least one block.
    fn blocks(&mut self) -> Result<Blocks, WireError> {
        let blocks = Blocks::new(self.chunk()?, self.word()?);
        match blocks.mask {
            0 => Err(WireError::Range("an empty mask")),
            _ => Ok(blocks),
        }
    }

    fn request(&mut self) -> Result<Request, WireError> {
        Ok(Request {
            member: self.member()?,
            id: self.id()?,
            urgency: self.urgency()?,
        })
    }

    fn reads(&mut self) -> Result<Vec<ReadEntry>, WireError> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        if count > READ_ENTRIES_MAX {
            return Err(WireError::Range("the number of entries"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let blocks = self.blocks()?;
            let counts = (0..blocks.mask.count_ones()).map(|_| self.byte());
            let counts = counts.collect::<Result<Vec<u8>, WireError>>()?;
            entries.push(ReadEntry { blocks, counts });
        }
        Ok(entries)
    }

    fn entries(&mut self) -> Result<Vec<ReportEntry>, WireError> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        if count > REPORT_ENTRIES_MAX {
            return Err(WireError::Range("the number of entries"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(ReportEntry {
                chunk: self.chunk()?,
                held: self.word()?,
                dropped: self.word()?,
            });
        }
        Ok(entries)
    }

    /// Members in ascending order.
    fn round_trips(&mut self) -> Result<Vec<RoundTrip>, WireError> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        if count > ROUND_TRIPS_MAX {
            return Err(WireError::Range("the number of round trips"));
        }
        let mut row: Vec<RoundTrip> = Vec::with_capacity(count);
        for _ in 0..count {
            let (member, class) = (self.member()?, self.byte()?);
            if row.last().is_some_and(|last| last.member >= member) {
                return Err(WireError::Range("the order of round trips"));
            }
            if class > CLASS_MAX {
                return Err(WireError::Range("the class of a round trip"));
            }
            row.push(RoundTrip { member, class });
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests;
