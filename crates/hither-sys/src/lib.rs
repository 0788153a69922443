//! The one place for system calls and shared memory.
//!
//! [`record`] is the wire format between a recorded program and the agent, [`ring`] the
//! single-producer, single-consumer queue that carries it, [`session`] the shared segment that
//! holds one ring a thread: its agent's side, and [`attach`] the recorded program's. [`orders`] go
//! the other way, from agent to programs. [`raw`] makes system calls past libc's symbols, which the
//! preload library interposes, and past its `errno`; [`process`] is what the agent needs of
//! processes and signals, [`machine`] what it needs of memory nodes and pages, and [`faults`] how
//! it sees pages being touched, [`page_cache`] what it needs of files' pages, [`file_map`] how it
//! has them by address, and [`cgroup`] of the memory that they may have, [`arm`] how it has pages
//! faulted on anew: by the kernel's own [`hints`], by [`userfaultfd`], which programs hand over as
//! [`offers`], or not at all where [`hardware`] counts. [`replica`]s of files' blocks are shared
//! memory that the agent fills and programs read, for as long as it has a [`lease`] on the file.
//! [`probe`] measures what memory costs. [`large`] is an allocator that puts large arrays on huge
//! pages.
#![allow(unsafe_code)]

pub mod arm;
pub mod attach;
pub mod cgroup;
mod confined;
pub mod faults;
pub mod file_map;
pub mod folder;
pub mod hardware;
pub mod hints;
pub mod large;
pub mod lease;
pub mod machine;
pub mod offers;
pub mod orders;
pub mod own;
pub mod page_cache;
pub mod probe;
pub mod process;
pub mod raw;
pub mod record;
pub mod replica;
pub mod ring;
mod segment;
pub mod session;
pub mod userfaultfd;
