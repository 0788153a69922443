//! What a report simulates.

use hither_core::Spec;
use hither_sim::Size;

use crate::expected::RunModel;
use crate::placement::PlacementSetup;

/// What a report simulates on its traces.
pub struct ReportRequest {
    /// The policies to simulate.
    pub policies: Vec<Spec>,
    /// Whether the user named these policies. Then a policy that the trace lacks data for is an
    /// error; otherwise it is left out.
    pub own_policies: bool,
    /// The cache sizes. Where there is none, shares of the first trace's distinct blocks are used.
    pub sizes: Vec<Size>,
    /// The number of sizes on the curve of a policy that is simulated size by size. By default it
    /// depends on the length of the trace.
    pub points: Option<usize>,
    /// The placements to simulate.
    pub placing: PlacementSetup,
    /// Says what a run would read.
    pub run_model: RunModel,
}
