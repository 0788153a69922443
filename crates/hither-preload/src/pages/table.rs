//! The live regions of this process: a fixed table of atomics, without a lock.
//!
//! Whoever has swapped an entry's start for [`TAKEN`] owns the entry; nobody waits for an owner. An
//! entry that is taken is not found by other threads. That costs a bind request or the end of a
//! region, and never more: the program's own calls do not depend on this table. After a fork during
//! a change the child has an entry that stays taken, and is lost.
//!
//! Ranges are found by a scan over starts and ends, which lie together: some 0.5 ns an entry
//! (2026-11). With a thousand live regions that is a hundredth of the time in which the kernel
//! fills one of them with pages. `free` must be cheaper, since nearly all blocks that it is given
//! are no regions: it looks into a filter first, a count of allocations by the 64 KiB in which they
//! start, so that the small blocks of a heap share a few bytes of it.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hither_ids::Pid;
use hither_kernel::memory_policy::{Bind, BindMode};
use hither_session::record::RegionKind;

/// The most live regions of a process.
pub(crate) const REGIONS_MAX: usize = 4096;

/// Bytes of the filter: it repeats every 4 GiB of addresses.
const FILTER_BYTES: usize = 1 << 16;

/// The shift and the mask that lead from an address to its byte of the filter are also in the
/// trampolines of `free` and `realloc`: the mask is that of 16 bits.
pub(crate) const FILTER_SHIFT: u32 = 16;

const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// Whose policy a region has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Nobody,
    /// Ours: the policy that it, or a part of it, was last given.
    Us(Bind),
    /// The program's: it is left alone.
    Program,
}

/// A region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) range: Range<u64>,
    /// The signature of its allocation site.
    pub(crate) signature: u64,
    pub(crate) kind: RegionKind,
    /// The process by which the agent knows it; in a forked child, the parent.
    pub(crate) process: Pid,
    pub(crate) bound: Bound,
    /// How often a part of it was bound. That has split it into at most a few more mappings than
    /// this.
    pub(crate) parts: u32,
}

pub(crate) struct Table {
    filter: [AtomicU8; FILTER_BYTES],
    starts: [AtomicU64; REGIONS_MAX],
    ends: [AtomicU64; REGIONS_MAX],
    details: [Detail; REGIONS_MAX],
    /// No entry from here on was ever used.
    used: AtomicUsize,
    live: AtomicUsize,
    /// The sum of the parts of all entries, also of those that are taken. It may wrap around in
    /// between.
    parts: AtomicUsize,
}

struct Detail {
    signature: AtomicU64,
    /// The process, and above it the kind.
    owner: AtomicU64,
    /// 0 for no policy, [`PROGRAM`] for the program's, otherwise one more than the mode of ours.
    mode: AtomicU8,
    nodes: AtomicU64,
    parts: AtomicU32,
}

const PROGRAM: u8 = u8::MAX;

impl Detail {
    const fn new() -> Self {
        Detail {
            signature: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            mode: AtomicU8::new(0),
            nodes: AtomicU64::new(0),
            parts: AtomicU32::new(0),
        }
    }

    /// Sets the policy; returns the old one.
    fn set_bound(&self, bound: Bound) -> Bound {
        let (mode, nodes) = Self::packed(bound);
        let before = self.nodes.swap(nodes, Ordering::Relaxed);
        Self::unpacked(self.mode.swap(mode, Ordering::Relaxed), before)
    }

    /// As `set_bound`, but keeps the program's own policy.
    fn note(&self, bound: Bound) -> Bound {
        let (mode, nodes) = Self::packed(bound);
        let before = self.nodes.load(Ordering::Relaxed);
        let free = |found: u8| (found != PROGRAM).then_some(mode);
        let found = self
            .mode
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, free);
        if found.is_ok() {
            self.nodes.store(nodes, Ordering::Relaxed);
        }
        Self::unpacked(found.unwrap_or_else(|found| found), before)
    }

    fn bound(&self) -> Bound {
        Self::unpacked(
            self.mode.load(Ordering::Relaxed),
            self.nodes.load(Ordering::Relaxed),
        )
    }

    fn packed(bound: Bound) -> (u8, u64) {
        match bound {
            Bound::Nobody => (0, 0),
            Bound::Us(bind) => (1 + bind.mode as u8, bind.nodes),
            Bound::Program => (PROGRAM, 0),
        }
    }

    fn unpacked(mode: u8, nodes: u64) -> Bound {
        match mode.checked_sub(1).map(BindMode::from_wire) {
            _ if mode == PROGRAM => Bound::Program,
            Some(Some(mode)) => Bound::Us(Bind { mode, nodes }),
            _ => Bound::Nobody,
        }
    }
}

impl Table {
    /// The offset of the filter in a table, for the trampolines that read it.
    #[cfg(feature = "pages")]
    pub(crate) const FILTER_AT: usize = std::mem::offset_of!(Table, filter);

    pub(crate) const fn new() -> Self {
        Table {
            filter: [const { AtomicU8::new(0) }; FILTER_BYTES],
            starts: [const { AtomicU64::new(FREE) }; REGIONS_MAX],
            ends: [const { AtomicU64::new(0) }; REGIONS_MAX],
            details: [const { Detail::new() }; REGIONS_MAX],
            used: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live.load(Ordering::Relaxed) == 0
    }

    /// The filter's byte for an address.
    fn slot(&self, address: u64) -> Option<&AtomicU8> {
        self.filter
            .get((address >> FILTER_SHIFT) as usize % FILTER_BYTES)
    }

    /// Makes `free` and `realloc` examine addresses around this one. A count that is full stays so.
    pub(crate) fn mark(&self, address: u64) {
        if let Some(slot) = self.slot(address) {
            let more = |count: u8| count.checked_add(1);
            let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }

    fn unmark(&self, address: u64) {
        if let Some(slot) = self.slot(address) {
            let less = |count: u8| (count != u8::MAX).then(|| count.checked_sub(1)).flatten();
            let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Enters a region. False if there is no room.
    pub(crate) fn insert(&self, region: &Region) -> bool {
        let vacant = |entry: &AtomicU64| {
            entry.load(Ordering::Relaxed) == FREE
                && entry
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let Some(at) = self.starts.iter().position(vacant) else {
            return false;
        };
        let (Some(start), Some(end), Some(detail)) =
            (self.starts.get(at), self.ends.get(at), self.details.get(at))
        else {
            return false;
        };
        end.store(region.range.end, Ordering::Relaxed);
        detail.signature.store(region.signature, Ordering::Relaxed);
        let owner = u64::from(region.process.0) | (region.kind as u64) << 32;
        detail.owner.store(owner, Ordering::Relaxed);
        detail.set_bound(region.bound);
        self.set_parts(detail, region.parts);
        if region.kind == RegionKind::Malloc {
            self.mark(region.range.start);
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        start.store(region.range.start, Ordering::Release);
        self.used.fetch_max(at + 1, Ordering::Release);
        true
    }

    /// The entries that overlap a range, with their regions at the moment that the iterator reaches
    /// them.
    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let (from, to) = (range.start, range.end);
        let used = self.used.load(Ordering::Acquire);
        self.starts
            .iter()
            .zip(&self.ends)
            .take(used)
            .enumerate()
            .filter_map(move |(at, (start, end))| {
                let start = start.load(Ordering::Acquire);
                let end = end.load(Ordering::Relaxed);
                (start > TAKEN && start < to && from < end).then_some((at, start..end))
            })
    }

    /// Takes an entry, if it still starts there.
    fn take(&self, at: usize, start: u64) -> Option<Region> {
        self.starts
            .get(at)?
            .compare_exchange(start, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let (end, detail) = (self.ends.get(at)?, self.details.get(at)?);
        let owner = detail.owner.load(Ordering::Relaxed);
        Some(Region {
            range: start..end.load(Ordering::Relaxed),
            signature: detail.signature.load(Ordering::Relaxed),
            kind: match (owner >> 32) as u8 {
                kind if kind == RegionKind::Map as u8 => RegionKind::Map,
                _ => RegionKind::Malloc,
            },
            process: Pid(owner as u32),
            bound: detail.bound(),
            parts: detail.parts.load(Ordering::Relaxed),
        })
    }

    fn set_parts(&self, detail: &Detail, parts: u32) {
        let before = detail.parts.swap(parts, Ordering::Relaxed);
        let more = (parts as usize).wrapping_sub(before as usize);
        self.parts.fetch_add(more, Ordering::Relaxed);
    }

    /// Gives a taken entry back, with the region at `start` in it, or free.
    fn put(&self, at: usize, start: u64) {
        if let Some(entry) = self.starts.get(at) {
            entry.store(start, Ordering::Release);
        }
    }

    fn vacate(&self, at: usize, region: &Region) {
        if region.kind == RegionKind::Malloc {
            self.unmark(region.range.start);
        }
        if let Some(detail) = self.details.get(at) {
            self.set_parts(detail, 0);
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.put(at, FREE);
    }

    /// Takes out the allocation that starts at this address. Mappings are skipped: an allocator
    /// hands out parts of its mappings.
    pub(crate) fn remove(&self, start: u64) -> Option<Region> {
        let range = start..start.checked_add(1)?;
        for (at, found) in self.overlapping(&range) {
            if found.start != start {
                continue;
            }
            let Some(region) = self.take(at, start) else {
                continue;
            };
            if region.kind == RegionKind::Malloc {
                self.vacate(at, &region);
                return Some(region);
            }
            self.put(at, start);
        }
        None
    }

    /// Takes a range out of all regions. Remaining parts of at least `least` bytes stay regions;
    /// what is no region any more goes to `ended`, which may be more than the range.
    pub(crate) fn cut(&self, range: &Range<u64>, least: u64, mut ended: impl FnMut(Region)) {
        for (at, found) in self.overlapping(range) {
            let Some(region) = self.take(at, found.start) else {
                continue;
            };
            let Range { start, end } = region.range;
            if start >= range.end || range.start >= end {
                self.put(at, start);
                continue;
            }
            let mut gone = start..end;
            let right = range.end..end;
            if right.start < right.end && right.end - right.start >= least {
                let rest = Region {
                    range: right,
                    ..region.clone()
                };
                if self.insert(&rest) {
                    gone.end = range.end;
                }
            }
            if start < range.start && range.start - start >= least {
                gone.start = range.start;
                if let Some(end) = self.ends.get(at) {
                    end.store(range.start, Ordering::Relaxed);
                }
                self.put(at, start);
            } else {
                self.vacate(at, &region);
            }
            ended(Region {
                range: gone,
                ..region
            });
        }
    }

    /// The region that holds this whole range.
    fn holder(&self, range: &Range<u64>) -> Option<(Range<u64>, &Detail)> {
        let (at, found) = self
            .overlapping(range)
            .find(|(_, found)| found.start <= range.start && range.end <= found.end)?;
        Some((found, self.details.get(at)?))
    }

    /// The bounds of the region that holds this whole range.
    pub(crate) fn holding(&self, range: &Range<u64>) -> Option<Range<u64>> {
        Some(self.holder(range)?.0)
    }

    /// Notes whose policy the region with this whole range has, unless it is the program's. Returns
    /// what was noted before; `None` if there is no region.
    pub(crate) fn note(&self, range: &Range<u64>, bound: Bound) -> Option<Bound> {
        Some(self.holder(range)?.1.note(bound))
    }

    /// As `note`, even if it is the program's.
    pub(crate) fn set_bound(&self, range: &Range<u64>, bound: Bound) -> Option<Bound> {
        Some(self.holder(range)?.1.set_bound(bound))
    }

    /// How often parts of the live regions were bound.
    pub(crate) fn parts(&self) -> usize {
        self.parts.load(Ordering::Relaxed)
    }

    /// Adds to the number of parts of the region that holds this range.
    pub(crate) fn add_part(&self, range: &Range<u64>) {
        if let Some((_, detail)) = self.holder(range) {
            let more = |parts: u32| parts.checked_add(1);
            let added = detail
                .parts
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            self.parts
                .fetch_add(usize::from(added.is_ok()), Ordering::Relaxed);
        }
    }

    /// Sets the parts of all regions to 0: they are about to be counted again.
    pub(crate) fn forget_parts(&self) {
        for (at, _) in self.overlapping(&(0..u64::MAX)) {
            if let Some(detail) = self.details.get(at) {
                self.set_parts(detail, 0);
            }
        }
    }

    /// Visits the regions that overlap a range.
    pub(crate) fn each(&self, range: &Range<u64>, mut found: impl FnMut(&Region)) {
        for (at, Range { start, .. }) in self.overlapping(range) {
            if let Some(region) = self.take(at, start) {
                self.put(at, start);
                found(&region);
            }
        }
    }

    /// Whether any region overlaps the range.
    pub(crate) fn has_any(&self, range: &Range<u64>) -> bool {
        self.overlapping(range).next().is_some()
    }

    /// Whether the region that starts there holds this whole range.
    pub(crate) fn holds(&self, start: u64, range: &Range<u64>) -> bool {
        self.overlapping(range).any(|(_, found)| {
            found.start == start && found.start <= range.start && range.end <= found.end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn table() -> Box<Table> {
        Box::new(Table::new())
    }

    fn region(range: Range<u64>, kind: RegionKind) -> Region {
        Region {
            signature: range.start * 3,
            range,
            kind,
            process: Pid(7),
            bound: Bound::Nobody,
            parts: 0,
        }
    }

    impl Table {
        /// The regions, by address; and that count and filter agree with them.
        fn check(&self) -> Vec<(u64, u64)> {
            let mut found: Vec<_> = self
                .overlapping(&(0..u64::MAX))
                .map(|(_, range)| range)
                .collect();
            found.sort_by_key(|range| range.start);
            assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert_eq!(found.len(), self.live.load(Ordering::Relaxed));
            for (slot, count) in self.filter.iter().enumerate() {
                let expected = self
                    .overlapping(&(0..u64::MAX))
                    .filter(|(at, _)| {
                        let owner = self.details[*at].owner.load(Ordering::Relaxed);
                        owner >> 32 == RegionKind::Malloc as u64
                    })
                    .filter(|(_, range)| {
                        (range.start >> FILTER_SHIFT) as usize % FILTER_BYTES == slot
                    })
                    .count();
                assert_eq!(usize::from(count.load(Ordering::Relaxed)), expected);
            }
            found.iter().map(|range| (range.start, range.end)).collect()
        }
    }

    fn cut(table: &Table, range: Range<u64>, least: u64) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        table.cut(&range, least, |region| {
            ended.push((region.range.start, region.range.end));
        });
        ended.sort_unstable();
        ended
    }

    #[test]
    fn an_allocation_is_found_by_its_start_alone_and_once() {
        let table = table();
        assert!(table.is_empty());
        let one = region(1 << 20..2 << 20, RegionKind::Malloc);
        assert!(table.insert(&one));
        assert!(table.insert(&region(4 << 20..5 << 20, RegionKind::Map)));
        assert!(!table.is_empty());
        assert_eq!(table.remove((1 << 20) + 16), None);
        assert_eq!(table.remove(4 << 20), None, "a mapping");
        assert_eq!(table.remove(1 << 20), Some(one));
        assert_eq!(table.remove(1 << 20), None);
        assert_eq!(table.check(), [(4 << 20, 5 << 20)]);
        assert_eq!(table.remove(u64::MAX), None);
    }

    #[test]
    fn what_is_cut_leaves_what_is_large_enough() {
        let whole = 16 * PAGE..32 * PAGE;
        for (cutting, left, gone) in [
            ((16, 32), vec![], (16, 32)),
            ((0, 64), vec![], (16, 32)),
            ((16, 20), vec![(20, 32)], (16, 20)),
            ((28, 32), vec![(16, 28)], (28, 32)),
            ((20, 28), vec![(16, 20), (28, 32)], (20, 28)),
            // Remainders of less than four pages go as well.
            ((18, 28), vec![(28, 32)], (16, 28)),
            ((20, 30), vec![(16, 20)], (20, 32)),
            ((18, 30), vec![], (16, 32)),
        ] {
            let bytes = |(from, to): (u64, u64)| (from * PAGE, to * PAGE);
            let table = table();
            assert!(table.insert(&region(whole.clone(), RegionKind::Map)));
            let (from, to) = bytes(cutting);
            assert_eq!(cut(&table, from..to, 4 * PAGE), [bytes(gone)]);
            let left: Vec<_> = left.into_iter().map(bytes).collect();
            assert_eq!(table.check(), left, "{cutting:?}");
        }
    }

    #[test]
    fn one_cut_may_end_many_and_leaves_the_others() {
        let table = table();
        for number in 1..=10_u64 {
            let start = number << 20;
            assert!(table.insert(&region(start..start + (1 << 19), RegionKind::Malloc)));
        }
        let mut had = Vec::new();
        table.each(&(3 << 20..6 << 20), |region| had.push(region.range.start));
        assert_eq!(had, [3 << 20, 4 << 20, 5 << 20]);
        assert_eq!(table.check().len(), 10, "they stay");
        assert_eq!(cut(&table, 3 << 20..6 << 20, PAGE).len(), 3);
        assert_eq!(table.check().len(), 7);
        assert!(cut(&table, 3 << 20..6 << 20, PAGE).is_empty());
    }

    #[test]
    fn policies_are_noted_where_a_region_holds_the_range() {
        let table = table();
        let bind = Bind {
            mode: BindMode::Default,
            nodes: 5,
        };
        assert!(table.insert(&region(1 << 20..2 << 20, RegionKind::Malloc)));
        let inside = (1 << 20) + PAGE..2 << 20;
        let us = Bound::Us(bind);
        assert_eq!(table.note(&inside, us), Some(Bound::Nobody));
        assert_eq!(table.holding(&inside), Some(1 << 20..2 << 20));
        assert!(table.holds(1 << 20, &inside));
        assert!(!table.holds(2 << 20, &inside));
        let beyond = inside.start..inside.end + 1;
        assert_eq!(table.note(&beyond, us), None);
        assert!(!table.holds(1 << 20, &beyond));
        assert!(table.has_any(&beyond));
        assert!(!table.has_any(&(0..1 << 20)));
        assert_eq!(table.set_bound(&inside, Bound::Program), Some(us));
        assert_eq!(table.note(&inside, us), Some(Bound::Program));
        assert_eq!(table.note(&inside, Bound::Nobody), Some(Bound::Program));
        assert_eq!(table.remove(1 << 20).expect("there").bound, Bound::Program);
    }

    #[test]
    fn parts_are_counted_until_their_regions_end() {
        let table = table();
        let whole = 16 * PAGE..32 * PAGE;
        assert!(table.insert(&region(whole.clone(), RegionKind::Map)));
        for _ in 0..3 {
            table.add_part(&(20 * PAGE..22 * PAGE));
        }
        assert_eq!(table.parts(), 3);
        table.add_part(&(2 * PAGE..3 * PAGE));
        assert_eq!(table.parts(), 3, "no region");
        // What is left on either side may have all of them.
        cut(&table, 23 * PAGE..24 * PAGE, 1);
        assert_eq!(table.parts(), 6);
        cut(&table, 16 * PAGE..23 * PAGE, 1);
        assert_eq!(table.parts(), 3);
        table.forget_parts();
        assert_eq!(table.parts(), 0);
        table.add_part(&(30 * PAGE..31 * PAGE));
        cut(&table, whole, 1);
        assert_eq!(table.parts(), 0);
        // The entry is used again.
        assert!(table.insert(&region(PAGE..2 * PAGE, RegionKind::Map)));
        assert_eq!(table.parts(), 0);
    }

    #[test]
    fn a_full_table_refuses_and_has_room_again() {
        let table = table();
        for number in 1..=REGIONS_MAX as u64 {
            assert!(table.insert(&region(
                number << 20..(number << 20) + PAGE,
                RegionKind::Map
            )));
        }
        let more = region(1 << 40..1 << 41, RegionKind::Map);
        assert!(!table.insert(&more));
        // The middle of one: there is no room for what is right of it, which therefore ends too.
        let ends = cut(&table, (1 << 20) + 8..(1 << 20) + 16, 1);
        assert_eq!(ends, [((1 << 20) + 8, (1 << 20) + PAGE)]);
        cut(&table, 5 << 20..6 << 20, 1);
        assert!(table.insert(&more));
    }

    #[test]
    fn random_operations_agree_with_a_map_of_pages() {
        let table = table();
        let least = 3;
        // For each page the region that it belongs to.
        let mut model = vec![0_u64; 256];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..5_000 {
            let start = 1 + random(200);
            let end = start + least + random(40);
            let range = start * PAGE..end * PAGE;
            let mut gone = Vec::new();
            table.cut(&range, least * PAGE, |region| gone.push(region));
            for region in gone {
                for page in region.range.start / PAGE..region.range.end / PAGE {
                    assert_eq!(model[page as usize], region.signature);
                    model[page as usize] = 0;
                }
            }
            assert!(
                model[start as usize..end as usize]
                    .iter()
                    .all(|&name| name == 0)
            );
            if random(3) > 0 {
                let mut new = region(range, RegionKind::Malloc);
                new.signature = random(u64::MAX) + 1;
                model[start as usize..end as usize].fill(new.signature);
                assert!(table.insert(&new));
            }
            let pages: u64 = table
                .overlapping(&(0..u64::MAX))
                .map(|(_, range)| (range.end - range.start) / PAGE)
                .sum();
            let modelled = model.iter().filter(|&&name| name != 0).count();
            assert_eq!(pages as usize, modelled);
        }
        table.check();
    }

    #[test]
    fn threads_that_share_it_lose_nothing_of_their_own() {
        let table = table();
        std::thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let table = &table;
                scope.spawn(move || {
                    let base = thread << 32;
                    for round in 0..3_000_u64 {
                        let start = base + ((round % 50) << 20);
                        let one = region(start..start + (1 << 20), RegionKind::Malloc);
                        assert!(table.insert(&one));
                        assert!(table.holds(start, &one.range));
                        if round % 2 == 0 {
                            assert_eq!(table.remove(start), Some(one));
                        } else {
                            let mut ended = 0;
                            table.cut(&one.range, PAGE, |region| {
                                assert_eq!(region, one);
                                ended += 1;
                            });
                            assert_eq!(ended, 1);
                        }
                    }
                });
            }
        });
        assert!(table.check().is_empty());
    }
}
