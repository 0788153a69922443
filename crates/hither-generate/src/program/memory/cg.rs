//! The smallest eigenvalue of a large sparse symmetric matrix by inverse iteration, where each
//! solve uses conjugate gradients: CG of the NAS benchmarks (class W has 7000 rows), one of the
//! three programs of the user-level page migration paper (section 5). Each step streams through the
//! matrix by rows, which stay with their thread, and gathers elements of `p` from all threads. By
//! default `p` fits the cache, as on the paper's machine. With first touch by rows, almost only
//! pages of the vectors at the borders between threads are then misplaced: 10 to 20 pages in the
//! paper, here 35 of 1931 (16 threads on 8 nodes, 2026-11). With half the cache, `p` makes half of
//! the misses.
//!
//! As in CG, the matrix is a sum of outer products of sparse random vectors, plus a multiple of the
//! identity that makes it positive definite. One part is simpler: the weights of the vectors do not
//! decrease geometrically. The matrix is assembled outside the simulated memory and then written to
//! it by rows.

use hither_core::random::Random;
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
    name: "cg",
    summary: "the smallest eigenvalue of a sparse matrix by conjugate gradients, after NAS CG",
    source: "NAS CG, of user-level page migration (section 5)",
    params: &[
        Param::count("rows", "rows and columns of the matrix", 7_000, 2..=1 << 22),
        Param::count(
            "nonzeros",
            "a row has about (nonzeros + 1)^2 elements",
            9,
            1..=64,
        ),
        Param::count(
            "steps",
            "steps of conjugate gradients in an iteration",
            10,
            1..=1000,
        ),
        iterations(8),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(128),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<ConjugateGradient>,
};

/// Rows per unit of work.
const CHUNK_ROWS: usize = 64;
/// Multiple of the identity in the matrix.
const DIAGONAL_SHIFT: f64 = 1.0;

/// The program.
pub(super) struct ConjugateGradient {
    n: usize,
    steps: u64,
    row_begin: Array<u32>,
    column: Array<u32>,
    a: Array<f64>,
    x: Array<f64>,
    z: Array<f64>,
    p: Array<f64>,
    q: Array<f64>,
    r: Array<f64>,
    partial: Array<f64>,
    matrix: Matrix,
    /// The estimate of the smallest eigenvalue, and the residual of the last solve.
    eigenvalue: f64,
    residual: f64,
}

/// A matrix by rows: where each row begins, and the column and value of each element.
#[derive(Debug, Default)]
struct Matrix {
    begin: Vec<u32>,
    elements: Vec<(u32, f64)>,
}

impl Matrix {
    fn random(n: usize, nonzeros: usize, random: &mut Random) -> Matrix {
        let mut rows: Vec<Vec<(u32, f64)>> = (0..n as u32)
            .map(|row| vec![(row, DIAGONAL_SHIFT)])
            .collect();
        for row in 0..n as u64 {
            let mut vector = vec![(row as usize, 0.5)];
            for _ in 0..nonzeros.min(n - 1) {
                let at = random.below(n as u64) as usize;
                if vector.iter().all(|&(taken, _)| taken != at) {
                    vector.push((at, random.unit() - 0.5));
                }
            }
            for &(i, left) in &vector {
                rows[i].extend(vector.iter().map(|&(j, right)| (j as u32, left * right)));
            }
        }
        let mut matrix = Matrix::default();
        for mut row in rows {
            matrix.begin.push(matrix.elements.len() as u32);
            // The sort is stable, so equal columns are added in the order in which they came.
            row.sort_by_key(|&(column, _)| column);
            for (column, value) in row {
                let first = *matrix.begin.last().expect("just pushed") as usize;
                match matrix.elements[first..].last_mut() {
                    Some(last) if last.0 == column => last.1 += value,
                    _ => matrix.elements.push((column, value)),
                }
            }
        }
        matrix.begin.push(matrix.elements.len() as u32);
        matrix
    }
}

impl ConjugateGradient {}

/// The product of a row of the matrix with a vector.
fn row_product(
    team: &mut Team,
    (row_begin, column, a): (&Array<u32>, &Array<u32>, &Array<f64>),
    vector: &Array<f64>,
    row: usize,
) -> f64 {
    let (begin, end) = (row_begin.load(team, row), row_begin.load(team, row + 1));
    let products = (begin as usize..end as usize).map(|at| {
        let column = column.load(team, at) as usize;
        a.load(team, at) * vector.load(team, column)
    });
    products.sum()
}

impl Kernel for ConjugateGradient {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let n = values.count(0) as usize;
        let matrix = Matrix::random(n, values.count(1) as usize, team.random());
        let elements = matrix.elements.len();
        ConjugateGradient {
            n,
            steps: values.count(2),
            row_begin: team.array("rowstr", n + 1),
            column: team.array("colidx", elements),
            a: team.array("a", elements),
            x: team.array("x", n),
            z: team.array("z", n),
            p: team.array("p", n),
            q: team.array("q", n),
            r: team.array("r", n),
            partial: team.array("partial", team.size()),
            matrix,
            eigenvalue: 0.0,
            residual: 0.0,
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        let n = self.n;
        let matrix = std::mem::take(&mut self.matrix);
        team.initialise_chunks("makea", n, CHUNK_ROWS, |team, rows| {
            for row in rows {
                let (begin, end) = (matrix.begin[row], matrix.begin[row + 1]);
                if row == 0 {
                    self.row_begin.store(team, 0, 0);
                }
                self.row_begin.store(team, row + 1, end);
                for at in begin as usize..end as usize {
                    self.column.store(team, at, matrix.elements[at].0);
                    self.a.store(team, at, matrix.elements[at].1);
                }
                self.x.store(team, row, 1.0);
                for vector in [&mut self.z, &mut self.p, &mut self.q, &mut self.r] {
                    vector.store(team, row, 0.0);
                }
            }
        });
        team.initialise_chunks("partial", self.partial.len(), 1, |team, part| {
            part.for_each(|at| self.partial.store(team, at, 0.0));
        });
    }

    fn iterate(&mut self, team: &mut Team, _iteration: u64) {
        let Self {
            n,
            partial,
            x,
            z,
            p,
            q,
            r,
            ..
        } = self;
        let (n, matrix) = (*n, (&self.row_begin, &self.column, &self.a));
        let mut rho = team.sum("start", partial, n, CHUNK_ROWS, |team, part| {
            let squares = part.map(|at| {
                let value = x.load(team, at);
                z.store(team, at, 0.0);
                r.store(team, at, value);
                p.store(team, at, value);
                value * value
            });
            squares.sum()
        });
        for _ in 0..self.steps {
            if rho == 0.0 {
                break;
            }
            let curvature = team.sum("multiply", partial, n, CHUNK_ROWS, |team, rows| {
                let products = rows.map(|row| {
                    let value = row_product(team, matrix, p, row);
                    q.store(team, row, value);
                    p.load(team, row) * value
                });
                products.sum()
            });
            let alpha = rho / curvature;
            let rho_before = rho;
            rho = team.sum("advance", partial, n, CHUNK_ROWS, |team, part| {
                let squares = part.map(|at| {
                    let step = alpha * p.load(team, at);
                    z.add(team, at, step);
                    let value = r.load(team, at) - alpha * q.load(team, at);
                    r.store(team, at, value);
                    value * value
                });
                squares.sum()
            });
            let beta = rho / rho_before;
            team.chunks("direction", n, CHUNK_ROWS, |team, part| {
                for at in part {
                    let value = r.load(team, at) + beta * p.load(team, at);
                    p.store(team, at, value);
                }
            });
        }
        let squares = team.sum("residual", partial, n, CHUNK_ROWS, |team, rows| {
            let squares = rows.map(|row| {
                let value = row_product(team, matrix, z, row);
                let left = x.load(team, row) - value;
                left * left
            });
            squares.sum()
        });
        let along = team.sum("dot", partial, n, CHUNK_ROWS, |team, part| {
            let products = part.map(|at| x.load(team, at) * z.load(team, at));
            products.sum()
        });
        let length = team.sum("norm", partial, n, CHUNK_ROWS, |team, part| {
            let squares = part.map(|at| {
                let value = z.load(team, at);
                value * value
            });
            squares.sum()
        });
        let (squared_x, scale) = (n as f64, (n as f64 / length).sqrt());
        team.chunks("scale", n, CHUNK_ROWS, |team, part| {
            for at in part {
                let value = scale * z.load(team, at);
                x.store(team, at, value);
            }
        });
        self.eigenvalue = squared_x / along;
        self.residual = (squares / squared_x).sqrt();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{team, values};
    use super::*;

    #[test]
    fn the_solves_converge_to_the_smallest_eigenvalue() {
        let spec = "cg{rows=60,nonzeros=3,steps=40}";
        let mut team = team(4);
        let mut cg = ConjugateGradient::new(&mut team, &values(spec));
        let matrix = Matrix {
            begin: cg.matrix.begin.clone(),
            elements: cg.matrix.elements.clone(),
        };
        cg.initialise(&mut team);
        for iteration in 0..400 {
            cg.iterate(&mut team, iteration);
            assert!(cg.residual < 1e-10, "{}", cg.residual);
        }
        // x is an eigenvector of that value, and no eigenvalue is smaller: the matrix minus
        // slightly less than that value is positive definite.
        let dense = |shift: f64| {
            let mut rows = vec![vec![0.0; 60]; 60];
            for (row, values) in rows.iter_mut().enumerate() {
                let range = matrix.begin[row] as usize..matrix.begin[row + 1] as usize;
                for &(column, value) in &matrix.elements[range] {
                    values[column as usize] += value;
                }
                values[row] -= shift;
            }
            rows
        };
        let x = cg.x.values();
        for row in dense(cg.eigenvalue) {
            let product: f64 = row.iter().zip(x).map(|(a, x)| a * x).sum();
            assert!(product.abs() < 1e-3, "{product}");
        }
        let mut rows = dense(cg.eigenvalue - 1e-3);
        for pivot in 0..60 {
            assert!(rows[pivot][pivot] > 0.0);
            let (done, left) = rows.split_at_mut(pivot + 1);
            for row in left {
                let factor = row[pivot] / done[pivot][pivot];
                row.iter_mut()
                    .zip(&done[pivot])
                    .for_each(|(a, b)| *a -= factor * b);
            }
        }
    }
}
