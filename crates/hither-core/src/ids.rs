//! Dense identifiers. Each is assigned once, when a trace is loaded or a program is first seen, so
//! that policies index arrays and never hash. Each is a type of its own, so that two of them cannot
//! be confused in a signature.

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident: $number:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl $name {
            /// The identifier as an array index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

dense_id!(
    /// A block of a file (or a page of a region), numbered in order of first appearance over all
    /// objects.
    Block: u32
);
dense_id!(
    /// A file or memory region.
    Object: u32
);
dense_id!(
    /// A call site: the signature of the call stack that made an access. Site 0 is "unknown" in
    /// every trace.
    Site: u32
);
dense_id!(
    /// A thread, unique over all processes of a trace.
    Thread: u32
);
dense_id!(
    /// A process: one program image, so that an exec starts a new one.
    Process: u32
);
dense_id!(
    /// A memory node: a part of the memory, and the processors next to it; or a machine of a
    /// cluster.
    Node: u16
);
dense_id!(
    /// A slot of a cache, from 0 to its capacity less one.
    Slot: u32
);

/// Virtual time: the number of block references since the start. The first reference has tick 0.
pub type Tick = u64;

/// The tick of a next reference that never comes.
pub const NEVER: Tick = Tick::MAX;
