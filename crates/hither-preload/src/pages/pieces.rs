//! `mremap` of a range that was one mapping until this library split it.
//!
//! A part with a memory policy of its own is a mapping of its own to the kernel, which moves or
//! enlarges one mapping at a time and fails with EFAULT for a range of several. Once all parts have
//! the same policy again, the kernel joins them. It does not join mappings that were split before
//! anything was touched, nor those of a forked child (their `anon_vma` differ). These are moved one
//! by one.
//!
//! Meanwhile nothing of the program's may be lost, whatever fails and whatever its other threads
//! map. So each piece leaves its old place mapped (MREMAP_DONTUNMAP, Linux 5.7): nothing else can
//! be mapped there before all pieces have moved, and each can go back.

use std::ops::Range;

use hither_kernel::page_bytes;
use hither_kernel::syscalls;
use libc::c_int;

use super::maps::{self, Mapping};

/// linux/mman.h.
const DONTUNMAP: c_int = 4;

/// Pieces that can be moved; a range of more is left to the kernel, which refuses.
const PIECES_MAX: usize = 512;

/// Attempts to enlarge the last piece after it has moved. Each needs the place behind it to be free
/// for a moment, and something else may take that. After the last attempt, and at an address that
/// the program has named, the rest is new memory of the same rights.
const ENLARGE_TRIES_MAX: usize = 3;

/// Makes the call if the range is several mappings that could be one, and returns its result or
/// error. `None` if the kernel should make it.
///
/// # Safety
/// As `mremap` demands.
#[cold]
pub(crate) unsafe fn remap(
    address: u64,
    length: usize,
    to: usize,
    flags: c_int,
    at: u64,
) -> Option<Result<u64, c_int>> {
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let stays = flags & DONTUNMAP != 0;
    if flags & !(libc::MREMAP_FIXED | libc::MREMAP_MAYMOVE | DONTUNMAP) != 0 || to == 0 {
        return None;
    }
    let length = (length as u64).checked_next_multiple_of(page_bytes())?;
    let to = (to as u64).checked_next_multiple_of(page_bytes())?;
    let source = address..address.checked_add(length)?;
    // For a call that leaves an empty mapping behind, the target is a hint.
    let at = if is_fixed || stays { at } else { 0 };
    if at != 0 || is_fixed {
        let target = at..at.checked_add(to)?;
        let apart = target.end <= source.start || source.end <= target.start;
        if !may_move || !apart || at == 0 || !at.is_multiple_of(page_bytes()) {
            return None;
        }
    }
    // The kernel shrinks a range of several mappings itself.
    let is_for_the_kernel = if stays {
        !may_move || to != length
    } else {
        !is_fixed && to <= length
    };
    if is_for_the_kernel {
        return None;
    }
    let pieces = Pieces::of(&source)?;
    if !is_fixed && !stays {
        let last = pieces.within(&source).next_back()?;
        let bytes = last.end - last.start;
        let enlarged = bytes + (to - length);
        match remapped(last.start, bytes, enlarged, 0, 0) {
            Ok(_) => return Some(Ok(address)),
            Err(error) if !may_move => return Some(Err(error)),
            Err(_) => {}
        }
    }
    let kept = source.start..source.start + length.min(to);
    let mut result = Err(libc::ENOMEM);
    for tried in 0..=ENLARGE_TRIES_MAX {
        let target = match reserve(at, is_fixed, to) {
            Ok(start) => start..start + to,
            Err(error) => return Some(Err(error)),
        };
        let fills = is_fixed || tried == ENLARGE_TRIES_MAX;
        result = moved(&pieces, &kept, &target, fills);
        match result {
            Ok(()) => {
                if !stays {
                    unmap(&source);
                }
                return Some(Ok(target.start));
            }
            Err(libc::ENOMEM) if !fills => {}
            Err(_) => break,
        }
    }
    match result {
        // A kernel without MREMAP_DONTUNMAP.
        Err(libc::EINVAL) => None,
        Err(error) => Some(Err(error)),
        Ok(()) => None,
    }
}

/// The ends of the mappings of a range, in pages from its start.
struct Pieces {
    ends: [u32; PIECES_MAX],
    count: usize,
    /// The rights of all of them.
    rights: [u8; 4],
}

impl Pieces {
    /// `None` unless the range is several similar mappings without a gap.
    fn of(range: &Range<u64>) -> Option<Pieces> {
        let mut pieces = Pieces {
            ends: [0; PIECES_MAX],
            count: 0,
            rights: [0; 4],
        };
        let mut before: Option<Mapping> = None;
        let mut are_alike = true;
        maps::each(|mapping| {
            if mapping.end <= range.start {
                return true;
            }
            if mapping.start >= range.end {
                return false;
            }
            are_alike &= match before {
                Some(before) => before.end == mapping.start && before.rights == mapping.rights,
                None => mapping.start <= range.start,
            };
            are_alike &= !mapping.named && mapping.rights.ends_with(b"p");
            let pages = (mapping.end.min(range.end) - range.start) / page_bytes();
            match (pieces.ends.get_mut(pieces.count), u32::try_from(pages)) {
                (Some(end), Ok(pages)) => *end = pages,
                _ => are_alike = false,
            }
            pieces.count += 1;
            pieces.rights = mapping.rights;
            before = Some(*mapping);
            are_alike
        });
        let is_whole = before.is_some_and(|last| last.end >= range.end);
        (are_alike && is_whole && pieces.count > 1).then_some(pieces)
    }

    /// The pieces of a range with the same start, and perhaps an earlier end.
    fn within(&self, range: &Range<u64>) -> impl DoubleEndedIterator<Item = Range<u64>> {
        let Range { start, end } = *range;
        let border = move |piece: Option<usize>| {
            let pages = piece.and_then(|piece| self.ends.get(piece)).copied();
            (start + u64::from(pages.unwrap_or(0)) * page_bytes()).min(end)
        };
        (0..self.count)
            .map(move |piece| border(piece.checked_sub(1))..border(Some(piece)))
            .filter(|piece| piece.start < piece.end)
    }
}

/// Moves the pieces of a range into the reserved range, and enlarges the last one to the rest of
/// that, or `fills` it with new memory. If something fails, all is as before, and nothing stays
/// reserved.
fn moved(
    pieces: &Pieces,
    kept: &Range<u64>,
    target: &Range<u64>,
    fills: bool,
) -> Result<(), c_int> {
    let there = |piece: &Range<u64>| {
        let start = target.start + (piece.start - kept.start);
        start..start + (piece.end - piece.start)
    };
    let grown = there(kept).end..target.end;
    let mut moved = 0;
    // Whether the range for the last piece is reserved, or filled.
    let mut is_ours = !grown.is_empty();
    let mut result = Ok(());
    // The last piece first: it is the one that is likely to fail, for lack of memory.
    for piece in pieces.within(kept).rev() {
        let to = there(&piece);
        result = shift(&piece, to.start);
        if result.is_err() {
            break;
        }
        moved += 1;
        if moved > 1 || grown.is_empty() {
            continue;
        }
        result = if fills {
            allow(&grown, pieces.rights)
        } else {
            unmap(&grown);
            let bytes = to.end - to.start;
            remapped(to.start, bytes, target.end - to.start, 0, 0).map(drop)
        };
        if result.is_err() {
            is_ours = fills;
            break;
        }
    }
    if result.is_ok() {
        return result;
    }
    if is_ours {
        unmap(&grown);
    }
    for (number, piece) in pieces.within(kept).rev().enumerate() {
        let at = there(&piece);
        let bytes = piece.end - piece.start;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if number >= moved || shift(&at, piece.start).is_ok() {
            unmap(&at);
        } else {
            // Without leaving an empty mapping, which may be one too many.
            let _ = remapped(at.start, bytes, bytes, flags, piece.start);
        }
    }
    result
}

/// Moves a mapping and leaves an empty one behind.
fn shift(piece: &Range<u64>, to: u64) -> Result<(), c_int> {
    let bytes = piece.end - piece.start;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    remapped(piece.start, bytes, bytes, flags | DONTUNMAP, to).map(drop)
}

/// `mremap`.
fn remapped(at: u64, length: u64, to: u64, flags: c_int, target: u64) -> Result<u64, c_int> {
    let arguments = [
        at as usize,
        length as usize,
        to as usize,
        flags as usize,
        target as usize,
        0,
    ];
    // SAFETY: what is moved is what the program has moved, to where it wants it or to what was
    // reserved for that.
    answer(unsafe { syscalls::syscall(libc::SYS_mremap, arguments) })
}

/// Reserves addresses, so that nothing else can be mapped there.
fn reserve(at: u64, is_fixed: bool, length: u64) -> Result<u64, c_int> {
    let fixed = if is_fixed { libc::MAP_FIXED } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    let arguments = [
        at as usize,
        length as usize,
        libc::PROT_NONE as usize,
        flags as usize,
        usize::MAX,
        0,
    ];
    // SAFETY: what it replaces, the program has said may be replaced.
    answer(unsafe { syscalls::syscall(libc::SYS_mmap, arguments) })
}

/// `mprotect` of a reserved range.
fn allow(range: &Range<u64>, rights: [u8; 4]) -> Result<(), c_int> {
    let all = [
        (b'r', libc::PROT_READ),
        (b'w', libc::PROT_WRITE),
        (b'x', libc::PROT_EXEC),
    ];
    let has = |&(right, _): &(u8, c_int)| rights.contains(&right);
    let protection = all
        .iter()
        .filter(|right| has(right))
        .fold(libc::PROT_NONE, |all, &(_, right)| all | right);
    let length = (range.end - range.start) as usize;
    let arguments = [range.start as usize, length, protection as usize, 0, 0, 0];
    // SAFETY: nothing refers to what was reserved here.
    answer(unsafe { syscalls::syscall(libc::SYS_mprotect, arguments) }).map(drop)
}

fn unmap(range: &Range<u64>) {
    let length = (range.end - range.start) as usize;
    // SAFETY: the range was reserved here, or everything has been moved out of it.
    unsafe { syscalls::unmap(range.start as *mut u8, length) };
}

fn answer(result: isize) -> Result<u64, c_int> {
    u64::try_from(result).map_err(|_| -result as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_all_be_moved_is_all_where_it_was() {
        // So large that nothing else comes to lie where it was.
        const HOLE: u64 = 512 << 20;
        for (grows, fills) in [
            (0, false),
            (2 * page_bytes(), false),
            (2 * page_bytes(), true),
        ] {
            let length = HOLE + 2 * page_bytes();
            let first = syscalls::map(length as usize, None).expect("mapped");
            let pages = [HOLE, HOLE + page_bytes()].map(|at| {
                // SAFETY: it lies in the mapping.
                unsafe { first.add(at as usize) }
            });
            // SAFETY: both are mapped, and this test's own.
            pages.iter().for_each(|page| unsafe { page.write(7) });
            let source = first as u64..first as u64 + length;
            let start = reserve(0, false, length + grows).expect("room");
            let target = start..start + length + grows;
            // It comes last.
            unmap(&(source.start..source.start + HOLE));
            let mut pieces = Pieces {
                ends: [0; PIECES_MAX],
                count: 3,
                rights: *b"rw-p",
            };
            let hole = (HOLE / page_bytes()) as u32;
            pieces.ends[..3].copy_from_slice(&[hole, hole + 1, hole + 2]);
            assert_eq!(moved(&pieces, &source, &target, fills), Err(libc::EFAULT));
            // SAFETY: both are mapped again.
            assert!(pages.iter().all(|page| unsafe { page.read() } == 7));
            let mut is_left = false;
            maps::each(|mapping| {
                let inside = mapping.start < target.end && target.start < mapping.end;
                is_left |= inside && &mapping.rights == b"---p";
                true
            });
            assert!(!is_left, "what was reserved");
            unmap(&(pages[0] as u64..source.end));
        }
    }
}
