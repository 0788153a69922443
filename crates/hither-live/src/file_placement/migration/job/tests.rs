//! Tests jobs with real files, on a simulated machine.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use hither_ids::{KernelNode, Pid};
use hither_kernel::machine::{Machine, MoveError, NodeMemory, PageState};
use hither_kernel::page_bytes;
use hither_kernel::page_cache::{PageCache, ThisPageCache};
use hither_kernel::page_faults::{PageFaults, WatchError};
use hither_kernel::syscalls;

use super::*;
use hither_testing::needs::ON_A_DISK;
use hither_testing::skip::skip_on_this_machine;

/// All pages are on node 0 until they are moved. Pages with an index in `shared` are mapped by
/// other processes.
#[derive(Default)]
struct Two {
    moved: Mutex<Vec<u64>>,
    shared: Vec<usize>,
}

impl Machine for Two {
    fn nodes(&self) -> io::Result<Vec<NodeMemory>> {
        Ok(Vec::new())
    }

    fn page_bytes(&self) -> u64 {
        page_bytes()
    }

    fn huge_page_bytes(&self) -> Option<u64> {
        None
    }

    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[Address],
        to: Option<KernelNode>,
        states: &mut Vec<PageState>,
    ) -> Result<(), MoveError> {
        assert_eq!(pid, Pid(0), "its own pages");
        states.clear();
        let mut moved = self.moved.lock().expect("not poisoned");
        for (at, address) in addresses.iter().enumerate() {
            states.push(match to {
                Some(_) if self.shared.contains(&at) => PageState::Shared,
                Some(node) => {
                    moved.push(address.0);
                    PageState::On(node)
                }
                None => PageState::On(KernelNode(u32::from(moved.contains(&address.0)))),
            });
        }
        Ok(())
    }

    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError> {
        Err(WatchError::NoPerf)
    }
}

/// A file of so many pages and bytes, all cached.
fn file(pages: u64, bytes: u64) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(ON_A_DISK).expect("a file");
    let bytes = vec![7; (pages * page_bytes() + bytes) as usize];
    file.write_all(&bytes).expect("written");
    file.as_file().sync_all().expect("on the disk");
    file
}

fn open(file: &tempfile::NamedTempFile) -> Box<dyn CachedFile> {
    let status = syscalls::status(file.as_file().as_raw_fd()).expect("a status");
    let id = status.id;
    ThisPageCache.open(file.path(), id).expect("the file")
}

fn job(file: Box<dyn CachedFile>, ranges: &[(u64, u32)], to: Option<KernelNode>) -> FileJob {
    let block = u64::from(BLOCK_PAGES) * page_bytes();
    let range = |&(block_at, blocks): &(u64, u32)| FilePages {
        start: block_at * block,
        pages: blocks * BLOCK_PAGES,
    };
    FileJob {
        job: 5,
        file,
        ranges: ranges.iter().map(range).collect(),
        to,
        page_bytes: page_bytes(),
    }
}

/// `None` if this kernel does not report what is cached, or cannot enter pages.
fn carried_out(job: &FileJob, machine: Arc<Two>) -> Option<JobResult> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker = Worker::new(machine, page_bytes(), stop);
    match job.carry_out(&mut worker) {
        Ok(done) => Some(done),
        Err((_, refused)) => {
            skip_on_this_machine(refused);
            None
        }
    }
}

#[test]
fn what_is_cached_is_found_and_moved_and_the_rest_is_absent() {
    let file = file(40, 100);
    let opened = open(&file);
    // Blocks 2 and 3 leave the cache. Pages after the end of the file, in block 10, never existed.
    let block = u64::from(BLOCK_PAGES) * page_bytes();
    opened.drop_pages(2 * block, 2 * block).expect("dropped");
    let left = opened.cached(2 * block, 2 * block);
    if left.map(|cached| cached.pages) != Ok(0) {
        return skip_on_this_machine(format_args!("the kernel has kept it, {left:?}"));
    }
    let machine = Arc::new(Two::default());
    let ranges = [(1, 4), (9, 2)];
    let Some(done) = carried_out(&job(open(&file), &ranges, None), Arc::clone(&machine)) else {
        return;
    };
    let found = |first, pages| LocatedRun {
        first,
        pages,
        node: KernelNode(0),
    };
    // Of the job's pages, blocks 1, 4, 9, and the one page of block 10 remain.
    let JobResult::Located {
        job: 5,
        found: located,
    } = done
    else {
        panic!("{done:?}");
    };
    let all: Vec<u32> = located
        .iter()
        .flat_map(|run| run.first..run.first + run.pages)
        .collect();
    let expected: Vec<u32> = (0..4).chain(12..16).chain(16..21).collect();
    assert_eq!(all, expected, "{located:?}");
    assert!(
        located
            .iter()
            .all(|run| *run == found(run.first, run.pages))
    );

    let Some(JobResult::Moved(moved)) =
        carried_out(&job(open(&file), &ranges, Some(KernelNode(1))), machine)
    else {
        panic!("it was located");
    };
    assert_eq!((moved.job, moved.moved), (5, 13));
    let absent: Vec<(u32, u32, RefusalReason)> = moved
        .refused
        .iter()
        .map(|run| (run.first, run.pages, run.why))
        .collect();
    assert_eq!(
        absent,
        [
            (4, 8, RefusalReason::Absent),
            (21, 3, RefusalReason::Absent)
        ]
    );
    assert!(moved.took_ns > 0);
}

#[test]
fn what_others_have_mapped_is_told_by_its_place() {
    let opened = open(&file(16, 0));
    let machine = Arc::new(Two {
        shared: vec![6],
        ..Two::default()
    });
    let Some(JobResult::Moved(moved)) = carried_out(
        &job(opened, &[(0, 1), (2, 2)], Some(KernelNode(1))),
        machine,
    ) else {
        return;
    };
    let refused: Vec<(u32, u32, RefusalReason)> = moved
        .refused
        .iter()
        .map(|run| (run.first, run.pages, run.why))
        .collect();
    assert_eq!(refused, [(6, 1, RefusalReason::Shared)]);
    assert_eq!(moved.moved, 11);
}

#[test]
fn a_file_that_is_shorter_now_is_an_error_and_nothing_worse() {
    let file = file(16, 0);
    file.as_file().set_len(page_bytes()).expect("cut");
    let job = job(open(&file), &[(2, 1)], Some(KernelNode(1)));
    let stop = Arc::new(AtomicBool::new(false));
    let mut worker = Worker::new(Arc::new(Two::default()), page_bytes(), stop);
    assert_eq!(
        job.carry_out(&mut worker),
        Err((5, PageCacheError::NotThis))
    );
}
