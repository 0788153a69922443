//! Meshes over loopback: members find each other, and whoever does not belong is refused.

#[path = "mesh/nodes.rs"]
mod nodes;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hither_net::frame::{FrameHeader, PROTOCOL};
use hither_net::mesh::{Limits, Mesh, MeshError, SendError};
use hither_net::tls::{Security, TlsError};
use hither_net::view::MemberId;
use nodes::{Cluster, Event, Node, logged, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DRAIN: Duration = Duration::from_secs(2);

fn header(request: u64) -> FrameHeader {
    FrameHeader {
        kind: 1,
        epoch: 1,
        request,
        deadline_ms: 1000,
    }
}

async fn all_pairs_exchange_frames(mut cluster: Cluster) {
    let names = ["a", "b", "c"];
    for name in names {
        cluster.start(name).await;
    }
    cluster.set_view(1, &names);
    for name in names {
        cluster.connected(name, &names).await;
    }
    // Small ones, a large one, and small ones behind it: all arrive, in their order.
    let large = Bytes::from(vec![7; 3 << 20]);
    for from in names {
        for to in names.into_iter().filter(|&to| to != from) {
            let mesh = &cluster.node(from).mesh;
            for request in 0..200 {
                let frame = if request == 100 {
                    header(request).encode_parts(from.as_bytes(), large.clone())
                } else {
                    header(request).encode(from.as_bytes())
                };
                mesh.send(MemberId::of(to), frame.unwrap()).unwrap();
            }
        }
    }
    for to in names {
        let node = cluster.node(to);
        until("all frames arrive", || node.frames() == 400).await;
        for from in names.into_iter().filter(|&from| from != to) {
            let frames = node.frames_from(from);
            let requests: Vec<u64> = frames.iter().map(|frame| frame.header.request).collect();
            assert_eq!(requests, (0..200).collect::<Vec<_>>());
            for frame in &frames {
                assert!(frame.body.starts_with(from.as_bytes()));
            }
            assert_eq!(&frames[100].body[1..], &large[..]);
        }
        let stats = node.mesh.stats();
        assert_eq!(stats.len(), 2);
        for stats in stats {
            assert!(stats.connected);
            assert_eq!((stats.sent_frames, stats.received_frames), (200, 200));
            assert_eq!(stats.sent_bytes, stats.received_bytes);
            assert_eq!((stats.connects, stats.queued_bytes, stats.full), (1, 0, 0));
        }
    }
    // One leaves: the others hear of it, and it is no longer a member.
    cluster.set_view(2, &["a", "b"]);
    let a = cluster.node("a");
    until("c is gone", || {
        a.last_event("c") == Some(Event::Disconnected)
    })
    .await;
    let frame = header(1).encode(b"").unwrap();
    let unknown = a.mesh.send(MemberId::of("c"), frame.clone());
    assert_eq!(unknown, Err(SendError::UnknownMember));
    assert_eq!(
        a.mesh.send(a.mesh.me(), frame),
        Err(SendError::UnknownMember)
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pairs_exchange_frames_with_tls() {
    all_pairs_exchange_frames(Cluster::with_tls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pairs_exchange_frames_without_tls() {
    all_pairs_exchange_frames(Cluster::without_tls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_queued_at_shutdown_arrives() {
    let mut cluster = Cluster::with_tls();
    cluster.start("a").await;
    cluster.start("b").await;
    cluster.set_view(1, &["a", "b"]);
    cluster.connected("a", &["a", "b"]).await;
    let a = cluster.node("a");
    let payload = Bytes::from(vec![1; 1 << 20]);
    for request in 0..10 {
        let frame = header(request).encode_parts(b"", payload.clone()).unwrap();
        a.mesh.send(MemberId::of("b"), frame).unwrap();
    }
    a.mesh.shutdown(DRAIN).await;
    let b = cluster.node("b");
    until("all frames arrive", || b.frames() == 10).await;
    until("a is gone", || {
        b.last_event("a") == Some(Event::Disconnected)
    })
    .await;
    let frame = header(0).encode(b"").unwrap();
    let refused = a.mesh.send(MemberId::of("b"), frame);
    assert_eq!(refused, Err(SendError::NotConnected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_restarts_is_connected_again() {
    let mut cluster = Cluster::with_tls();
    cluster.start("a").await;
    cluster.start("b").await;
    cluster.set_view(1, &["a", "b"]);
    for round in 1..=3 {
        cluster.connected("a", &["a", "b"]).await;
        cluster.connected("b", &["a", "b"]).await;
        let frame = header(round).encode(b"").unwrap();
        cluster
            .node("a")
            .mesh
            .send(MemberId::of("b"), frame)
            .unwrap();
        let b = cluster.node("b");
        until("the frame arrives", || b.frames() == 1).await;
        assert_eq!(b.frames_from("a")[0].header.request, round);
        cluster.restart("b").await;
        let a = cluster.node("a");
        until("a notices", || a.events("b").len() as u64 >= 2 * round).await;
        cluster.set_view(1, &["a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_member_fills_its_queue_and_no_other() {
    let mut cluster = Cluster::without_tls();
    for name in ["fast", "quick", "slow"] {
        cluster.start(name).await;
    }
    cluster.set_view(1, &["fast", "quick", "slow"]);
    cluster.connected("fast", &["fast", "quick", "slow"]).await;
    let (fast, slow) = (cluster.node("fast"), cluster.node("slow"));
    slow.hold(true);
    let payload = Bytes::from(vec![0; 1 << 20]);
    let send = |to: &str| {
        let frame = header(0).encode_parts(b"", payload.clone()).unwrap();
        fast.mesh.send(MemberId::of(to), frame)
    };
    // The socket may take some more after the first refusal.
    let (mut sent, mut refused) = (0, 0);
    while refused < 2 {
        match send("slow") {
            Ok(()) => sent += 1,
            Err(error) => {
                assert_eq!(error, SendError::Full);
                refused += 1;
            }
        }
        assert!(sent < 1000, "the queue is never full");
    }
    assert_eq!(send("quick"), Ok(()));
    let quick = cluster.node("quick");
    until("others get theirs", || quick.frames() == 1).await;
    let stats = |name: &str| {
        let stats = fast.mesh.stats();
        stats.into_iter().find(|stats| stats.name == name).unwrap()
    };
    assert_eq!((stats("slow").full, stats("quick").full), (2, 0));
    assert!(stats("slow").queued_bytes <= nodes::QUEUE_BYTES);
    slow.hold(false);
    until("all arrive in the end", || slow.frames() == sent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_authority_is_refused() {
    let mut cluster = Cluster::with_tls();
    cluster.start("honest").await;
    let mut other = Cluster::with_tls();
    other.start("stranger").await;
    let members = [cluster.member("honest"), other.member("stranger")];
    cluster.set_view_of("honest", 1, &members);
    other.set_view_of("stranger", 1, &members);
    logged(
        "member stranger at 127.0.0.1",
        "its certificate is refused: it is of another authority",
    )
    .await;
    logged(
        "member honest at 127.0.0.1",
        "its certificate is refused: it is of another authority",
    )
    .await;
    assert_eq!(cluster.node("honest").last_event("stranger"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_the_certificate_of_another_member_is_refused() {
    let mut cluster = Cluster::with_tls();
    cluster.start("one").await;
    cluster.start("two").await;
    // The view says that "three" is where "two" listens.
    let mut three = cluster.member("two");
    "three".clone_into(&mut three.name);
    cluster.set_view_of("one", 1, &[cluster.member("one"), three]);
    logged(
        "member three at",
        "its certificate is refused: it is for \"two\", not for \"three\"",
    )
    .await;

    // A certificate for another name is of no use for a start either.
    let identity = cluster.identity("four");
    let mut config = nodes::config("five", Security::Tls(identity));
    config.limits = Limits::default();
    let error = Mesh::start(config, nodes::handler()).await.unwrap_err();
    assert!(
        matches!(&error, MeshError::Tls(TlsError::Name { .. })),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_two_clusters_refuse_each_other() {
    let mut cluster = Cluster::without_tls();
    cluster.start("north").await;
    cluster.cluster_name = "elsewhere".to_owned();
    cluster.start("south").await;
    cluster.set_view(1, &["north", "south"]);
    let why = "node south is of cluster \"elsewhere\", node north of cluster \"test\"";
    logged("member north at", why).await;
    logged(
        "connection from 127.0.0.1: node south",
        why.trim_start_matches("node south"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_in_no_view_is_refused() {
    let mut cluster = Cluster::without_tls();
    cluster.start("inside").await;
    cluster.start("outside").await;
    cluster.set_view_of("inside", 5, &[cluster.member("inside")]);
    let members = [cluster.member("inside"), cluster.member("outside")];
    cluster.set_view_of("outside", 5, &members);
    let why = "it refuses this node: node outside is no member for node inside, \
               whose view is of epoch 5";
    logged("member inside at", why).await;
    // Nor is one let in that claims to know better.
    cluster.set_view_of("outside", u64::MAX, &members);
    let outside = || cluster.node("outside").mesh.stats().remove(0);
    let before = outside().failed_connects;
    until("it tries again", || outside().failed_connects > before + 2).await;
    assert_eq!(outside().connects, 0);
    // Once this node has read of it, it is let in.
    cluster.set_view_of("inside", 6, &members);
    cluster.connected("inside", &["inside", "outside"]).await;
    cluster.connected("outside", &["inside", "outside"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_heard_of_a_member_that_has_left() {
    let mut cluster = Cluster::with_tls();
    cluster.start("stays").await;
    cluster.start("leaves").await;
    let names = ["stays", "leaves"];
    cluster.set_view(1, &names);
    cluster.connected("leaves", &names).await;
    let leaver = cluster.node("leaves");
    let sending = Arc::new(AtomicBool::new(true));
    let (mesh, goes_on) = (leaver.mesh.clone(), Arc::clone(&sending));
    let sender = tokio::spawn(async move {
        // It goes on as if it had not left, with a view that it says is a later one.
        while goes_on.load(Ordering::Relaxed) {
            let frame = header(u64::MAX).encode(b"heard").unwrap();
            let _ = mesh.send(MemberId::of("stays"), frame);
            tokio::task::yield_now().await;
        }
    });
    let members = names.map(|name| cluster.member(name));
    cluster.set_view_of("leaves", u64::MAX, &members);
    let stays = cluster.node("stays");
    until("it is heard", || stays.frames() > 10).await;
    cluster.set_view_of("stays", 2, &[cluster.member("stays")]);
    // One frame may have been in the handler's hands.
    let heard = stays.frames();
    let failed = || leaver.mesh.stats()[0].failed_connects;
    until("it comes back in vain", || failed() > 2).await;
    assert!(
        stays.frames() <= heard + 1,
        "{} after {heard}",
        stays.frames()
    );
    sending.store(false, Ordering::Relaxed);
    sender.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_with_one_name_are_told_so() {
    let mut cluster = Cluster::with_tls();
    cluster.start("host").await;
    cluster.start("twin").await;
    cluster.set_view(1, &["host", "twin"]);
    cluster.connected("host", &["host", "twin"]).await;
    let members = [cluster.member("host"), cluster.member("twin")];
    let second = Node::start(&cluster, "twin").await;
    second.mesh.set_view(&nodes::view(1, &members));
    // The later one replaces the first one, which is told when it comes back.
    logged(
        "member host at",
        "it refuses this node: two nodes are called \"twin\"",
    )
    .await;
    logged(
        "connection from 127.0.0.1: two nodes are called \"twin\"",
        "came later",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_version_is_named() {
    let mut cluster = Cluster::without_tls();
    cluster.start("today").await;
    // A node of a later version, which answers as all versions do.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut later = cluster.member("today");
    "tomorrow".clone_into(&mut later.name);
    later.address = listener.local_addr().unwrap().to_string();
    cluster.set_view_of("today", 1, &[cluster.member("today"), later]);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut prefix = [0; 8];
    stream.read_exact(&mut prefix).await.unwrap();
    let (today, tomorrow) = (PROTOCOL, PROTOCOL + 1);
    let differs = format!("it runs protocol {tomorrow}, this node {today}");
    let head = |version, rest: &[u8]| [b"hthr", &[version][..], rest].concat();
    assert_eq!(prefix[..6], head(today, b"\x00"));
    let refusal = head(tomorrow, b"\x02\x00\x00");
    stream.write_all(&refusal).await.unwrap();
    logged("member tomorrow at", &differs).await;

    // And the other way round.
    let address = cluster.node("today").mesh.local_address();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let hello = head(tomorrow, b"\x00\x03\x00abc");
    stream.write_all(&hello).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer[..6], head(today, b"\x02"));
    let said = format!("node today runs protocol {today}, not {tomorrow}");
    assert_eq!(answer[8..], *said.as_bytes());
    logged("connection from 127.0.0.1: ", &differs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_and_silence_do_not_stop_members() {
    let mut cluster = Cluster::with_tls();
    cluster.start("calm").await;
    let address = cluster.node("calm").mesh.local_address();
    let mut strangers = Vec::new();
    for at in 0..4 * nodes::HANDSHAKES_MAX {
        let mut stranger = tokio::net::TcpStream::connect(address).await.unwrap();
        // Those that are over the limit are closed at once.
        let bytes: &[u8] = if at % 2 == 0 { b"" } else { b"\x16\x03\x01" };
        let _ = stranger.write_all(bytes).await;
        strangers.push(stranger);
    }
    cluster.start("peer").await;
    cluster.set_view(1, &["calm", "peer"]);
    cluster.connected("calm", &["calm", "peer"]).await;
    logged("too many connections are in their handshake", "").await;
    logged("connection from 127.0.0.1: ", "no answer in time").await;
}

#[tokio::test]
async fn a_mesh_that_cannot_listen_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let start = |listen: &str, security: Security| {
        let mut config = nodes::config("a", security);
        config.listen = listen.parse().unwrap();
        async {
            Mesh::start(config, nodes::handler())
                .await
                .unwrap_err()
                .to_string()
        }
    };
    let in_use = format!("port {} of 127.0.0.1 is in use", address.port());
    assert_eq!(start(&address.to_string(), Security::Off).await, in_use);
    let off = start("0.0.0.0:0", Security::Off).await;
    assert!(off.contains("not a loopback address"), "{off}");
    let cluster = Cluster::with_tls();
    let tls = Security::Tls(cluster.identity("a"));
    let ours = start("192.0.2.1:7000", tls).await;
    assert_eq!(ours, "192.0.2.1:7000 is not an address of this machine");
}
