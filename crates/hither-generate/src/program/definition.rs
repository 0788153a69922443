//! What a program is: its name, its parameters, and the function that runs it.

use hither_core::registry::Param;
use hither_core::spec::Values;

use super::execution::{Execution, Stopped};

/// A program.
#[derive(Debug)]
pub struct Program {
    /// The name that a user writes. The file has the same name, with `_` for `-`.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What it is modelled after.
    pub source: &'static str,
    /// Its parameters, in the order of its written spec.
    pub params: &'static [Param],
    /// Threads, unless the user says otherwise.
    pub threads: u32,
    /// The largest number of threads.
    pub threads_max: u32,
    /// Whether it iterates and marks its iterations. Threads of such a program migrate only between
    /// iterations (`Execution::iteration_ends`). Other threads migrate after a number of their own
    /// rows.
    pub iterates: bool,
    /// Runs it.
    pub(crate) run: fn(&Values, &mut Execution) -> Result<(), Stopped>,
}

/// A program with a value for each of its parameters.
pub type ProgramSpec = hither_core::Spec<Program>;

/// The largest number of threads of programs without a limit of their own: more than any machine
/// worth simulating has.
pub const THREADS_MAX: u32 = 4096;
