//! Marks: an 8-byte NOP whose displacement has a code and "MUN", so a program runs unchanged
//! without the plugin.
//!
//! An instruction is better than a port or a hypercall because user code may execute it, and better
//! than a magic address because it costs nothing outside the lab.

/// What a program tells the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The region of interest opens: counts start at zero, caches stay warm.
    Begin,
    /// It closes: its last interval is written.
    End,
    /// An interval ends and the next begins.
    Iteration,
    /// The next two user loads of this vCPU read the first and the last byte of an address range.
    Range,
}

impl Mark {
    /// The mark that an instruction is, if it is one.
    ///
    /// An unknown code is not a mark. Compilers emit NOPs of this length for alignment, though
    /// never with this displacement.
    pub fn decode(instruction: &[u8]) -> Option<Self> {
        match *instruction {
            [0x0f, 0x1f, 0x84, 0x00, code, b'M', b'U', b'N'] => Self::from_code(code),
            _ => None,
        }
    }

    /// The mark of a code.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Begin),
            2 => Some(Self::End),
            3 => Some(Self::Iteration),
            4 => Some(Self::Range),
            _ => None,
        }
    }

    /// The code of the mark.
    pub fn code(self) -> u8 {
        match self {
            Self::Begin => 1,
            Self::End => 2,
            Self::Iteration => 3,
            Self::Range => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_from_other_nops() {
        for mark in [Mark::Begin, Mark::End, Mark::Iteration, Mark::Range] {
            assert_eq!(
                Mark::decode(&[0x0f, 0x1f, 0x84, 0x00, mark.code(), 0x4d, 0x55, 0x4e]),
                Some(mark)
            );
        }
        // The compiler's own NOP of 8 bytes, a mark of no known code, and one cut short.
        assert_eq!(Mark::decode(&[0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0]), None);
        assert_eq!(
            Mark::decode(&[0x0f, 0x1f, 0x84, 0x00, 9, 0x4d, 0x55, 0x4e]),
            None
        );
        assert_eq!(Mark::decode(&[0x0f, 0x1f, 0x84, 0x00, 1, 0x4d, 0x55]), None);
    }
}
