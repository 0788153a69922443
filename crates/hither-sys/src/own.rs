//! What a process can find out about itself without its libc: where its stacks lie, what its memory holds, what
//! program it runs. Nothing here allocates, changes `errno` or faults.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::raw;

/// Copies the words at `address` of this process's own memory. False, and nothing usable in `words`, where that memory
/// is not all mapped and readable: a load would have faulted.
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
        raw::pid() as usize,
        (&raw const local) as usize,
        1,
        (&raw const remote) as usize,
        1,
        0,
    ];
    // SAFETY: the kernel writes at most `length` bytes into `words` and checks the source itself.
    let copied = unsafe { raw::syscall(libc::SYS_process_vm_readv, arguments) };
    usize::try_from(copied) == Ok(length)
}

/// Whether the calling thread is the one that the process started with.
pub fn is_main_thread() -> bool {
    raw::pid() == raw::tid()
}

/// How far the main thread's stack may grow, in bytes; 64 MiB where there is no limit.
pub fn stack_limit_bytes() -> u64 {
    const UNLIMITED: u64 = 64 << 20;
    let mut limit = MaybeUninit::<libc::rlimit64>::zeroed();
    let arguments = [
        0,
        libc::RLIMIT_STACK as usize,
        0,
        limit.as_mut_ptr() as usize,
        0,
        0,
    ];
    // SAFETY: prlimit64 of this process (0) sets nothing (null) and fills in one rlimit64.
    let result = unsafe { raw::syscall(libc::SYS_prlimit64, arguments) };
    // SAFETY: it was zeroed, which is a value, and perhaps filled in.
    let limit = unsafe { limit.assume_init() }.rlim_cur;
    if result == 0 { limit.min(UNLIMITED) } else { 0 }
}

/// The mapping of this process that holds `address`.
pub fn mapping_of(address: u64) -> Option<Range<u64>> {
    let file = raw::open(c"/proc/self/maps", libc::O_RDONLY).ok()?;
    let mut search = MapsSearch {
        address,
        start: 0,
        end: 0,
        field: Field::Start,
        found: None,
    };
    let mut buffer = [0; 1024];
    while search.found.is_none() {
        match raw::read(file, &mut buffer) {
            Ok(count) if count > 0 => buffer
                .iter()
                .take(count)
                .for_each(|&byte| search.feed(byte)),
            _ => break,
        }
    }
    raw::close(file);
    search.found
}

/// Reads `START-END ...` lines byte by byte, so that no line need fit into a buffer.
struct MapsSearch {
    address: u64,
    start: u64,
    end: u64,
    field: Field,
    found: Option<Range<u64>>,
}

enum Field {
    Start,
    End,
    Rest,
}

impl MapsSearch {
    fn feed(&mut self, byte: u8) {
        let digit = u64::from(char::from(byte).to_digit(16).unwrap_or(0));
        match (&self.field, byte) {
            (_, b'\n') => {
                self.field = Field::Start;
                (self.start, self.end) = (0, 0);
            }
            (Field::Start, b'-') => self.field = Field::End,
            (Field::Start, _) => self.start = self.start << 4 | digit,
            (Field::End, b' ') => {
                self.field = Field::Rest;
                if (self.start..self.end).contains(&self.address) && self.found.is_none() {
                    self.found = Some(self.start..self.end);
                }
            }
            (Field::End, _) => self.end = self.end << 4 | digit,
            (Field::Rest, _) => {}
        }
    }
}

/// The path of the program that this process runs, empty if it is not known; read once.
pub fn exe() -> &'static [u8] {
    const UNREAD: usize = usize::MAX;
    static LENGTH: AtomicUsize = AtomicUsize::new(UNREAD);
    static PATH: [std::sync::atomic::AtomicU8; 4096] =
        [const { std::sync::atomic::AtomicU8::new(0) }; 4096];
    if LENGTH.load(Ordering::Acquire) == UNREAD {
        let mut path = [0; 4096];
        let length = raw::read_link(EXE, &mut path).unwrap_or(0);
        // Threads that come here at the same time all write the same bytes.
        for (to, from) in PATH.iter().zip(path.iter().take(length)) {
            to.store(*from, Ordering::Relaxed);
        }
        LENGTH.store(length, Ordering::Release);
    }
    let length = LENGTH.load(Ordering::Acquire).min(PATH.len());
    // SAFETY: the bytes are initialised, AtomicU8 has the layout of u8, and once the length is set they only ever get
    // stored the value that they have.
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
    fn the_mapping_of_a_stack_holds_its_variables() {
        let check = || {
            let variable = 0_u64;
            let address = (&raw const variable) as u64;
            let mapping = mapping_of(address).expect("the stack is mapped");
            assert!(mapping.contains(&address));
            assert!(mapping.end - mapping.start >= 4096);
        };
        check();
        std::thread::spawn(check).join().unwrap();
        assert_eq!(mapping_of(8), None);
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
        assert!(!std::thread::spawn(is_main_thread).join().unwrap());
        assert!(stack_limit_bytes() > 64 << 10);
    }
}
