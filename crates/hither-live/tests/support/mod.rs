//! What the tests that run real programs share: the preload libraries, compiled programs, a
//! recorder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use hither_kernel::file_id::FileId;
use hither_kernel::page_cache::{CachedFile, PageCache, ThisPageCache};
use hither_kernel::syscalls;
use hither_live::observe::{RecordOptions, Recorder, TraceOptions};
use hither_live::{Beside, SessionOptions};

use libraries::Libraries;

#[path = "../../../hither-preload/libraries.rs"]
mod libraries;

/// The recorder's library.
// Each test binary has its own copy of this module, and not all need everything.
#[allow(dead_code)]
pub(crate) fn preload() -> PathBuf {
    libraries().record.clone()
}

/// The library that tells of regions of memory.
#[allow(dead_code)] // As above.
pub(crate) fn pages_preload() -> PathBuf {
    libraries().pages.clone()
}

/// The preload libraries, built once a test run.
fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../hither-preload");
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = scratch.parent().expect("target/tmp has a parent");
        libraries::build(libraries::cargo(), Path::new(package), target)
    })
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
        preload: Some(preload()),
        beside: Beside::No,
        session: SessionOptions::default(),
        trace: trace(folder.join("t.hither")),
    }
}

/// The options of a trace.
#[allow(dead_code)] // As above.
pub(crate) fn trace(output: PathBuf) -> TraceOptions {
    TraceOptions {
        output,
        force: false,
        mapped: false,
        arguments: true,
        hash_names: false,
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

/// The names in a folder that begin with a dot or are the trace: what a failed recording must not
/// leave.
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

/// Reads a file from its start to its end, so many times, and prints a sum of what it finds.
#[allow(dead_code)] // As above.
pub(crate) const LOOP: &str = "\
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    static unsigned char buffer[65536];
    unsigned long sum = 0;
    int file = open(words[1], O_RDONLY);
    for (int pass = 0; pass < atoi(words[2]); pass++) {
        off_t offset = 0;
        for (ssize_t got; (got = pread(file, buffer, sizeof buffer, offset)) > 0; offset += got)
        {
            for (ssize_t byte = 0; byte < got; byte += 509) sum = sum * 31 + buffer[byte];
            if (count > 3) usleep(atoi(words[3]));
        }
    }
    printf(\"%lu\\n\", sum);
    return 7;
}
";

/// Reads a file through a mapping, from its start to its end, so many times, and prints a sum. With
/// a third word it pauses after each 64 KiB.
#[allow(dead_code)] // As above.
pub(crate) const MAPPED_LOOP: &str = "\
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **words) {
    int file = open(words[1], O_RDONLY);
    struct stat about;
    fstat(file, &about);
    volatile unsigned char *data = mmap(0, about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) return 1;
    unsigned long sum = 0;
    for (int pass = 0; pass < atoi(words[2]); pass++)
        for (off_t at = 0; at < about.st_size; at += 509) {
            sum = sum * 31 + data[at];
            if (count > 3 && at % 65536 < 509) usleep(atoi(words[3]));
        }
    printf(\"%lu\\n\", sum);
    return 7;
}
";

#[allow(dead_code)] // As above.
fn id_of(path: &Path) -> FileId {
    let file = File::open(path).expect("opened");
    let status = syscalls::status(file.as_raw_fd()).expect("a status");
    status.id
}

/// A file, to ask what of it is cached.
#[allow(dead_code)] // As above.
pub(crate) fn seen(path: &Path) -> Box<dyn CachedFile> {
    ThisPageCache.open(path, id_of(path)).expect("the file")
}

/// A file of that size, on the disk and not in the page cache.
#[allow(dead_code)] // As above.
pub(crate) fn uncached(path: &Path, mib: u64) -> PathBuf {
    const MIB: u64 = 1 << 20;
    let mut file = File::create(path).expect("made");
    for number in 0..mib {
        let block: Vec<u8> = (0..MIB).map(|byte| (byte * 7 + number) as u8).collect();
        file.write_all(&block).expect("written");
    }
    file.sync_all().expect("written back");
    seen(path).drop_pages(0, mib * MIB).expect("dropped");
    path.to_owned()
}
