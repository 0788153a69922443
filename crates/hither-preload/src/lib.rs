//! hither-preload.
