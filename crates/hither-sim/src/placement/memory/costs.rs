//! Costs on the modelled machine, besides the latencies of its topology.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::placement::costs::{CostsError, changed};

/// The largest network cache: the places of its lines are simulated one by one.
const NETWORK_CACHE_KIB_MAX: u32 = 1 << 20;

/// Times and sizes of the machine and its kernel. Written as `fault_ns=1000,batched=false`; the
/// others keep their defaults.
///
/// The defaults stand for a current server. Measured (2026-11, Linux 6.18, virtual machine with 2
/// processors): 44 us for a `move_pages` call of one page, and 0.4 us per page in calls of 512. The
/// other values are textbook figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCosts {
    /// Computation of a thread between two accesses that miss its caches.
    pub compute_ns: u32,
    /// The same by process, where programs differ: `700:300`. Later processes have `compute_ns`.
    pub process_compute_ns: Vec<u32>,
    /// Whether the processes of a trace all begin at time 0 and run at the same time, whatever
    /// their order in it. Otherwise the trace's order is that of their time.
    pub concurrent: bool,
    /// Processors of each node. Where more of its threads have work, they share their time equally.
    /// 0: each thread has a processor of its own.
    pub processors: u32,
    /// Computation of a thread for each reference to memory, hits of its caches included. Between
    /// two misses on a page lie as many references as its miss rate says, which the trace must
    /// know. 0: `compute_ns` is all.
    pub reference_ns: u32,
    /// The first touch of a page: trap, frame, zeroing.
    pub fault_ns: u32,
    /// A touch of a reclaimed page, which is read from swap.
    pub refault_ns: u32,
    /// A kernel call that moves pages, of any number.
    pub call_ns: u32,
    /// The kernel's work per page of a call, without copying.
    pub page_ns: u32,
    /// A TLB flush on all processors, with the wait for it.
    pub shootdown_ns: u32,
    /// Whether a call flushes once for all its pages, or once per page.
    pub batched: bool,
    /// Bytes fetched per access.
    pub line_bytes: u32,
    /// Lines in flight while a page is copied. A copy takes the page's lines divided by this, times
    /// the latency between the nodes.
    pub lines_in_flight: u32,
    /// How long one access occupies a node's memory. 0: no contention.
    pub service_ns: u32,
    /// Size of the cache of remote lines that each node has, a *network cache* (cache-aware thesis,
    /// section 2.3.1). 0: none.
    pub network_cache_kib: u32,
    /// Latency of a remote access that the network cache serves.
    pub network_cache_ns: u32,
    /// Whether the page that is reclaimed is, among those that were not used lately, one that
    /// another node uses (cache-aware thesis, section 4.6.3).
    pub remote_victims: bool,
    /// The share of the time of moves at epochs that is hidden behind computation: another thread
    /// works on a processor that would idle (UPM paper, section 4). Moves on an access are never
    /// hidden.
    pub hidden: f64,
}

impl Default for MemoryCosts {
    fn default() -> Self {
        MemoryCosts {
            compute_ns: 0,
            process_compute_ns: Vec::new(),
            concurrent: false,
            processors: 0,
            reference_ns: 0,
            fault_ns: 1_000,
            refault_ns: 100_000,
            call_ns: 44_000,
            page_ns: 400,
            shootdown_ns: 4_000,
            batched: true,
            line_bytes: 64,
            lines_in_flight: 10,
            service_ns: 5,
            network_cache_kib: 0,
            network_cache_ns: 0,
            remote_victims: false,
            hidden: 0.0,
        }
    }
}

impl MemoryCosts {
    /// Copying a page of `page_bytes` between nodes with a latency of `latency_ns`.
    pub(super) fn copy_ns(&self, page_bytes: u32, latency_ns: u32) -> u64 {
        let lines = u64::from(page_bytes.div_ceil(self.line_bytes.max(1)));
        lines * u64::from(latency_ns) / u64::from(self.lines_in_flight.max(1))
    }
}

impl FromStr for MemoryCosts {
    type Err = CostsError;

    fn from_str(text: &str) -> Result<Self, CostsError> {
        const EXAMPLE: &str = "fault_ns=1000,batched=false";
        let costs = changed(&MemoryCosts::default(), text, EXAMPLE)?;
        if costs.network_cache_kib > NETWORK_CACHE_KIB_MAX {
            let why = format!("network_cache_kib is at most {NETWORK_CACHE_KIB_MAX} (1 GiB)");
            return Err(CostsError::new(text, EXAMPLE, why));
        }
        if (costs.network_cache_kib > 0) != (costs.network_cache_ns > 0) {
            let why = "network_cache_kib and network_cache_ns go together";
            return Err(CostsError::new(text, EXAMPLE, why));
        }
        match costs.hidden {
            0.0..=1.0 => Ok(costs),
            hidden => Err(CostsError::new(
                text,
                EXAMPLE,
                format!("hidden is a part from 0 to 1, not {hidden}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        let costs: MemoryCosts = "fault_ns = 7, batched=false,hidden=0.5".parse().unwrap();
        let expected = MemoryCosts {
            fault_ns: 7,
            batched: false,
            hidden: 0.5,
            ..MemoryCosts::default()
        };
        assert_eq!(costs, expected);
        let mixed: MemoryCosts = "process_compute_ns=700:300,processors=2".parse().unwrap();
        assert_eq!(mixed.process_compute_ns, [700, 300]);
        assert_eq!("".parse::<MemoryCosts>().unwrap(), MemoryCosts::default());
        for wrong in [
            "fault=7",
            "fault_ns",
            "fault_ns=x",
            "hidden=2",
            "network_cache_kib=1048577,network_cache_ns=1100",
            "network_cache_kib=512",
            "network_cache_ns=1100",
            "page_ns=1,page_ns=2",
            "process_compute_ns=7:x",
        ] {
            assert!(wrong.parse::<MemoryCosts>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn copies_by_distance() {
        // 64 lines of 104 ns, 10 at a time.
        assert_eq!(MemoryCosts::default().copy_ns(4096, 104), 665);
    }
}
