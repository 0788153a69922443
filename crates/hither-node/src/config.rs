//! What makes a node one of a cluster: a part of the file of `hither node`, in TOML.
//!
//! ```toml
//! name = "a"                      # this node, among the members
//! cluster = "lab"
//! listen = "10.0.0.1:7300"
//! placement = "post-office"       # where blocks are kept: the same on all members
//! tls = { authority = "ca.pem", certificate = "a.pem", key = "a.key" }  # or "off" on loopback
//!
//! [members]                       # all of them, this one too
//! a = "10.0.0.1:7300"
//! b = "10.0.0.2:7300"
//!
//! [readers]                       # who may have a volume's blocks; of others, all members
//! "s3://bucket/secret" = ["a"]
//!
//! [topology]                      # how far the members are from each other; else it is measured
//! places = { a = "zone1/rack1", b = "zone1/rack2" }
//!
//! # or, in place of [members]
//! [etcd]
//! endpoints = ["https://10.0.0.9:2379"]
//! address = "10.0.0.1:7300"       # where the others reach this node
//! tls = { authority = "etcd-ca.pem", certificate = "client.pem", key = "client.key" }
//! ```
//!
//! Relative paths are relative to the file.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hither_core::entry::RegistryEntry;
use hither_core::placement::PlacementEntry;
use hither_core::{Spec, SpecError};
use hither_net::membership::etcd::{EtcdConfig, EtcdError};
use hither_net::membership::fixed::{self, FixedError};
use hither_net::membership::{Membership, etcd};
use hither_net::mesh::{Limits, MeshConfig};
use hither_net::tls::{Identity, IdentityFiles, Security, ServiceFiles, TlsError};
use hither_net::view::{Member, View, ViewError};
use serde::Deserialize;

use crate::distances::{self, Distances, TopologyFile};
use crate::source::name::public_name;

/// Why a file makes no node one of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not what is expected.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The members make no cluster.
    #[error(transparent)]
    Members(#[from] FixedError),
    /// etcd does not let the node in.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// A node's place in a cluster, checked.
#[derive(Debug)]
pub struct ClusterConfig {
    /// The node's place in the mesh.
    pub mesh: MeshConfig,
    /// The file of the node's certificate, if there is TLS.
    pub certificate: Option<PathBuf>,
    /// Who may have the blocks of which volume, by their names.
    pub readers: BTreeMap<String, Vec<String>>,
    /// Where blocks are kept.
    pub placing: Placing,
    members: Members,
}

/// Where a cluster keeps blocks.
#[derive(Clone, Debug)]
pub struct Placing {
    /// The placement.
    pub policy: Spec<PlacementEntry>,
    /// How far the members are from each other.
    pub distances: Distances,
}

#[derive(Debug)]
enum Members {
    Fixed(Vec<Member>),
    Etcd(Box<EtcdConfig>),
}

/// The membership that a node has joined. Kept for as long as it is a member.
#[derive(Debug)]
pub enum Joined {
    /// A list: there is nothing to keep.
    Fixed(Membership),
    /// A lease in etcd.
    Etcd(etcd::Joined),
}

impl Joined {
    /// What to watch.
    pub fn membership(&self) -> Membership {
        match self {
            Joined::Fixed(membership) => membership.clone(),
            Joined::Etcd(joined) => joined.membership(),
        }
    }

    /// Leaves, so that the others see it at once.
    pub async fn leave(self) {
        if let Joined::Etcd(joined) = self {
            joined.leave().await;
        }
    }
}

/// What a file says of a cluster, as it stands there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// This node, among the members.
    pub name: String,
    /// The cluster's name.
    pub cluster: String,
    /// Where to listen.
    pub listen: String,
    /// How connections are protected.
    pub tls: Tls,
    /// The members, if their list is fixed.
    pub members: Option<BTreeMap<String, String>>,
    /// Where the list is, otherwise.
    pub etcd: Option<Etcd>,
    /// Where blocks are kept.
    pub placement: Option<String>,
    /// Who may have the blocks of which volume. Of volumes that are not named, all members.
    #[serde(default)]
    pub readers: BTreeMap<String, Vec<String>>,
    /// How far the members are from each other. Without it, that is measured.
    #[serde(default)]
    pub topology: TopologyFile,
}

/// How connections are protected.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "\"off\" or a table of authority, certificate and key is expected"
)]
pub enum Tls {
    /// Not at all: `"off"`.
    Off(Off),
    /// By the files of a node's identity.
    Files(IdentityFiles),
}

/// The word `off`.
#[derive(Debug, Deserialize)]
pub enum Off {
    /// It stands there.
    #[serde(rename = "off")]
    Off,
}

/// Where etcd is, and how to talk to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Etcd {
    endpoints: Vec<String>,
    address: String,
    tls: Option<EtcdTls>,
    user: Option<String>,
    password: Option<String>,
    /// How long the others wait for a node that has died, in seconds.
    ttl_s: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EtcdTls {
    authority: PathBuf,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// How long the others wait for a node that has died, unless the file says otherwise.
const TTL_S: u64 = 5;

/// Where blocks are kept, unless the file says otherwise.
pub const PLACEMENT: &str = "first-and-forever";

/// A placement for clusters, by its name and parameters.
///
/// # Errors
/// What is wrong with it.
pub fn placement(text: &str) -> Result<Spec<PlacementEntry>, String> {
    let spec: Spec<PlacementEntry> = text.parse().map_err(|error: SpecError| error.to_string())?;
    if spec.entry().runs_in_clusters() {
        return Ok(spec);
    }
    let all = PlacementEntry::all().iter();
    let names = all.filter(|entry| entry.runs_in_clusters());
    let names: Vec<&str> = names.map(|entry| entry.name).collect();
    let name = spec.entry().name;
    Err(format!(
        "placement {name} is none for a cluster: use one of {}",
        names.join(", ")
    ))
}

impl ClusterConfig {
    /// What `file`, which was read from `path`, says. Loads the certificates that it names.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(file: ClusterFile, path: &Path) -> Result<ClusterConfig, ConfigError> {
        let wrong = |reason: String| ConfigError::Content {
            path: path.to_owned(),
            reason,
        };
        let listen = address(&file.listen).map_err(wrong)?;
        let beside = |name: &Path| path.parent().unwrap_or(Path::new("")).join(name);
        let (security, certificate) = match &file.tls {
            Tls::Off(Off::Off) => (Security::Off, None),
            Tls::Files(files) => {
                let identity = IdentityFiles {
                    authority: beside(&files.authority),
                    certificate: beside(&files.certificate),
                    key: beside(&files.key),
                };
                let security = Security::Tls(Identity::load(&identity)?);
                (security, Some(identity.certificate))
            }
        };
        let placement = file.placement.as_deref().unwrap_or(PLACEMENT);
        let placement = self::placement(placement).map_err(wrong)?;
        let members = match (file.members, file.etcd) {
            (Some(members), None) => {
                let members = members.into_iter();
                let members: Vec<Member> = members
                    .map(|(name, address)| Member { name, address })
                    .collect();
                let view = View::new(1, members.clone());
                let view = view.map_err(|error: ViewError| wrong(error.to_string()))?;
                security.check_view(&view)?;
                Members::Fixed(members)
            }
            (None, Some(etcd)) => {
                let me = Member {
                    name: file.name.clone(),
                    address: etcd.address.clone(),
                };
                let etcd = etcd.config(&file.cluster, me, beside).map_err(wrong)?;
                Members::Etcd(Box::new(etcd))
            }
            _ => return Err(wrong("one of [members] and [etcd] is expected".to_owned())),
        };
        if let Members::Fixed(members) = &members {
            for (volume, names) in &file.readers {
                let is_member = |name: &String| members.iter().any(|it| it.name == *name);
                if let Some(name) = names.iter().find(|name| !is_member(name)) {
                    let reason = format!("readers of {volume:?}: {name:?} is no member");
                    return Err(wrong(reason));
                }
            }
        }
        let distances = distances(file.topology, beside, &members).map_err(wrong)?;
        // By the names that volumes have.
        let readers = file.readers.into_iter();
        let readers = readers.map(|(volume, names)| (public_name(&volume), names));
        let readers = readers.collect();
        Ok(ClusterConfig {
            mesh: MeshConfig {
                me: file.name,
                cluster: file.cluster,
                listen,
                security,
                limits: Limits::default(),
            },
            certificate,
            readers,
            placing: Placing {
                policy: placement,
                distances,
            },
            members,
        })
    }

    /// Becomes a member.
    ///
    /// # Errors
    /// This node is not in the list, or etcd does not let it in.
    pub async fn join(&self) -> Result<Joined, ConfigError> {
        Ok(match &self.members {
            Members::Fixed(members) => {
                Joined::Fixed(fixed::members(&self.mesh.me, members.clone())?)
            }
            Members::Etcd(config) => Joined::Etcd(etcd::join(EtcdConfig::clone(config)).await?),
        })
    }
}

/// What `file` says of distances. Members in etcd may come and go, so that any names will do.
fn distances(
    file: TopologyFile,
    beside: impl Fn(&Path) -> PathBuf,
    members: &Members,
) -> Result<Distances, String> {
    let matrix = file.matrix().map(|path| {
        let path = beside(path);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    });
    let distances = Distances::new(file, matrix.transpose()?.as_deref())?;
    if let Members::Fixed(members) = members {
        let members = members.iter().map(|member| &member.name[..]);
        if let Some(name) = distances::unknown(distances.names(), members) {
            return Err(format!("[topology]: {name:?} is no member"));
        }
    }
    Ok(distances)
}

impl Etcd {
    fn config(
        self,
        cluster: &str,
        me: Member,
        beside: impl Fn(&Path) -> PathBuf,
    ) -> Result<EtcdConfig, String> {
        let tls = self.tls.map(|files| {
            let identity = match (&files.certificate, &files.key) {
                (Some(certificate), Some(key)) => Some((beside(certificate), beside(key))),
                (None, None) => None,
                _ => return Err("etcd.tls: certificate and key come together".to_owned()),
            };
            let authority = beside(&files.authority);
            Ok(ServiceFiles {
                authority,
                identity,
            })
        });
        let user = match (self.user, self.password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => return Err("etcd: user and password come together".to_owned()),
        };
        Ok(EtcdConfig {
            endpoints: self.endpoints,
            tls: tls.transpose()?,
            user,
            cluster: cluster.to_owned(),
            me,
            ttl: Duration::from_secs(self.ttl_s.unwrap_or(TTL_S)),
        })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs();
    let mut addresses = addresses.map_err(|error| format!("listen = {text:?}: {error}"))?;
    addresses
        .next()
        .ok_or_else(|| format!("listen = {text:?}: no address"))
}

#[cfg(test)]
mod tests {
    use hither_net::tls::Authority;

    use super::*;

    fn load(text: &str) -> Result<ClusterConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        load_at(&folder.path().join("cluster.toml"), text)
    }

    fn load_at(path: &Path, text: &str) -> Result<ClusterConfig, String> {
        let file: ClusterFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        ClusterConfig::new(file, path).map_err(|error| {
            let text = error.to_string();
            assert!(!text.contains('\n'), "more than a line: {text}");
            text
        })
    }

    const START: &str = "name = \"a\"\ncluster = \"c\"\nlisten = \"127.0.0.1:0\"\n";

    #[test]
    fn a_list_of_members_and_etcd() {
        let fixed = format!("{START}tls = \"off\"\n[members]\na = \"127.0.0.1:1\"\n");
        let config = load(&fixed).unwrap();
        assert_eq!(config.mesh.me, "a");
        assert!(matches!(config.members, Members::Fixed(_)));
        let etcd = "[etcd]\nendpoints = [\"http://127.0.0.1:2\"]\naddress = \"127.0.0.1:1\"\n";
        let config = load(&format!("{START}tls = \"off\"\n{etcd}")).unwrap();
        assert!(matches!(config.members, Members::Etcd(_)));
    }

    #[test]
    fn certificates_lie_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "c").unwrap();
        authority
            .issue("a", folder.path(), Authority::NODE_VALIDITY)
            .unwrap();
        let path = folder.path().join("cluster.toml");
        let tls = "tls = { authority = \"ca.pem\", certificate = \"a.pem\", key = \"a.key\" }\n";
        let text = format!("{START}{tls}[members]\na = \"host:1\"\n");
        let config = load_at(&path, &text).unwrap();
        assert_eq!(config.certificate, Some(folder.path().join("a.pem")));
        assert!(matches!(config.mesh.security, Security::Tls(_)));
    }

    #[test]
    fn distances_are_read_from_the_file_and_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.toml");
        let start = format!("{START}tls = \"off\"\n");
        let members = "[members]\na = \"127.0.0.1:1\"\nb = \"127.0.0.1:2\"\n";
        let load = |topology: &str| {
            let text = format!("{start}{members}[topology]\n{topology}");
            load_at(&path, &text).map(|config| config.placing.distances)
        };
        assert_eq!(load("").unwrap(), Distances::Measured);
        let matrix = "matrix = \"distances.csv\"";
        assert!(load(matrix).unwrap_err().contains("distances.csv"));
        fs::write(folder.path().join("distances.csv"), "a,b\n0,7\n7,0\n").unwrap();
        assert_eq!(load(matrix).unwrap().names(), ["a", "b"]);
        fs::write(folder.path().join("distances.csv"), "a,b\n0,7\n8,0\n").unwrap();
        assert!(load(matrix).unwrap_err().contains("distances.csv: from"));
        assert!(load("shap = 1").unwrap_err().contains("shap"));
        let places = "places = { a = \"z/r\", c = \"z/r\" }";
        assert!(load(places).unwrap_err().contains("\"c\" is no member"));
        let etcd = "[etcd]\nendpoints = [\"http://127.0.0.1:2\"]\naddress = \"127.0.0.1:1\"\n";
        let config = load_at(&path, &format!("{start}{etcd}[topology]\n{places}")).unwrap();
        assert_eq!(config.placing.distances.names(), ["a", "c"]);
    }

    #[test]
    fn mistakes_are_one_clear_line() {
        let members = "[members]\na = \"127.0.0.1:1\"\n";
        for (text, words) in [
            (String::new(), "name"),
            (format!("{START}tls = \"on\"\n{members}"), "off"),
            (format!("{START}tls = \"off\"\n"), "[members]"),
            (format!("{START}tls = \"off\"\nport = 1\n{members}"), "port"),
            (
                format!("{START}tls = \"off\"\nplacement = \"upm\"\n{members}"),
                "first-and-forever",
            ),
            (
                format!("{START}tls = \"off\"\n[members]\na = \"host\"\n"),
                "HOST:PORT",
            ),
            (
                format!("{START}tls = \"off\"\n[members]\na = \"10.0.0.1:1\"\n"),
                "10.0.0.1",
            ),
            (
                START.replace("127.0.0.1:0", "nowhere") + "tls = \"off\"\n" + members,
                "nowhere",
            ),
            (
                format!(
                    "{START}tls = {{ authority = \"x\", certificate = \"y\", key = \"z\" }}\n\
                     {members}"
                ),
                "cluster.toml",
            ),
        ] {
            let error = load(&text).err();
            let error = error.unwrap_or_else(|| panic!("taken: {text}"));
            let named = error.contains(words) || (words == "cluster.toml" && error.contains('/'));
            assert!(named, "{words} is not in: {error}");
        }
    }
}
