//! Metrics in Prometheus' text format (0.0.4): those of a node and those of a [`run`].

pub(crate) mod node;
pub mod run;

use std::future;
use std::io;
use std::net::SocketAddr;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use prometheus::{TextEncoder, proto};
use tokio::net::TcpListener;

use crate::http::{self, Answer, Clients};

/// The prefix of each name.
const PREFIX: &str = "hither_";

/// Prometheus' type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// The value only grows.
    Counter,
    /// The value may also fall.
    Gauge,
}

use MetricKind::{Counter, Gauge};

/// A figure and its name.
pub(crate) struct Metric {
    /// The name without the prefix. That of a counter ends with `_total`, as is usual in
    /// Prometheus.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) help: &'static str,
}

pub(crate) const fn metric(name: &'static str, kind: MetricKind, help: &'static str) -> Metric {
    Metric { name, kind, help }
}

/// The content type of the text format.
pub(crate) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves what `text` says at `/metrics` of `at`, for as long as the runtime lives. Returns the
/// address.
pub(crate) async fn serve(
    at: SocketAddr,
    text: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(at).await?;
    let at = listener.local_addr()?;
    tokio::spawn(http::serve(
        async move || Ok(listener.accept().await?.0),
        Clients::Anyone,
        move |request| {
            let answer = answer(request.method(), request.uri().path(), &text);
            future::ready(answer)
        },
    ));
    Ok(at)
}

fn answer(method: &Method, path: &str, text: &impl Fn() -> String) -> Answer {
    if path != "/metrics" {
        return http::refusal(StatusCode::NOT_FOUND);
    }
    // hyper sends the head alone of an answer to HEAD.
    if matches!(*method, Method::GET | Method::HEAD) {
        return http::full(TEXT_FORMAT, text());
    }
    let mut refusal = http::refusal(StatusCode::METHOD_NOT_ALLOWED);
    let allowed = HeaderValue::from_static("GET, HEAD");
    refusal.headers_mut().insert(ALLOW, allowed);
    refusal
}

/// Families in the text format.
pub(crate) fn encode(families: &[proto::MetricFamily]) -> String {
    // It fails on a family without a name or a sample.
    let text = TextEncoder::new().encode_to_string(families);
    text.expect("each family has a name and samples")
}

impl Metric {
    /// A sample of this value.
    pub(crate) fn sample(&self, labels: &[(&str, &str)], value: f64) -> proto::Metric {
        let pair = |&(name, value): &(&str, &str)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name(name.to_owned());
            pair.set_value(value.to_owned());
            pair
        };
        let mut sample = proto::Metric::from_label(labels.iter().map(pair).collect());
        match self.kind {
            Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                sample.set_counter(counter);
            }
            Gauge => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                sample.set_gauge(gauge);
            }
        }
        sample
    }

    /// The metric and its samples.
    pub(crate) fn family(&self, samples: Vec<proto::Metric>) -> proto::MetricFamily {
        let mut family = proto::MetricFamily::default();
        family.set_name(format!("{PREFIX}{}", self.name));
        family.set_help(self.help.to_owned());
        family.set_field_type(match self.kind {
            Counter => proto::MetricType::COUNTER,
            Gauge => proto::MetricType::GAUGE,
        });
        family.set_metric(samples);
        family
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::{Instant, sleep};

    use super::*;

    async fn connected(text: impl Fn() -> String + Clone + Send + Sync + 'static) -> TcpStream {
        let at = "127.0.0.1:0".parse().expect("an address");
        let at = serve(at, text).await.expect("served");
        TcpStream::connect(at).await.expect("connected")
    }

    async fn read_all(mut client: TcpStream) -> String {
        let mut answer = Vec::new();
        // What the server has not read of a long request resets the connection after the answer.
        let _ = client.read_to_end(&mut answer).await;
        String::from_utf8(answer).expect("text").to_lowercase()
    }

    /// The answer to a client that sends these bytes and then no more.
    async fn answer_to(sent: &[u8]) -> String {
        let mut client = connected(|| "hither_files 1\n".to_owned()).await;
        client.write_all(sent).await.expect("sent");
        client.shutdown().await.expect("shut");
        read_all(client).await
    }

    #[tokio::test]
    async fn each_request_has_its_answer() {
        let get = answer_to(b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(get.starts_with("http/1.1 200 ok\r\n"), "{get}");
        for header in [
            "content-type: text/plain; version=0.0.4; charset=utf-8",
            "content-length: 15",
            "connection: close",
        ] {
            assert!(get.contains(&format!("\r\n{header}\r\n")), "{get}");
        }
        assert!(get.ends_with("\r\n\r\nhither_files 1\n"), "{get}");
        let head = answer_to(b"HEAD /metrics HTTP/1.0\r\n\r\n").await;
        assert!(head.contains("\r\ncontent-length: 15\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        let post = answer_to(b"POST /metrics HTTP/1.1\r\n\r\n").await;
        assert!(post.contains("\r\nallow: get, head\r\n"), "{post}");
        let cases: [(&[u8], Option<&str>); 7] = [
            (b"GET / HTTP/1.1\r\n\r\n", Some("404")),
            (b"GET /status HTTP/1.1\r\n\r\n", Some("404")),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Some("405")),
            (b"GET /metrics\r\n\r\n", Some("400")),
            (b"\x16\x03\x01\x02\x00\x01", Some("400")),
            // Who ends before the request does is not waiting for an answer.
            (b"GET /metrics HTTP/1.1\r\n", None),
            (b"", None),
        ];
        for (sent, code) in cases {
            let answer = answer_to(sent).await;
            assert_eq!(
                answer.split(' ').nth(1),
                code,
                "{}: {answer}",
                sent.escape_ascii()
            );
        }
    }

    #[tokio::test]
    async fn a_request_without_end_is_given_up() {
        let begin = b"GET /metrics HTTP/1.1\r\nA: ";
        let long = answer_to(&[begin, &[b'a'; 8 << 10][..]].concat()).await;
        assert!(long.starts_with("http/1.1 431 "), "{long}");
        let headers = b"A: b\r\n".repeat(64);
        let many = answer_to(&[begin, &b"\r\n"[..], &headers, b"\r\n"].concat()).await;
        assert!(many.starts_with("http/1.1 431 "), "{many}");
    }

    /// The longest that a connection may take, and some more.
    const LONG: Duration = Duration::from_secs(11);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_given_up() {
        let begun = Instant::now();
        let answer = read_all(connected(String::new).await).await;
        assert_eq!(answer, "");
        assert!(begun.elapsed() < LONG);
    }

    /// Each byte comes in time, all of them do not.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_byte_by_byte_is_given_up() {
        let mut client = connected(String::new).await;
        let begun = Instant::now();
        while client.write_all(b"G").await.is_ok() {
            sleep(Duration::from_millis(100)).await;
            assert!(begun.elapsed() < LONG, "it is served on");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let mut client = connected(|| "a".repeat(64 << 20)).await;
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        client.write_all(request).await.expect("sent");
        sleep(LONG).await;
        let answer = read_all(client).await;
        assert!(answer.len() < 64 << 20, "all was sent");
    }

    #[tokio::test]
    async fn clients_that_say_nothing_are_in_nobodys_way() {
        let at = "127.0.0.1:0".parse().expect("an address");
        let at = serve(at, String::new).await.expect("served");
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(TcpStream::connect(at).await.expect("connected"));
        }
        let mut client = TcpStream::connect(at).await.expect("connected");
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        client.write_all(request).await.expect("sent");
        assert!(read_all(client).await.starts_with("http/1.1 200 "));
    }
}
