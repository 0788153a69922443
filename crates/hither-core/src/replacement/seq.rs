//! SEQ: LRU, except that pages of long sequences of faults are evicted first, and of these the
//! latest but a few: MRU replacement for what a program scans. A sequence is a run of misses on
//! consecutive pages of one object, upwards or downwards.
//!
//! Source: Glass and Cao, "Adaptive page replacement based on memory reference behavior",
//! SIGMETRICS 1997, with its L = 20 (`length`), M = 20 (`behind`), N = 5 (`nth`) and 200 sequences.
//! A miss extends the sequence that it continues; a miss inside a sequence cuts it off there and
//! begins another one. When a page has to be evicted: of the sequences of at least L pages, the one
//! whose N-th last miss is the latest gives the resident page that is nearest to its head and at
//! least M pages away. If none can, the least recently used page is evicted. Here pages are blocks,
//! and addresses are positions in an object.
//!
//! Readings in cases that the paper leaves open: where a miss continues two sequences, the one that
//! grew last is extended and the other is forgotten. A sequence that another one runs into is
//! forgotten too. When there are too many sequences, the one that grew longest ago is forgotten,
//! among those shorter than L, then 2L, 4L and so on. A page belongs to the sequence that its last
//! miss extended, until it is cut off. Departure: the sequences of all processes are kept together,
//! since their objects distinguish them.

use super::Replacement;
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};
use crate::ids::Slot;
use crate::list::{Links, List, NIL};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "seq",
    summary: "LRU, but long sequences of misses lose their latest blocks first",
    source: "Glass and Cao, SIGMETRICS 1997",
    params: PARAMS,
    needs: Needs {
        objects: true,
        ..Needs::NOTHING
    },
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

const PARAMS: &[Param] = &[
    Param::count(
        "length",
        "the number of blocks from which a sequence is long",
        20,
        1..=1 << 30,
    ),
    Param::count(
        "behind",
        "how far behind the head of a sequence its blocks may be evicted",
        20,
        0..=1 << 30,
    ),
    Param::count(
        "nth",
        "which miss of a sequence, counted back from the last as 1, says how recent it is",
        5,
        1..=64,
    ),
    Param::count(
        "sequences",
        "the most sequences remembered at a time",
        200,
        1..=4096,
    ),
];

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let config = SeqConfig {
        length: values.count(0) as u32,
        behind: values.count(1) as u32,
        nth: values.count(2) as usize,
        sequences: values.count(3) as usize,
    };
    Box::new(Seq::new(settings.capacity, config))
}

/// The parameters of SEQ.
#[derive(Clone, Copy, Debug)]
pub struct SeqConfig {
    /// L: the number of blocks from which a sequence is long.
    pub length: u32,
    /// M: how far behind the head its blocks may be evicted.
    pub behind: u32,
    /// N: which miss, counted back, says how recent it is.
    pub nth: usize,
    /// The most sequences remembered.
    pub sequences: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// It has a single page so far.
    None,
    Up,
    Down,
}

#[derive(Clone, Debug)]
struct Sequence {
    object: u32,
    low: u32,
    high: u32,
    direction: Direction,
    /// Resident pages less than M from the head, and the others; the nearest to the head in front.
    /// Over slots.
    near: List,
    far: List,
    /// The times of the last N misses, in a ring; 0 is none. Time is counted in misses.
    misses: Vec<u64>,
    latest: usize,
    /// The time of the last miss, and of the N-th last.
    last_miss: u64,
    nth_last_miss: u64,
}

impl Sequence {
    fn head(&self) -> u32 {
        match self.direction {
            Direction::Down => self.low,
            _ => self.high,
        }
    }

    /// How far a page is behind the head; negative for pages ahead of it.
    fn distance(&self, page: u32) -> i64 {
        let ahead = i64::from(self.head()) - i64::from(page);
        match self.direction {
            Direction::Down => -ahead,
            _ => ahead,
        }
    }

    fn length(&self) -> u64 {
        u64::from(self.high) - u64::from(self.low) + 1
    }

    fn start(&self) -> u64 {
        address(self.object, self.low)
    }
}

/// Positions of all objects in one order.
fn address(object: u32, page: u32) -> u64 {
    u64::from(object) << 32 | u64::from(page)
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Seq {
    config: SeqConfig,
    now: u64,
    sequences: Vec<Sequence>,
    /// Unused indices of `sequences`.
    free: Vec<u32>,
    /// The sequences by their first page. They do not overlap.
    order: Vec<(u64, u32)>,
    /// The sequences shorter than L, over indices; the one that grew last in front.
    short: List,
    short_links: Links,
    /// The others.
    long: Vec<u32>,
    /// By slot.
    page: Vec<u32>,
    sequence_of: Vec<u32>,
    recency_links: Links,
    recency: List,
    sequence_links: Links,
}

impl Seq {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, config: SeqConfig) -> Self {
        Seq {
            config,
            now: 0,
            sequences: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            short: List::default(),
            short_links: Links::default(),
            long: Vec::new(),
            page: vec![0; capacity as usize],
            sequence_of: vec![NIL; capacity as usize],
            recency_links: Links::new(capacity as usize),
            recency: List::default(),
            sequence_links: Links::new(capacity as usize),
        }
    }

    /// The sequence at `place` of the order, if it is in `object`.
    fn at(&self, place: Option<usize>, object: u32) -> Option<u32> {
        let &(_, id) = self.order.get(place?)?;
        (self.sequence(id).object == object).then_some(id)
    }

    /// Handles a miss on `page` of `object`, which is now in `slot`.
    fn miss(&mut self, object: u32, page: u32, slot: u32) {
        self.now += 1;
        let here = address(object, page);
        let after = self.order.partition_point(|&(start, _)| start <= here);
        let before = after.checked_sub(1);
        let around = self
            .at(before, object)
            .filter(|&id| self.sequence(id).high >= page);
        let below = match around {
            Some(_) => before.and_then(|place| place.checked_sub(1)),
            None => before,
        };
        let mut up = self.at(below, object).filter(|&id| {
            let sequence = self.sequence(id);
            sequence.direction != Direction::Down && sequence.high.checked_add(1) == Some(page)
        });
        let mut down = self.at(Some(after), object).filter(|&id| {
            let sequence = self.sequence(id);
            sequence.direction != Direction::Up && sequence.low.checked_sub(1) == Some(page)
        });
        if let (Some(one), Some(other)) = (up, down) {
            let loser = if self.sequence(one).last_miss > self.sequence(other).last_miss {
                &mut down
            } else {
                &mut up
            };
            let id = loser.take().expect("both are there");
            self.forget(id);
        }
        if let Some(id) = up.or(down) {
            if let Some(around) = around {
                self.forget(around);
            }
            let place = self.place(id);
            let short = self.is_short(id);
            let sequence = &mut self.sequences[id as usize];
            if up.is_some() {
                sequence.high = page;
                sequence.direction = Direction::Up;
            } else {
                sequence.low = page;
                sequence.direction = Direction::Down;
                self.order[place].0 = here;
            }
            self.join(id, slot);
            if short {
                self.short.remove(&mut self.short_links, id);
                self.file(id);
            }
        } else {
            if let Some(around) = around {
                self.cut(around, page);
            }
            let id = self.begin(object, page);
            self.join(id, slot);
            self.file(id);
        }
    }

    fn sequence(&self, id: u32) -> &Sequence {
        &self.sequences[id as usize]
    }

    fn is_short(&self, id: u32) -> bool {
        self.sequence(id).length() < u64::from(self.config.length)
    }

    /// Enters a sequence into the list of short or of long ones; it is in neither.
    fn file(&mut self, id: u32) {
        if !self.is_short(id) {
            self.long.push(id);
            return;
        }
        let last = self.sequence(id).last_miss;
        // It grew last of all, unless it was just cut off.
        let newer = |&other: &u32| self.sequences[other as usize].last_miss > last;
        let short = self.short.iter(&self.short_links);
        let before = short.take_while(newer).last();
        match before {
            None => self.short.push_front(&mut self.short_links, id),
            Some(before) => self.short.insert_after(&mut self.short_links, before, id),
        }
    }

    /// The key of a sequence in the order.
    fn place(&self, id: u32) -> usize {
        let start = self.sequence(id).start();
        self.order
            .binary_search_by_key(&start, |&(start, _)| start)
            .expect("every sequence is in the order")
    }

    /// Adds the page that was just missed, its head, to a sequence.
    fn join(&mut self, id: u32, slot: u32) {
        let sequence = &mut self.sequences[id as usize];
        sequence.latest = (sequence.latest + 1) % sequence.misses.len();
        sequence.misses[sequence.latest] = self.now;
        sequence.last_miss = self.now;
        sequence.nth_last_miss = sequence.misses[(sequence.latest + 1) % sequence.misses.len()];
        self.sequence_of[slot as usize] = id;
        sequence.near.push_front(&mut self.sequence_links, slot);
        while let Some(slot) = sequence.near.back() {
            if sequence.distance(self.page[slot as usize]) < i64::from(self.config.behind) {
                break;
            }
            sequence.near.remove(&mut self.sequence_links, slot);
            sequence.far.push_front(&mut self.sequence_links, slot);
        }
    }

    /// Cuts `page` and all that follows it off a sequence.
    fn cut(&mut self, id: u32, page: u32) {
        let place = self.place(id);
        let sequence = &mut self.sequences[id as usize];
        let none_left = match sequence.direction {
            Direction::None => true,
            Direction::Up => sequence.low == page,
            Direction::Down => sequence.high == page,
        };
        if none_left {
            self.forget(id);
            return;
        }
        let was_short = sequence.length() < u64::from(self.config.length);
        if sequence.direction == Direction::Up {
            sequence.high = page - 1;
        } else {
            sequence.low = page + 1;
            self.order[place].0 = sequence.start();
        }
        // Pages ahead of the new head belong to no sequence, and some that were far are now near.
        for nearest in [true, false] {
            let list = if nearest { sequence.near } else { sequence.far };
            let mut list = list;
            while let Some(slot) = list.front() {
                if sequence.distance(self.page[slot as usize]) >= 0 {
                    break;
                }
                list.remove(&mut self.sequence_links, slot);
                self.sequence_of[slot as usize] = NIL;
            }
            if nearest {
                sequence.near = list;
            } else {
                sequence.far = list;
            }
        }
        while let Some(slot) = sequence.far.front() {
            if sequence.distance(self.page[slot as usize]) >= i64::from(self.config.behind) {
                break;
            }
            sequence.far.remove(&mut self.sequence_links, slot);
            sequence.near.push_back(&mut self.sequence_links, slot);
        }
        if !was_short && self.is_short(id) {
            self.long.retain(|&other| other != id);
            self.file(id);
        }
    }

    fn begin(&mut self, object: u32, page: u32) -> u32 {
        if self.order.len() == self.config.sequences {
            let stale = self.short.back().unwrap_or_else(|| self.stalest_long());
            self.forget(stale);
        }
        let sequence = Sequence {
            object,
            low: page,
            high: page,
            direction: Direction::None,
            near: List::default(),
            far: List::default(),
            misses: Vec::new(),
            latest: 0,
            last_miss: 0,
            nth_last_miss: 0,
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.sequences.push(sequence.clone());
            let id = self.sequences.len() as u32 - 1;
            self.short_links.cover(id);
            id
        });
        let before = &mut self.sequences[id as usize];
        let mut misses = std::mem::take(&mut before.misses);
        misses.clear();
        misses.resize(self.config.nth, 0);
        *before = Sequence { misses, ..sequence };
        let start = address(object, page);
        let place = self.order.partition_point(|&(other, _)| other < start);
        self.order.insert(place, (start, id));
        id
    }

    /// The sequence that grew longest ago, among those shorter than 2L, else 4L and so on.
    #[cold]
    fn stalest_long(&self) -> u32 {
        let ages = self.long.iter().map(|&id| {
            let sequence = self.sequence(id);
            // The largest n for which it has 2^n times L pages, without a division.
            let (length, long) = (sequence.length(), u64::from(self.config.length));
            let log = length.ilog2() - long.ilog2();
            let log = log - u32::from(long << log > length);
            ((log, sequence.last_miss), id)
        });
        ages.min().expect("there are too many").1
    }

    fn forget(&mut self, id: u32) {
        if self.is_short(id) {
            self.short.remove(&mut self.short_links, id);
        } else {
            self.long.retain(|&other| other != id);
        }
        let place = self.place(id);
        self.order.remove(place);
        self.free.push(id);
        let sequence = &self.sequences[id as usize];
        for list in [&sequence.near, &sequence.far] {
            for slot in list.iter(&self.sequence_links) {
                self.sequence_of[slot as usize] = NIL;
            }
        }
    }

    /// Removes a block that leaves the cache from its sequence.
    fn leave(&mut self, slot: u32) {
        let id = std::mem::replace(&mut self.sequence_of[slot as usize], NIL);
        if id == NIL {
            return;
        }
        let sequence = &mut self.sequences[id as usize];
        let distance = sequence.distance(self.page[slot as usize]);
        let list = if distance < i64::from(self.config.behind) {
            &mut sequence.near
        } else {
            &mut sequence.far
        };
        list.remove(&mut self.sequence_links, slot);
    }

    /// The victim of the most recent long sequence.
    fn sequential_victim(&self) -> Option<u32> {
        let sequences = self.long.iter().map(|&id| self.sequence(id));
        sequences
            .filter(|sequence| !sequence.far.is_empty())
            .max_by_key(|sequence| (sequence.nth_last_miss, sequence.last_miss))
            .and_then(|sequence| sequence.far.front())
    }
}

impl Replacement for Seq {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.recency.touch(&mut self.recency_links, slot.0);
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let slot = self
            .sequential_victim()
            .or_else(|| self.recency.back())
            .expect("a full cache has a block");
        self.removed(Slot(slot));
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        self.recency.push_front(&mut self.recency_links, slot.0);
        self.page[slot.index()] = access.index;
        self.miss(access.object.0, access.index, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        self.recency.remove(&mut self.recency_links, slot.0);
        self.leave(slot.0);
    }

    fn check(&self, resident: usize) {
        self.recency.check(&self.recency_links);
        assert_eq!(self.recency.len(), resident);
        assert!(self.order.len() <= self.config.sequences);
        assert_eq!(self.order.len() + self.free.len(), self.sequences.len());
        self.short.check(&self.short_links);
        let mut last = u64::MAX;
        for id in self.short.iter(&self.short_links) {
            assert!(self.is_short(id));
            assert!(self.sequence(id).last_miss < last);
            last = self.sequence(id).last_miss;
        }
        assert!(self.long.iter().all(|&id| !self.is_short(id)));
        assert_eq!(self.short.len() + self.long.len(), self.order.len());
        let mut members = 0;
        for pair in self.order.windows(2) {
            let sequence = self.sequence(pair[0].1);
            assert!(address(sequence.object, sequence.high) < pair[1].0);
        }
        for &(start, id) in &self.order {
            let sequence = self.sequence(id);
            assert_eq!(sequence.start(), start);
            assert!(sequence.low <= sequence.high);
            let mut before = 0;
            for (list, near) in [(&sequence.near, true), (&sequence.far, false)] {
                list.check(&self.sequence_links);
                members += list.len();
                for slot in list.iter(&self.sequence_links) {
                    let page = self.page[slot as usize];
                    let distance = sequence.distance(page);
                    assert_eq!(self.sequence_of[slot as usize], id);
                    assert!((sequence.low..=sequence.high).contains(&page));
                    assert!(distance >= before, "slot {slot} is out of order");
                    assert_eq!(distance < i64::from(self.config.behind), near);
                    before = distance;
                }
            }
        }
        let of_sequences = self.sequence_of.iter().filter(|&&id| id != NIL).count();
        assert_eq!(of_sequences, members);
    }
}
