//! As much of an HTTP server as a scrape needs.
//!
//! One thread, one connection at a time, one answer a connection, each within a second, and at most
//! 200 a second: whatever a client does, the program and the agent lose no more than that thread's
//! time, which is bounded. It reads what the agent has posted for any onlooker, so the agent
//! neither waits for it nor knows of it. A server with a thread or a task for each connection would
//! have no such bounds of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hither_live::status;

use super::exposition;

/// What a client may take for its request and for our answer together.
const PATIENCE: Duration = Duration::from_secs(1);

/// The least time from one answer to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// The longest request that is read.
const REQUEST_MAX: usize = 8 << 10;

/// The most header lines that one may have.
const HEADERS_MAX: usize = 64;

const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the metrics of this process's run for as long as the process lives. Returns where.
pub(crate) fn serve(at: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(at)?;
    let at = listener.local_addr()?;
    let metrics = || exposition(status::run_of(std::process::id()).as_ref());
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            loop {
                // A client that is gone again, or no descriptor for one that came: the next may
                // fare better.
                if let Ok((client, _)) = listener.accept() {
                    let _ = attend(&client, &metrics);
                }
                thread::sleep(PAUSE);
            }
        })?;
    Ok(at)
}

/// Reads one request and answers it.
fn attend(client: &TcpStream, metrics: &impl Fn() -> String) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let answer = match request(client, until) {
        Ok(request) => answer(&request, metrics),
        Err(error) if error.kind() == ErrorKind::TimedOut => said(408, "Request Timeout"),
        Err(error) => return Err(error),
    };
    // Whoever was too late is told so, if it can be said at once.
    let until = until.max(Instant::now() + PAUSE);
    let mut left = answer.as_bytes();
    while !left.is_empty() {
        client.set_write_timeout(Some(remaining(until)?))?;
        match (&*client).write(left)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => left = &left[written..],
        }
    }
    Ok(())
}

/// The time that is left, more than none.
fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// What a client sends, up to the end of its head or as much as is read of any.
fn request(mut client: &TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut request, mut few) = (Vec::new(), [0; 1024]);
    while request.len() < REQUEST_MAX && is_partial(&request) {
        client.set_read_timeout(Some(remaining(until)?))?;
        match client.read(&mut few) {
            Ok(0) => break,
            Ok(length) => request.extend_from_slice(&few[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

fn is_partial(request: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let parsed = httparse::Request::new(&mut headers).parse(request);
    parsed.is_ok_and(|status| status.is_partial())
}

fn answer(request: &[u8], metrics: &impl Fn() -> String) -> String {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(status) if status.is_complete() => {}
        _ => return said(400, "Bad Request"),
    }
    let path = parsed.path.unwrap_or_default();
    match (parsed.method, path.split('?').next()) {
        (Some("GET"), Some("/metrics")) => whole(200, "OK", &metrics(), true),
        (Some("HEAD"), Some("/metrics")) => whole(200, "OK", &metrics(), false),
        (Some("GET" | "HEAD"), _) => said(404, "Not Found"),
        _ => said(405, "Method Not Allowed"),
    }
}

/// An answer that says no more than what it is.
fn said(code: u16, reason: &str) -> String {
    whole(code, reason, &format!("{reason}\n"), true)
}

fn whole(code: u16, reason: &str, body: &str, with_body: bool) -> String {
    let allow = if code == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {TYPE}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client that sends these bytes, and no more of them, gets.
    fn told(sent: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        client.write_all(sent).expect("sent");
        client.shutdown(std::net::Shutdown::Write).expect("shut");
        let (served, _) = listener.accept().expect("accepted");
        attend(&served, &|| "hither_files 1\n".to_owned()).expect("answered");
        drop(served);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("read");
        answer
    }

    #[test]
    fn each_request_has_its_answer() {
        let get = told(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n"), "{get}");
        assert!(
            get.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            "{get}"
        );
        assert!(
            get.ends_with("Content-Length: 15\r\nConnection: close\r\n\r\nhither_files 1\n"),
            "{get}"
        );
        let head = told(b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(
            head.ends_with("Content-Length: 15\r\nConnection: close\r\n\r\n"),
            "{head}"
        );
        let cases: [(&[u8], &str); 6] = [
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1\r\n", "400"),
            (b"\x16\x03\x01\x02\x00\x01", "400"),
            (b"", "400"),
        ];
        for (sent, code) in cases {
            let answer = told(sent);
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
        let answer = told(
            &[
                b"GET /metrics HTTP/1.1\r\nA: ",
                &[b'a'; REQUEST_MAX][..1 << 12],
            ]
            .concat(),
        );
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }

    /// One that says nothing, for which nobody waits longer than that; what comes after it is
    /// served.
    #[test]
    fn a_client_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (served, _) = listener.accept().expect("accepted");
        attend(&served, &String::new).expect("answered");
        drop(served);
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("read");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}
