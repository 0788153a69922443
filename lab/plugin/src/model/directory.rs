//! The holders of each line: an entry for every line of memory, indexed by its position in memory.
//!
//! Sixteen bytes per line of 64 are a quarter of the guest's memory at worst, but the host
//! allocates pages only for lines that were ever cached. A hash table of cached lines was rejected,
//! as each miss of the guest would cost several of the host.

use super::MemoryRange;

/// The owner of a modified line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A CPU's own caches.
    Cpu(usize),
    /// The last-level cache of a node.
    Node(usize),
}

/// The state of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The CPUs whose caches hold it, one bit each.
    pub(crate) cpus: u64,
    /// The nodes whose last-level caches hold it, one bit each.
    pub(crate) nodes: u32,
    /// Its owner if it is modified, which is then the only holder.
    pub(crate) owner: Option<Owner>,
}

/// All lines of memory.
#[derive(Debug)]
pub(crate) struct Directory {
    spans: Vec<Span>,
    /// An array of words: the allocator returns zeroed pages that cost nothing until they are
    /// written.
    entries: Vec<[u64; 2]>,
}

/// A range of memory in lines.
#[derive(Debug)]
struct Span {
    start: u64,
    end: u64,
    node: usize,
    slot: usize,
}

impl Directory {
    pub(crate) fn new(memory: &[MemoryRange], line_bytes: u64) -> Self {
        let mut slot = 0;
        let mut spans = Vec::new();
        for range in memory {
            let (start, end) = (range.start / line_bytes, range.end / line_bytes);
            spans.push(Span {
                start,
                end,
                node: range.node,
                slot,
            });
            slot += (end - start) as usize;
        }
        Self {
            spans,
            entries: vec![[0; 2]; slot],
        }
    }

    /// The line's memory node and its slot. `None` for an address without memory.
    pub(crate) fn locate(&self, line: u64) -> Option<(usize, usize)> {
        let after = self.spans.partition_point(|span| span.start <= line);
        let span = &self.spans[after.checked_sub(1)?];
        (line < span.end).then(|| (span.node, span.slot + (line - span.start) as usize))
    }

    pub(crate) fn get(&self, slot: usize) -> Entry {
        let [cpus, rest] = self.entries[slot];
        let owner = match (rest >> 32) as usize {
            0 => None,
            code if code <= 64 => Some(Owner::Cpu(code - 1)),
            code => Some(Owner::Node(code - 65)),
        };
        Entry {
            cpus,
            nodes: rest as u32,
            owner,
        }
    }

    pub(crate) fn set(&mut self, slot: usize, entry: Entry) {
        let code = match entry.owner {
            None => 0,
            Some(Owner::Cpu(cpu)) => cpu + 1,
            Some(Owner::Node(node)) => node + 65,
        };
        self.entries[slot] = [entry.cpus, (code as u64) << 32 | u64::from(entry.nodes)];
    }

    /// The number of lines of memory.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.entries.len()
    }
}
