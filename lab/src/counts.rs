//! Reads what the plugin counted: one JSON line per interval between marks. The last line says how
//! many intervals there are, because a full disk may cut the file off anywhere, together with the
//! plugin's error message.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Reads all that the plugin wrote.
pub(crate) fn read(text: &str) -> Result<Vec<Interval>> {
    const CUT: &str =
        "the plugin's counts are cut short: is the disk of the temporary files full (TMPDIR)?";
    let (lines, end) = match text.trim_end().rsplit_once('\n') {
        Some((lines, end)) => (lines, end),
        None => ("", text),
    };
    let end: End = serde_json::from_str(end).context(CUT)?;
    let intervals: Vec<Interval> = lines
        .lines()
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("the plugin's counts: {line}"))
        })
        .collect::<Result<_>>()?;
    ensure!(intervals.len() == end.intervals, CUT);
    // Each region is a `begin`: its intervals come in order, or the file is not what the plugin
    // writes.
    let in_order = intervals.is_sorted_by_key(|interval| (interval.region, interval.interval));
    ensure!(in_order, "the plugin's counts are out of order");
    Ok(intervals)
}

/// The last line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    intervals: usize,
}

/// The counts of one interval: from one mark to the next while the region of interest is open.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interval {
    /// The region, counted from 0: each `begin` mark opens the next.
    pub(crate) region: u32,
    /// The interval within the region, counted from 0: each `iteration` mark ends one; `end` ends
    /// the last.
    pub(crate) interval: u32,
    /// Counts of each CPU, in the order of the CPUs.
    pub(crate) cpus: Vec<Cpu>,
    /// Lines fetched from memory by user code in each address range, in the order of the ranges'
    /// definition: `ranges[range][cpu node][memory node]`.
    #[serde(default)]
    pub(crate) ranges: Vec<Vec<Vec<u64>>>,
}

/// The counts of one CPU; each pair is `[user, kernel]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpu {
    /// The CPU's node.
    pub(crate) node: u16,
    /// Instructions executed.
    pub(crate) instructions: [u64; 2],
    /// Data accesses (an access that crosses lines counts once for each line).
    pub(crate) accesses: [u64; 2],
    /// Accesses that hit in the CPU's L1.
    pub(crate) l1_hits: [u64; 2],
    /// Accesses that hit in the CPU's L2.
    pub(crate) l2_hits: [u64; 2],
    /// Accesses that hit in the node's last-level cache, or in another CPU's cache of the same
    /// node.
    pub(crate) llc_hits: [u64; 2],
    /// Accesses served by a cache of another node, by that node: `[node][user, kernel]`.
    pub(crate) cache_to_cache: Vec<[u64; 2]>,
    /// Lines read from memory on a load, by the memory's node.
    pub(crate) reads: Vec<[u64; 2]>,
    /// Lines read from memory on a store (write allocate), by the memory's node.
    pub(crate) writes: Vec<[u64; 2]>,
    /// Dirty lines written back to memory, by the memory's node; no CPU waits for them.
    pub(crate) write_backs: Vec<u64>,
    /// Accesses to device memory or to addresses of no node: not modelled.
    pub(crate) unmapped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_refused() {
        let line = |interval| format!("{{\"region\":0,\"interval\":{interval},\"cpus\":[]}}\n");
        let whole = line(0) + &line(1) + "{\"intervals\":2}\n";
        assert_eq!(read(&whole).unwrap().len(), 2);
        assert_eq!(read("{\"intervals\":0}\n").unwrap().len(), 0);
        let error = |text: &str| read(text).unwrap_err().to_string();
        for cut in [0, 5, line(0).len(), whole.len() - 3] {
            assert!(error(&whole[..cut]).contains("cut short"), "{cut}");
        }
        assert!(error(&whole.replace(&line(1), "")).contains("cut short"));
        assert!(error(&(line(1) + &line(0) + "{\"intervals\":2}\n")).contains("out of order"));
        assert!(error(&whole.replace("region", "regio")).contains("regio"));
    }
}
