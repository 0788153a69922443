//! A run of recorded programs: their requests go to a modelled kernel, and to the controller, whose
//! drops the kernel carries out.

use hither_core::references::{Reported, Request};
use hither_core::{Op, Spec};
use hither_ids::FileKey;
use hither_trace::schema::{AccessRow, RowOp, SiteRow};

use super::super::controller::{
    BLOCK_BYTES, BLOCK_SIZE, EXTENT_BYTES, PageCacheConfig, PageCacheController,
};
use super::super::event::{Decision, Input, Order, TimedInput};
use super::super::run::{
    BUDGET_MIN_BYTES, BUDGET_PERIOD_NS, PAUSED_PERIOD_NS, RESIDENCY_PERIOD_NS, STORAGE_PERIOD_NS,
    steered_bytes,
};
use super::kernel::{KernelCache, Reader};
use super::memory::Memory;
use crate::controller::Controller;

/// The kernel alone.
pub(super) struct Alone {
    pub(super) kernel: KernelCache,
    pub(super) memory: Memory,
}

impl Alone {
    pub(super) fn request(&mut self, row: &AccessRow) {
        if self.memory.change(row.time_ns).is_some() {
            self.kernel.resize(self.memory.unmapped());
        }
        apply(&mut self.kernel, row);
    }
}

/// A program makes a request to the kernel.
fn apply(kernel: &mut KernelCache, row: &AccessRow) {
    if row.op == RowOp::Write {
        kernel.write(row.object, row.offset, row.length);
        return;
    }
    let reader = Reader {
        process: row.process,
        file: row.object,
    };
    kernel.read(reader, row.offset, row.length);
}

/// How a run is set up.
#[derive(Clone, Copy)]
pub(super) struct RunSetup<'a> {
    pub(super) policy: Spec,
    pub(super) sites: &'a [SiteRow],
    /// The size of each file when it was opened.
    pub(super) sizes: &'a [u64],
    pub(super) readahead_bytes: u64,
    /// The agent takes what programs report so often.
    pub(super) poll_ns: u64,
}

/// The same under `hither run`.
pub(super) struct Steered<'a> {
    setup: RunSetup<'a>,
    kernel: KernelCache,
    memory: Memory,
    left_bytes: u64,
    controller: PageCacheController,
    /// By thread.
    reported: Vec<Reported<Op>>,
    /// By file: it was opened.
    opened: Vec<bool>,
    /// What the programs have reported since the last poll.
    inputs: Vec<TimedInput>,
    polled_ns: u64,
    counted_ns: u64,
    counted_bytes: u64,
    checked_ns: u64,
    budgeted_ns: u64,
    /// Programs report nothing.
    paused: bool,
}

impl<'a> Steered<'a> {
    /// `None`: the policy cannot run.
    pub(super) fn new(
        setup: RunSetup<'a>,
        kernel: KernelCache,
        memory: Memory,
    ) -> Option<Steered<'a>> {
        let left_bytes = memory.first();
        let controller = PageCacheController::new(&PageCacheConfig {
            policy: setup.policy,
            budget_bytes: budget(left_bytes, setup.readahead_bytes),
            alone_bytes: left_bytes.max(BUDGET_MIN_BYTES),
            block_bytes: BLOCK_BYTES,
            dry_run: false,
            given: false,
            limit: None,
            always: false,
            spare_preexisting: true,
            sites: Vec::new(),
        });
        Some(Steered {
            setup,
            kernel,
            memory,
            left_bytes,
            controller: controller.ok()?,
            reported: Vec::new(),
            opened: Vec::new(),
            inputs: Vec::new(),
            polled_ns: 0,
            counted_ns: 0,
            counted_bytes: 0,
            checked_ns: 0,
            budgeted_ns: 0,
            paused: true,
        })
    }

    pub(super) fn kernel(&self) -> &KernelCache {
        &self.kernel
    }

    pub(super) fn request(&mut self, row: &AccessRow) {
        if row.time_ns >= self.polled_ns + self.setup.poll_ns {
            self.poll(row.time_ns);
        }
        if let Some(bytes) = self.memory.change(row.time_ns) {
            self.left_bytes = bytes;
            self.kernel.resize(self.memory.unmapped());
        }
        self.open(row);
        apply(&mut self.kernel, row);
        let thread = row.thread as usize;
        if self.reported.len() <= thread {
            let nothing = Reported::nothing(Op::Read);
            self.reported.resize(thread + 1, nothing);
        }
        let request = Request {
            op: match row.op {
                RowOp::Write => Op::Write,
                _ => Op::Read,
            },
            offset: row.offset,
            length: row.length,
        };
        let file = FileKey(row.object.into());
        let report = self.reported[thread].report(row.object.into(), request, BLOCK_SIZE);
        if let Some((before, request)) = report.before {
            self.report(row, FileKey(before), request);
        }
        if report.is_reported {
            self.report(row, file, request);
        }
    }

    /// A program opens a file.
    fn open(&mut self, row: &AccessRow) {
        let file = row.object as usize;
        if self.opened.len() <= file {
            self.opened.resize(file + 1, false);
        }
        if !std::mem::replace(&mut self.opened[file], true) {
            self.input(
                row.time_ns,
                Input::Opened {
                    file: FileKey(row.object.into()),
                    bytes: self.setup.sizes.get(file).copied().unwrap_or(0),
                    readahead_bytes: self.setup.readahead_bytes,
                    // Nothing is cached of it.
                    is_first: false,
                    cached_before: None,
                },
            );
        }
    }

    fn report(&mut self, row: &AccessRow, file: FileKey, request: Request<Op>) {
        let site = self.setup.sites.get(row.site as usize);
        self.input(
            row.time_ns,
            Input::Access {
                file,
                offset: request.offset,
                length: request.length,
                signature: site.map_or(0, |site| site.signature),
                process: row.process,
                thread: row.thread,
                write: request.op == Op::Write,
            },
        );
    }

    fn input(&mut self, time_ns: u64, input: Input) {
        self.inputs.push(TimedInput { time_ns, input });
    }

    /// The agent takes what was reported, and has dropped what the controller decides.
    fn poll(&mut self, now_ns: u64) {
        self.polled_ns = now_ns;
        for input in std::mem::take(&mut self.inputs) {
            self.step(&input);
        }
        if self.controller.due(now_ns) {
            self.step_now(now_ns, Input::Tick);
        }
        let period_ns = if self.paused {
            PAUSED_PERIOD_NS
        } else {
            STORAGE_PERIOD_NS
        };
        if now_ns >= self.counted_ns + period_ns {
            self.count(now_ns);
        }
        if now_ns >= self.checked_ns + RESIDENCY_PERIOD_NS {
            self.checked_ns = now_ns;
            self.step_now(now_ns, Input::CheckResidency);
        }
        if now_ns >= self.budgeted_ns + BUDGET_PERIOD_NS {
            self.budgeted_ns = now_ns;
            let alone_bytes = self.left_bytes.max(BUDGET_MIN_BYTES);
            let bytes = budget(self.left_bytes, self.setup.readahead_bytes);
            self.step_now(now_ns, Input::Budget { bytes, alone_bytes });
        }
    }

    fn count(&mut self, now_ns: u64) {
        self.counted_ns = now_ns;
        let read_bytes = self.kernel.read_bytes();
        let bytes = read_bytes - std::mem::replace(&mut self.counted_bytes, read_bytes);
        self.step_now(
            now_ns,
            Input::Stored {
                bytes,
                transferred_bytes: bytes,
            },
        );
    }

    fn step_now(&mut self, time_ns: u64, input: Input) {
        self.step(&TimedInput { time_ns, input });
    }

    fn step(&mut self, at: &TimedInput) {
        let mut decisions = Vec::new();
        self.controller.step(at, &mut decisions);
        for decision in decisions {
            if let Decision::Order(order) = decision {
                self.carry_out(at.time_ns, order);
            }
        }
    }

    fn carry_out(&mut self, now_ns: u64, order: Order) {
        match order {
            Order::Drop {
                file,
                offset,
                length,
            } => self.kernel.drop_range(object(file), offset, length),
            Order::FindAbsent { file, offsets } => {
                for offset in offsets {
                    if !self.kernel.has_any(object(file), offset, EXTENT_BYTES) {
                        self.step_now(
                            now_ns,
                            Input::Absent {
                                file,
                                offset,
                                length: EXTENT_BYTES,
                            },
                        );
                    }
                }
            }
            Order::Count => self.count(now_ns),
            Order::DisableReadahead => self.kernel.spare_random(),
            // In a pause the controller passes over what is reported.
            Order::Pause { paused } => self.paused = paused,
            // They are of use to a limit, and to what was cached before or is mapped.
            Order::CountFile { .. }
            | Order::FindPreexisting { .. }
            | Order::FindAhead { .. }
            | Order::CountExtents { .. }
            | Order::Unwatch { .. } => {}
        }
    }
}

/// The number of a file that has a key of the trace.
fn object(file: FileKey) -> u32 {
    file.0 as u32
}

fn budget(left_bytes: u64, readahead_bytes: u64) -> u64 {
    steered_bytes(left_bytes, readahead_bytes).max(BUDGET_MIN_BYTES)
}
