//! Builds the two preload libraries, `record`'s and `run`'s, and hands their paths to the command,
//! which embeds them. Compresses the debug information of a release build, and tells it its commit.
//!
//! Two are needed: a hook is an exported symbol, and the library of `record` must not export
//! `malloc`. Cargo cannot yet depend on another package's `cdylib` (artifact dependencies are
//! unstable), and linking the library's `rlib` would make the command hook itself. So this script
//! runs cargo once more.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "commit.rs"]
mod commit;
#[path = "../hither-preload/libraries.rs"]
mod libraries;

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let crates = manifest.parent().expect("the command lies in crates/");
    for sources in [
        "hither-preload/src",
        "hither-preload/libraries",
        "hither-ids/src",
        "hither-ids/Cargo.toml",
        "hither-kernel/src",
        "hither-kernel/Cargo.toml",
        "hither-references/src",
        "hither-references/Cargo.toml",
        "hither-session/src",
        "hither-session/Cargo.toml",
    ] {
        println!("cargo:rerun-if-changed={}", crates.join(sources).display());
    }

    println!("cargo:rustc-env=HITHER_BUILD={}", build(crates));

    // The line tables, which stay in the binary where debug information is split off.
    if variable("PROFILE") == "release" {
        println!("cargo:rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }

    println!("cargo:rustc-check-cfg=cfg(has_library)");
    let out = PathBuf::from(variable("OUT_DIR"));
    let built = if has_library() {
        println!("cargo:rustc-cfg=has_library");
        let package = crates.join("hither-preload");
        libraries::build(variable("CARGO"), &package, &shared_target(&out))
    } else {
        let none = out.join("none.so");
        fs::write(&none, "").expect("OUT_DIR can be written");
        libraries::Libraries {
            record: none.clone(),
            pages: none,
        }
    };
    embed(&built.record, "HITHER_PRELOAD_LIBRARY");
    embed(&built.pages, "HITHER_PAGES_LIBRARY");
}

/// Whether there is a library for the processor that the command is built for: for others its
/// sources are empty (`hither-preload/src/lib.rs`). It is built for the machine that builds.
fn has_library() -> bool {
    let of_target = variable("CARGO_CFG_TARGET_ARCH") == "x86_64";
    let host = variable("HOST");
    let of_host = host.to_string_lossy().starts_with("x86_64");
    assert!(of_host || !of_target, "for x86-64, build on x86-64");
    of_target
}

/// What `--version` says of the build. `HITHER_COMMIT` says it in place of git. A debug build is
/// not made anew at each commit, so it names none.
fn build(crates: &Path) -> String {
    for variable in ["HITHER_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed=commit.rs");
    println!("cargo:rerun-if-changed=build.rs");
    if variable("PROFILE") != "release" {
        return "debug build".to_owned();
    }
    if let Ok(commit) = env::var("HITHER_COMMIT") {
        return commit;
    }
    let root = crates.parent().expect("crates/ lies in the workspace");
    if let Some(path) = commit::changes_with_commits(root) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    commit::describe(root, env::var("SOURCE_DATE_EPOCH").ok().as_deref())
}

/// Hands the path of a library to the command, and what tells its version from others.
fn embed(library: &Path, variable: &str) {
    let content =
        fs::read(library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    println!("cargo:rustc-env={variable}={}", library.display());
    println!(
        "cargo:rustc-env={variable}_FINGERPRINT={:016x}",
        fingerprint(&content)
    );
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}

/// FNV-1a: tells versions apart.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The workspace's target folder: `OUT_DIR` is `TARGET/PROFILE/build/PACKAGE-HASH/out`, so all
/// profiles share it.
fn shared_target(out: &Path) -> PathBuf {
    out.ancestors().nth(4).unwrap_or(out).to_path_buf()
}
