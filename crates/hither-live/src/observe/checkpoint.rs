//! What a recording notes in the journal of its trace while the program runs, so that it can be
//! recovered if the agent is killed.

use hither_ids::FileKey;
use hither_session::session::Lost;
use hither_trace::schema::Losses;
use hither_trace::{Result, TableRows, Writer};

use super::intern::Definitions;
use super::sites;
use super::streams::Streams;
use super::tables::Tables;
use crate::mechanism::RunState;

/// The shortest time between two checkpoints that come by time. A killed agent loses the accesses
/// of this time.
const PERIOD_NS_MIN: u64 = 1_000_000_000;

/// The longest one. In between it is a part of the time that the recording has taken so far, so
/// that a long recording does not have many small row groups.
const PERIOD_NS_MAX: u64 = 60_000_000_000;
const PERIOD_PART: u64 = 64;

/// How far the journal has got.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    objects: Noted,
    sites: Noted,
    processes: usize,
    threads: usize,
    /// Time of the last checkpoint that came by time.
    last_ns: u64,
}

/// The rows of a table that the journal has.
#[derive(Debug, Default)]
struct Noted {
    rows: u32,
    /// Those that had no definition yet.
    undefined: Vec<u32>,
}

impl Noted {
    /// The rows to note: new ones, and those that have got their definition since they were noted.
    fn take(&mut self, rows: usize, is_defined: impl Fn(u32) -> bool) -> Vec<u32> {
        let new = self.rows..rows as u32;
        let undefined = std::mem::take(&mut self.undefined).into_iter();
        let (mut noted, undefined): (Vec<u32>, Vec<u32>) = undefined.partition(|&n| is_defined(n));
        self.undefined = undefined;
        self.undefined
            .extend(new.clone().filter(|&n| !is_defined(n)));
        self.rows = new.end;
        noted.extend(new);
        noted
    }
}

impl Checkpoints {
    /// Ends the row group if its time has come, and notes what the journal lacks. `now_ns` is since
    /// the start of the recording; `None`: the program has ended.
    pub(crate) fn update(
        &mut self,
        now_ns: Option<u64>,
        writer: &mut Writer,
        tables: &mut Tables,
        run: &RunState,
    ) -> Result<()> {
        let now_ns = now_ns.unwrap_or(u64::MAX);
        let period_ns = (now_ns / PERIOD_PART).clamp(PERIOD_NS_MIN, PERIOD_NS_MAX);
        if now_ns.saturating_sub(self.last_ns) >= period_ns {
            self.last_ns = now_ns;
            writer.end_row_group()?;
        }
        if !writer.needs_checkpoint() {
            return Ok(());
        }
        let rows = TableRows {
            losses: losses(&run.lost()),
            other_bytes: run.library.other_read_bytes(),
            ..self.rows(tables, &run.definitions, &run.streams)
        };
        writer.checkpoint(&rows)
    }

    /// What the tables have got.
    fn rows(
        &mut self,
        tables: &mut Tables,
        definitions: &Definitions,
        streams: &Streams,
    ) -> TableRows {
        let keys = tables.objects.keys();
        let is_defined = |n: u32| definitions.objects.contains_key(&FileKey(keys[n as usize]));
        let objects = self.objects.take(keys.len(), is_defined).into_iter();
        let objects = objects.map(|n| (n, tables.object_row(n, definitions)));
        let objects = objects.collect();

        let keys = tables.sites.keys();
        let is_defined = |n: u32| sites::is_defined(keys[n as usize], definitions);
        let sites = self.sites.take(keys.len(), is_defined).into_iter();
        let sites = sites.map(|n| (n, sites::unnamed(keys[n as usize], definitions)));
        let sites = sites.collect();

        let threads = tables.thread_rows(self.threads);
        let processes = tables.process_rows(streams, self.processes);
        self.threads += threads.len();
        self.processes += processes.len();
        TableRows {
            objects,
            sites,
            processes,
            threads,
            ..TableRows::default()
        }
    }
}

/// The losses of a session.
pub(crate) fn losses(lost: &Lost) -> Losses {
    Losses {
        dropped_events: lost.unrecorded(),
        dropped_bytes: lost.unrecorded_bytes(),
        dropped_ring_full: lost.events,
        dropped_no_ring: lost.no_ring,
        dropped_nested: lost.nested,
        damaged_records: lost.damaged,
        ..Losses::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_noted_again_once_it_is_defined() {
        let mut noted = Noted::default();
        assert_eq!(noted.take(3, |n| n != 1), [0, 1, 2]);
        assert!(noted.take(3, |n| n != 1).is_empty());
        assert_eq!(noted.take(4, |_| true), [1, 3]);
        assert!(noted.take(4, |_| true).is_empty());
    }
}
