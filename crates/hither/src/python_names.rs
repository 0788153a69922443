//! A hint for traces whose call sites are functions of a Python interpreter: Python names its own
//! functions if it is asked to.

use hither_trace::Trace;
use hither_trace::schema::{Frame, SiteRow};

/// The hint.
const HINT: &str = "Of Python, the interpreter's functions are named. `python3 -X perf` (3.12 or \
                    later) names those of the script.";

/// How names of Python functions begin.
const PYTHON_FUNCTION: &str = "py::";

/// The hint as a paragraph, if it helps with this trace. Empty if not.
pub(crate) fn hint(trace: &Trace) -> String {
    if are_missing(trace.sites()) {
        format!("\n{HINT}\n")
    } else {
        String::new()
    }
}

/// Whether an interpreter made accesses, and no function of Python has a name.
fn are_missing(sites: &[SiteRow]) -> bool {
    let frames = || sites.iter().flat_map(|site| &site.frames);
    let is_named = |frame: &Frame| {
        let function = frame.function.as_deref();
        function.is_some_and(|function| function.starts_with(PYTHON_FUNCTION))
    };
    frames().any(|frame| is_interpreter(&frame.module)) && !frames().any(is_named)
}

/// Whether a module is CPython: `python3.12` or `libpython3.12.so.1.0`.
fn is_interpreter(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or(module);
    name.starts_with("python3") || name.starts_with("libpython3")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(module: &str, function: Option<&str>) -> SiteRow {
        let frame = Frame {
            module: module.to_owned(),
            function: function.map(str::to_owned),
            ..Frame::default()
        };
        SiteRow {
            frames: vec![frame],
            ..SiteRow::default()
        }
    }

    #[test]
    fn only_an_interpreter_without_names_calls_for_the_hint() {
        let interpreter = site("/usr/bin/python3.12", Some("_io_FileIO_readinto"));
        let library = site("/usr/lib/libpython3.11.so.1.0", None);
        let named = site("[perf map]", Some("py::load"));
        let other = site("/usr/bin/grep", None);
        assert!(are_missing(&[other.clone(), interpreter.clone()]));
        assert!(are_missing(&[library]));
        assert!(!are_missing(&[interpreter, named]));
        assert!(!are_missing(&[other]));
    }
}
