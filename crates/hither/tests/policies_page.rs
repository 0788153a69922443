//! docs/policies.md comes from the registry and from what each policy's file says of itself. This test makes the page anew
//! and compares; `HITHER_BLESS=1 cargo test -p hither --test policies_page` writes it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use hither_core::registry::{self, Entry};

const INTRODUCTION: &str = "\
# Replacement policies

What a cache of a given size keeps. Each can be named in `--policy`, with parameters where it has some:
`hither sim trace.hither --policy 'lru,lru-k{k=3},opt' --size 64MiB,10%`. All of them work from a cache of one block up.
Below the table stands what each policy's file says of itself: the rule, its source, and where the code departs from
the source.

This page is made from the registry and the sources (`HITHER_BLESS=1 cargo test -p hither --test policies_page`).
[Adding a policy](adding-a-policy.md) says how to add one.

";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().to_path_buf()
}

/// What the policy's file says of itself, as Markdown.
fn module_text(name: &str) -> String {
    // No name in Rust begins with a digit.
    let stem = name.replace('-', "_").replace("2q", "two_q");
    let file = format!("crates/hither-core/src/replacement/{stem}.rs");
    let source = fs::read_to_string(root().join(file)).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let mut text = String::new();
    for line in lines {
        text.push_str(line.strip_prefix(' ').unwrap_or(line));
        text.push('\n');
    }
    with_file_links(&text)
}

/// ``[`X`]`` and ``[`X`](crate::x)`` as a link to the file of the module X, or as `` `X` `` where it is no module.
fn with_file_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").expect("a link ends");
        let (target, rest) = match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')').expect("its target ends"),
            None => (name, rest),
        };
        let module = target.replace("super::", "crate::replacement::");
        let file = module.trim_start_matches("crate::").replace("::", "/");
        let file = format!("crates/hither-core/src/{file}.rs");
        if root().join(&file).exists() {
            write!(out, "[`{name}`](../{file}){rest}").unwrap();
        } else {
            write!(out, "`{name}`{rest}").unwrap();
        }
    }
    out
}

/// What would end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn section(entry: &Entry) -> String {
    let mut text = format!("\n## {}\n\n{}", entry.name, module_text(entry.name));
    let needs: Vec<&str> = entry.needs.names().collect();
    if !needs.is_empty() {
        writeln!(text, "\nNeeds to know: {}.", needs.join(", ")).unwrap();
    }
    if !entry.params.is_empty() {
        text += "\n| parameter | default | what it does | allowed |\n|---|---|---|---|\n";
    }
    for param in entry.params {
        let (doc, allowed) = (cell(param.doc), param.kind.allowed());
        let default = param.kind.default();
        writeln!(text, "| `{}` | {default} | {doc} | {allowed} |", param.name).unwrap();
    }
    text
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "| policy | what it does | source | needs |\n|---|---|---|---|\n";
    for entry in registry::policies() {
        let needs: Vec<&str> = entry.needs.names().collect();
        let (name, needs) = (entry.name, needs.join(", "));
        let (summary, source) = (cell(entry.summary), cell(entry.source));
        writeln!(
            page,
            "| [{name}](#{name}) | {summary} | {source} | {needs} |"
        )
        .unwrap();
    }
    page.extend(registry::policies().iter().map(section));
    page
}

#[test]
fn the_page_is_what_the_registry_says() {
    let (path, page) = (root().join("docs/policies.md"), page());
    if std::env::var_os("HITHER_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differs = page
        .lines()
        .zip(written.lines().chain(std::iter::repeat("")));
    let first = differs.into_iter().find(|(ours, theirs)| ours != theirs);
    assert!(
        page == written,
        "docs/policies.md is out of date; HITHER_BLESS=1 makes it anew. The first difference: {first:?}"
    );
}

#[test]
fn links_between_items_lead_to_files() {
    assert_eq!(
        with_file_links("see [`A`], [`lru`](super::lru) and [`crate::heap`], [c](d)"),
        "see `A`, [`lru`](../crates/hither-core/src/replacement/lru.rs) and \
         [`crate::heap`](../crates/hither-core/src/heap.rs), [c](d)"
    );
}
