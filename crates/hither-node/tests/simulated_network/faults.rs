//! What goes wrong in the simulated cluster, and how it is put right.

use hither_node::protocol::{Blocks, Input, View};

use crate::scenario::MS;
use crate::world::{Event, Repair, World};

impl World {
    /// Something goes wrong, and the next fault is planned.
    pub(crate) fn start_fault(&mut self) {
        let Some(faults) = self.scenario.faults else {
            return;
        };
        if !self.disturbed {
            return;
        }
        let next = self.around(self.scenario.fault_ns);
        self.schedule(next, 0, Event::Fault);
        let count = self.nodes.len() as u64;
        let one = self.random.below(count) as usize;
        let other = self.random.below(count) as usize;
        match self.random.below(8) {
            0 if faults.breaks && one != other => {
                self.log(|_| format!("--- connection {one} - {other} breaks"));
                self.break_link(one, other);
            }
            1 if faults.crashes => self.crash(one),
            2 if faults.partitions => {
                let side = self.random.bits();
                self.log(|_| format!("--- partition {side:b}"));
                let length = self.around(1_000 * MS);
                for from in 0..self.nodes.len() {
                    for to in 0..self.nodes.len() {
                        if (side >> from ^ side >> to) & 1 == 1 {
                            self.block(from, to, length);
                        }
                    }
                }
            }
            3 if faults.one_way && one != other => {
                self.log(|_| format!("--- nothing gets from {one} to {other}"));
                let length = self.around(1_000 * MS);
                self.block(one, other, length);
            }
            4 if faults.stops && !self.nodes[one].stopped => {
                let length = if self.percent(20) {
                    60_000 * MS
                } else {
                    self.around(1_000 * MS)
                };
                self.log(|_| format!("--- {one} is stopped for {} ms", length / MS));
                let (now, node) = (self.now, &mut self.nodes[one]);
                node.stopped = true;
                node.stopped_at = now;
                self.schedule(length, one, Event::Repair(Repair::Resume));
            }
            5 if faults.clock_jumps => {
                let jump = self.around(30_000 * MS);
                self.log(|_| format!("--- the clock of {one} jumps by {} ms", jump / MS));
                self.nodes[one].clock_ahead += jump;
                self.schedule(0, one, Event::Input(Input::Timer));
            }
            6 if faults.isolation => self.isolate(one),
            7 if faults.outages => {
                let length = self.around(1_000 * MS);
                self.log(|_| format!("--- the source is away for {} ms", length / MS));
                self.outage_until = self.now + length;
            }
            _ => {}
        }
    }

    /// A fault ends.
    pub(crate) fn repair(&mut self, node: usize, repair: Repair) {
        self.log(|_| format!("--- {node}: {repair:?}"));
        match repair {
            Repair::Resume => self.resume(node),
            Repair::Restart => self.restart(node),
            Repair::Expel => {
                let state = &self.nodes[node];
                if state.protocol.is_none() || state.isolated {
                    let member = state.member;
                    let members = self.view.members.iter().copied();
                    let members = members.filter(|&other| other != member).collect();
                    self.change_view(members);
                }
            }
            Repair::Rejoin => {
                if std::mem::take(&mut self.nodes[node].isolated) {
                    self.step_or_hold(node, Input::Rejoined);
                    self.join(node);
                }
            }
            Repair::Unblock { from } => {
                let direction = usize::from(from > node);
                let link = self.link(from, node);
                link.blocked[direction] = false;
                if link.lost {
                    self.break_link(from, node);
                }
            }
        }
    }

    /// All faults end.
    pub(crate) fn calm(&mut self) {
        self.log(|_| "--- all is put right".to_owned());
        self.disturbed = false;
        self.outage_until = 0;
        for node in 0..self.nodes.len() {
            self.repair(node, Repair::Resume);
            self.repair(node, Repair::Restart);
            self.repair(node, Repair::Rejoin);
            for from in 0..node {
                let link = self.link(from, node);
                link.blocked = [false; 2];
                if link.lost {
                    self.break_link(from, node);
                }
            }
        }
    }

    fn block(&mut self, from: usize, to: usize, length: u64) {
        let direction = usize::from(from > to);
        self.link(from, to).blocked[direction] = true;
        self.schedule(length, to, Event::Repair(Repair::Unblock { from }));
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].protocol.is_none() {
            return;
        }
        let keep_store = self.percent(50);
        self.log(|_| format!("--- {node} crashes, its store is kept: {keep_store}"));
        self.resume(node);
        self.refused
            .retain(|&(from, to)| from != node && to != node);
        let gone: Vec<_> = self.nodes[node].store.keys().collect();
        self.nodes[node].crash(keep_store);
        if !keep_store {
            for block in gone {
                *self.evicted.entry(block).or_default() += 1;
            }
        }
        let (length, lease) = (self.around(2_000 * MS), 1_500 * MS);
        self.schedule(length, node, Event::Repair(Repair::Restart));
        self.schedule(lease, node, Event::Repair(Repair::Expel));
        // Whether anybody sees the connections close depends on how the node ends.
        let seen = self.percent(70);
        let member = self.nodes[node].member;
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            let link = self.link(node, other);
            link.connection += 1;
            link.last = [0; 2];
            if seen {
                let after = self.random.below(5 * MS);
                self.schedule(after, other, Event::Input(Input::PeerDown(member)));
            }
        }
    }

    fn restart(&mut self, node: usize) {
        if self.nodes[node].protocol.is_some() || self.is_retired(node) {
            return;
        }
        self.nodes[node].start(&self.scenario);
        let held: Vec<_> = self.nodes[node].store.keys().collect();
        for block in held {
            let (chunk, mask) = block.in_chunk();
            self.step(node, Input::Held(Blocks::new(chunk, mask)));
        }
        let member = self.nodes[node].member;
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            let after = self.random.below(20 * MS);
            // What was sent to the former process is lost, and its end is seen by now.
            self.schedule(after, other, Event::Input(Input::PeerDown(member)));
            self.schedule(after + 1, other, Event::Input(Input::PeerUp(member)));
        }
        self.join(node);
    }

    fn isolate(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        if state.protocol.is_none() || state.isolated {
            return;
        }
        state.isolated = true;
        self.log(|_| format!("--- {node} loses its lease"));
        self.step_or_hold(node, Input::Isolated);
        let (after, length) = (self.around(300 * MS), self.around(1_500 * MS));
        self.schedule(after, node, Event::Repair(Repair::Expel));
        self.schedule(length, node, Event::Repair(Repair::Rejoin));
    }

    fn step_or_hold(&mut self, node: usize, input: Input) {
        self.schedule(0, node, Event::Input(input));
    }

    /// A node joins, or gets the view that it has missed.
    fn join(&mut self, node: usize) {
        let mut members = self.view.members.clone();
        let member = self.nodes[node].member;
        if members.contains(&member) {
            let view = self.view.clone();
            self.schedule(1, node, Event::Input(Input::ViewChanged(view)));
        } else {
            members.push(member);
            self.change_view(members);
        }
    }

    /// The membership changes, and each node hears of it in its own time.
    fn change_view(&mut self, members: Vec<hither_node::protocol::MemberId>) {
        let step = 1 + self.random.below(5);
        self.view = View::new(self.view.epoch + step, members);
        for node in 0..self.nodes.len() {
            // Some skip a view.
            if self.disturbed && self.percent(10) {
                continue;
            }
            let lag = self.random.below(self.scenario.view_lag_ns);
            let view = self.view.clone();
            self.schedule(lag, node, Event::Input(Input::ViewChanged(view)));
        }
    }
}
