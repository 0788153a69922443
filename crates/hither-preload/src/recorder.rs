//! The recorder inside a program: its session, and what each thread needs to record into it.
//!
//! The order of things in a hook: the real call, then [`access`]. Nothing here touches `errno`,
//! takes a lock, allocates from the program's heap or waits.
//!
//! Forks are found out, not followed: a page that the kernel wipes in forked children
//! (`MADV_WIPEONFORK`) tells a child at its first event, however it was made, that the ring it
//! remembers is its parent's. A `vfork` child shares all memory with its parent instead, and is
//! told apart by its process id.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use hither_sys::process::{monotonic_ns, tick_ns};
use hither_sys::program_session::{Producer, ProgramSession, Pushed};
use hither_sys::record::{Op, Record};
use hither_sys::{syscalls, this_process};

use crate::signature::{self, Caller, Walker};
use crate::{arena, descriptors, files, hooks, read_placement, readahead, real, replicas};

/// Names the session's segment in the environment.
const SESSION_VARIABLE: &CStr = c"HITHER_SESSION";

/// Unless the library was loaded early enough to get one of the first 32 thread-specific keys,
/// setting one may allocate.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

const UNTRIED: u8 = 0;
const TRYING: u8 = 1;
const ON: u8 = 2;
const OFF: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(UNTRIED);
static SESSION: Session = Session(UnsafeCell::new(MaybeUninit::uninit()));
/// Holds [`NOT_FORKED`] until a fork wipes it.
static FORK_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
static THREAD_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// The program's arguments, read once: opening a file later could take a descriptor that another
/// thread counts on.
static ARGUMENTS: [AtomicU8; 1024] = [const { AtomicU8::new(0) }; 1024];
static ARGUMENTS_BYTES: AtomicUsize = AtomicUsize::new(0);

const NOT_FORKED: u32 = 1;

const OUTSIDE: usize = 0;

/// A block of a file.
#[derive(Clone, Copy)]
struct Latest {
    object: u64,
    block: u64,
    /// Of how many bits of offset a block is.
    bits: u32,
}

/// No file has that key.
const NOWHERE: Latest = Latest {
    object: 0,
    block: 0,
    bits: 0,
};

/// Two addresses no further apart than this are taken to be on one stack: a handler's alternative
/// stack hardly ever lies that closely above the stack that it interrupts.
const SAME_STACK_BYTES: usize = 256 << 10;

struct Session(UnsafeCell<MaybeUninit<ProgramSession>>);

// SAFETY: it is written once, before STATE becomes ON, and only read after.
unsafe impl Sync for Session {}

thread_local! {
    static THREAD: Cell<*mut Thread> = const { Cell::new(null_mut()) };
    /// Where on the stack this thread entered the recorder: a hook that finds it set runs in a
    /// signal handler that interrupted it.
    static INSIDE: Cell<usize> = const { Cell::new(OUTSIDE) };
    /// Where the thread's last recorded access ended, in a session whose agent counts references to
    /// blocks.
    static LATEST: Cell<Latest> = const { Cell::new(NOWHERE) };
}

/// What a thread needs to record.
struct Thread {
    producer: Option<Producer>,
    /// Events to skip before asking for a ring again, after there was none.
    patience: u32,
    /// The process that the ring was claimed in.
    pid: u32,
    walker: Walker,
}

/// The session, if this process records.
#[inline]
pub(crate) fn session() -> Option<&'static ProgramSession> {
    if STATE.load(Ordering::Acquire) != ON && !start() {
        return None;
    }
    // SAFETY: STATE was ON, so the cell was written, and it is never written again.
    let cell = unsafe { &*SESSION.0.get() };
    // SAFETY: as above.
    let session = unsafe { cell.assume_init_ref() };
    session.recording().then_some(session)
}

/// The session, if this process records its accesses to files.
#[inline]
pub(crate) fn files_session() -> Option<&'static ProgramSession> {
    session().filter(|session| session.files())
}

/// Whether it matters here which file a descriptor stands for: accesses are recorded, or their
/// pages placed.
#[inline]
pub(crate) fn follows_files() -> bool {
    session().is_some_and(|session| session.files() || session.file_nodes() != 0)
}

/// Follows which descriptors are read at random, if the agent wants that. To be called when the
/// library is loaded.
pub(crate) fn follow_read_ahead() {
    let session = files_session();
    // A program under a filter may be killed for a call that it does not make itself.
    if session.is_some_and(|session| session.tracks_readahead() && !session.is_confined()) {
        readahead::start();
    }
}

/// Attaches to the session that the environment names; once, whatever comes of it.
#[cold]
pub(crate) fn start() -> bool {
    if STATE
        .compare_exchange(UNTRIED, TRYING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return STATE.load(Ordering::Acquire) == ON;
    }
    let on = attach();
    STATE.store(if on { ON } else { OFF }, Ordering::Release);
    on
}

fn attach() -> bool {
    // SAFETY: the name is a C string. No other thread can be changing the environment when the
    // first hook of the process runs; it is read in the library's constructor unless another
    // constructor makes a call before.
    let path = unsafe { libc::getenv(SESSION_VARIABLE.as_ptr()) };
    if path.is_null() {
        return false;
    }
    // SAFETY: getenv returned a C string.
    let path = unsafe { CStr::from_ptr(path) };
    let Some(attached) = ProgramSession::open(path) else {
        return false;
    };
    if attached.is_confined() {
        signature::confine();
    }
    // SAFETY: STATE is TRYING, which only one thread ever sets, so nobody else is here or reads the
    // cell.
    unsafe { (*SESSION.0.get()).write(attached) };
    real::find_all();
    signature::prepare();
    files::TABLE.open();
    hooks::exec::remember();
    PID.store(syscalls::pid(), Ordering::Relaxed);
    read_arguments();
    prepare_fork_page();
    // The page tells every kind of fork, but only when somebody looks; a child of `vfork` must not
    // be the first to look. SAFETY: the handler only does what every hook does.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_forked_child)) };
    let mut key = 0;
    // SAFETY: the key is a local, and the destructor has the type that is asked for.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(end_of_thread)) };
    if made == 0 && key < KEYS_WITHOUT_ALLOCATION {
        THREAD_KEY.store(key, Ordering::Relaxed);
    }
    // Should the unwinder panic, it is caught, but must not write to the program's stderr.
    std::panic::set_hook(Box::new(|_| {}));
    #[cfg(feature = "pages")]
    {
        // SAFETY: nobody else writes the cell, as above.
        let cell = unsafe { &*SESSION.0.get() };
        // SAFETY: it was written above.
        crate::pages::start(unsafe { cell.assume_init_ref() });
    }
    true
}

extern "C" fn before_fork() {
    files::shared_by_all();
}

extern "C" fn in_forked_child() {
    PID.store(syscalls::pid(), Ordering::Relaxed);
    notice_fork();
    LATEST.set(NOWHERE);
    replicas::forked();
}

fn read_arguments() {
    let Ok(file) = syscalls::open(c"/proc/self/cmdline", libc::O_RDONLY) else {
        return;
    };
    let mut buffer = [0; 1024];
    let length = syscalls::read(file, &mut buffer).unwrap_or(0);
    syscalls::close(file);
    for (to, from) in ARGUMENTS.iter().zip(buffer.iter().take(length)) {
        to.store(*from, Ordering::Relaxed);
    }
    ARGUMENTS_BYTES.store(length, Ordering::Release);
    this_process::exe();
}

fn prepare_fork_page() {
    let Ok(page) = syscalls::map(4096, None) else {
        return;
    };
    // SAFETY: the page was just mapped and belongs to nobody else.
    if unsafe { syscalls::advise(page, 4096, libc::MADV_WIPEONFORK) }.is_err() {
        return;
    }
    let page = page.cast::<AtomicU32>();
    // SAFETY: a page is larger than the word, aligned for it, and zeroed, which is a value.
    unsafe { &*page }.store(NOT_FORKED, Ordering::Relaxed);
    FORK_PAGE.store(page, Ordering::Release);
}

/// Notices that this process is a fork of the one that attached.
#[inline]
fn notice_fork() {
    let page = FORK_PAGE.load(Ordering::Acquire);
    // SAFETY: it is null or the page made above, which is never unmapped.
    let Some(page) = (unsafe { page.as_ref() }) else {
        return;
    };
    if page.load(Ordering::Relaxed) != NOT_FORKED {
        after_fork(page);
    }
}

#[cold]
fn after_fork(page: &AtomicU32) {
    page.store(NOT_FORKED, Ordering::Relaxed);
    // Threads compare this with the process that they claimed their ring in.
    PID.store(syscalls::pid(), Ordering::Relaxed);
    // The parent's copy is the parent's to close.
    #[cfg(feature = "pages")]
    crate::pages::offer::take_back();
}

/// Whether this is the process whose descriptors the table describes. False in the child of a
/// `vfork`, whose descriptors are its own while its memory is its parent's.
pub(crate) fn owns_descriptors() -> bool {
    if STATE.load(Ordering::Relaxed) != ON || !follows_files() {
        return false;
    }
    process() == syscalls::pid()
}

/// The process whose memory this is: this one, but in the child of a `vfork` its parent.
pub(crate) fn process() -> u32 {
    notice_fork();
    PID.load(Ordering::Relaxed)
}

/// Runs `hot` with this thread's state, and `cold` if that says that it could not do it all;
/// neither, if the thread is inside already. `hot` makes do with the little stack that the program
/// may have left; `cold` has one of its own, where no signal interrupts it.
#[inline]
fn with_thread(
    session: &'static ProgramSession,
    hot: impl FnOnce(&mut Thread) -> bool,
    mut cold: impl FnMut(&mut Thread),
) {
    let here = (&raw const hot).addr();
    let outer = INSIDE.get();
    if outer != OUTSIDE && !abandoned(here, outer) {
        // SAFETY: the pointer is this thread's own, whose state is not changed here.
        let thread = unsafe { THREAD.get().as_ref() };
        if let Some(Thread {
            producer: Some(producer),
            ..
        }) = thread
        {
            session.count_nested(producer);
        }
        return;
    }
    INSIDE.set(here);
    compiler_fence(Ordering::SeqCst);
    notice_fork();
    // SAFETY: it is null or this thread's own, and INSIDE keeps any other reference away.
    let thread = unsafe { THREAD.get().as_mut() };
    let done =
        thread.is_some_and(|thread| thread.pid == PID.load(Ordering::Relaxed) && hot(thread));
    if !done && arena::open() {
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
}

/// Whether the call that entered the recorder at stack address `outer` will never return, since
/// this one stands there or further up the same stack: a signal handler that interrupted it has
/// left by `siglongjmp`. That can only have been in the hot part, which reads, and writes a record
/// that nobody sees before it is whole: the thread's state is good.
#[inline]
fn abandoned(here: usize, outer: usize) -> bool {
    here >= outer && here - outer < SAME_STACK_BYTES
}

/// This thread's state, made where there is none yet; the region is open.
fn this_thread() -> *mut Thread {
    let known = THREAD.get();
    if !known.is_null() {
        return known;
    }
    let thread = Box::into_raw(Box::new(Thread {
        producer: None,
        patience: 0,
        pid: PID.load(Ordering::Relaxed),
        walker: Walker::new(),
    }));
    THREAD.set(thread);
    let key = THREAD_KEY.load(Ordering::Relaxed);
    if key != u32::MAX {
        // SAFETY: the key was made by `attach`; its value is only ever given to `end_of_thread`.
        unsafe { libc::pthread_setspecific(key, thread.cast()) };
    }
    thread
}

unsafe extern "C" fn end_of_thread(thread: *mut c_void) {
    // Above every stack, so that nothing takes it for abandoned.
    INSIDE.set(usize::MAX);
    notice_fork();
    THREAD.set(null_mut());
    let thread = thread.cast::<Thread>();
    // SAFETY: it is the pointer that `this_thread` made for this thread, which has just lost it.
    let producer = unsafe { (*thread).producer.take() };
    if let (Some(session), Some(producer)) = (session(), producer) {
        session.release(producer);
    }
    // A program that has confined itself may not be allowed to unmap.
    if STATE.load(Ordering::Acquire) == ON {
        // SAFETY: everything that the thread's state refers to lies in its region, and nothing
        // refers to the state any more.
        unsafe { arena::close() };
    }
    INSIDE.set(OUTSIDE);
}

impl Thread {
    /// Lets go of what a fork has left behind.
    fn settle(&mut self) {
        let pid = PID.load(Ordering::Relaxed);
        if self.pid != pid {
            // The ring is the parent's, and stays it.
            (self.pid, self.producer, self.patience) = (pid, None, 0);
        }
    }

    /// The child of a `vfork` runs with its parent's memory: a ring that it claimed carries its
    /// process id and must not be the parent's afterwards.
    fn leave_if_not_ours(&mut self, session: &ProgramSession) {
        let ours = |producer: &mut Producer| producer.pid() == PID.load(Ordering::Relaxed);
        if let Some(producer) = self.producer.take_if(|producer| !ours(producer)) {
            session.release(producer);
        }
    }

    /// Pushes the access if its call site is remembered and the thread has a ring.
    #[inline]
    fn access_remembered(
        &mut self,
        session: &ProgramSession,
        mut access: Record<'_>,
        caller: Caller,
    ) -> bool {
        // SAFETY: the trampoline of the running hook made `caller` from its own frame, which is
        // still live.
        let remembered = unsafe { self.walker.remembered(caller) };
        let (Some(found), Some(producer)) = (remembered, &mut self.producer) else {
            return false;
        };
        if let Record::Access { signature, .. } = &mut access {
            *signature = found;
        }
        let pushed = session.push_record(producer, &access);
        if pushed == Pushed::Taken {
            remember(session, &access);
        }
        pushed != Pushed::NoRing
    }

    /// Finds the call site and pushes the access.
    fn access(&mut self, session: &ProgramSession, mut access: Record<'_>, caller: Caller) {
        let found = self.signature(session, caller);
        if let Record::Access { signature, .. } = &mut access {
            *signature = found;
        }
        if Thread::push(&mut self.producer, &mut self.patience, session, &access) {
            remember(session, &access);
        }
    }

    /// Finds the call site, and defines it where it is new.
    fn signature(&mut self, session: &ProgramSession, caller: Caller) -> u64 {
        let Thread {
            producer,
            patience,
            walker,
            ..
        } = self;
        let mut push = |record: &Record<'_>| Thread::push(producer, patience, session, record);
        // SAFETY: the trampoline of the running hook made `caller` from its own frame, which is
        // still live.
        unsafe { walker.signature(caller, session.frames_max(), &mut push) }
    }

    /// Pushes a record into this thread's ring, claiming one first where it has none.
    fn push(
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
                session.count_no_ring();
                return false;
            };
            match session.push_record(claimed, record) {
                Pushed::Taken => return true,
                Pushed::Full => return false,
                Pushed::NoRing => *producer = None,
            }
        }
        false
    }
}

#[cold]
fn claim(session: &ProgramSession, patience: &mut u32) -> Option<Producer> {
    if *patience > 0 {
        *patience -= 1;
        return None;
    }
    let (pid, tid) = (syscalls::pid(), syscalls::tid());
    let Some(mut producer) = session.claim(pid, tid) else {
        *patience = 1000;
        return None;
    };
    let length = ARGUMENTS_BYTES.load(Ordering::Acquire);
    // SAFETY: the bytes are initialised, AtomicU8 has the layout of u8, and they are stored before
    // the length, once.
    let arguments =
        unsafe { std::slice::from_raw_parts(ARGUMENTS.as_ptr().cast::<u8>(), ARGUMENTS.len()) };
    let args = arguments.get(..length).unwrap_or(&[]);
    let record = Record::Process {
        pid,
        parent: syscalls::parent_pid(),
        time_ns: monotonic_ns(),
        exe: this_process::exe(),
        args,
    };
    session.push_record(&mut producer, &record);
    Some(producer)
}

/// Where in its file an access took place.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    /// At this offset.
    At(u64),
    /// Up to the descriptor's current offset, which the call has moved.
    BeforeCurrent,
}

/// Records that a call moved `length` bytes of the file behind `fd`, and returns the file's key;
/// `None` if its accesses are not recorded.
#[inline]
pub(crate) fn access(
    op: Op,
    flags: u16,
    fd: i32,
    position: Position,
    length: u64,
    caller: Caller,
) -> Option<u64> {
    if let (Op::Read, Position::At(offset)) = (op, position)
        && let Some(object) = already_reported(fd, offset, length)
    {
        return Some(object);
    }
    report(op, flags, fd, position, length, caller)
}

/// As [`access`], of what the agent has not been told. Apart, so that the way around it is short.
#[inline(never)]
fn report(
    op: Op,
    flags: u16,
    fd: i32,
    position: Position,
    length: u64,
    caller: Caller,
) -> Option<u64> {
    let Some(session) = files_session() else {
        // The agent is gone: what was done for it is taken back.
        readahead::stop();
        return None;
    };
    let known = files::known(fd);
    if let Some(Some(object)) = known
        && session.is_unrecorded(object)
    {
        return Some(object);
    }
    let key = Cell::new(None);
    with_thread(
        session,
        |thread| {
            let Some(known) = known else {
                return false;
            };
            // A file that is not recorded is done with here; so is one whose descriptor has come to
            // mean something else.
            let Some(access) =
                known.and_then(|object| describe(session, op, flags, fd, object, position, length))
            else {
                return true;
            };
            key.set(known);
            follow(session, fd, &access);
            thread.access_remembered(session, access, caller)
        },
        |thread| {
            let Thread {
                producer, patience, ..
            } = thread;
            let mut define =
                |record: &Record<'_>| Thread::push(producer, patience, session, record);
            let found = files::look_up(fd, owns_descriptors(), &mut define);
            if let Some(access) =
                found.and_then(|object| describe(session, op, flags, fd, object, position, length))
            {
                key.set(found);
                thread.access(session, access, caller);
            }
        },
    );
    key.get()
}

/// Has the kernel read ahead through a descriptor, or not, as it is read. Comes before the access
/// is remembered.
#[inline]
fn follow(session: &ProgramSession, fd: i32, access: &Record<'_>) {
    let Record::Access {
        op,
        object,
        offset,
        length,
        ..
    } = *access
    else {
        return;
    };
    match op {
        Op::Read => {
            let read = || {
                let bits = session.block_bits();
                let block = |byte: u64| (byte >> bits) as u32;
                let (first, latest) = (block(offset), LATEST.get());
                readahead::Read {
                    first,
                    last: block(offset.saturating_add(length.saturating_sub(1))),
                    goes_on: latest.object == object
                        && readahead::is_near(latest.block as u32, first),
                }
            };
            let wanted = || session.disables_readahead();
            if readahead::read(fd, read, wanted, owns_descriptors) {
                session.count_readahead_disabled();
            }
        }
        Op::Map => readahead::leave(fd),
        Op::Write | Op::Truncate | Op::Unmap => {}
    }
}

/// The key of the file behind `fd`, if the agent does not want to hear of this read: one within the
/// block in which the thread's last recorded access ended. All that is looked at is the thread's
/// own and the table: 25 instructions, where a record takes 500.
#[inline]
fn already_reported(fd: i32, offset: u64, length: u64) -> Option<u64> {
    let Latest {
        object,
        block,
        bits,
    } = LATEST.get();
    let last = offset.saturating_add(length - 1);
    let within = offset >> bits == block && last >> bits == block;
    (within && object != NOWHERE.object && files::known(fd) == Some(Some(object))).then_some(object)
}

/// Remembers an access that the agent was told of.
#[inline]
fn remember(session: &ProgramSession, access: &Record<'_>) {
    let bits = session.block_bits();
    if let Record::Access {
        object,
        offset,
        length,
        ..
    } = *access
        && bits != 0
    {
        let last = offset.saturating_add(length.saturating_sub(1));
        LATEST.set(Latest {
            object,
            block: last >> bits,
            bits,
        });
    }
}

/// The record of an access, but for its call site. `None` if the descriptor means something else by
/// now: closed and reused where no hook sees it.
fn describe(
    session: &ProgramSession,
    op: Op,
    flags: u16,
    fd: i32,
    object: u64,
    position: Position,
    length: u64,
) -> Option<Record<'static>> {
    let offset = match position {
        Position::At(offset) => offset,
        Position::BeforeCurrent => match syscalls::seek(fd, 0, libc::SEEK_CUR) {
            Ok(current) => current.saturating_sub(length),
            Err(_) => {
                descriptors::forget(fd);
                return None;
            }
        },
    };
    Some(access_at(session, op, flags, object, offset, length))
}

/// The CPU that this runs on.
pub(crate) fn cpu() -> u16 {
    // SAFETY: no arguments; it reads a word that the kernel keeps for the thread.
    unsafe { libc::sched_getcpu() as u16 }
}

fn access_at(
    session: &ProgramSession,
    op: Op,
    flags: u16,
    object: u64,
    offset: u64,
    length: u64,
) -> Record<'static> {
    // An agent that counts references to blocks takes the order of the time alone. Within a tick of
    // the kernel's a thread's accesses keep their order, those of several do not.
    let time_ns = match session.block_bits() {
        0 => monotonic_ns(),
        _ => tick_ns(),
    };
    Record::Access {
        op,
        flags,
        cpu: cpu(),
        time_ns,
        signature: 0,
        object,
        offset,
        length,
    }
}

/// Records something done to `length` bytes of the file of this key, which [`access`] has returned
/// before.
pub(crate) fn access_by_key(op: Op, object: u64, offset: u64, length: u64, caller: Caller) {
    let Some(session) = files_session() else {
        return;
    };
    let access = access_at(session, op, 0, object, offset, length);
    with_thread(
        session,
        |thread| thread.access_remembered(session, access, caller),
        |thread| thread.access(session, access, caller),
    );
}

/// The signature of a call site, which the agent is told of where it is new. `None` in a signal
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

/// Records what happened to a region.
#[cfg(feature = "pages")]
pub(crate) fn region(session: &'static ProgramSession, record: &Record<'_>) {
    with_thread(
        session,
        |thread| {
            let push = |producer| session.push_record(producer, record) != Pushed::NoRing;
            thread.producer.as_mut().is_some_and(push)
        },
        |thread| {
            Thread::push(&mut thread.producer, &mut thread.patience, session, record);
        },
    );
}

/// Records that process `pid` is about to run the program at `path`.
pub(crate) fn exec(pid: u32, path: &[u8]) {
    exec_at(monotonic_ns(), pid, path);
}

/// Records that process `pid` was to run the program at `path` from `time_ns` on.
pub(crate) fn exec_at(time_ns: u64, pid: u32, path: &[u8]) {
    push_bare(&Record::Exec { pid, time_ns, path });
}

/// Records that the last [`exec`] of `pid` failed.
pub(crate) fn exec_failed(pid: u32) {
    push_bare(&Record::ExecFailed { pid });
}

/// Announces this process, by claiming its main thread's ring: a program that touches no file is
/// recorded all the same, and the agent must be able to tell it from one that cannot be.
pub(crate) fn announce() {
    let Some(session) = session() else { return };
    with_thread(
        session,
        |thread| thread.producer.is_some(),
        |thread| {
            if thread.producer.is_none() {
                thread.producer = claim(session, &mut thread.patience);
            }
        },
    );
}

fn push_bare(record: &Record<'_>) {
    let Some(session) = session() else { return };
    with_thread(
        session,
        |_| false,
        |thread| {
            Thread::push(&mut thread.producer, &mut thread.patience, session, record);
        },
    );
}

/// Ends the recording in this process for good: from here on it makes no system call that the
/// program did not ask for.
pub(crate) fn stop() {
    STATE.store(OFF, Ordering::Release);
    replicas::stop();
    read_placement::stop();
    readahead::stop();
    #[cfg(feature = "pages")]
    crate::pages::stop();
}
