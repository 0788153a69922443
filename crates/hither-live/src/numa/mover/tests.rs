//! Tests the mover with a simulated machine.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::machine::NodeMemory;
use hither_kernel::page_faults::{PageFaults, WatchError};

use super::*;

const PAGE: u64 = 4096;

/// The pages of process 7, by address, and the answers of the machine.
#[derive(Default)]
struct Scripted {
    pages: Mutex<BTreeMap<u64, PageState>>,
    /// The states that moving a page reports, instead of moving it.
    stubborn: BTreeMap<u64, PageState>,
    /// Pages that are moved although another state is reported.
    along: Vec<u64>,
    /// Calls from this number on are refused.
    refusal: Option<(usize, MoveError)>,
    /// Pages and target of each call.
    calls: Mutex<Vec<(usize, Option<KernelNode>)>>,
    /// Pages of a huge page, if there are any, and the numbers of the huge pages.
    huge: (u64, Vec<u64>),
    /// Returns fewer states than there are pages.
    short: bool,
}

impl Machine for Scripted {
    fn nodes(&self) -> io::Result<Vec<NodeMemory>> {
        Ok(Vec::new())
    }

    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn huge_page_bytes(&self) -> Option<u64> {
        Some(self.huge.0 * PAGE).filter(|&bytes| bytes > 0)
    }

    fn are_huge(&self, _: Pid, addresses: &[Address]) -> Vec<bool> {
        let number = |address: &Address| address.0 / PAGE / self.huge.0;
        let is_huge = |address| self.huge.1.contains(&number(address));
        addresses.iter().map(is_huge).collect()
    }

    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[Address],
        to: Option<KernelNode>,
        states: &mut Vec<PageState>,
    ) -> Result<(), MoveError> {
        assert_eq!(pid, Pid(7));
        let mut calls = self.calls.lock().unwrap();
        calls.push((addresses.len(), to));
        if let Some((_, refusal)) = self.refusal.filter(|(first, _)| calls.len() > *first) {
            return Err(refusal);
        }
        let mut pages = self.pages.lock().unwrap();
        states.clear();
        for address in addresses {
            let state = pages.entry(address.0).or_insert(PageState::Absent);
            if let Some(node) = to.filter(|_| self.along.contains(&address.0)) {
                *state = PageState::On(node);
            }
            let answer = match (to, self.stubborn.get(&address.0)) {
                (Some(_), Some(&stubborn)) => stubborn,
                (Some(node), None) => {
                    *state = PageState::On(node);
                    *state
                }
                (None, _) => *state,
            };
            states.push(answer);
        }
        if self.short {
            states.pop();
        }
        Ok(())
    }

    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError> {
        Err(WatchError::NoPerf)
    }
}

impl Scripted {
    /// Pages from address 0 on that are on node 0.
    fn with(pages: u64) -> Scripted {
        let pages = (0..pages).map(|page| (page * PAGE, PageState::On(KernelNode(0))));
        Scripted {
            pages: Mutex::new(pages.collect()),
            ..Scripted::default()
        }
    }

    fn at(&self, page: u64) -> PageState {
        self.pages.lock().unwrap()[&(page * PAGE)]
    }
}

fn job(pages: u32, nodes: u64) -> PageJob {
    PageJob {
        job: 3,
        pid: Pid(7),
        pages: vec![PageRange {
            start: Address(0),
            pages,
        }],
        task: Task::Move(nodes),
    }
}

fn moved(done: JobResult) -> MoveResult {
    match done {
        JobResult::Moved(moved) => moved,
        JobResult::Located { .. } => panic!("{done:?}"),
    }
}

fn carried_out(machine: Scripted, job: &PageJob) -> (MoveResult, Arc<Scripted>) {
    let machine = Arc::new(machine);
    let stop = Arc::new(AtomicBool::new(false));
    let done = Worker::new(Arc::clone(&machine) as Arc<dyn Machine>, PAGE, stop).carry_out(job);
    let moved = moved(done);
    let pages = moved.moved
        + moved.there
        + moved.absent
        + moved.refused.iter().map(|run| run.pages).sum::<u32>();
    assert_eq!(pages, job.length(), "every page is accounted for once");
    (moved, machine)
}

/// Of four huge pages, or small ones in their place, all, half, and less is to move.
#[test]
fn a_huge_page_moves_if_half_of_it_is_to() {
    let mut machine = Scripted::with(64);
    machine.huge = (16, vec![0, 1, 3]);
    let range = |start: u64, pages| PageRange {
        start: Address(start * PAGE),
        pages,
    };
    let migrate = PageJob {
        pages: vec![range(0, 16), range(20, 8), range(32, 4), range(48, 7)],
        task: Task::Migrate(KernelNode(1)),
        ..job(0, 0)
    };
    let (moved, machine) = carried_out(machine, &migrate);
    assert_eq!((moved.moved, moved.huge), (28, 2));
    let part = RefusedRun {
        first: 28,
        pages: 7,
        why: RefusalReason::PartOfHuge,
    };
    assert_eq!(moved.refused, [part]);
    assert_eq!(
        machine.at(35),
        PageState::On(KernelNode(1)),
        "small pages move alone"
    );
    assert_eq!(machine.at(48), PageState::On(KernelNode(0)));
}

/// Two huge pages and a small range, to two nodes in turn.
#[test]
fn huge_pages_go_to_several_nodes_as_wholes() {
    let mut machine = Scripted::with(48);
    machine.huge = (16, vec![1, 2]);
    let (moved, machine) = carried_out(machine, &job(48, 0b110));
    assert_eq!((moved.moved, moved.huge), (48, 2));
    let nodes: Vec<PageState> = [0, 1, 16, 31, 32, 47].map(|page| machine.at(page)).into();
    let nodes: Vec<KernelNode> = nodes
        .into_iter()
        .map(|state| match state {
            PageState::On(node) => node,
            state => panic!("{state:?}"),
        })
        .collect();
    assert_eq!(nodes, [1, 2, 2, 2, 1, 1].map(KernelNode));
}

#[test]
fn what_is_elsewhere_is_moved_in_large_batches() {
    let machine = Scripted::with(2000);
    machine
        .pages
        .lock()
        .unwrap()
        .insert(5 * PAGE, PageState::On(KernelNode(1)));
    let (moved, machine) = carried_out(machine, &job(2100, 0b10));
    assert_eq!((moved.moved, moved.there, moved.absent), (1999, 1, 100));
    assert_eq!(moved.refused, []);
    assert_eq!(machine.at(1999), PageState::On(KernelNode(1)));
    let calls = machine.calls.lock().unwrap();
    assert_eq!(calls[0], (BATCH_PAGES_START, None));
    assert_eq!(
        calls[1],
        (BATCH_PAGES_START - 1, Some(KernelNode(1))),
        "what is there is not moved"
    );
    // Calls that take no time are followed by larger ones, up to the maximum.
    assert!(calls.iter().all(|(pages, _)| *pages <= BATCH_PAGES_MAX));
}

#[test]
fn pages_go_to_several_nodes_in_turn() {
    let (moved, machine) = carried_out(Scripted::with(10), &job(10, 0b1010));
    assert_eq!(moved.moved, 10);
    assert_eq!(
        [machine.at(0), machine.at(1)],
        [PageState::On(KernelNode(1)), PageState::On(KernelNode(3))]
    );
}

#[test]
fn each_answer_about_a_page_is_told() {
    for (state, why) in [
        (PageState::Busy, RefusalReason::Busy),
        (PageState::Shared, RefusalReason::Shared),
        (PageState::NotWrittenBack, RefusalReason::Busy),
        (PageState::Untried, RefusalReason::Untried),
        (PageState::On(KernelNode(0)), RefusalReason::Busy),
        (
            PageState::Other(libc::EINVAL),
            RefusalReason::Error(libc::EINVAL),
        ),
    ] {
        let mut machine = Scripted::with(1000);
        machine.stubborn = (10..30).map(|page| (page * PAGE, state)).collect();
        let (moved, _) = carried_out(machine, &job(1000, 0b10));
        let run = RefusedRun {
            first: 10,
            pages: 20,
            why,
        };
        assert_eq!((moved.moved, moved.refused), (980, vec![run]), "{state:?}");
    }
    // It was unmapped between the look-up and the move.
    let mut machine = Scripted::with(100);
    machine.stubborn.insert(5 * PAGE, PageState::Absent);
    let (moved, _) = carried_out(machine, &job(100, 0b10));
    assert_eq!((moved.moved, moved.absent), (99, 1));
}

#[test]
fn a_full_node_ends_the_move() {
    let mut machine = Scripted::with(3000);
    machine.stubborn = (100..3000)
        .map(|page| (page * PAGE, PageState::NoRoom))
        .collect();
    let (moved, machine) = carried_out(machine, &job(3000, 0b10));
    let run = |first, pages, why| RefusedRun { first, pages, why };
    assert_eq!(moved.moved, 100);
    assert_eq!(
        moved.refused,
        [
            run(100, BATCH_PAGES_START as u32 - 100, RefusalReason::NoRoom),
            run(
                BATCH_PAGES_START as u32,
                3000 - BATCH_PAGES_START as u32,
                RefusalReason::Untried
            )
        ]
    );
    assert_eq!(machine.calls.lock().unwrap().len(), 2);
}

#[test]
fn each_refusal_of_a_call_ends_the_move() {
    for (refusal, why, rest) in [
        (
            MoveError::NoProcess,
            RefusalReason::NoProcess,
            RefusalReason::NoProcess,
        ),
        (
            MoveError::NotPermitted,
            RefusalReason::NotPermitted,
            RefusalReason::NotPermitted,
        ),
        (
            MoveError::NoCall,
            RefusalReason::NotPermitted,
            RefusalReason::NotPermitted,
        ),
        (
            MoveError::NodeNotAllowed,
            RefusalReason::NodeNotAllowed,
            RefusalReason::NodeNotAllowed,
        ),
        (
            MoveError::NoNode,
            RefusalReason::NodeNotAllowed,
            RefusalReason::NodeNotAllowed,
        ),
        (
            MoveError::NoMemory,
            RefusalReason::NoRoom,
            RefusalReason::Untried,
        ),
        (
            MoveError::Other(libc::E2BIG),
            RefusalReason::Error(libc::E2BIG),
            RefusalReason::Untried,
        ),
    ] {
        // At the look-up, and at the move.
        for first in [0, 1] {
            let mut machine = Scripted::with(1000);
            machine.refusal = Some((first, refusal));
            let (moved, machine) = carried_out(machine, &job(1000, 0b10));
            assert_eq!(moved.moved, 0);
            assert_eq!((moved.refused[0].first, moved.refused[0].why), (0, why));
            let last = moved.refused.last().unwrap();
            assert_eq!((last.first + last.pages, last.why), (1000, rest));
            assert_eq!(machine.calls.lock().unwrap().len(), first + 1);
        }
    }
}

#[test]
fn a_process_that_was_refused_may_be_another_one_by_the_next_job() {
    for refusal in [MoveError::NotPermitted, MoveError::NoProcess] {
        let machine = Arc::new(Scripted {
            refusal: Some((0, refusal)),
            ..Scripted::with(10)
        });
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker::new(Arc::clone(&machine) as Arc<dyn Machine>, PAGE, stop);
        worker.carry_out(&job(10, 0b10));
        assert_eq!(
            machine.calls.lock().unwrap().len(),
            1,
            "the rest is given up"
        );
        worker.carry_out(&job(10, 0b10));
        assert_eq!(machine.calls.lock().unwrap().len(), 2, "the next is tried");
    }
}

#[test]
fn nonsense_and_no_nodes_move_nothing() {
    let mut machine = Scripted::with(10);
    machine.short = true;
    let (moved, _) = carried_out(machine, &job(10, 0b10));
    assert_eq!(
        (moved.moved, moved.refused[0].why),
        (0, RefusalReason::Error(0))
    );
    let (moved, _) = carried_out(Scripted::with(10), &job(10, 0));
    assert_eq!(moved.refused[0].why, RefusalReason::Untried);
}

#[test]
fn the_thread_reports_and_stops() {
    let machine = Arc::new(Scripted::with(100_000));
    let mover = Mover::start(machine, PAGE, Worker::carry_out).unwrap();
    mover.send(job(100, 0b10));
    let first = loop {
        if let Some(moved) = mover.done().next() {
            break moved;
        }
        thread::yield_now();
    };
    let first = moved(first);
    assert_eq!((first.job, first.moved), (3, 100));
    mover.send(job(100_000, 0b100));
    let rest = mover.stop();
    assert_eq!(rest.len(), 1, "a job that is cut short is reported as well");
}

#[test]
fn pages_are_found_where_they_are() {
    let machine = Scripted::with(2000);
    let mut pages = machine.pages.lock().unwrap();
    pages.insert(1500 * PAGE, PageState::On(KernelNode(3)));
    pages.insert(10 * PAGE, PageState::Absent);
    drop(pages);
    let machine = Arc::new(machine);
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker = Worker::new(Arc::clone(&machine) as Arc<dyn Machine>, PAGE, stop);
    let range = |first: u64, pages| PageRange {
        start: Address(first * PAGE),
        pages,
    };
    let job = PageJob {
        pages: vec![range(8, 4), range(1499, 3)],
        task: Task::Locate,
        ..job(0, 0)
    };
    let run = |first, pages, node| LocatedRun { first, pages, node };
    assert_eq!(
        worker.carry_out(&job),
        JobResult::Located {
            job: 3,
            found: vec![
                run(0, 2, KernelNode(0)),
                run(3, 2, KernelNode(0)),
                run(5, 1, KernelNode(3)),
                run(6, 1, KernelNode(0))
            ]
        }
    );
    assert_eq!(*machine.calls.lock().unwrap(), [(7, None)]);
}

#[test]
fn pages_that_migrate_come_from_many_ranges_and_the_absent_are_refused() {
    let range = |first: u64| PageRange {
        start: Address(first * PAGE),
        pages: 1,
    };
    let job = PageJob {
        pages: (0..1000).map(|page| range(page * 2)).collect(),
        task: Task::Migrate(KernelNode(1)),
        ..job(0, 0)
    };
    let machine = Scripted::with(1990);
    let (moved, machine) = carried_out(machine, &job);
    assert_eq!((moved.moved, moved.absent), (995, 0));
    let absent = RefusedRun {
        first: 995,
        pages: 5,
        why: RefusalReason::Absent,
    };
    assert_eq!(moved.refused, [absent]);
    assert_eq!(
        machine.calls.lock().unwrap()[1],
        (BATCH_PAGES_START, Some(KernelNode(1)))
    );
}

/// Small pages of a huge one: the first moves all, and the others are busy meanwhile.
#[test]
fn a_huge_page_s_others_have_moved_along() {
    let mut machine = Scripted::with(4);
    for page in 1..3 {
        machine.stubborn.insert(page * PAGE, PageState::Busy);
        machine.along.push(page * PAGE);
    }
    machine.stubborn.insert(3 * PAGE, PageState::Busy);
    let (moved, _) = carried_out(machine, &job(4, 0b10));
    assert_eq!(moved.moved, 3);
    assert_eq!(
        (moved.refused[0].first, moved.refused[0].why),
        (3, RefusalReason::Busy)
    );
}
