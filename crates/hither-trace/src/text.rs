//! Shared by the text formats: lines, fields, numbers and keys, without a copy of the input. A
//! well-formed line costs no allocation.

use std::path::Path;

use crate::error::{Error, Result};
use crate::source::Input;

/// The longest line. Without a limit a binary file could be one line of the whole file. `strace -s`
/// prints long strings.
const LINE_BYTES_MAX: usize = 1 << 16;
/// Characters of a bad line that an error shows.
const SHOWN_CHARS_MAX: usize = 40;

/// A parsed field, or what is wrong with it.
pub(crate) type Parsed<T> = std::result::Result<T, &'static str>;

/// The lines of an input.
pub(crate) struct Lines<'i, 'a> {
    input: &'i mut Input<'a>,
    number: u64,
}

/// A line, without white space around it.
#[derive(Clone, Copy)]
pub(crate) struct Line<'l> {
    pub(crate) bytes: &'l [u8],
    untrimmed: &'l [u8],
    number: u64,
    path: &'l Path,
}

impl<'i, 'a> Lines<'i, 'a> {
    pub(crate) fn of(input: &'i mut Input<'a>) -> Lines<'i, 'a> {
        Lines { input, number: 0 }
    }

    /// The next line; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>> {
        let mut searched = 0;
        self.number += 1;
        let (length, end) = loop {
            let buffered = self.input.buffered();
            if let Some(at) = memchr::memchr(b'\n', &buffered[searched..]) {
                break (searched + at, 1);
            }
            searched = buffered.len();
            if searched > LINE_BYTES_MAX {
                break (searched, 0);
            }
            if !self.input.fill()? {
                if searched == 0 {
                    return Ok(None);
                }
                break (searched, 0);
            }
        };
        let (taken, path) = self.input.take(length + end);
        let line = Line {
            bytes: taken[..length].trim_ascii(),
            untrimmed: &taken[..length],
            number: self.number,
            path,
        };
        if length > LINE_BYTES_MAX {
            return Err(line.error("longer than 65536 bytes"));
        }
        Ok(Some(line))
    }
}

impl<'l> Line<'l> {
    /// The line with the white space around it, which separates fields where tabs do.
    pub(crate) fn untrimmed(&self) -> &'l [u8] {
        self.untrimmed.strip_suffix(b"\r").unwrap_or(self.untrimmed)
    }

    /// The same line with other content, for errors about it.
    pub(crate) fn with_bytes<'s>(self, bytes: &'s [u8]) -> Line<'s>
    where
        'l: 's,
    {
        Line { bytes, ..self }
    }

    /// An error about this line.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        let text =
            String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(4 * SHOWN_CHARS_MAX)]);
        Error::Line {
            path: self.path.to_owned(),
            line: self.number,
            problem: problem.into(),
            text: text.chars().take(SHOWN_CHARS_MAX).collect(),
        }
    }

    /// For `map_err`: a field of this line is invalid.
    pub(crate) fn wrong(self) -> impl FnOnce(&'static str) -> Error + 'l {
        move |problem| self.error(problem)
    }

    /// For `map_err`: an error about a row becomes one about this line.
    pub(crate) fn place(self) -> impl FnOnce(Error) -> Error + 'l {
        move |error| match error {
            Error::Row { problem, .. } => self.error(problem),
            other => other,
        }
    }
}

/// Exactly `N` fields of `line`, without surrounding white space. A space as separator stands for
/// any white space.
pub(crate) fn fields<const N: usize>(line: &[u8], separator: u8) -> Option<[&[u8]; N]> {
    let mut found = [b"".as_slice(); N];
    let mut count = 0;
    let mut put = |field| {
        *found.get_mut(count)? = field;
        count += 1;
        Some(())
    };
    if separator == b' ' {
        let words = line.split(u8::is_ascii_whitespace);
        words
            .filter(|word| !word.is_empty())
            .try_for_each(&mut put)?;
    } else {
        let mut fields = line.split(|byte| *byte == separator);
        fields.try_for_each(|field| put(field.trim_ascii()))?;
    }
    (count == N).then_some(found)
}

/// A decimal number.
pub(crate) fn decimal(text: &[u8]) -> Parsed<u64> {
    if text.is_empty() {
        return Err("a number is missing");
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err("not a decimal number");
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit)))
            .ok_or("number above 2^64 - 1")?;
    }
    Ok(value)
}

/// A decimal number with an optional fraction: its integer part, and the digits after the point.
pub(crate) fn fractional(text: &[u8]) -> Parsed<(u64, &[u8])> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, b"".as_slice()),
    };
    if fraction.iter().all(u8::is_ascii_digit) {
        Ok((decimal(whole)?, fraction))
    } else {
        Err("not a decimal number")
    }
}

/// A time in seconds, with or without a fraction, in nanoseconds.
pub(crate) fn seconds(text: &[u8]) -> Parsed<u64> {
    let (whole, fraction) = fractional(text)?;
    let mut unit = 1_000_000_000;
    let mut fraction_ns = 0;
    for digit in &fraction[..fraction.len().min(9)] {
        unit /= 10;
        fraction_ns += u64::from(digit - b'0') * unit;
    }
    whole
        .checked_mul(1_000_000_000)
        .and_then(|ns| ns.checked_add(fraction_ns))
        .ok_or("a time beyond 584 years")
}

/// A number of sectors of 512 bytes, in bytes.
pub(crate) fn sectors(text: &[u8]) -> Parsed<u64> {
    let bytes = decimal(text)?.checked_mul(512);
    bytes.ok_or("a sector above 2^55")
}

/// Times since the first one of a trace. An earlier one counts as the first.
#[derive(Debug, Default)]
pub(crate) struct SinceFirst(Option<u64>);

impl SinceFirst {
    /// The time since the first one that was given.
    pub(crate) fn ns(&mut self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(*self.0.get_or_insert(time_ns))
    }
}

/// A hexadecimal number, with or without `0x`.
pub(crate) fn hexadecimal(text: &[u8]) -> Parsed<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    if digits.is_empty() || digits.len() > 16 {
        return Err("not a hexadecimal number of 64 bits");
    }
    digits.iter().try_fold(0, |value, &byte| {
        let digit = char::from(byte).to_digit(16);
        let digit = digit.ok_or("not a hexadecimal number of 64 bits")?;
        Ok(value << 4 | u64::from(digit))
    })
}

/// The number of a key that may be any text. A canonical decimal number stands for itself, so
/// neighbours stay neighbours. Any other text becomes the XXH3-64 of its bytes. The chance that two
/// of n such keys collide is about n^2 / 2^65: 1 in 4 million for 3 million keys.
pub(crate) fn key(text: &[u8]) -> u64 {
    match decimal(text) {
        Ok(number) if text.len() == 1 || text[0] != b'0' => number,
        _ => twox_hash::XxHash3_64::oneshot(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_refused() {
        assert_eq!(decimal(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(
            decimal(b"18446744073709551616"),
            Err("number above 2^64 - 1")
        );
        for text in ["", "-1", "+1", "1 ", "0x1", "1e3"] {
            assert!(decimal(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(hexadecimal(b"0xffffffffffffffff"), Ok(u64::MAX));
        assert_eq!(hexadecimal(b"1F"), Ok(31));
        for text in ["", "0x", "0x1ffffffffffffffff", "g"] {
            assert!(hexadecimal(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_become_nanoseconds() {
        assert_eq!(seconds(b"12"), Ok(12_000_000_000));
        assert_eq!(seconds(b"0.026214"), Ok(26_214_000));
        assert_eq!(seconds(b"1.9999999999"), Ok(1_999_999_999));
        assert_eq!(seconds(b"18446744074"), Err("a time beyond 584 years"));
        assert!(seconds(b"1.2.3").is_err());
    }

    #[test]
    fn keys_have_the_same_number_for_ever() {
        assert_eq!(key(b"42"), 42);
        // The test vector of XXH3-64 for an empty input.
        assert_eq!(key(b""), 0x2d06_8005_38d3_94c2);
        assert_ne!(key(b"007"), 7);
    }

    #[test]
    fn lines_are_found_across_the_buffer_and_long_ones_refused() {
        let text: String = (0..90_000).map(|line| format!("line {line}\r\n")).collect();
        let mut input = Input::new("text", text.as_bytes()).unwrap();
        let mut lines = Lines::of(&mut input);
        for number in 0..90_000 {
            let line = lines.next().unwrap().unwrap();
            assert_eq!(line.bytes, format!("line {number}").as_bytes());
        }
        assert!(lines.next().unwrap().is_none());

        let long = [b"1\n".as_slice(), &vec![b'x'; 1 << 20]].concat();
        let mut input = Input::new("text", long.as_slice()).unwrap();
        let mut lines = Lines::of(&mut input);
        assert!(lines.next().is_ok());
        let error = lines.next().err().unwrap().to_string();
        assert!(error.starts_with("text:2: longer than"), "{error}");
    }

    #[test]
    fn fields_are_counted() {
        assert_eq!(fields::<2>(b"a, b", b','), Some([b"a".as_slice(), b"b"]));
        assert_eq!(fields::<2>(b"a \t b", b' '), Some([b"a".as_slice(), b"b"]));
        assert_eq!(fields::<2>(b"a,b,c", b','), None);
        assert_eq!(fields::<2>(b"a", b','), None);
    }
}
