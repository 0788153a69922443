//! What the mesh costs beside a bare TCP connection: round trips and streams over loopback.
//!
//! All three (bare tokio TCP, the mesh without TLS, the mesh with it) run in turn, round by round,
//! so that whatever else the machine does meets them alike; the ratios are of the medians of the
//! rounds. Each node has a thread of its own, as two processes would. `cargo test --benches` runs
//! one tiny round, so that this cannot rot.
#![allow(missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use hither_net::frame::{Frame, FrameHeader};
use hither_net::mesh::{Handler, Limits, Mesh, MeshConfig, SendError};
use hither_net::tls::{Authority, Identity, Security};
use hither_net::view::{Member, MemberId, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    rounds: usize,
    round_trips: usize,
    streamed_frames: usize,
}

const MEASURED: Extent = Extent {
    rounds: 15,
    round_trips: 5_000,
    streamed_frames: 1_000,
};
const TINY: Extent = Extent {
    rounds: 1,
    round_trips: 20,
    streamed_frames: 4,
};
const STREAMED_BYTES: usize = 1 << 20;

/// A round: how long `frames` frames of `bytes` bytes take, there and back or only there.
trait Subject {
    fn name(&self) -> &'static str;
    /// Seconds for round trips: a request of `request` bytes, an answer of `answer` bytes.
    fn round_trips(&self, count: usize, request: usize, answer: usize) -> f64;
    /// Seconds for frames of 1 MiB in one direction.
    fn stream(&self, count: usize) -> f64;
}

/// Runs a future on a thread with a runtime of its own, for as long as it takes.
fn on_a_thread<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(future)
    })
}

/// One TCP connection, both ways.
struct Bare;

impl Bare {
    fn connect<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        server: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> BareServer {
        let (send, address) = channel();
        let task = on_a_thread(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            server(stream).await;
        });
        BareServer {
            address: address.recv().unwrap(),
            task,
        }
    }
}

struct BareServer {
    address: std::net::SocketAddr,
    task: std::thread::JoinHandle<()>,
}

impl Subject for Bare {
    fn name(&self) -> &'static str {
        "bare TCP"
    }

    fn round_trips(&self, count: usize, request: usize, answer: usize) -> f64 {
        let server = Bare::connect(move |mut stream| async move {
            let (mut incoming, outgoing) = (vec![0; request], vec![1; answer]);
            while stream.read_exact(&mut incoming).await.is_ok() {
                stream.write_all(&outgoing).await.unwrap();
            }
        });
        let address = server.address;
        let seconds = on_a_thread(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut incoming, outgoing) = (vec![0; answer], vec![1; request]);
            let mut begun = Instant::now();
            for at in 0..=count {
                if at == 1 {
                    begun = Instant::now();
                }
                stream.write_all(&outgoing).await.unwrap();
                stream.read_exact(&mut incoming).await.unwrap();
            }
            begun.elapsed().as_secs_f64()
        });
        let seconds = seconds.join().unwrap();
        server.task.join().unwrap();
        seconds
    }

    fn stream(&self, count: usize) -> f64 {
        let server = Bare::connect(move |mut stream| async move {
            let mut buffer = BytesMut::with_capacity(STREAMED_BYTES);
            let mut left = count * STREAMED_BYTES;
            while left > 0 {
                buffer.clear();
                left -= stream.read_buf(&mut buffer).await.unwrap();
            }
            stream.write_all(&[1]).await.unwrap();
        });
        let address = server.address;
        let seconds = on_a_thread(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let payload = vec![7; STREAMED_BYTES];
            let begun = Instant::now();
            for _ in 0..count {
                stream.write_all(&payload).await.unwrap();
            }
            stream.read_exact(&mut [0]).await.unwrap();
            begun.elapsed().as_secs_f64()
        });
        let seconds = seconds.join().unwrap();
        server.task.join().unwrap();
        seconds
    }
}

const REQUEST: u8 = 0;
const ANSWER: u8 = 1;
const STREAMED: u8 = 2;

/// Answers requests, and sends the next one when an answer has come.
struct Player {
    mesh: OnceLock<Mesh>,
    other: MemberId,
    /// Round trips, or frames of a stream, that are still to come.
    left: AtomicUsize,
    request: OnceLockBytes,
    answer: OnceLockBytes,
    done: Sender<()>,
}

type OnceLockBytes = parking_lot::Mutex<Bytes>;

impl Player {
    fn send(&self, kind: u8, payload: Bytes) -> Result<(), SendError> {
        let header = FrameHeader {
            kind,
            ..FrameHeader::default()
        };
        let frame = header.encode_parts(&[], payload).unwrap();
        self.mesh.get().unwrap().send(self.other, frame)
    }

    fn one_less(&self) -> bool {
        let last = self.left.fetch_sub(1, Ordering::Relaxed) == 1;
        if last {
            self.done.send(()).unwrap();
        }
        !last
    }
}

impl Handler for Player {
    fn on_frame(&self, _: MemberId, frame: Frame) {
        match frame.header.kind {
            REQUEST => self.send(ANSWER, self.answer.lock().clone()).unwrap(),
            ANSWER => {
                if self.one_less() {
                    self.send(REQUEST, self.request.lock().clone()).unwrap();
                }
            }
            _ => {
                self.one_less();
            }
        }
    }

    fn on_connected(&self, _: MemberId) {
        self.done.send(()).unwrap();
    }

    fn on_disconnected(&self, _: MemberId) {}
}

/// Two nodes of a mesh.
struct Pair {
    name: &'static str,
    players: [Arc<Player>; 2],
    done: [Receiver<()>; 2],
}

impl Pair {
    fn start(name: &'static str, security: [Security; 2]) -> Pair {
        let names = ["a", "b"];
        let mut players = Vec::new();
        let mut done = Vec::new();
        for (at, security) in security.into_iter().enumerate() {
            let (send, receive) = channel();
            done.push(receive);
            let player = Arc::new(Player {
                mesh: OnceLock::new(),
                other: MemberId::of(names[1 - at]),
                left: AtomicUsize::new(0),
                request: OnceLockBytes::default(),
                answer: OnceLockBytes::default(),
                done: send,
            });
            let config = MeshConfig {
                me: names[at].to_owned(),
                cluster: "bench".to_owned(),
                listen: "127.0.0.1:0".parse().unwrap(),
                security,
                limits: Limits::default(),
            };
            let handler = player.clone();
            let (started, mesh) = channel();
            on_a_thread(async move {
                started
                    .send(Mesh::start(config, handler).await.unwrap())
                    .unwrap();
                std::future::pending::<()>().await;
            });
            player.mesh.set(mesh.recv().unwrap()).unwrap();
            players.push(player);
        }
        let member = |at: usize| Member {
            name: names[at].to_owned(),
            address: players[at].mesh.get().unwrap().local_address().to_string(),
        };
        let view = View::new(1, vec![member(0), member(1)]).unwrap();
        for player in &players {
            player.mesh.get().unwrap().set_view(&view);
        }
        for done in &done {
            done.recv_timeout(Duration::from_secs(60))
                .expect("connected");
        }
        Pair {
            name,
            players: players.try_into().unwrap_or_else(|_| unreachable!()),
            done: done.try_into().unwrap_or_else(|_| unreachable!()),
        }
    }
}

impl Subject for Pair {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round_trips(&self, count: usize, request: usize, answer: usize) -> f64 {
        let [a, b] = &self.players;
        *a.request.lock() = Bytes::from(vec![1; request]);
        *b.answer.lock() = Bytes::from(vec![1; answer]);
        a.left.store(count, Ordering::Relaxed);
        let begun = Instant::now();
        a.send(REQUEST, a.request.lock().clone()).unwrap();
        self.done[0].recv().unwrap();
        begun.elapsed().as_secs_f64()
    }

    fn stream(&self, count: usize) -> f64 {
        let [a, b] = &self.players;
        let payload = Bytes::from(vec![7; STREAMED_BYTES]);
        b.left.store(count, Ordering::Relaxed);
        let begun = Instant::now();
        for _ in 0..count {
            while a.send(STREAMED, payload.clone()) == Err(SendError::Full) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.done[1].recv().unwrap();
        begun.elapsed().as_secs_f64()
    }
}

fn identity(authority: &Authority, name: &str) -> Security {
    let folder = tempfile::tempdir().unwrap();
    let files = authority
        .issue(name, folder.path(), Authority::NODE_VALIDITY)
        .unwrap();
    Security::Tls(Identity::load(&files).unwrap())
}

/// Processor time that this process has used, in seconds: what a noisy machine distorts least.
fn cpu_s() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / TICKS_A_SECOND
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What is measured, and how many operations a round has.
#[derive(Clone, Copy)]
enum Work {
    RoundTrips(usize, usize),
    Stream,
}

/// Measures all subjects in turn and prints the medians of the rounds, and the processor time of
/// all rounds. The ratios are to the first subject.
fn compare(what: &str, work: Work, subjects: &[&dyn Subject], extent: Extent) {
    let mut seconds = vec![Vec::new(); subjects.len()];
    let mut cpu_seconds = vec![0.0; subjects.len()];
    let count = match work {
        Work::RoundTrips(..) => extent.round_trips,
        Work::Stream => extent.streamed_frames,
    };
    for _ in 0..extent.rounds {
        for (at, subject) in subjects.iter().enumerate() {
            let cpu_before_s = cpu_s();
            seconds[at].push(match work {
                Work::RoundTrips(request, answer) => subject.round_trips(count, request, answer),
                Work::Stream => subject.stream(count),
            });
            cpu_seconds[at] += cpu_s() - cpu_before_s;
        }
    }
    let medians: Vec<f64> = seconds.into_iter().map(median).collect();
    for (at, subject) in subjects.iter().enumerate() {
        let each_us = medians[at] * 1e6 / count as f64;
        let cpu_us = cpu_seconds[at] * 1e6 / (count * extent.rounds) as f64;
        let (ratio, cpu_ratio) = (medians[at] / medians[0], cpu_seconds[at] / cpu_seconds[0]);
        let rate = match work {
            Work::RoundTrips(..) => String::new(),
            Work::Stream => format!("{:.2} GB/s", STREAMED_BYTES as f64 / 1e3 / each_us),
        };
        println!(
            "{what:<33} {:<11} {each_us:8.2} us {ratio:5.2}   CPU {cpu_us:8.2} us {cpu_ratio:5.2} \
             {rate}",
            subject.name()
        );
    }
}

fn main() {
    let extent = if std::env::args().any(|argument| argument == "--bench") {
        MEASURED
    } else {
        TINY
    };
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::create(folder.path(), "bench").unwrap();
    let plain = Pair::start("mesh", [Security::Off, Security::Off]);
    let tls = Pair::start(
        "mesh, mTLS",
        ["a", "b"].map(|name| identity(&authority, name)),
    );
    let subjects: [&dyn Subject; 3] = [&Bare, &plain, &tls];
    for (what, request, answer) in [
        ("round trip, 64 bytes and 4 KiB", 64, 4096),
        ("round trip, 4 KiB and 4 KiB", 4096, 4096),
        ("round trip, 64 bytes and 128 KiB", 64, 128 << 10),
    ] {
        compare(what, Work::RoundTrips(request, answer), &subjects, extent);
    }
    compare("1 MiB frames, one way", Work::Stream, &subjects, extent);
}
