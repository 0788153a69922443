//! Whether a region is touched sequentially, from its first faults (thesis, section 4.4.1).
//!
//! Each fault is compared with the sequences seen so far: the page after the end of a sequence
//! extends it, any other page may begin a new one, so sequences may be interleaved. A sequence of
//! `sequence` pages makes the region remote; a region with `faults` faults and no such sequence is
//! local. Sequences ascend: a region that is walked downwards is local, as in the thesis, which
//! speaks of the sequence's end.

use crate::placement::events::RegionTier;

/// The faults of an undecided region.
pub(super) struct Sequences {
    sequence: u64,
    faults: u64,
    seen: u64,
    /// For each sequence the page that would extend it, and its length; at most as many as faults.
    known: Vec<(u32, u64)>,
}

impl Sequences {
    pub(super) fn new(sequence: u64, faults: u64) -> Sequences {
        Sequences {
            sequence,
            faults,
            seen: 0,
            known: Vec::new(),
        }
    }

    /// Handles a fault at this page of the region. Returns the region's tier once it is known.
    pub(super) fn fault(&mut self, index: u32) -> Option<RegionTier> {
        self.seen += 1;
        match self.known.iter_mut().find(|(next, _)| *next == index) {
            Some((next, length)) => {
                *next += 1;
                *length += 1;
                if *length >= self.sequence {
                    return Some(RegionTier::Remote);
                }
            }
            None => self.known.push((index + 1, 1)),
        }
        (self.seen >= self.faults).then_some(RegionTier::Local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(faults: &[u32]) -> Option<(usize, RegionTier)> {
        let mut sequences = Sequences::new(5, 10);
        let mut at = (1..).zip(faults);
        at.find_map(|(number, &index)| Some((number, sequences.fault(index)?)))
    }

    #[test]
    fn five_in_a_row() {
        assert_eq!(decided(&[0, 1, 2, 3]), None);
        assert_eq!(decided(&[7, 8, 9, 10, 11]), Some((5, RegionTier::Remote)));
    }

    #[test]
    fn interleaved() {
        // Two sequences take turns; the first is complete with the ninth fault.
        assert_eq!(
            decided(&[0, 50, 1, 51, 2, 52, 3, 53, 4]),
            Some((9, RegionTier::Remote))
        );
        // Noise between: the tenth fault completes it.
        let faults = [0, 90, 1, 80, 2, 70, 3, 60, 30, 4];
        assert_eq!(decided(&faults), Some((10, RegionTier::Remote)));
    }

    #[test]
    fn ten_without() {
        let three_at_a_time = [0, 50, 70, 1, 51, 71, 2, 52, 72, 3];
        assert_eq!(decided(&three_at_a_time), Some((10, RegionTier::Local)));
        let downwards: Vec<u32> = (0..10).rev().collect();
        assert_eq!(decided(&downwards), Some((10, RegionTier::Local)));
        let every_other: Vec<u32> = (0..10).map(|page| 2 * page).collect();
        assert_eq!(decided(&every_other), Some((10, RegionTier::Local)));
    }
}
