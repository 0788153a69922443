//! What the kernel numbers: integers that must not be taken for others. In text and in logs each is
//! its number.
//!
//! They are in a crate of their own, as the library inside programs cannot afford hither-core, and
//! the core makes no system calls.
#![forbid(unsafe_code)]

use std::fmt::{self, Display, Formatter};

/// Defines types of one number.
macro_rules! numbers {
    ($($(#[$about:meta])* $name:ident($number:ty);)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
            #[cfg_attr(feature = "serde", serde(transparent))]
            pub struct $name(pub $number);

            impl Display for $name {
                fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
                    self.0.fmt(to)
                }
            }
        )*
    };
}

numbers! {
    /// A memory node, by the kernel's number: there may be gaps between them. The policies count
    /// the nodes from 0 on (`hither_core::Node`).
    KernelNode(u32);
}

impl KernelNode {
    /// Its bit in a mask of 64 nodes. None for a number from 64 on: no memory policy can name it.
    pub fn mask(self) -> Option<u64> {
        1_u64.checked_shl(self.0)
    }

    /// The nodes of a mask, in order.
    pub fn in_mask(nodes: u64) -> impl Iterator<Item = KernelNode> {
        (0..64)
            .map(KernelNode)
            .filter(move |node| node.mask().is_some_and(|bit| nodes & bit != 0))
    }
}
