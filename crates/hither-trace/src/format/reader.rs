//! What a format is: its name, how it is recognised, and how it is read.

use crate::error::Result;
use crate::sink::Sink;
use crate::source::{Head, Input};

/// A format of traces.
#[derive(Debug)]
pub struct Format {
    /// Its name, for `--format`.
    pub name: &'static str,
    /// One line on what it is.
    pub doc: &'static str,
    /// The kind of its records.
    pub records: RecordKind,
    /// Whether content with this beginning is of this format. `None` if content cannot show it.
    pub(super) matches: Option<fn(Head<'_>) -> bool>,
    /// Reads a trace into the sink. A format that reads other files than its input returns the
    /// SHA-256 of all that it read.
    pub(super) read: fn(&mut Input<'_>, &mut dyn Sink) -> Result<Option<String>>,
}

/// The kind of the records of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Keys: each record is one reference to the block of that number, of any size.
    Keys,
    /// Requests for a range of bytes of an object, which become references to its blocks.
    Requests,
}

impl Format {
    /// Reads a trace into `sink` and returns the SHA-256 of the input.
    pub fn read_whole(&self, mut input: Input<'_>, sink: &mut dyn Sink) -> Result<String> {
        let of_more = (self.read)(&mut input, sink)?;
        let of_input = match of_more {
            Some(_) => None,
            None => input.sha256()?,
        };
        Ok(of_more.or(of_input).unwrap_or_default())
    }

    /// Whether the format can be recognised by content.
    pub fn is_recognised(&self) -> bool {
        self.matches.is_some()
    }

    /// Whether this input is of this format, by its beginning.
    pub fn recognises(&self, input: &mut Input<'_>) -> Result<bool> {
        let head = input.head()?;
        Ok(self.matches.is_some_and(|matches| matches(head)))
    }
}
