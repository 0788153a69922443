//! Real programs with their file cache steered: what stays in the page cache, and that the programs
//! do not notice.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use hither_core::registry::Needs;
use hither_core::site_profile::SiteProfile;
use hither_kernel::file_id::FileId;
use hither_kernel::file_map::FileMap;
use hither_kernel::page_cache::{
    Cached, CachedFile, OpenError, PageCache, PageCacheError, ThisPageCache, WithoutCachestat,
};
use hither_live::page_cache::{Budget, PageCacheOptions, PageCacheReport, replay};
use hither_live::{Beside, Mechanisms, RunOptions, SessionOptions, System, run_on};
use hither_testing::skip::skip_on_this_machine;
use hither_trace::{LoadOptions, Trace};

const MIB: u64 = 1 << 20;

/// A run with the page cache alone.
struct Options {
    run: RunOptions,
    page_cache: PageCacheOptions,
}

/// How it ended, and what it came to.
struct Ran {
    exit: ExitStatus,
    files: PageCacheReport,
}

impl Options {
    fn run(self) -> Ran {
        self.run_on(Arc::new(ThisPageCache))
    }

    fn run_on(self, page_cache: Arc<dyn PageCache>) -> Ran {
        let system = System {
            page_cache,
            ..System::default()
        };
        let mechanisms = Mechanisms {
            page_cache: Some(self.page_cache),
            ..Mechanisms::default()
        };
        let ran = run_on(&system, &self.run, &mechanisms).expect("it runs");
        Ran {
            exit: ran.exit,
            files: ran.page_cache.expect("it was asked for"),
        }
    }
}

struct Lab {
    /// On the disk that the build is on: a folder for temporary files may be all page cache
    /// (tmpfs).
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Lab {
    fn new() -> Lab {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let program = support::compile(folder.path(), "loop", support::LOOP, &["-O1"]);
        Lab { folder, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self, mib: u64) -> PathBuf {
        support::uncached(&self.path("data"), mib)
    }

    fn options(&self, command: &str, policy: &str, budget_mib: u64) -> Options {
        let command = format!(
            "cd {}; ({command}) > {}",
            self.folder.path().display(),
            self.path("output").display()
        );
        Options {
            run: RunOptions {
                command: ["sh", "-c", &command].map(Into::into).into(),
                preload: Some(support::preload()),
                dry_run: false,
                log: Some(self.path("log")),
                record: None,
                beside: Beside::No,
                session: SessionOptions::default(),
            },
            page_cache: PageCacheOptions {
                policy: policy.parse().expect("a policy"),
                budget: Budget::Given(budget_mib * MIB),
                all_files: false,
                always: false,
                by_kernel: false,
                disable_readahead: true,
                sites: Vec::new(),
            },
        }
    }

    /// What the program wrote is what it writes alone, and the log holds what led to what was
    /// decided.
    fn check(&self, command: &str, ran: &Ran) {
        let alone = Command::new("sh")
            .args(["-c", command])
            .current_dir(self.folder.path())
            .output()
            .expect("it runs");
        assert_eq!(ran.exit.code(), alone.status.code(), "{:?}", ran.exit);
        let output = fs::read(self.path("output")).expect("an output");
        assert!(output == alone.stdout, "another output");
        assert!(ran.files.log.is_none());
        replay(&self.path("log"))
            .expect("a sound log")
            .expect("the same decisions");
    }

    fn run(&self, command: &str, options: Options) -> PageCacheReport {
        let ran = options.run();
        self.check(command, &ran);
        ran.files
    }
}

/// How much of a file is cached; none where the kernel does not say.
fn cached_mib(path: &Path) -> Option<u64> {
    let cached = support::seen(path).cached(0, u64::from(u32::MAX));
    cached.ok().map(|cached| cached.pages * 4096 / MIB)
}

#[test]
fn a_loop_leaves_what_the_budget_holds() {
    let lab = Lab::new();
    let data = lab.data(96);
    let command = format!("{} {} 3; exit 3", lab.program.display(), data.display());
    let ran = lab.options(&command, "mru", 16).run();
    let cached = cached_mib(&data);
    let summary = ran.files.summary;
    assert!(
        ran.files.dropped > 0 && ran.files.refused == 0,
        "{:?}",
        ran.files
    );
    assert!(summary.steering && summary.missed_bytes < summary.lru_missed_bytes);
    let Some(cached) = cached else {
        skip_on_this_machine("this kernel does not say what is cached");
        return;
    };
    // What was on its way in when the rest was dropped may be there still.
    assert!((8..64).contains(&cached), "{cached} MiB");
    lab.check(&command, &ran);
}

/// The references that a trace has to blocks of 4 KiB of the files below a folder, by path, and
/// what was read of each file.
fn references(trace: &Path, folder: &Path) -> (Vec<(String, u32)>, BTreeMap<String, u64>) {
    let trace = Trace::load(trace, None, &LoadOptions::default()).expect("a trace");
    let mut accesses = Vec::new();
    trace
        .fill(0, trace.references(), Needs::NOTHING, &mut accesses)
        .expect("references");
    let path = |object: usize| String::from_utf8_lossy(&trace.objects()[object].path).into_owned();
    let is_below = |path: &String| Path::new(path).starts_with(folder);
    let references = accesses
        .iter()
        .map(|access| (path(access.object.index()), access.index));
    let read = trace.object_counts().iter().enumerate();
    let read = read.map(|(object, counts)| (path(object), counts.read_bytes));
    (
        references.filter(|(path, _)| is_below(path)).collect(),
        read.filter(|(path, _)| is_below(path)).collect(),
    )
}

#[test]
fn a_run_that_is_recorded_has_the_reads_of_a_recording_alone() {
    let lab = Lab::new();
    let data = lab.data(48);
    // Without a recording, most reads of 1 KiB would not be reported.
    let command = format!(
        "{0} {1} 2; dd if={1} of=/dev/null bs=1024 count=4000 status=none",
        lab.program.display(),
        data.display()
    );
    let mut options = lab.options(&command, "mru", 16);
    options.run.record = Some(support::trace(lab.path("steered.hither")));
    let words = options.run.command.clone();
    let system = System::default();
    let mechanisms = Mechanisms {
        page_cache: Some(options.page_cache),
        ..Mechanisms::default()
    };
    let ran = run_on(&system, &options.run, &mechanisms).expect("it runs");
    let recorded = ran.recorded.expect("it was asked for").expect("recorded");
    assert_eq!(recorded.losses.dropped_events, 0);
    let files = ran.page_cache.expect("it was asked for");
    assert!(files.dropped > 0, "{files:?}");
    let alone = support::recorder(lab.folder.path(), &words).run();
    let alone = alone.expect("recorded");
    let of = |trace: &Path| references(trace, lab.folder.path());
    assert!(of(&recorded.trace) == of(&alone.trace), "other reads");
    assert_eq!(recorded.summary.bytes_read, alone.summary.bytes_read);
    let ran = Ran {
        exit: ran.exit,
        files,
    };
    lab.check(&command, &ran);
}

#[test]
fn a_dry_run_drops_nothing_and_says_what_it_would() {
    let lab = Lab::new();
    let data = lab.data(48);
    let command = format!("{} {} 3", lab.program.display(), data.display());
    let mut options = lab.options(&command, "mru", 8);
    options.run.dry_run = true;
    let ran = options.run();
    let cached = cached_mib(&data);
    assert!(ran.files.summary.drops > 0);
    assert_eq!(ran.files.dropped, 0);
    // The kernel may have reclaimed some of it for others; a budget of 8 MiB would have left less
    // than half.
    assert!(cached.is_none_or(|cached| cached > 32), "{cached:?}");
    lab.check(&command, &ran);
}

#[test]
fn a_policy_without_gain_drops_nothing() {
    let lab = Lab::new();
    let data = lab.data(40);
    let command = format!("{} {} 12", lab.program.display(), data.display());
    let mut options = lab.options(&command, "fifo", 8);
    options.page_cache.budget = Budget::Available(8 * MIB);
    let files = lab.run(&command, options);
    if files.storage_bytes == 0 {
        return skip_on_this_machine("the build is on a disk that is memory");
    }
    assert!(files.summary.judged > 0, "{:?}", files.summary);
    assert_eq!((files.summary.drops, files.dropped), (0, 0));
    assert!(!files.summary.steering);
}

#[test]
fn what_others_have_cached_is_left_alone_unless_it_is_asked_for() {
    let lab = Lab::new();
    let data = lab.data(64);
    let command = format!("{} {} 3", lab.program.display(), data.display());
    let read = || {
        let mut all = Vec::new();
        let mut file = File::open(&data).expect("opened");
        file.read_to_end(&mut all).expect("read");
    };
    let ways: [Arc<dyn PageCache>; 2] = [Arc::new(ThisPageCache), Arc::new(WithoutCachestat)];
    for way in ways {
        read();
        if cached_mib(&data) != Some(64) {
            skip_on_this_machine("this kernel does not say what is cached, or caches less");
            return;
        }
        let ran = lab.options(&command, "mru", 8).run_on(way);
        lab.check(&command, &ran);
        let PageCacheReport {
            summary, unseen, ..
        } = ran.files;
        assert_eq!(unseen, None);
        // How far readahead may have come by when the agent first hears of the file is not told
        // from what was there.
        let cached = cached_mib(&data).expect("it says so");
        assert!(cached >= 32, "{cached} MiB, {summary:?}");
        assert!(summary.preexisting_bytes >= 32 * MIB, "{summary:?}");
    }
    read();
    let mut options = lab.options(&command, "mru", 8);
    options.page_cache.all_files = true;
    let ran = options.run();
    let cached = cached_mib(&data).expect("it says so");
    assert!(cached < 56, "{cached} MiB");
    assert_eq!(ran.files.summary.preexisting_bytes, 0);
}

#[test]
fn programs_report_only_while_they_read_from_storage() {
    let lab = Lab::new();
    let data = lab.data(48);
    // So often that the agent hears of the file before the program ends, also where storage is fast
    // and the machine busy.
    let command = format!("{} {} 30", lab.program.display(), data.display());
    let run = || {
        let mut options = lab.options(&command, "mru", 16);
        options.page_cache.budget = Budget::Available(16 * MIB);
        let ran = options.run();
        lab.check(&command, &ran);
        ran.files
    };
    let read = run();
    if read.storage_bytes == 0 {
        return skip_on_this_machine("the build is on a disk that is memory");
    }
    assert!(
        read.summary.reported && read.summary.references > 0,
        "{read:?}"
    );
    File::open(&data)
        .and_then(|mut file| file.read_to_end(&mut Vec::new()))
        .expect("read");
    if cached_mib(&data) != Some(48) {
        return skip_on_this_machine("this kernel does not say what is cached, or caches less");
    }
    // The kernel may have to read the program and its libraries anew, and other programs of the
    // machine may read anew what it had reclaimed: so it is run until neither has happened.
    let mut cached = (0..8).map(|_| run());
    let cached = cached.find(|ran| !ran.summary.reported);
    let cached = cached.expect("it reports though all is cached");
    assert_eq!((cached.summary.references, cached.dropped), (0, 0));
    assert_eq!(cached_mib(&data), Some(48));
}

#[test]
fn programs_may_do_with_their_files_as_they_like() {
    let lab = Lab::new();
    let data = lab.data(24);
    // Renamed, cut, written, unlinked while open, mapped by another; shells fork and exec at each
    // step.
    let command = "\
        set -e; rm -f a b c; cp data a; cat a a | md5sum; mv a b; cat b data b | md5sum; \
        exec 5<b; rm b; cat <&5 | wc -c; exec 5<&-; \
        cp data c; dd if=data of=c bs=1M seek=3 count=5 conv=notrunc 2>/dev/null; md5sum c; \
        truncate -s 5M c; cat c c c | md5sum; truncate -s 20M c; md5sum c; \
        python3 -c 'import mmap, hashlib; f = open(\"data\", \"rb\"); m = mmap.mmap(f.fileno(), \
            0, access=1); print(hashlib.md5(m).hexdigest())'; \
        grep -c . data; sort data | md5sum; rm c; exit 5";
    for policy in ["pcc", "mru", "lru"] {
        let files = lab.run(command, lab.options(command, policy, 8));
        assert!(files.summary.files >= 4, "{:?}", files.summary);
        let mapped = files.summary.mapped + files.summary.watched;
        assert!(mapped >= 1, "{:?}", files.summary);
    }
    assert!(data.exists());
}

#[test]
fn what_is_learnt_of_call_sites_is_there_from_the_first_access_on() {
    let lab = Lab::new();
    let data = lab.data(40);
    let command = format!("{} {} 4", lab.program.display(), data.display());
    let learnt = lab.run(&command, lab.options(&command, "pcc", 16)).sites;
    let looping = |site: &&SiteProfile| {
        let counters = site.counters;
        counters.looping > counters.sequential && counters.period > 0
    };
    let known = learnt.iter().find(looping);
    let signature = known.expect("the loop's call site").signature;
    let log = fs::read_to_string(lab.path("log")).expect("a log");
    assert!(
        log.contains(&format!("\"site\":\"{signature:#x}\"")),
        "it has no name"
    );
    let mut options = lab.options(&command, "pcc", 16);
    options.page_cache.sites = learnt;
    let files = lab.run(&command, options);
    let again = files.sites.iter().find(|site| site.signature == signature);
    assert!(again.is_some_and(|site| looping(&site)));
}

/// A page cache in which nothing works, for one reason after the other.
struct Refusing {
    open: Option<OpenError>,
    refused: PageCacheError,
}

struct Refuser(PageCacheError);

impl PageCache for Refusing {
    fn open(&self, _: &Path, _: FileId) -> Result<Box<dyn CachedFile>, OpenError> {
        match self.open {
            Some(reason) => Err(reason),
            None => Ok(Box::new(Refuser(self.refused))),
        }
    }

    fn readahead_bytes(&self, _: u64) -> u64 {
        0
    }
}

impl CachedFile for Refuser {
    fn drop_pages(&self, _: u64, _: u64) -> Result<(), PageCacheError> {
        Err(self.0)
    }

    fn cached(&self, _: u64, _: u64) -> Result<Cached, PageCacheError> {
        Err(self.0)
    }

    fn map(&self, _: u64, _: u64) -> Result<FileMap, PageCacheError> {
        Err(self.0)
    }

    fn size(&self) -> u64 {
        0
    }
}

#[test]
fn a_kernel_that_refuses_costs_the_program_nothing() {
    let lab = Lab::new();
    let data = lab.data(40);
    let command = format!("{} {} 2", lab.program.display(), data.display());
    let run = |open, refused| {
        let cache = Refusing { open, refused };
        let mut options = lab.options(&command, "mru", 8);
        // Otherwise nothing is dropped of files of which it is not known what is cached.
        options.page_cache.all_files = true;
        let ran = options.run_on(Arc::new(cache));
        lab.check(&command, &ran);
        ran.files
    };
    for reason in [
        OpenError::NoFile,
        OpenError::Another,
        OpenError::NotPermitted,
        OpenError::Busy,
        OpenError::NoRoom,
        OpenError::Other(libc::EIO),
    ] {
        let mut files = run(Some(reason), PageCacheError::NoCall);
        // On a busy machine the program may have ended before there was anything to drop.
        for _ in 0..5 {
            if reason.may_pass() || files.summary.unreachable > 0 {
                break;
            }
            files = run(Some(reason), PageCacheError::NoCall);
        }
        assert_eq!(files.why_unreachable, Some(reason));
        assert_eq!(files.dropped, 0);
        assert_eq!(
            files.summary.unreachable == 0,
            reason.may_pass(),
            "{reason:?}"
        );
    }
    for refused in [
        PageCacheError::NoCall,
        PageCacheError::NotThis,
        PageCacheError::NotPermitted,
        PageCacheError::Other(libc::EIO),
    ] {
        let files = run(None, refused);
        assert_eq!(files.why_refused, Some(refused));
        assert!(files.refused > 0 && files.dropped == 0, "{files:?}");
    }
}
