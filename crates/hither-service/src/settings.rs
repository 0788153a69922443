//! What a node is, and what it serves.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hither_core::Spec;
use hither_mount::MountSettings;
use hither_node::config::ClusterConfig;
use hither_node::node::NodeSettings;
use hither_node::source::name::public_name;
use hither_node::source::settings::{SourceSettings, WriteSettings};
use hither_node::store::disk::settings::DiskSettings;
use hither_node::volume::VolumeSettings;

use crate::values::{block_bytes, size_bytes};

/// What holds unless an option or a file says otherwise.
pub mod default {
    /// Length of a block.
    pub const BLOCK: &str = "128KiB";
    /// What the memory keeps.
    pub const POLICY: &str = "s3-fifo";
    /// Requests to a source at the same time.
    pub const REQUESTS: u16 = 32;
    /// How old what a program opens may be.
    pub const CONSISTENCY: &str = "ttl=1";
    /// How far to read ahead, at most.
    pub const PREFETCH: &str = "64MiB";
}

/// A node and its volumes.
#[derive(Debug)]
pub struct ServiceSettings {
    /// The file that says so, for messages.
    pub file: Option<PathBuf>,
    /// What the node is called.
    pub name: Option<String>,
    /// The cluster that it belongs to, if it is not alone.
    pub cluster: Option<ClusterConfig>,
    /// Its cache.
    pub cache: CacheSettings,
    /// Where its metrics are served.
    pub metrics: Option<SocketAddr>,
    /// The trace folder to write, of all that programs read through the mounts.
    pub trace: Option<PathBuf>,
    /// The log to write of what its placement is told and answers.
    pub placement_log: Option<PathBuf>,
    /// What it serves.
    pub volumes: Vec<ServedSettings>,
}

/// How a node's memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    /// For what it caches.
    pub node_bytes: u64,
    /// For what is written to each bucket.
    pub writes_bytes: u64,
}

/// The part of the memory that what is written to buckets may take: one in so many bytes.
const WRITES: u64 = 8;

impl ServiceSettings {
    /// Divides `memory_bytes`.
    pub fn shares(&self, memory_bytes: u64) -> MemoryShares {
        let buckets = self
            .volumes
            .iter()
            .filter(|it| it.writes_a_bucket())
            .count() as u64;
        let writes_bytes = match buckets {
            0 => 0,
            buckets => memory_bytes / WRITES / buckets,
        };
        MemoryShares {
            node_bytes: memory_bytes - writes_bytes * buckets,
            writes_bytes,
        }
    }
}

/// The cache of a node.
#[derive(Debug)]
pub struct CacheSettings {
    /// Memory for file contents; by default a quarter of what is free.
    pub memory_bytes: Option<u64>,
    /// Length of a block.
    pub block_bytes: u32,
    /// What the memory keeps.
    pub policy: Spec,
    /// Requests to each source at the same time.
    pub requests: u16,
    /// Its disk, if it has one.
    pub disk: Option<DiskSettings>,
}

impl Default for CacheSettings {
    fn default() -> CacheSettings {
        CacheSettings {
            memory_bytes: None,
            block_bytes: block_bytes(default::BLOCK).expect("a length of a block"),
            policy: default::POLICY.parse().expect("a policy"),
            requests: default::REQUESTS,
            disk: None,
        }
    }
}

impl CacheSettings {
    /// Memory for file contents.
    pub fn memory_bytes(&self) -> u64 {
        let by_default = || hither_analysis::free_memory::half_of_free_bytes() / 2;
        self.memory_bytes.unwrap_or_else(by_default)
    }

    /// The settings of a node that has so much memory.
    pub fn node(&self, memory_bytes: u64) -> NodeSettings {
        NodeSettings {
            memory_bytes,
            block_bytes: self.block_bytes,
            policy: self.policy,
            prefetches_max: self.requests.div_ceil(2).into(),
            disk: self.disk.clone(),
        }
    }
}

/// A volume of a node.
#[derive(Debug)]
pub struct ServedSettings {
    /// Where the data is.
    pub source: String,
    /// The name under which nodes share its blocks.
    pub name: String,
    /// Options of the source.
    pub options: BTreeMap<String, String>,
    /// How far to read ahead, at most.
    pub prefetch_bytes: u64,
    /// Where it is mounted. Otherwise it is only cached.
    pub mount: Option<MountPoint>,
}

/// Where and how a volume is mounted.
#[derive(Debug)]
pub struct MountPoint {
    /// Where programs see it.
    pub directory: PathBuf,
    /// How they see it.
    pub settings: MountSettings,
}

impl ServedSettings {
    /// A source as somebody in `folder` writes it: a directory may be relative.
    pub fn source_from(source: String, folder: &Path) -> String {
        let is_relative = !source.contains("://") && !source.starts_with('/');
        let absolute = std::path::absolute(folder.join(&source));
        match absolute
            .map(PathBuf::into_os_string)
            .map(OsString::into_string)
        {
            Ok(Ok(absolute)) if is_relative && !source.is_empty() => absolute,
            _ => source,
        }
    }

    /// The name that the blocks of a source have unless one is given: its URL without secrets, and
    /// without what does not change the data.
    pub fn name_of(source: &str) -> String {
        let name = public_name(source);
        let name = name.strip_prefix("file://").unwrap_or(&name);
        name.trim_end_matches('/').to_owned()
    }

    /// The name of a volume that is called `name`, or as its source.
    pub fn name_or_default(name: Option<String>, source: &str) -> String {
        match name {
            Some(name) => public_name(&name),
            None => ServedSettings::name_of(source),
        }
    }

    /// What the source is called where others may read it.
    pub fn public_source(&self) -> String {
        public_name(&self.source)
    }

    /// Whether programs may change it.
    pub(crate) fn is_written(&self) -> bool {
        let mount = self.mount.as_ref();
        mount.is_some_and(|mount| mount.settings.write)
    }

    /// Whether it is written, and keeps what is written to itself until there is enough to send.
    fn writes_a_bucket(&self) -> bool {
        let is_directory = self.source.starts_with('/') || self.source.starts_with("file:");
        !is_directory && self.is_written()
    }

    /// How far to read ahead unless something else is said.
    pub fn prefetch_bytes_by_default() -> u64 {
        size_bytes(default::PREFETCH).expect("a size")
    }

    /// The settings of the source, for which what is written may take so much memory.
    pub fn source(&self, cache: &CacheSettings, writes_bytes: u64) -> SourceSettings {
        SourceSettings {
            options: self.options.clone(),
            requests_max: cache.requests.into(),
            writes: WriteSettings {
                memory_bytes: writes_bytes,
                folder: cache.disk.as_ref().map(|disk| disk.folder.clone()),
                ..WriteSettings::default()
            },
            ..SourceSettings::default()
        }
    }

    /// The settings of the volume on a node of this memory.
    pub fn volume(&self, memory_bytes: u64) -> VolumeSettings {
        VolumeSettings {
            name: self.name.clone(),
            // Prefetches of a few readers fit into the memory that is not for resident blocks.
            prefetch_bytes_max: self.prefetch_bytes.min(memory_bytes / 16),
        }
    }
}
