//! Memory policies of ranges, as programs set them and as the agent asks for them.

/// What a range's memory policy does. The numbers are the wire format, and the kernel's `MPOL_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BindMode {
    /// As the thread's policy says.
    Default = 0,
    /// From the node if it has free memory, from any other otherwise. Of several nodes the kernel
    /// takes the lowest.
    Preferred = 1,
    /// From these nodes or not at all: a program that runs out of them is killed.
    Bind = 2,
    /// From each of the nodes in turn, page by page.
    Interleave = 3,
}

/// A memory policy for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bind {
    /// What it does.
    pub mode: BindMode,
    /// A bit each node, node 0 lowest: nodes 0 to 63.
    pub nodes: u64,
}

impl BindMode {
    /// The mode of this number.
    pub fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            0 => BindMode::Default,
            1 => BindMode::Preferred,
            2 => BindMode::Bind,
            3 => BindMode::Interleave,
            _ => return None,
        })
    }
}
