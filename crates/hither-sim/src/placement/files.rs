//! The engine for files: a cache on each node of a topology, above storage, and a placement that
//! decides which node holds what.
//!
//! Accesses are made in the order of the trace, each by the node that the [binding](super::Binding)
//! gives. [`FileCosts`] has the cost of each. `engine` decides who waits for whom.

mod costs;
mod directory;
mod disks;
mod engine;
mod eviction;
mod network;
#[cfg(test)]
mod tests;

use hither_core::placement::Target;
use hither_core::{Access, Topology};

pub use self::costs::FileCosts;

use self::disks::Disks;
use self::engine::FileEngine;
use self::network::Network;
use super::source::{BATCH_REFERENCES, Source};
use super::{PlacementConfiguration, PlacementOptions, PlacementOutcome};
use crate::caches::Error;
use crate::references::References;

/// The memory of the calendars of links and disks: 64 MiB, and more with a thousand nodes. It does
/// not depend on the trace.
pub fn calendar_bytes(topology: &Topology, costs: &FileCosts) -> u64 {
    let disks = match costs.disks.len() {
        0 => topology.nodes(),
        named => named,
    };
    Network::bytes(topology, costs.contention) + Disks::bytes(disks)
}

/// Replays `references` through the engine of a configuration.
pub fn run(
    references: &impl References,
    configuration: &PlacementConfiguration,
    costs: &FileCosts,
    options: &PlacementOptions<'_>,
) -> Result<PlacementOutcome, Error> {
    configuration.check(references, Target::Files)?;
    let needs = configuration.replacement.entry().needs;
    let source = Source::new(references, configuration, needs, options);
    let mut engine = FileEngine::new(references, configuration, costs, options)?;
    let mut marks = references.marks().iter().copied().peekable();
    let (mut batch, mut ahead) = (
        Vec::with_capacity(BATCH_REFERENCES),
        Vec::with_capacity(BATCH_REFERENCES),
    );
    let (mut start, mut done, end) = (0, 0, references.references());
    source.fill(0, &mut batch)?;
    let mut drive = |batch: &[Access], start: u64| {
        let after = start + batch.len() as u64;
        loop {
            while let Some(mark) = marks.next_if(|mark| mark.reference <= done) {
                engine.mark(mark);
            }
            engine.reached(done);
            if done == after {
                return;
            }
            let mark = marks.peek().map_or(u64::MAX, |mark| mark.reference);
            let stop = after.min(mark).min(engine.stop().max(done + 1));
            let part = &batch[(done - start) as usize..(stop - start) as usize];
            if options.check {
                part.iter().for_each(|access| {
                    engine.drive(std::slice::from_ref(access));
                    engine.check();
                });
            } else {
                engine.drive(part);
            }
            done = stop;
        }
    };
    while start < end {
        options.report(start)?;
        let after = start + batch.len() as u64;
        let ((), read) = rayon::join(|| drive(&batch, start), || source.fill(after, &mut ahead));
        read?;
        std::mem::swap(&mut batch, &mut ahead);
        start = after;
    }
    drive(&[], end);
    options.report(end)?;
    Ok(engine.report(configuration))
}
