//! What the packages bring: the units of systemd, and the commented files for /etc/hither. The
//! files are given to the command, and the units to `systemd-analyze`. `packaging/test` installs a
//! package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hither_testing::skip::skip;

fn hither() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hither"))
}

/// The files in a folder of packaging/, by name, with what they contain.
fn files(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let folder = root.unwrap().join("packaging").join(folder);
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            (name.to_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// A file in which the commented settings hold: those without a space behind the `#`.
fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

fn check(path: &Path) -> Output {
    Command::new(hither())
        .args(["node", "--check"])
        .arg(path)
        .output()
        .unwrap()
}

/// A folder with the certificates that node.toml names.
fn folder_with_certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["cluster", "ca", "lab", "--out", "."][..],
        &["cluster", "issue", "a", "--ca", ".", "--out", "."],
    ] {
        let ran = Command::new(hither())
            .args(arguments)
            .current_dir(&folder)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{arguments:?}: {stderr}");
    }
    folder
}

#[test]
fn each_setting_of_the_commented_files_is_one() {
    let folder = folder_with_certificates();
    for (name, text) in files("etc") {
        let path = folder.path().join(&name);
        let uncommented = uncommented(&text);
        assert!(uncommented.matches(" = ").count() > 5, "{name}");
        fs::write(&path, uncommented.replace("/var/cache/hither", "disk")).unwrap();
        let ran = check(&path);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{name}: {stderr}");
        let stdout = String::from_utf8_lossy(&ran.stdout);
        let is_member = stdout.contains("a of the cluster lab, with a certificate until");
        assert_eq!(is_member, name == "node.toml", "{stdout}");
    }
}

#[test]
fn as_they_are_they_set_nothing_and_the_node_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files("etc") {
        let path = folder.path().join(&name);
        fs::write(&path, text).unwrap();
        let ran = check(&path);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success(), "{name}");
        assert!(
            stderr.contains("no [[volume]]: there is nothing to serve"),
            "{name}: {stderr}"
        );
    }
}

/// The commands of the units, each with its arguments.
fn commands(unit: &str) -> Vec<&str> {
    let lines = unit.lines();
    lines
        .filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/hither "))
        .collect()
}

#[test]
fn units_start_commands_that_there_are() {
    let units = files("systemd");
    let names: Vec<&str> = units.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "hither-mount@.service",
            "hither-node.service",
            "hither-run@.service"
        ]
    );
    for (name, text) in &units {
        let commands = commands(text);
        assert_eq!(commands.len(), 1, "{name}");
        let command = commands[0].split(' ').next().unwrap();
        let help = Command::new(hither()).args([command, "--help"]).output();
        let help = String::from_utf8(help.unwrap().stdout).unwrap();
        for option in commands[0].split(' ').filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{name}: {option}");
        }
        // The pages that it names.
        let pages = text
            .lines()
            .filter_map(|line| line.strip_prefix("Documentation="));
        for page in pages.flat_map(|pages| pages.split(' ')) {
            let command = page.strip_prefix("man:hither-").unwrap();
            let command = command.strip_suffix("(1)").unwrap();
            let ran = Command::new(hither()).args([command, "-h"]).output();
            assert!(ran.unwrap().status.success(), "{name}: {page}");
        }
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip("systemd-analyze");
    }
    let folder = tempfile::tempdir().unwrap();
    let other = "[Service]\nExecStart=/bin/true\n";
    fs::write(folder.path().join("other.service"), other).unwrap();
    let units: Vec<PathBuf> = files("systemd")
        .into_iter()
        .map(|(name, text)| {
            let path = folder.path().join(name.replace('@', "@other"));
            let command = hither().to_str().unwrap();
            fs::write(&path, text.replace("/usr/bin/hither", command)).unwrap();
            path
        })
        .collect();
    let ran = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=one"])
        .args(&units)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let about_ours: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("hither-"))
        .collect();
    assert!(about_ours.is_empty(), "{stderr}");
    assert!(ran.status.success(), "{stderr}");
}
