//! The time of each thread, and the waits for busy memory.
//!
//! Threads run side by side between barriers, and a barrier waits for the slowest: modelled time is
//! the sum over intervals of the slowest thread's time. A trace has an order of accesses and not
//! their times, so contention is computed per interval. The memory of a node is a queue with one
//! server and a constant time of service `s` (M/D/1). The mean wait is `W = rho s / (2 (1 - rho))`,
//! with `rho = A s / T` for `A` accesses in an interval of length `T`. Waiting threads issue fewer
//! accesses: `T` is the interval's length without waits, `T0`, plus `A W / P` for `P` threads. So
//! `W` is the solution of an equation. At most all other threads are ahead in the queue, so `W` is
//! at most `(P - 1) s`. Finer models (open pages, links, controllers) need the order of accesses
//! within an interval, which traces of several threads do not have. Where threads share processors
//! (`processors`), `T0` is the time with that, and `P` is how many run at a time.

use hither_core::placement::ThreadMigration;
use hither_core::{Access, Node, Process, Thread};

use super::costs::MemoryCosts;
use super::processors::{Interval, Processors, Work};

const NOWHERE: Node = Node(u16::MAX);

/// Who waits while pages move.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    Thread(Thread),
    Process(Process),
    All,
}

#[derive(Clone, Copy)]
struct ThreadClock {
    now_ns: u64,
    /// Its time when waits were last added.
    waits_added_ns: u64,
    /// Its node now, and at the last epoch.
    node: Node,
    node_before: Node,
    process: Process,
    /// Whether it made accesses since counters were cleared.
    active: bool,
}

/// Clocks of all threads.
pub(super) struct Clocks {
    threads: Vec<ThreadClock>,
    /// The latest clock.
    now_ns: u64,
    /// The last barrier of each process that has begun, and of any process: the start of new
    /// threads and new processes.
    barriers_ns: Vec<Option<u64>>,
    latest_barrier_ns: u64,
    /// The ends of processes. A process that begins later takes the place of the one that ended
    /// last.
    ended_ns: Vec<u64>,
    moved: Vec<ThreadMigration>,
    processors: Processors,
    load: Load,
}

impl Clocks {
    pub(super) fn new(threads: usize, nodes: usize, costs: &MemoryCosts) -> Clocks {
        let thread = ThreadClock {
            now_ns: 0,
            waits_added_ns: 0,
            node: NOWHERE,
            node_before: NOWHERE,
            process: Process(0),
            active: false,
        };
        Clocks {
            threads: vec![thread; threads],
            now_ns: 0,
            barriers_ns: Vec::new(),
            latest_barrier_ns: 0,
            ended_ns: Vec::new(),
            moved: Vec::new(),
            processors: Processors::new(costs.processors),
            load: Load::new(threads, nodes, costs.service_ns),
        }
    }

    /// The time of the thread that is furthest ahead.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Records that the thread accesses from its current node.
    #[inline]
    pub(super) fn seen(&mut self, access: &Access) {
        let thread = &mut self.threads[access.thread.index()];
        thread.node = access.node;
        if !thread.active {
            self.enter(access);
        }
    }

    #[cold]
    fn enter(&mut self, access: &Access) {
        let thread = &mut self.threads[access.thread.index()];
        thread.active = true;
        if thread.node_before == NOWHERE {
            let process = access.process.index();
            if process >= self.barriers_ns.len() {
                self.barriers_ns.resize(process + 1, None);
            }
            let barrier = &mut self.barriers_ns[process];
            let start_ns = *barrier
                .get_or_insert_with(|| self.ended_ns.pop().unwrap_or(self.latest_barrier_ns));
            thread.process = access.process;
            thread.node_before = access.node;
            thread.now_ns = start_ns;
            thread.waits_added_ns = thread.now_ns;
        }
    }

    /// Advances a thread's clock.
    #[inline]
    pub(super) fn pass(&mut self, thread: Thread, ns: u64) {
        let clock = &mut self.threads[thread.index()].now_ns;
        *clock = clock.saturating_add(ns);
        self.now_ns = self.now_ns.max(*clock);
    }

    /// Records accesses of a thread that `node` served.
    #[inline]
    pub(super) fn served(&mut self, thread: Thread, node: Node, count: u32) {
        self.load.add(thread, node, count);
    }

    /// Adds the waits since the last call to the clocks: for memory, whose sum is returned, and for
    /// processors. At a barrier or the end of a process, the interval ends when its slowest thread
    /// is done; what others have done beyond that belongs to the next one.
    pub(super) fn add_waits(&mut self, barrier: Option<Process>) -> u64 {
        let Interval { took_ns, running } = if self.processors.limited() {
            self.share(u64::MAX)
        } else {
            let works = self.threads.iter().map(ThreadClock::work_ns);
            Interval {
                took_ns: works.clone().max().unwrap_or(0),
                running: works.filter(|&ns| ns > 0).count(),
            }
        };
        let mut waited = 0;
        self.load.add_waits(took_ns, running, |thread, ns| {
            self.threads[thread].now_ns += ns;
            waited += ns;
        });
        if self.processors.limited() {
            self.wait_for_processors(barrier);
        } else {
            let threads = self.threads.iter_mut();
            threads.for_each(|of| of.waits_added_ns = of.now_ns);
        }
        let latest = self.threads.iter().map(|of| of.now_ns).max();
        self.now_ns = self.now_ns.max(latest.unwrap_or(0));
        waited
    }

    /// A thread keeps its processor while it waits for memory, so these waits are work here.
    fn wait_for_processors(&mut self, barrier: Option<Process>) {
        self.share(u64::MAX);
        if barrier.is_some() {
            let works = self.processors.works().iter();
            let its = works.filter(|work| self.threads[work.thread].is_of(barrier));
            let until_ns = its.map(Work::end_ns).max();
            // Without work of the process there was no interval.
            self.share(until_ns.unwrap_or(0));
        }
        for work in self.processors.works() {
            let thread = &mut self.threads[work.thread];
            thread.waits_added_ns = work.end_ns();
            thread.now_ns = work.end_ns() + work.left_ns();
        }
    }

    /// Has threads share the processors for what they have done since waits were last added.
    fn share(&mut self, until_ns: u64) -> Interval {
        let works = self.threads.iter().enumerate();
        let works =
            works.map(|(thread, of)| Work::new(thread, of.node, of.waits_added_ns, of.work_ns()));
        self.processors.share(works, until_ns)
    }

    /// All threads of a process wait for its slowest one, and then for `ns`.
    pub(super) fn barrier(&mut self, process: Process, ns: u64) {
        let waits = |of: &&mut ThreadClock| of.is_of(Some(process));
        let slowest = self.threads.iter_mut().filter(waits).map(|of| of.now_ns);
        let Some(slowest) = slowest.max() else {
            return;
        };
        for thread in self.threads.iter_mut().filter(waits) {
            thread.now_ns = slowest + ns;
            thread.waits_added_ns = thread.now_ns;
        }
        self.barriers_ns[process.index()] = Some(slowest + ns);
        self.latest_barrier_ns = self.latest_barrier_ns.max(slowest + ns);
        self.now_ns = self.now_ns.max(slowest + ns);
    }

    /// Advances every clock by `ns`.
    pub(super) fn pass_all(&mut self, ns: u64) {
        for thread in self.threads.iter_mut().filter(|of| of.is_of(None)) {
            thread.now_ns += ns;
            thread.waits_added_ns += ns;
            self.now_ns = self.now_ns.max(thread.now_ns);
        }
    }

    /// The time at which an access that comes next begins.
    pub(super) fn next_ns(&self, access: &Access) -> u64 {
        let thread = &self.threads[access.thread.index()];
        match thread.node_before {
            NOWHERE => {
                let barrier = self.barriers_ns.get(access.process.index());
                barrier.copied().flatten().unwrap_or(0)
            }
            _ => thread.now_ns,
        }
    }

    /// The time of the process's thread that is furthest ahead.
    pub(super) fn of_ns(&self, process: Process) -> u64 {
        let its = self.threads.iter().filter(|of| of.is_of(Some(process)));
        its.map(|of| of.now_ns).max().unwrap_or(0)
    }

    /// A process ended. Returns its time.
    pub(super) fn ended(&mut self, process: Process) -> u64 {
        let now_ns = self.of_ns(process);
        self.ended_ns.push(now_ns);
        now_ns
    }

    /// The threads (of a process, or all) that changed nodes since the last call, by number; and
    /// how many made accesses since [`rest`](Clocks::rest).
    pub(super) fn epoch(&mut self, process: Option<Process>) -> (&[ThreadMigration], usize) {
        self.moved.clear();
        let mut active = 0;
        for (number, thread) in self.threads.iter_mut().enumerate() {
            if !thread.is_of(process) {
                continue;
            }
            active += usize::from(thread.active);
            let (from, to) = (thread.node_before, thread.node);
            if from != to {
                thread.node_before = to;
                self.moved.push(ThreadMigration {
                    thread: Thread(number as u32),
                    process: thread.process,
                    from,
                    to,
                });
            }
        }
        (&self.moved, active)
    }

    /// Forgets which threads of the process, or of all, made accesses.
    pub(super) fn rest(&mut self, process: Option<Process>) {
        let of = self.threads.iter_mut().filter(|of| of.is_of(process));
        of.for_each(|of| of.active = false);
    }
}

impl ThreadClock {
    /// What it has done since waits were last added.
    fn work_ns(&self) -> u64 {
        self.now_ns - self.waits_added_ns
    }

    fn is_of(&self, process: Option<Process>) -> bool {
        self.node_before != NOWHERE && process.is_none_or(|process| process == self.process)
    }
}

/// Accesses by thread and serving node, since waits were last added.
struct Load {
    service_ns: f64,
    nodes: usize,
    counts: Vec<u32>,
    /// The elements of `counts` that are not 0.
    touched: Vec<u32>,
    /// By node: first accesses, then the mean wait.
    served: Vec<u64>,
    waits_ns: Vec<f64>,
}

impl Load {
    fn new(threads: usize, nodes: usize, service_ns: u32) -> Load {
        let places = if service_ns == 0 { 0 } else { threads * nodes };
        Load {
            service_ns: service_ns.into(),
            nodes,
            counts: vec![0; places],
            touched: Vec::new(),
            served: vec![0; nodes],
            waits_ns: vec![0.0; nodes],
        }
    }

    #[inline]
    fn add(&mut self, thread: Thread, node: Node, count: u32) {
        let at = thread.index() * self.nodes + node.index();
        let Some(counted) = self.counts.get_mut(at) else {
            return;
        };
        if *counted == 0 {
            self.touched.push(at as u32);
        }
        *counted = counted.saturating_add(count);
    }

    fn add_waits(&mut self, took_ns: u64, threads: usize, mut wait: impl FnMut(usize, u64)) {
        if self.touched.is_empty() {
            return;
        }
        self.served.fill(0);
        for &at in &self.touched {
            self.served[at as usize % self.nodes] += u64::from(self.counts[at as usize]);
        }
        for (wait, &served) in self.waits_ns.iter_mut().zip(&self.served) {
            *wait = mean_wait_ns(
                served as f64,
                took_ns as f64,
                threads as f64,
                self.service_ns,
            );
        }
        for at in self.touched.drain(..) {
            let count = std::mem::take(&mut self.counts[at as usize]);
            let ns = f64::from(count) * self.waits_ns[at as usize % self.nodes];
            wait(at as usize / self.nodes, ns.round() as u64);
        }
    }
}

/// The mean wait of one of `accesses` by `threads`, in an interval of `took_ns` without waits.
fn mean_wait_ns(accesses: f64, took_ns: f64, threads: f64, service_ns: f64) -> f64 {
    let longer = |wait: f64| {
        let rho = accesses * service_ns / (took_ns + accesses * wait / threads);
        rho >= 1.0 || rho * service_ns / (2.0 * (1.0 - rho)) > wait
    };
    let (mut low, mut high) = (0.0, ((threads - 1.0) * service_ns).max(0.0));
    if high == 0.0 || longer(high) {
        return high;
    }
    // 2^-24 of the longest wait is less than a thousandth of a nanosecond.
    for _ in 0..24 {
        let middle = (low + high) / 2.0;
        if longer(middle) {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_service() -> MemoryCosts {
        MemoryCosts {
            service_ns: 0,
            ..MemoryCosts::default()
        }
    }

    #[test]
    fn waits() {
        assert_eq!(mean_wait_ns(1e6, 1e6, 1.0, 5.0), 0.0, "nobody else");
        // Low load: rho = 0.01, W = 0.01 * 5 / (2 * 0.99).
        let wait = mean_wait_ns(1_000.0, 500_000.0, 1e3, 5.0);
        assert!((wait - 0.02525).abs() < 1e-3, "{wait}");
        // Two threads that only access one memory: the other one is always ahead in the queue.
        assert_eq!(mean_wait_ns(1e6, 1.0, 2.0, 5.0), 5.0);
        // Saturated by 16 threads with 100 ns per access: the throughput is the memory's, 10 ns per
        // access.
        let (accesses, threads) = (1.6e6, 16.0);
        let wait = mean_wait_ns(accesses, 1e5 * 100.0, threads, 10.0);
        let each = (100.0 + wait) / threads;
        assert!((10.0..11.5).contains(&each), "{each}");
    }

    #[test]
    fn barriers_wait_for_the_slowest_of_a_process() {
        let mut clocks = Clocks::new(3, 1, &no_service());
        let access = |thread: u32, process: u32| Access {
            thread: Thread(thread),
            process: Process(process),
            ..Access::bare(0, hither_core::Block(0))
        };
        for (thread, process, ns) in [(0, 0, 10), (1, 0, 30), (2, 1, 50)] {
            clocks.seen(&access(thread, process));
            clocks.pass(Thread(thread), ns);
        }
        clocks.barrier(Process(0), 5);
        let times = |clocks: &Clocks| {
            clocks
                .threads
                .iter()
                .map(|of| of.now_ns)
                .collect::<Vec<_>>()
        };
        assert_eq!((times(&clocks), clocks.now_ns()), (vec![35, 35, 50], 50));
        clocks.pass_all(1);
        assert_eq!(times(&clocks), [36, 36, 51]);
    }

    #[test]
    fn a_process_begins_where_another_one_ended_or_at_the_latest_barrier() {
        let mut clocks = Clocks::new(4, 1, &no_service());
        let begin = |clocks: &mut Clocks, number: u32| {
            clocks.seen(&Access {
                thread: Thread(number),
                process: Process(number),
                ..Access::bare(0, hither_core::Block(0))
            });
            clocks.of_ns(Process(number))
        };
        begin(&mut clocks, 0);
        begin(&mut clocks, 1);
        clocks.pass(Thread(0), 10);
        clocks.pass(Thread(1), 50);
        clocks.barrier(Process(1), 0);
        assert_eq!(clocks.ended(Process(0)), 10);
        assert_eq!(begin(&mut clocks, 2), 10, "in the place of process 0");
        assert_eq!(begin(&mut clocks, 3), 50, "nobody else ended");
    }
}
