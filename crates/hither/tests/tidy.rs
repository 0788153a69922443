//! Rules about the source itself that no compiler checks: which crate may use which, that each file
//! says what it is, that links in the documents lead somewhere, that a policy is one file.

#[path = "tidy/adding_a_policy.rs"]
mod adding_a_policy;
#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/published.rs"]
mod published;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The allowed edges between our crates (docs/ARCHITECTURE.md). `hither-live` uses `hither-core`
/// from the live policies on; an edge that is allowed need not be there.
const EDGES: &[(&str, &str)] = &[
    ("hither", "hither-analysis"),
    ("hither", "hither-client"),
    ("hither", "hither-core"),
    ("hither", "hither-live"),
    ("hither", "hither-mount"),
    ("hither", "hither-net"),
    ("hither", "hither-node"),
    ("hither", "hither-service"),
    ("hither", "hither-sim"),
    ("hither", "hither-generate"),
    ("hither", "hither-ids"),
    ("hither", "hither-kernel"),
    ("hither", "hither-kernel-events"),
    ("hither", "hither-session"),
    ("hither", "hither-trace"),
    ("hither-analysis", "hither-core"),
    ("hither-analysis", "hither-sim"),
    ("hither-analysis", "hither-trace"),
    ("hither-client", "hither-kernel"),
    ("hither-core", "hither-ids"),
    ("hither-core", "hither-references"),
    ("hither-generate", "hither-core"),
    ("hither-generate", "hither-trace"),
    ("hither-kernel", "hither-ids"),
    ("hither-kernel-events", "hither-ids"),
    ("hither-kernel-events", "hither-kernel"),
    ("hither-live", "hither-core"),
    ("hither-live", "hither-ids"),
    ("hither-live", "hither-kernel"),
    ("hither-live", "hither-kernel-events"),
    ("hither-live", "hither-session"),
    ("hither-live", "hither-trace"),
    ("hither-mount", "hither-core"),
    ("hither-mount", "hither-kernel"),
    ("hither-mount", "hither-net"),
    ("hither-mount", "hither-node"),
    ("hither-net", "hither-core"),
    ("hither-node", "hither-core"),
    ("hither-node", "hither-net"),
    ("hither-node", "hither-kernel"),
    ("hither-preload", "hither-ids"),
    ("hither-preload", "hither-references"),
    ("hither-preload", "hither-kernel"),
    ("hither-preload", "hither-session"),
    ("hither-preload-pages", "hither-ids"),
    ("hither-preload-pages", "hither-references"),
    ("hither-preload-pages", "hither-kernel"),
    ("hither-preload-pages", "hither-session"),
    ("hither-preload-record", "hither-ids"),
    ("hither-preload-record", "hither-references"),
    ("hither-preload-record", "hither-kernel"),
    ("hither-preload-record", "hither-session"),
    ("hither-py", "hither-analysis"),
    ("hither-py", "hither-client"),
    ("hither-py", "hither-core"),
    ("hither-py", "hither-generate"),
    ("hither-py", "hither-live"),
    ("hither-py", "hither-sim"),
    ("hither-py", "hither-trace"),
    ("hither-service", "hither-analysis"),
    ("hither-service", "hither-client"),
    ("hither-service", "hither-core"),
    ("hither-service", "hither-ids"),
    ("hither-service", "hither-kernel"),
    ("hither-service", "hither-live"),
    ("hither-service", "hither-mount"),
    ("hither-service", "hither-net"),
    ("hither-service", "hither-node"),
    ("hither-service", "hither-sim"),
    ("hither-service", "hither-trace"),
    ("hither-session", "hither-ids"),
    ("hither-session", "hither-kernel"),
    ("hither-sim", "hither-core"),
    ("hither-sim", "hither-generate"),
    ("hither-sim", "hither-trace"),
    ("hither-trace", "hither-core"),
    ("mesh", "hither-client"),
    ("mesh", "hither-core"),
];

/// The crates that may hold unsafe code.
const UNSAFE: &[&str] = &[
    "hither-kernel",
    "hither-preload",
    "hither-py",
    "hither-session",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("crates"), &mut found);
    walk(&root().join("experiments"), &mut found);
    walk(&root().join("lab"), &mut found);
    assert!(found.len() > 10, "the walk misses the sources");
    found
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// What cargo says of the packages of the workspace.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Otherwise it would rot: `cargo test` runs it once over a tiny input.
#[test]
fn each_bench_runs_with_the_tests() {
    let mut benches = 0;
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            if target["kind"][0] == "bench" {
                benches += 1;
                assert!(
                    target["test"] == true,
                    "{} of {} lacks `test = true`",
                    target["name"],
                    package["name"]
                );
            }
        }
    }
    assert!(benches > 5, "the benches were not found");
}

#[test]
fn crates_use_only_the_crates_that_they_may() {
    let mut seen = 0;
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            if to == "hither-testing" {
                assert_eq!(dependency["kind"], "dev", "{name}: tests only");
            } else if to.starts_with("hither") {
                seen += 1;
                assert!(
                    EDGES.contains(&(name, to)),
                    "{name} may not use {to}: see docs/ARCHITECTURE.md"
                );
            }
        }
    }
    assert!(seen >= 8, "the edges were not found");
}

#[test]
fn each_file_opens_by_saying_what_it_is() {
    let silent: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top of {silent:?}");
}

#[test]
fn no_file_is_longer_than_800_lines() {
    let long: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().count() > 800)
        .map(|(path, _)| path)
        .collect();
    assert!(long.is_empty(), "split {long:?}");
}

#[test]
fn unsafe_code_stays_in_the_crates_meant_for_it() {
    for name in fs::read_dir(root().join("crates")).unwrap() {
        let folder = name.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let entry = ["lib.rs", "main.rs"]
            .map(|file| folder.join("src").join(file))
            .into_iter()
            .find(|path| path.exists());
        let text = fs::read_to_string(entry.unwrap()).unwrap();
        assert_eq!(
            text.contains("#![forbid(unsafe_code)]"),
            !UNSAFE.contains(&name.as_str()),
            "{name} either forbids unsafe code or is one of {UNSAFE:?}"
        );
    }
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let folders = ["", "docs", "docs/internals", "docs/results", "lab"];
    let documents: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    let mut broken = BTreeSet::new();
    for document in documents
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
    {
        let text = fs::read_to_string(document).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !document.parent().unwrap().join(target).exists() {
                broken.insert((document.clone(), link.to_owned()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}

/// The widest line, in characters: what two files side by side leave on a screen.
const COLUMNS_MAX: usize = 100;

#[test]
fn lines_fit_into_100_columns() {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    let kinds = [
        ".rs", ".md", ".py", ".c", ".cc", ".h", ".toml", ".js", ".css", ".html", ".ci/run",
        ".ci/fuzz",
    ];
    let mut wide = Vec::new();
    let mut seen = 0;
    for file in files
        .lines()
        .filter(|file| kinds.iter().any(|kind| file.ends_with(kind)))
        // The one library that is kept as its authors ship it.
        .filter(|file| !file.contains("/uplot/"))
    {
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            continue; // Deleted and not yet committed.
        };
        seen += 1;
        // A table's row and an address cannot be broken.
        let fits = |line: &str| {
            line.chars().count() <= COLUMNS_MAX
                || line.trim_start_matches([' ', '/', '!']).starts_with('|')
                || line.contains("://")
                || line.contains("](")
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !fits(line));
        wide.extend(lines.map(|(number, _)| format!("{file}:{}", number + 1)));
    }
    assert!(seen > 100, "the files were not found");
    assert!(wide.is_empty(), "over {COLUMNS_MAX} columns: {wide:#?}");
}
