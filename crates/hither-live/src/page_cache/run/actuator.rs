//! The actuator: hears what programs read and write, and has the kernel drop what the controller
//! decides.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hither_sys::page_cache::PageCache;
use hither_sys::process::monotonic_ns;
use hither_sys::record::{Op, Record};
use hither_sys::session::RingInfo;

use super::super::controller::{BLOCK_BYTES, EXTENT_BYTES, PageCacheController};
use super::super::event::{Decision, Input, TimedInput};
use super::figures::end;
use super::{Budget, FileStats, PageCacheOptions, PageCacheReport, Room};
use crate::observe::Streams;
use crate::polling::{Backoff, Periodic};
use crate::program_files::ProgramFiles;
use crate::run::{Actuator, Agent, Poll};

const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// How often it is asked what a control group leaves for files, and said what goes on.
const LOOK_NS: u64 = 1_000_000_000;

/// How often it is asked what the kernel has given up by itself, and of how many extents: at 5 us
/// each, and 10 for a file that is opened for it, less than a hundredth of a CPU.
const ASK_NS: u64 = 250_000_000;
const ASKED: usize = 128;

/// Readaheads that are left room for: two are on their way in, and the extents that are read and
/// not yet dropped.
const READ_AHEADS: u64 = 4;

/// A program that reads from storage is so much further, at most, when it is first heard of.
const HEARD_LATE_BYTES: u64 = 8 << 20;

/// What a program must have read of a file for its own reading from storage to say whether it was
/// cached. That is counted when reading is asked for, so what was not cached is in it.
const TOLD_MIN_BYTES: u64 = 64 << 10;

/// Of a large file, the extents that are asked after.
const ASKED_MAX: u64 = 4096;

/// So many files and call sites are told of.
const BUSIEST: usize = 8;

/// Steers the page cache.
pub(super) struct PageCacheActuator {
    dry_run: bool,
    spare_preexisting: bool,
    /// The budget, and what it last came to.
    budget: Budget,
    room: Room,
    /// What of a group's memory is not to be counted on.
    reserve_bytes: u64,
    program_files: ProgramFiles,
    /// Files that were opened and used since the last look; of those that no program had used
    /// before, the sizes.
    opened: BTreeMap<u64, Option<u64>>,
    /// What carrying out a decision led to: heard with the next look.
    later: Vec<Input>,
    ask: Periodic,
    look: Periodic,
    pause: Backoff,
    files: PageCacheReport,
}

impl Actuator for PageCacheActuator {
    type Controller = PageCacheController;

    fn on_record(
        &mut self,
        streams: &mut Streams,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, Input)> {
        if let Some((file, size)) = self.program_files.on_record(ring, record) {
            self.opened.entry(file).or_insert(size);
        }
        let &Record::Access {
            op,
            time_ns,
            signature,
            object: file,
            offset,
            length,
            ..
        } = record
        else {
            return None;
        };
        let stream = streams.of(ring);
        let input = match op {
            Op::Read | Op::Write => Input::Access {
                file,
                offset,
                length,
                signature,
                process: streams.stream(stream).image,
                thread: stream,
                write: op == Op::Write,
            },
            Op::Map => Input::Mapped { file },
            Op::Truncate => Input::Cut {
                file,
                bytes: offset,
            },
            Op::Unmap => return None,
        };
        Some((time_ns, input))
    }

    fn step(&mut self, agent: &mut Agent<PageCacheController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        self.take(agent, now_ns, poll.events);
        if self.ask.is_due(now_ns) {
            self.ask(agent, now_ns);
        }
        if self.look.is_due(now_ns) {
            self.look(agent, now_ns);
        }
    }

    fn pause(&mut self, records: usize) -> Duration {
        self.pause.after(records == 0)
    }
}

impl PageCacheActuator {
    pub(super) fn new(cache: Arc<dyn PageCache>, options: &PageCacheOptions) -> PageCacheActuator {
        PageCacheActuator {
            dry_run: options.run.dry_run,
            spare_preexisting: !options.all_files,
            budget: options.budget.clone(),
            room: options.budget.room(0),
            reserve_bytes: 0,
            program_files: ProgramFiles::new(cache),
            opened: BTreeMap::new(),
            later: Vec::new(),
            ask: Periodic::after(ASK_NS),
            look: Periodic::after(LOOK_NS),
            pause: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            files: PageCacheReport::default(),
        }
    }

    /// Has the controller hear of it all, and carries out what it decides.
    fn take(
        &mut self,
        agent: &mut Agent<PageCacheController>,
        now_ns: u64,
        events: Vec<TimedInput>,
    ) {
        for input in std::mem::take(&mut self.later) {
            agent.input(now_ns, input);
        }
        for (file, size) in std::mem::take(&mut self.opened) {
            agent.input(now_ns, Input::Opened { file });
            let Some(size) = size else {
                continue;
            };
            let reserve = READ_AHEADS * self.program_files.readahead_bytes(file);
            if reserve > self.reserve_bytes {
                self.reserve_bytes = reserve;
                self.look_at_budget(agent, now_ns);
            }
            self.find_preexisting(agent, now_ns, file, size, &events);
        }
        for at in events {
            if let Input::Access { signature, .. } = at.input {
                agent.sites.insert(signature);
            }
            agent.input(at.time_ns, at.input);
        }
        if agent.controller.due() {
            agent.input(now_ns, Input::Tick);
        }
        match self.dry_run {
            true => agent.decisions.clear(),
            false => self.carry_out(agent),
        }
    }

    /// Says what of a file was in the page cache before a program came to it: what is there out of
    /// the reach of what it read until now, and of the readahead that this had. Within that reach
    /// it is told by what the program had read from storage meanwhile, where it read a good deal.
    fn find_preexisting(
        &mut self,
        agent: &mut Agent<PageCacheController>,
        now_ns: u64,
        file: u64,
        size: u64,
        events: &[TimedInput],
    ) {
        if !self.spare_preexisting || size == 0 {
            return;
        }
        let ahead = 2 * self.program_files.readahead_bytes(file);
        let (mut from, mut to, mut read, mut last) = (u64::MAX, 0, 0, 0);
        for at in events {
            if let Input::Access {
                file: of,
                offset,
                length,
                write: false,
                ..
            } = at.input
                && of == file
            {
                (from, to) = (from.min(offset), to.max(offset + length));
                // Programs do not tell of what they read on in a block.
                let untold = offset.saturating_sub(last);
                read += length + if untold < BLOCK_BYTES { untold } else { 0 };
                last = offset + length;
            }
        }
        let stored = self.program_files.stored_bytes(file);
        let cached = read >= TOLD_MIN_BYTES && stored.is_some_and(|stored| stored < read / 2);
        let reached = match to {
            // It was told of and not yet read.
            0 => 0..ahead.max(HEARD_LATE_BYTES),
            to => from..to + ahead + HEARD_LATE_BYTES,
        };
        let outside =
            |offset: u64| cached || offset + EXTENT_BYTES <= reached.start || offset >= reached.end;
        let extents = size.div_ceil(EXTENT_BYTES).min(ASKED_MAX);
        if !(0..extents).any(|extent| outside(extent * EXTENT_BYTES)) {
            return;
        }
        let Ok(opened) = self.program_files.open(file) else {
            return;
        };
        for offset in (0..extents).map(|extent| extent * EXTENT_BYTES) {
            if !outside(offset) {
                continue;
            }
            match opened.cached(offset, EXTENT_BYTES) {
                Ok(cached) if cached.pages > 0 => {
                    let length = EXTENT_BYTES;
                    let preexisting = Input::Preexisting {
                        file,
                        offset,
                        length,
                    };
                    agent.input(now_ns, preexisting);
                }
                Ok(_) => {}
                Err(refused) => {
                    self.files.unseen = Some(refused);
                    return;
                }
            }
        }
    }

    /// Finds out what the kernel has given up by itself, or those who had it: a few extents each
    /// time.
    fn ask(&mut self, agent: &mut Agent<PageCacheController>, now_ns: u64) {
        let doubtful = agent.controller.doubtful(ASKED);
        for of_file in doubtful.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let Ok(opened) = self.program_files.open(file) else {
                continue;
            };
            for &(_, offset) in of_file {
                match opened.cached(offset, EXTENT_BYTES) {
                    Ok(cached) if cached.pages == 0 => {
                        let length = EXTENT_BYTES;
                        let absent = Input::Absent {
                            file,
                            offset,
                            length,
                        };
                        agent.input(now_ns, absent);
                    }
                    Ok(_) => {}
                    Err(refused) => {
                        self.files.unseen = Some(refused);
                        return;
                    }
                }
            }
        }
    }

    fn look_at_budget(&mut self, agent: &mut Agent<PageCacheController>, now_ns: u64) {
        let room = self.budget.room(self.reserve_bytes);
        if room != self.room {
            self.room = room;
            let Room { bytes, alone_bytes } = room;
            agent.input(now_ns, Input::Budget { bytes, alone_bytes });
        }
    }

    /// Looks at the budget, and says what goes on for those who look on.
    fn look(&mut self, agent: &mut Agent<PageCacheController>, now_ns: u64) {
        self.look_at_budget(agent, now_ns);
        self.count(agent);
        agent.publish(now_ns, end(&self.files));
    }

    /// Takes over the controller's figures.
    fn count(&mut self, agent: &Agent<PageCacheController>) {
        let PageCacheActuator {
            program_files,
            files,
            ..
        } = self;
        let controller = &agent.controller;
        files.summary = controller.summary();
        files.readahead_disabled = agent.session.readahead_disabled();
        files.busiest_sites = controller.busiest_sites(BUSIEST);
        let busiest = controller.busiest_files(BUSIEST).into_iter();
        let named = busiest.map(|(file, tally)| FileStats {
            path: program_files.path(file).unwrap_or(Path::new("")).to_owned(),
            tally,
        });
        files.busiest_files = named.collect();
    }

    /// Has programs do without readahead, and drops what is to be dropped, each file opened once.
    fn carry_out(&mut self, agent: &mut Agent<PageCacheController>) {
        let mut drops = Vec::new();
        for decision in agent.decisions.drain(..) {
            match decision {
                Decision::Drop {
                    file,
                    offset,
                    length,
                } => drops.push((file, offset, length)),
                Decision::Full => agent.session.disable_readahead(),
                Decision::Judged(_) => {}
            }
        }
        let start_ns = monotonic_ns();
        for of_file in drops.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let opened = match self.program_files.open(file) {
                Ok(opened) => opened,
                Err(reason) => {
                    self.files.why_unreachable = Some(reason);
                    if !reason.may_pass() {
                        self.later.push(Input::Gone { file });
                    }
                    continue;
                }
            };
            for &(_, offset, length) in of_file {
                match opened.drop_pages(offset, length) {
                    Ok(()) => self.files.dropped += 1,
                    Err(refused) => {
                        self.files.refused += 1;
                        self.files.why_refused = Some(refused);
                    }
                }
            }
        }
        if !drops.is_empty() {
            self.files.drop_time += Duration::from_nanos(monotonic_ns() - start_ns);
        }
    }

    /// What came of it all. Completes the log.
    pub(super) fn finish(mut self, agent: Agent<PageCacheController>) -> PageCacheReport {
        self.count(&agent);
        let mut files = PageCacheReport {
            sites: agent.controller.sites(),
            lost: agent.session.lost(),
            agent: agent.cpu(),
            ..self.files
        };
        files.log = agent.finish(&end(&files));
        files
    }
}
