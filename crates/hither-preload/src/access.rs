//! Accesses to files: the record of an access, how it gets into the thread's ring, and the filter
//! that skips what the agent already knows.

use std::cell::Cell;

use hither_ids::FileKey;
use hither_kernel::process::{monotonic_ns, tick_ns};
use hither_kernel::syscalls;
use hither_references::{BlockOfFile, BlockSize, Reported, Request};
use hither_session::program_session::{ProgramSession, Pushed};
use hither_session::record::{Op, Record};

use crate::files::{self, Known};
use crate::request::Position;
use crate::signature::Caller;
use crate::thread::{self, Thread, with_thread};

thread_local! {
    /// What the thread has reported, in a session whose agent counts references to blocks.
    static REPORTED: Cell<Reported<Op>> = const { Cell::new(Reported::nothing(Op::Read)) };
}

/// The key of the file behind `fd`, if the agent does not need this read, by the rule of
/// [`hither_references`]: it goes on in the block in which the thread's last request ended. This
/// reads only thread-local data and the table: 30 instructions, where a record takes 500.
#[inline]
pub(crate) fn already_reported(fd: i32, offset: u64, length: u64) -> Option<u64> {
    let reported = REPORTED.get();
    let request = Request {
        op: Op::Read,
        offset,
        length,
    };
    let object = reported.leaves_out(request)?;
    let is_it = files::known(fd) == Known::File(object);
    is_it.then(|| {
        REPORTED.set(reported.left_out(request));
        object
    })
}

/// Where the thread's last request ended.
#[inline]
pub(crate) fn last_block() -> Option<BlockOfFile> {
    REPORTED.get().last_block()
}

/// After a fork, in the child: it has recorded nothing yet.
pub(crate) fn forked() {
    REPORTED.set(Reported::nothing(Op::Read));
}

/// The request that a record is of, if the agent makes references of it.
#[inline]
fn request_of(session: &ProgramSession, access: &Record<'_>) -> Option<(u64, Request<Op>)> {
    match *access {
        Record::Access {
            op: op @ (Op::Read | Op::Write),
            object,
            offset,
            length,
            ..
        } if session.block_bits() != 0 => Some((object.0, Request { op, offset, length })),
        _ => None,
    }
}

/// Remembers an access that a ring has taken.
#[inline]
fn remember(session: &ProgramSession, access: &Record<'_>) {
    if let Some((object, request)) = request_of(session, access) {
        let size = BlockSize::of_bits(session.block_bits());
        REPORTED.set(Reported::after(object, request, size));
    }
}

/// The record that has to come before one of an access, if any: where the thread has come to in
/// another file, or beyond that access.
#[inline]
fn catching_up(session: &ProgramSession, access: &Record<'static>) -> Option<Record<'static>> {
    let (file, request) = request_of(session, access)?;
    let (last_file, last) = REPORTED.get().catches_up(file, request)?;
    let mut catching_up = *access;
    if let Record::Access {
        op,
        flags,
        object,
        offset,
        length,
        ..
    } = &mut catching_up
    {
        (*op, *flags, *object) = (last.op, 0, FileKey(last_file));
        (*offset, *length) = (last.offset, last.length);
    }
    Some(catching_up)
}

/// What a call did with a file, as its hook knows it.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) op: Op,
    pub(crate) flags: u16,
    pub(crate) fd: i32,
    pub(crate) position: Position,
    /// Bytes moved.
    pub(crate) length: u64,
}

/// The record of a call on the file of this key, without its call site. `None` if the descriptor
/// refers to something else by now: it was closed and reused where no hook sees it.
pub(crate) fn describe(
    session: &ProgramSession,
    call: Call,
    object: u64,
) -> Option<Record<'static>> {
    let offset = match call.position {
        Position::At(offset) => offset,
        Position::BeforeCurrent => {
            let current = syscalls::seek(call.fd, 0, libc::SEEK_CUR).ok()?;
            current.saturating_sub(call.length)
        }
    };
    Some(record_at(
        session,
        call.op,
        call.flags,
        object,
        offset,
        call.length,
    ))
}

fn record_at(
    session: &ProgramSession,
    op: Op,
    flags: u16,
    object: u64,
    offset: u64,
    length: u64,
) -> Record<'static> {
    // An agent that counts references to blocks uses the time only for their order. Within a tick
    // of the kernel's clock the accesses of a thread keep their order, those of several threads do
    // not.
    let time_ns = match session.block_bits() {
        0 => monotonic_ns(),
        _ => tick_ns(),
    };
    Record::Access {
        op,
        flags,
        cpu: thread::cpu(),
        time_ns,
        signature: 0,
        object: FileKey(object),
        offset,
        length,
    }
}

/// Pushes the access if its call site is remembered and the thread has a ring. False if it was
/// neither recorded nor lost to a full ring: then [`push`] has to be called.
#[inline]
pub(crate) fn push_remembered(
    thread: &mut Thread,
    session: &ProgramSession,
    mut access: Record<'static>,
    caller: Caller,
) -> bool {
    let Some((found, producer)) = thread.remembered(caller) else {
        return false;
    };
    if let Record::Access { signature, .. } = &mut access {
        *signature = found;
    }
    if let Some(before) = catching_up(session, &access) {
        session.push_record(producer, &before);
    }
    let pushed = session.push_record(producer, &access);
    if pushed == Pushed::Taken {
        remember(session, &access);
    }
    pushed != Pushed::NoRing
}

/// Finds the call site and pushes the access.
pub(crate) fn push(
    thread: &mut Thread,
    session: &ProgramSession,
    mut access: Record<'static>,
    caller: Caller,
) {
    let found = thread.signature(session, caller);
    if let Record::Access { signature, .. } = &mut access {
        *signature = found;
    }
    if let Some(before) = catching_up(session, &access) {
        thread.push(session, &before);
    }
    if thread.push(session, &access) {
        remember(session, &access);
    }
}

/// Records something done to `length` bytes of the file of this key, which was recorded before.
pub(crate) fn record_by_key(
    session: &'static ProgramSession,
    op: Op,
    object: u64,
    (offset, length): (u64, u64),
    caller: Caller,
) {
    let access = record_at(session, op, 0, object, offset, length);
    with_thread(
        session,
        |thread| push_remembered(thread, session, access, caller),
        |thread| push(thread, session, access, caller),
    );
}
