//! What programs that use files have in common: how large files are, and how long requests take.

use hither_core::random::Random;

/// A call of read or write, and opening and closing where a file begins.
const CALL_NS: f64 = 1500.0;
/// Starting a process.
const START_NS: f64 = 1e6;
/// Copying and looking at a byte: 1 GB/s.
const BYTE_NS: f64 = 1.0;

/// How fast things go: a cost by the work, and a part that is drawn, so that threads that do the same do not march in step.
pub(super) struct Pace(Random);

impl Pace {
    pub(super) fn new(random: Random) -> Pace {
        Pace(random)
    }

    /// When a request of so many bytes that began now is over.
    pub(super) fn after(&mut self, now: u64, bytes: u64) -> u64 {
        self.drawn(now, CALL_NS + BYTE_NS * bytes as f64)
    }

    /// When a process that is started now does its first request.
    pub(super) fn start(&mut self, now: u64) -> u64 {
        self.drawn(now, START_NS)
    }

    /// When work of so long that begins now is over: within a quarter of it, and later than now.
    pub(super) fn drawn(&mut self, now: u64, ns: f64) -> u64 {
        now + 1 + (ns * (0.75 + 0.5 * self.0.unit())) as u64
    }
}

/// Sizes of `files` files of `total` bytes together, log-normal (the logarithm to base e deviates by 1.6), each at least
/// one byte: what is found in folders of sources and of configuration.
pub(super) fn sizes(total: u64, files: u64, random: &mut Random) -> Vec<u64> {
    const DEVIATION: f64 = 1.6;
    let mut weights = || {
        // Twelve uniform numbers: normal enough here (Irwin and Hall), and the same on every machine.
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        libm::exp(DEVIATION * normal)
    };
    let weights: Vec<f64> = (0..files).map(|_| weights()).collect();
    let whole: f64 = weights.iter().sum();
    let size = |weight: f64| ((weight / whole * total as f64) as u64).max(1);
    weights.into_iter().map(size).collect()
}
