//! Debian packages: the index, what a package needs, the download, the unpacking.
//!
//! Debian keeps only the newest version of a package in its archive, so nothing here pins a version: the index says what
//! there is, and the versions taken are recorded. The index is trusted because TLS brought it from the mirror; each package is
//! then checked against the SHA-256 that the index gives.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use ureq::tls::{RootCerts, TlsConfig};

/// What is read of a package's entry in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    depends: String,
    path: String,
    sha256: String,
    bytes: u64,
}

/// The packages of one suite by name, the newest version of each.
pub(super) type Index = BTreeMap<String, Package>;

/// Reads the text of a `Packages` file.
pub(super) fn parse_index(text: &str) -> Result<Index> {
    let mut index = Index::new();
    for stanza in text
        .split("\n\n")
        .filter(|stanza| !stanza.trim().is_empty())
    {
        let mut package = Package::default();
        for line in stanza.lines() {
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            match key {
                "Package" => package.name = value.into(),
                "Version" => package.version = value.into(),
                "Depends" => package.depends = value.into(),
                "Filename" => package.path = value.into(),
                "SHA256" => package.sha256 = value.into(),
                "Size" => {
                    package.bytes = value
                        .parse()
                        .with_context(|| format!("index: size {value:?} of {}", package.name))?
                }
                _ => {}
            }
        }
        ensure!(
            !package.name.is_empty()
                && !package.version.is_empty()
                && package.sha256.len() == 64
                && !package.path.is_empty(),
            "index: an entry without name, version, file or SHA-256: {:?}",
            stanza.lines().next().unwrap_or_default()
        );
        let newer = index.get(&package.name).is_none_or(|other| {
            compare_versions(&other.version, &package.version) == Ordering::Less
        });
        if newer {
            index.insert(package.name.clone(), package);
        }
    }
    Ok(index)
}

/// Orders two versions as dpkg does (Debian Policy, 5.6.12): epoch, upstream version, revision.
pub(super) fn compare_versions(a: &str, b: &str) -> Ordering {
    fn parts(version: &str) -> (u64, &str, &str) {
        let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
        (epoch.parse().unwrap_or(0), upstream, revision)
    }
    let (a, b) = (parts(a), parts(b));
    a.0.cmp(&b.0)
        .then_with(|| compare_part(a.1, b.1))
        .then_with(|| compare_part(a.2, b.2))
}

/// Compares by turns a run without digits (a tilde before the end, the end before letters, letters before the rest) and a number.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    fn weight(byte: Option<&u8>) -> u32 {
        match byte {
            Some(b'~') => 0,
            None => 1,
            Some(byte) if byte.is_ascii_alphabetic() => 2 + u32::from(*byte),
            Some(byte) => 300 + u32::from(*byte),
        }
    }
    fn take(text: &mut &str, digits: bool) -> String {
        let end = text
            .find(|c: char| c.is_ascii_digit() != digits)
            .unwrap_or(text.len());
        let (run, rest) = text.split_at(end);
        *text = rest;
        run.into()
    }
    while !a.is_empty() || !b.is_empty() {
        let (x, y) = (take(&mut a, false), take(&mut b, false));
        for i in 0..x.len().max(y.len()) {
            match weight(x.as_bytes().get(i)).cmp(&weight(y.as_bytes().get(i))) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        let (x, y) = (take(&mut a, true), take(&mut b, true));
        let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
        match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    Ordering::Equal
}

/// Whether `version` satisfies a relation such as `>= 2.34`.
fn satisfies(version: &str, relation: &str) -> bool {
    let (operator, wanted) = relation.split_once(' ').unwrap_or(("=", relation));
    let order = compare_versions(version, wanted.trim());
    match operator {
        "<<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">=" => order != Ordering::Less,
        ">>" => order == Ordering::Greater,
        _ => order == Ordering::Equal,
    }
}

/// The packages that `roots` need, themselves included, in the order of their names. `suites` stand in the order of preference;
/// a relation that the first suite's version does not satisfy is looked up in the next. Neither the packages in `without` nor
/// what only they need are taken; those in `alone` are taken without what they need.
pub(super) fn resolve(
    roots: &[&str],
    suites: &[&Index],
    without: &[&str],
    alone: &[&str],
) -> Result<Vec<Package>> {
    let mut chosen = BTreeMap::<String, Package>::new();
    let mut open: Vec<(String, String)> = roots
        .iter()
        .map(|root| ((*root).into(), "the lab".into()))
        .collect();
    while let Some((dependency, wanted_by)) = open.pop() {
        let alternatives: Vec<(&str, Option<&str>)> = dependency
            .split('|')
            .map(|alternative| {
                let (name, relation) = match alternative.split_once('(') {
                    Some((name, relation)) => (name, Some(relation.trim().trim_end_matches(')'))),
                    None => (alternative, None),
                };
                (name.split(':').next().unwrap_or(name).trim(), relation)
            })
            .collect();
        if alternatives
            .iter()
            .any(|(name, _)| without.contains(name) || chosen.contains_key(*name))
        {
            continue;
        }
        let package = alternatives
            .iter()
            .flat_map(|(name, relation)| {
                suites
                    .iter()
                    .filter_map(|suite| suite.get(*name))
                    .map(move |package| (package, relation))
            })
            .find(|(package, relation)| {
                relation.is_none_or(|relation| satisfies(&package.version, relation))
            })
            .map(|(package, _)| package)
            .with_context(|| {
                format!(
                    "the index has no package for `{}`, which {wanted_by} needs",
                    dependency.trim()
                )
            })?;
        let needs = if alone.contains(&package.name.as_str()) {
            ""
        } else {
            &package.depends
        };
        for next in needs.split(',').filter(|next| !next.trim().is_empty()) {
            open.push((next.into(), package.name.clone()));
        }
        chosen.insert(package.name.clone(), package.clone());
    }
    Ok(chosen.into_values().collect())
}

/// A Debian mirror.
pub(super) struct Mirror {
    url: String,
    agent: ureq::Agent,
}

impl Mirror {
    /// The mirror that `HITHER_LAB_MIRROR` names, else Debian's own; `https_proxy` is honoured.
    pub(super) fn from_env() -> Self {
        let url = std::env::var("HITHER_LAB_MIRROR")
            .unwrap_or_else(|_| "https://deb.debian.org/debian".into());
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_global(Some(Duration::from_secs(600)))
            // The host's own certificates: behind a company's proxy no others will do.
            .tls_config(
                TlsConfig::builder()
                    .root_certs(RootCerts::PlatformVerifier)
                    .build(),
            )
            .build();
        Self {
            url: url.trim_end_matches('/').into(),
            agent: config.into(),
        }
    }

    fn get(&self, path: &str, mut seen: impl FnMut(u64)) -> Result<Vec<u8>> {
        let url = format!("{}/{path}", self.url);
        let response = self
            .agent
            .get(&url)
            .call()
            .map_err(|error| anyhow!(error))
            .with_context(|| format!("fetching {url}"))?;
        let mut reader = response.into_body().into_reader();
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            super::interrupt::check()?;
            let read = reader
                .read(&mut buffer)
                .with_context(|| format!("fetching {url}"))?;
            if read == 0 {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&buffer[..read]);
            seen(read as u64);
        }
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

    /// Downloads, checks and unpacks the packages under `root`; `keep` says which of their paths.
    pub(super) fn install(
        &self,
        packages: &[Package],
        root: &Path,
        keep: fn(&str) -> bool,
        quiet: bool,
    ) -> Result<()> {
        let total = packages.iter().map(|package| package.bytes).sum();
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
            let sha256 = hex(&Sha256::digest(&deb));
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

/// Whether an error is the mirror's answer that a file is not there, which means that the index was older than the archive.
pub(super) fn is_superseded(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(
            cause.downcast_ref::<ureq::Error>(),
            Some(ureq::Error::StatusCode(404))
        )
    })
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
    fs::create_dir_all(root)?;
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

/// Writes a file under a temporary name and renames it, so that it is there whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    let mut file =
        tempfile::NamedTempFile::new_in(folder).with_context(|| folder.display().to_string())?;
    file.write_all(bytes)?;
    file.persist(path)
        .with_context(|| path.display().to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(name: &str, version: &str, depends: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nDepends: {depends}\nDescription: text\n more: text\nFilename: pool/{name}.deb\nSize: 7\nSHA256: {}\n\n",
            "0".repeat(64)
        )
    }

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let ascending = [
            "1.0~rc1",
            "1.0",
            "1.0-1~bpo12+1",
            "1.0-1",
            "1.0-1+deb12u1",
            "1.0a-1",
            "1.0+b-1",
            "1.2-1",
            "1.10-1",
            "1:0.1",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare_versions(a, b), i.cmp(&j), "{a} against {b}");
            }
        }
        assert_eq!(compare_versions("1.07", "1.7"), Ordering::Equal);
        assert_eq!(compare_versions("0:2", "2"), Ordering::Equal);
    }

    #[test]
    fn the_newest_of_two_entries_stays() {
        let index = parse_index(&(stanza("a", "1.10", "") + &stanza("a", "1.9", ""))).unwrap();
        assert_eq!(index["a"].version, "1.10");
        assert_eq!(index["a"].bytes, 7);
        assert!(parse_index("Package: a\nVersion: 1\n\n").is_err());
    }

    #[test]
    fn relations_choose_the_suite() {
        let stable = parse_index(
            &(stanza("tool", "1", "data, lib")
                + &stanza("data", "1", "")
                + &stanza("lib", "3", "gone")),
        )
        .unwrap();
        let newer = parse_index(
            &(stanza("tool", "2", "data (>> 1), lib (>= 2) | other, alone")
                + &stanza("data", "2", "")
                + &stanza("alone", "5", "nowhere")),
        )
        .unwrap();
        let versions = |roots: &[&str], suites: &[&Index]| -> Result<Vec<String>> {
            Ok(resolve(roots, suites, &["gone"], &["alone"])?
                .iter()
                .map(|p| format!("{} {}", p.name, p.version))
                .collect())
        };
        assert_eq!(
            versions(&["tool"], &[&stable, &newer]).unwrap(),
            ["data 1", "lib 3", "tool 1"]
        );
        assert_eq!(
            versions(&["tool (>= 2)"], &[&stable, &newer]).unwrap(),
            ["alone 5", "data 2", "lib 3", "tool 2"]
        );
        let error = versions(&["tool"], &[&newer]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the index has no package for `lib (>= 2) | other`, which tool needs"
        );
    }
}
