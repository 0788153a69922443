//! Poisson's equation on grids of three dimensions with periodic borders, by V-cycles: MG of the
//! NAS benchmarks (class S has 32 points per side, W 128), and SPEC's `mgrid` of the cache-aware
//! thesis (table 5.2), with their operators and coefficients. As there, `u` and `r` hold all levels
//! one after another, and `v` is on the finest level.
//!
//! Grids are shared out by planes. Coarse levels have fewer planes than threads, and few pages,
//! each used by several threads. Between levels, a thread reads its own planes twice as often as
//! those of its neighbours. After each operator the outermost planes are copied to the opposite
//! border (`comm3`), which other threads own.
//!
//! Sums of neighbours in a plane are kept in scratch lines, as in MG. One part is simpler: the
//! scratch lines are not in the simulated memory, since they never leave the first-level cache.

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
    name: "multigrid",
    summary: "Poisson's equation by V-cycles on grids of three dimensions, after NAS MG and mgrid",
    source: "NAS MG, and SPEC mgrid of the cache-aware thesis (table 5.2)",
    params: &[
        Param::count(
            "levels",
            "the finest grid has 2^levels points per side",
            6,
            2..=10,
        ),
        iterations(10),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(64),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<Multigrid>,
};

/// Weights of the residual: the point itself, the 12 neighbours across an edge, the 8 across a
/// corner. Neighbours across a face have weight 0.
const RESIDUAL_WEIGHTS: [f64; 3] = [-8.0 / 3.0, 1.0 / 6.0, 1.0 / 12.0];
/// Weights of the smoother: the point itself, the 6 neighbours across a face, the 12 across an
/// edge. Neighbours across a corner have weight 0.
const SMOOTHER_WEIGHTS: [f64; 3] = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0];
/// Point charges of each sign.
const CHARGES_PER_SIGN: usize = 10;

/// The part of one level in an array of all levels: a cube with a border of one point.
#[derive(Clone, Copy, Debug)]
struct Level {
    first: usize,
    /// Points per side, without the border.
    inner: usize,
}

impl Level {
    /// Points per side, with the border.
    fn side(self) -> usize {
        self.inner + 2
    }

    /// The first point of a line.
    #[inline(always)]
    fn line(self, k: usize, j: usize) -> usize {
        self.first + (k * self.side() + j) * self.side()
    }
}

/// The program.
pub(super) struct Multigrid {
    /// The coarsest level first.
    levels: Vec<Level>,
    u: Array<f64>,
    v: Array<f64>,
    r: Array<f64>,
}

/// Sums around each point of a line: of the four neighbours beside the line, and of the four across
/// an edge of the line.
fn around(
    team: &mut Team,
    field: &Array<f64>,
    at: Level,
    k: usize,
    j: usize,
    sums: &mut [[f64; 2]],
) {
    let beside = [
        at.line(k, j - 1),
        at.line(k, j + 1),
        at.line(k - 1, j),
        at.line(k + 1, j),
    ];
    let across = [
        at.line(k - 1, j - 1),
        at.line(k - 1, j + 1),
        at.line(k + 1, j - 1),
        at.line(k + 1, j + 1),
    ];
    for (i, sums) in sums.iter_mut().enumerate() {
        *sums =
            [beside, across].map(|lines| lines.map(|line| field.load(team, line + i)).iter().sum());
    }
}

/// Copies the borders of a level to the opposite sides.
fn wrap(team: &mut Team, field: &mut Array<f64>, at: Level) {
    let (n, side) = (at.inner, at.side());
    team.grid("comm3_lines", 1..n + 1, 0..1, |team, k, _| {
        for j in 1..=n {
            let line = at.line(k, j);
            let (first, last) = (field.load(team, line + 1), field.load(team, line + n));
            field.store(team, line, last);
            field.store(team, line + n + 1, first);
        }
        for (to, from) in [(0, n), (n + 1, 1)] {
            for i in 0..side {
                let value = field.load(team, at.line(k, from) + i);
                field.store(team, at.line(k, to) + i, value);
            }
        }
    });
    team.grid("comm3_planes", 0..side, 0..1, |team, j, _| {
        for (to, from) in [(0, n), (n + 1, 1)] {
            for i in 0..side {
                let value = field.load(team, at.line(from, j) + i);
                field.store(team, at.line(to, j) + i, value);
            }
        }
    });
}

impl Multigrid {
    fn finest(&self) -> usize {
        self.levels.len() - 1
    }

    /// The residual of a level: its right-hand side minus the operator applied to `u`.
    fn residual(&mut self, team: &mut Team, level: usize) {
        let at = self.levels[level];
        let finest = level == self.finest();
        let mut sums = vec![[0.0; 2]; at.side()];
        team.grid("resid", 1..at.inner + 1, 1..at.inner + 1, |team, k, j| {
            around(team, &self.u, at, k, j, &mut sums);
            let line = at.line(k, j);
            for i in 1..=at.inner {
                let value = if finest {
                    self.v.load(team, line + i - at.first)
                } else {
                    self.r.load(team, line + i)
                };
                let edges = sums[i][1] + sums[i - 1][0] + sums[i + 1][0];
                let corners = sums[i - 1][1] + sums[i + 1][1];
                let value = value
                    - RESIDUAL_WEIGHTS[0] * self.u.load(team, line + i)
                    - RESIDUAL_WEIGHTS[1] * edges
                    - RESIDUAL_WEIGHTS[2] * corners;
                self.r.store(team, line + i, value);
            }
        });
        wrap(team, &mut self.r, at);
    }

    /// Corrects `u` by the smoothed residual.
    fn smooth(&mut self, team: &mut Team, level: usize) {
        let at = self.levels[level];
        let mut sums = vec![[0.0; 2]; at.side()];
        team.grid("psinv", 1..at.inner + 1, 1..at.inner + 1, |team, k, j| {
            around(team, &self.r, at, k, j, &mut sums);
            let line = at.line(k, j);
            let mut before = self.r.load(team, line);
            let mut here = self.r.load(team, line + 1);
            for i in 1..=at.inner {
                let after = self.r.load(team, line + i + 1);
                let faces = before + after + sums[i][0];
                let edges = sums[i][1] + sums[i - 1][0] + sums[i + 1][0];
                let more = SMOOTHER_WEIGHTS[0] * here
                    + SMOOTHER_WEIGHTS[1] * faces
                    + SMOOTHER_WEIGHTS[2] * edges;
                self.u.add(team, line + i, more);
                (before, here) = (here, after);
            }
        });
        wrap(team, &mut self.u, at);
    }

    /// The residual of the next coarser level, by weighted means.
    fn restrict(&mut self, team: &mut Team, level: usize) {
        let (fine, coarse) = (self.levels[level], self.levels[level - 1]);
        let mut sums = vec![[0.0; 2]; fine.side()];
        team.grid(
            "rprj3",
            1..coarse.inner + 1,
            1..coarse.inner + 1,
            |team, k, j| {
                around(team, &self.r, fine, 2 * k, 2 * j, &mut sums);
                let (from, to) = (fine.line(2 * k, 2 * j), coarse.line(k, j));
                for i in 1..=coarse.inner {
                    let [before, here, after] =
                        [2 * i - 1, 2 * i, 2 * i + 1].map(|at| self.r.load(team, from + at));
                    let (left, right) = (sums[2 * i - 1], sums[2 * i + 1]);
                    let faces = before + after + sums[2 * i][0];
                    let edges = sums[2 * i][1] + left[0] + right[0];
                    let corners = left[1] + right[1];
                    let value = 0.5 * here + 0.25 * faces + 0.125 * edges + 0.0625 * corners;
                    self.r.store(team, to + i, value);
                }
            },
        );
        wrap(team, &mut self.r, coarse);
    }

    /// Adds the interpolated correction of the next coarser level to the `u` of a level.
    fn interpolate(&mut self, team: &mut Team, level: usize) {
        let (fine, coarse) = (self.levels[level], self.levels[level - 1]);
        let n = coarse.inner;
        team.grid("interp", 0..n + 1, 0..n + 1, |team, k, j| {
            let lines =
                [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(up, on)| coarse.line(k + up, j + on));
            let column = |team: &mut Team, u: &Array<f64>, i: usize| {
                let [here, on, up, both] = lines.map(|line| u.load(team, line + i));
                [here, here + on, here + up, here + on + up + both]
            };
            let mut left = column(team, &self.u, 0);
            for i in 0..=n {
                let right = column(team, &self.u, i + 1);
                for (at, (up, on)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
                    let line = fine.line(2 * k + up, 2 * j + on) + 2 * i;
                    let weight = [1.0, 0.5, 0.5, 0.25][at];
                    self.u.add(team, line, weight * left[at]);
                    self.u
                        .add(team, line + 1, 0.5 * weight * (left[at] + right[at]));
                }
                left = right;
            }
        });
    }

    fn clear(&mut self, team: &mut Team, level: usize) {
        let at = self.levels[level];
        team.grid("zero3", 0..at.side(), 0..1, |team, k, _| {
            let plane = at.line(k, 0)..at.line(k + 1, 0);
            plane.for_each(|point| self.u.store(team, point, 0.0));
        });
    }

    fn cycle(&mut self, team: &mut Team) {
        let finest = self.finest();
        (1..=finest)
            .rev()
            .for_each(|level| self.restrict(team, level));
        self.clear(team, 0);
        self.smooth(team, 0);
        for level in 1..=finest {
            if level < finest {
                self.clear(team, level);
            }
            self.interpolate(team, level);
            self.residual(team, level);
            self.smooth(team, level);
        }
    }
}

impl Kernel for Multigrid {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let mut points = 0;
        let levels = (1..=values.count(0)).map(|level| {
            let level = Level {
                first: points,
                inner: 1 << level,
            };
            points += level.side().pow(3);
            level
        });
        let levels: Vec<Level> = levels.collect();
        Multigrid {
            u: team.array("u", points),
            v: team.array("v", levels[levels.len() - 1].side().pow(3)),
            r: team.array("r", points),
            levels,
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        let at = self.levels[self.finest()];
        let n = at.inner;
        let random = team.random();
        let mut charge = vec![0.0; at.side().pow(3)];
        for sign in [1.0, -1.0] {
            for _ in 0..CHARGES_PER_SIGN.min(n * n / 4) {
                let drawn = std::iter::repeat_with(|| {
                    let [k, j, i] = [0; 3].map(|_| random.below(n as u64) as usize + 1);
                    (k * at.side() + j) * at.side() + i
                });
                let free = drawn.into_iter().find(|&point| charge[point] == 0.0);
                charge[free.expect("more points than charges")] = sign;
            }
        }
        for level in (0..self.levels.len()).rev() {
            let (at, finest) = (self.levels[level], level == self.finest());
            team.initialise("initialise", 0..at.side(), 0..at.side(), |team, k, j| {
                for point in at.line(k, j)..at.line(k, j + 1) {
                    self.u.store(team, point, 0.0);
                    self.r.store(team, point, 0.0);
                    if finest {
                        self.v
                            .store(team, point - at.first, charge[point - at.first]);
                    }
                }
            });
        }
        wrap(team, &mut self.v, Level { first: 0, ..at });
        self.residual(team, self.finest());
    }

    fn iterate(&mut self, team: &mut Team, _iteration: u64) {
        self.cycle(team);
        self.residual(team, self.finest());
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{team, values};
    use super::*;

    impl Multigrid {
        /// The root mean square of the residual on the finest level.
        fn norm(&self) -> f64 {
            let at = self.levels[self.finest()];
            let inside = 1..at.inner + 1;
            let squares = inside.clone().flat_map(|k| {
                let lines = inside.clone().map(move |j| at.line(k, j));
                lines.flat_map(|line| &self.r.values()[line + 1..=line + at.inner])
            });
            (squares.map(|r| r * r).sum::<f64>() / at.inner.pow(3) as f64).sqrt()
        }
    }

    /// Class S of the NAS benchmarks differs only in the positions of the charges. It verifies by a
    /// norm of 5.3e-5 after 4 cycles.
    #[test]
    fn four_cycles_take_as_much_of_the_residual_away_as_in_the_nas_benchmarks() {
        let run = |threads| {
            let mut team = team(threads);
            let mut multigrid = Multigrid::new(&mut team, &values("multigrid{levels=5}"));
            multigrid.initialise(&mut team);
            (0..4).for_each(|iteration| multigrid.iterate(&mut team, iteration));
            multigrid.norm()
        };
        let norm = run(3);
        assert!((4e-5..7e-5).contains(&norm), "{norm}");
        assert_eq!(norm, run(1));
    }
}
