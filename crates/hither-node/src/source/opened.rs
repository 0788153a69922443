//! A source that was just opened: whether it can be written is a matter of its kind.

use std::sync::Arc;

use super::Source;
use super::write::WritableSource;

/// An opened source.
pub(super) enum Opened {
    /// It can only be read.
    ReadOnly(Arc<dyn Source>),
    /// It can be written as well, as far as its owner allows.
    ReadWrite(Arc<dyn WritableSource>),
}
