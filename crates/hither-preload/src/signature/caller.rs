//! Who called a hook.

/// A hook's caller, as the hook's trampoline finds it.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The stack pointer on entry: the address at which the return address lies.
    pub sp: *const u64,
    /// The frame pointer register on entry.
    pub fp: u64,
}
