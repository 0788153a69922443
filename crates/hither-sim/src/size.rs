//! The size of a cache as a user writes it: `64MiB`, `512` (blocks) or `10%` (of the distinct
//! blocks of the trace).

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A cache size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Blocks.
    Blocks(u64),
    /// Bytes. A fraction of a block is dropped.
    Bytes(u64),
    /// A percentage of the trace's distinct blocks, rounded half up.
    Percent(f64),
}

/// Why a text is not the size of a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is not a size.
    #[error(
        "`{text}` is not a size: write blocks (512), bytes (64MiB) or a part of the distinct \
         blocks (10%)"
    )]
    Syntax {
        /// What was written.
        text: String,
    },
    /// Less than one block.
    #[error("a cache of size {size} holds no block ({detail}); the smallest cache is one block")]
    Empty {
        /// The size.
        size: String,
        /// What it was computed from.
        detail: String,
    },
    /// A number of blocks, where objects have sizes of their own.
    #[error(
        "a cache of objects has a size in bytes (64MiB) or a part of all bytes (10%), not {size}"
    )]
    NotBytes {
        /// The size.
        size: String,
    },
    /// No byte.
    #[error("a cache of size {size} holds no byte ({detail})")]
    NoBytes {
        /// The size.
        size: String,
        /// What it was computed from.
        detail: String,
    },
    /// More blocks than there are block numbers.
    #[error("a cache of size {size} is too large: at most {} blocks are possible", u32::MAX - 1)]
    TooLarge {
        /// The size.
        size: String,
    },
}

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl Size {
    /// The size in bytes, for a trace whose distinct objects have `distinct` bytes: a percentage is
    /// one of those.
    pub fn bytes(self, distinct: u64) -> Result<u64, SizeError> {
        let size = self.to_string();
        let (bytes, detail) = match self {
            Size::Blocks(_) => return Err(SizeError::NotBytes { size }),
            Size::Bytes(bytes) => (bytes, "zero bytes".to_owned()),
            Size::Percent(percent) => (
                (percent * distinct as f64 / 100.0 + 0.5).floor() as u64,
                format!("the objects of the trace have {distinct} bytes"),
            ),
        };
        match bytes {
            0 => Err(SizeError::NoBytes { size, detail }),
            bytes => Ok(bytes),
        }
    }

    /// The size in blocks of `block_bytes`, for a trace with `distinct` blocks.
    pub fn blocks(self, block_bytes: u64, distinct: u64) -> Result<u32, SizeError> {
        let (blocks, detail) = match self {
            Size::Blocks(blocks) => (blocks, "zero blocks".to_owned()),
            Size::Bytes(bytes) => (
                bytes / block_bytes,
                format!("a block is {block_bytes} bytes"),
            ),
            Size::Percent(percent) => (
                (percent * distinct as f64 / 100.0 + 0.5).floor() as u64,
                format!("the trace has {distinct} distinct blocks"),
            ),
        };
        let size = self.to_string();
        match u32::try_from(blocks) {
            Ok(0) => Err(SizeError::Empty { size, detail }),
            Ok(blocks) if blocks < u32::MAX => Ok(blocks),
            _ => Err(SizeError::TooLarge { size }),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Blocks(blocks) => blocks.fmt(f),
            Size::Percent(percent) => write!(f, "{percent}%"),
            Size::Bytes(bytes) => {
                let (unit, scale) = UNITS[..4]
                    .iter()
                    .find(|(_, scale)| bytes % scale == 0 && *bytes > 0)
                    .unwrap_or(&("B", 1));
                write!(f, "{}{unit}", bytes / scale)
            }
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let syntax = || SizeError::Syntax {
            text: text.to_owned(),
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim_end().parse().map_err(|_| syntax())?;
            return if percent.is_finite() && percent >= 0.0 {
                Ok(Size::Percent(percent))
            } else {
                Err(syntax())
            };
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = (&text[..digits], text[digits..].trim_start());
        if unit.is_empty() {
            return number.parse().map(Size::Blocks).map_err(|_| syntax());
        }
        let scale = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|&(_, scale)| scale)
            .ok_or_else(syntax)?;
        let number: f64 = number.parse().map_err(|_| syntax())?;
        Ok(Size::Bytes((number * scale as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write() {
        let blocks = |text: &str| {
            text.parse::<Size>()
                .and_then(|size| size.blocks(4096, 1409))
        };
        assert_eq!(blocks("512"), Ok(512));
        assert_eq!(blocks("64MiB"), Ok(16384));
        assert_eq!(blocks("1.5 mib"), Ok(384));
        assert_eq!(blocks("10%"), Ok(141));
        assert_eq!(blocks("50%"), Ok(705));
        assert_eq!(blocks("5%"), Ok(70));
        let bytes = |text: &str| text.parse::<Size>().expect(text).bytes(1000);
        assert_eq!(bytes("2KiB"), Ok(2048));
        assert_eq!(bytes("25.06%"), Ok(251));
        assert!(matches!(bytes("2"), Err(SizeError::NotBytes { .. })));
        assert!(matches!(bytes("0.01%"), Err(SizeError::NoBytes { .. })));
        for empty in ["0", "0%", "0B", "4095B", "0.01%"] {
            assert!(
                matches!(blocks(empty), Err(SizeError::Empty { .. })),
                "{empty}"
            );
        }
        for junk in [
            "",
            "x",
            "-1",
            "1.5",
            "10 parsecs",
            "nan%",
            "-3%",
            "1..2MiB",
            "%",
        ] {
            assert!(
                matches!(blocks(junk), Err(SizeError::Syntax { .. })),
                "{junk}"
            );
        }
        assert!(matches!(blocks("999TiB"), Err(SizeError::TooLarge { .. })));
        assert!(matches!(
            blocks("99999999999999999999999"),
            Err(SizeError::Syntax { .. })
        ));
    }

    #[test]
    fn writes_what_it_reads() {
        for text in ["512", "64MiB", "10%", "2.5%", "4095B", "3KiB", "0B"] {
            assert_eq!(text.parse::<Size>().expect(text).to_string(), text);
        }
    }
}
