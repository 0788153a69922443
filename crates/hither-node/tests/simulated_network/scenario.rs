//! What a seed stands for: how many nodes, how fast a network and source, which faults.

use hither_core::entry::RegistryEntry;
use hither_core::placement::PlacementEntry;
use hither_core::{Random, Spec};
use hither_node::protocol::Settings;

/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Which faults may happen while the world is disturbed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Only the source fails.
    pub(crate) source_only: bool,
    pub(crate) breaks: bool,
    pub(crate) crashes: bool,
    pub(crate) partitions: bool,
    pub(crate) one_way: bool,
    pub(crate) stops: bool,
    pub(crate) clock_jumps: bool,
    pub(crate) isolation: bool,
    pub(crate) outages: bool,
    /// Share of reads of the source that fail, in percent.
    pub(crate) errors_percent: u64,
    /// Share of read blocks that may not be kept, in percent.
    pub(crate) not_kept_percent: u64,
    /// Messages overtake each other, are lost and come twice, one by one.
    pub(crate) reordering: bool,
}

impl Faults {
    fn new(random: &mut Random) -> Option<Faults> {
        let kind = random.below(8);
        let mut any = || random.below(2) == 0;
        let source = Faults {
            source_only: true,
            errors_percent: if any() { 20 } else { 0 },
            not_kept_percent: if any() && any() { 10 } else { 0 },
            outages: any(),
            ..Faults::default()
        };
        let all = Faults {
            source_only: false,
            breaks: any(),
            crashes: any(),
            partitions: any(),
            one_way: any(),
            stops: any(),
            clock_jumps: any(),
            isolation: any(),
            reordering: any() && any(),
            ..source
        };
        match kind {
            0 | 1 => None,
            2 => Some(source),
            _ => Some(all),
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) nodes: usize,
    pub(crate) chunks: u64,
    /// Blocks that a store holds.
    pub(crate) store_blocks: usize,
    pub(crate) latency_ns: (u64, u64),
    pub(crate) source_ns: (u64, u64),
    pub(crate) view_lag_ns: u64,
    /// Mean interval of reads.
    pub(crate) read_ns: u64,
    /// Share of reads that are prefetches, in percent.
    pub(crate) prefetch_percent: u64,
    /// How long the world is disturbed.
    pub(crate) disturbed_ns: u64,
    /// Mean interval of faults.
    pub(crate) fault_ns: u64,
    pub(crate) faults: Option<Faults>,
    /// Neither nodes nor the network fail.
    pub(crate) reliable: bool,
    pub(crate) settings: Settings,
}

/// Each placement for clusters, and the simplest one more often. Triggers are low, since runs are
/// short.
fn placement(random: &mut Random) -> Spec<PlacementEntry> {
    let all = PlacementEntry::all().iter();
    let all: Vec<_> = all.filter(|entry| entry.runs_in_clusters()).collect();
    let name = match all.get(random.below(all.len() as u64 + 3) as usize) {
        Some(entry) => entry.name,
        None => "first-and-forever",
    };
    let text = match name {
        "post-office" => "post-office{trigger=3,window=20}",
        "cost-benefit" => "cost-benefit{confidence=0}",
        name => name,
    };
    text.parse().expect("a placement")
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn new(random: &mut Random) -> Scenario {
        let between = |random: &mut Random, low: u64, high: u64| low + random.below(high - low + 1);
        let one_in = |random: &mut Random, n: u64| random.below(n) == 0;
        let faults = Faults::new(random);
        let latency_ns = between(random, 1, 20) * MS / 10;
        let source_ns = between(random, 1, 100) * MS;
        let mut settings = Settings {
            answer_ns: between(random, 100, 500) * MS,
            delivery_ns: between(random, 100, 500) * MS,
            pending_ns: between(random, 200, 800) * MS,
            patience_ns: between(random, 1_000, 3_000) * MS,
            grant_ns: between(random, 1_000, 2_000) * MS,
            ping_ns: between(random, 200, 500) * MS,
            pings_max: if one_in(random, 3) {
                between(random, 1, 4) as usize
            } else {
                64
            },
            pings_missed_max: between(random, 2, 4),
            avoid_ns: between(random, 500, 2_000) * MS,
            fetch_blocks_max: between(random, 1, 200) as u32,
            peer_blocks_max: between(random, 1, 200) as u32,
            prefetch_queue_blocks_max: between(random, 0, 200) as u32,
            gone_ns: between(random, 8_000, 20_000) * MS,
            retries_max: between(random, 0, 3) as u8,
            order_ns: between(random, 50, 2_000) * MS,
            placement: placement(random),
            ..Settings::default()
        };
        let reliable = faults.is_none_or(|faults| faults.source_only);
        if reliable {
            // Where no message is lost, all must come to an end without a deadline.
            settings.pending_ns = u64::MAX / 4;
            settings.patience_ns = u64::MAX / 4;
            settings.grant_ns = u64::MAX / 4;
        } else if one_in(random, 4) {
            settings.directory_chunks_max = between(random, 1, 5) as usize;
            settings.waiters_max = between(random, 1, 2) as usize;
        }
        Scenario {
            nodes: 1 + (random.below(9).min(random.below(9))) as usize,
            chunks: between(random, 1, 12),
            store_blocks: if one_in(random, 3) {
                between(random, 1, 100) as usize
            } else {
                10_000
            },
            latency_ns: (latency_ns / 2, latency_ns * 2),
            source_ns: (source_ns / 2, source_ns * 2),
            view_lag_ns: between(random, 1, 500) * MS,
            read_ns: between(random, 10, 80) * MS,
            prefetch_percent: if one_in(random, 2) { 30 } else { 0 },
            disturbed_ns: between(random, 1_500, 4_000) * MS,
            fault_ns: between(random, 100, 1_000) * MS,
            faults,
            reliable,
            settings,
        }
    }

    /// Whether each node must know in the end where each block is.
    pub(crate) fn converges(&self) -> bool {
        let ordered = self.faults.is_none_or(|faults| !faults.reordering);
        // Where blocks move, looking for a block may push out another one.
        let moves = self.settings.placement.entry().name != "first-and-forever";
        let steady = !moves || self.store_blocks > 1_000;
        ordered && steady && self.settings.directory_chunks_max > 100
    }

    /// Rounds of pings until all members have been pinged, at most.
    pub(crate) fn ping_turn(&self) -> u64 {
        let pings_max = self.settings.pings_max;
        if self.nodes <= pings_max + 1 {
            1
        } else {
            self.nodes.div_ceil(pings_max - pings_max / 2) as u64
        }
    }

    /// How often the source is read in turn, if all blocks are wanted and few are read at once.
    pub(crate) fn rounds(&self) -> u64 {
        1 + self.chunks * 64 / u64::from(self.settings.fetch_blocks_max)
    }

    /// The longest that a reader may wait, without the time that its node was stopped: all the
    /// patience for other nodes, then a place in the queue for the source, then the source. Where
    /// nothing fails there is no limit to the patience, but it waits for another node's place.
    pub(crate) fn wait_max_ns(&self) -> u64 {
        let settings = &self.settings;
        let others = if self.reliable {
            0
        } else {
            settings.patience_ns + settings.pending_ns
        };
        let answers = settings.answer_ns + settings.delivery_ns;
        others + answers + 3 * self.rounds() * self.source_ns.1 + 100 * MS
    }
}
