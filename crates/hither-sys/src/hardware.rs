//! Sampling by the processor: Intel's PEBS, AMD's IBS.
//!
//! Either tells the address, thread and latency of one in so many loads, for some 2 us each and without a fault. This is
//! only looked for and never used yet: where there is such hardware, it is said; no machine that this was written on has
//! any (no PMU in `/sys/bus/event_source/devices` of a virtual machine), and encodings of events that were never run are
//! guesses. The samples are to be delivered as [`crate::faults::PageFaults`] are.

use std::path::Path;

use crate::arm::{Arm, Unarmed};

/// Its name on the command line.
pub const NAME: &str = "hardware";

/// What of the processor could sample addresses, below sysfs's folder of event sources.
const SOURCES: [&str; 3] = [
    "cpu/events/mem-loads",
    "cpu_core/events/mem-loads",
    "ibs_op/type",
];

/// Why it is not used here.
pub(crate) fn tried() -> Result<Box<dyn Arm>, Unarmed> {
    Err(refusal(Path::new("/sys/bus/event_source/devices")))
}

fn refusal(devices: &Path) -> Unarmed {
    let has = |source: &&str| devices.join(source).exists();
    match SOURCES.iter().any(has) {
        true => Unarmed::NotSupported,
        false => Unarmed::NoHardware,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_is_found() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(refusal(folder.path()), Unarmed::NoHardware);
        for source in SOURCES {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let file = folder.path().join(source);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, "event=0xcd,umask=0x1,ldlat=3\n").expect("written");
            assert_eq!(refusal(folder.path()), Unarmed::NotSupported);
        }
    }
}
