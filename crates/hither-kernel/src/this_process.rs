//! What a process can find out about itself without its libc: where its stacks lie, what its memory
//! holds, what program it runs. Nothing here allocates, changes `errno` or faults.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{page_bytes, syscalls};

/// Copies the words at `address` of this process's own memory. False, and nothing usable in
/// `words`, where that memory is not all mapped and readable: a load would have faulted.
pub fn copy_memory(address: u64, words: &mut [u64]) -> bool {
    let length = size_of_val(words);
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: length,
    };
    let arguments = [
        // Any of its threads stands for a process. The first one may have ended.
        syscalls::tid().0 as usize,
        (&raw const local) as usize,
        1,
        (&raw const remote) as usize,
        1,
        0,
    ];
    // SAFETY: the kernel writes at most `length` bytes into `words` and checks the source itself.
    let copied = unsafe { syscalls::syscall(libc::SYS_process_vm_readv, arguments) };
    usize::try_from(copied) == Ok(length)
}

/// Whether every page from `from` to `to` can be read.
pub fn readable(from: u64, to: u64) -> bool {
    const AT_A_TIME: usize = 128;
    let mut bytes = [0_u8; AT_A_TIME];
    let mut page = from & !(page_bytes() - 1);
    while page < to {
        let mut pages = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; AT_A_TIME];
        let mut count = 0;
        for entry in &mut pages {
            if page >= to {
                break;
            }
            *entry = libc::iovec {
                iov_base: page as *mut libc::c_void,
                iov_len: 1,
            };
            page += page_bytes();
            count += 1;
        }
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: count,
        };
        let arguments = [
            syscalls::tid().0 as usize,
            (&raw const local) as usize,
            1,
            pages.as_ptr() as usize,
            count,
            0,
        ];
        // SAFETY: the kernel writes at most `count` bytes into `bytes` and checks the sources
        // itself.
        let copied = unsafe { syscalls::syscall(libc::SYS_process_vm_readv, arguments) };
        if usize::try_from(copied) != Ok(count) {
            return false;
        }
    }
    true
}

/// The path of the program that this process runs, empty if it is not known; read once.
pub fn exe() -> &'static [u8] {
    const UNREAD: usize = usize::MAX;
    static LENGTH: AtomicUsize = AtomicUsize::new(UNREAD);
    static PATH: [std::sync::atomic::AtomicU8; 4096] =
        [const { std::sync::atomic::AtomicU8::new(0) }; 4096];
    if LENGTH.load(Ordering::Acquire) == UNREAD {
        let mut path = [0; 4096];
        let length = syscalls::read_link(EXE, &mut path).unwrap_or(0);
        // Threads that come here at the same time all write the same bytes.
        for (to, from) in PATH.iter().zip(path.iter().take(length)) {
            to.store(*from, Ordering::Relaxed);
        }
        LENGTH.store(length, Ordering::Release);
    }
    let length = LENGTH.load(Ordering::Acquire).min(PATH.len());
    // SAFETY: the bytes are initialised, AtomicU8 has the layout of u8, and once the length is set
    // they only ever get stored the value that they have.
    unsafe { std::slice::from_raw_parts(PATH.as_ptr().cast(), length) }
}

const EXE: &CStr = c"/proc/self/exe";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_and_holes_are_refused() {
        let words = [1_u64, 2, 3];
        let mut copy = [0; 3];
        assert!(copy_memory(words.as_ptr() as u64, &mut copy));
        assert_eq!(copy, words);
        assert!(!copy_memory(8, &mut copy), "the null page is not mapped");
    }

    #[test]
    fn a_stack_is_readable_up_to_where_it_is_used_and_holes_are_not() {
        let variable = 0_u64;
        let address = (&raw const variable) as u64;
        assert!(readable(address, address + 8));
        assert!(readable(address, address + 300));
        assert!(!readable(8, 4096 * 300), "the null page is not mapped");
    }

    #[test]
    fn the_program_knows_its_own_path() {
        assert_eq!(
            exe(),
            std::env::current_exe()
                .unwrap()
                .as_os_str()
                .as_encoded_bytes()
        );
        assert_eq!(exe(), exe());
    }
}
