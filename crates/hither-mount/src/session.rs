//! Mounting and unmounting.

use std::fs::OpenOptions;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use hither_kernel::fuse_device::can_clone;
use hither_node::source::write::may_act;
use hither_node::source::{Kind, SourceError, SourcePath};
use hither_node::volume::Volume;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::attributes::{Consistency, Owner};
use crate::filesystem::CachedFiles;
use crate::invalidation;
use crate::shared::View;

/// How a volume is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountSettings {
    /// How old what programs see may be.
    pub consistency: Consistency,
    /// Whether reads go past the kernel's page cache.
    pub direct_io: bool,
    /// Whether the kernel reads files by itself that the node's disk has whole. Only root may, and
    /// not with `direct_io`.
    pub passthrough: bool,
    /// Whether programs may change what they see. The volume must be one that can be written.
    pub write: bool,
    /// Whether other users may see the files.
    pub allow_other: bool,
    /// Threads that answer the kernel; by default as many as there are processors, at least 4.
    pub threads: Option<u16>,
}

/// Why a volume is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory is not there, or is none.
    #[error("cannot mount at {}: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// Something of ours is mounted there already.
    #[error("{} already has a file system of hither: run `hither unmount {}`", .0.display(),
        .0.display())]
    Mounted(PathBuf),
    /// The kernel or fusermount3 refuses.
    #[error("cannot mount at {}: {error}{hint}", path.display())]
    Refused {
        /// The directory.
        path: PathBuf,
        /// What they say.
        error: io::Error,
        /// What helps.
        hint: &'static str,
    },
    /// The source does not answer for its root.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The volume cannot be written, as it should.
    #[error("the source cannot be written")]
    ReadOnly,
    /// The root of the source is a file.
    #[error("the source is no directory")]
    NoDirectory,
}

/// What the names of our devices start with, by which a mount of ours is known.
const DEVICE: &str = "hither:";

/// A volume that is mounted. Dropped, it is unmounted.
pub struct Mounted {
    path: PathBuf,
    /// The kernel's number of this mount: another one may be at the path by now.
    id: Option<u64>,
    volume: Arc<Volume>,
    files: CachedFiles,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts `volume` at the directory `path`. What a crashed process has left there is removed.
    /// `mount` and `df` show `name` as the device, behind `hither:`. By `socket`, commands find the
    /// node that serves it.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn new(
        volume: Arc<Volume>,
        path: &Path,
        settings: &MountSettings,
        name: &str,
        socket: Option<PathBuf>,
    ) -> Result<Mounted, MountError> {
        if settings.write && volume.writes().is_none() {
            return Err(MountError::ReadOnly);
        }
        let path = prepare(path)?;
        let runtime = volume.node().runtime();
        let root = runtime.block_on(volume.source().stat(&SourcePath::default()))?;
        if root.kind != Kind::Directory {
            return Err(MountError::NoDirectory);
        }
        let view = View {
            consistency: settings.consistency,
            owner: Owner {
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
                may_write: settings.write,
            },
            direct_io: settings.direct_io,
            passthrough: settings.passthrough && !settings.direct_io,
            socket,
            write: settings.write,
            names_cost_requests: root.unix.is_none(),
            may_act: may_act(),
            allow_other: settings.allow_other,
        };
        let (sender, names) = invalidation::queue();
        let files = CachedFiles::new(Arc::clone(&volume), root, view, sender);
        let refused = |error: io::Error| MountError::Refused {
            path: path.clone(),
            hint: hint(&error),
            // What fusermount3 says ends its line.
            error: io::Error::new(error.kind(), error.to_string().trim_end()),
        };
        let session =
            Session::new(files.clone(), &path, &config(settings, name)).map_err(refused)?;
        invalidation::start(names, session.notifier()).map_err(refused)?;
        files.listen();
        let session = session.spawn().map_err(refused)?;
        Ok(Mounted {
            id: mount_at(&path).map(|mount| mount.id),
            path,
            volume,
            files,
            session: Some(session),
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is mounted.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Changes by other nodes of which the kernel was not told, since there were too many at once.
    pub fn lost_invalidations(&self) -> usize {
        self.files.lost_invalidations()
    }

    /// Whether somebody has unmounted it.
    pub fn is_over(&self) -> bool {
        self.session
            .as_ref()
            .is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts it. Programs that have files open keep them until this process ends; reads that
    /// are under way are answered, for as long as `patience` lasts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unmount(mut self, patience: Duration) -> io::Result<()> {
        self.end(patience)
    }

    fn end(&mut self, patience: Duration) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        // Never dropped: fuser would unmount whatever is at the path by then. A session that still
        // has open files goes on until this process ends.
        let session = ManuallyDrop::new(session);
        let is_there = || self.id.is_some() && mount_at(&self.path).map(|it| it.id) == self.id;
        if !session.guard.is_finished() && is_there() {
            detach(&self.path)?;
        }
        let start = Instant::now();
        let is_idle = || session.guard.is_finished() || self.files.unanswered() == 0;
        while !is_idle() && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        self.files.give_up_writing(patience);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is left to hear of an error, and the process's end ends the mount's service.
        let _ = self.end(Duration::ZERO);
    }
}

fn config(settings: &MountSettings, name: &str) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // A comma would end the option.
        MountOption::FSName(format!("{DEVICE}{}", name.replace(',', "%2C"))),
        MountOption::DefaultPermissions,
        if settings.write {
            MountOption::RW
        } else {
            MountOption::RO
        },
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.acl = if settings.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some(settings.threads.map_or(processors.max(4), usize::from));
    // Each thread has a queue of its own where this process may open the device, and clone it.
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    config.clone_fd = device.is_ok_and(|device| can_clone(device.as_fd()));
    config
}

/// What is missing for a mount by this process. `None`: nothing that is known before one is tried.
pub fn obstacle() -> Option<String> {
    const DEVICE: &str = "/dev/fuse";
    if let Err(error) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Some(format!("{DEVICE}: {error}"));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        let lines = status.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name));
        values.next().map(str::trim)
    };
    let capabilities = value("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    if capabilities.is_some_and(|bits| bits & CAP_SYS_ADMIN != 0) {
        return None;
    }
    if value("NoNewPrivs:") == Some("1") {
        return Some("no_new_privs is set: fusermount3 would have no rights".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(HELPER).exists());
    (!is_there).then(|| format!("without root, {HELPER} must be installed"))
}

/// The right to mount, capabilities(7).
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// What mounts for those without that right.
const HELPER: &str = "fusermount3";

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => " (is fusermount3 installed? the package is fuse3)",
        Some(Errno::PERM | Errno::ACCESS) => {
            " (without root, fusermount3 must be installed, and /dev/fuse be open to you)"
        }
        Some(Errno::NODEV) => " (the kernel has no FUSE: try `modprobe fuse`)",
        _ => "",
    }
}

/// The directory to mount at, without what a crashed process has left there.
fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |error| MountError::Directory {
        path: path.to_owned(),
        error,
    };
    if is_dead(path) {
        let path = absolute(path).map_err(failed)?;
        if mount_at(&path).is_some_and(|mount| mount.is_ours) {
            detach(&path).map_err(failed)?;
            let place = path.display();
            tracing::warn!("{place}: the mount that a killed process has left is replaced");
        }
    }
    let path = path.canonicalize().map_err(failed)?;
    if !path.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    if mount_at(&path).is_some_and(|mount| mount.is_ours) {
        return Err(MountError::Mounted(path));
    }
    Ok(path)
}

/// Whether the process that served this mount is gone.
fn is_dead(path: &Path) -> bool {
    let status = std::fs::metadata(path);
    status.is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// The path without links, where what is there itself cannot be asked.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

/// A mount as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    id: u64,
    /// Whether this program made it, in any process.
    is_ours: bool,
}

/// The last mount at `path`, which is the one that programs see.
fn mount_at(path: &Path) -> Option<Listed> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let lines = mounts.split(|&byte| byte == b'\n');
    lines.filter_map(|line| listed(line, path)).next_back()
}

/// A line of `mountinfo` (proc_pid_mountinfo(5)), if it is of a mount at `path`: the number of the
/// mount is the first field, the path the fifth, and the device the second behind a lone `-`.
fn listed(line: &[u8], path: &Path) -> Option<Listed> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    if unescaped(fields.nth(3)?) != path.as_os_str().as_bytes() {
        return None;
    }
    fields.find(|field| *field == b"-")?;
    let device = fields.nth(1)?;
    Some(Listed {
        id,
        is_ours: device.starts_with(DEVICE.as_bytes()),
    })
}

/// The characters that separate fields stand as `\` and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, after @ ..] = rest {
        let digits = (*byte == b'\\').then(|| after.get(..3)).flatten();
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

/// Unmounts what a process of this program has mounted at `path`, whether it still runs or not.
/// Programs that have files open there keep them, and the process serves them until they close
/// these.
///
/// # Errors
/// Nothing of ours is mounted there, or the kernel refuses.
pub fn unmount(path: &Path) -> io::Result<()> {
    let path = absolute(path)?;
    // Another path may lead there by a link.
    let path = path.canonicalize().unwrap_or(path);
    if !mount_at(&path).is_some_and(|mount| mount.is_ours) {
        let reason = format!("{} is no mount of hither", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    detach(&path)
}

/// Takes a mount out of the tree, if need be by fusermount3, which may where this user may not.
fn detach(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {}
        result => return result.map_err(io::Error::from),
    }
    let mut command = std::process::Command::new(HELPER);
    let output = command.args(["-u", "-z", "--"]).arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_read() {
        let line = br"36 25 0:33 / /mnt/a\040b\134 ro,nosuid - fuse hither:s3://x ro,user_id=0";
        let at = |path: &str| listed(line, Path::new(path));
        let ours = Listed {
            id: 36,
            is_ours: true,
        };
        assert_eq!(at(r"/mnt/a b\"), Some(ours));
        assert_eq!(at("/mnt/a"), None);
        let line = b"36 25 0:33 / /mnt shared:1 master:2 rw - fuse.sshfs host: rw";
        let other = listed(line, Path::new("/mnt")).unwrap();
        assert!(!other.is_ours);
        for line in [
            &b""[..],
            b"36",
            b"x 25 0:33 / /mnt rw - fuse hither: rw",
            b"1 2 3 / /mnt rw",
        ] {
            assert_eq!(listed(line, Path::new("/mnt")), None);
        }
        assert_eq!(unescaped(br"\04"), br"\04");
    }
}
