//! Where the latencies of a topology are from, so that nobody takes a default for a measurement.

use hither_core::topology::presets;

/// Where the latencies of a topology are from. None of these is a measurement by hither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyOrigin {
    /// The built-in defaults.
    Defaults,
    /// A preset: the figures of its paper.
    Preset,
    /// A file that gives all of them.
    File,
    /// A file that gives some of them; the others are defaults or a preset's.
    FileInPart,
    /// Distances of a file, in proportion.
    FileDistances,
    /// The distances that this machine's firmware gives, in proportion to an assumed local latency.
    Firmware,
}

impl LatencyOrigin {
    /// The name in a JSON document.
    pub fn name(self) -> &'static str {
        match self {
            LatencyOrigin::Defaults => "defaults",
            LatencyOrigin::Preset => "preset",
            LatencyOrigin::File => "file",
            LatencyOrigin::FileInPart => "file and defaults",
            LatencyOrigin::FileDistances => "distances of the file",
            LatencyOrigin::Firmware => "distances",
        }
    }

    /// The origin of a shape's or a preset's latencies.
    pub(super) fn of_name(name: &str) -> LatencyOrigin {
        if presets().iter().any(|preset| preset.name == name) {
            LatencyOrigin::Preset
        } else {
            LatencyOrigin::Defaults
        }
    }
}
