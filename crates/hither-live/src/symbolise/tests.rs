//! Programs compiled here, with and without debug information, and what is found about them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use object::{Object, ObjectSymbol};
use tempfile::TempDir;

use super::*;
use hither_testing::skip::skip;

const C: &str = "\
#include <stdlib.h>
static inline __attribute__((always_inline)) int wrapper(int n) {
    return abs(n) + rand();
}
__attribute__((noinline)) int reader(int n) {
    return wrapper(n) + 1;
}
__attribute__((noinline, noreturn)) void last(void) {
    abort();
}
int main(int argc, char **argv) {
    if (argc > 3) last();
    return reader(argc);
}
";

/// The line of `C` that ends with `text`.
fn line_of(source: &str, text: &str) -> u32 {
    source
        .lines()
        .position(|line| line.trim() == text)
        .map_or(0, |i| i as u32 + 1)
}

struct Built {
    folder: TempDir,
    module: Module,
}

fn run(program: &str, args: &[&str], folder: &Path) {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the tool starts");
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn build(compiler: &str, name: &str, source: &str, flags: &[&str]) -> Built {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join(name), source).expect("the source is written");
    run(
        compiler,
        &[&[name, "-o", "program"], flags].concat(),
        folder.path(),
    );
    let path = folder.path().join("program");
    let build_id = build_id(&path);
    Built {
        module: Module { path, build_id },
        folder,
    }
}

fn build_id(path: &Path) -> Vec<u8> {
    let data = fs::read(path).expect("the program is read");
    let file = object::File::parse(&*data).expect("an ELF file");
    file.build_id()
        .expect("notes parse")
        .unwrap_or_default()
        .to_vec()
}

/// Start and end of the function whose symbol contains `name`.
fn extent(path: &Path, name: &str) -> (u64, u64) {
    let data = fs::read(path).expect("the program is read");
    let file = object::File::parse(&*data).expect("an ELF file");
    let symbol = file
        .symbols()
        .find(|symbol| {
            symbol.kind() == object::SymbolKind::Text
                && symbol.name().is_ok_and(|n| n.contains(name))
        })
        .expect("the function has a symbol");
    (symbol.address(), symbol.address() + symbol.size())
}

fn now() -> SystemTime {
    // Times of files have whole seconds here; a program built in this second counts as older.
    SystemTime::now() + Duration::from_secs(1)
}

fn one(symboliser: &Symboliser, module: &Module, address: u64) -> SourceLocation {
    symboliser
        .locations(&[(module.clone(), vec![address])])
        .remove(0)
        .remove(0)
}

#[test]
fn of_the_runtime_only_the_function_is_looked_up() {
    let mut built = build("gcc", "a.c", C, &["-g", "-O1"]);
    let (start, _) = extent(&built.module.path, "reader");
    let asked = |module: &Module| one(&Symboliser::new(now()), module, start + 5);
    assert!(asked(&built.module).line.is_some());
    let libc = built.folder.path().join("libc.so.6");
    fs::rename(&built.module.path, &libc).expect("renamed");
    built.module.path = libc;
    let function = Some("reader".to_owned());
    let expected = SourceLocation {
        function,
        ..SourceLocation::default()
    };
    assert_eq!(asked(&built.module), expected);
}

#[test]
fn debug_information_gives_function_file_and_line() {
    let built = build("gcc", "a.c", C, &["-g", "-O1"]);
    // The call of `abort` is the last instruction: its return address already belongs to the next
    // function.
    let (_, end) = extent(&built.module.path, "last");
    let place = one(&Symboliser::new(now()), &built.module, end);
    assert_eq!(place.function.as_deref(), Some("last"));
    assert!(place.file.is_some_and(|file| file.ends_with("a.c")));
    assert_eq!(place.line, Some(line_of(C, "abort();")));
}

#[test]
fn inlined_calls_are_named_after_the_outermost_function() {
    let built = build("gcc", "a.c", C, &["-g", "-O1"]);
    let (start, end) = extent(&built.module.path, "reader");
    let symboliser = Symboliser::new(now());
    let body: Vec<u64> = (start + 1..=end).collect();
    let places = symboliser
        .locations(&[(built.module.clone(), body)])
        .remove(0);
    assert!(
        places
            .iter()
            .all(|place| place.function.as_deref() == Some("reader")),
        "{places:?}"
    );
    let call = line_of(C, "return wrapper(n) + 1;");
    assert!(places.iter().any(|place| place.line == Some(call)));
    let inside = line_of(C, "return abs(n) + rand();");
    assert!(!places.iter().any(|place| place.line == Some(inside)));
}

#[test]
fn symbols_alone_give_the_function() {
    let built = build("gcc", "a.c", C, &["-O1"]);
    let (_, end) = extent(&built.module.path, "last");
    let place = one(&Symboliser::new(now()), &built.module, end);
    assert_eq!(
        place,
        SourceLocation {
            function: Some("last".into()),
            file: None,
            line: None
        }
    );
}

#[test]
fn a_stripped_program_has_no_names() {
    let built = build("gcc", "a.c", C, &["-g"]);
    let (_, end) = extent(&built.module.path, "reader");
    run("strip", &["program"], built.folder.path());
    assert_eq!(
        one(&Symboliser::new(now()), &built.module, end),
        SourceLocation::default()
    );
}

#[test]
fn separate_debug_information_is_found_by_build_id_and_by_link() {
    let built = build("gcc", "a.c", C, &["-g", "-O1"]);
    let folder = built.folder.path();
    let (_, end) = extent(&built.module.path, "last");
    run(
        "objcopy",
        &["--only-keep-debug", "program", "program.debug"],
        folder,
    );
    run(
        "objcopy",
        &[
            "--strip-all",
            "--add-gnu-debuglink=program.debug",
            "program",
        ],
        folder,
    );
    let line = Some(line_of(C, "abort();"));

    let root = folder.join("root");
    let symboliser = Symboliser::new(now()).debug_root(&root);
    assert_eq!(
        one(&symboliser, &built.module, end).line,
        line,
        "beside the program"
    );

    let by_id = by_build_id_path(&root, &built.module.build_id);
    fs::create_dir_all(by_id.parent().expect("a folder")).expect("folders are made");
    fs::rename(folder.join("program.debug"), &by_id).expect("the file is moved");
    assert_eq!(
        one(&symboliser, &built.module, end).line,
        line,
        "by build-id"
    );

    // The program itself may be gone, as a build's temporary tools are.
    fs::remove_file(&built.module.path).expect("the program is removed");
    assert_eq!(
        one(&symboliser, &built.module, end).line,
        line,
        "by build-id, without the program"
    );

    let other = build("gcc", "b.c", &C.replace("+ 1", "+ 2"), &["-g", "-O1"]);
    run(
        "objcopy",
        &["--only-keep-debug", "program", "other.debug"],
        other.folder.path(),
    );
    fs::copy(other.folder.path().join("other.debug"), &by_id).expect("the file is replaced");
    assert_eq!(
        one(&symboliser, &built.module, end),
        SourceLocation::default(),
        "debug information of another program"
    );
}

#[test]
fn debug_information_comes_from_a_server_that_the_user_names() {
    let built = build("gcc", "a.c", C, &["-g", "-O1"]);
    let folder = built.folder.path();
    if Command::new("debuginfod-find")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip("debuginfod-find");
    }
    let (_, end) = extent(&built.module.path, "last");
    run(
        "objcopy",
        &["--only-keep-debug", "program", "program.debug"],
        folder,
    );
    run("objcopy", &["--strip-all", "program"], folder);
    let hex: String = built
        .module
        .build_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Its clients take the name of a folder, with the paths of the protocol, for a server.
    let served = folder.join("server/buildid").join(hex);
    fs::create_dir_all(&served).expect("folders are made");
    fs::rename(folder.join("program.debug"), served.join("debuginfo")).expect("a move");
    let symboliser = Symboliser::new(now()).debug_root(folder.join("root"));
    let server = format!("file://{}", folder.join("server").display());
    let asked = one(&symboliser.clone().servers(&server), &built.module, end);
    assert_eq!(asked.line, Some(line_of(C, "abort();")));
    let nothing = one(&symboliser.servers(""), &built.module, end);
    assert_eq!(nothing, SourceLocation::default());
}

fn by_build_id_path(root: &Path, build_id: &[u8]) -> PathBuf {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    root.join(".build-id")
        .join(&hex[..2])
        .join(format!("{}.debug", &hex[2..]))
}

#[test]
fn a_file_that_is_not_the_recorded_one_gives_no_names() {
    let mut built = build("gcc", "a.c", C, &["-g"]);
    let (_, end) = extent(&built.module.path, "reader");
    built.module.build_id[0] ^= 1;
    assert_eq!(
        one(&Symboliser::new(now()), &built.module, end),
        SourceLocation::default()
    );
}

#[test]
fn without_a_build_id_the_file_must_be_older_than_the_recording() {
    let built = build("gcc", "a.c", C, &["-g", "-O1", "-Wl,--build-id=none"]);
    assert!(built.module.build_id.is_empty());
    let (_, end) = extent(&built.module.path, "last");
    assert_eq!(
        one(&Symboliser::new(now()), &built.module, end)
            .function
            .as_deref(),
        Some("last")
    );
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    assert_eq!(
        one(&Symboliser::new(an_hour_ago), &built.module, end),
        SourceLocation::default()
    );
}

#[test]
fn names_of_cpp_are_demangled() {
    let source = "namespace shop { struct Till { __attribute__((noinline)) int count(int n) { \
        return n * 2; } }; }\n\
                  int main(int n, char **) { shop::Till till; return till.count(n); }\n";
    for flags in [&["-g"][..], &[]] {
        let built = build("g++", "a.cc", source, flags);
        let (_, end) = extent(&built.module.path, "count");
        let function = one(&Symboliser::new(now()), &built.module, end).function;
        assert_eq!(
            function.as_deref(),
            Some("shop::Till::count(int)"),
            "flags {flags:?}"
        );
    }
}

#[test]
fn names_of_rust_are_demangled() {
    if Command::new("rustc").arg("--version").output().is_err() {
        return skip("rustc");
    }
    let source = "mod shop { #[inline(never)] pub fn count(n: usize) -> usize { \
        std::hint::black_box(n) * 2 } }\n\
                  fn main() { std::process::exit(shop::count(std::env::args().count()) as i32) }\n";
    for flags in [&["-g", "--crate-name=till"][..], &["--crate-name=till"]] {
        let built = build("rustc", "a.rs", source, flags);
        let (_, end) = extent(&built.module.path, "shop5count");
        let function = one(&Symboliser::new(now()), &built.module, end).function;
        assert_eq!(
            function.as_deref(),
            Some("till::shop::count"),
            "flags {flags:?}"
        );
    }
}

#[test]
fn what_is_no_file_gives_no_names_and_keeps_the_order() {
    let built = build("gcc", "a.c", C, &["-g"]);
    let (_, end) = extent(&built.module.path, "reader");
    let text = built.folder.path().join("a.c");
    let odd = |path: &Path| {
        (
            Module {
                path: path.to_owned(),
                build_id: Vec::new(),
            },
            vec![1, 2],
        )
    };
    let questions = [
        odd(Path::new("[vdso]")),
        odd(&text),
        (built.module.clone(), vec![end, u64::MAX, 0]),
        odd(Path::new("/dev/zero")),
    ];
    let answers = Symboliser::new(now()).locations(&questions);
    assert_eq!(
        answers.iter().map(Vec::len).collect::<Vec<_>>(),
        [2, 2, 3, 2]
    );
    assert_eq!(answers[2][0].function.as_deref(), Some("reader"));
    let rest = answers
        .iter()
        .flatten()
        .filter(|place| place.function.is_none())
        .count();
    assert_eq!(rest, 8);
}

#[test]
fn names_of_c_are_no_types_of_cpp() {
    assert_eq!(demangle("f"), "f");
    assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
    assert_eq!(demangle("_Z1fi"), "f(int)");
}
