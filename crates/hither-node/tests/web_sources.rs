//! Web servers that cannot be trusted: whose etags are time stamps, whose clocks are wrong, whose
//! answers have no end. And what is said of a source whose URL holds a password.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use hither_node::source::registry::open;
use hither_node::source::settings::SourceSettings;
use hither_node::source::{OpenError, SourceError, SourcePath};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use support::{list_all, path, version};

/// What the server says of every file.
#[derive(Clone, Debug, Default)]
struct Said {
    etag: Option<&'static str>,
    modified: Option<SystemTime>,
    date: Option<SystemTime>,
}

#[derive(Default)]
struct Server {
    said: Mutex<Said>,
    /// To requests of this method: this status, and a body without end.
    endless: Mutex<Option<(&'static str, u16)>>,
    sent_bytes: AtomicU64,
    /// The header `Authorization` of the last request.
    authorization: Mutex<Option<String>>,
}

impl Server {
    async fn start() -> (Arc<Server>, String) {
        let server = Arc::new(Server::default());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = Arc::clone(&server);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = Arc::clone(&served);
                tokio::spawn(async move { server.answer(stream).await });
            }
        });
        (server, address)
    }

    fn say(&self, said: &Said) {
        *self.said.lock().unwrap() = said.clone();
    }

    async fn answer(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else {
                return;
            };
            request.push(byte);
        }
        let request = String::from_utf8(request).unwrap();
        let method = request.split(' ').next().unwrap();
        let mut lines = request.lines();
        let line = lines.find_map(|line| line.strip_prefix("authorization: "));
        *self.authorization.lock().unwrap() = line.map(str::to_owned);
        let endless = *self.endless.lock().unwrap();
        if let Some((_, status)) = endless.filter(|(which, _)| *which == method) {
            let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            let body = vec![b'x'; 64 << 10];
            while stream.write_all(&body).await.is_ok() {
                self.sent_bytes.fetch_add(64 << 10, Ordering::Relaxed);
            }
            return;
        }
        let said = self.said.lock().unwrap().clone();
        let time = httpdate::fmt_http_date;
        let mut head = String::new();
        for (name, value) in [
            ("ETag", said.etag.map(str::to_owned)),
            ("Last-Modified", said.modified.map(time)),
            ("Date", said.date.map(time)),
        ] {
            head += &value.map_or(String::new(), |value| format!("{name}: {value}\r\n"));
        }
        let (status, body) = match method {
            "PROPFIND" => {
                let etag = said.etag.map(|it| format!("<D:getetag>{it}</D:getetag>"));
                let modified = time(said.modified.unwrap_or(SystemTime::UNIX_EPOCH));
                let body = format!(
                    "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/d/f</D:href><D:propstat>\
                     <D:prop><D:getlastmodified>{modified}</D:getlastmodified>\
                     <D:getcontentlength>4</D:getcontentlength>{}<D:resourcetype/></D:prop>\
                     <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\
                     </D:multistatus>",
                    etag.unwrap_or_default()
                );
                ("207 Multi-Status", body)
            }
            _ => ("200 OK", "data".to_owned()),
        };
        let length = body.len();
        let body = if method == "HEAD" { "" } else { &body };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{head}Connection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

fn settings() -> SourceSettings {
    SourceSettings {
        deadline: Duration::from_millis(300),
        ..SourceSettings::default()
    }
}

/// A version is settled by two times of the server, or by our own monotonic clock: neither by its
/// etag's look, nor by this machine's time of day.
#[tokio::test]
async fn what_is_settled_is_judged_by_one_clock() {
    let (server, address) = Server::start().await;
    let settings = SourceSettings {
        settling: Duration::from_millis(700),
        ..settings()
    };
    let source = open(&format!("http://{address}/d"), &settings)
        .await
        .unwrap();
    let name = path("f");
    let now = SystemTime::now();
    let ago = |seconds| Some(now - Duration::from_secs(seconds));
    let day = 86_400;
    // Whether it is settled at once.
    for (etag, modified, date, settled) in [
        // As nginx: the second of the change, and the length.
        (Some("\"6929f1a5-4\""), ago(0), ago(0), false),
        (Some("\"6929f1a6-4\""), ago(59), ago(0), false),
        (Some("\"6929f1a7-4\""), ago(61), ago(0), true),
        // The server's clock is a day behind, or a day ahead.
        (Some("\"1\""), ago(day), ago(day), false),
        (None, ago(day + 1), ago(day), false),
        (None, ago(day + 90), ago(day), true),
        (
            Some("W/\"2\""),
            ago(0),
            Some(now + Duration::from_secs(day)),
            true,
        ),
        // It says no times.
        (Some("\"3\""), None, ago(0), false),
        (Some("\"4\""), ago(day), None, false),
        (Some("W/\"5\""), ago(day), None, false),
    ] {
        let said = Said {
            etag,
            modified,
            date,
        };
        server.say(&said);
        assert_eq!(version(&*source, &name).await.1, settled, "{said:?}");
        if modified.is_some() {
            let listed = list_all(&*source, &SourcePath::default()).await;
            let (_, listed) = listed[&b"f"[..]].file(&name).unwrap();
            assert_eq!(listed, settled, "listed: {said:?}");
        }
        // Seen unchanged for long enough.
        if !settled {
            tokio::time::sleep(Duration::from_millis(710)).await;
        }
        assert!(version(&*source, &name).await.1, "{said:?}");
    }
}

/// Of an answer that has no end, a bounded part is read: of refusals, and of what the client
/// library would collect.
#[tokio::test]
async fn bodies_without_end_are_not_read_to_it() {
    let (server, address) = Server::start().await;
    server.say(&Said {
        etag: Some("\"x\""),
        modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)),
        date: Some(SystemTime::now()),
    });
    let source = open(&format!("http://{address}/d"), &settings())
        .await
        .unwrap();
    let (file, _) = version(&*source, &path("f")).await;
    for status in [500, 503, 400, 403, 404, 409, 412, 416] {
        *server.endless.lock().unwrap() = Some(("GET", status));
        server.sent_bytes.store(0, Ordering::Relaxed);
        assert!(source.read(&file, 0..4).await.is_err());
        let sent = server.sent_bytes.load(Ordering::Relaxed);
        // What fits into the sockets' buffers is sent, but not read: with each attempt.
        assert!(sent < 200 << 20, "{status}: {sent}");
    }
    for status in [200, 207, 403, 500] {
        *server.endless.lock().unwrap() = Some(("PROPFIND", status));
        server.sent_bytes.store(0, Ordering::Relaxed);
        let listed = source.list(&SourcePath::default(), None).await;
        assert!(listed.is_err(), "{status}");
        let sent = server.sent_bytes.load(Ordering::Relaxed);
        assert!(sent < 400 << 20, "{status}: {sent}");
    }
}

#[tokio::test]
async fn a_password_is_sent_and_never_shown() {
    let (server, address) = Server::start().await;
    server.say(&Said {
        etag: Some("\"x\""),
        ..Said::default()
    });
    let secret = "s3cr3t";
    let url = |rest: &str| format!("http://us%40er:{secret}%3A@{address}/{rest}");
    let source = open(&url("d"), &settings()).await.unwrap();
    version(&*source, &path("f")).await;
    let sent = server.authorization.lock().unwrap().clone().unwrap();
    assert_eq!(sent, "Basic dXNAZXI6czNjcjN0Og=="); // us@er:s3cr3t:
    let closed = "127.0.0.1:9";
    let option = |key: &str, value: &str| SourceSettings {
        options: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..settings()
    };
    for (url, settings) in [
        (url("d?X-Amz-Signature=s3cr3t"), settings()),
        (url("a//b"), settings()),
        (format!("http://user:{secret}@{closed}/d"), settings()),
        (format!("http://user:{secret}/x@{closed}/d"), settings()),
        (format!("http://user:{secret}@[/d"), settings()),
        (format!("s3://KEY:{secret}@bucket/p"), settings()),
        (format!("gs://KEY:{secret}@bucket/p"), settings()),
        (format!("az://box/p?sig={secret}"), settings()),
        (format!("nothing://user:{secret}@host"), settings()),
        (
            format!("http://{closed}/d"),
            option("proxy_url", &format!("http://user:{secret}@:::/")),
        ),
        (
            "s3://bucket".to_owned(),
            option("endpoint", &format!("http://user:{secret}@192.0.2.1:9")),
        ),
    ] {
        let error: OpenError = open(&url, &settings).await.err().expect("an error");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(secret), "{url}: {shown}");
    }
    // What the server says may hold it too.
    *server.endless.lock().unwrap() = None;
    let missing = source.stat(&path("none/below")).await;
    assert!(!matches!(missing, Err(SourceError::Failed { reason, .. }) if reason.contains(secret)));
}
