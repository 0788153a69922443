//! What hither asks of the kernel: system calls, one safe wrapper each.
//!
//! - [`process`]: processes, signals and clocks; [`process_tree`]: what programs read from storage;
//!   [`pid_namespace`]: whose process numbers are whose; [`cgroup`]: memory limits; [`seccomp`]:
//!   which calls a process may make;
//! - [`page_bytes`]: the size of a page; [`machine`]: memory nodes and pages; [`memory_policy`]: on
//!   which nodes a range is placed; [`memory_probe`]: what memory accesses and page moves cost;
//! - [`page_sampling`]: who uses which page. The samples come as [`page_faults`]. The [`samplers`]
//!   are the [`pmu`], the kernel's own [`hint_faults`], and [`userfaultfd`] write protection;
//! - [`page_cache`]: pages of files; [`file_map`]: the same pages by address; [`mapped_files`]: the
//!   same in programs that have mapped a file; [`address_spaces`]: what programs map, and their
//!   page faults; [`page_unmapping`]: has mapped pages fault again;
//! - [`file_id`]: what names a file, whatever its path is; [`lease`]: being told before a file
//!   changes;
//! - [`private_folder`]: folders that only this user may write; [`acting`]: making and changing
//!   files as another user; [`fuse_device`]: what serves a mount;
//! - [`shared_memory`] without a file, and a [`shared_buffer`] with a descriptor;
//! - [`syscalls`] past libc's symbols, which the preload library interposes, and past its `errno`;
//!   [`this_process`]: what a process can find out about itself without libc; `arch`: what depends
//!   on the processor; [`notify`]: what systemd is told of this process;
//! - [`huge_pages`]: an allocator that puts large arrays on huge pages; [`arena`]: memory in frames
//!   of one size.
#![allow(unsafe_code)]

pub mod acting;
pub mod address_spaces;
mod arch;
pub mod arena;
pub mod by_generation;
pub mod cached_parts;
pub mod cgroup;
pub mod file_id;
pub mod file_map;
pub mod fuse_device;
pub mod hint_faults;
pub mod huge_pages;
pub mod lease;
pub mod machine;
pub mod mapped_files;
pub mod memory_policy;
pub mod memory_probe;
pub mod notify;
pub mod page_cache;
pub mod page_faults;
mod page_map;
mod page_moves;
pub mod page_sampling;
mod page_size;
pub mod page_unmapping;
pub mod pid_namespace;
pub mod pmu;
pub mod private_folder;
pub mod process;
pub mod process_tree;
pub mod samplers;
pub mod seccomp;
pub mod shared_buffer;
pub mod shared_memory;
pub mod syscalls;
pub mod sysfs;
pub mod this_process;
pub mod userfaultfd;
pub mod writable_memory;

pub use page_size::{PAGE_BYTES_MIN, page_bytes};

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
