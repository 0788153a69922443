//! hither-live.
