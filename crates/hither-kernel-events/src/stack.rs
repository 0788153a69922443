//! User stacks, and how the programs know those again that were followed (`bpf/stack.h`).

use aya::maps::{HashMap, MapData, MapError};
use hither_ids::Pid;

use crate::bytes::u64_at;

/// The most bytes of a stack that can be copied.
pub const STACK_BYTES_MAX: u32 = 16 << 10;

/// The most words of a stack that are compared.
pub const CHECKS_MAX: usize = 96;

/// Stacks of one program, instruction and stack pointer that are known at the same time.
pub const WAYS: u32 = 4;

/// Where a program was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserStack<'a> {
    /// Not known: no stack was asked for, there was no room for it, or there is none.
    #[default]
    Unknown,
    /// As [`KnownStack`] has named it.
    Known(u64),
    /// The registers, and as much of the stack as was copied.
    Copied(CopiedStack<'a>),
}

/// The top of a stack. All of it is the program's: nothing in it need be true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedStack<'a> {
    /// The instruction pointer: behind a system call, or at what touched a page.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, of a program that has one.
    pub bp: u64,
    /// The link register. 0 on processors without one.
    pub link: u64,
    /// The program was in a system call.
    pub in_call: bool,
    words: &'a [[u8; 8]],
}

impl<'a> CopiedStack<'a> {
    /// A stack of these words, from the stack pointer on.
    pub fn new(registers: Registers, in_call: bool, words: &'a [[u8; 8]]) -> CopiedStack<'a> {
        let Registers { ip, sp, bp, link } = registers;
        CopiedStack {
            ip,
            sp,
            bp,
            link,
            in_call,
            words,
        }
    }

    /// The word at an address, if it was copied.
    pub fn word_at(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.sp)?;
        if !distance.is_multiple_of(8) {
            return None;
        }
        let word = self.words.get(usize::try_from(distance / 8).ok()?)?;
        Some(u64::from_ne_bytes(*word))
    }

    /// How many bytes were copied.
    pub fn bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }

    /// Reads what follows the fixed part of an event. None if it is no stack.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<UserStack<'a>> {
        if payload.is_empty() {
            return Some(UserStack::Unknown);
        }
        let signature = u64_at(payload, at::SIGNATURE)?;
        if signature != 0 {
            return (payload.len() == at::IP).then_some(UserStack::Known(signature));
        }
        let (words, rest) = payload.get(at::WORDS..)?.as_chunks();
        let registers = Registers {
            ip: u64_at(payload, at::IP)?,
            sp: u64_at(payload, at::SP)?,
            bp: u64_at(payload, at::BP)?,
            #[cfg(target_arch = "aarch64")]
            link: u64_at(payload, at::LINK)?,
            #[cfg(not(target_arch = "aarch64"))]
            link: 0,
        };
        let in_call = u64_at(payload, at::IN_CALL)? != 0;
        let copied = CopiedStack::new(registers, in_call, words);
        rest.is_empty().then_some(UserStack::Copied(copied))
    }
}

/// The registers that following a stack begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub bp: u64,
    /// The link register: where the innermost function returns to, or the last that it has called
    /// has returned to. 0 on processors without one.
    pub link: u64,
}

/// A word of a stack, and what it must hold for the stack to be the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Bytes above the stack pointer.
    pub distance: u32,
    /// The word that lies there.
    pub value: u64,
}

/// Where the programs look a stack up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackPlace {
    /// The process.
    pub process: Pid,
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// Which one of the stacks that have these in common: less than [`WAYS`].
    pub way: u32,
}

/// A stack that was followed. Events with the same one have its name in place of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownStack {
    /// Where it is looked up.
    pub place: StackPlace,
    /// The frame pointer, if the stack depends on it.
    pub bp: Option<u64>,
    /// The link register. 0 on processors without one.
    pub link: u64,
    /// What the stack must hold: at most [`CHECKS_MAX`] words within [`STACK_BYTES_MAX`].
    pub checks: Box<[Check]>,
    /// What [`UserStack::Known`] has. Not 0.
    pub signature: u64,
}

/// Where the fields of the structures of `bpf/stack.h` are.
mod at {
    pub(super) const SIGNATURE: usize = 0;
    pub(super) const IP: usize = 8;
    pub(super) const SP: usize = 16;
    pub(super) const BP: usize = 24;
    pub(super) const IN_CALL: usize = 32;
    /// Bytes of the link register, where there is one.
    const LINK_BYTES: usize = if cfg!(target_arch = "aarch64") { 8 } else { 0 };
    #[cfg(target_arch = "aarch64")]
    pub(super) const LINK: usize = 40;
    pub(super) const WORDS: usize = 40 + LINK_BYTES;
    pub(super) const KEY_IP: usize = 0;
    pub(super) const KEY_SP: usize = 8;
    pub(super) const KEY_PROCESS: usize = 16;
    pub(super) const KEY_WAY: usize = 20;
    pub(super) const KEY: usize = 24;
    pub(super) const KNOWN_SIGNATURE: usize = 0;
    pub(super) const KNOWN_BP: usize = 8;
    #[cfg(target_arch = "aarch64")]
    pub(super) const KNOWN_LINK: usize = 16;
    pub(super) const KNOWN_BYTES: usize = 16 + LINK_BYTES;
    pub(super) const KNOWN_COUNT: usize = KNOWN_BYTES + 4;
    pub(super) const KNOWN_NEEDS_BP: usize = KNOWN_COUNT + 2;
    pub(super) const KNOWN_WORDS: usize = KNOWN_NEEDS_BP + 2;
    pub(super) const KNOWN_VALUES: usize = KNOWN_WORDS + 2 * super::CHECKS_MAX;
    pub(super) const KNOWN: usize = KNOWN_VALUES + 8 * super::CHECKS_MAX;
}

/// The fields by their names in `bpf/stack.h`, and where they are.
#[cfg(test)]
pub(crate) const FIELDS: &[(&str, &str, usize)] = &[
    ("user_stack", "signature", at::SIGNATURE),
    ("user_stack", "ip", at::IP),
    ("user_stack", "sp", at::SP),
    ("user_stack", "bp", at::BP),
    ("user_stack", "in_call", at::IN_CALL),
    #[cfg(target_arch = "aarch64")]
    ("user_stack", "link", at::LINK),
    ("user_stack", "words", at::WORDS),
    ("stack_key", "ip", at::KEY_IP),
    ("stack_key", "sp", at::KEY_SP),
    ("stack_key", "process", at::KEY_PROCESS),
    ("stack_key", "way", at::KEY_WAY),
    ("known_stack", "signature", at::KNOWN_SIGNATURE),
    ("known_stack", "bp", at::KNOWN_BP),
    #[cfg(target_arch = "aarch64")]
    ("known_stack", "link", at::KNOWN_LINK),
    ("known_stack", "bytes", at::KNOWN_BYTES),
    ("known_stack", "count", at::KNOWN_COUNT),
    ("known_stack", "needs_bp", at::KNOWN_NEEDS_BP),
    ("known_stack", "words", at::KNOWN_WORDS),
    ("known_stack", "values", at::KNOWN_VALUES),
];

type Key = [u8; at::KEY];
type Value = [u8; at::KNOWN];

impl StackPlace {
    fn key(&self) -> Key {
        let mut key = [0; at::KEY];
        key[at::KEY_IP..][..8].copy_from_slice(&self.ip.to_ne_bytes());
        key[at::KEY_SP..][..8].copy_from_slice(&self.sp.to_ne_bytes());
        key[at::KEY_PROCESS..][..4].copy_from_slice(&self.process.0.to_ne_bytes());
        key[at::KEY_WAY..][..4].copy_from_slice(&self.way.to_ne_bytes());
        key
    }
}

impl KnownStack {
    /// None if the programs cannot compare it.
    fn value(&self) -> Option<Value> {
        let mut value = [0; at::KNOWN];
        let count = u16::try_from(self.checks.len()).ok()?;
        if usize::from(count) > CHECKS_MAX || self.signature == 0 {
            return None;
        }
        let mut end = 0;
        for (index, check) in self.checks.iter().enumerate() {
            end = end.max(check.distance.checked_add(8)?);
            let word = u16::try_from(check.distance / 8).ok()?;
            value[at::KNOWN_WORDS + 2 * index..][..2].copy_from_slice(&word.to_ne_bytes());
            value[at::KNOWN_VALUES + 8 * index..][..8].copy_from_slice(&check.value.to_ne_bytes());
        }
        if end > STACK_BYTES_MAX {
            return None;
        }
        let needs_bp = u16::from(self.bp.is_some());
        value[at::KNOWN_SIGNATURE..][..8].copy_from_slice(&self.signature.to_ne_bytes());
        value[at::KNOWN_BP..][..8].copy_from_slice(&self.bp.unwrap_or(0).to_ne_bytes());
        #[cfg(target_arch = "aarch64")]
        value[at::KNOWN_LINK..][..8].copy_from_slice(&self.link.to_ne_bytes());
        value[at::KNOWN_BYTES..][..4].copy_from_slice(&end.to_ne_bytes());
        value[at::KNOWN_COUNT..][..2].copy_from_slice(&count.to_ne_bytes());
        value[at::KNOWN_NEEDS_BP..][..2].copy_from_slice(&needs_bp.to_ne_bytes());
        Some(value)
    }
}

/// The stacks that the programs know again: the kernel drops those not seen for long.
pub(crate) struct KnownStacks(HashMap<MapData, Key, Value>);

impl KnownStacks {
    pub(crate) fn new(map: HashMap<MapData, Key, Value>) -> KnownStacks {
        KnownStacks(map)
    }

    pub(crate) fn insert(&mut self, stack: &KnownStack) -> Result<(), MapError> {
        let value = stack.value();
        value.map_or(Ok(()), |value| self.0.insert(stack.place.key(), value, 0))
    }

    pub(crate) fn remove(&mut self, place: &StackPlace) {
        // The kernel may have dropped it.
        let _ = self.0.remove(&place.key());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::u32_at;

    #[test]
    fn a_stack_is_read_by_address() {
        let mut payload = vec![0; at::WORDS];
        payload[at::SP..][..8].copy_from_slice(&4096_u64.to_ne_bytes());
        payload[at::IN_CALL] = 1;
        payload.extend(7_u64.to_ne_bytes());
        payload.extend(8_u64.to_ne_bytes());
        let Some(UserStack::Copied(stack)) = CopiedStack::decode(&payload) else {
            panic!("it is copied");
        };
        assert!(stack.in_call);
        assert_eq!(stack.bytes(), 16);
        assert_eq!(stack.word_at(4104), Some(8));
        for none in [0, 4088, 4100, 4112, u64::MAX] {
            assert_eq!(stack.word_at(none), None);
        }
        assert_eq!(CopiedStack::decode(&[]), Some(UserStack::Unknown));
        let known = 9_u64.to_ne_bytes();
        assert_eq!(CopiedStack::decode(&known), Some(UserStack::Known(9)));
        assert_eq!(CopiedStack::decode(&payload[..at::WORDS - 1]), None);
        assert_eq!(CopiedStack::decode(&payload[..at::WORDS + 1]), None);
    }

    #[test]
    fn what_the_programs_cannot_compare_is_not_given_to_them() {
        let check = |distance| Check { distance, value: 1 };
        let stack = |checks: Vec<Check>| KnownStack {
            place: StackPlace::default(),
            bp: None,
            link: 0,
            checks: checks.into(),
            signature: 3,
        };
        let value = stack(vec![check(16), check(8)]).value().unwrap();
        assert_eq!(u32_at(&value, at::KNOWN_BYTES), Some(24));
        assert!(stack(vec![check(STACK_BYTES_MAX - 8)]).value().is_some());
        assert!(stack(vec![check(STACK_BYTES_MAX)]).value().is_none());
        assert!(stack(vec![check(0); CHECKS_MAX]).value().is_some());
        assert!(stack(vec![check(0); CHECKS_MAX + 1]).value().is_none());
    }
}
