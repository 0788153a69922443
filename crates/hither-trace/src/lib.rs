//! hither-trace.
