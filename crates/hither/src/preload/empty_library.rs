//! A shared library for another machine that holds nothing: no code, no symbol, nothing to
//! relocate. What that machine's dynamic linker finds in place of the preload library, so that it
//! prints no error.

/// A machine whose glibc a program may be for.
pub(super) struct Machine {
    /// `e_machine` of its ELF files.
    number: u16,
    is_64_bit: bool,
    /// What glibc puts for `$PLATFORM` there.
    pub(super) platforms: &'static [&'static str],
}

/// Those whose programs run here: the processor's 32-bit mode, and what QEMU's user mode runs most.
pub(super) const MACHINES: [Machine; 2] = [
    Machine {
        number: 3,
        is_64_bit: false,
        platforms: &["i686", "i586"],
    },
    Machine {
        number: 183,
        is_64_bit: true,
        platforms: &["aarch64"],
    },
];

const TYPE_SHARED: u16 = 3;

/// Types of segments.
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const STACK: u32 = 0x6474_E551;

/// A segment can be read and written. The stack must say so: a library that says nothing of it
/// gives the program one that can be executed.
const READ_WRITE: u32 = 6;

/// Tags of the dynamic section.
const HASH: u64 = 4;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const STRINGS_BYTES: u64 = 10;
const SYMBOL_BYTES: u64 = 11;
const END: u64 = 0;

/// The largest page of any of [`MACHINES`].
const PAGE_BYTES: u64 = 65536;

/// The bytes of a file whose words are as wide as the machine's addresses, little-endian.
struct Image {
    bytes: Vec<u8>,
    is_64_bit: bool,
}

impl Image {
    fn half(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn address(&mut self, value: u64) {
        if self.is_64_bit {
            self.bytes.extend(value.to_le_bytes())
        } else {
            self.word(value as u32)
        }
    }

    /// A program header of what lies at `at`, which is its offset and its address.
    fn segment(&mut self, kind: u32, at: u64, bytes: u64, align: u64) {
        self.word(kind);
        if self.is_64_bit {
            self.word(READ_WRITE);
        }
        for value in [at, at, at, bytes, bytes] {
            self.address(value);
        }
        if !self.is_64_bit {
            self.word(READ_WRITE);
        }
        self.address(align);
    }
}

/// The library for `machine`.
pub(super) fn empty_library(machine: &Machine) -> Vec<u8> {
    let is_64_bit = machine.is_64_bit;
    let width: u64 = if is_64_bit { 8 } else { 4 };
    let (header, segment, symbol) = if is_64_bit {
        (64, 56, 24)
    } else {
        (52, 32, 16)
    };
    // The header, three segments, the dynamic section with six entries, a table of one symbol and
    // its hash table of four words, and a table of strings with the empty one.
    let dynamic = header + 3 * segment;
    let dynamic_bytes = 6 * 2 * width;
    let symbols = dynamic + dynamic_bytes;
    let hash = symbols + symbol;
    let strings = hash + 4 * 4;
    let end = strings + 1;

    let mut image = Image {
        bytes: Vec::new(),
        is_64_bit,
    };
    let class = if is_64_bit { 2 } else { 1 };
    // Little-endian, version 1, no particular system.
    image.bytes.extend(b"\x7fELF");
    image.bytes.extend([class, 1, 1, 0]);
    image.bytes.extend([0; 8]);
    image.half(TYPE_SHARED);
    image.half(machine.number);
    image.word(1);
    // No entry, the program headers behind this one, no sections, no flags.
    for value in [0, header, 0] {
        image.address(value);
    }
    image.word(0);
    for value in [header, segment, 3, 0, 0, 0] {
        image.half(value as u16);
    }
    image.segment(LOAD, 0, end, PAGE_BYTES);
    image.segment(DYNAMIC, dynamic, dynamic_bytes, width);
    image.segment(STACK, 0, 0, 16);
    for (tag, value) in [
        (HASH, hash),
        (STRINGS, strings),
        (SYMBOLS, symbols),
        (STRINGS_BYTES, 1),
        (SYMBOL_BYTES, symbol),
        (END, 0),
    ] {
        image.address(tag);
        image.address(value);
    }
    image.bytes.resize(hash as usize, 0);
    // One bucket, one symbol, and both chains end there.
    for value in [1, 1, 0, 0] {
        image.word(value);
    }
    image.bytes.push(0);
    image.bytes
}
