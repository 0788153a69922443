//! docs/policies.md comes from the registry and from what each policy's file says of itself. This
//! test makes the page anew and compares;
//! `HITHER_BLESS=1 cargo test -p hither --test policies_page` writes it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use hither_core::placement::{self, Target};
use hither_core::registry::{self, Needs, Param};

const INTRODUCTION: &str = "\
# Policies

What a cache keeps, and [which node holds what](#placements). This page is made from the registries and the sources
(`HITHER_BLESS=1 cargo test -p hither --test policies_page`). [Adding a policy](adding-a-policy.md) says how to add one.

# Replacement

What a cache of a given size keeps. Each can be named in `--policy`, with parameters where it has some:
`hither sim trace.hither --policy 'lru,lru-k{k=3},opt' --size 64MiB,10%`. All of them work from a cache of one block up.
Below the table stands what each policy's file says of itself: the rule, its source, and where the code departs from
the source.

";

const PLACEMENTS: &str = "
# Placements

Which node holds what: pages of memory on the nodes of a machine, or blocks of files in the caches of nodes over storage.
Each can be named in `--placement`, beside the nodes: `hither sim trace.hither --nodes mesh:5x5 --placement
'first-and-forever,post-office'`. [Topologies](topologies.md) says what nodes there are,
[ARCHITECTURE.md](ARCHITECTURE.md#where-placements) how they are simulated.

";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().to_path_buf()
}

/// What the policy's file says of itself, as Markdown.
fn module_text(folder: &str, name: &str) -> String {
    // No name in Rust begins with a digit.
    let stem = name.replace('-', "_").replace("2q", "two_q");
    let sources = root().join("crates/hither-core/src").join(folder);
    // A policy of several files is a folder.
    let file = [format!("{stem}.rs"), format!("{stem}/mod.rs")]
        .map(|file| sources.join(file))
        .into_iter()
        .find(|file| file.exists());
    let source = fs::read_to_string(file.expect("a policy has its file")).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let mut text = String::new();
    for line in lines {
        text.push_str(line.strip_prefix(' ').unwrap_or(line));
        text.push('\n');
    }
    with_file_links(folder, &text)
}

/// ``[`X`]`` and ``[`X`](crate::x)`` as a link to the file of the module X, or as `` `X` `` where
/// it is no module.
fn with_file_links(folder: &str, text: &str) -> String {
    let mut parts = text.split("[`");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").expect("a link ends");
        let (target, rest) = match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')').expect("its target ends"),
            None => (name, rest),
        };
        let module = target.replace("super::", &format!("crate::{folder}::"));
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

/// An entry of either registry.
struct Listed {
    /// The folder that its file is in.
    folder: &'static str,
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    /// What it places, for a placement.
    places: &'static str,
    needs: String,
    params: &'static [Param],
}

fn listed() -> [Vec<Listed>; 2] {
    let needs = |needs: Needs| needs.names().collect::<Vec<_>>().join(", ");
    let policies = registry::replacement_policies().iter().map(|entry| Listed {
        folder: "replacement",
        name: entry.name,
        summary: entry.summary,
        source: entry.source,
        places: "",
        needs: needs(entry.needs),
        params: entry.params,
    });
    let placements = placement::placement_policies().iter().map(|entry| Listed {
        folder: "placement",
        name: entry.name,
        summary: entry.summary,
        source: entry.source,
        places: match entry.target() {
            Target::Memory => "pages of memory",
            Target::Files => "blocks of files",
        },
        needs: needs(entry.needs),
        params: entry.params,
    });
    [policies.collect(), placements.collect()]
}

fn section(entry: &Listed) -> String {
    let text = module_text(entry.folder, entry.name);
    let mut text = format!("\n## {}\n\n{text}", entry.name);
    if !entry.needs.is_empty() {
        writeln!(text, "\nNeeds to know: {}.", entry.needs).unwrap();
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
    let [policies, placements] = listed();
    let mut page = INTRODUCTION.to_owned();
    page += "| policy | what it does | source | needs |\n|---|---|---|---|\n";
    for Listed {
        name,
        summary,
        source,
        needs,
        ..
    } in &policies
    {
        let (summary, source) = (cell(summary), cell(source));
        writeln!(
            page,
            "| [{name}](#{name}) | {summary} | {source} | {needs} |"
        )
        .unwrap();
    }
    page.extend(policies.iter().map(section));
    page += PLACEMENTS;
    page += "| placement | of | what goes where | source | needs |\n|---|---|---|---|---|\n";
    for Listed {
        name,
        places,
        summary,
        source,
        needs,
        ..
    } in &placements
    {
        let (summary, source) = (cell(summary), cell(source));
        writeln!(
            page,
            "| [{name}](#{name}) | {places} | {summary} | {source} | {needs} |"
        )
        .unwrap();
    }
    page.extend(placements.iter().map(section));
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
        with_file_links(
            "replacement",
            "see [`A`], [`lru`](super::lru) and [`crate::heap`], [c](d)"
        ),
        "see `A`, [`lru`](../crates/hither-core/src/replacement/lru.rs) and \
         [`crate::heap`](../crates/hither-core/src/heap.rs), [c](d)"
    );
}
