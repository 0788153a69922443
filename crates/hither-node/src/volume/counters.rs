//! Where reads were served from, as counts that only grow.

use crate::source::counters::Count;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of a volume, kept without locks.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
        }

        /// The counts of a volume at one time.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize,
        )]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// The counts now.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Read requests.
    reads,
    /// Bytes that they returned.
    read_bytes,
    /// Of these, bytes that lay in this node's memory.
    memory_bytes,
    /// Bytes that were not in this node's memory when the reader looked: it waited. Those that
    /// landed in the same moment count as memory's too.
    awaited_bytes,
    /// Bytes that readers waited for and that this node's disk had.
    disk_bytes,
    /// Bytes that readers waited for and that another node sent.
    peer_bytes,
    /// Bytes that readers waited for and that the source sent.
    source_bytes,
    /// Bytes that were read from this node's disk, also those that nobody waited for.
    disk_read_bytes,
    /// Blocks that other nodes sent.
    peer_blocks,
    /// Bytes that were read from the source, also those that nobody waited for.
    fetched_bytes,
    /// Requests to the source for them.
    fetches,
    /// Requests that failed for good.
    fetch_errors,
    /// Blocks that were asked for before they were read.
    prefetched_blocks,
    /// Prefetches that were dropped: the reader turned elsewhere, or memory was short.
    dropped_prefetches,
    /// Blocks for which no frame was free: they were read past the store.
    overflow_blocks,
    /// Opens whose reads the kernel takes straight from this node's disk: they are not seen.
    passthrough_opens,
    /// Reads that found another version at the source than the one that is open.
    stale_reads,
}
