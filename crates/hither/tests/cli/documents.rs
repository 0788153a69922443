//! The documents: the guide's examples run, every option that a document names exists, and
//! docs/trace.md names every column that a trace has. `.ci/run` calls the commands of the README.
//!
//! A block marked `sh` is run as it stands, line by line, in a folder that has the files that the
//! guide speaks of. A block marked `console` is not run: it needs another tool, or does not end.
//! `HITHER_PYTHON` names a Python that has duckdb, pandas and pyarrow.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::{Lab, text};
use hither_testing::skip::skip;

/// Prints every column of the tables with its type.
const COLUMNS: &str = r#"
import duckdb
for table in ["accesses", "objects", "sites"]:
    for name, kind, *_ in duckdb.sql(f"describe from 'trace.hither/{table}.parquet'").fetchall():
        print(table, name)
"#;

/// The programs of the guide. Each reads what it is given, twice.
const PROGRAMS: [&str; 4] = ["make", "scan", "server", "solver"];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().to_path_buf()
}

fn document(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The code blocks in `language`.
fn examples<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let blocks = document.split(fence.as_str()).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// A folder with all that the guide's examples name.
fn guide_folder(page: &str) -> Lab {
    let lab = Lab::new();
    for name in ["data", "input"] {
        lab.write(name, text(100_000));
    }
    std::fs::create_dir(lab.path("include")).unwrap();
    for number in 0..20 {
        let lines = format!("{}a needle\n", text(2000));
        lab.write(&format!("include/{number}.h"), lines);
    }
    for program in PROGRAMS {
        // Without an argument that is a file: the headers.
        let script =
            "#!/bin/sh\ncat data include/*.h >/dev/null\ncat data include/*.h >/dev/null\n";
        lab.write(program, script);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(lab.path(program), executable).unwrap();
    }
    for sweep in examples(page, "toml") {
        lab.write("papers.toml", sweep);
    }
    lab
}

/// Command lines, with those that end in a backslash put together.
fn command_lines(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

/// Runs the `sh` blocks of a page. `traces`: the page begins with recordings made.
fn run_examples(path: &str, traces: bool) {
    let page = document(path);
    let lab = guide_folder(&page);
    if traces {
        for trace in ["build.hither", "grep.hither"] {
            let ran = lab.run(&format!("hither record -q -o {trace} -- ./make"));
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        }
    }
    let blocks = examples(&page, "sh");
    assert!(!blocks.is_empty(), "{path} has no examples");
    for line in blocks.into_iter().flat_map(command_lines) {
        let line = line.replace("/usr/include", "include");
        let ran = lab.run(&format!("PATH=\"$PWD:$PATH\"\n{line}"));
        assert_eq!(ran.code, 0, "{path}: {line}\n{}", ran.stderr);
    }
}

#[test]
fn the_examples_of_the_readme_run() {
    run_examples("README.md", false);
}

#[test]
fn the_examples_about_installing_run() {
    run_examples("docs/install.md", false);
}

#[test]
fn the_examples_about_recording_run() {
    run_examples("docs/record.md", false);
}

#[test]
fn the_examples_about_simulating_run() {
    run_examples("docs/simulate.md", true);
}

#[test]
fn the_examples_about_advice_run() {
    run_examples("docs/advise.md", true);
}

#[test]
fn the_examples_about_running_run() {
    run_examples("docs/run.md", true);
}

#[test]
fn the_checks_call_the_commands_of_the_readme() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = document("README.md");
    let blocks = examples(&readme, "console").into_iter();
    let lines = blocks.flat_map(command_lines);
    let commands = lines.map(|line| words(line.split(" #").next().unwrap()));
    let commands: Vec<String> = commands.filter(|line| line.starts_with("cargo ")).collect();
    let [main_job, tests] = &commands[..] else {
        panic!("{commands:?}")
    };
    let checks = words(&document(".ci/run").replace("\\\n", " "));
    assert!(checks.contains(main_job), "{main_job}");
    assert!(checks.contains(tests), "{tests}");
    let contributing = words(&document("CONTRIBUTING.md"));
    assert!(contributing.contains(tests), "{tests}");
}

/// All documents.
fn all_documents() -> Vec<PathBuf> {
    let beside = [
        "README",
        "CONTRIBUTING",
        "CHANGELOG",
        "SECURITY",
        "lab/README",
    ];
    let mut found: Vec<PathBuf> = beside.map(|name| root().join(format!("{name}.md"))).into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The documents except the results, which show the command lines of older builds.
fn documents() -> Vec<PathBuf> {
    let mut documents = all_documents();
    let results = [root().join("docs/results.md"), root().join("docs/results")];
    documents.retain(|path| !results.iter().any(|results| path.starts_with(results)));
    documents
}

/// What is not in a block of code.
fn prose(document: &str) -> String {
    document.split("```").step_by(2).collect()
}

/// Everything in a document that looks like a command line: lines of `sh` and `console` blocks, and
/// code within the text.
fn named_command_lines(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for language in ["sh", "console"] {
        let blocks = examples(document, language).into_iter();
        found.extend(blocks.flat_map(command_lines));
    }
    let prose = prose(document);
    let code = prose.split('`').skip(1).step_by(2);
    found.extend(code.map(|span| span.replace('\n', " ")));
    found
}

/// The commands whose next word says what they do.
const WITH_ACTIONS: [&str; 2] = ["cache", "cluster"];

/// The subcommand and the long options of each `hither` in a command line; what follows ` -- ` is
/// another program's.
fn options(line: &str) -> Option<(String, Vec<String>)> {
    let (_, rest) = format!(" {line}")
        .split_once(" hither ")
        .map(|(before, rest)| (before.to_owned(), rest.to_owned()))?;
    let ends = ["|", ";", ">", "#", "--", "&&"];
    let mut words = rest
        .split_whitespace()
        .take_while(|word| !ends.contains(word));
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let mut command = words.next().filter(is_name)?.to_owned();
    if WITH_ACTIONS.contains(&&command[..]) {
        let action = words.next().filter(is_name)?;
        command = format!("{command} {action}");
    }
    let options = words.filter(|word| word.starts_with("--"));
    let name = |option: &str| {
        let end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
        option.split(end).next().unwrap().to_owned()
    };
    Some((command, options.map(name).collect()))
}

#[test]
fn every_option_that_a_document_names_exists() {
    let lab = Lab::new();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut named = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in named_command_lines(&text) {
            let Some((command, options)) = options(&line) else {
                continue;
            };
            let help = helps.entry(command.clone()).or_insert_with(|| {
                let ran = lab.run(&format!("hither {command} --help"));
                assert_eq!(ran.code, 0, "{}: {line}\n{}", path.display(), ran.stderr);
                ran.stdout().to_owned()
            });
            for option in options {
                named += 1;
                let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
                assert!(
                    words.into_iter().any(|word| word == option),
                    "{}: hither {command} has no {option}: {line}",
                    path.display()
                );
            }
        }
    }
    assert!(named > 100, "{named} options were found");
}

#[test]
fn every_source_file_that_a_document_names_exists() {
    let mut named = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for span in text.split('`').skip(1).step_by(2) {
            let file = span.strip_prefix("crates/").unwrap_or(span);
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            if file.starts_with("hither") && file.contains('/') && file.chars().all(plain) {
                named += 1;
                let exists = root().join("crates").join(file).exists();
                assert!(exists, "{}: {span} does not exist", path.display());
            }
        }
    }
    assert!(named > 20, "{named} files were found");
}

/// The name under which Markdown's readers find a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for path in all_documents() {
        let prose = prose(&std::fs::read_to_string(&path).unwrap());
        let links = prose.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let found = if heading.is_empty() {
                target.exists()
            } else {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                headings.any(|line| anchor(line) == heading)
            };
            if !found {
                broken.push((path.clone(), link.to_owned()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = document("docs/SUMMARY.md");
    let docs = root().join("docs");
    let mut pages = 0;
    for path in all_documents() {
        if let Ok(page) = path.strip_prefix(&docs) {
            let page = page.to_str().unwrap();
            if page != "SUMMARY.md" {
                pages += 1;
                assert!(
                    summary.contains(&format!("]({page})")),
                    "{page} is not in SUMMARY.md"
                );
            }
        }
    }
    assert!(pages > 10, "{pages} pages were found");
}

#[test]
fn options_are_found_in_command_lines() {
    let found = |line| options(line).unwrap();
    assert_eq!(
        found("hither sim a.hither --size 10% | head --lines 3").1,
        ["--size"]
    );
    let (command, names) = found("hither run --page-cache[=POLICY] --cache 1GiB -- ls --all");
    assert_eq!((command.as_str(), names.len()), ("run", 2));
    assert_eq!(names[0], "--page-cache");
    let (command, names) = found("hither cache warm --jobs 16 /mnt/data");
    assert_eq!(
        (command.as_str(), &names[..]),
        ("cache warm", &["--jobs".to_owned()][..])
    );
    assert_eq!(options("cargo test --workspace"), None);
}

#[test]
fn the_examples_run_and_every_column_is_described() {
    let Some(python) = std::env::var_os("HITHER_PYTHON") else {
        skip("HITHER_PYTHON is not set");
        return;
    };
    let python = python.to_str().unwrap();
    let lab = Lab::with_recording();
    std::fs::rename(lab.path("cat.hither"), lab.path("trace.hither")).unwrap();
    let document = document("docs/trace.md");
    let (sql, pandas) = (examples(&document, "sql"), examples(&document, "python"));
    assert!(!sql.is_empty() && !pandas.is_empty());

    let run = |script: &str| {
        lab.write("script.py", script);
        let ran = lab.run(&format!("{python} script.py"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{script}");
        ran.stdout().to_owned()
    };
    for query in sql {
        let said = run(&format!("import duckdb\nprint(duckdb.sql('''{query}'''))"));
        assert!(said.contains("/data"), "{query}: {said}");
    }
    for script in pandas {
        let said = run(script);
        assert!(said.contains("/data"), "{script}: {said}");
    }
    for line in run(COLUMNS).lines() {
        let (table, column) = line.split_once(' ').unwrap();
        let heading = format!("## `{table}.parquet`");
        let section = document.split(heading.as_str()).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        assert!(
            section.contains(&format!("\n| `{column}` |")),
            "{line} is not in the document"
        );
    }
    for file in [
        "accesses.parquet",
        "objects.parquet",
        "sites.parquet",
        "meta.json",
    ] {
        assert!(document.contains(&format!("\n| `{file}` |")), "{file}");
    }
    let meta = std::fs::read_to_string(lab.path("trace.hither/meta.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let more = meta["more"].as_object().unwrap().keys();
    for key in crate::keys(&meta)
        .into_iter()
        .chain(more.map(String::as_str))
    {
        assert!(document.contains(&format!("`{key}`")), "{key} of meta.json");
    }
}
