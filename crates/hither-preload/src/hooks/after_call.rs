//! What a hook does after the real call has moved bytes of a file.
//!
//! The steps, in their order:
//!
//! 1. [`pages::apply_bind_requests`](crate::pages): memory policies that the agent asks for are
//!    set. A read is a good moment: programs often read their data, a piece at a time, into memory
//!    that the agent has just classified.
//! 2. [`lifecycle::files_session`]: while the agent pauses, a call ends here. Then
//!    [`access::already_reported`]: a read that goes on in the block of the thread's last one ends
//!    here.
//!    Then [`files::was_cached`]: where there is a limit, a read of what others had cached ends
//!    here, as long as that stays cached.
//! 3. [`access::describe`]: the record of the access. It asks for the position only where the
//!    descriptor's is not followed.
//! 4. [`readahead::on_read`]: the kernel may be told (`posix_fadvise`) to stop or resume reading
//!    ahead through this descriptor. It compares with the thread's last access, and so comes before
//!    that is replaced.
//! 5. [`access::push`]: the record goes into the thread's ring, and its end becomes the thread's
//!    last access.

use std::cell::Cell;

use hither_ids::FileKey;
use hither_references::BlockOfFile;
use hither_session::program_session::ProgramSession;
use hither_session::record::{IN_KERNEL, Op, Record};

use crate::access::{self, Call};
use crate::files::Known;
use crate::request::Position;
use crate::signature::Caller;
use crate::thread::with_thread;
use crate::{files, lifecycle, readahead, session, thread};

/// All steps after a call that returned the number of bytes it moved.
#[inline]
pub(super) fn transferred(
    op: Op,
    fd: i32,
    position: Position,
    result: isize,
    sp: *const u64,
    fp: u64,
) {
    transferred_with(op, 0, fd, position, result, sp, fp);
}

/// As [`transferred`], with flags of the record.
#[inline]
pub(super) fn transferred_with(
    op: Op,
    flags: u16,
    fd: i32,
    position: Position,
    result: isize,
    sp: *const u64,
    fp: u64,
) {
    #[cfg(feature = "pages")]
    crate::pages::apply_bind_requests();
    if result > 0 {
        record(op, flags, fd, position, result as u64, Caller { sp, fp });
    }
}

/// Records that a call moved `length` bytes of the file behind `fd`, and returns the file's key;
/// `None` if its accesses are not recorded.
#[inline]
pub(super) fn record(
    op: Op,
    flags: u16,
    fd: i32,
    position: Position,
    length: u64,
    caller: Caller,
) -> Option<u64> {
    let Some(session) = lifecycle::files_session() else {
        lifecycle::unrecorded();
        return None;
    };
    let position = followed(fd, position, length);
    if let (Op::Read, Position::At(offset)) = (op, position)
        && let Some(object) = access::already_reported(fd, offset, length)
    {
        return Some(object);
    }
    report(session, op, flags, fd, position, length, caller)
}

/// Where a call worked, without asking the kernel if the descriptor's position is followed. To be
/// called once for each call that moves one.
#[inline]
fn followed(fd: i32, position: Position, length: u64) -> Position {
    match position {
        Position::At(_) => position,
        // Not in the child of a `vfork`, whose numbers may stand for other files.
        Position::BeforeCurrent if session::owns_memory() => {
            files::advance(fd, length).map_or(position, Position::At)
        }
        Position::BeforeCurrent => position,
    }
}

/// As [`record`], of what the agent does not know yet. Not inlined, so that the way around it is
/// short.
#[inline(never)]
fn report(
    session: &'static ProgramSession,
    op: Op,
    flags: u16,
    fd: i32,
    position: Position,
    length: u64,
    caller: Caller,
) -> Option<u64> {
    let known = files::known(fd);
    if let Known::File(object) = known {
        let was_cached = || match (op, position) {
            (Op::Read, Position::At(offset)) => files::was_cached(fd, offset, length),
            _ => false,
        };
        if session.is_unrecorded(FileKey(object)) || session.skips_cached() && was_cached() {
            return Some(object);
        }
    }
    let call = Call {
        op,
        flags,
        fd,
        position,
        length,
    };
    let key = Cell::new(None);
    with_thread(
        session,
        |thread| {
            if known == Known::Nothing {
                return false;
            }
            let object = known.file();
            // A file that is not recorded is done with here; so is one whose descriptor has come to
            // mean something else.
            let Some(access) = object.and_then(|object| describe(session, call, object)) else {
                count_other(session, call, object);
                return true;
            };
            key.set(object);
            update_readahead(session, fd, &access);
            access::push_remembered(thread, session, access, caller)
        },
        |thread| {
            let mut define = |record: &Record<'_>| thread.push(session, record);
            let found = files::look_up(fd, session::owns_descriptors(), &mut define);
            if let Some(access) = found.and_then(|object| describe(session, call, object)) {
                key.set(found);
                access::push(thread, session, access, caller);
            } else {
                count_other(session, call, found);
            }
        },
    );
    key.get()
}

fn describe(session: &ProgramSession, call: Call, object: u64) -> Option<Record<'static>> {
    let access = access::describe(session, call, object);
    if access.is_none() {
        lifecycle::closed(call.fd);
    }
    access
}

/// Counts what was read of something that is not recorded, as the kernel counts it (`rchar`), so
/// that the agent knows how much of all reads the library has seen.
fn count_other(session: &ProgramSession, call: Call, object: Option<u64>) {
    if object.is_none() && call.op == Op::Read && call.flags & IN_KERNEL == 0 {
        session.count_other_read(thread::cpu(), call.length);
    }
}

/// Has the kernel read ahead through a descriptor, or not, as it is read.
#[inline]
fn update_readahead(session: &ProgramSession, fd: i32, access: &Record<'_>) {
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
                let (first, last) = (block(offset), access::last_block());
                let goes_on = |last: BlockOfFile| {
                    last.file == object.0 && readahead::is_near(last.block as u32, first)
                };
                readahead::Read {
                    first,
                    last: block(offset.saturating_add(length.saturating_sub(1))),
                    continues_thread: last.is_some_and(goes_on),
                }
            };
            let wanted = || session.disables_readahead();
            if readahead::on_read(fd, read, wanted, session::owns_descriptors) {
                session.count_readahead_disabled();
            }
        }
        Op::Map => readahead::leave(fd),
        Op::Write
        | Op::Truncate
        | Op::Unmap
        | Op::Fault
        | Op::Insert
        | Op::UseByOthers
        | Op::Evict => {}
    }
}
