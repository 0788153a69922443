//! The mounts of another mount namespace, such as a container's: what a process there calls a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hither_ids::Pid;

use super::{InFileSystem, Mounts, joined, overlay};
use crate::error::Error;
use crate::event::Device;

/// What a process in another mount namespace sees, by the paths that it sees.
#[derive(Clone, Debug, Default)]
pub struct ForeignMounts {
    /// Where parts of each file system are.
    shown: BTreeMap<Device, BTreeMap<PathBuf, PathBuf>>,
    /// Where the layers of overlays are here, by the options of the mounts.
    layers: BTreeMap<Vec<u8>, Vec<InFileSystem>>,
}

impl ForeignMounts {
    /// Reads them. `here` are the mounts of this process, which say where the layers of overlays
    /// are. A layer that an earlier reading has found is not looked up again: its file system may
    /// not answer by now.
    pub fn read(
        process: Pid,
        here: &Mounts,
        earlier: Option<&ForeignMounts>,
    ) -> Result<ForeignMounts, Error> {
        let seen = Mounts::of_process(process)?;
        Ok(ForeignMounts::of(&seen, here, earlier))
    }

    fn of(seen: &Mounts, here: &Mounts, earlier: Option<&ForeignMounts>) -> ForeignMounts {
        let mut mounts = ForeignMounts::default();
        for mount in &seen.0 {
            mounts.show(mount.device, &mount.root, &mount.at);
            if mount.kind != "overlay" {
                continue;
            }
            let known = earlier.and_then(|earlier| earlier.layers.get(&mount.options));
            let known = known.filter(|layers| !layers.is_empty());
            let layers = match known {
                Some(known) => known.clone(),
                None => overlay::layers(mount, here),
            };
            let part = mount.root.strip_prefix("/").unwrap_or(&mount.root);
            for layer in &layers {
                mounts.show(layer.device, &joined(&layer.path, part), &mount.at);
            }
            mounts.layers.insert(mount.options.clone(), layers);
        }
        mounts
    }

    /// Of several places the latest counts.
    fn show(&mut self, device: Device, root: &Path, at: &Path) {
        let shown = self.shown.entry(device).or_default();
        shown.insert(root.to_owned(), at.to_owned());
    }

    /// What the file is called there, by its path below the root of its file system. A layer of an
    /// overlay, or a mounted folder, comes before one that is above it. None if nothing shows it.
    pub fn path(&self, device: Device, below_root: &Path) -> Option<PathBuf> {
        let shown = self.shown.get(&device)?;
        let full = Path::new("/").join(below_root);
        full.ancestors().find_map(|root| {
            let at = shown.get(root)?;
            Some(joined(at, full.strip_prefix(root).ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container: an overlay as its root, a volume and a single file.
    const SEEN: &[u8] = b"\
        700 600 0:50 / / rw - overlay overlay rw,lowerdir=/l/1:/l/2,upperdir=/l/3,workdir=/l/w\n\
        701 700 254:1 /volumes/v/_data /var/lib/db rw - ext4 /dev/vda rw\n\
        702 700 254:1 /containers/c/hosts /etc/hosts rw - ext4 /dev/vda rw\n\
        703 700 0:50 /opt /mnt rw - \
            overlay overlay rw,lowerdir=/l/1:/l/2,upperdir=/l/3,workdir=/l/w\n\
        704 700 254:1 / /host rw - ext4 /dev/vda rw\n";

    fn earlier() -> ForeignMounts {
        let options = b"rw,lowerdir=/l/1:/l/2,upperdir=/l/3,workdir=/l/w";
        let layer = |name: &str| InFileSystem {
            device: Device::new(254, 1),
            path: Path::new("/docker").join(name),
        };
        ForeignMounts {
            layers: BTreeMap::from([(options.to_vec(), vec![layer("1"), layer("3")])]),
            ..ForeignMounts::default()
        }
    }

    #[test]
    fn files_have_the_names_that_the_container_sees() {
        let here = Mounts::default();
        // None of the layers is looked up again, and none of them is there.
        let mounts = ForeignMounts::of(&Mounts::parse(SEEN), &here, Some(&earlier()));
        let path = |below: &str| {
            let path = mounts.path(Device::new(254, 1), Path::new(below));
            path.expect("shown").display().to_string()
        };
        assert_eq!(path("docker/1/usr/bin/x"), "/usr/bin/x");
        assert_eq!(path("docker/3/etc/passwd"), "/etc/passwd");
        assert_eq!(path("volumes/v/_data/base/1"), "/var/lib/db/base/1");
        assert_eq!(path("containers/c/hosts"), "/etc/hosts");
        // A part of the overlay is mounted elsewhere, too.
        assert_eq!(path("docker/1/opt/y"), "/mnt/y");
        // Of the host, as it is mounted there.
        assert_eq!(path("docker/10/usr/bin/x"), "/host/docker/10/usr/bin/x");
        assert_eq!(mounts.path(Device::new(254, 2), Path::new("a")), None);
        let without = ForeignMounts::of(&Mounts::parse(SEEN), &here, None);
        let host = without.path(Device::new(254, 1), Path::new("docker/1/usr/bin/x"));
        assert_eq!(host.as_deref(), Some(Path::new("/host/docker/1/usr/bin/x")));
    }
}
