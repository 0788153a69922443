//! The engine for files: a cache on each node of a topology, over storage, and a placement that
//! says which node holds what.
//!
//! Accesses are made in the order of the trace, each by the node that the [binding](super::Binding)
//! says. What one costs is in [`Costs`]; who waits for whom, in `caches`.

mod caches;
mod costs;
mod disks;
mod network;
mod room;
#[cfg(test)]
mod tests;

use hither_core::placement::Target;
use hither_core::{Access, Topology};

pub use self::costs::Costs;

use self::caches::Caches;
use self::disks::Disks;
use self::network::Network;
use super::source::{BATCH, Source};
use super::{Configuration, Options, Outcome};
use crate::caches::Error;
use crate::references::References;

/// What the calendars of links and disks take in memory, which does not depend on the trace: 64 MiB
/// and more with a thousand nodes.
pub fn calendar_bytes(topology: &Topology, costs: &Costs) -> u64 {
    let disks = match costs.disks.len() {
        0 => topology.nodes(),
        named => named,
    };
    Network::bytes(topology, costs.contention) + Disks::bytes(disks)
}

/// Replays `references` through the caches of a configuration.
pub fn run(
    references: &impl References,
    configuration: &Configuration,
    costs: &Costs,
    options: &Options<'_>,
) -> Result<Outcome, Error> {
    configuration.check(references, Target::Files)?;
    let needs = configuration.replacement.entry().needs;
    let source = Source::new(references, configuration, needs, options);
    let mut caches = Caches::new(references, configuration, costs, options)?;
    let mut marks = references.marks().iter().copied().peekable();
    let (mut batch, mut ahead) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let (mut start, mut done, end) = (0, 0, references.references());
    source.fill(0, &mut batch)?;
    let mut drive = |batch: &[Access], start: u64| {
        let after = start + batch.len() as u64;
        loop {
            while let Some(mark) = marks.next_if(|mark| mark.reference <= done) {
                caches.mark(mark);
            }
            caches.reached(done);
            if done == after {
                return;
            }
            let mark = marks.peek().map_or(u64::MAX, |mark| mark.reference);
            let stop = after.min(mark).min(caches.stop().max(done + 1));
            let part = &batch[(done - start) as usize..(stop - start) as usize];
            if options.check {
                part.iter().for_each(|access| {
                    caches.drive(std::slice::from_ref(access));
                    caches.check();
                });
            } else {
                caches.drive(part);
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
    Ok(caches.report(configuration))
}
