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

use hither_core::Spec;
use hither_mount::{Consistency, MountSettings};
use hither_node::config::{ClusterConfig, ClusterFile, Etcd, Tls};
use hither_node::distances::TopologyFile;
use hither_node::store::disk::settings::DiskSettings;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::error::{Cause, Error, Place};
use crate::settings::{CacheSettings, MountPoint, ServedSettings, ServiceSettings, default};
use crate::values::{self, block_bytes, size_bytes};

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
pub fn load(path: &Path) -> Result<ServiceSettings, Error> {
    let mut file = read(path)?;
    let volumes = volumes(std::mem::take(&mut file.volume), path).at(path.display())?;
    let by_default = CacheSettings::default();
    let cache = CacheSettings {
        memory_bytes: file.memory,
        block_bytes: file.block.unwrap_or(by_default.block_bytes),
        policy: file.policy.unwrap_or(by_default.policy),
        requests: file.requests.map_or(by_default.requests, NonZeroU16::get),
        disk: disk(file.disk.as_deref(), file.disk_size, path).at(path.display())?,
    };
    let (name, metrics) = (file.name.clone(), file.metrics);
    let cluster = file.cluster(path)?;
    if let Some(config) = &cluster {
        check_readers(config, &volumes).at(path.display())?;
    }
    if volumes.is_empty() {
        return Err(Cause::from("no [[volume]]: there is nothing to serve")).at(path.display());
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
pub fn cluster(path: &Path) -> Result<ClusterConfig, Error> {
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
        let text = "is for `hither node`; with `hither mount` it is an option";
        return Err(Cause::from(format!("{key} {text}"))).at(path.display());
    }
    let cluster = file.cluster(path)?;
    cluster
        .ok_or_else(|| Cause::from("it names no cluster"))
        .at(path.display())
}

fn read(path: &Path) -> Result<NodeFile, Error> {
    let text = fs::read_to_string(path).at(path.display())?;
    let file = toml::from_str(&text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        match error.span() {
            Some(span) => {
                let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                format!("line {line}: {message}")
            }
            None => message,
        }
    });
    file.at(path.display())
}

impl NodeFile {
    /// The part about the cluster, if there is one.
    fn cluster(self, path: &Path) -> Result<Option<ClusterConfig>, Error> {
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
            let text = "is missing: a member of a cluster has name, cluster, listen and tls";
            Cause::from(format!("{key} {text}"))
        };
        let file = ClusterFile {
            name: self
                .name
                .ok_or_else(|| missing("name"))
                .at(path.display())?,
            cluster: self
                .cluster
                .ok_or_else(|| missing("cluster"))
                .at(path.display())?,
            listen: self
                .listen
                .ok_or_else(|| missing("listen"))
                .at(path.display())?,
            tls: self.tls.ok_or_else(|| missing("tls")).at(path.display())?,
            members: self.members,
            etcd: self.etcd,
            placement: self.placement,
            readers: self.readers,
            topology: self.topology.unwrap_or_default(),
        };
        let config = ClusterConfig::new(file, path);
        Ok(Some(config.map_err(Cause::from)?))
    }
}

/// A node that the others would refuse the blocks of its own volume is a mistake.
fn check_readers(config: &ClusterConfig, volumes: &[ServedSettings]) -> Result<(), Cause> {
    let me = &config.mesh.me;
    for volume in volumes {
        let readers = config.readers.get(&volume.name);
        let name = &volume.name;
        if readers.is_some_and(|readers| !readers.contains(me)) {
            let text = "which is this node, is not among its readers";
            return Err(format!("volume {name}: {me:?}, {text}").into());
        }
    }
    Ok(())
}

/// The disk that the file at `path` names.
fn disk(
    folder: Option<&Path>,
    bytes_max: Option<u64>,
    path: &Path,
) -> Result<Option<DiskSettings>, Cause> {
    match (folder, bytes_max) {
        (Some(folder), Some(bytes_max)) => Ok(Some(DiskSettings {
            folder: path.parent().unwrap_or(Path::new("")).join(folder),
            bytes_max,
        })),
        (None, None) => Ok(None),
        (Some(_), None) => Err("disk without disk-size".into()),
        (None, Some(_)) => Err("disk-size without disk".into()),
    }
}

fn volumes(files: Vec<VolumeFile>, path: &Path) -> Result<Vec<ServedSettings>, Cause> {
    let mut names = BTreeSet::new();
    let mut directories = BTreeSet::new();
    let mut volumes = Vec::new();
    let folder = path.parent().unwrap_or(Path::new(""));
    for mut file in files {
        file.source = ServedSettings::source_from(file.source, folder);
        let name = file.name.clone();
        let name = ServedSettings::name_or_default(name, &file.source);
        if !names.insert(name.clone()) {
            return Err(format!("two volumes are called {name:?}").into());
        }
        if let Some(directory) = &file.directory {
            let place = directory.display();
            if !directories.insert(directory.clone()) {
                return Err(format!("two volumes are at {place}").into());
            }
        } else if let Some(key) = file.key_of_a_mount() {
            let text = "without a directory: it is not mounted";
            return Err(format!("volume {name}: {key} {text}").into());
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
        let settings = MountSettings {
            consistency: self
                .consistency
                .unwrap_or_else(|| default::CONSISTENCY.parse().expect("a mode")),
            write: self.write.unwrap_or(false),
            allow_other: self.allow_other.unwrap_or(false),
            direct_io: self.direct_io.unwrap_or(false),
            passthrough: self.passthrough.unwrap_or(false),
            threads: self.threads.map(NonZeroU16::get),
        };
        let mount = self.directory.map(|directory| MountPoint {
            directory: folder.join(directory),
            settings,
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
    parsed(from, values::address)
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

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(de::Error::custom)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
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
            let text = chain(&error).replace(&format!("{}/", folder.path().display()), "");
            assert!(!text.contains('\n'), "more than a line: {text}");
            text
        })
    }

    /// An error and its causes, in one line.
    fn chain(error: &Error) -> String {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
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
        let MountPoint {
            directory,
            settings: mount,
        } = first.mount.as_ref().unwrap();
        assert!(directory.is_absolute() && directory.ends_with("mnt"));
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
            let error = chain(&cluster(&path).unwrap_err());
            assert!(error.contains(says), "{text}: {error}");
        };
        check(VOLUME, "[[volume]] is for `hither node`");
        check("memory = 1", "memory is for `hither node`");
        check("name = \"a\"", "it names no cluster");
    }
}
