//! docs/adding-a-policy.md, followed to the letter in a copy of the core: its replacement policy
//! compiles, equals its twin and passes every test that a policy of ours does, and so does its
//! placement. The page cannot rot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().to_path_buf()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

/// The Rust blocks of the page, each with the file that the text before it names.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut file = String::new();
    let mut found = Vec::new();
    for part in page.split("```rust\n") {
        let (code, text) = match part.split_once("```\n") {
            Some((code, text)) if !found.is_empty() || !file.is_empty() => (Some(code), text),
            _ => (None, part),
        };
        if let Some(code) = code {
            found.push((file.clone(), code.to_owned()));
        }
        let named = text.lines().rfind(|line| line.starts_with("`crates/"));
        if let Some(line) = named {
            file = line.split('`').nth(1).unwrap().to_owned();
        }
    }
    found
}

/// Puts `line` where it belongs in the sorted run of lines that begin and end as it does around the
/// policy's name.
fn insert_sorted(path: &Path, line: &str, name: &str) {
    let (start, end) = line.trim_end().split_once(name).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let alike = |other: &&str| other.starts_with(start) && other.ends_with(end);
    let before = |other: &&str| alike(other) && *other < line.trim_end();
    let at = match lines.iter().rposition(before) {
        Some(last) => last + 1,
        None => lines.iter().position(alike).unwrap(),
    };
    lines.insert(at, line.trim_end());
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn what_the_page_says_compiles_and_passes() {
    let page = fs::read_to_string(root().join("docs/adding-a-policy.md")).unwrap();
    let copied = tempfile::tempdir().unwrap();
    fs::copy(root().join("Cargo.lock"), copied.path().join("Cargo.lock")).unwrap();
    // A member that is named must be there; the core and what it uses are enough.
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (before, members) = workspace.split_once("members = [").unwrap();
    let (_, after) = members.split_once(']').unwrap();
    let members = [
        "crates/hither-core",
        "crates/hither-ids",
        "crates/hither-references",
    ];
    let core_alone = format!("{before}members = {members:?}{after}");
    let lines = core_alone.lines();
    let lines = lines.filter(|line| !line.starts_with("default-members"));
    let core_alone: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(copied.path().join("Cargo.toml"), core_alone).unwrap();
    for member in members {
        copy(&root().join(member), &copied.path().join(member));
    }

    let mut steps = Vec::new();
    for (file, code) in blocks(&page) {
        let path = copied.path().join(&file);
        if code.starts_with("//!") {
            assert!(!path.exists(), "{file} is new");
            fs::write(&path, code).unwrap();
            steps.push("file");
        } else if code.lines().count() == 1 {
            let name = ["bip", "next_touch"]
                .into_iter()
                .find(|name| code.contains(name));
            insert_sorted(&path, &code, name.expect("one of the page's policies"));
            steps.push("line");
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let (before, contestants) = text.split_once("fn contestants(").unwrap();
            let ends = format!("{code}    list\n}}\n");
            let contestants = contestants.replacen("    list\n}\n", &ends, 1);
            fs::write(&path, format!("{before}fn contestants({contestants}")).unwrap();
            steps.push("contestants");
        }
    }
    let policy = ["file", "line", "line", "file", "line", "contestants"];
    let placement = ["file", "line", "line"];
    let expected = [&policy[..], &placement].concat();
    assert_eq!(steps, expected, "the steps of the page");

    // The dependencies are compiled once and kept.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("adding-a-policy");
    let output = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--package", "hither-core"])
        .args(["--lib", "--test", "registry", "--test", "twins"])
        .current_dir(copied.path())
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "-D warnings")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{}\n{}", said[0], said[1]);
    for ran in [
        "replacement::bip::tests::a_part_of_a_loop_stays ... ok",
        "placement::next_touch::tests::a_page_moves_once ... ok",
    ] {
        assert!(said[0].contains(ran), "{}", said[0]);
    }
}
