//! How large Linux's readahead windows are (`mm/readahead.c`). All sizes are in pages.

/// The size of the first window of a sequential reader that asked for so many pages, where windows
/// have at most `window` pages: `get_init_ra_size` of the kernel.
pub fn first_size(asked: u32, window: u32) -> u32 {
    let asked = asked.next_power_of_two();
    if asked <= window / 32 {
        4 * asked
    } else if asked <= window / 4 {
        2 * asked
    } else {
        window
    }
}

/// The size of the window after one of `size` pages: `get_next_ra_size` of the kernel.
pub fn next_size(size: u32, window: u32) -> u32 {
    if size < window / 16 {
        4 * size
    } else if size <= window / 2 {
        2 * size
    } else {
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_to_the_largest() {
        assert_eq!([1, 4, 9].map(|asked| first_size(asked, 32)), [4, 8, 32]);
        assert_eq!(
            [1, 2, 16, 17].map(|size| next_size(size, 32)),
            [4, 4, 32, 32]
        );
    }
}
