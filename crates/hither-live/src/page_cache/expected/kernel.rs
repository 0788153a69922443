//! The page cache of a memory cgroup, as Linux runs it: which pages a program's requests read from
//! storage, and which stay.
//!
//! [`lists`](super::lists) says what goes. Here is what comes: [`readahead`](super::readahead) says
//! how far ahead, and in which folios. A folio is evicted as one, so a large one that is used twice
//! holds all its pages.
//!
//! Source: `mm/filemap.c` of Linux 6.18 (`filemap_read`). Departures: a write reads nothing, also
//! where it covers a part of a page; nothing is cached at the start; a file is as long as it was
//! when it was opened, or as far as it was accessed since.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::lists::{FolioIndex, Lists, Shadow};
use super::readahead::{Plan, Stream};

/// The pages of a part of the table: as many as the largest folio has.
const PART_PAGES: u32 = 512;

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// It was never cached, or dropped.
    Unknown,
    Evicted(Shadow),
    Cached(FolioIndex),
}

/// Who reads a file. The kernel has a state for each open file; traces do not tell these apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reader {
    pub(super) process: u32,
    pub(super) file: u32,
}

/// A part of a file's table of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Part {
    file: u32,
    number: u32,
}

/// What a cache is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelConfig {
    pub(super) page_bytes: u64,
    /// How far the kernel reads ahead.
    pub(super) readahead_bytes: u64,
    /// Folios may have several pages: the file system can do that.
    pub(super) large_folios: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct KernelCache {
    page_bytes: u64,
    /// The largest window, in pages.
    window: u32,
    large_folios: bool,
    capacity: u64,
    lists: Lists,
    table: FxHashMap<Part, Box<[Page; PART_PAGES as usize]>>,
    streams: FxHashMap<Reader, Stream>,
    /// By file, in pages.
    lengths: Vec<u32>,
    /// Readahead ends where reads are at random.
    spares_random: bool,
    read_pages: u64,
    /// Those of them that were not cached before.
    new_pages: u64,
}

impl KernelCache {
    /// An empty cache of files of these lengths, in bytes.
    pub(super) fn new(
        config: KernelConfig,
        capacity_bytes: u64,
        lengths: impl Iterator<Item = u64>,
    ) -> KernelCache {
        let KernelConfig {
            page_bytes,
            readahead_bytes,
            large_folios,
        } = config;
        let pages = |bytes: u64| u32::try_from(bytes.div_ceil(page_bytes)).unwrap_or(u32::MAX);
        KernelCache {
            page_bytes,
            window: pages(readahead_bytes),
            large_folios,
            capacity: capacity_bytes / page_bytes,
            lists: Lists::new(page_bytes),
            table: FxHashMap::default(),
            streams: FxHashMap::default(),
            lengths: lengths.map(pages).collect(),
            spares_random: false,
            read_pages: 0,
            new_pages: 0,
        }
    }

    /// What was read from storage.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_pages * self.page_bytes
    }

    /// What of that was not cached before.
    pub(super) fn new_bytes(&self) -> u64 {
        self.new_pages * self.page_bytes
    }

    /// There is so much room from now on.
    pub(super) fn resize(&mut self, capacity_bytes: u64) {
        self.capacity = capacity_bytes / self.page_bytes;
        self.make_room(0);
    }

    /// From now on the library in programs disables readahead where they read at random.
    pub(super) fn spare_random(&mut self) {
        self.spares_random = true;
    }

    /// A read of at least a byte.
    pub(super) fn read(&mut self, reader: Reader, offset: u64, length: u64) {
        let pages = self.pages(offset, length);
        self.grow(reader.file, pages.end);
        let mut stream = self
            .streams
            .get(&reader)
            .copied()
            .unwrap_or_else(|| Stream::new(self.page_bytes.trailing_zeros()));
        stream.begin(offset, length);
        let window = if self.spares_random && stream.is_random() {
            0
        } else {
            self.window
        };
        let mut page = pages.start;
        while page < pages.end {
            let asked = pages.end - page;
            let mut cached = self.cached(reader.file, page);
            if cached.is_none() {
                let before = |most| self.cached_before(reader.file, page, most);
                let plan = stream.missed(page, asked, window, before);
                self.bring_in(reader.file, plan);
                cached = self.cached(reader.file, page);
            }
            // It may have gone again, where there is no room for a window.
            let Some(index) = cached else {
                page += 1;
                continue;
            };
            if self.lists.take_mark(index) {
                self.mark_reached(reader.file, &mut stream, index, asked, window);
            }
            let Some(index) = self.cached(reader.file, page) else {
                page += 1;
                continue;
            };
            let folio = *self.lists.folio(index);
            let start = u64::from(folio.page) * self.page_bytes;
            let folio_bytes = start..u64::from(folio.end()) * self.page_bytes;
            if !(page == pages.start && stream.was_in(&folio_bytes)) {
                self.lists.access(index);
            }
            page = folio.end();
        }
        stream.end(offset + length);
        self.streams.insert(reader, stream);
    }

    /// A write of at least a byte.
    pub(super) fn write(&mut self, file: u32, offset: u64, length: u64) {
        let pages = self.pages(offset, length);
        self.grow(file, pages.end);
        let mut page = pages.start;
        while page < pages.end {
            match self.cached(file, page) {
                Some(index) => page = self.lists.folio(index).end(),
                None => {
                    let order = self.order_at(page, (pages.end - page).ilog2());
                    if !self.insert(file, page, order, false) {
                        self.insert(file, page, 0, false);
                    }
                    page += 1;
                }
            }
        }
    }

    /// The agent has the range dropped.
    pub(super) fn drop_range(&mut self, file: u32, offset: u64, length: u64) {
        let first = u32::try_from(offset / self.page_bytes).unwrap_or(u32::MAX);
        let end = offset.saturating_add(length) / self.page_bytes;
        let of_file = self.lengths.get(file as usize).copied().unwrap_or(0);
        let end = u32::try_from(end).unwrap_or(u32::MAX).min(of_file);
        let mut page = first;
        while page < end {
            let Some(index) = self.cached(file, page) else {
                page += 1;
                continue;
            };
            let folio = *self.lists.folio(index);
            if folio.page >= first && folio.end() <= end {
                self.lists.remove(index);
                self.set(file, folio.page..folio.end(), Page::Unknown);
            }
            page = folio.end();
        }
    }

    /// Whether anything of a range is cached.
    pub(super) fn has_any(&self, file: u32, offset: u64, length: u64) -> bool {
        let of_file = self.lengths.get(file as usize).copied().unwrap_or(0);
        let pages = self.pages(offset, length);
        (pages.start..pages.end.min(of_file)).any(|page| self.cached(file, page).is_some())
    }

    fn pages(&self, offset: u64, length: u64) -> Range<u32> {
        let page = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let end = offset.saturating_add(length).div_ceil(self.page_bytes);
        page(offset / self.page_bytes)..page(end)
    }

    fn grow(&mut self, file: u32, end: u32) {
        let file = file as usize;
        if self.lengths.len() <= file {
            self.lengths.resize(file + 1, 0);
        }
        self.lengths[file] = self.lengths[file].max(end);
    }

    fn page(&self, file: u32, page: u32) -> Page {
        let part = Part {
            file,
            number: page / PART_PAGES,
        };
        let part = self.table.get(&part);
        part.map_or(Page::Unknown, |part| part[(page % PART_PAGES) as usize])
    }

    fn cached(&self, file: u32, page: u32) -> Option<FolioIndex> {
        match self.page(file, page) {
            Page::Cached(index) => Some(index),
            Page::Unknown | Page::Evicted(_) => None,
        }
    }

    fn set(&mut self, file: u32, pages: Range<u32>, to: Page) {
        // A folio lies in one part.
        let part = Part {
            file,
            number: pages.start / PART_PAGES,
        };
        let nothing = || Box::new([Page::Unknown; PART_PAGES as usize]);
        let part = self.table.entry(part).or_insert_with(nothing);
        for page in pages {
            part[(page % PART_PAGES) as usize] = to;
        }
    }

    /// How many pages before this one are cached, in succession: at most so many.
    fn cached_before(&self, file: u32, page: u32, most: u32) -> u32 {
        let before = (1..=most.min(page)).take_while(|back| self.is_cached(file, page - back));
        before.count() as u32
    }

    fn is_cached(&self, file: u32, page: u32) -> bool {
        self.cached(file, page).is_some()
    }

    fn mark_reached(
        &mut self,
        file: u32,
        stream: &mut Stream,
        index: FolioIndex,
        asked: u32,
        window: u32,
    ) {
        let folio = *self.lists.folio(index);
        let first_missing = |most: u32| {
            let mut behind = 1..=most;
            behind.find(|on| !self.is_cached(file, folio.page.saturating_add(*on)))
        };
        // Counted from the start of the folio.
        let large = self.large_folios;
        let plan =
            stream.mark_reached(folio.page, folio.pages, asked, window, large, first_missing);
        if let Some(plan) = plan {
            self.bring_in(file, plan);
        }
    }

    /// Reads what a plan says and is not cached (`page_cache_ra_order`, `do_page_cache_ra`).
    fn bring_in(&mut self, file: u32, plan: Plan) {
        let Plan {
            start,
            size,
            marked_before_end,
            order,
        } = plan;
        let length = self.lengths[file as usize];
        let end = start.saturating_add(size).min(length);
        let mark = start.saturating_add(size).saturating_sub(marked_before_end);
        let mut page = start;
        if self.large_folios && order > 0 {
            let order = order.min(PART_PAGES.ilog2()).min(size.ilog2());
            while page < end {
                let mut order = self.order_at(page, order);
                while order > 0 && page + (1 << order) > end {
                    order -= 1;
                }
                let marked = marked_before_end > 0 && mark >> order << order == page;
                // Where it meets a cached page, the rest comes in single pages.
                if !self.read_in(file, page, order, marked) {
                    break;
                }
                page += 1 << order;
            }
        }
        for page in page..end {
            if !self.is_cached(file, page) {
                self.read_in(file, page, 0, marked_before_end > 0 && page == mark);
            }
        }
    }

    /// The order of a folio at this page, at most as given.
    fn order_at(&self, page: u32, order: u32) -> u32 {
        if self.large_folios {
            order.min(page.trailing_zeros()).min(PART_PAGES.ilog2())
        } else {
            0
        }
    }

    fn read_in(&mut self, file: u32, page: u32, order: u32, marked: bool) -> bool {
        let pages = page..page + (1 << order);
        let is_new = |page: &u32| self.page(file, *page) == Page::Unknown;
        let new = pages.filter(is_new).count() as u64;
        let came = self.insert(file, page, order, marked);
        if came {
            self.read_pages += 1 << order;
            self.new_pages += new;
        }
        came
    }

    /// A folio comes into the cache, if none of its pages is cached.
    fn insert(&mut self, file: u32, page: u32, order: u32, marked: bool) -> bool {
        let pages = page..page + (1 << order);
        if pages.clone().any(|page| self.is_cached(file, page)) {
            return false;
        }
        self.make_room(1 << order);
        let mut evicted = pages
            .clone()
            .filter_map(|page| match self.page(file, page) {
                Page::Evicted(shadow) => Some(shadow),
                Page::Unknown | Page::Cached(_) => None,
            });
        let shadow = evicted.next_back();
        let index = self.lists.insert(file, page, 1 << order, marked, shadow);
        self.set(file, pages, Page::Cached(index));
        true
    }

    fn make_room(&mut self, pages: u64) {
        loop {
            let cached = self.lists.pages();
            let excess = (cached + pages).saturating_sub(self.capacity);
            if excess == 0 || cached == 0 {
                return;
            }
            let mut evicted = Vec::new();
            self.lists
                .reclaim(excess, |folio, shadow| evicted.push((folio, shadow)));
            for (folio, shadow) in evicted {
                let pages = folio.page..folio.end();
                self.set(folio.file, pages, Page::Evicted(shadow));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const MIB: u64 = 1 << 20;

    /// Of two files of 8 MiB.
    fn cache(capacity_bytes: u64, large_folios: bool) -> KernelCache {
        let config = KernelConfig {
            page_bytes: PAGE,
            readahead_bytes: 128 << 10,
            large_folios,
        };
        KernelCache::new(config, capacity_bytes, [8 * MIB; 2].into_iter())
    }

    fn reader(file: u32) -> Reader {
        Reader { process: 0, file }
    }

    fn pass(cache: &mut KernelCache, file: u32) {
        (0..8 * MIB / 8192).for_each(|at| cache.read(reader(file), at * 8192, 8192));
    }

    #[test]
    fn passes_read_each_page_once_where_they_fit_and_each_time_where_they_do_not() {
        for large_folios in [false, true] {
            let mut fits = cache(20 * MIB, large_folios);
            let mut small = cache(6 * MIB, large_folios);
            for _ in 0..3 {
                pass(&mut fits, 0);
                pass(&mut small, 0);
            }
            assert_eq!(fits.read_bytes(), 8 * MIB);
            assert_eq!(small.read_bytes(), 24 * MIB);
            assert_eq!(small.new_bytes(), 8 * MIB);
        }
    }

    #[test]
    fn single_reads_here_and_there_read_nothing_ahead() {
        let mut cache = cache(20 * MIB, true);
        for page in [1500, 300, 900, 40] {
            cache.read(reader(0), page * PAGE, 1);
        }
        assert_eq!(cache.read_bytes(), 4 * PAGE);
    }

    #[test]
    fn a_file_ends_where_it_did_and_grows_by_what_is_written() {
        let mut cache = cache(20 * MIB, true);
        pass(&mut cache, 1);
        assert_eq!(cache.read_bytes(), 8 * MIB);
        cache.write(1, 8 * MIB, 100_000);
        cache.read(reader(1), 8 * MIB, 100_000);
        assert_eq!(cache.read_bytes(), 8 * MIB, "it was written");
        assert!(cache.has_any(1, 8 * MIB, MIB));
    }

    #[test]
    fn a_dropped_extent_comes_back_in_single_pages_between_cached_ones() {
        let mut cache = cache(20 * MIB, true);
        pass(&mut cache, 0);
        cache.drop_range(0, 2 * MIB, 2 * MIB);
        assert!(!cache.has_any(0, 2 * MIB, 2 * MIB));
        assert!(cache.has_any(0, 0, 2 * MIB));
        pass(&mut cache, 0);
        assert_eq!(cache.read_bytes(), 10 * MIB);
        cache.resize(MIB);
        assert!(cache.lists.pages() <= MIB / PAGE);
    }

    #[test]
    fn readahead_is_disabled_where_reads_are_at_random() {
        let read = |spares: bool| {
            let mut cache = cache(20 * MIB, false);
            if spares {
                cache.spare_random();
            }
            // Every other page: each has a trail before it, which looks like a stream.
            (0..1000).for_each(|number| {
                let page = number * 7919 % 2048;
                cache.read(reader(0), page * PAGE, PAGE);
            });
            cache.read_bytes()
        };
        assert!(read(true) < read(false));
        assert_eq!(read(true), 1000 * PAGE);
    }
}
