//! Arming by write-protection that resolves itself: userfaultfd with WP_ASYNC (Linux 6.7).
//!
//! A program opens a userfaultfd of its own memory and offers it; the agent takes a copy, registers
//! ranges and write-protects pages through it from outside. The next write to such a page faults
//! once: the kernel takes the mark off and lets the write go on, without asking anybody. `read`
//! into an armed page succeeds, a fork or `mremap` drops the registration of the copy or of what
//! was moved, and when the last copy of the descriptor is closed, as by the agent's death, all
//! marks are gone (all tried on Linux 6.18, 2026-11). Reads are not seen.
//!
//! No privilege is needed: see [`crate::syscalls::userfaultfd`]. A range can be registered with one
//! userfaultfd only: a program that uses one itself on the same memory was there first (EBUSY, and
//! the range is left to it), or would be refused. So a range is registered only as long as it is
//! sampled, and a process that asks libc's `syscall` for a userfaultfd is left alone from then on;
//! one that asks the kernel past libc, or by /dev/userfaultfd, is noticed by nobody.
//!
//! A registered range is a mapping of its own to the kernel, and `mremap` fails where what it is to
//! move is of several: realloc then copies. So a region is registered with the pages that it begins
//! and ends in, one of which may hold the head of malloc's block.
//!
//! A huge page would be split by arming any part of it (42 us, and a write to a huge page armed
//! whole takes 190 us and then faults in each small page), and it stays split. Pages are therefore
//! armed through the page map's scan, which marks what fits a condition in one step: present, not
//! marked yet, not huge.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use hither_ids::{Address, Pid};

use crate::page_map::last_errno;
use crate::page_sampling::{PageSampler, SamplingCost, SamplingError, UserfaultfdOffer};
use crate::process::thread_cpu_ns;
use crate::{page_bytes, page_map, syscalls};

/// Its name on the command line.
pub const NAME: &str = "write-protect";

/// linux/userfaultfd.h, which the libc crate lacks.
const API: u64 = 0xaa;
const FEATURE_WP: u64 = 1 << 0;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const MODE_WP: u64 = 1 << 1;
const IOC_API: u64 = 0xc018_aa3f;
const IOC_REGISTER: u64 = 0xc020_aa00;
const IOC_UNREGISTER: u64 = 0x8010_aa01;

/// Places of a range that are checked for huge pages: a check of all would hold the lock of the
/// program's mappings too long.
const HUGE_PAGE_PROBES: u64 = 16;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// The calls of the kernel; their error numbers where they fail.
trait Kernel: Send {
    /// A copy of what was offered, if that is what is there.
    fn take(&mut self, offer: &UserfaultfdOffer) -> Result<OwnedFd, i32>;
    /// Asks for the features.
    fn set_up(&mut self, uffd: &OwnedFd) -> Result<(), i32>;
    fn page_map(&mut self, pid: Pid) -> Result<File, i32>;
    fn register(&mut self, uffd: &OwnedFd, start: Address, length: u64) -> Result<(), i32>;
    fn unregister(&mut self, uffd: &OwnedFd, start: Address, length: u64) -> Result<(), i32>;
    /// Whether the page at `start` is part of a huge one.
    fn is_huge(&mut self, page_map: &File, start: Address) -> Result<bool, i32>;
    fn protect(&mut self, page_map: &File, start: Address, length: u64) -> Result<(), i32>;
}

/// The way that write-protects.
#[derive(Debug)]
pub struct WriteProtectSampler(Programs<Linux>);

#[derive(Debug)]
struct Programs<K> {
    kernel: K,
    programs: BTreeMap<Pid, Program>,
}

#[derive(Debug)]
struct Program {
    uffd: OwnedFd,
    page_map: File,
    /// What is registered, by the first whole page of each region: start and length.
    registered: BTreeMap<Address, (Address, u64)>,
}

impl WriteProtectSampler {
    /// Tries it out on a page of our own, in all its steps.
    pub fn tried() -> Result<WriteProtectSampler, SamplingError> {
        let mut arm = WriteProtectSampler(Programs::new(Linux));
        let own = Own::new(&mut arm, 1)?;
        let armed = own.arm(&mut arm, 0);
        own.end(&mut arm);
        armed.map(|()| arm)
    }

    /// Measured over some pages of our own, in processor time: a busy machine makes us wait, which
    /// costs nobody anything.
    fn measured(&mut self) -> Result<SamplingCost, SamplingError> {
        const PAGES: u64 = 256;
        let own = Own::new(self, PAGES)?;
        let before_ns = thread_cpu_ns();
        let armed = (0..PAGES).try_for_each(|page| own.arm(self, page));
        let armed_ns = thread_cpu_ns();
        (0..PAGES).for_each(|page| own.touch(page));
        let touched_ns = thread_cpu_ns();
        own.end(self);
        armed.map(|()| SamplingCost {
            arm_ns: (armed_ns - before_ns) / PAGES,
            touch_ns: (touched_ns - armed_ns) / PAGES,
        })
    }
}

impl PageSampler for WriteProtectSampler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sees_reads(&self) -> bool {
        false
    }

    fn offered(&mut self, offer: &UserfaultfdOffer) -> Result<(), SamplingError> {
        self.0.offered(offer)
    }

    fn begin(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        self.0.begin(pid, start, length)
    }

    fn arm(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        self.0.arm(pid, start, length)
    }

    fn end(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        self.0.end(pid, start, length)
    }

    fn ended(&mut self, pid: Pid) {
        self.0.programs.remove(&pid);
    }

    fn cost(&mut self) -> Option<SamplingCost> {
        self.measured().ok()
    }
}

impl<K: Kernel> Programs<K> {
    fn new(kernel: K) -> Self {
        Programs {
            kernel,
            programs: BTreeMap::new(),
        }
    }

    fn offered(&mut self, offer: &UserfaultfdOffer) -> Result<(), SamplingError> {
        self.programs.remove(&offer.pid);
        if offer.fd < 0 {
            return Err(SamplingError::InUse);
        }
        let uffd = self.kernel.take(offer).map_err(SamplingError::from_errno)?;
        self.kernel.set_up(&uffd).map_err(|error| match error {
            // A feature that it does not know.
            libc::EINVAL => SamplingError::NoCall,
            error => SamplingError::from_errno(error),
        })?;
        let page_map = self
            .kernel
            .page_map(offer.pid)
            .map_err(|error| match error {
                // No such process, or one without such a file.
                libc::ENOENT => SamplingError::NoProcess,
                error => SamplingError::from_errno(error),
            })?;
        let program = Program {
            uffd,
            page_map,
            registered: BTreeMap::new(),
        };
        self.programs.insert(offer.pid, program);
        Ok(())
    }

    fn begin(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        let program = self
            .programs
            .get_mut(&pid)
            .ok_or(SamplingError::NotOffered)?;
        let page = page_bytes();
        let (first, end) = (start.next_page_start(page).unwrap_or(start), start + length);
        let within = (first, end.page_start(page).0.saturating_sub(first.0));
        let step = (within.1 / HUGE_PAGE_PROBES).max(1).next_multiple_of(page);
        let (mut probes, mut huge) = (0, 0);
        for at in (0..within.1).step_by(step as usize) {
            let is_huge = self.kernel.is_huge(&program.page_map, first + at);
            huge += u64::from(is_huge.map_err(SamplingError::from_errno)?);
            probes += 1;
        }
        // A few small pages at its ends do not stand for such a region.
        if 2 * huge > probes {
            return Err(SamplingError::HugePages);
        }
        let outer = start.page_start(page);
        let after = end.next_page_start(page).unwrap_or(end);
        let around = (outer, after - outer);
        let mut registered = Err(libc::EINVAL);
        for (start, length) in [around, within] {
            registered = self.kernel.register(&program.uffd, start, length);
            if registered.is_ok() {
                program.registered.insert(first, (start, length));
            }
            // Others may have a right to the pages around.
            if registered.is_ok() || around == within {
                break;
            }
        }
        registered.map_err(SamplingError::from_errno)
    }

    fn arm(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        let program = self.programs.get(&pid).ok_or(SamplingError::NotOffered)?;
        let armed = self.kernel.protect(&program.page_map, start, length);
        armed.map_err(|error| match error {
            // The scan says so where the range is not registered (any more).
            libc::EPERM => SamplingError::NoMemory,
            libc::EINTR => SamplingError::Busy,
            error => SamplingError::from_errno(error),
        })
    }

    fn end(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        let Some(program) = self.programs.get_mut(&pid) else {
            return Ok(());
        };
        let first = start.next_page_start(page_bytes()).unwrap_or(start);
        let (start, length) = program.registered.remove(&first).unwrap_or((start, length));
        match self.kernel.unregister(&program.uffd, start, length) {
            // Unmapped, or gone with its process.
            Ok(()) | Err(libc::EINVAL | libc::ENOENT | libc::ESRCH | libc::ENOMEM) => Ok(()),
            Err(error) => Err(SamplingError::from_errno(error)),
        }
    }
}

/// Pages of this process to try things out on.
struct Own {
    pages: *mut u8,
    page_bytes: usize,
    length: usize,
}

impl Own {
    /// They are registered, or not there.
    fn new(arm: &mut WriteProtectSampler, pages: u64) -> Result<Own, SamplingError> {
        let page_bytes = page_bytes() as usize;
        let length = page_bytes * pages as usize;
        let own = Own {
            pages: syscalls::map(length, None).map_err(SamplingError::from_errno)?,
            page_bytes,
            length,
        };
        (0..pages).for_each(|page| own.touch(page));
        offer_own(arm)?;
        arm.begin(Pid::own(), Address(own.pages as u64), length as u64)?;
        Ok(own)
    }

    fn touch(&self, page: u64) {
        let at = (page as usize * self.page_bytes) % self.length;
        // SAFETY: `at` is below the mapping's length.
        let place = unsafe { self.pages.add(at) };
        // SAFETY: the mapping is writable and this value's own, so that nobody else looks at it.
        unsafe { AtomicU8::from_ptr(place) }.fetch_add(1, Ordering::Relaxed);
    }

    fn arm(&self, arm: &mut WriteProtectSampler, page: u64) -> Result<(), SamplingError> {
        let start = self.pages as u64 + page * self.page_bytes as u64;
        arm.arm(Pid::own(), Address(start), self.page_bytes as u64)
    }

    fn end(self, arm: &mut WriteProtectSampler) {
        // Closing the descriptor undoes all that this might have left.
        let _ = arm.end(Pid::own(), Address(self.pages as u64), self.length as u64);
        arm.ended(Pid::own());
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nothing else refers to it.
        unsafe { syscalls::unmap(self.pages, self.length) };
    }
}

/// Makes an offer to ourselves, as a program would.
fn offer_own(arm: &mut WriteProtectSampler) -> Result<(), SamplingError> {
    let fd = syscalls::userfaultfd().map_err(SamplingError::from_errno)?;
    let offered = match syscalls::status(fd) {
        Ok(status) => arm.offered(&UserfaultfdOffer {
            pid: Pid::own(),
            fd,
            inode: status.id.inode,
        }),
        Err(error) => Err(SamplingError::from_errno(error)),
    };
    syscalls::close(fd);
    offered
}

/// The kernel that we run on.
#[derive(Debug)]
struct Linux;

/// A system call that makes a descriptor.
fn descriptor(result: libc::c_long) -> Result<OwnedFd, i32> {
    if result < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

impl Kernel for Linux {
    fn take(&mut self, offer: &UserfaultfdOffer) -> Result<OwnedFd, i32> {
        // SAFETY: pidfd_open takes no memory.
        let pidfd = descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, offer.pid, 0) })?;
        // SAFETY: pidfd_getfd takes no memory.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), offer.fd, 0) };
        let copy = descriptor(copy)?;
        if syscalls::status(copy.as_raw_fd())?.id.inode == offer.inode {
            Ok(copy)
        } else {
            Err(libc::EBADF)
        }
    }

    fn set_up(&mut self, uffd: &OwnedFd) -> Result<(), i32> {
        let mut api = Api {
            api: API,
            features: FEATURE_WP | FEATURE_WP_ASYNC,
            ..Api::default()
        };
        // SAFETY: the request reads and writes one `Api`.
        let result = unsafe { libc::ioctl(uffd.as_raw_fd(), IOC_API, &raw mut api) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }

    fn page_map(&mut self, pid: Pid) -> Result<File, i32> {
        page_map::open(pid)
    }

    fn register(&mut self, uffd: &OwnedFd, start: Address, length: u64) -> Result<(), i32> {
        let mut range = Register {
            start: start.0,
            length,
            mode: MODE_WP,
            ioctls: 0,
        };
        // SAFETY: the request reads and writes one `Register`; write-protection that resolves
        // itself changes nothing that the memory's owner can see but time.
        let result = unsafe { libc::ioctl(uffd.as_raw_fd(), IOC_REGISTER, &raw mut range) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }

    fn unregister(&mut self, uffd: &OwnedFd, start: Address, length: u64) -> Result<(), i32> {
        let range = [start.0, length];
        // SAFETY: the request reads two words.
        let result = unsafe { libc::ioctl(uffd.as_raw_fd(), IOC_UNREGISTER, range.as_ptr()) };
        if result == 0 {
            Ok(())
        } else {
            Err(last_errno())
        }
    }

    fn is_huge(&mut self, page_map: &File, start: Address) -> Result<bool, i32> {
        page_map::is_huge(page_map, start)
    }

    fn protect(&mut self, page_map: &File, start: Address, length: u64) -> Result<(), i32> {
        page_map::protect(page_map, start, length)
    }
}

#[cfg(test)]
mod tests;
