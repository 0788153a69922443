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
mod windows;

pub(crate) use estimates::Estimates;
pub(crate) use phases::Phases;
pub(crate) use plan::{CPUS_MAX, PERMILLE, Pick, Plan, SamplingBudget};
pub(crate) use windows::window_pages;
