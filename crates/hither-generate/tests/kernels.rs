//! Programs over memory: their traces after loading.

use hither_core::placement::EpochKind;
use hither_core::registry::Needs;
use hither_core::{Access, Op};
use hither_generate::{MixOptions, ProgramMix, ProgramSpec};
use hither_trace::schema::{ACCESSES, ObjectKind};
use hither_trace::{LoadOptions, Trace};

/// Small variants of all, with three iterations and their number of constructs per iteration.
const SMALL: [(&str, usize); 7] = [
    (
        "bucket-sort{keys=20000,key_bits=12,bucket_bits=5,iterations=3,l2_kib=32}",
        5,
    ),
    ("cfd{points=12,iterations=3,l2_kib=32}", 8),
    (
        "cg{rows=1000,nonzeros=3,steps=4,iterations=3,l2_kib=32}",
        1 + 3 * 4 + 4,
    ),
    ("matmul{rows=64,block=16,iterations=3,l2_kib=32}", 2),
    // A cycle goes down 3 levels, clears and smooths the coarsest, and comes up; each operator but
    // zero3 copies borders.
    (
        "multigrid{levels=4,iterations=3,l2_kib=32}",
        3 * 3 + 4 + 2 * 8 + 7 + 3,
    ),
    ("stencil{points=48,iterations=3,l2_kib=32}", 3),
    ("sweeps{kib=2048,iterations=3,l2_kib=32}", 3),
];

fn mix(specs: &[&str], conditions: MixOptions) -> ProgramMix {
    let specs: Vec<ProgramSpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
    ProgramMix::new(&specs, conditions)
}

/// Options with these numbers of threads and nodes.
fn conditions(threads: u32, nodes: u32) -> MixOptions {
    MixOptions {
        threads: Some(threads),
        nodes: Some(nodes),
        seed: 1,
        ..MixOptions::default()
    }
}

fn trace(spec: &str, conditions: MixOptions) -> Trace {
    let trace = mix(&[spec], conditions).trace("test".as_ref(), &LoadOptions::default(), |_| {});
    trace.unwrap()
}

fn accesses(trace: &Trace) -> Vec<Access> {
    let mut all = Vec::new();
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    trace
        .for_each_batch(1000, needs, |batch| all.extend_from_slice(batch))
        .unwrap();
    all
}

#[test]
fn constructs_and_iterations_are_marked_and_arrays_are_regions_of_memory() {
    for (spec, constructs) in SMALL {
        let trace = trace(spec, conditions(4, 2));
        let ends = |kind| trace.marks().iter().filter(move |mark| mark.kind == kind);
        assert_eq!(ends(EpochKind::Iteration).count(), 3, "{spec}");
        // The constructs of an iteration lie between its end and the end of the previous one; those
        // of the first follow the initialisation.
        let kinds: Vec<EpochKind> = trace.marks().iter().map(|mark| mark.kind).collect();
        let iterations: Vec<usize> = kinds
            .split(|&kind| kind == EpochKind::Iteration)
            .map(<[EpochKind]>::len)
            .collect();
        assert_eq!(iterations[1..], [constructs, constructs, 0], "{spec}");
        assert!(iterations[0] > constructs, "{spec}");
        let objects = trace.objects();
        assert!(
            objects
                .iter()
                .all(|object| object.kind == ObjectKind::Memory)
        );
        let accesses = accesses(&trace);
        assert!(accesses.iter().any(|access| access.op == Op::Write));
        assert!(accesses.iter().any(|access| access.count > 1));
        assert_eq!(trace.threads(), 4);
        assert_eq!(trace.nodes(), 2);
        assert!(
            accesses
                .iter()
                .all(|access| access.node.0 == (access.thread.0 / 2) as u16)
        );
        for access in accesses {
            let bytes = objects[access.object.index()].size;
            assert!(u64::from(access.index) * 4096 < bytes, "{spec}");
        }
    }
}

#[test]
fn the_first_touch_is_by_blocks_or_all_by_the_first_thread() {
    for (spec, _) in SMALL {
        let by_first = |serial: bool| {
            let spec = spec.replace('}', &format!(",serial_init={}}}", u8::from(serial)));
            let trace = trace(&spec, conditions(4, 4));
            let mut seen = vec![false; trace.blocks()];
            let mut by_first = 0;
            for access in accesses(&trace) {
                if !std::mem::replace(&mut seen[access.block.index()], true) {
                    by_first += usize::from(access.node.0 == 0);
                }
            }
            assert!(seen.iter().all(|&seen| seen));
            by_first as f64 / seen.len() as f64
        };
        assert_eq!(by_first(true), 1.0, "{spec}");
        assert!(
            (0.1..0.6).contains(&by_first(false)),
            "{spec}: {}",
            by_first(false)
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_mixes_have_a_process_each() {
    let folder = tempfile::tempdir().unwrap();
    let specs = SMALL.map(|(spec, _)| spec);
    let bytes = |name: &str, seed| {
        let path = folder.path().join(name);
        let conditions = MixOptions {
            seed,
            migrate_every: 1,
            ..conditions(3, 3)
        };
        mix(&specs, conditions).write(&path, false, |_| {}).unwrap();
        (std::fs::read(path.join(ACCESSES)).unwrap(), path)
    };
    let ((one, path), (same, _), (other, _)) = (bytes("a", 1), bytes("b", 1), bytes("c", 2));
    assert!(one == same);
    assert!(one != other);
    let trace = Trace::load(&path, None, &LoadOptions::default()).unwrap();
    assert_eq!(trace.processes(), specs.len());
    assert_eq!(trace.threads(), 3 * specs.len());
}

#[test]
fn threads_change_nodes_between_iterations_and_nowhere_else() {
    let spec = "stencil{points=48,iterations=6,l2_kib=32}";
    let conditions = MixOptions {
        migrate_every: 2,
        ..conditions(4, 4)
    };
    let trace = trace(spec, conditions);
    let ends: Vec<u64> = (trace.marks().iter())
        .filter(|mark| mark.kind == EpochKind::Iteration)
        .map(|mark| mark.reference)
        .collect();
    // By iteration, the nodes of the threads.
    let mut nodes = vec![[None; 4]; ends.len()];
    for access in accesses(&trace) {
        let iteration = ends.partition_point(|&end| end <= access.tick);
        let before = nodes[iteration][access.thread.index()].replace(access.node);
        assert!(before.is_none_or(|before| before == access.node));
    }
    for iteration in &nodes {
        let mut nodes = iteration.map(|node| node.unwrap().0);
        nodes.sort_unstable();
        assert_eq!(nodes, [0, 1, 2, 3]);
    }
    assert_eq!(nodes[0], nodes[1]);
    assert_eq!(nodes[2], nodes[3]);
    assert_eq!(nodes[4], nodes[5]);
    assert!(nodes[0] != nodes[2] || nodes[2] != nodes[4]);
}
