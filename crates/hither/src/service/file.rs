//! The file of a node, in TOML: its cache, its volumes and its [cluster](hither_node::config).
//!
//! ```toml
//! memory = "64GiB"
//! metrics = "127.0.0.1:9300"
//!
//! [[volume]]
//! source = "s3://bucket/data"
//! directory = "/mnt/data"         # without it, it is cached for the other members alone
//! ```
//!
//! Relative paths are relative to the file. Unknown keys are errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use hither_core::Spec;
use hither_mount::Consistency;
use hither_node::config::{ClusterConfig, ClusterFile, Etcd, Tls};
use hither_node::distances::TopologyFile;
use hither_node::store::disk::settings::DiskSettings;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, de};

use super::settings::{CacheSettings, MountedSettings, ServedSettings, ServiceSettings, default};
use super::values::{block_bytes, size_bytes};
use crate::metrics;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeFile {
    name: Option<String>,
    cluster: Option<String>,
    listen: Option<String>,
    tls: Option<Tls>,
    members: Option<BTreeMap<String, String>>,
    etcd: Option<Etcd>,
    placement: Option<String>,
    #[serde(default)]
    readers: BTreeMap<String, Vec<String>>,
    topology: Option<TopologyFile>,
    #[serde(default, deserialize_with = "size")]
    memory: Option<u64>,
    #[serde(default, deserialize_with = "block")]
    block: Option<u32>,
    #[serde(default, deserialize_with = "policy")]
    policy: Option<Spec>,
    requests: Option<NonZeroU16>,
    disk: Option<PathBuf>,
    #[serde(default, deserialize_with = "size")]
    disk_size: Option<u64>,
    #[serde(default, deserialize_with = "address")]
    metrics: Option<SocketAddr>,
    #[serde(default)]
    volume: Vec<VolumeFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VolumeFile {
    source: String,
    name: Option<String>,
    directory: Option<PathBuf>,
    #[serde(default)]
    options: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "consistency")]
    consistency: Option<Consistency>,
    #[serde(default, deserialize_with = "size")]
    prefetch: Option<u64>,
    write: Option<bool>,
    allow_other: Option<bool>,
    direct_io: Option<bool>,
    passthrough: Option<bool>,
    threads: Option<NonZeroU16>,
}

/// What the file at `path` says, all of it checked that can be checked without a network.
///
/// # Errors
/// One line that names the file, and the line in it where there is one.
pub(crate) fn load(path: &Path) -> anyhow::Result<ServiceSettings> {
    let mut file = read(path)?;
    let place = || path.display().to_string();
    let volumes = volumes(std::mem::take(&mut file.volume), path).with_context(place)?;
    let by_default = CacheSettings::default();
    let cache = CacheSettings {
        memory_bytes: file.memory,
        block_bytes: file.block.unwrap_or(by_default.block_bytes),
        policy: file.policy.unwrap_or(by_default.policy),
        requests: file.requests.map_or(by_default.requests, NonZeroU16::get),
        disk: disk(file.disk.as_deref(), file.disk_size, path).with_context(place)?,
    };
    let (name, metrics) = (file.name.clone(), file.metrics);
    let cluster = file.cluster(path)?;
    if let Some(config) = &cluster {
        check_readers(config, &volumes).with_context(place)?;
    }
    if volumes.is_empty() {
        bail!(
            "{}: no [[volume]]: there is nothing to serve",
            path.display()
        );
    }
    Ok(ServiceSettings {
        file: Some(path.to_owned()),
        name,
        cluster,
        cache,
        metrics,
        trace: None,
        placement_log: None,
        volumes,
    })
}

/// The cluster that the file at `path` describes, for a node whose other settings are options.
///
/// # Errors
/// As [`load`], and if the file says anything else.
pub(crate) fn cluster(path: &Path) -> anyhow::Result<ClusterConfig> {
    let file = read(path)?;
    let others = [
        ("memory", file.memory.is_some()),
        ("block", file.block.is_some()),
        ("policy", file.policy.is_some()),
        ("requests", file.requests.is_some()),
        ("disk", file.disk.is_some()),
        ("disk-size", file.disk_size.is_some()),
        ("metrics", file.metrics.is_some()),
        ("[[volume]]", !file.volume.is_empty()),
    ];
    if let Some((key, _)) = others.iter().find(|(_, is_there)| *is_there) {
        bail!(
            "{}: {key} is for `hither node --config`; with `hither mount` it is an option",
            path.display()
        );
    }
    let cluster = file.cluster(path)?;
    cluster.with_context(|| format!("{}: it names no cluster", path.display()))
}

fn read(path: &Path) -> anyhow::Result<NodeFile> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        match error.span() {
            Some(span) => {
                let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                anyhow::anyhow!("{}: line {line}: {message}", path.display())
            }
            None => anyhow::anyhow!("{}: {message}", path.display()),
        }
    })
}

impl NodeFile {
    /// The part about the cluster, if there is one.
    fn cluster(self, path: &Path) -> anyhow::Result<Option<ClusterConfig>> {
        let is_alone = self.cluster.is_none()
            && self.listen.is_none()
            && self.tls.is_none()
            && self.members.is_none()
            && self.readers.is_empty()
            && self.placement.is_none()
            && self.topology.is_none()
            && self.etcd.is_none();
        if is_alone {
            return Ok(None);
        }
        let missing = |key: &str| {
            format!(
                "{}: {key} is missing: a member of a cluster has name, cluster, listen and tls",
                path.display()
            )
        };
        let file = ClusterFile {
            name: self.name.with_context(|| missing("name"))?,
            cluster: self.cluster.with_context(|| missing("cluster"))?,
            listen: self.listen.with_context(|| missing("listen"))?,
            tls: self.tls.with_context(|| missing("tls"))?,
            members: self.members,
            etcd: self.etcd,
            placement: self.placement,
            readers: self.readers,
            topology: self.topology.unwrap_or_default(),
        };
        Ok(Some(ClusterConfig::new(file, path)?))
    }
}

/// A node that the others would refuse the blocks of its own volume is a mistake.
fn check_readers(config: &ClusterConfig, volumes: &[ServedSettings]) -> anyhow::Result<()> {
    let me = &config.mesh.me;
    for volume in volumes {
        let readers = config.readers.get(&volume.name);
        let name = &volume.name;
        ensure!(
            readers.is_none_or(|readers| readers.contains(me)),
            "volume {name}: {me:?}, which is this node, is not among its readers"
        );
    }
    Ok(())
}

/// The disk that the file at `path` names.
fn disk(
    folder: Option<&Path>,
    bytes_max: Option<u64>,
    path: &Path,
) -> anyhow::Result<Option<DiskSettings>> {
    match (folder, bytes_max) {
        (Some(folder), Some(bytes_max)) => Ok(Some(DiskSettings {
            folder: path.parent().unwrap_or(Path::new("")).join(folder),
            bytes_max,
        })),
        (None, None) => Ok(None),
        (Some(_), None) => bail!("disk without disk-size"),
        (None, Some(_)) => bail!("disk-size without disk"),
    }
}

fn volumes(files: Vec<VolumeFile>, path: &Path) -> anyhow::Result<Vec<ServedSettings>> {
    let mut names = BTreeSet::new();
    let mut directories = BTreeSet::new();
    let mut volumes = Vec::new();
    let folder = path.parent().unwrap_or(Path::new(""));
    for mut file in files {
        file.source = ServedSettings::source_from(file.source, folder);
        let name = file.name.clone();
        let name = ServedSettings::name_or_default(name, &file.source);
        ensure!(
            names.insert(name.clone()),
            "two volumes are called {name:?}"
        );
        if let Some(directory) = &file.directory {
            let place = directory.display();
            ensure!(
                directories.insert(directory.clone()),
                "two volumes are at {place}"
            );
        } else if let Some(key) = file.key_of_a_mount() {
            bail!("volume {name}: {key} without a directory: it is not mounted");
        }
        volumes.push(file.settings(name, folder));
    }
    Ok(volumes)
}

impl VolumeFile {
    /// The first key that is there and says how to mount.
    fn key_of_a_mount(&self) -> Option<&'static str> {
        let keys = [
            ("consistency", self.consistency.is_some()),
            ("write", self.write.is_some()),
            ("allow-other", self.allow_other.is_some()),
            ("direct-io", self.direct_io.is_some()),
            ("passthrough", self.passthrough.is_some()),
            ("threads", self.threads.is_some()),
        ];
        let found = keys.into_iter().find(|(_, is_there)| *is_there);
        found.map(|(key, _)| key)
    }

    fn settings(self, name: String, folder: &Path) -> ServedSettings {
        let mount = self.directory.map(|directory| MountedSettings {
            directory: folder.join(directory),
            consistency: self
                .consistency
                .unwrap_or_else(|| default::CONSISTENCY.parse().expect("a mode")),
            write: self.write.unwrap_or(false),
            allow_other: self.allow_other.unwrap_or(false),
            direct_io: self.direct_io.unwrap_or(false),
            passthrough: self.passthrough.unwrap_or(false),
            threads: self.threads.map(NonZeroU16::get),
        });
        ServedSettings {
            source: self.source,
            name,
            options: self.options,
            prefetch_bytes: self
                .prefetch
                .unwrap_or_else(ServedSettings::prefetch_bytes_by_default),
            mount,
        }
    }
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, size_bytes)
}

fn block<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    parsed(from, block_bytes)
}

fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Spec>, D::Error> {
    parsed(from, |text| {
        text.parse().map_err(|error| format!("{error}"))
    })
}

fn consistency<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Consistency>, D::Error> {
    parsed(from, str::parse)
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    parsed(from, metrics::address)
}

/// A value that is a text or a whole number, as an option takes it.
fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    struct Words<P>(P);
    impl<T, P: Fn(&str) -> Result<T, String>> Visitor<'_> for Words<P> {
        type Value = T;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a text or a whole number")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(de::Error::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }
    from.deserialize_any(Words(parse)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str) -> Result<ServiceSettings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        fs::write(&path, text).unwrap();
        load(&path).map_err(|error| {
            let text = format!("{error:#}").replace(&format!("{}/", folder.path().display()), "");
            assert!(!text.contains('\n'), "more than a line: {text}");
            text
        })
    }

    const VOLUME: &str = "[[volume]]\nsource = \"/data\"\n";

    #[test]
    fn a_node_that_is_alone_has_the_defaults_of_a_mount() {
        let settings = load_text(VOLUME).unwrap();
        assert!(settings.cluster.is_none());
        assert_eq!(settings.cache.block_bytes, 128 << 10);
        assert_eq!(settings.cache.requests, 32);
        assert_eq!(settings.volumes[0].name, "/data");
        assert_eq!(settings.volumes[0].prefetch_bytes, 64 << 20);
        assert!(settings.volumes[0].mount.is_none());
        let settings = load_text("[[volume]]\nsource = \"data\"\n").unwrap();
        let source = &settings.volumes[0].source;
        assert!(source.starts_with('/') && source.ends_with("/data"));
    }

    #[test]
    fn each_key_has_its_effect() {
        let settings = load_text(
            "name = \"a\"\ncluster = \"c\"\nlisten = \"127.0.0.1:1\"\ntls = \"off\"\n\
             memory = \"1GiB\"\nblock = 65536\npolicy = \"lru\"\nrequests = 5\nmetrics = 9300\n\
             members = { a = \"127.0.0.1:1\" }\n\
             [[volume]]\nsource = \"s3://b/p/\"\noptions = { region = \"x\" }\n\
             directory = \"mnt\"\nconsistency = \"strict\"\nprefetch = \"1MiB\"\n\
             write = true\nallow-other = true\ndirect-io = true\nthreads = 3\n\
             [[volume]]\nsource = \"file:///d/\"\nname = \"other\"\n",
        )
        .unwrap();
        assert_eq!(settings.cluster.unwrap().mesh.me, "a");
        assert_eq!(settings.metrics, Some("127.0.0.1:9300".parse().unwrap()));
        assert_eq!(settings.cache.memory_bytes, Some(1 << 30));
        assert_eq!(settings.cache.block_bytes, 64 << 10);
        assert_eq!(settings.cache.policy.to_string(), "lru");
        assert_eq!(settings.cache.requests, 5);
        let [first, second] = &settings.volumes[..] else {
            panic!("two volumes");
        };
        assert_eq!((&first.name[..], &second.name[..]), ("s3://b/p", "other"));
        assert_eq!(first.options["region"], "x");
        assert_eq!(first.prefetch_bytes, 1 << 20);
        let mount = first.mount.as_ref().unwrap();
        assert!(mount.directory.is_absolute() && mount.directory.ends_with("mnt"));
        assert_eq!(mount.consistency, Consistency::Strict);
        assert!(mount.write && mount.allow_other && mount.direct_io);
        assert_eq!(mount.threads, Some(3));
    }

    #[test]
    fn mistakes_are_one_line_that_says_where() {
        let member = "name = \"a\"\ncluster = \"c\"\nlisten = \"127.0.0.1:1\"\n";
        for (text, says) in [
            ("", "node.toml: no [[volume]]: there is nothing to serve"),
            ("memory = \"10%\"", "node.toml: line 1: a size in bytes"),
            ("\nmemory = true", "node.toml: line 2: invalid type"),
            ("block = 1000", "node.toml: line 1: a power of two"),
            ("policy = \"none\"", "node.toml: line 1: "),
            ("metrics = \"here\"", "node.toml: line 1: give a port"),
            ("requests = 0", "node.toml: line 1: "),
            ("size = 1", "node.toml: line 1: unknown field `size`"),
            ("[[volume]]\n", "node.toml: line 1: missing field `source`"),
            (
                "[[volume]]\nsource = \"/a\"\nconsistency = \"loose\"",
                "node.toml: line 3: strict, immutable or ttl=SECONDS is expected",
            ),
            (
                "[[volume]]\nsource = \"/a\"\ndirect-io = true",
                "node.toml: volume /a: direct-io without a directory",
            ),
            (
                "[[volume]]\nsource = \"/a\"\n[[volume]]\nsource = \"/a/\"",
                "node.toml: two volumes are called \"/a\"",
            ),
            (
                "[[volume]]\nsource = \"/a\"\ndirectory = \"/m\"\n\
                 [[volume]]\nsource = \"/b\"\ndirectory = \"/m\"",
                "node.toml: two volumes are at /m",
            ),
            ("listen = \"127.0.0.1:1\"", "node.toml: name is missing"),
            (
                &format!("{member}tls = \"on\""),
                "node.toml: line 4: \"off\" or a table",
            ),
            (
                &format!(
                    "{member}tls = \"off\"\n\
                     members = {{ a = \"127.0.0.1:1\", b = \"127.0.0.1:2\" }}\n\
                     readers = {{ \"/data\" = [\"b\"] }}\n{VOLUME}"
                ),
                "node.toml: volume /data: \"a\", which is this node, is not among its readers",
            ),
            (
                &format!(
                    "{member}tls = \"off\"\nmembers = {{ a = \"127.0.0.1:1\" }}\n\
                     readers = {{ v = [\"c\"] }}\n{VOLUME}"
                ),
                "node.toml: readers of \"v\": \"c\" is no member",
            ),
            (
                &format!("{member}tls = \"off\""),
                "node.toml: one of [members] and [etcd]",
            ),
            (
                &format!("{member}tls = \"off\"\nmembers = {{ a = \"here\" }}"),
                "node.toml: \"here\", the address of member \"a\", is not of the form HOST:PORT",
            ),
        ] {
            let error = load_text(text).err();
            let error = error.unwrap_or_else(|| panic!("taken: {text}"));
            assert!(error.starts_with(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_file_of_a_mount_has_a_cluster_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        let check = |text: &str, says: &str| {
            fs::write(&path, text).unwrap();
            let error = cluster(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        };
        check(VOLUME, "[[volume]] is for `hither node --config`");
        check("memory = 1", "memory is for `hither node --config`");
        check("name = \"a\"", "it names no cluster");
    }
}
