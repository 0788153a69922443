//! Out-of-core applications whose threads share files, on a mesh: the workload of the paper on
//! post-office placement.
//!
//! The paper (section 3, figures 2 and 3) gives the average sharing of its six applications on a
//! 5x5 mesh: 80.7 % of the blocks are private to a node and receive 33.3 % of the accesses; blocks
//! of two nodes receive 2.8 %, and blocks of more nodes 63.9 %. It does not give the values of each
//! application, nor the share of blocks of two nodes. The styles below have these averages. How
//! they differ is our choice: out-of-core array codes (SPEComp's ammp, fma3d, wupwise) sweep over
//! private slabs tile by tile, exchange borders and read tables; transaction systems (oltp,
//! specjbb, specweb) access single blocks by popularity and share more.
//!
//! The paper counts the sharers of a block from its fetch to its eviction, which depends on the
//! cache. Here sharers are counted over the whole trace, so that sharing is a property of the
//! workload. The two agree as far as blocks stay cached.
//!
//! There are four kinds of files, one file each:
//! - *slabs*, one per thread, private. Array codes sweep them in tiles of an eighth, each tile
//!   twice before the next: part of the reuse fits a small cache, the rest only a cache that holds
//!   the slab. Transactions access them by popularity. With `uneven`, the threads on the black
//!   squares of the mesh have larger slabs than those on the white ones, and as many times as many
//!   accesses in the same time: the "node with a large working set" beside "idle cache capacity
//!   that belongs to a neighboring node" of section 4.1.
//! - *borders*, one for each pair of neighbours on the mesh. Both read them in order.
//! - *tables*, one for each position on the mesh. Threads near that position use it, its own thread
//!   the most. In each phase the tables move to other positions, and other blocks of them are
//!   popular.
//! - *global*, used by all threads alike, by popularity.
//!
//! Threads are laid out in rows of a mesh that is as square as possible. Thread i runs on node i if
//! there are as many nodes.

use super::definition::{Program, THREADS_MAX};
use super::execution::{Execution, Stopped, take_turns};
use super::files::{FileRequest, TimeModel};
use crate::permutation::Permutation;
use crate::zipf::ZipfRanks;
use hither_core::random::{Random, mix};
use hither_core::registry::{Param, ParamKind};
use hither_core::spec::Values;
use hither_trace::LoadOptions;
use hither_trace::schema::RowOp;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "shared-files",
    summary: "out-of-core applications whose threads share files, near threads more than far \
              ones, in phases",
    source: "the six applications of topology-aware I/O caching, by the sharing of its figures 2 \
             and 3",
    params: &[
        Param {
            name: "like",
            doc: "which of the paper's applications: out-of-core array sweeps (the first three) \
                  or transactions",
            kind: ParamKind::Name {
                default: "ammp",
                names: &["ammp", "fma3d", "wupwise", "oltp", "specjbb", "specweb"],
            },
        },
        Param::count(
            "blocks",
            "blocks of all files together, except for rounding",
            100_000,
            1..=1 << 31,
        ),
        Param::count("reuse", "average accesses per block", 20, 1..=1 << 20),
        Param::count(
            "phases",
            "how often tables change places and other blocks become popular",
            4,
            1..=1 << 20,
        ),
        Param::real(
            "uneven",
            "how many times as large as its neighbours' slabs every second thread's slab is, and \
             how many times as many accesses it makes",
            1.0,
            1.0..=1000.0,
        ),
    ],
    threads: 25,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

/// The sharing of an application. All values are shares of blocks or of accesses.
struct Style {
    private_blocks: f64,
    border_blocks: f64,
    private_accesses: f64,
    border_accesses: f64,
    /// The share of tables in what more than two threads share, by blocks and by accesses. The rest
    /// is global.
    table_share: f64,
    /// Whether slabs are swept, and not accessed by popularity.
    sweeps: bool,
    /// Zipf's exponent in tables, and in slabs that are not swept.
    skew: f64,
    /// The shares of writes in accesses to slabs, and in accesses to shared files.
    writes: [f64; 2],
}

impl Style {
    /// Cumulative chances of a request to a slab of so many blocks, a border of so many, and a
    /// table.
    fn chances(&self, slab_blocks: u64, border_blocks: u64) -> [f64; 3] {
        let accesses = 1.0 - self.private_accesses - self.border_accesses;
        let slab_request = if self.sweeps {
            request_blocks(slab_blocks.div_ceil(TILES_PER_SLAB))
        } else {
            1.0
        };
        let requests = [
            self.private_accesses / slab_request,
            self.border_accesses / request_blocks(border_blocks),
            accesses * self.table_share,
            accesses * (1.0 - self.table_share),
        ];
        let all: f64 = requests.iter().sum();
        let mut sum = 0.0;
        [0, 1, 2].map(|area: usize| {
            sum += requests[area] / all;
            sum
        })
    }
}

/// The style of each value of `like`. The averages are the paper's: 80.7 % of the blocks are
/// private; these receive 33.3 % of the accesses, and blocks of two threads 2.8 %.
fn style(name: &str) -> Style {
    let shares = |private_blocks, border_blocks, private_accesses, border_accesses| Style {
        private_blocks,
        border_blocks,
        private_accesses,
        border_accesses,
        table_share: 0.7,
        sweeps: true,
        skew: 0.5,
        writes: [0.25, 0.02],
    };
    let transactions = |table_share, skew, writes, style| Style {
        table_share,
        sweeps: false,
        skew,
        writes,
        ..style
    };
    match name {
        "ammp" => shares(0.84, 0.06, 0.38, 0.045),
        "fma3d" => shares(0.86, 0.05, 0.40, 0.04),
        "wupwise" => shares(0.82, 0.04, 0.36, 0.03),
        "oltp" => transactions(0.5, 0.7, [0.3, 0.1], shares(0.76, 0.03, 0.28, 0.015)),
        "specjbb" => transactions(0.6, 0.6, [0.2, 0.05], shares(0.79, 0.04, 0.31, 0.023)),
        _ => transactions(0.5, 0.8, [0.02, 0.0], shares(0.772, 0.02, 0.268, 0.015)),
    }
}

/// Blocks per request in sequential reads.
const SWEEP_REQUEST_BLOCKS: u64 = 8;
/// A slab has this number of tiles, and each tile is swept this number of times in a row.
const TILES_PER_SLAB: u64 = 8;
const SWEEPS_PER_TILE: u64 = 2;
/// How many hops away the table of a thread's next access is: the chances of 0 and of 1. The rest
/// is 2.
const HOP_SHARES: [f64; 2] = [0.35, 0.45];
/// How far tables move in each phase, in columns and rows.
const TABLE_SHIFT_PER_PHASE: [u64; 2] = [2, 1];
/// Zipf's exponent in slabs. It is low, so that each block is used.
const SLAB_ZIPF_SKEW: f64 = 0.3;
/// Time that a thread works on a block.
const WORK_NS_PER_BLOCK: f64 = 20_000.0;

/// The kinds of files.
#[derive(Clone, Copy)]
enum FileKind {
    Slab,
    Border,
    Table,
    Global,
}

/// The positions of the threads.
#[derive(Clone, Copy)]
struct Mesh {
    threads: u64,
    columns: u64,
    rows: u64,
}

impl Mesh {
    fn new(threads: u64) -> Mesh {
        let columns = (1..).find(|side| side * side >= threads).expect("one is");
        Mesh {
            threads,
            columns,
            rows: threads.div_ceil(columns),
        }
    }

    /// The pairs of neighbours.
    fn borders(&self) -> Vec<[u64; 2]> {
        let right = (0..self.threads)
            .filter(|thread| (thread + 1) % self.columns != 0)
            .map(|thread| [thread, thread + 1]);
        let below = (0..self.threads).map(|thread| [thread, thread + self.columns]);
        right
            .chain(below)
            .filter(|pair| pair[1] < self.threads)
            .collect()
    }

    /// The table that lies `hops` random steps from a thread in `phase`. Steps beyond the border of
    /// the mesh are skipped.
    fn table(&self, thread: u64, hops: u32, phase: u64, random: &mut Random) -> u64 {
        let (mut column, mut row) = (thread % self.columns, thread / self.columns);
        for _ in 0..hops {
            match random.below(4) {
                0 if column + 1 < self.columns => column += 1,
                1 if column > 0 => column -= 1,
                2 if row + 1 < self.rows => row += 1,
                3 if row > 0 => row -= 1,
                _ => {}
            }
        }
        let column = (column + phase * TABLE_SHIFT_PER_PHASE[0]) % self.columns;
        let row = (row + phase * TABLE_SHIFT_PER_PHASE[1]) % self.rows;
        row * self.columns + column
    }
}

/// The progress of a thread.
#[derive(Clone)]
struct Worker {
    thread: u32,
    /// Blocks accessed so far, in all files.
    done: u64,
    /// Blocks of its slab swept so far.
    swept: u64,
    /// Its borders, each with its position in it.
    borders: Vec<(u64, u64)>,
    random: Random,
}

/// The private blocks of a thread.
#[derive(Clone, Copy)]
struct Slab {
    /// Its first block in the file of all slabs.
    first: u64,
    /// Its size, as an index into [`Plan::sizes`].
    size: usize,
}

/// A size of slabs.
struct SlabSize {
    blocks: u64,
    ranks: ZipfRanks,
    /// Blocks that the slab's thread accesses in all, and how long it works on each.
    work: u64,
    work_ns_per_block: f64,
    /// Cumulative chances of a request to a slab, a border and a table. The rest goes to the global
    /// file.
    chances: [f64; 3],
}

/// The parameters that all threads share.
struct Plan {
    style: Style,
    mesh: Mesh,
    key: u64,
    phases: u64,
    /// By thread.
    slabs: Vec<Slab>,
    sizes: [SlabSize; 2],
    /// Blocks per border, per table, and of the global file.
    border_blocks: u64,
    table_blocks: u64,
    global_blocks: u64,
    table: ZipfRanks,
    global: ZipfRanks,
}

impl Plan {
    fn new(values: &Values, threads: u64, key: u64) -> Plan {
        let mut style = style(values.name(0));
        let (blocks, reuse) = (values.count(1), values.count(2));
        let mesh = Mesh::new(threads);
        let borders = mesh.borders().len() as u64;
        if borders == 0 {
            style.private_blocks += std::mem::take(&mut style.border_blocks);
            style.private_accesses += std::mem::take(&mut style.border_accesses);
        }
        let shared = 1.0 - style.private_blocks - style.border_blocks;
        let parts = |share: f64, parts: u64| {
            ((share * blocks as f64) as u64)
                .div_ceil(parts.max(1))
                .max(1)
        };
        let uneven = values.real(4);
        let is_large = |thread: u64| (thread % mesh.columns + thread / mesh.columns) % 2 == 1;
        let large = (0..threads).filter(|&thread| is_large(thread)).count() as f64;
        // Slabs of the smaller size that have as many blocks as all slabs together.
        let smaller = threads as f64 + (uneven - 1.0) * large;
        let private = (style.private_blocks * blocks as f64).floor();
        let part = |whole: f64, times: f64| ((whole * times / smaller).ceil() as u64).max(1);
        let slab_blocks = [1.0, uneven].map(|times| part(private, times));
        let mut first = 0;
        let slabs = (0..threads)
            .map(|thread| {
                let size = usize::from(is_large(thread));
                let slab = Slab { first, size };
                first += slab_blocks[size];
                slab
            })
            .collect();
        let border_blocks = parts(style.border_blocks, borders);
        let table_blocks = parts(shared * style.table_share, mesh.columns * mesh.rows);
        let global_blocks = parts(shared * (1.0 - style.table_share), 1);
        let accesses = (blocks * reuse) as f64;
        let sizes = [0, 1].map(|size| {
            let (blocks, times) = (slab_blocks[size], [1.0, uneven][size]);
            SlabSize {
                blocks,
                ranks: ZipfRanks::new(blocks, SLAB_ZIPF_SKEW),
                work: part(accesses, times),
                // All threads end at about the same time.
                work_ns_per_block: WORK_NS_PER_BLOCK * smaller / (times * threads as f64),
                chances: style.chances(blocks, border_blocks),
            }
        });
        Plan {
            mesh,
            key,
            phases: values.count(3),
            slabs,
            sizes,
            border_blocks,
            table_blocks,
            global_blocks,
            table: ZipfRanks::new(table_blocks, style.skew),
            global: ZipfRanks::new(global_blocks, style.skew),
            style,
        }
    }

    /// The next request of a worker: the kind of file, the first block, and the number of blocks.
    fn next(&self, worker: &mut Worker) -> (FileKind, u64, u64) {
        let thread = u64::from(worker.thread);
        let slab = self.slabs[worker.thread as usize];
        let size = &self.sizes[slab.size];
        let phase = worker.done * self.phases / size.work;
        let random = &mut worker.random;
        let drawn = random.unit();
        let area = size.chances.iter().position(|&chance| drawn < chance);
        match area {
            Some(0) if self.style.sweeps => {
                let (at, blocks) = sweep(size.blocks, worker.swept);
                worker.swept += blocks;
                (FileKind::Slab, slab.first + at, blocks)
            }
            Some(0) => {
                let rank = size.ranks.draw(random) - 1;
                let at = Permutation::new(size.blocks, self.key ^ mix(thread)).apply(rank);
                (FileKind::Slab, slab.first + at, 1)
            }
            Some(1) => {
                let of = random.below(worker.borders.len() as u64) as usize;
                let (border, at) = &mut worker.borders[of];
                let blocks = SWEEP_REQUEST_BLOCKS.min(self.border_blocks - *at);
                let first = *border * self.border_blocks + *at;
                *at = (*at + blocks) % self.border_blocks;
                (FileKind::Border, first, blocks)
            }
            Some(2) => {
                let drawn = random.unit();
                let hops = match () {
                    () if drawn < HOP_SHARES[0] => 0,
                    () if drawn < HOP_SHARES[0] + HOP_SHARES[1] => 1,
                    () => 2,
                };
                let table = self.mesh.table(thread, hops, phase, random);
                let key = self.key ^ mix(mix(phase + 1) ^ table);
                let rank = self.table.draw(random) - 1;
                let at = Permutation::new(self.table_blocks, key).apply(rank);
                (FileKind::Table, table * self.table_blocks + at, 1)
            }
            _ => {
                let rank = self.global.draw(random) - 1;
                let key = self.key ^ mix(phase + 1);
                let at = Permutation::new(self.global_blocks, key).apply(rank);
                (FileKind::Global, at, 1)
            }
        }
    }
}

/// Average blocks per request in a pass over `pass` blocks, whose last request may be shorter.
fn request_blocks(pass: u64) -> f64 {
    pass as f64 / pass.div_ceil(SWEEP_REQUEST_BLOCKS) as f64
}

/// The position of a sweep after `swept` blocks, and the blocks of its next request. A sweep covers
/// tile after tile, each [`SWEEPS_PER_TILE`] times, and starts again.
fn sweep(slab: u64, swept: u64) -> (u64, u64) {
    let tile = slab.div_ceil(TILES_PER_SLAB);
    let within = swept % (slab * SWEEPS_PER_TILE);
    let number = within / (tile * SWEEPS_PER_TILE);
    let first = number * tile;
    // The last tile may be shorter.
    let blocks = tile.min(slab - first);
    let at = (within - first * SWEEPS_PER_TILE) % blocks;
    (first + at, SWEEP_REQUEST_BLOCKS.min(blocks - at))
}

/// A file of an application, and the call site that uses it.
#[derive(Clone, Copy)]
struct Area {
    object: u32,
    site: u32,
}

fn run(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let threads = u64::from(execution.threads());
    let key = execution.random(0).bits();
    let plan = Plan::new(values, threads, key);
    let block_bytes = u64::from(LoadOptions::DEFAULT.block_bytes);
    let borders = plan.mesh.borders();
    let places = plan.mesh.columns * plan.mesh.rows;
    let application = values.name(0);
    let slabs = plan.slabs.iter().map(|slab| plan.sizes[slab.size].blocks);
    let areas: Vec<Area> = [
        ("slabs", slabs.sum()),
        ("borders", borders.len() as u64 * plan.border_blocks),
        ("tables", places * plan.table_blocks),
        ("global", plan.global_blocks),
    ]
    .into_iter()
    .map(|(area, blocks)| {
        let path = format!("/data/{application}/{area}");
        let file = execution.file(path, blocks * block_bytes);
        Area {
            object: file,
            site: execution.site(format!("{application}.{area}")),
        }
    })
    .collect();
    let process = execution.process(&[application]);
    let mut workers: Vec<Worker> = (0..threads)
        .map(|thread| {
            let own = (0u64..)
                .zip(&borders)
                .filter(|(_, pair)| pair.contains(&thread));
            let mut random = execution.random(1 + thread);
            // Neighbours start at different positions.
            let borders = own
                .map(|(border, _)| (border, random.below(plan.border_blocks)))
                .collect();
            Worker {
                thread: execution.thread(process),
                done: 0,
                swept: 0,
                borders,
                random,
            }
        })
        .collect();
    let mut time_model = TimeModel::new(execution.random(threads + 1));
    take_turns(execution, threads as u32, 0, |execution, number, now| {
        let worker = &mut workers[number as usize];
        let size = &plan.sizes[plan.slabs[number as usize].size];
        if worker.done >= size.work {
            return Ok(None);
        }
        if number == 0 {
            execution.done(worker.done as f64 / size.work as f64);
        }
        let (area, first, blocks) = plan.next(worker);
        worker.done += blocks;
        let writes = plan.style.writes[usize::from(!matches!(area, FileKind::Slab))];
        let write = worker.random.unit() < writes;
        let Area { object, site } = areas[area as usize];
        let request = FileRequest {
            site,
            object,
            op: if write { RowOp::Write } else { RowOp::Read },
            offset: first * block_bytes,
            length: blocks * block_bytes,
            in_kernel: false,
        };
        execution.push(request.row(worker.thread, now));
        Ok(Some(
            time_model.drawn(now, size.work_ns_per_block * blocks as f64),
        ))
    })
    .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_has_borders_between_neighbours_and_tables_at_its_places() {
        let mesh = Mesh::new(25);
        assert_eq!((mesh.columns, mesh.rows, mesh.borders().len()), (5, 5, 40));
        let uneven = Mesh::new(7);
        assert_eq!((uneven.columns, uneven.rows), (3, 3));
        let borders = [
            [0, 1],
            [1, 2],
            [3, 4],
            [4, 5],
            [0, 3],
            [1, 4],
            [2, 5],
            [3, 6],
        ];
        assert_eq!(uneven.borders(), borders);
        assert!(Mesh::new(1).borders().is_empty());
        let mut random = Random::new(1);
        assert_eq!(mesh.table(7, 0, 0, &mut random), 7);
        // Two columns and a row on, around the edges.
        assert_eq!(mesh.table(24, 0, 1, &mut random), 1);
        for _ in 0..100 {
            let table = mesh.table(12, 2, 0, &mut random);
            let hops = (table % 5).abs_diff(2) + (table / 5).abs_diff(2);
            assert!(hops == 0 || hops == 2, "{table}");
        }
    }

    #[test]
    fn a_sweep_goes_over_each_tile_twice_before_the_next() {
        for slab in [1, 7, 8, 9, 100, 1000, 1001] {
            let (mut swept, mut visits, mut last) = (0, vec![0; slab as usize], 0);
            while swept < 2 * slab {
                let (at, blocks) = sweep(slab, swept);
                for block in at..at + blocks {
                    visits[block as usize] += 1;
                }
                let tile = at / slab.div_ceil(TILES_PER_SLAB);
                assert!(tile >= last, "{slab}: {at}");
                last = tile;
                swept += blocks;
            }
            assert!(visits.iter().all(|&visits| visits == 2), "{slab}");
            assert_eq!(sweep(slab, swept), sweep(slab, 0));
        }
    }

    #[test]
    fn every_second_slab_is_larger_and_their_sum_is_the_same() {
        for (threads, uneven) in [(25, 1.0), (25, 4.0), (9, 2.5), (1, 7.0)] {
            let text = format!("shared-files{{blocks=40000,uneven={uneven}}}");
            let spec: crate::ProgramSpec = text.parse().unwrap();
            let plan = Plan::new(spec.values(), threads, 1);
            let mut first = 0;
            for (thread, slab) in plan.slabs.iter().enumerate() {
                assert_eq!(slab.first, first, "{text}: {thread}");
                first += plan.sizes[slab.size].blocks;
                // Rows of odd lengths: the squares alternate along the whole mesh.
                assert_eq!(slab.size, thread % 2, "{text}: {thread}");
            }
            let off = first as f64 / (0.84 * 40_000.0) - 1.0;
            assert!((0.0..0.1).contains(&off), "{text}: {first} private blocks");
            let [small, large] = plan.sizes.each_ref().map(|size| size.blocks as f64);
            assert!((large / small / uneven - 1.0).abs() < 0.01, "{text}");
            let works = plan.slabs.iter().map(|slab| plan.sizes[slab.size].work);
            let work = works.sum::<u64>() as f64;
            assert!(
                (work / 800_000.0 - 1.0).abs() < 1e-3,
                "{text}: {work} accesses"
            );
            let times = |size: &SlabSize| size.work as f64 * size.work_ns_per_block;
            let [one, other] = plan.sizes.each_ref().map(times);
            assert!(
                (one / other - 1.0).abs() < 1e-3,
                "{text}: {one} and {other} ns"
            );
        }
    }

    #[test]
    fn the_styles_average_to_what_the_paper_gives() {
        let ParamKind::Name { names, .. } = ENTRY.params[0].kind else {
            panic!("the first parameter is the style");
        };
        let mean = |share: fn(&Style) -> f64| {
            names.iter().map(|name| share(&style(name))).sum::<f64>() / names.len() as f64
        };
        assert!((mean(|style| style.private_blocks) - 0.807).abs() < 1e-3);
        assert!((mean(|style| style.private_accesses) - 0.333).abs() < 1e-3);
        assert!((mean(|style| style.border_accesses) - 0.028).abs() < 1e-3);
    }
}
