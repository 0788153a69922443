//! What this process sees of the agent's replicas, and whether they may serve its reads at all.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread::LocalKey;

use hither_kernel::syscalls;
use hither_session::memory_limits::MemoryLimit;
use hither_session::program_session::ProgramSession;
use hither_session::replica::SERVED_EACH;
use hither_session::replica::view::View;

use super::table::TABLE;
use crate::arena;

static VIEW: AtomicPtr<View> = AtomicPtr::new(std::ptr::null_mut());
/// glibc's word on whether there is one thread only, where it has one (2.32).
static SINGLE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Has reads served in this process from now on, where there is something to serve them from. Opens
/// files; to be called when the library is loaded.
pub(crate) fn start(session: &ProgramSession) {
    if !session.files() || !session.has_replicas() {
        return;
    }
    // A program that may have little address space has other uses for it.
    if MemoryLimit::AddressSpace.is_set() || !arena::open() {
        return;
    }
    arena::apart(&mut || {
        let Some(view) = session.replicas() else {
            return;
        };
        if !TABLE.open() {
            return;
        }
        // SAFETY: the name is a C string.
        let single = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        SINGLE.store(single.cast(), Ordering::Relaxed);
        // Not in this thread's arena: other threads go on when it ends.
        let Ok(place) = syscalls::map(size_of::<View>(), None) else {
            return;
        };
        let place = place.cast::<View>();
        // SAFETY: the mapping is new, long enough, and aligned to a page.
        unsafe { place.write(view) };
        VIEW.store(place, Ordering::Release);
    });
}

/// No read is served in this process any more.
pub(crate) fn stop() {
    VIEW.store(std::ptr::null_mut(), Ordering::Release);
}

/// No read is served in this process any more, and the replicas take no address space.
pub(crate) fn give_up() {
    if let Some(view) = view() {
        stop();
        view.close();
    }
}

/// As [`give_up`], and nothing is left.
///
/// # Safety
/// There is no other thread, and this one is not at a read.
pub(crate) unsafe fn unmap() {
    if let Some(view) = view() {
        stop();
        // SAFETY: nobody has the view, as the caller says.
        unsafe { view.unmap() };
        let place = std::ptr::from_ref(view).cast_mut().cast();
        // SAFETY: as above.
        unsafe { syscalls::unmap(place, size_of::<View>()) };
    }
    // SAFETY: as above.
    unsafe { TABLE.unmap() };
}

/// Whether there is anything to serve reads from.
#[inline]
pub(crate) fn may_serve() -> bool {
    !VIEW.load(Ordering::Relaxed).is_null()
}

/// The view, where there is one.
#[inline]
pub(super) fn view() -> Option<&'static View> {
    // SAFETY: it is null or the view made by `start`, which is never freed.
    unsafe { VIEW.load(Ordering::Acquire).as_ref() }
}

/// Whether there is one thread only.
#[inline]
pub(crate) fn single_threaded() -> bool {
    let single = SINGLE.load(Ordering::Relaxed);
    // SAFETY: it is null or glibc's variable, which only ever changes when a thread is made or
    // joined.
    !single.is_null() && unsafe { single.read_volatile() } != 0
}

/// Counts a served call in `served`; whether it is the one in [`SERVED_EACH`] that is recorded.
#[inline]
pub(super) fn is_recorded(served: &'static LocalKey<Cell<u32>>) -> bool {
    let count = served.get() + 1;
    served.set(count % SERVED_EACH);
    count == SERVED_EACH
}
