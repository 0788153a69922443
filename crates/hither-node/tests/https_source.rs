//! A web server over TLS: trusted through the platform's certificates, and through no others.
//!
//! Which certificates those are is said by the environment (`SSL_CERT_FILE`), so each case runs in
//! a process of its own: this program again, with only the test [`child`].

mod support;

use std::process::Command;
use std::sync::Arc;

use hither_node::source::registry::open;
use hither_node::source::settings::SourceSettings;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use support::{path, read, version};

/// Names the server to the child.
const URL: &str = "HITHER_TEST_HTTPS_URL";

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    (certificate.pem(), Issuer::new(parameters, key))
}

fn server_settings(issuer: &Issuer<'static, KeyPair>) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    Arc::new(settings)
}

/// Answers each request with one file of five bytes.
async fn serve(listener: TcpListener, settings: Arc<ServerConfig>) {
    let acceptor = TlsAcceptor::from(settings);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else {
            continue; // A client that does not trust us.
        };
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let body = if request.starts_with(b"GET") {
            "bytes"
        } else {
            ""
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"x\"\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_the_platform_are_trusted_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let (trusted, issuer) = authority();
    let (other, _) = authority();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    tokio::spawn(serve(listener, server_settings(&issuer)));
    for (certificates, wanted) in [(trusted, "read: bytes"), (other, "not opened: ")] {
        let file = folder.path().join("certificates.pem");
        std::fs::write(&file, certificates).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["child", "--exact", "--nocapture"])
            .env(URL, &url)
            .env("SSL_CERT_FILE", file)
            .env_remove("SSL_CERT_DIR");
        let output = tokio::task::spawn_blocking(move || child.output().unwrap());
        let output = output.await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(wanted), "{printed}");
        let refused = printed.contains("certificate");
        assert_eq!(refused, wanted.starts_with("not"), "{printed}");
    }
}

#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(URL) else {
        return; // Not asked by the test above.
    };
    let settings = SourceSettings {
        deadline: std::time::Duration::from_secs(5),
        ..SourceSettings::default()
    };
    match open(&url, &settings).await {
        Ok(source) => {
            let (file, _) = version(&*source, &path("file")).await;
            let bytes = read(&*source, &file, 0..5).await.unwrap();
            println!("read: {}", String::from_utf8(bytes).unwrap());
        }
        Err(error) => println!("not opened: {error}"),
    }
}
