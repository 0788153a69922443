//! Runs a placement policy for the memory of a program. The controller is pure: inputs in,
//! decisions out, and equal inputs give equal decisions.
//!
//! **First touch.** A region is *watched* until the policy has a tier for it. The policy places
//! each first fault that is seen. Once the tier is settled, the controller asks the policy about
//! all other pages of the region, in order, as if they were touched now, from the node of the last
//! fault. So the policy's rules on full nodes, and on how much of a program may be far, hold for
//! ranges as they do for pages.
//!
//! **Far regions.** Where the answer is another node, the program is asked to bind the range. That
//! holds for pages that it touches from then on. Those that it has touched stay where they are in a
//! first run: nothing has shown yet that moving them pays, and it may cost more than the whole
//! placement gains. Where an earlier run has shown where a region belongs, they are moved, once,
//! when the program reports that it has bound the range. As the program allocates more, more of its
//! memory may be far: the controller asks again about the pages that the policy kept near. Regions
//! that an earlier run has shown to be near, and that found no room there meanwhile, come back
//! once.
//!
//! **Near regions** are left to the kernel: its first choice is the node that touches a page, too,
//! and it knows best what is full by then.
//!
//! Who uses near regions is counted if the policy asks for counts ([`Migration`]), and so is who
//! uses all other memory that a program writes to ([`mapped_memory`]). What an earlier run found
//! out about a region is applied when it is allocated ([`saved_placements`]).
//!
//! **Choices that no paper makes.** A fault with huge pages brings in 2 MiB, so that the faults of
//! a stream are 512 pages apart. While no two faults of a region fell into the same 2 MiB, faults
//! are numbered by huge pages; so a program that touches one small page in each of five adjacent
//! huge ones is taken for a stream. A forked child's copies are not regions: shared pages cannot be
//! moved anyway, and pages that the child writes follow its parent's policy.
//!
//! The files that end this list of modules (`bind_requests` to `snapshot`) are parts of the
//! controller, one for each kind of input. The others are the types that it is made of, which know
//! nothing of it.
//!
//! [`Migration`]: super::migration::Migration

mod allocation_sites;
mod page_runs;
mod placement_controller;
mod saved_placements;
mod summary;
mod tracked_region;

mod bind_requests;
mod classification;
mod lifecycle;
mod mapped_memory;
mod moves;
mod snapshot;
#[cfg(test)]
mod tests;

pub(crate) use self::placement_controller::PlacementController;
pub use self::summary::MemorySummary;
