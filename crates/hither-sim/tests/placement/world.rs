//! Random programs on random machines.

use std::sync::Arc;

use hither_core::placement::{EpochKind, Mark, Target};
use hither_core::registry::{self, Needs};
use hither_core::{Access, Block, Node, Object, Op, Process, Random, Site, Spec, Thread, Topology};
use hither_sim::References;
use hither_sim::references::InMemory;

/// A program and the machine that it runs on.
pub(crate) struct World {
    pub(crate) trace: InMemory,
    pub(crate) topology: Arc<Topology>,
    pub(crate) capacity: Vec<u32>,
    /// The replacement policy of a node's blocks of files.
    pub(crate) replacement: Spec,
}

fn topologies() -> Vec<Topology> {
    let named = [
        "1",
        "2",
        "3",
        "mesh:3x3",
        "torus:3x3",
        "hypercube:3",
        "tree:2x3",
        "ring:2x3",
        "opteron2",
        "numachine-4",
    ];
    let named = named.iter().map(|text| text.parse().expect("a topology"));
    named.chain([chain()]).collect()
}

/// Three nodes in a row: the middle one is nearer to one end, and one end is slow.
fn chain() -> Topology {
    let latency_ns = [80, 130, 240, 130, 80, 160, 240, 160, 90];
    Topology::from_matrix("chain", &latency_ns).expect("distances")
}

/// The length of a program.
pub(crate) const ACCESSES: u64 = 300;

impl World {
    /// Two pages on a chain of three nodes. Page 0 is read 10 times from one end and 11 times from
    /// the other, page 1 from one end.
    pub(crate) fn chain() -> World {
        let read = |tick, block, node, count| Access {
            node: Node(node),
            count,
            ..Access::bare(tick, Block(block))
        };
        let accesses = vec![read(0, 0, 0, 10), read(1, 1, 0, 5), read(2, 0, 2, 11)];
        let knows = Needs {
            objects: true,
            ..Needs::NOTHING
        };
        World {
            trace: InMemory::new(accesses, knows),
            topology: Arc::new(chain()),
            capacity: vec![2; 3],
            replacement: "lru".parse().expect("a policy"),
        }
    }

    /// The number of blocks that the program uses.
    pub(crate) fn blocks(&self) -> u32 {
        self.trace.blocks()
    }

    /// Threads of two processes, which change nodes now and then, sweep over files and return to
    /// some of their blocks more often than to others. With an even seed there are iterations and
    /// constructs.
    pub(crate) fn new(seed: u64, target: Target) -> World {
        let mut random = Random::new(seed);
        let mut topologies = topologies();
        let topology = topologies.swap_remove(random.below(topologies.len() as u64) as usize);
        let nodes = topology.nodes() as u64;
        let most = [1, 3, 8, 40][random.below(4) as usize];
        let capacity = (0..nodes).map(|_| 1 + random.below(most) as u32).collect();

        let simple = registry::replacement_policies()
            .iter()
            .filter(|entry| !entry.needs.future);
        let simple: Vec<_> = simple.collect();
        let replacement = match random.below(2) {
            0 => registry::find("lru").expect("a policy"),
            _ => simple[random.below(simple.len() as u64) as usize],
        };

        let threads = 1 + random.below(2 * nodes);
        let mut runs_on: Vec<u64> = (0..threads).map(|_| random.below(nodes)).collect();
        let mut at = vec![0; threads as usize];
        let sizes: Vec<u64> = (0..1 + random.below(4))
            .map(|_| 1 + random.below(20))
            .collect();
        let bases: Vec<u64> = sizes
            .iter()
            .scan(0, |next, size| Some(std::mem::replace(next, *next + size)))
            .collect();
        let (writes, moves) = (random.below(4), random.below(2) * 20);
        let accesses = (0..ACCESSES)
            .map(|tick| {
                let thread = random.below(threads);
                if moves > 0 && random.below(moves) == 0 {
                    runs_on[thread as usize] = random.below(nodes);
                }
                let object = random.below(sizes.len() as u64);
                let size = sizes[object as usize];
                let index = if random.below(3) == 0 {
                    random.below(size).min(random.below(size))
                } else {
                    at[thread as usize] += 1;
                    at[thread as usize] % size
                };
                Access {
                    object: Object(object as u32),
                    index: index as u32,
                    site: Site(object as u32),
                    thread: Thread(thread as u32),
                    process: Process(thread as u32 % 2),
                    op: match random.below(20) {
                        op if op < writes => Op::Write,
                        19 if target == Target::Files => Op::Map,
                        _ => Op::Read,
                    },
                    node: Node(runs_on[thread as usize] as u16),
                    count: match target {
                        Target::Memory => 1 + random.below(60) as u32,
                        Target::Files => 1,
                    },
                    ..Access::bare(tick, Block((bases[object as usize] + index) as u32))
                }
            })
            .collect();
        let marks = (1..ACCESSES / 20).map(|nth| Mark {
            reference: nth * 20,
            kind: match nth % 3 {
                0 => EpochKind::Iteration,
                _ => EpochKind::Construct,
            },
            process: Process((nth / 3 % 2) as u32),
        });
        let marks = match seed % 2 {
            0 => marks.collect(),
            _ => Vec::new(),
        };
        let knows = Needs::ALL;
        let bytes = sizes.iter().map(|size| size * 4096).collect();
        World {
            trace: InMemory::new(accesses, knows)
                .with_marks(marks)
                .with_object_bytes(bytes),
            topology: Arc::new(topology),
            capacity,
            replacement: Spec::defaults(replacement),
        }
    }
}
