//! A module of a recorded program.

use std::path::PathBuf;

/// A program or library as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path.
    pub path: PathBuf,
    /// Its build-id; empty where it has none.
    pub build_id: Vec<u8>,
}
