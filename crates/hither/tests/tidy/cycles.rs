//! Import circles: groups of modules of one crate that can all reach each other by their imports.
//!
//! A module here is a source file. It imports another one where its code names it: by `crate::`,
//! `super::` or `self::`, in a `use` or in an expression, or by the name of a child module. A
//! declaration (`mod x;`) alone imports nothing. Test code may import what it likes.
//!
//! Paths are found by a tokenizer, not by the compiler: macros are read as they are written, and a
//! re-export counts as an import of the file that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn modules_do_not_import_each_other_in_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let beside = ["lab", "experiments/cluster/mesh"];
    let mut packages: Vec<PathBuf> = beside.map(|package| crates.with_file_name(package)).into();
    packages.extend(
        fs::read_dir(crates)
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    for package in packages {
        let sources = package.join("src");
        if sources.is_dir() {
            let circles = import_circles(&sources);
            assert!(
                circles.is_empty(),
                "{}:\n{}",
                sources.display(),
                circles.join("\n")
            );
        }
    }
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\nmod b;\nmod c;\n");
    write("a.rs", "use crate::{b::{self, Thing}, c};\n");
    write(
        "b/mod.rs",
        "mod inner;\n// use crate::a;\nconst TEXT: &str = \"crate::a\";\n\
         #[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
    );
    write("b/inner.rs", "fn f() { super::super::c::g(); }\n");
    write("c.rs", "pub fn g() {}\n");
    assert_eq!(import_circles(folder.path()), Vec::<String>::new());
    write(
        "c.rs",
        "mod live {\n    pub fn g() { super::super::a::f(); }\n}\n",
    );
    let circles = import_circles(folder.path());
    let [circle] = &circles[..] else {
        panic!("one circle: {circles:?}");
    };
    assert!(circle.starts_with("a, c\n"), "{circle}");
    assert!(circle.contains("a.rs:1 imports c"), "{circle}");
    assert!(circle.contains("c.rs:2 imports a"), "{circle}");
}

/// The import circles of the crate whose sources are in `folder`: the modules of each, and the
/// lines by which they import each other.
pub(crate) fn import_circles(folder: &Path) -> Vec<String> {
    let modules = modules(folder);
    let names: BTreeSet<&str> = modules.keys().map(String::as_str).collect();
    let mut edges: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for (name, file) in &modules {
        let mut found = BTreeMap::new();
        for (path, line) in imported_paths(name, &fs::read_to_string(file).unwrap(), &names) {
            if let Some(target) = longest_module(&path, &names).filter(|target| target != name) {
                found.entry(target.to_owned()).or_insert(line);
            }
        }
        edges.insert(name, found);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|&from| (from, reachable(from, &edges)))
        .collect();
    let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (&from, reached_from) in &reached {
        let mutual = reached_from.iter().copied();
        let circle: Vec<&str> = mutual.filter(|to| reached[to].contains(from)).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let describe = |circle: Vec<&str>| {
        let mut text = circle.join(", ") + "\n";
        for &from in &circle {
            let file = modules[from].strip_prefix(folder).unwrap().display();
            for (to, line) in &edges[from] {
                if circle.contains(&to.as_str()) {
                    writeln!(text, "    {file}:{line} imports {to}").unwrap();
                }
            }
        }
        text
    };
    circles.into_iter().map(describe).collect()
}

fn reachable<'a>(
    from: &'a str,
    edges: &'a BTreeMap<&str, BTreeMap<String, usize>>,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for to in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    reached
}

/// The source files below `folder` that are not test code, by the paths of their modules: "" for
/// the crate itself, `a::b` for `a/b.rs` and `a/b/mod.rs`.
fn modules(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let relative = path.strip_prefix(folder).unwrap().with_extension("");
        let mut segments: Vec<_> = relative
            .iter()
            .map(|segment| segment.to_str().unwrap().trim_start_matches("r#"))
            .collect();
        if segments.contains(&"tests") {
            continue;
        }
        if matches!(segments.last(), Some(&("mod" | "lib" | "main"))) {
            segments.pop();
        }
        found.insert(segments.join("::"), path);
    }
    found
}

/// The module that a path leads to, or lies in.
fn longest_module<'a>(path: &[String], names: &BTreeSet<&'a str>) -> Option<&'a str> {
    let prefixes = (0..=path.len())
        .rev()
        .map(|length| path[..length].join("::"));
    let mut known = prefixes.filter_map(|prefix| names.get(prefix.as_str()).copied());
    known.next()
}

/// The absolute paths that the code of a module names, with their lines.
fn imported_paths(module: &str, text: &str, names: &BTreeSet<&str>) -> Vec<(Vec<String>, usize)> {
    let tokens = tokens(text);
    let word = |at: usize| tokens.get(at).map_or("", |(word, _)| word.as_str());
    let mut found = Vec::new();
    // Inline modules around the token, each with the depth of its braces.
    let mut inline: Vec<(String, usize)> = Vec::new();
    let (mut depth, mut at) = (0, 0);
    while at < tokens.len() {
        if is_test_attribute(&tokens, at) {
            at = after_item(&tokens, at);
            continue;
        }
        match word(at) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inline.pop_if(|(_, outer)| *outer == depth);
            }
            "mod" if word(at + 2) == "{" => inline.push((word(at + 1).to_owned(), depth)),
            _ => {}
        }
        let here = || {
            let outer = module.split("::").filter(|segment| !segment.is_empty());
            let outer = outer.map(str::to_owned);
            let inner = inline.iter().map(|(name, _)| name.clone());
            outer.chain(inner).collect::<Vec<_>>()
        };
        let is_start = word(at + 1) == "::" && (at == 0 || word(at - 1) != "::");
        let base = match word(at) {
            "crate" if is_start => Some(Vec::new()),
            "self" | "super" if is_start => Some(here()),
            name if is_start => {
                let child = [module, name].join("::");
                let child = child.trim_start_matches("::");
                let is_child = inline.is_empty() && names.contains(child);
                is_child.then(here)
            }
            _ => None,
        };
        if let Some(base) = base {
            let line = tokens[at].1;
            path_tree(&tokens, at, base, &mut |path| found.push((path, line)));
        }
        at += 1;
    }
    found
}

/// Passes each path of a tree such as `crate::{a, b::{self, C}}` to `sink`. Returns the token after
/// it.
fn path_tree(
    tokens: &[(String, usize)],
    mut at: usize,
    mut base: Vec<String>,
    sink: &mut impl FnMut(Vec<String>),
) -> usize {
    let word = |at: usize| tokens.get(at).map_or("", |(word, _)| word.as_str());
    loop {
        match word(at) {
            "{" => {
                at += 1;
                while !matches!(word(at), "}" | "") {
                    at = path_tree(tokens, at, base.clone(), sink);
                    if word(at) == "as" {
                        at += 2;
                    }
                    if word(at) == "," {
                        at += 1;
                    } else if word(at) != "}" {
                        return at;
                    }
                }
                return at + 1;
            }
            "crate" | "self" | "*" => {}
            "super" => {
                base.pop();
            }
            name => base.push(name.to_owned()),
        }
        at += 1;
        if word(at) != "::" {
            sink(base);
            return at;
        }
        at += 1;
    }
}

/// Whether `#[cfg(test)]` or `#[test]` begins here.
fn is_test_attribute(tokens: &[(String, usize)], at: usize) -> bool {
    let begins = |expected: &[&str]| {
        let here = tokens[at..].iter().map(|(word, _)| word.as_str());
        here.take(expected.len()).eq(expected.iter().copied())
    };
    begins(&["#", "[", "cfg", "(", "test", ")", "]"]) || begins(&["#", "[", "test", "]"])
}

/// The token after the item that begins here.
fn after_item(tokens: &[(String, usize)], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some((word, _)) = tokens.get(at) {
        at += 1;
        match word.as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

/// Words, `::` and single characters, with their lines; no comments, strings or lifetimes.
fn tokens(text: &str) -> Vec<(String, usize)> {
    let characters: Vec<char> = text.chars().collect();
    let get = |at: usize| characters.get(at).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < characters.len() {
        let start = at;
        match get(at) {
            '/' if get(at + 1) == '/' => {
                while at < characters.len() && get(at) != '\n' {
                    at += 1;
                }
            }
            '"' => {
                at += 1;
                while at < characters.len() && get(at) != '"' {
                    at += if get(at) == '\\' { 2 } else { 1 };
                }
                at += 1;
            }
            'r' if get(at + 1) == '#' && get(at + 2) == '"' => {
                at += 3;
                while at < characters.len() && !(get(at) == '"' && get(at + 1) == '#') {
                    at += 1;
                }
                at += 2;
            }
            '\'' if get(at + 1) == '\\' => {
                at += 3;
                while at < characters.len() && get(at) != '\'' {
                    at += 1;
                }
                at += 1;
            }
            '\'' if get(at + 2) == '\'' => at += 3,
            ':' if get(at + 1) == ':' => {
                found.push(("::".to_owned(), line));
                at += 2;
            }
            c if is_word(c) => {
                while is_word(get(at)) {
                    at += 1;
                }
                found.push((characters[start..at].iter().collect(), line));
            }
            c => {
                if !c.is_whitespace() && c != '\'' {
                    found.push((c.to_string(), line));
                }
                at += 1;
            }
        }
        let end = at.min(characters.len());
        line += characters[start..end]
            .iter()
            .filter(|&&c| c == '\n')
            .count();
    }
    found
}
