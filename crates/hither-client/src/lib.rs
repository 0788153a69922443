//! Reads files through the cache of the local node, past the kernel: over a Unix socket and a
//! shared buffer in place of a mount.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! // A file as programs see it, in a mount of `hither mount` or `hither node` ...
//! let file = hither_client::open("/mnt/data/part-0001".as_ref())?;
//! let mut block = vec![0; 4096];
//! let bytes = file.read_at(&mut block, 1 << 20)?;
//!
//! // ... or one of a volume that is not mounted at all.
//! let client = hither_client::Client::connect("/run/hither/4711.sock".as_ref())?;
//! let file = client.open("s3://bucket/data", b"part-0002")?;
//! println!("{bytes} bytes of the first, {} in the second", file.len());
//! # Ok(())
//! # }
//! ```
//!
//! A file keeps the version that it had when it was opened, for its life: a read of what is neither
//! cached nor at the source any more is an error of the kind
//! [`StaleNetworkFileHandle`](std::io::ErrorKind::StaleNetworkFileHandle); who opens the file again
//! gets a newer one. How old a version may be is up to the volume, as with a mount. If the node
//! ends, reads are errors of the kind
//! [`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted), also those that are under way.
//!
//! Only the user whose node it is may connect, and root.
#![forbid(unsafe_code)]

mod connection;
pub mod protocol;
mod serving;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::connection::Connection;
use crate::protocol::NAME_BYTES_MAX;
pub use crate::serving::{SOCKET_ATTRIBUTE, socket_of};

/// Connections without a file that are kept for the next one.
const IDLE_MAX: usize = 8;

/// Where a node with this control socket takes connections of clients.
pub fn read_socket(control_socket: &Path) -> PathBuf {
    control_socket.with_extension("read")
}

/// Opens a file of a mount by the path at which programs see it.
///
/// # Errors
/// As [`socket_of`] and [`Client::open`].
pub fn open(path: &Path) -> io::Result<File> {
    // Links lead where the kernel says.
    let path = path.canonicalize()?;
    let client = Client::connect(&socket_of(&path)?)?;
    client.open("", path.as_os_str().as_bytes())
}

/// Connections to a node, one for each open file. Clones share them.
#[derive(Clone, Debug)]
pub struct Client(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Shared {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Connects to the node with this control socket, as `hither cluster status --json` and
    /// [`socket_of`] name it.
    ///
    /// # Errors
    /// There is none, it is another user's, it speaks another version of the protocol, or it has
    /// too many clients.
    pub fn connect(control_socket: &Path) -> io::Result<Client> {
        let socket = read_socket(control_socket);
        let first = Connection::new(&socket).map_err(|error| named(&error, &socket))?;
        Ok(Client(Arc::new(Shared {
            socket,
            idle: Mutex::new(vec![first]),
        })))
    }

    /// Opens the file at `path` in the volume called `volume`. Where that is empty, `path` is an
    /// absolute one in a mount of the node, without links.
    ///
    /// # Errors
    /// There is no such volume or file, it is none that can be read, or the source does not answer.
    pub fn open(&self, volume: &str, path: &[u8]) -> io::Result<File> {
        if volume.len() + path.len() > NAME_BYTES_MAX as usize {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        let idle = self.0.idle().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                Connection::new(&self.0.socket).map_err(|error| named(&error, &self.0.socket))?
            }
        };
        let bytes = connection.open(volume.as_bytes(), path);
        let file = File {
            bytes: *bytes.as_ref().unwrap_or(&0),
            connection: Mutex::new(Some(connection)),
            client: Arc::clone(&self.0),
        };
        bytes.map(|_| file)
    }
}

fn named(error: &io::Error, socket: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", socket.display()))
}

/// One version of a file. Several threads may read; those that should not wait for each other open
/// it once more.
#[derive(Debug)]
pub struct File {
    bytes: u64,
    /// Always there, until it is dropped.
    connection: Mutex<Option<Connection>>,
    client: Arc<Shared>,
}

impl File {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reads from `offset` on until `data` is full, or the file ends. Returns how many bytes.
    ///
    /// # Errors
    /// See the [crate]; otherwise what the source says. What was read before is lost.
    pub fn read_at(&self, data: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = self.bytes.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let connection = connection.as_mut().expect("it is there");
        let mut read = 0;
        while read < wanted {
            match connection.read(&mut data[read..wanted], offset + read as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => read += bytes,
            }
        }
        Ok(read)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let connection = self
            .connection
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connection.take().filter(|it| !it.is_broken()) {
            let mut idle = self.client.idle();
            if idle.len() < IDLE_MAX {
                idle.push(connection);
            }
        }
    }
}

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
