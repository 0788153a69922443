//! Frames on their way to one member: a queue that is bounded in bytes, and the connection.
//!
//! A sender puts its frame into the queue and then, if nobody else is writing, writes what is
//! queued itself. So a small frame to an idle connection costs one system call and no switch to
//! another task. Whoever finds the connection busy leaves its frame to the one that writes. What
//! the socket does not take, and large frames, are left to the connection's own task.
//!
//! Nobody waits: the queue's lock is held for a push or a pop only, and the writer's lock is only
//! ever tried by senders.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use rustls::ClientConnection;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::error::SendError;
use crate::frame::EncodedFrame;

/// The largest frame that its sender writes itself, and the most that one sender writes: a block of
/// 128 KiB and its header fit.
const INLINE_BYTES: usize = 192 << 10;
/// How much is taken off the queue at once.
const BATCH_BYTES: usize = 256 << 10;
/// How much is encrypted before it is written: little, so that the receiver decrypts meanwhile and
/// that what was encrypted is still in the processor's cache.
const ENCRYPT_BYTES: usize = 32 << 10;
/// Slices that one system call writes.
const SLICES: usize = 64;

/// The frames to one member.
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    writer: Mutex<Option<Writer>>,
    /// Wakes the connection's task.
    wake: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<EncodedFrame>,
    bytes: usize,
    open: bool,
}

/// What was left after writing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing.
    All,
    /// Something, since the socket is full.
    Blocked,
    /// Something, since it was enough for once.
    More,
}

/// The writing half of a connection.
pub(crate) struct Writer {
    stream: Arc<TcpStream>,
    tls: Option<Box<ClientConnection>>,
    /// Taken off the queue and not yet written, or not yet encrypted.
    pending: VecDeque<Bytes>,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize) -> Outbox {
        Outbox {
            queue: Mutex::default(),
            writer: Mutex::new(None),
            wake: Notify::new(),
            bytes_max,
        }
    }

    /// Opens the queue for a new connection. `first` is sent before all that senders queue.
    pub(crate) fn open(&self, writer: Writer, first: EncodedFrame) {
        *self.writer.lock() = Some(writer);
        let mut queue = self.queue.lock();
        queue.bytes = first.len();
        queue.frames.push_back(first);
        queue.open = true;
    }

    /// Closes the queue and drops what is in it and the connection.
    pub(crate) fn close(&self) {
        *self.queue.lock() = Queue::default();
        *self.writer.lock() = None;
    }

    /// Takes no more frames. What is queued can still be written.
    pub(crate) fn stop_taking(&self) {
        self.queue.lock().open = false;
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Resolves when there may be something for the connection's task to write.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Queues a frame, and writes it if that can be done at once.
    pub(crate) fn send(&self, frame: EncodedFrame) -> Result<(), SendError> {
        let bytes = frame.len();
        {
            let mut queue = self.queue.lock();
            if !queue.open {
                return Err(SendError::NotConnected);
            }
            if queue.bytes + bytes > self.bytes_max {
                return Err(SendError::Full);
            }
            queue.bytes += bytes;
            queue.frames.push_back(frame);
        }
        if bytes > INLINE_BYTES || !self.write_inline() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Writes what is queued, unless somebody else does. False if the connection's task must go on.
    fn write_inline(&self) -> bool {
        loop {
            let Some(mut writer) = self.writer.try_lock() else {
                // Whoever holds the lock looks at the queue again after giving it back.
                return true;
            };
            let Some(open) = writer.as_mut() else {
                return true;
            };
            match self.write(open, INLINE_BYTES) {
                Ok(Flushed::All) => {}
                // The task gets the same error, and ends the connection.
                Ok(Flushed::Blocked | Flushed::More) | Err(_) => return false,
            }
            drop(writer);
            if self.queue.lock().frames.is_empty() {
                return true;
            }
        }
    }

    /// Writes all that is queued, or as much as the socket takes. For the connection's task.
    pub(crate) fn flush(&self) -> io::Result<Flushed> {
        loop {
            let mut writer = self.writer.lock();
            let Some(open) = writer.as_mut() else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            let flushed = self.write(open, BATCH_BYTES)?;
            drop(writer);
            if flushed != Flushed::All || self.queue.lock().frames.is_empty() {
                return Ok(flushed);
            }
        }
    }

    /// Writes until nothing is left, the socket is full or about `bytes_max` were written.
    fn write(&self, writer: &mut Writer, bytes_max: usize) -> io::Result<Flushed> {
        let mut taken = 0;
        loop {
            if !writer.flush()? {
                return Ok(Flushed::Blocked);
            }
            let mut queue = self.queue.lock();
            if queue.frames.is_empty() {
                return Ok(Flushed::All);
            }
            if taken >= bytes_max {
                return Ok(Flushed::More);
            }
            let before = taken;
            while let Some(frame) = queue.frames.front() {
                let bytes = frame.len();
                if taken > before && taken - before + bytes > BATCH_BYTES {
                    break;
                }
                taken += bytes;
                queue.bytes -= bytes;
                let frame = queue.frames.pop_front().expect("it was at the front");
                writer.take(frame);
            }
        }
    }

    /// Ends the connection in order: the other side is told that nothing follows.
    pub(crate) fn finish(&self) {
        if let Some(writer) = self.writer.lock().as_mut() {
            writer.finish();
        }
    }

    /// Gives TLS what arrived on the connection. True if the other side has closed it.
    pub(crate) fn receive(&self, bytes: &[u8]) -> io::Result<bool> {
        match self.writer.lock().as_mut() {
            Some(writer) => writer.receive(bytes),
            None => Ok(true),
        }
    }
}

impl Writer {
    pub(crate) fn new(stream: Arc<TcpStream>, tls: Option<ClientConnection>) -> Writer {
        let tls = tls.map(|mut tls| {
            // What is encrypted at once is bounded here, by ENCRYPT_BYTES.
            tls.set_buffer_limit(None);
            Box::new(tls)
        });
        Writer {
            stream,
            tls,
            pending: VecDeque::new(),
        }
    }

    fn take(&mut self, frame: EncodedFrame) {
        let parts = frame.into_parts();
        self.pending
            .extend(parts.into_iter().filter(|part| !part.is_empty()));
    }

    /// Writes all that is pending. False if the socket is full.
    fn flush(&mut self) -> io::Result<bool> {
        loop {
            let written = match &mut self.tls {
                Some(tls) => {
                    while tls.wants_write() {
                        match tls.write_tls(&mut Socket(&self.stream)) {
                            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                            Ok(_) => {}
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                                return Ok(false);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    if self.pending.is_empty() {
                        return Ok(true);
                    }
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let count = fill(&mut slices, &self.pending, ENCRYPT_BYTES);
                    tls.writer().write_vectored(&slices[..count])?
                }
                None => {
                    if self.pending.is_empty() {
                        return Ok(true);
                    }
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let count = fill(&mut slices, &self.pending, usize::MAX);
                    match self.stream.try_write_vectored(&slices[..count]) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(written) => written,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return Ok(false);
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            self.advance(written);
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let front = self
                .pending
                .front_mut()
                .expect("more was written than was there");
            let taken = bytes.min(front.len());
            front.advance(taken);
            bytes -= taken;
            if front.is_empty() {
                self.pending.pop_front();
            }
        }
    }

    fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // If the socket is full, the other side sees an end without notice: it is no worse off.
            let _ = tls.write_tls(&mut Socket(&self.stream));
        }
    }

    fn receive(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            let text = "it sent bytes on a connection that it should only read";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes)?;
            let state = tls
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if state.peer_has_closed() {
                return Ok(true);
            }
            if state.plaintext_bytes_to_read() > 0 {
                let text = "it sent bytes on a connection that it should only read";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(false)
    }
}

/// Fills `slices` with what is pending, up to `bytes_max`, and says how many slices that are.
fn fill<'a>(slices: &mut [IoSlice<'a>], pending: &'a VecDeque<Bytes>, bytes_max: usize) -> usize {
    let mut left = bytes_max;
    let mut count = 0;
    for (slice, part) in slices.iter_mut().zip(pending) {
        if left == 0 {
            break;
        }
        let part = &part[..part.len().min(left)];
        left -= part.len();
        *slice = IoSlice::new(part);
        count += 1;
    }
    count
}

/// Writes to a socket without waiting.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            // send(2) costs less than writev(2). A small frame is one record of TLS.
            [slice] => self.0.try_write(slice),
            _ => self.0.try_write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
