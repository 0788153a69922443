//! `file:///path`: a directory as a source, be it on NFS, Lustre or a local disk.
//!
//! Blocking calls run on threads of their own, a bounded number at once. So a file system that
//! hangs costs these threads and nothing else: each request fails after its deadline.
//!
//! What is changed for a user is changed as that user, where this process may act as one: root's
//! mount does for nobody what that user may not do at the source.
//!
//! A read compares the file's version *after* it has its bytes: the kernel moves a file's times
//! before a write changes its bytes. Two things are beyond this. Stores through a shared mapping
//! move the times once per write-back, not once per store. And a network file system reports a
//! change by another machine only when its own rules let it.

mod attributes;
mod beneath;
mod caller;
mod copying;
mod held;
mod kept;
mod open_file;
mod partial;
mod placing;
mod source;
mod tree;
mod writing;

pub(super) use self::source::open;
