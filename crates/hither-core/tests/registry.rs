//! The registries against the folders of policies: a policy file without an entry, or an entry
//! without its file, fails.

use hither_core::{placement, registry};
use std::collections::BTreeSet;
use std::path::Path;

/// What the files of a folder are the policies of, but for those that are `shared`. A policy of
/// several files has a folder beside its file.
fn policies_in(folder: &str, shared: &[&str]) -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    std::fs::read_dir(sources.join(folder))
        .expect("the folder of policies")
        .map(|file| file.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .replace("two_q", "2q") // The name of a module cannot begin with a digit.
                .replace('_', "-")
        })
        .filter(|name| !shared.contains(&name.as_str()))
        .collect()
}

#[test]
fn every_policy_file_has_an_entry_and_every_entry_its_file() {
    let policies = registry::replacement_policies()
        .iter()
        .map(|entry| entry.name.to_owned());
    let files = policies_in("replacement", &["partition"]);
    assert_eq!(files, policies.collect());
    let placements = placement::placement_policies()
        .iter()
        .map(|entry| entry.name.to_owned());
    let files = policies_in(
        "placement",
        &[
            "counters",
            "entry",
            "events",
            "file-host",
            "host",
            "host-log",
            "interface",
            "nodes",
            "registry",
            "testing",
        ],
    );
    assert_eq!(files, placements.collect());
}
