//! Which process this memory belongs to, and the program's arguments.
//!
//! Forks are detected, not followed. A page that the kernel wipes in forked children
//! (`MADV_WIPEONFORK`) shows a child at its first event that its process id has changed, however
//! the child was made. The child of a `vfork` shares all memory with its parent: the page is not
//! wiped, [`id`] is the parent's, and only the kernel's answer ([`syscalls::pid`]) differs.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use hither_ids::Pid;
use hither_kernel::page_bytes;
use hither_kernel::pid_namespace::PidNamespace;
use hither_kernel::syscalls;
use hither_session::program_session::ProgramSession;

/// Holds [`NOT_FORKED`] until a fork wipes it.
static FORK_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static PID: AtomicU32 = AtomicU32::new(0);

/// The number of the program image in the session; 0 where it has none yet.
static IMAGE: AtomicU32 = AtomicU32::new(0);
static FORKED: AtomicBool = AtomicBool::new(false);

/// The pid namespace of this process, and the inode number of the agent's.
static NAMESPACE: AtomicU32 = AtomicU32::new(0);
static AGENTS_NAMESPACE: AtomicU64 = AtomicU64::new(0);

const NOT_FORKED: u32 = 1;

/// The program's arguments, read once: opening a file later could take a descriptor number that
/// another thread counts on.
static ARGUMENTS: [AtomicU8; ARGUMENTS_BYTES_MAX] =
    [const { AtomicU8::new(0) }; ARGUMENTS_BYTES_MAX];
static ARGUMENTS_BYTES: AtomicUsize = AtomicUsize::new(0);

const ARGUMENTS_BYTES_MAX: usize = 1024;

/// Notes the process id and the arguments, and sets the fork page up. To be called once, when the
/// process attaches to a session.
pub(crate) fn prepare(session: &ProgramSession) {
    NAMESPACE.store(session.pid_namespace().bits(), Ordering::Relaxed);
    AGENTS_NAMESPACE.store(session.agents_pid_namespace(), Ordering::Relaxed);
    set_id();
    read_arguments();
    prepare_fork_page();
}

/// The id that [`id`] returned last. [`notice_fork`] keeps it up to date.
#[inline]
pub(crate) fn last_id() -> Pid {
    Pid(PID.load(Ordering::Relaxed))
}

/// The process whose memory this is: this one, but in the child of a `vfork` its parent.
pub(crate) fn id() -> Pid {
    notice_fork();
    last_id()
}

/// What tells a process from others.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    /// The number of its program image in the session.
    pub(crate) image: u32,
    /// Whether it was forked, and runs the program that its parent does.
    pub(crate) forked: bool,
    /// The pid namespace of its id.
    pub(crate) namespace: PidNamespace,
}

/// The identity of this process, which has the id `pid` and a parent with the id `parent`.
pub(crate) fn identity(session: &ProgramSession, pid: Pid, parent: Pid) -> Identity {
    if pid != last_id() {
        // The child of a `vfork`: its parent's memory says nothing of it.
        return Identity {
            image: session.next_image(),
            forked: true,
            namespace: namespace_of_child(parent),
        };
    }
    let next = |image: u32| (image == 0).then(|| session.next_image());
    let _ = IMAGE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    Identity {
        image: IMAGE.load(Ordering::Relaxed),
        forked: FORKED.load(Ordering::Relaxed),
        namespace: namespace(),
    }
}

fn namespace() -> PidNamespace {
    PidNamespace::from_bits(NAMESPACE.load(Ordering::Relaxed))
}

/// The pid namespace of this process, the child of the one that the memory tells of. It is another
/// one (`unshare`, `setns`, `clone`) only if the parent has no id in it.
fn namespace_of_child(parent: Pid) -> PidNamespace {
    match parent {
        Pid(0) => PidNamespace::of_this_process(AGENTS_NAMESPACE.load(Ordering::Relaxed)),
        _ => namespace(),
    }
}

/// After a fork, in the child.
pub(crate) fn forked() {
    // SAFETY: as in `notice_fork`.
    if let Some(page) = unsafe { FORK_PAGE.load(Ordering::Acquire).as_ref() } {
        became_child();
        page.store(NOT_FORKED, Ordering::Relaxed);
    } else {
        became_child();
    }
}

/// Notices that this process is a fork of the one that attached.
#[inline]
pub(crate) fn notice_fork() {
    let page = FORK_PAGE.load(Ordering::Acquire);
    // SAFETY: it is null or the page that `prepare_fork_page` mapped, which is never unmapped.
    let Some(page) = (unsafe { page.as_ref() }) else {
        return;
    };
    if page.load(Ordering::Relaxed) != NOT_FORKED {
        after_fork(page);
    }
}

#[cold]
fn after_fork(page: &AtomicU32) {
    became_child();
    page.store(NOT_FORKED, Ordering::Relaxed);
}

fn became_child() {
    NAMESPACE.store(
        namespace_of_child(syscalls::parent_pid()).bits(),
        Ordering::Relaxed,
    );
    FORKED.store(true, Ordering::Relaxed);
    IMAGE.store(0, Ordering::Relaxed);
    set_id();
}

/// Threads compare this with the process that they claimed their ring in.
fn set_id() {
    PID.store(syscalls::pid().0, Ordering::Relaxed);
}

/// The program's arguments, each ended by a zero byte; cut after [`ARGUMENTS_BYTES_MAX`].
pub(crate) fn arguments() -> &'static [u8] {
    let length = ARGUMENTS_BYTES.load(Ordering::Acquire);
    // SAFETY: the bytes are initialised, AtomicU8 has the layout of u8, and they are stored before
    // the length, once.
    let arguments =
        unsafe { std::slice::from_raw_parts(ARGUMENTS.as_ptr().cast::<u8>(), ARGUMENTS.len()) };
    arguments.get(..length).unwrap_or(&[])
}

/// What the dynamic linker gave to the library's constructor; null before.
static GIVEN_ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(null_mut());

/// Takes the program's arguments from the dynamic linker. To be called before [`prepare`].
///
/// # Safety
/// `arguments` is null or the array that programs get as `argv`.
pub(crate) unsafe fn given_arguments(arguments: *const *const c_char) {
    GIVEN_ARGUMENTS.store(arguments.cast_mut(), Ordering::Release);
}

fn read_arguments() {
    let given = GIVEN_ARGUMENTS.load(Ordering::Acquire);
    let length = if given.is_null() {
        // A constructor of another library made the first call.
        read_arguments_from_proc()
    } else {
        // SAFETY: the dynamic linker gave it, and no program code has run that could change it.
        unsafe { copy_arguments(given) }
    };
    ARGUMENTS_BYTES.store(length, Ordering::Release);
}

/// # Safety
/// `arguments` is a null-terminated array of C strings.
unsafe fn copy_arguments(arguments: *const *const c_char) -> usize {
    let mut length = 0;
    for at in 0.. {
        // SAFETY: the end of the array has not been reached.
        let argument = unsafe { arguments.wrapping_add(at).read() };
        if argument.is_null() || length == ARGUMENTS.len() {
            break;
        }
        // SAFETY: as the caller says.
        let bytes = unsafe { CStr::from_ptr(argument) }.to_bytes_with_nul();
        for (to, from) in ARGUMENTS.iter().skip(length).zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        length = (length + bytes.len()).min(ARGUMENTS.len());
    }
    length
}

fn read_arguments_from_proc() -> usize {
    let Ok(file) = syscalls::open(c"/proc/self/cmdline", libc::O_RDONLY) else {
        return 0;
    };
    let mut buffer = [0; ARGUMENTS_BYTES_MAX];
    let length = syscalls::read(file, &mut buffer).unwrap_or(0);
    syscalls::close(file);
    for (to, from) in ARGUMENTS.iter().zip(buffer.iter().take(length)) {
        to.store(*from, Ordering::Relaxed);
    }
    length
}

fn prepare_fork_page() {
    let bytes = page_bytes() as usize;
    let Ok(page) = syscalls::map(bytes, None) else {
        return;
    };
    // SAFETY: the page was just mapped and belongs to nobody else.
    if unsafe { syscalls::advise(page, bytes, libc::MADV_WIPEONFORK) }.is_err() {
        return;
    }
    let page = page.cast::<AtomicU32>();
    // SAFETY: a page is larger than the word, aligned for it, and zeroed, which is a value.
    unsafe { &*page }.store(NOT_FORKED, Ordering::Relaxed);
    FORK_PAGE.store(page, Ordering::Release);
}
