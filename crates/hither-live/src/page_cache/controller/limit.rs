//! The limit of a run: what its programs' files have in the page cache, in order of use, and what
//! goes when that is more than was given.
//!
//! It stands below the policy, as a memory cgroup would, and holds from the first byte on, whatever
//! a policy would save. It counts extents. One that was accessed counts in full, up to the end of
//! its file, until it is known how much of it is cached: what the kernel has read ahead in it is
//! counted before anybody has asked. What other programs had cached (*foreign*) is neither counted
//! nor dropped, page by page.
//!
//! When there is more than the limit, the least recently used extents are dropped. While the policy
//! steers it is asked first, by its own evictions: then an eighth more is tolerated, since in a
//! loop the least recently used is what the policy keeps.
//!
//! The kernel does not drop what is dirty, mapped, or being read in. To drop dirty pages starts
//! their write-back (`POSIX_FADV_DONTNEED` does both). So what is left of an extent is tried again,
//! later each time, and given up at last, until the programs have ended.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::event::CachedExtent;
use super::byte_ranges::ByteRanges;
use super::config::LimitConfig;
use super::extents::{BLOCK_BYTES, EXTENT_BYTES, ExtentPosition};

/// When the kernel has left pages, they are dropped again after this time, then after twice as
/// long, up to [`DOUBLINGS_MAX`] times.
const RETRY_NS: u64 = 100_000_000;
const DOUBLINGS_MAX: u32 = 4;

/// After so many tries, 14 s, an extent is given up: somebody has it mapped, or it is in memory for
/// good.
pub(super) const TRIES_MAX: u32 = 12;

/// What is tolerated beyond the limit while the policy steers: 1/8, and four extents at least.
pub(super) const STEERED_EXCESS_DIVISOR: u64 = 8;
pub(super) const STEERED_EXCESS_MIN_BYTES: u64 = 4 * EXTENT_BYTES;

/// The policy knows of foreign ranges up to this size: each block of them has a mark.
pub(super) const MARKED_BYTES_MAX: u64 = 1 << 30;

/// See the module.
#[derive(Debug)]
pub(super) struct CacheLimit {
    bytes: u64,
    /// What is within the limit stays cached when the programs have ended.
    keeps: bool,
    /// It is told what comes in for the programs.
    pub(super) is_told: bool,
    pub(super) page_bytes: u64,
    has_ended: bool,
    files: FxHashMap<u32, LimitedFile>,
    /// By their last use, the extents that count.
    by_use: BTreeMap<u64, ExtentPosition>,
    uses: u64,
    pub(super) held_bytes: u64,
    /// Extents of which the kernel has left something.
    left: BTreeMap<ExtentPosition, LeftExtent>,
    /// Extents that came in and were not accessed yet, in order: they are read ahead, or touched
    /// through a mapping. They do not count, but for those beyond [`UNREAD_MAX`].
    unread: VecDeque<ExtentPosition>,
    is_unread: FxHashSet<ExtentPosition>,
}

#[derive(Debug, Default)]
struct LimitedFile {
    bytes: u64,
    foreign: ByteRanges,
    held: BTreeMap<u32, HeldExtent>,
}

#[derive(Clone, Copy, Debug)]
struct HeldExtent {
    last_use: u64,
    bytes: u64,
    /// By block, what the policy has dropped since the last use.
    dropped: u128,
}

// A bit for each block of an extent.
const _: () = assert!(EXTENT_BYTES / BLOCK_BYTES == u128::BITS as u64);

#[derive(Clone, Copy, Debug)]
struct LeftExtent {
    /// Since it was last tried.
    bytes: u64,
    tries: u32,
    next_ns: u64,
}

/// So many extents that came in may wait to be read: 64 MiB, more than the kernel reads ahead.
pub(super) const UNREAD_MAX: usize = 32;

/// No file is larger.
const FILE_BYTES_MAX: u64 = 1 << 62;

fn pages_of(range: Range<u64>, page_bytes: u64) -> Range<u64> {
    let start = range.start / page_bytes * page_bytes;
    start..range.end.div_ceil(page_bytes) * page_bytes
}

impl LimitedFile {
    /// The most that programs can have cached of an extent.
    fn own_bytes(&self, at: ExtentPosition, page_bytes: u64) -> u64 {
        self.own_bytes_of(at.bytes(), page_bytes)
    }

    /// The most that programs can have cached of a range.
    fn own_bytes_of(&self, range: Range<u64>, page_bytes: u64) -> u64 {
        let Range { start, end } = range;
        let end = end.min(self.bytes.div_ceil(page_bytes) * page_bytes);
        let foreign = self.foreign.bytes_in(start..end.max(start));
        end.saturating_sub(start) - foreign
    }

    /// The most that programs can have cached of an extent of which these blocks were dropped.
    fn own_bytes_without(&self, at: ExtentPosition, dropped: u128, page_bytes: u64) -> u64 {
        let start = at.bytes().start;
        let mut bytes = 0;
        let mut block = 0;
        while block < u128::BITS {
            let first = block + (dropped >> block).trailing_ones();
            if first >= u128::BITS {
                break;
            }
            block = first + (dropped >> first).trailing_zeros().min(u128::BITS - first);
            let [from, to] = [first, block].map(|block| start + u64::from(block) * BLOCK_BYTES);
            bytes += self.own_bytes_of(from..to, page_bytes);
        }
        bytes
    }
}

impl CacheLimit {
    pub(super) fn new(config: &LimitConfig) -> CacheLimit {
        CacheLimit {
            bytes: config.bytes,
            keeps: config.keeps,
            is_told: config.is_told,
            page_bytes: config.page_bytes,
            has_ended: false,
            files: FxHashMap::default(),
            by_use: BTreeMap::new(),
            uses: 0,
            held_bytes: 0,
            left: BTreeMap::new(),
            unread: VecDeque::new(),
            is_unread: FxHashSet::default(),
        }
    }

    /// What is known of a file: at first, where it is told what comes in, that all is foreign.
    fn file(&mut self, file: u32) -> &mut LimitedFile {
        let is_told = self.is_told;
        self.files.entry(file).or_insert_with(|| {
            let mut new = LimitedFile::default();
            if is_told {
                new.foreign.add(0..FILE_BYTES_MAX);
            }
            new
        })
    }

    /// A file has this size.
    pub(super) fn sized(&mut self, file: u32, bytes: u64) {
        let before = self.file(file).bytes;
        if bytes < before {
            self.cut(file, bytes);
        }
        self.file(file).bytes = bytes;
    }

    /// Pages of a file came in for the programs.
    pub(super) fn inserted(&mut self, file: u32, offset: u64, length: u64) {
        let (end, page_bytes) = (offset.saturating_add(length), self.page_bytes);
        let of_file = self.file(file);
        of_file.bytes = of_file.bytes.max(end);
        of_file.foreign.remove(offset..end);
        for number in offset / EXTENT_BYTES..end.div_ceil(EXTENT_BYTES) {
            let number = number as u32;
            let at = ExtentPosition { file, number };
            let of_file = self.file(file);
            if of_file.held.contains_key(&number) {
                let bytes = of_file.own_bytes(at, page_bytes);
                self.hold(at, bytes, false);
            } else if self.is_unread.insert(at) {
                self.unread.push_back(at);
            }
        }
        self.count_unread(UNREAD_MAX);
    }

    /// Has unread extents count, but for so many that came in last.
    fn count_unread(&mut self, most: usize) {
        while self.is_unread.len() > most
            && let Some(at) = self.unread.pop_front()
        {
            if self.is_unread.remove(&at) {
                let page_bytes = self.page_bytes;
                let bytes = self.file(at.file).own_bytes(at, page_bytes);
                self.hold(at, bytes, true);
            }
        }
        // Those that were read since are still in the queue.
        if self.unread.len() > 2 * UNREAD_MAX {
            let is_unread = &self.is_unread;
            self.unread.retain(|at| is_unread.contains(at));
        }
    }

    /// Bytes of a file were read or written.
    pub(super) fn accessed(&mut self, file: u32, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let end = offset.saturating_add(length);
        let of_file = self.file(file);
        of_file.bytes = of_file.bytes.max(end);
        for extent in offset / EXTENT_BYTES..end.div_ceil(EXTENT_BYTES) {
            let Ok(number) = u32::try_from(extent) else {
                return;
            };
            let at = ExtentPosition { file, number };
            let page_bytes = self.page_bytes;
            let bytes = self.file(file).own_bytes(at, page_bytes);
            self.left.remove(&at);
            self.is_unread.remove(&at);
            self.hold(at, bytes, true);
        }
    }

    /// So much of an extent is cached and not foreign.
    pub(super) fn found(&mut self, at: ExtentPosition, bytes: u64) {
        if !self.left.contains_key(&at) {
            self.hold(at, bytes, false);
        }
    }

    /// So much of these extents is cached and not foreign, and nothing of the others in the range.
    pub(super) fn counted(&mut self, file: u32, range: Range<u64>, cached: &[CachedExtent]) {
        let first = (range.start / EXTENT_BYTES) as u32;
        let end = (range.end / EXTENT_BYTES) as u32;
        let of_file = self.file(file);
        let held = of_file.held.range(first..end.max(first));
        let mut found: BTreeMap<u32, u64> = held.map(|(&extent, _)| (extent, 0)).collect();
        found.extend(
            cached
                .iter()
                .map(|of| ((of.offset / EXTENT_BYTES) as u32, of.bytes)),
        );
        for (number, bytes) in found {
            self.found(ExtentPosition { file, number }, bytes);
        }
    }

    /// What other programs have cached of a range of a file.
    pub(super) fn foreign_within(&self, file: u32, range: Range<u64>) -> Vec<Range<u64>> {
        let of_file = self.files.get(&file);
        let foreign = of_file.map(|of_file| of_file.foreign.within(range));
        foreign.into_iter().flatten().collect()
    }

    /// An extent has so many bytes. A new one, or one that was used, is the most recently used.
    fn hold(&mut self, at: ExtentPosition, bytes: u64, used: bool) {
        let before = self.release(at);
        if bytes == 0 {
            return;
        }
        let last_use = match before {
            Some(held) if !used => held.last_use,
            _ => {
                self.uses += 1;
                self.uses
            }
        };
        self.by_use.insert(last_use, at);
        self.held_bytes += bytes;
        let of_file = self.file(at.file);
        let held = HeldExtent {
            last_use,
            bytes,
            dropped: 0,
        };
        of_file.held.insert(at.number, held);
    }

    /// An extent counts no more.
    fn release(&mut self, at: ExtentPosition) -> Option<HeldExtent> {
        let held = self.files.get_mut(&at.file)?.held.remove(&at.number)?;
        self.by_use.remove(&held.last_use);
        self.held_bytes -= held.bytes;
        Some(held)
    }

    /// Other programs have these pages cached. Returns how many bytes of them were not known.
    pub(super) fn foreign(&mut self, file: u32, offset: u64, length: u64) -> u64 {
        let page_bytes = self.page_bytes;
        let pages = pages_of(offset..offset.saturating_add(length), page_bytes);
        let of_file = self.file(file);
        let added = of_file.foreign.add(pages.clone());
        // What is held of them was counted as the programs' own.
        let first = (pages.start / EXTENT_BYTES) as u32;
        let last = (pages.end.div_ceil(EXTENT_BYTES)).min(u64::from(u32::MAX)) as u32;
        let held: Vec<(ExtentPosition, u64)> = of_file
            .held
            .range(first..last.max(first))
            .map(|(&number, held)| {
                let at = ExtentPosition { file, number };
                let own_bytes = of_file.own_bytes(at, page_bytes);
                (at, held.bytes.min(own_bytes))
            })
            .collect();
        for (at, bytes) in held {
            self.hold(at, bytes, false);
        }
        added
    }

    /// Nothing foreign of a range is cached any more.
    pub(super) fn not_foreign(&mut self, file: u32, offset: u64, length: u64) {
        if let Some(of_file) = self.files.get_mut(&file) {
            of_file
                .foreign
                .remove(offset..offset.saturating_add(length));
        }
    }

    /// A file has no bytes from here on.
    pub(super) fn cut(&mut self, file: u32, bytes: u64) {
        let Some(of_file) = self.files.get_mut(&file) else {
            return;
        };
        of_file.bytes = of_file.bytes.min(bytes);
        if !self.is_told {
            let end = bytes.div_ceil(self.page_bytes) * self.page_bytes;
            of_file.foreign.remove(end..u64::MAX);
        }
        let first = bytes.div_ceil(EXTENT_BYTES).min(u64::from(u32::MAX)) as u32;
        let gone: Vec<u32> = of_file
            .held
            .range(first..)
            .map(|(&extent, _)| extent)
            .collect();
        let at = |number| ExtentPosition { file, number };
        for number in gone {
            self.release(at(number));
        }
        self.lower(ExtentPosition::of_byte(file, bytes), 0);
        let left = self.left.range(at(first)..=at(u32::MAX));
        let left: Vec<ExtentPosition> = left.map(|(&at, _)| at).collect();
        for at in left {
            self.left.remove(&at);
        }
    }

    /// A file cannot be reached any more.
    pub(super) fn gone(&mut self, file: u32) {
        self.cut(file, 0);
        self.files.remove(&file);
    }

    /// Blocks of a file are dropped, and count no more until their extents are used again.
    pub(super) fn dropped(&mut self, file: u32, range: &Range<u64>) {
        for number in range.start / EXTENT_BYTES..range.end.div_ceil(EXTENT_BYTES) {
            let at = ExtentPosition {
                file,
                number: number as u32,
            };
            let Range { start, end } = at.bytes();
            let block = |byte: u64| (byte.clamp(start, end) - start) / BLOCK_BYTES;
            let below = |block: u64| u128::MAX.checked_shr(128 - block as u32).unwrap_or(0);
            self.lower(at, below(block(range.end)) & !below(block(range.start)));
        }
    }

    /// These blocks of an extent are dropped. It counts at most what it can have without those that
    /// were.
    fn lower(&mut self, at: ExtentPosition, dropped: u128) {
        let Some(of_file) = self.files.get_mut(&at.file) else {
            return;
        };
        let Some(&held) = of_file.held.get(&at.number) else {
            return;
        };
        let dropped = held.dropped | dropped;
        let most = of_file.own_bytes_without(at, dropped, self.page_bytes);
        let bytes = held.bytes.min(most);
        if bytes == 0 {
            self.release(at);
            return;
        }
        self.held_bytes -= held.bytes - bytes;
        let held = HeldExtent {
            bytes,
            dropped,
            ..held
        };
        of_file.held.insert(at.number, held);
    }

    /// The kernel has left so many bytes of an extent, which was dropped.
    pub(super) fn left(&mut self, at: ExtentPosition, bytes: u64, now_ns: u64) {
        let next_ns = now_ns + RETRY_NS;
        let left = self.left.entry(at).or_insert(LeftExtent {
            bytes: 0,
            tries: 0,
            next_ns,
        });
        left.bytes += bytes;
    }

    /// What the kernel has left so far.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left.values().map(|left| left.bytes).sum()
    }

    /// Whether [`CacheLimit::take`] would find something.
    pub(super) fn due(&self, now_ns: u64, steering: bool) -> bool {
        let is_due = |left: &LeftExtent| left.next_ns <= now_ns;
        self.held_bytes > self.most(steering) || self.left.values().any(is_due)
    }

    fn most(&self, steering: bool) -> u64 {
        if steering && !self.has_ended {
            let excess = self.bytes / STEERED_EXCESS_DIVISOR;
            self.bytes + excess.max(STEERED_EXCESS_MIN_BYTES)
        } else {
            self.bytes
        }
    }

    /// Takes the extents that are to be dropped now.
    pub(super) fn take(&mut self, now_ns: u64, steering: bool) -> Vec<ExtentPosition> {
        let mut taken = Vec::new();
        let most = self.most(steering);
        while self.held_bytes > most
            && let Some((_, &at)) = self.by_use.first_key_value()
        {
            self.release(at);
            taken.push(at);
        }
        // What was tried, and of which nothing was reported, has gone.
        self.left
            .retain(|_, left| left.bytes > 0 && left.tries < TRIES_MAX || left.next_ns > now_ns);
        for (&at, left) in &mut self.left {
            if left.next_ns <= now_ns {
                left.next_ns = now_ns + (RETRY_NS << left.tries.min(DOUBLINGS_MAX));
                left.tries += 1;
                left.bytes = 0;
                taken.push(at);
            }
        }
        taken.sort_unstable();
        taken.dedup();
        taken
    }

    /// The programs have ended: what is to go goes now.
    pub(super) fn end(&mut self) {
        self.count_unread(0);
        self.has_ended = true;
        if !self.keeps {
            self.bytes = 0;
        }
        for left in self.left.values_mut() {
            (left.tries, left.next_ns) = (0, 0);
        }
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut sum = 0;
        for (&last_use, at) in &self.by_use {
            let held = self.files[&at.file].held[&at.number];
            assert_eq!(held.last_use, last_use);
            assert!(held.bytes > 0);
            let of_file = &self.files[&at.file];
            let most = of_file.own_bytes_without(*at, held.dropped, self.page_bytes);
            assert!(held.dropped == 0 || held.bytes <= most);
            sum += held.bytes;
        }
        assert_eq!(sum, self.held_bytes);
        let held = self.files.values().map(|file| file.held.len());
        assert_eq!(held.sum::<usize>(), self.by_use.len());
    }

    /// Whether an extent counts, or the kernel has left a part of it.
    pub(super) fn is_counted(&self, at: ExtentPosition) -> bool {
        let of_file = self.files.get(&at.file);
        let is_held = of_file.is_some_and(|of_file| of_file.held.contains_key(&at.number));
        is_held || self.left.contains_key(&at)
    }

    /// The size of a file.
    pub(super) fn size(&self, file: u32) -> u64 {
        self.files.get(&file).map_or(0, |of_file| of_file.bytes)
    }

    pub(super) fn own_parts(&self, file: u32, range: Range<u64>) -> Vec<Range<u64>> {
        match self.files.get(&file) {
            Some(of_file) => of_file.foreign.gaps_in(range),
            None => vec![range],
        }
    }
}
