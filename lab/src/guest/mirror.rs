//! A Debian mirror: the download of the index and of packages, and their unpacking.
//!
//! The trust model: TLS reached the mirror. Each package is checked against the SHA-256 in the
//! index, but the index is not checked. The signature of the suite's `InRelease`, which apt checks,
//! would need Debian's keys and an OpenPGP implementation, and the host may not be a Debian. So an
//! `http:` mirror is as trustworthy as the network to it.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Client, ClientBuilder, StatusCode};
use tokio::runtime::{self, Runtime};

use super::packages::{Index, Package, parse_index};
use crate::{hash, interrupt};

/// How long to wait for a connection, and for the next bytes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A Debian mirror.
pub(super) struct Mirror {
    url: String,
    client: Client,
    /// Requests are made one after the other.
    runtime: Runtime,
}

impl Mirror {
    /// The mirror that `HITHER_LAB_MIRROR` names, else Debian's own; `https_proxy` is honoured, and
    /// the host's own certificates hold: behind a company's proxy only these work.
    pub(super) fn from_env() -> Result<Self> {
        let url = std::env::var("HITHER_LAB_MIRROR")
            .unwrap_or_else(|_| "https://deb.debian.org/debian".into());
        Self::new(&url, Client::builder())
    }

    fn new(url: &str, client: ClientBuilder) -> Result<Self> {
        // An error means that there is a provider of algorithms already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client.connect_timeout(CONNECT_TIMEOUT);
        Ok(Self {
            url: url.trim_end_matches('/').into(),
            client: client.read_timeout(SILENCE_MAX).build()?,
            runtime: runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
        })
    }

    fn get(&self, path: &str, mut seen: impl FnMut(u64)) -> Result<Vec<u8>> {
        let url = format!("{}/{path}", self.url);
        let fetched: Result<_> = self.runtime.block_on(async {
            let mut response = self.client.get(&url).send().await?.error_for_status()?;
            let mut bytes = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                interrupt::check()?;
                bytes.extend_from_slice(&chunk);
                seen(chunk.len() as u64);
            }
            Ok(bytes)
        });
        fetched.with_context(|| format!("fetching {url}"))
    }

    /// The index of a suite's `main` section.
    pub(super) fn index(&self, suite: &str) -> Result<Index> {
        let packed = self.get(
            &format!("dists/{suite}/main/binary-amd64/Packages.xz"),
            |_| {},
        )?;
        let mut text = String::new();
        liblzma::read::XzDecoder::new(&packed[..])
            .read_to_string(&mut text)
            .with_context(|| format!("unpacking the index of {suite}"))?;
        parse_index(&text).with_context(|| format!("{suite} of {}", self.url))
    }

    /// Downloads, checks and unpacks the packages under `root`. `keep` selects paths.
    pub(super) fn install(
        &self,
        packages: &[Package],
        root: &Path,
        keep: fn(&str) -> bool,
        quiet: bool,
    ) -> Result<()> {
        let total: u64 = packages.iter().map(|package| package.bytes).sum();
        let (count, mib) = (packages.len(), total >> 20);
        eprintln!("fetching {count} packages, {mib} MiB, from {}", self.url);
        // indicatif draws nothing where stderr is not a terminal.
        let bar = if quiet {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(total)
        };
        bar.set_style(ProgressStyle::with_template(
            "{bar:30} {bytes}/{total_bytes} {msg}",
        )?);
        for package in packages {
            bar.set_message(package.name.clone());
            let deb = self.get(&package.path, |read| bar.inc(read))?;
            let sha256 = hash::sha256(&deb);
            ensure!(
                sha256 == package.sha256,
                "{}: SHA-256 is {sha256}, the index says {}",
                package.path,
                package.sha256
            );
            unpack_deb(&deb, root, keep).with_context(|| package.path.clone())?;
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Whether the mirror answered that a file does not exist, which means that the index was older
/// than the archive.
pub(super) fn is_superseded(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let answer = cause.downcast_ref::<reqwest::Error>();
        answer.and_then(reqwest::Error::status) == Some(StatusCode::NOT_FOUND)
    })
}

/// Unpacks the files of a `.deb`: an `ar` archive (deb(5)) with `data.tar.xz` as its last member.
fn unpack_deb(deb: &[u8], root: &Path, keep: fn(&str) -> bool) -> Result<()> {
    let mut rest = deb
        .strip_prefix(b"!<arch>\n")
        .context("not a Debian package")?;
    while rest.len() >= 60 {
        let (header, body) = rest.split_at(60);
        let name = std::str::from_utf8(&header[..16])?
            .trim_end()
            .trim_end_matches('/');
        let bytes: usize = std::str::from_utf8(&header[48..58])?
            .trim_end()
            .parse()
            .context("size of an archive's member")?;
        let content = body.get(..bytes).context("the archive is cut short")?;
        if name == "data.tar.xz" {
            return unpack_tar(liblzma::read::XzDecoder::new(content), root, keep);
        }
        ensure!(!name.starts_with("data.tar"), "{name}: only xz is known");
        rest = body.get(bytes + bytes % 2..).unwrap_or_default();
    }
    bail!("the package has no data.tar.xz")
}

fn unpack_tar(reader: impl Read, root: &Path, keep: fn(&str) -> bool) -> Result<()> {
    for entry in tar::Archive::new(reader).entries()? {
        let mut entry = entry?;
        let path = entry
            .path()?
            .to_string_lossy()
            .trim_start_matches("./")
            .to_owned();
        if keep(&path) {
            entry.unpack_in(root).with_context(|| path.clone())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::guest::tools::Wanted;

    /// Serves `files`, each request on its own connection, until it has answered `/last`. A file
    /// may have several contents, one per request; the last one stays.
    fn serve(listener: &TcpListener, mut files: BTreeMap<String, Vec<Vec<u8>>>) {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while !lines.next().unwrap().unwrap().is_empty() {}
            let path = request.split(' ').nth(1).unwrap();
            let (status, body) = match files.get_mut(path) {
                None => ("404 Not Found", Vec::new()),
                Some(contents) if contents.len() > 1 => ("200 OK", contents.remove(0)),
                Some(contents) => ("200 OK", contents[0].clone()),
            };
            let bytes = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
            stream.write_all(&body).unwrap();
            if path == "/last" {
                return;
            }
        }
    }

    /// Ignores a proxy of the environment.
    fn mirror_at(listener: &TcpListener) -> Mirror {
        let url = format!("http://{}", listener.local_addr().unwrap());
        Mirror::new(&url, Client::builder().no_proxy()).unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        let mut encoder = liblzma::read::XzEncoder::new(bytes, 1);
        encoder.read_to_end(&mut packed).unwrap();
        packed
    }

    /// A package with one file: `data.tar`, compressed by `suffix`.
    fn deb(path: &str, content: &str, suffix: &str) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, content.as_bytes())
            .unwrap();
        let data = xz(&tar.into_inner().unwrap());
        let mut deb = b"!<arch>\n".to_vec();
        for (name, body) in [
            ("debian-binary", &b"2.0\n"[..]),
            (&format!("data.tar.{suffix}"), &data),
        ] {
            writeln!(
                deb,
                "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`",
                0,
                0,
                0,
                100_644,
                body.len()
            )
            .unwrap();
            deb.extend_from_slice(body);
            deb.resize(deb.len().next_multiple_of(2), b'\n');
        }
        deb
    }

    fn index(version: &str, deb: &[u8]) -> Vec<u8> {
        let (bytes, sha256) = (deb.len(), hash::sha256(deb));
        let stanza = format!(
            "Package: tool\nVersion: {version}\nFilename: pool/tool_{version}.deb\n\
             Size: {bytes}\nSHA256: {sha256}\n\n"
        );
        xz(stanza.as_bytes())
    }

    #[test]
    fn a_package_that_was_replaced_meanwhile_is_fetched_in_its_new_version() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mirror = mirror_at(&listener);
        let packages = "main/binary-amd64/Packages.xz";
        let (old, new) = (
            deb("usr/bin/tool", "old", "xz"),
            deb("usr/bin/tool", "new", "xz"),
        );
        let files = BTreeMap::from([
            // A cache between the host and the archive may return yesterday's index once.
            (
                format!("/dists/bookworm/{packages}"),
                vec![index("1", &old), index("2", &new)],
            ),
            (
                format!("/dists/bookworm-backports/{packages}"),
                vec![xz(b"")],
            ),
            ("/pool/tool_2.deb".to_owned(), vec![new]),
            ("/last".to_owned(), vec![Vec::new()]),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, files));
            let wanted = Wanted {
                roots: &["tool"],
                without: &[],
                alone: &[],
                keep: |path| path.starts_with("usr/bin/"),
            };
            let installed = super::super::tools::install(&mirror, &wanted, &root, true);
            mirror.get("last", |_| {}).unwrap();
            installed.unwrap();
        });
        assert_eq!(fs::read(root.join("usr/bin/tool")).unwrap(), b"new");
        let versions = fs::read_to_string(root.join("versions.json")).unwrap();
        assert!(versions.contains(r#""tool": "2""#), "{versions}");
    }

    #[test]
    fn what_is_gone_or_changed_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mirror = mirror_at(&listener);
        let package = |path: &str| Package {
            path: path.to_owned(),
            sha256: "0".repeat(64),
            ..Package::default()
        };
        let files = BTreeMap::from([
            (
                "/pool/changed.deb".to_owned(),
                vec![b"other bytes".to_vec()],
            ),
            ("/last".to_owned(), vec![Vec::new()]),
        ]);
        let root = tempfile::tempdir().unwrap();
        let install = |path| {
            mirror
                .install(&[package(path)], root.path(), |_| true, true)
                .unwrap_err()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, files));
            let errors = [install("pool/gone.deb"), install("pool/changed.deb")];
            mirror.get("last", |_| {}).unwrap();
            assert!(is_superseded(&errors[0]));
            assert!(
                format!("{:#}", errors[0]).contains("/pool/gone.deb: "),
                "{:#}",
                errors[0]
            );
            assert!(!is_superseded(&errors[1]));
            assert!(
                errors[1]
                    .to_string()
                    .starts_with("pool/changed.deb: SHA-256 is "),
                "{}",
                errors[1]
            );
        });
    }

    #[test]
    fn a_package_is_unpacked_or_its_compression_named() {
        let root = tempfile::tempdir().unwrap();
        unpack_deb(&deb("./a/b", "text", "xz"), root.path(), |path| {
            path == "a/b"
        })
        .unwrap();
        assert_eq!(fs::read(root.path().join("a/b")).unwrap(), b"text");
        let error = |deb: &[u8]| {
            unpack_deb(deb, root.path(), |_| true)
                .unwrap_err()
                .to_string()
        };
        assert!(error(&deb("a", "", "zst")).starts_with("data.tar.zst: only xz"));
        assert!(error(&deb("a", "", "xz")[..140]).contains("cut short"));
        assert!(error(b"<html>").contains("not a Debian package"));
    }
}
