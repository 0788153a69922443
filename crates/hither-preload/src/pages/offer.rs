//! A userfaultfd of this process's memory, for the agent to sample it with.
//!
//! It is opened when the process allocates its first region, offered, and closed at the first
//! hooked call after the agent has taken its copy: no descriptor of ours stays. It has a high
//! number, so that the program gets those that it counts on, is close-on-exec, and is told by its
//! inode from a file that has taken the number since. A forked child closes the copy that it
//! inherits, which is of its parent's memory, and makes an offer of its own when it allocates a
//! region. Should anything fail, there is no sampling, and the agent is told why.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hither_sys::page_sampling::UserfaultfdOffer;
use hither_sys::program_session::ProgramSession;
use hither_sys::syscalls;
use hither_sys::userfaultfd_offers::PendingOffer;

use crate::recorder;

/// The process that has made its offer, or wants to make none.
static DONE_BY: AtomicU32 = AtomicU32::new(0);

/// The process whose agent has let go of it, or gave no answer and is taken to be gone. A child's
/// memory is another: it asks once itself.
static REFUSED_BY: AtomicU32 = AtomicU32::new(0);

/// What is on offer; the first is 0 while nothing is.
static OFFER: AtomicU64 = AtomicU64::new(0);
static SLOT: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Makes this process's offer, if the agent wants it and it was not made before.
#[inline]
pub(crate) fn make(session: &ProgramSession) {
    if DONE_BY.load(Ordering::Relaxed) != recorder::process() && session.sampling() {
        make_first(session);
    }
}

#[cold]
fn make_first(session: &ProgramSession) {
    let pid = recorder::process();
    // The child of a vfork has its parent's memory, and descriptors of its own.
    if syscalls::pid() != pid || DONE_BY.swap(pid, Ordering::Relaxed) == pid {
        return;
    }
    let opened = match super::is_confined() {
        true => Err(libc::EPERM),
        false => syscalls::userfaultfd(),
    };
    match opened {
        Ok(fd) => put(session, pid, fd),
        Err(error) => session.no_offer(error),
    }
}

fn put(session: &ProgramSession, pid: u32, fd: i32) {
    let offered = syscalls::status(fd).and_then(|status| {
        let inode = status.inode;
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
            session.no_offer(error);
            syscalls::close(fd);
        }
    }
}

/// Closes the descriptor if the agent has its copy, or is gone.
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
    let waiting = recorder::session().is_some_and(|session| !session.is_answered(&offered));
    if offer != 0 && !waiting && offered.pid() == syscalls::pid() {
        take_back();
    }
}

/// Closes the descriptor if there is one. What the agent has taken it keeps.
pub(crate) fn take_back() {
    let offer = OFFER.swap(0, Ordering::AcqRel);
    let fd = PendingOffer::from_words([0, offer]).fd();
    let is_ours = |fd| {
        let inode = INODE.load(Ordering::Relaxed);
        syscalls::status(fd).is_ok_and(|status| status.inode == inode)
    };
    if offer != 0 && is_ours(fd) {
        syscalls::close(fd);
    }
}

/// Looks at whether the agent has let go, a millisecond apart: it looks every 20 ms at the least.
const LOOKS_MAX: u32 = 100;

/// The program is about to watch its memory itself. A range can be registered once only, so the
/// program waits until the agent has let go of all of it: the one time that it does, for as long as
/// the agent takes to look, and a tenth of a second where there is none any more.
#[cold]
pub(crate) fn refuse() {
    let Some(session) = recorder::session() else {
        return;
    };
    let pid = recorder::process();
    let is_done = REFUSED_BY.load(Ordering::Relaxed) == pid;
    if session.sampling() && syscalls::pid() == pid && !is_done {
        DONE_BY.store(pid, Ordering::Relaxed);
        take_back();
        // Without room the agent is not told, and the program's own registration may fail.
        let told = session.offer(&UserfaultfdOffer {
            pid,
            fd: -1,
            inode: 0,
        });
        let waits = |offered: &PendingOffer| session.recording() && !session.is_answered(offered);
        for _ in 0..LOOKS_MAX {
            if super::is_confined() || !told.as_ref().is_some_and(waits) {
                break;
            }
            syscalls::sleep_ns(1_000_000);
        }
        // Only now, so that no other thread goes ahead of the agent meanwhile.
        if told.is_some() {
            REFUSED_BY.store(pid, Ordering::Relaxed);
        }
    }
}
