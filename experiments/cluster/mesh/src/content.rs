//! What is in the files: each cell of 4 KiB says which file, version and cell it is, and all its
//! other words follow from that. So a read shows what it got, and the source keeps nothing.

use anyhow::{Result, ensure};

/// The length of a cell.
pub(crate) const CELL_BYTES: u64 = 4096;

const WORDS: usize = CELL_BYTES as usize / 8;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn head(file: u32, version: u32, cell: u64) -> u64 {
    u64::from(version & 0xffff) << 48 | u64::from(file & 0xffff) << 32 | (cell & 0xffff_ffff)
}

fn word(head: u64, at: usize) -> u64 {
    head.wrapping_mul(STEP)
        .wrapping_add((at as u64).wrapping_mul(STEP))
}

/// The bytes of a range of whole cells.
pub(crate) fn fill(file: u32, version: u32, cells: std::ops::Range<u64>) -> Vec<u8> {
    let mut data = Vec::with_capacity(((cells.end - cells.start) * CELL_BYTES) as usize);
    for cell in cells {
        let head = head(file, version, cell);
        data.extend_from_slice(&head.to_le_bytes());
        for at in 1..WORDS {
            data.extend_from_slice(&word(head, at).to_le_bytes());
        }
    }
    data
}

/// The version of what was read of `file` from `cell` on.
///
/// # Errors
/// It is something else, or of several versions.
pub(crate) fn check(file: u32, cell: u64, data: &[u8]) -> Result<u32> {
    let (words, rest) = data.as_chunks();
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    ensure!(
        !words.is_empty() && rest.is_empty() && words.len().is_multiple_of(WORDS),
        "{} bytes are not whole cells",
        data.len()
    );
    let version = (words[0] >> 48) as u32;
    for (it, words) in (cell..).zip(words.chunks_exact(WORDS)) {
        let head = head(file, version, it);
        let is_right =
            words[0] == head && (1..).zip(&words[1..]).all(|(at, it)| *it == word(head, at));
        ensure!(is_right, "wrong bytes in cell {it} of file {file}");
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::{check, fill};

    #[test]
    fn what_was_filled_is_right_and_nothing_else() {
        let data = fill(3, 7, 5..9);
        assert_eq!(check(3, 5, &data).unwrap(), 7);
        assert_eq!(check(3, 6, &data[4096..]).unwrap(), 7);
        assert!(check(2, 5, &data).is_err());
        assert!(check(3, 6, &data).is_err());
        assert!(check(3, 5, &data[..100]).is_err());
        assert!(check(3, 5, &[]).is_err());
        let mixed = [fill(3, 7, 5..6), fill(3, 8, 6..7)].concat();
        assert!(check(3, 5, &mixed).is_err());
        for at in [0, 9, 4095, 4096, 16383] {
            let mut wrong = data.clone();
            wrong[at] ^= 1;
            assert!(check(3, 5, &wrong).is_err(), "{at}");
        }
    }
}
