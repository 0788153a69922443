//! Nodes for the mesh's tests: a handler that notes what it gets, and what was logged.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Once};
use std::time::Duration;

use hither_net::frame::Frame;
use hither_net::mesh::{Handler, Limits, Mesh, MeshConfig};
use hither_net::tls::{Authority, Identity, Security};
use hither_net::view::{Member, MemberId, View};
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

pub(crate) const QUEUE_BYTES: usize = 16 << 20;
pub(crate) const HANDSHAKES_MAX: usize = 8;
/// How long anything may take. It is only waited for if the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Connected,
    Disconnected,
}

#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<(MemberId, Event)>>,
    frames: Mutex<Vec<(MemberId, Frame)>>,
    held: Mutex<bool>,
    released: Condvar,
}

impl Handler for Recorder {
    fn on_frame(&self, from: MemberId, frame: Frame) {
        if *self.held.lock() {
            // As if the node read no further; a blocked worker would hold other tasks up. A test
            // that fails meanwhile lets nobody go, and its runtime waits for this.
            tokio::task::block_in_place(|| {
                let mut held = self.held.lock();
                self.released
                    .wait_while_for(&mut held, |held| *held, PATIENCE);
            });
        }
        self.frames.lock().push((from, frame));
    }

    fn on_connected(&self, member: MemberId) {
        self.events.lock().push((member, Event::Connected));
    }

    fn on_disconnected(&self, member: MemberId) {
        self.events.lock().push((member, Event::Disconnected));
    }
}

pub(crate) fn handler() -> Arc<Recorder> {
    Arc::default()
}

pub(crate) struct Node {
    pub(crate) mesh: Mesh,
    recorder: Arc<Recorder>,
}

impl Node {
    pub(crate) async fn start(cluster: &Cluster, name: &str) -> Node {
        Node::listen(cluster, name, "127.0.0.1:0").await
    }

    async fn listen(cluster: &Cluster, name: &str, address: &str) -> Node {
        let security = match &cluster.authority {
            Some(_) => Security::Tls(cluster.identity(name)),
            None => Security::Off,
        };
        let mut config = config(name, security);
        config.cluster.clone_from(&cluster.cluster_name);
        config.listen = address.parse().unwrap();
        let recorder = handler();
        let mesh = Mesh::start(config, recorder.clone()).await.unwrap();
        Node { mesh, recorder }
    }

    pub(crate) fn frames(&self) -> usize {
        self.recorder.frames.lock().len()
    }

    pub(crate) fn frames_from(&self, name: &str) -> Vec<Frame> {
        let frames = self.recorder.frames.lock();
        let from = frames
            .iter()
            .filter(|(from, _)| *from == MemberId::of(name));
        from.map(|(_, frame)| frame.clone()).collect()
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Event> {
        let events = self.recorder.events.lock();
        let of = events.iter().filter(|(id, _)| *id == MemberId::of(name));
        of.map(|&(_, event)| event).collect()
    }

    pub(crate) fn last_event(&self, name: &str) -> Option<Event> {
        self.events(name).last().copied()
    }

    /// From now on the node takes no frames, or takes them again.
    pub(crate) fn hold(&self, hold: bool) {
        *self.recorder.held.lock() = hold;
        self.recorder.released.notify_all();
    }
}

pub(crate) fn config(name: &str, security: Security) -> MeshConfig {
    MeshConfig {
        me: name.to_owned(),
        cluster: "test".to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        security,
        limits: Limits {
            queue_bytes: QUEUE_BYTES,
            handshakes_max: HANDSHAKES_MAX,
            handshake: Duration::from_secs(2),
            ..Limits::default()
        },
    }
}

pub(crate) fn view(epoch: u64, members: &[Member]) -> View {
    View::new(epoch, members.to_vec()).unwrap()
}

pub(crate) struct Cluster {
    pub(crate) cluster_name: String,
    folder: TempDir,
    authority: Option<Authority>,
    nodes: BTreeMap<String, Node>,
}

impl Cluster {
    pub(crate) fn with_tls() -> Cluster {
        let mut cluster = Cluster::without_tls();
        cluster.authority = Some(Authority::create(cluster.folder.path(), "test").unwrap());
        cluster
    }

    pub(crate) fn without_tls() -> Cluster {
        note_the_log();
        Cluster {
            cluster_name: "test".to_owned(),
            folder: tempfile::tempdir().unwrap(),
            authority: None,
            nodes: BTreeMap::new(),
        }
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let authority = self.authority.as_ref().unwrap();
        let files = authority
            .issue(name, folder.path(), Authority::NODE_VALIDITY)
            .unwrap();
        Identity::load(&files).unwrap()
    }

    pub(crate) async fn start(&mut self, name: &str) {
        let node = Node::start(self, name).await;
        self.nodes.insert(name.to_owned(), node);
    }

    pub(crate) async fn restart(&mut self, name: &str) {
        let old = self.nodes.remove(name).unwrap();
        old.mesh.shutdown(Duration::ZERO).await;
        let address = old.mesh.local_address().to_string();
        let node = Node::listen(self, name, &address).await;
        self.nodes.insert(name.to_owned(), node);
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        &self.nodes[name]
    }

    pub(crate) fn member(&self, name: &str) -> Member {
        Member {
            name: name.to_owned(),
            address: self.node(name).mesh.local_address().to_string(),
        }
    }

    pub(crate) fn set_view(&self, epoch: u64, names: &[&str]) {
        let members: Vec<Member> = names.iter().map(|name| self.member(name)).collect();
        for name in names {
            self.set_view_of(name, epoch, &members);
        }
    }

    pub(crate) fn set_view_of(&self, name: &str, epoch: u64, members: &[Member]) {
        self.node(name).mesh.set_view(&view(epoch, members));
    }

    /// Waits until `name` is connected with all others of `names`.
    pub(crate) async fn connected(&self, name: &str, names: &[&str]) {
        let node = self.node(name);
        let connected = |other: &&&str| node.last_event(other) == Some(Event::Connected);
        let others = names.len() - 1;
        let all = || names.iter().filter(connected).count() == others;
        until(&format!("{name} is connected"), all).await;
    }

    pub(crate) async fn shutdown(self) {
        for node in self.nodes.values() {
            node.mesh.shutdown(PATIENCE).await;
        }
    }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let held = tokio::time::timeout(PATIENCE, holds).await;
    assert!(
        held.is_ok(),
        "{what}: not within {PATIENCE:?}; logged: {:#?}",
        *LOG.lock()
    );
}

/// Waits until a line that starts with `subject` and has `text` in it was logged.
pub(crate) async fn logged(subject: &str, text: &str) {
    let found = || {
        let log = LOG.lock();
        let mut lines = log.iter();
        lines.any(|line| line.starts_with(subject) && line.contains(text))
    };
    until(&format!("{subject}...{text} is logged"), found).await;
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_the_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(LogLines).unwrap());
}

/// Notes the messages of all that is logged.
struct LogLines;

impl tracing::Subscriber for LogLines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("hither")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        LOG.lock().push(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct Message(String);

impl tracing::field::Visit for Message {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}
