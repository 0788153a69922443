//! Carries the orders of the controller out.

use hither_ids::{Address, Pid};
use hither_kernel::memory_policy::{Bind, BindMode};
use hither_kernel::page_sampling::SamplingError;
use hither_kernel_events::is_alive;

use super::super::controller::PlacementController;
use super::super::event::{Input, Migrate, Order, TimedInput};
use super::actuator::PlacementActuator;
use crate::mechanism::{Context, RunState};
use crate::numa::mover::{PageJob, Task};
use crate::numa::ranges::PageRange;

impl PlacementActuator {
    pub(super) fn carry_out(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        order: Order,
    ) {
        match order {
            Order::Watch { on } => {
                // If that fails, watching stays as it is: it costs the program a little, or the
                // policy what it would learn.
                let _ = self.faults.watch(on);
            }
            Order::Listen { on } => self.samples.listen(on),
            Order::Sample {
                pid,
                start,
                length,
                on,
            } => self.sample(context, pid, (start, length), on),
            Order::Arm { pid, ranges } => self.arm_pages(context, pid, &ranges),
            Order::Locate(page) => self.to_locate.push(page),
            _ if self.dry_run => {}
            Order::Bind {
                pid,
                start,
                length,
                nodes,
            } => {
                self.request_bind(context, pid, (start, length), policy(nodes));
            }
            Order::Site { signature, nodes } => self.set_site(context.run, signature, nodes),
            Order::Move {
                job,
                pid,
                start,
                pages,
                nodes,
            } => self.send(
                job,
                pid,
                vec![PageRange { start, pages }],
                Task::Move(nodes),
            ),
            Order::Migrate(Migrate {
                job,
                pid,
                to,
                ranges,
                ..
            }) => self.send(job, pid, ranges, Task::Migrate(to)),
        }
    }

    /// Has programs bind regions that a site allocates from now on; without nodes, no longer.
    pub(super) fn set_site(&mut self, run: &mut RunState, signature: u64, nodes: u64) {
        let bind = (nodes != 0).then(|| policy(nodes));
        let requests = run.bind_requests();
        let refused =
            requests.is_none_or(|mut requests| requests.set_site(signature, bind).is_err());
        self.report.bind_requests_refused += u64::from(refused);
    }

    /// Notes a region if it begins or ends within a page; forgets one that ends.
    pub(super) fn note_uneven(&mut self, pid: Pid, start: Address, length: Option<u64>) {
        let page_bytes = self.machine.page_bytes();
        let Some(first) = start.next_page_start(page_bytes) else {
            return;
        };
        let uneven = |&length: &u64| {
            !(start.0 | length).is_multiple_of(page_bytes) && start.checked_add(length).is_some()
        };
        match length.filter(uneven) {
            Some(length) => self.uneven.insert((pid, first), (start, length)),
            None => self.uneven.remove(&(pid, first)),
        };
    }

    /// Begins or ends the sampling of a region.
    fn sample(
        &mut self,
        context: &Context<'_, PlacementController>,
        pid: Pid,
        (start, length): (Address, u64),
        on: bool,
    ) {
        // The whole region with its partial pages: they are of the same mapping, and the program
        // may move that.
        let whole = self.uneven.get(&(pid, start)).copied();
        let end = start + length;
        let page_bytes = self.machine.page_bytes();
        let is_whole =
            |&(start, length): &(Address, u64)| (start + length).page_start(page_bytes) == end;
        let whole = whole.filter(is_whole).unwrap_or((start, length));
        let arm = self.arm.as_mut();
        let done = arm.map_or(Err(SamplingError::NoCall), |arm| {
            if on {
                arm.begin(pid, whole.0, whole.1)
            } else {
                arm.end(pid, start, length)
            }
        });
        if let Some(reason) = done.err().filter(|_| on) {
            self.unarmed(context, pid, (start, length), reason);
        }
    }

    /// Arms pages: their next touches fault.
    fn arm_pages(
        &mut self,
        context: &Context<'_, PlacementController>,
        pid: Pid,
        ranges: &[PageRange],
    ) {
        let page_bytes = self.machine.page_bytes();
        let before_ns = self.own_ns();
        for range in ranges {
            let length = u64::from(range.pages) * page_bytes;
            let arm = self.arm.as_mut();
            let done = arm.map(|arm| arm.arm(pid, range.start, length));
            if let Some(Err(reason)) = done {
                self.unarmed(context, pid, (range.start, length), reason);
            }
        }
        let blocks = ranges.len() as u32;
        let now_ns = self.own_ns();
        let took_ns = now_ns - before_ns;
        let agent_ns = now_ns - std::mem::replace(&mut self.counted_ns, now_ns);
        self.later.push(TimedInput {
            time_ns: context.run.now_ns(),
            input: Input::Armed {
                blocks,
                took_ns,
                agent_ns,
            },
        });
    }

    /// Requests that a program bind a range.
    fn request_bind(
        &mut self,
        context: &mut Context<'_, PlacementController>,
        pid: Pid,
        (start, length): (Address, u64),
        bind: Bind,
    ) {
        let requests = context.run.bind_requests();
        let posted =
            requests.is_some_and(|mut requests| requests.post(pid, start, length, bind).is_ok());
        self.report.bind_requests_refused += u64::from(!posted);
    }

    fn send(&self, job: u64, pid: Pid, pages: Vec<PageRange>, task: Task) {
        if let Some(mover) = &self.mover {
            mover.send(PageJob {
                job,
                pid,
                pages,
                task,
            });
        }
    }

    /// Tells the controller that a range cannot be armed.
    fn unarmed(
        &mut self,
        context: &Context<'_, PlacementController>,
        pid: Pid,
        (start, length): (Address, u64),
        reason: SamplingError,
    ) {
        // The input of its end follows. Of a process that is ending, the kernel says that it has no
        // memory.
        if reason == SamplingError::NoProcess || !is_alive(pid) {
            return;
        }
        let pages = length / self.machine.page_bytes();
        self.report.unarmed = Some(reason);
        self.later.push(TimedInput {
            time_ns: context.run.now_ns(),
            input: Input::Unarmed {
                pid,
                start,
                pages: pages as u32,
                why: reason.to_string(),
                for_good: !reason.may_pass(),
            },
        });
    }
}

/// The memory policy of a range that is wanted on these nodes. Nodes are preferred, never bound: a
/// program that runs out of memory on a node that it is bound to is killed.
fn policy(nodes: u64) -> Bind {
    let mode = match nodes.count_ones() {
        0 => BindMode::Default,
        1 => BindMode::Preferred,
        _ => BindMode::Interleave,
    };
    Bind { mode, nodes }
}
