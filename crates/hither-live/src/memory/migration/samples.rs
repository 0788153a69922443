//! Takes samples in, and has pages armed for them where that is the agent's work.

use std::collections::BTreeMap;

use hither_core::{Block, Object};
use hither_ids::{KernelNode, PageIndex, Pid, Tid};

use super::super::config::SampleSource;
use super::super::event::{Decision, Order, TouchedPage};
use super::armed_pages::ArmedPages;
use super::arming::{Pick, SAMPLE_WEIGHT};
use super::region::{CountedRegion, Sharing};
use super::state::Migration;
use crate::numa::ranges::PageRange;

/// A region that cannot be sampled, because it lies on huge pages or the program is changing its
/// mappings, is tried again after this time.
const SAMPLING_RETRY_NS: u64 = 5_000_000_000;

impl Migration {
    /// A thread faulted on a page. Returns whether the page was armed: then it is a sample, once
    /// it is known where the page is.
    pub(crate) fn touched(
        &mut self,
        (object, page): (Object, PageIndex),
        touched: TouchedPage,
        cpu: u32,
        out: &mut Vec<Decision>,
    ) -> bool {
        if !self.armed.remove(object, page) {
            return false;
        }
        if self.touches.add(touched.tid, (object, page), cpu) {
            out.push(Decision::Order(Order::Locate(touched)));
        }
        true
    }

    /// An armed page that a thread has touched is on node `home`, by the kernel's number, where
    /// that is known. A sample has the weight of all that the thread has touched of the entry.
    pub(crate) fn located(
        &mut self,
        found: (Object, PageIndex),
        (pid, tid): (Pid, Tid),
        home: Option<KernelNode>,
    ) {
        let Some(touch) = self.touches.take(tid, found) else {
            return;
        };
        self.arming.sampled(touch.pages);
        let weight = SAMPLE_WEIGHT * touch.pages as f32;
        self.count(found, (pid, tid), touch.cpu, home, weight);
    }

    /// Whether a sample is an access and nothing else. Hint faults look like first touches, of
    /// files and of memory that is new.
    pub(crate) fn sees_accesses(&self) -> bool {
        self.source == SampleSource::Processor
    }

    /// Whether pages are armed, or will be.
    pub(crate) fn arms(&self) -> bool {
        self.arming.due_ns().is_some()
    }

    /// A thread on a CPU used a page that was on node `home`, by the kernel's number, where that is
    /// known.
    pub(crate) fn sample(
        &mut self,
        found: (Object, PageIndex),
        thread: (Pid, Tid),
        cpu: u32,
        home: Option<KernelNode>,
    ) {
        self.count(found, thread, cpu, home, 1.0);
    }

    /// Counts a sample.
    fn count(
        &mut self,
        (object, page): (Object, PageIndex),
        (pid, tid): (Pid, Tid),
        cpu: u32,
        home: Option<KernelNode>,
        weight: f32,
    ) {
        let node = self.host.node_of_cpu(cpu);
        let (Some(region), Some(program)) = (
            self.regions.get_mut(&object),
            self.programs.get_mut(&pid).filter(|of| !of.stopped),
        ) else {
            return;
        };
        let mut home = home.and_then(|home| self.host.node_of_kernel(home));
        if self.dry_run && region.migrated > 0 {
            // What was to be moved counts as moved.
            let cell = Block(region.base + page.0 / region.counts.cell_pages());
            home = self.host.home(cell).or(home);
        }
        match region.users {
            Sharing::Of(first) if first != node => {
                region.users = Sharing::Several;
                region.counts.clear();
                self.arming.hurry(object.0);
            }
            Sharing::Nobody => region.users = Sharing::Of(node),
            _ => {}
        }
        let scattered = program.sampled(tid, node, weight);
        region.counts.add(page.0, (node, home), weight);
        region.by_node[node.index()] += 1;
        // The kernel moves pages at its hint faults, and the page is found where it is then.
        let local = home.filter(|_| self.source != SampleSource::Hints);
        let local = local.map(|home| home == node);
        self.sampled.add(local);
        if let Some(kind) = region.kind {
            self.by_kind[kind as usize] += 1;
        }
        match region.migrated {
            0 => region.before.add(local),
            _ => region.after.add(local),
        }
        if scattered {
            self.forget_samples(pid);
        }
    }

    /// Half of a program's threads run elsewhere now: older samples say nothing.
    pub(super) fn forget_samples(&mut self, pid: Pid) {
        let regions = self.regions.values_mut();
        for region in regions.filter(|region| region.pid == pid) {
            region.counts.clear();
            region.huge.clear();
        }
        self.arming.wake();
        self.listening.wake(self.now_ns);
    }

    /// Arms the pages that are due. Only while faults are recorded: they would not be seen.
    pub(crate) fn arm(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        let mut picks = std::mem::take(&mut self.picks);
        let armed = &self.armed;
        let is_armed =
            |pick: &Pick| armed.contains_all(Object(pick.key), pick.first..pick.first + pick.pages);
        self.arming.due(now_ns, is_armed, &mut picks);
        let mut arm: BTreeMap<Pid, Vec<PageRange>> = BTreeMap::new();
        for Pick { key, first, pages } in picks.drain(..) {
            let object = Object(key);
            let region = self.regions.get(&object);
            let is_whole = |region: &&CountedRegion| {
                let mut cuts = region.cuts.iter();
                !cuts.any(|cut| cut.start < first + pages && cut.end > first)
            };
            if let Some(region) = region.filter(is_whole) {
                (first..first + pages).for_each(|page| self.armed.insert(object, PageIndex(page)));
                let start = region.start + u64::from(first) * self.page_bytes;
                let ranges = arm.entry(region.pid).or_default();
                ranges.push(PageRange { start, pages });
            }
        }
        self.picks = picks;
        let arm = arm.into_iter();
        out.extend(arm.map(|(pid, ranges)| Decision::Order(Order::Arm { pid, ranges })));
    }

    /// Faults on armed pages may have been lost: they would count as armed for ever.
    pub(crate) fn forget_armed(&mut self) {
        self.armed = ArmedPages::default();
    }

    /// Takes in how long it took to arm blocks of pages, and what the agent has spent in all since
    /// the last ones.
    pub(crate) fn took(&mut self, blocks: u32, took_ns: u64, agent_ns: u64) {
        self.arming.took(blocks, took_ns, agent_ns);
    }

    /// Pages of a region, from the given one on, could not be armed.
    pub(crate) fn unarmed(&mut self, now_ns: u64, (object, page): (Object, PageIndex), pages: u32) {
        let Some(region) = self.regions.get(&object) else {
            return;
        };
        if page == PageIndex(0) && pages >= region.pages {
            self.arming.end(object.0);
            let again_ns = now_ns + SAMPLING_RETRY_NS;
            self.retries
                .push_back((again_ns, object, region.generation));
        }
        let pages = page.0..page.0.saturating_add(pages).min(region.pages);
        pages.for_each(|page| _ = self.armed.remove(object, PageIndex(page)));
    }
}
