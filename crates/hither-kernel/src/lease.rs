//! Leases on files (fcntl(2), `F_SETLEASE`). The holder of a read lease is notified *before*
//! anybody opens the file for writing or truncates it, and they wait until the holder releases the
//! lease.
//!
//! The kernel grants a lease only while nobody has the file open for writing, which a writable
//! mapping counts as. Renaming and unlinking leave the file as it is and break no lease. The kernel
//! waits for the holder for `fs.lease-break-time` (45 s) and then goes on without it. So what a
//! lease guards is valid only that long after the last check of the lease ([`break_time`],
//! `Lease::is_broken`).
//!
//! The signal of a break goes to one thread, which reads it from a signalfd. It is a hint: two
//! breaks may arrive as one when too many signals are queued (the kernel then sends SIGIO, without
//! the descriptor). `F_SETSIG` is set again after the lease was taken, which makes the process the
//! owner, as `F_SETOWN` is.
//!
//! A lease belongs to the open file description: it goes when the last descriptor of that is
//! closed, in whichever process (`reopen`). hither-session holds those of a run.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use hither_ids::Tid;

use crate::syscalls;

/// The file systems whose files change only through opening for writing, or truncation, of the
/// inode that a lease is held on. Not overlayfs: there the lease is on another inode than the one
/// that is written.
const SUPPORTED: [(i64, &str); 4] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
];

/// `f_flag` of statvfs(3): reads change access times only where they are older than the last
/// change.
const ST_RELATIME: u64 = 4096;

/// Why there is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseError {
    /// Some process has it open for writing (EAGAIN), or writes at this moment.
    Written,
    /// It belongs to another user (EACCES).
    NotOurs,
    /// Not supported on that file system; its number in statfs(2).
    FileSystem(i64),
    /// The file system records the access time of each read.
    AccessTimes,
    /// This process runs as root, and may serve programs of users who may not read the file.
    Private,
    /// No regular file, or removed.
    NoFile,
    /// Too many, or no descriptors or memory.
    NoRoom,
    /// The process that holds leases was ended, and the next one is not there yet.
    NoHolder,
    /// Another error number.
    Other(i32),
}

impl LeaseError {
    /// Whether a later attempt may succeed.
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            LeaseError::Written | LeaseError::NoRoom | LeaseError::NoHolder
        )
    }

    fn last() -> LeaseError {
        LeaseError::from_errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The reason that an error number of open(2) or fcntl(2) stands for.
    pub fn from_errno(error: i32) -> LeaseError {
        match error {
            libc::EAGAIN => LeaseError::Written,
            libc::EACCES | libc::EPERM => LeaseError::NotOurs,
            libc::ENOMEM | libc::ENOLCK | libc::EMFILE | libc::ENFILE => LeaseError::NoRoom,
            error => LeaseError::Other(error),
        }
    }

    /// An error number that stands for the reason.
    pub fn errno(self) -> i32 {
        match self {
            LeaseError::Written => libc::EAGAIN,
            LeaseError::NotOurs => libc::EACCES,
            LeaseError::NoRoom => libc::EMFILE,
            LeaseError::Other(error) => error,
            LeaseError::FileSystem(_)
            | LeaseError::AccessTimes
            | LeaseError::Private
            | LeaseError::NoFile
            | LeaseError::NoHolder => libc::EINVAL,
        }
    }
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeaseError::Written => "open for writing",
            LeaseError::NotOurs => "another user's, on which only root may hold a lease",
            LeaseError::FileSystem(0x794c_7630) => {
                "on overlayfs, whose files change without a lease on them being broken"
            }
            LeaseError::FileSystem(kind) => {
                return write!(
                    f,
                    "on a file system (0x{kind:x}) that is not ext4, xfs, btrfs or tmpfs"
                );
            }
            LeaseError::AccessTimes => {
                "mounted with strictatime: each read is to leave a time behind"
            }
            LeaseError::Private => {
                "not for everybody to read, while programs of root's may become others'"
            }
            LeaseError::NoFile => "no regular file, or removed",
            LeaseError::NoRoom => "too many",
            LeaseError::NoHolder => "the process that holds leases was stopped or killed",
            LeaseError::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

/// A file that a read lease is held on. Closing it releases the lease.
#[derive(Debug)]
pub struct Lease {
    file: File,
}

/// The state of a file. While a lease is held on it, its size cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedFile {
    /// Its size in bytes.
    pub bytes: u64,
    /// When its inode last changed, in nanoseconds since the epoch.
    pub changed_ns: i128,
    /// It has a name.
    pub linked: bool,
}

impl Lease {
    /// Takes a lease on an open file that [`check`] has passed; its breaks go to `listener`.
    pub fn take(file: File, listener: &BreakListener) -> Result<Lease, LeaseError> {
        let fd = file.as_raw_fd();
        let set_signal = || fcntl(fd, F_SETSIG, signal() as usize);
        set_signal()?;
        fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK as usize)?;
        let lease = Lease { file };
        let owner = Owner {
            kind: F_OWNER_TID,
            pid: listener.tid.raw(),
        };
        fcntl(fd, F_SETOWN_EX, (&raw const owner) as usize)?;
        set_signal()?;
        // A break before this went to a thread that does not listen.
        if lease.is_broken() {
            Err(LeaseError::Written)
        } else {
            Ok(lease)
        }
    }

    /// Whether a writer waits for the lease to be released, or has stopped waiting.
    pub fn is_broken(&self) -> bool {
        fcntl(self.fd(), libc::F_GETLEASE, 0) != Ok(libc::F_RDLCK)
    }

    /// Releases the lease: writers that wait go on.
    pub fn release(&self) {
        // An error means that there is no lease to release.
        let _ = fcntl(self.fd(), libc::F_SETLEASE, libc::F_UNLCK as usize);
    }

    /// The descriptor, by which breaks identify the lease.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl LeasedFile {
    /// The state of a file now.
    pub fn of(file: &File) -> io::Result<LeasedFile> {
        use std::os::unix::fs::MetadataExt;
        let about = file.metadata()?;
        Ok(LeasedFile {
            bytes: about.len(),
            changed_ns: i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec()),
            linked: about.nlink() > 0,
        })
    }
}

/// A description of its own of a file that is open: a lease on it does not depend on the one that
/// is given. Does not allocate.
pub fn reopen(file: BorrowedFd<'_>) -> Result<File, LeaseError> {
    let mut path = [0_u8; 32];
    // It fits, with the NUL that is left.
    let _ = write!(&mut path[..], "/proc/self/fd/{}", file.as_raw_fd());
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| LeaseError::NoFile)?;
    // Another holder's lease must not make this wait.
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let fd = syscalls::open(path, flags).map_err(LeaseError::from_errno)?;
    // SAFETY: the call has just made the descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Whether reads of the file may be served from elsewhere while a lease is held on it.
pub fn check(file: &File) -> Result<(), LeaseError> {
    use std::os::unix::fs::MetadataExt;
    let about = file.metadata().map_err(|_| LeaseError::NoFile)?;
    if !about.is_file() || about.nlink() == 0 {
        return Err(LeaseError::NoFile);
    }
    let mut system = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the buffer is one statfs long.
    if unsafe { libc::fstatfs(file.as_raw_fd(), system.as_mut_ptr()) } != 0 {
        return Err(LeaseError::last());
    }
    // SAFETY: zeroed memory is a valid statfs, and the kernel filled it.
    let system = unsafe { system.assume_init() };
    let kind = system.f_type;
    if SUPPORTED.iter().all(|&(sound, _)| sound != kind) {
        return Err(LeaseError::FileSystem(kind));
    }
    let mut mount = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the buffer is one statvfs long.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), mount.as_mut_ptr()) } != 0 {
        return Err(LeaseError::last());
    }
    // SAFETY: zeroed memory is a valid statvfs, and the call filled it.
    let mount = unsafe { mount.assume_init() };
    if mount.f_flag & (libc::ST_NOATIME | ST_RELATIME) == 0 {
        return Err(LeaseError::AccessTimes);
    }
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 && about.mode() & 0o004 == 0 {
        return Err(LeaseError::Private);
    }
    Ok(())
}

/// linux/fcntl.h, which the libc crate has in part.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

#[repr(C)]
struct Owner {
    kind: i32,
    pid: i32,
}

fn fcntl(fd: i32, command: i32, argument: usize) -> Result<i32, LeaseError> {
    // SAFETY: the commands used here take a number, or F_SETOWN_EX a structure that outlives the
    // call.
    match unsafe { libc::fcntl(fd, command, argument) } {
        -1 => Err(LeaseError::last()),
        result => Ok(result),
    }
}

/// The signal of a break: a real-time one, since those are queued and carry the descriptor.
fn signal() -> i32 {
    libc::SIGRTMIN() + 7
}

/// A notification of a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Of the lease on this descriptor.
    Of(i32),
    /// Of some lease: all have to be checked.
    Some,
}

/// The thread that is notified of breaks, and the descriptor that it reads them from; only that
/// thread may.
#[derive(Debug)]
pub struct BreakListener {
    tid: Tid,
    signals: OwnedFd,
}

impl BreakListener {
    /// Makes the calling thread the listener. From now on such signals do no harm to the process,
    /// wherever they go.
    pub fn here() -> io::Result<BreakListener> {
        extern "C" fn nothing(_: i32) {}
        for signal in [signal(), libc::SIGIO] {
            let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: zeroed memory is a valid sigaction: no flags, an empty mask, the default
            // action.
            let action = unsafe { action.assume_init_mut() };
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: the handler does nothing, which is safe at any point.
            if unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let waited = waited_for();
        // SAFETY: the mask is initialised, and nothing is asked for in return.
        let result = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const waited, std::ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(result));
        }
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the mask is initialised.
        let signals = unsafe { libc::signalfd(-1, &raw const waited, flags) };
        if signals < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(BreakListener {
            tid: syscalls::tid(),
            // SAFETY: the call has just made the descriptor, and nobody else has it.
            signals: unsafe { OwnedFd::from_raw_fd(signals) },
        })
    }

    /// The next break that was reported.
    pub fn reported(&self) -> Option<Break> {
        let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is one structure long.
        let read = unsafe { libc::read(self.signals.as_raw_fd(), info.as_mut_ptr().cast(), bytes) };
        if read != bytes as isize {
            return None;
        }
        // SAFETY: the kernel filled it; all fields are integers.
        let info = unsafe { info.assume_init() };
        // Not from the kernel: a signal that a process sent with kill().
        let is_of = info.ssi_signo == signal() as u32 && info.ssi_code > 0;
        Some(if is_of {
            Break::Of(info.ssi_fd)
        } else {
            Break::Some
        })
    }
}

impl AsFd for BreakListener {
    /// It can be read when a break was reported.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

fn waited_for() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is zeroed, which is a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in [signal(), libc::SIGIO] {
        // SAFETY: the set was emptied, and the signals exist.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: it was initialised above.
    unsafe { set.assume_init() }
}

/// How long a writer waits for a lease to be released before the kernel takes it away.
pub fn break_time() -> Option<Duration> {
    BreakTime::open().ok()?.read()
}

/// The setting behind [`break_time`], to be read again and again without allocating.
#[derive(Debug)]
pub struct BreakTime(File);

impl BreakTime {
    /// Opens it.
    ///
    /// # Errors
    /// Without /proc.
    pub fn open() -> io::Result<BreakTime> {
        File::open("/proc/sys/fs/lease-break-time").map(BreakTime)
    }

    /// What it says now; none if it cannot be read.
    pub fn read(&self) -> Option<Duration> {
        let mut text = [0; 32];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        Some(Duration::from_secs(text.trim().parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use hither_testing::needs::ON_A_DISK;
    use hither_testing::skip::skip_on_this_machine;
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Waits for a break, also where other tests' signals come first.
    fn broken(listener: &BreakListener) -> Option<Break> {
        let mut waits = (0..6000).map(|_| {
            thread::sleep(Duration::from_millis(10));
            listener.reported()
        });
        waits.find_map(|broken| broken)
    }

    /// Leases are for disks: where tests write may be anything.
    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir_in(ON_A_DISK).expect("a folder")
    }

    #[test]
    fn a_writer_waits_until_it_is_let_go_of() {
        let folder = scratch();
        let path = folder.path().join("file");
        fs::write(&path, "one").expect("written");
        let listener = BreakListener::here().expect("a listener");
        let open = || File::open(&path).expect("opened");
        // A program that another test starts has what we write open until it is another program.
        let take = || loop {
            let file = open();
            match check(&file).and_then(|()| Lease::take(file, &listener)) {
                Err(LeaseError::Written) => thread::yield_now(),
                taken => break taken,
            }
        };
        let lease = match take() {
            Err(why @ (LeaseError::FileSystem(_) | LeaseError::AccessTimes)) => {
                return skip_on_this_machine(format_args!("the sources lie {why}"));
            }
            lease => lease.expect("a lease"),
        };
        let seen = LeasedFile::of(lease.file()).expect("a state");
        assert!((seen.bytes, seen.linked) == (3, true) && !lease.is_broken());
        assert_eq!(listener.reported(), None);
        let (opened, hears) = mpsc::channel();
        let writer = path.clone();
        let writing = thread::spawn(move || {
            fs::write(&writer, "two").expect("written");
            opened.send(()).expect("heard");
        });
        assert_eq!(broken(&listener), Some(Break::Of(lease.fd())));
        assert!(lease.is_broken());
        assert_eq!(fs::read(&path).expect("read"), b"one", "it waits");
        assert!(hears.try_recv().is_err());
        lease.release();
        writing.join().expect("it wrote");
        assert_eq!(fs::read(&path).expect("read"), b"two");

        // A second lease is told of as well, and none is had while somebody may write.
        let again = take().expect("a lease");
        assert!(!again.is_broken());
        let refused = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .expect_err("it would wait");
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(broken(&listener), Some(Break::Of(again.fd())));
        drop(again);
        let _writing = OpenOptions::new().write(true).open(&path).expect("opened");
        assert_eq!(
            Lease::take(open(), &listener).expect_err("it is open for writing"),
            LeaseError::Written
        );
    }

    #[test]
    fn what_is_not_sound_is_refused_with_the_reason() {
        let proc = File::open("/proc/self/status").expect("opened");
        let refused = check(&proc).expect_err("refused");
        assert!(matches!(refused, LeaseError::FileSystem(_)), "{refused:?}");
        assert!(
            LeaseError::FileSystem(0x794c_7630)
                .to_string()
                .contains("overlayfs")
        );
        let folder = File::open("/").expect("opened");
        assert_eq!(check(&folder).expect_err("refused"), LeaseError::NoFile);
        for why in [LeaseError::Written, LeaseError::NotOurs, LeaseError::NoRoom] {
            assert_eq!(LeaseError::from_errno(why.errno()), why);
        }
        assert!(LeaseError::Written.may_pass() && !LeaseError::NotOurs.may_pass());
    }
}
