//! A cache of bytes, and policies for it, without any clever structure. Lists have the oldest
//! first.

use super::Ranks;
use hither_core::{Access, Block, Life, Op};
use std::collections::BTreeMap;

/// The contents of a cache of bytes.
pub(crate) struct NaiveObjects {
    capacity: u64,
    ranks: Box<dyn Ranks>,
    objects: BTreeMap<u32, Resident>,
}

/// An object in the cache.
struct Resident {
    bytes: u64,
    /// The last time at which it is of use.
    end_ns: u64,
}

impl NaiveObjects {
    pub(crate) fn new(capacity: u64, ranks: Box<dyn Ranks>) -> Self {
        NaiveObjects {
            capacity,
            ranks,
            objects: BTreeMap::new(),
        }
    }

    /// Whether the object was there.
    pub(crate) fn access(&mut self, access: &Access, life: Life) -> bool {
        let end_ns = match life.ttl_ns {
            0 => u64::MAX,
            ttl => life.now_ns + ttl,
        };
        let mut hit = false;
        if let Some(resident) = self.objects.get_mut(&access.block.0) {
            let write = access.op == Op::Write;
            hit = access.op != Op::Delete && resident.end_ns >= life.now_ns;
            if hit && !(write && resident.bytes != access.bytes) {
                if write {
                    resident.end_ns = end_ns;
                }
                self.ranks.hit(access);
                return true;
            }
            self.objects.remove(&access.block.0);
            self.ranks.remove(access.block);
        }
        let fits = access.bytes <= self.capacity && access.op != Op::Delete;
        if fits && self.ranks.admits(access) {
            while self.used() + access.bytes > self.capacity {
                let victim = self.ranks.evict(access);
                self.objects.remove(&victim.0).expect("the victim is in");
            }
            let bytes = access.bytes;
            self.objects
                .insert(access.block.0, Resident { bytes, end_ns });
            self.ranks.insert(access);
        }
        hit
    }

    fn used(&self) -> u64 {
        self.objects.values().map(|resident| resident.bytes).sum()
    }
}

/// An object and its bytes.
type Sized = (Block, u64);

fn bytes(list: &[Sized]) -> u64 {
    list.iter().map(|(_, bytes)| bytes).sum()
}

/// Takes an object out of a list.
fn take(list: &mut Vec<Sized>, block: Block) -> Option<Sized> {
    let at = list.iter().position(|&(other, _)| other == block)?;
    Some(list.remove(at))
}

/// Drops the oldest until those that are left have at most `limit` bytes.
fn cut(list: &mut Vec<Sized>, limit: u64) {
    while bytes(list) > limit {
        list.remove(0);
    }
}

/// `part` of `capacity`, but at least one byte.
fn share(capacity: u64, part: f64) -> u64 {
    ((capacity as f64 * part) as u64).max(1)
}

/// LRU, FIFO, MRU and CLOCK: each object with its rounds.
#[derive(Default)]
pub(crate) struct NaiveQueue {
    moves: bool,
    newest: bool,
    bits: u64,
    queue: Vec<Sized>,
}

impl NaiveQueue {
    pub(crate) fn new(moves: bool, newest: bool) -> Self {
        NaiveQueue {
            moves,
            newest,
            ..NaiveQueue::default()
        }
    }

    pub(crate) fn clock(bits: u64) -> Self {
        NaiveQueue {
            bits,
            ..NaiveQueue::default()
        }
    }
}

impl Ranks for NaiveQueue {
    fn hit(&mut self, access: &Access) {
        if self.moves {
            self.remove(access.block);
            self.insert(access);
        }
        for (block, rounds) in &mut self.queue {
            if *block == access.block {
                *rounds = self.bits;
            }
        }
    }

    fn evict(&mut self, _: &Access) -> Block {
        if self.newest {
            return self.queue.pop().expect("there are some").0;
        }
        loop {
            match self.queue.remove(0) {
                (block, 0) => return block,
                (block, rounds) => self.queue.push((block, rounds - 1)),
            }
        }
    }

    fn insert(&mut self, access: &Access) {
        self.queue.push((access.block, 0));
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.queue, block);
    }
}

/// SIEVE: each object with whether it was used.
#[derive(Default)]
pub(crate) struct NaiveSieve {
    queue: Vec<(Block, bool)>,
    hand: usize,
}

impl NaiveSieve {
    fn take(&mut self, at: usize) -> Block {
        self.hand -= usize::from(at < self.hand);
        let (block, _) = self.queue.remove(at);
        if self.hand >= self.queue.len() {
            self.hand = 0;
        }
        block
    }
}

impl Ranks for NaiveSieve {
    fn hit(&mut self, access: &Access) {
        for (block, used) in &mut self.queue {
            *used |= *block == access.block;
        }
    }

    fn evict(&mut self, _: &Access) -> Block {
        while std::mem::take(&mut self.queue[self.hand].1) {
            self.hand = (self.hand + 1) % self.queue.len();
        }
        self.take(self.hand)
    }

    fn insert(&mut self, access: &Access) {
        self.queue.push((access.block, false));
    }

    fn remove(&mut self, block: Block) {
        if let Some(at) = self.queue.iter().position(|&(other, _)| other == block) {
            self.take(at);
        }
    }
}

/// What [`NaiveValues`] ranks by.
#[derive(Clone, Copy)]
pub(crate) enum Ranking {
    Uses,
    AgedUses,
    AgedUsesPerByte,
    /// With five significant bits.
    AgedCostPerByte,
}

/// LFU, LFU-DA, GDSF and CAMP: each object with its value, last reference, uses and bytes.
pub(crate) struct NaiveValues {
    ranking: Ranking,
    age: f64,
    objects: Vec<(Block, f64, u64, f64, u64)>,
}

impl NaiveValues {
    pub(crate) fn new(ranking: Ranking) -> Self {
        NaiveValues {
            ranking,
            age: 0.0,
            objects: Vec::new(),
        }
    }

    fn refer(&mut self, access: &Access, uses: f64, bytes: u64) {
        let value = match self.ranking {
            Ranking::Uses => uses,
            Ranking::AgedUses => self.age + uses,
            Ranking::AgedUsesPerByte => {
                self.age + uses * f64::from(access.cost) * 1e6 / bytes.max(1) as f64
            }
            Ranking::AgedCostPerByte => {
                let value = f64::from(access.cost) / bytes.max(1) as f64;
                let last_bit = 2f64.powi(value.log2().floor() as i32 - 4);
                self.age + (value / last_bit).floor() * last_bit
            }
        };
        let object = (access.block, value, access.tick, uses, bytes);
        self.objects.push(object);
    }
}

impl Ranks for NaiveValues {
    fn hit(&mut self, access: &Access) {
        let mut objects = self.objects.iter();
        let at = objects.position(|object| object.0 == access.block);
        let (_, _, _, uses, bytes) = self.objects.remove(at.expect("it is in"));
        self.refer(access, uses + 1.0, bytes);
    }

    fn evict(&mut self, _: &Access) -> Block {
        let objects = self.objects.iter();
        let lowest = objects.min_by(|a, b| a.1.total_cmp(&b.1).then(a.2.cmp(&b.2)));
        let &(block, value, ..) = lowest.expect("there are some");
        self.age = value;
        self.remove(block);
        block
    }

    fn insert(&mut self, access: &Access) {
        self.refer(access, 1.0, access.bytes);
    }

    fn remove(&mut self, block: Block) {
        self.objects.retain(|object| object.0 != block);
    }
}

/// Segmented LRU, the lowest segment first.
pub(crate) struct NaiveSlru {
    segment_max: u64,
    lowest: bool,
    segments: Vec<Vec<Sized>>,
}

impl NaiveSlru {
    pub(crate) fn new(capacity: u64, segments: usize, lowest: bool) -> Self {
        NaiveSlru {
            segment_max: capacity / segments as u64,
            lowest,
            segments: vec![Vec::new(); segments],
        }
    }
}

impl Ranks for NaiveSlru {
    fn admits(&self, incoming: &Access) -> bool {
        incoming.bytes <= self.segment_max
    }

    fn hit(&mut self, access: &Access) {
        let top = self.segments.len() - 1;
        for at in 0..=top {
            if let Some(object) = take(&mut self.segments[at], access.block) {
                self.segments[top.min(at + 1)].push(object);
                break;
            }
        }
        for upper in (1..=top).rev() {
            while bytes(&self.segments[upper]) > self.segment_max {
                let least = self.segments[upper].remove(0);
                self.segments[upper - 1].push(least);
            }
        }
    }

    fn evict(&mut self, _: &Access) -> Block {
        let lists = self.segments.iter_mut();
        let mut filled = lists.filter(|list| !list.is_empty());
        filled.next().expect("one is filled").remove(0).0
    }

    fn insert(&mut self, access: &Access) {
        let mut lists = self.segments.iter();
        let room = lists.position(|list| bytes(list) + access.bytes <= self.segment_max);
        let at = room.filter(|_| !self.lowest).unwrap_or(0);
        self.segments[at].push((access.block, access.bytes));
    }

    fn remove(&mut self, block: Block) {
        for list in &mut self.segments {
            take(list, block);
        }
    }
}

/// S3-FIFO with its defaults.
pub(crate) struct NaiveS3Fifo {
    capacity: u64,
    small: Vec<Sized>,
    main: Vec<Sized>,
    ghosts: Vec<Sized>,
    uses: BTreeMap<Block, u64>,
    full_once: bool,
}

impl NaiveS3Fifo {
    pub(crate) fn new(capacity: u64) -> Self {
        NaiveS3Fifo {
            capacity,
            small: Vec::new(),
            main: Vec::new(),
            ghosts: Vec::new(),
            uses: BTreeMap::new(),
            full_once: false,
        }
    }

    fn small_max(&self) -> u64 {
        share(self.capacity, 0.1)
    }
}

impl Ranks for NaiveS3Fifo {
    fn admits(&self, incoming: &Access) -> bool {
        incoming.bytes <= self.small_max()
    }

    fn hit(&mut self, access: &Access) {
        *self.uses.get_mut(&access.block).expect("it is in") += 1;
    }

    fn evict(&mut self, _: &Access) -> Block {
        self.full_once = true;
        if bytes(&self.main) <= self.capacity - self.small_max() {
            while !self.small.is_empty() {
                let object = self.small.remove(0);
                if self.uses[&object.0] < 2 {
                    self.ghosts.push(object);
                    return object.0;
                }
                self.uses.insert(object.0, 0);
                self.main.push(object);
            }
        }
        loop {
            let object = self.main.remove(0);
            match self.uses[&object.0].min(3) {
                0 => return object.0,
                uses => self.uses.insert(object.0, uses - 1),
            };
            self.main.push(object);
        }
    }

    fn insert(&mut self, access: &Access) {
        let known = take(&mut self.ghosts, access.block).is_some();
        cut(&mut self.ghosts, share(self.capacity, 0.9));
        self.uses.insert(access.block, 0);
        let fills = !self.full_once && bytes(&self.small) >= self.small_max();
        let queue = if known || fills {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push((access.block, access.bytes));
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.small, block);
        take(&mut self.main, block);
    }
}

/// 2Q in the paper's names, with its defaults.
pub(crate) struct NaiveTwoQ {
    capacity: u64,
    a1in: Vec<Sized>,
    a1out: Vec<Sized>,
    am: Vec<Sized>,
}

impl NaiveTwoQ {
    pub(crate) fn new(capacity: u64) -> Self {
        NaiveTwoQ {
            capacity,
            a1in: Vec::new(),
            a1out: Vec::new(),
            am: Vec::new(),
        }
    }
}

impl Ranks for NaiveTwoQ {
    fn admits(&self, access: &Access) -> bool {
        access.bytes <= share(self.capacity, 0.25)
    }

    fn hit(&mut self, access: &Access) {
        if let Some(object) = take(&mut self.am, access.block) {
            self.am.push(object);
        }
    }

    fn evict(&mut self, _: &Access) -> Block {
        if bytes(&self.a1in) > share(self.capacity, 0.25) || self.am.is_empty() {
            let object = self.a1in.remove(0);
            if object.1 <= share(self.capacity, 0.5) {
                self.a1out.push(object);
            }
            object.0
        } else {
            self.am.remove(0).0
        }
    }

    fn insert(&mut self, access: &Access) {
        let known = take(&mut self.a1out, access.block).is_some();
        cut(&mut self.a1out, share(self.capacity, 0.5));
        let list = if known { &mut self.am } else { &mut self.a1in };
        list.push((access.block, access.bytes));
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.a1in, block);
        take(&mut self.am, block);
    }
}

/// ARC in the paper's names.
pub(crate) struct NaiveArc {
    c: f64,
    p: f64,
    /// Whether `p` was moved for the present newcomer.
    moved: bool,
    t1: Vec<Sized>,
    t2: Vec<Sized>,
    b1: Vec<Sized>,
    b2: Vec<Sized>,
}

impl NaiveArc {
    pub(crate) fn new(c: f64) -> Self {
        NaiveArc {
            c,
            p: 0.0,
            moved: false,
            t1: Vec::new(),
            t2: Vec::new(),
            b1: Vec::new(),
            b2: Vec::new(),
        }
    }

    fn move_p(&mut self, incoming: &Access) {
        let (x, size) = (incoming.block, incoming.bytes as f64);
        let (b1, b2) = (bytes(&self.b1) as f64, bytes(&self.b2) as f64);
        if self.b1.iter().any(|&(block, _)| block == x) {
            self.p = (self.p + size * (b2 / b1).max(1.0)).min(self.c);
        } else if self.b2.iter().any(|&(block, _)| block == x) {
            self.p = (self.p - size * (b1 / b2).max(1.0)).max(0.0);
        }
    }
}

impl Ranks for NaiveArc {
    fn hit(&mut self, access: &Access) {
        let in_t1 = take(&mut self.t1, access.block);
        let object = in_t1.or_else(|| take(&mut self.t2, access.block));
        self.t2.push(object.expect("it is in"));
    }

    fn evict(&mut self, incoming: &Access) -> Block {
        if !self.moved {
            self.move_p(incoming);
            self.moved = true;
        }
        let in_b2 = self.b2.iter().any(|&(block, _)| block == incoming.block);
        let t1 = bytes(&self.t1) as f64;
        let over = t1 > self.p || (in_b2 && t1 == self.p);
        if self.t2.is_empty() || (over && !self.t1.is_empty()) {
            let object = self.t1.remove(0);
            self.b1.push(object);
            object.0
        } else {
            let object = self.t2.remove(0);
            self.b2.push(object);
            object.0
        }
    }

    fn insert(&mut self, access: &Access) {
        self.moved = false;
        let in_b1 = take(&mut self.b1, access.block);
        let known = in_b1.or_else(|| take(&mut self.b2, access.block));
        let list = if known.is_some() {
            &mut self.t2
        } else {
            &mut self.t1
        };
        list.push((access.block, access.bytes));
        let (c, t1) = (self.c as u64, bytes(&self.t1));
        cut(&mut self.b1, c.saturating_sub(t1));
        let others = t1 + bytes(&self.t2) + bytes(&self.b1);
        cut(&mut self.b2, (2 * c).saturating_sub(others));
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.t1, block);
        take(&mut self.t2, block);
    }
}
