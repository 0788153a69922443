//! An etcd of the test's own, on free ports of loopback, with its data in a temporary folder.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hither_net::tls::IdentityFiles;
use serde_json::Value;
use tempfile::TempDir;

use hither_testing::skip::skip;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Etcd {
    folder: TempDir,
    client_port: u16,
    peer_port: u16,
    /// Given where etcd speaks TLS.
    tls: Option<IdentityFiles>,
    child: Child,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Etcd {
    /// Starts etcd, if it is installed.
    pub(crate) fn start() -> Option<Etcd> {
        Etcd::start_with(None)
    }

    /// Starts an etcd that shows a certificate for `localhost` and asks for one.
    pub(crate) fn start_with_tls(files: IdentityFiles) -> Option<Etcd> {
        Etcd::start_with(Some(files))
    }

    fn start_with(tls: Option<IdentityFiles>) -> Option<Etcd> {
        if Command::new("etcd").arg("--version").output().is_err() {
            skip("etcd is not installed");
            return None;
        }
        // The ports may be taken by another test before etcd has them: then others are tried.
        for _ in 0..5 {
            let folder = tempfile::tempdir().unwrap();
            let (client_port, peer_port) = (free_port(), free_port());
            let child = spawn(&folder, client_port, peer_port, tls.as_ref());
            let mut etcd = Etcd {
                folder,
                client_port,
                peer_port,
                tls: tls.clone(),
                child,
            };
            if etcd.is_up() {
                return Some(etcd);
            }
        }
        panic!("etcd does not start");
    }

    pub(crate) fn endpoint(&self) -> String {
        match self.tls {
            Some(_) => format!("https://localhost:{}", self.client_port),
            None => format!("http://127.0.0.1:{}", self.client_port),
        }
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(
            &self.folder,
            self.client_port,
            self.peer_port,
            self.tls.as_ref(),
        );
        assert!(self.is_up(), "etcd does not start again");
    }

    fn is_up(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            let up = match self.tls {
                Some(_) => TcpStream::connect(("127.0.0.1", self.client_port)).is_ok(),
                None => self.request("/v3/maintenance/status", "{}").is_some(),
            };
            if up {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    fn request(&self, path: &str, body: &str) -> Option<Value> {
        let response = http::post(self.client_port, path, body)?;
        serde_json::from_str(&response).ok()
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        let body = serde_json::json!({ "key": base64(key), "value": base64(value) });
        self.request("/v3/kv/put", &body.to_string()).unwrap();
    }

    /// Revokes the lease of a member behind its back.
    pub(crate) fn revoke_lease_of(&self, name: &str) {
        let key = base64(&format!("/hither/test/members/{name}"));
        let body = serde_json::json!({ "key": key });
        let found = self.request("/v3/kv/range", &body.to_string()).unwrap();
        let lease = found["kvs"][0]["lease"].as_str().expect("a lease");
        let body = serde_json::json!({ "ID": lease });
        self.request("/v3/lease/revoke", &body.to_string()).unwrap();
    }

    /// Makes etcd ask for a user's name and password.
    pub(crate) fn require_users(&self, name: &str, password: &str) {
        let user = serde_json::json!({ "name": name, "password": password });
        let role = serde_json::json!({ "name": "root" });
        let grant = serde_json::json!({ "user": name, "role": "root" });
        for (path, body) in [
            ("/v3/auth/user/add", user.to_string()),
            ("/v3/auth/role/add", role.to_string()),
            ("/v3/auth/user/grant", grant.to_string()),
            ("/v3/auth/enable", "{}".to_owned()),
        ] {
            assert!(self.request(path, &body).is_some(), "{path}");
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &TempDir, client_port: u16, peer_port: u16, tls: Option<&IdentityFiles>) -> Child {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    let mut command = Command::new("etcd");
    if let Some(files) = tls {
        command.arg("--client-cert-auth");
        command.arg("--cert-file").arg(&files.certificate);
        command.arg("--key-file").arg(&files.key);
        command.arg("--trusted-ca-file").arg(&files.authority);
    }
    command
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

mod http {
    //! One request on one connection.

    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    pub(super) fn post(port: u16, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let length = body.len();
        let request =
            format!("POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        head.lines()
            .next()?
            .contains(" 200 ")
            .then(|| body.to_owned())
    }
}
