//! The session that this process records into: attached once, at the first hooked call or when the
//! library is loaded, and ended for good when the program confines itself.
//!
//! This is the bottom of the library. It knows no feature: [`crate::lifecycle`] starts them.

use std::cell::{Cell, UnsafeCell};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

use hither_kernel::syscalls;
use hither_session::preload;
use hither_session::program_session::ProgramSession;

use crate::process;

const UNTRIED: u8 = 0;
const TRYING: u8 = 1;
const ON: u8 = 2;
const OFF: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(UNTRIED);
static SESSION: Session = Session(UnsafeCell::new(MaybeUninit::uninit()));

struct Session(UnsafeCell<MaybeUninit<ProgramSession>>);

// SAFETY: it is written once, before STATE becomes ON, and only read after.
unsafe impl Sync for Session {}

/// The session, if this process is attached to one and it still takes events.
#[inline]
pub(crate) fn current() -> Option<&'static ProgramSession> {
    current_or_attach(|| false)
}

/// The session, as [`current`]. Where the process has not tried to attach yet, `attach` does that
/// and returns whether it could.
#[inline]
pub(crate) fn current_or_attach(attach: impl FnOnce() -> bool) -> Option<&'static ProgramSession> {
    if STATE.load(Ordering::Acquire) != ON && !attach() {
        return None;
    }
    // SAFETY: STATE was ON, or `attach` has seen that it is, so the cell was written, and it is
    // never written again.
    let cell = unsafe { &*SESSION.0.get() };
    // SAFETY: as above.
    let session = unsafe { cell.assume_init_ref() };
    session.recording().then_some(session)
}

/// Attaches to the session that the environment names, and has `start` set up what else is needed
/// before anything is recorded; once, whatever comes of it. Returns whether the process is
/// attached.
#[cold]
pub(crate) fn attach_once(start: impl FnOnce(&'static ProgramSession)) -> bool {
    if STATE
        .compare_exchange(UNTRIED, TRYING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return STATE.load(Ordering::Acquire) == ON;
    }
    let session = open();
    let is_on = session.is_some();
    if let Some(session) = session {
        // SAFETY: STATE is TRYING, which only one thread ever sets, so nobody else is here or reads
        // the cell.
        let session = unsafe { (*SESSION.0.get()).write(session) };
        start(session);
    }
    STATE.store(if is_on { ON } else { OFF }, Ordering::Release);
    is_on
}

fn open() -> Option<ProgramSession> {
    // SAFETY: the variable is a C string. No other thread can be changing the environment when the
    // first hook of the process runs; it is read in the library's constructor unless another
    // constructor makes a call before.
    let name = unsafe { libc::getenv(preload::SESSION.as_ptr()) };
    if name.is_null() {
        return None;
    }
    // SAFETY: getenv returned a C string.
    ProgramSession::open(unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// Whether this process is attached; the session may have ended since.
pub(crate) fn is_attached() -> bool {
    STATE.load(Ordering::Acquire) == ON
}

/// Detaches this process for good.
pub(crate) fn detach() {
    STATE.store(OFF, Ordering::Release);
}

/// Detaches this process for good, and the session from its memory.
///
/// # Safety
/// There is no other thread, and nothing of the session is in use.
pub(crate) unsafe fn unmap() {
    if STATE.swap(OFF, Ordering::AcqRel) == ON {
        // SAFETY: STATE was ON, so the cell was written, and it is never written again.
        let cell = unsafe { &*SESSION.0.get() };
        // SAFETY: as above.
        let session = unsafe { cell.assume_init_ref() };
        // SAFETY: as the caller says, and nobody gets at it any more.
        unsafe { session.detach() };
    }
}

/// Whether it matters here which file a descriptor stands for: accesses are recorded, or their
/// pages placed.
#[inline]
pub(crate) fn tracks_descriptors() -> bool {
    current().is_some_and(|session| session.files() || session.file_nodes() != 0)
}

thread_local! {
    /// Set when this thread makes a child that shares its memory. The child runs with the thread's
    /// variables, while the thread waits: who finds this set may be the one or the other.
    static MADE_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// This thread is about to make a child that shares the process's memory (`vfork`, `clone`).
pub(crate) fn makes_child_in_this_memory() {
    MADE_CHILD.set(true);
}

/// Whether this is the process whose descriptors the tables describe. False in the child of a
/// `vfork`, whose descriptors are its own while its memory is its parent's.
#[inline]
pub(crate) fn owns_descriptors() -> bool {
    STATE.load(Ordering::Relaxed) == ON && tracks_descriptors() && owns_memory()
}

/// Whether this is the process that the memory belongs to. The kernel is asked only after a call
/// that makes a child which shares it.
#[inline]
pub(crate) fn owns_memory() -> bool {
    !MADE_CHILD.get() || ask_who_owns_memory()
}

#[cold]
fn ask_who_owns_memory() -> bool {
    let owns = process::id() == syscalls::pid();
    if owns {
        MADE_CHILD.set(false);
    }
    owns
}
