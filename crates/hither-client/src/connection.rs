//! A connection to a node, and the buffer that belongs to it.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use hither_kernel::shared_buffer::SharedBuffer;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::protocol::{Answer, HEAD_BYTES, Hello, Request};

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    buffer: SharedBuffer,
    /// After an error on the stream nobody knows what comes next on it.
    broken: bool,
}

impl Connection {
    pub(crate) fn new(socket: &Path) -> io::Result<Connection> {
        let mut stream = UnixStream::connect(socket)?;
        let (hello, fd) = receive(&mut stream)?;
        let hello = Hello::decode(hello)?;
        let no_buffer = || io::Error::new(io::ErrorKind::InvalidData, "no buffer came");
        let fd = fd.ok_or_else(no_buffer)?;
        Ok(Connection {
            buffer: SharedBuffer::map(fd.as_fd(), hello.buffer_bytes as usize)?,
            stream,
            broken: false,
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Opens a file in place of the one before. Returns its length.
    pub(crate) fn open(&mut self, volume: &[u8], path: &[u8]) -> io::Result<u64> {
        let request = Request::Open {
            volume_bytes: volume.len() as u32,
            path_bytes: path.len() as u32,
        };
        self.ask(&[&request.encode(), volume, path].concat())
    }

    /// Reads from `offset` on, until `data` is full or as much as the buffer holds.
    pub(crate) fn read(&mut self, data: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = data.len().min(self.buffer.len());
        let request = Request::Read {
            offset,
            bytes: bytes as u32,
        };
        let value = self.ask(&request.encode())?;
        let Some(data) = usize::try_from(value)
            .ok()
            .and_then(|it| data.get_mut(..it))
        else {
            self.broken = true;
            let what = format!("{value} bytes came where {bytes} were asked for");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        self.buffer.read(0, data);
        Ok(data.len())
    }

    /// Sends a request and returns the value of the answer.
    fn ask(&mut self, request: &[u8]) -> io::Result<u64> {
        let answered = self.exchange(request);
        self.broken |= answered.is_err();
        let (answer, text) = answered.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => {
                io::Error::new(io::ErrorKind::ConnectionAborted, "the node has ended")
            }
            _ => error,
        })?;
        if answer.error == 0 {
            return Ok(answer.value);
        }
        let kind = io::Error::from_raw_os_error(answer.error as i32).kind();
        Err(io::Error::new(kind, text))
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<(Answer, String)> {
        self.stream.write_all(request)?;
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head)?;
        let answer = Answer::decode(head)?;
        let mut text = vec![0; answer.text_bytes as usize];
        self.stream.read_exact(&mut text)?;
        Ok((answer, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// The first message, and the descriptor that comes with it.
fn receive(stream: &mut UnixStream) -> io::Result<([u8; HEAD_BYTES], Option<OwnedFd>)> {
    let mut hello = [0; HEAD_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &*stream,
        &mut [IoSliceMut::new(&mut hello)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    if received.bytes == 0 {
        let what = "the node takes no more connections";
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, what));
    }
    stream.read_exact(&mut hello[received.bytes..])?;
    Ok((hello, fd))
}
