//! What a build without the feature `cluster` says of what it leaves out.

/// That it has none of it.
pub(crate) const MESSAGE: &str = "this build of hither has no mounts, no nodes and no --metrics: \
     it was made without the feature `cluster`, which the packages and `cargo install` have";
