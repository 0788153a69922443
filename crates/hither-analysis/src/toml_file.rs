//! TOML files that users write. Each error names the file and the line.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use crate::{Error, Result};

/// An error in a file, with its position in the text.
pub(crate) struct Problem {
    at: Option<Range<usize>>,
    what: String,
}

impl Problem {
    /// A function that makes a problem at this position from a message.
    pub(crate) fn at<E: ToString>(at: Range<usize>) -> impl FnOnce(E) -> Problem {
        move |what| Problem {
            at: Some(at),
            what: what.to_string(),
        }
    }

    /// A problem of the file as a whole.
    pub(crate) fn of_all(what: impl ToString) -> Problem {
        Problem {
            at: None,
            what: what.to_string(),
        }
    }
}

/// Reads the file at `path` and passes its content to `make`.
pub(crate) fn read<D: DeserializeOwned, T>(
    path: &Path,
    make: impl FnOnce(D) -> Result<T, Problem>,
) -> Result<T> {
    let text = std::fs::read_to_string(path).map_err(Error::of_file(path))?;
    let document = toml::from_str(&text).map_err(|error| Problem {
        at: error.span(),
        what: error.message().to_owned(),
    });
    document.and_then(make).map_err(|problem| {
        let line = problem.at.map_or(1, |at| {
            let before = text.as_bytes().get(..at.start).unwrap_or_default();
            1 + before.iter().filter(|&&byte| byte == b'\n').count()
        });
        Error::Usage(format!("{}:{line}: {}", path.display(), problem.what))
    })
}

/// Parses a value that may be a string or a whole number.
pub(crate) fn read_as<T>(
    value: &Spanned<Value>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Problem> {
    let read = match value.as_ref() {
        Value::String(text) => parse(text),
        Value::Integer(number) => parse(&number.to_string()),
        other => Err(format!(
            "expected a text or a whole number, found {}",
            other.type_str()
        )),
    };
    read.map_err(Problem::at(value.span()))
}
