//! Whether `hither run` is to apply what is advised for a program's page cache.
//!
//! Advice is about a cache of some size. Where all files of the program fit into the memory that it
//! had, a smaller cache costs reads, whatever the policy is. Where it leaves next to nothing for
//! files, a run has nothing to steer, and refuses a plan for a larger cache. Of programs without
//! the library (static, in Go) a run that starts another program sees next to nothing. And of
//! mapped files a run sees first touches alone, so it steers only those that are read in order
//! (`hither-live/src/page_cache/controller/touches.rs`).

use hither_core::registry::Needs;
use hither_trace::Trace;

use crate::Result;
use crate::advice::STEERABLE_MIN_BYTES;
use crate::format::{bytes, percent};
use crate::relevance::Relevance;

/// From this share of what was read on, programs without the library decide.
const UNSEEN_MIN_SHARE: f64 = 0.5;

/// From this share of the references on, touches of mapped files decide.
const MAPPED_MIN_SHARE: f64 = 0.5;

/// A touch this far ahead or behind continues a pass: as far as a run takes it to.
const NEAR_BYTES: u64 = 16 << 20;

/// So many jumps a run bears in a file, and one more for so much that is read in order.
const JUMPS_MAX: u64 = 8;
const BYTES_PER_JUMP: u64 = 256 << 20;

/// References that are counted at a time.
const BATCH_REFERENCES: usize = 1 << 16;

/// Why `hither run` is not to apply advice on a cache, in a sentence. `asked_sizes` says that the
/// user named the size of the cache, which is then not this machine's to say.
pub(crate) fn obstacle(trace: &Trace, asked_sizes: bool) -> Result<Option<String>> {
    let relevance = Relevance::of(trace).filter(|relevance| relevance.fit && !asked_sizes);
    if let Some(relevance) = relevance {
        return Ok(Some(format!(
            "Nothing here is for `hither run` to apply: in a cache smaller than these {} the \
             program would read more. --size names the cache of another machine.",
            bytes(relevance.files_bytes)
        )));
    }
    let cramped = Relevance::of(trace).filter(|of| of.is_cramped() && !asked_sizes);
    if let Some(relevance) = cramped {
        return Ok(Some(format!(
            "Nothing here is for `hither run` to apply: the program leaves {} of its memory cgroup \
             for files, and a run steers from {} on. --size names the cache of another cgroup.",
            bytes(relevance.left_bytes),
            bytes(STEERABLE_MIN_BYTES)
        )));
    }
    if let Some(seen) = trace.meta().seen
        && seen.kernel_alone_bytes as f64 > UNSEEN_MIN_SHARE * seen.recorded_bytes as f64
    {
        return Ok(Some(format!(
            "Nothing here is for `hither run` to apply: {} of the {} that was read only the kernel \
             saw, of programs without the library, and what a run makes of these is not known.",
            bytes(seen.kernel_alone_bytes),
            bytes(seen.recorded_bytes)
        )));
    }
    let counts = trace.object_counts().iter();
    let is_touched: Vec<bool> = counts.map(|counts| counts.faults > 0).collect();
    if !is_touched.contains(&true) {
        return Ok(None);
    }
    let block_bytes = u64::from(trace.options().block_bytes);
    let near_blocks = NEAR_BYTES / block_bytes;
    let mut passes = vec![Passes::default(); is_touched.len()];
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    trace.for_each_batch(BATCH_REFERENCES, needs, |accesses| {
        for access in accesses {
            let object = access.object.index();
            if is_touched.get(object).is_some_and(|is_touched| *is_touched) {
                passes[object].reference(access.index.into(), near_blocks);
            }
        }
    })?;
    let out_of_order = passes.iter().filter(|file| {
        let in_order = file.in_order * block_bytes;
        file.jumps > JUMPS_MAX + in_order / BYTES_PER_JUMP
    });
    let references: u64 = out_of_order.map(|file| file.in_order + file.jumps).sum();
    let share = references as f64 / trace.references().max(1) as f64;
    Ok((share >= MAPPED_MIN_SHARE).then(|| {
        format!(
            "`hither run` cannot apply this: {} of the references are touches of files that are \
             mapped and not read in order, which a run leaves alone.",
            percent(share)
        )
    }))
}

/// How a mapped file is passed through.
#[derive(Clone, Copy, Debug, Default)]
struct Passes {
    first: u64,
    last: u64,
    in_order: u64,
    jumps: u64,
}

impl Passes {
    /// Counts a reference to the block at `index`. A pass may begin anew.
    fn reference(&mut self, index: u64, near_blocks: u64) {
        let is_first = self.in_order + self.jumps == 0;
        if is_first {
            self.first = index;
        }
        if is_first || index.abs_diff(self.last) <= near_blocks || index == self.first {
            self.in_order += 1
        } else {
            self.jumps += 1
        }
        self.last = index;
    }
}

#[cfg(test)]
mod tests {
    use hither_trace::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
    use hither_trace::{LoadOptions, Writer};

    use super::*;

    /// A recording of touches of a mapped file, in parts of 64 KiB, at these parts.
    fn touches(parts: impl Iterator<Item = u64>) -> (Trace, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t");
        let mut writer = Writer::create(&path, false).expect("created");
        for (part, time_ns) in parts.zip(0..) {
            let touch = AccessRow {
                op: RowOp::Fault,
                offset: part << 16,
                length: 1 << 16,
                time_ns,
                ..AccessRow::default()
            };
            writer.push(&touch).expect("written");
        }
        let meta = Meta {
            processes: vec![ProcessRow::default()],
            threads: vec![ThreadRow::default()],
            ..Meta::default()
        };
        let objects = [ObjectRow::default()];
        writer
            .finish(&objects, &[SiteRow::unknown()], &meta)
            .expect("finished");
        let trace = Trace::load(&path, None, &LoadOptions::default()).expect("loaded");
        (trace, folder)
    }

    #[test]
    fn random_touches_of_mapped_files_are_not_for_a_run() {
        let (random, _folder) = touches((0..4096).map(|at| at * 2741 % 4096));
        let said = obstacle(&random, false).expect("counted").expect("said");
        assert!(
            said.starts_with("`hither run` cannot apply this: "),
            "{said}"
        );
        assert_eq!(obstacle(&random, true).expect("counted"), Some(said));
        let (passes, _folder) = touches((0..4096).chain(0..4096));
        assert_eq!(obstacle(&passes, false).expect("counted"), None);
    }

    #[test]
    fn passes_are_told_from_jumps() {
        let count = |indices: &mut dyn Iterator<Item = u64>| {
            let mut passes = Passes::default();
            indices.for_each(|index| passes.reference(index, 4));
            (passes.in_order, passes.jumps)
        };
        assert_eq!(count(&mut (0..100).chain(0..100)), (200, 0));
        assert_eq!(count(&mut (0..100).map(|index| index * 37 % 101)), (1, 99));
    }
}
