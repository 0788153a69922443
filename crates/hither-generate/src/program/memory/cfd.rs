//! The compressible Navier-Stokes equations on a cube by alternating directions: SP of the NAS
//! benchmarks. The user-level page migration paper evaluates SP and BT (section 5; class A has 64
//! points per side). As in the OpenMP version, the right-hand side and the sweeps along x and y are
//! shared out by planes of z, and the sweep along z by planes of y. So no static placement is right
//! for both: pages placed by planes of z are wrong for the sweep along z. A sweep eliminates and
//! substitutes along each line of points, in a scratch line per thread.
//!
//! The equations, their discretisation with dissipation of fourth order, the coefficients, and the
//! exact solution, from which the forcing follows, are those of SP. One part is simpler: the
//! implicit operator does not transform the five components into characteristic variables and back.
//! Each component is swept with the same five diagonals, made dominant by the speed of sound. It
//! converges to the same state. BT's blocks of 5 by 5 access the same pages with more arithmetic.
//! The initial state is the exact solution plus a bump in the interior.

use hither_core::registry::Param;
use std::ops::Range;

use hither_core::spec::Values;

use super::array::Array;
use super::kernel::{
    Kernel, L1_WAYS, SERIAL_INIT, SLICE_NS, THREADS, THREADS_MAX, iterations, l2_kib, run,
};
use super::team::{PAGE_BYTES, Team};
use crate::program::definition::Program;

/// The line in the registry.
pub(crate) const ENTRY: Program = Program {
    name: "cfd",
    summary: "Navier-Stokes by alternating directions: sweeps along x, y and z in turn, after \
              NAS SP and BT",
    source: "NAS SP and BT, of user-level page migration (section 5)",
    params: &[
        Param::count("points", "points per side of the cube", 40, 6..=512),
        iterations(12),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(64),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<Cfd>,
};

/// Components of the state: density, momentum in three directions, energy.
const COMPONENTS: usize = 5;
type State = [f64; COMPONENTS];

const STEP_S: f64 = 0.015;
/// SP's c1, c2, c3 (with c4 = 1) and c1 c5.
const C1: f64 = 1.4;
const C2: f64 = 0.4;
const C3: f64 = 0.1;
const C1C5: f64 = 1.96;
const CON43: f64 = 4.0 / 3.0;
/// Artificial diffusion per direction, and dissipation of fourth order.
const DIFFUSION: [f64; 3] = [0.75, 0.75, 1.0];
const DISSIPATION: f64 = 0.25;

/// SP's polynomials. Per component: the constant, then the coefficients of x, y, z, of their
/// squares, cubes and fourth powers.
const EXACT: [[f64; 13]; COMPONENTS] = [
    [
        2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3,
    ],
    [
        1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5,
    ],
    [
        2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4,
    ],
    [
        2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3,
    ],
    [
        5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2,
    ],
];

/// The program.
pub(super) struct Cfd {
    n: usize,
    /// 1 / h and 1 / h^2, for the grid spacing h.
    per_h: f64,
    per_h2: f64,
    u: Array<f64>,
    rhs: Array<f64>,
    forcing: Array<f64>,
    /// Velocities; SP calls them us, vs and ws.
    velocity: [Array<f64>; 3],
    qs: Array<f64>,
    rho_i: Array<f64>,
    square: Array<f64>,
    speed: Array<f64>,
    /// By thread: the diagonals above the main one, for the line that it sweeps.
    lhs: Array<f64>,
    lhs_stride: usize,
}

/// What the fluxes need of a point besides its state.
#[derive(Clone, Copy, Debug, Default)]
struct DerivedState {
    velocity: [f64; 3],
    qs: f64,
    rho_i: f64,
    square: f64,
}

/// Weights of the fourth difference at a point of a line of `n` points. Near the ends it is
/// one-sided.
fn fourth(at: usize, n: usize) -> [f64; 5] {
    if at == 1 {
        [0.0, 0.0, 5.0, -4.0, 1.0]
    } else if at == 2 {
        [0.0, -4.0, 6.0, -4.0, 1.0]
    } else if at == n - 3 {
        [1.0, -4.0, 6.0, -4.0, 0.0]
    } else if at == n - 2 {
        [1.0, -4.0, 5.0, 0.0, 0.0]
    } else {
        [1.0, -4.0, 6.0, -4.0, 1.0]
    }
}

/// The flux through the faces in `direction`, with terms of second order around the middle of three
/// points.
fn flux(direction: usize, u: [State; 3], d: [DerivedState; 3], per_h: f64, per_h2: f64) -> State {
    let second = |values: [f64; 3]| values[0] - 2.0 * values[1] + values[2];
    let [before, after] = [0, 2].map(|at| (u[at], d[at], d[at].velocity[direction]));
    let central = 0.5 * per_h;
    let viscous = C3 * per_h2;
    let mut flux: State =
        std::array::from_fn(|m| DIFFUSION[direction] * per_h2 * second(u.map(|u| u[m])));
    flux[0] -= central * (after.0[direction + 1] - before.0[direction + 1]);
    for axis in 0..3 {
        let stretch = if axis == direction { CON43 } else { 1.0 };
        flux[axis + 1] += viscous * stretch * second(d.map(|d| d.velocity[axis]));
        flux[axis + 1] -= central * (after.0[axis + 1] * after.2 - before.0[axis + 1] * before.2);
    }
    let pressure = |(u, d, _): (State, DerivedState, f64)| (u[4] - d.square) * C2;
    flux[direction + 1] -= central * (pressure(after) - pressure(before));
    let along = d.map(|d| d.velocity[direction] * d.velocity[direction]);
    let heat: [f64; 3] = std::array::from_fn(|at| u[at][4] * d[at].rho_i);
    flux[4] += viscous * (1.0 - C1C5) * second(d.map(|d| d.qs));
    flux[4] += viscous / 6.0 * second(along);
    flux[4] += viscous * C1C5 * second(heat);
    let energy = |(u, d, w): (State, DerivedState, f64)| (C1 * u[4] - C2 * d.square) * w;
    flux[4] -= central * (energy(after) - energy(before));
    flux
}

impl Cfd {
    fn point(&self, k: usize, j: usize, i: usize) -> usize {
        (k * self.n + j) * self.n + i
    }

    /// The distance of neighbouring points in x, y or z.
    fn stride(&self, direction: usize) -> usize {
        self.n.pow(direction as u32)
    }

    fn exact(&self, k: usize, j: usize, i: usize) -> State {
        let [x, y, z] = [i, j, k].map(|at| at as f64 / self.per_h);
        EXACT.map(|c| {
            let along =
                |at: usize, x: f64| x * (c[at] + x * (c[at + 3] + x * (c[at + 6] + x * c[at + 9])));
            c[0] + along(1, x) + along(2, y) + along(3, z)
        })
    }

    fn derived(&self, team: &mut Team, point: usize) -> DerivedState {
        DerivedState {
            velocity: std::array::from_fn(|axis| self.velocity[axis].load(team, point)),
            qs: self.qs.load(team, point),
            rho_i: self.rho_i.load(team, point),
            square: self.square.load(team, point),
        }
    }

    /// Computes what follows from the state of each point. The right-hand side starts as the
    /// forcing.
    fn start(&mut self, team: &mut Team) {
        let n = self.n;
        team.grid("rhs_start", 0..n, 0..n, |team, k, j| {
            for i in 0..n {
                let point = self.point(k, j, i);
                let u: State = self.u.load_all(team, COMPONENTS * point);
                let rho_i = 1.0 / u[0];
                let momentum2 = u[1] * u[1] + u[2] * u[2] + u[3] * u[3];
                let square = 0.5 * momentum2 * rho_i;
                for axis in 0..3 {
                    self.velocity[axis].store(team, point, u[axis + 1] * rho_i);
                }
                self.rho_i.store(team, point, rho_i);
                self.square.store(team, point, square);
                self.qs.store(team, point, square * rho_i);
                let sound = (C1 * C2 * rho_i * (u[4] - square)).sqrt();
                self.speed.store(team, point, sound);
                let forcing: State = self.forcing.load_all(team, COMPONENTS * point);
                self.rhs.store_all(team, COMPONENTS * point, forcing);
            }
        });
    }

    /// Adds the fluxes along a part of a line to the right-hand side, and scales it. `first` is the
    /// first point of the whole line.
    fn fluxes(
        &mut self,
        team: &mut Team,
        direction: usize,
        first: usize,
        part: Range<usize>,
        scale: f64,
    ) {
        let (n, stride) = (self.n, self.stride(direction));
        let state = |cfd: &Cfd, team: &mut Team, at: usize| -> State {
            if at < n {
                cfd.u.load_all(team, COMPONENTS * (first + at * stride))
            } else {
                [0.0; COMPONENTS]
            }
        };
        let begin = part.start;
        let mut u = [[0.0; COMPONENTS]; 5];
        for back in 1..=4 {
            // Loads the points from two before the part to one after its first.
            if let Some(at) = (begin + 2).checked_sub(back) {
                u[5 - back] = state(self, team, at);
            }
        }
        let [d0, d1] = [begin - 1, begin].map(|at| self.derived(team, first + at * stride));
        let mut d = [DerivedState::default(), d0, d1];
        for at in part {
            u = [u[1], u[2], u[3], u[4], state(self, team, at + 2)];
            d = [d[1], d[2], self.derived(team, first + (at + 1) * stride)];
            let flux = flux(direction, [u[1], u[2], u[3]], d, self.per_h, self.per_h2);
            let weights = fourth(at, n);
            let point = COMPONENTS * (first + at * stride);
            let mut rhs: State = self.rhs.load_all(team, point);
            for m in 0..COMPONENTS {
                let fourth: f64 = (0..5).map(|at| weights[at] * u[at][m]).sum();
                rhs[m] = scale * (rhs[m] + flux[m] - DISSIPATION * fourth);
            }
            self.rhs.store_all(team, point, rhs);
        }
    }

    /// Computes the right-hand side, times the step.
    fn right_hand_side(&mut self, team: &mut Team) {
        self.start(team);
        let (n, inside) = (self.n, 1..self.n - 1);
        team.grid("rhs_x", inside.clone(), inside.clone(), |team, k, j| {
            self.fluxes(team, 0, self.point(k, j, 0), 1..n - 1, 1.0);
        });
        team.grid("rhs_y", inside.clone(), inside.clone(), |team, k, i| {
            self.fluxes(team, 1, self.point(k, 0, i), 1..n - 1, 1.0);
        });
        // Also by planes of z: each thread covers the parts of the lines in its own planes.
        let threads = team.size();
        let planes = |thread| {
            let share = super::team::share(n - 2, threads, thread);
            share.start + 1..share.end + 1
        };
        team.parallel(
            "rhs_z",
            |thread| {
                if planes(thread).is_empty() {
                    0..0
                } else {
                    inside.clone()
                }
            },
            |team, j| {
                let part = planes(team.thread());
                for i in 1..n - 1 {
                    self.fluxes(team, 2, self.point(0, j, i), part.clone(), STEP_S);
                }
            },
        );
    }

    /// Solves the system with five diagonals along a line for all components of the right-hand
    /// side.
    fn sweep(&mut self, team: &mut Team, direction: usize, first: usize) {
        let (n, stride) = (self.n, self.stride(direction));
        let (central, second) = (0.5 * STEP_S * self.per_h, STEP_S * self.per_h2);
        // Convection, diffusion and sound at a point: they enter its own diagonals and those of its
        // neighbours.
        let load = |cfd: &Cfd, team: &mut Team, at: usize| {
            let point = first + at * stride;
            let velocity = cfd.velocity[direction].load(team, point);
            let viscosity = C3 * cfd.rho_i.load(team, point);
            let most = (CON43 * viscosity).max(C1C5 * viscosity);
            let spread = second * (DIFFUSION[direction] + most);
            [
                central * velocity,
                spread + central * cfd.speed.load(team, point),
            ]
        };
        let scratch = team.thread() * self.lhs_stride;
        let mut near = [[0.0; 2], load(self, team, 0), load(self, team, 1)];
        // The two previous rows after elimination: their diagonals above the main one, and
        // right-hand sides.
        let (mut upper, mut before) = ([[0.0; 2]; 2], [[0.0; COMPONENTS]; 2]);
        for at in 1..n - 1 {
            near = [near[1], near[2], load(self, team, at + 1)];
            let weights = fourth(at, n).map(|weight| STEP_S * DISSIPATION * weight);
            let below2 = weights[0];
            let below = weights[1] - near[0][0] - near[0][1] - below2 * upper[0][0];
            let main =
                1.0 + 2.0 * near[1][1] + weights[2] - below2 * upper[0][1] - below * upper[1][0];
            let above = weights[3] + near[2][0] - near[2][1] - below * upper[1][1];
            let now = [above / main, weights[4] / main];
            let point = COMPONENTS * (first + at * stride);
            let rhs: State = self.rhs.load_all(team, point);
            let rhs: State = std::array::from_fn(|m| {
                (rhs[m] - below2 * before[0][m] - below * before[1][m]) / main
            });
            self.rhs.store_all(team, point, rhs);
            self.lhs.store_all(team, scratch + 2 * at, now);
            (upper, before) = ([upper[1], now], [before[1], rhs]);
        }
        let mut after = [[0.0; COMPONENTS]; 2];
        for at in (1..n - 1).rev() {
            let [above, above2]: [f64; 2] = self.lhs.load_all(team, scratch + 2 * at);
            let point = COMPONENTS * (first + at * stride);
            let rhs: State = self.rhs.load_all(team, point);
            let rhs: State =
                std::array::from_fn(|m| rhs[m] - above * after[0][m] - above2 * after[1][m]);
            self.rhs.store_all(team, point, rhs);
            after = [rhs, after[0]];
        }
    }
}

impl Kernel for Cfd {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let n = values.count(0) as usize;
        let per_h = (n - 1) as f64;
        let points = n * n * n;
        let lhs_stride = (2 * n).next_multiple_of(PAGE_BYTES / size_of::<f64>());
        Cfd {
            n,
            per_h,
            per_h2: per_h * per_h,
            u: team.array("u", COMPONENTS * points),
            rhs: team.array("rhs", COMPONENTS * points),
            forcing: team.array("forcing", COMPONENTS * points),
            velocity: ["us", "vs", "ws"].map(|name| team.array(name, points)),
            qs: team.array("qs", points),
            rho_i: team.array("rho_i", points),
            square: team.array("square", points),
            speed: team.array("speed", points),
            lhs: team.array("lhs", team.size() * lhs_stride),
            lhs_stride,
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        let n = self.n;
        team.initialise("initialise", 0..n, 0..n, |team, k, j| {
            for i in 0..n {
                let point = self.point(k, j, i);
                let exact = self.exact(k, j, i);
                self.u.store_all(team, COMPONENTS * point, exact);
                self.rhs
                    .store_all(team, COMPONENTS * point, [0.0; COMPONENTS]);
                self.forcing
                    .store_all(team, COMPONENTS * point, [0.0; COMPONENTS]);
                for array in self.velocity.iter_mut().chain([
                    &mut self.qs,
                    &mut self.rho_i,
                    &mut self.square,
                    &mut self.speed,
                ]) {
                    array.store(team, point, 0.0);
                }
            }
        });
        team.initialise_chunks("scratch", self.lhs.len(), self.lhs_stride, |team, part| {
            part.for_each(|at| self.lhs.store(team, at, 0.0));
        });
        self.right_hand_side(team);
        team.grid("forcing", 0..n, 0..n, |team, k, j| {
            for i in 0..n {
                let point = COMPONENTS * self.point(k, j, i);
                let rhs: State = self.rhs.load_all(team, point);
                self.forcing
                    .store_all(team, point, rhs.map(|rhs| -rhs / STEP_S));
            }
        });
        team.grid("initial", 0..n, 0..n, |team, k, j| {
            for i in 0..n {
                let at = [k, j, i].map(|at| at as f64 / self.per_h);
                let bump: f64 = at.map(|x| 4.0 * x * (1.0 - x)).iter().product();
                let exact = self.exact(k, j, i);
                let point = COMPONENTS * self.point(k, j, i);
                self.u
                    .store_all(team, point, exact.map(|u| u * (1.0 + 0.1 * bump)));
            }
        });
    }

    fn iterate(&mut self, team: &mut Team, _iteration: u64) {
        self.right_hand_side(team);
        let inside = 1..self.n - 1;
        team.grid("x_solve", inside.clone(), inside.clone(), |team, k, j| {
            self.sweep(team, 0, self.point(k, j, 0));
        });
        team.grid("y_solve", inside.clone(), inside.clone(), |team, k, i| {
            self.sweep(team, 1, self.point(k, 0, i));
        });
        team.grid("z_solve", inside.clone(), inside.clone(), |team, j, i| {
            self.sweep(team, 2, self.point(0, j, i));
        });
        team.grid("add", inside.clone(), inside, |team, k, j| {
            for i in 1..self.n - 1 {
                let point = COMPONENTS * self.point(k, j, i);
                for m in 0..COMPONENTS {
                    let change = self.rhs.load(team, point + m);
                    self.u.add(team, point + m, change);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{team, values};
    use super::*;

    fn error(cfd: &Cfd) -> f64 {
        let points = (0..cfd.n.pow(3)).map(|point| {
            let (k, j, i) = (point / cfd.n / cfd.n, point / cfd.n % cfd.n, point % cfd.n);
            let exact = cfd.exact(k, j, i);
            let at = |m: usize| (cfd.u.values()[COMPONENTS * point + m] - exact[m]).abs();
            (0..COMPONENTS).map(at).fold(0.0, f64::max)
        });
        points.fold(0.0, f64::max)
    }

    #[test]
    fn converges_to_the_exact_solution() {
        let run = |threads, iterations| {
            let mut team = team(threads);
            let mut cfd = Cfd::new(&mut team, &values("cfd{points=12}"));
            cfd.initialise(&mut team);
            let before = error(&cfd);
            (0..iterations).for_each(|iteration| cfd.iterate(&mut team, iteration));
            (before, error(&cfd))
        };
        let (before, after) = run(4, 60);
        assert!((0.5..5.0).contains(&before), "{before}");
        assert!(after < before * 1e-3, "{before} {after}");
        assert_eq!(run(1, 3), run(13, 3));
    }

    /// Central differences of a flux computed by hand: a gas at rest in which only the energy
    /// varies, as x squared.
    #[test]
    fn the_flux_of_a_gas_at_rest_is_the_pressure_gradient_and_heat() {
        let (h, energies) = (0.5, [1.0, 4.0, 9.0]);
        let u = energies.map(|energy| [1.0, 0.0, 0.0, 0.0, energy]);
        let d = DerivedState {
            rho_i: 1.0,
            ..DerivedState::default()
        };
        let flux = flux(1, u, [d; 3], 1.0 / h, 1.0 / (h * h));
        // Gradient of the energy (9 - 1) / 2h = 8, second difference (1 - 8 + 9) / h^2 = 8.
        let expected = [0.0, 0.0, -0.4 * 8.0, 0.0, 0.75 * 8.0 + 0.1 * 1.96 * 8.0];
        for (ours, expected) in flux.iter().zip(expected) {
            assert!((ours - expected).abs() < 1e-12, "{flux:?}");
        }
    }
}
