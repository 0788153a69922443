//! Loads a trace: from an input in some format to references.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::format;
use crate::load_options::LoadOptions;
use crate::source::Input;
use crate::trace::Trace;
use crate::trace_builder::TraceBuilder;

impl Trace {
    /// Loads the trace at `path`. `format` is the name of its format; `None` recognises it by
    /// content.
    pub fn load(
        path: impl AsRef<Path>,
        format: Option<&str>,
        options: &LoadOptions,
    ) -> Result<Trace> {
        Trace::read(Input::open(path.as_ref())?, format, options)
    }

    /// The trace under another name: that of the original where a copy was loaded.
    pub fn named(mut self, name: impl Into<PathBuf>) -> Trace {
        self.path = name.into();
        self
    }

    /// Loads a trace from any input.
    pub fn read(
        mut input: Input<'_>,
        format: Option<&str>,
        options: &LoadOptions,
    ) -> Result<Trace> {
        let format = format::choose(format, &mut input)?;
        let mut builder = TraceBuilder::new(input.path(), options)?;
        let sha256 = format.read_whole(input, &mut builder)?;
        let mut trace = builder.finish()?;
        trace.format = format.name();
        trace.sha256 = sha256;
        Ok(trace)
    }
}
