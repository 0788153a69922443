//! Frames as they arrive on a connection.
//!
//! Reads are large and go into memory that is not zeroed. Without TLS a frame's body is a part of
//! the read buffer, so it is never copied.

use std::io::{self, BufRead};
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use rustls::ServerConnection;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::error::LinkError;
use super::peer::{Handler, Inbound, Peer};
use crate::frame::{Decoded, Frame, HEADER_BYTES, decode, reserve};

/// How much is read at once where there is TLS. What was read stays in the processor's cache until
/// it is decrypted and copied: with 256 KiB here and 64 KiB encrypted at once, a frame of 1 MiB
/// took 1.5 to 2.3 ms of processor time, and 1.3 to 1.5 ms as it is (2026-11-25, a busy machine).
const CIPHERTEXT_BYTES: usize = 64 << 10;

/// After a read of less, the system is told to wait with its acknowledgement. Nothing is ever sent
/// on this connection, so each one is a packet of its own, made when the message is read. With
/// this, and send(2) for small frames, a round trip of 4 KiB has 3.0 packets in place of 3.5, and
/// takes 1.38 times as long as by bare TCP in place of 1.48 (2026-11-26, loopback, one processor).
/// The sender waits for no acknowledgement.
const SMALL_BYTES: usize = 16 << 10;

/// Reads one connection.
pub(crate) struct FrameReader {
    stream: TcpStream,
    tls: Option<Decrypter>,
    plaintext: BytesMut,
}

struct Decrypter {
    connection: Box<ServerConnection>,
    ciphertext: Vec<u8>,
    /// The other side has said that it is done.
    ended: bool,
}

impl FrameReader {
    pub(crate) fn new(stream: TcpStream, tls: Option<ServerConnection>) -> FrameReader {
        FrameReader {
            stream,
            tls: tls.map(|connection| Decrypter {
                connection: Box::new(connection),
                ciphertext: Vec::with_capacity(CIPHERTEXT_BYTES),
                ended: false,
            }),
            plaintext: BytesMut::new(),
        }
    }

    /// Gives the handler all frames, until the connection ends.
    pub(crate) async fn run(
        &mut self,
        peer: &Peer,
        inbound: &Inbound,
        handler: &dyn Handler,
    ) -> Result<(), LinkError> {
        if let Some(tls) = &mut self.tls {
            // Frames may have come together with the hello.
            tls.process(&mut self.plaintext)?;
        }
        self.next_of_member(peer).await?;
        peer.confirm_inbound(inbound, handler);
        loop {
            let frame = self.next_of_member(peer).await?;
            let bytes = (HEADER_BYTES + frame.body.len()) as u64;
            peer.counters
                .received_bytes
                .fetch_add(bytes, Ordering::Relaxed);
            peer.counters
                .received_frames
                .fetch_add(1, Ordering::Relaxed);
            handler.on_frame(peer.id, frame);
        }
    }

    /// The next frame, if its sender is in the view by now: it may have left since it was let in.
    async fn next_of_member(&mut self, peer: &Peer) -> Result<Frame, LinkError> {
        let frame = self.next().await?;
        if peer.in_view.load(Ordering::Acquire) {
            Ok(frame)
        } else {
            Err(LinkError::Left)
        }
    }

    async fn next(&mut self) -> Result<Frame, LinkError> {
        loop {
            let missing = match decode(&mut self.plaintext)? {
                Decoded::Frame(frame) => return Ok(frame),
                Decoded::Missing(missing) => missing,
            };
            reserve(&mut self.plaintext, missing);
            let count = match &mut self.tls {
                Some(tls) => tls.read(&mut self.stream, &mut self.plaintext).await?,
                None => self.stream.read_buf(&mut self.plaintext).await?,
            };
            if count == 0 {
                return Err(LinkError::Closed);
            }
            if count < SMALL_BYTES {
                // The system forgets it again and again. If it cannot be set, nothing is lost.
                let _ = self.stream.set_quickack(false);
            }
        }
    }
}

impl Decrypter {
    /// Reads once, and appends what that gives to `plaintext`. 0 at the end.
    async fn read(
        &mut self,
        stream: &mut TcpStream,
        plaintext: &mut BytesMut,
    ) -> Result<usize, LinkError> {
        if self.ended {
            return Ok(0);
        }
        self.ciphertext.clear();
        let count = stream.read_buf(&mut self.ciphertext).await?;
        let mut rest = &self.ciphertext[..];
        while !rest.is_empty() && !self.ended {
            self.connection.read_tls(&mut rest)?;
            self.ended = process(&mut self.connection, plaintext)?;
        }
        Ok(count)
    }

    /// Appends what was decrypted so far to `plaintext`.
    fn process(&mut self, plaintext: &mut BytesMut) -> io::Result<()> {
        self.ended = process(&mut self.connection, plaintext)?;
        Ok(())
    }
}

/// Appends what is decrypted to `plaintext`. True if the other side has said that it is done.
fn process(connection: &mut ServerConnection, plaintext: &mut BytesMut) -> io::Result<bool> {
    let state = connection
        .process_new_packets()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut left = state.plaintext_bytes_to_read();
    let mut reader = connection.reader();
    while left > 0 {
        let chunk = reader.fill_buf()?;
        let count = chunk.len();
        plaintext.extend_from_slice(chunk);
        reader.consume(count);
        left -= count;
    }
    Ok(state.peer_has_closed())
}
