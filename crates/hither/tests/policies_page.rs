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

This page lists what a cache can keep ([replacement](#replacement)) and which node can hold what
([placements](#placements)). A test makes it from the registries and the sources:
`HITHER_BLESS=1 cargo test -p hither --test policies_page`. [Adding a policy](adding-a-policy.md)
says how to add one.

# Replacement

A replacement policy chooses the block that leaves a full cache. `--policy` takes any of these
names, with parameters in braces:

```sh
hither sim trace.hither --policy 'lru,lru-k{k=3},opt' --size 64MiB,10%
```

All policies work with any cache of one block or more. Each section below the table is what the
policy's source file says: the rule, its source, and where the code differs from the source.

";

const PLACEMENTS: &str = "
# Placements

A placement says which node holds what: pages of memory on the nodes of a machine, or blocks of
files in the caches of nodes over storage. `--placement` takes these names, beside the nodes:

```sh
hither place trace.hither --nodes mesh:5x5 --placement 'first-and-forever,post-office'
```

[Topologies](topologies.md) lists the nodes, and [Placements](internals/placements.md) describes the
simulation.

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
    let file = sources.join(format!("{stem}.rs"));
    let source = fs::read_to_string(file).expect("a policy has its file");
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

/// The widest line of the page, but for tables and words that are wider.
const COLUMNS_MAX: usize = 100;

/// Breaks the lines that links and names have made too wide; what is too much goes to the next line
/// of the paragraph. Tables stay as they are.
fn wrapped(page: &str) -> String {
    let mut out = String::new();
    // What did not fit into the line before, with its indentation.
    let mut rest = String::new();
    for line in page.lines() {
        let words = line.trim_start();
        let begins = ["|", "#", "- ", "```"]
            .iter()
            .any(|mark| words.starts_with(mark));
        let mut line = line.to_owned();
        if !rest.is_empty() {
            if words.is_empty() || begins {
                writeln!(out, "{rest}").unwrap();
            } else {
                line = format!("{rest} {words}");
            }
            rest.clear();
        }
        if !line.starts_with('|') && line.chars().count() > COLUMNS_MAX {
            let fits = line.char_indices().nth(COLUMNS_MAX).unwrap().0;
            let text = line.trim_start();
            let mut indent = line.len() - text.len();
            let end = line[..=fits].rfind(' ').filter(|&end| end > indent);
            let end = end.or_else(|| line[fits..].find(' ').map(|end| fits + end));
            if text.starts_with("- ") {
                indent += 2;
            }
            if let Some(end) = end {
                rest = format!("{}{}", " ".repeat(indent), &line[end + 1..]);
                line.truncate(end);
            }
        }
        writeln!(out, "{line}").unwrap();
    }
    if !rest.is_empty() {
        writeln!(out, "{rest}").unwrap();
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
    /// Whether a replacement policy takes sizes.
    sizes: &'static str,
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
        sizes: if entry.takes_sizes { "yes" } else { "" },
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
        sizes: "",
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
    page += "| policy | what it does | source | needs | sizes |\n|---|---|---|---|---|\n";
    for Listed {
        name,
        summary,
        source,
        needs,
        sizes,
        ..
    } in &policies
    {
        let (summary, source) = (cell(summary), cell(source));
        writeln!(
            page,
            "| [{name}](#{name}) | {summary} | {source} | {needs} | {sizes} |"
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
    wrapped(&page)
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
        "docs/policies.md is out of date; HITHER_BLESS=1 makes it anew. The first difference: \
         {first:?}"
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

#[test]
fn wide_lines_are_broken_between_words() {
    let word = "word".to_owned() + &" word".repeat(20);
    let page = wrapped(&format!("- {word}\n  end\n- next\n| {word} |\n\n{word}\n"));
    let rows: Vec<&str> = page.lines().collect();
    assert_eq!(rows.len(), 7, "{page}");
    assert!(rows[0].starts_with("- word") && rows[0].len() <= COLUMNS_MAX);
    assert_eq!((rows[1], rows[2]), ("  word word end", "- next"));
    assert_eq!((rows[3], rows[4]), (format!("| {word} |").as_str(), ""));
    assert_eq!(rows[6], "word");
}
