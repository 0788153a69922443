//! Accesses to files: the record of an access, how it gets into the thread's ring, and the filter
//! that skips what the agent already knows.

use std::cell::Cell;

use hither_sys::process::{monotonic_ns, tick_ns};
use hither_sys::program_session::{ProgramSession, Pushed};
use hither_sys::record::{Op, Record};
use hither_sys::syscalls;

use crate::files;
use crate::request::Position;
use crate::signature::Caller;
use crate::thread::{self, Thread, with_thread};

/// A block of a file.
#[derive(Clone, Copy)]
pub(crate) struct BlockOfFile {
    pub(crate) object: u64,
    pub(crate) block: u64,
    /// Bits of the offset within a block.
    bits: u32,
}

/// No file has that key.
const NOWHERE: BlockOfFile = BlockOfFile {
    object: 0,
    block: 0,
    bits: 0,
};

thread_local! {
    /// The block in which the thread's last recorded access ended, in a session whose agent counts
    /// references to blocks.
    static LAST_BLOCK: Cell<BlockOfFile> = const { Cell::new(NOWHERE) };
}

/// The key of the file behind `fd`, if the agent does not need this read: it lies within the block
/// in which the thread's last recorded access ended. This reads only thread-local data and the
/// table: 25 instructions, where a record takes 500.
#[inline]
pub(crate) fn already_reported(fd: i32, offset: u64, length: u64) -> Option<u64> {
    let BlockOfFile {
        object,
        block,
        bits,
    } = LAST_BLOCK.get();
    let last = offset.saturating_add(length - 1);
    let within = offset >> bits == block && last >> bits == block;
    (within && object != NOWHERE.object && files::known(fd) == Some(Some(object))).then_some(object)
}

/// The block in which the thread's last recorded access ended.
#[inline]
pub(crate) fn last_block() -> BlockOfFile {
    LAST_BLOCK.get()
}

/// After a fork, in the child: it has recorded nothing yet.
pub(crate) fn forked() {
    LAST_BLOCK.set(NOWHERE);
}

/// Remembers where an access ended that a ring has taken.
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
        LAST_BLOCK.set(BlockOfFile {
            object,
            block: last >> bits,
            bits,
        });
    }
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
        object,
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
    mut access: Record<'_>,
    caller: Caller,
) -> bool {
    let Some((found, producer)) = thread.remembered(caller) else {
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
pub(crate) fn push(
    thread: &mut Thread,
    session: &ProgramSession,
    mut access: Record<'_>,
    caller: Caller,
) {
    let found = thread.signature(session, caller);
    if let Record::Access { signature, .. } = &mut access {
        *signature = found;
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
