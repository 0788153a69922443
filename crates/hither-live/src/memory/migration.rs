//! Moves memory to its users: counts who uses what by samples, asks the policy, and has pages
//! moved.
//!
//! A sample is an access by a thread on a node to a page on a node. Where it comes from is not
//! known here ([`SampleSource`]), except that pages may have to be armed for it ([`arming`]).
//! [`counts`] makes ranges of a region's samples. The policy is asked about the cells of these
//! ranges at the end of an iteration, or ten times a second in a program without iterations, as far
//! as there are new samples ([`program`]). [`moves`] has moved what it wants.
//!
//! Choices that the papers leave open:
//!
//! - A cell that is used in an iteration counts as read once from memory, line by line, since
//!   samples only show shares. The counts are those of all iterations since threads last moved, as
//!   the paper's counters go on over iterations: a move that does not pay within one iteration is
//!   made once it would have paid.
//! - The samples of a region from before a second node used it are dropped: one thread fills the
//!   region, and then all use it. So are all of a program's samples when half of its threads have
//!   moved to other nodes.
//! - The policy learns the outcomes of its migrations when all that it asked for at once are known,
//!   and is not asked before.
//! - A process whose pages cannot be moved is left alone from then on. After a batch of which no
//!   page moved, since all were busy, the policy is not asked for a pause that doubles.

mod armed_pages;
mod arming;
mod counts;
mod epochs;
mod listening;
mod moves;
mod pending;
mod program;
mod region;
mod samples;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use self::region::RegionStart;
pub(crate) use self::state::Migration;
