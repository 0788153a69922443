//! What a run would read from storage, and the kernel alone, by a trace.
//!
//! The requests of the trace go to a model of the kernel's page cache ([`kernel`]). For the run,
//! they also go to the controller of a run, as the library in programs would report them, and the
//! kernel carries out its drops ([`run`]). So both forecasts know readahead, what the kernel keeps
//! that LRU does not, what it evicts while the agent steers, and when steering stops.
//!
//! A recording is a run of the kernel alone. So what it really read is held against what the model
//! reads under its conditions. The difference is what the model does not know: the programs' own
//! code, readahead through mappings, what was cached before. A forecast is the model's, moved by
//! that difference.
//!
//! **The range** is what the model reads under the other conditions that the recording allows:
//! with the memory that was left in the best and the worst quarter of the time, with folios of one
//! page or of several, with an agent that polls as often as it can, or as seldom and as late as
//! the recorder was woken, and with the unknown difference once, in proportion, or not at all.

mod kernel;
mod lists;
mod memory;
mod readahead;
mod run;

use std::thread;

use hither_core::registry::Mechanism;
use hither_core::{ExpectedReads, Forecast, Spec};
use hither_trace::Trace;
use hither_trace::schema::{AccessRow, Seen};

use self::kernel::{KernelCache, KernelConfig};
use self::memory::Memory;
use self::run::{Alone, RunSetup, Steered};
use super::controller::BLOCK_BYTES;
use super::run::{BUDGET_MIN_BYTES, POLL_INTERVAL_MAX, POLL_INTERVAL_MIN, steered_bytes};

/// What a run does not steer matters little where it is less than 1/16 of what was read.
const UNSTEERED_DIVISOR: u64 = 16;

/// The shares of the time in which less memory was left.
const QUARTERS: [f64; 2] = [0.25, 0.75];

/// What a run with this policy would read where the kernel has `available_bytes` for files. `None`
/// where nothing can say: the policy needs the future, the trace is a sample, its blocks are not
/// pages of its machine, a run would not steer by all that it has, or the model explains less than
/// half of what was read in the recording.
///
/// Fails like [`Trace::for_each_request`].
pub fn expected_reads(
    trace: &Trace,
    policy: &Spec,
    available_bytes: u64,
) -> Result<Option<ExpectedReads>, hither_trace::Error> {
    let Some(seen) = trace.meta().seen.filter(is_all_steered) else {
        return Ok(None);
    };
    let runs = policy.entry().runs(Mechanism::PageCache);
    let page_bytes = u64::from(trace.meta().machine.page_bytes);
    let is_of_pages = u64::from(trace.options().block_bytes) == page_bytes;
    let fits = page_bytes > 0 && BLOCK_BYTES.is_multiple_of(page_bytes);
    if !runs || !is_of_pages || !fits || !trace.has_objects() || trace.sampled().is_some() {
        return Ok(None);
    }
    let forecaster = Forecaster {
        trace,
        policy: *policy,
        seen,
        sizes: trace.objects().iter().map(|object| object.size).collect(),
    };
    forecaster.expected(available_bytes)
}

/// Whether a run would steer by all that the trace has. Nobody knows what it would make of mapped
/// files, nor of programs that only the kernel sees; what bypasses the page cache it cannot know.
/// Without a cgroup's limit, the user says what its budget is.
fn is_all_steered(seen: &Seen) -> bool {
    let unsteered_bytes = seen.mapped_bytes + seen.kernel_alone_bytes;
    seen.memory_limit_bytes.is_some()
        && seen.direct_bytes == 0
        && unsteered_bytes <= seen.recorded_bytes / UNSTEERED_DIVISOR
}

/// The conditions of a run.
#[derive(Clone)]
struct Conditions {
    memory: Memory,
    large_folios: bool,
    /// How often the agent polls. `None`: the kernel is alone.
    poll_ns: Option<u64>,
}

/// See the module.
struct Forecaster<'a> {
    trace: &'a Trace,
    policy: Spec,
    seen: Seen,
    /// By file.
    sizes: Vec<u64>,
}

/// A modelled run.
enum Modelled<'a> {
    Alone(Box<Alone>),
    Steered(Box<Steered<'a>>),
}

impl Modelled<'_> {
    fn request(&mut self, row: &AccessRow) {
        for _ in 0..row.count {
            match self {
                Modelled::Alone(alone) => alone.request(row),
                Modelled::Steered(steered) => steered.request(row),
            }
        }
    }

    fn read(&self) -> Read {
        let kernel = match self {
            Modelled::Alone(alone) => &alone.kernel,
            Modelled::Steered(steered) => steered.kernel(),
        };
        Read {
            bytes: kernel.read_bytes(),
            new_bytes: kernel.new_bytes(),
        }
    }
}

/// What a modelled run has read.
#[derive(Clone, Copy, Debug)]
struct Read {
    bytes: u64,
    /// What was not cached before.
    new_bytes: u64,
}

/// What was really read in the recording, beside what the model reads in its place.
#[derive(Clone, Copy, Debug)]
struct Known {
    read_bytes: u64,
    model_bytes: u64,
}

impl Known {
    /// `None`: nobody counted, or less was read than the program needs for the first time, so some
    /// of it was cached before.
    fn of(read_bytes: Option<u64>, as_recorded: Read) -> Option<Known> {
        let read_bytes = read_bytes.filter(|&read| read >= as_recorded.new_bytes)?;
        Some(Known {
            read_bytes,
            model_bytes: as_recorded.bytes,
        })
    }

    /// Whether what the model knows was the most of it. Where memory is so short that programs read
    /// their own code again and again, it is not, and no two runs are alike.
    fn is_explained(&self) -> bool {
        self.read_bytes <= 2 * self.model_bytes && self.model_bytes <= 2 * self.read_bytes
    }

    /// What is read under conditions under which the model reads so much: with the difference in
    /// proportion, and once.
    fn moved(&self, bytes: u64) -> [u64; 2] {
        let factor = self.read_bytes as f64 / self.model_bytes.max(1) as f64;
        let once = (bytes + self.read_bytes).saturating_sub(self.model_bytes);
        [(bytes as f64 * factor).round() as u64, once]
    }
}

/// The forecast of the first of these, of what the model reads under several conditions.
fn forecast(known: Option<Known>, model_bytes: &[u64]) -> Forecast {
    let moved = model_bytes.iter().flat_map(|&bytes| match known {
        Some(known) => known.moved(bytes).to_vec(),
        None => Vec::new(),
    });
    let all: Vec<u64> = moved.chain(model_bytes.iter().copied()).collect();
    Forecast::of(all[0], all)
}

impl Forecaster<'_> {
    fn expected(&self, available_bytes: u64) -> Result<Option<ExpectedReads>, hither_trace::Error> {
        let recorded = Memory::recorded(&self.trace.meta().memory_left, available_bytes);
        let poll_min_ns = POLL_INTERVAL_MIN.as_nanos() as u64;
        let poll_max_ns = POLL_INTERVAL_MAX.as_nanos() as u64 + self.seen.recorder_late_ns;
        let alone = |memory: &Memory, large_folios| Conditions {
            memory: memory.clone(),
            large_folios,
            poll_ns: None,
        };
        let steered = |memory: &Memory, large_folios, poll_ns| Conditions {
            memory: memory.clone(),
            large_folios,
            poll_ns: Some(poll_ns),
        };
        let plain = recorded.clone().without_recorder();
        let run = recorded.clone().with_agent();
        let [scarce, ample] = QUARTERS.map(|share| run.at_share(share));
        let conditions = [
            alone(&recorded, true),
            alone(&plain, true),
            steered(&run, true, poll_min_ns),
            steered(&run, true, poll_max_ns),
            alone(&plain, false),
            steered(&run, false, poll_min_ns),
            alone(&plain.at_share(QUARTERS[0]), true),
            alone(&plain.at_share(QUARTERS[1]), true),
            steered(&scarce, true, poll_min_ns),
            steered(&ample, true, poll_min_ns),
        ];
        let read = self.read(&conditions)?;
        let as_recorded = read[0];
        let known = Known::of(self.seen.storage_bytes, as_recorded);
        if known.is_some_and(|known| !known.is_explained()) {
            return Ok(None);
        }
        let of = |is_run: bool| -> Vec<u64> {
            let with = conditions.iter().zip(&read).skip(1);
            let with = with.filter(|(of, _)| of.poll_ns.is_some() == is_run);
            with.map(|(_, read)| read.bytes).collect()
        };
        Ok(Some(ExpectedReads {
            budget_bytes: steered_bytes(available_bytes, self.seen.readahead_bytes)
                .max(BUDGET_MIN_BYTES),
            run: forecast(known, &of(true)),
            alone: forecast(known, &of(false)),
        }))
    }

    /// What is read under each of these conditions.
    fn read(&self, conditions: &[Conditions]) -> Result<Vec<Read>, hither_trace::Error> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let each = conditions.len().div_ceil(threads);
        thread::scope(|scope| {
            let parts = conditions.chunks(each);
            let workers: Vec<_> = parts
                .map(|part| scope.spawn(|| self.read_by(part)))
                .collect();
            let read = workers.into_iter().map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let read: Result<Vec<Vec<Read>>, _> = read.collect();
            Ok(read?.concat())
        })
    }

    fn read_by(&self, conditions: &[Conditions]) -> Result<Vec<Read>, hither_trace::Error> {
        let mut runs: Vec<Modelled<'_>> = conditions.iter().map(|of| self.modelled(of)).collect();
        self.trace
            .for_each_request(|row| runs.iter_mut().for_each(|run| run.request(row)))?;
        Ok(runs.iter().map(Modelled::read).collect())
    }

    fn modelled(&self, conditions: &Conditions) -> Modelled<'_> {
        let Conditions {
            memory,
            large_folios,
            poll_ns,
        } = conditions.clone();
        let readahead_bytes = self.seen.readahead_bytes;
        let config = KernelConfig {
            page_bytes: u64::from(self.trace.meta().machine.page_bytes),
            readahead_bytes,
            large_folios,
        };
        let kernel = KernelCache::new(config, memory.unmapped(), self.sizes.iter().copied());
        let Some(poll_ns) = poll_ns else {
            return Modelled::Alone(Box::new(Alone { kernel, memory }));
        };
        let setup = RunSetup {
            policy: self.policy,
            sites: self.trace.sites(),
            sizes: &self.sizes,
            readahead_bytes,
            poll_ns,
        };
        let steered = Steered::new(setup, kernel, memory);
        Modelled::Steered(Box::new(steered.expect("the policy can run")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Read = Read {
        bytes: 1000,
        new_bytes: 300,
    };

    #[test]
    fn a_forecast_is_the_models_moved_by_what_it_did_not_know_of_the_recording() {
        let known = Known::of(Some(1100), READ);
        let run = forecast(known, &[500, 520]);
        let expected = Forecast {
            bytes: 550,
            low_bytes: 500,
            high_bytes: 620,
        };
        assert_eq!(run, expected);
        assert!(!run.is_exact());
        assert!(forecast(Known::of(Some(1010), READ), &[500]).is_exact());
    }

    #[test]
    fn a_model_that_explains_less_than_half_says_nothing() {
        let is_explained = |read_bytes| {
            let known = Known::of(Some(read_bytes), READ);
            known.expect("it was counted").is_explained()
        };
        assert!([500, 1000, 2000].into_iter().all(is_explained));
        assert!(![400, 2001].into_iter().any(is_explained));
    }

    #[test]
    fn what_was_cached_before_or_was_not_counted_says_nothing() {
        for read_bytes in [None, Some(299)] {
            let run = forecast(Known::of(read_bytes, READ), &[500, 490]);
            assert_eq!(run, Forecast::of(500, [490]), "{read_bytes:?}");
        }
    }
}
