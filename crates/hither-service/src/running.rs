//! A node that runs: from its settings to its end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hither_analysis::format::bytes;
use hither_kernel::notify::notify;
use hither_mount::{Consistency, Mounted};
use hither_net::tls::CertificateEnd;
use hither_node::config::{ClusterConfig, Joined};
use hither_node::node::Node;
use hither_node::readers::Readers;
use hither_node::source::settings::SourceSettings;
use hither_node::source::write::WritableSource;
use hither_node::source::{OpenError, Source, registry};
use hither_node::store::disk::settings::DiskSettings;
use hither_node::volume::{Volume, VolumeSettings};
use tokio::runtime::Runtime;

use crate::clients::{self, ClientSocket};
use crate::control::{self, ControlSocket};
use crate::error::{Cause, Error, Place};
use crate::metrics::{self, node};
use crate::placement_log::PlacementLog;
use crate::served::{Served, ServedVolume};
use crate::served_trace::ServedTrace;
use crate::settings::{MountPoint, ServedSettings, ServiceSettings};
use crate::signals::EndSignals;

/// How long reads that are under way may go on after the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a mount is looked at: whether somebody has unmounted it.
const LOOK: Duration = Duration::from_millis(100);

/// A certificate that is valid for fewer days is warned of.
const CERTIFICATE_DAYS_LEFT: u32 = 30;

/// See the module.
pub struct Service {
    mounts: Vec<Mounted>,
    served: Arc<Served>,
    /// Where the node can be asked. `None` if that could not be made.
    control: Option<ControlSocket>,
    /// Where programs read past the kernel, likewise.
    clients: Option<ClientSocket>,
    metrics: Option<SocketAddr>,
    joined: Option<Joined>,
    trace: Option<ServedTrace>,
    placement_log: Option<PlacementLog>,
    signals: EndSignals,
    runtime: Runtime,
}

/// When a service ends, beside by a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Once somebody has unmounted all that it has mounted.
    WithItsMounts,
    /// Never.
    BySignal,
}

impl Service {
    /// Starts all that the settings say. On an error nothing is left of it.
    ///
    /// # Errors
    /// What the settings say cannot be had.
    pub fn start(settings: ServiceSettings) -> Result<Service, Error> {
        Ok(Service::started(settings)?)
    }

    fn started(settings: ServiceSettings) -> Result<Service, Cause> {
        let runtime = Runtime::new().at("starting threads")?;
        // From before the mounts are there on, so that no signal leaves one that nobody serves.
        let signals = {
            let _inside = runtime.enter();
            EndSignals::new().at("watching for signals")?
        };
        let place = settings.file.as_deref();
        let memory_bytes = settings.cache.memory_bytes();
        let shares = settings.shares(memory_bytes);
        let mut sources = Vec::new();
        for served in &settings.volumes {
            check_places(served, settings.cache.disk.as_ref())?;
            let checked = check_passthrough(served, settings.cache.disk.is_some());
            in_file(checked, place, served)?;
            let source = served.source(&settings.cache, shares.writes_bytes);
            let opened = runtime.block_on(Opened::new(served, &source));
            sources.push(in_file(opened, place, served)?);
        }
        let node = Node::new(
            settings.cache.node(shares.node_bytes),
            runtime.handle().clone(),
        )?;
        let placement_log = match &settings.placement_log {
            Some(path) => Some(PlacementLog::start(path, &node)?),
            None => None,
        };
        let joined = match &settings.cluster {
            Some(config) => Some(runtime.block_on(join(&node, config))?),
            None => None,
        };
        let cluster = settings.cluster;
        let cluster_name = cluster.as_ref().map(|config| config.mesh.cluster.clone());
        let certificate = cluster.and_then(|config| config.certificate);
        if let Some(certificate) = certificate {
            runtime.spawn(watch_certificate(certificate));
        }
        let served = Arc::new(Served {
            volumes: volumes(&node, &settings.volumes, sources),
            memory_bytes,
            name: settings.name,
            cluster: cluster_name,
            since: Instant::now(),
            node,
        });
        let trace = match &settings.trace {
            Some(folder) => Some(ServedTrace::start(folder, &served.volumes)?),
            None => None,
        };
        let metrics = match settings.metrics {
            Some(at) => {
                let served = Arc::clone(&served);
                let serving = metrics::serve(at, move || node::exposition(&served.status()));
                let serving = runtime.block_on(serving);
                Some(serving.at(format_args!("serving metrics at {at}"))?)
            }
            None => None,
        };
        let control = control_socket(&served, &runtime);
        let mut service = Service {
            mounts: Vec::new(),
            clients: control.as_ref().and_then(|it| client_socket(&served, it)),
            control,
            metrics,
            served,
            joined,
            trace,
            placement_log,
            signals,
            runtime,
        };
        for (asked, volume) in settings.volumes.iter().zip(&service.served.volumes) {
            let Some(mount) = &asked.mount else {
                continue;
            };
            let socket = service.control.as_ref().map(|it| it.path().to_owned());
            let volume = Arc::clone(&volume.volume);
            let MountPoint {
                directory,
                settings,
            } = mount;
            let mounted = Mounted::new(volume, directory, settings, &asked.public_source(), socket);
            service.mounts.push(in_file(mounted, place, asked)?);
        }
        let status = status_line(&service.served);
        tell_systemd(&format!("READY=1\nSTATUS={status}"));
        tracing::info!("{status}");
        Ok(service)
    }

    /// Memory for file contents.
    pub fn memory_bytes(&self) -> u64 {
        self.served.memory_bytes
    }

    /// Where the metrics are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// What is mounted.
    pub fn mounts(&self) -> &[Mounted] {
        &self.mounts
    }

    /// Serves until the end.
    pub fn wait(&mut self, ends: Ends) {
        let (signals, mounts) = (&mut self.signals, &self.mounts);
        let mut over = vec![false; mounts.len()];
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    () = signals.wait() => return,
                    () = tokio::time::sleep(LOOK) => {
                        for (mounted, was_over) in mounts.iter().zip(&mut over) {
                            if mounted.is_over() && !std::mem::replace(was_over, true) {
                                tracing::info!("{} was unmounted", mounted.path().display());
                            }
                        }
                        if ends == Ends::WithItsMounts && mounts.iter().all(Mounted::is_over) {
                            return;
                        }
                    }
                }
            }
        });
    }

    /// Leaves the cluster, unmounts, and returns a line about each volume.
    ///
    /// # Errors
    /// A mount is still used, or a log or trace could not be written.
    pub fn end(self) -> Result<Vec<String>, Error> {
        tell_systemd("STOPPING=1");
        drop((self.control, self.clients));
        // The others learn at once that this node goes.
        if let Some(joined) = self.joined {
            self.runtime.block_on(joined.leave());
        }
        let mut result = Ok(());
        for mounted in self.mounts {
            let place = mounted.path().display().to_string();
            let unmounted = mounted.unmount(PATIENCE);
            let unmounted = unmounted.at(format_args!("unmounting {place}"));
            result = result.and(unmounted);
        }
        self.served.node.close();
        // Open files of a mount that was taken away would keep threads of the runtime.
        self.runtime.shutdown_background();
        let volumes = self.served.volumes.iter();
        let mut lines: Vec<String> = volumes.map(|it| summary(&it.volume)).collect();
        if let Some(trace) = self.trace {
            let finished = trace.finish();
            result = result.and(finished.map(|line| lines.push(line)));
        }
        if let Some(log) = self.placement_log {
            result = result.and(log.finish());
        }
        result.map(|()| lines)
    }
}

/// A source that was opened.
enum Opened {
    ReadOnly(Arc<dyn Source>),
    /// It may be changed.
    ReadWrite(Arc<dyn WritableSource>),
}

impl Opened {
    async fn new(served: &ServedSettings, settings: &SourceSettings) -> Result<Opened, OpenError> {
        Ok(if served.is_written() {
            Opened::ReadWrite(registry::open_writable(&served.source, settings).await?)
        } else {
            Opened::ReadOnly(registry::open(&served.source, settings).await?)
        })
    }

    fn volume(self, node: Arc<Node>, settings: VolumeSettings) -> Arc<Volume> {
        match self {
            Opened::ReadOnly(source) => Volume::new(node, source, settings),
            Opened::ReadWrite(source) => Volume::writable(node, source, settings),
        }
    }
}

/// The volumes of a node, not mounted yet.
fn volumes(
    node: &Arc<Node>,
    settings: &[ServedSettings],
    sources: Vec<Opened>,
) -> Vec<ServedVolume> {
    let memory_bytes = node.settings().memory_bytes;
    let volumes = settings.iter().zip(sources);
    let volumes = volumes.map(|(asked, source)| ServedVolume {
        source: asked.public_source(),
        directory: asked
            .mount
            .as_ref()
            .and_then(|mount| real_path(&mount.directory)),
        consistency: asked
            .mount
            .as_ref()
            .map_or_else(Consistency::default, |it| it.settings.consistency),
        volume: source.volume(Arc::clone(node), asked.volume(memory_bytes)),
    });
    volumes.collect()
}

/// A directory without links in its path. Its last component may be a mount that nobody serves any
/// more, which cannot be looked at.
fn real_path(directory: &Path) -> Option<PathBuf> {
    directory.canonicalize().ok().or_else(|| {
        let absolute = std::path::absolute(directory).ok()?;
        let folder = absolute.parent()?.canonicalize().ok()?;
        Some(folder.join(absolute.file_name()?))
    })
}

/// The control socket. A node that cannot have one serves all the same.
fn control_socket(served: &Arc<Served>, runtime: &Runtime) -> Option<ControlSocket> {
    let answerer = Arc::downgrade(served);
    served.node.answer_with(move || {
        let brief = answerer.upgrade().map(|served| served.brief());
        // It fails on a map whose keys are no texts.
        serde_json::to_vec(&brief).expect("a document")
    });
    let _inside = runtime.enter();
    match control::serve(served) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!("no control socket: {error}");
            None
        }
    }
}

/// The socket of clients, of which the same holds.
fn client_socket(served: &Arc<Served>, control: &ControlSocket) -> Option<ClientSocket> {
    match clients::serve(served, control.path()) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!("no socket for clients: {error}");
            None
        }
    }
}

/// What the node does, in one line.
fn status_line(served: &Served) -> String {
    let volumes = served.volumes.iter().map(|volume| volume.volume.name());
    let volumes: Vec<&str> = volumes.collect();
    let memory = bytes(served.node.settings().memory_bytes);
    let mut line = format!("serves {} with {memory} of memory", volumes.join(", "));
    if let (Some(name), Some(cluster)) = (&served.name, &served.cluster) {
        line = format!("{line}, as {name} of the cluster {cluster}");
    }
    line
}

/// An error about a volume names the file that asks for it.
fn in_file<T, E: Into<Cause>>(
    result: Result<T, E>,
    file: Option<&Path>,
    served: &ServedSettings,
) -> Result<T, Cause> {
    match file {
        Some(file) => Ok(result.at(format_args!("{}: volume {}", file.display(), served.name))?),
        None => result.map_err(Into::into),
    }
}

/// A mount below its own source would contain itself, and one above the disk's folder would hide
/// it.
fn check_places(served: &ServedSettings, disk: Option<&DiskSettings>) -> Result<(), Cause> {
    let Some(MountPoint { directory, .. }) = &served.mount else {
        return Ok(());
    };
    let name = ServedSettings::name_of(&served.source);
    if let (Ok(source), Ok(place)) = (Path::new(&name).canonicalize(), directory.canonicalize())
        && place.starts_with(&source)
        && place != source
    {
        let (place, source) = (directory.display(), served.public_source());
        return Err(format!("{place} lies below {source}: it would contain itself").into());
    }
    if let Some(disk) = disk
        && let Ok(place) = directory.canonicalize()
        && let Ok(folder) = std::path::absolute(&disk.folder)
        && folder.canonicalize().unwrap_or(folder).starts_with(&place)
    {
        let folder = disk.folder.display();
        let place = place.display();
        let reason = format!("{folder}: the disk cache lies below the mount at {place}");
        return Err((reason + ", which would hide it").into());
    }
    Ok(())
}

/// The kernel takes files to read by itself from root alone.
fn check_passthrough(served: &ServedSettings, has_disk: bool) -> Result<(), Cause> {
    let settings = served.mount.as_ref().map(|mount| &mount.settings);
    let Some(settings) = settings.filter(|it| it.passthrough) else {
        return Ok(());
    };
    if !has_disk {
        return Err("passthrough needs a disk".into());
    }
    if settings.direct_io {
        return Err("passthrough and direct-io exclude each other".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("passthrough needs root".into());
    }
    Ok(())
}

fn tell_systemd(text: &str) {
    if let Err(error) = notify(text) {
        tracing::warn!("{error}");
    }
}

/// Makes `node` one of a cluster.
async fn join(node: &Arc<Node>, config: &ClusterConfig) -> Result<Joined, Cause> {
    let joined = config.join().await?;
    let readers = Readers::new(&config.readers);
    let membership = joined.membership();
    let (mesh, placing) = (config.mesh.clone(), config.placing.clone());
    node.join(mesh, membership, readers, placing).await?;
    Ok(joined)
}

/// Where the reads of a volume were served from.
fn summary(volume: &Volume) -> String {
    let counts = volume.counters().counts();
    let opens = match counts.passthrough_opens {
        0 => String::new(),
        opens => format!("; {opens} opens were read by the kernel straight from the disk"),
    };
    format!(
        "{}: {} read: {} were in memory, {} were waited for; {} came from the disk, {} from the \
         source in {} requests (reads that the kernel's page cache served are not seen){opens}",
        volume.name(),
        bytes(counts.read_bytes),
        bytes(counts.memory_bytes),
        bytes(counts.awaited_bytes),
        bytes(counts.disk_read_bytes),
        bytes(counts.fetched_bytes),
        counts.fetches,
    )
}

/// Warns each day of a certificate that ends soon.
async fn watch_certificate(path: PathBuf) {
    const DAY: Duration = Duration::from_secs(86_400);
    loop {
        match CertificateEnd::of(&path) {
            Ok(end) if end.left() < CERTIFICATE_DAYS_LEFT * DAY => tracing::warn!(
                "{}: the certificate ends on {}: replace it and restart the node",
                path.display(),
                end.text
            ),
            Ok(_) => {}
            Err(error) => tracing::warn!("{error}"),
        }
        tokio::time::sleep(DAY).await;
    }
}
