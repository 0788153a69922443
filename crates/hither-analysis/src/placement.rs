//! Simulated placements: what is asked for, the runs, the advice that follows, and the results as
//! tables, documents and pictures.
//!
//! Every combination of topology, size, replacement policy and placement is a [`PlacementCase`].
//! Cases keep that order everywhere, so that those which are compared stand together. A
//! [`CaseResult`] is a case with its outcome.

mod advice;
mod analysis;
mod case;
mod cost_overrides;
mod data_kind;
mod document;
mod pictures;
mod run;
mod setup;
mod table;
mod warm_up;

pub use advice::{PlacementAdvice, advise};
pub use analysis::PlacementAnalysis;
pub use case::{
    CaseResult, CaseSummary, EngineCosts, PlacementCase, PlacementRequest, RunSettings, cases,
};
pub use cost_overrides::CostOverrides;
pub use data_kind::{check_kind, data_kind, default_placements, placements_or_default};
pub use document::{document, pretty};
pub use pictures::Pictures;
pub(crate) use run::bytes_per_block;
pub use run::{RunControl, run};
pub use setup::{PlacementSetup, binding_name, parse_binding};
pub use table::{table, traffic};
pub use warm_up::WarmUpSpec;
