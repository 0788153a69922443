//! Length-prefixed binary frames: what nodes send each other.
//!
//! A frame is a header of fixed length and a body. All numbers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | checksum of all that follows |
//! | 8 | 1 | protocol version |
//! | 9 | 1 | kind, whose meaning is the user's |
//! | 10 | 2 | length of the body's head |
//! | 12 | 4 | length of the body, head included |
//! | 16 | 8 | epoch |
//! | 24 | 8 | request id |
//! | 32 | 4 | deadline in milliseconds |
//!
//! The sender may make a body of two parts: a short head, which is copied, and a large payload,
//! which is not. The receiver sees one body. The split is in the header since the checksum depends
//! on it: xxh3-64 of the header's other fields and the head is the seed of xxh3-64 of the payload.
//! One hash over three separate pieces of memory would need the streaming hasher, which allocates.
//!
//! [`decode`] survives any bytes. It allocates nothing: how much more to read is for the caller to
//! bound, as [`reserve`] does.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use twox_hash::XxHash3_64;

/// The version of the protocol: of frames, of hellos and of whatever is in the bodies.
pub const PROTOCOL: u8 = 4;
/// Bytes before a frame's body.
pub const HEADER_BYTES: usize = 36;
/// The longest body, head included.
pub const BODY_BYTES_MAX: usize = 9 << 20;
/// The longest head.
pub const HEAD_BYTES_MAX: usize = u16::MAX as usize;

const CHECKSUM_BYTES: usize = 8;
/// The most that is reserved for bytes that were announced and have not arrived.
pub const RESERVE_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// The least that is reserved for a read: some small frames at once.
const RESERVE_BYTES_MIN: usize = 64 << 10;
/// The least room that is worth a read.
const SPARE_BYTES_MIN: usize = 8 << 10;

/// What a frame's header says beside the lengths and the checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the body is. The meaning is the user's.
    pub kind: u8,
    /// The sender's epoch: see [`View::epoch`](crate::view::View::epoch).
    pub epoch: u64,
    /// Pairs an answer with its request.
    pub request: u64,
    /// How long the sender waits for an answer, in milliseconds.
    pub deadline_ms: u32,
}

/// A frame as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header's fields.
    pub header: FrameHeader,
    /// The body: head and payload in one piece. It shares the read buffer's memory, so copy what is
    /// to be kept for long.
    pub body: Bytes,
}

/// A frame that can be sent.
#[derive(Clone, Debug)]
pub struct EncodedFrame {
    /// The header, followed by the head.
    lead: Bytes,
    payload: Bytes,
}

/// Why bytes are no frame, or no frame can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is of another version of the protocol.
    #[error("a frame of protocol {0}, this node speaks {PROTOCOL}")]
    Version(u8),
    /// The body would be longer than [`BODY_BYTES_MAX`].
    #[error("a body of {0} bytes, at most {BODY_BYTES_MAX} are allowed")]
    BodyTooLong(usize),
    /// The head is longer than [`HEAD_BYTES_MAX`] or than the body.
    #[error("a head of {head} bytes in a body of {body}")]
    Head {
        /// The head's length in bytes.
        head: usize,
        /// The body's length in bytes.
        body: usize,
    },
    /// The bytes were changed on their way.
    #[error("a frame whose checksum does not match its bytes")]
    Checksum,
}

/// What [`decode`] found at the start of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A frame, which was taken off the buffer.
    Frame(Frame),
    /// The start of a frame. At least this many bytes are missing.
    Missing(usize),
}

impl FrameHeader {
    /// Makes a frame whose body is a copy of `body`.
    pub fn encode(self, body: &[u8]) -> Result<EncodedFrame, FrameError> {
        if body.len() <= HEAD_BYTES_MAX {
            self.encode_parts(body, Bytes::new())
        } else {
            self.encode_parts(&[], Bytes::copy_from_slice(body))
        }
    }

    /// Makes a frame whose body is `head` and then `payload`. Only the head is copied.
    pub fn encode_parts(self, head: &[u8], payload: Bytes) -> Result<EncodedFrame, FrameError> {
        let body_bytes = head.len() + payload.len();
        if body_bytes > BODY_BYTES_MAX {
            return Err(FrameError::BodyTooLong(body_bytes));
        }
        let Ok(head_bytes) = u16::try_from(head.len()) else {
            return Err(FrameError::Head {
                head: head.len(),
                body: body_bytes,
            });
        };
        let mut lead = BytesMut::with_capacity(HEADER_BYTES + head.len());
        lead.put_u64_le(0);
        lead.put_u8(PROTOCOL);
        lead.put_u8(self.kind);
        lead.put_u16_le(head_bytes);
        lead.put_u32_le(body_bytes as u32);
        lead.put_u64_le(self.epoch);
        lead.put_u64_le(self.request);
        lead.put_u32_le(self.deadline_ms);
        lead.put_slice(head);
        let checksum = checksum(&lead[CHECKSUM_BYTES..], &payload);
        lead[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        Ok(EncodedFrame {
            lead: lead.freeze(),
            payload,
        })
    }
}

impl EncodedFrame {
    /// The bytes to send: header and head, then the payload, which may be empty.
    pub fn parts(&self) -> [&Bytes; 2] {
        [&self.lead, &self.payload]
    }

    /// The same as [`parts`](EncodedFrame::parts), by value.
    pub fn into_parts(self) -> [Bytes; 2] {
        [self.lead, self.payload]
    }

    /// The frame's length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.lead.len() + self.payload.len()
    }
}

fn checksum(lead: &[u8], payload: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(lead), payload)
}

/// Takes one frame off the start of `buffer`. After an error the buffer's contents are of no use:
/// where the next frame starts is not known.
pub fn decode(buffer: &mut BytesMut) -> Result<Decoded, FrameError> {
    let Some(mut header) = buffer.get(..HEADER_BYTES) else {
        // The version is checked as soon as it is there, so that a stranger's bytes are refused
        // early.
        return match buffer.get(CHECKSUM_BYTES) {
            Some(&version) if version != PROTOCOL => Err(FrameError::Version(version)),
            _ => Ok(Decoded::Missing(HEADER_BYTES - buffer.len())),
        };
    };
    let expected = header.get_u64_le();
    let version = header.get_u8();
    if version != PROTOCOL {
        return Err(FrameError::Version(version));
    }
    let kind = header.get_u8();
    let head_bytes = usize::from(header.get_u16_le());
    let body_bytes = header.get_u32_le() as usize;
    if body_bytes > BODY_BYTES_MAX {
        return Err(FrameError::BodyTooLong(body_bytes));
    }
    if head_bytes > body_bytes {
        return Err(FrameError::Head {
            head: head_bytes,
            body: body_bytes,
        });
    }
    let fields = FrameHeader {
        kind,
        epoch: header.get_u64_le(),
        request: header.get_u64_le(),
        deadline_ms: header.get_u32_le(),
    };
    let frame_bytes = HEADER_BYTES + body_bytes;
    let Some(frame) = buffer.get(..frame_bytes) else {
        return Ok(Decoded::Missing(frame_bytes - buffer.len()));
    };
    let (lead, payload) = frame.split_at(HEADER_BYTES + head_bytes);
    if checksum(&lead[CHECKSUM_BYTES..], payload) != expected {
        return Err(FrameError::Checksum);
    }
    buffer.advance(HEADER_BYTES);
    Ok(Decoded::Frame(Frame {
        header: fields,
        body: buffer.split_to(body_bytes).freeze(),
    }))
}

/// Makes room in `buffer` for the next read, when `missing` bytes are known to be missing: memory
/// for what has arrived and at most [`RESERVE_BYTES_MAX`] more. What is left of the last room is
/// used first, so that a frame that is kept does not keep a large buffer.
pub fn reserve(buffer: &mut BytesMut, missing: usize) {
    let spare = buffer.capacity() - buffer.len();
    if spare < missing.clamp(SPARE_BYTES_MIN, RESERVE_BYTES_MAX) {
        buffer.reserve(missing.clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: FrameHeader = FrameHeader {
        kind: 3,
        epoch: 17,
        request: 4,
        deadline_ms: 250,
    };

    fn joined(frame: &EncodedFrame) -> BytesMut {
        let [lead, payload] = frame.parts();
        let mut bytes = BytesMut::from(&lead[..]);
        bytes.extend_from_slice(payload);
        assert_eq!(bytes.len(), frame.len());
        bytes
    }

    fn headers() -> impl Strategy<Value = FrameHeader> {
        any::<(u8, u64, u64, u32)>().prop_map(|(kind, epoch, request, deadline_ms)| FrameHeader {
            kind,
            epoch,
            request,
            deadline_ms,
        })
    }

    fn bodies() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..700)
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_however_it_arrives(
            frames in prop::collection::vec((headers(), bodies(), bodies()), 1..5),
            piece in 1_usize..900,
        ) {
            let mut sent = BytesMut::new();
            for (header, head, payload) in &frames {
                let payload = Bytes::copy_from_slice(payload);
                sent.extend_from_slice(&joined(&header.encode_parts(head, payload).unwrap()));
            }
            let mut buffer = BytesMut::new();
            let mut received = Vec::new();
            for part in sent.chunks(piece) {
                buffer.extend_from_slice(part);
                while let Decoded::Frame(frame) = decode(&mut buffer).unwrap() {
                    received.push(frame);
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(received.len(), frames.len());
            for ((header, head, payload), frame) in frames.iter().zip(&received) {
                prop_assert_eq!(header, &frame.header);
                prop_assert_eq!([&head[..], payload].concat(), &frame.body[..]);
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Decoded::Frame(_)) = decode(&mut buffer) {}
        }
    }

    #[test]
    fn each_changed_bit_is_noticed() {
        let frame = HEADER
            .encode_parts(b"head", Bytes::from_static(b"a payload of some bytes"))
            .unwrap();
        let sound = joined(&frame);
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut broken = sound.clone();
                broken[at] ^= 1 << bit;
                match decode(&mut broken) {
                    Err(_) => {}
                    // A longer body was announced: its bytes will not match the checksum either.
                    Ok(Decoded::Missing(missing)) => {
                        assert!((12..16).contains(&at), "byte {at}, bit {bit}");
                        broken.resize(broken.len() + missing, 0);
                        assert_eq!(decode(&mut broken), Err(FrameError::Checksum));
                    }
                    Ok(Decoded::Frame(frame)) => panic!("byte {at}, bit {bit}: {frame:?}"),
                }
            }
        }
    }

    #[test]
    fn the_split_of_a_body_does_not_matter_to_the_receiver() {
        let body = |frame: EncodedFrame| match decode(&mut joined(&frame)).unwrap() {
            Decoded::Frame(frame) => frame.body,
            Decoded::Missing(missing) => panic!("{missing} bytes are missing"),
        };
        let payload = Bytes::from_static(b"payload");
        let parts = HEADER.encode_parts(b"the ", payload).unwrap();
        assert_eq!(&body(parts)[..], b"the payload");
        assert_eq!(body(HEADER.encode(b"the payload").unwrap()), "the payload");
        let long = vec![7; HEAD_BYTES_MAX + 1];
        assert_eq!(body(HEADER.encode(&long).unwrap()), long);
        assert_eq!(body(HEADER.encode(b"").unwrap()), "");
    }

    #[test]
    fn what_is_too_long_is_refused_on_both_sides() {
        let long = Bytes::from(vec![0; BODY_BYTES_MAX]);
        assert!(HEADER.encode_parts(b"", long.clone()).is_ok());
        let refused = HEADER.encode_parts(b"1", long).unwrap_err();
        assert_eq!(refused, FrameError::BodyTooLong(BODY_BYTES_MAX + 1));
        let head = vec![0; HEAD_BYTES_MAX + 1];
        assert!(HEADER.encode_parts(&head, Bytes::new()).is_err());

        let mut announced = joined(&HEADER.encode(b"").unwrap());
        announced[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        let refused = decode(&mut announced).unwrap_err();
        assert_eq!(refused, FrameError::BodyTooLong(u32::MAX as usize));
        let mut buffer = BytesMut::new();
        reserve(&mut buffer, BODY_BYTES_MAX);
        assert!(buffer.capacity() <= RESERVE_BYTES_MAX);
    }

    #[test]
    fn another_version_is_named_early() {
        let mut bytes = BytesMut::from(&[0, 0, 0, 0, 0, 0, 0, 0, 9][..]);
        let error = decode(&mut bytes).unwrap_err();
        let said = format!("a frame of protocol 9, this node speaks {PROTOCOL}");
        assert_eq!(error.to_string(), said);
    }
}
