//! The HTTP end point of `hither run --metrics`: hyper on blocking sockets, with bounds.
//!
//! One thread serves one connection at a time and gives one answer a connection, each within a
//! second, at most 200 a second. So no client can cost the program or the agent more than the
//! bounded time of this thread. The thread reads the status that the agent posts for every
//! observer, so the agent neither waits for it nor knows of it. hyper parses requests and writes
//! answers; a hyper server on an async runtime would have a task for each connection and none of
//! these bounds, so the one connection is polled here, over a socket with a deadline.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{self, Future};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};

/// The longest that a connection may take, from its acceptance to the end of the answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(1);

/// The pause between two connections, which limits them to 200 a second.
const CONNECTION_PAUSE: Duration = Duration::from_millis(5);

/// The longest head of a request that is read.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The most header lines of a request.
const HEADERS_MAX: usize = 64;

pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the text of `metrics` for as long as the process lives. Returns the address.
pub(super) fn serve(
    at: SocketAddr,
    metrics: impl Fn() -> String + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(at)?;
    let at = listener.local_addr()?;
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            loop {
                // The client may be gone or descriptors may be short. The next connection may work.
                if let Ok((client, _)) = listener.accept() {
                    let _ = serve_one(&client, &metrics);
                }
                thread::sleep(CONNECTION_PAUSE);
            }
        })?;
    Ok(at)
}

/// Reads one request and answers it.
fn serve_one(stream: &TcpStream, metrics: &impl Fn() -> String) -> io::Result<()> {
    let client = Client {
        stream,
        until: Instant::now() + CONNECTION_TIME_MAX,
        is_answered: Cell::new(false),
        is_late: Cell::new(false),
    };
    let service = service_fn(|request: hyper::Request<_>| {
        let answer = answer(request.method(), request.uri().path(), metrics);
        future::ready(Ok::<_, Infallible>(answer))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // Otherwise hyper waits for the client to close while it answers.
        .half_close(true)
        .max_buf_size(REQUEST_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(&client, service);
    complete(connection, client.until);
    if client.is_answered.get() {
        return Ok(());
    }
    // hyper sends no answer to a client whose request is incomplete.
    let refusal = if client.is_late.get() {
        "408 Request Timeout"
    } else {
        "400 Bad Request"
    };
    let refusal = format!("HTTP/1.1 {refusal}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.stream.set_write_timeout(Some(CONNECTION_PAUSE))?;
    (&*client.stream).write_all(refusal.as_bytes())
}

/// Polls the connection until it is done, or its deadline has passed. Its socket blocks, so it
/// pends only to let others run.
fn complete(connection: impl Future, until: Instant) {
    let mut connection = pin!(connection);
    let mut context = Context::from_waker(Waker::noop());
    while connection.as_mut().poll(&mut context).is_pending() && remaining(until).is_ok() {}
}

/// The time until `until`, more than zero.
fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn answer(method: &Method, path: &str, metrics: &impl Fn() -> String) -> Response<String> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let (status, body) = match (is_read, path) {
        (true, "/metrics") => (StatusCode::OK, metrics()),
        (true, _) => (StatusCode::NOT_FOUND, "Not Found\n".to_owned()),
        (false, _) => (
            StatusCode::METHOD_NOT_ALLOWED,
            "Method Not Allowed\n".to_owned(),
        ),
    };
    let mut answer = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, TEXT_FORMAT);
    if !is_read {
        answer = answer.header(ALLOW, "GET, HEAD");
    }
    answer.body(body).expect("the head is constant")
}

/// A blocking socket with a deadline, as hyper's input and output: every call is done when it
/// returns, or has failed at the deadline.
struct Client<'a> {
    stream: &'a TcpStream,
    until: Instant,
    /// Whether an answer was written.
    is_answered: Cell<bool>,
    /// Whether its request was not complete at the deadline.
    is_late: Cell<bool>,
}

impl Client<'_> {
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        stream.set_read_timeout(Some(remaining(self.until)?))?;
        stream.read(bytes)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        stream.set_write_timeout(Some(remaining(self.until)?))?;
        self.is_answered.set(true);
        stream.write(bytes)
    }
}

impl Read for &Client<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 1024];
        let length = bytes.len().min(into.remaining());
        let read = Client::read(&self, &mut bytes[..length]);
        // A socket returns `WouldBlock` when its timeout has passed.
        if let Err(error) = &read
            && matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
        {
            self.is_late.set(true);
        }
        Poll::Ready(read.map(|length| into.put_slice(&bytes[..length])))
    }
}

impl Write for &Client<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Client::write(&self, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The socket is closed when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    /// The answer to a client that sends these bytes and then no more.
    fn answer_to(sent: &[u8]) -> String {
        let (mut client, served) = connected();
        client.write_all(sent).expect("sent");
        client.shutdown(Shutdown::Write).expect("shut");
        serve_one(&served, &|| "hither_files 1\n".to_owned()).expect("answered");
        drop(served);
        read_all(client)
    }

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound"));
        let (served, _) = listener.accept().expect("accepted");
        (client.expect("connected"), served)
    }

    fn read_all(mut client: TcpStream) -> String {
        let mut answer = Vec::new();
        // What the server has not read of a long request resets the connection after the answer.
        let _ = client.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text").to_lowercase()
    }

    #[test]
    fn each_request_has_its_answer() {
        let get = answer_to(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(get.starts_with("http/1.1 200 ok\r\n"), "{get}");
        for header in [
            "content-type: text/plain; version=0.0.4; charset=utf-8",
            "content-length: 15",
            "connection: close",
        ] {
            assert!(get.contains(&format!("\r\n{header}\r\n")), "{get}");
        }
        assert!(get.ends_with("\r\n\r\nhither_files 1\n"), "{get}");
        let head = answer_to(b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("\r\ncontent-length: 15\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        let post = answer_to(b"POST /metrics HTTP/1.1\r\n\r\n");
        assert!(post.contains("\r\nallow: get, head\r\n"), "{post}");
        let cases: [(&[u8], &str); 6] = [
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1\r\n", "400"),
            (b"\x16\x03\x01\x02\x00\x01", "400"),
            (b"", "400"),
        ];
        for (sent, code) in cases {
            let answer = answer_to(sent);
            assert_eq!(
                answer.split(' ').nth(1),
                Some(code),
                "{}: {answer}",
                sent.escape_ascii()
            );
        }
    }

    #[test]
    fn a_request_without_end_is_given_up() {
        let begin = b"GET /metrics HTTP/1.1\r\nA: ";
        let cut = answer_to(&[begin, &[b'a'; REQUEST_BYTES_MAX / 2][..]].concat());
        assert!(cut.starts_with("http/1.1 400 "), "{cut}");
        let long = answer_to(&[begin, &[b'a'; REQUEST_BYTES_MAX][..]].concat());
        assert!(long.starts_with("http/1.1 431 "), "{long}");
        let headers = b"A: b\r\n".repeat(HEADERS_MAX);
        let many = answer_to(&[begin, &b"\r\n"[..], &headers, b"\r\n"].concat());
        assert!(many.starts_with("http/1.1 431 "), "{many}");
    }

    #[test]
    fn a_client_that_sends_nothing_is_given_up() {
        let (client, served) = connected();
        let begun = Instant::now();
        serve_one(&served, &String::new).expect("answered");
        assert!(begun.elapsed() < 2 * CONNECTION_TIME_MAX);
        drop(served);
        let answer = read_all(client);
        assert!(answer.starts_with("http/1.1 408 "), "{answer}");
    }

    /// Each byte comes in time, all of them do not.
    #[test]
    fn a_client_that_sends_byte_by_byte_is_given_up() {
        let (client, served) = connected();
        let mut slow = client.try_clone().expect("cloned");
        let sender = thread::spawn(move || {
            while slow.write_all(b"G").is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        });
        let begun = Instant::now();
        serve_one(&served, &String::new).expect("answered");
        assert!(begun.elapsed() < 2 * CONNECTION_TIME_MAX);
        drop(served);
        sender.join().expect("it ended");
        drop(client);
    }

    #[test]
    fn a_client_that_does_not_read_is_given_up() {
        let (mut client, served) = connected();
        client
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("sent");
        let begun = Instant::now();
        let metrics = || "a".repeat(64 << 20);
        let _ = serve_one(&served, &metrics);
        assert!(begun.elapsed() < 3 * CONNECTION_TIME_MAX);
    }
}
