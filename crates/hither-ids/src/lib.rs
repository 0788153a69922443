//! What the kernel numbers: integers that must not be taken for others. In text and in logs each is
//! its number.
//!
//! They are in a crate of their own, as the library inside programs cannot afford hither-core, and
//! the core makes no system calls.
#![forbid(unsafe_code)]

use std::fmt::{self, Display, Formatter};
use std::num::ParseIntError;
use std::process::Child;
use std::str::FromStr;

/// Defines types of one number.
macro_rules! numbers {
    ($($(#[$about:meta])* $name:ident($number:ty);)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
            #[cfg_attr(feature = "serde", serde(transparent))]
            #[repr(transparent)]
            pub struct $name(pub $number);

            impl FromStr for $name {
                type Err = ParseIntError;

                fn from_str(text: &str) -> Result<$name, ParseIntError> {
                    text.parse().map($name)
                }
            }

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
    /// A process, by its number in a pid namespace: the agent's own unless something else is said.
    Pid(u32);
    /// A thread, by its number in a pid namespace. That of a process's first thread is the
    /// process's.
    Tid(u32);
}

impl Pid {
    /// This process.
    pub fn own() -> Pid {
        Pid(std::process::id())
    }

    /// A process that this one started.
    pub fn of(child: &Child) -> Pid {
        Pid(child.id())
    }

    /// As system calls take it.
    pub fn raw(self) -> i32 {
        self.0 as i32
    }

    /// Its first thread.
    pub fn first_thread(self) -> Tid {
        Tid(self.0)
    }
}

impl Tid {
    /// As system calls take it.
    pub fn raw(self) -> i32 {
        self.0 as i32
    }
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
