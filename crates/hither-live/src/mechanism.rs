//! A mechanism of a run: as a rule a controller, the log of its decisions, and the actuator that
//! carries them out ([`Controlled`]).
//!
//! [`crate::event_loop`] feeds all mechanisms of a run from one drain of its sources. A mechanism
//! knows nothing of the others: they share only the run's [`RunState`].

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hither_ids::FileKey;
use hither_kernel::process::{cpu_ns, monotonic_ns};
use hither_kernel::process_tree::{Roots, Transferred};
use hither_session::bind_requests::BindRequestSender;
use hither_session::record::Record;
use hither_session::session::{Lost, RingInfo, Session, SessionOptions};
use hither_trace::schema::SiteRow;
use serde::Serialize;

use crate::controller::{Controller, Decision, DecisionOf, TimedInput};
use crate::decision_log::{DecisionLog, LogFile};
use crate::error::{Error, Result};
use crate::event_source::{self, EventSource};
use crate::observe::intern::Definitions;
use crate::observe::sites;
use crate::observe::streams::Streams;
use crate::polling::Lateness;
use crate::status::MechanismStatus;
use crate::symbolise::Symboliser;

/// The shortest wait for a controller's deadline.
const DEADLINE_WAIT_MIN: Duration = Duration::from_millis(1);

/// A source of any kind.
type AnySource = dyn EventSource + 'static;

/// What all mechanisms and sinks of a run share.
pub(crate) struct RunState {
    /// The library in the programs. It is the first source.
    pub(crate) library: Session,
    /// The other sources.
    others: Vec<Box<dyn EventSource>>,
    pub(crate) streams: Streams,
    pub(crate) definitions: Definitions,
    /// CLOCK_MONOTONIC at the start of the run.
    pub(crate) start_ns: u64,
    /// Where the programs' processes begin. None until the program has started.
    pub(crate) roots: Option<Roots>,
    /// How many mechanisms and sinks use accesses to files.
    file_users: usize,
    /// How late the agent was woken.
    pub(crate) lateness: Lateness,
    started: SystemTime,
    cpu_before_ns: u64,
}

impl RunState {
    /// The state at the start of a run, of which so many parts use accesses to files.
    pub(crate) fn new(library: Session, file_users: usize) -> RunState {
        RunState {
            library,
            others: Vec::new(),
            file_users,
            streams: Streams::default(),
            definitions: Definitions::default(),
            start_ns: monotonic_ns(),
            roots: None,
            lateness: Lateness::default(),
            started: SystemTime::now(),
            cpu_before_ns: cpu_ns(),
        }
    }

    /// Adds a source.
    pub(crate) fn add_source(&mut self, source: Box<dyn EventSource>) {
        self.others.push(source);
    }

    /// Time since the start of the run.
    pub(crate) fn now_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    /// All sources of events.
    pub(crate) fn sources(&mut self) -> impl Iterator<Item = &mut AnySource> {
        self.parts().0
    }

    /// All sources, and what their records make known.
    pub(crate) fn parts(
        &mut self,
    ) -> (
        impl Iterator<Item = &mut AnySource>,
        &mut Streams,
        &mut Definitions,
    ) {
        let library = std::iter::once(&mut self.library as &mut AnySource);
        let others = self.others.iter_mut().map(|source| &mut **source);
        let sources = library.chain(others);
        (sources, &mut self.streams, &mut self.definitions)
    }

    /// The call sites with these signatures as far as they are known, without the names of their
    /// functions.
    pub(crate) fn sites(&self, signatures: impl Iterator<Item = u64>) -> Vec<SiteRow> {
        let signatures: BTreeSet<u64> = signatures.collect();
        let known = signatures
            .into_iter()
            .filter(|&it| self.definitions.site(it).is_some());
        known
            .map(|it| sites::unnamed(it, &self.definitions))
            .collect()
    }

    /// What was lost so far.
    pub(crate) fn lost(&self) -> Lost {
        let others = self.others.iter().map(|source| source.lost());
        event_source::sum(std::iter::once(self.library.lost()).chain(others))
    }

    /// What threads of the programs that have ended had transferred, if a source counts that.
    pub(crate) fn transferred_by_ended(&mut self) -> Option<Transferred> {
        self.sources()
            .find_map(|source| source.transferred_by_ended())
    }

    /// A mechanism does not need a file: stops the reporting of accesses to it, unless others use
    /// accesses to files, too.
    pub(crate) fn stop_reporting(&self, file: FileKey) {
        if self.file_users == 1 {
            self.library.stop_recording_file(file);
        }
    }

    /// A mechanism has no use for accesses to files for now, or has again: programs that can be
    /// asked to record none meanwhile, unless others use them, too.
    pub(crate) fn pause(&mut self, paused: bool) {
        let paused = paused && self.file_users == 1;
        for source in self.sources() {
            source.pause(paused);
        }
    }

    /// A mechanism has no use for reads of files that were cached when programs opened them, or has
    /// again: programs do not record them, unless others use them, too.
    pub(crate) fn skip_cached(&self, skipped: bool) {
        self.library.skip_cached(skipped && self.file_users == 1);
    }

    /// Has programs disable readahead on descriptors that they read at random, where they can be
    /// asked to.
    pub(crate) fn disable_readahead(&mut self) {
        for source in self.sources() {
            source.disable_readahead();
        }
    }

    /// By what programs are asked to bind memory.
    pub(crate) fn bind_requests(&mut self) -> Option<BindRequestSender<'_>> {
        self.sources().find_map(EventSource::bind_requests)
    }

    /// Processor time of this process since the start of the run.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_nanos(cpu_ns() - self.cpu_before_ns)
    }
}

/// What a mechanism needs of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionNeeds {
    /// Accesses to files are recorded, except for those that continue the last one within a block
    /// of so many bytes; 0: all of them are ([`SessionOptions::block_bytes`]).
    pub(crate) block_bytes: Option<u64>,
    /// Call sites are recorded.
    pub(crate) call_sites: bool,
    /// See [`SessionOptions::readahead`].
    pub(crate) readahead: bool,
    /// See [`SessionOptions::samples_cached`].
    pub(crate) samples_cached: bool,
    /// See [`SessionOptions::announced`].
    pub(crate) announced: bool,
    /// See [`SessionOptions::region_min`].
    pub(crate) region_min: u64,
    /// See [`SessionOptions::sampling`].
    pub(crate) sampling: bool,
    /// See [`SessionOptions::file_nodes`].
    pub(crate) file_nodes: u64,
}

impl SessionNeeds {
    /// The needs of both.
    ///
    /// The smaller block counts: the mechanism with larger blocks then gets accesses within a block
    /// that continue the last one, and skips them itself.
    pub(crate) fn and(self, other: SessionNeeds) -> SessionNeeds {
        let block_bytes = [self.block_bytes, other.block_bytes];
        SessionNeeds {
            block_bytes: block_bytes.into_iter().flatten().min(),
            call_sites: self.call_sites || other.call_sites,
            readahead: self.readahead || other.readahead,
            samples_cached: self.samples_cached || other.samples_cached,
            announced: self.announced || other.announced,
            region_min: self.region_min.max(other.region_min),
            sampling: self.sampling || other.sampling,
            file_nodes: self.file_nodes | other.file_nodes,
        }
    }

    /// How many frames call sites have where the kernel reports: so many, or none if nobody needs
    /// call sites.
    pub(crate) fn kernel_frames(self, frames_max: usize) -> Option<usize> {
        self.call_sites.then_some(frames_max)
    }

    /// The options of a session that has what is needed; the rest is as in `base`.
    pub(crate) fn options(self, base: SessionOptions) -> SessionOptions {
        SessionOptions {
            frames_max: if self.call_sites { base.frames_max } else { 1 },
            files: self.block_bytes.is_some(),
            block_bytes: self.block_bytes.unwrap_or(0),
            // Random access is detected by blocks.
            readahead: self.readahead && self.block_bytes.is_some_and(|bytes| bytes > 0),
            samples_cached: self.samples_cached,
            announced: self.announced,
            region_min: self.region_min,
            sampling: self.sampling,
            file_nodes: self.file_nodes,
            ..base
        }
    }
}

/// Whom a record is of, and what is known by then.
pub(crate) struct Origin<'a> {
    pub(crate) ring: &'a RingInfo,
    pub(crate) streams: &'a mut Streams,
    pub(crate) definitions: &'a mut Definitions,
    /// The program image that the record announces.
    pub(crate) new_image: Option<u32>,
}

/// The result of a drain, for a mechanism.
pub(crate) struct Poll<I> {
    /// When the drain began.
    pub(crate) now_ns: u64,
    /// The mechanism's inputs, in order of time.
    pub(crate) inputs: Vec<TimedInput<I>>,
    /// How many records there were, including those without use to this mechanism.
    pub(crate) records: usize,
    /// What threads have left that are gone was drained, too.
    pub(crate) reaped: bool,
    /// The program has ended.
    pub(crate) last: bool,
}

/// What an actuator works with: its controller, and the state that all of a run share.
pub(crate) struct Context<'a, C: Controller> {
    pub(crate) controller: &'a mut C,
    /// Orders that are not carried out yet, the oldest first.
    pub(crate) orders: &'a mut VecDeque<C::Order>,
    /// Call sites to name in the log.
    pub(crate) sites: &'a mut BTreeSet<u64>,
    pub(crate) run: &'a mut RunState,
    /// The decisions on one input. The orders move to `orders` once they are logged.
    decided: &'a mut Vec<DecisionOf<C>>,
    log: &'a mut Option<DecisionLog<C>>,
}

impl<C: Controller> Context<'_, C> {
    /// Gives an input to the controller, and adds its orders to `orders`.
    pub(crate) fn input(&mut self, time_ns: u64, input: C::Input) {
        let at = TimedInput { time_ns, input };
        self.controller.step(&at, self.decided);
        if let Some(log) = &mut self.log {
            log.input(&at);
            self.decided
                .iter()
                .for_each(|decision| log.decision(decision));
        }
        self.orders.extend(
            self.decided
                .drain(..)
                .filter_map(|decision| match decision {
                    Decision::Order(order) => Some(order),
                    Decision::Note(_) => None,
                }),
        );
    }

    /// Whether there is a log.
    pub(crate) fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Names the call sites and completes the log. Returns why the log is incomplete, if it is.
    pub(crate) fn finish_log(&mut self, figures: &impl Serialize) -> Option<Error> {
        let log = self.log.take()?;
        let signatures: Vec<u64> = std::mem::take(self.sites).into_iter().collect();
        let symboliser = Symboliser::new(self.run.started);
        for site in sites::rows(&signatures, &self.run.definitions, &symboliser) {
            log.site(&site);
        }
        log.finish(figures).err()
    }
}

/// Carries out the decisions of a controller, and reports the outcomes to it.
pub(crate) trait Actuator: Send {
    /// The controller.
    type Controller: Controller;
    /// The result of a run.
    type Report;

    /// Called when the session was created.
    fn attach(&mut self, _run: &mut RunState) {}

    /// Called by the thread that starts the program, just before it does: what is opened here for
    /// children is inherited by the program alone.
    fn prepare(&mut self) {}

    /// Called by the loop's thread before the first poll.
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Adds inputs that do not come as records, such as page samples. `start_ns`: the start of the
    /// run.
    fn take_samples(&mut self, _start_ns: u64, _inputs: &mut Vec<TimedInput<InputOf<Self>>>) {}

    /// The input that a record makes, if any, and its time.
    fn on_record(
        &mut self,
        origin: &mut Origin<'_>,
        record: &Record<'_>,
    ) -> Option<(u64, InputOf<Self>)>;

    /// Gives the inputs of a poll to the controller, and carries its decisions out.
    fn step(&mut self, context: &mut Context<'_, Self::Controller>, poll: Poll<InputOf<Self>>);

    /// How long to wait for the next poll at most, after one with so many records.
    fn poll_interval(&mut self, records: usize) -> Duration;

    /// The status of the mechanism.
    fn status(&mut self, context: &mut Context<'_, Self::Controller>) -> MechanismStatus;

    /// Completes the log, and returns the result of the run. `ran`: how long the program ran.
    fn finish(self, context: Context<'_, Self::Controller>, ran: Duration) -> Self::Report;
}

/// The input of an actuator's controller.
pub(crate) type InputOf<A> = <<A as Actuator>::Controller as Controller>::Input;

/// A mechanism with a controller.
pub(crate) struct Controlled<A: Actuator> {
    actuator: A,
    controller: A::Controller,
    config: <A::Controller as Controller>::Config,
    needs: SessionNeeds,
    orders: VecDeque<<A::Controller as Controller>::Order>,
    decided: Vec<DecisionOf<A::Controller>>,
    sites: BTreeSet<u64>,
    log: Option<DecisionLog<A::Controller>>,
    /// Inputs since the last step.
    inputs: Vec<TimedInput<InputOf<A>>>,
}

impl<A: Actuator> Controlled<A> {
    /// The mechanism at the start of a run.
    pub(crate) fn new(
        actuator: A,
        config: <A::Controller as Controller>::Config,
        needs: SessionNeeds,
    ) -> Result<Controlled<A>> {
        Ok(Controlled {
            controller: A::Controller::new(&config)?,
            actuator,
            config,
            needs,
            orders: VecDeque::new(),
            decided: Vec::new(),
            sites: BTreeSet::new(),
            log: None,
            inputs: Vec::new(),
        })
    }

    fn parts<'a>(&'a mut self, run: &'a mut RunState) -> (&'a mut A, Context<'a, A::Controller>) {
        let context = Context {
            controller: &mut self.controller,
            orders: &mut self.orders,
            sites: &mut self.sites,
            run,
            decided: &mut self.decided,
            log: &mut self.log,
        };
        (&mut self.actuator, context)
    }

    /// See [`Actuator::finish`].
    pub(crate) fn finish(mut self, run: &mut RunState, ran: Duration) -> A::Report {
        // Never freed: the command ends here, and a controller that knows thousands of files takes
        // as long to free as it took to fill.
        let mut controller = ManuallyDrop::new(self.controller);
        let context = Context {
            controller: &mut *controller,
            orders: &mut self.orders,
            sites: &mut self.sites,
            run,
            decided: &mut self.decided,
            log: &mut self.log,
        };
        self.actuator.finish(context, ran)
    }
}

/// A mechanism, for the loop. Its result is its own: `finish` of the type returns it.
pub(crate) trait Mechanism: Send {
    /// It, for the loop.
    fn as_mechanism(&mut self) -> &mut dyn Mechanism
    where
        Self: Sized,
    {
        self
    }

    /// What it needs of the session.
    fn needs(&self) -> SessionNeeds;

    /// Whether it decides as the program runs, so that there is something to log.
    fn decides(&self) -> bool;

    /// Begins the log of its decisions.
    fn begin_log(&mut self, _file: &Arc<LogFile>) {}

    /// See [`Actuator::attach`].
    fn attach(&mut self, _run: &mut RunState) {}

    /// See [`Actuator::prepare`].
    fn prepare(&mut self) {}

    /// See [`Actuator::start`].
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// See [`Actuator::take_samples`].
    fn take_samples(&mut self, _start_ns: u64) {}

    /// Takes in a record.
    fn on_record(&mut self, _start_ns: u64, _origin: &mut Origin<'_>, _record: &Record<'_>) {}

    /// Gives the inputs since the last step to the controller, and carries its decisions out.
    fn step(&mut self, _run: &mut RunState, _poll: Poll<()>) {}

    /// How long to wait for the next drain at most, after one with so many records. `None`: until
    /// the program has ended.
    fn wait(&mut self, _now_ns: u64, _records: usize) -> Option<Duration> {
        None
    }

    /// The status of the mechanism, if it has one.
    fn status(&mut self, _run: &mut RunState) -> Option<MechanismStatus> {
        None
    }
}

impl<A: Actuator> Mechanism for Controlled<A> {
    fn needs(&self) -> SessionNeeds {
        self.needs
    }

    fn decides(&self) -> bool {
        true
    }

    fn begin_log(&mut self, file: &Arc<LogFile>) {
        self.log = Some(DecisionLog::begin(file, &self.config));
    }

    fn attach(&mut self, run: &mut RunState) {
        self.actuator.attach(run);
    }

    fn prepare(&mut self) {
        self.actuator.prepare();
    }

    fn start(&mut self) -> io::Result<()> {
        self.actuator.start()
    }

    fn take_samples(&mut self, start_ns: u64) {
        self.actuator.take_samples(start_ns, &mut self.inputs);
    }

    fn on_record(&mut self, start_ns: u64, origin: &mut Origin<'_>, record: &Record<'_>) {
        let input = self.actuator.on_record(origin, record);
        self.inputs.extend(input.map(|(time_ns, input)| TimedInput {
            time_ns: time_ns.saturating_sub(start_ns),
            input,
        }));
    }

    fn step(&mut self, run: &mut RunState, poll: Poll<()>) {
        let mut inputs = std::mem::take(&mut self.inputs);
        // Stable, so that the inputs of one thread stay in order.
        inputs.sort_by_key(|at| at.time_ns);
        let poll = Poll {
            inputs,
            now_ns: poll.now_ns,
            records: poll.records,
            reaped: poll.reaped,
            last: poll.last,
        };
        let (actuator, mut context) = self.parts(run);
        actuator.step(&mut context, poll);
    }

    fn wait(&mut self, now_ns: u64, records: usize) -> Option<Duration> {
        let interval = self.actuator.poll_interval(records);
        let deadline_ns = self.controller.next_deadline_ns();
        let wait = deadline_ns.map(|deadline_ns| {
            let wait = Duration::from_nanos(deadline_ns.saturating_sub(now_ns));
            wait.max(DEADLINE_WAIT_MIN).min(interval)
        });
        Some(wait.unwrap_or(interval))
    }

    fn status(&mut self, run: &mut RunState) -> Option<MechanismStatus> {
        let (actuator, mut context) = self.parts(run);
        Some(actuator.status(&mut context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_serves_all_mechanisms() {
        let page_cache = SessionNeeds {
            block_bytes: Some(16 << 10),
            call_sites: true,
            readahead: true,
            ..SessionNeeds::default()
        };
        let memory = SessionNeeds {
            call_sites: true,
            announced: true,
            region_min: 1 << 20,
            sampling: true,
            ..SessionNeeds::default()
        };
        let migration = SessionNeeds {
            block_bytes: Some(64 << 10),
            ..SessionNeeds::default()
        };
        let base = SessionOptions::default();
        let options = page_cache.and(memory).and(migration).options(base);
        let expected = SessionOptions {
            block_bytes: 16 << 10,
            readahead: true,
            region_min: 1 << 20,
            sampling: true,
            ..base
        };
        assert_eq!(options, expected);
        assert!(!migration.options(base).announced);
        let options = memory.options(base);
        assert!(!options.files && options.block_bytes == 0);
        assert_eq!(migration.options(base).frames_max, 1);
    }
}
