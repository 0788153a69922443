//! What the engine must know before the run: owners of objects, lifetimes of processes, users of
//! pages.

use hither_core::placement::Counters;
use hither_core::{Access, Process};

use crate::caches::Error;
use crate::placement::source::{BATCH_REFERENCES, Source};
use crate::references::References;

impl<R: References> Source<'_, R> {
    /// Collects this in one pass. Nothing is read for a trace of one process and a policy without
    /// foresight.
    pub(super) fn known(&self, foresight: bool) -> Result<TraceSummary, Error> {
        let processes = self.references.processes();
        let totals = || Counters::new(self.nodes, self.references.blocks());
        let mut totals = foresight.then(totals);
        if processes <= 1 && !foresight {
            return Ok(TraceSummary {
                totals,
                owners: Vec::new(),
                lifetimes: Vec::new(),
            });
        }
        let mut owners: Vec<Option<Process>> = Vec::new();
        let mut ticks: Vec<Option<(u64, u64)>> = vec![None; processes.max(1)];
        self.each(|access| {
            if let Some(totals) = &mut totals {
                totals.add(access.block, access.node, access.count);
            }
            if processes <= 1 {
                return;
            }
            let of = &mut ticks[access.process.index()];
            *of = Some((of.map_or(access.tick, |(first, _)| first), access.tick));
            let object = access.object.index();
            if object >= owners.len() {
                owners.resize(object + 1, None);
            }
            owners[object].get_or_insert(access.process);
        })?;
        let lifetimes = (0..).zip(ticks).filter_map(|(process, ticks)| {
            let (first, last) = ticks?;
            Some(Lifetime {
                process: Process(process),
                start: first,
                end: last + 1,
            })
        });
        let lifetimes = lifetimes.collect();
        // What nobody accesses belongs to the first process.
        let owners = owners.into_iter().map(Option::unwrap_or_default).collect();
        Ok(TraceSummary {
            totals,
            owners,
            lifetimes,
        })
    }

    fn each(&self, mut each: impl FnMut(&Access)) -> Result<(), Error> {
        let mut batch = Vec::with_capacity(BATCH_REFERENCES);
        let mut start = 0;
        while start < self.references.references() {
            self.fill(start, &mut batch)?;
            batch.iter().for_each(&mut each);
            start += batch.len() as u64;
        }
        Ok(())
    }
}

pub(super) struct TraceSummary {
    /// All accesses by page and node, for policies with foresight.
    pub(super) totals: Option<Counters>,
    /// The process that first uses each object. Empty with one process.
    pub(super) owners: Vec<Process>,
    /// Of all processes that make accesses, by number. Empty with one process.
    pub(super) lifetimes: Vec<Lifetime>,
}

/// The references from a process's first access to its last. Those of others may lie between.
#[derive(Clone, Copy)]
pub(super) struct Lifetime {
    pub(super) process: Process,
    /// The first access.
    pub(super) start: u64,
    /// The reference after the last access.
    pub(super) end: u64,
}
