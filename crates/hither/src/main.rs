//! hither.

fn main() {}
