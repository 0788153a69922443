//! The mappings of this process, read from /proc/self/maps without allocating.

use std::sync::atomic::{AtomicUsize, Ordering};

use hither_kernel::syscalls;

/// The properties of a mapping that are needed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Its rights, and whether it is private: "rw-p".
    pub(crate) rights: [u8; 4],
    /// Whether it is of a file, or has a name: the heap, a stack.
    pub(crate) named: bool,
}

/// How many mappings a process may have (`vm.max_map_count`).
pub(crate) fn most() -> usize {
    const MAX_MAP_COUNT_DEFAULT: usize = 65530;
    /// 0 until it was read.
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let known = MOST.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let mut most = 0_usize;
    read_all(c"/proc/sys/vm/max_map_count", |byte| {
        if byte.is_ascii_digit() {
            most = most
                .saturating_mul(10)
                .saturating_add(usize::from(byte - b'0'));
        }
        true
    });
    let most = if most == 0 {
        MAX_MAP_COUNT_DEFAULT
    } else {
        most
    };
    MOST.store(most, Ordering::Relaxed);
    most
}

/// Visits the mappings by address, while `found` returns true. Stops at what cannot be read.
pub(crate) fn each(mut found: impl FnMut(&Mapping) -> bool) {
    let mut line = Line::default();
    read_all(c"/proc/self/maps", |byte| match line.take(byte) {
        Some(mapping) => found(&mapping),
        None => true,
    });
}

/// Reads a file byte by byte, while `take` returns true.
fn read_all(path: &std::ffi::CStr, mut take: impl FnMut(u8) -> bool) {
    let Ok(fd) = syscalls::open(path, libc::O_RDONLY) else {
        return;
    };
    let mut buffer = [0; 1024];
    loop {
        match syscalls::read(fd, &mut buffer) {
            Err(libc::EINTR) => {}
            Ok(length @ 1..) => {
                let mut read = buffer.iter().take(length);
                if !read.all(|&byte| take(byte)) {
                    break;
                }
            }
            _ => break,
        }
    }
    syscalls::close(fd);
}

/// A line of the file as far as it was read: "start-end rights offset device inode name".
#[derive(Default)]
struct Line {
    mapping: Mapping,
    /// The number of fields before the current one, and the bytes of that so far.
    field: usize,
    length: usize,
}

impl Line {
    /// Takes a byte; returns the mapping at the end of its line.
    fn take(&mut self, byte: u8) -> Option<Mapping> {
        const NAME_FIELD: usize = 6;
        let mapping = &mut self.mapping;
        let digit = || u64::from((byte as char).to_digit(16).unwrap_or(0));
        match (self.field, byte) {
            (_, b'\n') => return Some(std::mem::take(self).mapping),
            // Blanks before the name stand in a row.
            (NAME_FIELD, b' ') if self.length == 0 => return None,
            (NAME_FIELD, _) => mapping.named = true,
            (0, b'-') | (1..NAME_FIELD, b' ') => {
                self.field += 1;
                self.length = 0;
                return None;
            }
            (0, _) => mapping.start = mapping.start << 4 | digit(),
            (1, _) => mapping.end = mapping.end << 4 | digit(),
            (2, _) => {
                if let Some(right) = mapping.rights.get_mut(self.length) {
                    *right = byte;
                }
            }
            _ => {}
        }
        self.length += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let mut line = Line::default();
        let text = b"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b\n\
            7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
            7ffc0-7ffd0 rw-s 00000000 00:00 0                          [stack]\n";
        let found: Vec<_> = text.iter().filter_map(|&byte| line.take(byte)).collect();
        let of = |start, end, rights: &[u8; 4], named| Mapping {
            start,
            end,
            rights: *rights,
            named,
        };
        let expected = [
            of(0x40_0000, 0x45_2000, b"r-xp", true),
            of(0x7f00_0000_0000, 0x7f00_0020_0000, b"rw-p", false),
            of(0x7_ffc0, 0x7_ffd0, b"rw-s", true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn our_own_are_found() {
        let on_stack = 1_u8;
        let at = (&raw const on_stack) as u64;
        let mut holding = 0;
        let mut last = 0;
        each(|mapping| {
            assert!(last <= mapping.start && mapping.start < mapping.end);
            last = mapping.end;
            holding += u32::from((mapping.start..mapping.end).contains(&at));
            true
        });
        assert_eq!(holding, 1);
        assert!(most() >= 1024);
    }
}
