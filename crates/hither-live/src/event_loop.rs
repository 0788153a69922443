//! The loop of the agent's thread: sources in, mechanisms and sinks out.
//!
//! Each turn drains all [sources](crate::event_source), gives each record to all mechanisms and
//! sinks, lets the mechanisms decide and act, and waits as long as all of them can. There is one
//! loop, for `hither run` and `hither record`, and so one order of events:
//!
//! - The records of a thread come in order.
//! - Where the agent is behind, all sources are drained step by step in time ([`Horizon`]), so that
//!   what is given to mechanisms and sinks in one turn is not much later than what comes in the
//!   next.
//! - Within a turn, a mechanism gets its inputs sorted by time. A sink that needs more holds events
//!   back: the recorder does, for a second.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hither_kernel::process::monotonic_ns;
use hither_session::record::Record;
use hither_session::session::RingInfo;

use crate::event_source::EventSource;
use crate::horizon::Horizon;
use crate::mechanism::{Mechanism, Origin, Poll, RunState};
use crate::polling::Periodic;
use crate::status::{Status, StatusFile};

/// How often the rings of threads that died without reporting it are looked for.
const REAP_PERIOD_NS: u64 = 500_000_000;

/// The same where there is a sink. Reaping also gives memory back that drains no longer need, of
/// which a recording has much more.
const SINK_REAP_PERIOD_NS: u64 = 100_000_000;

/// How often the status is published.
const STATUS_PERIOD_NS: u64 = 1_000_000_000;

/// What takes records and decides nothing, such as the recorder.
pub(crate) trait Sink: Send {
    /// Called by the loop's thread before the first drain.
    fn start(&mut self) {}

    /// Takes in a record.
    fn on_record(&mut self, origin: &mut Origin<'_>, record: &Record<'_>);

    /// All records of a drain were given. Returns the number of events that the sink has taken from
    /// elsewhere.
    fn drained(&mut self, run: &mut RunState, drained: &Drained) -> usize;

    /// How long to wait for the next drain at most, after one with so many events.
    fn wait(&mut self, events: usize) -> Duration;
}

/// A drain of all sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    /// When it began (CLOCK_MONOTONIC).
    pub(crate) at_ns: u64,
    /// Up to where the sources were drained. `None`: to the end.
    pub(crate) until_ns: Option<u64>,
    /// No other one follows.
    pub(crate) last: bool,
}

/// Publishes the status of a run.
pub(crate) struct StatusPublisher {
    status: Status,
    file: Option<StatusFile>,
    period: Periodic,
}

impl StatusPublisher {
    /// Begins with what is known before the run.
    pub(crate) fn new(status: Status) -> StatusPublisher {
        StatusPublisher {
            file: StatusFile::new(status.agent),
            status,
            period: Periodic::after(STATUS_PERIOD_NS),
        }
    }
}

/// See the module.
pub(crate) struct EventLoop<'a> {
    pub(crate) state: &'a mut RunState,
    pub(crate) mechanisms: Vec<&'a mut dyn Mechanism>,
    pub(crate) sinks: Vec<&'a mut dyn Sink>,
    pub(crate) status: Option<StatusPublisher>,
}

impl EventLoop<'_> {
    /// Turns until `ended` is set, and then until all is drained.
    pub(crate) fn run(mut self, ended: &AtomicBool) -> io::Result<()> {
        for mechanism in &mut self.mechanisms {
            mechanism.start()?;
        }
        self.sinks.iter_mut().for_each(|sink| sink.start());
        let mut horizon = Horizon::new(self.state.start_ns);
        let mut reap = Periodic::after(if self.sinks.is_empty() {
            REAP_PERIOD_NS
        } else {
            SINK_REAP_PERIOD_NS
        });
        loop {
            // Read before the drain, so that the last drain finds all that the program did.
            let ended = ended.load(Ordering::Acquire);
            if ended {
                // Processes that go on could keep the agent behind for ever.
                self.state.sources().for_each(EventSource::close);
            }
            let at_ns = monotonic_ns();
            let now_ns = at_ns - self.state.start_ns;
            let until_ns = horizon.advance(at_ns);
            let is_behind = until_ns < u64::MAX;
            let mut records = self.drain(until_ns);
            horizon.took(records);
            let reaped = !is_behind && reap.is_due(now_ns);
            if reaped {
                records += self.take(|source, take| source.reap(take));
            }
            let last = ended && !is_behind;
            for mechanism in &mut self.mechanisms {
                let poll = Poll {
                    now_ns,
                    inputs: Vec::new(),
                    records,
                    reaped,
                    last,
                };
                mechanism.step(self.state, poll);
            }
            let drained = Drained {
                at_ns,
                until_ns: is_behind.then_some(until_ns),
                last,
            };
            let mut events = records;
            for sink in &mut self.sinks {
                events += sink.drained(self.state, &drained);
            }
            self.publish(now_ns);
            if last {
                return Ok(());
            }
            if !is_behind {
                self.wait(records, events);
            }
        }
    }

    /// Waits as long as all can, or until the program has ended.
    fn wait(&mut self, records: usize, events: usize) {
        let at_ns = monotonic_ns();
        let now_ns = at_ns - self.state.start_ns;
        let sources = self.state.sources();
        let deadlines = sources.filter_map(|source| source.deadline_ns());
        let by_sources = deadlines.min();
        let by_sources =
            by_sources.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(at_ns)));
        let mechanisms = self.mechanisms.iter_mut();
        let by_mechanisms = mechanisms.filter_map(|of| of.wait(now_ns, records));
        let by_sinks = self.sinks.iter_mut().map(|sink| sink.wait(events));
        match by_mechanisms.chain(by_sinks).chain(by_sources).min() {
            Some(wait) => {
                thread::park_timeout(wait);
                let due_ns = at_ns + wait.as_nanos() as u64;
                let late_ns = monotonic_ns().saturating_sub(due_ns);
                self.state.lateness.add(late_ns);
            }
            None => thread::park(),
        }
    }

    /// Drains all sources. Returns the number of records.
    fn drain(&mut self, until_ns: u64) -> usize {
        // Of what is not known yet, no sample is of use.
        if until_ns == u64::MAX {
            let start_ns = self.state.start_ns;
            for mechanism in &mut self.mechanisms {
                mechanism.take_samples(start_ns);
            }
        }
        self.take(|source, take| source.drain(until_ns, take))
    }

    /// Gives the records of all sources to all mechanisms and sinks. Returns their number.
    fn take(
        &mut self,
        mut from: impl FnMut(&mut dyn EventSource, &mut dyn FnMut(&RingInfo, Record<'_>)) -> usize,
    ) -> usize {
        let EventLoop {
            mechanisms,
            sinks,
            state,
            ..
        } = self;
        let start_ns = state.start_ns;
        let (sources, streams, definitions) = state.parts();
        let mut take = |ring: &RingInfo, mut record: Record<'_>| {
            let new_image = match record {
                Record::Process { .. } => streams.on_record(ring, &record),
                Record::Site { .. } | Record::Module { .. } => {
                    return definitions.on_record(&record, || streams.maps_of(ring));
                }
                _ => None,
            };
            // Those of regions stay what they are in the process, which is answered by them.
            if let Record::Access { signature, .. } = &mut record {
                *signature = definitions.site_of(*signature);
            }
            let mut origin = Origin {
                ring,
                streams: &mut *streams,
                definitions: &mut *definitions,
                new_image,
            };
            for mechanism in &mut *mechanisms {
                mechanism.on_record(start_ns, &mut origin, &record);
            }
            for sink in &mut *sinks {
                sink.on_record(&mut origin, &record);
            }
        };
        sources.map(|source| from(source, &mut take)).sum()
    }

    /// Publishes the status of the run, if it is time.
    fn publish(&mut self, now_ns: u64) {
        let Some(publisher) = &mut self.status else {
            return;
        };
        let Some(file) = publisher
            .file
            .as_ref()
            .filter(|_| publisher.period.is_due(now_ns))
        else {
            return;
        };
        let status = &mut publisher.status;
        let mechanisms = self.mechanisms.iter_mut();
        let mechanisms = mechanisms.filter_map(|mechanism| mechanism.status(self.state));
        status.mechanisms = mechanisms.collect();
        status.ran_ns = now_ns;
        status.agent_ns = self.state.cpu().as_nanos() as u64;
        file.publish(status);
    }
}
