//! `hither run --page-cache` and readahead: off where a program reads at random, on where it reads
//! on or says anything itself.

mod support;

use std::fs::File;
use std::path::Path;

use hither_testing::skip::skip_on_this_machine;
use support::{figures, hither};

/// What the program says of its ways to read, and how often readahead was switched off.
fn ways(folder: &Path, options: &[&str], tries: &str) -> (String, u64) {
    let options = [&["--page-cache", "--cache", "8MiB", "--all-files"], options].concat();
    let data = File::open(folder.join("data")).expect("the file");
    let ran = hither(folder, &options)
        .args(["./program", "data", tries])
        .stdin(data)
        .output()
        .expect("it starts");
    assert!(ran.status.success(), "{ran:?}");
    let stilled = figures(&ran)["readahead_disabled"].as_u64();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    (said, stilled.expect("a count"))
}

#[test]
fn readahead_is_off_where_a_program_reads_at_random_and_nowhere_else() {
    let folder = support::folder("readahead/program");
    let folder = folder.path();
    let data = File::create(folder.join("data")).expect("a file");
    data.set_len(2 << 30).expect("a hole");
    // As the kernel alone does it.
    for option in ["--keep-readahead", "--dry-run"] {
        let (said, stilled) = ways(folder, &[option], "20");
        if said.starts_with("at first: off") {
            skip_on_this_machine("nothing is read ahead on this disk");
            return;
        }
        assert!(!said.contains("off"), "{option}: {said}");
        assert_eq!((said.lines().count(), stilled), (16, 0), "{said}");
    }
    let (said, stilled) = ways(folder, &[], "6000");
    let expected = "at first: on
at random: off
reading on: on
at random again: off
another descriptor: off
advised by the program: on
four streams: on
the same at random: off
duplicated: on
to be passed on: off
passed on: on
to be passed on: off
passed on: on
inherited: on
in a child: on
after a fork: on
";
    assert_eq!(said, expected);
    assert_eq!(stilled, 6);
}
