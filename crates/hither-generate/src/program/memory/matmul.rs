//! Matrix product by blocks, after `mxm` of the cache-aware thesis (table 5.2), iterated: each
//! iteration multiplies the last product by B. A thread computes a block of rows. Its rows of A and
//! C are its own. B is shared by all: a page of B is remote to all nodes but one, and only replicas
//! help.
//!
//! Simpler than a tuned product: tiles of 4 by 4 in registers, one level of blocking, no packing.
//! Unlike `mxm`, the elements are doubles.

use hither_core::registry::Param;
use hither_core::spec::Values;

use super::array::Array;
use super::kernel::{
    Kernel, L1_WAYS, SERIAL_INIT, SLICE_NS, THREADS, THREADS_MAX, iterations, l2_kib, run,
};
use super::team::Team;
use crate::program::definition::Program;

/// The line in the registry.
pub(crate) const ENTRY: Program = Program {
    name: "matmul",
    summary: "matrix product by blocks, repeated; one operand is shared by all threads",
    source: "mxm of the cache-aware thesis (table 5.2)",
    params: &[
        Param::count("rows", "rows and columns of the matrices", 384, 4..=8192),
        Param::count(
            "block",
            "rows and columns of a block of B that is used while it is cached",
            64,
            4..=8192,
        ),
        iterations(5),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(64),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<Matmul>,
};

const TILE_SIDE: usize = 4;

/// The program.
pub(super) struct Matmul {
    n: usize,
    block: usize,
    a: Array<f64>,
    b: Array<f64>,
    c: Array<f64>,
}

impl Matmul {
    /// Adds to a tile of C the product of a tile of A and some rows of B, over a range of columns.
    fn tile(
        &mut self,
        team: &mut Team,
        rows: std::ops::Range<usize>,
        inner: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
    ) {
        let n = self.n;
        let mut a = [[0.0; TILE_SIDE]; TILE_SIDE];
        for (row, a) in rows.clone().zip(&mut a) {
            for (k, a) in inner.clone().zip(a) {
                *a = self.a.load(team, row * n + k);
            }
        }
        for column in columns {
            let mut b = [0.0; TILE_SIDE];
            for (k, b) in inner.clone().zip(&mut b) {
                *b = self.b.load(team, k * n + column);
            }
            for (row, a) in rows.clone().zip(&a) {
                let product: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
                self.c.add(team, row * n + column, product);
            }
        }
    }
}

impl Kernel for Matmul {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let n = values.count(0) as usize;
        let mut matrix = |name| team.array(name, n * n);
        Matmul {
            n,
            block: values.count(1) as usize,
            a: matrix("a"),
            b: matrix("b"),
            c: matrix("c"),
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        let n = self.n;
        let random = team.random();
        // Drawn in order, so the matrices are the same for any number of threads. The columns of B
        // add up to about 1.
        let mut draw = |scale: f64| {
            (0..n * n)
                .map(|_| scale * random.unit())
                .collect::<Vec<_>>()
        };
        let (a, b) = (draw(1.0), draw(2.0 / n as f64));
        team.initialise("initialise", 0..n, 0..1, |team, row, _| {
            for at in row * n..(row + 1) * n {
                self.a.store(team, at, a[at]);
                self.b.store(team, at, b[at]);
                self.c.store(team, at, 0.0);
            }
        });
    }

    fn iterate(&mut self, team: &mut Team, iteration: u64) {
        let (n, block) = (self.n, self.block);
        if iteration > 0 {
            std::mem::swap(&mut self.a, &mut self.c);
        }
        team.grid("clear", 0..n, 0..1, |team, row, _| {
            (row * n..(row + 1) * n).for_each(|at| self.c.store(team, at, 0.0));
        });
        let threads = team.size();
        let tiles = n.div_ceil(TILE_SIDE);
        let blocks = n.div_ceil(block);
        let share = |thread| super::team::share(tiles, threads, thread);
        // A unit is a tile of rows times a block of B. All rows of a thread are multiplied by a
        // block while it is cached.
        team.parallel(
            "multiply",
            |thread| 0..share(thread).len() * blocks * blocks,
            |team, unit| {
                let share = share(team.thread());
                let (tile, of_b) = (share.start + unit % share.len(), unit / share.len());
                let part = |number: usize, size: usize| number * size..n.min((number + 1) * size);
                let (rows, columns) = (part(tile, TILE_SIDE), part(of_b % blocks, block));
                for k in part(of_b / blocks, block).step_by(TILE_SIDE) {
                    let inner = k..part(of_b / blocks, block).end.min(k + TILE_SIDE);
                    self.tile(team, rows.clone(), inner, columns.clone());
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{team, values};
    use super::*;

    fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
        let at = |i: usize| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum();
        (0..n * n).map(at).collect()
    }

    #[test]
    fn equals_the_naive_product() {
        for (threads, n, block) in [(1, 12, 4), (3, 29, 7), (5, 16, 16)] {
            let mut team = team(threads);
            let values = values(&format!("matmul{{rows={n},block={block}}}"));
            let mut matmul = Matmul::new(&mut team, &values);
            matmul.initialise(&mut team);
            let mut expected = matmul.a.values().to_vec();
            for iteration in 0..3 {
                matmul.iterate(&mut team, iteration);
                expected = product(&expected, matmul.b.values(), n);
                for (ours, expected) in matmul.c.values().iter().zip(&expected) {
                    assert!((ours / expected - 1.0).abs() < 1e-12, "{ours} {expected}");
                }
            }
        }
    }
}
