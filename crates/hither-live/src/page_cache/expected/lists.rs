//! The two lists of a memory cgroup's file folios, as Linux keeps them without the
//! multi-generational LRU.
//!
//! Source: `mm/vmscan.c` and `mm/workingset.c` of Linux 6.18 (`shrink_lruvec`, `inactive_is_low`,
//! `folio_mark_accessed`, `workingset_refault`), for a group without swap. A folio comes to the
//! head of the inactive list. A second access moves it to the active one. Reclaim takes folios
//! from the tail of the inactive list, and refills that from the tail of the active one when it has
//! become the smaller of both, or when folios came back so soon that they were made active at once.
//!
//! Departures: all folios are clean and unmapped when reclaim comes to them. (It has dirty ones
//! written back, and takes them next.) The few folios that each CPU holds back from the lists are
//! on them.

/// The index of a folio.
pub(super) type FolioIndex = u32;

/// No folio.
const NONE: FolioIndex = u32::MAX;

/// `SWAP_CLUSTER_MAX`: the pages of a step of reclaim, and the least that one takes.
const STEP_PAGES: u64 = 32;

/// `DEF_PRIORITY`: the first round of reclaim looks at this part of each list, 1/2^12.
const FIRST_PRIORITY: u32 = 12;

/// A folio: successive pages of a file, as many as a power of two, cached and evicted as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folio {
    /// The file.
    pub(super) file: u32,
    /// Its first page.
    pub(super) page: u32,
    /// The number of its pages.
    pub(super) pages: u32,
    /// A reader that comes to it has the next window read (PG_readahead).
    pub(super) is_mark: bool,
    is_active: bool,
    /// It was accessed since it came, or was made active.
    is_referenced: bool,
    previous: FolioIndex,
    next: FolioIndex,
}

impl Folio {
    /// The page behind it.
    pub(super) fn end(&self) -> u32 {
        self.page + self.pages
    }
}

/// A list, from the head, where folios come in, to the tail.
#[derive(Clone, Copy, Debug)]
struct List {
    head: FolioIndex,
    tail: FolioIndex,
    pages: u64,
}

impl List {
    const EMPTY: List = List {
        head: NONE,
        tail: NONE,
        pages: 0,
    };
}

/// When a page was evicted, by [`Lists::age`], which wraps here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shadow(u32);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    folios: Vec<Folio>,
    /// Unused entries of `folios`.
    free: Vec<FolioIndex>,
    inactive: List,
    active: List,
    /// Pages that were evicted or made active so far (`nonresident_age`).
    age: u64,
    /// Pages that came back so soon that they were made active at once.
    restored: u64,
    /// The same, when reclaim last ended.
    restored_before: u64,
    /// See [`inactive_ratio`].
    page_bytes: u64,
}

impl Lists {
    pub(super) fn new(page_bytes: u64) -> Lists {
        Lists {
            folios: Vec::new(),
            free: Vec::new(),
            inactive: List::EMPTY,
            active: List::EMPTY,
            age: 0,
            restored: 0,
            restored_before: 0,
            page_bytes,
        }
    }

    /// The pages of all folios.
    pub(super) fn pages(&self) -> u64 {
        self.inactive.pages + self.active.pages
    }

    pub(super) fn folio(&self, index: FolioIndex) -> &Folio {
        &self.folios[index as usize]
    }

    /// The mark of a folio was come to. Returns whether it had one.
    pub(super) fn take_mark(&mut self, index: FolioIndex) -> bool {
        std::mem::take(&mut self.folios[index as usize].is_mark)
    }

    /// A folio comes into the cache. `shadow` is that of one of its pages, if one has been evicted.
    pub(super) fn insert(
        &mut self,
        file: u32,
        page: u32,
        pages: u32,
        is_mark: bool,
        shadow: Option<Shadow>,
    ) -> FolioIndex {
        let mut folio = Folio {
            file,
            page,
            pages,
            is_mark,
            is_active: false,
            is_referenced: false,
            previous: NONE,
            next: NONE,
        };
        if let Some(shadow) = shadow {
            let distance = u64::from((self.age as u32).wrapping_sub(shadow.0));
            if distance <= self.active.pages {
                folio.is_active = true;
                self.age += u64::from(pages);
                self.restored += u64::from(pages);
            }
        }
        let index = match self.free.pop() {
            Some(index) => {
                self.folios[index as usize] = folio;
                index
            }
            None => {
                self.folios.push(folio);
                self.folios.len() as FolioIndex - 1
            }
        };
        self.push(index);
        index
    }

    /// A folio was accessed.
    pub(super) fn access(&mut self, index: FolioIndex) {
        let folio = &mut self.folios[index as usize];
        if folio.is_active || !folio.is_referenced {
            folio.is_referenced = true;
            return;
        }
        self.unlink(index);
        let folio = &mut self.folios[index as usize];
        (folio.is_active, folio.is_referenced) = (true, false);
        self.age += u64::from(folio.pages);
        self.push(index);
    }

    /// Takes a folio out of the cache.
    pub(super) fn remove(&mut self, index: FolioIndex) -> Folio {
        self.unlink(index);
        self.free.push(index);
        self.folios[index as usize]
    }

    /// Evicts folios of at least this many pages, if there are so many, and hands them to
    /// `evicted`.
    pub(super) fn reclaim(&mut self, pages: u64, mut evicted: impl FnMut(Folio, Shadow)) {
        let wanted = pages.max(STEP_PAGES);
        let mut reclaimed = 0;
        for priority in (0..=FIRST_PRIORITY).rev() {
            let may_deactivate = self.restored != self.restored_before || self.is_inactive_low();
            let mut inactive = self.inactive.pages >> priority;
            let mut active = self.active.pages >> priority;
            while inactive + active > 0 && reclaimed < wanted {
                if inactive > 0 {
                    let step = inactive.min(STEP_PAGES);
                    inactive -= step;
                    reclaimed += self.evict(step, &mut evicted);
                }
                if active > 0 {
                    let step = active.min(STEP_PAGES);
                    active -= step;
                    if may_deactivate {
                        self.deactivate(step);
                    }
                }
            }
            if reclaimed >= wanted {
                break;
            }
        }
        self.restored_before = self.restored;
    }

    /// Evicts folios from the tail of the inactive list, until these are so many pages.
    fn evict(&mut self, pages: u64, evicted: &mut impl FnMut(Folio, Shadow)) -> u64 {
        let mut taken = 0;
        while taken < pages && self.inactive.tail != NONE {
            let folio = self.remove(self.inactive.tail);
            let shadow = Shadow(self.age as u32);
            self.age += u64::from(folio.pages);
            taken += u64::from(folio.pages);
            evicted(folio, shadow);
        }
        taken
    }

    /// Moves folios from the tail of the active list to the head of the inactive one.
    fn deactivate(&mut self, pages: u64) {
        let mut moved = 0;
        while moved < pages && self.active.tail != NONE {
            let index = self.active.tail;
            self.unlink(index);
            let folio = &mut self.folios[index as usize];
            folio.is_active = false;
            moved += u64::from(folio.pages);
            self.push(index);
        }
    }

    fn is_inactive_low(&self) -> bool {
        let ratio = inactive_ratio(self.pages() * self.page_bytes);
        self.inactive.pages * ratio < self.active.pages
    }

    /// Links a folio in at the head of its list.
    fn push(&mut self, index: FolioIndex) {
        let Folio {
            is_active, pages, ..
        } = self.folios[index as usize];
        let list = if is_active {
            &mut self.active
        } else {
            &mut self.inactive
        };
        let head = std::mem::replace(&mut list.head, index);
        list.pages += u64::from(pages);
        if head == NONE {
            list.tail = index;
        } else {
            self.folios[head as usize].previous = index;
        }
        let folio = &mut self.folios[index as usize];
        (folio.previous, folio.next) = (NONE, head);
    }

    fn unlink(&mut self, index: FolioIndex) {
        let folio = self.folios[index as usize];
        let list = if folio.is_active {
            &mut self.active
        } else {
            &mut self.inactive
        };
        list.pages -= u64::from(folio.pages);
        if folio.previous == NONE {
            list.head = folio.next;
        } else {
            self.folios[folio.previous as usize].next = folio.next;
        }
        if folio.next == NONE {
            list.tail = folio.previous;
        } else {
            self.folios[folio.next as usize].previous = folio.previous;
        }
    }
}

/// How many times as large as the inactive list the active one may be (`inactive_is_low`).
fn inactive_ratio(bytes: u64) -> u64 {
    match bytes >> 30 {
        0 => 1,
        gib => (10 * gib).isqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of single pages.
    struct Cache {
        lists: Lists,
        capacity: u64,
        /// By page: where it is, or when it went.
        pages: Vec<Result<FolioIndex, Option<Shadow>>>,
        missed: u64,
    }

    impl Cache {
        fn new(capacity: u64) -> Cache {
            Cache {
                lists: Lists::new(4096),
                capacity,
                pages: vec![Err(None); 4096],
                missed: 0,
            }
        }

        fn read(&mut self, page: u32) {
            if let Err(shadow) = self.pages[page as usize] {
                self.missed += 1;
                if self.lists.pages() == self.capacity {
                    let pages = &mut self.pages;
                    self.lists.reclaim(1, |folio, shadow| {
                        pages[folio.page as usize] = Err(Some(shadow));
                    });
                }
                let index = self.lists.insert(0, page, 1, false, shadow);
                self.pages[page as usize] = Ok(index);
            }
            let index = self.pages[page as usize].expect("it has come in");
            self.lists.access(index);
        }
    }

    #[test]
    fn a_loop_that_does_not_fit_misses_as_under_lru() {
        let mut cache = Cache::new(500);
        for _ in 0..4 {
            (0..600).for_each(|page| cache.read(page));
        }
        assert_eq!(cache.missed, 4 * 600);
    }

    #[test]
    fn what_was_used_twice_outlives_a_scan() {
        let mut cache = Cache::new(500);
        for _ in 0..3 {
            (0..100).for_each(|page| cache.read(page));
        }
        (1000..3000).for_each(|page| cache.read(page));
        let missed = cache.missed;
        (0..100).for_each(|page| cache.read(page));
        assert_eq!(cache.missed, missed);
        // The last step of reclaim took more than was wanted.
        assert!((500 - STEP_PAGES..=500).contains(&cache.lists.pages()));
    }

    #[test]
    fn a_new_working_set_takes_over_from_an_old_one() {
        let mut cache = Cache::new(500);
        for _ in 0..3 {
            (0..400).for_each(|page| cache.read(page));
        }
        for _ in 0..10 {
            (1000..1400).for_each(|page| cache.read(page));
        }
        let missed = cache.missed;
        (1000..1400).for_each(|page| cache.read(page));
        assert_eq!(cache.missed, missed);
    }

    #[test]
    fn the_active_list_may_be_larger_where_there_is_much() {
        assert_eq!([1, 1 << 30, 10 << 30].map(inactive_ratio), [1, 3, 10]);
    }
}
