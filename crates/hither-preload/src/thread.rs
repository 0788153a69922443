//! What each thread needs to record: its ring, its stack walker, and the guard against recording
//! inside the recorder.
//!
//! Nothing here touches `errno`, takes a lock, allocates from the program's heap or waits.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use hither_ids::Pid;
use hither_kernel::process::monotonic_ns;
use hither_kernel::syscalls;
use hither_kernel::this_process;
use hither_session::program_session::{Producer, ProgramSession, Pushed, moved};
use hither_session::record::Record;

use crate::open_buffers::Buffers;
use crate::signature::{Caller, Walker};
use crate::{arena, process, session};

/// Unless the library was loaded early enough to get one of the first 32 thread-specific keys,
/// setting one may allocate.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

static THREAD_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Destructors of the program's that run after ours may read, which makes the state anew; then ours
/// runs again, but no more than four times (`PTHREAD_DESTRUCTOR_ITERATIONS`). What is made after
/// that would never go.
const ENDINGS_MAX: u8 = 3;

/// A stack address that no thread has: the thread is not inside the recorder.
const OUTSIDE: usize = 0;

/// Two addresses no further apart than this are taken to be on one stack: a handler's alternative
/// stack hardly ever lies that closely above the stack that it interrupts.
const SAME_STACK_BYTES: usize = 256 << 10;

/// Events that a thread skips after it found no free ring, before it asks for one again.
const SKIPPED_WITHOUT_RING: u32 = 1000;

thread_local! {
    static THREAD: Cell<*mut Thread> = const { Cell::new(null_mut()) };
    /// The stack address at which this thread entered the recorder: a hook that finds it set runs
    /// in a signal handler that interrupted the recorder.
    static INSIDE: Cell<usize> = const { Cell::new(OUTSIDE) };
    /// How often this thread's state was taken away at its end.
    static ENDINGS: Cell<u8> = const { Cell::new(0) };
}

/// What a thread needs to record.
pub(crate) struct Thread {
    producer: Option<Producer>,
    /// Events to skip before asking for a ring again, after there was none.
    patience: u32,
    /// The process that the ring was claimed in.
    pid: Pid,
    walker: Walker,
    opened: Box<Buffers>,
}

/// Has threads give their rings back when they end. To be called once, when the process attaches.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: the key is a local, and the destructor has the type that is asked for.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(end_of_thread)) };
    if made == 0 && key < KEYS_WITHOUT_ALLOCATION {
        THREAD_KEY.store(key, Ordering::Relaxed);
    }
}

/// Runs `hot` with this thread's state, and `cold` if that says that it could not do it all;
/// neither, if the thread is inside already, which is counted as an access that is lost. `hot`
/// makes do with the little stack that the program may have left; `cold` has one of its own, where
/// no signal interrupts it.
#[inline]
pub(crate) fn with_thread(
    session: &'static ProgramSession,
    hot: impl FnOnce(&mut Thread) -> bool,
    cold: impl FnMut(&mut Thread),
) {
    if !enter(session, hot, cold) {
        // SAFETY: the pointer is this thread's own, whose state is not changed here.
        let thread = unsafe { THREAD.get().as_ref() };
        if let Some(Thread {
            producer: Some(producer),
            ..
        }) = thread
        {
            session.count_nested(producer);
        }
    }
}

/// As [`with_thread`], but returns whether the thread was not inside already, and counts nothing.
#[inline]
pub(crate) fn enter(
    session: &'static ProgramSession,
    hot: impl FnOnce(&mut Thread) -> bool,
    mut cold: impl FnMut(&mut Thread),
) -> bool {
    let here = (&raw const hot).addr();
    let outer = INSIDE.get();
    if outer != OUTSIDE && !abandoned(here, outer) {
        return false;
    }
    INSIDE.set(here);
    compiler_fence(Ordering::SeqCst);
    process::notice_fork();
    // SAFETY: it is null or this thread's own, and INSIDE keeps any other reference away.
    let thread = unsafe { THREAD.get().as_mut() };
    let done = thread.is_some_and(|thread| thread.pid == process::last_id() && hot(thread));
    if !done && ENDINGS.get() < ENDINGS_MAX && arena::open() {
        arena::apart(&mut || {
            // SAFETY: as above.
            let Some(thread) = (unsafe { this_thread().as_mut() }) else {
                return;
            };
            thread.settle();
            cold(thread);
            thread.leave_if_not_ours(session);
        });
    }
    compiler_fence(Ordering::SeqCst);
    INSIDE.set(OUTSIDE);
    true
}

/// Whether the call that entered the recorder at stack address `outer` will never return, since
/// this one stands there or further up the same stack: a signal handler that interrupted it has
/// left by `siglongjmp`. That can only have been in the hot part, which reads, and writes a record
/// that nobody sees before it is whole: the thread's state is good.
#[inline]
fn abandoned(here: usize, outer: usize) -> bool {
    here >= outer && here - outer < SAME_STACK_BYTES
}

/// This thread's state, made where there is none yet; the thread's arena is open.
fn this_thread() -> *mut Thread {
    let known = THREAD.get();
    if !known.is_null() {
        return known;
    }
    let thread = Box::into_raw(Box::new(Thread {
        producer: None,
        patience: 0,
        pid: process::last_id(),
        walker: Walker::new(),
        opened: Buffers::boxed(),
    }));
    THREAD.set(thread);
    let key = THREAD_KEY.load(Ordering::Relaxed);
    if key != u32::MAX {
        // SAFETY: the key was made by `prepare`; its value is only ever given to `end_of_thread`.
        unsafe { libc::pthread_setspecific(key, thread.cast()) };
    }
    thread
}

unsafe extern "C" fn end_of_thread(thread: *mut c_void) {
    ENDINGS.set(ENDINGS.get().saturating_add(1));
    // SAFETY: the value of the key is only ever this thread's state.
    unsafe { end(thread.cast()) };
}

/// Whether this is no signal handler that interrupted the recorder.
pub(crate) fn is_outside() -> bool {
    INSIDE.get() == OUTSIDE
}

/// Takes the calling thread's state away, as if it ended, unless the thread is at work with it.
pub(crate) fn give_up() {
    let thread = THREAD.get();
    if thread.is_null() || !is_outside() {
        return;
    }
    let key = THREAD_KEY.load(Ordering::Relaxed);
    if key != u32::MAX {
        // SAFETY: the key was made by `prepare`, and setting null allocates nothing.
        unsafe { libc::pthread_setspecific(key, null_mut()) };
    }
    // SAFETY: it is this thread's, which is not inside, and nothing else refers to it now.
    unsafe { end(thread) };
}

/// # Safety
/// It is the calling thread's state, which no other call of this thread uses.
unsafe fn end(thread: *mut Thread) {
    // Above every stack, so that nothing takes it for abandoned.
    INSIDE.set(usize::MAX);
    if session::is_attached() {
        process::notice_fork();
    }
    THREAD.set(null_mut());
    // SAFETY: it is the pointer that `this_thread` made for this thread, which has just lost it.
    let producer = unsafe { (*thread).producer.take() };
    if let (Some(session), Some(producer)) = (session::current(), producer) {
        session.release(producer);
    }
    // A program that has confined itself may not be allowed to unmap.
    if session::is_attached() {
        // SAFETY: everything that the thread's state refers to lies in its arena, and nothing
        // refers to the state any more.
        unsafe { arena::close() };
    }
    INSIDE.set(OUTSIDE);
}

impl Thread {
    /// Lets go of what a fork has left behind.
    fn settle(&mut self) {
        let pid = process::last_id();
        if self.pid != pid {
            // The ring is the parent's, and stays it.
            (self.pid, self.producer, self.patience) = (pid, None, 0);
        }
    }

    /// The child of a `vfork` runs with its parent's memory: a ring that it claimed carries its
    /// process id and must not be the parent's afterwards.
    fn leave_if_not_ours(&mut self, session: &ProgramSession) {
        let ours = |producer: &mut Producer| producer.pid() == process::last_id();
        if let Some(producer) = self.producer.take_if(|producer| !ours(producer)) {
            session.release(producer);
        }
    }

    /// The thread's ring, if it has one, and what it needs to define files.
    pub(crate) fn for_opened(&mut self) -> Option<(&mut Producer, &mut Buffers)> {
        Some((self.producer.as_mut()?, &mut self.opened))
    }

    /// The signature of the call site and the thread's ring, where the one is remembered and the
    /// thread has the other.
    #[inline]
    pub(crate) fn remembered(&mut self, caller: Caller) -> Option<(u64, &mut Producer)> {
        // SAFETY: the trampoline of the running hook made `caller` from its own frame, which is
        // still live.
        let signature = unsafe { self.walker.remembered(caller) };
        signature.zip(self.producer.as_mut())
    }

    /// Finds the call site, and defines it where it is new.
    pub(crate) fn signature(&mut self, session: &ProgramSession, caller: Caller) -> u64 {
        let Thread {
            producer,
            patience,
            walker,
            ..
        } = self;
        let mut push = |record: &Record<'_>| push_into(producer, patience, session, record);
        // SAFETY: the trampoline of the running hook made `caller` from its own frame, which is
        // still live.
        unsafe { walker.signature(caller, session.frames_max(), &mut push) }
    }

    /// Claims a ring, if the thread has none.
    pub(crate) fn claim_ring(&mut self, session: &ProgramSession) {
        if self.producer.is_none() {
            self.producer = claim(session, &mut self.patience);
        }
    }

    /// Pushes a record into this thread's ring, claiming one first where it has none. Returns
    /// whether the ring took it.
    pub(crate) fn push(&mut self, session: &ProgramSession, record: &Record<'_>) -> bool {
        push_into(&mut self.producer, &mut self.patience, session, record)
    }
}

fn push_into(
    producer: &mut Option<Producer>,
    patience: &mut u32,
    session: &ProgramSession,
    record: &Record<'_>,
) -> bool {
    for _ in 0..2 {
        if producer.is_none() {
            *producer = claim(session, patience);
        }
        let Some(claimed) = producer else {
            break;
        };
        match session.push_record(claimed, record) {
            Pushed::Taken => return true,
            Pushed::Full => return false,
            Pushed::NoRing => *producer = None,
        }
    }
    if let Some(bytes) = moved(record) {
        session.count_no_ring(bytes);
    }
    false
}

#[cold]
fn claim(session: &ProgramSession, patience: &mut u32) -> Option<Producer> {
    if *patience > 0 {
        *patience -= 1;
        return None;
    }
    let (pid, tid, parent) = (syscalls::pid(), syscalls::tid(), syscalls::parent_pid());
    let identity = process::identity(session, pid, parent);
    let Some(mut producer) = session.claim(pid, tid, identity.namespace) else {
        *patience = SKIPPED_WITHOUT_RING;
        return None;
    };
    let record = Record::Process {
        pid,
        parent,
        image: identity.image,
        forked: identity.forked,
        time_ns: monotonic_ns(),
        exe: this_process::exe(),
        args: process::arguments(),
    };
    session.push_record(&mut producer, &record);
    Some(producer)
}

/// Announces this process, by claiming its main thread's ring: a program that touches no file is
/// recorded all the same, and the agent must be able to distinguish it from one that cannot be.
pub(crate) fn announce(session: &'static ProgramSession) {
    with_thread(
        session,
        |thread| thread.producer.is_some(),
        |thread| thread.claim_ring(session),
    );
}

/// Records an event that is no access to a file.
#[cfg(feature = "pages")]
pub(crate) fn push(session: &'static ProgramSession, record: &Record<'_>) {
    with_thread(
        session,
        |thread| {
            let push = |producer| session.push_record(producer, record) != Pushed::NoRing;
            thread.producer.as_mut().is_some_and(push)
        },
        |thread| {
            thread.push(session, record);
        },
    );
}

/// As [`push`], of a rare event that may be large: always on the recorder's own stack.
pub(crate) fn push_apart(session: &'static ProgramSession, record: &Record<'_>) {
    with_thread(
        session,
        |_| false,
        |thread| {
            thread.push(session, record);
        },
    );
}

/// The signature of a call site, which is defined where it is new. `None` in a signal
/// handler that interrupted the recorder, or if there is no memory.
#[cfg(feature = "pages")]
pub(crate) fn signature(session: &'static ProgramSession, caller: Caller) -> Option<u64> {
    let found = Cell::new(None);
    with_thread(
        session,
        |thread| {
            // SAFETY: the trampoline of the running hook made `caller` from its own frame, which is
            // still live.
            found.set(unsafe { thread.walker.remembered(caller) });
            found.get().is_some()
        },
        |thread| found.set(Some(thread.signature(session, caller))),
    );
    found.get()
}

/// The CPU that this runs on.
pub(crate) fn cpu() -> u16 {
    // SAFETY: no arguments; it reads a word that the kernel keeps for the thread.
    unsafe { libc::sched_getcpu() as u16 }
}
