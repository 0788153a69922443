//! Which frames of a call stack make a signature, and what tells that the stack is the same again.
//!
//! The library follows stacks in its program, and the agent those that the kernel copies. The rule
//! is here, so that one call site has one signature.

use crate::arch;
use crate::record::{self, FRAMES_MAX};

pub use crate::arch::{SIGNAL_RETURN, epilogue};
pub use crate::epilogue::Epilogue;

/// The most words by which a stack is known again: return addresses and saved frame pointers.
pub const CHECKS_MAX: usize = 96;

/// The key of a module: a hash of its build-id, or of its path where it has none (FNV-1a).
pub fn module_key(build_id: &[u8], path: &[u8]) -> u64 {
    let bytes = if build_id.is_empty() { path } else { build_id };
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The build-id in a note segment: the note "GNU" of type 3.
pub fn build_id(notes: &[u8]) -> Option<&[u8]> {
    let mut rest = notes;
    while let Some((head, after)) = rest.split_at_checked(12) {
        let word = |at: usize| {
            u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default()) as usize
        };
        let (name_len, value_len, kind) = (word(0), word(4), word(8));
        let padded = |length: usize| length.saturating_add(3) & !3;
        let (name, after) = after.split_at_checked(padded(name_len))?;
        if kind == 3 && name.starts_with(b"GNU\0") {
            return after.get(..value_len);
        }
        let (_, after) = after.split_at_checked(padded(value_len))?;
        rest = after;
    }
    None
}

/// A word of the stack, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Bytes above the stack pointer.
    pub distance: u32,
    /// The word that lies there.
    pub value: u64,
}

/// Where a frame's frame pointer comes from.
#[derive(Clone, Copy, Debug)]
pub enum FramePointer {
    /// It is what it was where the walk began.
    Callers,
    /// A frame restored it from this slot.
    Saved(Check),
    /// A frame restored it, but it is not known from where.
    Unknown,
}

/// What a walk has found.
pub struct Frames {
    words: [u64; 2 * FRAMES_MAX],
    count: usize,
    /// The walk ended early.
    pub truncated: bool,
    /// The checks tell that the stack is the same again.
    pub memoisable: bool,
    /// A frame was found by the frame pointer with which the walk began.
    pub needs_fp: bool,
    checks: [Check; CHECKS_MAX],
    checked: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            words: [0; 2 * FRAMES_MAX],
            count: 0,
            truncated: false,
            memoisable: false,
            needs_fp: false,
            checks: [Check::default(); CHECKS_MAX],
            checked: 0,
        }
    }
}

impl Frames {
    /// Adds a frame, by the key of its module and the offset there, unless it is there already.
    #[inline]
    pub fn push(&mut self, key: u64, offset: u64) {
        let known = self
            .words()
            .chunks_exact(2)
            .any(|pair| pair == [key, offset]);
        if !known && self.count < FRAMES_MAX {
            self.words[2 * self.count] = key;
            self.words[2 * self.count + 1] = offset;
            self.count += 1;
        }
    }

    /// How many distinct frames there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Module key and offset of each distinct return address, innermost first.
    pub fn words(&self) -> &[u64] {
        &self.words[..2 * self.count]
    }

    /// What must be the same for the stack to be the same.
    pub fn checks(&self) -> &[Check] {
        &self.checks[..self.checked]
    }

    /// The stack has to hold `value` at `distance` bytes above the stack pointer.
    #[inline]
    pub fn check(&mut self, distance: u64, value: u64) {
        match (self.checks.get_mut(self.checked), u32::try_from(distance)) {
            (Some(check), Ok(distance)) => {
                *check = Check { distance, value };
                self.checked += 1;
            }
            _ => self.memoisable = false,
        }
    }

    /// The next frame is found by this frame pointer, which has to be the same. If it is not known
    /// where it lies, the stack is not known again.
    #[inline]
    pub fn depends_on(&mut self, from: FramePointer) {
        match from {
            FramePointer::Callers => self.needs_fp = true,
            FramePointer::Saved(Check { distance, value }) => {
                self.check(u64::from(distance), value);
            }
            FramePointer::Unknown => self.memoisable = false,
        }
    }

    /// Whether there might be no room for the checks of the next frame. Only a deep recursion,
    /// whose frames count once, gets this far; following it to its end would cost as much at every
    /// access.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.checked + 2 > CHECKS_MAX
    }

    /// The signature.
    pub fn signature(&self) -> u64 {
        record::signature(self.words())
    }
}

/// Whether code is where a signal handler returns to. The frames beyond are where the signal
/// happened to strike, not a call site.
pub fn is_signal_return(code: &[u8]) -> bool {
    !arch::SIGNAL_RETURN.is_empty() && code.starts_with(&arch::SIGNAL_RETURN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_occurs_again_counts_once() {
        let mut frames = Frames::default();
        for (key, offset) in [(1, 10), (2, 20), (1, 10), (1, 20)] {
            frames.push(key, offset);
        }
        assert_eq!(frames.words(), [1, 10, 2, 20, 1, 20]);
        assert_eq!(frames.signature(), record::signature(frames.words()));
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        for (kind, value) in [(1_u32, &[1_u8, 2, 3, 4][..]), (3, &[9, 8, 7])] {
            notes.extend(4_u32.to_le_bytes());
            notes.extend((value.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(value);
        }
        assert_eq!(build_id(&notes), Some(&[9, 8, 7][..]));
        assert_eq!(build_id(&notes[..20]), None);
        assert_eq!(build_id(&[255; 40]), None);
    }
}
