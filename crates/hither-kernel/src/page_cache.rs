//! The page cache of files, as the agent that steers it needs it: opening a file that some program
//! uses, dropping a range of its pages, asking what is cached. One trait, so that a test can give
//! every answer of the kernel.
//!
//! A file is open only while its pages are handled, so that an unlinked file gives its space back,
//! a file system can be unmounted, and a program that takes a lease finds the file unused. It is
//! first opened as a path (`O_PATH`, which no driver or lease notices), and for reading only if it
//! is the very file that the program uses. Nothing is read from it; neither the opening nor the
//! advice changes its access time.
//!
//! Measured on Linux 6.18, ext4, a VM with 2 cores: `POSIX_FADV_DONTNEED` by another process than
//! the reader drops what is not mapped, dirty or being read in, in 9 us for 2 MiB; `cachestat` of
//! 512 MiB takes 0.3 to 0.8 ms, of 1 MiB at most 5 us. Pages whose readahead is under way are
//! locked and stay (12 MiB stayed behind a reader whose pages were dropped at once). Six passes
//! over 512 MiB in a memory cgroup (v1) of 256 MiB read 3072 MiB from the disk: the kernel's own
//! eviction keeps nothing of a loop (2026-11).

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

pub(crate) mod error;

pub use self::error::PageCacheError;
use crate::file_id::{FileId, Inode};
use crate::file_map::FileMap;
use crate::{page_bytes, seccomp, syscalls};

/// Pages of a range of a file; see cachestat(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// In the page cache.
    pub pages: u64,
    /// Of these, dirty ones.
    pub dirty: u64,
    /// Of these, under writeback.
    pub writeback: u64,
}

/// Why a file cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Nothing has that path: ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP, or ESTALE for a network file.
    NoFile,
    /// The path leads to another file by now.
    Another,
    /// Not permitted (EACCES, EPERM).
    NotPermitted,
    /// A lease (EAGAIN), or a program that is run from it (ETXTBSY), prevents it.
    Busy,
    /// No descriptors (EMFILE, ENFILE) or memory (ENOMEM): try again.
    NoRoom,
    /// Another error number.
    Other(i32),
}

impl OpenError {
    fn from_errno(error: i32) -> OpenError {
        match error {
            libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP | libc::ESTALE => {
                OpenError::NoFile
            }
            libc::EACCES | libc::EPERM => OpenError::NotPermitted,
            libc::EAGAIN | libc::ETXTBSY => OpenError::Busy,
            libc::EMFILE | libc::ENFILE | libc::ENOMEM => OpenError::NoRoom,
            error => OpenError::Other(error),
        }
    }

    /// Whether a later attempt may succeed.
    pub fn may_pass(self) -> bool {
        matches!(self, OpenError::Busy | OpenError::NoRoom)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpenError::NoFile => "no file of that name",
            OpenError::Another => "another file has its name",
            OpenError::NotPermitted => "not permitted",
            OpenError::Busy => "a lease is in the way",
            OpenError::NoRoom => "no descriptors or memory",
            OpenError::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

/// What the agent asks of the kernel.
pub trait PageCache: Send + Sync {
    /// Opens the file of that identity, if it is at the path.
    fn open(&self, path: &Path, id: FileId) -> Result<Box<dyn CachedFile>, OpenError>;

    /// The kernel's readahead for files on a device, in bytes.
    fn readahead_bytes(&self, device: u64) -> u64;
}

/// An open file.
pub trait CachedFile: Send {
    /// Drops a range of its pages. The kernel keeps pages that are mapped, dirty, being read in, or
    /// in a folio that reaches beyond the range, and does not report that.
    fn drop_pages(&self, offset: u64, length: u64) -> Result<(), PageCacheError>;

    /// What of a range is cached. Where the kernel lacks `cachestat`, this maps the file and uses
    /// `mincore`, which does not say what is dirty.
    fn cached(&self, offset: u64, length: u64) -> Result<Cached, PageCacheError>;

    /// Maps a range of it: whole pages.
    fn map(&self, offset: u64, length: u64) -> Result<FileMap, PageCacheError>;

    /// Its size when it was opened, in bytes.
    fn size(&self) -> u64;

    /// Whether the kernel counts what is read of it from storage (`read_bytes` of `/proc/PID/io`).
    fn counts_reads(&self) -> bool {
        true
    }
}

/// The magic numbers of the file systems that read through bios of the reading task, or call
/// `task_io_account_read` (Linux 6.18): ext2 to ext4, xfs, btrfs, f2fs, FAT, exFAT, NTFS3, NFS,
/// CIFS, and overlayfs, which passes reads on. Not FUSE (virtiofs, too), 9p, Ceph and ZFS.
const COUNTING: [i64; 12] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x4d44,
    0x2011_bab0,
    0x7366_746e,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x794c_7630,
    // tmpfs: nothing is read.
    0x0102_1994,
];

/// The page cache of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisPageCache;

/// The same, for kernels before 6.5, without `cachestat`.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithoutCachestat;

/// Opens the file of that identity for reading, if it is the one at the path.
pub fn open(path: &Path, id: FileId) -> Result<File, OpenError> {
    open_if(path, id.inode(), |found| found == id)
}

/// Opens a regular file for reading, if it is the one that is wanted.
pub(crate) fn open_if(
    path: &Path,
    inode: Inode,
    is_wanted: impl FnOnce(FileId) -> bool,
) -> Result<File, OpenError> {
    let opened = |path: &Path, flags: i32| {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        file.map_err(|error| OpenError::from_errno(error.raw_os_error().unwrap_or(0)))
    };
    let place = opened(path, libc::O_PATH)?;
    let status = syscalls::status(place.as_raw_fd()).map_err(OpenError::from_errno)?;
    if !is_wanted(status.id) || status.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(OpenError::Another);
    }
    if has_write_lease(inode) {
        return Err(OpenError::Busy);
    }
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    opened(itself.as_ref(), libc::O_NONBLOCK | libc::O_NOCTTY)
}

/// Whether somebody holds a write lease on a file, which opening it would break: its holder gets a
/// signal that ends a program by default.
fn has_write_lease(file: Inode) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let (major, minor) = (file.device >> 32, file.device & 0xffff_ffff);
    let file = format!("{major:02x}:{minor:02x}:{}", file.number);
    locks.lines().any(|line| {
        // Such as "1: LEASE  ACTIVE    WRITE 4711 fe:00:815 0 EOF".
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next() == Some("LEASE")
            && words.nth(1) == Some("WRITE")
            && words.nth(1) == Some(&file)
    })
}

impl PageCache for ThisPageCache {
    fn open(&self, path: &Path, id: FileId) -> Result<Box<dyn CachedFile>, OpenError> {
        Ok(Box::new(Opened::new(open(path, id)?, true)))
    }

    fn readahead_bytes(&self, device: u64) -> u64 {
        /// VM_READAHEAD_PAGES, where sysfs does not say.
        const DEFAULT_BYTES: u64 = 128 << 10;
        let (major, minor) = (device >> 32, device & 0xffff_ffff);
        let text = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let kib = text.ok().and_then(|text| text.trim().parse::<u64>().ok());
        kib.map_or(DEFAULT_BYTES, |kib| kib.saturating_mul(1 << 10))
    }
}

impl PageCache for WithoutCachestat {
    fn open(&self, path: &Path, id: FileId) -> Result<Box<dyn CachedFile>, OpenError> {
        Ok(Box::new(Opened::new(open(path, id)?, false)))
    }

    fn readahead_bytes(&self, device: u64) -> u64 {
        ThisPageCache.readahead_bytes(device)
    }
}

/// Whether the kernel says by `cachestat` what is cached of an open file.
///
/// # Errors
/// Why it does not. For a file of this process's own, it is the same for all files.
pub fn cachestat(file: &File) -> Result<(), PageCacheError> {
    if !cachestat_is_allowed() {
        return Err(PageCacheError::NoCall);
    }
    let found = syscalls::cachestat(file.as_raw_fd(), 0, 1);
    found.map(drop).map_err(PageCacheError::from_errno)
}

/// How much of this process's own program is in the page cache. All of it, where the kernel does
/// not say.
pub fn program_cached_bytes() -> u64 {
    let Ok(file) = File::open("/proc/self/exe") else {
        return 0;
    };
    let size = file.metadata().map_or(0, |about| about.len());
    let cachestat = cachestat_is_allowed();
    let program = Opened {
        file,
        size,
        cachestat,
    };
    let cached = program.cached(0, size);
    cached.map_or(size, |cached| cached.pages * page_bytes())
}

pub(crate) struct Opened {
    file: File,
    size: u64,
    /// Whether `cachestat` is tried.
    cachestat: bool,
}

/// Whether a filter of system calls lets `cachestat` through; found out once.
fn cachestat_is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| seccomp::allows(syscalls::SYS_CACHESTAT))
}

/// The same of `mincore`.
fn mincore_is_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| seccomp::allows(libc::SYS_mincore))
}

/// The user "nobody", and any without a number in this user namespace.
const OVERFLOW_USER: u32 = 65534;

impl Opened {
    pub(crate) fn new(file: File, cachestat: bool) -> Opened {
        let size = file.metadata().map_or(0, |about| about.len());
        Opened {
            file,
            size,
            cachestat,
        }
    }

    fn by_cachestat(&self, offset: u64, length: u64) -> Result<Cached, PageCacheError> {
        let found = syscalls::cachestat(self.file.as_raw_fd(), offset, length);
        let found = found.map_err(PageCacheError::from_errno)?;
        Ok(Cached {
            pages: found.cached,
            dirty: found.dirty,
            writeback: found.writeback,
        })
    }

    /// By a mapping that is never touched, so that no page is mapped by it or kept from being
    /// dropped.
    fn by_mincore(&self, offset: u64, length: u64) -> Result<Cached, PageCacheError> {
        // For a file that the user neither owns nor may write, the kernel since 5.2 says that all
        // is cached.
        if !self.is_open_to_mincore() || !mincore_is_allowed() {
            return Err(PageCacheError::NotPermitted);
        }
        let page = page_bytes();
        let start = offset / page * page;
        let end = offset.saturating_add(length).min(self.size);
        let bytes = end.saturating_sub(start) as usize;
        if bytes == 0 {
            return Ok(Cached::default());
        }
        let Ok(start) = i64::try_from(start) else {
            return Err(PageCacheError::NotThis);
        };
        let last_error =
            || PageCacheError::from_errno(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        let (fd, nobody) = (self.file.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: a new mapping, where the kernel likes, that is not touched.
        let mapped =
            unsafe { libc::mmap(nobody, bytes, libc::PROT_NONE, libc::MAP_SHARED, fd, start) };
        if mapped == libc::MAP_FAILED {
            return Err(last_error());
        }
        let mut of_page = vec![0_u8; bytes.div_ceil(page as usize)];
        // SAFETY: the range is the mapping's, and a byte each page is written.
        let asked = unsafe { libc::mincore(mapped, bytes, of_page.as_mut_ptr()) };
        let found = match asked {
            0 => Ok(of_page.iter().filter(|&&page| page & 1 != 0).count() as u64),
            _ => Err(last_error()),
        };
        // SAFETY: the mapping was made above, and nothing refers to it.
        unsafe { libc::munmap(mapped, bytes) };
        let pages = found?;
        Ok(Cached {
            pages,
            ..Cached::default()
        })
    }

    fn is_open_to_mincore(&self) -> bool {
        let owner = self.file.metadata().map(|about| about.uid());
        match (crate::private_folder::user(), owner) {
            (Ok(0), Ok(owner)) => owner != OVERFLOW_USER,
            (Ok(user), Ok(owner)) => user == owner,
            _ => false,
        }
    }
}

impl CachedFile for Opened {
    fn drop_pages(&self, offset: u64, length: u64) -> Result<(), PageCacheError> {
        let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
            return Err(PageCacheError::NotThis);
        };
        // A length of 0 would be all that follows.
        if length == 0 {
            return Ok(());
        }
        let advice = libc::POSIX_FADV_DONTNEED;
        // SAFETY: the call takes no memory, and drops no page that is not on the disk as well.
        match unsafe { libc::posix_fadvise(self.file.as_raw_fd(), offset, length, advice) } {
            0 => Ok(()),
            error => Err(PageCacheError::from_errno(error)),
        }
    }

    fn cached(&self, offset: u64, length: u64) -> Result<Cached, PageCacheError> {
        if length == 0 {
            return Ok(Cached::default());
        }
        if self.cachestat && cachestat_is_allowed() {
            match self.by_cachestat(offset, length) {
                Err(PageCacheError::NoCall) => {}
                answer => return answer,
            }
        }
        self.by_mincore(offset, length)
    }

    fn map(&self, offset: u64, length: u64) -> Result<FileMap, PageCacheError> {
        FileMap::new(&self.file, offset, length)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn counts_reads(&self) -> bool {
        let mut system = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the descriptor is open, and the kernel writes one statfs.
        unsafe { libc::fstatfs(self.file.as_raw_fd(), system.as_mut_ptr()) };
        // SAFETY: zeroed memory is a valid statfs, and the kernel filled it or left it.
        let kind = unsafe { system.assume_init() }.f_type;
        COUNTING.contains(&kind)
    }
}

#[cfg(test)]
mod tests {
    use hither_testing::needs::ON_A_DISK;
    use hither_testing::skip::skip_on_this_machine;
    use std::io::{Read, Write};

    use super::*;

    fn id_of(file: &File) -> FileId {
        syscalls::status(file.as_raw_fd()).expect("a status").id
    }

    #[test]
    fn a_file_is_found_by_its_path_and_no_other_is_taken_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, "text").expect("written");
        let id = id_of(&File::open(&path).expect("opened"));
        let file = ThisPageCache.open(&path, id).expect("the file");
        assert_eq!(file.size(), 4);
        let open = |path: &Path| ThisPageCache.open(path, id).err();
        let moved = folder.path().join("b");
        fs::rename(&path, &moved).expect("renamed");
        assert_eq!(open(&path), Some(OpenError::NoFile));
        fs::write(&path, "text").expect("written");
        assert_eq!(open(&path), Some(OpenError::Another));
        assert_eq!(open(&moved), None);
        assert_eq!(open(&path.join("c")), Some(OpenError::NoFile));
        assert_eq!(open(folder.path()), Some(OpenError::Another));
    }

    #[test]
    fn what_is_dropped_is_read_again_and_the_same() {
        // On the disk that the sources are on: a temporary folder may be all page cache (tmpfs).
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let mut file = File::open(&path).expect("opened");
        let mut before = String::new();
        file.read_to_string(&mut before).expect("read");
        let seen = ThisPageCache.open(&path, id_of(&file)).expect("the file");
        if let Err(refused) = seen.cached(0, 1 << 20) {
            skip_on_this_machine(format_args!("cachestat: {refused}"));
            return;
        }
        assert!(seen.cached(0, 1 << 20).expect("it worked").pages > 0);
        seen.drop_pages(0, 2 << 20).expect("dropped");
        assert_eq!(fs::read_to_string(&path).expect("read"), before);
        assert_eq!(seen.drop_pages(u64::MAX, 1), Err(PageCacheError::NotThis));
        assert_eq!(seen.cached(0, 0), Ok(Cached::default()));
    }

    /// Of a file with a hole in its cache: pages that were read, none, and what lies beyond its
    /// end.
    #[test]
    fn without_cachestat_the_same_is_said() {
        let mut file = tempfile::NamedTempFile::new_in(ON_A_DISK).expect("a file");
        file.write_all(&[1; 300_000]).expect("written");
        file.as_file().sync_all().expect("on the disk");
        let id = id_of(file.as_file());
        let open = |cache: &dyn PageCache| cache.open(file.path(), id).expect("the file");
        let (now, before) = (open(&ThisPageCache), open(&WithoutCachestat));
        now.drop_pages(0, 1 << 20).expect("dropped");
        let mut some = File::open(file.path()).expect("opened");
        some.read_exact(&mut [0; 100]).expect("read");
        let ranges = [
            (0, 1 << 20),
            (0, 4096),
            (5000, 10),
            (8192, 100_000),
            (299_999, 1),
            (1 << 20, 4096),
            (0, 0),
        ];
        for (offset, length) in ranges {
            let said = before.cached(offset, length).expect("mincore");
            match now.cached(offset, length) {
                Ok(cached) => assert_eq!(said.pages, cached.pages, "{offset}, {length}"),
                Err(refused) => skip_on_this_machine(format_args!("cachestat: {refused}")),
            }
        }
        let (one, beyond) = (before.cached(0, 4096), before.cached(1 << 20, 4096));
        assert_eq!(
            [one, beyond].map(|cached| cached.map(|cached| cached.pages)),
            [Ok(1), Ok(0)]
        );
    }

    #[test]
    fn dirty_pages_are_seen() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&[1; 1 << 16]).expect("written");
        let seen = ThisPageCache
            .open(file.path(), id_of(file.as_file()))
            .expect("the file");
        match seen.cached(0, 1 << 20) {
            Ok(cached) => assert!(
                cached.pages >= cached.dirty && cached.pages > 0,
                "{cached:?}"
            ),
            Err(refused) => skip_on_this_machine(format_args!("cachestat: {refused}")),
        }
    }

    #[test]
    fn every_error_number_has_a_reason() {
        assert_eq!(
            [
                libc::EMFILE,
                libc::ESTALE,
                libc::EPERM,
                libc::EAGAIN,
                libc::EIO
            ]
            .map(OpenError::from_errno),
            [
                OpenError::NoRoom,
                OpenError::NoFile,
                OpenError::NotPermitted,
                OpenError::Busy,
                OpenError::Other(libc::EIO)
            ]
        );
        assert_eq!(
            [libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM, libc::EIO]
                .map(PageCacheError::from_errno),
            [
                PageCacheError::NoCall,
                PageCacheError::NotThis,
                PageCacheError::NotPermitted,
                PageCacheError::Other(libc::EIO)
            ]
        );
        assert!(OpenError::NoRoom.may_pass() && !OpenError::Another.may_pass());
        assert!(
            PageCacheError::Other(libc::EIO)
                .to_string()
                .contains("Input/output")
        );
        assert!(
            OpenError::Other(libc::EIO)
                .to_string()
                .contains("Input/output")
        );
    }

    #[test]
    fn readahead_is_known_or_the_usual() {
        assert_eq!(ThisPageCache.readahead_bytes(0xffff << 32), 128 << 10);
    }
}
