//! Links the unwinder into the library, as `gcc -static-libgcc` does. Otherwise each program that
//! has no use for `libgcc_s.so.1` would load it too, which was more than half of what loading the
//! library cost: 168 us with it, 75 without, where fork, exec and exit of `/bin/true` take 510
//! (2026-11, a virtual machine: its constructor asks the processor, which exits to the hypervisor).
//!
//! The library keeps its unwinder to itself: it exports no name of it. Programs that throw, and
//! glibc that cancels a thread, use their own, which finds our frames by their tables. Where the
//! compiler has no such archive, the shared library is used.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A driver that does not know the file prints its bare name.
    let found = Command::new("cc")
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let Ok(output) = found else { return };
    let path = String::from_utf8_lossy(&output.stdout);
    let archive = Path::new(path.trim());
    if let Some(folder) = archive.parent().filter(|_| archive.is_absolute()) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
}
