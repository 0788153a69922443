//! The registry against the folder of policies: a policy file without an entry, or an entry without its file, fails.

use hither_core::registry;
use std::collections::BTreeSet;

/// Files of `replacement/` that hold no policy of their own.
const SHARED: [&str; 2] = ["mod", "partition"];

#[test]
fn every_policy_file_has_an_entry_and_every_entry_its_file() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/replacement");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
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
        .filter(|name| !SHARED.contains(&name.as_str()))
        .collect();
    let entries: BTreeSet<String> = registry::policies()
        .iter()
        .map(|entry| entry.name.to_owned())
        .collect();
    assert_eq!(files, entries);
}
