//! A web server that lists its directories (WebDAV).

mod support;

use std::time::Duration;

use hither_node::source::registry::open;
use hither_node::source::settings::SourceSettings;
use hither_node::source::{Kind, SourceError, SourcePath};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use support::{list_all, path, read, version};

fn file(href: &str) -> String {
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop>\
         <D:getlastmodified>Sat, 01 Jan 2022 00:00:00 GMT</D:getlastmodified>\
         <D:getcontentlength>5</D:getcontentlength><D:getetag>\"x\"</D:getetag>\
         <D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}

fn directory(href: &str) -> String {
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop>\
         <D:getlastmodified>Sat, 01 Jan 2022 00:00:00 GMT</D:getlastmodified>\
         <D:resourcetype><D:collection/></D:resourcetype></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}

async fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let mut words = request.split(' ');
    let (method, at) = (words.next().unwrap(), words.next().unwrap());
    let at = at.trim_end_matches('/');
    let (status, body) = match (method, at) {
        ("PROPFIND", "/dav/top") => {
            let all = [
                directory("/dav/top/"),
                file("/dav/top/a%20b"),
                file("/dav/top/%C3%A9"),
                directory("/dav/top/dir/"),
            ];
            let all = all.concat();
            let page = format!("<D:multistatus xmlns:D=\"DAV:\">{all}</D:multistatus>");
            (207, page)
        }
        ("PROPFIND", "/dav/top/dir") => {
            let all = directory("/dav/top/dir/") + &file("/dav/top/dir/inner");
            let page = format!("<D:multistatus xmlns:D=\"DAV:\">{all}</D:multistatus>");
            (207, page)
        }
        ("HEAD" | "GET", "/dav/top/a%20b" | "/dav/top/dir/inner") => (200, "bytes".into()),
        _ => (404, String::new()),
    };
    let body = if method == "HEAD" { "" } else { &body };
    let length = if status == 200 { 5 } else { body.len() };
    let answer = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nETag: \"x\"\r\n\
         Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT\r\nDate: Sat, 01 Jan 2022 00:01:00 GMT\r\n\
         Connection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

#[tokio::test]
async fn directories_of_a_web_server_are_listed() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/dav/top/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream));
        }
    });
    let settings = SourceSettings {
        deadline: Duration::from_secs(5),
        ..SourceSettings::default()
    };
    let source = open(&url, &settings).await.unwrap();
    let listed = list_all(&*source, &SourcePath::default()).await;
    let names: Vec<&[u8]> = listed.keys().map(|name| &name[..]).collect();
    assert_eq!(names, [&b"a b"[..], b"dir", "é".as_bytes()]);
    assert_eq!(listed[&b"dir"[..]].kind, Kind::Directory);
    let (found, settled) = version(&*source, &path("a b")).await;
    assert!(settled);
    assert_eq!(
        listed[&b"a b"[..]],
        source.stat(&path("a b")).await.unwrap()
    );
    assert_eq!(read(&*source, &found, 1..4).await.unwrap(), b"yte");
    assert_eq!(
        source.stat(&path("dir")).await.unwrap().kind,
        Kind::Directory
    );
    let inner = list_all(&*source, &path("dir")).await;
    assert_eq!(inner.keys().collect::<Vec<_>>(), [&b"inner".to_vec()]);
    let (found, _) = version(&*source, &path("dir/inner")).await;
    assert_eq!(read(&*source, &found, 0..5).await.unwrap(), b"bytes");
    for missing in ["none", "none/below"] {
        let found = source.stat(&path(missing)).await;
        assert!(matches!(found, Err(SourceError::NotFound(_))), "{found:?}");
        let found = source.list(&path(missing), None).await;
        assert!(matches!(found, Err(SourceError::NotFound(_))), "{found:?}");
    }
}
