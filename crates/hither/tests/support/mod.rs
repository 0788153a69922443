//! What tests share that run C programs under the command.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder on the disk that the sources are on, with a program in it, `tests/NAME.c`: a temporary
/// folder may be on a file system that is left alone.
pub(crate) fn folder(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    let gcc = Command::new("gcc")
        .args(["-O1", "-pthread", "-o", "program"])
        .arg(source.with_extension("c"))
        .current_dir(folder.path())
        .status();
    assert!(gcc.expect("gcc starts").success());
    folder
}

/// `hither run` in a folder, with what it keeps there.
pub(crate) fn hither(folder: &Path, options: &[&str]) -> Command {
    let mut hither = Command::new(env!("CARGO_BIN_EXE_hither"));
    hither
        .arg("run")
        .args(options)
        .args(["--json", "--"])
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_CACHE_HOME", folder);
    hither
}

/// What came of a run: the last line on stderr.
pub(crate) fn figures(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("no figures: {said}"))
}
