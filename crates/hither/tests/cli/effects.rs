//! docs/effects.md: what a program can notice of hither. The commands that its lines name are run,
//! and its tests are looked for in the compiled test binaries.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hither_testing::skip::skip;

use crate::Lab;

/// What `$how` stands for.
const HOW: [&str; 4] = [
    "record -q",
    "run -q --page-cache --cache 8MiB",
    "run -q --replicas",
    "run -q --memory --dry-run",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/effects.md")).unwrap()
}

/// The code in the last cell of each row of the page's tables.
fn checks_by_row(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|row| !row.starts_with("| | "));
    let checks = rows.map(|row| {
        // A bar within a command is escaped.
        let row = row.replace("\\|", "\0");
        let cell = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap();
        let code = cell.split('`').skip(1).step_by(2);
        code.map(|code| code.replace('\0', "|")).collect()
    });
    checks.collect()
}

/// The commands and the names of tests.
fn commands_and_tests(page: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_command = |check: &String| check.contains(' ');
    checks_by_row(page)
        .into_iter()
        .flatten()
        .partition(is_command)
}

/// Runs a command in an empty folder: whether it succeeds, and what it says.
fn run(command: &str, how: &str, before: &str) -> (bool, String) {
    let lab = Lab::new();
    fs::create_dir(lab.path("idle")).unwrap();
    lab.write("idle/hither", "#!/bin/sh\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(lab.path("idle/hither"), executable).unwrap();
    let ran = lab.run(&format!("{before}\nhow='{how}'\n{command}"));
    (ran.code == 0, format!("{command}\nwith {how}: {ran}"))
}

/// What is wrong with a command: it fails, or it succeeds though nothing is recorded or run.
fn faults(command: &str) -> Vec<String> {
    let hows = if command.contains("$how") {
        &HOW[..]
    } else {
        &[""]
    };
    let runs = hows.iter().map(|how| run(command, how, ""));
    let failed = runs.filter(|(succeeds, _)| !succeeds);
    let mut faults: Vec<String> = failed.map(|(_, said)| said).collect();
    let (succeeds, said) = run(command, hows[0], "PATH=$PWD/idle:$PATH");
    if succeeds {
        faults.push(format!("it needs no hither: {said}"));
    }
    faults
}

#[test]
fn each_line_of_the_page_has_a_check_and_its_commands_succeed() {
    let page = page();
    for how in HOW {
        assert!(page.contains(&format!("`{how}`")), "{how}");
    }
    let rows = checks_by_row(&page);
    assert!(rows.len() > 30, "{} lines were found", rows.len());
    assert!(rows.iter().all(|checks| !checks.is_empty()), "{rows:#?}");
    let (commands, _) = commands_and_tests(&page);
    assert!(
        commands.len() > 20,
        "{} commands were found",
        commands.len()
    );
    // They wait more than they compute.
    let faults: Vec<String> = std::thread::scope(|scope| {
        let started = commands
            .iter()
            .map(|command| scope.spawn(|| faults(command)));
        let started: Vec<_> = started.collect();
        let ended = started
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        ended.collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The names of sources of targets below a folder of a crate: `NAME.rs` and `NAME/main.rs`.
fn targets(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").exists()
        {
            found.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

/// The test binaries that all crates have, by name. Of a name that a benchmark shares there is
/// none: asked for its tests, that would run.
fn test_binaries() -> BTreeSet<String> {
    let (mut tests, mut benches) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let package = entry.unwrap().path();
        tests.extend(targets(&package.join("tests")));
        benches.extend(targets(&package.join("benches")));
        if package.join("src/lib.rs").exists() && !package.ends_with("hither-py") {
            let name = package.file_name().unwrap().to_str().unwrap();
            tests.insert(name.replace('-', "_"));
        }
    }
    &tests - &benches
}

/// The tests in the compiled binaries of these names, which lie beside this one; and the names of
/// which there is no binary.
fn compiled_tests(binaries: &BTreeSet<String>) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut tests, mut missing) = (BTreeSet::new(), binaries.clone());
    let beside = std::env::current_exe().unwrap();
    for entry in fs::read_dir(beside.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        let Some((name, hash)) = file.rsplit_once('-') else {
            continue;
        };
        if !binaries.contains(name) || hash.contains('.') {
            continue;
        }
        missing.remove(name);
        let listed = Command::new(&path)
            .args(["--list", "--format=terse"])
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let paths = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        tests.extend(paths.map(|path| path.rsplit("::").next().unwrap().to_owned()));
    }
    (tests, missing)
}

#[test]
fn each_test_that_the_page_names_is_in_a_test_binary() {
    let (_, named) = commands_and_tests(&page());
    assert!(named.len() > 30, "{} tests are named", named.len());
    let (compiled, not_built) = compiled_tests(&test_binaries());
    let missing = &named - &compiled;
    if !missing.is_empty() && !not_built.is_empty() {
        skip(format!("test binaries that are not built: {not_built:?}"));
        return;
    }
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}
