//! Windows: the pages of a region that are sampled together.

/// The least number of windows of a region that is large enough for them. That is enough to tell
/// the parts of its threads apart, and few enough for each to get its samples within a second.
/// (With 4096, few windows of a program of 10,000 pages ever had enough samples, 2026-11.) A window
/// that two threads share is split into halves.
const WINDOWS_PER_REGION_MIN: u32 = 64;

/// 64 KiB of small pages; threads hardly ever share memory in smaller pieces.
const WINDOW_PAGES_MIN: u32 = 16;

/// 2 MiB of small pages.
const WINDOW_PAGES_MAX: u32 = 512;

/// Pages of a window, which are sampled together: a power of two. Large regions have large windows,
/// so that the time until all windows have samples does not grow with the region.
pub(crate) fn window_pages(pages: u32) -> u32 {
    (pages / WINDOWS_PER_REGION_MIN)
        .next_power_of_two()
        .clamp(WINDOW_PAGES_MIN, WINDOW_PAGES_MAX)
}

#[cfg(test)]
mod tests {
    use super::window_pages;

    #[test]
    fn large_regions_have_large_windows() {
        assert_eq!(window_pages(1), 16);
        assert_eq!(window_pages(16 * 64), 16);
        assert_eq!(window_pages(64 * 64), 64);
        assert_eq!(window_pages(10_000), 256);
        assert_eq!(window_pages(u32::MAX / 2), 512);
    }
}
