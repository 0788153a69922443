//! First faults, and what the policy makes of a region once it has seen enough of them.

use hither_core::placement::Class;
use hither_core::{Block, Node, Object, Thread};

use super::super::event::{Decision, Settled};
use super::super::regions::Cut;
use super::Driver;
use super::life::Tracked;
use super::model::{Model, Touch};
use super::orders::{Key, Segment, State, Timers, WAIT_NS};
use super::segments::{Run, Runs};

impl Driver {
    /// A page was touched first.
    pub(super) fn fault(
        &mut self,
        now_ns: u64,
        (pid, tid): (u32, u32),
        cpu: u32,
        address: u64,
        out: &mut Vec<Decision>,
    ) {
        let found = self.regions.find(pid, address).and_then(|(object, page)| {
            let region = self.tracked[object.index()].as_mut()?;
            let block = Block(region.base + page);
            let news = region.class.is_none() && self.model.home(block).is_none();
            news.then_some((object, region, page, block))
        });
        let Some((object, region, page, block)) = found else {
            self.watch.useless();
            return;
        };
        region.faults += 1;
        self.summary.faults += 1;
        let (node, pid) = (self.model.node_of_cpu(cpu), region.pid);
        let start = region.start + u64::from(page) * self.page_bytes;
        let thread = Thread(self.threads.number((pid, tid)));
        let placed = self.model.place(Touch {
            block,
            object,
            index: region.index(address, page, self.huge_page_bytes),
            process: region.process,
            thread,
            node,
        });
        if self.model.class(object).is_some() {
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
            Class::Local => Vec::new(),
            Class::Remote => wanted(&mut self.model, object, region, from, thread),
        };
        let (away, stays): (Vec<Run>, Vec<Run>) = runs
            .into_iter()
            .filter(|run| run.nodes != 0)
            .partition(|run| run.nodes != here);
        let pages_away: u32 = away.iter().map(|run| run.pages).sum();
        let nodes = away.iter().fold(0, |nodes, run| nodes | run.nodes);
        // What was touched before it was settled stays where it is, and is no sign of a change of mind.
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
            Class::Local => self.summary.near += 1,
            Class::Remote => self.summary.far += 1,
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
        // A site's policy holds for all that is allocated there, also for what this time is not wanted there.
        let by_site = bound_before.filter(|_| region.faults == 0);
        for run in stays.iter().filter(|_| by_site.is_some()) {
            out.push(region.order(run, 0, self.page_bytes));
        }
        for run in away {
            let state = match by_site == Some(run.nodes) {
                true => State::Site,
                false => State::Ordered,
            };
            if state == State::Ordered {
                out.push(region.order(&run, run.nodes, self.page_bytes));
            }
            let key = Key {
                object,
                generation: self.generations[object.index()],
                segment: region.segments.len(),
            };
            let timer = match self.dry_run {
                true => Timers::NONE,
                false => self.timers.set(now_ns + WAIT_NS, key),
            };
            region.segments.push(Segment {
                run,
                state,
                wait_ns: WAIT_NS,
                retries: 0,
                timer,
            });
        }
    }
}

/// Has the policy place all pages of a region that are nowhere yet, and says where each is wanted.
fn wanted(
    model: &mut Model,
    object: Object,
    region: &Tracked,
    node: Node,
    thread: Thread,
) -> Vec<Run> {
    let mut runs = Runs::default();
    for index in 0..region.pages {
        let gone = |cut: &Cut| (cut.first..cut.first + cut.pages).contains(&index);
        let block = Block(region.base + index);
        let at = match model.home(block) {
            _ if region.cuts.iter().any(gone) => None,
            // What was placed near before it was settled stays.
            Some(home) => Some(home).filter(|&home| home != node),
            None => model.place(Touch {
                block,
                object,
                index,
                process: region.process,
                thread,
                node,
            }),
        };
        runs.push(at.map_or(0, |at| model.bit(at)));
    }
    runs.finish()
}
