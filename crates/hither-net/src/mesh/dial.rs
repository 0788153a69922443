//! The connection on which this node sends to one member: made, kept, and made again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::error::LinkError;
use super::hello::{Hello, introduce};
use super::outbox::{Flushed, Writer};
use super::peer::Peer;
use super::shared::{Guard, Shared};
use crate::frame::FrameHeader;
use crate::random::random;
use crate::tls::{Security, member_names};

/// A connection that lasted this long was a sound one: the next attempt follows soon.
const SOUND: Duration = Duration::from_secs(1);

/// Keeps a connection to `peer` until `stop` is notified or the mesh ends.
pub(crate) async fn keep_connected(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    address: String,
    stop: Arc<Notify>,
    mut guard: Guard,
) {
    let _turn = peer.dialling.lock().await;
    let subject = format!("member {} at {address}: ", peer.name);
    let limits = shared.config.limits;
    let mut wait = limits.redial_min;
    loop {
        let connected = tokio::select! {
            connected = timeout(limits.handshake, connect(&shared, &peer, &address)) => connected,
            () = stop.notified() => return,
            _ = guard.ended() => return,
        };
        match connected.unwrap_or(Err(LinkError::Timeout)) {
            Ok((stream, writer, other)) => {
                shared.forget_warnings(&subject);
                tracing::info!("{subject}connected");
                peer.counters.connects.fetch_add(1, Ordering::Relaxed);
                let since = Instant::now();
                // The first frame says that the queue is open. Its content does not matter.
                let first = FrameHeader::default().encode(&[]).expect("an empty body");
                peer.outbox.open(writer, first);
                peer.set_outbound(Some(other.instance), &*shared.handler);
                let end = write(&peer, &stream, &stop, &mut guard).await;
                peer.outbox.close();
                peer.set_outbound(None, &*shared.handler);
                match end {
                    Ok(()) => return,
                    Err(error) => shared.warn(&subject, &error),
                }
                if since.elapsed() >= SOUND {
                    shared.forget_warnings(&subject);
                    wait = limits.redial_min;
                }
            }
            Err(error) => {
                peer.counters
                    .failed_connects
                    .fetch_add(1, Ordering::Relaxed);
                shared.warn(&subject, &error);
            }
        }
        // From half of the wait to all of it, so that nodes do not dial in step.
        let jitter = 0.5 + 0.5 * (random() as f64 / u64::MAX as f64);
        tokio::select! {
            () = sleep(wait.mul_f64(jitter)) => wait = (wait * 2).min(limits.redial_max),
            () = peer.redial.notified() => wait = limits.redial_min,
            () = stop.notified() => return,
            _ = guard.ended() => return,
        }
    }
}

/// Connects, and says hello.
async fn connect(
    shared: &Shared,
    peer: &Peer,
    address: &str,
) -> Result<(Arc<TcpStream>, Writer, Hello), LinkError> {
    let mut last = LinkError::Connect(io::ErrorKind::AddrNotAvailable.into());
    let mut stream = None;
    for address in tokio::net::lookup_host(address)
        .await
        .map_err(LinkError::Connect)?
    {
        if matches!(shared.config.security, Security::Off) && !address.ip().is_loopback() {
            last = LinkError::NotLoopback;
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(connected) => {
                stream = Some(connected);
                break;
            }
            Err(error) => last = LinkError::Connect(error),
        }
    }
    let Some(mut stream) = stream else {
        return Err(last);
    };
    stream.set_nodelay(true)?;
    let own = shared.hello();
    let (stream, tls, other) = match &shared.config.security {
        Security::Off => {
            let other = introduce(&mut stream, &own).await?;
            (stream, None, other)
        }
        Security::Tls(identity) => {
            let name = ServerName::try_from(peer.name.clone()).map_err(|error| {
                LinkError::Handshake(format!("its name cannot stand in a certificate: {error}"))
            })?;
            let connector = TlsConnector::from(identity.client_config());
            let mut tls = connector.connect(name, stream).await?;
            let other = introduce(&mut tls, &own).await?;
            let names = tls
                .get_ref()
                .1
                .peer_certificates()
                .map(|chain| member_names(&chain[0]));
            let names = names.unwrap_or_default();
            if !names.contains(&peer.name) {
                return Err(LinkError::Certificate {
                    claimed: other.name,
                    names: names.join(", "),
                });
            }
            let (stream, tls) = tls.into_inner();
            (stream, Some(tls), other)
        }
    };
    if other.cluster != own.cluster {
        let (cluster, name) = (other.cluster, other.name);
        return Err(LinkError::Cluster(name, cluster, own.name, own.cluster));
    }
    if other.name != peer.name {
        return Err(LinkError::OtherMember(other.name));
    }
    let stream = Arc::new(stream);
    let writer = Writer::new(stream.clone(), tls);
    Ok((stream, writer, other))
}

/// Writes what senders leave to this task, until the connection ends. Ok if this node ended it.
async fn write(
    peer: &Peer,
    stream: &TcpStream,
    stop: &Notify,
    guard: &mut Guard,
) -> Result<(), LinkError> {
    let mut drain_until: Option<Instant> = None;
    loop {
        let interest = match peer.outbox.flush()? {
            Flushed::All if drain_until.is_some() => {
                peer.outbox.finish();
                return Ok(());
            }
            Flushed::All => Interest::READABLE,
            Flushed::Blocked => Interest::READABLE | Interest::WRITABLE,
            Flushed::More => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        let drained_by = drain_until.unwrap_or_else(Instant::now);
        tokio::select! {
            () = peer.outbox.woken() => {}
            ready = stream.ready(interest) => {
                if ready?.is_readable() {
                    read(peer, stream)?;
                }
            }
            () = stop.notified() => {
                peer.outbox.finish();
                return Ok(());
            }
            // It may be about the time before this connection.
            () = peer.redial.notified() => if peer.leads_elsewhere() {
                return Err(LinkError::Restarted);
            },
            until = guard.ended(), if drain_until.is_none() => {
                peer.outbox.stop_taking();
                drain_until = Some(until);
            }
            () = sleep_until(drained_by), if drain_until.is_some() => return Ok(()),
        }
    }
}

/// Reads what the other side sends on a connection that it only reads: the end, or TLS's own
/// messages.
fn read(peer: &Peer, stream: &TcpStream) -> Result<(), LinkError> {
    let mut bytes = [0; 1024];
    loop {
        match stream.try_read(&mut bytes) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(count) => {
                if peer.outbox.receive(&bytes[..count])? {
                    return Err(LinkError::Closed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
