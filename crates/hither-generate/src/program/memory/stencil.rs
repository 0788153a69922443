//! The shallow-water equations on a periodic grid, after SPEC's `swim`, one of the ten programs of
//! the cache-aware thesis (table 5.2), by Sadourny's scheme ("The Dynamics of Finite-Difference
//! Models of the Shallow-Water Equations", J. Atmos. Sci. 32, 1975). An iteration streams once or
//! twice through each of thirteen arrays of two dimensions, in constructs over rows. Threads share
//! only the rows at the borders of their blocks, so first touch by blocks is the best placement.
//!
//! One part is simpler than in swim: indices wrap around at the borders. swim keeps a copy of the
//! first row and column after the last, and updates it after each step.

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
    name: "stencil",
    summary: "the shallow-water equations on a grid of two dimensions, after swim",
    source: "SPEC swim, of the cache-aware thesis (table 5.2)",
    params: &[
        Param::count("points", "points per side of the grid", 384, 4..=8192),
        iterations(20),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(64),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<Stencil>,
};

const STEP_S: f64 = 90.0;
const SPACING_M: f64 = 1e5;
/// Weight of the time filter.
const FILTER_WEIGHT: f64 = 1e-3;

type Field = Array<f64>;

/// The program.
pub(super) struct Stencil {
    n: usize,
    psi: Field,
    u: Field,
    v: Field,
    p: Field,
    u_new: Field,
    v_new: Field,
    p_new: Field,
    u_old: Field,
    v_old: Field,
    p_old: Field,
    /// Mass fluxes, potential vorticity and height, between the points of the other fields.
    cu: Field,
    cv: Field,
    z: Field,
    h: Field,
    /// Step of the leapfrog scheme in seconds: twice [`STEP_S`] after the first step.
    leap_s: f64,
}

impl Stencil {
    /// Computes fluxes, vorticity and height from the velocities and the pressure.
    fn fluxes(&mut self, team: &mut Team) {
        let (n, f) = (self.n, 4.0 / SPACING_M);
        team.grid("calc1", 0..n, 0..1, |team, j, _| {
            let (row, below) = (j * n, (j + 1) % n * n);
            for i in 0..n {
                let next = (i + 1) % n;
                let p00 = self.p.load(team, row + i);
                let p10 = self.p.load(team, row + next);
                let p01 = self.p.load(team, below + i);
                let p11 = self.p.load(team, below + next);
                let u00 = self.u.load(team, row + i);
                let u10 = self.u.load(team, row + next);
                let u11 = self.u.load(team, below + next);
                let v00 = self.v.load(team, row + i);
                let v01 = self.v.load(team, below + i);
                let v11 = self.v.load(team, below + next);
                let vorticity = f * (v11 - v01) - f * (u11 - u10);
                self.cu.store(team, row + next, 0.5 * (p10 + p00) * u10);
                self.cv.store(team, below + i, 0.5 * (p01 + p00) * v01);
                self.z
                    .store(team, below + next, vorticity / (p00 + p10 + p11 + p01));
                let energy = u10 * u10 + u00 * u00 + v01 * v01 + v00 * v00;
                self.h.store(team, row + i, p00 + 0.25 * energy);
            }
        });
    }

    /// Computes velocities and pressure of the next step.
    fn step(&mut self, team: &mut Team) {
        let n = self.n;
        let (eighth, slope) = (self.leap_s / 8.0, self.leap_s / SPACING_M);
        team.grid("calc2", 0..n, 0..1, |team, j, _| {
            let (row, below) = (j * n, (j + 1) % n * n);
            for i in 0..n {
                let next = (i + 1) % n;
                let z11 = self.z.load(team, below + next);
                let z10 = self.z.load(team, row + next);
                let z01 = self.z.load(team, below + i);
                let [cu00, cu10, cu01, cu11] =
                    [row + i, row + next, below + i, below + next].map(|at| self.cu.load(team, at));
                let [cv00, cv10, cv01, cv11] =
                    [row + i, row + next, below + i, below + next].map(|at| self.cv.load(team, at));
                let h00 = self.h.load(team, row + i);
                let h10 = self.h.load(team, row + next);
                let h01 = self.h.load(team, below + i);
                let u = self.u_old.load(team, row + next)
                    + eighth * (z11 + z10) * (cv11 + cv01 + cv00 + cv10)
                    - slope * (h10 - h00);
                self.u_new.store(team, row + next, u);
                let v = self.v_old.load(team, below + i)
                    - eighth * (z11 + z01) * (cu11 + cu01 + cu00 + cu10)
                    - slope * (h01 - h00);
                self.v_new.store(team, below + i, v);
                let p =
                    self.p_old.load(team, row + i) - slope * (cu10 - cu00) - slope * (cv01 - cv00);
                self.p_new.store(team, row + i, p);
            }
        });
    }

    /// Advances time: the filtered present becomes the past, and the future becomes the present.
    fn shift(&mut self, team: &mut Team, alpha: f64) {
        let n = self.n;
        team.grid("calc3", 0..n, 0..1, |team, j, _| {
            for (now, new, old) in [
                (&mut self.u, &self.u_new, &mut self.u_old),
                (&mut self.v, &self.v_new, &mut self.v_old),
                (&mut self.p, &self.p_new, &mut self.p_old),
            ] {
                for at in j * n..(j + 1) * n {
                    let (present, future) = (now.load(team, at), new.load(team, at));
                    let past = old.load(team, at);
                    old.store(team, at, present + alpha * (future - 2.0 * present + past));
                    now.store(team, at, future);
                }
            }
        });
    }
}

impl Kernel for Stencil {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let n = values.count(0) as usize;
        let mut field = |name| team.array(name, n * n);
        Stencil {
            n,
            psi: field("psi"),
            u: field("u"),
            v: field("v"),
            p: field("p"),
            u_new: field("unew"),
            v_new: field("vnew"),
            p_new: field("pnew"),
            u_old: field("uold"),
            v_old: field("vold"),
            p_old: field("pold"),
            cu: field("cu"),
            cv: field("cv"),
            z: field("z"),
            h: field("h"),
            leap_s: STEP_S,
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        let n = self.n;
        let angle = 2.0 * std::f64::consts::PI / n as f64;
        team.initialise("psi", 0..n, 0..1, |team, j, _| {
            let across = libm::sin((j as f64 + 0.5) * angle);
            for i in 0..n {
                let along = libm::sin((i as f64 + 0.5) * angle);
                self.psi.store(team, j * n + i, 1e6 * along * across);
            }
        });
        let height = {
            let length = n as f64 * SPACING_M;
            let pi = std::f64::consts::PI;
            pi * pi * 1e12 / (length * length)
        };
        team.initialise("initial", 0..n, 0..1, |team, j, _| {
            let (row, below) = (j * n, (j + 1) % n * n);
            for i in 0..n {
                let next = (i + 1) % n;
                let psi00 = self.psi.load(team, row + i);
                let psi10 = self.psi.load(team, row + next);
                let psi01 = self.psi.load(team, below + i);
                let waves = libm::cos(2.0 * i as f64 * angle) + libm::cos(2.0 * j as f64 * angle);
                let p = height * waves + 50_000.0;
                let (u, v) = ((psi00 - psi01) / SPACING_M, (psi10 - psi00) / SPACING_M);
                for (fields, value) in [
                    ([&mut self.u, &mut self.u_old, &mut self.u_new], u),
                    ([&mut self.v, &mut self.v_old, &mut self.v_new], v),
                    ([&mut self.p, &mut self.p_old, &mut self.p_new], p),
                ] {
                    for field in fields {
                        field.store(team, row + i, value);
                    }
                }
                for field in [&mut self.cu, &mut self.cv, &mut self.z, &mut self.h] {
                    field.store(team, row + i, 0.0);
                }
            }
        });
    }

    fn iterate(&mut self, team: &mut Team, iteration: u64) {
        self.fluxes(team);
        self.step(team);
        // The first step has no past for the leapfrog or the filter.
        self.shift(team, if iteration == 0 { 0.0 } else { FILTER_WEIGHT });
        self.leap_s = 2.0 * STEP_S;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{team, values};
    use super::*;

    /// The check of swim itself: the scheme conserves mass.
    #[test]
    fn mass_is_conserved_and_the_water_moves() {
        let mut team = team(3);
        let mut stencil = Stencil::new(&mut team, &values("stencil{points=24}"));
        stencil.initialise(&mut team);
        let mass = |stencil: &Stencil| stencil.p.values().iter().sum::<f64>();
        let (before, first) = (mass(&stencil), stencil.p.values().to_vec());
        (0..40).for_each(|iteration| stencil.iterate(&mut team, iteration));
        assert!((mass(&stencil) / before - 1.0).abs() < 1e-12);
        let moved = stencil.p.values().iter().zip(&first);
        let most = moved
            .map(|(now, then)| (now - then).abs())
            .fold(0.0, f64::max);
        assert!((1.0..20_000.0).contains(&most), "{most}");
    }

    #[test]
    fn the_water_does_not_know_how_many_threads_there_are() {
        let run = |threads| {
            let mut team = team(threads);
            let mut stencil = Stencil::new(&mut team, &values("stencil{points=17}"));
            stencil.initialise(&mut team);
            (0..5).for_each(|iteration| stencil.iterate(&mut team, iteration));
            stencil.p.values().to_vec()
        };
        assert_eq!(run(1), run(7));
    }
}
