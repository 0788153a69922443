//! What the kernel numbers: integers that must not be taken for others. In text and in logs each is
//! its number.
//!
//! They are in a crate of their own, as the library inside programs cannot afford hither-core, and
//! the core makes no system calls.
#![forbid(unsafe_code)]

use std::fmt::{self, Display, Formatter};
use std::num::ParseIntError;
use std::ops::{Add, Sub};
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
    /// A page of a region of memory: how many pages are before it.
    PageIndex(u32);
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

/// Defines types of one number that people read in hexadecimal, with a prefix: so it is in text and
/// in logs.
macro_rules! hexadecimal_numbers {
    ($($(#[$about:meta])* $name:ident;)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
            #[cfg_attr(feature = "serde", serde(into = "String", try_from = "String"))]
            #[repr(transparent)]
            pub struct $name(pub u64);

            impl FromStr for $name {
                type Err = ParseIntError;

                fn from_str(text: &str) -> Result<$name, ParseIntError> {
                    // Without the prefix, nothing is left that is a number.
                    let digits = text.strip_prefix("0x").unwrap_or_default();
                    u64::from_str_radix(digits, 16).map($name)
                }
            }

            impl Display for $name {
                fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
                    write!(to, "{:#x}", self.0)
                }
            }

            impl From<$name> for String {
                fn from(number: $name) -> String {
                    number.to_string()
                }
            }

            impl TryFrom<String> for $name {
                type Error = String;

                fn try_from(text: String) -> Result<$name, String> {
                    let number = text.parse();
                    number.map_err(|_| format!("{text:?} is no hexadecimal number"))
                }
            }
        )*
    };
}

hexadecimal_numbers! {
    /// An address in the memory of a process.
    Address;
    /// A file that a program has opened, by the number that the library gave it: it stays the same
    /// for as long as the file does, in all processes of the session.
    FileKey;
}

impl Address {
    /// The start of the page, of so many bytes, that it is in.
    pub fn page_start(self, page_bytes: u64) -> Address {
        Address(self.0 / page_bytes * page_bytes)
    }

    /// The first start of a page that is not before it. None beyond the last address.
    pub fn next_page_start(self, page_bytes: u64) -> Option<Address> {
        self.0.checked_next_multiple_of(page_bytes).map(Address)
    }

    /// The bytes from an address to this one. None if that is behind it.
    pub fn checked_sub(self, from: Address) -> Option<u64> {
        self.0.checked_sub(from.0)
    }

    /// So many bytes further. None beyond the last address.
    pub fn checked_add(self, bytes: u64) -> Option<Address> {
        self.0.checked_add(bytes).map(Address)
    }
}

impl Add<u64> for Address {
    type Output = Address;

    fn add(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

/// The bytes from one address to another one.
impl Sub for Address {
    type Output = u64;

    fn sub(self, from: Address) -> u64 {
        self.0 - from.0
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

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
