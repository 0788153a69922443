//! The size of a page, asked of the kernel once. Hooks of the preload library ask too, so nothing
//! here allocates or changes `errno`.

use std::sync::atomic::{AtomicU32, Ordering};

/// The least size of a page that Linux has on any processor: what must lie in one page may be so
/// large.
pub const PAGE_BYTES_MIN: usize = 4096;

/// The binary logarithm of the size; 0 before the kernel was asked.
static SHIFT: AtomicU32 = AtomicU32::new(0);

/// Size of a page in bytes. It is a power of two, and the compiler knows it: to divide by it is to
/// shift.
#[inline]
pub fn page_bytes() -> u64 {
    let known = SHIFT.load(Ordering::Relaxed);
    1 << if known == 0 { ask() } else { known }
}

#[cold]
fn ask() -> u32 {
    // SAFETY: it reads what the process was started with. Each process is told, so `errno` stays.
    let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) };
    let shift = bytes.max(PAGE_BYTES_MIN as u64).ilog2();
    SHIFT.store(shift, Ordering::Relaxed);
    shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_libc_says() {
        // SAFETY: sysconf takes no memory.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        assert_eq!(u64::try_from(bytes), Ok(page_bytes()));
        assert!(page_bytes().is_power_of_two());
    }
}
