//! Whether the kernel's events can be had, for tests that need them.

use hither_kernel_events::Probe;
use hither_testing::skip::skip_on_this_machine;

/// If not, it is said.
pub(crate) fn can_observe() -> bool {
    let probe = Probe::run();
    let can = probe.is_possible();
    if !can {
        skip_on_this_machine(format_args!("the kernel's events cannot be had: {probe}"));
    }
    can
}
