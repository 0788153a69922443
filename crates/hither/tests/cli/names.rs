//! Names that act on a terminal: of files, programs and folders. No command prints them as they
//! are, and JSON has them exactly.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::Value;

use crate::{Lab, Ran};

/// Sets the title, clears the screen by ESC and by a C1 character, turns the direction of writing,
/// and begins a line that looks like a message.
const NAME: &str = "x\u{1b}]0;PWNED\u{7}\u{1b}[2J\u{9b}31mred\u{202e}\r\nhither: FAKE";

/// As it is printed.
const SHOWN: &str = r"x\u{1b}]0;PWNED\u{7}\u{1b}[2J\u{9b}31mred\u{202e}\r\nhither: FAKE";

/// Checks that nothing that a command printed acts on a terminal or looks like another line.
fn check(line: &str, ran: &Ran) {
    for text in [ran.stdout(), ran.stderr.as_str()] {
        let acts = |found: char| found != '\n' && (found.is_control() || found == '\u{202e}');
        assert!(!text.contains(acts), "{line}: {text:?}");
        assert!(!text.contains("\nhither: FAKE"), "{line}: {text:?}");
        assert!(!text.starts_with("hither: FAKE"), "{line}: {text:?}");
    }
}

#[test]
fn names_do_not_act_on_a_terminal_and_json_has_them_exactly() {
    let lab = Lab::new();
    fs::create_dir(lab.path("d")).unwrap();
    lab.write(&format!("d/{NAME}"), [b'z'; 300_000]);
    let bytes = lab.path("d").join(OsStr::from_bytes(b"\xff\xfe no utf-8"));
    fs::write(bytes, [b'z'; 300_000]).unwrap();
    // A program of that name too, and one that cannot be recorded.
    fs::copy("/bin/cat", lab.path(NAME)).unwrap();
    lab.write(
        "script",
        "for i in 1 2 3; do ./x*FAKE d/* > /dev/null; done",
    );
    let recorded = lab.run("hither record -o t.hither -- sh script");
    assert_eq!(recorded.code, 0, "{recorded}");
    check("record", &recorded);
    for line in [
        "hither stat t.hither",
        "hither stat t.hither --stacks --top 3",
        "hither stat t.hither --folded",
        "hither stat t.hither --json",
        "hither sim t.hither --policy lru",
        "hither sim t.hither --policy lru --json",
        "hither advise t.hither",
        "hither advise t.hither --json",
        "hither export t.hither --format csv -o -",
        "hither report t.hither -o r.html --json",
        // Errors and notes name paths, and the parser names arguments.
        "hither stat d/x*",
        "hither stat ./x*FAKE/nowhere",
        "hither stat t.hither d/x*",
        "hither recover d/x*",
        "hither run --plan d/x* -- true",
        "hither run --page-cache --cache 64MiB -- ./x*FAKE d/x* > /dev/null",
        "hither record --force -o d/x* -- true",
        "hither record --force -o t2.hither -- ./x*FAKE/nowhere",
        "hither cache warm d/x*",
        "hither unmount d/x*",
    ] {
        check(line, &lab.run(line));
    }
    let stat = lab.run("hither stat t.hither");
    let table = stat.stdout();
    assert!(table.contains(SHOWN), "{table}");
    assert!(table.contains("\u{fffd}\u{fffd} no utf-8"), "{table}");
    let document = lab.json("hither stat t.hither --json");
    let rows = document["stats"]["by_object"].as_array().unwrap();
    let is_it = |row: &Value| {
        row["name"]
            .as_str()
            .unwrap()
            .ends_with(&format!("/d/{NAME}"))
    };
    assert!(rows.iter().any(is_it), "{rows:?}");
    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    assert!(!page.contains('\u{1b}'), "a page has them as JSON escapes");
    // A plan's comments name call sites.
    lab.run("hither advise -q t.hither --size 100KiB --save plan.toml");
    check("plan", &lab.run("cat plan.toml"));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_has_command_lines_is_for_its_owner_alone() {
    let lab = Lab::new();
    lab.write("data", "one\n");
    // From the first moment on, the journal included.
    let early = "stat -c %a .t.hither.partial-* .t.hither.partial-*/*";
    let ran = lab.run(&format!(
        "umask 0; hither record -q -o t.hither -- sh -c 'cat data; {early}'"
    ));
    assert_eq!(ran.stdout(), "one\n700\n600\n600\n", "{ran}");
    lab.run(
        "umask 0; hither report -q t.hither -o page.html; hither import -q t.hither -o u.hither",
    );
    for folder in ["t.hither", "u.hither"] {
        assert_eq!(mode(&lab.path(folder)), 0o700, "{folder}");
        for entry in fs::read_dir(lab.path(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    assert_eq!(mode(&lab.path("page.html")), 0o600);
    // What has none is as the user's umask says.
    lab.run("umask 027; hither export -q t.hither --format csv -o t.csv");
    assert_eq!(mode(&lab.path("t.csv")), 0o640);
}

#[test]
fn arguments_are_left_out_on_request() {
    let lab = Lab::new();
    lab.write("data", "one\n");
    let program = "sh -c 'cat data; true' sh --user me:secret";
    for (option, has_it) in [("", true), ("--no-arguments", false)] {
        lab.run(&format!(
            "hither record -q --force {option} -o t.hither -- {program}"
        ));
        let searched = lab.run("grep -rc secret t.hither");
        let found = searched.stdout();
        assert_eq!(found.contains("meta.json:0"), !has_it, "{option} {found}");
        assert_eq!(
            found.lines().all(|line| line.ends_with(":0")),
            !has_it,
            "{found}"
        );
        lab.run("hither report -q t.hither -o page.html");
        let page = fs::read_to_string(lab.path("page.html")).unwrap();
        assert_eq!(page.contains("secret"), has_it, "{option}");
    }
    let document = fs::read(lab.path("t.hither/meta.json")).unwrap();
    let meta: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(meta["command"], serde_json::json!(["sh", "…"]));
    let commands: Vec<&Value> = meta["processes"].as_array().unwrap().iter().collect();
    assert!(
        commands
            .iter()
            .any(|row| row["command"] == serde_json::json!(["cat", "…"]))
    );
}

#[test]
fn what_may_not_be_read_is_not_said_to_be_no_trace() {
    let lab = Lab::new();
    lab.run("hither record -q -o t.hither -- true");
    let bare = match fs::metadata("/proc/self").unwrap().uid() {
        0 => "setpriv --bounding-set=-all --inh-caps=-all hither",
        _ => "hither",
    };
    fs::set_permissions(lab.path("t.hither"), fs::Permissions::from_mode(0o0)).unwrap();
    for line in ["stat t.hither", "record --force -o t.hither -- true"] {
        let ran = lab.run(&format!("{bare} {line}"));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("Permission denied"), "{ran}");
        assert!(!ran.stderr.contains("not a trace"), "{ran}");
    }
    fs::set_permissions(lab.path("t.hither"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(lab.path("loop")).unwrap();
    lab.run("ln -s accesses.parquet loop/accesses.parquet");
    let ran = lab.run("hither stat loop");
    assert!(
        ran.stderr.contains("Too many levels of symbolic links"),
        "{ran}"
    );
    assert!(!ran.stderr.contains("not a trace"), "{ran}");
    let none = lab.run("mkdir none; hither stat none");
    assert!(
        none.stderr.contains("not a trace folder: it holds no"),
        "{none}"
    );
}
