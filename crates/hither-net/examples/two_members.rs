//! Two members of a cluster in one process: each has a certificate of the cluster's authority, they
//! connect with TLS, and one sends the other a frame.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hither_net::frame::{Frame, FrameHeader};
use hither_net::mesh::{Handler, Limits, Mesh, MeshConfig};
use hither_net::tls::{Authority, Identity, Security};
use hither_net::view::{Member, MemberId, View};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PATIENCE: Duration = Duration::from_secs(20);

enum Event {
    Connected,
    Received(Frame),
}

/// What a mesh calls. It must not block, so it passes on what it hears.
struct Forward(UnboundedSender<Event>);

impl Forward {
    fn pass_on(&self, event: Event) {
        // Nobody listens any more where this process ends.
        let _ = self.0.send(event);
    }
}

impl Handler for Forward {
    fn on_frame(&self, _from: MemberId, frame: Frame) {
        self.pass_on(Event::Received(frame));
    }

    fn on_connected(&self, _member: MemberId) {
        self.pass_on(Event::Connected);
    }

    fn on_disconnected(&self, _member: MemberId) {}
}

async fn join(
    name: &str,
    authority: &Authority,
) -> Result<(Mesh, UnboundedReceiver<Event>), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let files = authority.issue(name, folder.path(), Authority::NODE_VALIDITY)?;
    let config = MeshConfig {
        me: name.to_owned(),
        cluster: "example".to_owned(),
        listen: "127.0.0.1:0".parse()?,
        security: Security::Tls(Identity::load(&files)?),
        limits: Limits::default(),
    };
    let (sender, events) = unbounded_channel();
    Ok((
        Mesh::start(config, Arc::new(Forward(sender))).await?,
        events,
    ))
}

async fn send(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::create(folder.path(), "example")?;
    let (alice, mut of_alice) = join("alice", &authority).await?;
    let (bob, mut of_bob) = join("bob", &authority).await?;
    let members = [("alice", &alice), ("bob", &bob)].map(|(name, mesh)| Member {
        name: name.to_owned(),
        address: mesh.local_address().to_string(),
    });
    let view = View::new(1, members.to_vec())?;
    alice.set_view(&view);
    bob.set_view(&view);
    while !matches!(of_alice.recv().await, Some(Event::Connected)) {}

    let header = FrameHeader {
        kind: 1,
        epoch: view.epoch(),
        request: 1,
        deadline_ms: 1000,
    };
    alice.send(MemberId::of("bob"), header.encode(text.as_bytes())?)?;
    let frame = loop {
        if let Some(Event::Received(frame)) = of_bob.recv().await {
            break frame;
        }
    };
    alice.shutdown(PATIENCE).await;
    bob.shutdown(PATIENCE).await;
    Ok(frame.body.to_vec())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let received = tokio::time::timeout(PATIENCE, send("hello, bob")).await??;
    println!("bob received: {}", String::from_utf8_lossy(&received));
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("bob receives it in time");
}
