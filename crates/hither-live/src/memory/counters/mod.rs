//! Counts accesses while a program runs, by sampling: a few of its pages are armed at a time, and
//! the next thread that touches an armed page is taken as a sample of who uses it.
//!
//! [`Plan`] says which pages to arm and when. [`Estimates`] turns samples into counts that a
//! placement policy can treat as exact. Both are pure: time and randomness come in as arguments and
//! a seed.
//!
//! A sample is the node of the *first* touch after a page was armed. If pages are armed at random
//! times, a node is seen as often as the time before its touches is long. Where several nodes use a
//! page in turn, that is how often each of them starts to use it, not how many loads and stores
//! follow. A node whose accesses always follow closely on another node's is seen too seldom. Where
//! the kernel chooses the times, which then depend on what the program does, [`Phases`] says what a
//! sample counts as. A page that one node uses alone is always seen from that node; that is the
//! case that migration is for.

mod bounds;
mod estimates;
mod phases;
mod plan;
mod stratified;

pub(crate) use estimates::Estimates;
pub(crate) use phases::Phases;
pub(crate) use plan::{Budget, CPUS_MAX, PERMILLE, Pick, Plan};

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
