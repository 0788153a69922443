//! A mount that can be written, and what its tests have in common.
#![allow(dead_code, reason = "not every test that includes this file uses all")]

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hither_mount::{Consistency, MountSettings, Mounted};
use hither_node::node::{Node, NodeSettings};
use hither_node::source::registry::open_writable;
use hither_node::source::settings::SourceSettings;
use hither_node::volume::{Volume, VolumeSettings};
use rustix::io::Errno;
use tokio::runtime::Runtime;

/// A mount that can be written, with what it needs.
pub(crate) struct Bench {
    pub(crate) mounted: Option<Mounted>,
    pub(crate) target: tempfile::TempDir,
    _runtime: Runtime,
}

/// So long, only what is told to the kernel can be why it sees a change.
pub(crate) const TTL: Consistency = Consistency::Ttl(Duration::from_secs(600));

impl Bench {
    /// `None` where this user cannot mount.
    pub(crate) fn new(
        url: &str,
        options: &[(&str, String)],
        consistency: Consistency,
    ) -> Option<Bench> {
        Bench::mounted(url, options, consistency, false)
    }

    /// Over a directory, for all users: by root alone. `None` where it cannot mount.
    pub(crate) fn shared(source: &Path, consistency: Consistency) -> Option<Bench> {
        Bench::mounted(source.to_str().unwrap(), &[], consistency, true)
    }

    fn mounted(
        url: &str,
        options: &[(&str, String)],
        consistency: Consistency,
        allow_other: bool,
    ) -> Option<Bench> {
        let target = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let options = options.iter();
        let settings = SourceSettings {
            options: options
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
            ..SourceSettings::default()
        };
        let source = runtime.block_on(open_writable(url, &settings)).unwrap();
        let settings = NodeSettings {
            memory_bytes: 32 << 20,
            block_bytes: 64 << 10,
            policy: "s3-fifo".parse().unwrap(),
            prefetches_max: 8,
            disk: None,
        };
        let node = Node::new(settings, runtime.handle().clone()).unwrap();
        let settings = VolumeSettings {
            name: url.to_owned(),
            prefetch_bytes_max: 1 << 20,
        };
        let volume = Volume::writable(node, source, settings);
        let settings = MountSettings {
            consistency,
            write: true,
            allow_other,
            threads: Some(4),
            ..MountSettings::default()
        };
        let mounted = mount_or_skip(&volume, target.path(), &settings)?;
        Some(Bench {
            mounted: Some(mounted),
            target,
            _runtime: runtime,
        })
    }

    pub(crate) fn over(source: &Path, consistency: Consistency) -> Option<Bench> {
        Bench::new(source.to_str().unwrap(), &[], consistency)
    }

    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.target.path().join(path)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount(Duration::from_secs(5)).unwrap();
        }
    }
}

pub(crate) fn code<T>(result: std::io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.err()?)
}

pub(crate) fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(2 * seed + 1) >> 7) as u8;
    (0..bytes).map(byte).collect()
}

pub(crate) fn append(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).unwrap()
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn replace(path: &Path, bytes: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

/// `None` where this user cannot mount.
pub(crate) fn mount_or_skip(
    volume: &Arc<Volume>,
    target: &Path,
    settings: &MountSettings,
) -> Option<Mounted> {
    if hither_testing::needs::cannot_mount() {
        return None;
    }
    let socket = Some("/run/x.sock".into());
    let mounted = Mounted::new(Arc::clone(volume), target, settings, "test", socket);
    Some(mounted.unwrap_or_else(|error| panic!("{error}")))
}
