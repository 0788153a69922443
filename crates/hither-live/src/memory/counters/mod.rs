//! How accesses are counted while a program runs: a few of its pages are armed at a time, and who
//! touches them next stands for who uses them.
//!
//! [`Plan`] says which pages to arm and when, [`Estimates`] turns what was seen into counts that a
//! placement policy can take for the truth. Both are pure: they hear of time and chance through
//! their arguments and their seed alone.
//!
//! What a sample is: the node of the *first* touch after a page was armed. Armed at random times, a
//! page shows a node as often as the time before that node's touches is long. Where several nodes
//! use a page in turn, that is how often each begins to, not how many loads and stores follow; and
//! a node whose accesses always follow closely on another one's is seen too seldom. Where the
//! moments are the kernel's, which depend on what the program does, [`Phases`] says what samples
//! count as. What uses a page alone is always seen alone, which is the case that migration is for.

mod bounds;
mod estimates;
mod phases;
mod plan;
mod stratified;

pub(crate) use estimates::Estimates;
pub(crate) use phases::Phases;
pub(crate) use plan::{Budget, CPUS_MAX, PERMILLE, Pick, Plan};

/// A region has at least so many windows, if it is large enough for them: enough for the parts of
/// its threads, and so few that a second gives all of them the samples that they need. (4096 at
/// first: of a program of 10,000 pages few windows ever had enough of them, 2026-11.) One that two
/// threads share is told by its halves.
const WINDOWS: u32 = 64;

/// 64 KiB of small pages, which threads hardly ever share finer.
const WINDOW_PAGES_MIN: u32 = 16;

/// 2 MiB of small pages.
const WINDOW_PAGES_MAX: u32 = 512;

/// Pages of a window, a power of two: what is sampled together. A large region has larger ones, so
/// that its windows get their samples in a time that does not grow with it.
pub(crate) fn window_pages(pages: u32) -> u32 {
    (pages / WINDOWS)
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
