//! The cache: QEMU with its libraries, the kernel, and the guest's programs, downloaded and unpacked once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::{self, Mirror};
use super::{initramfs, process};

/// Where packages come from, the preferred suite first: the backports have the QEMU and the kernel that the lab was built with,
/// and what they in turn need is mostly in stable.
const SUITES: [&str; 2] = ["bookworm", "bookworm-backports"];

/// Packages that QEMU and the kernel name but the lab does without: firmware for network boot,
/// and what only an installed system needs.
const WITHOUT: [&str; 6] = [
    "ipxe-qemu",
    "kmod",
    "linux-base",
    "initramfs-tools",
    "passwd",
    "debconf",
];

/// Packages taken without what they need: QEMU's loadable parts, of which TCG itself is one in 7.2 and the rest want
/// displays and sound.
const ALONE: [&str; 1] = ["qemu-system-common"];

/// QEMU and what runs in its guests.
pub(crate) struct Tools {
    cache: PathBuf,
    root: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
    versions: BTreeMap<String, String>,
}

/// A choice of QEMU: its major version and the packages to start from.
struct Release {
    qemu_major: u32,
    roots: [&'static str; 4],
}

impl Release {
    /// `HITHER_LAB_QEMU=7.2` takes the QEMU of stable rather than of the backports, in order to try the plugin's old interface.
    fn from_env() -> Result<Self> {
        let kernel = "linux-image-cloud-amd64 (>= 6.12)";
        match std::env::var("HITHER_LAB_QEMU").as_deref() {
            Err(_) | Ok("" | "10") => Ok(Self {
                qemu_major: 10,
                roots: [
                    "qemu-system-x86 (>= 1:10)",
                    kernel,
                    "busybox-static",
                    "numactl",
                ],
            }),
            Ok("7.2") => Ok(Self {
                qemu_major: 7,
                roots: ["qemu-system-x86", kernel, "busybox-static", "numactl"],
            }),
            Ok(other) => bail!("HITHER_LAB_QEMU={other}: the releases known are 7.2 and 10"),
        }
    }
}

impl Tools {
    /// Finds the tools in the cache, or downloads and unpacks them there.
    pub(crate) fn ready(quiet: bool) -> Result<Self> {
        let release = Release::from_env()?;
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        let root = cache.join(format!("qemu-{}", release.qemu_major));
        let lock = File::create(cache.join("lock"))?;
        lock.lock()
            .context("waiting for another setup of the lab")?;
        if !root.exists() {
            install(&release, &root, &cache, quiet)?;
        }
        let manifest = root.join("versions.json");
        let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let versions =
            serde_json::from_str(&text).with_context(|| manifest.display().to_string())?;
        // Built anew each time (10 ms): the archive belongs to this version of the lab, the packages do not.
        let archive = initramfs::build(&root)?;
        let initramfs = root.join("initramfs.cpio");
        if fs::read(&initramfs).ok().as_ref() != Some(&archive) {
            packages::write_whole(&initramfs, &archive)?;
        }
        Ok(Self {
            kernel: find_kernel(&root)?,
            initramfs,
            cache,
            root,
            versions,
        })
    }

    /// The version of each package in the cache.
    pub(crate) fn versions(&self) -> &BTreeMap<String, String> {
        &self.versions
    }

    /// The cache's folder.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    pub(super) fn kernel(&self) -> &Path {
        &self.kernel
    }

    pub(super) fn initramfs(&self) -> &Path {
        &self.initramfs
    }

    /// QEMU's major version.
    pub(super) fn qemu_major(&self) -> u32 {
        let version = self
            .versions
            .get("qemu-system-x86")
            .map_or("", String::as_str);
        let upstream = version
            .split_once(':')
            .map_or(version, |(_, upstream)| upstream);
        upstream
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .unwrap_or_default()
    }

    /// QEMU, started by the loader and with the libraries of the cache: the host's may be older, or not there.
    pub(super) fn qemu(&self) -> Command {
        let library_folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]
            .map(|folder| self.root.join(folder).display().to_string());
        let mut command =
            process::dies_with_parent(&self.root.join("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
        command
            .env(
                "QEMU_MODULE_DIR",
                self.root.join("usr/lib/x86_64-linux-gnu/qemu"),
            )
            .arg("--library-path")
            .arg(library_folders.join(":"))
            .arg(self.root.join("usr/bin/qemu-system-x86_64"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.root.join(firmware));
        }
        command
    }
}

/// `$HITHER_LAB_CACHE`, else `hither-lab` in the user's cache.
fn cache_folder() -> Result<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = folder("HITHER_LAB_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("hither-lab")))
        .or_else(|| Some(folder("HOME")?.join(".cache/hither-lab")))
        .context("no folder for the lab's cache: set HITHER_LAB_CACHE")?;
    // QEMU runs in a folder of its own.
    std::path::absolute(&cache).with_context(|| cache.display().to_string())
}

/// Unpacks the release beside its place and moves it there, so that it is there whole or not at all.
fn install(release: &Release, root: &Path, cache: &Path, quiet: bool) -> Result<()> {
    let mirror = Mirror::from_env();
    let attempt = || -> Result<()> {
        let partial = tempfile::Builder::new()
            .prefix(".install-")
            .tempdir_in(cache)?;
        let suites = SUITES.map(|suite| mirror.index(suite));
        let [stable, backports] = suites;
        let (stable, backports) = (stable?, backports?);
        let packages = packages::resolve(&release.roots, &[&stable, &backports], &WITHOUT, &ALONE)?;
        mirror.install(&packages, partial.path(), keep, quiet)?;
        let versions: BTreeMap<_, _> = packages
            .iter()
            .map(|package| (&package.name, &package.version))
            .collect();
        fs::write(
            partial.path().join("versions.json"),
            serde_json::to_vec_pretty(&versions)?,
        )?;
        let partial = partial.keep();
        fs::rename(&partial, root).with_context(|| root.display().to_string())?;
        Ok(())
    };
    match attempt() {
        // A package was replaced between the index and its download: the next index has the new one.
        Err(error) if packages::is_superseded(&error) => attempt(),
        result => result,
    }
    .context("setting up the lab's tools from Debian's packages")
}

/// Whether a package's path is wanted: of the kernel's modules those that init loads, and no documentation.
fn keep(path: &str) -> bool {
    if path.starts_with("lib/modules/") || path.starts_with("usr/lib/modules/") {
        return initramfs::MODULES
            .iter()
            .any(|module| path.ends_with(&format!("/{module}.ko.xz")));
    }
    let unwanted = [
        "usr/share/doc/",
        "usr/share/man/",
        "usr/share/locale/",
        "usr/share/lintian/",
        "usr/share/icons/",
        "etc/",
        "boot/System.map",
    ];
    !path.ends_with('/') && !unwanted.iter().any(|prefix| path.starts_with(prefix))
}

fn find_kernel(root: &Path) -> Result<PathBuf> {
    let boot = root.join("boot");
    for entry in fs::read_dir(&boot).with_context(|| boot.display().to_string())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("vmlinuz-") {
            return Ok(entry.path());
        }
    }
    bail!("{}: no kernel", boot.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_modules_only_those_loaded_are_kept() {
        assert!(keep(
            "lib/modules/6.12/kernel/drivers/block/virtio_blk.ko.xz"
        ));
        assert!(!keep(
            "lib/modules/6.12/kernel/drivers/net/virtio_net.ko.xz"
        ));
        assert!(keep("usr/lib/x86_64-linux-gnu/libz.so.1"));
        assert!(!keep("usr/share/doc/libz/changelog.gz"));
    }
}
