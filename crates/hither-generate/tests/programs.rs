//! Programs: their traces load, equal seeds give equal bytes, and sharing is as in the papers.
//! Bounds of random quantities have room for other seeds, and seeds are fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hither_core::registry::Needs;
use hither_core::{Access, Op};
use hither_generate::{MixOptions, PROGRAMS, ProgramMix, ProgramSpec};
use hither_trace::schema::FILES;
use hither_trace::{LoadOptions, SharingCounts, Stats, Trace};

const EVERYTHING: Needs = Needs {
    future: false,
    ..Needs::ALL
};

/// Small variants of those with long defaults.
const SMALL: &[&str] = &[
    "bucket-sort{keys=20000,key_bits=12,bucket_bits=5,iterations=3}",
    "cfd{points=12,iterations=3}",
    "cg{rows=1000,nonzeros=3,steps=4,iterations=3}",
    "compile{sources=40,source_mib=1,headers=30,header_mib=1,includes=10}",
    "iozone{size_mib=2}",
    "matmul{rows=64,block=16,iterations=3,l2_kib=32}",
    "multigrid{levels=4,iterations=3,l2_kib=32}",
    "parallel-grep{runs=10,files=50,size_mib=1}",
    "shared-files{blocks=5000}",
    "stencil{points=48,iterations=3,l2_kib=32}",
    "web-server{requests=10,size_mib=2,small=5,files=50,files_mib=1}",
];

fn small(name: &str) -> &str {
    let of = |spec: &&&str| spec.split('{').next() == Some(name);
    SMALL.iter().find(of).unwrap_or(&name)
}

fn mix(specs: &[&str], conditions: MixOptions) -> ProgramMix {
    let specs: Vec<ProgramSpec> = specs.iter().map(|text| text.parse().unwrap()).collect();
    ProgramMix::new(&specs, conditions)
}

fn seeded(seed: u64) -> MixOptions {
    MixOptions {
        seed,
        ..MixOptions::default()
    }
}

fn trace(specs: &[&str], conditions: MixOptions) -> Trace {
    let mut last = 0.0;
    let progress = |done: f64| {
        assert!((last..=1.0).contains(&done), "{last} {done}");
        last = done;
    };
    let mix = mix(specs, conditions);
    mix.trace(Path::new("made up"), &LoadOptions::default(), progress)
        .unwrap()
}

fn accesses(trace: &Trace) -> Vec<Access> {
    let mut all = Vec::new();
    let each = |batch: &[Access]| all.extend_from_slice(batch);
    trace.for_each_batch(1000, EVERYTHING, each).unwrap();
    all
}

#[test]
fn each_gives_the_same_bytes_for_the_same_seed_and_others_for_another() {
    for entry in PROGRAMS {
        let folder = tempfile::tempdir().unwrap();
        let [one, same, other] = ["one", "same", "other"].map(|name| folder.path().join(name));
        for (path, seed) in [(&one, 5), (&same, 5), (&other, 6)] {
            let rows = mix(&[small(entry.name)], seeded(seed))
                .write(path, false, |_| {})
                .unwrap();
            assert!(rows > 100, "{}: {rows}", entry.name);
        }
        let read = |path: &Path, file: &str| std::fs::read(path.join(file)).unwrap();
        for file in FILES {
            assert_eq!(read(&one, file), read(&same, file), "{} {file}", entry.name);
        }
        let differ = |file: &&str| read(&one, file) != read(&other, file);
        assert!(["accesses.parquet"].iter().all(differ), "{}", entry.name);

        let loaded = Trace::load(&one, None, &LoadOptions::default()).unwrap();
        let made = trace(&[small(entry.name)], seeded(5));
        assert_eq!(accesses(&made), accesses(&loaded), "{}", entry.name);
        assert_eq!(made.marks(), loaded.marks());
        assert_eq!(made.marks().is_empty(), !entry.iterates, "{}", entry.name);
        assert_eq!(loaded.nodes(), entry.threads as usize, "{}", entry.name);
        assert_eq!(loaded.meta().started_unix_ns, 0);
        assert!(loaded.meta().more.contains_key("generated"));
        // Every object was touched, within its size, and rows are in order of time.
        for (object, tally) in loaded.objects().iter().zip(loaded.object_counts()) {
            assert!(tally.requests + tally.loads + tally.stores + tally.faults > 0);
            assert!(object.first_seen_ns <= object.last_seen_ns);
        }
        for block in 0..loaded.blocks() as u32 {
            let block = hither_core::Block(block);
            let object = &loaded.objects()[loaded.object_of(block).index()];
            assert!(u64::from(loaded.index_of(block)) * 4096 < object.size);
        }
        assert!(!loaded.meta().more.contains_key("out_of_order"));
    }
}

/// Shares of blocks that are private, shared by two, and shared by more.
fn shares(shared: [u64; 3]) -> [f64; 3] {
    let whole: u64 = shared.iter().sum();
    shared.map(|part| part as f64 / whole as f64)
}

fn near(found: [f64; 3], expected: [f64; 3], tolerance: f64, what: &str) {
    let near = |(found, expected): (f64, f64)| (found - expected).abs() <= tolerance;
    let all = found.into_iter().zip(expected).all(near);
    assert!(all, "{what}: {found:?}, not {expected:?}");
}

#[test]
fn shared_files_share_as_in_figures_2_and_3_of_the_post_office_paper() {
    let applications = ["ammp", "fma3d", "wupwise", "oltp", "specjbb", "specweb"];
    let (mut blocks, mut accesses) = ([0.0; 3], [0.0; 3]);
    for application in applications {
        let spec = format!("shared-files{{like={application},blocks=20000}}");
        let stats = Stats::of(&trace(&[&spec], seeded(1))).unwrap();
        // One thread per node, so sharing by threads and by nodes is the same.
        let SharingCounts {
            blocks: of_blocks,
            accesses: of_accesses,
        } = stats.sharing.nodes;
        assert_eq!(stats.sharing.threads, stats.sharing.nodes);
        let off = (stats.blocks as f64 / 20_000.0 - 1.0).abs();
        assert!(off < 0.02, "{application}: {} blocks", stats.blocks);
        for (sums, shared) in [(&mut blocks, of_blocks), (&mut accesses, of_accesses)] {
            for (sum, share) in sums.iter_mut().zip(shares(shared)) {
                *sum += share / applications.len() as f64;
            }
        }
    }
    // The paper's text has no value for blocks of two nodes.
    near(blocks, [0.807, 0.04, 0.153], 0.005, "blocks");
    near(accesses, [0.333, 0.028, 0.639], 0.015, "accesses");
}

#[test]
fn tables_of_shared_files_are_used_by_near_threads_and_move_with_the_phases() {
    let trace = trace(
        &["shared-files{like=oltp,blocks=10000,phases=2}"],
        seeded(2),
    );
    let table = (trace.objects().iter())
        .position(|object| object.path == b"/data/oltp/tables")
        .unwrap();
    let of_table = |index: u32| index as usize * 25 / (trace.objects()[table].size / 4096) as usize;
    let all = accesses(&trace);
    let half = all.len() / 2;
    // Without the middle, where some threads are in the next phase already.
    let phases = [&all[..half * 8 / 10], &all[half * 12 / 10..]];
    for (phase, accesses) in phases.into_iter().enumerate() {
        let place = |table: usize| {
            let (column, row) = (table % 5, table / 5);
            ((column + 5 - 2 * phase) % 5, (row + 5 - phase) % 5)
        };
        let mut hops = [0u64; 3];
        for access in accesses
            .iter()
            .filter(|access| access.object.index() == table)
        {
            let (column, row) = place(of_table(access.index));
            let thread = access.thread.index();
            let distance = column.abs_diff(thread % 5) + row.abs_diff(thread / 5);
            hops[distance] += 1;
        }
        assert!(hops[0] > hops[2] && hops[1] > hops[2], "{phase}: {hops:?}");
    }
}

#[test]
fn every_run_of_grep_reads_every_block_once() {
    let conditions = MixOptions {
        threads: Some(3),
        nodes: Some(2),
        ..seeded(1)
    };
    let trace = trace(&["parallel-grep{runs=12,files=100,size_mib=2}"], conditions);
    assert_eq!((trace.processes(), trace.nodes()), (12, 2));
    assert_eq!(trace.references(), 12 * trace.blocks());
    let stats = Stats::of(&trace).unwrap();
    assert_eq!(stats.sharing.processes.blocks, [0, 0, stats.blocks]);
    // Both nodes get about the same work.
    let all = accesses(&trace);
    let first = all.iter().filter(|access| access.node.0 == 0).count();
    assert!((4..=8).contains(&(first / trace.blocks())), "{first}");
}

#[test]
fn the_web_server_sends_the_large_file_by_all_workers_and_in_the_kernel() {
    let trace = trace(
        &["web-server{requests=40,size_mib=4,small=10,files=100,files_mib=2}"],
        seeded(1),
    );
    let total = trace.counts().total;
    assert_eq!(total.in_kernel_bytes, total.read_bytes);
    let large = &trace.object_counts()[0];
    assert_eq!(trace.objects()[0].path, b"/srv/www/large.iso");
    assert_eq!(large.read_bytes, 40 * (4 << 20));
    let users: BTreeSet<u32> = (accesses(&trace).iter())
        .filter(|access| access.object.0 == 0)
        .map(|access| access.process.0)
        .collect();
    assert_eq!(users.len(), 8);
    // Popularity differs: most small files are requested less often than the average.
    let mut requests: Vec<u64> = (trace.objects().iter())
        .zip(trace.object_counts())
        .map(|(object, tally)| tally.read_bytes / object.size)
        .collect();
    requests.sort_unstable();
    assert!(
        requests[requests.len() / 2] * 2 < requests.iter().sum::<u64>() / requests.len() as u64 + 4
    );
}

#[test]
fn a_build_packs_compiles_indexes_and_links() {
    let trace = trace(
        &["compile{sources=60,source_mib=2,headers=40,header_mib=1,includes=12}"],
        seeded(1),
    );
    let mut by_command: BTreeMap<&str, u32> = BTreeMap::new();
    for process in &trace.meta().processes {
        *by_command.entry(&process.exe).or_default() += 1;
    }
    let expected = [
        ("as", 60),
        ("cc1", 60),
        ("cscope", 1),
        ("ld", 1),
        ("tar", 1),
    ];
    assert_eq!(by_command.into_iter().collect::<Vec<_>>(), expected);
    let mut written = BTreeSet::new();
    for access in accesses(&trace) {
        let path = trace.objects()[access.object.index()].path_lossy();
        if access.op == Op::Write {
            written.insert(access.block);
        }
        // Files of the build are read only after they were written.
        let made = [".s", ".o"].iter().any(|ending| path.ends_with(ending));
        assert!(!made || written.contains(&access.block), "{path}");
    }
    let sums = |ending: &str| {
        let rows = trace.objects().iter().zip(trace.object_counts());
        let rows = rows.filter(|(object, _)| object.path.ends_with(ending.as_bytes()));
        rows.map(|(object, tally)| [object.size, tally.read_bytes, tally.written_bytes])
            .fold([0; 3], |sums, row| [0, 1, 2].map(|at| sums[at] + row[at]))
    };
    // tar, a compiler and cscope read each source.
    let [size, read, _] = sums(".c");
    assert_eq!(read, 3 * size);
    let [size, read, written] = sums(".s");
    assert_eq!((read, written), (size, size));
    let [size, read, written] = sums(".o");
    assert_eq!((read, written), (size, size));
    // 60 sources include 12 of 40 headers each, popular ones more often. The size of a header
    // varies most.
    let [size, read, _] = sums(".h");
    assert!(read > 8 * size, "{read} {size}");
}

#[test]
fn each_test_of_iozone_goes_over_each_file_once_and_threads_are_started_anew() {
    let conditions = MixOptions {
        threads: Some(2),
        ..seeded(1)
    };
    let trace = trace(&["iozone{size_mib=1,stride=7}"], conditions);
    assert_eq!(
        (trace.threads(), trace.processes(), trace.objects().len()),
        (12, 1, 2)
    );
    assert_eq!((trace.blocks(), trace.references()), (512, 6 * 512));
    let all = accesses(&trace);
    let of_first = |test: usize| -> Vec<u32> {
        let of = all.iter().filter(|access| access.object.0 == 0);
        of.skip(test * 256)
            .take(256)
            .map(|access| access.index)
            .collect()
    };
    assert!(of_first(0).into_iter().eq(0..256));
    assert!(of_first(4).into_iter().eq((0..256).rev()));
    assert_eq!(of_first(5)[..3], [0, 7, 14]);
    assert_eq!(of_first(5).into_iter().collect::<BTreeSet<_>>().len(), 256);
}

#[test]
fn a_mix_is_in_order_of_time_and_its_programs_have_their_own_processes_and_nodes() {
    let specs = [
        "parallel-grep{runs=6,files=30,size_mib=1}",
        "iozone{size_mib=1}",
    ];
    let conditions = MixOptions {
        threads: Some(2),
        nodes: Some(4),
        ..seeded(3)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    mix(&specs, conditions).write(&path, false, |_| {}).unwrap();
    let loaded = Trace::load(&path, None, &LoadOptions::default()).unwrap();
    assert!(!loaded.meta().more.contains_key("out_of_order"));
    assert_eq!((loaded.processes(), loaded.nodes()), (7, 4));
    let alone: usize = (specs.iter())
        .map(|spec| trace(&[spec], conditions).references())
        .sum();
    // Another seed gives other file sizes, as do the parts of a mix.
    let off = loaded.references().abs_diff(alone);
    assert!(off * 5 < alone, "{} {alone}", loaded.references());
    // Neither waits for the other.
    let all = accesses(&loaded);
    let iozone = |access: &Access| {
        let process = &loaded.meta().processes[access.process.index()];
        process.exe == "iozone"
    };
    let turns = all.chunk_by(|a, b| iozone(a) == iozone(b)).count();
    assert!(turns > 100, "{turns}");
}

/// The share of the processes of `exe` that run on node 0, of two.
fn on_first_node(spec: &str, exe: &str, threads: u32) -> f64 {
    let conditions = MixOptions {
        threads: Some(threads),
        nodes: Some(2),
        ..seeded(1)
    };
    let trace = trace(&[spec], conditions);
    let mut nodes = BTreeMap::new();
    for access in accesses(&trace) {
        if trace.meta().processes[access.process.index()].exe == exe {
            nodes.insert(access.process, access.node);
        }
    }
    let first = nodes.values().filter(|node| node.0 == 0).count();
    first as f64 / nodes.len() as f64
}

#[test]
fn compilers_stay_with_make_by_the_chance_that_is_asked_for() {
    let of = |sticky: &str| {
        let size = "sources=200,source_mib=1,headers=9,header_mib=1,includes=2";
        let spec = format!("compile{{{size},tar=0,cscope=0,sticky={sticky}}}");
        let first = on_first_node(&spec, "cc1", 1);
        // Make may be on either node.
        first.max(1.0 - first)
    };
    assert_eq!(of("1"), 1.0);
    assert!((0.5..0.65).contains(&of("0")), "{}", of("0"));
    assert!((0.68..0.82).contains(&of("0.5")), "{}", of("0.5"));
}

#[test]
fn a_part_of_a_build_is_left_out_on_request() {
    let size = "sources=20,source_mib=1,headers=9,header_mib=1,includes=2";
    for (left_out, left) in [("gcc=0,cscope=0", "tar"), ("gcc=0,tar=0", "cscope")] {
        let trace = trace(&[&format!("compile{{{size},{left_out}}}")], seeded(1));
        let all = trace.meta().processes.iter().map(|process| &process.exe);
        assert_eq!(all.collect::<Vec<_>>(), [left]);
    }
}

#[test]
fn workers_are_dealt_unevenly_on_request() {
    let of = |uneven: &str| {
        let spec = format!("web-server{{requests=20,size_mib=1,small=0,uneven={uneven}}}");
        on_first_node(&spec, "httpd", 20)
    };
    assert_eq!([of("0"), of("0.5"), of("1")], [0.5, 0.75, 1.0]);
}

#[test]
fn the_programs_of_a_queue_run_one_after_another() {
    let (long, short) = ("iozone{size_mib=4}", "iozone{size_mib=1}");
    let conditions = MixOptions {
        threads: Some(1),
        queues: Some(2),
        ..seeded(3)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let specs = [long, short, short, short];
    mix(&specs, conditions).write(&path, false, |_| {}).unwrap();
    let trace = Trace::load(&path, None, &LoadOptions::default()).unwrap();
    assert!(!trace.meta().more.contains_key("out_of_order"));
    let mut spans = vec![(usize::MAX, 0); 4];
    for (at, access) in accesses(&trace).iter().enumerate() {
        let span = &mut spans[access.process.index()];
        *span = (span.0.min(at), span.1.max(at));
    }
    let after = |first: usize, then: usize| spans[first].1 < spans[then].0;
    // The first queue has programs 0 and 2, the second one 1 and 3, which ends first.
    assert!(after(0, 2) && after(1, 3), "{spans:?}");
    assert!(!after(0, 1) && !after(0, 3), "{spans:?}");
}

#[test]
fn threads_move_on_request() {
    let specs = ["web-server{requests=20,size_mib=4,small=0}"];
    let moves = |migrate_every: u64| {
        let conditions = MixOptions {
            migrate_every,
            nodes: Some(4),
            ..seeded(1)
        };
        let trace = trace(&specs, conditions);
        let mut nodes = vec![BTreeSet::new(); trace.threads()];
        for access in accesses(&trace) {
            nodes[access.thread.index()].insert(access.node);
        }
        nodes.iter().map(BTreeSet::len).max().unwrap()
    };
    assert_eq!(moves(0), 1);
    assert!(moves(20) > 2);
}
