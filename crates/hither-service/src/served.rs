//! What a running node consists of, for those who ask about it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hither_mount::Consistency;
use hither_node::node::Node;
use hither_node::source::SourcePath;
use hither_node::volume::Volume;

/// See the module.
pub(crate) struct Served {
    /// What the node is called.
    pub(crate) name: Option<String>,
    /// The cluster that it belongs to.
    pub(crate) cluster: Option<String>,
    /// When it started.
    pub(crate) since: Instant,
    /// The node.
    pub(crate) node: Arc<Node>,
    /// Memory for file contents: the node's, and that of what is written to buckets.
    pub(crate) memory_bytes: u64,
    /// Its volumes.
    pub(crate) volumes: Vec<ServedVolume>,
}

impl Served {
    /// Which of the volumes a path lies in by its mount, and where there. Of a mount in a mount it
    /// is the inner one.
    pub(crate) fn mounted_at(&self, path: &Path) -> Option<(usize, SourcePath)> {
        let mounts = self
            .volumes
            .iter()
            .map(|volume| volume.directory.as_deref());
        mounted_at(mounts, path)
    }
}

fn mounted_at<'a>(
    mounts: impl Iterator<Item = Option<&'a Path>>,
    path: &Path,
) -> Option<(usize, SourcePath)> {
    let places = mounts.enumerate().filter_map(|(number, directory)| {
        let below = path.strip_prefix(directory?).ok()?;
        Some((number, SourcePath::new(below.as_os_str().as_bytes())?))
    });
    places.min_by_key(|(_, path)| path.as_bytes().len())
}

/// A volume of it.
pub(crate) struct ServedVolume {
    /// Where the data is.
    pub(crate) source: String,
    /// Where it is mounted.
    pub(crate) directory: Option<PathBuf>,
    /// How old what is opened may be.
    pub(crate) consistency: Consistency,
    /// The volume.
    pub(crate) volume: Arc<Volume>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_in_the_inner_mount_and_by_whole_names() {
        let mounts = [Some("/mnt/data"), None, Some("/mnt/data/inner")];
        let at = |path: &str| {
            let mounts = mounts.iter().map(|mount| mount.map(Path::new));
            let (number, path) = mounted_at(mounts, Path::new(path))?;
            Some((number, path.to_string()))
        };
        assert_eq!(at("/mnt/data/a/b"), Some((0, "a/b".to_owned())));
        assert_eq!(at("/mnt/data/inner/b"), Some((2, "b".to_owned())));
        assert_eq!(at("/mnt/data").map(|(number, _)| number), Some(0));
        assert_eq!(at("/mnt/database"), None);
        assert_eq!(at("/mnt"), None);
        assert_eq!(at("/mnt/data/../x"), None);
    }
}
