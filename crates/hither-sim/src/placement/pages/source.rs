//! What is known of the references before the run: who owns which object, when processes end, who accesses what.

use hither_core::placement::Counters;
use hither_core::{Access, Process};

use crate::one_cache::Error;
use crate::placement::source::{BATCH, Source};
use crate::references::References;

impl<R: References> Source<'_, R> {
    /// All accesses by page and node.
    pub(super) fn totals(&self) -> Result<Counters, Error> {
        let mut totals = Counters::new(self.nodes, self.references.blocks());
        self.each(|access| totals.add(access.block, access.node, access.count))?;
        Ok(totals)
    }

    /// Which process is the first to use each object, and when each but the last to end makes its last access. Of a
    /// trace of one process nothing need be read for that.
    pub(super) fn processes(&self) -> Result<Processes, Error> {
        let all = self.references.processes();
        let mut owners = Vec::new();
        if all <= 1 {
            let ends = Vec::new();
            return Ok(Processes { owners, ends });
        }
        const NOBODY: Process = Process(u32::MAX);
        let mut last = vec![None; all];
        self.each(|access| {
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
        Ok(Processes { owners, ends })
    }

    fn each(&self, mut each: impl FnMut(&Access)) -> Result<(), Error> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut start = 0;
        while start < self.references.references() {
            self.fill(start, &mut batch)?;
            batch.iter().for_each(&mut each);
            start += batch.len() as u64;
        }
        Ok(())
    }
}

pub(super) struct Processes {
    /// By object.
    pub(super) owners: Vec<Process>,
    pub(super) ends: Vec<End>,
}

/// A process makes its last access before that reference.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) reference: u64,
    pub(super) process: Process,
}
