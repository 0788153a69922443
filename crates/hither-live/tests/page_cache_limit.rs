//! Real programs whose files get no more of the page cache than they may: readers and writers,
//! programs of which nothing is seen, files that others have cached, that are renamed or removed.

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hither_kernel::file_id::FileId;
use hither_kernel::file_map::FileMap;
use hither_kernel::page_cache::{
    Cached, CachedFile, OpenError, PageCache, PageCacheError, ThisPageCache,
};
use hither_live::page_cache::{Budget, FileStats, PageCacheOptions, PageCacheReport, replay};
use hither_live::{Beside, Mechanisms, RunOptions, SessionOptions, System, run_on};
use hither_testing::skip::skip_on_this_machine;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// What may be on its way in or out: readahead of several MiB, and what a program reads until the
/// agent has a processor.
const SLACK_MIB: u64 = 48;

/// Copies a file to another one: 64 KiB at a time.
const COPY: &str = "\
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
static char buffer[65536] __attribute__((aligned(4096)));
int main(int count, char **words) {
    int from = open(words[1], O_RDONLY | (count > 3 ? O_DIRECT : 0));
    int to = open(words[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (ssize_t got; (got = read(from, buffer, sizeof buffer)) > 0; usleep(200))
        if (write(to, buffer, got) != got) return 1;
    return 7;
}
";

/// Reads a file, appends 32 KiB to it, opens it again and reads it to the end.
const GROW: &str = "\
#include <fcntl.h>
#include <unistd.h>
static char buffer[32768];
int main(int count, char **words) {
    for (int round = 0; round < 2; round++) {
        int file = open(words[1], O_RDWR);
        while (read(file, buffer, sizeof buffer) > 0) {}
        if (round == 0 && write(file, buffer, sizeof buffer) != sizeof buffer) return 1;
        close(file);
    }
    return 7;
}
";

struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    /// None where the kernel does not say what is cached, or the build is not on a disk.
    fn new() -> Option<Lab> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let probe = support::uncached(&folder.path().join("probe"), 1);
        let cached = support::seen(&probe).cached(0, MIB);
        match cached {
            Ok(cached) if cached.pages == 0 => Some(Lab { folder }),
            Ok(_) => {
                skip_on_this_machine("the build is on a file system that is all page cache");
                None
            }
            Err(why) => {
                skip_on_this_machine(why);
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn uncached(&self, name: &str, mib: u64) -> PathBuf {
        support::uncached(&self.path(name), mib)
    }

    fn compile(&self, name: &str, source: &str, flags: &[&str]) {
        support::compile(self.folder.path(), name, source, flags);
    }

    fn run(&self, command: &str, budget: Budget) -> PageCacheReport {
        self.run_on(Arc::new(ThisPageCache), command, budget)
    }

    /// Runs the command in the folder, and replays the log.
    fn run_on(
        &self,
        page_cache: Arc<dyn PageCache>,
        command: &str,
        budget: Budget,
    ) -> PageCacheReport {
        let log = self.path(&format!("log-{:?}", thread::current().id()));
        let command = format!("cd {}; {command}", self.folder.path().display());
        let options = RunOptions {
            command: ["sh", "-c", &command].map(Into::into).into(),
            preload: Some(support::preload()),
            dry_run: false,
            log: Some(log.clone()),
            record: None,
            beside: Beside::No,
            session: SessionOptions::default(),
        };
        let mechanisms = Mechanisms {
            page_cache: Some(PageCacheOptions {
                policy: "lru".parse().expect("a policy"),
                budget,
                all_files: false,
                always: false,
                by_kernel: false,
                disable_readahead: false,
                sites: Vec::new(),
            }),
            ..Mechanisms::default()
        };
        let system = System {
            page_cache,
            ..System::default()
        };
        let ran = run_on(&system, &options, &mechanisms).expect("it runs");
        assert_eq!(ran.exit.code(), Some(7));
        replay(&log)
            .expect("a sound log")
            .expect("the same decisions");
        ran.page_cache.expect("it was asked for")
    }
}

fn cached_bytes(path: &Path) -> u64 {
    let cached = support::seen(path).cached(0, 1 << 40);
    cached.expect("it said so before").pages * PAGE
}

/// Which pages of a file are cached.
fn cached_pages(path: &Path) -> Vec<u64> {
    let (seen, pages) = (
        support::seen(path),
        fs::metadata(path).expect("there").len().div_ceil(PAGE),
    );
    let is_cached = |page: &u64| {
        seen.cached(page * PAGE, PAGE)
            .is_ok_and(|one| one.pages > 0)
    };
    (0..pages).filter(is_cached).collect()
}

/// How many pages the kernel has reclaimed so far, on this machine, for lack of memory.
fn reclaimed_pages() -> u64 {
    let counts = fs::read_to_string("/proc/vmstat").expect("every kernel has it");
    let reclaimed = counts.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        let is_it = name.starts_with("pgsteal_");
        is_it.then(|| count.parse::<u64>().expect("a number"))
    });
    reclaimed.sum()
}

/// Caches pages of a file one by one; the kernel reads ahead where they follow each other.
fn read_pages(path: &Path, pages: impl Iterator<Item = u64>) {
    let file = File::open(path).expect("opened");
    for page in pages {
        file.read_exact_at(&mut [0; 64], page * PAGE).expect("read");
    }
}

/// The most that is cached of files while something is done.
fn most_cached<T>(paths: &[PathBuf], work: impl FnOnce() -> T) -> (T, u64) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0_u64;
            while !ended.load(Ordering::Relaxed) {
                let there = paths.iter().filter(|path| path.exists());
                let now: u64 = there.map(|path| cached_bytes(path)).sum();
                most = most.max(now);
                thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let done = work();
        ended.store(true, Ordering::Relaxed);
        (done, watch.join().expect("it watches"))
    })
}

#[test]
fn what_is_read_and_written_stays_within_the_limit_from_the_first_byte_on() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 160);
    let to = lab.path("to");
    lab.compile("copy", COPY, &[]);
    let command = "./copy from to; exit 7";
    let limit = 16 * MIB;
    let (files, most) = most_cached(std::slice::from_ref(&from), || {
        lab.run(command, Budget::Given(limit))
    });
    assert!(
        most <= limit + SLACK_MIB * MIB,
        "{} MiB of what is read",
        most / MIB
    );
    let cached = cached_bytes(&from) + cached_bytes(&to);
    // The end waits for the write-back, but not for ever.
    let most = limit + files.left_bytes;
    assert!(cached <= most, "{} MiB at the end: {files:?}", cached / MIB);
    assert!(cached > 0, "what is within the limit stays");
    assert_eq!(files.summary.limit_bytes, Some(limit));
    assert!(fs::read(&from).expect("read") == fs::read(&to).expect("read"));
}

#[test]
fn nothing_stays_that_was_not_there_and_all_that_was() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 96);
    let to = lab.path("to");
    lab.compile("copy", COPY, &[]);
    // Of 32 MiB at the front nothing; then every third page, and a part at once.
    let first = 40 * MIB / PAGE;
    read_pages(&from, (first..first + 3000).step_by(3));
    read_pages(&from, first + 8000..first + 9000);
    let before = cached_pages(&from);
    assert!(before.len() >= 2000);
    let reclaimed = reclaimed_pages();
    let files = lab.run("./copy from to; exit 7", Budget::Nothing);
    assert!(cached_bytes(&to) <= files.left_bytes, "{files:?}");
    let after = cached_pages(&from);
    let more = after
        .iter()
        .find(|page| before.binary_search(page).is_err());
    assert_eq!(more, None, "{files:?}");
    let lost = before.iter().filter(|page| !after.contains(page)).count() as u64;
    // A few of 3,200 pages were gone before the program opened the file, and were read from storage
    // again: something else on the machine had dropped them (2026-11).
    let most = before.len() as u64 / 100 + reclaimed_pages() - reclaimed;
    assert!(lost <= most, "{lost}: {files:?}");
    let others = before.len() as u64 * PAGE;
    let said = files.summary.preexisting_bytes;
    let least = others - others / 100;
    assert!((least..others + MIB).contains(&said), "{said} of {others}");
}

#[test]
fn pages_of_others_hide_nothing_of_a_program_that_reads_faster_than_the_agent_follows() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 160);
    let ends = [0, 160 * MIB / PAGE - 1];
    let ways: [&[u64]; 4] = [&[], &ends[..1], &ends[1..], &ends];
    for pages in ways {
        support::seen(&from)
            .drop_pages(0, 160 * MIB)
            .expect("dropped");
        read_pages(&from, pages.iter().copied());
        let before = cached_pages(&from);
        let reclaimed = reclaimed_pages();
        let files = lab.run("cat from >/dev/null; exit 7", Budget::Nothing);
        let after = cached_pages(&from);
        if reclaimed_pages() == reclaimed {
            assert_eq!(after, before, "{files:?}");
        }
        // Files of the program's locale may be among them.
        let others = before.len() as u64 * PAGE;
        let said = files.summary.preexisting_bytes;
        assert!((others..others + MIB).contains(&said), "{files:?}");
    }
}

#[test]
fn of_many_small_files_those_stay_that_others_have_cached() {
    let Some(lab) = Lab::new() else { return };
    fs::create_dir(lab.path("tree")).expect("made");
    let path = |number: u32| lab.path(&format!("tree/{number}"));
    for number in 0..300 {
        let bytes = vec![number as u8; 3 + 97 * number as usize];
        let mut file = File::create(path(number)).expect("made");
        file.write_all(&bytes).expect("written");
        file.sync_all().expect("written back");
        support::seen(&path(number))
            .drop_pages(0, MIB)
            .expect("dropped");
    }
    for number in (0..300).step_by(2) {
        fs::read(path(number)).expect("read");
    }
    let before: Vec<u64> = (0..300).map(|number| cached_bytes(&path(number))).collect();
    let files = lab.run("tar cf - tree | gzip -1 > out.gz; exit 7", Budget::Nothing);
    let after: Vec<u64> = (0..300).map(|number| cached_bytes(&path(number))).collect();
    assert_eq!(before, after, "{files:?}");
    assert!(
        cached_bytes(&lab.path("out.gz")) <= files.left_bytes,
        "{files:?}"
    );
    // Cached bytes, at most the file's.
    let sizes: u64 = (0..300).step_by(2).map(|number| 3 + 97 * number).sum();
    let said = files.summary.preexisting_bytes;
    assert!((sizes..sizes + MIB).contains(&said), "{said} of {sizes}");
}

/// What others have cached costs no reports, until it is gone. What a file has grown by is the
/// program's.
#[test]
fn reads_of_what_others_have_cached_are_reported_once_it_is_gone() {
    let Some(lab) = Lab::new() else { return };
    let cached = lab.uncached("cached", 8);
    fs::read(&cached).expect("read");
    lab.uncached("small", 1);
    fs::read(lab.path("small")).expect("read");
    lab.compile("grow", GROW, &[]);
    let read_bytes = |files: &PageCacheReport, name: &str| {
        let is_it = |at: &&FileStats| at.path.ends_with(name);
        let found = files.busiest_files.iter().find(is_it);
        found.map_or(0, |found| found.tally.referenced_bytes)
    };
    let limit = || Budget::Given(64 * MIB);
    let quiet = lab.run("cat cached cached >/dev/null; ./grow small", limit());
    assert_eq!(read_bytes(&quiet, "cached"), 0, "{quiet:?}");
    // Block by block: what was written, and the read of it.
    assert_eq!(read_bytes(&quiet, "small"), 64 << 10, "{quiet:?}");
    assert!(quiet.summary.preexisting_bytes >= 9 * MIB, "{quiet:?}");
    let command = "cat cached >/dev/null; dd if=cached iflag=nocache count=0 2>/dev/null; \
        sleep 2; cat cached >/dev/null; exit 7";
    let gone = lab.run(command, limit());
    assert_eq!(read_bytes(&gone, "cached"), 8 * MIB, "{gone:?}");
}

#[test]
fn files_are_followed_when_they_are_renamed_linked_removed_or_sparse() {
    let Some(lab) = Lab::new() else { return };
    lab.uncached("from", 24);
    let sparse = lab.path("sparse");
    File::create(&sparse)
        .and_then(|file| file.set_len(64 * MIB))
        .expect("made");
    lab.compile("copy", COPY, &[]);
    let command = "set -e; copy() { ./copy $1 $2 || test $? = 7; }; copy from .to.X; \
        mv .to.X to; ln to link; copy link two; mv two three; copy from four; rm four; \
        copy sparse five; exec 5<from; copy from six; mv from seven; cat <&5 >/dev/null; exit 7";
    let files = lab.run(command, Budget::Nothing);
    let names = ["to", "three", "five", "six", "seven", "sparse"];
    let cached = names.map(|name| cached_bytes(&lab.path(name)));
    let sum: u64 = cached.iter().sum();
    assert!(sum <= files.left_bytes, "{cached:?}: {files:?}");
    let mut bytes = Vec::new();
    File::open(lab.path("seven"))
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .expect("read");
    assert!(bytes == fs::read(lab.path("to")).expect("read"));
}

#[test]
fn programs_of_which_nothing_is_seen_are_limited_by_what_they_have_open() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 160);
    lab.compile("copy", COPY, &["-static"]);
    let (files, most) = most_cached(std::slice::from_ref(&from), || {
        lab.run("./copy from to; exit 7", Budget::Nothing)
    });
    assert!(most <= (80 + SLACK_MIB) * MIB, "{} MiB", most / MIB);
    assert_eq!(cached_bytes(&from), 0, "{files:?}");
    assert!(
        cached_bytes(&lab.path("to")) <= files.left_bytes,
        "{files:?}"
    );
}

#[test]
fn what_is_mapped_goes_when_it_is_unmapped() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 64);
    lab.compile("loop", support::MAPPED_LOOP, &["-O1"]);
    let files = lab.run("./loop from 2 >/dev/null; exit 7", Budget::Nothing);
    assert_eq!(cached_bytes(&from), 0, "{files:?}");
}

#[test]
fn reads_past_the_page_cache_and_two_runs_at_once_leave_nothing() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 64);
    lab.compile("copy", COPY, &[]);
    let others: Vec<u64> = (3000..4000).collect();
    read_pages(&from, others.iter().copied());
    thread::scope(|scope| {
        let run = |command: &'static str| {
            let lab = &lab;
            scope.spawn(move || lab.run(command, Budget::Nothing))
        };
        let runs = [
            run("./copy from one; exit 7"),
            run("./copy from two; exit 7"),
        ];
        for run in runs {
            run.join().expect("it runs");
        }
    });
    // What the first has just read is another's to the second: no more than that stays.
    let cached = cached_pages(&from);
    assert!(others.iter().all(|page| cached.binary_search(page).is_ok()));
    let more = (cached.len() - others.len()) as u64 * PAGE;
    assert!(more <= SLACK_MIB * MIB, "{} MiB", more / MIB);
    support::seen(&from)
        .drop_pages(0, 64 * MIB)
        .expect("dropped");
    let files = lab.run("./copy from three direct; exit 7", Budget::Nothing);
    assert_eq!(cached_bytes(&from), 0, "{files:?}");
}

/// A page cache that does not say what is cached of files called `from`, as the kernel does not to
/// a user who may only read a file.
struct Secretive;

struct Secret(Box<dyn CachedFile>);

impl PageCache for Secretive {
    fn open(&self, path: &Path, id: FileId) -> Result<Box<dyn CachedFile>, OpenError> {
        let opened = ThisPageCache.open(path, id)?;
        if path.ends_with("from") {
            Ok(Box::new(Secret(opened)))
        } else {
            Ok(opened)
        }
    }

    fn readahead_bytes(&self, device: u64) -> u64 {
        ThisPageCache.readahead_bytes(device)
    }
}

impl CachedFile for Secret {
    fn drop_pages(&self, offset: u64, length: u64) -> Result<(), PageCacheError> {
        self.0.drop_pages(offset, length)
    }

    fn cached(&self, _: u64, _: u64) -> Result<Cached, PageCacheError> {
        Err(PageCacheError::NotPermitted)
    }

    fn map(&self, offset: u64, length: u64) -> Result<FileMap, PageCacheError> {
        self.0.map(offset, length)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }
}

#[test]
fn what_the_library_has_asked_is_known_though_the_agent_may_not_ask() {
    let Some(lab) = Lab::new() else { return };
    let from = lab.uncached("from", 24);
    fs::read(&from).expect("read");
    lab.compile("copy", COPY, &[]);
    let command = "./copy from to; exit 7";
    let files = lab.run_on(Arc::new(Secretive), command, Budget::Nothing);
    assert_eq!(files.unknown_files, 0, "{files:?}");
    // What the program had to read from storage was not cached any more.
    let least = 24 * MIB - files.storage_bytes;
    assert!(cached_bytes(&from) >= least, "{files:?}");
    assert!(
        cached_bytes(&lab.path("to")) <= files.left_bytes,
        "{files:?}"
    );
}
