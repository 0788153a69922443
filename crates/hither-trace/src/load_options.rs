//! Options of loading a trace: the size of a block, what becomes a reference, and the memory
//! budget.

use crate::sample::Sample;

/// How requests become references.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct LoadOptions {
    /// The size of a block.
    pub block_bytes: u32,
    /// Whether a request that begins in the block where the last one ended references that block
    /// again.
    pub keep_repeats: bool,
    /// Whether requests served inside the kernel (sendfile and the like) become references.
    pub include_in_kernel: bool,
    /// Whether mapping a range counts as reading it once. Later accesses through the mapping are
    /// not in the trace.
    pub include_maps: bool,
    /// Whether it is kept how long requests were, which takes a byte for each reference. See
    /// [`Trace::blocks_left`](crate::Trace::blocks_left).
    #[serde(skip)]
    pub keep_lengths: bool,
    /// Whether it is kept how large objects are, and what else caches of objects go by, in traces
    /// that say it. Deletes are then deletes; otherwise they count as writes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_sizes: bool,
    /// Which blocks are loaded.
    pub sample: Sample,
    /// The memory for references. More of them lie in a temporary file. No result depends on it.
    #[serde(skip)]
    pub memory_bytes: u64,
}

impl LoadOptions {
    /// The default as a constant.
    pub const DEFAULT: LoadOptions = LoadOptions {
        block_bytes: 4096,
        keep_repeats: false,
        include_in_kernel: true,
        include_maps: false,
        keep_lengths: false,
        keep_sizes: false,
        sample: Sample::All,
        memory_bytes: 4 << 30,
    };
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions::DEFAULT
    }
}
