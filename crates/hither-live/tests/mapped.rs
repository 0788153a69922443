//! Touches of mapped files (`record --mapped`), against what the same program reads by calls.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hither_ids::Pid;
use hither_kernel::address_spaces::AddressSpaces;
use hither_kernel::page_unmapping::UnmappableProcess;
use hither_live::observe::{Recorded, Recorder};
use hither_testing::skip::skip_on_this_machine;
use hither_trace::{LoadOptions, Trace};
use support::{compile, options, uncached};

/// Touches the pages of a file in order, or mostly those of a hot set, through a mapping or by
/// `pread`, and pauses after each 32. Words: order, way, file, MiB, touches, pause in us.
const TOUCHES: &str = "\
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned long state = 88172645463325252UL;
static unsigned long next(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
int main(int count, char **words) {
    int file = open(words[3], O_RDONLY);
    unsigned long pages = atol(words[4]) << 8, touches = atol(words[5]), hot = pages / 8;
    volatile unsigned char *data = 0;
    if (*words[2] == 'm') data = mmap(0, pages << 12, PROT_READ, MAP_SHARED, file, 0);
    for (unsigned long touch = 0; touch < touches; touch++) {
        unsigned long page = touch % pages;
        if (*words[1] == 'h') {
            page = next() % 10 < 9 ? next() % hot * 2654435761UL % pages : next() % pages;
        }
        unsigned char expected = page * 4096 * 7 + (page >> 8), byte;
        if (data) byte = data[page << 12];
        else if (pread(file, &byte, 1, page << 12) != 1) return 1;
        if (byte != expected) return 2;
        if (touch % 32 == 31) usleep(atoi(words[6]));
    }
    return 0;
}
";

/// Whether this machine lets repeated touches be seen.
fn may_unmap() -> bool {
    if let Err(reason) = AddressSpaces::open() {
        skip_on_this_machine(reason);
        return false;
    }
    match UnmappableProcess::open(Pid(std::process::id())) {
        Ok(_) => true,
        Err(reason) => {
            skip_on_this_machine(reason);
            false
        }
    }
}

/// A folder on a disk: a file in memory has no page cache of its own.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

fn record<S: Into<std::ffi::OsString> + Clone>(
    folder: &Path,
    command: &[S],
    mapped: bool,
) -> Recorded {
    let mut options = options(folder, command);
    options.trace.mapped = mapped;
    options.trace.output = folder.join(if mapped { "mapped" } else { "read" });
    let recorded = Recorder::new(options).run().expect("recorded");
    assert_eq!(recorded.exit.code(), Some(0), "another byte");
    recorded
}

fn trace(recorded: &Recorded) -> Trace {
    Trace::load(&recorded.trace, None, &LoadOptions::default()).expect("a trace")
}

/// The misses of `lru` with so many blocks.
fn misses(stream: &[u32], blocks: usize) -> usize {
    let (mut used, mut by_time, mut misses) = (BTreeMap::new(), BTreeMap::new(), 0);
    for (time, &block) in stream.iter().enumerate() {
        match used.insert(block, time) {
            Some(last) => {
                by_time.remove(&last);
            }
            None => misses += 1,
        }
        by_time.insert(time, block);
        if by_time.len() > blocks
            && let Some((_, oldest)) = by_time.pop_first()
        {
            used.remove(&oldest);
        }
    }
    misses
}

/// The program's misses by its mapped touches and by its reads, with caches of these numbers of
/// blocks. `None` where this user may not have pages of other processes unmapped, which is said.
fn both(
    order: &str,
    mib: u64,
    touches: u64,
    pause_us: u64,
    sizes: &[usize],
) -> Option<Vec<[usize; 2]>> {
    let folder = folder();
    let program = compile(folder.path(), "touches", TOUCHES, &["-O1"]);
    let data = uncached(&folder.path().join("data"), mib);
    let words = |way: &str| {
        let [mib, touches, pause] = [mib, touches, pause_us].map(|number| number.to_string());
        let words = [
            order,
            way,
            data.to_str().expect("a name"),
            &mib,
            &touches,
            &pause,
        ];
        let words = words.map(str::to_owned).to_vec();
        [vec![program.to_str().expect("a name").to_owned()], words].concat()
    };
    let mapped = record(folder.path(), &words("map"), true);
    let touches = mapped.seen.touches.expect("recorded");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if let (false, Some(reason)) = (is_root, mapped.touches_refused) {
        skip_on_this_machine(reason);
        return None;
    }
    let missing = (touches.first_only_files, touches.unseen_files);
    assert_eq!((missing, touches.lost_faults), ((0, 0), 0));
    assert_eq!(mapped.touches_refused, None);
    let read = record(folder.path(), &words("read"), false);
    assert_eq!(read.seen.touches, None);
    let streams = [&mapped, &read].map(|of| trace(of).block_stream().expect("references"));
    let of = |&blocks: &usize| streams.each_ref().map(|stream| misses(stream, blocks));
    Some(sizes.iter().map(of).collect())
}

/// How often a test is done again that depends on how soon the recorder looks.
const ATTEMPTS: usize = 3;

/// Whether a count is within a share of the true one.
fn is_near(counts: [usize; 2], share: f64) -> bool {
    let [mapped, read] = counts.map(|count| count as f64);
    (mapped - read).abs() <= share * read
}

#[test]
fn a_loop_has_the_misses_of_its_reads() {
    if !may_unmap() {
        return;
    }
    // Passes of 0.5 s: several intervals. On a busy machine an interval may take as long as a pass.
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let Some(counted) = both("loop", 8, 4 * 2048, 8000, &[256, 1024, 2047, 2048]) else {
            return;
        };
        let loops = counted[..3].iter().all(|&counts| is_near(counts, 0.15));
        // All of it fits: each block is missed once.
        if loops && is_near(counted[3], 0.01) {
            return;
        }
        seen.push(counted);
    }
    panic!("{seen:?}");
}

#[test]
fn a_hot_set_has_the_misses_of_its_reads() {
    if !may_unmap() {
        return;
    }
    // 32 touches in 4 ms: 800 in an interval, fewer than the smallest cache holds. The hot set has
    // 1,024 pages, of which 64 are watched.
    let Some(counted) = both("hot", 32, 24_000, 4000, &[2048, 4096, 8192]) else {
        return;
    };
    for &counts in &counted {
        assert!(is_near(counts, 0.25), "{counted:?}");
    }
}

/// Processes and threads that touch a file once each: a child, a thread, and the program that
/// replaces the child.
const FAMILY: &str = "\
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile unsigned char *data;
static void *pass(void *unused) {
    for (long at = 0; at < 4 << 20; at += 4096)
        if (data[at] != (unsigned char)(at * 7 + (at >> 20))) _exit(2);
    return unused;
}
__attribute__((noinline)) volatile unsigned char *map(char *name) {
    return mmap(0, 4 << 20, PROT_READ, MAP_PRIVATE, open(name, O_RDONLY), 0);
}
int main(int count, char **words) {
    data = map(words[1]);
    if (count > 2) { pass(0); return 0; }
    int status;
    if (!fork()) {
        pass(0);
        execl(words[0], words[0], words[1], \"again\", (char *)0);
        return 3;
    }
    wait(&status);
    if (status) return 1;
    pthread_t thread;
    pthread_create(&thread, 0, pass, 0);
    return pthread_join(thread, 0);
}
";

#[test]
fn each_process_and_thread_has_its_touches() {
    if let Err(reason) = AddressSpaces::open() {
        return skip_on_this_machine(reason);
    }
    let folder = folder();
    let program = compile(folder.path(), "family", FAMILY, &["-O1", "-g", "-pthread"]);
    let data = uncached(&folder.path().join("data"), 4);
    let recorded = record(folder.path(), &[&program, &data], true);
    let trace = trace(&recorded);
    // Three passes; a run's first fault may count with its second alone.
    let references = trace.references();
    assert!((3 * 1024..3 * 1100).contains(&references), "{references}");
    let touches: Vec<(u32, u64)> = (0..)
        .zip(trace.sites())
        .map(|(site, _)| (site, trace.site_counts()[site as usize].faults))
        .filter(|&(_, faults)| faults > 0)
        .collect();
    // By the call sites that mapped the file: one line of one function in two programs.
    assert_eq!(touches.len(), 1, "{touches:?}");
    let site = &trace.sites()[touches[0].0 as usize];
    assert_eq!(site.function.as_deref(), Some("map"));
    let threads = trace.meta().threads.iter().map(|row| row.tid);
    let threads: std::collections::BTreeSet<u32> = threads.collect();
    assert_eq!(threads.len(), 3, "parent, child, and a thread");
}

/// Writes to half the pages of a private mapping, maps another file to be read only and then makes
/// it writable, and maps memory and the file in turns at one address. For a while all its bytes
/// have to be what they should.
const WRITES: &str = "\
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
enum { BYTES = 1 << 20 };
static unsigned char is(long at) { return at * 7 + (at >> 20); }
int main(int count, char **words) {
    int file = open(words[1], O_RDONLY);
    unsigned char *copied = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    unsigned char *late = mmap(0, BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    unsigned char *turns = mmap(0, BYTES, PROT_READ, MAP_SHARED, file, 0);
    for (long at = 0; at < BYTES; at += 8192) memset(copied + at, 1, 4096);
    time_t until = time(0) + 3;
    for (int turn = 0; time(0) < until; turn++) {
        if (turn == 100) {
            mprotect(late, BYTES, PROT_READ | PROT_WRITE);
            for (long at = 0; at < BYTES; at += 8192) memset(late + at, 2, 4096);
        }
        int flags = turn & 1 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        int protection = turn & 1 ? PROT_READ | PROT_WRITE : PROT_READ;
        turns = mmap(turns, BYTES, protection, flags | MAP_FIXED, turn & 1 ? -1 : file, 0);
        if (turn & 1) memset(turns, 3, BYTES);
        usleep(5000);
        for (long at = 0; at < BYTES; at += 509) {
            int even = at % 8192 < 4096;
            if (copied[at] != (even ? 1 : is(at))) return 1;
            if (late[at] != (even && turn >= 100 ? 2 : is(at))) return 2;
            if (turns[at] != (turn & 1 ? 3 : is(at))) return 3;
        }
    }
    return 0;
}
";

#[test]
fn a_program_that_writes_to_its_mappings_keeps_its_bytes() {
    if !may_unmap() {
        return;
    }
    let folder = folder();
    let program = compile(folder.path(), "writes", WRITES, &["-O1"]);
    let data: PathBuf = uncached(&folder.path().join("data"), 1);
    let recorded = record(folder.path(), &[&program, &data], true);
    // It was written to: what is read again of it is not seen.
    let touches = recorded.seen.touches.expect("recorded");
    assert_eq!(touches.first_only_files, 1);
    assert!(trace(&recorded).references() >= 256);
}
