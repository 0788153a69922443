//! Limits on a process's memory (setrlimit(2)), and whether the preload library's share fits in.
//!
//! The library's mappings count against limits that a program, or the user, has set for the program
//! alone. Where they would be a sixteenth of a limit or more, the library leaves the program alone.
//! So a program with a limit that is near to what it needs meets that limit where it meets it
//! without hither.

use hither_kernel::syscalls;

/// Address space that the library takes: its own file, tables of descriptors, the session's control
/// parts and one part of the pool (`pool_parts`), and of each thread that reads 2 MiB. Some 26 MiB
/// with one thread (2026-11).
const ADDRESS_SPACE_BYTES: u64 = 32 << 20;

/// What of it counts as data (`RLIMIT_DATA`): private and writable.
const DATA_BYTES: u64 = 8 << 20;

/// The library takes no larger part of a limit than one in so many.
const LIMIT_DIVISOR: u64 = 16;

/// A kind of limit that the library's mappings count against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// `RLIMIT_AS`, which `ulimit -v` sets.
    AddressSpace,
    /// `RLIMIT_DATA`, which `ulimit -d` sets.
    Data,
    /// `RLIMIT_MEMLOCK`, which `ulimit -l` sets: for `mlockall`, which locks the library's memory
    /// too.
    Locked,
}

impl MemoryLimit {
    /// The kernel's number of it.
    fn resource(self) -> libc::__rlimit_resource_t {
        match self {
            MemoryLimit::AddressSpace => libc::RLIMIT_AS,
            MemoryLimit::Data => libc::RLIMIT_DATA,
            MemoryLimit::Locked => libc::RLIMIT_MEMLOCK,
        }
    }

    /// The least limit of which the library takes a part.
    fn least(self) -> u64 {
        LIMIT_DIVISOR
            * match self {
                MemoryLimit::AddressSpace | MemoryLimit::Locked => ADDRESS_SPACE_BYTES,
                MemoryLimit::Data => DATA_BYTES,
            }
    }

    /// Whether the library's share fits into this process's limit.
    pub fn has_room(self) -> bool {
        self.bytes().is_none_or(|bytes| bytes >= self.least())
    }

    /// Whether this process has such a limit.
    pub fn is_set(self) -> bool {
        self.bytes().is_some()
    }

    /// This process's limit, if it has one.
    fn bytes(self) -> Option<u64> {
        syscalls::limit(self.resource() as i32)
    }
}

/// Whether the library may be at work in this process, by its limits on memory.
pub fn leave_room() -> bool {
    MemoryLimit::AddressSpace.has_room() && MemoryLimit::Data.has_room()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_the_kernels() {
        let limit = |resource| {
            let mut limit = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
            // SAFETY: the kernel writes one rlimit.
            unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
            // SAFETY: zeroed memory is a valid rlimit.
            let soft = unsafe { limit.assume_init() }.rlim_cur;
            (soft != libc::RLIM_INFINITY).then_some(soft)
        };
        let kinds = [
            MemoryLimit::AddressSpace,
            MemoryLimit::Data,
            MemoryLimit::Locked,
        ];
        for kind in kinds {
            assert_eq!(kind.bytes(), limit(kind.resource()), "{kind:?}");
        }
        let stack = syscalls::limit(libc::RLIMIT_STACK as i32);
        assert_eq!(stack, limit(libc::RLIMIT_STACK));
    }
}
