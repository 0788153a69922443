//! stdio. libc's streams read and write through a table of functions, without calling any symbol
//! that could be interposed. Three entries of that table are replaced, after a check that they hold
//! what is expected: the layout has not changed since glibc 2.1, but it is not guaranteed. Where
//! they hold anything else, stdio is left alone and not recorded.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use hither_kernel::{page_bytes, syscalls};
use hither_session::record::Op;
use libc::FILE;

use super::after_call::{transferred, transferred_with};
use super::read::serve;
use crate::request::Destination;
use crate::request::Position::BeforeCurrent;
use crate::session::owns_descriptors;
use crate::signature::Caller;
use crate::{lifecycle, read_placement, replicas};

/// Indices of the replaced entries in `struct _IO_jump_t`.
const READ_ENTRY: usize = 14;
const WRITE_ENTRY: usize = 15;
const CLOSE_ENTRY: usize = 17;

/// All of libc's tables have 3.4 KiB.
const TABLES_BYTES_MAX: usize = 64 << 10;

static REAL_READ: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_WRITE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_CLOSE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Replaces the entries in the tables of narrow and wide streams. Whether it could, in both.
pub(crate) fn patch() -> bool {
    let find = |name: &std::ffi::CStr| {
        // SAFETY: the name is a C string.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    };
    let hooks = [
        (
            READ_ENTRY,
            find(c"_IO_file_read"),
            &REAL_READ,
            read_entry as *const (),
        ),
        (
            WRITE_ENTRY,
            find(c"_IO_file_write"),
            &REAL_WRITE,
            write_entry as *const (),
        ),
        (
            CLOSE_ENTRY,
            find(c"_IO_file_close"),
            &REAL_CLOSE,
            close_entry as *const (),
        ),
    ];
    let tables = [find(c"_IO_file_jumps"), find(c"_IO_wfile_jumps")];
    if tables.iter().any(|table| table.is_null())
        || hooks.iter().any(|(_, real, ..)| real.is_null())
    {
        return false;
    }
    let tables = tables.map(|table| {
        // SAFETY: libc exports the tables as objects of 21 pointers, of which 17 is the highest
        // used here.
        unsafe { std::slice::from_raw_parts(table.cast::<AtomicPtr<c_void>>(), CLOSE_ENTRY + 1) }
    });
    let expected = tables.map(|entries| {
        let mut hooks = hooks.iter();
        hooks.all(|(at, real, ..)| entries[*at].load(Ordering::Relaxed) == *real)
    });
    // They lie beside each other: both become writable at once.
    let [first, second] = tables.map(|table| table.as_ptr_range());
    let from = first.start.min(second.start) as usize;
    let to = first.end.max(second.end) as usize;
    if to - from > TABLES_BYTES_MAX || !writable(from, to, true) {
        return false;
    }
    for (at, real, saved, hook) in &hooks {
        saved.store(*real, Ordering::Release);
        for (entries, _) in tables
            .iter()
            .zip(expected)
            .filter(|(_, expected)| *expected)
        {
            entries[*at].store(hook.cast_mut().cast(), Ordering::Release);
        }
    }
    writable(from, to, false);
    expected == [true; 2]
}

/// The tables lie in memory that the dynamic linker has made read-only.
fn writable(from: usize, to: usize, yes: bool) -> bool {
    let page = page_bytes() as usize;
    let (start, end) = (from & !(page - 1), to.next_multiple_of(page));
    let protection = if yes {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_READ
    };
    // SAFETY: the pages hold libc's tables; they stay readable throughout, and nobody relies on a
    // store to them failing.
    let result = unsafe {
        syscalls::syscall(
            libc::SYS_mprotect,
            [start, end - start, protection as usize, 0, 0, 0],
        )
    };
    result == 0
}

// What the tables hold in place of libc's functions.
entry!(read_entry => read_hook, 3);
entry!(write_entry => write_hook, 3);

type Move = unsafe extern "C-unwind" fn(*mut FILE, *mut c_void, isize) -> isize;

/// # Safety
/// `stream` is a stream, and the other arguments are what its table's function takes.
unsafe fn call(
    real: &AtomicPtr<c_void>,
    stream: *mut FILE,
    buffer: *mut c_void,
    count: isize,
) -> isize {
    // SAFETY: `patch` stored the function that the entry held, which has this type, before it
    // replaced the entry.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, Move>(real.load(Ordering::Acquire)) };
    // SAFETY: libc's own arguments, passed on.
    unsafe { function(stream, buffer, count) }
}

unsafe extern "C-unwind" fn read_hook(
    stream: *mut FILE,
    buffer: *mut c_void,
    count: isize,
    sp: *const u64,
    fp: u64,
) -> isize {
    let to = Destination::Buffer(buffer, count.max(0) as usize);
    // SAFETY: libc called with a stream.
    let fd = unsafe { libc::fileno(stream) };
    // A stream says whether its reads are cancellation points, which can only be told apart here
    // where nobody is there to cancel.
    if replicas::single_threaded() {
        // SAFETY: libc's own call.
        let served = unsafe { serve(fd, BeforeCurrent, to, Caller { sp, fp }) };
        if let Some(result) = served {
            return result;
        }
    }
    // SAFETY: libc's own call.
    if let Some(result) = unsafe { read_placement::read(fd, BeforeCurrent, to, false) } {
        transferred(Op::Read, fd, BeforeCurrent, result, sp, fp);
        return result;
    }
    // SAFETY: libc's own call, passed on.
    let result = unsafe { call(&REAL_READ, stream, buffer, count) };
    if result > 0 {
        let flags = replicas::flags(fd, BeforeCurrent, to, result);
        transferred_with(Op::Read, flags, fd, BeforeCurrent, result, sp, fp);
        read_placement::was_read(fd, BeforeCurrent, result);
    }
    result
}

unsafe extern "C-unwind" fn write_hook(
    stream: *mut FILE,
    buffer: *mut c_void,
    count: isize,
    sp: *const u64,
    fp: u64,
) -> isize {
    // SAFETY: libc's own call, passed on.
    let result = unsafe { call(&REAL_WRITE, stream, buffer, count) };
    if result > 0 {
        // SAFETY: libc called with a stream.
        let fd = unsafe { libc::fileno(stream) };
        transferred(Op::Write, fd, BeforeCurrent, result, sp, fp);
    }
    result
}

unsafe extern "C-unwind" fn close_entry(stream: *mut FILE) -> c_int {
    if owns_descriptors() {
        // SAFETY: libc called with a stream that is still open.
        lifecycle::closed(unsafe { libc::fileno(stream) });
    }
    let real = REAL_CLOSE.load(Ordering::Acquire);
    // SAFETY: `patch` stored the function that the entry held, which has this type.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(*mut FILE) -> c_int>(real)
    };
    // SAFETY: libc's own call, passed on.
    unsafe { function(stream) }
}
