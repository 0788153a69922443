//! `hither doctor`.

use serde_json::Value;

use crate::{Lab, keys};

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {document}"))
}

/// Whatever this machine lacks, what all commands need is there: the other tests record.
#[test]
fn a_machine_that_records_is_well() {
    let lab = Lab::new();
    let ran = lab.run("hither doctor");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    let document = lab.json("hither doctor --json");
    assert_eq!(keys(&document), ["checks", "memory", "works"]);
    assert_eq!(document["works"], true);
    for check in document["checks"].as_array().unwrap() {
        let name = check["name"].as_str().unwrap();
        let works = check["works"].as_bool().unwrap();
        assert!(works || check["needed"] == false, "{check}");
        let mut lines = ran.stdout().lines();
        let start = format!("  {:<3}  {name} ", if works { "yes" } else { "no" });
        let found = lines.find(|line| line.starts_with(&start));
        assert!(found.is_some(), "{name}: {ran}");
        for (line, part) in [("without it", "lost_without"), ("to get it", "remedy")] {
            let says = format!("{line}: {}", check[part].as_str().unwrap());
            assert!(!says.ends_with(": "), "{check}");
            let next = (!works).then(|| lines.next().unwrap_or_default().trim());
            assert!(next.is_none_or(|next| next == says), "{name}: {ran}");
        }
    }
    assert_eq!(lab.names(), [""; 0]);
}

/// What is needed is the only thing that the exit status is about.
#[test]
fn a_machine_that_cannot_record_is_told_why() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path("a b")).unwrap();
    let ran = lab.run("TMPDIR=\"$PWD/a b\" hither doctor --json");
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""), "{ran}");
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(document["works"], false);
    let recording = check(&document, "recording");
    let detail = recording["detail"].as_str().unwrap();
    assert!(detail.contains("its path holds a space"), "{detail}");
    assert_eq!(recording["needed"], true);

    let limited = lab.run("ulimit -v 400000; hither doctor");
    assert_eq!(limited.code, 1, "{limited}");
    let ends = "\nPrograms cannot be recorded or run here.\n";
    assert!(limited.stdout().ends_with(ends), "{limited}");
    let why = "  no   limits         ulimit -v or -d leaves too little";
    assert!(limited.stdout().contains(why), "{limited}");
}
