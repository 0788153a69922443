//! What the engine must know before the run: owners of objects, ends of processes, users of pages.
//! accesses what.

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
        let mut owners = Vec::new();
        if processes <= 1 && !foresight {
            let ends = Vec::new();
            return Ok(TraceSummary {
                totals,
                owners,
                ends,
            });
        }
        const NOBODY: Process = Process(u32::MAX);
        let mut last = vec![None; processes.max(1)];
        self.each(|access| {
            if let Some(totals) = &mut totals {
                totals.add(access.block, access.node, access.count);
            }
            if processes <= 1 {
                return;
            }
            last[access.process.index()] = Some(access.tick);
            let object = access.object.index();
            if object >= owners.len() {
                owners.resize(object + 1, NOBODY);
            }
            if owners[object] == NOBODY {
                owners[object] = access.process;
            }
        })?;
        let ends = (0..).zip(last).filter_map(|(process, last)| {
            Some(End {
                reference: last? + 1,
                process: Process(process),
            })
        });
        let mut ends: Vec<End> = ends.collect();
        ends.sort_by_key(|end| end.reference);
        ends.pop();
        Ok(TraceSummary {
            totals,
            owners,
            ends,
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
    /// The last access of each process, except for the process that ends last.
    pub(super) ends: Vec<End>,
}

/// A process makes its last access before this reference.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) reference: u64,
    pub(super) process: Process,
}
