//! `hither record -- CMD` where the kernel reports beside the library.

use std::fs;
use std::path::Path;
use std::process::Command;

use hither_testing::memory_group::MemoryGroup;
use serde_json::Value;

use crate::observing::can_observe;
use crate::{PAGE, hither, stat};

/// Bytes of the file that is read.
const BYTES: u64 = 300 * PAGE + 100;

/// The last argument says how the file is read.
const READER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static char bytes[1 << 16];
static int data;

#ifdef GO
__asm__(".pushsection .note.go.buildid,\"a\",@note\n"
        ".long 4, 4, 4\n.ascii \"Go\\0\\0name\"\n.popsection");
#endif

/* No function of libc. */
static long call(long number, long a, long b, long c, long d) {
    register long last __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(last)
        : "rcx", "r11", "memory");
    return result;
}

static void *thread(void *unused) {
    off_t at = 0;
    for (long got; (got = pread(data, bytes, sizeof bytes, at)) > 0; at += got) {}
    return unused;
}

int main(int count, char **words) {
    const char *how = words[count - 1];
    data = open("data", O_RDONLY);
    if (!strcmp(how, "reads")) {
        while (read(data, bytes, sizeof bytes) > 0) {}
    } else if (!strcmp(how, "calls")) {
        off_t at = 0;
        for (long got; (got = call(17, data, (long)bytes, sizeof bytes, at)) > 0; at += got) {}
    } else if (!strcmp(how, "sends")) {
        int copy = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        while (sendfile(copy, data, 0, sizeof bytes) > 0) {}
    } else if (!strcmp(how, "threads")) {
        pthread_t others[4];
        for (int i = 0; i < 4; i++) pthread_create(others + i, 0, thread, 0);
        for (int i = 0; i < 4; i++) pthread_join(others[i], 0);
    } else if (!strcmp(how, "touches")) {
        struct stat about;
        fstat(data, &about);
        volatile char *all = mmap(0, about.st_size, PROT_READ, MAP_SHARED, data, 0);
        for (long at = 0; at < about.st_size; at += 4096) (void)all[at];
    }
    return 0;
}
"#;

fn build(folder: &Path, name: &str, flags: &[&str]) {
    fs::write(folder.join("reader.c"), READER).expect("written");
    let gcc = Command::new("gcc")
        .args(["-O1", "-o", name, "reader.c", "-pthread"])
        .args(flags)
        .current_dir(folder)
        .status();
    assert!(gcc.expect("gcc starts").success());
}

/// Bytes that were read of the file, by whomever, and by the kernel's events alone of any.
#[derive(Debug, PartialEq)]
struct Read {
    data: u64,
    alone: u64,
}

/// Records a command, and how it was seen.
fn recorded(folder: &Path, options: &[&str], command: &[&str]) -> (Read, Value) {
    let words = ["record", "-q", "--force", "-o", "t.hither"].iter();
    let words: Vec<&str> = words
        .chain(options)
        .chain(&["--"])
        .chain(command)
        .copied()
        .collect();
    let output = hither(folder, &words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    let document = stat(folder, "t.hither");
    let bytes = |value: &Value| value.as_u64().unwrap_or(0);
    let read = Read {
        data: bytes(&document["bytes"]["read"]),
        alone: bytes(&document["trace"]["coverage"]["kernel_alone_bytes"]),
    };
    (read, document)
}

#[test]
fn what_both_have_seen_counts_once_and_what_either_has_seen_is_there() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    build(folder, "dynamic", &[]);
    build(folder, "fixed", &["-static"]);
    build(folder, "go", &["-DGO"]);
    fs::write(folder.join("data"), vec![7; BYTES as usize]).expect("written");
    let pages = BYTES.next_multiple_of(PAGE);
    for (how, times) in [("reads", 1), ("sends", 1), ("threads", 4)] {
        let (library, _) = recorded(folder, &["--seen-by=library"], &["./dynamic", how]);
        let (both, _) = recorded(folder, &["--seen-by=both"], &["./dynamic", how]);
        let expected = Read {
            data: times * BYTES,
            alone: 0,
        };
        assert_eq!((&library, &both), (&expected, &expected), "{how}");
        let kernel = ["--seen-by=kernel", "--frames=0"];
        let (kernel, _) = recorded(folder, &kernel, &["./dynamic", how]);
        assert!(kernel.data >= times * pages, "{how}: {kernel:?}");
        // Without the library.
        let (fixed, _) = recorded(folder, &[], &["./fixed", how]);
        assert_eq!(fixed.data, times * pages, "{how}");
        assert_eq!(fixed.alone, times * pages, "{how}");
    }
    // Neither tells of these where the library is, and that is said.
    let (both, document) = recorded(folder, &[], &["./dynamic", "calls"]);
    assert_eq!((both.data, both.alone), (0, 0));
    let unseen = &document["trace"]["coverage"]["unseen_bytes"];
    assert!(unseen.as_u64() >= Some(BYTES), "{document}");
    // But the kernel does where the program says that it was made by Go, and then of all calls,
    // also those of the dynamic linker.
    for how in ["calls", "reads"] {
        let (both, _) = recorded(folder, &[], &["./go", how]);
        assert!(
            (pages..pages + 16 * PAGE).contains(&both.data),
            "{how}: {both:?}"
        );
        assert_eq!(both.alone, both.data, "{how}");
    }
    // Both use the file, which is one.
    let script = "./dynamic reads; ./fixed reads; ./dynamic threads";
    let (_, document) = recorded(folder, &[], &["sh", "-c", script]);
    let blocks = &document["stats"]["by_object"][0]["blocks"];
    assert_eq!(blocks.as_u64(), Some(pages / PAGE), "{document}");
    assert_eq!(document["stats"]["objects"], 1, "{document}");
    // One that is made anew, with the same number as a rule, is another one each time.
    let script = "for i in 1 2 3 4 5 6 7 8; do cat data > again; ./dynamic again; cat again; \
                  rm again; done > /dev/null";
    let words = ["sh", "-c", script];
    let (library, _) = recorded(folder, &["--seen-by=library"], &words);
    let (both, _) = recorded(folder, &[], &words);
    assert_eq!((both.data, both.alone), (library.data, 0));
}

/// Where a policy would gain, but only the kernel saw what was read.
#[test]
fn what_only_the_kernel_saw_is_no_advice_for_a_run() {
    if !can_observe() {
        return;
    }
    let Some(group) = MemoryGroup::new(96) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    build(folder, "dynamic", &[]);
    build(folder, "go", &["-DGO"]);
    fs::write(folder.join("data"), vec![7; 120 << 20]).expect("written");
    let advice = |program: &str| {
        let each = format!("./{program} reads;");
        let record = "exec \"$0\" record -q --force -o t.hither -- sh -c \"$1\"";
        let status = Command::new("sh")
            .args(["-c", &format!("{}; {record}", group.enter())])
            .args([env!("CARGO_BIN_EXE_hither"), &each.repeat(4)])
            .current_dir(folder)
            .status();
        assert!(status.expect("sh starts").success());
        let output = hither(folder, &["advise", "--json", "--save", "plan", "t.hither"]);
        assert!(output.status.success(), "{output:?}");
        let plan = fs::read_to_string(folder.join("plan")).expect("a plan");
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (document["advice"].clone(), plan.contains("\npage-cache = "))
    };
    let (by_library, has_plan) = advice("dynamic");
    assert!(has_plan, "{by_library}");
    let (by_kernel, has_plan) = advice("go");
    assert_eq!(by_kernel["change"], "policy", "{by_kernel}");
    let obstacle = by_kernel["obstacle"].as_str().unwrap_or_default();
    assert!(obstacle.contains("only the kernel saw"), "{by_kernel}");
    assert!(!has_plan, "{by_kernel}");
}

#[test]
fn first_touches_of_mapped_files_are_recorded() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    build(folder, "dynamic", &[]);
    fs::write(folder.join("data"), vec![7; BYTES as usize]).expect("written");
    let (_, document) = recorded(folder, &["--seen-by=library"], &["./dynamic", "touches"]);
    assert_eq!(document["stats"]["references"], 0);
    let (_, document) = recorded(folder, &[], &["./dynamic", "touches"]);
    let references = document["stats"]["references"].as_u64().unwrap_or(0);
    assert!((1..=BYTES / PAGE + 1).contains(&references), "{document}");
    // A program that uses no file has no references, whatever its loader does.
    let (_, document) = recorded(folder, &[], &["./dynamic", "nothing"]);
    assert_eq!(document["stats"]["references"], 0, "{document}");
}

#[test]
fn a_read_in_another_pid_namespace_counts_once() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    build(folder, "dynamic", &[]);
    fs::write(folder.join("data"), vec![7; BYTES as usize]).expect("written");
    let inside = ["unshare", "--pid", "--fork", "./dynamic"];
    let able = Command::new(inside[0])
        .args(["--pid", "--fork", "true"])
        .status();
    assert!(able.expect("unshare starts").success());
    for how in ["reads", "threads"] {
        let command: Vec<&str> = inside.iter().chain(&[how]).copied().collect();
        let (library, _) = recorded(folder, &["--seen-by=library"], &command);
        let (both, _) = recorded(folder, &[], &command);
        assert_eq!(both.data - both.alone, library.data, "{how}: {both:?}");
        assert!(both.alone < BYTES / 4, "{how}: {both:?}");
    }
}
