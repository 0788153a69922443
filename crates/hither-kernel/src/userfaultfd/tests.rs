//! Each refusal of the kernel by a scripted one, and what really happens by ours.

use std::fs::File;
use std::io::Read;

use super::*;
use hither_ids::{Address, Pid};
use hither_testing::skip::skip_on_this_machine;

/// A kernel that refuses one call, and says yes to all others.
#[derive(Debug, Default)]
struct Scripted {
    refused: &'static str,
    error: i32,
    huge: bool,
    calls: Vec<&'static str>,
    ranges: Vec<(u64, u64)>,
}

impl Scripted {
    fn refusing(refused: &'static str, error: i32) -> Programs<Scripted> {
        Programs::new(Scripted {
            refused,
            error,
            ..Scripted::default()
        })
    }

    fn answer<T>(&mut self, call: &'static str, yes: T) -> Result<T, i32> {
        self.calls.push(call);
        if self.refused == call {
            return Err(self.error);
        }
        Ok(yes)
    }
}

fn some_file() -> File {
    File::open("/dev/null").expect("it is there")
}

impl Kernel for Scripted {
    fn take(&mut self, _: &UserfaultfdOffer) -> Result<OwnedFd, i32> {
        self.answer("take", some_file().into())
    }

    fn set_up(&mut self, _: &OwnedFd) -> Result<(), i32> {
        self.answer("set_up", ())
    }

    fn page_map(&mut self, _: Pid) -> Result<File, i32> {
        self.answer("page_map", some_file())
    }

    fn register(&mut self, _: &OwnedFd, start: Address, length: u64) -> Result<(), i32> {
        self.ranges.push((start.0, length));
        match self.ranges.len() {
            1 => self
                .answer("register", ())
                .and(self.answer("register at first", ())),
            _ => self.answer("register", ()),
        }
    }

    fn unregister(&mut self, _: &OwnedFd, start: Address, length: u64) -> Result<(), i32> {
        self.ranges.push((start.0, length));
        self.answer("unregister", ())
    }

    fn is_huge(&mut self, _: &File, _: Address) -> Result<bool, i32> {
        let huge = self.huge;
        self.answer("is_huge", huge)
    }

    fn protect(&mut self, _: &File, _: Address, _: u64) -> Result<(), i32> {
        self.answer("protect", ())
    }
}

const OFFER: UserfaultfdOffer = UserfaultfdOffer {
    pid: Pid(5),
    fd: 900,
    inode: 1,
};

#[test]
fn an_offer_that_cannot_be_taken_leaves_nothing() {
    for (call, error, reason) in [
        ("take", libc::EBADF, SamplingError::Withdrawn),
        ("take", libc::ESRCH, SamplingError::NoProcess),
        ("take", libc::EPERM, SamplingError::NotPermitted),
        ("take", libc::EMFILE, SamplingError::NoRoom),
        ("take", libc::ENFILE, SamplingError::NoRoom),
        ("take", libc::ENOSYS, SamplingError::NoCall),
        ("set_up", libc::EINVAL, SamplingError::NoCall),
        ("set_up", libc::EPERM, SamplingError::NotPermitted),
        ("set_up", libc::ENOTTY, SamplingError::NoCall),
        ("page_map", libc::EACCES, SamplingError::NotPermitted),
        ("page_map", libc::ENOENT, SamplingError::NoProcess),
        ("page_map", libc::EMFILE, SamplingError::NoRoom),
    ] {
        let mut arm = Scripted::refusing(call, error);
        assert_eq!(arm.offered(&OFFER), Err(reason), "{call} {error}");
        assert_eq!(
            arm.begin(Pid(5), Address(0), 4096),
            Err(SamplingError::NotOffered)
        );
    }
}

#[test]
fn a_process_that_does_it_itself_is_left_alone() {
    let mut arm = Programs::new(Scripted::default());
    assert_eq!(arm.offered(&OFFER), Ok(()));
    assert_eq!(arm.begin(Pid(5), Address(0), 4096), Ok(()));
    let leave = UserfaultfdOffer { fd: -1, ..OFFER };
    assert_eq!(arm.offered(&leave), Err(SamplingError::InUse));
    assert_eq!(
        arm.arm(Pid(5), Address(0), 4096),
        Err(SamplingError::NotOffered)
    );
}

#[test]
fn refusals_of_ranges_say_why_and_the_rest_goes_on() {
    for (call, error, reason) in [
        ("register", libc::EBUSY, SamplingError::InUse),
        ("register", libc::EINVAL, SamplingError::NoMemory),
        ("register", libc::ENOMEM, SamplingError::NoRoom),
        ("register", libc::EPERM, SamplingError::NotPermitted),
        ("is_huge", libc::ENOTTY, SamplingError::NoCall),
        ("is_huge", libc::EFAULT, SamplingError::Other(libc::EFAULT)),
    ] {
        let mut arm = Scripted::refusing(call, error);
        assert_eq!(arm.offered(&OFFER), Ok(()));
        assert_eq!(
            arm.begin(Pid(5), Address(0), 1 << 20),
            Err(reason),
            "{call} {error}"
        );
        assert_eq!(arm.end(Pid(5), Address(0), 1 << 20), Ok(()));
    }
    for (error, reason) in [
        (libc::EPERM, SamplingError::NoMemory),
        (libc::EINTR, SamplingError::Busy),
        (libc::EAGAIN, SamplingError::Busy),
        (libc::ESRCH, SamplingError::NoProcess),
        (libc::ENOMEM, SamplingError::NoRoom),
        (libc::ENOTTY, SamplingError::NoCall),
    ] {
        let mut arm = Scripted::refusing("protect", error);
        assert_eq!(arm.offered(&OFFER), Ok(()));
        assert_eq!(arm.begin(Pid(5), Address(0), 1 << 20), Ok(()));
        assert_eq!(arm.arm(Pid(5), Address(0), 4096), Err(reason), "{error}");
    }
    for (error, answer) in [
        (libc::EINVAL, Ok(())),
        (libc::ESRCH, Ok(())),
        (libc::ENOMEM, Ok(())),
        (libc::EPERM, Err(SamplingError::NotPermitted)),
    ] {
        let mut arm = Scripted::refusing("unregister", error);
        assert_eq!(arm.offered(&OFFER), Ok(()));
        assert_eq!(arm.end(Pid(5), Address(0), 4096), answer, "{error}");
    }
}

#[test]
fn a_region_is_registered_with_the_pages_that_it_begins_and_ends_in() {
    let page = page_bytes();
    let (around, within) = ((4 * page, 5 * page), (5 * page, 3 * page));
    for (refused, expected) in [
        ("nothing", vec![around, around]),
        ("register at first", vec![around, within, within]),
    ] {
        let mut arm = Scripted::refusing(refused, libc::EBUSY);
        assert_eq!(arm.offered(&OFFER), Ok(()));
        assert_eq!(
            arm.begin(Pid(5), Address(4 * page + 16), 4 * page),
            Ok(()),
            "{refused}"
        );
        // It is ended as what was sampled of it, its whole pages.
        assert_eq!(arm.end(Pid(5), Address(5 * page), 3 * page), Ok(()));
        assert_eq!(arm.kernel.ranges, expected, "{refused}");
    }
    let mut arm = Scripted::refusing("register", libc::EBUSY);
    assert_eq!(arm.offered(&OFFER), Ok(()));
    assert_eq!(
        arm.begin(Pid(5), Address(4 * page), 2 * page),
        Err(SamplingError::InUse)
    );
    assert_eq!(arm.kernel.ranges, [(4 * page, 2 * page)], "no other");
}

/// As realloc does with a block that has a mapping of its own.
#[test]
fn what_is_sampled_can_be_moved_with_the_head_of_its_block() {
    let mut arm = WriteProtectSampler(Programs::new(Linux));
    if let Err(reason) = offer_own(&mut arm) {
        skip_on_this_machine(reason);
        return;
    }
    let page = page_bytes();
    let (length, pid) = (8 * page as usize, Pid::own());
    let block = syscalls::map(length, None).expect("mapped");
    // SAFETY: it is mapped, and nobody else's.
    unsafe { block.write(7) };
    let start = block as u64;
    assert_eq!(arm.begin(pid, Address(start + 16), 7 * page + 100), Ok(()));
    assert_eq!(arm.arm(pid, Address(start + page), 6 * page), Ok(()));
    // SAFETY: nothing refers to the mapping.
    let moved = unsafe { libc::mremap(block.cast(), length, 2 * length, libc::MREMAP_MAYMOVE) };
    assert_ne!(moved, libc::MAP_FAILED);
    let moved = moved.cast::<u8>();
    // SAFETY: it is mapped, and nobody else's.
    assert_eq!(unsafe { moved.read() }, 7);
    assert_eq!(arm.end(pid, Address(start + page), 6 * page), Ok(()));
    // SAFETY: as above.
    unsafe { syscalls::unmap(moved, 2 * length) };
}

#[test]
fn huge_pages_are_left_whole() {
    let mut arm = Programs::new(Scripted {
        huge: true,
        ..Scripted::default()
    });
    assert_eq!(arm.offered(&OFFER), Ok(()));
    assert_eq!(
        arm.begin(Pid(5), Address(0), 1 << 30),
        Err(SamplingError::HugePages)
    );
    assert!(!arm.kernel.calls.contains(&"register"));
    let looked = arm.kernel.calls.iter().filter(|&&call| call == "is_huge");
    assert_eq!(looked.count(), 16, "not at all of it");
}

/// Minor faults of this thread.
fn faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(result, 0);
    // SAFETY: zeroed memory is a valid rusage, and the kernel filled it.
    unsafe { usage.assume_init() }.ru_minflt
}

fn faults_of(touch: impl FnOnce()) -> i64 {
    let before = faults();
    touch();
    faults() - before
}

fn registered(pages: u64) -> Option<(WriteProtectSampler, Own)> {
    let mut arm = WriteProtectSampler(Programs::new(Linux));
    match Own::new(&mut arm, pages) {
        Ok(own) => Some((arm, own)),
        Err(reason) => {
            skip_on_this_machine(reason);
            None
        }
    }
}

#[test]
fn a_write_to_an_armed_page_faults_once_and_goes_on() {
    let Some((mut arm, own)) = registered(8) else {
        return;
    };
    assert_eq!(own.arm(&mut arm, 3), Ok(()));
    assert_eq!(own.arm(&mut arm, 3), Ok(()), "armed already");
    assert_eq!(faults_of(|| own.touch(2)), 0);
    assert_eq!(faults_of(|| own.touch(3)), 1);
    assert_eq!(faults_of(|| own.touch(3)), 0);
    // SAFETY: within the mapping of eight pages.
    let third = unsafe { own.pages.add(3 * own.page_bytes) };
    // SAFETY: a byte of the mapping, which nobody writes meanwhile.
    assert_eq!(unsafe { third.read() }, 3, "three touches, none lost");
    own.end(&mut arm);
}

#[test]
fn read_into_an_armed_page_succeeds() {
    let Some((mut arm, own)) = registered(1) else {
        return;
    };
    assert_eq!(own.arm(&mut arm, 0), Ok(()));
    // SAFETY: the mapping is one page, initialised by the kernel, and nobody else refers to it.
    let page = unsafe { std::slice::from_raw_parts_mut(own.pages, own.page_bytes) };
    let mut zeros = File::open("/dev/zero").expect("it is there");
    assert_eq!(zeros.read(page).expect("not EFAULT"), own.page_bytes);
    assert_eq!(page[0], 0);
    own.end(&mut arm);
}

#[test]
fn nothing_is_left_when_the_descriptor_is_closed() {
    let Some((mut arm, own)) = registered(4) else {
        return;
    };
    (0..4).for_each(|page| assert_eq!(own.arm(&mut arm, page), Ok(())));
    drop(arm);
    assert_eq!(faults_of(|| (0..4).for_each(|page| own.touch(page))), 0);
}

#[test]
fn what_is_not_sampled_any_more_cannot_be_armed() {
    let Some((mut arm, own)) = registered(4) else {
        return;
    };
    assert_eq!(own.arm(&mut arm, 0), Ok(()));
    let start = own.pages as u64;
    assert_eq!(
        arm.end(Pid::own(), Address(start), own.length as u64),
        Ok(())
    );
    assert_eq!(faults_of(|| own.touch(0)), 0);
    assert_eq!(own.arm(&mut arm, 0), Err(SamplingError::NoMemory));
    // A second userfaultfd may have it now, and then we may not.
    let mut other = WriteProtectSampler(Programs::new(Linux));
    assert_eq!(offer_own(&mut other), Ok(()));
    let length = own.length as u64;
    assert_eq!(other.begin(Pid::own(), Address(start), length), Ok(()));
    assert_eq!(
        arm.begin(Pid::own(), Address(start), length),
        Err(SamplingError::InUse)
    );
}

#[test]
fn another_descriptor_than_the_one_offered_is_not_taken() {
    let mut arm = WriteProtectSampler(Programs::new(Linux));
    let file = some_file();
    let offer = UserfaultfdOffer {
        pid: Pid::own(),
        fd: file.as_raw_fd(),
        inode: u64::MAX,
    };
    let taken = arm.offered(&offer);
    // A container may forbid the call that takes it.
    assert!(
        matches!(
            taken,
            Err(SamplingError::Withdrawn | SamplingError::NotPermitted | SamplingError::NoCall)
        ),
        "{taken:?}"
    );
}
