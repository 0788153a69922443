//! Sampling by the processor: Intel's PEBS, AMD's IBS.
//!
//! Both report address, thread and CPU of one in so many accesses, without a fault, and what served
//! it: accesses that a cache of the node served are left out ([`crate::page_faults`]). The events
//! are looked up where the kernel describes the processor (`/sys/bus/event_source/devices`):
//!
//! - `cpu` or `cpu_core` (Intel): for loads that no cache answered, `MEM_LOAD_RETIRED.L3_MISS`
//!   (event 0xd1, umask 0x20, its encoding since Haswell; Intel SDM volume 3B,
//!   "Performance-Monitoring Events"). Unlike `mem-loads` since Sapphire Rapids, it needs no second
//!   event in a group. Else `mem-loads` of the same devices, as the kernel spells it. For stores,
//!   `mem-stores` beside it; PEBS says of a store whether it missed the L1 and no more, so that
//!   some of those that are counted were served by another cache.
//! - `ibs_op` (AMD): micro-operations, loads and stores alike. Those that are no access to memory
//!   are dropped here. (`l3missonly` of Zen 4 would drop them in hardware, and with them the
//!   stores.) IBS refuses events that exclude anything; where the kernel filters them itself
//!   (`swfilt`, Linux 6.14), the kernel's own accesses can be left out, as a user without
//!   CAP_PERFMON must where `kernel.perf_event_paranoid` is 2.
//!
//! No encoding is trusted. An event that opens has to report accesses of our own, which miss
//! because their lines were flushed before or do not fit into the L1, at their addresses (`tried`,
//! a few ms). So a wrong guess is a refusal with its reason, and not wrong samples. Untested on
//! real hardware: no machine with a usable PMU was available. Tested are the search, the trial's
//! verdict, records as the kernel's headers lay them out, and that samples with addresses arrive
//! through these rings (with the software event of [`crate::page_faults`]).

use std::fs;
use std::path::Path;

use crate::arch;
use crate::page_faults::{Event, PageFaults, PerfRings, SamplePeriod, WatchError};
use crate::page_sampling::{ArmedBy, PageSampler, SamplingError};
use crate::syscalls;

/// Its name on the command line.
pub const NAME: &str = "hardware";

/// The sampling period of the trial, in accesses. IBS takes multiples of 16 alone.
const TRIAL_PERIOD: u64 = 512;

/// Lines of the trial.
const TRIAL_LINES: usize = 16_384;
/// How often each is flushed and loaded: 65,536 misses, some 10 ms, and 128 samples.
const TRIAL_ROUNDS: usize = 4;
const LINE_BYTES: usize = 64;

/// The least number of samples that the trial has to report at its addresses.
const TRIAL_SAMPLES_MIN: usize = 16;

/// The events that sample on this processor: one for loads, or for all accesses, and perhaps one
/// for stores.
#[derive(Debug)]
pub struct PmuSampler {
    events: Vec<Event>,
}

/// The events of a device that could sample, those that show most first.
#[derive(Debug, Default)]
struct Candidates {
    /// Loads, or loads and stores.
    loads: Vec<Event>,
    /// Stores alone.
    stores: Vec<Event>,
}

/// The events that sample here, tried on accesses of our own.
pub(crate) fn tried() -> Result<PmuSampler, SamplingError> {
    let devices = candidates(Path::new("/sys/bus/event_source/devices"));
    first_that_works(&devices, on_trial)
}

fn first_that_works(
    devices: &[Candidates],
    trial: impl Fn(Event) -> Result<bool, WatchError>,
) -> Result<PmuSampler, SamplingError> {
    let mut reason = SamplingError::NoHardware;
    let mut first = |events: &[Event]| {
        events.iter().copied().find(|&event| match trial(event) {
            Ok(true) => true,
            Err(WatchError::NotPermitted { .. }) => {
                reason = SamplingError::NotPermitted;
                false
            }
            Ok(false) | Err(_) => {
                reason = SamplingError::NoSamples;
                false
            }
        })
    };
    for device in devices {
        if let Some(loads) = first(&device.loads) {
            let stores = first(&device.stores);
            let events = std::iter::once(loads).chain(stores).collect();
            return Ok(PmuSampler { events });
        }
    }
    Err(reason)
}

/// The events that could sample, by what the kernel says of the processor.
fn candidates(devices: &Path) -> Vec<Candidates> {
    let mut found = Vec::new();
    for name in ["cpu", "cpu_core"] {
        let device = devices.join(name);
        let described = |event: &str| fs::read_to_string(device.join("events").join(event));
        let (Some(kind), Ok(loads)) = (kind(&device), described("mem-loads")) else {
            continue;
        };
        // PEBS has levels of precision; the highest one of the processor gives the addresses.
        let events = |terms: &str| {
            let config = encode(&device, terms.trim());
            config
                .into_iter()
                .flat_map(|config| [3, 2].map(|precise| event(kind, config, precise)))
                .collect::<Vec<_>>()
        };
        found.push(Candidates {
            loads: [events("event=0xd1,umask=0x20"), events(&loads)].concat(),
            stores: described("mem-stores").map_or_else(|_| Vec::new(), |terms| events(&terms)),
        });
    }
    let device = devices.join("ibs_op");
    let config = encode(&device, "cnt_ctl=1,swfilt=1").or_else(|| encode(&device, "cnt_ctl=1"));
    if let (Some(kind), Some(config)) = (kind(&device), config) {
        found.push(Candidates {
            loads: vec![event(kind, config, 0)],
            stores: Vec::new(),
        });
    }
    found
}

fn event(kind: u32, config: [u64; 3], precise: u8) -> Event {
    Event {
        kind,
        config,
        every: SamplePeriod::Count(TRIAL_PERIOD),
        precise,
        with_address_spaces: false,
        with_source: true,
    }
}

fn kind(device: &Path) -> Option<u32> {
    let kind = fs::read_to_string(device.join("type")).ok()?;
    kind.trim().parse().ok()
}

/// The three words that `event=0xcd,umask=0x1,ldlat=3` stands for, by the device's `format` files:
/// `config1:0-15`, or `config:0-7,32-35`.
fn encode(device: &Path, terms: &str) -> Option<[u64; 3]> {
    let mut config = [0; 3];
    for term in terms.split(',') {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let mut value = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok()?,
            None => value.parse().ok()?,
        };
        let format = fs::read_to_string(device.join("format").join(name)).ok()?;
        let (word, ranges) = format.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let bits = last.checked_sub(first)? + 1;
            let mask = u64::MAX.checked_shr(64_u32.checked_sub(bits)?)?;
            config[word] |= (value & mask).checked_shl(first)?;
            value = value.checked_shr(bits).unwrap_or(0);
        }
        if value != 0 {
            return None;
        }
    }
    Some(config)
}

/// Whether accesses of our own are reported at their addresses.
fn on_trial(event: Event) -> Result<bool, WatchError> {
    let bytes = TRIAL_LINES * LINE_BYTES;
    let base = syscalls::map(bytes, None).map_err(WatchError::Other)?;
    let mut rings = PerfRings::of_this_thread(event);
    if rings.is_ok() {
        miss(base, bytes);
    }
    let mut seen = Vec::new();
    if let Ok(rings) = &mut rings {
        rings.drain(&mut |sample| seen.push(sample.address.0));
    }
    // SAFETY: mapped above, and nothing refers to it.
    unsafe { syscalls::unmap(base, bytes) };
    rings.map(|_| shows(&seen, base as u64, bytes as u64))
}

/// Whether enough samples are at the addresses of the accesses. Others may be among them: of the
/// loop's own stack, and micro-operations without an address.
fn shows(seen: &[u64], start: u64, bytes: u64) -> bool {
    let with_address = seen.iter().filter(|&&address| address != 0);
    let there = with_address
        .clone()
        .filter(|&&address| address.wrapping_sub(start) < bytes);
    let there = there.count();
    there >= TRIAL_SAMPLES_MIN && 2 * there >= with_address.count()
}

/// Stores to each line of the range, flushes it and loads it, all of them a few times. The range is
/// larger than an L1.
fn miss(base: *mut u8, bytes: usize) {
    for round in 0..TRIAL_ROUNDS {
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is within the mapping, which is the caller's alone.
            let line = unsafe { base.add(at) };
            // SAFETY: as above; the byte is written, so that the line has a page of its own.
            unsafe { line.write_volatile(round as u8) };
            // SAFETY: as above; nobody writes while the reference lasts.
            arch::flush(unsafe { &*line });
        }
        for at in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: `at` is within the mapping, which is the caller's alone.
            let line = unsafe { base.add(at) };
            // SAFETY: as above.
            unsafe { line.read_volatile() };
        }
    }
}

impl PageSampler for PmuSampler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sees_reads(&self) -> bool {
        true
    }

    fn armed_by(&self) -> ArmedBy {
        ArmedBy::Processor
    }

    fn samples(&self, hertz: u64) -> Result<Box<dyn PageFaults>, WatchError> {
        let events = self.events.iter().map(|&event| Event {
            every: SamplePeriod::Second((hertz / self.events.len() as u64).max(1)),
            ..event
        });
        Ok(Box::new(PerfRings::of(&events.collect::<Vec<_>>())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_testing::skip::skip_on_this_machine;

    fn write(folder: &Path, file: &str, text: &str) {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    }

    /// What Linux 6.12 shows of a Sapphire Rapids and of a Genoa, as far as it matters.
    fn intel(folder: &Path) {
        write(folder, "cpu/type", "4\n");
        write(
            folder,
            "cpu/events/mem-loads",
            "event=0xcd,umask=0x1,ldlat=3\n",
        );
        write(folder, "cpu/events/mem-stores", "event=0xd0,umask=0x82\n");
        write(folder, "cpu/format/event", "config:0-7\n");
        write(folder, "cpu/format/umask", "config:8-15\n");
        write(folder, "cpu/format/ldlat", "config1:0-15\n");
    }

    fn amd(folder: &Path) {
        write(folder, "ibs_op/type", "11\n");
        write(folder, "ibs_op/format/cnt_ctl", "config:19\n");
    }

    fn shown(events: &[Event]) -> Vec<(u32, [u64; 3], u8)> {
        let shown = |event: &Event| (event.kind, event.config, event.precise);
        events.iter().map(shown).collect()
    }

    #[test]
    fn the_kernel_s_description_is_followed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(candidates(folder.path()).is_empty());
        intel(folder.path());
        amd(folder.path());
        let found = candidates(folder.path());
        let (misses, loads, stores) = ([0x20d1, 0, 0], [0x1cd, 3, 0], [0x82d0, 0, 0]);
        let both = |config| [(4, config, 3), (4, config, 2)];
        assert_eq!(shown(&found[0].loads), [both(misses), both(loads)].concat());
        assert_eq!(shown(&found[0].stores), both(stores));
        assert_eq!(shown(&found[1].loads), [(11, [1 << 19, 0, 0], 0)]);
        assert!(found[1].stores.is_empty());
        // A kernel that filters IBS itself.
        write(folder.path(), "ibs_op/format/swfilt", "config2:0\n");
        let found = candidates(folder.path());
        assert_eq!(shown(&found[1].loads), [(11, [1 << 19, 0, 1], 0)]);
        let device = folder.path().join("cpu");
        write(&device, "format/split", "config:0-3,32-35\n");
        assert_eq!(encode(&device, "split=0xab"), Some([0xa_0000_000b, 0, 0]));
        for wrong in ["split=0x1ab", "event", "other=1", "event=x", "ldlat=65536"] {
            let known = wrong == "event";
            assert_eq!(encode(&device, wrong).is_some(), known, "{wrong}");
        }
        write(&device, "format/odd", "config9:0-1\n");
        assert_eq!(encode(&device, "odd=1"), None);
    }

    #[test]
    fn only_what_shows_our_accesses_is_taken() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let found = |trial: &dyn Fn(Event) -> Result<bool, WatchError>| {
            first_that_works(&candidates(folder.path()), trial).map(|of| shown(&of.events))
        };
        let none = found(&|_| panic!("nothing to try"));
        assert_eq!(none, Err(SamplingError::NoHardware));
        intel(folder.path());
        let (misses, stores) = ([0x20d1, 0, 0], [0x82d0, 0, 0]);
        let second = found(&|event| Ok(event.precise == 2));
        assert_eq!(second, Ok(vec![(4, misses, 2), (4, stores, 2)]));
        let loads = found(&|event| Ok(event.config != stores));
        assert_eq!(loads, Ok(vec![(4, misses, 3)]));
        // Stores alone are not enough.
        let none = found(&|event| Ok(event.config == stores));
        assert_eq!(none, Err(SamplingError::NoSamples));
        let refused = found(&|_| Err(WatchError::NotPermitted { paranoid: Some(3) }));
        assert_eq!(refused, Err(SamplingError::NotPermitted));
        let odd = found(&|_| Err(WatchError::Other(libc::EINVAL)));
        assert_eq!(odd, Err(SamplingError::NoSamples));
    }

    #[test]
    fn samples_have_to_lie_where_the_loads_were() {
        let there: Vec<u64> = (0..20).map(|at| 4096 + 64 * at).collect();
        assert!(shows(&there, 4096, 8192));
        assert!(!shows(&there, 1 << 20, 8192), "elsewhere");
        assert!(!shows(&there[..15], 4096, 8192), "too few");
        let mut mixed = [there.clone(), vec![0; 500]].concat();
        assert!(shows(&mixed, 4096, 8192), "some have no address");
        mixed.extend((0..30).map(|at| (1 << 40) + at));
        assert!(!shows(&mixed, 4096, 8192), "most are not ours");
    }

    /// The trial with an event that every kernel has: first touches of the range are seen where
    /// they were made.
    #[test]
    fn a_trial_sees_this_thread_s_own_addresses() {
        let faults = Event {
            every: SamplePeriod::Count(1),
            ..Event::PAGE_FAULTS
        };
        match on_trial(faults) {
            Ok(works) => assert!(works),
            Err(reason) => skip_on_this_machine(reason),
        }
    }
}
