//! The Rust half of the Python package `hither`.
//!
//! It gives what `hither-analysis` computes to the Python half (`python/hither`), which is what
//! users see: names, defaults and documentation are there. Results cross as JSON, the same
//! documents as the command's `--json`; tables cross as Arrow streams.
//!
//! Files of mounts are read by `hither-client` (`reader.rs`).
//!
//! Long work runs on a thread of its own (`work.rs`): the interpreter's lock is free meanwhile, and
//! Ctrl-C returns at once.
#![deny(unsafe_code)]

mod advice;
mod arrow;
mod errors;
mod functions;
mod own;
mod reader;
mod trace;
mod work;

use pyo3::prelude::*;

/// The module `hither._hither`.
#[pymodule]
mod _hither {
    #[pymodule_export]
    use super::advice::advise;
    #[pymodule_export]
    use super::arrow::{Table, accesses, files, from_arrow, rows, sites};
    #[pymodule_export]
    use super::functions::{chart, curve, free_bytes, generate, place, simulate};
    #[pymodule_export]
    use super::own::Nodes;
    #[pymodule_export]
    use super::reader::{Reader, open_reader, require_mount};
    #[pymodule_export]
    use super::trace::{Trace, from_blocks, load};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
