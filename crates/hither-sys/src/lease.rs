//! Leases on files (fcntl(2), `F_SETLEASE`). The holder of a read lease is notified *before*
//! anybody opens the file for writing or truncates it, and they wait until the holder releases the
//! lease.
//!
//! The kernel grants a lease only while nobody has the file open for writing, which a writable
//! mapping counts as. Renaming and unlinking leave the file as it is and break no lease. The kernel
//! waits for the holder for `fs.lease-break-time` (45 s) and then goes on without it. So what a
//! lease guards is valid only that long after the last check of the lease ([`break_time`],
//! [`Lease::is_broken`]).
//!
//! The signal of a break goes to one thread, which waits for it. It is a hint: two breaks may
//! arrive as one when too many signals are queued (the kernel then sends SIGIO, without the
//! descriptor). `F_SETSIG` is set again after the lease was taken, which makes the process the
//! owner, as `F_SETOWN` is.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

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
    /// Another error number.
    Other(i32),
}

impl LeaseError {
    /// Whether a later attempt may succeed.
    pub fn may_pass(self) -> bool {
        matches!(self, LeaseError::Written | LeaseError::NoRoom)
    }

    fn last() -> LeaseError {
        match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EAGAIN => LeaseError::Written,
            libc::EACCES | libc::EPERM => LeaseError::NotOurs,
            libc::ENOMEM | libc::ENOLCK | libc::EMFILE => LeaseError::NoRoom,
            error => LeaseError::Other(error),
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
            LeaseError::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

/// A file that a read lease is held on. Closing it releases the lease.
#[derive(Debug)]
pub struct Lease {
    file: File,
}

/// The state of a leased file. Its size cannot change while the lease is held.
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
    /// Takes a lease on an open file; its breaks go to `listener`.
    pub fn take(file: File, listener: &BreakListener) -> Result<Lease, LeaseError> {
        check(&file)?;
        let fd = file.as_raw_fd();
        let set_signal = || fcntl(fd, F_SETSIG, signal() as usize);
        set_signal()?;
        fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK as usize)?;
        let lease = Lease { file };
        let owner = Owner {
            kind: F_OWNER_TID,
            pid: listener.tid as i32,
        };
        fcntl(fd, F_SETOWN_EX, (&raw const owner) as usize)?;
        set_signal()?;
        // A break before this went to a thread that does not listen.
        match lease.is_broken() {
            true => Err(LeaseError::Written),
            false => Ok(lease),
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

    /// The state of the file now.
    pub fn look(&self) -> io::Result<LeasedFile> {
        use std::os::unix::fs::MetadataExt;
        let about = self.file.metadata()?;
        Ok(LeasedFile {
            bytes: about.len(),
            changed_ns: i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec()),
            linked: about.nlink() > 0,
        })
    }
}

/// Whether reads of the file may be served from elsewhere while a lease is held on it.
fn check(file: &File) -> Result<(), LeaseError> {
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

/// The thread that is notified of breaks; only it may wait for them.
#[derive(Clone, Copy, Debug)]
pub struct BreakListener {
    tid: u32,
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
        Ok(BreakListener {
            tid: syscalls::tid(),
        })
    }

    /// Its number.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Wakes it from waiting, as a break does.
    pub fn wake(&self) {
        // SAFETY: the signal has a handler that does nothing, and it is this process's thread or
        // nobody's.
        unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                std::process::id() as i32,
                self.tid as i32,
                signal(),
            )
        };
    }

    /// Waits for a break. None if none came in time, or another signal came first.
    pub fn wait(&self, at_most: Duration) -> Option<Break> {
        let waited = waited_for();
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let time = libc::timespec {
            tv_sec: at_most.as_secs() as i64,
            tv_nsec: i64::from(at_most.subsec_nanos()),
        };
        // SAFETY: the mask and the time are initialised, and the kernel writes one siginfo.
        let got =
            unsafe { libc::sigtimedwait(&raw const waited, info.as_mut_ptr(), &raw const time) };
        if got != signal() {
            return (got == libc::SIGIO).then_some(Break::Some);
        }
        // SAFETY: the kernel filled it; all fields are integers.
        let info = unsafe { info.assume_init() };
        // linux: of a signal that tells of a descriptor, si_band (a long) and si_fd follow the
        // three first words.
        let words = (&raw const info).cast::<i32>();
        // SAFETY: a siginfo has 128 bytes, of which these are the seventh word's.
        let fd = unsafe { words.wrapping_add(6).read() };
        Some(match info.si_code > 0 {
            true => Break::Of(fd),
            // A signal that a process sent with kill().
            false => Break::Some,
        })
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
    let text = fs::read_to_string("/proc/sys/fs/lease-break-time").ok()?;
    Some(Duration::from_secs(text.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use crate::skip::skip_on_this_machine;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Waits for a break, also where other tests' signals come first.
    fn broken(listener: &BreakListener) -> Option<Break> {
        let mut waits = (0..60).map(|_| listener.wait(Duration::from_secs(1)));
        waits.find_map(|broken| broken)
    }

    /// Leases are for disks: where tests write may be anything.
    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder")
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
            match Lease::take(open(), &listener) {
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
        let seen = lease.look().expect("a look");
        assert!((seen.bytes, seen.linked) == (3, true) && !lease.is_broken());
        assert_eq!(listener.wait(Duration::ZERO), None);
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
        let listener = BreakListener::here().expect("a listener");
        let proc = File::open("/proc/self/status").expect("opened");
        let refused = Lease::take(proc, &listener).expect_err("refused");
        assert!(matches!(refused, LeaseError::FileSystem(_)), "{refused:?}");
        assert!(
            LeaseError::FileSystem(0x794c_7630)
                .to_string()
                .contains("overlayfs")
        );
        let folder = File::open("/").expect("opened");
        assert_eq!(
            Lease::take(folder, &listener).expect_err("refused"),
            LeaseError::NoFile
        );
        assert!(LeaseError::Written.may_pass() && !LeaseError::NotOurs.may_pass());
    }
}
