//! docs/adding-a-policy.md shows policies of the tree, so what compiles and tests those does so for
//! the page. What is left to hold: the page has them as they are, and "one file and two lines" is
//! true of them.

use super::{root, sources};
use std::fs;
use std::path::Path;

/// The Rust blocks of the page, each with the file that the text before it named last.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = page.split("```").collect();
    let mut file = "";
    let mut found = Vec::new();
    for pair in parts.chunks_exact(2) {
        let named = pair[0].lines().rfind(|line| line.starts_with("`crates/"));
        file = named.map_or(file, |line| line.split('`').nth(1).unwrap());
        found.extend(pair[1].strip_prefix("rust\n").map(|code| (file, code)));
    }
    found
}

#[test]
fn the_page_shows_files_as_they_are() {
    let page = fs::read_to_string(root().join("docs/adding-a-policy.md")).unwrap();
    let mut shown = Vec::new();
    for (file, code) in blocks(&page) {
        let source = fs::read_to_string(root().join(file)).unwrap();
        let is_whole = code.starts_with("//!");
        let has_it = if is_whole {
            source == code
        } else {
            format!("\n{source}").contains(&format!("\n{code}"))
        };
        assert!(has_it, "{file} does not have:\n{code}");
        let name = Path::new(file).strip_prefix("crates/hither-core").unwrap();
        let extent = if is_whole { "all" } else { "part" };
        shown.push(format!("{} {extent}", name.display()));
    }
    let expected = [
        "src/replacement/sieve.rs all",
        "src/replacement/clock.rs part",
        "src/replacement.rs part",
        "src/registry.rs part",
        "tests/twins/sieve.rs all",
        "tests/twins/main.rs part",
        "tests/twins/main.rs part",
        "src/placement/local_only.rs all",
        "src/placement.rs part",
        "src/placement/registry.rs part",
    ];
    assert_eq!(shown, expected);
}

/// The lines of code outside `own` and tests that name a policy: by its name, module or type.
fn naming(own: &str, names: [&str; 3]) -> Vec<String> {
    let [registered, module, kind] = names;
    let code = [
        format!("\"{registered}"),
        format!("{module}::"),
        format!("mod {module};"),
        kind.to_owned(),
    ];
    let mut found = Vec::new();
    for (path, text) in sources() {
        let file = path.strip_prefix(root().join("crates")).unwrap_or(&path);
        let is_test = file.components().any(|part| part.as_os_str() == "tests");
        if is_test || file.ends_with("tests.rs") || file.ends_with(own) {
            continue;
        }
        for line in text.lines().map(str::trim) {
            if !line.starts_with("//") && code.iter().any(|code| line.contains(code)) {
                found.push(format!("{}: {line}", file.display()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_policy_is_one_file_and_two_lines() {
    let sieve = naming("replacement/sieve.rs", ["sieve", "sieve", "Sieve"]);
    let two_lines = [
        "hither-core/src/registry.rs: sieve::ENTRY,",
        "hither-core/src/replacement.rs: pub mod sieve;",
    ];
    assert_eq!(sieve, two_lines);
    let names = ["local-only", "local_only", "LocalOnly"];
    let local_only = naming("placement/local_only.rs", names);
    let two_lines = [
        "hither-core/src/placement.rs: mod local_only;",
        "hither-core/src/placement/registry.rs: super::local_only::ENTRY,",
    ];
    assert_eq!(local_only, two_lines);
}
