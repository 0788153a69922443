//! What a read or write of the program asks for.

use std::ffi::c_void;

use libc::iovec;

/// Where in its file a call works.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    /// At this offset.
    At(u64),
    /// Up to the descriptor's current offset, which the call has moved.
    BeforeCurrent,
}

impl Position {
    /// The offset that the call gives, if it gives one.
    pub(crate) fn offset(self) -> Option<u64> {
        match self {
            Position::At(offset) => Some(offset),
            Position::BeforeCurrent => None,
        }
    }
}

/// Where a read puts what it reads.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    /// One buffer of so many bytes.
    Buffer(*mut c_void, usize),
    /// Several, one after the other.
    Vector(*const iovec, i32),
    /// A form of the call that only the kernel carries out.
    KernelOnly,
}

impl Destination {
    /// Of a call that says how large its buffer is (`size`). The program is ended where that is not
    /// enough, by the real call.
    pub(crate) fn checked(buffer: *mut c_void, count: usize, size: usize) -> Destination {
        if count <= size {
            Destination::Buffer(buffer, count)
        } else {
            Destination::KernelOnly
        }
    }

    /// Of a call with flags.
    pub(crate) fn flagged(vector: *const iovec, count: i32, flags: i32) -> Destination {
        match flags {
            0 => Destination::Vector(vector, count),
            _ => Destination::KernelOnly,
        }
    }
}
