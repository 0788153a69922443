//! Pages of memory on the nodes of a machine: accesses, faults, migrations and their costs.
//!
//! An access stands for `count` cache misses of a thread on a page. The first access to a page
//! faults, and the policy chooses its node. The others are local or remote, with the latencies of
//! the topology, and wait where a node's memory is busy (`clocks`). Frames are limited. A full node
//! passes a page to the nearest node with a free frame. If there is none, the chosen node reclaims
//! a frame (`frames`). A reclaimed page comes back from swap, at a cost ([`MemoryCosts`]). Policies
//! act on accesses (the thread waits) and at epochs (all threads wait): at the marks of the trace,
//! or by time if it has none.
//!
//! Between misses a thread computes, for a constant time or for as many references as the modelled
//! caches of the trace served. Nodes may have caches of remote lines (`network_cache`).
//!
//! In a trace of several processes each has its own iterations, counters and barriers. The pages
//! that a process touched first are freed after its last access. A process that begins after
//! another one has ended begins at the end of that. Or all run at the same time, whatever the order
//! of the trace (`concurrent`), and their threads share the processors of a node (`processors`).
//!
//! At marks that end constructs or iterations, the threads of the process wait for each other. A
//! trace without marks has no barriers, and its modelled time is that of its slowest thread.
//!
//! The cost of simulating an access does not depend on the number of nodes, except for its row of
//! counters, as in the hardware that it models: see `benches/placement.rs`.

mod actions;
mod clocks;
mod concurrent;
mod costs;
mod engine;
mod epochs;
mod frames;
mod network_cache;
mod processors;
mod source;
#[cfg(test)]
mod tests;

use hither_core::ids::Object;
use hither_core::placement::{MemoryPlacement, PlacementSettings, Region, Target};
use hither_core::registry::Needs;

pub use self::costs::MemoryCosts;
use self::engine::Engine;
use self::source::Lifetime;
use super::report::PlacementOutcome;
use super::source::{BATCH_REFERENCES, Source};
use super::{PlacementConfiguration, PlacementOptions};
use crate::caches::Error;
use crate::references::References;

/// Runs a placement of pages over all references.
pub fn run(
    references: &impl References,
    configuration: &PlacementConfiguration,
    costs: &MemoryCosts,
    options: &PlacementOptions<'_>,
) -> Result<PlacementOutcome, Error> {
    configuration.check(references, Target::Memory)?;
    if costs.reference_ns > 0 && references.region_references().is_empty() {
        return Err(Error::Lacks {
            policy: configuration.spec.entry().name,
            what: "the references that hit the caches (`reference_ns`)",
            advice: ": traces of memory programs by `hither gen` do",
        });
    }
    let source = Source::new(references, configuration, Needs::NOTHING, options);
    let known = source.known(configuration.spec.needs().totals)?;
    let policy = configuration.spec.build_memory(&PlacementSettings {
        topology: configuration.topology.clone(),
        capacity: &configuration.capacity,
        blocks: references.blocks(),
        block_bytes: references.block_bytes(),
        totals: known.totals.as_ref(),
        initial: None,
        sampled: false,
    });
    let mut policy = policy.expect("checked to place memory");
    drop(known.totals);
    for (object, &bytes) in (0..).zip(&references.object_bytes()) {
        policy.on_region_allocated(&Region {
            object: Object(object),
            owner: known
                .owners
                .get(object as usize)
                .copied()
                .unwrap_or_default(),
            bytes,
            expected_tier: None,
            whole: false,
        });
    }
    drive(
        policy,
        &source,
        known.lifetimes,
        configuration,
        costs,
        options,
    )
}

fn drive(
    policy: Box<dyn MemoryPlacement>,
    source: &Source<'_, impl References>,
    lifetimes: Vec<Lifetime>,
    configuration: &PlacementConfiguration,
    costs: &MemoryCosts,
    options: &PlacementOptions<'_>,
) -> Result<PlacementOutcome, Error> {
    let mut engine = Engine::new(policy, source.references, configuration, costs, options);
    if costs.concurrent && lifetimes.len() > 1 {
        concurrent::drive(&mut engine, source, &lifetimes, options)?;
    } else {
        in_order(&mut engine, source, lifetimes, options)?;
    }
    Ok(engine.outcome(configuration))
}

/// Runs the references in the order of the trace.
fn in_order(
    engine: &mut Engine,
    source: &Source<'_, impl References>,
    mut lifetimes: Vec<Lifetime>,
    options: &PlacementOptions<'_>,
) -> Result<(), Error> {
    let references = source.references;
    let mut marks = references.marks().iter().copied().peekable();
    // The process that ends last ends with the run.
    lifetimes.sort_by_key(|of| of.end);
    lifetimes.pop();
    let mut ends = lifetimes.into_iter().peekable();
    let (mut batch, mut start) = (Vec::with_capacity(BATCH_REFERENCES), 0);
    let (mut done, end) = (0, references.references());
    loop {
        while let Some(mark) = marks.next_if(|mark| mark.reference <= done) {
            engine.mark(mark);
        }
        while let Some(ended) = ends.next_if(|of| of.end <= done) {
            engine.ended(ended.process);
        }
        if done == end {
            engine.add_waits(None);
        }
        engine.reached(done);
        if done == end {
            break;
        }
        if done == start + batch.len() as u64 {
            options.report(done)?;
            start = done;
            source.fill(start, &mut batch)?;
            assert!(
                !batch.is_empty(),
                "as many references as there are said to be"
            );
        }
        let mark = marks.peek().map_or(u64::MAX, |mark| mark.reference);
        let ended = ends.peek().map_or(u64::MAX, |of| of.end);
        let stop = (start + batch.len() as u64)
            .min(mark)
            .min(ended)
            .min(engine.timeline.stop().max(done + 1));
        engine.drive(&batch[(done - start) as usize..(stop - start) as usize]);
        done = stop;
    }
    options.report(done)
}
