//! What is found of calls when a stack is followed.

/// What is before a return address.
pub(crate) enum Call {
    /// Of the function that begins here.
    Of(u64),
    /// By a pointer.
    Indirect,
    None,
}

/// A step of a walk: the registers in a frame and in its caller.
#[cfg_attr(
    not(target_arch = "aarch64"),
    expect(
        dead_code,
        reason = "where calls push return addresses, the caller's registers say all"
    )
)]
pub(crate) struct Return<Registers> {
    pub(crate) before: Registers,
    pub(crate) after: Registers,
    /// The return address.
    pub(crate) address: u64,
    /// The link register had it: nothing on the stack says it.
    pub(crate) is_linked: bool,
}
