//! The tools in the cache: QEMU with its libraries, the kernel, and the guest's programs. They are
//! downloaded and unpacked once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::mirror::{self, Mirror};
use super::{initramfs, packages};
use crate::cache::{Cache, TOOLS};
use crate::hash;

/// Sources of packages, the preferred suite first. The backports have the QEMU and the kernel with
/// which the lab was built; most of their dependencies are in stable.
const SUITES: [&str; 2] = ["bookworm", "bookworm-backports"];

/// Packages that QEMU and the kernel depend on, but the lab does not need: firmware for network
/// boot, and packages of installed systems.
const EXCLUDED_PACKAGES: [&str; 6] = [
    "ipxe-qemu",
    "kmod",
    "linux-base",
    "initramfs-tools",
    "passwd",
    "debconf",
];

/// Packages taken without their dependencies: QEMU's loadable modules. One of them is TCG itself in
/// 7.2; the others need displays and sound.
const PACKAGES_WITHOUT_DEPENDENCIES: [&str; 1] = ["qemu-system-common"];

/// QEMU and what runs in its guests.
pub(crate) struct Tools {
    cache: Cache,
    root: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
    versions: BTreeMap<String, String>,
}

/// A version of QEMU: its major version and its root packages.
struct Release {
    qemu_major: u32,
    roots: [&'static str; 4],
}

impl Release {
    /// `HITHER_LAB_QEMU=7.2` uses the QEMU of stable instead of the backports, to test the plugin's
    /// old interface.
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
    pub(crate) fn ready(cache: &Cache, quiet: bool) -> Result<Self> {
        ensure!(
            cfg!(all(target_arch = "x86_64", target_os = "linux")),
            "the lab runs on x86-64 Linux: QEMU and the programs are of that kind"
        );
        let release = Release::from_env()?;
        let root = cache.entry(&format!("{TOOLS}{}", release.qemu_major), |folder| {
            let wanted = Wanted {
                roots: &release.roots,
                without: &EXCLUDED_PACKAGES,
                alone: &PACKAGES_WITHOUT_DEPENDENCIES,
                keep,
            };
            install(&Mirror::from_env()?, &wanted, folder, quiet).context(
                "setting up the lab's tools from Debian's packages (HITHER_LAB_MIRROR names \
                     another mirror)",
            )
        })?;
        let versions = versions(&root)?;
        // Built each time (10 ms): the archive belongs to this version of the lab, unlike the
        // packages.
        let archive = initramfs::build(&root)?;
        let name = format!("initramfs-{}", hash::short([&archive[..]]));
        let initramfs = cache.entry(&name, |path| {
            fs::write(path, &archive).with_context(|| path.display().to_string())
        })?;
        Ok(Self {
            kernel: find_kernel(&root)?,
            initramfs,
            cache: cache.clone(),
            root,
            versions,
        })
    }

    /// The version of each package.
    pub(crate) fn versions(&self) -> &BTreeMap<String, String> {
        &self.versions
    }

    pub(crate) fn cache(&self) -> &Cache {
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

    /// QEMU, started by the cache's loader with its libraries: the host's may be older or missing.
    pub(super) fn qemu(&self) -> Command {
        let library_folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]
            .map(|folder| self.root.join(folder).display().to_string());
        let mut command =
            dies_with_parent(&self.root.join("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
        command
            .env(
                "QEMU_MODULE_DIR",
                self.root.join("usr/lib/x86_64-linux-gnu/qemu"),
            )
            // It was made for the host's C library, not for the cache's.
            .env_remove("LD_PRELOAD")
            .arg("--library-path")
            .arg(library_folders.join(":"))
            .arg(self.root.join("usr/bin/qemu-system-x86_64"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.root.join(firmware));
        }
        command
    }
}

/// The file in a folder of packages that has their versions.
pub(super) const VERSIONS: &str = "versions.json";

/// The versions of the packages in a folder.
pub(super) fn versions(folder: &Path) -> Result<BTreeMap<String, String>> {
    let manifest = folder.join(VERSIONS);
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    serde_json::from_str(&text).with_context(|| manifest.display().to_string())
}

/// What to unpack.
pub(super) struct Wanted<'a> {
    /// Packages, with all that they need.
    pub(super) roots: &'a [&'a str],
    /// Packages that are left out, with those that only they need.
    pub(super) without: &'a [&'a str],
    /// Packages that are taken without their dependencies.
    pub(super) alone: &'a [&'a str],
    /// Which paths of the packages.
    pub(super) keep: fn(&str) -> bool,
}

/// Unpacks packages into `folder`, and records their versions.
pub(super) fn install(
    mirror: &Mirror,
    wanted: &Wanted<'_>,
    folder: &Path,
    quiet: bool,
) -> Result<()> {
    let attempt = || -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let indices = SUITES
            .into_iter()
            .map(|suite| mirror.index(suite))
            .collect::<Result<Vec<_>>>()?;
        let packages = packages::resolve(wanted.roots, &indices, wanted.without, wanted.alone)?;
        mirror.install(&packages, folder, wanted.keep, quiet)?;
        let versions: BTreeMap<_, _> = packages
            .iter()
            .map(|package| (&package.name, &package.version))
            .collect();
        fs::write(folder.join(VERSIONS), serde_json::to_vec_pretty(&versions)?)
            .with_context(|| folder.display().to_string())
    };
    match attempt() {
        // A package was replaced between the index and its download. The next index has the new
        // one. The first attempt may have unpacked other versions, so it is removed.
        Err(error) if mirror::is_superseded(&error) => {
            fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
            attempt()
        }
        result => result,
    }
}

/// Whether a path of a package is for readers, and no program needs it.
pub(super) fn is_documentation(path: &str) -> bool {
    let folders = [
        "bash-completion",
        "doc",
        "icons",
        "lintian",
        "locale",
        "man",
    ];
    let below = path.strip_prefix("usr/share/");
    let folder = below.and_then(|below| below.split_once('/'));
    folder.is_some_and(|(folder, _)| folders.contains(&folder))
}

/// Whether a path of a package is needed: of the kernel's modules only those that init loads, and
/// no documentation.
fn keep(path: &str) -> bool {
    if path.starts_with("lib/modules/") || path.starts_with("usr/lib/modules/") {
        return initramfs::MODULES
            .iter()
            .any(|module| path.contains(&format!("/{module}.ko")));
    }
    let unwanted = ["etc/", "boot/System.map"];
    let is_unwanted = unwanted.iter().any(|prefix| path.starts_with(prefix));
    !(path.ends_with('/') || is_unwanted || is_documentation(path))
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

/// A command whose program the kernel kills together with its parent, if util-linux's `setpriv`
/// exists. A parent that is killed cannot do that itself.
fn dies_with_parent(program: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
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
        assert!(!keep("etc/default/grub") && !keep("usr/lib/"));
        assert!(keep("usr/share/documents/file"));
    }
}
