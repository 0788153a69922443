//! One line of JSON per interval, as the lab's `counts::Interval` reads it. The recorder adds a
//! last line with the number of intervals. It is written by hand, since it contains only numbers.

use crate::model::{CpuCounts, RangeCounts};
use std::fmt::{Display, Write};

/// The line of an interval, with its newline.
pub fn line(region: u32, interval: u32, cpus: &[CpuCounts], ranges: &[RangeCounts]) -> String {
    let cpus = array(cpus.iter().map(cpu));
    let ranges = array(
        ranges
            .iter()
            .map(|range| array(range.lines.iter().map(array))),
    );
    format!("{{\"region\":{region},\"interval\":{interval},\"cpus\":{cpus},\"ranges\":{ranges}}}\n")
}

fn cpu(counts: &CpuCounts) -> String {
    let pairs = |pairs: &[[u64; 2]]| array(pairs.iter().map(array));
    format!(
        "{{\"node\":{},\"instructions\":{},\"accesses\":{},\"l1_hits\":{},\"l2_hits\":{},\
         \"llc_hits\":{},\"cache_to_cache\":{},\"reads\":{},\"writes\":{},\"write_backs\":{},\
         \"unmapped\":{}}}",
        counts.node,
        array(counts.instructions),
        array(counts.accesses()),
        array(counts.l1_hits),
        array(counts.l2_hits),
        array(counts.llc_hits),
        pairs(&counts.cache_to_cache),
        pairs(&counts.reads),
        pairs(&counts.writes),
        array(&counts.write_backs),
        counts.unmapped,
    )
}

fn array(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut text = String::from("[");
    for (index, item) in items.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}{item}").expect("a string takes all");
    }
    text + "]"
}
