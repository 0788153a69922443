//! Opens paths below a root, and never anything outside it: no symbolic link is followed, and a
//! [`SourcePath`](super::super::SourcePath) has no `..`.
//!
//! The kernel enforces it by `openat2`. Where that is missing (before Linux 5.6, or under an old
//! seccomp filter), the path is walked one component at a time, each opened without following a
//! link. The walk differs in one case: a directory that is moved out of the root while a path below
//! it is walked is still entered.

use std::path::Path;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, Result};

/// The longest path of one system call. The kernel's limit is 4096 with the NUL; longer paths are
/// opened in steps.
const STEP_BYTES_MAX: usize = 4000;

/// Attempts at one `openat2`, which fails with EAGAIN while something is renamed below the root.
const RENAME_ATTEMPTS: usize = 64;

/// The root of a directory source.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    has_openat2: bool,
}

impl Root {
    /// Opens the directory `path`. The path to the root itself may contain links.
    pub(super) fn open(path: &Path) -> Result<Root> {
        let fd = openat(
            CWD,
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let probe = step_by_openat2(fd.as_fd(), b".", OFlags::PATH | OFlags::CLOEXEC);
        let has_openat2 = match probe {
            Ok(_) => true,
            Err(Errno::NOSYS | Errno::PERM) => false,
            Err(error) => return Err(error),
        };
        if !has_openat2 {
            tracing::warn!("no openat2(2) here: paths are opened one component at a time");
        }
        Ok(Root { fd, has_openat2 })
    }

    /// Opens `path`, without following a link anywhere. With [`OFlags::PATH`] a link at the end is
    /// opened itself; otherwise it is the error ELOOP.
    pub(super) fn open_beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut rest = if path.is_empty() { b"." } else { path };
        let mut reached: Option<OwnedFd> = None;
        loop {
            let (step, after) = self.first_step(rest);
            let step_flags = match after {
                [] => flags,
                _ => OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            };
            let from = reached.as_ref().unwrap_or(&self.fd).as_fd();
            let fd = if self.has_openat2 {
                step_by_openat2(from, step, step_flags)?
            } else {
                openat(from, step, step_flags, Mode::empty())?
            };
            if after.is_empty() {
                return Ok(fd);
            }
            reached = Some(fd);
            rest = after;
        }
    }

    /// The part of `path` that the next system call opens, and what is left.
    fn first_step<'a>(&self, path: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let limit = if self.has_openat2 { STEP_BYTES_MAX } else { 0 };
        if path.len() <= limit {
            return (path, b"");
        }
        let is_slash = |&byte: &u8| byte == b'/';
        let cut = path[..limit]
            .iter()
            .rposition(is_slash)
            .or_else(|| path.iter().position(is_slash));
        match cut {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (path, b""),
        }
    }

    /// The root without `openat2`, to test the walk.
    #[cfg(test)]
    fn without_openat2(mut self) -> Root {
        self.has_openat2 = false;
        self
    }
}

fn step_by_openat2(from: BorrowedFd<'_>, step: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mut attempts = 1;
    loop {
        match openat2(from, step, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if attempts < RENAME_ATTEMPTS => attempts += 1,
            opened => return opened,
        }
    }
}

/// The path of what a descriptor has open, for calls that take no descriptor.
pub(super) fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn both_ways(path: &Path) -> [Root; 2] {
        [
            Root::open(path).unwrap(),
            Root::open(path).unwrap().without_openat2(),
        ]
    }

    #[test]
    fn nothing_outside_the_root_is_opened() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("inner")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        fs::write(root.join("inner/file"), "file").unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink(outer.path(), root.join("absolute")).unwrap();
        symlink("inner", root.join("within")).unwrap();
        for root in both_ways(&root) {
            assert!(root.open_beneath(b"inner/file", OFlags::RDONLY).is_ok());
            assert!(root.open_beneath(b"", OFlags::RDONLY).is_ok());
            for path in [&b"link"[..], b"absolute/secret", b"within/file"] {
                let error = root.open_beneath(path, OFlags::RDONLY).unwrap_err();
                assert!(
                    matches!(error, Errno::LOOP | Errno::NOTDIR),
                    "{}: {error}",
                    path.escape_ascii()
                );
            }
            assert!(root.open_beneath(b"link", OFlags::PATH).is_ok(), "itself");
        }
        // Only the kernel refuses `..`; a source path cannot contain it.
        let [root, _] = both_ways(&root);
        if root.has_openat2 {
            assert!(root.open_beneath(b"../secret", OFlags::RDONLY).is_err());
        }
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_opened_in_steps() {
        let folder = tempfile::tempdir().unwrap();
        let name = [b'd'; 200];
        let mut at = openat(CWD, folder.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let mut path = Vec::new();
        for depth in 0..60 {
            rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).unwrap();
            at = openat(&at, &name[..], OFlags::RDONLY, Mode::empty()).unwrap();
            if depth > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
        }
        openat(&at, "end", OFlags::CREATE | OFlags::RDWR, Mode::RWXU).unwrap();
        path.extend_from_slice(b"/end");
        assert!(path.len() > 3 * STEP_BYTES_MAX - 100);
        for root in both_ways(folder.path()) {
            assert!(root.open_beneath(&path, OFlags::RDONLY).is_ok());
        }
    }
}
