//! hither-sim.
