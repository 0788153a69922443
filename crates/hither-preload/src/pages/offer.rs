//! A userfaultfd of this process's memory, for the agent to sample it with.
//!
//! It is opened when the process allocates its first region, starts its first thread, or makes a
//! hooked call when it has run for a while. It is offered, and closed at the first hooked call
//! after the agent has taken its copy: no descriptor of ours stays. It has a high number, so that
//! the program gets those that it counts on, is close-on-exec, and is identified by its inode,
//! since a file of the program's may have taken the number. A forked child closes the copy that it
//! inherits, which is of its parent's memory, and makes an offer of its own later. If anything
//! fails, there is no sampling, and the agent learns the error.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hither_ids::Pid;
use hither_kernel::page_sampling::UserfaultfdOffer;
use hither_kernel::process::monotonic_ns;
use hither_kernel::syscalls;
use hither_session::program_session::ProgramSession;
use hither_session::userfaultfd_offers::PendingOffer;

use crate::{process, session, thread};

/// The process that has made its offer, or refuses to.
static DONE_BY: AtomicU32 = AtomicU32::new(0);

/// The process whose memory the agent samples no more: it has confirmed that, or gave no answer and
/// counts as gone. A child's memory is another, so it asks once itself.
static REFUSED_BY: AtomicU32 = AtomicU32::new(0);

/// What is on offer; the first is 0 while nothing is.
static OFFER: AtomicU64 = AtomicU64::new(0);
static SLOT: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Makes this process's offer, if the agent wants it and it was not made before.
#[inline]
pub(crate) fn make(session: &'static ProgramSession) {
    if DONE_BY.load(Ordering::Relaxed) != process::id().0 && session.sampling() {
        make_first(session);
    }
}

/// The process that has made a hooked call without an offer, and when it made the first of them.
static CALLED_BY: AtomicU32 = AtomicU32::new(0);
static CALLED_NS: AtomicU64 = AtomicU64::new(0);

/// A process without a large allocation makes its offer this long after its first hooked call. Most
/// processes are shorter, and the agent asks for the memory of older ones only.
const OLD_NS: u64 = 100_000_000;

/// Makes this process's offer if it has run for a while.
#[inline]
pub(crate) fn make_when_old(session: &'static ProgramSession) {
    if DONE_BY.load(Ordering::Relaxed) != process::id().0 && session.sampling() {
        make_if_old(session);
    }
}

#[cold]
fn make_if_old(session: &'static ProgramSession) {
    let now_ns = monotonic_ns();
    if CALLED_BY.swap(process::id().0, Ordering::Relaxed) != process::id().0 {
        CALLED_NS.store(now_ns, Ordering::Relaxed);
    }
    if now_ns.saturating_sub(CALLED_NS.load(Ordering::Relaxed)) >= OLD_NS {
        make_first(session);
    }
}

#[cold]
fn make_first(session: &'static ProgramSession) {
    settle();
    let pid = process::id();
    // The child of a vfork has its parent's memory, and descriptors of its own.
    if syscalls::pid() != pid || DONE_BY.swap(pid.0, Ordering::Relaxed) == pid.0 {
        return;
    }
    // A forked child has told nobody yet that there is one. An offer from before its start would
    // count as its parent's.
    thread::announce(session);
    match syscalls::userfaultfd() {
        Ok(fd) => put(session, pid, fd),
        Err(error) => session.report_offer_error(error),
    }
}

fn put(session: &ProgramSession, pid: Pid, fd: i32) {
    let offered = syscalls::status(fd).and_then(|status| {
        let inode = status.id.inode;
        INODE.store(inode, Ordering::Relaxed);
        // Too many are on offer: as if there were too many descriptors.
        session
            .offer(&UserfaultfdOffer { pid, fd, inode })
            .ok_or(libc::EMFILE)
    });
    match offered {
        Ok(offered) => {
            let [slot, offer] = offered.to_words();
            SLOT.store(slot, Ordering::Relaxed);
            OFFER.store(offer, Ordering::Release);
        }
        Err(error) => {
            session.report_offer_error(error);
            syscalls::close(fd);
        }
    }
}

/// Closes the descriptor if the agent has its copy or is gone, or if it was inherited in a fork.
#[inline]
pub(crate) fn settle() {
    if OFFER.load(Ordering::Relaxed) != 0 {
        settle_now();
    }
}

#[cold]
fn settle_now() {
    let offer = OFFER.load(Ordering::Acquire);
    let offered = PendingOffer::from_words([SLOT.load(Ordering::Relaxed), offer]);
    // In a forked child the copy that it inherited, which is its parent's offer. The child of a
    // vfork has its parent's process id here.
    let is_inherited = offered.pid() != process::id();
    let waiting = session::current().is_some_and(|session| !session.is_answered(&offered));
    let is_done = !waiting && offered.pid() == syscalls::pid();
    if offer != 0 && (is_inherited || is_done) {
        take_back();
    }
}

/// Closes the descriptor if there is one. What the agent has taken it keeps.
pub(crate) fn take_back() {
    let offer = OFFER.swap(0, Ordering::AcqRel);
    let fd = PendingOffer::from_words([0, offer]).fd();
    let is_ours = |fd| {
        let inode = INODE.load(Ordering::Relaxed);
        syscalls::status(fd).is_ok_and(|status| status.id.inode == inode)
    };
    if offer != 0 && is_ours(fd) {
        syscalls::close(fd);
    }
}

/// Polls for the agent's answer, a millisecond apart: the agent polls every 50 ms at
/// the least.
const ANSWER_POLLS_MAX: u32 = 100;

/// The program is about to open a userfaultfd itself. A range can be registered with one only, so
/// the program waits until the agent has unregistered all of its memory. This is the only time that
/// a program waits for the agent: until its next poll, and a tenth of a second where it is gone.
#[cold]
pub(crate) fn refuse() {
    let Some(session) = session::current() else {
        return;
    };
    let pid = process::id();
    let is_done = REFUSED_BY.load(Ordering::Relaxed) == pid.0;
    if session.sampling() && syscalls::pid() == pid && !is_done {
        DONE_BY.store(pid.0, Ordering::Relaxed);
        take_back();
        // Without room the agent does not learn of it, and the program's own registration may fail.
        let refusal = session.offer(&UserfaultfdOffer {
            pid,
            fd: -1,
            inode: 0,
        });
        let waits = |offered: &PendingOffer| session.recording() && !session.is_answered(offered);
        for _ in 0..ANSWER_POLLS_MAX {
            if !refusal.as_ref().is_some_and(waits) {
                break;
            }
            syscalls::sleep_ns(1_000_000);
        }
        // Only now, so that no other thread goes ahead of the agent meanwhile.
        if refusal.is_some() {
            REFUSED_BY.store(pid.0, Ordering::Relaxed);
        }
    }
}
