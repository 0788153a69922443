//! Programs from outside: Debian packages with all that they need, as the root of a file system in
//! which a case's command runs (`packages` of a scenario).
//!
//! The packages are unpacked and not installed: their scripts do not run. So what such a script
//! makes, a user or an alternative's link, is not there; a case says what it needs in `prepare`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::job::mke2fs;
use super::mirror::Mirror;
use super::tools::{self, Wanted};
use crate::cache::{Cache, PACKAGES};
use crate::hash;

/// Where the guest mounts it.
const ROOT: &str = "/outside";

/// Packages that installed systems need, and programs in a guest do not.
const WITHOUT: [&str; 14] = [
    "adduser",
    "ca-certificates",
    "ca-certificates-java",
    "debconf",
    "dpkg",
    "init-system-helpers",
    "lsb-base",
    "passwd",
    "perl",
    "perl-base",
    "procps",
    "sysvinit-utils",
    "ucf",
    "udev",
];

/// What every root has: a shell, its usual commands, and what starts programs on given nodes.
const ALWAYS: [&str; 4] = ["coreutils", "dash", "mawk", "numactl"];

/// Links that those packages' scripts make.
const LINKS: [(&str, &str); 2] = [("bin/sh", "/bin/dash"), ("usr/bin/awk", "/usr/bin/mawk")];

/// Folders of the guest that are seen in the root as well.
const SHARED: [&str; 5] = ["dev", "job", "proc", "sys", "tmp"];

/// Free space of the image.
const FREE_BYTES: u64 = 32 << 20;

/// A root file system.
#[derive(Debug)]
pub(crate) struct Outside {
    /// An ext4.
    pub(crate) image: PathBuf,
    /// The version of each package.
    pub(crate) versions: BTreeMap<String, String>,
}

impl Outside {
    /// The root with these packages: from the cache, or downloaded and unpacked.
    pub(crate) fn ready(cache: &Cache, packages: &[String], quiet: bool) -> Result<Outside> {
        let mut roots: Vec<&str> = packages.iter().map(String::as_str).collect();
        roots.extend(ALWAYS);
        roots.sort_unstable();
        roots.dedup();
        let list = roots.join(" ");
        let name = format!("{PACKAGES}{}", hash::short([list.as_bytes()]));
        let folder = cache.entry(&name, |folder| {
            let root = folder.join("root");
            let wanted = Wanted {
                roots: &roots,
                without: &WITHOUT,
                alone: &[],
                keep: |path| !tools::is_documentation(path),
            };
            tools::install(&Mirror::from_env()?, &wanted, &root, quiet)
                .with_context(|| format!("packages: {list}"))?;
            fs::rename(root.join(tools::VERSIONS), folder.join(tools::VERSIONS))?;
            complete(&root)?;
            make_image(&root, &folder.join("image"))?;
            Ok(fs::remove_dir_all(&root)?)
        })?;
        Ok(Outside {
            image: folder.join("image"),
            versions: tools::versions(&folder)?,
        })
    }
}

/// The commands that mount the root, with the guest's own folders in it.
pub(crate) fn mount() -> String {
    format!(
        "mkdir -p {ROOT}\nmount -t ext4 /dev/vda3 {ROOT}\n\
         for folder in {}; do mount -o rbind /$folder {ROOT}/$folder; done\n",
        SHARED.join(" ")
    )
}

/// The command that runs the shell's `commands` in the root, in the job's folder. `quoted` has them
/// as one word of the shell.
pub(crate) fn inside(quoted: &str) -> String {
    format!("chroot {ROOT} /bin/sh -c {quoted}")
}

/// Adds what the packages' scripts or Debian's base files would have made.
fn complete(root: &Path) -> Result<()> {
    for folder in SHARED.iter().chain(&["etc", "root", "var/lib", "var/log"]) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    for (link, target) in LINKS {
        let link = root.join(link);
        let folder = link.parent().expect("a file");
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        if fs::symlink_metadata(&link).is_err() {
            symlink(target, &link).with_context(|| link.display().to_string())?;
        }
    }
    let users = root.join("etc/passwd");
    fs::write(&users, "root:x:0:0:root:/root:/bin/sh\n")
        .with_context(|| users.display().to_string())
}

/// Puts a folder into an ext4 with some free space.
fn make_image(root: &Path, image: &Path) -> Result<()> {
    // An ext4 needs a twentieth for itself, and each file a block at the least.
    let (bytes, files) = size(root)?;
    let bytes = bytes + bytes / 10 + files * 4096 + FREE_BYTES;
    mke2fs(|command| {
        command
            .args(["-m", "0", "-E", "root_owner=0:0", "-N"])
            .arg((files + 1024).to_string())
            .arg("-d")
            .args([root, image])
            .arg(format!("{}k", bytes >> 10));
    })
}

/// The bytes and the number of files below a folder.
fn size(folder: &Path) -> Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let about = entry.metadata()?;
        files += 1;
        if about.is_dir() {
            let below = size(&entry.path())?;
            (bytes, files) = (bytes + below.0, files + below.1);
        } else {
            bytes += about.len();
        }
    }
    Ok((bytes, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_completed_and_fits_into_its_image() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::write(root.join("bin/sh"), "its own").unwrap();
        fs::write(root.join("large"), vec![7; 3 << 20]).unwrap();
        complete(&root).unwrap();
        assert_eq!(fs::read_to_string(root.join("bin/sh")).unwrap(), "its own");
        let awk = fs::read_link(root.join("usr/bin/awk")).unwrap();
        assert_eq!(awk, Path::new("/usr/bin/mawk"));
        let image = folder.path().join("image");
        make_image(&root, &image).unwrap();
        let bytes = fs::read(&image).unwrap();
        // The magic number of ext4, in its superblock.
        assert_eq!(bytes[1024 + 56..][..2], [0x53, 0xef]);
        assert!(bytes.len() as u64 > FREE_BYTES + (3 << 20));
    }
}
