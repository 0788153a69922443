//! What sampling may cost: a share of one CPU, however many there are. Where all CPUs are busy and
//! threads wait for each other, what the agent takes of one of them all of them lose.

/// Default budget, in thousandths of a CPU.
pub(crate) const PERMILLE: u32 = 10;

/// What the fault on an armed page costs the program: the fault 0.8 us, and perf's sample of it up
/// to 0.5 us (2 cores, Linux 6.18, 2026-11).
pub(crate) const FAULT_NS: u64 = 1_300;

/// What the fault is expected to cost with the agent's part, apart from arming: to read it, to look
/// up where its page is, and to count it, most often together with others of a cell. What the agent
/// really spends is measured.
pub(crate) const ARMED_SAMPLE_NS: u64 = FAULT_NS + 500;

/// What a sample costs the agent where the processor or the kernel makes it, until it was measured.
pub(crate) const READ_NS: f64 = 2_500.0;

/// The budget of this time is saved at most, and as much owed.
pub(crate) const SAVED_NS: f64 = 1e9;

/// The share of one CPU that sampling may take; 1 is a whole one.
pub(crate) fn share(permille: u32) -> f64 {
    f64::from(permille) / 1000.0
}
