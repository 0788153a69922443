//! Takes single pages of a mapped file out of a program's page table and leaves them in the page
//! cache, so that the next touch is a page fault, which is seen.
//!
//! No system call says "unmap". `process_madvise(MADV_PAGEOUT)` unmaps a page and then frees it,
//! unless somebody else holds it. So each page is spliced into a pipe of ours first, which holds
//! it, and is let go afterwards (tried on Linux 6.18, ext4, 2026-11: 2 us a page, and each of
//! 65,536 pages stayed cached).
//!
//! **Why it is safe.** `MADV_PAGEOUT` and `MADV_COLD` are hints: whatever lies at an address when
//! the kernel gets to it, its bytes stay what they are. So a mapping that changes meanwhile, or a
//! page that was copied on write, costs time at worst. `MADV_DONTNEED`, which only unmaps where a
//! file is mapped shared, would lose the bytes of anything else that has come to lie there.
//!
//! The kernel leaves alone a page that two processes have mapped, and files that this user neither
//! owns nor may write. A folio of several pages has to be split first, which `MADV_COLD` on a part
//! of it does; that unmaps all of it. See [`MappedProcess`] for what the calls need.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hither_ids::{Address, Pid};

use crate::file_id::Inode;
use crate::mapped_files::{MappedProcess, mapped_inode_of, mappings};
use crate::page_bytes;
use crate::page_cache::PageCacheError;

/// The pages that are unmapped at a time. A pipe has 16 places unless it is told otherwise, which
/// needs no privilege up to `fs.pipe-max-size`, 1 MiB.
pub const BATCH_PAGES: usize = 128;

/// Of an entry of /proc/PID/pagemap: the page is in memory; it is a file's, or shared memory.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

/// A page of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPage {
    /// Where it is mapped.
    pub address: Address,
    /// Its offset in the file.
    pub offset: u64,
}

/// What came of unmapping pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// How many were mapped and are no more.
    pub pages: usize,
    /// Those that still are.
    pub left: Vec<MappedPage>,
}

/// A pipe that holds pages.
#[derive(Debug)]
pub struct PageUnmapper {
    read_end: OwnedFd,
    write_end: OwnedFd,
    nowhere: File,
}

/// A program whose pages may be unmapped.
#[derive(Debug)]
pub struct UnmappableProcess {
    process: MappedProcess,
    page_map: File,
}

impl UnmappableProcess {
    /// The process of that id, if this user may.
    pub fn open(pid: Pid) -> Result<UnmappableProcess, PageCacheError> {
        let process = MappedProcess::open(pid)?;
        let page_map = File::open(format!("/proc/{pid}/pagemap"))
            .map_err(|error| PageCacheError::from_errno(error.raw_os_error().unwrap_or(0)))?;
        Ok(UnmappableProcess { process, page_map })
    }

    /// Whether a page of a file is in its page table.
    fn has(&self, page: MappedPage) -> bool {
        let mut entry = [0; 8];
        let at = page.address.0 / page_bytes() * 8;
        let read = self.page_map.read_exact_at(&mut entry, at);
        let wanted = PRESENT | OF_FILE;
        read.is_ok() && u64::from_ne_bytes(entry) & wanted == wanted
    }

    fn advise(&self, pages: &[MappedPage], advice: libc::c_int) -> Result<(), PageCacheError> {
        let range = |page: &MappedPage| libc::iovec {
            iov_base: page.address.0 as *mut libc::c_void,
            iov_len: page_bytes() as usize,
        };
        let ranges: Vec<libc::iovec> = pages.iter().map(range).collect();
        self.process.advise(&ranges, advice)
    }
}

impl PageUnmapper {
    /// Makes the pipe.
    pub fn new() -> io::Result<PageUnmapper> {
        let mut ends = [-1; 2];
        // SAFETY: the array has room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us these descriptors, and nobody else knows of them.
        let [read_end, write_end] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let bytes = BATCH_PAGES * page_bytes() as usize;
        // Where it is refused, a batch holds as many pages as the pipe takes.
        // SAFETY: the command takes no memory.
        unsafe {
            libc::fcntl(
                write_end.as_raw_fd(),
                libc::F_SETPIPE_SZ,
                bytes as libc::c_int,
            )
        };
        let nowhere = File::options().write(true).open("/dev/null")?;
        Ok(PageUnmapper {
            read_end,
            write_end,
            nowhere,
        })
    }

    /// Unmaps those of at most [`BATCH_PAGES`] pages of one file that are mapped. Folios that they
    /// are a part of are split, which unmaps all their pages.
    pub fn unmap(
        &mut self,
        process: &UnmappableProcess,
        file: &File,
        pages: &[MappedPage],
    ) -> Result<Unmapped, PageCacheError> {
        assert!(pages.len() <= BATCH_PAGES);
        let mut left = pages.to_vec();
        left.retain(|&page| process.has(page));
        let mapped = left.len();
        // What is mapped is cached, so that nothing is read here.
        let mut held = left.clone();
        let fit = held
            .iter()
            .take_while(|&&page| self.hold(file, page))
            .count();
        held.truncate(fit);
        let advised = if held.is_empty() {
            Ok(())
        } else {
            process.advise(&held, libc::MADV_PAGEOUT)
        };
        self.let_go();
        advised?;
        left.retain(|&page| process.has(page));
        if !left.is_empty() {
            process.advise(&left, libc::MADV_COLD)?;
            left.retain(|&page| process.has(page));
        }
        Ok(Unmapped {
            pages: mapped - left.len(),
            left,
        })
    }

    /// Holds a page of the file. False if the pipe is full, or the file ends before it.
    fn hold(&self, file: &File, page: MappedPage) -> bool {
        let mut offset = page.offset as libc::loff_t;
        // SAFETY: the offset is this function's own; the bytes go from a file into a pipe.
        let moved = unsafe {
            libc::splice(
                file.as_raw_fd(),
                &raw mut offset,
                self.write_end.as_raw_fd(),
                std::ptr::null_mut(),
                page_bytes() as usize,
                libc::SPLICE_F_NONBLOCK,
            )
        };
        moved > 0
    }

    /// Empties the pipe.
    fn let_go(&self) {
        loop {
            // SAFETY: neither offset is given; the bytes go from a pipe to nowhere.
            let moved = unsafe {
                libc::splice(
                    self.read_end.as_raw_fd(),
                    std::ptr::null_mut(),
                    self.nowhere.as_raw_fd(),
                    std::ptr::null_mut(),
                    BATCH_PAGES * page_bytes() as usize,
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            if moved <= 0 {
                return;
            }
        }
    }
}

/// Opens the file of this inode that a process has mapped, to hold its pages: nothing is
/// read ahead through it, and where allowed its access time is left alone.
pub fn open_mapped(pid: Pid, file: Inode) -> Option<File> {
    let mapping = mappings(pid).into_iter().find(|of| of.file == file)?;
    let within = mapping.path.strip_prefix("/").ok()?;
    let paths = [
        mapping.path.clone(),
        PathBuf::from(format!("/proc/{pid}/root")).join(within),
    ];
    let opened = paths.iter().find_map(|path| open_this(path, file))?;
    // SAFETY: the advice takes no memory.
    unsafe { libc::posix_fadvise(opened.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    Some(opened)
}

/// Opens a regular file if it has this inode where it is mapped.
fn open_this(path: &Path, wanted: Inode) -> Option<File> {
    let open = |flags| {
        // A pipe of that name would block otherwise.
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
        File::options().read(true).custom_flags(flags).open(path)
    };
    let file = open(libc::O_NOATIME).or_else(|_| open(0)).ok()?;
    let about = file.metadata().ok()?;
    let is_it = || Inode::of(&about) == wanted || mapped_inode_of(&file) == Some(wanted);
    (about.is_file() && is_it()).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    use hither_ids::Tid;

    use super::*;
    use crate::page_faults::{PageFaults, PerfRings};
    use hither_testing::needs::ON_A_DISK;
    use hither_testing::skip::skip_on_this_machine;

    const PAGES: u64 = 1024;

    /// Maps a file, writes over every other page where it is mapped to be copied, and prints the
    /// sum of the first bytes of its pages for each line that it reads.
    const PROGRAM: &str = "import mmap,sys\nfile=open(sys.argv[1],'rb')\n\
        m=mmap.mmap(file.fileno(),0,access=getattr(mmap,sys.argv[2]))\n\
        if sys.argv[2]=='ACCESS_COPY':\n for at in range(0,len(m),8192): m[at]=9\n\
        for _ in sys.stdin:\n print(sum(m[::4096]),flush=True)\n";

    struct Program {
        child: Child,
        to: ChildStdin,
        from: BufReader<ChildStdout>,
    }

    impl Program {
        fn start(path: &Path, access: &str) -> Option<Program> {
            let mut child = Command::new("python3")
                .args(["-c", PROGRAM])
                .arg(path)
                .arg(access)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .ok()?;
            let to = child.stdin.take()?;
            let from = BufReader::new(child.stdout.take()?);
            Some(Program { child, to, from })
        }

        fn sum(&mut self) -> u64 {
            let mut line = String::new();
            self.to.write_all(b"\n").expect("written");
            self.from.read_line(&mut line).expect("read");
            line.trim().parse().expect("a number")
        }

        fn end(mut self) {
            drop(self.to);
            assert!(self.child.wait().expect("it ends").success());
        }
    }

    fn data(folder: &Path) -> PathBuf {
        let path = folder.join("data");
        let mut file = File::create(&path).expect("created");
        file.write_all(&vec![3; (PAGES * page_bytes()) as usize])
            .expect("written");
        file.sync_all().expect("synced");
        path
    }

    /// The pages of a process's mapping of the file, every `step`-th.
    fn pages(pid: Pid, path: &Path, step: usize) -> (Inode, Vec<MappedPage>) {
        let found = mappings(pid);
        let mapping = found.iter().find(|of| of.path == path).expect("mapped");
        let numbers = (0..PAGES).step_by(step);
        let page = |number| MappedPage {
            address: mapping.addresses.start + number * page_bytes(),
            offset: number * page_bytes(),
        };
        (mapping.file, numbers.map(page).collect())
    }

    /// Unmaps pages until none is mapped. Returns how many are left.
    fn unmap_all(process: &UnmappableProcess, file: &File, pages: &[MappedPage]) -> usize {
        let mut unmapper = PageUnmapper::new().expect("a pipe");
        let mut left = pages.to_vec();
        for _ in 0..8 {
            let batches: Vec<_> = left.chunks(BATCH_PAGES).map(<[_]>::to_vec).collect();
            left.clear();
            for batch in batches {
                let unmapped = unmapper.unmap(process, file, &batch).expect("advised");
                left.extend(unmapped.left);
            }
        }
        left.len()
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in(ON_A_DISK).expect("a folder")
    }

    #[test]
    fn a_page_is_unmapped_alone_and_stays_cached() {
        let folder = folder();
        let path = data(folder.path());
        let Some(mut program) = Program::start(&path, "ACCESS_READ") else {
            return skip_on_this_machine("no python3");
        };
        let pid = program.child.id();
        assert_eq!(program.sum(), 3 * PAGES);
        let process = match UnmappableProcess::open(Pid(pid)) {
            Ok(process) => process,
            Err(reason) => {
                skip_on_this_machine(reason);
                return program.end();
            }
        };
        let (file, all) = pages(Pid(pid), &path, 1);
        let sampled: Vec<MappedPage> = all.iter().copied().step_by(16).collect();
        let number = file.number + 1;
        assert!(open_mapped(Pid(pid), Inode { number, ..file }).is_none());
        let opened = open_mapped(Pid(pid), file).expect("the file");
        // Once for the folios that are split by it, which unmaps their other pages, too.
        assert_eq!(unmap_all(&process, &opened, &sampled), 0);
        assert_eq!(program.sum(), 3 * PAGES);
        let faults = PerfRings::of_thread(Tid(pid));
        assert_eq!(unmap_all(&process, &opened, &sampled), 0);
        let present = all.iter().filter(|&&page| process.has(page)).count();
        assert_eq!(present, all.len() - sampled.len(), "the others stay mapped");
        let before = crate::process_tree::Transferred::by(Pid(pid));
        assert_eq!(program.sum(), 3 * PAGES);
        let after = crate::process_tree::Transferred::by(Pid(pid));
        let read = |about: Option<crate::process_tree::Transferred>| about.map(|of| of.read_bytes);
        assert_eq!(read(before), read(after), "they were cached");
        match faults {
            Ok(mut faults) => {
                let mut seen = Vec::new();
                faults.drain(&mut |fault| seen.push(fault.address.page_start(page_bytes())));
                let was_seen =
                    |page: &&MappedPage| seen.contains(&page.address.page_start(page_bytes()));
                assert_eq!(sampled.iter().filter(was_seen).count(), sampled.len());
            }
            Err(reason) => skip_on_this_machine(reason),
        }
        program.end();
    }

    #[test]
    fn pages_that_were_copied_on_write_keep_their_bytes() {
        let folder = folder();
        let path = data(folder.path());
        let Some(mut program) = Program::start(&path, "ACCESS_COPY") else {
            return skip_on_this_machine("no python3");
        };
        let pid = program.child.id();
        let sum = 9 * PAGES / 2 + 3 * PAGES / 2;
        assert_eq!(program.sum(), sum);
        match UnmappableProcess::open(Pid(pid)) {
            Ok(process) => {
                let (file, all) = pages(Pid(pid), &path, 1);
                let opened = open_mapped(Pid(pid), file).expect("the file");
                let _ = unmap_all(&process, &opened, &all);
                // Even where it is asked for pages that are not of a file.
                process.advise(&all, libc::MADV_PAGEOUT).expect("advised");
                process.advise(&all, libc::MADV_COLD).expect("advised");
                assert_eq!(program.sum(), sum);
            }
            Err(reason) => skip_on_this_machine(reason),
        }
        program.end();
    }
}
