//! Links gcc's unwinder into the library, where gcc has it as an archive.
//!
//! Rust's standard library would otherwise have the dynamic linker load `libgcc_s.so.1` into every
//! recorded program: some 60 us at each start, which a build with thousands of short processes pays
//! thousands of times. Our copy stays ours: a `cdylib` exports nothing but its own symbols.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_INTERPOSE").is_none() {
        return;
    }
    let output = Command::new("gcc")
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let archive = output
        .ok()
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    if let Some(folder) = archive
        .filter(|archive| archive.is_absolute())
        .as_deref()
        .and_then(|archive| archive.parent())
    {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}
