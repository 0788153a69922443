//! The protocol's limits and intervals, and what it counts.

use hither_core::Spec;
use hither_core::placement::PlacementEntry;

use super::message::Keep;
use crate::distances::Distances;
use crate::readers::Readers;

/// Limits and intervals. The defaults are for machines in one building, with a source that answers
/// in 1 to 100 ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Differs from that of any earlier start of this member.
    pub incarnation: u32,
    /// What the numbers of this member's requests are drawn from. Nobody else may know it.
    pub secret: u128,
    /// Who may have the blocks of which volume.
    pub readers: Readers,
    /// Where blocks are kept. It must be a placement for clusters.
    pub placement: Spec<PlacementEntry>,
    /// Whether a log of what the placement is told and answers is kept, for
    /// [`Protocol::take_placement_log`](super::Protocol::take_placement_log).
    pub logs_placement: bool,
    /// Where the distances between the members come from.
    pub distances: Distances,
    /// Time for an answer of a home.
    pub answer_ns: u64,
    /// Time for the data after a holder was told to deliver.
    pub delivery_ns: u64,
    /// Time after which a requester that waits for another node's read of the source asks again.
    pub pending_ns: u64,
    /// Time that a requester spends on other nodes in all before it reads from the source.
    pub patience_ns: u64,
    /// Time that a granted read of the source may take before another requester is granted it.
    pub grant_ns: u64,
    /// Interval of rounds of pings.
    pub ping_ns: u64,
    /// Members that a round pings, the next ones in turn.
    pub pings_max: usize,
    /// Pings without an answer after which a member is suspected.
    pub pings_missed_max: u64,
    /// Unanswered requests in a row after which a member is avoided.
    pub unanswered_max: u32,
    /// An answer is late that takes more than this part of the time for it, one in so many, and
    /// that many times as long as a read of the source.
    pub late: u64,
    /// Late answers in a row after which a member is avoided.
    pub late_max: u32,
    /// How long it is avoided.
    pub avoid_ns: u64,
    /// Time after which what a member held that left is forgotten, with the next view.
    pub gone_ns: u64,
    /// A deadline missed by more than this: the node was stopped, or its clock jumped. The protocol
    /// leaves that time out of its own time.
    pub stall_ns: u64,
    /// How often a request is sent again, when its home or holder is lost, before the source is
    /// read.
    pub retries_max: u8,
    /// Time after which an order to move or copy a block is given up.
    pub order_ns: u64,
    /// Blocks being read from the source; from this many on, others queue.
    pub fetch_blocks_max: u32,
    /// Blocks asked for at one home; from this many on, others queue.
    pub peer_blocks_max: u32,
    /// Share of these two limits that the prefetch may use.
    pub prefetch_percent: u32,
    /// Blocks of the prefetch in queues; from this many on, others are shed.
    pub prefetch_queue_blocks_max: u32,
    /// Chunks in the directory.
    pub directory_chunks_max: usize,
    /// Chunks of which a requester remembers who holds what.
    pub hint_chunks_max: usize,
    /// Requests that wait at the directory's entry of one chunk.
    pub waiters_max: usize,
    /// Time for which reports of dropped blocks are gathered.
    pub report_ns: u64,
    /// Interval of steps of the sweep that announces what this node holds to new homes.
    pub sweep_ns: u64,
    /// Chunks examined in one step of that sweep.
    pub sweep_chunks: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        const MS: u64 = 1_000_000;
        Settings {
            incarnation: 0,
            secret: 0,
            readers: Readers::default(),
            placement: "first-and-forever".parse().expect("it is registered"),
            logs_placement: false,
            distances: Distances::default(),
            answer_ns: 500 * MS,
            delivery_ns: 1_000 * MS,
            pending_ns: 2_000 * MS,
            patience_ns: 20_000 * MS,
            grant_ns: 10_000 * MS,
            ping_ns: 250 * MS,
            pings_max: 64,
            pings_missed_max: 4,
            unanswered_max: 3,
            late: 4,
            late_max: 8,
            avoid_ns: 5_000 * MS,
            gone_ns: 60_000 * MS,
            stall_ns: 500 * MS,
            retries_max: 3,
            order_ns: 2_000 * MS,
            fetch_blocks_max: 2_048,
            peer_blocks_max: 4_096,
            prefetch_percent: 50,
            prefetch_queue_blocks_max: 4_096,
            directory_chunks_max: 1 << 20,
            hint_chunks_max: 1 << 16,
            waiters_max: 1_024,
            report_ns: 5 * MS,
            sweep_ns: 20 * MS,
            sweep_chunks: 4_096,
        }
    }
}

impl Counters {
    /// Counts blocks that a holder is told to send to who keeps them.
    pub(super) fn on_move(&mut self, keep: Keep, blocks: u64) {
        match keep {
            Keep::Moved => self.moved_blocks += blocks,
            Keep::Copy => self.copied_blocks += blocks,
            Keep::No => {}
        }
    }
}

/// What the protocol has counted since it started. Masks count by their blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Blocks wanted that were not in flight yet.
    pub wanted_blocks: u64,
    /// Blocks asked for at other nodes, each time.
    pub asked_blocks: u64,
    /// Of these, blocks asked for directly at who was known to hold them.
    pub hinted_blocks: u64,
    /// Blocks that came from other nodes.
    pub arrived_blocks: u64,
    /// Blocks for which a read of the source was started.
    pub fetched_blocks: u64,
    /// Of these, those granted by a home.
    pub granted_blocks: u64,
    /// Blocks that the source did not give.
    pub failed_blocks: u64,
    /// Blocks read from the source since no home answered in time.
    pub answer_timeout_blocks: u64,
    /// Blocks read from the source since no data came in time.
    pub delivery_timeout_blocks: u64,
    /// Blocks read from the source since waiting for another node took too long.
    pub patience_blocks: u64,
    /// Blocks read from the source since a node refused, or was not the home.
    pub refused_blocks: u64,
    /// Blocks asked for again since a home or holder was lost.
    pub retried_blocks: u64,
    /// Parts of chunks that other nodes were late to answer for.
    pub late_answers: u64,
    /// Blocks of the prefetch that were shed.
    pub shed_blocks: u64,
    /// As home: blocks that a holder was told to deliver.
    pub directed_blocks: u64,
    /// As home: blocks that a requester was told to wait for.
    pub pending_blocks: u64,
    /// As home: blocks that a holder no longer had.
    pub gone_blocks: u64,
    /// As home: granted blocks that were not reported in time.
    pub grant_timeout_blocks: u64,
    /// As home: requests refused since the directory was full of busy entries, or too many waited.
    pub overflows: u64,
    /// As home: blocks that a holder was told to send to a member that keeps them, or to keep
    /// while delivering them.
    pub moved_blocks: u64,
    /// The same for blocks that are copied.
    pub copied_blocks: u64,
    /// As home: blocks that were evicted and went to another member.
    pub forwarded_blocks: u64,
    /// As home: blocks that were evicted, as far as it was asked.
    pub victim_blocks: u64,
    /// As home: entries dropped to make room.
    pub evicted_entries: u64,
    /// Requests for chunks that this node is not the home of.
    pub not_home: u64,
    /// As holder: blocks provided.
    pub provided_blocks: u64,
    /// Requests, orders and reports of volumes that are not for the member.
    pub forbidden: u64,
    /// Messages of who is not in the view.
    pub strangers: u64,
    /// Blocks from other nodes that were not expected of them: late ones, too.
    pub unexpected_blocks: u64,
    /// Messages from another epoch.
    pub other_epoch_messages: u64,
    /// Members that became suspected, each time.
    pub suspicions: u64,
    /// Time that was left out since the node was stopped or its clock jumped.
    pub stalled_ns: u64,
}
