//! Tells the features what happens to the process and its descriptors: attached, opened, shared,
//! closed, forked, replaced by another program, confined.
//!
//! Hooks call this module, and this module calls the features. No feature imports it, so that each
//! can be read alone.

use std::ffi::CStr;

use hither_ids::FileKey;
use hither_kernel::syscalls;
use hither_session::memory_limits::{self, MemoryLimit};
use hither_session::program_session::ProgramSession;
use hither_session::record::Record;

use crate::files::Known;
use crate::{
    access, exec_environment, files, opened, process, read_placement, readahead, real, replicas,
    resident_filter, session, signature, thread,
};

/// The session, if this process records. Attaches at the first call: other constructors make hooked
/// calls before the one of this library runs.
#[inline]
pub(crate) fn session() -> Option<&'static ProgramSession> {
    session::current_or_attach(start)
}

/// The session, if this process records its accesses to files, and for now.
#[inline]
pub(crate) fn files_session() -> Option<&'static ProgramSession> {
    session().filter(|session| session.files() && !session.is_paused())
}

/// Accesses to files are not recorded: the agent pauses, or is gone. What was done to descriptors
/// for it is undone, in the second case for good.
///
/// While the agent pauses, each call comes here.
#[inline]
pub(crate) fn unrecorded() {
    files::forget_positions();
    if readahead::is_any_disabled() || session().is_none() {
        stop_readahead();
    }
}

#[cold]
#[inline(never)]
fn stop_readahead() {
    match session() {
        Some(_) => readahead::enable_all(),
        None => readahead::stop(),
    }
}

/// Attaches to the session that the environment names; once, whatever comes of it.
#[cold]
pub(crate) fn start() -> bool {
    session::attach_once(attached)
}

/// Sets up what is needed before anything is recorded.
fn attached(session: &'static ProgramSession) {
    real::find_all();
    signature::prepare();
    files::TABLE.open();
    exec_environment::remember();
    process::prepare(session);
    // The fork page tells every kind of fork, but only when somebody looks; a child of `vfork` must
    // not be the first to look. SAFETY: the handler only does what every hook does.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(were_all_shared),
            Some(in_forked_child),
        )
    };
    thread::prepare();
    // Should the unwinder panic, it is caught, but must not write to the program's stderr.
    std::panic::set_hook(Box::new(|_| {}));
    #[cfg(feature = "pages")]
    crate::pages::start(session);
}

/// Starts the features that follow descriptors. They need every closing of a descriptor to be seen,
/// those of streams as well. To be called when the library is loaded: they open files.
pub(crate) fn start_descriptor_features(session: &'static ProgramSession) {
    replicas::start(session);
    read_placement::start(session);
    readahead::start(session);
}

/// Ends the recording in this process for good: from here on the library makes no system call that
/// the program did not ask for.
pub(crate) fn stop() {
    session::detach();
    replicas::stop();
    read_placement::stop();
    readahead::stop();
    #[cfg(feature = "pages")]
    crate::pages::stop();
}

/// The limits on this process's memory may have changed. Where little is left, the recording ends,
/// and what it has taken is given back.
pub(crate) fn memory_was_limited() {
    // The limits of the child of a `vfork` are its own, and its memory is its parent's.
    if !session::is_attached() || !session::owns_memory() {
        return;
    }
    if !memory_limits::leave_room() {
        give_up();
    } else if MemoryLimit::AddressSpace.is_set() && replicas::may_serve() {
        if is_alone() {
            // SAFETY: there is one thread, which is here and not at a read.
            unsafe { replicas::unmap() };
        } else {
            replicas::give_up();
        }
    }
}

/// Whether nobody but this thread can be at what this library has mapped.
fn is_alone() -> bool {
    syscalls::is_single_threaded() && !files::are_untraceable() && thread::is_outside()
}

/// The program is about to lock all of its memory, ours with it.
pub(crate) fn memory_will_be_locked() {
    let is_ours = session::is_attached() && session::owns_memory();
    if is_ours && !MemoryLimit::Locked.has_room() {
        give_up();
    }
}

/// Ends the recording in this process for good, and gives back its memory: of a process with
/// several threads, whose others may be at it, that of the replicas alone.
fn give_up() {
    if !is_alone() {
        replicas::give_up();
        return stop();
    }
    // While the session is there, which gets the thread's ring back.
    thread::give_up();
    readahead::enable_all();
    // SAFETY: there is one thread, which has no state any more: it is here in a hook that has made
    // its call, and holds nothing.
    unsafe { unmap() };
    stop();
}

/// Unmaps all that this library has mapped but for what it needs to pass calls on.
///
/// # Safety
/// There is no other thread, and this one is at no other work of this library's.
unsafe fn unmap() {
    // SAFETY: as the caller says.
    unsafe { session::unmap() };
    // SAFETY: as above.
    unsafe { replicas::unmap() };
    // SAFETY: as above.
    unsafe { resident_filter::unmap() };
    // SAFETY: as above.
    unsafe { readahead::TABLE.unmap() };
    // SAFETY: as above.
    unsafe { files::TABLE.unmap() };
}

/// The program has just got `fd`, in a way of which nothing is known.
pub(crate) fn made(fd: i32) {
    closed(fd);
    files::opened(fd, false);
}

/// The program has just opened `fd` by a path, relative to the directory behind `at`.
pub(crate) fn opened(fd: i32, at: i32, path: &CStr, flags: i32) {
    closed(fd);
    let session = files_session();
    // Where reads are not reported now, or are served from replicas, nobody knows positions. What
    // is appended is at the end of the file, wherever that is.
    let is_reported = session.is_some() && !replicas::may_serve();
    files::opened(fd, is_reported && flags & libc::O_APPEND == 0);
    // What has no bytes is no file, and may have no name.
    if flags & (libc::O_DIRECTORY | libc::O_PATH) == 0
        && let Some(session) = session
    {
        opened::define(session, fd, at, path);
        if flags & libc::O_DIRECT != 0
            && let Known::File(object) = files::known(fd)
        {
            thread::push_apart(
                session,
                &Record::Direct {
                    object: FileKey(object),
                },
            );
        }
    }
}

/// `fd` is closed or replaced: all that is known of it is forgotten.
pub(crate) fn closed(fd: i32) {
    replicas::TABLE.forget(fd);
    resident_filter::TABLE.forget(fd);
    readahead::TABLE.forget(fd);
    files::TABLE.forget(fd);
}

/// As [`closed`], of every descriptor from `first` to `last`.
pub(crate) fn closed_range(first: u32, last: u32) {
    replicas::TABLE.forget_range(first, last);
    resident_filter::TABLE.forget_range(first, last);
    readahead::TABLE.forget_range(first, last);
    files::TABLE.forget_range(first, last);
}

/// What `fd` stands for is another descriptor's, too, in this process or another.
pub(crate) fn shared(fd: i32) {
    files::shared(fd);
    readahead::leave(fd);
}

/// Another process is about to get all descriptors.
pub(crate) fn all_shared() {
    files::all_shared();
    readahead::enable_all();
}

/// The program has moved the position of `fd`.
pub(crate) fn sought(fd: i32, position: u64) {
    files::sought(fd, position);
}

/// From here on the position of `fd` moves unseen.
pub(crate) fn position_unfollowed(fd: i32) {
    files::forget_position(fd);
}

/// The flags of a descriptor's open file description have changed, or are about to. A file is asked
/// about anew at its next use: it may bypass the page cache from then on.
pub(crate) fn flags_changed(fd: i32) {
    files::forget_position(fd);
    if let Known::File(_) = files::known(fd) {
        files::TABLE.forget(fd);
    }
    replicas::TABLE.forget(fd);
}

/// This thread is about to make a child that shares the process's memory, and perhaps more.
pub(crate) fn makes_child_in_this_memory() {
    session::makes_child_in_this_memory();
}

/// From here on it is not known which threads and processes share descriptors or memory, or an
/// io_uring opens and closes descriptors unseen.
pub(crate) fn descriptors_untraceable() {
    files::all_untraceable();
    readahead::stop();
}

/// From here on a number may mean one file to one thread and another to the next.
pub(crate) fn descriptors_unshared() {
    descriptors_untraceable();
    read_placement::stop();
    files::TABLE.close();
}

/// The program that is about to take this one's place gets its descriptors.
pub(crate) fn before_exec() {
    readahead::enable_all();
}

extern "C" fn before_fork() {
    // A process that was itself made without this handler learns of it before its children. One
    // that has confined itself may not be allowed to ask who it is.
    if session::is_attached() {
        process::notice_fork();
    }
    all_shared();
}

/// Another process has got all descriptors, also those that other threads have opened since it was
/// about to.
pub(crate) extern "C" fn were_all_shared() {
    files::all_shared();
}

extern "C" fn in_forked_child() {
    // A program that has confined itself may not be allowed to ask whose child it is.
    if session::is_attached() {
        process::forked();
    }
    access::forked();
    replicas::forked();
    #[cfg(feature = "pages")]
    crate::pages::forked();
}
