//! Real programs with their memory placed: on this machine, as far as it has nodes, and on one that
//! is made up around its real page faults.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hither_core::placement::{RegionTier, SiteTier};
use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::machine::{Machine, MoveError, NodeMemory, PageState, ThisMachine};
use hither_kernel::page_faults::{PageFaults, WatchError};
use hither_kernel::samplers::SamplerCandidate;
use hither_kernel::writable_memory::WritableRange;
use hither_live::memory::{MemoryOptions, MemoryReport, replay};
use hither_live::page_cache::{self, Budget, PageCacheOptions};
use hither_live::{Beside, Mechanisms, RunOptions, RunReport, SessionOptions, System, run, run_on};
use hither_testing::skip::skip_on_this_machine;
use serde_json::Value;

/// Writes a region from its start to its end, and another one here and there; prints what it finds
/// in them, and waits for a moment after each, as a program that computes does.
const PROGRAM: &str = "\
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define PAGES 2048
__attribute__((noinline)) char *streamed(void) {
    char *region = malloc(PAGES * 4096L);
    for (long page = 0; page < PAGES; page++) region[page * 4096] = page;
    return region;
}
__attribute__((noinline)) char *scattered(void) {
    char *region = malloc(PAGES * 4096L);
    for (long page = 0; page < PAGES; page++) region[page * 997 % PAGES * 4096] = page;
    return region;
}
int main(void) {
    unsigned long sum = 0;
    for (int round = 0; round < 2; round++) {
        char *a = streamed(), *b = scattered();
        usleep(200000);
        for (long page = 0; page < PAGES; page++) sum = sum * 31 + a[page * 4096] + b[page * 4096];
        free(a);
        free(b);
    }
    printf(\"%lu\\n\", sum);
    return 7;
}
";

/// Two threads, each on a CPU of its own, write their halves of a region for some seconds, once the
/// first has filled it.
const HALVES: &str = "\
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define PAGES 2048L
static char *region;
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
static void *work(void *argument) {
    long half = (long)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(half, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (double end = now() + 4; now() < end;)
        for (long page = 0; page < PAGES / 2; page++) region[(half * PAGES / 2 + page) * 4096] += 1;
    return NULL;
}
int main(void) {
    region = calloc(PAGES, 4096);
    for (long page = 0; page < PAGES; page++) region[page * 4096] = 1;
    pthread_t other;
    pthread_create(&other, NULL, work, (void *)1);
    work((void *)0);
    pthread_join(other, NULL);
    puts(\"done\");
    return 7;
}
";

struct Lab {
    folder: tempfile::TempDir,
    program: PathBuf,
}

/// A run with memory alone.
struct Options {
    run: RunOptions,
    memory: MemoryOptions,
}

impl Options {
    fn mechanisms(&self) -> Mechanisms {
        Mechanisms {
            memory: Some(self.memory.clone()),
            ..Mechanisms::default()
        }
    }

    fn run(&self) -> RunReport {
        run(&self.run, &self.mechanisms()).expect("it ran")
    }

    fn run_on(&self, machine: Arc<dyn Machine>) -> RunReport {
        let system = System {
            machine,
            ..System::default()
        };
        run_on(&system, &self.run, &self.mechanisms()).expect("it ran")
    }
}

impl Lab {
    fn new() -> Lab {
        Lab::of(PROGRAM)
    }

    fn of(program: &str) -> Lab {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let flags = ["-g", "-O1", "-pthread", "-fopenmp"];
        let program = support::compile(folder.path(), "program", program, &flags);
        Lab { folder, program }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log.jsonl")
    }

    /// Of the program, its output into a file; what it prints is known.
    fn options(&self) -> Options {
        let command = format!(
            "exec {} > {}",
            self.program.display(),
            self.output().display()
        );
        Options {
            run: RunOptions {
                command: ["sh", "-c", &command].map(Into::into).into(),
                preload: Some(support::pages_preload()),
                dry_run: false,
                log: Some(self.log()),
                record: None,
                beside: Beside::No,
                session: SessionOptions::default(),
            },
            memory: MemoryOptions {
                policy: "cache-aware".parse().expect("a policy"),
                sites: Vec::new(),
                saved_placements: Vec::new(),
                cache: None,
                counters: None,
                cpu_permille: 10,
                region_min: 1 << 20,
            },
        }
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    /// What the program did is what it does alone.
    fn check(&self, ran: RunReport) -> MemoryReport {
        let alone = std::process::Command::new(&self.program)
            .output()
            .expect("it runs");
        let output = fs::read(self.output()).expect("its output");
        assert_eq!(output, alone.stdout);
        assert!(!output.is_empty());
        assert_eq!(ran.exit.code(), Some(7));
        ran.memory.expect("it was looked at")
    }
}

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("a log");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The class of each function's regions, in order.
fn classes(log: &Path) -> BTreeMap<String, Vec<String>> {
    let lines = lines(log);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let functions: BTreeMap<String, String> = lines
        .iter()
        .filter(|line| line.get("site").is_some())
        .map(|line| (text(&line["site"]), text(&line["function"])))
        .collect();
    let mut classes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for settled in lines.iter().filter(|line| line["note"] == "settled") {
        let function = functions.get(&text(&settled["signature"])).cloned();
        let of = classes.entry(function.unwrap_or_default()).or_default();
        of.push(text(&settled["class"]));
    }
    classes
}

#[test]
fn the_log_of_a_dry_run_says_what_streams() {
    let lab = Lab::new();
    let mut options = lab.options();
    options.run.dry_run = true;
    let pages = lab.check(options.run());
    if let Some(reason) = pages.unwatched {
        skip_on_this_machine(reason);
        return;
    }
    let classes = classes(&lab.log());
    assert_eq!(classes["streamed"], ["remote"; 2], "{classes:?}");
    assert_eq!(classes["scattered"], ["local"; 2], "{classes:?}");
    assert_eq!((pages.summary.regions, pages.summary.known), (4, 2));
    assert_eq!(
        (pages.summary.ranges_bound, pages.summary.pages_moved),
        (0, 0)
    );
    assert!(replay(&lab.log()).expect("a sound log").is_ok());

    // The next run knows.
    let sites = pages.sites;
    assert_eq!(sites.len(), 2);
    options = lab.options();
    options.run.dry_run = true;
    options.memory.sites.clone_from(&sites);
    let pages = lab.check(options.run());
    assert_eq!(pages.summary.known, 4);
    assert_eq!(pages.sites, sites);
}

/// Where pages are that were said to be moved.
type Moved = Mutex<BTreeMap<u64, KernelNode>>;

/// This machine with a second node made up, which is memory alone. The kernel refuses to bind to
/// it.
struct Pretended {
    /// CPUs of the first node; the second has the others.
    near: Vec<u32>,
    moved: Moved,
    /// No page can be moved.
    refusal: Option<MoveError>,
    unwatched: Option<WatchError>,
}

impl Pretended {
    fn new() -> Pretended {
        Pretended {
            near: (0..1024).collect(),
            moved: Mutex::default(),
            refusal: None,
            unwatched: None,
        }
    }
}

impl Machine for Pretended {
    fn nodes(&self) -> io::Result<Vec<NodeMemory>> {
        let node = |node, cpus| NodeMemory {
            node,
            cpus,
            bytes: 8 << 30,
            free_bytes: 7 << 30,
            ..NodeMemory::default()
        };
        let near = |cpu: &u32| self.near.contains(cpu);
        let (near, far) = (0..1024).partition(near);
        Ok(vec![node(KernelNode(0), near), node(KernelNode(1), far)])
    }

    fn page_bytes(&self) -> u64 {
        ThisMachine.page_bytes()
    }

    fn huge_page_bytes(&self) -> Option<u64> {
        ThisMachine.huge_page_bytes()
    }

    fn move_pages(
        &self,
        _: Pid,
        addresses: &[Address],
        to: Option<KernelNode>,
        states: &mut Vec<PageState>,
    ) -> Result<(), MoveError> {
        if let Some(refusal) = self.refusal.filter(|_| to.is_some()) {
            return Err(refusal);
        }
        let mut moved = self.moved.lock().expect("no panic");
        states.clear();
        for address in addresses {
            let address = address.page_start(self.page_bytes());
            if let Some(node) = to {
                moved.insert(address.0, node);
            }
            let node = moved.get(&address.0).copied().unwrap_or_default();
            states.push(PageState::On(node));
        }
        Ok(())
    }

    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError> {
        self.unwatched.map_or_else(|| ThisMachine.faults(), Err)
    }

    fn sampler_candidates(&self) -> Vec<SamplerCandidate> {
        ThisMachine.sampler_candidates()
    }

    fn writable_memory(&self, pid: Pid) -> Vec<WritableRange> {
        ThisMachine.writable_memory(pid)
    }

    fn asks_for_nodes(&self, pid: Pid) -> bool {
        ThisMachine.asks_for_nodes(pid)
    }
}

#[test]
fn what_cannot_be_bound_stays_and_the_program_does_not_notice() {
    let lab = Lab::new();
    let pages = lab.check(lab.options().run_on(Arc::new(Pretended::new())));
    if let Some(reason) = pages.unwatched {
        skip_on_this_machine(reason);
        return;
    }
    assert_eq!(pages.summary.far, 2, "{:?}", pages.summary);
    assert!(pages.summary.ranges_refused > 0, "{:?}", pages.summary);
    assert_eq!(pages.summary.pages_moved, 0);
    assert_eq!(pages.bind_requests_refused, 0);
    assert!(replay(&lab.log()).expect("a sound log").is_ok());
}

#[test]
fn a_mover_that_is_refused_stops_and_the_program_does_not_notice() {
    let lab = Lab::of(HALVES);
    for refusal in [MoveError::NotPermitted, MoveError::NodeNotAllowed] {
        let machine = Pretended {
            near: vec![0],
            refusal: Some(refusal),
            ..Pretended::new()
        };
        let mut options = lab.options();
        options.memory.policy = "majority".parse().expect("a policy");
        let pages = lab.check(options.run_on(Arc::new(machine)));
        assert_eq!(pages.summary.pages_moved, 0, "{refusal:?}");
        assert!(replay(&lab.log()).expect("a sound log").is_ok());
    }
}

#[test]
fn without_faults_known_sites_are_placed_and_the_reason_is_told() {
    let lab = Lab::new();
    let refused = WatchError::NotPermitted { paranoid: Some(3) };
    let machine = || {
        Arc::new(Pretended {
            unwatched: Some(refused),
            ..Pretended::new()
        })
    };
    let pages = lab.check(lab.options().run_on(machine()));
    assert_eq!(pages.unwatched, Some(refused));
    assert_eq!((pages.summary.regions, pages.summary.far), (4, 0));
    let log = lines(&lab.log());
    let end = &log.last().expect("an end")["end"];
    let reason = end["unwatched"].as_str().expect("a reason");
    assert!(reason.contains("perf_event_paranoid is 3"), "{reason}");
    // What a site's signature is the log says as well.
    let signature = log.iter().find(|line| line["function"] == "streamed");
    let signature = signature
        .and_then(|line| line["site"].as_str())
        .expect("the site");
    let signature = u64::from_str_radix(&signature[2..], 16).expect("hexadecimal");
    let mut options = lab.options();
    let known = |whole| SiteTier {
        signature,
        tier: RegionTier::Remote,
        whole,
    };
    options.memory.sites = vec![known(false)];
    let pages = lab.check(options.run_on(machine()));
    assert_eq!((pages.summary.far, pages.summary.known), (2, 2));
    assert!(pages.summary.ranges_refused > 0, "the kernel has one node");
    // Where all of it was far, the program tries at its first allocation already.
    let mut options = lab.options();
    options.memory.sites = vec![known(true)];
    let pages = lab.check(options.run_on(machine()));
    assert_eq!((pages.summary.far, pages.summary.known), (2, 2));
    let log = lines(&lab.log());
    let by_site = log.iter().filter(|line| line["site"] == true);
    assert_eq!(by_site.count(), 2, "both regions");
    let told = log
        .iter()
        .any(|line| line["order"] == "site" && line["nodes"] != "0x0");
    assert!(!told, "it knew at its start");
}

#[test]
fn on_one_node_the_program_runs_as_it_is() {
    let lab = Lab::new();
    let nodes = ThisMachine.nodes().map_or(0, |nodes| nodes.len());
    if nodes != 1 {
        skip_on_this_machine(format_args!("this machine has {nodes} nodes"));
        return;
    }
    let mut options = lab.options();
    let command = ["sh", "-c", "test -z \"$LD_PRELOAD$HITHER_SESSION\""];
    options.run.command = command.map(Into::into).into();
    let ran = options.run();
    assert!(ran.exit.success(), "nothing is preloaded");
    assert!(ran.memory.is_none());
    assert!(!lab.log().exists());
}

/// The same halves, in parallel regions of OpenMP.
const PARALLEL: &str = "\
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#define PAGES 2048L
int main(void) {
    char *region = calloc(PAGES, 4096);
    for (long page = 0; page < PAGES; page++) region[page * 4096] = 1;
    omp_set_num_threads(2);
    double end = omp_get_wtime() + 4;
    while (omp_get_wtime() < end) {
        #pragma omp parallel
        {
            long half = omp_get_thread_num();
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(half, &set);
            sched_setaffinity(0, sizeof set, &set);
            for (int round = 0; round < 100; round++)
                for (long page = 0; page < PAGES / 2; page++)
                    region[(half * PAGES / 2 + page) * 4096] += 1;
        }
        #pragma omp parallel for
        for (long page = 0; page < PAGES; page++) region[page * 4096 + 1] += 1;
    }
    puts(\"done\");
    return 7;
}
";

/// Of a region that is said to be on the first node, what the thread on the second one writes is
/// moved there and stays.
#[test]
fn what_another_node_writes_is_moved() {
    moves(HALVES, "majority", "period");
}

#[test]
fn the_iterations_of_openmp_are_found() {
    moves(PARALLEL, "upm", "iteration");
}

/// No allocation is reported of a static array: the kernel's list of mappings has it.
#[test]
fn static_arrays_are_covered() {
    let on_heap = "    char *region = calloc(PAGES, 4096);\n";
    let is_static = "    static char region[PAGES * 4096];\n";
    assert!(PARALLEL.contains(on_heap));
    moves(
        &PARALLEL.replace(on_heap, is_static),
        "majority",
        "iteration",
    );
}

fn moves(program: &str, policy: &str, ended: &str) {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        skip_on_this_machine("one CPU");
        return;
    }
    let lab = Lab::of(program);
    let machine = Arc::new(Pretended {
        near: vec![0],
        ..Pretended::new()
    });
    let mut options = lab.options();
    options.memory.policy = policy.parse().expect("a policy");
    // In four seconds it is to see all of it.
    options.memory.cpu_permille = 50;
    let ran = options.run_on(Arc::clone(&machine) as Arc<dyn Machine>);
    let pages = lab.check(ran);
    assert!(replay(&lab.log()).expect("a sound log").is_ok());
    if let (Some(reason), _) | (None, Some(reason)) = (
        pages.unwatched.map(|reason| reason.to_string()),
        pages.unarmed.map(|reason| reason.to_string()),
    ) && pages.summary.sampled.samples == 0
    {
        skip_on_this_machine(format_args!("{reason}, {:?}", pages.uncounted));
        return;
    }
    println!("{:?} by {:?}", pages.summary, pages.counters);
    let moved = machine.moved.lock().expect("no panic");
    // Somewhat less, where the halves meet in one cell, and more, such as the thread's stack.
    assert!((900..=1200).contains(&moved.len()), "{}", moved.len());
    assert_eq!(pages.summary.migrated, moved.len() as u64, "once each");
    let lines = lines(&lab.log());
    let migrate = lines.iter().find(|line| line["order"] == "migrate");
    let migrate = migrate.expect("logged");
    assert!(migrate["from_there"].as_u64() > Some(0), "{migrate}");
    let allocated = pages.summary.regions > pages.summary.mapped;
    assert_eq!(pages.saved_placements.len(), usize::from(allocated));
    let judged = lines.iter().filter(|line| line["note"] == "judged");
    let ends: Vec<&Value> = judged.map(|line| &line["ended"]).collect();
    assert!(ends.iter().any(|end| **end == ended), "{ends:?}");
}

/// Two threads write a region that is sampled; then the program watches it itself, over and over,
/// as a collector or an emulator does, and says what each call answers.
const WATCHES: &str = "\
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define PAGES 2048L
static char *region;
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
static void *work(void *argument) {
    long half = (long)argument;
    for (double end = now() + 1; now() < end;)
        for (long page = 0; page < PAGES / 2; page++) region[(half * PAGES / 2 + page) * 4096] += 1;
    return NULL;
}
int main(void) {
    region = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t other;
    pthread_create(&other, NULL, work, (void *)1);
    work((void *)0);
    pthread_join(other, NULL);
    for (int round = 0; round < 3; round++) {
        int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register all = {.range = {(unsigned long)region, PAGES * 4096}, .mode =
            UFFDIO_REGISTER_MODE_MISSING};
        printf(\"%d \", fd);
        printf(\"%d \", ioctl(fd, UFFDIO_API, &api));
        printf(\"%d\\n\", ioctl(fd, UFFDIO_REGISTER, &all));
        close(fd);
        work((void *)0);
    }
    return 7;
}
";

#[test]
fn a_program_that_watches_its_memory_itself_gets_it() {
    let lab = Lab::of(WATCHES);
    let machine = Arc::new(Pretended {
        near: vec![0],
        ..Pretended::new()
    });
    let mut options = lab.options();
    options.memory.policy = "upm".parse().expect("a policy");
    let ran = options.run_on(machine);
    let pages = lab.check(ran);
    println!("{:?} by {:?}", pages.summary, pages.counters);
    assert!(replay(&lab.log()).expect("a sound log").is_ok());
}

/// Reads a file over and over, and streams and scatters over memory meanwhile.
const READS: &str = "\
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define PAGES 2048
__attribute__((noinline)) char *streamed(void) {
    char *region = malloc(PAGES * 4096L);
    for (long page = 0; page < PAGES; page++) region[page * 4096] = page;
    return region;
}
int main(int count, char **words) {
    static unsigned char buffer[65536];
    unsigned long sum = 0;
    int file = open(words[1], O_RDONLY);
    for (int pass = 0; pass < 4; pass++) {
        char *region = streamed();
        usleep(100000);
        off_t offset = 0;
        for (ssize_t got; (got = pread(file, buffer, sizeof buffer, offset)) > 0; offset += got)
            for (ssize_t byte = 0; byte < got; byte += 509) sum = sum * 31 + buffer[byte];
        for (long page = 0; page < PAGES; page++) sum = sum * 31 + region[page * 4096];
        free(region);
    }
    printf(\"%lu\\n\", sum);
    return 7;
}
";

/// One drain of the rings feeds both controllers: the page cache drops what its policy evicts, and
/// memory is placed, of one and the same program. Their log replays for each.
#[test]
fn the_page_cache_and_memory_go_together() {
    const MIB: u64 = 1 << 20;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = support::compile(folder.path(), "reads", READS, &["-g", "-O1"]);
    let data = support::uncached(&folder.path().join("data"), 64);
    let (output, log) = (folder.path().join("output"), folder.path().join("log"));
    let (program, data) = (program.display(), data.display());
    let command = format!("exec {program} {data} > {}", output.display());
    let lab = Lab::new();
    let mut options = lab.options();
    options.run.command = ["sh", "-c", &command].map(Into::into).into();
    options.run.log = Some(log.clone());
    let mechanisms = Mechanisms {
        page_cache: Some(PageCacheOptions {
            policy: "mru".parse().expect("a policy"),
            budget: Budget::Given(16 * MIB),
            all_files: false,
            always: false,
            by_kernel: false,
            disable_readahead: true,
            sites: Vec::new(),
        }),
        ..options.mechanisms()
    };
    let system = System {
        machine: Arc::new(Pretended::new()),
        ..System::default()
    };
    let ran = run_on(&system, &options.run, &mechanisms).expect("it ran");
    assert_eq!(ran.exit.code(), Some(7));
    let alone = std::process::Command::new("sh")
        .args(["-c", &format!("{program} {data}")])
        .output()
        .expect("it runs");
    assert_eq!(fs::read(&output).expect("its output"), alone.stdout);

    let files = ran.page_cache.expect("it was asked for");
    assert!(files.log.is_none());
    assert!(files.dropped > 0 && files.refused == 0, "{files:?}");
    assert!(files.summary.missed_bytes < files.summary.lru_missed_bytes);
    let memory = ran.memory.expect("there are two nodes");
    assert!(memory.summary.regions >= 4, "{:?}", memory.summary);
    assert_eq!(memory.lost.events + memory.lost.regions, 0);
    match memory.unwatched {
        Some(reason) => skip_on_this_machine(reason),
        None => {
            assert!(memory.summary.far > 0, "{:?}", memory.summary);
            assert!(memory.summary.ranges_refused > 0, "{:?}", memory.summary);
        }
    }
    let drops = page_cache::replay(&log).expect("a sound log");
    assert!(drops.expect("the same decisions") > 0);
    let moves = replay(&log).expect("a sound log");
    assert!(moves.expect("the same decisions") > 0);
    for line in lines(&log) {
        let controller = line["controller"].as_str();
        assert!(
            matches!(controller, Some("page_cache" | "memory")),
            "{line}"
        );
    }
}
