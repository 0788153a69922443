//! move_pages(2): where pages of a process are, and moving them to another node.

use hither_ids::{Address, KernelNode, Pid};

use std::io;

/// Where a page is, or why it is not where it was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// On this node.
    On(KernelNode),
    /// Not touched yet, or swapped out (ENOENT).
    Absent,
    /// No memory of the process, or the zero page that untouched memory is read from (EFAULT).
    Unmapped,
    /// Pinned, under I/O, or off the lists of pages for a moment: to be tried again (EBUSY,
    /// EAGAIN).
    Busy,
    /// Other processes have it mapped too: forked and not written since (EACCES).
    Shared,
    /// The node has no frame for it (ENOMEM).
    NoRoom,
    /// It could not be written back to its file (EIO).
    NotWrittenBack,
    /// The kernel gave up before it reached the page.
    Untried,
    /// Another error number.
    Other(i32),
}

impl PageState {
    pub(crate) fn from_kernel(status: i32) -> PageState {
        match status {
            UNTRIED => PageState::Untried,
            node if node >= 0 => PageState::On(KernelNode(node as u32)),
            error => match -error {
                libc::ENOENT => PageState::Absent,
                libc::EFAULT => PageState::Unmapped,
                libc::EBUSY | libc::EAGAIN => PageState::Busy,
                libc::EACCES => PageState::Shared,
                libc::ENOMEM => PageState::NoRoom,
                libc::EIO => PageState::NotWrittenBack,
                error => PageState::Other(error),
            },
        }
    }
}

/// No node and no error number: the status of each page before the call, since the kernel does not
/// write those of pages that it did not reach (move_pages(2), "Notes").
pub(crate) const UNTRIED: i32 = i32::MIN;

/// Move pages that no other process has mapped; the libc crate lacks it (linux/mempolicy.h).
const MPOL_MF_MOVE: i32 = 1 << 1;

/// Why a whole call of `move_pages` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The process is gone (ESRCH).
    NoProcess,
    /// Another user's process, or one that is not dumpable (EPERM).
    NotPermitted,
    /// The process may not use that node: its cpuset (EACCES).
    NodeNotAllowed,
    /// There is no such node, or it has no memory (ENODEV).
    NoNode,
    /// The kernel has no memory for the call itself (ENOMEM).
    NoMemory,
    /// A container forbids the call, or the kernel lacks it (ENOSYS).
    NoCall,
    /// Another error number.
    Other(i32),
}

impl MoveError {
    pub(crate) fn from_errno(error: i32) -> MoveError {
        match error {
            libc::ESRCH => MoveError::NoProcess,
            libc::EPERM => MoveError::NotPermitted,
            libc::EACCES => MoveError::NodeNotAllowed,
            libc::ENODEV => MoveError::NoNode,
            libc::ENOMEM => MoveError::NoMemory,
            libc::ENOSYS => MoveError::NoCall,
            error => MoveError::Other(error),
        }
    }
}

impl std::fmt::Display for MoveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MoveError::NoProcess => "the process is gone",
            MoveError::NotPermitted => {
                "not permitted: another user's process, or a container's filter of system calls"
            }
            MoveError::NodeNotAllowed => "the process may not use that node",
            MoveError::NoNode => "there is no such node",
            MoveError::NoMemory => "the kernel has no memory for it",
            MoveError::NoCall => "this kernel does not have it, or a container hides it",
            MoveError::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

/// `move_pages` with the statuses that it leaves, or its error number. A positive result, the
/// number of pages that were not moved, is no error: their statuses say so.
pub(crate) fn move_pages(
    pid: Pid,
    addresses: &[Address],
    to: Option<KernelNode>,
) -> Result<Vec<i32>, i32> {
    let count = addresses.len();
    let mut statuses = vec![UNTRIED; count];
    let nodes = to.map(|node| vec![node.0 as i32; count]);
    // SAFETY: the kernel reads `count` addresses (as numbers, of the other process) and as many
    // nodes, where there are any, and writes as many statuses; all three are as long and outlive
    // the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            i64::from(pid.0),
            count,
            addresses.as_ptr(),
            nodes
                .as_ref()
                .map_or(std::ptr::null(), |nodes| nodes.as_ptr()),
            statuses.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    match result {
        0.. => Ok(statuses),
        _ => match io::Error::last_os_error().raw_os_error() {
            // Kernels before 4.17 say so where no page needed to be moved.
            Some(libc::ENOENT) => Ok(statuses),
            error => Err(error.unwrap_or(libc::EIO)),
        },
    }
}
