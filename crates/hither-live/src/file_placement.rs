//! Places the pages of a program's files on memory nodes.
//!
//! It is one mechanism, whose policy says how. As programs read pages in, the library in them
//! places these on one node, or on several in turn (`at_read`). Or cached pages move to the nodes
//! that read them (`migration`).

mod at_read;
mod migration;
mod options;

use std::time::Duration;

use serde_json::Value;

use self::at_read::ReadPlacement;
use self::migration::FileMigration;
use crate::error::Result;
use crate::mechanism::{Mechanism, RunState};
use crate::system::System;

pub use self::at_read::ReadPlacementReport;
pub use self::migration::{FileMigrationReport, FileMigrationSummary, replay};
pub use self::options::FilePlacementOptions;

/// The result of a run.
#[derive(Debug)]
pub enum FilePlacementReport {
    /// Pages were placed as programs read them in.
    AtRead(ReadPlacementReport),
    /// Cached pages were moved.
    Migration(Box<FileMigrationReport>),
}

impl FilePlacementReport {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            FilePlacementReport::AtRead(report) => report.to_json(),
            FilePlacementReport::Migration(report) => report.to_json(),
        }
    }
}

/// The mechanism in a run.
pub(crate) enum FilePlacementMechanism {
    AtRead(ReadPlacement),
    Migration(Box<FileMigration>),
}

impl FilePlacementMechanism {
    /// For the loop.
    pub(crate) fn as_mechanism(&mut self) -> &mut dyn Mechanism {
        match self {
            FilePlacementMechanism::AtRead(placement) => placement,
            FilePlacementMechanism::Migration(migration) => &mut **migration,
        }
    }

    /// The result of the run.
    pub(crate) fn finish(self, run: &mut RunState, ran: Duration) -> FilePlacementReport {
        match self {
            FilePlacementMechanism::AtRead(placement) => {
                FilePlacementReport::AtRead(placement.finish(run))
            }
            FilePlacementMechanism::Migration(migration) => {
                FilePlacementReport::Migration(Box::new(migration.finish(run, ran)))
            }
        }
    }
}

/// Sets the mechanism up for a run. `None` where pages would move, on a machine with one node,
/// unless it is a dry run.
///
/// # Errors
/// The node has no memory, or none for this process; the kernel refuses memory policies; or the
/// thread that moves pages cannot be started.
pub(crate) fn set_up(
    options: &FilePlacementOptions,
    system: &System,
    dry_run: bool,
) -> Result<Option<FilePlacementMechanism>> {
    Ok(match options.at_read() {
        Some(node) => Some(FilePlacementMechanism::AtRead(ReadPlacement::new(node)?)),
        None => migration::set_up(options, system, dry_run)?
            .map(|migration| FilePlacementMechanism::Migration(Box::new(migration))),
    })
}
