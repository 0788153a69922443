//! A set of bytes of a file, as ranges that neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteRanges {
    /// By its first byte, the end of each range.
    ends: BTreeMap<u64, u64>,
}

impl ByteRanges {
    /// Adds a range. Returns how many of its bytes were not there.
    pub(crate) fn add(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let added = range.end - range.start - self.bytes_in(range.clone());
        let (mut start, mut end) = (range.start, range.end);
        // Those that end at or after the start, and begin at or before the end.
        while let Some((&first, &last)) = self.ends.range(..=end).next_back()
            && last >= start
        {
            self.ends.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ends.insert(start, end);
        added
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &last)) = self.ends.range(..range.end).next_back()
            && last > range.start
        {
            self.ends.remove(&first);
            for rest in [first..range.start, range.end..last] {
                if !rest.is_empty() {
                    self.ends.insert(rest.start, rest.end);
                }
            }
            if first < range.start {
                break;
            }
        }
    }

    /// The parts of a range that are in the set, in order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ends.range(..range.start).next_back();
        let first = before.map_or(range.start, |(&first, _)| first);
        let parts = self.ends.range(first..range.end.max(first));
        let parts = parts.map(move |(&first, &last)| first.max(range.start)..last.min(range.end));
        parts.filter(|part| !part.is_empty())
    }

    /// How many bytes of a range are in the set.
    pub(super) fn bytes_in(&self, range: Range<u64>) -> u64 {
        self.within(range).map(|part| part.end - part.start).sum()
    }

    /// The parts of a range that are not in the set, in order.
    pub(crate) fn gaps_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for part in self.within(range.clone()) {
            gaps.push(at..part.start);
            at = part.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_of_its_bytes(
            steps in prop::collection::vec((any::<bool>(), 0..64_u64, 0..20_u64), 1..40),
            asked in (0..64_u64, 0..40_u64),
        ) {
            let mut ranges = ByteRanges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (adds, start, length) in steps {
                let range = start..start + length;
                if adds {
                    let new = range.clone().filter(|byte| bytes.insert(*byte)).count();
                    prop_assert_eq!(ranges.add(range), new as u64);
                } else {
                    bytes.retain(|byte| !range.contains(byte));
                    ranges.remove(range);
                }
                let ends: Vec<(u64, u64)> =
                    ranges.ends.iter().map(|(&start, &end)| (start, end)).collect();
                prop_assert!(ends.iter().all(|(start, end)| start < end));
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
            let asked = asked.0..asked.0 + asked.1;
            let inside: Vec<u64> = ranges.within(asked.clone()).flatten().collect();
            let outside: Vec<u64> = ranges.gaps_in(asked.clone()).into_iter().flatten().collect();
            let is_inside = |byte: &u64| bytes.contains(byte);
            prop_assert_eq!(&inside, &asked.clone().filter(is_inside).collect::<Vec<u64>>());
            prop_assert_eq!(outside, asked.filter(|byte| !is_inside(byte)).collect::<Vec<u64>>());
        }
    }
}
