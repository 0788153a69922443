//! Which node serves a path, by the word of nobody but the kernel.
//!
//! Anybody may set an attribute of his file, and any file system in user space may answer for one.
//! So the attribute is believed on a mount of hither alone, if it was mounted by this user or by
//! root (root believes any), and the socket that it names must be that user's. Else a stranger
//! could have commands talk to whatever socket he likes.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, getxattr, openat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

/// The attribute of a mount's files that names the control socket of the node.
pub const SOCKET_ATTRIBUTE: &str = "user.hither.socket";

/// What the names of devices of our mounts start with.
const DEVICE: &str = "hither:";

/// The control socket of the node that serves `path`.
///
/// # Errors
/// The path is in no mount of hither that is this user's or root's
/// ([`Unsupported`](io::ErrorKind::Unsupported)), or what the system says of it.
pub fn socket_of(path: &Path) -> io::Result<PathBuf> {
    let unsupported = |what: &str| {
        let what = format!("{} {what}", path.display());
        io::Error::new(io::ErrorKind::Unsupported, what)
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty())?;
    let owner =
        mount_owner(file.as_raw_fd())?.ok_or_else(|| unsupported("is in no mount of hither"))?;
    let own = rustix::process::geteuid().as_raw();
    if own != 0 && owner != 0 && owner != own {
        return Err(unsupported("is in a mount of another user"));
    }
    let mut value = [0; 4096];
    let at = format!("/proc/self/fd/{}", file.as_raw_fd());
    let socket = match getxattr(&*at, SOCKET_ATTRIBUTE, &mut value[..]) {
        Ok(bytes) => PathBuf::from(OsString::from_vec(value[..bytes].to_vec())),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {
            return Err(unsupported("is in a mount whose node has no socket"));
        }
        Err(error) => return Err(error.into()),
    };
    let peer = socket_peercred(UnixStream::connect(&socket)?)?;
    if peer.uid.as_raw() == owner {
        Ok(socket)
    } else {
        Err(unsupported(
            "is in a mount that names a socket of another user",
        ))
    }
}

/// Who has mounted the file system of hither that a descriptor is on. `None` if it is on another
/// one.
fn mount_owner(fd: i32) -> io::Result<Option<u32>> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let mut lines = about.lines();
    let mount = lines.find_map(|line| line.strip_prefix("mnt_id:"));
    let mounts = fs::read("/proc/self/mountinfo")?;
    let owner = mount.and_then(|mount| {
        let mut lines = mounts.split(|&byte| byte == b'\n');
        lines.find_map(|line| owner_of(line, mount.trim()))
    });
    Ok(owner)
}

/// The owner, if a line of `mountinfo` (proc_pid_mountinfo(5)) is that of the mount of this number,
/// and the mount is one of hither: behind a lone `-` are type, device and options.
fn owner_of(line: &[u8], mount: &str) -> Option<u32> {
    let mut fields = line.split(|&byte| byte == b' ');
    if fields.next()? != mount.as_bytes() {
        return None;
    }
    fields.find(|field| *field == b"-")?;
    let (kind, device, options) = (fields.next()?, fields.next()?, fields.next()?);
    if kind != b"fuse" || !device.starts_with(DEVICE.as_bytes()) {
        return None;
    }
    let mut options = options.split(|&byte| byte == b',');
    let owner = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(owner).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_mount_is_what_the_kernel_says() {
        let line = |kind: &str, device: &str| {
            format!(
                "36 25 0:33 / /mnt/a ro,nosuid shared:1 - {kind} {device} ro,user_id=7,group_id=7"
            )
        };
        let owner = |line: &str, mount| owner_of(line.as_bytes(), mount);
        assert_eq!(owner(&line("fuse", "hither:s3://x"), "36"), Some(7));
        assert_eq!(owner(&line("fuse", "hither:s3://x"), "3"), None);
        assert_eq!(owner(&line("fuse.sshfs", "hither:x"), "36"), None);
        assert_eq!(owner(&line("fuse", "sshfs"), "36"), None);
        assert_eq!(
            owner("36 25 0:33 / /mnt/user_id=0 rw - fuse hither: rw", "36"),
            None
        );
    }

    #[test]
    fn an_attribute_of_a_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let socket = folder.path().join("1.sock");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        fs::write(&file, "").unwrap();
        let value = socket.as_os_str().as_encoded_bytes();
        let flags = rustix::fs::XattrFlags::empty();
        // Where its file system has no attributes, there is nothing to be believed either.
        let _ = rustix::fs::setxattr(&file, SOCKET_ATTRIBUTE, value, flags);
        let error = socket_of(&file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
