//! What sampling may cost.

/// The most CPUs that a budget counts: with more, the agent's one thread would be busy all the
/// time.
const CPUS_MAX: usize = 16;

/// Default budget, in thousandths of the CPUs.
pub(crate) const PERMILLE: u32 = 10;

/// What the fault on an armed page costs the program: the fault 0.8 us, and perf's sample of it up
/// to 0.5 us (2 cores, Linux 6.18, 2026-11).
pub(crate) const FAULT_NS: u64 = 1_300;

/// What a sample is expected to cost where a page was armed for it, apart from arming: the fault,
/// and to read it, to look up where its page is, and to count it. What the agent really spends is
/// measured.
pub(crate) const ARMED_SAMPLE_NS: u64 = FAULT_NS + 2_000;

/// What a sample costs the agent where the processor or the kernel makes it.
const READ_NS: u64 = 2_500;

/// The share of one CPU that arming pages and their samples may take; 1 is a whole one. The budget
/// is `permille` thousandths of all CPUs.
pub(crate) fn arming_share(cpus: usize, permille: u32) -> f64 {
    f64::from(permille) / 1000.0 * cpus.clamp(1, CPUS_MAX) as f64
}

/// How many samples a second somebody else may make for the agent to read: it takes so many
/// thousandths of one CPU, however many CPUs there are.
pub(crate) fn read_a_second(permille: u32) -> u64 {
    u64::from(permille) * 1_000_000 / READ_NS
}
