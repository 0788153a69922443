//! Errors of the analysis as exceptions of `hither.errors`.

use hither_analysis::Error;
use pyo3::prelude::*;

/// An exception of `hither.errors`, by its name.
pub(crate) fn exception(py: Python<'_>, name: &str, text: &str) -> PyErr {
    let class = py
        .import("hither.errors")
        .and_then(|module| module.getattr(name));
    match class.and_then(|class| class.call1((text,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// An error, with the text that the command would print.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        _ if error.is_usage() => "RequestError",
        Error::Trace(_) | Error::InTrace { .. } => "TraceError",
        Error::Cancelled => "Cancelled",
        _ => "Error",
    };
    exception(py, name, &error.to_string())
}

/// A request that cannot be met, such as an unknown policy.
pub(crate) fn refused(py: Python<'_>, problem: impl std::fmt::Display) -> PyErr {
    exception(py, "RequestError", &problem.to_string())
}
