//! Where the events of a run come from, and what can be asked of the programs in return.
//!
//! The rings of hither's library in the programs are the source that there is. Another one, such as
//! events that the kernel reports of programs without the library, is a file beside this one that
//! implements [`EventSource`], and an entry of [`RunState`]. It says the same with the same
//! [`Record`]s, and names threads by [`RingInfo`]s of its own, with dense indices from 65536 on:
//! there are no more rings.
//!
//! [`RunState`]: crate::mechanism::RunState

use hither_ids::Pid;
use hither_kernel::process_tree::Transferred;
use hither_session::bind_requests::BindRequestSender;
use hither_session::record::Record;
use hither_session::session::{Lost, RingInfo, Session};

/// What takes the records of a source, with the thread that each is of.
pub(crate) type TakeRecord<'a> = dyn FnMut(&RingInfo, Record<'_>) + 'a;

/// A source of events.
///
/// The records of one thread come in order. Those of several threads, and of several sources, may
/// come in any order: who needs them in order sorts them by time. By default a source has no
/// deadline and nothing to reap, and cannot ask programs for anything.
pub(crate) trait EventSource: Send {
    /// Passes on what there is, of each thread up to the first access after `until_ns`
    /// (CLOCK_MONOTONIC). Returns the number of records.
    fn drain(&mut self, until_ns: u64, take: &mut TakeRecord<'_>) -> usize;

    /// Passes on what threads have left that are gone, and frees what was theirs. It may take
    /// milliseconds. Returns the number of records.
    fn reap(&mut self, _take: &mut TakeRecord<'_>) -> usize {
        0
    }

    /// When it has to be drained at the latest (CLOCK_MONOTONIC), so that nothing is lost.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// What was lost so far.
    fn lost(&self) -> Lost;

    /// Has programs report no accesses to files until further notice, or report them again. Returns
    /// whether it can ask for that: otherwise they go on.
    fn pause(&mut self, _paused: bool) -> bool {
        false
    }

    /// Has programs disable readahead, from now on, on descriptors that they read at random.
    /// Returns whether it can ask for that.
    fn disable_readahead(&self) -> bool {
        false
    }

    /// What threads of the programs that have ended had transferred, if the source counts that.
    fn transferred_by_ended(&self) -> Option<Transferred> {
        None
    }

    /// Since then (CLOCK_MONOTONIC) another source tells of the calls of a process.
    fn leave_out_calls(&mut self, _process: Pid, _since_ns: u64) {}

    /// By what programs are asked to bind memory, if it can ask for that.
    fn bind_requests(&mut self) -> Option<BindRequestSender<'_>> {
        None
    }

    /// Nothing new is reported from now on. What there is can still be drained.
    fn close(&mut self);
}

impl EventSource for Session {
    fn drain(&mut self, until_ns: u64, take: &mut TakeRecord<'_>) -> usize {
        self.drain_while(|ring, record| {
            let time_ns = time_of(&record);
            take(ring, record);
            time_ns <= until_ns
        })
    }

    fn reap(&mut self, take: &mut TakeRecord<'_>) -> usize {
        Session::reap(self, take)
    }

    fn lost(&self) -> Lost {
        Session::lost(self)
    }

    fn pause(&mut self, paused: bool) -> bool {
        Session::pause(self, paused);
        true
    }

    fn disable_readahead(&self) -> bool {
        Session::disable_readahead(self);
        true
    }

    fn bind_requests(&mut self) -> Option<BindRequestSender<'_>> {
        Session::bind_requests(self)
    }

    fn close(&mut self) {
        Session::close(self);
    }
}

/// When an access was; 0 of other records, which need no order.
fn time_of(record: &Record<'_>) -> u64 {
    match record {
        Record::Access { time_ns, .. } => *time_ns,
        _ => 0,
    }
}

/// The losses of several sources.
pub(crate) fn sum(all: impl Iterator<Item = Lost>) -> Lost {
    all.fold(Lost::default(), |sum, lost| Lost {
        events: sum.events.saturating_add(lost.events),
        bytes: sum.bytes.saturating_add(lost.bytes),
        no_ring: sum.no_ring.saturating_add(lost.no_ring),
        no_ring_bytes: sum.no_ring_bytes.saturating_add(lost.no_ring_bytes),
        nested: sum.nested.saturating_add(lost.nested),
        damaged: sum.damaged.saturating_add(lost.damaged),
        regions: sum.regions.saturating_add(lost.regions),
    })
}
