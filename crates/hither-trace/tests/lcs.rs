//! libCacheSim's lcs: all headers and records, and what a header must agree with.

mod common;

use common::samples::lcs;
use hither_trace::{Input, LoadOptions, Result, Trace};

const KEYS: [u64; 5] = [7, 8, 7, u64::MAX, 8];

fn read(bytes: &[u8]) -> Result<Trace> {
    Trace::read(Input::new("input", bytes)?, None, &LoadOptions::default())
}

#[test]
fn all_versions_are_the_same_references() {
    let versions = (1..=2).map(|version| (1024, version));
    for (header, version) in versions.chain((1..=8).map(|version| (8192, version))) {
        let trace = read(&lcs(header, version, &KEYS)).unwrap();
        assert_eq!(trace.format(), "lcs");
        assert_eq!(
            (trace.references(), trace.blocks()),
            (5, 3),
            "{header} {version}"
        );
        assert_eq!(trace.has_writes(), version > 1);
    }
    assert_eq!(read(&lcs(1024, 1, &[])).unwrap().references(), 0);
}

#[test]
fn what_a_header_says_has_to_be_so() {
    let sound = lcs(8192, 3, &KEYS);
    // Place, its new byte, and what is said.
    for (at, byte, problem) in [
        (8, 9, "input: byte 0: records of version 9, not 1 to 8"),
        (8191, 0, "input: byte 0: not a header of lcs with both"),
        (24, 6, "input: byte 24: 6 records, and 5 follow"),
        (24, 4, "input: byte 8228: a next access of 5"),
        (33, 1, "input: byte 0: 259 objects in 5 records"),
        (
            31,
            0x80,
            "input: byte 0: 3 objects in 9223372036854775813 records",
        ),
        // The first record begins at byte 8192, with a size at 12, an op at 20, and a next access
        // at 28.
        (
            8192 + 19,
            0x80,
            "input: byte 8192: a size of -9223372036854771712",
        ),
        (8192 + 20, 15, "input: byte 8192: an op of 15"),
        (8192 + 28, 0, "input: byte 8192: a next access of 0"),
        (8192 + 28, 1, "input: byte 8192: a next access of 1"),
        (
            8192 + 35,
            0xff,
            "input: byte 8192: a next access of -72057594037927933",
        ),
    ] {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{at}: {error}");
    }
    let mut version = lcs(1024, 2, &KEYS);
    version[8] = 3;
    let error = read(&version).unwrap_err().to_string();
    assert!(
        error.contains("records of version 3, not 1 to 2"),
        "{error}"
    );
    // The first number is enough to know the format, so all else has an error of its own.
    for end in 8..sound.len() {
        let error = read(&sound[..end]).unwrap_err().to_string();
        assert!(!error.contains("not in a format"), "{error}");
    }
}

/// A header with a format string, and its records.
fn described(letters: &str, fields: u32, bytes: u32, object: u8, next: u8) -> Vec<u8> {
    let mut header = vec![0; 1024];
    let magic = 0x1234_5678_9abc_def0u64.to_le_bytes();
    header[..8].copy_from_slice(&magic);
    header[1016..].copy_from_slice(&magic);
    header[8] = b'<';
    header[9..9 + letters.len()].copy_from_slice(letters.as_bytes());
    header[248] = object;
    header[252] = next;
    header[488] = 1;
    header[496] = 1;
    header[1000..1004].copy_from_slice(&fields.to_le_bytes());
    header[1004..1008].copy_from_slice(&bytes.to_le_bytes());
    header.extend(vec![0xff; bytes as usize]);
    header
}

#[test]
fn a_format_string_has_to_fit() {
    assert_eq!(
        read(&described("IQq", 3, 20, 2, 3)).unwrap().references(),
        1
    );
    for (bytes, problem) in [
        (described("IQq", 3, 20, 0, 3), "no field is the object"),
        (described("IQq", 3, 20, 4, 3), "field 4 of 3"),
        (described("IQd", 3, 20, 3, 0), "field 3 is a fraction"),
        (described("IQs", 3, 20, 2, 3), "another letter than"),
        (
            described("IQq", 2, 20, 2, 3),
            "other fields than the header says",
        ),
        (
            described("IQq", 3, 24, 2, 3),
            "other fields than the header says",
        ),
        (described("", 0, 0, 1, 0), "field 1 of 0"),
    ] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
