//! The memory that a recorded program shares with its agent: what a program can do to it, and who
//! can reach it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hither_testing::skip::skip_on_this_machine;
use serde_json::Value;

/// A folder with a file `data`, 100 KB long.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("data"), vec![7; 100_000]).expect("written");
    folder
}

fn hither(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hither"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("it starts")
}

/// Records a command; its bytes read, the records that were damaged, and what was said.
fn recorded(folder: &Path, command: &[&str]) -> (u64, u64, String) {
    let record = ["record", "--force", "-o", "t.hither", "--"];
    let output = hither(folder, &[&record[..], command].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {output:?}");
    let shown = hither(folder, &["stat", "--json", "t.hither"]);
    let stat: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{stat:#}"));
    let damaged = number(&stat["stats"]["losses"]["damaged_records"]);
    (number(&stat["bytes"]["read"]), damaged, said)
}

fn compiled(folder: &Path, source: &str) -> PathBuf {
    let programs = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../hither-preload/tests/programs"
    ));
    let program = folder.join(source.trim_end_matches(".c"));
    let built = Command::new("gcc")
        .args(["-O2", "-o"])
        .args([&program, &programs.join(source)])
        .status();
    assert!(built.expect("gcc is there").success());
    program
}

#[test]
fn a_program_that_truncates_its_session_runs_on() {
    let folder = folder();
    let script = "truncate -c -s 0 -- \"$HITHER_SESSION\" /dev/shm/hither-*; \
                  ipcrm -m ${HITHER_SESSION%%-*}; \
                  for i in 1 2 3; do cat data > /dev/null || exit 9; done; exit 0";
    let (bytes, ..) = recorded(folder.path(), &["sh", "-c", script]);
    assert!(bytes >= 300_000, "{bytes}: all of it was recorded");
}

/// What a program writes over its rings gives no nonsense, and is said.
#[test]
fn noise_in_the_rings_is_left_out_and_counted() {
    let folder = folder();
    let scribble = compiled(folder.path(), "scribble.c");
    let script = format!(
        "cat data > /dev/null; {} \"$HITHER_SESSION\" 20; cat data > /dev/null",
        scribble.display()
    );
    let (bytes, damaged, said) = recorded(folder.path(), &["sh", "-c", &script]);
    assert!(damaged > 0, "{said}");
    assert!(bytes < 1 << 40, "{bytes}");
    assert!(
        said.contains("damaged, written over by the program"),
        "{said}"
    );
    assert!(!said.contains("EiB"), "{said}");
    let stat = hither(folder.path(), &["stat", "t.hither"]);
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.contains("\nDAMAGED "), "{stat}");

    let run = |json: &[&str]| {
        let run = ["run", "--page-cache", "--cache", "64MiB"];
        let command = ["--", "sh", "-c", &script];
        let output = hither(folder.path(), &[&run[..], json, &command[..]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run(&[]);
    assert!(
        said.contains("damaged, written over by the program"),
        "{said}"
    );
    let report = run(&["--json"]);
    assert!(report.contains("\"records_damaged\":"), "{report}");
    assert!(!report.contains("\"records_damaged\":0"), "{report}");
}

/// Programs in other namespaces, without capabilities and with another group are recorded.
#[test]
fn programs_in_other_namespaces_are_recorded() {
    let folder = folder();
    for wrapper in [
        &["unshare", "--user", "--map-root-user"][..],
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ],
        &["unshare", "--mount"],
        &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
        &["setpriv", "--regid", "54321", "--clear-groups"],
    ] {
        let tried = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            skip_on_this_machine(format_args!("{wrapper:?} is not permitted"));
            continue;
        }
        let command = [wrapper, &["cat", "data"]].concat();
        let (bytes, ..) = recorded(folder.path(), &command);
        assert!(bytes >= 100_000, "{wrapper:?}: {bytes}");
    }
}
