//! Programs that read files of a node's volumes past the kernel, by `hither-client`: its
//! [protocol] on a Unix socket, a thread and a shared buffer each.
//!
//! The node makes the buffers, so that none can be taken away under it. A read is answered by the
//! thread that has its bytes: the connection's own if they are in memory, else the one on which the
//! last block arrives. To wake the connection's own for that took some 2 of the 43 us of a block of
//! 4 KiB that another node has (2026-11-26, all on one processor).

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hither_client::protocol::{self, Answer, HEAD_BYTES, Hello, Request};
use hither_kernel::shared_buffer::SharedBuffer;
use hither_node::announcements::ChangeListener;
use hither_node::source::{Entry, FileVersion, Kind, SourceError, SourcePath};
use hither_node::volume::{Data, OpenFile};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use crate::served::{Served, ServedVolume};

/// Connections at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 64;

/// The length of a connection's buffer.
const BUFFER_BYTES: u32 = 1 << 20;

/// Files whose source was asked lately; beyond, all are forgotten.
const KNOWN_MAX: usize = 1 << 16;

/// The wait after the system has refused to accept a connection, as when descriptors run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The socket of this process for clients. Dropped, its path is removed.
pub(crate) struct ClientSocket(PathBuf);

impl Drop for ClientSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves clients beside the control socket, for as long as the process lives.
pub(crate) fn serve(served: &Arc<Served>, control_socket: &Path) -> io::Result<ClientSocket> {
    let path = hither_client::read_socket(control_socket);
    // An earlier process of this number may have left it.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    let socket = ClientSocket(path);
    fs::set_permissions(&socket.0, Permissions::from_mode(0o600))?;
    let known = served.volumes.iter().map(|volume| {
        let known = Arc::new(Known::default());
        let listener: Arc<dyn ChangeListener> = Arc::clone(&known) as _;
        volume.volume.listen(Arc::downgrade(&listener));
        known
    });
    let clients = Arc::new(Clients {
        served: Arc::downgrade(served),
        known: known.collect(),
        connections: AtomicUsize::new(0),
    });
    let thread = thread::Builder::new().name("hither-clients".to_owned());
    thread.spawn(move || accept(&clients, &listener))?;
    Ok(socket)
}

/// What all connections share.
struct Clients {
    served: Weak<Served>,
    /// Of each volume.
    known: Vec<Arc<Known>>,
    connections: AtomicUsize,
}

/// What the source of a volume has said lately, and when it was asked.
#[derive(Default)]
struct Known(Mutex<FxHashMap<SourcePath, (Instant, Entry)>>);

impl ChangeListener for Known {
    /// Changes are rare, and below a path there may be many others.
    fn on_change(&self, _: &SourcePath) {
        self.0.lock().clear();
    }
}

fn accept(clients: &Arc<Clients>, listener: &UnixListener) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        let turn = Turn::take(clients);
        let thread = thread::Builder::new().name("hither-client".to_owned());
        if let Some(turn) = turn {
            // Without a thread, the client sees the end of the connection.
            let _ = thread.spawn(move || {
                // How a connection ends is its client's matter.
                let _ = Connection::serve(&turn.0, stream);
            });
        }
    }
}

/// One of the connections that there may be.
struct Turn(Arc<Clients>);

impl Turn {
    fn take(clients: &Arc<Clients>) -> Option<Turn> {
        let before = clients.connections.fetch_add(1, Ordering::Relaxed);
        let turn = Turn(Arc::clone(clients));
        (before < CONNECTIONS_MAX).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a request fails: an error number, and a text.
struct Refusal(Errno, String);

impl From<SourceError> for Refusal {
    fn from(error: SourceError) -> Refusal {
        let number = hither_mount::error_number(&error);
        Refusal(Errno::from_raw_os_error(number), error.to_string())
    }
}

struct Connection<'a> {
    clients: &'a Clients,
    client: Arc<Mutex<Client>>,
    /// The process at the other end, which the trace of reads names.
    process: u32,
    file: Option<(Arc<OpenFile>, Arc<Known>)>,
}

impl Connection<'_> {
    /// Answers requests until the client goes, or sends what is none.
    fn serve(clients: &Clients, mut stream: UnixStream) -> io::Result<()> {
        let (buffer, fd) = SharedBuffer::create(BUFFER_BYTES as usize)?;
        greet(&stream, fd.as_fd())?;
        drop(fd);
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        let client = Client {
            stream: stream.try_clone()?,
            buffer,
            is_due: false,
        };
        let mut connection = Connection {
            clients,
            client: Arc::new(Mutex::new(client)),
            process: peer.pid.as_raw_nonzero().get() as u32,
            file: None,
        };
        let mut head = [0; HEAD_BYTES];
        let mut name = Vec::new();
        loop {
            stream.read_exact(&mut head)?;
            let Some(request) = Request::decode(head) else {
                return Ok(());
            };
            if !connection.client.lock().begin() {
                return Ok(());
            }
            match request {
                Request::Open {
                    volume_bytes,
                    path_bytes,
                } => {
                    name.resize((volume_bytes + path_bytes) as usize, 0);
                    stream.read_exact(&mut name)?;
                    let (volume, path) = name.split_at(volume_bytes as usize);
                    let answer = connection.open(volume, path);
                    connection.client.lock().answer(answer);
                }
                Request::Read { offset, bytes } => connection.read(offset, bytes),
            }
        }
    }

    fn open(&mut self, volume: &[u8], path: &[u8]) -> Result<u64, Refusal> {
        self.file = None;
        let no_entry = |what: &str| Refusal(Errno::NOENT, what.to_owned());
        let served = self.clients.served.upgrade();
        let served = served.ok_or_else(|| no_entry("the node ends"))?;
        let (number, path) = if volume.is_empty() {
            let found = served.mounted_at(Path::new(OsStr::from_bytes(path)));
            found.ok_or_else(|| no_entry("no mount of this node has this path"))?
        } else {
            let mut names = served.volumes.iter().map(|it| it.volume.name().as_bytes());
            let number = names.position(|name| name == volume);
            let number = number.ok_or_else(|| no_entry("no volume has this name"))?;
            let path = SourcePath::new(path);
            let path = path.ok_or_else(|| no_entry("this is no path within a volume"))?;
            (number, path)
        };
        let (volume, known) = (&served.volumes[number], &self.clients.known[number]);
        let (file, settled) = look_up(volume, known, &path)?;
        let bytes = file.bytes;
        self.file = Some((volume.volume.open(file, settled), Arc::clone(known)));
        Ok(bytes)
    }

    fn read(&self, offset: u64, bytes: u32) {
        let Some((file, known)) = &self.file else {
            let refusal = Refusal(Errno::BADF, "no file is open".to_owned());
            return self.client.lock().answer(Err(refusal));
        };
        let bytes = bytes.min(BUFFER_BYTES);
        file.note_reader(offset, bytes.into(), self.process);
        let due = DueAnswer(Some((Arc::clone(&self.client), Arc::clone(known))));
        file.read(offset, bytes as usize, move |result| due.give(result));
    }
}

/// The answer to a read, which is given also if nobody ever has the bytes.
struct DueAnswer(Option<(Arc<Mutex<Client>>, Arc<Known>)>);

impl DueAnswer {
    fn give(mut self, result: Result<Data, SourceError>) {
        let Some((client, known)) = self.0.take() else {
            return;
        };
        let mut client = client.lock();
        let answer = match result {
            Ok(data) => Ok(client.fill(&data)),
            // Of this version there is no more to be had, even if the file is gone. Who opens it
            // again gets the new one.
            Err(SourceError::NotFound(path) | SourceError::Changed(path)) => {
                known.0.lock().remove(&path);
                Err(SourceError::Changed(path).into())
            }
            Err(error) => Err(error.into()),
        };
        client.answer(answer);
    }
}

impl Drop for DueAnswer {
    fn drop(&mut self) {
        if let Some((client, _)) = self.0.take() {
            let refusal = Refusal(Errno::IO, "the node ends".to_owned());
            client.lock().answer(Err(refusal));
        }
    }
}

/// The way to a client.
struct Client {
    stream: UnixStream,
    buffer: SharedBuffer,
    /// It has asked, and has no answer yet.
    is_due: bool,
}

impl Client {
    /// Copies what was read into the buffer. Returns how many bytes that are.
    fn fill(&mut self, data: &Data) -> u64 {
        let mut at = 0;
        for piece in data.pieces() {
            self.buffer.write(at, piece);
            at += piece.len();
        }
        at as u64
    }

    /// Takes a request on, unless one is not answered yet: an open must not let reads pile up.
    fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.is_due, true)
    }

    /// Answers the request. Never waits: there is room for the answer to one request, and a client
    /// that sends more of them without taking the answers is cut off.
    fn answer(&mut self, answer: Result<u64, Refusal>) {
        self.is_due = false;
        let (error, text, value) = match answer {
            Ok(value) => (0, String::new(), value),
            Err(Refusal(number, text)) => (number.raw_os_error() as u32, text, 0),
        };
        let text = &text.as_bytes()[..text.len().min(protocol::TEXT_BYTES_MAX as usize)];
        let head = Answer {
            error,
            text_bytes: text.len() as u32,
            value,
        };
        let answer = [&head.encode(), text].concat();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if send(&self.stream, &answer, flags) != Ok(answer.len()) {
            // The connection's thread sees the end.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The version of a file that may be opened now, and whether it is settled.
fn look_up(
    volume: &ServedVolume,
    known: &Known,
    path: &SourcePath,
) -> Result<(FileVersion, bool), Refusal> {
    let ttl = volume.consistency.ttl();
    let before = known.0.lock().get(path).cloned();
    let entry = match before.filter(|(asked, _)| asked.elapsed() < ttl) {
        Some((_, entry)) => entry,
        None => {
            let asked = Instant::now();
            let runtime = volume.volume.node().runtime();
            let entry = runtime.block_on(volume.volume.source().stat(path));
            volume.volume.note_answer(&entry);
            let entry = volume.consistency.settled(entry?);
            // An unsettled file may settle at any time.
            if !matches!(entry.kind, Kind::File { settled: false, .. }) {
                let mut known = known.0.lock();
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                known.insert(path.clone(), (asked, entry.clone()));
            }
            entry
        }
    };
    let refusal = |number, what: &str| Err(Refusal(number, format!("{path}: {what}")));
    if let Some((file, settled)) = entry.file(path) {
        return if volume.volume.can_number(&file) {
            Ok((file, settled))
        } else {
            refusal(Errno::FBIG, "too many blocks")
        };
    }
    match entry.kind {
        Kind::Directory => refusal(Errno::ISDIR, "a directory"),
        Kind::Link(_) => refusal(Errno::LOOP, "a symbolic link"),
        _ => refusal(Errno::INVAL, "no regular file"),
    }
}

/// Sends the hello, and the buffer with it.
fn greet(stream: &UnixStream, buffer: BorrowedFd<'_>) -> io::Result<()> {
    let hello = Hello {
        buffer_bytes: BUFFER_BYTES,
    };
    let fds = [buffer];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let hello = hello.encode();
    let sent = sendmsg(
        stream,
        &[IoSlice::new(&hello)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    // So few bytes find room in a new socket.
    if sent == hello.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}
