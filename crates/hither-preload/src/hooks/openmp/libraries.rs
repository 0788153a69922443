//! The program and its libraries, as the dynamic linker lists them: their addresses, and what their
//! calls are bound to.

use std::ffi::{CStr, c_int, c_void};

use crate::arch::BINDINGS;
use crate::signature::is_readable;

/// Visits the program and all libraries, in the order in which they were loaded, until a visit
/// returns true. It holds a lock of the linker: nothing may be opened or looked up meanwhile.
pub(super) fn each_library(visit: &mut dyn FnMut(&libc::dl_phdr_info) -> bool) {
    unsafe extern "C" fn one(
        library: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: it is the reference below, which nobody else uses meanwhile.
        let visit = unsafe { &mut *visit.cast::<&mut dyn FnMut(&libc::dl_phdr_info) -> bool>() };
        // SAFETY: the linker passes a description that is whole for the time of the call.
        c_int::from(visit(unsafe { &*library }))
    }
    let mut visit = visit;
    // SAFETY: the callback has the type asked for and gets the reference, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut visit).cast()) };
}

/// The bounds of the segment of a library that holds this address.
pub(super) fn segment_of(library: &libc::dl_phdr_info, address: u64) -> Option<(u64, u64)> {
    headers(library)
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD)
        .map(|header| {
            let start = library.dlpi_addr + header.p_vaddr;
            (start, start + header.p_memsz)
        })
        .find(|(start, end)| (*start..*end).contains(&address))
}

/// The path of a library by its index in the list. None for the program itself, which has no name
/// there.
pub(super) fn path_of(number: usize, path: &mut [u8]) -> Option<&CStr> {
    let (mut at, mut copied) = (0, false);
    each_library(&mut |library| {
        if at == number && !library.dlpi_name.is_null() {
            // SAFETY: the name is a C string that is there while the library is visited; it may be
            // gone right after.
            let name = unsafe { CStr::from_ptr(library.dlpi_name) }.to_bytes_with_nul();
            let to = path.get_mut(..name.len()).filter(|_| name.len() > 1);
            copied = to.map(|to| to.copy_from_slice(name)).is_some();
        }
        at += 1;
        at > number
    });
    copied.then(|| CStr::from_bytes_until_nul(path).ok())?
}

/// The address, in another library, to which a symbol of the library around this address is bound:
/// of the wanted symbols, the first one that is bound.
pub(super) fn bound(address: u64, is_wanted: impl Fn(&CStr) -> bool) -> Option<u64> {
    let mut bound = None;
    each_library(&mut |library| {
        let is_it = segment_of(library, address).is_some();
        if is_it {
            bound = bound_in(library, &is_wanted);
        }
        is_it
    });
    bound
}

fn bound_in(library: &libc::dl_phdr_info, is_wanted: &dyn Fn(&CStr) -> bool) -> Option<u64> {
    const PLT_BYTES: u64 = 2;
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const RELOCATIONS: u64 = 7;
    const RELOCATIONS_BYTES: u64 = 8;
    const PLT: u64 = 23;

    let dynamic = headers(library)
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let from = library.dlpi_addr + dynamic.p_vaddr;
    let dynamic = words::<2>(library, from, dynamic.p_memsz)?;
    let entry = |tag| {
        let found = dynamic.iter().take_while(|entry| entry[0] != 0);
        found
            .filter(|entry| entry[0] == tag)
            .map(|entry| entry[1])
            .next()
    };
    // The linker has turned most of these into addresses.
    let at = |tag| {
        let at = entry(tag)?;
        Some(if at < library.dlpi_addr {
            at + library.dlpi_addr
        } else {
            at
        })
    };
    let (symbols, strings) = (at(SYMBOLS)?, at(STRINGS)?);
    let name_of = |symbol: u64| {
        let symbol = words::<3>(library, symbols + symbol * 24, 24)?.first()?;
        let name = strings + (symbol[0] & 0xffff_ffff);
        let length = segment_of(library, name)?.1 - name;
        CStr::from_bytes_until_nul(bytes(library, name, length)?).ok()
    };
    [(PLT, PLT_BYTES), (RELOCATIONS, RELOCATIONS_BYTES)]
        .into_iter()
        .filter_map(|(start, length)| words::<3>(library, at(start)?, entry(length)?))
        .flatten()
        .filter(|[_, what, _]| BINDINGS.contains(&(what & 0xffff_ffff)))
        .filter(|[_, what, _]| name_of(what >> 32).is_some_and(is_wanted))
        .filter_map(|[to, ..]| Some(words::<1>(library, library.dlpi_addr + to, 8)?.first()?[0]))
        // A symbol that is bound at its first call points back into the library until then.
        .find(|&to| to != 0 && segment_of(library, to).is_none())
}

fn headers(library: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: that many headers lie there while the library is loaded, as it is while it is
    // visited.
    unsafe { std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)) }
}

/// Entries of so many words each.
fn words<const N: usize>(
    library: &libc::dl_phdr_info,
    from: u64,
    length: u64,
) -> Option<&[[u64; N]]> {
    let bytes = bytes(library, from, length)?;
    let words = bytes.as_ptr().cast::<[u64; N]>();
    // SAFETY: the bytes are there, any are words, and they are aligned.
    words
        .is_aligned()
        .then(|| unsafe { std::slice::from_raw_parts(words, bytes.len() / size_of::<[u64; N]>()) })
}

fn bytes(library: &libc::dl_phdr_info, from: u64, length: u64) -> Option<&[u8]> {
    let is_there = is_readable(headers(library), library.dlpi_addr, (from, length));
    // SAFETY: a readable segment of the library holds them, which stays loaded while it is visited.
    is_there.then(|| unsafe { std::slice::from_raw_parts(from as *const u8, length as usize) })
}
