//! Builds the two preload libraries. The command's build script, the tests and the benches include
//! this file, so that all run cargo in the same way and in the same folder: what one of them built,
//! the others find.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The paths of the libraries.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    /// The one of `hither record`.
    #[allow(dead_code, reason = "not all who include this file use both")]
    pub(crate) record: PathBuf,
    /// The one of `hither run`, which hooks malloc as well.
    #[allow(dead_code, reason = "not all who include this file use both")]
    pub(crate) pages: PathBuf,
}

/// The cargo that runs a test, or built it if it runs alone.
#[allow(dead_code, reason = "a build script has its own")]
pub(crate) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into())
}

/// Builds the libraries, always optimised: the hooks run inside other people's programs. `package`
/// is the folder of `hither-preload`. `target` is the target folder of the outer cargo, whose lock
/// that cargo holds, so this one has a folder of its own in it.
pub(crate) fn build(
    cargo: impl AsRef<std::ffi::OsStr>,
    package: &Path,
    target: &Path,
) -> Libraries {
    let folder = target.join("preload");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--package", "hither-preload-record"])
        .args(["--package", "hither-preload-pages"])
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(package)
        // The command reads them whole at each start, to be sure that they are what it laid down:
        // 6 MB with line tables, 0.7 without.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // What the outer cargo passes on would otherwise apply to the inner build: clippy's
        // wrapper, sanitizer flags, coverage, another target.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env_remove("CARGO_BUILD_TARGET");
    // But packages map the paths of their build to fixed ones, in these libraries, too.
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let flags = flags.split('\x1f');
    let maps: Vec<&str> = flags
        .filter(|flag| flag.starts_with("--remap-path-prefix="))
        .collect();
    if !maps.is_empty() {
        command.env("CARGO_ENCODED_RUSTFLAGS", maps.join("\x1f"));
    }
    let status = command.status().expect("cargo starts");
    assert!(status.success(), "the preload libraries do not build");
    let library = |name: &str| folder.join(format!("release/libhither_preload_{name}.so"));
    Libraries {
        record: library("record"),
        pages: library("pages"),
    }
}
