//! The agent: hears what programs read and write, has the driver decide, and has the kernel drop what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use hither_sys::page_cache::{FileId, PageCache};
use hither_sys::process::{cpu_ns, monotonic_ns};
use hither_sys::record::{Op, Record};
use hither_sys::session::{RingInfo, Session};

use super::super::driver::{BLOCK_BYTES, Driver, EXTENT_BYTES};
use super::super::event::{At, Decision, Input};
use super::figures::end;
use super::{Budget, FileTally, Files, FilesOptions, Room};
use crate::log::{Driven, Log};
use crate::observe::{Definitions, Streams, sites};
use crate::reach::Reach;
use crate::status::{Board, Status};
use crate::symbolise::Symboliser;

const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// How often the rings of threads that died without a word are looked for.
const REAP_NS: u64 = 500_000_000;

/// How often it is asked what a control group leaves for files, and said what goes on.
const LOOK_NS: u64 = 1_000_000_000;

/// How often it is asked what the kernel has given up by itself, and of how many extents: at 5 us each, and 10 for a file
/// that is opened for it, less than a hundredth of a CPU.
const ASK_NS: u64 = 250_000_000;
const ASKED: usize = 128;

/// Readaheads that are left room for: two are on their way in, and the extents that are read and not yet dropped.
const READ_AHEADS: u64 = 4;

/// A program that reads from storage is so much further, at most, when it is first heard of.
const HEARD_LATE_BYTES: u64 = 8 << 20;

/// What a program must have read of a file for its own reading from storage to say whether it was cached. That is counted when
/// reading is asked for, so what was not cached is in it.
const TOLD_MIN_BYTES: u64 = 64 << 10;

/// Of a large file, the extents that are asked after.
const ASKED_MAX: u64 = 4096;

/// So many files and call sites are told of.
const BUSIEST: usize = 8;

/// The agent at work.
pub(super) struct Agent {
    driver: Driver,
    log: Option<Log<Driver>>,
    session: Session,
    dry_run: bool,
    spare_foreign: bool,
    /// The budget, and what it last came to.
    budget: Budget,
    room: Room,
    /// What of a group's memory is not to be counted on.
    reserve_bytes: u64,
    start_ns: u64,
    reach: Reach,
    streams: Streams,
    definitions: Definitions,
    /// Files that were opened and used since the last look; of those that no program had used before, the sizes.
    opened: BTreeMap<u64, Option<u64>>,
    events: Vec<At>,
    /// What carrying out a decision led to: heard with the next look.
    later: Vec<Input>,
    /// Sites of accesses, for the log.
    sites: BTreeSet<u64>,
    board: Option<Board>,
    /// What is said of the run and does not change.
    said: Status,
    cpu_before_ns: u64,
    files: Files,
}

impl Agent {
    pub(super) fn new(
        cache: Arc<dyn PageCache>,
        driver: Driver,
        log: Option<Log<Driver>>,
        session: Session,
        options: &FilesOptions,
    ) -> Agent {
        let words = options.command.iter();
        let shown = words.map(|word| word.to_string_lossy().into_owned());
        Agent {
            driver,
            log,
            session,
            dry_run: options.dry_run,
            spare_foreign: !options.all_files,
            budget: options.budget.clone(),
            room: options.budget.room(0),
            reserve_bytes: 0,
            start_ns: monotonic_ns(),
            reach: Reach::new(cache),
            streams: Streams::default(),
            definitions: Definitions::default(),
            opened: BTreeMap::new(),
            events: Vec::new(),
            later: Vec::new(),
            sites: BTreeSet::new(),
            board: Board::new(std::process::id()),
            said: Status {
                agent: std::process::id(),
                command: shown.collect(),
                policy: options.policy.to_string(),
                dry_run: options.dry_run,
                ..Status::default()
            },
            cpu_before_ns: cpu_ns(),
            files: Files::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// Takes everything in until `ended` is set, and then once more.
    pub(super) fn attend(&mut self, ended: &AtomicBool) {
        let mut pause = PAUSE_MIN;
        let (mut reaped_ns, mut asked_ns, mut looked_ns) = (0, 0, 0);
        loop {
            // Read first: what the program did before it ended is seen by the sweep after.
            let last = ended.load(Ordering::Acquire);
            let now_ns = self.now_ns();
            let reap = now_ns - reaped_ns >= REAP_NS;
            if reap {
                reaped_ns = now_ns;
            }
            let quiet = self.sweep(reap) == 0;
            self.hear(now_ns);
            if now_ns - asked_ns >= ASK_NS {
                self.ask(now_ns);
                asked_ns = now_ns;
            }
            if now_ns - looked_ns >= LOOK_NS {
                self.look(now_ns);
                looked_ns = now_ns;
            }
            if last {
                self.session.close();
                return;
            }
            pause = match quiet {
                true => (pause * 2).min(PAUSE_MAX),
                false => PAUSE_MIN,
            };
            thread::park_timeout(pause);
        }
    }

    /// Empties the rings into `events`, in order of time.
    fn sweep(&mut self, reap: bool) -> usize {
        let Agent {
            session,
            streams,
            definitions,
            reach,
            opened,
            events,
            start_ns,
            ..
        } = self;
        let mut heard = |ring: &RingInfo, record: Record<'_>| {
            if let Record::Object {
                object,
                device,
                inode,
                birth_ns,
                size,
                path,
            } = record
            {
                let id = FileId {
                    device,
                    inode,
                    birth_ns,
                };
                let pid = (!ring.foreign).then_some(ring.pid);
                if reach.learn(object, id, path, pid) {
                    opened.insert(object, Some(size));
                } else {
                    opened.entry(object).or_insert(None);
                }
            }
            let at = heard(streams, definitions, ring, record, *start_ns);
            events.extend(at);
        };
        let mut records = session.drain(&mut heard);
        if reap {
            records += session.reap(&mut heard);
        }
        events.sort_by_key(|at| at.time_ns);
        records
    }

    /// Has the driver hear of it all, and carries out what it decides.
    fn hear(&mut self, now_ns: u64) {
        let events = std::mem::take(&mut self.events);
        for input in std::mem::take(&mut self.later) {
            self.input(now_ns, input, &mut Vec::new());
        }
        for (file, size) in std::mem::take(&mut self.opened) {
            self.input(now_ns, Input::Opened { file }, &mut Vec::new());
            let Some(size) = size else {
                continue;
            };
            let reserve = READ_AHEADS * self.reach.read_ahead_bytes(file);
            if reserve > self.reserve_bytes {
                self.reserve_bytes = reserve;
                self.look_at_budget(now_ns);
            }
            self.find_foreign(now_ns, file, size, &events);
        }
        let mut decisions = Vec::new();
        for at in events {
            if let Input::Access { signature, .. } = at.input {
                self.sites.insert(signature);
            }
            self.input(at.time_ns, at.input, &mut decisions);
        }
        if self.driver.due() {
            self.input(now_ns, Input::Tick, &mut decisions);
        }
        if !self.dry_run {
            self.carry_out(&decisions);
        }
    }

    fn input(&mut self, time_ns: u64, input: Input, decisions: &mut Vec<Decision>) {
        let at = At { time_ns, input };
        let first = decisions.len();
        self.driver.input(&at, decisions);
        if let Some(log) = &mut self.log {
            log.input(&at);
            for decision in &decisions[first..] {
                log.decision(decision);
            }
        }
    }

    /// Says what of a file was in the page cache before a program came to it: what is there out of the reach of what it
    /// read until now, and of the readahead that this had. Within that reach it is told by what the program had read from
    /// storage meanwhile, where it read a good deal.
    fn find_foreign(&mut self, now_ns: u64, file: u64, size: u64, events: &[At]) {
        if !self.spare_foreign || size == 0 {
            return;
        }
        let ahead = 2 * self.reach.read_ahead_bytes(file);
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
        let stored = self.reach.stored_bytes(file);
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
        let Ok(opened) = self.reach.open(file) else {
            return;
        };
        for offset in (0..extents).map(|extent| extent * EXTENT_BYTES) {
            if !outside(offset) {
                continue;
            }
            match opened.cached(offset, EXTENT_BYTES) {
                Ok(cached) if cached.pages > 0 => {
                    let length = EXTENT_BYTES;
                    let foreign = Input::Foreign {
                        file,
                        offset,
                        length,
                    };
                    self.input(now_ns, foreign, &mut Vec::new());
                }
                Ok(_) => {}
                Err(refused) => {
                    self.files.unseen = Some(refused);
                    return;
                }
            }
        }
    }

    /// Finds out what the kernel has given up by itself, or those who had it: a few extents each time.
    fn ask(&mut self, now_ns: u64) {
        let doubtful = self.driver.doubtful(ASKED);
        for of_file in doubtful.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let Ok(opened) = self.reach.open(file) else {
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
                        self.input(now_ns, absent, &mut Vec::new());
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

    fn look_at_budget(&mut self, now_ns: u64) {
        let room = self.budget.room(self.reserve_bytes);
        if room != self.room {
            self.room = room;
            let Room { bytes, alone_bytes } = room;
            self.input(
                now_ns,
                Input::Budget { bytes, alone_bytes },
                &mut Vec::new(),
            );
        }
    }

    /// Looks at the budget, and says what goes on for those who look on.
    fn look(&mut self, now_ns: u64) {
        self.look_at_budget(now_ns);
        self.count();
        if let Some(board) = &self.board {
            board.post(&Status {
                ran_ns: now_ns,
                agent_ns: cpu_ns() - self.cpu_before_ns,
                figures: end(&self.files),
                ..self.said.clone()
            });
        }
    }

    /// Takes over the driver's figures.
    fn count(&mut self) {
        let Agent {
            driver,
            reach,
            files,
            ..
        } = self;
        files.summary = driver.summary();
        files.busiest_sites = driver.busiest_sites(BUSIEST);
        let busiest = driver.busiest_files(BUSIEST).into_iter();
        let named = busiest.map(|(file, tally)| FileTally {
            path: reach.path(file).unwrap_or(Path::new("")).to_owned(),
            tally,
        });
        files.busiest_files = named.collect();
    }

    /// Drops what is to be dropped, each file opened once.
    fn carry_out(&mut self, decisions: &[Decision]) {
        let drops = decisions.iter().filter_map(|decision| match *decision {
            Decision::Drop {
                file,
                offset,
                length,
            } => Some((file, offset, length)),
            Decision::Judged(_) => None,
        });
        let drops: Vec<(u64, u64, u64)> = drops.collect();
        let start_ns = monotonic_ns();
        for of_file in drops.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let opened = match self.reach.open(file) {
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

    /// Names the call sites and completes the log.
    pub(super) fn finish(mut self, wall: SystemTime) -> Files {
        self.count();
        let mut files = Files {
            sites: self.driver.sites(),
            lost: self.session.lost(),
            agent: Duration::from_nanos(cpu_ns() - self.cpu_before_ns),
            ..self.files
        };
        if let Some(mut log) = self.log {
            let signatures: Vec<u64> = self.sites.into_iter().collect();
            for site in sites::rows(&signatures, &self.definitions, &Symboliser::new(wall)) {
                log.site(&site);
            }
            files.log = log.finish(&end(&files)).err();
        }
        files
    }
}

/// What a record says that the driver wants to hear. Names of call sites go to `definitions`.
fn heard(
    streams: &mut Streams,
    definitions: &mut Definitions,
    ring: &RingInfo,
    record: Record<'_>,
    start_ns: u64,
) -> Option<At> {
    let (time_ns, input) = match record {
        Record::Access {
            op,
            time_ns,
            signature,
            object: file,
            offset,
            length,
            ..
        } => {
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
            (time_ns, input)
        }
        Record::Process {
            parent, exe, args, ..
        } => {
            streams.announced(ring, parent, exe, args);
            return None;
        }
        Record::Site {
            signature,
            truncated,
            frames,
        } => {
            definitions.site(signature, truncated, frames);
            return None;
        }
        Record::Module {
            module,
            build_id,
            path,
        } => {
            use std::os::unix::ffi::OsStrExt;
            definitions.module(module, build_id, std::ffi::OsStr::from_bytes(path).into());
            return None;
        }
        _ => return None,
    };
    Some(At {
        time_ns: time_ns.saturating_sub(start_ns),
        input,
    })
}
