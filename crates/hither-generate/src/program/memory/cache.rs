//! The private caches of the processors of a shared-memory machine, kept coherent by a directory.
//!
//! Each processor has a first and a second level. Both are set-associative with LRU replacement and
//! write-back, and the second level includes the first. The first level has 64 sets of 64-byte
//! lines, so a way is as large as a page, as in processors that index it by the virtual address.
//! The second level is indexed by the physical address: each page begins at a random set, like the
//! frames of a kernel without page colouring.
//!
//! Coherence is MESI: a line is held by any number of processors that may read it, or by one that
//! may write it. A sole holder may write from its first load on, so private data pay nothing for
//! coherence. A store by another processor invalidates a line, a load downgrades it. Lines have
//! small numbers and the directory is an array over all of them: an access neither hashes nor
//! allocates.

use hither_core::random::mix;

/// Size of a line.
pub(super) const LINE_BYTES: usize = 64;
/// Lines per page.
pub(super) const PAGE_LINES: u32 = 64;
/// The largest number of processors: the holders of a line are bits of a word.
pub(super) const PROCESSORS_MAX: usize = 64;
/// The largest number of ways of a first level.
pub(super) const L1_WAYS_MAX: usize = 16;

const L1_SETS: usize = PAGE_LINES as usize;
const L2_WAYS: usize = 8;

/// The number of sets of a second level of `kib`, which is at least [`L2_KIB_MIN`].
const fn l2_sets(kib: u32) -> u32 {
    kib * 1024 / (LINE_BYTES * L2_WAYS) as u32
}

/// The smallest second level: the lines of a page are in different sets.
pub(super) const L2_KIB_MIN: u64 = 32;

/// An entry of a set is a line number and these flag bits. 0 is an empty entry, since line 0 is
/// never used.
const WRITABLE: u32 = 1;
const DIRTY: u32 = 2;
const FLAGS: u32 = WRITABLE | DIRTY;
const FLAG_BITS: u32 = 2;

/// Upper limit of line numbers: 64 GiB of memory.
pub(super) const LINES_MAX: u64 = 1 << (u32::BITS - FLAG_BITS);

/// What served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServedBy {
    /// The first level.
    L1,
    /// The second level.
    L2,
    /// The second level, after the other holders' copies were invalidated.
    Upgrade,
    /// Memory, or the cache of another processor.
    Memory,
}

/// Traffic counts of all caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Lines fetched.
    pub(super) misses: u64,
    /// Dirty lines written back, by an eviction or for another processor.
    pub(super) write_backs: u64,
    /// Copies invalidated by a store of another processor.
    pub(super) invalidations: u64,
}

/// The caches of one processor. The most recently used line of each set comes first.
#[derive(Clone, Debug)]
struct PrivateCaches {
    l1: Box<[[u32; L1_WAYS_MAX]; L1_SETS]>,
    l2: Box<[[u32; L2_WAYS]]>,
}

impl PrivateCaches {
    fn new(l2_sets: u32) -> PrivateCaches {
        PrivateCaches {
            l1: Box::new([[0; L1_WAYS_MAX]; L1_SETS]),
            l2: vec![[0; L2_WAYS]; l2_sets as usize].into_boxed_slice(),
        }
    }

    /// Removes a line. Returns whether it was dirty.
    fn remove(&mut self, line: u32, l2_set: usize) -> bool {
        remove(&mut self.l1[line as usize % L1_SETS], line);
        remove(&mut self.l2[l2_set], line).expect("the directory knows the holders") & DIRTY != 0
    }

    /// Revokes the right to write a line. Returns whether it was dirty, as the second level knows.
    fn downgrade(&mut self, line: u32, l2_set: usize) -> bool {
        if let Some(entry) = find(&mut self.l1[line as usize % L1_SETS], line) {
            *entry &= !FLAGS;
        }
        let entry = find(&mut self.l2[l2_set], line).expect("the directory knows the holders");
        let dirty = *entry & DIRTY != 0;
        *entry &= !FLAGS;
        dirty
    }

    /// Grants the right to write a line, and makes it dirty. Both levels must hold it.
    fn own(&mut self, line: u32, l2_set: usize) {
        let first = find(&mut self.l1[line as usize % L1_SETS], line);
        *first.expect("just used") |= FLAGS;
        let second = find(&mut self.l2[l2_set], line);
        *second.expect("the second level includes the first") |= FLAGS;
    }
}

fn find(set: &mut [u32], line: u32) -> Option<&mut u32> {
    set.iter_mut().find(|entry| **entry >> FLAG_BITS == line)
}

/// Removes a line from a set. The others keep their order.
fn remove(set: &mut [u32], line: u32) -> Option<u32> {
    let at = set.iter().position(|entry| entry >> FLAG_BITS == line)?;
    let entry = set[at];
    set.copy_within(at + 1.., at);
    set[set.len() - 1] = 0;
    Some(entry)
}

/// Moves the entry at `way` to the front and returns it.
fn touch(set: &mut [u32], way: usize) -> u32 {
    let entry = set[way];
    set.copy_within(..way, 1);
    set[0] = entry;
    entry
}

/// Inserts an entry at the front. Returns the last entry, which is evicted.
fn push(set: &mut [u32], entry: u32) -> u32 {
    let last = set[set.len() - 1];
    set.copy_within(..set.len() - 1, 1);
    set[0] = entry;
    last
}

/// The caches of all processors, one of which is working.
#[derive(Clone, Debug)]
pub(super) struct Caches {
    /// Those of the working processor. Its element of `parked` is empty meanwhile; accesses need no
    /// index.
    working: PrivateCaches,
    processor: usize,
    parked: Vec<PrivateCaches>,
    /// By line: the processors that hold it.
    holders: Vec<u64>,
    /// By page: the set of its first line.
    first_set: Vec<u32>,
    l1_ways: usize,
    l2_sets: u32,
    seed: u64,
    traffic: Traffic,
}

impl Caches {
    pub(super) fn new(processors: usize, l1_ways: usize, l2_kib: u32, seed: u64) -> Caches {
        assert!((1..=PROCESSORS_MAX).contains(&processors));
        assert!((1..=L1_WAYS_MAX).contains(&l1_ways));
        assert!(u64::from(l2_kib) >= L2_KIB_MIN);
        let l2_sets = l2_sets(l2_kib);
        Caches {
            working: PrivateCaches::new(l2_sets),
            processor: 0,
            parked: (0..processors)
                .map(|_| PrivateCaches::new(l2_sets))
                .collect(),
            holders: Vec::new(),
            first_set: Vec::new(),
            l1_ways,
            l2_sets,
            seed,
            traffic: Traffic::default(),
        }
    }

    /// Raises the number of pages.
    pub(super) fn extend(&mut self, pages: u32) {
        let lines = u64::from(pages) * u64::from(PAGE_LINES);
        assert!(lines <= LINES_MAX, "{pages} pages are too many");
        self.holders.resize(lines as usize, 0);
        let (seed, sets) = (self.seed, u64::from(self.l2_sets));
        let more = self.first_set.len() as u64..u64::from(pages);
        self.first_set
            .extend(more.map(|page| (mix(seed ^ mix(page)) % sets) as u32));
    }

    #[cfg(test)]
    fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Makes `processor` the working one.
    pub(super) fn switch(&mut self, processor: usize) {
        if processor != self.processor {
            std::mem::swap(&mut self.working, &mut self.parked[self.processor]);
            std::mem::swap(&mut self.working, &mut self.parked[processor]);
            self.processor = processor;
        }
    }

    /// A load from a line other than 0.
    #[inline(always)]
    pub(super) fn load(&mut self, line: u32) -> ServedBy {
        if self.working.l1[line as usize % L1_SETS][0] >> FLAG_BITS == line {
            ServedBy::L1
        } else {
            self.load_further(line)
        }
    }

    /// A store to a line other than 0.
    #[inline(always)]
    pub(super) fn store(&mut self, line: u32) -> ServedBy {
        if self.working.l1[line as usize % L1_SETS][0] == (line << FLAG_BITS | FLAGS) {
            ServedBy::L1
        } else {
            self.store_further(line)
        }
    }

    #[inline(never)]
    fn load_further(&mut self, line: u32) -> ServedBy {
        match self.look_up(line) {
            Some((_, served)) => served,
            None => {
                self.traffic.misses += 1;
                let holders = self.holders[line as usize];
                if holders.is_power_of_two() {
                    let (holder, set) = (holders.trailing_zeros() as usize, self.l2_set(line));
                    let dirty = self.parked[holder].downgrade(line, set);
                    self.traffic.write_backs += u64::from(dirty);
                }
                self.fill(line, if holders == 0 { WRITABLE } else { 0 });
                ServedBy::Memory
            }
        }
    }

    #[inline(never)]
    fn store_further(&mut self, line: u32) -> ServedBy {
        let found = self.look_up(line);
        if let Some((entry, served)) = found {
            let upgrade = entry & WRITABLE == 0;
            if upgrade {
                self.invalidate_others(line);
            }
            if entry & FLAGS != FLAGS {
                let set = self.l2_set(line);
                self.working.own(line, set);
            }
            return if upgrade { ServedBy::Upgrade } else { served };
        }
        self.traffic.misses += 1;
        self.invalidate_others(line);
        self.fill(line, FLAGS);
        ServedBy::Memory
    }

    /// Finds a line in the working processor's caches and makes it the most recently used.
    fn look_up(&mut self, line: u32) -> Option<(u32, ServedBy)> {
        let l2_set = self.l2_set(line);
        let first = &mut self.working.l1[line as usize % L1_SETS][..self.l1_ways];
        if let Some(way) = first.iter().position(|entry| entry >> FLAG_BITS == line) {
            return Some((touch(first, way), ServedBy::L1));
        }
        let second = &mut self.working.l2[l2_set];
        let way = second.iter().position(|entry| entry >> FLAG_BITS == line)?;
        let entry = touch(second, way);
        push(first, entry);
        Some((entry, ServedBy::L2))
    }

    /// Puts a line into both levels.
    fn fill(&mut self, line: u32, flags: u32) {
        let entry = line << FLAG_BITS | flags;
        let (l2_set, bit) = (self.l2_set(line), 1 << self.processor);
        push(
            &mut self.working.l1[line as usize % L1_SETS][..self.l1_ways],
            entry,
        );
        let victim = push(&mut self.working.l2[l2_set], entry);
        if victim != 0 {
            let gone = victim >> FLAG_BITS;
            remove(&mut self.working.l1[gone as usize % L1_SETS], gone);
            self.holders[gone as usize] &= !bit;
            self.traffic.write_backs += u64::from(victim & DIRTY != 0);
        }
        self.holders[line as usize] |= bit;
    }

    fn invalidate_others(&mut self, line: u32) {
        let own = 1 << self.processor;
        let mut others = self.holders[line as usize] & !own;
        self.holders[line as usize] &= own;
        while others != 0 {
            let (holder, set) = (others.trailing_zeros() as usize, self.l2_set(line));
            let dirty = self.parked[holder].remove(line, set);
            self.traffic.write_backs += u64::from(dirty);
            self.traffic.invalidations += 1;
            others &= others - 1;
        }
    }

    fn l2_set(&self, line: u32) -> usize {
        let set = self.first_set[(line / PAGE_LINES) as usize] + line % PAGE_LINES;
        (if set < self.l2_sets {
            set
        } else {
            set - self.l2_sets
        }) as usize
    }

    /// Panics if an invariant does not hold.
    #[cfg(test)]
    fn check(&mut self) {
        let working = self.processor;
        let mut holders = vec![0u64; self.holders.len()];
        let mut writable = vec![false; self.holders.len()];
        for processor in 0..self.parked.len() {
            self.switch(processor);
            let mut second = Vec::new();
            for (number, set) in self.working.l2.iter().enumerate() {
                let filled = set.iter().take_while(|&&entry| entry != 0).count();
                assert!(set[filled..].iter().all(|&entry| entry == 0));
                for &entry in &set[..filled] {
                    let line = entry >> FLAG_BITS;
                    assert_eq!(self.l2_set(line), number);
                    assert!(entry & DIRTY == 0 || entry & WRITABLE != 0);
                    holders[line as usize] |= 1 << processor;
                    writable[line as usize] |= entry & WRITABLE != 0;
                    second.push(entry);
                }
            }
            for (number, set) in self.working.l1.iter().enumerate() {
                assert!(set[self.l1_ways..].iter().all(|&entry| entry == 0));
                for &entry in set.iter().filter(|&&entry| entry != 0) {
                    assert_eq!((entry >> FLAG_BITS) as usize % L1_SETS, number);
                    assert!(second.contains(&entry), "the second level includes it");
                }
            }
        }
        assert_eq!(holders, self.holders);
        for (holders, writable) in holders.iter().zip(writable) {
            assert!(!writable || holders.is_power_of_two());
        }
        self.switch(working);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::random::Random;

    /// Lines, each with whether it is writable and dirty, the latest first.
    type Set = Vec<(u32, bool, bool)>;

    /// A naive model of the same machine: every set of every processor is a list, and the holders
    /// of a line are found by search.
    struct Twin {
        /// By processor and level.
        levels: Vec<[Vec<Set>; 2]>,
        ways: [usize; 2],
        traffic: Traffic,
    }

    impl Twin {
        fn access(
            &mut self,
            processor: usize,
            line: u32,
            sets: [usize; 2],
            store: bool,
        ) -> ServedBy {
            let at = |set: &Set| set.iter().position(|held| held.0 == line);
            let mine = |twin: &Twin, level: usize| at(&twin.levels[processor][level][sets[level]]);
            let (first, second) = (mine(self, 0), mine(self, 1));
            let held = second.map(|way| self.levels[processor][1][sets[1]][way]);
            let mut elsewhere = false;
            for other in (0..self.levels.len()).filter(|&other| other != processor) {
                let Some(way) = at(&self.levels[other][1][sets[1]]) else {
                    continue;
                };
                elsewhere = true;
                let dirty = self.levels[other][1][sets[1]][way].2;
                if store {
                    self.levels[other][1][sets[1]].remove(way);
                    self.levels[other][0][sets[0]].retain(|held| held.0 != line);
                    self.traffic.invalidations += 1;
                    self.traffic.write_backs += u64::from(dirty);
                } else if held.is_none() {
                    self.levels[other][1][sets[1]][way] = (line, false, false);
                    if let Some(way) = at(&self.levels[other][0][sets[0]]) {
                        self.levels[other][0][sets[0]][way] = (line, false, false);
                    }
                    self.traffic.write_backs += u64::from(dirty);
                }
            }
            let now = match held {
                _ if store => (line, true, true),
                Some(held) => held,
                None => (line, !elsewhere, false),
            };
            let [l1, l2] = &mut self.levels[processor];
            match first {
                Some(way) => drop(l1[sets[0]].remove(way)),
                None => l1[sets[0]].truncate(self.ways[0] - 1),
            }
            l1[sets[0]].insert(0, now);
            match second {
                // The second level does not see what the first level serves. It only learns that
                // the line is dirty.
                Some(way) if first.is_some() => l2[sets[1]][way] = now,
                Some(way) => {
                    l2[sets[1]].remove(way);
                    l2[sets[1]].insert(0, now);
                }
                None => {
                    l2[sets[1]].insert(0, now);
                    if l2[sets[1]].len() > self.ways[1] {
                        let (gone, _, dirty) = l2[sets[1]].pop().unwrap();
                        self.traffic.write_backs += u64::from(dirty);
                        l1.iter_mut()
                            .for_each(|set| set.retain(|held| held.0 != gone));
                    }
                    self.traffic.misses += 1;
                }
            }
            match held {
                None => ServedBy::Memory,
                Some((_, false, _)) if store => ServedBy::Upgrade,
                Some(_) if first.is_some() => ServedBy::L1,
                Some(_) => ServedBy::L2,
            }
        }
    }

    #[test]
    fn equals_a_naive_twin_on_random_accesses() {
        for seed in 0..6 {
            let mut random = Random::new(seed);
            let (processors, l1_ways) = (1 + seed as usize, 1 + 2 * (seed as usize % 3));
            let pages = 100;
            let mut caches = Caches::new(processors, l1_ways, L2_KIB_MIN as u32, seed);
            caches.extend(pages / 2);
            caches.extend(pages);
            let mut twin = Twin {
                levels: vec![
                    [
                        vec![Vec::new(); L1_SETS],
                        vec![Vec::new(); l2_sets(32) as usize]
                    ];
                    processors
                ],
                ways: [l1_ways, L2_WAYS],
                traffic: Traffic::default(),
            };
            for step in 0..40_000 {
                let processor = random.below(processors as u64) as usize;
                // Few lines of each page, so that sets overflow. Some are shared by all, most
                // belong to one.
                let page = 1 + random.below(u64::from(pages) - 1) as u32;
                let mine = random.below(4) > 0;
                let shared = if mine { 1 + processor as u64 } else { 0 };
                let offset = 8 * shared + random.below(8);
                let line = page * PAGE_LINES + offset as u32;
                let store = random.below(3) == 0;
                let sets = [line as usize % L1_SETS, caches.l2_set(line)];
                caches.switch(processor);
                let served = if store {
                    caches.store(line)
                } else {
                    caches.load(line)
                };
                assert_eq!(
                    served,
                    twin.access(processor, line, sets, store),
                    "seed {seed}, step {step}"
                );
                if step % 1000 == 0 {
                    caches.check();
                }
            }
            assert_eq!(caches.traffic(), twin.traffic);
            assert!(seed == 0 || twin.traffic.invalidations > 100);
            assert!(twin.traffic.write_backs > 100);
        }
    }

    #[test]
    fn two_writers_of_one_line_miss_by_turns_and_neighbours_do_not() {
        let mut caches = Caches::new(2, 4, 32, 1);
        caches.extend(2);
        let mut served = |processor, line| {
            caches.switch(processor);
            caches.store(line)
        };
        assert_eq!(served(0, 64), ServedBy::Memory);
        assert_eq!(served(1, 65), ServedBy::Memory);
        assert_eq!(served(0, 64), ServedBy::L1);
        for _ in 0..3 {
            assert_eq!(served(1, 64), ServedBy::Memory);
            assert_eq!(served(0, 64), ServedBy::Memory);
        }
        assert_eq!(caches.traffic().invalidations, 6);
        // Both processors read the line. One then writes: it has the line, and needs the right to
        // write.
        caches.switch(1);
        assert_eq!(caches.load(64), ServedBy::Memory);
        assert_eq!(caches.store(64), ServedBy::Upgrade);
        caches.check();
    }
}
