//! What the tests that run real programs share: the preload libraries, compiled programs, a recorder.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hither_live::SessionOptions;
use hither_live::observe::{RecordOptions, Recorder};

/// The recorder's library.
#[allow(dead_code)] // Each test binary has its own copy of this module, and not all need everything.
pub(crate) fn preload() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| build("interpose", "preload"))
        .clone()
}

/// The library that tells of regions of memory.
#[allow(dead_code)] // As above.
pub(crate) fn pages_preload() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| build("pages", "preload-pages"))
        .clone()
}

/// A preload library, built once a test run: in the folder where the command's build script puts it too, so that whoever
/// comes second finds it there.
fn build(feature: &str, folder: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(folder);
    let build = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--features", feature])
        .args(["--package", "hither-preload", "--manifest-path"])
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../hither-preload/Cargo.toml"
        ))
        .arg("--target-dir")
        .arg(&target)
        // Flags for the tests (a sanitizer's, coverage) are not for a library inside other people's programs.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status();
    assert!(
        build.expect("cargo starts").success(),
        "the preload library does not build"
    );
    target.join("release/libhither_preload.so")
}

/// A recorder of `command` into `t.hither` in `folder`.
#[allow(dead_code)] // As above.
pub(crate) fn recorder<S: Into<OsString> + Clone>(folder: &Path, command: &[S]) -> Recorder {
    Recorder::new(options(folder, command))
}

/// The options for [`recorder`].
#[allow(dead_code)] // As above.
pub(crate) fn options<S: Into<OsString> + Clone>(folder: &Path, command: &[S]) -> RecordOptions {
    RecordOptions {
        command: command.iter().cloned().map(Into::into).collect(),
        output: folder.join("t.hither"),
        force: false,
        preload: preload(),
        session: SessionOptions::default(),
    }
}

/// Compiles a C program in `folder`.
#[allow(dead_code)] // As above.
pub(crate) fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).expect("the source is written");
    let program = folder.join(name);
    let output = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .output()
        .expect("gcc starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// The names in a folder that begin with a dot or are the trace: what a failed recording must not leave.
#[allow(dead_code)] // As above.
pub(crate) fn leftovers(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is read");
    let names = entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    names
        .filter(|name| name.starts_with('.') || name.ends_with(".hither"))
        .collect()
}
