//! Builds the two preload libraries, `record`'s and `run`'s, and hands their paths to the command,
//! which embeds them.
//!
//! Cargo cannot yet depend on another package's `cdylib` (artifact dependencies are unstable), and
//! linking the library's `rlib` would make the command hook itself. So this script runs cargo once
//! more for that one package, in a target folder of its own (a shared one would deadlock on cargo's
//! lock), and always optimised: the hooks run inside other people's programs, also when the command
//! is a debug build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let crates = manifest.parent().expect("the command lies in crates/");
    for sources in [
        "hither-preload/src",
        "hither-preload/Cargo.toml",
        "hither-sys/src",
        "hither-sys/Cargo.toml",
    ] {
        println!("cargo:rerun-if-changed={}", crates.join(sources).display());
    }

    // Cargo gives a library one name whatever its features, so each has a target folder.
    build(crates, "interpose", "preload", "HITHER_PRELOAD_LIBRARY");
    build(crates, "pages", "preload-pages", "HITHER_PAGES_LIBRARY");
}

/// Builds the library with one feature into `folder` and sets `variable` to its path.
fn build(crates: &Path, feature: &str, folder: &str, variable: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let target_dir = shared_target(&out).join(folder);
    let cargo = env::var_os("CARGO").expect("cargo sets CARGO");
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--locked",
            "--features",
            feature,
            "--package",
            "hither-preload",
        ])
        .arg("--manifest-path")
        .arg(crates.join("hither-preload/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        // The command reads it whole at each start, to be sure that it is what it laid down: 6 MB
        // with line tables, 0.7 without.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // What the outer cargo passes on to build scripts would otherwise apply to the inner build:
        // clippy's wrapper, sanitizer flags, another target.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "building hither-preload failed");

    let library = target_dir.join("release/libhither_preload.so");
    let content =
        fs::read(&library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    println!("cargo:rustc-env={variable}={}", library.display());
    println!(
        "cargo:rustc-env={variable}_FINGERPRINT={:016x}",
        fingerprint(&content)
    );
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
