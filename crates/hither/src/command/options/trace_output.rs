//! Writing a trace: formats, standard output and errors.

use std::path::Path;

use hither_trace::{Error, Export};

use crate::exit::Usage;

/// The default of `--output`: a trace folder.
pub(crate) const DEFAULT_OUTPUT: &str = "trace.hither";

/// The name of a format that traces can be written in.
pub(crate) fn target_name(text: &str) -> Result<String, String> {
    Export::find(text)
        .map(|target| target.name.to_owned())
        .map_err(|error| error.to_string())
}

/// Whether `output` is standard output. Fails for a format that is a folder.
pub(crate) fn goes_to_stdout(output: &Path, target: &Export) -> anyhow::Result<bool> {
    let to_stdout = output == Path::new("-");
    if to_stdout && !target.is_stream() {
        let name = target.name;
        let problem = format!("{name} is a folder and cannot go to standard output");
        return Err(Usage(problem).into());
    }
    Ok(to_stdout)
}

/// Adds `standard output` to an error about output without a name.
pub(crate) fn named(error: Error) -> anyhow::Error {
    match error {
        Error::Output { .. } => anyhow::Error::from(error).context("standard output"),
        other => other.into(),
    }
}

/// The end of the message of an error of writing a trace: what the user can do.
pub(crate) fn hint(error: &Error) -> &'static str {
    match error {
        Error::Exists { .. } => " (--force replaces it, -o names another)",
        Error::Create { .. } => " (-o PATH writes elsewhere)",
        _ => "",
    }
}
