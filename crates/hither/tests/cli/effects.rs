//! docs/effects.md: what a program can notice of hither, and that each line of the page has a test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Lab;

/// Says what a program finds: its environment, its descriptors, and its signals and limits. Of what
/// is ignored, the first 28 signals.
const FINDS: &str = "env | grep -v ^_= | sort; ls /proc/self/fd | wc -l; \
    grep -E '^(SigBlk|SigCgt|ShdPnd|NoNewPrivs|Seccomp)' /proc/self/status; cat /proc/self/limits; \
    sed -n 's/^SigIgn:.*\\(.......\\)$/ignored \\1/p' /proc/self/status";

#[test]
fn a_program_finds_three_variables_and_nothing_else() {
    let lab = Lab::new();
    lab.write("finds.sh", FINDS);
    let alone = lab.run("sh finds.sh");
    let ways = [
        "record -o t.hither",
        "run --page-cache --cache 8MiB",
        "run --replicas",
        "run --memory --dry-run",
    ];
    for way in ways {
        let ran = lab.run(&format!("hither {way} -- sh finds.sh"));
        let (found, expected) = (ran.stdout().lines(), alone.stdout().lines());
        let expected: BTreeSet<&str> = expected.collect();
        let more: Vec<&str> = found.filter(|line| !expected.contains(line)).collect();
        let names = more.iter().filter_map(|line| line.split('=').next());
        let names: Vec<&str> = names.collect();
        assert_eq!(
            names,
            ["ASAN_OPTIONS", "HITHER_SESSION", "LD_PRELOAD"],
            "{way}: {more:?}"
        );
        assert_eq!(
            ran.stdout().lines().count(),
            alone.stdout().lines().count() + more.len(),
            "{way}"
        );
        let _ = fs::remove_dir_all(lab.path("t.hither"));
    }
}

/// The names in backticks in the last column of the page's tables.
fn named_tests(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    let named = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    named.collect()
}

/// All sources of tests below a folder, in one text.
fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn each_line_of_the_page_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/effects.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let without = rows.filter(|row| !row.contains('`') && !row.contains("| tests |"));
    let without: Vec<&str> = without.collect();
    assert_eq!(without, [""; 0], "lines without a test");
    let mut all = String::new();
    sources(&root.join("crates"), &mut all);
    let missing = named_tests(&page).into_iter();
    let missing: Vec<&str> = missing
        .filter(|name| !all.contains(&format!("fn {name}()")))
        .collect();
    assert_eq!(missing, [""; 0], "no such tests");
}
