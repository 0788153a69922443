//! Debian's index of packages: their versions and dependencies.
//!
//! Debian's archive has only the newest version of a package, so versions are not pinned. The index
//! gives the current ones, and the versions used are recorded.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// The fields used of a package's entry in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) depends: String,
    /// Its path on the mirror.
    pub(super) path: String,
    pub(super) sha256: String,
    pub(super) bytes: u64,
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
                "Depends" | "Pre-Depends" => {
                    if !package.depends.is_empty() {
                        package.depends.push_str(", ");
                    }
                    package.depends.push_str(value);
                }
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
fn compare_versions(a: &str, b: &str) -> Ordering {
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

/// Compares non-digit parts and numbers in turn. A tilde sorts before the end, the end before
/// letters, and letters before all else.
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

/// The packages that `roots` need, including themselves, sorted by name. `suites` are in order of
/// preference. If the first suite's version does not satisfy a relation, the next suite is tried.
/// Packages in `without` are left out, with those that only they need. Packages in `alone` are
/// taken without their dependencies.
pub(super) fn resolve(
    roots: &[&str],
    suites: &[Index],
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(name: &str, version: &str, depends: &str) -> String {
        format!(
            "Package: {name}\nVersion: {version}\nDepends: {depends}\nDescription: text\n\x20\
             more: text\nFilename: pool/{name}.deb\nSize: 7\nSHA256: {}\n\n",
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
        let both = stanza("a", "1", "b").replace("Depends:", "Pre-Depends: c, d\nDepends:");
        assert_eq!(parse_index(&both).unwrap()["a"].depends, "c, d, b");
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
        let both = [stable, newer];
        let versions = |roots: &[&str], suites: &[Index]| -> Result<Vec<String>> {
            Ok(resolve(roots, suites, &["gone"], &["alone"])?
                .iter()
                .map(|p| format!("{} {}", p.name, p.version))
                .collect())
        };
        assert_eq!(
            versions(&["tool"], &both).unwrap(),
            ["data 1", "lib 3", "tool 1"]
        );
        assert_eq!(
            versions(&["tool (>= 2)"], &both).unwrap(),
            ["alone 5", "data 2", "lib 3", "tool 2"]
        );
        let error = versions(&["tool"], &both[1..]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the index has no package for `lib (>= 2) | other`, which tool needs"
        );
    }
}
