//! A team of threads on the processors of a machine. They are simulated one at a time, always in
//! the same order.
//!
//! A program is a sequence of *parallel constructs*, as in OpenMP. Each thread has a share of the
//! construct's units (a row of a grid, a line of a sweep). The thread that is furthest behind runs
//! next, for a quantum, and at the end of the construct all wait for the last. So threads advance
//! together, as on a real machine. The units of a construct must not depend on each other.
//! Reductions are added in the order of the threads.
//!
//! Time is modelled: [`ACCESS_NS`] per access, plus the cost of the level that served it. All
//! misses cost the same: this model does not know where pages are, since the trace serves to find
//! that out.
//!
//! The result is the misses. A thread's misses on one page within a slice of its time are one row,
//! at the time of the first miss. A loop over several arrays misses on their pages in turn, and one
//! row per miss would make the trace ten times as long without saying more. References that hit are
//! only counted, by page: with the misses they give the miss rates of regions, and the computation
//! between misses.

use std::ops::Range;

use hither_core::placement::EpochKind;
use hither_core::random::Random;

use super::cache::{Caches, LINE_BYTES, PAGE_LINES, ServedBy};
use hither_trace::schema::{AccessRow, RowOp};

/// Size of a page. A row never crosses pages.
pub(super) const PAGE_BYTES: usize = LINE_BYTES * PAGE_LINES as usize;

/// Cost of each access.
const ACCESS_NS: u64 = 1;
/// Additional cost of an access that the second level serves.
const L2_EXTRA_NS: u64 = 10;
/// Additional cost of an access that other processors or memory serve.
const MEMORY_EXTRA_NS: u64 = 100;
/// Time from the last thread's arrival at a barrier to the next construct.
const BARRIER_NS: u64 = 1_000;
/// Time for which a thread runs before another one is chosen.
const QUANTUM_NS: u64 = 1_000;

/// Open rows of a thread. A loop seldom accesses more pages at a time.
const OPEN_ROWS_MAX: usize = 32;

/// The settings of a team.
#[derive(Clone, Debug)]
pub(super) struct TeamSettings {
    pub(super) threads: usize,
    /// Ways of a first-level cache, 4 KiB each.
    pub(super) l1_ways: usize,
    /// Size of a second-level cache.
    pub(super) l2_kib: u32,
    /// Time for which a thread's misses on a page are gathered into one row.
    pub(super) slice_ns: u64,
    /// Whether thread 0 initialises all data alone.
    pub(super) serial_init: bool,
    /// Randomness for the data.
    pub(super) random: Random,
}

/// The region of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) name: &'static str,
    pub(super) bytes: u64,
    first_page: u32,
}

/// The open rows of a thread in its current slice, by page and op.
#[derive(Clone, Debug)]
struct MissSlice {
    /// Per open row: twice the page, plus 1 for stores; 0 for no row. They are apart from the rows,
    /// so that a look-up is a few vector comparisons.
    keys: [u32; OPEN_ROWS_MAX],
    rows: [OpenRow; OPEN_ROWS_MAX],
    /// The row that is closed next when a new one is needed.
    oldest: usize,
    began_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpenRow {
    first_ns: u64,
    line: u32,
    count: u32,
}

#[derive(Clone, Debug)]
struct TeamThread {
    processor: usize,
    /// Its time; out of date while the thread is working.
    clock_ns: u64,
    slice: MissSlice,
}

/// A team of threads, one of which is working.
#[derive(Clone, Debug)]
pub(super) struct Team {
    caches: Caches,
    threads: Vec<TeamThread>,
    working: usize,
    /// The time of the working thread.
    clock_ns: u64,
    regions: Vec<Region>,
    /// By page: the number of its region.
    region_of: Vec<u32>,
    /// By page: its references, and the misses among them.
    referenced: Vec<u64>,
    missed: Vec<u64>,
    sites: Vec<&'static str>,
    site: u32,
    slice_ns: u64,
    serial_init: bool,
    random: Random,
    /// The rows of the current construct, in order of threads' quanta.
    rows: Vec<AccessRow>,
    /// The rows of completed constructs, in order of time.
    finished: Vec<AccessRow>,
}

/// The units of a thread out of `n`: contiguous, and of sizes that differ by at most one.
pub(super) fn share(n: usize, threads: usize, thread: usize) -> Range<usize> {
    n * thread / threads..n * (thread + 1) / threads
}

impl Team {
    pub(super) fn new(settings: &TeamSettings) -> Team {
        let threads = settings.threads;
        let slice = MissSlice {
            keys: [0; OPEN_ROWS_MAX],
            rows: [OpenRow::default(); OPEN_ROWS_MAX],
            oldest: 0,
            began_ns: 0,
        };
        let mut random = settings.random.clone();
        let mut caches = Caches::new(threads, settings.l1_ways, settings.l2_kib, random.bits());
        // Page 0 is never used, as in a process.
        caches.extend(1);
        Team {
            caches,
            threads: (0..threads)
                .map(|thread| TeamThread {
                    processor: thread,
                    clock_ns: 0,
                    slice: slice.clone(),
                })
                .collect(),
            working: 0,
            clock_ns: 0,
            regions: Vec::new(),
            region_of: vec![u32::MAX],
            referenced: vec![0],
            missed: vec![0],
            sites: Vec::new(),
            site: 0,
            slice_ns: settings.slice_ns,
            serial_init: settings.serial_init,
            random,
            rows: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Lays out a region on pages of its own, which nobody has touched. Returns its first line.
    pub(super) fn add_region(&mut self, name: &'static str, bytes: usize) -> u32 {
        let first_page = self.region_of.len() as u32;
        let region = self.regions.len() as u32;
        let pages = first_page as usize + bytes.div_ceil(PAGE_BYTES);
        self.region_of.resize(pages, region);
        self.referenced.resize(pages, 0);
        self.missed.resize(pages, 0);
        self.caches.extend(pages as u32);
        self.regions.push(Region {
            name,
            bytes: bytes as u64,
            first_page,
        });
        first_page * PAGE_LINES
    }

    /// Randomness for the data.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The number of threads.
    pub(super) fn size(&self) -> usize {
        self.threads.len()
    }

    /// Whether thread 0 initialises all data.
    pub(super) fn initialises_serially(&self) -> bool {
        self.serial_init
    }

    /// The working thread.
    pub(super) fn thread(&self) -> usize {
        self.working
    }

    pub(super) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The references to the pages of a region so far, and the misses among them.
    pub(super) fn references(&self, region: &Region) -> (&[u64], &[u64]) {
        let first = region.first_page as usize;
        let pages = first..first + (region.bytes as usize).div_ceil(PAGE_BYTES);
        (&self.referenced[pages.clone()], &self.missed[pages])
    }

    /// The names of the constructs so far. The `site` of a row is an index into them.
    pub(super) fn sites(&self) -> &[&'static str] {
        &self.sites
    }

    /// Changes the length of slices.
    #[cfg(test)]
    pub(super) fn slice(&mut self, slice_ns: u64) {
        self.slice_ns = slice_ns;
    }

    /// Takes the rows of the constructs since the last call, in order of time.
    pub(super) fn take_rows(&mut self) -> Vec<AccessRow> {
        std::mem::take(&mut self.finished)
    }

    /// The working thread loads from a line.
    #[inline(always)]
    pub(super) fn load(&mut self, line: u32) {
        self.clock_ns += ACCESS_NS;
        self.referenced[(line / PAGE_LINES) as usize] += 1;
        let served = self.caches.load(line);
        if served != ServedBy::L1 {
            self.pay(line, served, false);
        }
    }

    /// The working thread stores to a line.
    #[inline(always)]
    pub(super) fn store(&mut self, line: u32) {
        self.clock_ns += ACCESS_NS;
        self.referenced[(line / PAGE_LINES) as usize] += 1;
        let served = self.caches.store(line);
        if served != ServedBy::L1 {
            self.pay(line, served, true);
        }
    }

    #[inline(never)]
    fn pay(&mut self, line: u32, served: ServedBy, store: bool) {
        let before_ns = self.clock_ns;
        self.clock_ns += match served {
            ServedBy::L1 => 0,
            ServedBy::L2 => L2_EXTRA_NS,
            ServedBy::Upgrade | ServedBy::Memory => MEMORY_EXTRA_NS,
        };
        if served == ServedBy::Memory {
            self.missed(line, store, before_ns);
        }
    }

    fn missed(&mut self, line: u32, store: bool, first_ns: u64) {
        self.missed[(line / PAGE_LINES) as usize] += 1;
        let key = line / PAGE_LINES * 2 + u32::from(store);
        let slice = &mut self.threads[self.working].slice;
        if let Some(at) = slice.keys.iter().position(|&open| open == key) {
            slice.rows[at].count += 1;
            return;
        }
        let at = slice.oldest;
        self.close(at);
        let slice = &mut self.threads[self.working].slice;
        slice.oldest = (at + 1) % OPEN_ROWS_MAX;
        slice.keys[at] = key;
        slice.rows[at] = OpenRow {
            first_ns,
            line,
            count: 1,
        };
    }

    /// Turns an open row of the working thread into a row of the construct.
    fn close(&mut self, at: usize) {
        let thread = &mut self.threads[self.working];
        let key = std::mem::take(&mut thread.slice.keys[at]);
        if key == 0 {
            return;
        }
        let open = thread.slice.rows[at];
        let region = self.region_of[(open.line / PAGE_LINES) as usize];
        let first_line = self.regions[region as usize].first_page * PAGE_LINES;
        self.rows.push(AccessRow {
            time_ns: open.first_ns,
            thread: self.working as u32,
            site: self.site,
            object: region,
            op: if key % 2 == 1 {
                RowOp::Store
            } else {
                RowOp::Load
            },
            offset: u64::from(open.line - first_line) * LINE_BYTES as u64,
            length: LINE_BYTES as u64,
            count: open.count,
            ..AccessRow::default()
        });
    }

    /// Closes all open rows of the working thread and starts its next slice.
    fn end_slice(&mut self) {
        (0..OPEN_ROWS_MAX).for_each(|at| self.close(at));
        let slice = &mut self.threads[self.working].slice;
        (slice.oldest, slice.began_ns) = (0, self.clock_ns);
    }

    /// Makes `thread` the working one.
    pub(super) fn switch(&mut self, thread: usize) {
        self.threads[self.working].clock_ns = self.clock_ns;
        self.working = thread;
        self.clock_ns = self.threads[thread].clock_ns;
        self.caches.switch(self.threads[thread].processor);
    }

    /// Runs a construct: each thread runs its units in order.
    pub(super) fn parallel(
        &mut self,
        name: &'static str,
        units: impl FnMut(usize) -> Range<usize>,
        body: impl FnMut(&mut Team, usize),
    ) {
        self.work(name, units, body);
        self.barrier();
    }

    pub(super) fn work(
        &mut self,
        name: &'static str,
        units: impl FnMut(usize) -> Range<usize>,
        mut body: impl FnMut(&mut Team, usize),
    ) {
        let known = self.sites.iter().position(|&site| site == name);
        self.site = known.unwrap_or(self.sites.len()) as u32;
        if known.is_none() {
            self.sites.push(name);
        }
        let mut left: Vec<Range<usize>> = (0..self.size()).map(units).collect();
        loop {
            self.threads[self.working].clock_ns = self.clock_ns;
            let waiting = (0..self.size()).filter(|&thread| !left[thread].is_empty());
            let behind = waiting.min_by_key(|&thread| self.threads[thread].clock_ns);
            let Some(thread) = behind else { return };
            self.switch(thread);
            let until_ns = self.clock_ns + QUANTUM_NS;
            for unit in left[thread].by_ref() {
                body(self, unit);
                if self.clock_ns >= until_ns {
                    break;
                }
            }
            if self.clock_ns - self.threads[thread].slice.began_ns >= self.slice_ns {
                self.end_slice();
            }
        }
    }

    /// Ends a construct: all threads get the same time, and its rows are sorted.
    pub(super) fn barrier(&mut self) {
        for thread in 0..self.size() {
            self.switch(thread);
            self.end_slice();
        }
        self.switch(0);
        let last_ns = self.threads.iter().map(|thread| thread.clock_ns).max();
        let now_ns = last_ns.unwrap_or_default().max(self.clock_ns) + BARRIER_NS;
        for thread in &mut self.threads {
            (thread.clock_ns, thread.slice.began_ns) = (now_ns, now_ns);
        }
        self.clock_ns = now_ns;
        self.rows.sort_by_key(|row| row.time_ns);
        self.finished.append(&mut self.rows);
        self.finished.push(AccessRow {
            site: self.site,
            ..AccessRow::mark(EpochKind::Construct, now_ns)
        });
    }

    /// The time between constructs.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Moves threads to other nodes; each node keeps its number of threads. A thread that stays on
    /// its node keeps its processor. A thread that moves gets a processor that another one left,
    /// with its caches.
    pub(super) fn moved(&mut self, before: &[u32], after: &[u32]) {
        let moving = || (0..before.len()).filter(|&thread| before[thread] != after[thread]);
        let mut free: Vec<(u32, usize)> = moving()
            .map(|thread| (before[thread], self.threads[thread].processor))
            .collect();
        for thread in moving() {
            let left = free.iter().position(|&(node, _)| node == after[thread]);
            let (_, processor) = free.remove(left.expect("a node has as many threads as before"));
            self.threads[thread].processor = processor;
        }
        self.caches.switch(self.threads[self.working].processor);
    }

    /// Runs a construct over `outer` times `inner` units. The outer range is shared out in blocks.
    pub(super) fn grid(
        &mut self,
        name: &'static str,
        outer: Range<usize>,
        inner: Range<usize>,
        mut body: impl FnMut(&mut Team, usize, usize),
    ) {
        let (threads, rows, columns) = (self.size(), outer.len(), inner.len());
        self.parallel(
            name,
            |thread| {
                let rows = share(rows, threads, thread);
                rows.start * columns..rows.end * columns
            },
            |team, unit| {
                body(
                    team,
                    outer.start + unit / columns,
                    inner.start + unit % columns,
                )
            },
        );
    }

    /// Like [`Team::grid`], but thread 0 does it all if the settings say so.
    pub(super) fn initialise(
        &mut self,
        name: &'static str,
        outer: Range<usize>,
        inner: Range<usize>,
        mut body: impl FnMut(&mut Team, usize, usize),
    ) {
        if !self.serial_init {
            return self.grid(name, outer, inner, body);
        }
        let (units, columns) = (outer.len() * inner.len(), inner.len());
        self.parallel(
            name,
            |thread| if thread == 0 { 0..units } else { 0..0 },
            |team, unit| {
                body(
                    team,
                    outer.start + unit / columns,
                    inner.start + unit % columns,
                )
            },
        );
    }

    /// Runs a construct over `n` elements, shared out in blocks. A unit is `chunk` elements.
    pub(super) fn chunks(
        &mut self,
        name: &'static str,
        n: usize,
        chunk: usize,
        mut body: impl FnMut(&mut Team, Range<usize>),
    ) {
        let threads = self.size();
        self.parallel(
            name,
            |thread| 0..share(n, threads, thread).len().div_ceil(chunk),
            |team, unit| {
                let share = share(n, threads, team.working);
                let start = share.start + unit * chunk;
                body(team, start..share.end.min(start + chunk));
            },
        );
    }

    /// Like [`Team::chunks`], but thread 0 does it all if the settings say so.
    pub(super) fn initialise_chunks(
        &mut self,
        name: &'static str,
        n: usize,
        chunk: usize,
        mut body: impl FnMut(&mut Team, Range<usize>),
    ) {
        if !self.serial_init {
            return self.chunks(name, n, chunk, body);
        }
        self.parallel(
            name,
            |thread| 0..if thread == 0 { n.div_ceil(chunk) } else { 0 },
            |team, unit| body(team, unit * chunk..n.min((unit + 1) * chunk)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::array::Array;
    use super::super::testing::team;
    use super::*;

    #[test]
    fn shares_are_contiguous_and_even() {
        for (n, threads) in [(10, 3), (2, 5), (0, 4), (64, 64)] {
            let shares: Vec<_> = (0..threads)
                .map(|thread| share(n, threads, thread))
                .collect();
            assert!(shares.iter().flat_map(Clone::clone).eq(0..n));
            let sizes = shares.iter().map(ExactSizeIterator::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }

    /// Three threads store to a page each, then load from each other's pages. By hand: 1 + 100 ns
    /// per miss.
    #[test]
    fn rows_say_who_missed_where_and_when() {
        let mut team = team(3);
        let mut array: Array<f64> = team.array("x", 3 * PAGE_BYTES / 8);
        team.grid("write", 0..3, 0..1, |team, page, _| {
            (0..16).for_each(|at| array.store(team, page * PAGE_BYTES / 8 + at, 1.0));
        });
        let rows = team.take_rows();
        let region = team.regions()[0];
        assert_eq!(team.references(&region), (&[16; 3][..], &[2; 3][..]));
        let expected = |thread: u32| AccessRow {
            time_ns: 1,
            thread,
            op: RowOp::Store,
            offset: u64::from(thread) * PAGE_BYTES as u64,
            length: 64,
            // 128 bytes are two lines.
            count: 2,
            ..AccessRow::default()
        };
        // 14 hits, two misses, and the barrier.
        let mark = AccessRow::mark(EpochKind::Construct, 14 + 2 * 101 + BARRIER_NS);
        assert_eq!(rows, [expected(0), expected(1), expected(2), mark]);
        let mut partial = team.array("partial", 3);
        let sum = team.sum("read", &mut partial, 3, 1, |team, pages| {
            let values = pages.map(|page| array.load(team, (page + 1) % 3 * PAGE_BYTES / 8));
            values.sum()
        });
        assert_eq!(sum, 3.0);
        let rows = team.take_rows();
        let of = |op: RowOp, object: u32| {
            let rows = rows
                .iter()
                .filter(move |row| (row.op, row.object) == (op, object));
            rows.map(|row| (row.thread, row.offset, row.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(RowOp::Load, 0), [(0, 4096, 1), (1, 8192, 1), (2, 0, 1)]);
        // The partial sums share a line: every thread fetches it, and the first one fetches it
        // again.
        assert_eq!(of(RowOp::Store, 1), [(0, 0, 1), (1, 0, 1), (2, 0, 1)]);
        assert_eq!(of(RowOp::Load, 1), [(0, 0, 1)]);
    }

    #[test]
    fn who_moves_gets_a_processor_that_was_left_and_its_caches() {
        let mut team = team(4);
        let array: Array<f64> = team.array("x", 8);
        let owner = |team: &mut Team, thread: usize| {
            team.parallel(
                "load",
                |other| 0..usize::from(other == thread),
                |team, _| assert_eq!(array.load(team, 0), 0.0),
            );
            team.take_rows().len() - 1
        };
        assert_eq!(owner(&mut team, 0), 1);
        assert_eq!(owner(&mut team, 0), 0);
        team.moved(&[0, 0, 1, 1], &[1, 0, 0, 1]);
        // Thread 2 runs on the processor of thread 0.
        assert_eq!(owner(&mut team, 2), 0);
        assert_eq!(owner(&mut team, 0), 1);
        let mut processors: Vec<usize> = team.threads.iter().map(|t| t.processor).collect();
        assert_eq!(processors, [2, 1, 0, 3]);
        team.moved(&[1, 0, 0, 1], &[0, 1, 1, 0]);
        processors = team.threads.iter().map(|thread| thread.processor).collect();
        processors.sort_unstable();
        assert_eq!(processors, [0, 1, 2, 3]);
    }
}
