//! docs/workloads.md is generated from the registry of programs and the module documentation of
//! each. This test generates the page and compares; `HITHER_BLESS=1 cargo test -p hither-generate
//! --test workloads_page` writes it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use hither_generate::{PROGRAMS, Program};

const INTRODUCTION: &str = "\
# Workloads

`hither gen` runs these threaded programs on a modelled machine and writes what they do as a trace:
processes, threads, nodes, files or regions of memory, call sites and times. They stand for the
programs that the papers on placement used.

```sh
hither gen parallel-grep --threads 8 --nodes 2 -o grep.hither
hither gen 'shared-files{like=oltp,blocks=1M}' --seed 7 -o oltp.hither
hither gen compile 'parallel-grep{runs=20}' --nodes 4 -o mix.hither      # at the same time
```

- `--threads` is the number of threads of each program.
- `--nodes` is the number of nodes of the machine, by default one for each thread. Threads are dealt
  to the nodes in turn, over all programs of a mix, except where a program balances by itself.
- The programs of a mix run at the same time, each with its own processes. Their accesses are merged
  by time. With `--queues N` they are dealt to N queues in turn, and those of a queue run one after
  another.
- With `--migrate-every N` threads move to other nodes after N iterations. In programs without
  iterations they move after N requests of a thread.

Equal programs, options and versions give equal bytes. `hither stat` shows who shares what.
`hither gen --help` describes the patterns without threads (zipf, scans, loops).

A test makes this page from the registry and the sources:
`HITHER_BLESS=1 cargo test -p hither-generate --test workloads_page`.

";

/// The longest line of the page, except in tables.
const COLUMNS_MAX: usize = 100;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/program")
}

/// The module documentation of the program's file as Markdown. Links to items become names.
fn module_text(name: &str) -> String {
    let file = format!("{}.rs", name.replace('-', "_"));
    let paths = ["", "memory"].map(|folder| sources().join(folder).join(&file));
    let path = paths.iter().find(|path| path.exists());
    let source = fs::read_to_string(path.expect("a program has its file")).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.replace("[`", "`").replace("`]", "`")
}

/// Breaks a paragraph into lines.
fn filled(paragraph: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS_MAX => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

fn section(entry: &Program) -> String {
    let mut text = format!("\n## {}\n\n{}", entry.name, module_text(entry.name));
    let origin = format!(
        "Modelled after: {}. Threads: {}.",
        entry.source, entry.threads
    );
    writeln!(text, "\n{}", filled(&origin)).unwrap();
    text += "\n| parameter | default | what it does | allowed |\n|---|---|---|---|\n";
    for param in entry.params {
        let (name, doc, kind) = (param.name, param.doc.replace('|', "\\|"), param.kind);
        writeln!(
            text,
            "| `{name}` | {} | {doc} | {} |",
            kind.default(),
            kind.allowed()
        )
        .unwrap();
    }
    text
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "| program | what it does |\n|---|---|\n";
    for Program { name, summary, .. } in PROGRAMS {
        writeln!(page, "| [{name}](#{name}) | {summary} |").unwrap();
    }
    page.extend(PROGRAMS.iter().map(section));
    page
}

#[test]
fn the_page_is_what_the_registry_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let (path, page) = (root.unwrap().join("docs/workloads.md"), page());
    if std::env::var_os("HITHER_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == written,
        "docs/workloads.md is out of date; HITHER_BLESS=1 makes it anew"
    );
}
