//! Bind requests: the agent asks programs to bind ranges to nodes, and says which allocation sites
//! to bind as they allocate.
//!
//! Only a process itself can set its memory policies. So a request waits in the shared segment
//! until the program's next hooked call applies it. No side ever waits for the other. Only the
//! agent fills a slot, and any thread of the process named in it may empty it, by a
//! compare-and-swap that one of them wins. The table of sites is guarded by a sequence lock, a
//! version that is odd during a change. A reader that meets a change, or the odd version of an
//! agent that was killed during one, finds no site, and the allocation stays where the kernel puts
//! it.
//!
//! A stray store of a program may hit this memory. So every word that is read is checked, every
//! loop is bounded, and the receiver must check a request against its own regions.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use hither_ids::{Address, Pid};
use hither_kernel::memory_policy::{Bind, BindMode};

/// Requests that can wait at a time, of all processes together.
pub const REQUESTS_MAX: usize = 1024;

/// Sites that can have a policy.
pub const SITES_MAX: usize = 4096;

/// Places in which a site is searched, from its own on. With linear probing, runs grow fast near
/// the full table: this many places hold the first 3000 of any signatures (a test fills them in),
/// and refuse some of the last.
const SITE_PROBES_MAX: usize = 128;

/// Requests that a receiver collects in one pass over the slots.
const BATCH_REQUESTS: usize = 64;

const _: () = assert!(REQUESTS_MAX <= 1 << 16);

/// Reads of a site, while the table changes, before the reader gives up.
const READ_TRIES_MAX: usize = 8;

/// The part of the segment that holds requests and sites. All-zero bytes are none of either.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct BindRequestQueue {
    /// Requests posted so far, modulo 2^32.
    posted: AtomicU32,
    /// One past the highest slot that was ever filled.
    used: AtomicU32,
    /// Odd while the sites change.
    version: AtomicU32,
    slots: [Slot; REQUESTS_MAX],
    sites: [Site; SITES_MAX],
}

/// The place of a request.
#[repr(C)]
#[derive(Debug)]
struct Slot {
    /// [`FREE`], or the process that it is for; with [`TAKEN`] while that process reads it.
    state: AtomicU64,
    /// How many requests were posted before it. Of two for one range the later one counts, whatever
    /// their slots.
    number: AtomicU64,
    start: AtomicU64,
    length: AtomicU64,
    policy: Policy,
}

/// The policy of an allocation site. A site once entered stays, so that the probing of others does
/// not stop short.
#[repr(C)]
#[derive(Debug)]
struct Site {
    /// 0 where there is none.
    signature: AtomicU64,
    policy: Policy,
}

/// A [`Bind`], or none.
#[repr(C)]
#[derive(Debug)]
struct Policy {
    /// The mode and [`SET`]; 0 for none.
    mode: AtomicU64,
    nodes: AtomicU64,
}

const FREE: u64 = 0;
const TAKEN: u64 = 1 << 32;
const SET: u64 = 1 << 8;

impl Policy {
    fn store(&self, bind: Option<Bind>) {
        let (mode, nodes) = bind.map_or((0, 0), |bind| (SET | bind.mode as u64, bind.nodes));
        self.mode.store(mode, Ordering::Relaxed);
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    fn load(&self) -> Option<Bind> {
        let mode = self.mode.load(Ordering::Relaxed);
        let mode = u8::try_from(mode.checked_sub(SET)?).ok()?;
        Some(Bind {
            mode: BindMode::from_wire(mode)?,
            nodes: self.nodes.load(Ordering::Relaxed),
        })
    }
}

impl BindRequestQueue {
    /// The places where a site may be, the nearest first.
    fn places(&self, signature: u64) -> impl Iterator<Item = &Site> {
        let home = signature as usize % SITES_MAX;
        (home..home + SITE_PROBES_MAX).filter_map(|place| self.sites.get(place % SITES_MAX))
    }

    fn used(&self) -> usize {
        (self.used.load(Ordering::Acquire) as usize).min(REQUESTS_MAX)
    }

    /// The first requests that wait for a process.
    fn waiting(&self, process: Pid) -> Batch {
        let mut found = Batch::default();
        let posted = self.posted.load(Ordering::Relaxed);
        for (index, slot) in self.slots.iter().enumerate().take(self.used()) {
            if slot.state.load(Ordering::Acquire) == u64::from(process.0) {
                let number = slot.number.load(Ordering::Relaxed) as u32;
                // The numbers wrap around; no two are that far apart.
                let order = number.wrapping_sub(posted) as i32;
                found.insert((order, number, index as u16));
            }
        }
        found
    }

    /// Takes the request out of a slot, if it is still the one of that number.
    fn taken(&self, process: Pid, number: u32, index: u16) -> Option<BindRequest> {
        let slot = self.slots.get(usize::from(index))?;
        let (waiting, taken) = (u64::from(process.0), u64::from(process.0) | TAKEN);
        slot.state
            .compare_exchange(waiting, taken, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let is_it = slot.number.load(Ordering::Relaxed) as u32 == number;
        let request = slot
            .policy
            .load()
            .filter(|_| is_it)
            .map(|bind| BindRequest {
                start: Address(slot.start.load(Ordering::Relaxed)),
                length: slot.length.load(Ordering::Relaxed),
                bind,
            });
        let after = if is_it { FREE } else { waiting };
        // Unless it was withdrawn meanwhile, and perhaps filled anew.
        let _ = slot
            .state
            .compare_exchange(taken, after, Ordering::Release, Ordering::Relaxed);
        request
    }
}

/// Some of the waiting requests: the place of each in the sequence of posts, its number, and its
/// slot.
struct Batch {
    /// How many there are; the lowest come first.
    sorted: [(i32, u32, u16); BATCH_REQUESTS],
    count: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            sorted: [(0, 0, 0); BATCH_REQUESTS],
            count: 0,
        }
    }
}

impl Batch {
    /// Adds a request; if there are too many, the highest is dropped.
    fn insert(&mut self, order: (i32, u32, u16)) {
        let known = self.sorted.get(..self.count).unwrap_or_default();
        let place = known.partition_point(|other| *other < order);
        self.count = (self.count + 1).min(BATCH_REQUESTS);
        if let Some(after) = self.sorted.get_mut(place..self.count)
            && let Some(last) = after.last_mut()
        {
            *last = order;
            after.rotate_right(1);
        }
    }
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// The agent's side.
#[derive(Debug)]
pub struct BindRequestSender<'a>(&'a BindRequestQueue);

impl<'a> BindRequestSender<'a> {
    pub(crate) fn new(board: &'a BindRequestQueue) -> Self {
        BindRequestSender(board)
    }

    /// Asks `process` to give the range this policy at its next hooked call. A
    /// [`Record::Bound`](crate::record::Record::Bound) of the process reports the result.
    pub fn post(
        &mut self,
        process: Pid,
        start: Address,
        length: u64,
        bind: Bind,
    ) -> Result<(), QueueFull> {
        let free = |slot: &&Slot| slot.state.load(Ordering::Acquire) == FREE;
        let (index, slot) = self
            .0
            .slots
            .iter()
            .enumerate()
            .find(|(_, slot)| free(slot))
            .ok_or(QueueFull)?;
        let number = self.0.posted.load(Ordering::Relaxed);
        slot.number.store(u64::from(number), Ordering::Relaxed);
        slot.start.store(start.0, Ordering::Relaxed);
        slot.length.store(length, Ordering::Relaxed);
        slot.policy.store(Some(bind));
        slot.state.store(u64::from(process.0), Ordering::Release);
        self.0.used.fetch_max(index as u32 + 1, Ordering::Release);
        self.0.posted.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Withdraws what still waits for `process`, which has ended or runs another program.
    pub fn withdraw(&mut self, process: Pid) {
        for slot in self.0.slots.iter().take(self.0.used()) {
            let state = slot.state.load(Ordering::Relaxed);
            if state & !TAKEN == u64::from(process.0) {
                // Unless the process takes it first. If it was killed while it read the slot,
                // nothing reads the slot any more.
                let _ =
                    slot.state
                        .compare_exchange(state, FREE, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Has allocations at this site bound from now on, in all programs of the session; with `None`,
    /// no longer.
    pub fn set_site(&mut self, signature: u64, bind: Option<Bind>) -> Result<(), QueueFull> {
        let site = self
            .0
            .places(signature)
            .find(|site| [signature, 0].contains(&site.signature.load(Ordering::Relaxed)))
            .filter(|_| signature != 0)
            .ok_or(QueueFull)?;
        let before = self.0.version.load(Ordering::Relaxed);
        self.0.version.store(before | 1, Ordering::Relaxed);
        // A reader that sees any of these stores also sees the odd version when it looks again.
        fence(Ordering::Release);
        site.policy.store(bind);
        site.signature.store(signature, Ordering::Relaxed);
        let after = (before | 1).wrapping_add(1);
        self.0.version.store(after, Ordering::Release);
        Ok(())
    }
}

/// A request, as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindRequest {
    /// The first byte of the range.
    pub start: Address,
    /// Its length in bytes.
    pub length: u64,
    /// The policy to give it.
    pub bind: Bind,
}

/// The program's side. Nothing here blocks, allocates or panics.
#[derive(Clone, Copy, Debug)]
pub struct BindRequestReceiver<'a>(&'a BindRequestQueue);

impl<'a> BindRequestReceiver<'a> {
    pub(crate) fn new(board: &'a BindRequestQueue) -> Self {
        BindRequestReceiver(board)
    }

    /// A number that changes with each posted request: while it is the one that was read last,
    /// nothing is new.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.0.posted.load(Ordering::Relaxed)
    }

    /// Takes the requests for `process`, each as the iterator comes to it, in the sequence in which
    /// they were posted.
    pub fn take(&self, process: Pid) -> impl Iterator<Item = BindRequest> + use<'a> {
        let board = self.0;
        let (mut found, mut next) = (Batch::default(), 0);
        let mut batches = 0;
        std::iter::from_fn(move || {
            loop {
                while let Some(&(_, number, index)) = found.sorted.get(next..found.count)?.first() {
                    next += 1;
                    if let Some(order) = board.taken(process, number, index) {
                        return Some(order);
                    }
                }
                // A batch with room left had all. Requests posted since are found by whoever sees
                // the new number.
                let has_more = batches == 0 || found.count == BATCH_REQUESTS;
                if !has_more || batches == REQUESTS_MAX / BATCH_REQUESTS {
                    return None;
                }
                batches += 1;
                (found, next) = (board.waiting(process), 0);
            }
        })
    }

    /// The policy for what is allocated at the site of this signature.
    pub fn site(&self, signature: u64) -> Option<Bind> {
        for _ in 0..READ_TRIES_MAX {
            let before = self.0.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let found = self.find(signature);
                fence(Ordering::Acquire);
                if self.0.version.load(Ordering::Relaxed) == before {
                    return found;
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    fn find(&self, signature: u64) -> Option<Bind> {
        self.0
            .places(signature)
            .take_while(|site| site.signature.load(Ordering::Relaxed) != 0)
            .find(|site| site.signature.load(Ordering::Relaxed) == signature)
            .and_then(|site| site.policy.load())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn board() -> Box<BindRequestQueue> {
        let zeroed = Box::<BindRequestQueue>::new_zeroed();
        // SAFETY: it is made of atomic integers, for which zero is a value.
        unsafe { zeroed.assume_init() }
    }

    /// As whatever may have been written there.
    fn words(board: &BindRequestQueue) -> &[AtomicU64] {
        let first = std::ptr::from_ref(board).cast::<AtomicU64>();
        // SAFETY: it is made of atomics alone, its size is a multiple of 8, and it is aligned to
        // more.
        unsafe { std::slice::from_raw_parts(first, size_of::<BindRequestQueue>() / 8) }
    }

    fn preferred(nodes: u64) -> Bind {
        Bind {
            mode: BindMode::Preferred,
            nodes,
        }
    }

    #[test]
    fn orders_reach_the_process_that_they_are_for_once() {
        let board = board();
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        let quiet = received.pending();
        orders
            .post(Pid(10), Address(1 << 20), 4096, preferred(2))
            .expect("room");
        orders
            .post(Pid(11), Address(2 << 20), 8192, preferred(4))
            .expect("room");
        orders
            .post(Pid(10), Address(3 << 20), 4096, preferred(8))
            .expect("room");
        assert_eq!(received.pending(), quiet + 3);
        let taken: Vec<_> = received.take(Pid(10)).collect();
        let order = |start, length, nodes| BindRequest {
            start,
            length,
            bind: preferred(nodes),
        };
        assert_eq!(
            taken,
            [
                order(Address(1 << 20), 4096, 2),
                order(Address(3 << 20), 4096, 8)
            ]
        );
        assert_eq!(received.take(Pid(10)).count(), 0, "taken is taken");
        assert_eq!(received.take(Pid(11)).count(), 1);
    }

    #[test]
    fn orders_are_taken_in_the_order_in_which_they_were_posted() {
        let board = board();
        // The numbers wrap around on the way.
        board.posted.store(u32::MAX - 100, Ordering::Relaxed);
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        let starts = |taken: &mut dyn Iterator<Item = BindRequest>| -> Vec<u64> {
            taken.map(|order| order.start.0).collect()
        };
        for order in 0..200 {
            let process = if order < 50 { 1 } else { 2 };
            orders
                .post(Pid(process), Address(order), 1, preferred(1))
                .expect("room");
        }
        // Later ones come to the slots before the others.
        assert_eq!(received.take(Pid(1)).count(), 50);
        for order in 200..300 {
            orders
                .post(Pid(2), Address(order), 1, preferred(1))
                .expect("room");
        }
        let first: Vec<u64> = (50..114).collect();
        assert_eq!(starts(&mut received.take(Pid(2)).take(64)), first);
        let others: Vec<u64> = (114..300).collect();
        assert_eq!(starts(&mut received.take(Pid(2))), others);
    }

    #[test]
    fn an_order_that_has_taken_the_place_of_another_waits() {
        let board = board();
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        for order in 0..3 {
            orders
                .post(Pid(5), Address(order), 1, preferred(1))
                .expect("room");
        }
        let mut taken = received.take(Pid(5));
        assert_eq!(taken.next().map(|order| order.start.0), Some(0));
        assert_eq!(received.take(Pid(5)).count(), 2);
        for order in 3..6 {
            orders
                .post(Pid(5), Address(order), 1, preferred(1))
                .expect("room");
        }
        assert_eq!(taken.next(), None);
        let left: Vec<u64> = received.take(Pid(5)).map(|order| order.start.0).collect();
        assert_eq!(left, [3, 4, 5]);
    }

    #[test]
    fn a_full_board_says_so_and_has_room_again_when_orders_are_taken_or_withdrawn() {
        let board = board();
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        for order in 0..REQUESTS_MAX as u64 {
            let process = 1 + (order % 2) as u32;
            orders
                .post(Pid(process), Address(order), 1, preferred(1))
                .expect("room");
        }
        assert_eq!(
            orders.post(Pid(1), Address(0), 1, preferred(1)),
            Err(QueueFull)
        );
        orders.withdraw(Pid(1));
        assert_eq!(received.take(Pid(1)).count(), 0);
        assert_eq!(orders.post(Pid(3), Address(0), 1, preferred(1)), Ok(()));
        assert_eq!(received.take(Pid(2)).count(), REQUESTS_MAX / 2);
        // A process that was killed while it read a slot leaves it so.
        board.slots[0].state.store(4 | TAKEN, Ordering::Relaxed);
        orders.withdraw(Pid(4));
        assert_eq!(board.slots[0].state.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn two_threads_share_what_one_posts() {
        let board = board();
        let done = AtomicBool::new(false);
        const POSTED: u64 = 20_000;
        let taken: u64 = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let received = BindRequestReceiver::new(&board);
                        let mut sum = 0;
                        loop {
                            // Before the last look, so that it misses nothing.
                            let last = done.load(Ordering::Acquire);
                            for order in received.take(Pid(7)) {
                                assert_eq!(order.length, order.start.0 * 3, "torn");
                                assert_eq!(order.bind, preferred(order.start.0 * 5), "torn");
                                sum += order.start.0;
                            }
                            if last {
                                return sum;
                            }
                        }
                    })
                })
                .collect();
            let mut orders = BindRequestSender::new(&board);
            for value in 1..=POSTED {
                while orders
                    .post(Pid(7), Address(value), value * 3, preferred(value * 5))
                    .is_err()
                {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Release);
            takers
                .into_iter()
                .map(|taker| taker.join().expect("no panic"))
                .sum()
        });
        assert_eq!(taken, POSTED * (POSTED + 1) / 2, "each once");
    }

    #[test]
    fn sites_are_known_until_they_are_not() {
        let board = board();
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        assert_eq!(received.site(5), None);
        // Two with one home.
        let (one, two) = (5, 5 + SITES_MAX as u64);
        orders.set_site(one, Some(preferred(1))).expect("room");
        orders.set_site(two, Some(preferred(2))).expect("room");
        assert_eq!(received.site(one), Some(preferred(1)));
        assert_eq!(received.site(two), Some(preferred(2)));
        orders.set_site(one, None).expect("it is there");
        assert_eq!(received.site(one), None);
        assert_eq!(received.site(two), Some(preferred(2)), "found past it");
        assert_eq!(
            orders.set_site(0, Some(preferred(1))),
            Err(QueueFull),
            "no site"
        );
        assert_eq!(received.site(0), None);
    }

    #[test]
    fn many_sites_have_room_and_too_many_are_refused() {
        let board = board();
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let sites: Vec<u64> = (0..2 * SITES_MAX).map(|_| random()).collect();
        let known: Vec<bool> = sites
            .iter()
            .map(|&site| orders.set_site(site, Some(preferred(site))).is_ok())
            .collect();
        assert!(known[..3000].iter().all(|&known| known));
        assert!(known.contains(&false));
        for (&site, known) in sites.iter().zip(known) {
            assert_eq!(received.site(site), known.then_some(preferred(site)));
        }
    }

    #[test]
    fn a_site_that_changes_is_seen_whole_or_not_at_all() {
        let board = board();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let received = BindRequestReceiver::new(&board);
                let mut seen = 0_u64;
                while !done.load(Ordering::Acquire) || seen == 0 {
                    if let Some(bind) = received.site(9) {
                        let expected = match bind.mode {
                            BindMode::Preferred => 1,
                            BindMode::Interleave => u64::MAX,
                            other => panic!("{other:?} was never set"),
                        };
                        assert_eq!(bind.nodes, expected, "torn");
                        seen += 1;
                    }
                }
            });
            let mut orders = BindRequestSender::new(&board);
            for _ in 0..100_000 {
                orders.set_site(9, Some(preferred(1))).expect("room");
                let all = Bind {
                    mode: BindMode::Interleave,
                    nodes: u64::MAX,
                };
                orders.set_site(9, Some(all)).expect("room");
            }
            done.store(true, Ordering::Release);
            reader.join().expect("no panic");
        });
    }

    #[test]
    fn an_agent_that_was_killed_in_a_change_leaves_nothing_known() {
        let board = board();
        let (mut orders, received) = (
            BindRequestSender::new(&board),
            BindRequestReceiver::new(&board),
        );
        orders.set_site(9, Some(preferred(1))).expect("room");
        board.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(received.site(9), None);
    }

    #[test]
    fn whatever_lies_in_the_memory_nothing_panics_or_hangs() {
        let board = board();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..200 {
            for word in words(&board) {
                // Plain noise, and noise with states and modes that mean something.
                let noise = random();
                let noise = match round % 3 {
                    0 => noise,
                    1 => noise % 16,
                    _ => SET | (noise % 8),
                };
                word.store(noise, Ordering::Relaxed);
            }
            let (mut orders, received) = (
                BindRequestSender::new(&board),
                BindRequestReceiver::new(&board),
            );
            for process in 0..16 {
                assert!(received.take(Pid(process)).count() <= REQUESTS_MAX);
                received.site(u64::from(process));
                let _ = orders.set_site(random(), Some(preferred(1)));
                let _ = orders.post(
                    Pid(process),
                    Address(random()),
                    random(),
                    preferred(random()),
                );
                orders.withdraw(Pid(process));
            }
            received.pending();
        }
    }
}
