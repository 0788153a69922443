//! The disk tier: blocks that outlive a restart, and more of them than memory holds.
//!
//! Each version of a file is one sparse file with the blocks at their own offsets. A journal says
//! which blocks are there, and what their checksum is. What it does not list does not exist; what
//! it lists is served only once its bytes have that checksum. So neither a crash nor a disk that
//! forgets or turns bits can make a read wrong: they cost hits.
//!
//! One thread writes (`writer`): the journal and the files change in its order alone. Readers
//! take the place of a block from the [`index`] and read it without a lock; a block that was
//! evicted meanwhile does not have its checksum any more.

mod folder;
pub mod index;
mod journal;
pub mod lending;
pub mod settings;
mod shared;
pub mod tier;
mod writer;
