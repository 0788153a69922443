//! What a client and a node say to each other, in little-endian numbers over a Unix stream socket.
//!
//! ```text
//! node    hello    magic (8), version (4), length of the buffer (4); with it comes the descriptor
//!                  of the connection's buffer, which both map
//! client  request  kind (4), length (4), offset (8); behind one to open: the volume and the path
//! node    answer   error number or 0 (4), length of the text (4), value (8); then the text
//! ```
//!
//! A connection has one open file, and one request under way. *Open* closes the file before: its
//! `length` is that of volume and path together, its `offset` that of the volume alone, and the
//! answer's value is the length of the file. Where the volume is empty, the path is an absolute one
//! in a mount of the node. *Read* puts at most `length` bytes from `offset` on into the buffer; the
//! value says how many. They are the client's until its next request.
//!
//! A node takes any bytes for a request: those that are none end the connection.

use std::io;

/// What a hello begins with.
const MAGIC: [u8; 8] = *b"hither-r";

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The longest volume and path together, in bytes.
pub const NAME_BYTES_MAX: u32 = 64 << 10;

/// The longest text of an answer, in bytes.
pub const TEXT_BYTES_MAX: u32 = 64 << 10;

/// The longest buffer, in bytes.
pub const BUFFER_BYTES_MAX: u32 = 64 << 20;

/// The length of a hello, a request and an answer without what follows.
pub const HEAD_BYTES: usize = 16;

const OPEN: u32 = 1;
const READ: u32 = 2;

/// The first message of a node: the length of the buffer that comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// In bytes.
    pub buffer_bytes: u32,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open a file. Its volume and path follow.
    Open {
        /// Length of the volume's name.
        volume_bytes: u32,
        /// Length of the path.
        path_bytes: u32,
    },
    /// Read of the open file.
    Read {
        /// From where on.
        offset: u64,
        /// How much at most.
        bytes: u32,
    },
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// An error number, or 0.
    pub error: u32,
    /// The length of the error's text, which follows.
    pub text_bytes: u32,
    /// The length of the file that was opened, or the bytes that were read.
    pub value: u64,
}

fn head(first: u32, second: u32, third: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&first.to_le_bytes());
    head[4..8].copy_from_slice(&second.to_le_bytes());
    head[8..].copy_from_slice(&third.to_le_bytes());
    head
}

fn parts(head: [u8; HEAD_BYTES]) -> (u32, u32, u64) {
    let word = u128::from_le_bytes(head);
    (word as u32, (word >> 32) as u32, (word >> 64) as u64)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Hello {
    /// On the wire.
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        let rest = u64::from(self.buffer_bytes) << 32 | u64::from(VERSION);
        let mut hello = head(0, 0, rest);
        hello[..8].copy_from_slice(&MAGIC);
        hello
    }

    /// From the wire.
    ///
    /// # Errors
    /// It is no hello, or one of another version.
    pub fn decode(hello: [u8; HEAD_BYTES]) -> io::Result<Hello> {
        let (_, _, rest) = parts(hello);
        let (version, buffer_bytes) = (rest as u32, (rest >> 32) as u32);
        if hello[..8] != MAGIC {
            return Err(invalid("it is no node of hither".to_owned()));
        }
        if version != VERSION {
            return Err(invalid(format!(
                "the node speaks version {version} of the protocol, this program {VERSION}"
            )));
        }
        if !(1..=BUFFER_BYTES_MAX).contains(&buffer_bytes) {
            return Err(invalid(format!("a buffer of {buffer_bytes} bytes")));
        }
        Ok(Hello { buffer_bytes })
    }
}

impl Request {
    /// On the wire, without what follows.
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        match self {
            Request::Open {
                volume_bytes,
                path_bytes,
            } => head(OPEN, volume_bytes + path_bytes, volume_bytes.into()),
            Request::Read { offset, bytes } => head(READ, bytes, offset),
        }
    }

    /// From the wire. `None` if it is none.
    pub fn decode(head: [u8; HEAD_BYTES]) -> Option<Request> {
        match parts(head) {
            (OPEN, bytes, volume_bytes) if bytes <= NAME_BYTES_MAX => {
                let volume_bytes = u32::try_from(volume_bytes).ok()?;
                Some(Request::Open {
                    volume_bytes,
                    path_bytes: bytes.checked_sub(volume_bytes)?,
                })
            }
            (READ, bytes, offset) => Some(Request::Read { offset, bytes }),
            _ => None,
        }
    }
}

impl Answer {
    /// On the wire, without the text.
    pub fn encode(self) -> [u8; HEAD_BYTES] {
        head(self.error, self.text_bytes, self.value)
    }

    /// From the wire.
    ///
    /// # Errors
    /// The text is longer than any.
    pub fn decode(head: [u8; HEAD_BYTES]) -> io::Result<Answer> {
        let (error, text_bytes, value) = parts(head);
        if text_bytes > TEXT_BYTES_MAX {
            return Err(invalid(format!("a text of {text_bytes} bytes")));
        }
        Ok(Answer {
            error,
            text_bytes,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let hello = Hello {
            buffer_bytes: 1 << 20,
        };
        assert_eq!(Hello::decode(hello.encode()).unwrap(), hello);
        for request in [
            Request::Open {
                volume_bytes: 3,
                path_bytes: NAME_BYTES_MAX - 3,
            },
            Request::Read {
                offset: u64::MAX,
                bytes: u32::MAX,
            },
        ] {
            assert_eq!(Request::decode(request.encode()), Some(request));
        }
        let answer = Answer {
            error: 2,
            text_bytes: TEXT_BYTES_MAX,
            value: 1 << 40,
        };
        assert_eq!(Answer::decode(answer.encode()).unwrap(), answer);
    }

    #[test]
    fn what_is_none_of_it_is_refused() {
        let mut later = Hello { buffer_bytes: 4096 }.encode();
        later[8] = 9;
        let error = Hello::decode(later).unwrap_err().to_string();
        assert!(error.contains("version 9"), "{error}");
        assert!(Hello::decode([7; HEAD_BYTES]).is_err());
        assert!(Hello::decode(Hello { buffer_bytes: 0 }.encode()).is_err());
        // A kind that there is not, a name that is too long, a volume longer than all.
        for wrong in [
            head(3, 0, 0),
            head(OPEN, NAME_BYTES_MAX + 1, 0),
            head(OPEN, 5, 6),
            head(OPEN, 5, 1 << 32),
        ] {
            assert_eq!(Request::decode(wrong), None);
        }
        assert!(Answer::decode(head(0, TEXT_BYTES_MAX + 1, 0)).is_err());
    }
}
