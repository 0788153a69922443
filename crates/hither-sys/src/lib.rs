//! The one place for system calls and shared memory.
//!
//! Between a recorded program and the agent:
//!
//! - [`record`]: the wire format of an event;
//! - `ring`: the single-producer, single-consumer queue that carries events, one a thread;
//! - [`session`]: the shared segment that holds the rings, as the agent sees it, and
//!   [`program_session`]: the same segment as a recorded program sees it;
//! - [`preload`]: how programs are told of the library that they load;
//! - [`bind_requests`]: the other direction, memory policies that the agent asks programs to set;
//! - [`userfaultfd_offers`]: descriptors that programs hand to the agent;
//! - [`replica`]: copies of files' blocks in shared memory. The agent fills them and programs read
//!   them, for as long as the [`lease_process`] holds a [`lease`] on the file.
//!
//! What the agent asks of the kernel:
//!
//! - [`process`]: processes, signals and clocks; [`process_tree`]: what programs read
//!   from storage; [`pid_namespace`]: whose process numbers are whose; [`cgroup`]: memory limits;
//! - [`machine`]: memory nodes and pages; [`memory_probe`]: what memory accesses and page moves
//!   cost;
//! - [`page_sampling`]: who uses which page. The samples come as [`page_faults`]. The [`samplers`]
//!   are the [`pmu`], the kernel's own [`hint_faults`], and [`userfaultfd`] write protection;
//! - [`page_cache`]: pages of files; [`file_map`]: the same pages by address; [`mapped_files`]: the
//!   same in programs that have mapped a file; [`address_spaces`]: what programs map, and their
//!   page faults; [`page_unmapping`]: has mapped pages fault again;
//! - [`private_folder`]: folders that only this user may write; [`acting`]: making and changing
//!   files as another user.
//!
//! Between a node and its clients: a [`shared_buffer`].
//!
//! What both need: [`syscalls`] past libc's symbols, which the preload library interposes, and past
//! its `errno`; [`this_process`]: what a process can find out about itself without libc, and
//! [`memory_limits`] whether it has room for the library;
//! [`huge_pages`]: an allocator that puts large arrays on huge pages.
#![allow(unsafe_code)]

pub mod acting;
pub mod address_spaces;
pub mod arena;
pub mod bind_requests;
pub mod cached_parts;
pub mod cgroup;
mod chunks;
pub mod file_map;
pub mod hint_faults;
pub mod huge_pages;
pub mod lease;
pub mod lease_process;
pub mod machine;
pub mod mapped_files;
pub mod memory_limits;
pub mod memory_probe;
#[cfg(test)]
#[path = "../../../testing/needs.rs"]
mod needs;
pub mod page_cache;
pub mod page_faults;
mod page_map;
mod page_moves;
pub mod page_sampling;
pub mod page_unmapping;
pub mod pid_namespace;
mod plausible;
pub mod pmu;
mod pool_parts;
pub mod preload;
pub mod private_folder;
pub mod process;
pub mod process_tree;
pub mod program_session;
pub mod record;
pub mod replica;
mod ring;
pub mod samplers;
mod seccomp;
mod segment;
pub mod session;
mod session_name;
pub mod shared_buffer;
mod shared_memory;
#[cfg(test)]
#[path = "../../../testing/skip.rs"]
mod skip;
pub mod syscalls;
mod sysfs;
pub mod this_process;
pub mod userfaultfd;
pub mod userfaultfd_offers;
pub mod writable_memory;
