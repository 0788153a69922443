//! The crates that can be published say what their pages on crates.io and docs.rs show.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::packages;

/// Those that others are meant to use: each has an example in a file that runs.
const FOR_OTHERS: [&str; 7] = [
    "hither-client",
    "hither-core",
    "hither-mount",
    "hither-net",
    "hither-node",
    "hither-sim",
    "hither-trace",
];

/// Of a package: whether crates.io would take it.
fn is_published(package: &Value) -> bool {
    package["publish"] != Value::Array(Vec::new())
}

#[test]
fn published_crates_say_what_they_are() {
    let packages = packages();
    let name_of = |package: &Value| package["name"].as_str().unwrap().to_owned();
    let published: Vec<_> = packages.iter().filter(|it| is_published(it)).collect();
    let names: Vec<String> = published.iter().map(|package| name_of(package)).collect();
    for name in FOR_OTHERS {
        assert!(names.iter().any(|it| it == name), "{name} is not published");
    }
    for package in published {
        let name = name_of(package);
        let folder = Path::new(package["manifest_path"].as_str().unwrap())
            .parent()
            .unwrap();
        for field in ["description", "license", "readme", "documentation"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for (field, most) in [("keywords", 5), ("categories", 5)] {
            let values = package[field].as_array().unwrap().len();
            assert!((1..=most).contains(&values), "{name}: {values} {field}");
        }
        let docs = &package["metadata"]["docs"]["rs"]["targets"];
        assert!(docs.is_array(), "{name} does not say what docs.rs builds");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(folder.join(licence).exists(), "{name} lacks {licence}");
        }
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains("```rust"), "{name}: README without code");
        let library = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        assert!(
            library.contains("include_str!(\"../README.md\")"),
            "{name}: its README's code is not tested"
        );
        if FOR_OTHERS.contains(&name.as_str()) {
            let shown = readme.split("](examples/").nth(1).expect("an example");
            let example = folder
                .join("examples")
                .join(shown.split(')').next().unwrap());
            assert!(example.exists(), "{name}: {} is missing", example.display());
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            if to.starts_with("hither") && dependency["kind"].is_null() {
                assert!(names.iter().any(|it| it == to), "{name} needs {to}");
            }
        }
    }
}
