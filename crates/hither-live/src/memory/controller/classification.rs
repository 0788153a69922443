//! First faults, and what the policy makes of a region once it has seen enough of them.

use hither_core::placement::RegionTier;
use hither_core::{Block, Node, Object, Thread};

use super::super::event::{Decision, Settled};
use super::PlacementController;
use super::bind_requests::State;
use super::lifecycle::TrackedRegion;
use super::page_runs::{Run, Runs};
use super::placement_host::{PlacementHost, Touch};

impl PlacementController {
    /// A page was touched first.
    pub(super) fn fault(
        &mut self,
        now_ns: u64,
        (pid, tid): (u32, u32),
        cpu: u32,
        address: u64,
        out: &mut Vec<Decision>,
    ) {
        let found = self.find(pid, address);
        let counted = found.is_some_and(|(object, _)| {
            let region = self.tracked[object.index()].as_ref();
            region.is_some_and(|region| region.counted)
        });
        if counted {
            let armed =
                found.is_some_and(|found| self.sample(now_ns, found, (pid, tid), cpu, false));
            if !armed {
                self.watch.charge();
            }
            return;
        }
        let found = found.and_then(|(object, page)| {
            let region = self.tracked[object.index()].as_mut()?;
            if region.class != Some(RegionTier::Remote) && !region.own {
                let node = self.model.node_of_cpu(cpu);
                self.spilled.touched(object, page, node);
            }
            let block = Block(region.base + page);
            let news = region.watched && self.model.home(block).is_none();
            news.then_some((object, region, page, block))
        });
        let Some((object, region, page, block)) = found else {
            self.watch.charge();
            return;
        };
        region.faults += 1;
        self.summary.faults += 1;
        let (node, pid) = (self.model.node_of_cpu(cpu), region.pid);
        let start = region.start + u64::from(page) * self.page_bytes;
        let thread = Thread(tid);
        let placed = self.model.place(Touch {
            block,
            object,
            index: region.index(address, page, self.huge_page_bytes),
            process: region.process,
            thread,
            node,
        });
        if self.model.class(object).is_some() {
            region.watched = false;
            self.watch.decided();
            self.settle(now_ns, object, node, thread, out);
        } else if let Some(to) = placed.filter(|&to| to != node) {
            out.push(Decision::Move {
                job: self.job_count,
                pid,
                start,
                pages: 1,
                nodes: self.model.bit(to),
            });
            self.job_count += 1;
        }
    }

    /// The policy has a class for the region.
    pub(super) fn settle(
        &mut self,
        now_ns: u64,
        object: Object,
        from: Node,
        thread: Thread,
        out: &mut Vec<Decision>,
    ) {
        let region = self.tracked[object.index()].as_mut();
        let region = region.expect("the caller found it");
        let class = self.model.class(object).expect("the caller asked");
        region.class = Some(class);
        region.from = from;
        let here = self.model.bit(from);
        let runs = match class {
            RegionTier::Local => Vec::new(),
            RegionTier::Remote => wanted(&mut self.model, object, region, from, thread),
        };
        let (away, stays): (Vec<Run>, Vec<Run>) = runs
            .into_iter()
            .filter(|run| run.nodes != 0)
            .partition(|run| run.nodes != here);
        let pages_away: u32 = away.iter().map(|run| run.pages).sum();
        let nodes = away.iter().fold(0, |nodes, run| nodes | run.nodes);
        // What was touched before it was settled stays where it is, and is no sign of a change of
        // mind.
        let alike = away.iter().all(|run| run.nodes == nodes)
            && nodes != 0
            && pages_away + region.faults >= region.left;
        let bound_before = self.sites.bound(region.signature);
        let target = alike.then_some(nodes);
        if let Some(bound) = self.sites.settled(region.signature, class, target) {
            out.push(Decision::Site {
                signature: region.signature,
                nodes: bound.unwrap_or(0),
            });
        }
        match class {
            RegionTier::Local => self.summary.near += 1,
            RegionTier::Remote => self.summary.far += 1,
        }
        self.summary.pages_away += u64::from(pages_away);
        out.push(Decision::Settled(Settled {
            pid: region.pid,
            start: region.start,
            length: u64::from(region.pages) * self.page_bytes,
            signature: region.signature,
            faults: region.faults,
            known: region.faults == 0,
            class,
            from: self.model.kernel_number(from),
            nodes: if nodes == 0 { here } else { nodes },
            away: pages_away,
        }));
        // A site's policy holds for all that is allocated there, also for what this time is not
        // wanted there.
        let by_site = bound_before.filter(|_| region.faults == 0);
        for run in stays.iter().filter(|_| by_site.is_some()) {
            out.push(region.bind_request(run, 0, self.page_bytes));
        }
        if !stays.is_empty() {
            self.limited.insert((region.pid, object));
        }
        region.kept = stays;
        self.send(now_ns, object, away, by_site, out);
        if class == RegionTier::Local {
            self.count(now_ns, object, out);
        }
    }

    /// A program has more memory than it had, and so more of its far regions may be far: what the
    /// policy kept near of them is asked about again, until the first page that it still keeps.
    pub(super) fn reconsider(&mut self, now_ns: u64, pid: u32, out: &mut Vec<Decision>) {
        let range = (pid, Object(0))..=(pid, Object(u32::MAX));
        let limited: Vec<Object> = self
            .limited
            .range(range)
            .map(|&(_, object)| object)
            .collect();
        let thread = Thread(pid);
        for object in limited {
            let region = self.tracked[object.index()].as_mut();
            let region = region.expect("it is taken off the list with its last page");
            let kept = std::mem::take(&mut region.kept);
            let (away, kept) = no_longer_kept(&mut self.model, object, region, kept, thread);
            let all = kept.is_empty();
            region.kept = kept;
            let pages_away: u32 = away.iter().map(|run| run.pages).sum();
            self.summary.pages_away += u64::from(pages_away);
            self.send(now_ns, object, away, None, out);
            if !all {
                return;
            }
            self.limited.remove(&(pid, object));
        }
    }

    /// Runs of a region are wanted elsewhere, where `by_site` has bound them already, unless the
    /// program says otherwise.
    fn send(
        &mut self,
        now_ns: u64,
        object: Object,
        away: Vec<Run>,
        by_site: Option<u64>,
        out: &mut Vec<Decision>,
    ) {
        let away = away.into_iter().map(|run| {
            let state = match by_site == Some(run.nodes) {
                true => State::Site,
                false => State::Requested,
            };
            (run, state)
        });
        self.bind(now_ns, object, away, out);
    }
}

/// Has the policy place again, from the first on, what it had kept near; says what it wants
/// elsewhere now, and what it keeps.
fn no_longer_kept(
    model: &mut PlacementHost,
    object: Object,
    region: &TrackedRegion,
    kept: Vec<Run>,
    thread: Thread,
) -> (Vec<Run>, Vec<Run>) {
    let node = region.from;
    let (mut away, mut still) = (Vec::new(), Vec::new());
    for run in kept {
        let mut runs = Runs::default();
        let mut asked = 0;
        while asked < run.pages && still.is_empty() {
            let index = run.first + asked;
            let block = Block(region.base + index);
            let mut at = None;
            if !region.is_cut(index) {
                model.leave(block);
                at = model.place(region.touch(object, index, thread, node));
                if at == Some(node) {
                    break;
                }
            }
            runs.push(at.map_or(0, |at| model.bit(at)));
            asked += 1;
        }
        away.extend(runs.finish().into_iter().map(|found| Run {
            first: run.first + found.first,
            ..found
        }));
        if asked < run.pages {
            still.push(Run {
                first: run.first + asked,
                pages: run.pages - asked,
                ..run
            });
        }
    }
    away.retain(|run| run.nodes != 0);
    (away, still)
}

/// Has the policy place all pages of a region that are nowhere yet, and says where each is wanted.
fn wanted(
    model: &mut PlacementHost,
    object: Object,
    region: &TrackedRegion,
    node: Node,
    thread: Thread,
) -> Vec<Run> {
    let mut runs = Runs::default();
    for index in 0..region.pages {
        let block = Block(region.base + index);
        let at = match model.home(block) {
            _ if region.is_cut(index) => None,
            // What was placed near before it was settled stays.
            Some(home) => Some(home).filter(|&home| home != node),
            None => model.place(region.touch(object, index, thread, node)),
        };
        runs.push(at.map_or(0, |at| model.bit(at)));
    }
    runs.finish()
}
