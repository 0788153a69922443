//! First faults, and the tier of a region once the policy has seen enough of them.

use hither_core::placement::{PageTouch, PlacementHost, RegionTier};
use hither_core::{Block, Node, Object, Thread};
use hither_ids::{Address, PageIndex, Pid, Tid};

use super::super::event::{Decision, Note, Order, Settled};
use super::page_runs::{PageRun, PageRuns};
use super::placement_controller::PlacementController;
use super::tracked_region::TrackedRegion;

impl PlacementController {
    /// Takes in a fault: the first touch of a page, as far as is known.
    pub(super) fn fault(
        &mut self,
        now_ns: u64,
        (pid, tid): (Pid, Tid),
        cpu: u32,
        address: Address,
        out: &mut Vec<Decision>,
    ) {
        let found = self.find(pid, address);
        let found = found.and_then(|(object, page)| {
            let region = self.tracked[object.index()].as_mut()?;
            let block = region.base.map(|base| Block(base + page.0));
            let block = block.filter(|&block| region.watched && self.host.home(block).is_none());
            Some((object, region, page, block?))
        });
        let Some((object, region, page, block)) = found else {
            self.recording.charge(1);
            return;
        };
        region.faults += 1;
        self.summary.faults += 1;
        let node = self.host.node_of_cpu(cpu);
        let thread = Thread(tid.0);
        self.host.place(PageTouch {
            block,
            object,
            index: region.index(address, page, self.huge_page_bytes),
            process: region.process,
            thread,
            node,
        });
        if self.host.region_tier(object).is_some() {
            region.watched = false;
            self.recording.decided();
            self.tier_decided(now_ns, object, node, thread, out);
        }
    }

    /// The policy has decided the tier of a region: decides where its pages go.
    pub(super) fn tier_decided(
        &mut self,
        now_ns: u64,
        object: Object,
        from: Node,
        thread: Thread,
        out: &mut Vec<Decision>,
    ) {
        let region = self.tracked[object.index()].as_mut();
        let region = region.expect("the caller found it");
        let tier = self.host.region_tier(object).expect("the caller asked");
        region.tier = Some(tier);
        region.from = from;
        let here = self.host.node_mask(from);
        let runs = match tier {
            RegionTier::Local => Vec::new(),
            RegionTier::Remote => place_all(&mut self.host, object, region, from, thread),
        };
        let (away, stays): (Vec<PageRun>, Vec<PageRun>) = runs
            .into_iter()
            .filter(|run| run.nodes != 0)
            .partition(|run| run.nodes != here);
        let pages_away: u32 = away.iter().map(|run| run.pages).sum();
        let nodes = away.iter().fold(0, |nodes, run| nodes | run.nodes);
        // Pages that were touched before the tier was settled stay where they are. They do not mean
        // that the site's regions go to several nodes.
        let alike = away.iter().all(|run| run.nodes == nodes)
            && nodes != 0
            && pages_away + region.faults >= region.left;
        let bound_before = self.sites.bound(region.signature);
        let target = alike.then_some(nodes);
        if let Some(bound) = self.sites.region_decided(region.signature, tier, target) {
            out.push(Decision::Order(Order::Site {
                signature: region.signature,
                nodes: bound.unwrap_or(0),
            }));
        }
        self.summary.pages_away += u64::from(pages_away);
        let placed_on = if nodes == 0 { here } else { nodes };
        out.push(self.note_tier(object, tier, placed_on, pages_away));
        let region = self.tracked[object.index()].as_mut();
        let region = region.expect("the caller found it");
        // The site's policy holds for all regions that are allocated there, so that runs that stay
        // near this time get their own.
        let by_site = bound_before.is_some() && region.faults == 0;
        for run in stays.iter().filter(|_| by_site) {
            out.push(region.bind_request(run, 0, self.page_bytes));
        }
        if !stays.is_empty() {
            self.limited.insert((region.pid, object));
        }
        region.kept = stays;
        self.bind(object, away, out);
        if tier == RegionTier::Local {
            self.count(now_ns, object, out);
        }
    }

    /// Counts the tier of a region, and notes it.
    fn note_tier(&mut self, object: Object, tier: RegionTier, nodes: u64, away: u32) -> Decision {
        match tier {
            RegionTier::Local => self.summary.near += 1,
            RegionTier::Remote => self.summary.far += 1,
        }
        let region = self.tracked[object.index()].as_ref();
        let region = region.expect("the caller found it");
        Decision::Note(Note::Settled(Settled {
            pid: region.pid,
            start: region.start,
            length: u64::from(region.pages) * self.page_bytes,
            signature: region.signature,
            faults: region.faults,
            known: region.faults == 0,
            tier,
            from: self.host.kernel_number(region.from),
            nodes,
            away,
        }))
    }

    /// A program has allocated more memory, so that more of it may be far. Asks again about the
    /// pages of far regions that the policy kept near, until the first page that it still keeps.
    pub(super) fn reconsider(&mut self, pid: Pid, out: &mut Vec<Decision>) {
        let range = (pid, Object(0))..=(pid, Object(u32::MAX));
        let limited: Vec<Object> = self
            .limited
            .range(range)
            .map(|&(_, object)| object)
            .collect();
        let thread = Thread(pid.0);
        for object in limited {
            let region = self.tracked[object.index()].as_mut();
            let region = region.expect("it leaves the list with its last page");
            let kept = std::mem::take(&mut region.kept);
            let (away, kept) = place_kept(&mut self.host, object, region, kept, thread);
            let all = kept.is_empty();
            region.kept = kept;
            let pages_away: u32 = away.iter().map(|run| run.pages).sum();
            self.summary.pages_away += u64::from(pages_away);
            self.bind(object, away, out);
            if !all {
                return;
            }
            self.limited.remove(&(pid, object));
        }
    }
}

/// Has the policy place the pages again that it had kept near, up to the first that it still keeps.
/// Returns the runs that it wants elsewhere now, and those that it keeps.
fn place_kept(
    host: &mut PlacementHost,
    object: Object,
    region: &TrackedRegion,
    kept: Vec<PageRun>,
    thread: Thread,
) -> (Vec<PageRun>, Vec<PageRun>) {
    let node = region.from;
    let (mut away, mut still) = (Vec::new(), Vec::new());
    for run in kept {
        let mut runs = PageRuns::default();
        let mut asked = 0;
        while asked < run.pages && still.is_empty() {
            let index = run.first + asked;
            let block = region.block(PageIndex(index));
            let mut at = None;
            if !region.is_cut(PageIndex(index)) {
                host.remove(block);
                at = host.place(region.touch(object, PageIndex(index), thread, node));
                if at == Some(node) {
                    break;
                }
            }
            runs.push(at.map_or(0, |at| host.node_mask(at)));
            asked += 1;
        }
        away.extend(runs.finish().into_iter().map(|found| PageRun {
            first: run.first + found.first,
            ..found
        }));
        if asked < run.pages {
            still.push(PageRun {
                first: run.first + asked,
                pages: run.pages - asked,
                ..run
            });
        }
    }
    away.retain(|run| run.nodes != 0);
    (away, still)
}

/// Has the policy place all pages of a region that have no home yet. Returns the runs by the nodes
/// that they are wanted on.
fn place_all(
    host: &mut PlacementHost,
    object: Object,
    region: &TrackedRegion,
    node: Node,
    thread: Thread,
) -> Vec<PageRun> {
    let mut runs = PageRuns::default();
    for index in 0..region.pages {
        let block = region.block(PageIndex(index));
        let at = match host.home(block) {
            _ if region.is_cut(PageIndex(index)) => None,
            // Pages that were placed near before the tier was settled stay.
            Some(home) => Some(home).filter(|&home| home != node),
            None => host.place(region.touch(object, PageIndex(index), thread, node)),
        };
        runs.push(at.map_or(0, |at| host.node_mask(at)));
    }
    runs.finish()
}
