//! Unmaps the watched pages that were touched, so that the next touch is seen.
//!
//! Pages that were not touched stay unmapped. So a round costs what was touched since the last one,
//! and rounds are so far apart that they take at most a twentieth of a CPU.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::fs::File;

use hither_ids::{Address, Pid};
use hither_kernel::file_id::Inode;
use hither_kernel::page_cache::PageCacheError;
use hither_kernel::page_unmapping::{
    BATCH_PAGES, MappedPage, PageUnmapper, UnmappableProcess, Unmapped, open_mapped,
};
use hither_kernel::process::thread_cpu_ns;
use rustc_hash::{FxHashMap, FxHashSet};

/// The shortest time between two rounds: a page's touches within it count once.
const ROUND_NS_MIN: u64 = 100_000_000;

/// A round may take this share of the time until the next one, 1/20.
const SHARE_DIVISOR: u64 = 20;

/// The most CPU time that a step takes: the rings are not drained meanwhile.
const STEP_NS_MAX: u64 = 2_000_000;

/// The most files that are open at a time.
const OPEN_FILES_MAX: usize = 64;

/// What became of the pages of a file that were to be unmapped.
#[derive(Debug, Default)]
struct UnmapOutcomes {
    stayed: usize,
    unmapped: usize,
}

/// Process, file, and the page's offset and address.
type Page = (Pid, Inode, u64, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arming {
    unmapper: Option<PageUnmapper>,
    /// `None`: its pages cannot be unmapped.
    processes: FxHashMap<Pid, Option<UnmappableProcess>>,
    files: FxHashMap<(Pid, Inode), Option<File>>,
    /// Unmapped pages, by process and address.
    armed: FxHashSet<(Pid, u64)>,
    /// Pages that may have been mapped since the last round.
    due: BTreeSet<Page>,
    /// What is left of this round.
    round: BTreeSet<Page>,
    round_began_ns: u64,
    spent_ns: u64,
    next_ns: u64,
    longest_ns: u64,
    refused: Option<PageCacheError>,
    /// How many pages of a file stayed mapped, and how many were unmapped.
    outcomes: FxHashMap<Inode, UnmapOutcomes>,
}

impl Arming {
    /// Why nothing can be unmapped.
    pub(super) fn refused(&self) -> Option<PageCacheError> {
        self.refused
    }

    /// The longest time between two rounds.
    pub(super) fn longest_interval_ns(&self) -> u64 {
        self.longest_ns.max(ROUND_NS_MIN)
    }

    /// Files most of whose pages stayed mapped.
    pub(super) fn never_armed(&self) -> impl Iterator<Item = Inode> + '_ {
        let outcomes = self.outcomes.iter();
        outcomes
            .filter(|(_, of)| of.stayed > of.unmapped)
            .map(|(&file, _)| file)
    }

    /// A page is mapped again. Whether it had been unmapped by us.
    pub(super) fn faulted(&mut self, pid: Pid, address: Address) -> bool {
        self.armed.remove(&(pid, address.0))
    }

    /// A watched page may be mapped.
    pub(super) fn watch(&mut self, pid: Pid, file: Inode, address: Address, offset: u64) {
        if self.refused.is_none() {
            self.due.insert((pid, file, offset, address.0));
        }
    }

    /// The process has ended or runs another program.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
        self.files.retain(|&(of, _), _| of != pid);
        self.armed.retain(|&(of, _)| of != pid);
        self.due.retain(|&(of, ..)| of != pid);
        self.round.retain(|&(of, ..)| of != pid);
    }

    /// Goes on with a round, or begins one when it is time. `is_mapped` says whether an address of
    /// a process is still that offset of that file.
    pub(super) fn step(&mut self, now_ns: u64, is_mapped: impl Fn(u32, u64, Inode, u64) -> bool) {
        if self.round.is_empty() {
            if self.due.is_empty() || now_ns < self.next_ns || self.refused.is_some() {
                return;
            }
            self.round = std::mem::take(&mut self.due);
            (self.round_began_ns, self.spent_ns) = (now_ns, 0);
        }
        // Not the time that passes: a busy machine would stretch the rounds.
        let began_ns = thread_cpu_ns();
        while !self.round.is_empty() && thread_cpu_ns() - began_ns < STEP_NS_MAX {
            self.batch(&is_mapped);
        }
        self.spent_ns += thread_cpu_ns() - began_ns;
        let pause_ns = (self.spent_ns * SHARE_DIVISOR).max(ROUND_NS_MIN);
        self.next_ns = self.round_began_ns + pause_ns;
        self.longest_ns = self.longest_ns.max(pause_ns);
    }

    /// Unmaps pages of one file in one process.
    fn batch(&mut self, is_mapped: impl Fn(u32, u64, Inode, u64) -> bool) {
        let Some(&(pid, file, ..)) = self.round.first() else {
            return;
        };
        let same = self
            .round
            .iter()
            .take_while(|page| (page.0, page.1) == (pid, file));
        let taken: Vec<Page> = same.take(BATCH_PAGES).copied().collect();
        for page in &taken {
            self.round.remove(page);
        }
        let pages = taken
            .iter()
            .filter(|page| is_mapped(pid.0, page.3, file, page.2));
        let pages: Vec<MappedPage> = pages
            .map(|&(_, _, offset, address)| MappedPage {
                address: Address(address),
                offset,
            })
            .collect();
        match self.unmap(pid, file, &pages) {
            Ok(Unmapped {
                pages: unmapped,
                left,
            }) => {
                let outcomes = self.outcomes.entry(file).or_default();
                outcomes.stayed += left.len();
                outcomes.unmapped += unmapped;
                for page in pages {
                    if left.contains(&page) {
                        self.due.insert((pid, file, page.offset, page.address.0));
                    } else {
                        self.armed.insert((pid, page.address.0));
                    }
                }
            }
            Err(reason @ (PageCacheError::NotPermitted | PageCacheError::NoCall)) => {
                self.refused = Some(reason);
                self.due.clear();
                self.round.clear();
            }
            // The process has ended, or its mappings have changed.
            Err(_) => {}
        }
    }

    fn unmap(
        &mut self,
        pid: Pid,
        file: Inode,
        pages: &[MappedPage],
    ) -> Result<Unmapped, PageCacheError> {
        let process = match self.processes.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match UnmappableProcess::open(pid) {
                Ok(process) => entry.insert(Some(process)),
                Err(reason) => {
                    entry.insert(None);
                    return Err(reason);
                }
            },
        };
        let process = process.as_ref().ok_or(PageCacheError::NotThis)?;
        if self.files.len() >= OPEN_FILES_MAX && !self.files.contains_key(&(pid, file)) {
            self.files.clear();
        }
        let opened = self.files.entry((pid, file));
        let opened = opened.or_insert_with(|| open_mapped(pid, file));
        let Some(opened) = opened else {
            // An unlinked file, or one that may not be opened: its pages stay mapped.
            self.outcomes.entry(file).or_default().stayed += pages.len();
            return Err(PageCacheError::NotThis);
        };
        if self.unmapper.is_none() {
            self.unmapper = PageUnmapper::new().ok();
        }
        let unmapper = self.unmapper.as_mut().ok_or(PageCacheError::NotThis)?;
        unmapper.unmap(process, opened, pages)
    }
}
