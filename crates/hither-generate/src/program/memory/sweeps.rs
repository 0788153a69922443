//! Sweeps over arrays, after programs of the cache-aware thesis (table 5.2) that have no kernel of
//! their own here, and after its test of sampled memory use (section 5.5.1). Patterns alone:
//! nothing is computed.
//!
//! A style says which arrays a program has, in which order it touches them first, and how it sweeps
//! over them in each iteration. Arrays have rows of 8 or 12 KiB: a walk down a column faults at
//! every second or third page, so its faults are not sequential, while a walk along rows faults
//! page by page. The order of a sweep is what the thesis says of the program's regions: which are
//! touched in sequence (its appendix A), and which come first (section 5.4). The references to an
//! element before the next one are so many that the miss rate is that of table 4.1: our lines of 64
//! bytes hold 8 doubles, so `n` references give `1 / 8n`. How often each array is swept gives the
//! shares of misses that figure 5.11 states.
//!
//! - `apsi`: one work array, filled level by level (down columns), in sections of different use;
//!   9.7 % misses. It fits its node.
//! - `hydro2d`: four arrays that are filled along rows, then two that are swept in both directions,
//!   so first down columns, and four times as often; 1.9 and 2.1 %.
//! - `mxm`: a product of matrices of integers without blocks. `a` is filled along rows, `b` and `c`
//!   are not filled: the product touches them first. For a column of `c` all of `a` (four matrices,
//!   whose products add up) is read along rows, and one column of `b` again and again. With a cache
//!   of 32 KiB the column does not fit.
//! - `tomcatv`: two coordinates that are read across their rows (11.7 %), and then five arrays of
//!   coefficients along rows (2.1 %).
//! - `turb3d`: six fields that are set and transformed down columns (4.6 %), then six arrays of
//!   products along rows (2.6 %).
//! - `wave`: one work array, filled along rows: particles (32 references an element), and fields in
//!   its last tenth (4); 0.4 %.
//! - `working-set`: one array, of which each iteration uses another part: 20, 90, 50, 10, 70 and
//!   30 %, and again. Each iteration makes about as many references.

use std::ops::Range;

use hither_core::registry::{Param, ParamKind};
use hither_core::spec::Values;

use super::cache::LINE_BYTES;
use super::kernel::{
    Kernel, L1_WAYS, SERIAL_INIT, SLICE_NS, THREADS, THREADS_MAX, iterations, l2_kib, run,
};
use super::team::{Team, share};
use crate::program::definition::Program;

/// The line in the registry.
pub(crate) const ENTRY: Program = Program {
    name: "sweeps",
    summary: "sweeps over arrays along rows and columns, after programs of the cache-aware thesis",
    source: "apsi, hydro2d, tomcatv, turb3d and wave of SPECfp95, mxm, and the test of section \
             5.5.1 of the cache-aware thesis",
    params: &[
        Param {
            name: "like",
            doc: "which program",
            kind: ParamKind::Name {
                default: "tomcatv",
                names: &[
                    "apsi",
                    "hydro2d",
                    "mxm",
                    "tomcatv",
                    "turb3d",
                    "wave",
                    "working-set",
                ],
            },
        },
        Param::count(
            "kib",
            "memory of all arrays together in KiB, except for rounding to whole rows",
            8192,
            64..=1 << 22,
        ),
        iterations(4),
        SERIAL_INIT,
        L1_WAYS,
        l2_kib(64),
        SLICE_NS,
    ],
    threads: THREADS,
    threads_max: THREADS_MAX,
    iterates: true,
    run: run::<Sweeps>,
};

/// The order in which a sweep visits the elements of an array.
#[derive(Clone, Copy)]
enum Order {
    /// Along the rows, as they lie in memory.
    Rows,
    /// Down the columns.
    Columns,
    /// The product of matrices: the first of three arrays along rows, one column of the second for
    /// each of its rows, one element of a column of the third.
    Product,
    /// Along the rows of a part that the iteration chooses.
    WorkingSet,
}

/// A construct: visits elements of arrays, of all of them in turn at each position.
struct Sweep {
    name: &'static str,
    order: Order,
    /// Which arrays, by number.
    arrays: Range<usize>,
    /// The part of the rows, in percent.
    part: Range<usize>,
    /// References to an element at each visit.
    loads: u32,
    stores: u32,
    /// How often the whole is done.
    times: usize,
}

/// All of these arrays, once.
const fn sweep(
    name: &'static str,
    order: Order,
    arrays: Range<usize>,
    loads: u32,
    stores: u32,
) -> Sweep {
    Sweep {
        name,
        order,
        arrays,
        part: 0..100,
        loads,
        stores,
        times: 1,
    }
}

impl Sweep {
    const fn of(self, from: usize, to: usize) -> Sweep {
        Sweep {
            part: from..to,
            ..self
        }
    }

    const fn times(self, times: usize) -> Sweep {
        Sweep { times, ..self }
    }
}

/// A program. Its arrays are of one size.
struct Style {
    name: &'static str,
    arrays: &'static [&'static str],
    element_bytes: usize,
    row_bytes: usize,
    /// What touches arrays before the iterations.
    start: &'static [Sweep],
    iteration: &'static [Sweep],
}

use Order::{Columns, Product, Rows, WorkingSet};

static STYLES: &[Style] = &[
    Style {
        name: "apsi",
        arrays: &["work"],
        element_bytes: 8,
        row_bytes: 12 << 10,
        start: &[sweep("levels", Columns, 0..1, 0, 1)],
        iteration: &[
            sweep("advect", Columns, 0..1, 1, 0).of(0, 50).times(2),
            sweep("spectra", Rows, 0..1, 0, 1).of(50, 80),
            sweep("diffuse", Rows, 0..1, 1, 1).of(80, 100).times(2),
        ],
    },
    Style {
        name: "hydro2d",
        arrays: &["density", "energy", "grid_r", "grid_z", "flux_r", "flux_z"],
        element_bytes: 8,
        row_bytes: 12 << 10,
        start: &[sweep("grid", Rows, 0..4, 0, 1)],
        iteration: &[
            sweep("advance_z", Columns, 4..6, 4, 2).times(2),
            sweep("advance_r", Rows, 4..6, 4, 2).times(2),
            sweep("state", Rows, 0..4, 4, 2),
        ],
    },
    Style {
        name: "mxm",
        arrays: &["a", "b", "c"],
        element_bytes: 4,
        row_bytes: 8 << 10,
        start: &[sweep("fill", Rows, 0..1, 0, 1)],
        iteration: &[sweep("multiply", Product, 0..3, 1, 1)],
    },
    Style {
        name: "tomcatv",
        arrays: &["x", "y", "rx", "ry", "aa", "dd", "d"],
        element_bytes: 8,
        row_bytes: 12 << 10,
        start: &[sweep("read", Columns, 0..2, 0, 1)],
        iteration: &[
            sweep("residual", Columns, 0..2, 1, 0).times(8),
            sweep("solve", Rows, 2..7, 4, 2).times(2),
            sweep("add", Columns, 0..2, 0, 1).times(4),
        ],
    },
    Style {
        name: "turb3d",
        arrays: &[
            "u", "v", "w", "ox", "oy", "oz", "uu", "uv", "uw", "vv", "vw", "ww",
        ],
        element_bytes: 8,
        row_bytes: 12 << 10,
        start: &[sweep("spectrum", Columns, 0..6, 0, 1)],
        iteration: &[
            sweep("transform_y", Columns, 0..6, 2, 1).times(3),
            sweep("transform_x", Rows, 0..6, 2, 1).times(2),
            sweep("products", Rows, 6..12, 3, 2).times(3),
        ],
    },
    Style {
        name: "wave",
        arrays: &["work"],
        element_bytes: 8,
        row_bytes: 12 << 10,
        start: &[sweep("particles", Rows, 0..1, 0, 1)],
        iteration: &[
            sweep("push", Rows, 0..1, 24, 8).of(0, 90),
            sweep("fields", Rows, 0..1, 3, 1).of(90, 100),
        ],
    },
    Style {
        name: "working-set",
        arrays: &["memory"],
        element_bytes: 8,
        row_bytes: 12 << 10,
        start: &[sweep("allocate", Rows, 0..1, 0, 1)],
        iteration: &[sweep("work", WorkingSet, 0..1, 1, 1)],
    },
];

/// Parts of the memory that the iterations of `working-set` use, in percent.
const WORKING_SETS: [usize; 6] = [20, 90, 50, 10, 70, 30];

/// References of an iteration of `working-set`, in percent of the elements.
const WORKING_SET_SWEPT: usize = 720;

/// Columns between those of successive products: as often on one page of a row as on another.
const PRODUCT_COLUMNS: usize = 1031;

/// The program.
pub(super) struct Sweeps {
    style: &'static Style,
    rows: usize,
    /// By array.
    first_lines: Vec<u32>,
}

impl Sweeps {
    fn columns(&self) -> usize {
        self.style.row_bytes / self.style.element_bytes
    }

    /// References to an element of an array.
    fn visit(&self, team: &mut Team, array: usize, element: usize, loads: u32, stores: u32) {
        let line = element * self.style.element_bytes / LINE_BYTES;
        let line = self.first_lines[array] + line as u32;
        (0..loads).for_each(|_| team.load(line));
        (0..stores).for_each(|_| team.store(line));
    }

    fn run(&self, team: &mut Team, sweep: &Sweep, iteration: usize) {
        let (threads, columns) = (team.size(), self.columns());
        let (mut from, mut to) = (sweep.part.start, sweep.part.end);
        let mut times = sweep.times;
        if let WorkingSet = sweep.order {
            (from, to) = (0, WORKING_SETS[iteration % WORKING_SETS.len()]);
            times = WORKING_SET_SWEPT / to;
        }
        let (from, to) = (self.rows * from / 100, self.rows * to / 100);
        let rows = to - from;
        // What the threads share out: rows, lines' worth of columns, or rows of the first matrix.
        let group = LINE_BYTES / self.style.element_bytes;
        let units = match sweep.order {
            Rows | WorkingSet => rows,
            Columns => columns / group,
            Product => columns,
        };
        let own = |thread| share(units, threads, thread);
        let arrays = sweep.arrays.clone();
        team.parallel(
            sweep.name,
            |thread| 0..own(thread).len() * times,
            |team, unit| {
                let own = own(team.thread());
                let unit = own.start + unit % own.len();
                let each = |team: &mut Team, element: usize| {
                    let element = from * columns + element;
                    for array in arrays.clone() {
                        self.visit(team, array, element, sweep.loads, sweep.stores);
                    }
                };
                match sweep.order {
                    Rows | WorkingSet => {
                        (unit * columns..(unit + 1) * columns).for_each(|at| each(team, at));
                    }
                    Columns => {
                        for column in unit * group..(unit + 1) * group {
                            (0..rows).for_each(|row| each(team, row * columns + column));
                        }
                    }
                    Product => self.product_row(team, unit, iteration),
                }
            },
        );
    }

    /// A row of the first matrix times a column of the second. The row has as many elements as the
    /// second has rows.
    fn product_row(&self, team: &mut Team, row: usize, iteration: usize) {
        let (inner, columns) = (self.rows, self.columns());
        let column = iteration * PRODUCT_COLUMNS % columns;
        for k in 0..inner {
            self.visit(team, 0, row * inner + k, 1, 0);
            self.visit(team, 1, k * columns + column, 1, 0);
        }
        self.visit(team, 2, row % self.rows * columns + column, 1, 1);
    }
}

impl Kernel for Sweeps {
    const PROGRAM: &'static Program = &ENTRY;

    fn new(team: &mut Team, values: &Values) -> Self {
        let name = values.name(0);
        let style = STYLES.iter().find(|style| style.name == name);
        let style = style.expect("each name has a style");
        let bytes = values.count(1) as usize * 1024 / style.arrays.len();
        let rows = (bytes / style.row_bytes).max(1);
        let regions = style.arrays.iter();
        Sweeps {
            style,
            rows,
            first_lines: regions
                .map(|name| team.add_region(name, rows * style.row_bytes))
                .collect(),
        }
    }

    fn initialise(&mut self, team: &mut Team) {
        if team.initialises_serially() {
            let (rows, columns) = (self.rows, self.columns());
            team.initialise(
                "clear_all",
                0..self.first_lines.len(),
                0..rows,
                |team, array, row| {
                    (row * columns..(row + 1) * columns)
                        .for_each(|element| self.visit(team, array, element, 0, 1));
                },
            );
        }
        for sweep in self.style.start {
            self.run(team, sweep, 0);
        }
    }

    fn iterate(&mut self, team: &mut Team, iteration: u64) {
        for sweep in self.style.iteration {
            self.run(team, sweep, iteration as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::team::PAGE_BYTES;
    use super::super::testing::values;
    use super::*;
    use crate::program::memory::team::TeamSettings;
    use hither_core::random::Random;
    use hither_trace::schema::RowOp;

    /// The program after two iterations, and the first pages that its regions faulted.
    fn ran(like: &str, kib: u32, l2_kib: u32) -> (Team, Sweeps, Vec<Vec<u64>>) {
        let mut team = Team::new(&TeamSettings {
            threads: 1,
            l1_ways: 4,
            l2_kib,
            slice_ns: 20_000,
            serial_init: false,
            random: Random::new(1),
        });
        let mut sweeps = Sweeps::new(
            &mut team,
            &values(&format!("sweeps{{like={like},kib={kib}}}")),
        );
        sweeps.initialise(&mut team);
        let mut rows = team.take_rows();
        for iteration in 0..2 {
            sweeps.iterate(&mut team, iteration);
            rows.extend(team.take_rows());
        }
        let mut faults = vec![Vec::new(); sweeps.first_lines.len()];
        for row in rows.iter().filter(|row| row.op != RowOp::Mark) {
            let (faulted, page) = (
                &mut faults[row.object as usize],
                row.offset / PAGE_BYTES as u64,
            );
            if faulted.len() < 10 && !faulted.contains(&page) {
                faulted.push(page);
            }
        }
        (team, sweeps, faults)
    }

    /// The misses by references of all arrays of a range, in percent.
    fn miss_rate(team: &Team, arrays: Range<usize>) -> f64 {
        let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
        let of = team.regions()[arrays].iter().map(|region| {
            let (references, misses) = team.references(region);
            (sum(references), sum(misses))
        });
        let (references, misses) = of.fold((0.0, 0.0), |all, of| (all.0 + of.0, all.1 + of.1));
        100.0 * misses / references
    }

    /// Table 4.1: which arrays fault in sequence, and how often they miss. The initialisation,
    /// which stores to each element once, is part of it.
    #[test]
    fn faults_and_miss_rates_are_those_of_the_thesis() {
        let sequential = |pages: &[u64]| pages.windows(2).all(|pair| pair[1] == pair[0] + 1);
        for (like, arrays, in_sequence, percent) in [
            ("apsi", 0..1, false, 8.0..11.0),
            ("hydro2d", 0..4, true, 2.0..3.0),
            ("hydro2d", 4..6, false, 2.0..2.5),
            ("tomcatv", 0..2, false, 11.0..14.0),
            ("tomcatv", 2..7, true, 2.0..2.3),
            ("turb3d", 0..6, false, 4.0..5.5),
            ("turb3d", 6..12, true, 2.3..2.7),
            ("wave", 0..1, true, 0.4..0.7),
        ] {
            let (team, _, faults) = ran(like, 4096, 64);
            for array in arrays.clone() {
                assert_eq!(sequential(&faults[array]), in_sequence, "{like} {array}");
            }
            let rate = miss_rate(&team, arrays);
            assert!(percent.contains(&rate), "{like}: {rate}");
        }
        let (team, _, faults) = ran("mxm", 12_288, 32);
        assert_eq!(
            [0, 1, 2].map(|array| sequential(&faults[array])),
            [true, false, false]
        );
        let rates = [0..1, 1..2].map(|arrays| miss_rate(&team, arrays));
        assert!(rates[0] < 8.0 && rates[1] > 5.0 * rates[0], "{rates:?}");
    }

    #[test]
    fn a_working_set_changes_and_its_references_do_not() {
        let (team, sweeps, _) = ran("working-set", 1200, 64);
        assert_eq!(sweeps.rows, 100);
        let region = team.regions()[0];
        let (references, _) = team.references(&region);
        // A store at the start, then 20 % 36 times and 90 % 8 times, with two references a visit.
        let page_elements = (PAGE_BYTES / 8) as u64;
        let of = |row: usize| references[row * 3] / page_elements;
        assert_eq!([0, 19, 20, 89, 90].map(of), [1 + 72 + 16, 89, 17, 17, 1]);
    }
}
