//! Connections that others make: the listener, handshakes, and who is let in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::error::LinkError;
use super::hello::{Hello, expect_hello, refuse, welcome};
use super::peer::{Inbound, Peer};
use super::read::FrameReader;
use super::shared::{Guard, Shared};
use crate::frame::PROTOCOL;
use crate::tls::{Security, describe_handshake_error, member_names};

/// The wait after the system has refused to accept a connection, as when descriptors run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long a refused node may take to read why.
const REFUSAL: Duration = Duration::from_secs(1);

/// Accepts connections until the mesh ends.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener, mut guard: Guard) {
    let handshakes = Arc::new(Semaphore::new(shared.config.limits.handshakes_max));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = guard.ended() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                shared.warn_once(format!("cannot accept a connection: {error}"));
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(permit) = handshakes.clone().try_acquire_owned() else {
            shared.warn_once("too many connections are in their handshake".to_owned());
            continue;
        };
        let (shared, mut guard) = (shared.clone(), guard.clone());
        tokio::spawn(async move {
            let subject = format!("connection from {}: ", address.ip());
            let limit = shared.config.limits.handshake;
            let accepted = tokio::select! {
                accepted = timeout(limit, handshake(&shared, stream, address)) => accepted,
                _ = guard.ended() => return,
            };
            drop(permit);
            match accepted.unwrap_or(Err(LinkError::Timeout)) {
                Ok(connection) => serve(&shared, connection, guard).await,
                Err(error) => shared.warn(&subject, &error),
            }
        });
    }
}

/// A connection of a member that was let in.
struct Connection {
    peer: Arc<Peer>,
    inbound: Inbound,
    reader: FrameReader,
}

/// Reads the connection until it ends.
async fn serve(shared: &Shared, connection: Connection, mut guard: Guard) {
    let Connection {
        peer,
        inbound,
        mut reader,
    } = connection;
    let subject = format!("member {} from {}: ", peer.name, inbound.address.ip());
    let end = tokio::select! {
        end = reader.run(&peer, &inbound, &*shared.handler) => end,
        () = inbound.close.notified() => Ok(()),
        _ = guard.ended() => Ok(()),
    };
    peer.clear_inbound(&inbound.close, &*shared.handler);
    shared.forget_unused(&peer);
    match end {
        Ok(()) => tracing::debug!("{subject}closed"),
        Err(LinkError::Closed) => tracing::info!("{subject}it closed the connection"),
        Err(error) => shared.warn(&subject, &error),
    }
}

async fn handshake(
    shared: &Shared,
    mut stream: TcpStream,
    address: SocketAddr,
) -> Result<Connection, LinkError> {
    stream.set_nodelay(true)?;
    match &shared.config.security {
        Security::Off => {
            if !address.ip().is_loopback() {
                return Err(LinkError::NotLoopback);
            }
            let (peer, inbound) = admit(shared, &mut stream, address, None).await?;
            connection(peer, inbound, stream, None)
        }
        Security::Tls(identity) => {
            let acceptor = TlsAcceptor::from(identity.server_config());
            let mut tls = match acceptor.accept(stream).into_fallible().await {
                Ok(tls) => tls,
                Err((error, mut stream)) => {
                    linger(&mut stream).await;
                    return Err(LinkError::Handshake(describe_handshake_error(&error)));
                }
            };
            let names = tls
                .get_ref()
                .1
                .peer_certificates()
                .map(|chain| member_names(&chain[0]));
            let names = Some(names.unwrap_or_default());
            let (peer, inbound) = admit(shared, &mut tls, address, names).await?;
            let (stream, tls) = tls.into_inner();
            connection(peer, inbound, stream, Some(tls))
        }
    }
}

fn connection(
    peer: Arc<Peer>,
    inbound: Inbound,
    stream: TcpStream,
    tls: Option<ServerConnection>,
) -> Result<Connection, LinkError> {
    Ok(Connection {
        peer,
        inbound,
        reader: FrameReader::new(stream, tls),
    })
}

/// Waits until the other side has read why it was refused: closing a socket with unread bytes in it
/// would take the answer back.
async fn linger(stream: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = [0; 1024];
    let rest = async { while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(REFUSAL, rest).await;
}

/// Lets a member in by its hello, and tells it, or refuses it with a reason. `names` are those of
/// its certificate, if there is TLS.
async fn admit(
    shared: &Shared,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: SocketAddr,
    names: Option<Vec<String>>,
) -> Result<(Arc<Peer>, Inbound), LinkError> {
    let own = shared.hello();
    let admitted = match expect_hello(stream).await {
        Ok(hello) => check(shared, &own, &hello, names).and_then(|()| {
            let peer = shared.peer(&hello.name);
            let inbound = Inbound {
                instance: hello.instance,
                address,
                close: Arc::new(Notify::new()),
            };
            peer.set_inbound(inbound.clone(), &*shared.handler)?;
            if !shared.keep(&peer) {
                peer.clear_inbound(&inbound.close, &*shared.handler);
                return Err(LinkError::Closed);
            }
            Ok((peer, inbound))
        }),
        Err(error) => Err(error),
    };
    match admitted {
        Ok((peer, inbound)) => {
            let welcomed = welcome(stream, &own).await;
            if welcomed.is_err() {
                peer.clear_inbound(&inbound.close, &*shared.handler);
            }
            welcomed.map(|()| (peer, inbound))
        }
        Err(error) => {
            let text = match &error {
                LinkError::Protocol(theirs) => {
                    format!("node {} runs protocol {PROTOCOL}, not {theirs}", own.name)
                }
                other => other.to_string(),
            };
            if refuse(stream, &text).await.is_ok() {
                linger(stream).await;
            }
            Err(error)
        }
    }
}

/// Checks that the node that said `hello` belongs here.
fn check(
    shared: &Shared,
    own: &Hello,
    hello: &Hello,
    names: Option<Vec<String>>,
) -> Result<(), LinkError> {
    let name = || hello.name.clone();
    if let Some(names) = names.filter(|names| !names.contains(&hello.name)) {
        return Err(LinkError::Certificate {
            claimed: name(),
            names: if names.is_empty() {
                "no member".to_owned()
            } else {
                names.join(", ")
            },
        });
    }
    if hello.cluster != own.cluster {
        let (cluster, own_cluster) = (hello.cluster.clone(), own.cluster.clone());
        return Err(LinkError::Cluster(
            name(),
            cluster,
            own.name.clone(),
            own_cluster,
        ));
    }
    if hello.name == own.name {
        return Err(LinkError::OwnName(name()));
    }
    // Only this node's own view says who is a member, whatever view the other one claims to have.
    // A newcomer of which this node has not heard yet is dialled as soon as it has, and comes back
    // then at once.
    if !shared.peer_in_view(&hello.name) {
        return Err(LinkError::NotMember(name(), own.name.clone(), own.epoch));
    }
    Ok(())
}
