//! Files that a program has mapped, and how their pages are dropped.
//!
//! `POSIX_FADV_DONTNEED` leaves mapped pages alone. `process_madvise(MADV_PAGEOUT)` unmaps and
//! drops them in one call, whether they were touched lately or not (Linux 5.10 and later; it needs
//! CAP_SYS_NICE, and a file that this user owns or may write). The kernel leaves alone what another
//! process has mapped as well, and what is dirty. The program reads the bytes again when it touches
//! them: it cannot tell.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_ids::{Address, Pid};

use crate::file_id::{FileId, Inode};
use crate::file_map::FileMap;
use crate::page_bytes;
use crate::page_cache::PageCacheError;
use crate::{seccomp, syscalls};

/// A part of a file in a program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses.
    pub addresses: Range<Address>,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The file.
    pub file: Inode,
    /// The program can only read it, and it shares the page cache's pages (`r--s`).
    pub is_read_only: bool,
    /// The program may write to it.
    pub is_writable: bool,
    /// The file's path as the program's mount namespace has it.
    pub path: PathBuf,
}

/// The files that a process has mapped; none where it may not be asked.
pub fn mappings(pid: Pid) -> Vec<Mapping> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(mapping).collect()
}

/// The mapping of a line of /proc/PID/maps, if it is one of a file (proc_pid_maps(5)).
fn mapping(line: &str) -> Option<Mapping> {
    let file = Inode::of_mapped_file(line)?;
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        addresses: Address(number(start)?)..Address(number(end)?),
        offset: number(words.next()?)?,
        file,
        is_read_only: permissions == "r--s",
        is_writable: permissions.contains('w'),
        path: PathBuf::from(&line[line.find('/')?..]),
    })
}

/// Has the kernel keep in memory what this process uses of its program from now on, as far as this
/// user may lock memory, and read no more of it than is used.
///
/// Where files fill a memory cgroup, the kernel takes the pages of the program's text in turn with
/// theirs, and then reads up to a readahead's length (8 MiB on some disks) around each that is
/// needed again. Beside DuckDB in 320 MiB that were 100 MiB in ten seconds (2026-11).
pub fn keep_program_pages() {
    if !seccomp::allows(libc::SYS_mlock2) {
        return;
    }
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let mappings = mappings(Pid::own()).into_iter();
    // What is written to is no page of the file.
    for mapping in mappings.filter(|mapping| mapping.path == program && !mapping.is_writable) {
        let start = mapping.addresses.start.0 as *mut libc::c_void;
        let bytes = (mapping.addresses.end - mapping.addresses.start) as usize;
        // SAFETY: the range is a mapping of this program; the advice changes only how it is read
        // ahead.
        unsafe { libc::madvise(start, bytes, libc::MADV_RANDOM) };
        // SAFETY: locking changes nothing that is in memory. It is refused beyond the limit.
        unsafe { libc::mlock2(start, bytes, libc::MLOCK_ONFAULT) };
    }
}

/// The identity and size of the file at a path, if it is that one. Its birth time is what a mapping
/// does not say.
pub fn identify(path: &Path, file: Inode) -> Option<(FileId, u64)> {
    let mut options = fs::OpenOptions::new();
    // The file does not notice.
    options.read(true).custom_flags(libc::O_PATH);
    let place = options.open(path).ok()?;
    let status = syscalls::status(place.as_raw_fd()).ok()?;
    let is_file = place.metadata().is_ok_and(|about| about.is_file());
    (status.id.inode() == file && is_file).then_some((status.id, status.size))
}

/// The inode of a file where it is mapped, in /proc/PID/maps and in perf's records, by
/// its path and those that `stat` gives. btrfs has `stat` give another device for each subvolume.
pub fn mapped_inode(path: &Path, file: Inode) -> Option<Inode> {
    identify(path, file)?;
    // Another file may have come to be there, such as a pipe, which would block.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    mapped_inode_of(&opened.ok()?)
}

/// The same of an open file.
pub(crate) fn mapped_inode_of(file: &File) -> Option<Inode> {
    // Nothing of it is touched, so that the file may be empty.
    let map = FileMap::new(file, 0, page_bytes()).ok()?;
    let address = map.address(0);
    let all = mappings(Pid::own());
    let own = all.iter().find(|of| of.addresses.contains(&address));
    own.map(|of| of.file)
}

/// A process whose pages can be dropped.
#[derive(Debug)]
pub struct MappedProcess(OwnedFd);

impl MappedProcess {
    /// The process of that id, if this user may have its pages dropped.
    pub fn open(pid: Pid) -> Result<MappedProcess, PageCacheError> {
        if !calls_are_allowed() {
            return Err(PageCacheError::NotPermitted);
        }
        // SAFETY: pidfd_open takes no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and nobody else knows of it.
        let process = MappedProcess(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        process.advise(&[], libc::MADV_PAGEOUT)?;
        Ok(process)
    }

    /// Drops what is mapped at these addresses.
    pub fn drop_pages(&self, addresses: Range<Address>) -> Result<(), PageCacheError> {
        let range = libc::iovec {
            iov_base: addresses.start.0 as *mut libc::c_void,
            iov_len: (addresses.end - addresses.start) as usize,
        };
        self.advise(&[range], libc::MADV_PAGEOUT)
    }

    /// Gives an advice for parts of its memory, `MADV_PAGEOUT` or `MADV_COLD`.
    pub(crate) fn advise(
        &self,
        ranges: &[libc::iovec],
        advice: libc::c_int,
    ) -> Result<(), PageCacheError> {
        assert!(matches!(advice, libc::MADV_PAGEOUT | libc::MADV_COLD));
        // SAFETY: the kernel reads the vector, and neither advice changes a byte of the process's
        // memory: clean pages are read again from their file.
        let advised = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.0.as_raw_fd(),
                ranges.as_ptr(),
                ranges.len(),
                advice,
                0,
            )
        };
        match advised {
            0.. => Ok(()),
            _ => Err(last_error()),
        }
    }
}

/// Whether a filter of system calls lets through what it takes to watch a process and to drop its
/// pages; found out once.
fn calls_are_allowed() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    let calls = [
        libc::SYS_pidfd_open,
        libc::SYS_process_madvise,
        libc::SYS_perf_event_open,
    ];
    *ALLOWED.get_or_init(|| calls.into_iter().all(seccomp::allows))
}

fn last_error() -> PageCacheError {
    match io::Error::last_os_error().raw_os_error() {
        // The process has ended.
        Some(libc::ESRCH) => PageCacheError::NotThis,
        error => PageCacheError::from_errno(error.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use hither_ids::Tid;

    use super::*;
    use crate::page_cache::{PageCache, ThisPageCache};
    use crate::page_faults::{PageFaults, PerfRings};
    use hither_testing::needs::ON_A_DISK;
    use hither_testing::skip::skip_on_this_machine;

    #[test]
    fn lines_of_maps_are_read() {
        let shared = "7f00-7f0000 r--s 00200000 fe:00 815          /a folder/data (1)";
        assert_eq!(
            mapping(shared),
            Some(Mapping {
                addresses: Address(0x7f00)..Address(0x7f_0000),
                offset: 2 << 20,
                file: Inode::on(0xfe, 0, 815),
                is_read_only: true,
                is_writable: false,
                path: PathBuf::from("/a folder/data (1)"),
            })
        );
        let written = "7f00-7f0000 rw-p 00200000 fe:00 815     /bin/hither";
        assert!(mapping(written).is_some_and(|found| found.is_writable));
        let library = "7f00-7f0000 r-xp 00200000 fe:00 815     /lib/libc.so";
        assert_eq!(
            mapping(library).map(|found| found.is_read_only),
            Some(false)
        );
        assert_eq!(mapping("7f00-7f0000 rw-p 00000000 00:00 0  [stack]"), None);
        assert_eq!(mapping("7f00-7f0000 rw-p"), None);
    }

    #[test]
    fn a_file_has_an_inode_where_it_is_mapped() {
        let folder = tempfile::tempdir_in(ON_A_DISK).expect("a folder");
        let path = folder.path().join("empty");
        let file = File::create(&path).expect("created");
        let status = syscalls::status(file.as_raw_fd()).expect("asked");
        let inode = status.id.inode();
        let mapped = mapped_inode(&path, inode).expect("mapped");
        assert_eq!(mapped.number, inode.number);
        let number = inode.number + 1;
        let another = Inode { number, ..inode };
        assert_eq!(mapped_inode(&path, another), None);
        assert_eq!(mapped_inode(folder.path(), inode), None);
    }

    /// Another process maps a file and touches it: its faults are seen, and its pages are dropped.
    #[test]
    fn pages_of_a_mapped_file_are_dropped() {
        const PROGRAM: &str = "import mmap,sys\nfile=open(sys.argv[1],'rb')\n\
            m=mmap.mmap(file.fileno(),0,prot=mmap.PROT_READ)\n\
            for _ in sys.stdin:\n print(sum(m[::4096]),flush=True)\n";
        let folder = tempfile::tempdir_in(ON_A_DISK).expect("a folder");
        let path = folder.path().join("data");
        let mut file = fs::File::create(&path).expect("created");
        file.write_all(&vec![3; 4 << 20]).expect("written");
        file.sync_all().expect("synced");
        let started = Command::new("python3")
            .args(["-c", PROGRAM])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            return skip_on_this_machine("no python3");
        };
        let mut to = child.stdin.take().expect("piped");
        let mut from = io::BufReader::new(child.stdout.take().expect("piped"));
        let mut touch = || {
            let mut line = String::new();
            to.write_all(b"\n").expect("written");
            io::BufRead::read_line(&mut from, &mut line).expect("read");
            assert_eq!(line.trim(), "3072");
        };
        touch();
        let found = mappings(Pid::of(&child));
        let mapped = found.iter().find(|found| found.path == path);
        let mapped = mapped.expect("mapped");
        assert!(mapped.is_read_only, "{mapped:?}");
        let (id, size) = identify(&path, mapped.file).expect("the file");
        assert_eq!((size, mapped.offset), (4 << 20, 0));
        assert_eq!(identify(&path, Inode::on(0, 0, 1)), None);
        let mut faults = PerfRings::of_thread(Tid(child.id()));
        let mut seen = |mapped: &Mapping, faults: &mut PerfRings| {
            let mut addresses = Vec::new();
            touch();
            faults.drain(&mut |fault| addresses.push(fault.address));
            addresses.retain(|address| mapped.addresses.contains(address));
            addresses.len()
        };
        let mut before = None;
        match &mut faults {
            Ok(faults) => before = Some(seen(mapped, faults)),
            Err(reason) => skip_on_this_machine(*reason),
        }
        let process = match MappedProcess::open(Pid::of(&child)) {
            Ok(process) => process,
            Err(reason) => {
                drop(to);
                child.wait().expect("it ends");
                return skip_on_this_machine(reason);
            }
        };
        process
            .drop_pages(mapped.addresses.clone())
            .expect("dropped");
        let cached = ThisPageCache.open(&path, id).expect("the file");
        if let Ok(cached) = cached.cached(0, 4 << 20) {
            assert!(cached.pages < 1024, "{cached:?}");
        }
        if let Ok(faults) = &mut faults {
            assert_eq!(before, Some(0), "it was mapped");
            assert!(seen(mapped, faults) > 0);
        }
        drop(to);
        child.wait().expect("it ends");
        assert!(process.drop_pages(mapped.addresses.clone()).is_err());
    }
}
